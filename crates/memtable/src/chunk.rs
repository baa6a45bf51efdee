//! Chunks: the blocks of memory an [`Arena`](crate::Arena) bumps its records and nodes out of, and the pool that recycles them.
//!
//! A page that the kernel must find and clear costs microseconds, so chunks of a dropped arena go back to a bounded pool, already
//! resident. Chunks of [`CHUNK_BYTES_MAX`] are mapped on a 2 MiB boundary and ask for a huge page; smaller ones come from the
//! global allocator, so that a small database costs little.
//!
//! Thread safety: [`ChunkPool`] is shared by any number of threads behind one mutex, taken once a chunk (not once an allocation).
//!
//! Invariants:
//! 1. A [`Chunk`] owns its memory alone; the memory is returned to where it came from exactly once, when the chunk is dropped.
//! 2. `pooled_bytes <= pooled_bytes_max` at all times.
//! 3. Only power-of-two sizes from [`CHUNK_BYTES_MIN`] to [`CHUNK_BYTES_MAX`] are pooled.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use glintdb_core::sync::{Mutex, MutexGuard};

/// Size of the smallest chunk, and of an arena's first: 64 KiB.
pub(crate) const CHUNK_BYTES_MIN: usize = 64 << 10;
/// Size of the largest pooled chunk: 2 MiB, one huge page on x86-64 and on aarch64 with 4 KiB granules.
pub(crate) const CHUNK_BYTES_MAX: usize = 2 << 20;
/// Alignment of the start of every chunk: a cache line.
pub(crate) const CHUNK_ALIGN: usize = 64;

const SIZE_CLASSES: usize = (CHUNK_BYTES_MAX / CHUNK_BYTES_MIN).ilog2() as usize + 1;

/// A block of uninitialised memory, at least [`CHUNK_ALIGN`]-aligned, owned.
pub(crate) struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a chunk is plain memory owned by this value alone (invariant 1); nothing in it is tied to the thread that made it.
unsafe impl Send for Chunk {}

impl Chunk {
    fn map(bytes: usize) -> Self {
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes == CHUNK_BYTES_MAX
            && let Some(base) = huge::map(bytes)
        {
            return Self { base, bytes };
        }
        let layout = Self::layout(bytes);
        // SAFETY: `layout` has a size of at least one (all callers ask for at least a header).
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        Self { base, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        // Chunks of the largest size are aligned to it when they come from the global allocator too, so that the address tells
        // nothing about the origin and `drop` decides by size alone where the platform is fixed.
        match Layout::from_size_align(bytes, CHUNK_ALIGN) {
            Ok(layout) => layout,
            Err(_) => panic!("chunk of {bytes} bytes exceeds the address space"),
        }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.bytes == CHUNK_BYTES_MAX {
            huge::unmap(self.base, self.bytes);
            return;
        }
        // SAFETY: `map` got this memory from `alloc` with this very layout, and a chunk is dropped once.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.bytes)) }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::*;

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // Twice the size is reserved and the ends given back, which leaves a block aligned to its own size.
        // SAFETY: an anonymous private mapping at an address of the kernel's choosing touches no existing memory.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            handle_alloc_error(Chunk::layout(bytes));
        }
        let raw = raw.cast::<u8>();
        let head = raw.align_offset(bytes);
        // SAFETY: `head < bytes`, so head + bytes + tail is exactly the mapping just made, and nobody else knows of it yet.
        unsafe {
            if head > 0 {
                libc::munmap(raw.cast(), head);
            }
            let base = raw.add(head);
            let tail = bytes - head;
            if tail > 0 {
                libc::munmap(base.add(bytes).cast(), tail);
            }
            // A refusal costs speed only.
            libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE);
            NonNull::new(base)
        }
    }

    pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: `base..base + bytes` is a mapping made by `map` and owned by the chunk that is being dropped.
        unsafe {
            libc::munmap(base.as_ptr().cast(), bytes);
        }
    }
}

#[derive(Default)]
struct Free {
    classes: [Vec<Chunk>; SIZE_CLASSES],
    bytes: usize,
}

/// Recycled chunks, bounded; share one among all the arenas of a process.
pub struct ChunkPool {
    free: Mutex<Free>,
    pooled_bytes_max: usize,
}

impl ChunkPool {
    /// A pool that keeps at most `pooled_bytes_max` bytes of unused chunks; what comes back beyond that is given to the system.
    #[must_use]
    pub fn new(pooled_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(Free::default()),
            pooled_bytes_max,
        })
    }

    /// Bytes of unused chunks held now.
    #[must_use]
    pub fn pooled_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A chunk of exactly `bytes`, recycled if there is one.
    pub(crate) fn take(&self, bytes: usize) -> Chunk {
        if let Some(class) = class_of(bytes) {
            let mut free = self.lock();
            if let Some(chunk) = free.classes[class].pop() {
                free.bytes -= bytes;
                return chunk;
            }
        }
        Chunk::map(bytes)
    }

    pub(crate) fn give_back(&self, chunk: Chunk) {
        if let Some(class) = class_of(chunk.bytes()) {
            let mut free = self.lock();
            if free.bytes + chunk.bytes() <= self.pooled_bytes_max {
                free.bytes += chunk.bytes();
                free.classes[class].push(chunk);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        // The lists are whole between any two statements above, so a panicking holder leaves nothing half done.
        self.free.lock()
    }
}

fn class_of(bytes: usize) -> Option<usize> {
    (bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes))
        .then(|| (bytes / CHUNK_BYTES_MIN).ilog2() as usize)
}
