//! Atomics for ThreadSanitizer (`--cfg tsan`, `cargo xtask sanitize`): it does not see `fetch_max`, which is no operation of its runtime, so whatever is published by one would look like
//! a race. Here it is an exchange, which it sees.
//!
//! Thread safety: as the originals.

pub use std::sync::atomic::*;

/// As the original, with a `fetch_max` of exchanges.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicU64(std::sync::atomic::AtomicU64);

impl AtomicU64 {
    /// As the original.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        AtomicU64(std::sync::atomic::AtomicU64::new(value))
    }

    /// As the original.
    pub fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        let raised = self.fetch_update(order, Ordering::Acquire, |old| Some(old.max(value)));
        raised.unwrap_or_else(|old| old)
    }
}

impl std::ops::Deref for AtomicU64 {
    type Target = std::sync::atomic::AtomicU64;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
