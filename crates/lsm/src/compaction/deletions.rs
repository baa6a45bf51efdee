//! What deletions would free: which tables range tombstones hide, and how much a merge of a table
//! with tombstones gives back. The picker compares that with the cost of a compaction.
//!
//! A range tombstone hides older entries in all levels at once, so what it hides can be removed
//! where it is. A point tombstone must be merged, level by level, down to the entry that it
//! deletes.
//!
//! Thread-safe: plain values, computed once for each state of the levels. Reads the tails of tables
//! and a few blocks, so it is computed outside of locks. Everything here is an estimate, except
//! that a table is *wholly hidden* ([`is_hidden`]).

use crate::edit::Place;
use crate::levels::Levels;
use glintdb_core::{RangeTombstone, Result, SeqNum, planted, proportion};
use glintdb_runs::keys::{TombstoneSet, range_of};
use glintdb_runs::{Slot, Sorted};
use std::collections::HashMap;
use std::sync::Arc;

/// Number of range tombstones of which the hidden bytes are looked up for a table. The others are
/// taken to hide as much.
const RANGES_MAX: usize = 64;

/// Bytes that deletions free, by table.
#[derive(Default)]
pub(crate) struct Deletions {
    /// Tables whose entries range tombstones hide in part or as a whole, in the order of the
    /// sources.
    pub(crate) hidden: Vec<Hidden>,
    /// For the numbers of tables with tombstones, what a merge with the tables beneath gives back.
    gains: HashMap<u64, Gain>,
}

/// A table with hidden entries.
pub(crate) struct Hidden {
    pub(crate) place: Place,
    pub(crate) slot: Arc<Slot>,
    /// About the bytes of hidden entries, with their values in the log.
    pub(crate) bytes: u64,
    /// Nothing of the table is needed any more.
    pub(crate) whole: bool,
}

/// What a merge of a table with those beneath gives back.
#[derive(Clone, Copy, Default)]
struct Gain {
    /// Bytes of the entries beneath that its tombstones delete, with their values in the log.
    beneath: u64,
    /// Bytes of its tombstones and range tombstones themselves.
    own: u64,
}

/// Whether newer range tombstones hide everything in a table, its own range tombstones included.
/// Then it can be removed, because the newer ones are kept as long as the table is there.
pub(crate) fn is_hidden(tombstones: &TombstoneSet, slot: &Slot) -> bool {
    let seqno = planted!(
        "lsm: a range deletion removes a table that has newer entries",
        slot.meta().seqno_max,
        slot.meta().seqno_min
    );
    let whole = tombstones.hides_all(&slot.range, seqno);
    planted!(
        "lsm: a range deletion removes a table that it covers in part",
        whole,
        (tombstones.meeting(&slot.range).iter()).any(|range| range.seqno > seqno)
    )
}

/// Whether a table can be removed without being read: it is hidden, and points to no value that
/// would have to be counted as dead.
pub(crate) fn removable_unread(tombstones: &TombstoneSet, slot: &Slot) -> bool {
    let points = planted!(
        "lsm: a table that points to values is removed unread",
        slot.meta().pointed_bytes > 0,
        false
    );
    !points && is_hidden(tombstones, slot)
}

/// Some of the range tombstones, evenly spread, and for how many each of them stands.
fn some_of(ranges: &[RangeTombstone]) -> (impl Iterator<Item = &RangeTombstone>, u64) {
    let every = ranges.len().div_ceil(RANGES_MAX).max(1);
    (ranges.iter().step_by(every), every as u64)
}

impl Deletions {
    /// Looks at all tables.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn of(levels: &Levels) -> Result<Deletions> {
        let mut deletions = Deletions::default();
        let tombstones = levels.tombstones()?;
        let sources: Vec<(Place, &Sorted)> = levels.sources().collect();
        for (at, (place, tables)) in sources.iter().enumerate() {
            let beneath = || (sources.iter().skip(at + 1)).map(|(_, tables)| *tables);
            for slot in tables.slots() {
                deletions.look_for_hidden(tombstones, *place, slot)?;
                let gain = Gain::of(slot, beneath)?;
                if gain.beneath + gain.own > 0 {
                    deletions.gains.insert(slot.number(), gain);
                }
            }
        }
        Ok(deletions)
    }

    /// Adds the table if range tombstones that are newer than all of it hide some of its blocks.
    fn look_for_hidden(
        &mut self,
        tombstones: &TombstoneSet,
        place: Place,
        slot: &Arc<Slot>,
    ) -> Result<()> {
        if tombstones.is_empty() {
            return Ok(());
        }
        let meta = slot.meta();
        let whole = is_hidden(tombstones, slot);
        let mut blocks = 0;
        if !whole {
            let (some, every) = some_of(tombstones.meeting(&slot.range));
            for range in some {
                if range.seqno > meta.seqno_max {
                    blocks += slot.table.blocks_within(&range_of(range))?;
                }
            }
            blocks = (blocks * every).min(meta.blocks.into());
        }
        let bytes = match whole {
            true => slot.bytes_with_values(),
            false => proportion(slot.bytes_with_values(), blocks, meta.blocks.into()),
        };
        if bytes > 0 {
            self.hidden.push(Hidden {
                place,
                slot: Arc::clone(slot),
                bytes,
                whole,
            });
        }
        Ok(())
    }

    /// Bytes that all deletions free.
    pub(crate) fn bytes(&self) -> u64 {
        let hidden = self.hidden.iter().map(|hidden| hidden.bytes);
        let beneath = self.gains.values().map(|gain| gain.beneath);
        hidden.chain(beneath).sum()
    }

    /// Bytes that a merge of the table with those beneath gives back. Its tombstones are counted
    /// only if they are below the floor.
    pub(crate) fn gain(&self, slot: &Slot, floor: SeqNum) -> u64 {
        let gain = self.gains.get(&slot.number()).copied().unwrap_or_default();
        match slot.meta().seqno_max < floor {
            true => gain.beneath + gain.own,
            false => gain.beneath,
        }
    }
}

impl Gain {
    fn of<'a, I>(slot: &Slot, beneath: impl Fn() -> I) -> Result<Gain>
    where
        I: Iterator<Item = &'a Sorted>,
    {
        let meta = slot.meta();
        let tombstones = meta.tombstones + meta.range_tombstones;
        let mut gain = Gain {
            own: proportion(meta.bytes, tombstones, meta.entries + meta.range_tombstones),
            beneath: 0,
        };
        if meta.tombstones > 0 {
            let (mut bytes, mut entries) = (0, 0);
            for met in beneath().flat_map(|tables| tables.meeting(&slot.range)) {
                bytes += met.bytes_with_values();
                entries += met.meta().entries;
            }
            if entries > 0 {
                let most = proportion(bytes, meta.tombstones.min(entries), entries);
                gain.beneath = part_of(most, slot.deleting_part(beneath())?);
            }
        }
        if meta.range_tombstones > 0 {
            gain.beneath += hidden_by_ranges(slot, beneath)?;
        }
        Ok(gain)
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate: no digit beyond the third matters, and the part is 0 to 1"
)]
fn part_of(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}

/// Bytes that the range tombstones of a table hide in tables beneath that have newer entries too.
/// Tables that are older than a tombstone are found by [`Deletions::look_for_hidden`].
fn hidden_by_ranges<'a, I>(slot: &Slot, beneath: impl Fn() -> I) -> Result<u64>
where
    I: Iterator<Item = &'a Sorted>,
{
    let ranges = slot.table.range_tombstones()?;
    let (some, every) = some_of(ranges);
    let mut bytes = 0u64;
    for range in some {
        let keys = range_of(range);
        for met in beneath().flat_map(|tables| tables.meeting(&keys)) {
            let meta = met.meta();
            if meta.seqno_min < range.seqno && range.seqno <= meta.seqno_max {
                let covered = met.bytes_within(&keys)?;
                // As if the sequence numbers of its entries were spread evenly.
                let older = range.seqno.0 - meta.seqno_min.0;
                let all = meta.seqno_max.0 - meta.seqno_min.0 + 1;
                bytes = bytes.saturating_add(proportion(covered, older, all));
            }
        }
    }
    Ok(bytes.saturating_mul(every))
}
