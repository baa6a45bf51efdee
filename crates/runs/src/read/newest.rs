//! Walks runs that leave the top of an index, merged: the newest entry of each key. Range
//! tombstones are not applied. The walk counts the entries that it drops, so that an index can
//! merge the others with the entries beneath.
//!
//! Not thread-safe: belongs to one job.
//!
//! Invariants:
//! 1. An entry is dropped only because a newer entry of its key was met.
//! 2. `liveness` loses the length of every dropped pointer, once.

use crate::keys::range::{Bounds, KeyRange};
use crate::liveness::Liveness;
use crate::read::concat::Concat;
use crate::read::tournament::Tournament;
use crate::sorted::Sorted;
use crate::table::Purpose;
use glintdb_core::{Direction, EntryRef, Result, SeqNum};
use std::ops::Bound;

/// A walk over the newest entries of runs.
pub struct Newest {
    sources: Vec<Concat>,
    tournament: Tournament,
    /// The source that has the current entry.
    at: Option<usize>,
    last_key: Option<Vec<u8>>,
    liveness: Liveness,
    passed: u64,
    dropped: u64,
}

impl Newest {
    /// A walk over the keys of `range` in `runs`, newest data first. Opens the runs, which reads
    /// their first blocks.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn new<'a>(runs: impl Iterator<Item = &'a Sorted>, range: &KeyRange) -> Result<Newest> {
        let end = range.end.as_deref();
        let bounds = Bounds::new(
            Bound::Included(&range.start),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let offered: Vec<Concat> = runs
            .map(|tables| {
                let places = tables.places_meeting(range);
                let (direction, purpose) = (Direction::Forward, Purpose::Compaction);
                let mut source = Concat::new(tables.shared(), places, &bounds, direction, purpose);
                source.look_ahead();
                source
            })
            .collect();
        let mut sources = Vec::new();
        for mut source in offered {
            if source.advance()? {
                sources.push(source);
            }
        }
        Ok(Newest {
            tournament: Tournament::new(&sources, 0, Direction::Forward),
            sources,
            at: None,
            last_key: None,
            liveness: Liveness::default(),
            passed: 0,
            dropped: 0,
        })
    }

    /// Goes to the next entry. Returns false if there is none.
    ///
    /// # Errors
    /// I/O errors; `Corruption`, also where a run's keys do not ascend.
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(at) = self.at.take() {
                self.sources[at].advance()?;
                self.tournament.replay(&self.sources);
            }
            let Some(at) = self.tournament.winner(&self.sources) else {
                return Ok(false);
            };
            let Some(cursor) = self.sources[at].cursor() else {
                return Ok(false);
            };
            self.at = Some(at);
            self.passed += 1;
            let (key, value) = (cursor.key(), cursor.value());
            let last = self.last_key.as_deref();
            if last.is_some_and(|last| key < last) {
                let key = key.escape_ascii();
                return Err(cursor.corrupt(format!("a run gives its keys in disorder at {key}")));
            }
            if last != Some(key) {
                let last = self.last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                return Ok(true);
            }
            self.liveness.lose(value);
            self.dropped += 1;
        }
    }

    /// The current entry. `None` before the first [`advance`](Self::advance), and at the end.
    #[must_use]
    pub fn entry(&self) -> Option<(&[u8], SeqNum, EntryRef<'_>)> {
        let cursor = self.sources[self.at?].cursor()?;
        Some((cursor.key(), cursor.seqno(), cursor.value()))
    }

    /// What was dropped since the last call: the values that died, and the numbers of entries that
    /// were passed and dropped. The current entry is passed.
    pub fn take_counts(&mut self) -> (Liveness, u64, u64) {
        let liveness = std::mem::take(&mut self.liveness);
        let (passed, dropped) = (self.passed, self.dropped);
        (self.passed, self.dropped) = (0, 0);
        (liveness, passed, dropped)
    }
}
