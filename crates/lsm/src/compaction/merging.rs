//! Merges one key range of a compaction: the newest entry of each key, without what range tombstones hide and without tombstones that nothing needs.
//!
//! Not thread-safe: belongs to one job.
//!
//! Invariants:
//! 1. An entry is dropped only if a newer one of its key is written, or a range tombstone of the index hides it, or it is a tombstone older than the floor with nothing
//!    beneath it.
//! 2. `liveness` loses the length of every pointer dropped, once.

use crate::compaction::outputs::{Outputs, Written};
use crate::levels::{Levels, Slot};
use crate::liveness::Liveness;
use crate::range::{Bounds, KeyRange, before_end};
use crate::table::Purpose;
use crate::tombstones::{TombstoneSet, TombstoneWalk};
use crate::walk::concat::Concat;
use crate::walk::merge::{Tournament, shared_prefix};
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, Result, SeqNum};
use std::ops::Bound;
use std::sync::Arc;

/// So many bytes of value count as another entry: a step of large values is no longer than one of small ones.
const ENTRY_BYTES: usize = 256;
/// What a block counts in entries, at least.
const BLOCK_ENTRIES: u32 = 32;
/// Whole-block moves are tried at every block first, and ever more seldom (up to about every 2^5th block) where they keep failing.
const TRY_SHIFT_MAX: u32 = 5;

/// See the module's page.
pub(crate) struct Merging {
    sources: Vec<Concat>,
    tournament: Tournament,
    outputs: Outputs,
    end: Option<Bytes>,
    /// Every range tombstone of the index, for what it hides.
    hiding: Arc<TombstoneSet>,
    walk: TombstoneWalk,
    beneath: Beneath,
    floor: SeqNum,
    /// The key written or dropped last, of which older entries may follow, and its head.
    last: Last,
    last_head: u64,
    /// That key, where it was dropped; the outputs know what was written.
    dropped_key: Vec<u8>,
    /// For each source, whether it may hold tombstones that go: its blocks are not moved whole.
    holds_droppable: Vec<bool>,
    block_failures: u32,
    entries_to_skip: u32,
    pub(crate) liveness: Liveness,
}

/// What became of the key that was met last.
enum Last {
    /// There was none.
    None,
    Written,
    Dropped,
}

/// What a merge is given.
pub(crate) struct MergeInputs<'a> {
    /// Newest data first.
    pub(crate) sources: Vec<Arc<Vec<Arc<Slot>>>>,
    pub(crate) range: &'a KeyRange,
    pub(crate) levels: &'a Levels,
    /// Level that is written.
    pub(crate) output: u8,
    pub(crate) floor: SeqNum,
}

impl MergeInputs<'_> {
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.sources.iter().flat_map(|slots| slots.iter())
    }
}

/// Range tombstones of the inputs within the range that must be written again.
pub(crate) fn carried(inputs: &MergeInputs<'_>) -> Result<TombstoneSet> {
    let mut all = Vec::new();
    for slot in inputs.slots() {
        if slot.meta().range_tombstones > 0 {
            all.extend_from_slice(slot.table.range_tombstones()?);
        }
    }
    let set = TombstoneSet::new(all);
    if set.is_empty() {
        return Ok(set);
    }
    let kept = set.clipped(inputs.range).filter(|tombstone| {
        let range = crate::tombstones::range_of(tombstone);
        if glintdb_core::seeded::bug("lsm: a range deletion goes before what it hides") {
            return false;
        }
        tombstone.seqno >= inputs.floor
            || crate::compaction::pieces::anything_beneath(inputs.levels, inputs.output, &range)
    });
    Ok(TombstoneSet::new(kept))
}

impl Merging {
    /// Opens the sources (which reads their first blocks).
    pub(crate) fn new(inputs: MergeInputs<'_>, outputs: Outputs) -> Result<Merging> {
        let end = inputs.range.end.as_deref();
        let bounds = Bounds::new(
            Bound::Included(&inputs.range.start),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let slots = || inputs.slots().filter(|slot| slot.meta().entries > 0);
        let first = slots().map(|slot| &slot.meta().smallest).min();
        let last = slots().map(|slot| &slot.meta().largest).max();
        let prefix_bytes = match (first, last) {
            (Some(first), Some(last)) => shared_prefix(first, last),
            _ => 0,
        };
        let (mut sources, mut holds_droppable) = (Vec::new(), Vec::new());
        // What each source begins with is read together.
        let offered: Vec<Concat> = (inputs.sources.iter())
            .map(|slots| {
                let mut source = Concat::new(
                    slots,
                    0..slots.len(),
                    &bounds,
                    Direction::Forward,
                    Purpose::Compaction,
                );
                source.look_ahead();
                source
            })
            .collect();
        for (mut source, slots) in offered.into_iter().zip(&inputs.sources) {
            if source.advance()? {
                sources.push(source);
                holds_droppable.push(slots.iter().any(|slot| {
                    slot.meta().tombstones > 0 && slot.meta().seqno_min < inputs.floor
                }));
            }
        }
        Ok(Merging {
            tournament: Tournament::new(&sources, prefix_bytes, Direction::Forward),
            sources,
            outputs,
            end: inputs.range.end.clone(),
            hiding: Arc::clone(inputs.levels.tombstones()?),
            walk: TombstoneWalk::default(),
            beneath: Beneath::new(inputs.levels, inputs.output, inputs.range),
            floor: inputs.floor,
            last: Last::None,
            last_head: 0,
            dropped_key: Vec::new(),
            holds_droppable,
            block_failures: 0,
            entries_to_skip: 0,
            liveness: Liveness::default(),
        })
    }

    /// Merges about `budget` entries; `false`: everything is merged.
    pub(crate) fn step(&mut self, mut budget: u32) -> Result<bool> {
        while budget > 0 {
            let Some(at) = self.tournament.winner(&self.sources) else {
                return Ok(false);
            };
            let cost = match self.move_block(at)? {
                Some(bytes) => cost(bytes).max(BLOCK_ENTRIES),
                None => cost(self.merge_entry(at)?),
            };
            self.sources[at].advance()?;
            self.tournament.replay(&self.sources);
            budget = budget.saturating_sub(cost);
        }
        if glintdb_core::seeded::bug("lsm: a merge that is cut short leaves out an entry")
            && let Some(at) = self.tournament.winner(&self.sources)
        {
            self.sources[at].advance()?;
            self.tournament.replay(&self.sources);
        }
        Ok(true)
    }

    /// Finishes the last table.
    pub(crate) fn finish(self) -> Result<(Written, Liveness)> {
        let written = self.outputs.finish(self.end.as_ref())?;
        Ok((written, self.liveness))
    }

    /// Writes or drops the entry that source `at` stands on; answers how long its value is here.
    #[inline]
    fn merge_entry(&mut self, at: usize) -> Result<usize> {
        let Some(cursor) = self.sources[at].cursor() else {
            return Ok(0);
        };
        let (key, seqno, value) = (cursor.key(), cursor.seqno(), cursor.value());
        let bytes = match value {
            EntryRef::Inline(value) => value.len(),
            _ => 0,
        };
        let head = self.tournament.head_of(at);
        // Equal keys have equal heads: nearly every key is known to be a new one without a look at it.
        if head == self.last_head
            && (self.last_key() == Some(key)
                || glintdb_core::seeded::bug("lsm: keys whose heads are equal are taken for one"))
        {
            self.liveness.lose(value);
            return Ok(bytes);
        }
        let hidden = !self.hiding.is_empty() && self.walk.seqno_at(&self.hiding, key) > seqno;
        let kept = !hidden
            && (value != EntryRef::Tombstone
                || (seqno >= self.floor
                    && !glintdb_core::seeded::bug(
                        "lsm: a tombstone goes while a transaction needs it",
                    ))
                || (self.beneath.may_hold(key)
                    && !glintdb_core::seeded::bug("lsm: a tombstone goes before what it hides")));
        let mut ascends = head >= self.last_head;
        if kept {
            ascends = ascends && self.outputs.add(key, seqno, value)?;
            self.last = Last::Written;
        } else {
            ascends = ascends && self.last_key().is_none_or(|last| key > last);
            self.liveness.lose(value);
            self.dropped_key.clear();
            self.dropped_key.extend_from_slice(key);
            self.last = Last::Dropped;
        }
        self.last_head = head;
        if !ascends {
            let key = key.escape_ascii();
            // What the cursors hand out was checksummed, but not compared.
            let what = format!("an input of a compaction gives its keys in disorder at {key}");
            return Err(cursor.corrupt(what));
        }
        Ok(bytes)
    }

    /// The key written or dropped last.
    #[inline]
    fn last_key(&self) -> Option<&[u8]> {
        match self.last {
            Last::None => None,
            Last::Written => self.outputs.last_key(),
            Last::Dropped => Some(&self.dropped_key),
        }
    }

    /// Where source `at` stands on the first entry of a block that no other source and no range tombstone reaches into, writes the block as it is; answers its bytes.
    #[inline]
    fn move_block(&mut self, at: usize) -> Result<Option<usize>> {
        if self.entries_to_skip > 0 {
            self.entries_to_skip -= 1;
            return Ok(None);
        }
        self.try_move_block(at)
    }

    fn try_move_block(&mut self, at: usize) -> Result<Option<usize>> {
        if self.holds_droppable[at] {
            return Ok(None);
        }
        let Some(cursor) = self.sources[at].cursor_mut() else {
            return Ok(None);
        };
        if !cursor.find_whole_block()? {
            return Ok(None);
        }
        if !self.is_free(at) {
            self.block_failures = (self.block_failures + 1).min(TRY_SHIFT_MAX);
            self.entries_to_skip = BLOCK_ENTRIES << self.block_failures;
            return Ok(None);
        }
        self.block_failures = 0;
        let mut bytes = 0;
        if let Some(cursor) = self.sources[at].cursor_mut() {
            let block = cursor.take_block();
            bytes = block.block().handle().length as usize;
            self.outputs.add_block(&block)?;
            self.last = Last::Written;
            self.last_head = self.tournament.head(Some(cursor.whole_block_end()));
        }
        Ok(Some(bytes))
    }

    /// Whether nothing but source `at`, which stands on a whole block, has a say about the block's keys.
    fn is_free(&self, at: usize) -> bool {
        let Some(cursor) = self.sources[at].cursor() else {
            return false;
        };
        let (first, last) = (cursor.key(), cursor.whole_block_end());
        if self.last_key().is_some_and(|last_key| first <= last_key) {
            return false;
        }
        if glintdb_core::seeded::bug(
            "lsm: a block is moved whole though another run has keys in it",
        ) {
            return true;
        }
        let rival = self.tournament.runner_up(&self.sources);
        let rival = rival.and_then(|rival| self.sources[rival].cursor());
        if rival.is_some_and(|rival| rival.key() <= last) {
            return false;
        }
        if self.hiding.is_empty() {
            return true;
        }
        let block = KeyRange::inclusive(first, last);
        self.hiding.meeting(&block).is_empty()
    }
}

/// What a merge of `bytes` of value counts in entries.
fn cost(bytes: usize) -> u32 {
    1 + u32::try_from(bytes / ENTRY_BYTES).unwrap_or(u32::MAX - 1)
}

/// The tables beneath the level that is written, walked beside ascending keys.
struct Beneath {
    /// For each level beneath, its tables within the range and the next one.
    levels: Vec<(Vec<Arc<Slot>>, usize)>,
}

impl Beneath {
    fn new(levels: &Levels, output: u8, range: &KeyRange) -> Beneath {
        let beneath = levels.below0().filter(|(level, _)| *level > output);
        Beneath {
            levels: beneath
                .map(|(_, tables)| (tables.meeting(range).to_vec(), 0))
                .filter(|(tables, _)| !tables.is_empty())
                .collect(),
        }
    }

    /// Whether a table beneath answers for `key`, which is not smaller than those asked before.
    fn may_hold(&mut self, key: &[u8]) -> bool {
        self.levels.iter_mut().any(|(tables, at)| {
            while tables
                .get(*at)
                .is_some_and(|slot| !before_end(key, &slot.range.end))
            {
                *at += 1;
            }
            tables
                .get(*at)
                .is_some_and(|slot| slot.range.start.as_ref() <= key)
        })
    }
}
