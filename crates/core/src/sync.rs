//! Where the engine gets its locks, atomics and threads from: one place, so that model checkers can put theirs underneath.
//!
//! | build | locks, condition variables | atomics, threads | `ArcSwap` |
//! |---|---|---|---|
//! | ordinary | `parking_lot` | `std` | `arc-swap` |
//! | `--cfg loom` | loom's behind `parking_lot`'s interface | loom | loads that may be old, `Acquire` and `AcqRel` |
//! | `--cfg shuttle` | shuttle's behind `parking_lot`'s interface | shuttle | a lock around the `Arc` |
//!
//! `--cfg tsan` is the ordinary build for ThreadSanitizer, which does not see every operation of `std`'s atomics (`sync/seen.rs`).
//!
//! In the ordinary build these are re-exports and nothing else. `Arc`, `Weak` and `OnceLock` come from `std` in all builds, and so do atomics that only count or only pick
//! a stripe: nothing waits for them and no order depends on them.
//!
//! Thread safety: as that of what stands behind each name.

#[cfg(any(loom, shuttle))]
mod modelled;
#[cfg(any(loom, shuttle))]
pub use modelled::*;

#[cfg(not(any(loom, shuttle)))]
pub use {
    arc_swap::{ArcSwap, ArcSwapOption},
    parking_lot::{Condvar, Mutex, MutexGuard, RwLock},
    std::{hint, thread, thread_local},
};

#[cfg(tsan)]
#[path = "sync/seen.rs"]
pub mod atomic;
#[cfg(not(any(loom, shuttle, tsan)))]
pub use std::sync::atomic;
