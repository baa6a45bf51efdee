//! The table: one immutable file that holds a part of one sorted run. Format:
//! `docs/format/table.md`.
//!
//! ```text
//! header page | key blocks … | filter | fences | range tombstones | properties | footer
//!             │              └── "the tail": read whole at first use, then kept in memory
//!             └── read one by one, when they are needed
//! ```
//!
//! A [`TableWriter`] writes it front to back and returns its [`TableMeta`], which the manifest
//! records. [`Table`] reads it: [`Table::get`] looks up one key, [`Table::cursor`] walks in both
//! directions. [`salvage`] reads what is intact in a damaged one.
//!
//! Everything but writers and cursors is thread-safe.
//!
//! **Invariants:**
//! 1. Every byte is checksummed once, when it enters memory, before it is used.
//! 2. Bytes whose checksum is right may still make no sense. That is an error, never a panic.
//! 3. The memory that hostile bytes make a reader allocate is bounded by the length of the file.

mod ahead;
mod block;
mod block_builder;
mod block_cursor;
mod block_file;
mod block_file_writer;
mod block_iter;
mod block_shape;
mod compress;
mod config;
mod copy;
mod cursor;
mod delta_order;
mod fences;
mod fences_builder;
mod filter;
mod format;
pub(crate) mod meta;
mod pinned;
mod reader;
pub mod salvage;
mod separators;
mod sink;
mod source;
mod tombstones;
mod verify;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use block::StoredBlock;
pub use block::{Block, BlockHandle};
pub use block_cursor::BlockCursor;
pub use block_file::BlockFile;
pub use block_file_writer::{BlockFileWriter, WrittenBlock, stored_checksum};
pub use config::{Caching, Compression, TableConfig, TableEnv};
pub use cursor::TableCursor;
pub use fences::Fence;
pub use filter::key_hash;
pub use meta::TableMeta;
pub(crate) use pinned::PINNED_BLOCK_OVERHEAD_BYTES;
pub use pinned::{PinMemory, PinnedBlocks};
pub use reader::Table;
pub use separators::Separators;
pub use source::Purpose;
pub use writer::TableWriter;
