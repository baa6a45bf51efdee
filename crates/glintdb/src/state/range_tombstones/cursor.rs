//! Lookups of keys one after the other, as scans need them.
//!
//! Thread safety: belongs to one thread. It takes the lock of its set once for each chunk.

use super::RangeSet;
use super::fragments::Stretch;
use glintdb_core::{RangeTombstone, SeqNum};
use std::sync::Arc;

/// Finds the newest deletions of keys at or below a commit. Fast where each key is close to the one
/// before.
pub(crate) struct RangeCursor {
    set: Arc<RangeSet>,
    at: SeqNum,
    /// Fragments around the last key.
    stretch: Option<Stretch>,
    /// Number of fragments of the stretch that begin at or before the last key.
    up_to: usize,
    /// The range of the last key, if its fragment is newer than `at`.
    past: Option<RangeTombstone>,
    /// Number of times that a key was in another range than the key before.
    moves: u64,
}

impl RangeCursor {
    /// Creates a cursor for what a set has at or below `at`. All of that was inserted before.
    pub(crate) fn new(set: &Arc<RangeSet>, at: SeqNum) -> Self {
        RangeCursor {
            set: Arc::clone(set),
            at,
            stretch: None,
            up_to: 0,
            past: None,
            moves: 0,
        }
    }

    /// Moves to `key`. Returns the sequence number of the newest tombstone that covers it. Zero:
    /// there is none.
    pub(crate) fn seek(&mut self, key: &[u8]) -> SeqNum {
        let past = self.past.take_if(|past| !past.covers(key));
        if let Some(past) = &self.past {
            return past.seqno;
        }
        let known = (self.stretch.as_ref()).and_then(|there| there.find(key, self.up_to));
        let (up_to, seqno) = match known {
            Some(found) => found,
            None => {
                self.stretch = self.set.tombstones.read().newest.stretch_at(key);
                let found = self.stretch.as_ref().and_then(|there| there.find(key, 0));
                found.unwrap_or_default()
            }
        };
        if past.is_some() || known.is_none() || up_to != self.up_to {
            self.moves += 1;
            self.up_to = up_to;
        }
        if seqno <= self.at {
            return seqno;
        }
        let (found, made_bytes) = self.set.tombstones.read().past.at(key, self.at);
        self.set.note_memory(made_bytes);
        self.past.insert(found).seqno
    }

    /// Returns the tombstone that covers the last key, cut to a range in which it is the newest of
    /// every key. The key must be covered.
    pub(crate) fn range(&self) -> Option<&RangeTombstone> {
        let fragment = || self.stretch.as_ref()?.last_of(self.up_to);
        self.past.as_ref().or_else(fragment)
    }

    /// Returns a number that changes when a key is in another range than the key before.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }
}
