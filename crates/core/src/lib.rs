//! What every GlintDB crate shares: sequence numbers and ids, entries and pointers, errors, codecs, checksums, the memory budget, the clock and the
//! [`Index`](index::Index) trait.
//!
//! **Architecture invariants** (absences): no I/O, no threads, no `unsafe`; nothing here knows a file system, an index kind or a protocol.

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
