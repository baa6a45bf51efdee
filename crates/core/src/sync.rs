//! Locks, atomics and threads of the engine, in one place, so that other builds can replace them.
//!
//! | build | locks, condition variables, threads | atomics | `ArcSwap` |
//! |---|---|---|---|
//! | ordinary | `parking_lot`, `std` | `std` | `arc-swap` |
//! | `--cfg loom` | loom's, with the interface of `parking_lot` | loom | old values too, `Acquire` and `AcqRel` |
//! | `--cfg shuttle` | shuttle's, with the interface of `parking_lot` | shuttle | a lock around the `Arc` |
//! | `--cfg virtual_time` | those of [`virtual_time`]: one thread runs at a time | `std` | `arc-swap` |
//!
//! `--cfg tsan` is the ordinary build for ThreadSanitizer, which does not see every operation of
//! `std`'s atomics (`sync/seen.rs`).
//!
//! In the ordinary build these are re-exports. `Arc`, `Weak` and `OnceLock` come from `std` in all
//! builds, and so do atomics that only count or only pick a stripe: no thread waits for them and no
//! order depends on them.
//!
//! Thread safety: as that of the type behind each name.

#[cfg(any(loom, shuttle))]
mod modelled;
#[cfg(any(loom, shuttle))]
pub use modelled::*;

#[cfg(not(any(loom, shuttle)))]
pub use {
    arc_swap::{ArcSwap, ArcSwapOption},
    std::{hint, thread_local},
};
#[cfg(not(any(loom, shuttle, virtual_time)))]
pub use {
    parking_lot::{Condvar, Mutex, MutexGuard, RwLock},
    std::thread,
};

#[cfg(virtual_time)]
pub mod virtual_time;
#[cfg(virtual_time)]
pub use virtual_time::{
    locks::{Condvar, Mutex, MutexGuard, RwLock},
    thread,
};

#[cfg(tsan)]
#[path = "sync/seen.rs"]
pub mod atomic;
#[cfg(not(any(loom, shuttle, tsan)))]
pub use std::sync::atomic;

mod work;
pub use work::{Work, charge, processors, thread_number};
