//! Merges one key range of several sorted sequences of tables. Of each key it writes the newest
//! entry, unless a range tombstone hides it, or it is a tombstone that is not needed any more.
//!
//! Not thread-safe: belongs to one job.
//!
//! Invariants:
//! 1. An entry is dropped only for one of three reasons: a newer entry of its key was met; a range
//!    tombstone of the index hides it; or it is a tombstone below the floor, and no table beneath
//!    may hold its key.
//! 2. `liveness` loses the length of every dropped pointer, once.
//! 3. Every entry that is passed was written or dropped, and the entries that are passed are those
//!    that the inputs' records count ([`check_balance`]).

use crate::env::RunEnv;
use crate::keys::range::{Bounds, KeyRange, before_end};
use crate::keys::tombstones::{TombstoneSet, clip, range_of};
use crate::liveness::Liveness;
use crate::read::concat::Concat;
use crate::read::tournament::Tournament;
use crate::sorted::{Slot, Sorted, range_tombstones_kept};
use crate::table::{Purpose, TableMeta};
use crate::write::outputs::{OutputConfig, Outputs, Written};
use bytes::Bytes;
use glintdb_core::index::LivenessDelta;
use glintdb_core::key::shared_prefix;
use glintdb_core::{Direction, EntryRef, Error, Result, SeqNum, TombstoneWalk, planted};
use std::ops::Bound;
use std::sync::Arc;

/// This many bytes of value count as one more entry, so that a step over large values takes no
/// longer than a step over small ones.
const ENTRY_BYTES: usize = 256;
/// The least that a block counts, in entries.
const BLOCK_ENTRIES: u32 = 32;
/// At first, every block is tried to be moved whole. Each failure doubles the distance to the next
/// try, up to about 2^5 blocks.
const TRY_SHIFT_MAX: u32 = 5;

/// A merge in steps.
pub struct Merging {
    sources: Vec<Concat>,
    tournament: Tournament,
    outputs: Outputs,
    end: Option<Bytes>,
    /// All range tombstones of the index: they hide entries of the inputs.
    hiding: Arc<TombstoneSet>,
    walk: TombstoneWalk,
    beneath: Beneath,
    floor: SeqNum,
    /// What was done with the key that was met last. Older entries of it may follow.
    last: Last,
    /// The head of that key.
    last_head: u64,
    /// That key, if it was dropped. If it was written, the outputs know it.
    dropped_key: Vec<u8>,
    /// For each source, whether it may hold tombstones that can be dropped. Its blocks are not
    /// moved whole then.
    holds_droppable: Vec<bool>,
    block_failures: u32,
    entries_to_skip: u32,
    liveness: Liveness,
    /// Number of entries that were dropped.
    dropped: u64,
    /// Number of entries that the sources have passed.
    passed: u64,
}

/// A finished merge.
pub struct Merged {
    /// The tables that were written.
    pub written: Written,
    /// Bytes of values that die with the dropped entries.
    pub liveness: Liveness,
    /// Number of entries of the inputs, each of which was written or dropped.
    pub entries: u64,
}

/// What was done with the key that was met last.
enum Last {
    /// There was no key yet.
    None,
    Written,
    Dropped,
}

/// What a merge is given.
pub struct MergeInputs<'a> {
    /// The tables to be merged: sorted sequences, newest data first.
    pub sources: Vec<Arc<Vec<Arc<Slot>>>>,
    /// The keys to be merged.
    pub range: &'a KeyRange,
    /// All range tombstones of the index.
    pub hiding: &'a Arc<TombstoneSet>,
    /// All tables beneath the output. Tombstones over their keys are still needed.
    pub beneath: Vec<&'a Sorted>,
    /// Tombstones with this sequence number or a greater one are kept.
    pub floor: SeqNum,
    /// Newer range tombstones of other tables hide everything in the inputs, so nothing of them is
    /// kept.
    pub removes: bool,
}

impl MergeInputs<'_> {
    /// The tables to be merged.
    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.sources.iter().flat_map(|slots| slots.iter())
    }

    /// The range tombstones of the inputs within the range that must be written again.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn carried(&self) -> Result<TombstoneSet> {
        if self.removes {
            return Ok(TombstoneSet::default());
        }
        range_tombstones_kept(self.slots(), |tombstone| {
            let part = clip(&tombstone, self.range)?;
            let range = range_of(&part);
            let hides = |tables: &&Sorted| !tables.meeting(&range).is_empty();
            planted!(
                "lsm: a range deletion goes before what it hides",
                part.seqno >= self.floor || self.beneath.iter().any(hides),
                false
            )
            .then_some(part)
        })
    }
}

impl Merging {
    /// Opens the sources, which reads their first blocks. `config` says how the outputs are
    /// written.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn new(
        env: &Arc<RunEnv>,
        inputs: &MergeInputs<'_>,
        config: OutputConfig,
    ) -> Result<Merging> {
        let entries: u64 = inputs.slots().map(|slot| slot.meta().entries).sum();
        let entries_hint = usize::try_from(entries).unwrap_or(usize::MAX);
        let (carry, from) = (inputs.carried()?, inputs.range.start.clone());
        let outputs = Outputs::new(env, config, entries_hint, carry, from);
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
        // All sources offer their first blocks before any of them waits.
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
            hiding: Arc::clone(inputs.hiding),
            walk: TombstoneWalk::default(),
            beneath: Beneath::new(&inputs.beneath, inputs.range),
            floor: inputs.floor,
            last: Last::None,
            last_head: 0,
            dropped_key: Vec::new(),
            holds_droppable,
            block_failures: 0,
            entries_to_skip: 0,
            liveness: Liveness::default(),
            dropped: 0,
            passed: 0,
        })
    }

    /// Merges about `budget` entries. `false`: everything is merged.
    ///
    /// # Errors
    /// I/O errors; `Corruption`, also where an input's keys do not ascend.
    pub fn step(&mut self, mut budget: u32) -> Result<bool> {
        while budget > 0 {
            let Some(at) = self.tournament.winner(&self.sources) else {
                return Ok(false);
            };
            let cost = match self.move_block(at)? {
                Some(bytes) => cost(bytes).max(BLOCK_ENTRIES),
                None => cost(self.merge_entry(at)?),
            };
            self.advance(at)?;
            budget = budget.saturating_sub(cost);
        }
        planted!(
            "lsm: a merge that is cut short leaves out an entry",
            (),
            if let Some(at) = self.tournament.winner(&self.sources) {
                self.advance(at)?;
            }
        );
        Ok(true)
    }

    /// Moves source `at` past its entry.
    #[inline]
    fn advance(&mut self, at: usize) -> Result<()> {
        self.passed += 1;
        self.sources[at].advance()?;
        self.tournament.replay(&self.sources);
        Ok(())
    }

    /// Finishes the last table.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    ///
    /// # Panics
    /// If an entry that was passed was neither written nor dropped.
    pub fn finish(self) -> Result<Merged> {
        let written = self.outputs.finish(self.end.as_ref())?;
        let kept: u64 = written.tables().iter().map(|meta| meta.entries).sum();
        let (dropped, passed) = (self.dropped, self.passed);
        assert!(
            kept + dropped == passed,
            "of {passed} entries {kept} were written and {dropped} dropped"
        );
        Ok(Merged {
            written,
            liveness: self.liveness,
            entries: passed,
        })
    }

    /// Writes or drops the entry at which source `at` is. Returns the length of its inline value.
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
        // Equal keys have equal heads, so for nearly every key the heads show that it is a new one.
        if head == self.last_head
            && planted!(
                "lsm: keys whose heads are equal are taken for one",
                self.last_key() == Some(key),
                true
            )
        {
            self.liveness.lose(value);
            self.dropped += 1;
            return Ok(bytes);
        }
        let hidden =
            !self.hiding.is_empty() && self.walk.seqno_at(self.hiding.fragments(), key) > seqno;
        let kept = !hidden
            && (value != EntryRef::Tombstone
                || planted!(
                    "lsm: a tombstone goes while a transaction needs it",
                    seqno >= self.floor,
                    false
                )
                || planted!(
                    "lsm: a tombstone goes before what it hides",
                    self.beneath.may_hold(key),
                    false
                ));
        let mut ascends = head >= self.last_head;
        if kept {
            ascends = ascends && self.outputs.add(key, seqno, value)?;
            self.last = Last::Written;
        } else {
            ascends = ascends && self.last_key().is_none_or(|last| key > last);
            self.liveness.lose(value);
            self.dropped += 1;
            self.dropped_key.clear();
            self.dropped_key.extend_from_slice(key);
            self.last = Last::Dropped;
        }
        self.last_head = head;
        if !ascends {
            let key = key.escape_ascii();
            // Cursors check the checksums of blocks, but not the order of keys across blocks.
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

    /// Writes a whole block as it is, and returns its bytes, if source `at` is at the first entry
    /// of the block and no other source and no range tombstone has anything to do with its keys.
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
            // The next `advance` passes the last one of its entries.
            self.passed += self.outputs.add_block(&block)? - 1;
            self.last = Last::Written;
            self.last_head = self.tournament.head(Some(cursor.whole_block_end()));
        }
        Ok(Some(bytes))
    }

    /// Whether source `at`, which is at a whole block, is the only one that knows something about
    /// the block's keys.
    fn is_free(&self, at: usize) -> bool {
        let Some(cursor) = self.sources[at].cursor() else {
            return false;
        };
        let (first, last) = (cursor.key(), cursor.whole_block_end());
        if self.last_key().is_some_and(|last_key| first <= last_key) {
            return false;
        }
        let rival = self.tournament.runner_up(&self.sources);
        let rival = rival.and_then(|rival| self.sources[rival].cursor());
        let hidden = || {
            let block = KeyRange::inclusive(first, last);
            !self.hiding.meeting(&block).is_empty()
        };
        planted!(
            "lsm: a block is moved whole though another run has keys in it",
            rival.is_none_or(|rival| rival.key() > last) && (self.hiding.is_empty() || !hidden()),
            true
        )
    }
}

/// Checks the sums of a compaction before its change is handed out: its merges have passed the
/// `entries` that the records of the inputs count, and
/// `pointed bytes of inputs = pointed bytes of outputs + bytes that died`. O(tables + segments).
///
/// # Errors
/// `Corruption` if the sums differ: the record of an input is wrong, although the input's checksums
/// are right.
///
/// # Panics
/// If a value became live. A merge adds no pointer.
pub fn check_balance<'a>(
    inputs: impl Iterator<Item = &'a TableMeta> + Clone,
    outputs: impl Iterator<Item = &'a TableMeta>,
    entries: u64,
    liveness: &[LivenessDelta],
) -> Result<()> {
    assert!(
        liveness.iter().all(|delta| delta.bytes < 0),
        "values become live by a merge: {liveness:?}"
    );
    let Some(first) = inputs.clone().next() else {
        return Ok(());
    };
    let recorded: i128 = inputs.clone().map(|meta| i128::from(meta.entries)).sum();
    let pointed: i128 = inputs.map(|meta| i128::from(meta.pointed_bytes)).sum();
    let kept: i128 = outputs.map(|meta| i128::from(meta.pointed_bytes)).sum();
    let died: i128 = liveness.iter().map(|delta| i128::from(-delta.bytes)).sum();
    let checks = [
        ("entries", recorded, i128::from(entries)),
        ("bytes of pointed values", pointed, kept + died),
    ];
    for (what, recorded, found) in checks {
        if recorded != found {
            let what = format!(
                "the records of a compaction's inputs, of which this is the first, \
                 count {recorded} {what}; {found} were found"
            );
            return Err(Error::corruption(first.id, 0, what));
        }
    }
    Ok(())
}

/// What an entry with `bytes` of value counts, in entries.
fn cost(bytes: usize) -> u32 {
    1 + u32::try_from(bytes / ENTRY_BYTES).unwrap_or(u32::MAX - 1)
}

/// The tables beneath the output, walked beside ascending keys.
struct Beneath {
    /// For each sorted sequence beneath, its tables within the range, and the index of the first
    /// one that does not end before the key.
    sequences: Vec<(Vec<Arc<Slot>>, usize)>,
}

impl Beneath {
    fn new(beneath: &[&Sorted], range: &KeyRange) -> Beneath {
        let within = beneath.iter().map(|tables| tables.meeting(range));
        Beneath {
            sequences: within
                .filter(|tables| !tables.is_empty())
                .map(|tables| (tables.to_vec(), 0))
                .collect(),
        }
    }

    /// Whether a table beneath may hold `key`, which is not less than the keys of earlier calls.
    fn may_hold(&mut self, key: &[u8]) -> bool {
        self.sequences.iter_mut().any(|(tables, at)| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::meta::tests::meta;
    use glintdb_core::{ErrorKind, SegmentId};

    fn table(entries: u64, pointed_bytes: u64) -> TableMeta {
        let mut meta = meta(b"f", None);
        (meta.entries, meta.pointed_bytes) = (entries, pointed_bytes);
        meta
    }

    fn died(bytes: i64) -> [LivenessDelta; 1] {
        let segment = SegmentId(1);
        [LivenessDelta { segment, bytes }]
    }

    #[test]
    fn a_compaction_whose_sums_differ_is_corrupt() {
        let inputs = [table(10, 500), table(5, 100)];
        let outputs = [table(9, 400), table(3, 50)];
        let check = |entries, died: &[LivenessDelta]| {
            check_balance(inputs.iter(), outputs.iter(), entries, died)
        };
        check(15, &died(-150)).unwrap();
        for (entries, bytes, sums) in [
            (14, -150, "15 entries; 14 were found"),
            (15, -149, "600 bytes of pointed values; 599 were found"),
        ] {
            let error = check(entries, &died(bytes)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains(sums), "{error}");
        }
        // Tables that are only moved.
        check_balance([].iter(), [].iter(), 0, &[]).unwrap();
    }

    #[test]
    #[should_panic(expected = "values become live by a merge")]
    fn a_merge_makes_no_value_live() {
        check_balance([].iter(), [].iter(), 0, &died(1)).unwrap();
    }
}
