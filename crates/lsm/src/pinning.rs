//! Pinned levels: which of the top levels' key blocks stay in memory, and how they get there.
//!
//! The levels are counted from the top: level 0 with all its runs is the first one, empty or not; then come the levels from the first that holds a table down to the last. A plan is a number of them.
//! Tables that a flush or compaction writes for a pinned place bring the blocks along that were just written; tables that become pinned otherwise (after opening, when the plan grows) are read by a job.
//! Tables below the plan are unpinned at once.
//!
//! Thread-safe: `state` is held for moments, never across I/O; nothing else is locked under it.
//!
//! Invariants:
//! 1. Pinned blocks and those being gathered are within what the index was given when they came (`PinMemory`).
//! 2. A plan changes only memory: what a table holds is the same pinned or not, and an error while pinning leaves the table as it was; whoever reads the table meets the error.

use crate::levels::{Levels, Slot};
use crate::shared::Shared;
use crate::table::{
    PINNED_BLOCK_OVERHEAD_BYTES, PinMemory, PinnedBlocks, Purpose, Table, TableCursor, TableMeta,
};
use glintdb_core::index::{IndexChange, IndexJob, JobPriority, JobStep, MemoryShare, PinnedLevels};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::Mutex;
use glintdb_core::{Direction, Result};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Blocks that a step of the job reads: about 1 MiB.
const STEP_BLOCKS: usize = 256;
/// A level that is pinned by itself stays so up to this many quarters of the share in which it would be pinned anew.
const KEEP_QUARTERS: u64 = 5;

/// What the levels of an index would take if they were pinned, from the top; level 0 first, empty or not.
#[derive(Debug)]
struct Needs(Vec<(u8, u64)>);

impl Needs {
    fn of(levels: &Levels, block_bytes: u32) -> Needs {
        let mut needs = vec![(0, 0)];
        for (place, slot) in levels.slots() {
            let bytes = pin_bytes(slot.meta(), block_bytes);
            match needs.last_mut() {
                Some((level, sum)) if *level == place.level => *sum += bytes,
                _ => needs.push((place.level, bytes)),
            }
        }
        Needs(needs)
    }

    /// How many levels from the top take no more than `bytes_max` together.
    fn fitting(&self, bytes_max: u64) -> usize {
        let mut sum = 0u64;
        let fits = |&&(_, bytes): &&(u8, u64)| {
            sum = sum.saturating_add(bytes);
            sum <= bytes_max
        };
        self.0.iter().take_while(fits).count()
    }

    /// What the top `count` levels take.
    fn bytes(&self, count: usize) -> u64 {
        self.0.iter().take(count).map(|(_, bytes)| bytes).sum()
    }
}

/// What a table takes when it is pinned: a little more than it will. Blocks are cut at `block_bytes` before they are compressed.
fn pin_bytes(meta: &TableMeta, block_bytes: u32) -> u64 {
    if meta.entries == 0 {
        return 0;
    }
    let blocks = u64::from(meta.blocks);
    let images = meta.tail_offset.max(blocks * u64::from(block_bytes));
    images + blocks * PINNED_BLOCK_OVERHEAD_BYTES as u64
}

/// How many levels from the top are pinned, where `now` are.
fn plan(needs: &Needs, wanted: PinnedLevels, share: MemoryShare, now: usize) -> usize {
    match wanted {
        PinnedLevels::Levels(levels) => {
            needs.fitting(share.pins_max_bytes).min(usize::from(levels))
        }
        PinnedLevels::Auto => {
            let auto = share.pins_auto_bytes.min(share.pins_max_bytes);
            let keep = (auto / 4 * KEEP_QUARTERS).min(share.pins_max_bytes);
            needs.fitting(auto).max(needs.fitting(keep).min(now))
        }
    }
}

/// The pins of one index. See the module's page.
pub(crate) struct Pins {
    memory: Arc<PinMemory>,
    /// Levels with smaller numbers are pinned.
    below: AtomicU8,
    /// Whether a table of a pinned level is not pinned; told by who plans, taken back by who finds none.
    missing: AtomicBool,
    state: Mutex<State>,
}

struct State {
    wanted: PinnedLevels,
    share: MemoryShare,
    /// Levels pinned, from the top.
    levels: usize,
    /// Bytes of the plan.
    bytes: u64,
    /// Blocks of tables that wait for their change to be applied.
    fresh: HashMap<u64, PinnedBlocks>,
    /// Tables that could not be pinned: for good (they could not be read), or until the tree changes (there was no room).
    refused: HashMap<u64, bool>,
    /// A job is under way.
    busy: bool,
}

impl Pins {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, wanted: PinnedLevels) -> Pins {
        Pins {
            memory: PinMemory::new(Arc::clone(budget)),
            below: AtomicU8::new(0),
            missing: AtomicBool::new(false),
            state: Mutex::new(State {
                wanted,
                share: MemoryShare::default(),
                levels: 0,
                bytes: 0,
                fresh: HashMap::new(),
                refused: HashMap::new(),
                busy: false,
            }),
        }
    }

    pub(crate) fn memory(&self) -> &Arc<PinMemory> {
        &self.memory
    }

    /// Levels pinned now, from the top.
    pub(crate) fn levels(&self) -> usize {
        self.state.lock().levels
    }

    /// Whether tables written for this level are to be pinned.
    pub(crate) fn covers(&self, level: u8) -> bool {
        level < self.below.load(Ordering::Relaxed) && self.memory.limit_bytes() > 0
    }

    /// Keeps the blocks of new tables until their change is applied or abandoned.
    pub(crate) fn keep_fresh(&self, pins: impl Iterator<Item = (u64, PinnedBlocks)>) {
        self.state.lock().fresh.extend(pins);
    }

    /// Forgets the blocks of tables that come to nothing.
    pub(crate) fn abandon(&self, numbers: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        for number in numbers {
            state.fresh.remove(&number);
        }
    }

    /// Takes over a change that is about to be seen: new tables get their blocks, and the plan follows the tree.
    pub(crate) fn follow(
        &self,
        levels: &Levels,
        added: impl IntoIterator<Item = u64>,
        block_bytes: u32,
    ) {
        let mut state = self.state.lock();
        state.refused.retain(|_, for_good| *for_good);
        let mut fresh: HashMap<u64, PinnedBlocks> = added
            .into_iter()
            .filter_map(|number| state.fresh.remove(&number).map(|pins| (number, pins)))
            .collect();
        self.replan(&mut state, levels, block_bytes);
        drop(state);
        if !fresh.is_empty() {
            for (place, slot) in levels.slots() {
                if let Some(pins) = fresh.remove(&slot.number())
                    && self.covers(place.level)
                {
                    slot.table.pin(pins);
                }
            }
        }
    }

    /// When a change is seen: what is gone gives its memory back, whoever reads older views; so does what lies below the plan.
    pub(crate) fn settle(&self, levels: &Levels, gone: &[Arc<Slot>]) {
        if !gone.is_empty() {
            let mut state = self.state.lock();
            for slot in gone {
                state.refused.remove(&slot.number());
            }
        }
        for slot in gone {
            slot.table.unpin();
        }
        self.place(levels);
    }

    /// Changes what may be pinned. Answers what the plan takes, or what is there if that is more.
    pub(crate) fn set_share(&self, share: MemoryShare, levels: &Levels, block_bytes: u32) -> u64 {
        let mut state = self.state.lock();
        let old = state.share;
        state.share = share;
        self.memory
            .set_limit_bytes(usize::try_from(share.pins_max_bytes).unwrap_or(usize::MAX));
        // The tables are walked only for a change that can matter.
        if is_near(old.pins_auto_bytes, share.pins_auto_bytes)
            && is_near(old.pins_max_bytes, share.pins_max_bytes)
            && state.bytes <= share.pins_max_bytes
        {
            return state.bytes.max(self.memory.used_bytes() as u64);
        }
        self.replan(&mut state, levels, block_bytes);
        let bytes = state.bytes;
        drop(state);
        self.place(levels);
        bytes.max(self.memory.used_bytes() as u64)
    }

    /// Changes what is wanted.
    pub(crate) fn set_wanted(&self, wanted: PinnedLevels, levels: &Levels, block_bytes: u32) {
        let mut state = self.state.lock();
        state.wanted = wanted;
        self.replan(&mut state, levels, block_bytes);
        drop(state);
        self.place(levels);
    }

    fn replan(&self, state: &mut State, levels: &Levels, block_bytes: u32) {
        let needs = Needs::of(levels, block_bytes);
        let count = plan(&needs, state.wanted, state.share, state.levels);
        state.levels = count;
        state.bytes = needs.bytes(count);
        // Where all that there is fits, a level that comes below it is pinned too, if so many are wanted.
        let more = match state.wanted {
            PinnedLevels::Auto => true,
            PinnedLevels::Levels(wanted) => usize::from(wanted) > count,
        };
        let below = match count.checked_sub(1).and_then(|last| needs.0.get(last)) {
            Some(_) if more && count == needs.0.len() => u8::MAX,
            Some((level, _)) => level + 1,
            None => 0,
        };
        self.below.store(below, Ordering::Relaxed);
    }

    /// Unpins what lies below the plan, and sees whether anything above is missing.
    fn place(&self, levels: &Levels) {
        let mut missing = false;
        for (place, slot) in levels.slots() {
            if self.covers(place.level) {
                missing |= slot.meta().entries > 0 && !slot.table.is_pinned();
            } else {
                slot.table.unpin();
            }
        }
        if missing {
            self.missing.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether a share has changed by less than a sixteenth.
fn is_near(old: u64, new: u64) -> bool {
    old.abs_diff(new) <= old / 16
}

/// A job that pins the tables of pinned levels that are not in memory; `None`: there are none, or one is under way.
pub(crate) fn pin_job(shared: &Arc<Shared>) -> Option<Box<dyn IndexJob>> {
    let pins = &shared.common.pins;
    if !pins.missing.load(Ordering::Relaxed) {
        return None;
    }
    // Goes after the lock: with the last handle go files.
    let view;
    let mut state = pins.state.lock();
    if state.busy {
        return None;
    }
    // First: a change that comes while the view is looked at says so again.
    pins.missing.store(false, Ordering::Relaxed);
    view = shared.view();
    let missing = |(place, slot): &(crate::edit::Place, &Arc<Slot>)| {
        pins.covers(place.level)
            && slot.meta().entries > 0
            && !slot.table.is_pinned()
            && !state.refused.contains_key(&slot.number())
    };
    let tables: Vec<Arc<Table>> = (view.levels.slots().filter(missing))
        .map(|(_, slot)| Arc::clone(&slot.table))
        .collect();
    if tables.is_empty() {
        return None;
    }
    pins.missing.store(true, Ordering::Relaxed);
    state.busy = true;
    drop(state);
    let mut tables = tables.into_iter();
    let current = tables.next()?;
    Some(Box::new(PinJob {
        reading: Reading::new(shared, &current),
        shared: Arc::clone(shared),
        rest: tables,
    }))
}

/// A table on its way into memory.
struct Reading {
    table: Arc<Table>,
    cursor: TableCursor,
    blocks: PinnedBlocks,
}

impl Reading {
    fn new(shared: &Shared, table: &Arc<Table>) -> Reading {
        let unbounded = Bound::Unbounded;
        Reading {
            table: Arc::clone(table),
            cursor: table.cursor(
                unbounded,
                unbounded,
                Direction::Forward,
                Purpose::Compaction,
            ),
            blocks: PinnedBlocks::new(shared.common.pins.memory()),
        }
    }

    /// Reads some blocks; `None`: the table can not be pinned, `Some(true)`: it is read.
    fn step(&mut self) -> Result<Option<bool>> {
        for _ in 0..STEP_BLOCKS {
            if !self.cursor.advance()? {
                let whole = self.blocks.len() == self.table.meta().blocks as usize;
                return Ok(whole.then_some(true));
            }
            if !self.cursor.find_whole_block()? {
                return Ok(None);
            }
            if !self.blocks.take(&self.cursor.take_block()) {
                return Ok(None);
            }
        }
        Ok(Some(false))
    }
}

/// Reads tables and pins them, one after the other.
struct PinJob {
    shared: Arc<Shared>,
    reading: Reading,
    rest: std::vec::IntoIter<Arc<Table>>,
}

impl PinJob {
    fn refuse(&self, for_good: bool) {
        let number = self.reading.table.meta().id.number;
        let mut state = self.shared.common.pins.state.lock();
        state.refused.insert(number, for_good);
    }

    /// Whether the table still stands at a pinned place.
    fn is_wanted(&self, table: &Arc<Table>) -> bool {
        let view = self.shared.view();
        view.levels.slots().any(|(place, slot)| {
            Arc::ptr_eq(&slot.table, table) && self.shared.common.pins.covers(place.level)
        })
    }
}

impl IndexJob for PinJob {
    fn step_within(&mut self, _budget: u32) -> Result<JobStep> {
        match self.reading.step() {
            Ok(Some(false)) => return Ok(JobStep::More),
            Ok(Some(true)) => {
                let table = Arc::clone(&self.reading.table);
                let fresh = PinnedBlocks::new(self.shared.common.pins.memory());
                let blocks = std::mem::replace(&mut self.reading.blocks, fresh);
                if !table.is_pinned() && self.is_wanted(&table) {
                    table.pin(blocks);
                    // It may have gone meanwhile.
                    if !self.is_wanted(&table) {
                        table.unpin();
                    }
                }
            }
            // No room for this table until the tree changes.
            Ok(None) => self.refuse(false),
            // Not this job's to tell: whoever reads the table meets the error.
            Err(_) => self.refuse(true),
        }
        match self.rest.next() {
            Some(table) => {
                self.reading = Reading::new(&self.shared, &table);
                Ok(JobStep::More)
            }
            None => Ok(JobStep::Done(IndexChange::default())),
        }
    }

    fn name(&self) -> String {
        "pin".to_owned()
    }

    fn space_bytes(&self) -> u64 {
        0
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Background
    }
}

impl Drop for PinJob {
    fn drop(&mut self) {
        self.shared.common.pins.state.lock().busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needs() -> impl Strategy<Value = Needs> {
        proptest::collection::vec(0u64..10_000, 1..7)
            .prop_map(|bytes| Needs((0u8..).zip(bytes).collect()))
    }

    fn share(pins_auto_bytes: u64, pins_max_bytes: u64) -> MemoryShare {
        MemoryShare {
            pins_auto_bytes,
            pins_max_bytes,
        }
    }

    proptest! {
        #[test]
        fn prop_a_plan_never_exceeds_what_there_is(needs in needs(), auto in 0u64..40_000, max in 0u64..40_000, now in 0usize..8) {
            let count = plan(&needs, PinnedLevels::Auto, share(auto, max), now);
            prop_assert!(needs.bytes(count) <= max);
            prop_assert!(needs.bytes(count) <= auto / 4 * 5 || count == 0 || needs.bytes(count) <= auto);
            for levels in 0..8 {
                let count = plan(&needs, PinnedLevels::Levels(levels), share(auto, max), now);
                prop_assert!(count <= levels.into() && needs.bytes(count) <= max);
            }
        }

        #[test]
        fn prop_more_memory_never_pins_less(needs in needs(), auto in 0u64..20_000, max in 0u64..20_000, more in 0u64..20_000, now in 0usize..8) {
            for wanted in [PinnedLevels::Auto, PinnedLevels::Levels(3)] {
                let less = plan(&needs, wanted, share(auto, max), now);
                prop_assert!(plan(&needs, wanted, share(auto + more, max), now) >= less);
                prop_assert!(plan(&needs, wanted, share(auto, max + more), now) >= less);
            }
        }

        /// A share that goes up and down by an eighth does not make the plan do so, once it is made.
        #[test]
        fn prop_a_plan_stays_where_the_share_only_trembles(needs in needs(), auto in 64u64..40_000, down in 0u64..8) {
            let max = 1 << 20;
            let made = plan(&needs, PinnedLevels::Auto, share(auto, max), 0);
            let shrunk = auto - auto * down / 64;
            prop_assert_eq!(plan(&needs, PinnedLevels::Auto, share(shrunk, max), made), made);
        }
    }
}
