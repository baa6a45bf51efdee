//! Walks sorted sequences of tables, merged, in one direction: the newest entry of each key,
//! without the entries that range tombstones hide.
//!
//! Not thread-safe: belongs to one reader. Keeps the tables that it reads.

use crate::keys::range::{Bounds, KeyRange};
use crate::keys::tombstones::TombstoneSet;
use crate::read::concat::Concat;
use crate::read::tournament::{MergeSource, Tournament};
use crate::sorted::Sorted;
use crate::table::{BlockHandle, Purpose, Table, TableCursor};
use bytes::Bytes;
use glintdb_core::index::{Cursor, Take};
use glintdb_core::key::shared_prefix;
use glintdb_core::{Direction, EntryRef, RangeTombstone, Result, SeqNum, planted};
use std::ops::Bound;
use std::sync::Arc;

/// Blocks read ahead at the beginning of the last source, which holds most entries. Of the other
/// sources one block is read.
const FIRST_BLOCKS: usize = 4;
/// Number of hidden entries in a row that the cursor passes one by one. Then it seeks behind what
/// the range tombstone covers. A seek costs about as much as this many steps.
const STEPS_BEFORE_SEEK: usize = 8;

/// A cursor that merges sources.
pub struct MergeCursor {
    purpose: Purpose,
    sources: Vec<Concat>,
    /// `None` before the first `advance` or `seek`, and after an error.
    tournament: Option<Tournament>,
    /// `None`: there are none.
    tombstones: Option<Arc<TombstoneSet>>,
    direction: Direction,
    /// The source that has the current entry.
    at: Option<usize>,
    begun: bool,
    /// Length of the prefix that all keys of the sources share.
    prefix_bytes: usize,
    last_key: Vec<u8>,
}

impl MergeCursor {
    /// A cursor over `sources`, newest data first, with the range tombstones of all of them. Reads
    /// nothing yet.
    pub fn new<'a>(
        sources: impl Iterator<Item = &'a Sorted>,
        tombstones: &Arc<TombstoneSet>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        purpose: Purpose,
    ) -> MergeCursor {
        let range = KeyRange::from_bounds(lower, upper);
        let bounds = Bounds::new(lower, upper);
        let sources: Vec<Concat> = sources
            .filter_map(|tables| {
                let places = tables.places_meeting(&range);
                let source = Concat::new(tables.shared(), places, &bounds, direction, purpose);
                (!source.is_empty()).then_some(source)
            })
            .collect();
        let ends = sources.iter().filter_map(Concat::ends);
        let first = ends.clone().map(|(smallest, _)| smallest).min();
        let last = ends.map(|(_, largest)| largest).max();
        let prefix_bytes = first
            .zip(last)
            .map(|(first, last)| shared_prefix(first, last));
        MergeCursor {
            purpose,
            sources,
            tournament: None,
            tombstones: (!tombstones.is_empty()).then(|| Arc::clone(tombstones)),
            direction,
            at: None,
            begun: false,
            prefix_bytes: prefix_bytes.unwrap_or(0),
            last_key: Vec::new(),
        }
    }

    /// The cursor. If there is one source and no range tombstone, the cursor of that source.
    pub fn boxed(mut self) -> Box<dyn Cursor> {
        if self.sources.len() == 1 && self.tombstones.is_none() {
            return Box::new(Going(self.sources.pop()));
        }
        Box::new(Going(Some(self)))
    }

    /// Reads the first blocks of all sources together: one wait instead of one for each source.
    fn read_first_blocks(&self, key: Option<&[u8]>) -> Result<()> {
        let Some(last) = self.sources.len().checked_sub(1) else {
            return Ok(());
        };
        if last == 0 || self.purpose != Purpose::Read {
            return Ok(());
        }
        let mut begun = Vec::new();
        for (at, source) in self.sources.iter().enumerate() {
            let count = if at == last { FIRST_BLOCKS } else { 1 };
            begun.extend(source.first_blocks(key, count)?);
        }
        // The cursor of a single source reads ahead better by itself.
        if begun.len() < 2 {
            return Ok(());
        }
        let wanted: Vec<(&Table, BlockHandle)> = begun
            .iter()
            .flat_map(|(slot, blocks)| blocks.iter().map(|&block| (&*slot.table, block)))
            .collect();
        // Ignore errors: the source reads the block again, and reports the error with its name.
        if let Some((table, _)) = wanted.first() {
            drop(Table::read_blocks(table.env(), &wanted));
        }
        Ok(())
    }

    /// Takes the winner, unless a range tombstone hides it.
    fn settle(&mut self) -> Result<bool> {
        let mut hidden = 0;
        loop {
            let Some(tournament) = &self.tournament else {
                return Ok(false);
            };
            self.at = tournament.winner(&self.sources);
            let Some(cursor) = self.at.and_then(|at| self.sources[at].cursor()) else {
                return Ok(false);
            };
            let covering = self.tombstones.as_ref();
            let covering = covering.and_then(|set| set.fragment_at(cursor.key()));
            let Some(range) = covering.filter(|range| range.seqno > cursor.seqno()) else {
                return Ok(true);
            };
            hidden += 1;
            if hidden < STEPS_BEFORE_SEEK {
                self.pass_key()?;
            } else {
                let range = range.clone();
                self.pass_hidden(&range)?;
            }
        }
    }

    /// Moves sources past what `range` covers, which hides the current entry, and at least past
    /// that entry.
    fn pass_hidden(&mut self, range: &RangeTombstone) -> Result<()> {
        let Some(at) = self.at.take() else {
            return Ok(());
        };
        self.last_key.clear();
        self.last_key
            .extend_from_slice(self.sources[at].current().unwrap_or_default());
        for source in &mut self.sources {
            let Some(key) = source.current() else {
                continue;
            };
            let is_older = planted!(
                "lsm: a range tombstone hides newer entries",
                source.is_hidden_by(range),
                true
            );
            if range.covers(key) && is_older {
                source.pass(range)?;
            } else if key == self.last_key {
                source.advance()?;
            }
        }
        self.tournament = Some(Tournament::new(
            &self.sources,
            self.prefix_bytes,
            self.direction,
        ));
        Ok(())
    }

    /// Moves every source that is at the current key past it.
    fn pass_key(&mut self) -> Result<()> {
        let Some(at) = self.at.take() else {
            return Ok(());
        };
        let Some(tournament) = &mut self.tournament else {
            return Ok(());
        };
        if !tournament.is_tied(at) {
            // No other source has the key.
            self.sources[at].advance()?;
            tournament.replay(&self.sources);
            return Ok(());
        }
        self.last_key.clear();
        self.last_key
            .extend_from_slice(self.sources[at].current().unwrap_or_default());
        let mut at = at;
        loop {
            self.sources[at].advance()?;
            tournament.replay(&self.sources);
            match tournament.winner(&self.sources) {
                Some(next) if self.sources[next].current() == Some(self.last_key.as_slice()) => {
                    at = next;
                }
                _ => return Ok(()),
            }
        }
    }

    fn move_on(&mut self) -> Result<bool> {
        if !self.begun {
            self.read_first_blocks(None)?;
            self.begun = true;
            for source in &mut self.sources {
                source.advance()?;
            }
            self.tournament = Some(Tournament::new(
                &self.sources,
                self.prefix_bytes,
                self.direction,
            ));
        } else {
            self.pass_key()?;
        }
        self.settle()
    }

    /// Walks one source alone as long as its keys come before the keys of all others.
    fn walk_on(&mut self, take: &mut Take<'_>) -> Result<bool> {
        let mut found = self.move_on()?;
        while found {
            let Some(at) = self.at else { return Ok(false) };
            let Some(cursor) = self.standing() else {
                return Ok(false);
            };
            let memory = Some(cursor.memory());
            if !take(cursor.key(), cursor.seqno(), cursor.value(), memory) {
                return Ok(true);
            }
            let alone = self.tombstones.is_none();
            let Some(tournament) = self.tournament.as_mut().filter(|_| alone) else {
                found = self.move_on()?;
                continue;
            };
            let rival = tournament.rival_head(at);
            if tournament.head_of(at) >= rival {
                found = self.move_on()?;
                continue;
            }
            let mut stopped = false;
            self.sources[at].walk(&mut |key, seqno, value, memory| {
                if tournament.head(Some(key)) >= rival {
                    return false;
                }
                stopped = !take(key, seqno, value, memory);
                !stopped
            })?;
            tournament.replay(&self.sources);
            if stopped {
                return Ok(true);
            }
            found = self.settle()?;
        }
        Ok(false)
    }

    fn move_to(&mut self, key: &[u8]) -> Result<bool> {
        if !self.begun {
            self.read_first_blocks(Some(key))?;
        }
        let forward = self.direction == Direction::Forward;
        for source in &mut self.sources {
            let there = self.begun
                && source
                    .current()
                    .is_none_or(|at| if forward { at >= key } else { at <= key });
            if !there {
                source.seek(key)?;
            }
        }
        self.begun = true;
        self.tournament = Some(Tournament::new(
            &self.sources,
            self.prefix_bytes,
            self.direction,
        ));
        self.settle()
    }
}

/// How a cursor moves: by a merge, or by its only source.
trait Steps: Send {
    fn advance(&mut self) -> Result<bool>;
    fn walk(&mut self, take: &mut Take<'_>) -> Result<bool>;
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    /// The cursor of the table that has the current entry.
    fn standing(&self) -> Option<&TableCursor>;
}

impl Steps for MergeCursor {
    fn advance(&mut self) -> Result<bool> {
        self.move_on()
    }

    fn walk(&mut self, take: &mut Take<'_>) -> Result<bool> {
        self.walk_on(take)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.move_to(key)
    }

    fn standing(&self) -> Option<&TableCursor> {
        self.at.and_then(|at| self.sources[at].cursor())
    }
}

impl Steps for Concat {
    fn advance(&mut self) -> Result<bool> {
        Concat::advance(self)
    }

    fn walk(&mut self, mut take: &mut Take<'_>) -> Result<bool> {
        Concat::walk(self, &mut take)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Concat::seek(self, key)
    }

    fn standing(&self) -> Option<&TableCursor> {
        self.cursor()
    }
}

/// A cursor that moves by `S`. `None` after an error: the cursor is over then.
struct Going<S>(Option<S>);

impl<S: Steps> Going<S> {
    fn moved(&mut self, moves: impl FnOnce(&mut S) -> Result<bool>) -> Result<bool> {
        let moved = self.0.as_mut().map_or(Ok(false), moves);
        if moved.is_err() {
            self.0 = None;
        }
        moved
    }

    fn current(&self) -> &TableCursor {
        match self.0.as_ref().and_then(S::standing) {
            Some(cursor) => cursor,
            None => panic!("a cursor was asked for its entry before advance or seek said true"),
        }
    }
}

impl<S: Steps> Cursor for Going<S> {
    fn advance(&mut self) -> Result<bool> {
        self.moved(S::advance)
    }

    fn walk(&mut self, take: &mut Take<'_>) -> Result<bool> {
        self.moved(|steps| steps.walk(take))
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.moved(|steps| steps.seek(key))
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn seqno(&self) -> SeqNum {
        self.current().seqno()
    }

    fn value(&self) -> EntryRef<'_> {
        self.current().value()
    }

    fn memory(&self) -> Option<&Bytes> {
        Some(self.current().memory())
    }
}
