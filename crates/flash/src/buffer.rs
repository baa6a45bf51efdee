//! Aligned memory for direct I/O, recycled.
//!
//! A fresh page costs a fault and a zeroing (0.25–10 µs), so reads fill buffers that were used
//! before. A buffer comes from a [`BufferPool`], becomes a [`Bytes`] without a copy, and goes back
//! to its pool when its last slice is dropped, on any thread.
//!
//! Thread safety: any thread.
//!
//! Invariants:
//! 1. A buffer's memory is always initialised. It is zeroed when it is allocated; a recycled buffer
//!    has what an earlier read left, which only its owner can see.
//! 2. Idle buffers of a pool never exceed `idle_bytes_max`.
//! 3. Classes are powers of two from 4 KiB to 1 MiB. Larger buffers are never kept.

use crate::process::ProcessToken;
use bytes::Bytes;
use glintdb_core::{Error, Result};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alignment of memory, offsets and lengths of direct I/O, in bytes. Devices with larger blocks
/// refuse the probe when a directory is opened, and are read and written buffered.
pub const DIRECT_ALIGNMENT: usize = 4096;
/// Largest buffer that is recycled, in bytes.
pub const POOLED_BYTES_MAX: usize = 1 << 20;

/// 4 KiB, 8 KiB, … 1 MiB.
const CLASSES: usize = (POOLED_BYTES_MAX / DIRECT_ALIGNMENT).ilog2() as usize + 1;

/// Recycles aligned buffers. Cheap to clone; clones share the buffers.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

struct Shared {
    /// The process that made the pool. A forked child takes no lock of it, which might never be
    /// free.
    process: ProcessToken,
    idle: [Mutex<Vec<Memory>>; CLASSES],
    idle_bytes: AtomicUsize,
    idle_bytes_max: usize,
    /// The most that was idle so far.
    idle_bytes_most: AtomicUsize,
    used_bytes: AtomicUsize,
}

impl BufferPool {
    /// A pool that keeps at most `idle_bytes_max` bytes of unused buffers.
    #[must_use]
    pub fn new(idle_bytes_max: usize) -> Self {
        BufferPool(Arc::new(Shared {
            process: ProcessToken::current(),
            idle: Default::default(),
            idle_bytes: AtomicUsize::new(0),
            idle_bytes_max,
            idle_bytes_most: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
        }))
    }

    /// Returns a buffer of `length` bytes, 4 KiB-aligned, with unspecified contents.
    ///
    /// # Errors
    /// `Io` if memory is refused.
    pub fn take(&self, length: usize) -> Result<AlignedBuffer> {
        let class = class_of(length);
        let recycled = class.and_then(|class| self.0.idle.get(class)?.lock().pop());
        let memory = match recycled {
            Some(memory) => {
                self.0
                    .idle_bytes
                    .fetch_sub(memory.capacity(), Ordering::Relaxed);
                memory
            }
            None => Memory::new(class.map_or(length, |class| DIRECT_ALIGNMENT << class))?,
        };
        self.0
            .used_bytes
            .fetch_add(memory.capacity(), Ordering::Relaxed);
        Ok(AlignedBuffer {
            memory: Some(memory),
            length,
            pool: Some(self.clone()),
        })
    }

    /// Bytes of buffers that are in use: being filled, or viewed by some `Bytes`.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of buffers kept for later.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        self.0.idle_bytes.load(Ordering::Relaxed)
    }

    /// The most that was kept for later so far, in bytes.
    #[must_use]
    pub fn idle_bytes_most(&self) -> usize {
        self.0.idle_bytes_most.load(Ordering::Relaxed)
    }

    fn give_back(&self, memory: Memory) {
        let bytes = memory.capacity();
        let used = self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            bytes <= used,
            "a buffer comes back once: {bytes} of {used} bytes in use"
        );
        let Some(list) = class_of(bytes).and_then(|class| self.0.idle.get(class)) else {
            return;
        };
        // Count first, so that threads giving back at once cannot exceed the bound together.
        let idle = self.0.idle_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if idle > self.0.idle_bytes_max {
            self.0.idle_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        self.0.idle_bytes_most.fetch_max(idle, Ordering::Relaxed);
        if self.0.process.is_current() {
            list.lock().push(memory);
        }
    }
}

/// Index of the smallest class for `length` bytes, `None` if they are too many to be recycled.
fn class_of(length: usize) -> Option<usize> {
    let size = length.max(DIRECT_ALIGNMENT).checked_next_power_of_two()?;
    (size <= POOLED_BYTES_MAX).then(|| (size / DIRECT_ALIGNMENT).ilog2() as usize)
}

/// A 4 KiB-aligned, always initialised piece of memory with one owner.
pub struct AlignedBuffer {
    /// `None` only while being dropped.
    memory: Option<Memory>,
    length: usize,
    pool: Option<BufferPool>,
}

impl AlignedBuffer {
    /// Returns a zeroed buffer that belongs to no pool, for direct writes.
    ///
    /// # Errors
    /// `Io` if memory is refused.
    pub fn zeroed(length: usize) -> Result<Self> {
        Ok(AlignedBuffer {
            memory: Some(Memory::new(length)?),
            length,
            pool: None,
        })
    }

    /// Cuts the buffer to its first `length` bytes. Does nothing if it is shorter.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: `Memory` owns `capacity` initialised bytes until it is dropped,
            // `length <= capacity`, and `&self` keeps writers out.
            Some(memory) => unsafe {
                std::slice::from_raw_parts(memory.pointer.as_ptr(), self.length)
            },
            None => &[],
        }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as in `as_slice`; `&mut self` makes the slice the only one.
            Some(memory) => unsafe {
                std::slice::from_raw_parts_mut(memory.pointer.as_ptr(), self.length)
            },
            None => &mut [],
        }
    }

    /// Makes the buffer a `Bytes` without a copy. Its memory goes back to the pool when the last
    /// slice is dropped.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let (Some(memory), Some(pool)) = (self.memory.take(), &self.pool) {
            pool.give_back(memory);
        }
    }
}

/// The allocation itself.
struct Memory {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Memory` is the only owner of plain bytes; nothing in it belongs to a thread.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(length: usize) -> Result<Self> {
        let refused = || {
            Error::io(
                format!("allocate {length} bytes"),
                std::io::Error::from(std::io::ErrorKind::OutOfMemory),
            )
        };
        let capacity = length
            .max(1)
            .checked_next_multiple_of(DIRECT_ALIGNMENT)
            .ok_or_else(refused)?;
        let layout = Layout::from_size_align(capacity, DIRECT_ALIGNMENT).map_err(|_| refused())?;
        #[cfg(all(target_os = "linux", not(miri)))]
        if capacity >= mapped::BYTES_MIN {
            let pointer = mapped::map(capacity).ok_or_else(refused)?;
            return Ok(Memory { pointer, layout });
        }
        // SAFETY: the layout's size is not zero (at least one page).
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Memory { pointer, layout })
    }

    fn capacity(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.capacity() >= mapped::BYTES_MIN {
            // SAFETY: `new` has mapped memory of this size; `Memory` is neither `Copy` nor `Clone`,
            // so it is unmapped once.
            unsafe { mapped::unmap(self.pointer, self.capacity()) }
            return;
        }
        // SAFETY: allocated in `new` with this layout; as above, it is freed once.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// Memory of whole pages from the kernel.
#[cfg(all(target_os = "linux", not(miri)))]
mod mapped {
    use std::ptr::NonNull;

    /// From this size on, in bytes, memory is mapped and not allocated. An allocator that is given
    /// such buffers among small pieces keeps much more than it has given out: with glibc and a
    /// budget of 64 MiB, a process that scanned long keys took 165 MiB instead of 95. It is the
    /// size from which glibc itself maps, until the first such piece is freed.
    pub(super) const BYTES_MIN: usize = 128 << 10;

    /// Maps zeroed memory. `None`: it is refused.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choosing touches no
        // existing memory.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (pointer != libc::MAP_FAILED)
            .then(|| NonNull::new(pointer.cast()))
            .flatten()
    }

    /// Unmaps memory.
    ///
    /// # Safety
    /// `pointer` came from [`map`] with the same size, and nothing uses the memory any more.
    pub(super) unsafe fn unmap(pointer: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            libc::munmap(pointer.as_ptr().cast(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back_when_the_last_slice_goes() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(5000).unwrap();
        assert_eq!(buffer.as_slice().as_ptr() as usize % DIRECT_ALIGNMENT, 0);
        buffer.as_mut_slice()[4999] = 7;
        let address = buffer.as_slice().as_ptr();
        let slice = buffer.into_bytes().slice(4990..);
        assert_eq!((slice.len(), slice[9]), (10, 7));
        assert_eq!((pool.used_bytes(), pool.idle_bytes()), (8192, 0));
        drop(slice);
        assert_eq!((pool.used_bytes(), pool.idle_bytes()), (0, 8192));
        assert_eq!(pool.take(8192).unwrap().as_slice().as_ptr(), address);
    }

    #[test]
    fn allocated_and_mapped_buffers_are_zeroed_and_usable_to_their_ends() {
        for length in [(64 << 10) + 1, 128 << 10, (3 << 20) + 5] {
            for fill in [1, 2] {
                let mut buffer = AlignedBuffer::zeroed(length).unwrap();
                assert_eq!(buffer.as_slice().as_ptr() as usize % DIRECT_ALIGNMENT, 0);
                assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
                buffer.as_mut_slice().fill(fill);
                assert!(buffer.as_slice().iter().all(|&byte| byte == fill));
            }
        }
    }

    #[test]
    fn idle_memory_is_bounded_and_large_buffers_are_not_kept() {
        let pool = BufferPool::new(16 << 10);
        let buffers: Vec<_> = (0..10).map(|_| pool.take(4096).unwrap()).collect();
        assert_eq!(pool.used_bytes(), 40 << 10);
        drop(buffers);
        assert_eq!(pool.idle_bytes(), 16 << 10);
        drop(pool.take(4096).unwrap().into_bytes());
        let out = pool.take(4096).unwrap();
        assert_eq!(
            (pool.idle_bytes(), pool.idle_bytes_most()),
            (12 << 10, 16 << 10)
        );
        drop(out);
        drop(pool.take(POOLED_BYTES_MAX + 1).unwrap());
        assert_eq!((pool.used_bytes(), pool.idle_bytes()), (0, 16 << 10));
        assert!(pool.take(usize::MAX - 10).is_err());
    }
}
