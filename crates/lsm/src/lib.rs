//! The LSM index: immutable tables of key blocks, levels of tables, merging and compaction.
//!
//! **Architecture invariants** (absences): nothing here opens a file by path (it knows a [`Volume`](glintdb_flash::Volume)), reads a clock, starts a thread, or
//! is `unsafe`.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "a test that unwraps fails, which is what it is for"
    )
)]

pub mod table;
