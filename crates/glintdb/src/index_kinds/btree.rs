//! The B+tree index, as far as the engine and its tools name it.

pub(crate) use glintdb_btree::{BTree, EDIT_VERSION, FileChange, Salvaged, SettledTree, salvage};
pub use glintdb_btree::{BTreeExperiments, BTreeOptions};
