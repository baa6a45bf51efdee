//! The B+tree index: a *shelf* of sorted runs above one copy-on-write tree.
//!
//! A flush or a relocation puts a run on the shelf. A job merges the oldest runs into the tree,
//! slice by slice ([`settle`]). The tree has one entry a key, so a lookup reads one leaf.
//!
//! - [`edit`]: what the manifest records. [`picture`]: the state that follows from it.
//! - [`node`], [`tree`], [`directory`]: places of nodes, how they are read, and the branches in
//!   memory.
//! - [`view`], [`cursor`], [`verify`]: what readers see. [`walk`], [`salvage`]: what tools see.
//! - [`picker`], [`settle`], [`clean`]: what the index does in the background.
//! - [`index`], [`shared`], [`common`], [`options`]: the index as the engine knows it.
//!
//! Leaves are key blocks of tables, so tools that read tables read leaves. Branches are key blocks
//! of files of their own (`docs/format/tree.md`).
//!
//! **Architecture invariants:** a file belongs to one change. It is complete and synced when the
//! change is handed back, and is never written again. The index never opens a file by path, never
//! reads the clock and never starts a thread.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "a test that unwraps fails, which is what it is for"
    )
)]

mod clean;
mod common;
mod copy;
mod cursor;
mod directory;
mod edit;
mod index;
mod node;
mod options;
mod picker;
mod picture;
mod salvage;
mod settle;
mod shared;
mod tree;
mod verify;
mod view;
mod walk;

#[cfg(test)]
mod tests;

pub use copy::SettledTree;
pub use edit::EDIT_VERSION;

/// Decodes an edit and encodes it again. For fuzz targets.
///
/// # Errors
/// As the index gives them when it is opened.
#[doc(hidden)]
pub fn edit_again(bytes: &[u8]) -> glintdb_core::Result<Vec<u8>> {
    edit::Edit::decode(bytes).map(|edit| edit.encode())
}

pub use index::{BTree, FileChange};
pub use options::{BTreeExperiments, BTreeOptions};
pub use salvage::{Salvaged, salvage};
