//! Fetches cache lines ahead. Thread safety does not apply.

/// Tells the processor to fetch the cache line of the byte at offset `at` of `memory`, without
/// waiting for it. The offset may be behind the end.
///
/// ```
/// let entries = [0_u8; 4096];
/// // One entry is searched while the next but one is fetched:
/// glintdb_cache::prefetch_line(&entries, 200);
/// ```
#[inline(always)]
pub fn prefetch_line(memory: &[u8], at: usize) {
    prefetch(memory.as_ptr().addr().wrapping_add(at));
}

/// Tells the processor to fetch the cache line at `address`, which need not be mapped.
#[inline(always)]
pub(crate) fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address, mapped or not, only fills the processor's caches, and
    // every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
