//! The table: one immutable file that holds one sorted run fragment. Format: `docs/format/table.md`.
//!
//! ```text
//! header page | key blocks … | filter | fences | range tombstones | properties | footer
//!             '── read one by one, when asked for       '── "the tail": read whole at first use, kept in memory
//! ```
//!
//! A [`TableWriter`] writes it front to back and returns its [`TableMeta`], which the manifest records; [`Table`] reads it: point lookups
//! ([`Table::get`], or in steps for batches: [`Table::locate`], [`Table::read_request`], [`Table::accept_block`], [`Table::search`]) and [`TableCursor`]s in both
//! directions.
//!
//! Everything but writers and cursors is thread-safe. **Invariants:** every byte is checksummed before it is believed, once, when it enters memory; bytes whose
//! checksum is right are still not trusted to make sense (an error then, never a panic); what hostile bytes make us allocate is bounded by the file's length.

mod ahead;
mod block;
mod block_builder;
mod block_iter;
mod compress;
mod config;
mod copy;
mod cursor;
mod fences;
mod filter;
mod format;
mod meta;
mod pinned;
mod reader;
pub mod salvage;
mod sink;
mod source;
mod tombstones;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use block::{Block, BlockHandle, StoredBlock};
pub use config::{Compression, TableConfig, TableEnv};
pub use cursor::TableCursor;
pub use fences::Fence;
pub use filter::key_hash;
pub use meta::TableMeta;
pub use pinned::{PINNED_BLOCK_OVERHEAD_BYTES, PinMemory, PinnedBlocks};
pub use reader::Table;
pub use source::Purpose;
pub use writer::TableWriter;
