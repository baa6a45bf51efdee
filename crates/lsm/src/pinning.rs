//! Pinned levels: plans which of the top levels have their key blocks in memory, and reads those
//! that are missing.
//!
//! Levels are counted from the top. Level 0 with all its runs is the first one, even if it is
//! empty. The others follow from the first level with a table down to the last one. A plan is a
//! number of levels. Tables that are written for a pinned level bring their blocks along; a job
//! reads tables that become pinned otherwise (after opening, or when the plan grows). Tables below
//! the plan are unpinned at once.
//!
//! Thread-safe. `state` is never held across I/O. No lock is taken under it except that of the
//! current view.

use crate::levels::Levels;
use crate::shared::Shared;
use glintdb_core::Result;
use glintdb_core::index::{IndexChange, IndexJob, JobPriority, JobStep, MemoryShare, PinnedLevels};
use glintdb_core::sync::Mutex;
use glintdb_runs::table::{PinMemory, Table};
use glintdb_runs::{PinReading, PinStep, RunEnv, Slot, pin_bytes};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// With `PinnedLevels::Auto`, a pinned level stays pinned while it fits this many quarters of the
/// share in which it would be pinned.
const KEEP_QUARTERS: u64 = 5;

/// The bytes that each level would take if it was pinned, from the top: level 0 first, even if it
/// is empty, with all its runs.
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

    /// The number of levels from the top that fit `bytes_max` together.
    fn fitting(&self, bytes_max: u64) -> usize {
        let mut sum = 0u64;
        let fits = |&&(_, bytes): &&(u8, u64)| {
            sum = sum.saturating_add(bytes);
            sum <= bytes_max
        };
        self.0.iter().take_while(fits).count()
    }

    /// The bytes that the top `count` levels take.
    fn bytes(&self, count: usize) -> u64 {
        self.0.iter().take(count).map(|(_, bytes)| bytes).sum()
    }
}

/// The number of levels from the top to be pinned, if `now` are.
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

/// The plan of one index.
pub(crate) struct Pins {
    env: Arc<RunEnv>,
    /// Levels with smaller numbers are pinned.
    below: AtomicU8,
    /// Whether a table of a pinned level may be missing in memory. Set by each new plan; cleared by
    /// the job that finds no such table.
    missing: AtomicBool,
    state: Mutex<State>,
}

struct State {
    wanted: PinnedLevels,
    share: MemoryShare,
    /// Number of pinned levels, from the top.
    levels: usize,
    /// Bytes of the plan.
    bytes: u64,
    /// Tables that could not be pinned. `true`: for good, because they could not be read. `false`:
    /// until the tree changes, because there was no room.
    refused: HashMap<u64, bool>,
    /// A job is running.
    busy: bool,
    /// The index has given its tables away.
    given_up: bool,
}

impl Pins {
    pub(crate) fn new(env: &Arc<RunEnv>, wanted: PinnedLevels) -> Pins {
        Pins {
            env: Arc::clone(env),
            below: AtomicU8::new(0),
            missing: AtomicBool::new(false),
            state: Mutex::new(State {
                wanted,
                share: MemoryShare::default(),
                levels: 0,
                bytes: 0,
                refused: HashMap::new(),
                busy: false,
                given_up: false,
            }),
        }
    }

    fn memory(&self) -> &Arc<PinMemory> {
        self.env.pin_memory()
    }

    /// Number of pinned levels, from the top.
    pub(crate) fn levels(&self) -> usize {
        self.state.lock().levels
    }

    /// Whether tables written for this level are to be pinned.
    pub(crate) fn covers(&self, level: u8) -> bool {
        level < self.below.load(Ordering::Relaxed) && self.memory().limit_bytes() > 0
    }

    /// Takes over a change before it becomes visible: the new tables get their blocks, and the plan
    /// follows the tree.
    pub(crate) fn follow(
        &self,
        levels: &Levels,
        added: impl IntoIterator<Item = u64>,
        block_bytes: u32,
    ) {
        let mut fresh = self.env.take_fresh_blocks(added);
        let mut state = self.state.lock();
        state.refused.retain(|_, for_good| *for_good);
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

    /// Follows a change that has become visible: unpins removed tables, even if older views still
    /// read them, and tables below the plan.
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

    /// Changes how much may be pinned. Returns the bytes of the plan, or the bytes that are pinned
    /// if they are more.
    pub(crate) fn set_share(&self, share: MemoryShare, levels: &Levels, block_bytes: u32) -> u64 {
        let mut state = self.state.lock();
        if state.given_up {
            return 0;
        }
        let old = state.share;
        state.share = share;
        self.memory()
            .set_limit_bytes(usize::try_from(share.pins_max_bytes).unwrap_or(usize::MAX));
        // Spare the walk over all tables if the change is too small to matter.
        if is_near(old.pins_auto_bytes, share.pins_auto_bytes)
            && is_near(old.pins_max_bytes, share.pins_max_bytes)
            && state.bytes <= share.pins_max_bytes
        {
            return state.bytes.max(self.memory().used_bytes() as u64);
        }
        self.replan(&mut state, levels, block_bytes);
        let bytes = state.bytes;
        drop(state);
        self.place(levels);
        bytes.max(self.memory().used_bytes() as u64)
    }

    /// Unpins all tables, for good: the index has given them away.
    pub(crate) fn give_up(&self, levels: &Levels) {
        let mut state = self.state.lock();
        state.given_up = true;
        (state.levels, state.bytes) = (0, 0);
        self.memory().set_limit_bytes(0);
        // Nothing is covered from here on, so a job that is reading a table unpins it again.
        self.below.store(0, Ordering::Relaxed);
        drop(state);
        self.place(levels);
    }

    /// Changes how many levels the options ask for.
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
        // If all levels fit, a new level below them is pinned too, if the options allow.
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

    /// Unpins tables below the plan, and looks for tables above that are not pinned.
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

/// A job that reads and pins the missing tables of pinned levels. `None`: there are none, or such a
/// job is running.
pub(crate) fn pin_job(shared: &Arc<Shared>) -> Option<Box<dyn IndexJob>> {
    let pins = &shared.common.pins;
    if !pins.missing.load(Ordering::Relaxed) {
        return None;
    }
    // Declared first, so that it is dropped after the lock: its last handle may remove files.
    let view;
    let mut state = pins.state.lock();
    if state.busy || state.given_up {
        return None;
    }
    // Cleared before the view is read, because a later change sets it again.
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
        reading: PinReading::new(&current, pins.memory()),
        shared: Arc::clone(shared),
        rest: tables,
    }))
}

/// Reads tables and pins them, one after the other.
struct PinJob {
    shared: Arc<Shared>,
    reading: PinReading,
    rest: std::vec::IntoIter<Arc<Table>>,
}

impl PinJob {
    fn refuse(&self, for_good: bool) {
        let number = self.reading.table().meta().id.number;
        let mut state = self.shared.common.pins.state.lock();
        state.refused.insert(number, for_good);
    }

    /// Whether the table is still at a pinned place.
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
            Ok(PinStep::More) => return Ok(JobStep::More),
            Ok(PinStep::Read(blocks)) => {
                let table = Arc::clone(self.reading.table());
                if !table.is_pinned() && self.is_wanted(&table) {
                    table.pin(blocks);
                    // It may have been removed, or the plan changed, meanwhile.
                    if !self.is_wanted(&table) {
                        table.unpin();
                    }
                }
            }
            Ok(PinStep::NoRoom) => self.refuse(false),
            // Not reported here: the next reader of the table gets the error.
            Err(_) => self.refuse(true),
        }
        match self.rest.next() {
            Some(table) => {
                self.reading = PinReading::new(&table, self.shared.common.pins.memory());
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
            ..MemoryShare::default()
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

        /// A share that goes up and down by an eighth does not make the plan do so, once it is
        /// made.
        #[test]
        fn prop_a_plan_stays_where_the_share_only_trembles(needs in needs(), auto in 64u64..40_000, down in 0u64..8) {
            let max = 1 << 20;
            let made = plan(&needs, PinnedLevels::Auto, share(auto, max), 0);
            let shrunk = auto - auto * down / 64;
            prop_assert_eq!(plan(&needs, PinnedLevels::Auto, share(shrunk, max), made), made);
        }
    }
}
