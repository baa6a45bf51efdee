//! The clock of histories: a counter that every call and every return takes a number from, so that no two are the same and "before" means what it says.
//!
//! Thread safety: all of it.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Numbers in the order they are taken.
pub struct Stamps {
    next: AtomicU64,
    loose: bool,
}

impl Stamps {
    /// From 1. `loose`: taking a number orders nothing else, as far as the memory model is concerned. ThreadSanitizer would otherwise take every two calls for ordered, and see no race
    /// between them; on x86-64 the instruction is the same.
    #[must_use]
    pub fn new(loose: bool) -> Stamps {
        Stamps {
            next: AtomicU64::new(1),
            loose,
        }
    }

    /// The next number.
    pub fn take(&self) -> u64 {
        if self.loose {
            compiler_fence(Ordering::SeqCst);
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            number
        } else {
            self.next.fetch_add(1, Ordering::SeqCst)
        }
    }

    /// Numbers taken so far.
    pub fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Calls `what`; gives the numbers before and after with what it gave.
    pub fn around<T>(&self, what: impl FnOnce() -> T) -> (u64, T, u64) {
        let call = self.take();
        let given = what();
        (call, given, self.take())
    }
}
