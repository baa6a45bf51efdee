//! GlintDB's memtable: an ordered concurrent map from (key, seqno) to value, the structure that every write and most reads go through.
//!
//! It is an insert-only B+tree with optimistic locks. Readers take no lock and write nothing shared; a writer locks the one leaf it
//! changes, and for a split that leaf and its parent. Nodes and records live in an [`Arena`] that is freed as a whole, so nothing is
//! ever reclaimed while somebody may look at it. One arena serves the memtables of all keyspaces of one generation, and its chunks
//! are recycled through a [`ChunkPool`], because fresh memory is dear. Why a B+tree: `docs/decisions/002-memtable.md`.
//!
//! ```
//! use glintdb_core::{Direction, EntryRef, SeqNum};
//! use glintdb_memtable::{Arena, ChunkPool, Memtable};
//! use std::{ops::Bound, sync::Arc};
//!
//! let pool = ChunkPool::new(64 << 20);
//! let memtable = Arc::new(Memtable::new(Arena::new(pool)));
//! memtable.insert(b"b", SeqNum(1), EntryRef::Inline(b"old"));
//! memtable.insert(b"b", SeqNum(3), EntryRef::Inline(b"new"));
//! memtable.insert(b"a", SeqNum(2), EntryRef::Tombstone);
//! assert_eq!(memtable.get(b"b", SeqNum(2)), Some((SeqNum(1), EntryRef::Inline(b"old"))));
//!
//! let mut cursor = memtable.cursor(Bound::Unbounded, Bound::Unbounded, Direction::Forward, SeqNum::MAX);
//! assert!(cursor.advance() && cursor.key() == b"a" && cursor.value() == EntryRef::Tombstone);
//! assert!(cursor.advance() && cursor.key() == b"b" && cursor.seqno() == SeqNum(3));
//! assert!(!cursor.advance());
//! ```
//!
//! Code map: `chunk` (memory and pool) < `arena` (bump allocation) < `record` (one version of a key) < `node` (slots and the optimistic
//! lock) < `memtable` (descent, insert, get) < `cursor`.
//!
//! Thread safety: [`Memtable`], [`Arena`] and [`ChunkPool`] are `Send + Sync`. Locks are taken parent before child and only ever tried, never
//! waited for, while another is held; so no deadlock. A reader that meets a writer retries; a node is locked for well under a microsecond.

#![allow(
    unsafe_code,
    reason = "a hot structure: nodes and records live in an arena and are shared through atomics (DESIGN.md, section 2)"
)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod arena;
mod chunk;
mod cursor;
mod memtable;
#[cfg(all(test, loom))]
mod models;
mod node;
mod prefix;
mod record;

pub use arena::Arena;
pub use chunk::ChunkPool;
pub use cursor::MemCursor;
pub use memtable::Memtable;

/// Asks for one cache line. A hint: any address will do.
#[inline]
#[cfg_attr(
    not(all(target_arch = "x86_64", not(miri))),
    expect(unused_variables, reason = "stable Rust has no prefetch here")
)]
fn prefetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address, and SSE is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
}
