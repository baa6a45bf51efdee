//! The harness is tested: mistakes planted in the engine, one at a time, and which lane of the harness notices each, after how much.
//!
//! - [`bugs`]: the list: every planted mistake, in a sentence, and the lane that is expected to find it.
//! - [`lanes`]: what is run against a mistake; each lane has a fixed amount of work, which must pass where nothing is wrong.
//! - [`search`]: runs the lanes in a process of their own, so that panics, aborts and hangs are contained.
//! - [`page`]: the table of `docs/reliability/seeded-bugs.md`.
//!
//! The program `glint-seeded` (feature `seeded-bugs`) drives it. Thread safety: one search a process ([`lanes::Steps`] is counted for the whole process).
#![allow(
    clippy::disallowed_methods,
    reason = "real processes, real threads and real time are used here"
)]

pub mod bugs;
mod copies;
mod damage;
mod faults;
pub mod killing;
pub mod lanes;
pub mod page;
pub mod search;
mod sequences;
mod shapes;
mod threads;

pub use bugs::{BUGS, Bug};
pub use lanes::Lane;
