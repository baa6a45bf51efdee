//! Memory of slabs: mapped in regions, of which pages go back to the kernel with every slab that is given back.

use super::sizes::SLAB_BYTES;
use parking_lot::Mutex;
use std::ptr::NonNull;

/// Slabs of a region: mappings are few, and a slab that is not taken costs addresses alone.
const SLABS_A_REGION: usize = 32;

/// Where slabs come from. Memory that is taken is zeroed and aligned to [`SLAB_BYTES`], and valid until it is given back.
#[derive(Default)]
pub(super) struct Chunks(Mutex<State>);

#[derive(Default)]
struct State {
    regions: Vec<Region>,
    free: Vec<NonNull<u8>>,
}

// SAFETY: what is free is touched by nobody, and is handed to one caller at a time.
unsafe impl Send for State {}

/// A mapping; unmapped when dropped.
struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

impl Chunks {
    /// Memory for a slab; `None`: the system gives none.
    pub(super) fn take(&self) -> Option<NonNull<u8>> {
        let mut state = self.0.lock();
        if state.free.is_empty() {
            let region = Region::map((SLABS_A_REGION + 1) * SLAB_BYTES)?;
            let skip = region.start.align_offset(SLAB_BYTES);
            // From its end on: memory is used in the order of addresses.
            for slab in (0..SLABS_A_REGION).rev() {
                // SAFETY: it ends within the region, which is a slab longer than its slabs are, and `skip` is less than one.
                let slab = unsafe { region.start.add(skip + slab * SLAB_BYTES) };
                state.free.push(slab);
            }
            state.regions.push(region);
        }
        state.free.pop()
    }

    /// Takes a slab back.
    ///
    /// # Safety
    /// It was taken here, and nobody uses it any more.
    pub(super) unsafe fn give_back(&self, slab: NonNull<u8>) {
        // SAFETY: a whole slab of a mapping of ours that nobody uses.
        unsafe { clear(slab) };
        self.0.lock().free.push(slab);
    }
}

#[cfg(not(miri))]
impl Region {
    fn map(bytes: usize) -> Option<Region> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping of its own, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // Else a page of 2 MiB could come with a slab, and come back after that is given back; where it cannot be said there are none.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        let start = NonNull::new(start.cast())?;
        Some(Region { start, bytes })
    }
}

#[cfg(not(miri))]
impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; who drops the chunks uses no slab any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Gives the pages of a slab back; it reads as zeros from then on.
#[cfg(not(miri))]
unsafe fn clear(slab: NonNull<u8>) {
    // SAFETY: the caller's; pages of an anonymous private mapping are zeros when they are touched again.
    let done = unsafe { libc::madvise(slab.as_ptr().cast(), SLAB_BYTES, libc::MADV_DONTNEED) };
    if done != 0 {
        // SAFETY: the caller's.
        unsafe { slab.write_bytes(0, SLAB_BYTES) };
    }
}

/// Miri knows no `madvise`: there the allocator stands for the kernel.
#[cfg(miri)]
impl Region {
    fn layout(bytes: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(bytes, 4096).ok()
    }

    fn map(bytes: usize) -> Option<Region> {
        // SAFETY: of more than no bytes.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(Region::layout(bytes)?) })?;
        Some(Region { start, bytes })
    }
}

#[cfg(miri)]
impl Drop for Region {
    fn drop(&mut self) {
        if let Some(layout) = Region::layout(self.bytes) {
            // SAFETY: allocated by `map` with this layout.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
        }
    }
}

#[cfg(miri)]
unsafe fn clear(slab: NonNull<u8>) {
    // SAFETY: the caller's.
    unsafe { slab.write_bytes(0, SLAB_BYTES) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_zeroed_aligned_and_apart() {
        let chunks = Chunks::default();
        let take = || {
            let slab = chunks.take().unwrap();
            assert_eq!(slab.align_offset(SLAB_BYTES), 0);
            // SAFETY: a slab that is ours.
            let bytes = unsafe { std::slice::from_raw_parts_mut(slab.as_ptr(), SLAB_BYTES) };
            assert!(bytes.iter().step_by(509).all(|&byte| byte == 0));
            bytes.fill(1);
            slab
        };
        let mut slabs: Vec<_> = (0..SLABS_A_REGION + 2).map(|_| take()).collect();
        for slab in slabs.split_off(3) {
            // SAFETY: taken above, and used no more.
            unsafe { chunks.give_back(slab) };
        }
        slabs.extend((0..5).map(|_| take()));
        slabs.sort_unstable();
        assert!(slabs.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
