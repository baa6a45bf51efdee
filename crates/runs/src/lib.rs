//! Sorted runs: immutable tables of key blocks, and how runs of them are written, merged and read.
//!
//! Every kind of index has runs at its top, and this crate is what they share. An index decides
//! which runs there are and when they are merged; here is how. It makes one [`RunEnv`] of the
//! [`IndexEnv`] that it is given. A flush or a relocation becomes a run ([`write::write_run`]): a
//! few [`table`]s that ascend and do not overlap ([`Sorted`]). Compactions merge runs and other
//! sorted sequences of tables ([`write::Merging`]). Readers search and merge them, newest data
//! first ([`read`]).
//!
//! **Architecture invariants** (absences): nothing here knows levels, an index's options or what an
//! index records in the manifest. Nothing opens a file by path (it knows a
//! [`Volume`](glintdb_flash::Volume)), reads a clock, starts a thread, or is `unsafe`.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "a test that unwraps fails, which is what it is for"
    )
)]

mod env;
pub mod keys;
mod liveness;
mod pins;
pub mod read;
mod sorted;
pub mod table;
pub mod top;
pub mod write;

pub use env::{IndexEnv, RunEnv};
pub use liveness::Liveness;
pub use pins::{PinReading, PinStep, pin_bytes};
pub use sorted::{Run, Slot, Sorted, range_tombstones};
pub use table::Compression;
