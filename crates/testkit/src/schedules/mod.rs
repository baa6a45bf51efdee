//! The engine under shuttle: real commits, reads, flushes and compactions over a simulated volume, while shuttle decides at every lock, atomic and wake-up which thread
//! goes on. A case is a number: it decides what the threads do, the options, the scheduler, and all its schedules, so a failing case is repeated by its number alone.
//!
//! - [`scenario`]: what the threads of a case do, and the database they do it to.
//! - [`expect`]: what each thread's commits amount to, so that every picture of the database can be held to a prefix of the commit order.
//! - [`run`]: cases by the number.
//!
//! Only in a build with `--cfg shuttle` (`cargo xtask models`).
//!
//! Thread safety: shuttle's threads are coroutines of one thread; what only the oracle uses is in `std`'s types, so that it adds no points of interleaving.

pub mod expect;
pub mod run;
pub mod scenario;
