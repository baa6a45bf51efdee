//! The LSM index: levels of sorted tables, and their compaction. Tables and runs themselves are in
//! `glintdb-runs`.
//!
//! Bird's-eye view: a flush ([`Lsm::write_run`](glintdb_core::index::Index::write_run)) adds a run
//! to level 0. The picker chooses what to compact. A compaction is a task that is divided into
//! pieces, each merged by a resumable job. Every change is an edit, which the manifest records
//! before [`Lsm::apply`](glintdb_core::index::Index::apply) makes it visible in a new view. The
//! shape of the tree: `docs/decisions/004-lsm-shape.md`. The sizes of levels:
//! `docs/decisions/016-level-sizes.md`.
//!
//! **Architecture invariants** (absences): nothing here opens a file by path (it knows a
//! [`Volume`](glintdb_flash::Volume)), reads a clock, starts a thread, or is `unsafe`.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "a test that unwraps fails, which is what it is for"
    )
)]

mod bottom;
mod common;
mod compaction;
mod edit;
mod flush;
mod index;
mod levels;
mod options;
mod pinning;
mod shared;
mod view;

/// An edit decoded and encoded again. For fuzz targets, and no part of the API.
///
/// # Errors
/// As the index gives them when it is opened.
#[doc(hidden)]
pub fn edit_again(bytes: &[u8]) -> glintdb_core::Result<Vec<u8>> {
    edit::Edit::decode(bytes).map(|edit| edit.encode())
}

pub use bottom::{BottomLevel, WrittenLevel};
pub use compaction::shape::level_bytes;
pub use glintdb_core::index::PinnedLevels;
pub use index::{Lsm, TableChange};
#[doc(hidden)]
pub use options::LsmExperiments;
pub use options::{LEVELS_BELOW_0_MAX, LsmOptions};

#[cfg(test)]
mod tests;
