//! The LSM index: immutable tables of key blocks, levels of tables, merging and compaction.
//!
//! Bird's-eye view: a flush ([`Lsm::write_run`](glintdb_core::index::Index::write_run)) adds a run to level 0; the picker chooses what to compact; a compaction is a
//! task cut into pieces, each merged by a resumable job; every change is an edit that the manifest records before [`Lsm::apply`](glintdb_core::index::Index::apply)
//! makes it visible in a new view. Shape and its reasons: `docs/decisions/004-lsm-shape.md`,
//! sizes of levels: `docs/decisions/016-level-sizes.md`.
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

mod common;
mod compaction;
mod edit;
mod env;
mod flush;
mod index;
mod levels;
mod liveness;
mod lookups;
mod options;
mod pinning;
mod pins;
mod places;
mod range;
mod relocation;
mod sample;
mod scans;
mod shared;
mod sorted;
pub mod table;
mod tombstones;
mod verify;
mod view;
mod walk;
mod write_run;

/// An edit decoded and encoded again. For fuzz targets, and no part of the API.
///
/// # Errors
/// As the index gives them when it is opened.
#[doc(hidden)]
pub fn edit_again(bytes: &[u8]) -> glintdb_core::Result<Vec<u8>> {
    edit::Edit::decode(bytes).map(|edit| edit.encode())
}

pub use compaction::shape::level_bytes;
pub use env::IndexEnv;
pub use glintdb_core::index::PinnedLevels;
pub use index::{Lsm, TableChange};
pub use options::{LEVELS_BELOW_0_MAX, LsmOptions};
pub use table::Compression;

#[cfg(test)]
mod tests;
