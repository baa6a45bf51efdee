//! What every GlintDB crate shares: sequence numbers and ids, entries and pointers, errors, codecs,
//! checksums, the memory budget, the clock, locks and threads, and the [`Index`](index::Index)
//! trait.
//!
//! **Architecture invariants** (absences): no I/O, no `unsafe`, and no threads but those that `sync`
//! passes on; nothing here knows a file system, a kind of index or a protocol.

#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod codec;
pub mod entry;
pub mod error;
pub mod ids;
pub mod index;
pub mod key;
pub mod memory;
mod padded;
mod proportion;
pub mod seeded;
mod setters;
pub mod sync;

pub use entry::{
    Direction, Entry, EntryRef, EntryValue, RangeTombstone, TombstoneWalk, ValuePointer,
};
pub use error::{Error, ErrorKind, Result};
pub use ids::{DbId, FileId, FileKind, FileNumbers, KeyspaceId, SegmentId, SeqNum};
pub use padded::Padded;
pub use proportion::proportion;
