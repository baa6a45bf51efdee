//! Value GC: takes back the space of values that nobody can ask for any more, by moving what is live out of segments that hold much else.
//!
//! One round at a time ([`round`]), as a job between level 0 and the other compactions. Which segments, and when: by an account of space ([`account`]) that is taken whenever the manifest has
//! changed. What is live is known exactly for the victims of a round alone; for the others it is estimated from what indexes' files point to and from what earlier rounds have found.
//!
//! Thread safety: everything from any thread. Locks: `state` is taken last of all and held for moments.
//!
//! Invariants:
//! 1. Estimates decide when a round begins and over which segments; never whether a record is live.
//! 2. A round that came to nothing is not followed by another before something has changed.

mod account;
mod hidden;
mod ordering;
mod records;
mod round;
mod scattered;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use account::Account;
use hidden::Hidden;
#[cfg(test)]
pub(crate) use round::Place;
pub(crate) use round::{Outcome, Round, Scans};
pub(crate) use scattered::{Misses, Scattered};

use crate::background::install::{Pending, Relocated};
use crate::background::queue::{Job, Progress};
use crate::engine::Engine;
use crate::space::priority::Running;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::JobPriority;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::{KeyspaceId, SegmentId, ValuePointer};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A round takes at most this part of the budget for keys and values: the cache is without it from then on, and what a greater round spares is little.
const MEMORY_SHARE: u64 = 32;
/// Where that is less, so many bytes: small rounds look into the index for few values at a time,
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// but never more than this part of the budget. Larger victims are read twice.
const MEMORY_SHARE_MAX: u64 = 8;
/// What a round teaches counts this much against what was known.
const LEARNT: f64 = 0.3;

/// What value GC knows and has done.
pub(crate) struct Gc {
    queued: AtomicBool,
    /// Full compactions that run: a round gives them another run to compact, so none is begun that is not urgent.
    held_off: AtomicUsize,
    /// Values are put in order for scans, or are about to be.
    ordering: AtomicBool,
    state: Mutex<State>,
    /// Changes that may have made a round worth while; and how many there were when one came to nothing.
    occasions: AtomicU64,
    fruitless: AtomicU64,
    /// Log of the active memtables at which they are sealed, so that garbage in it gets known.
    seal_bytes: AtomicU64,
    /// What the round that runs has written.
    writing: AtomicU64,
    pub(crate) counters: Counters,
}

struct State {
    hidden: Hidden,
    /// What the flush under way overwrites, about: segments with bytes.
    overwriting: Vec<(SegmentId, u64)>,
    /// Bytes that a record takes in a segment, for a byte of its value.
    overhead: f64,
    /// Bytes of a record's key and value, for a byte of its value.
    keyed: f64,
    /// Bytes of values that were live when a segment was written by a round.
    born: BTreeMap<SegmentId, u64>,
    /// Of what rounds moved, the part that was cached.
    cached: f64,
    left_alone: BTreeSet<SegmentId>,
    error: Option<String>,
    account: Account,
}

impl Default for State {
    fn default() -> Self {
        State {
            hidden: Hidden::default(),
            overwriting: Vec::new(),
            overhead: 1.0,
            keyed: 1.0,
            born: BTreeMap::new(),
            cached: 0.0,
            left_alone: BTreeSet::new(),
            error: None,
            account: Account::default(),
        }
    }
}

/// Counters since open.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) rounds: std::sync::atomic::AtomicU64,
    pub(crate) victims: std::sync::atomic::AtomicU64,
    pub(crate) records: std::sync::atomic::AtomicU64,
    pub(crate) relocated_records: std::sync::atomic::AtomicU64,
    pub(crate) cached_records: std::sync::atomic::AtomicU64,
    pub(crate) ordered_records: std::sync::atomic::AtomicU64,
    pub(crate) given_up: std::sync::atomic::AtomicU64,
}

/// What `stats()` tells.
pub(crate) struct Known {
    pub(crate) account: Account,
    pub(crate) left_alone: u64,
    pub(crate) error: Option<String>,
}

impl Default for Gc {
    fn default() -> Self {
        Gc {
            queued: AtomicBool::new(false),
            held_off: AtomicUsize::new(0),
            ordering: AtomicBool::new(false),
            state: Mutex::default(),
            occasions: AtomicU64::new(0),
            fruitless: AtomicU64::new(0),
            seal_bytes: AtomicU64::new(u64::MAX),
            writing: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }
}

impl Gc {
    pub(crate) fn known_account(&self) -> Account {
        self.state.lock().account
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::SeqCst)
    }

    fn writing(&self) -> u64 {
        self.writing.load(Ordering::Relaxed)
    }

    /// A full compaction, or a pass over values.
    pub(crate) fn while_held_off<T>(&self, work: impl FnOnce() -> T) -> T {
        self.held_off.fetch_add(1, Ordering::AcqRel);
        let done = work();
        self.held_off.fetch_sub(1, Ordering::AcqRel);
        done
    }

    /// See the field.
    pub(crate) fn seal_bytes(&self) -> u64 {
        self.seal_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn known(&self) -> Known {
        let state = self.state.lock();
        Known {
            account: state.account,
            left_alone: state.left_alone.len() as u64,
            error: state.error.clone(),
        }
    }

    /// Something has changed: a round may be worth while.
    fn occasion(&self) {
        self.occasions.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn may_begin(&self) -> bool {
        self.occasions.load(Ordering::Acquire) != self.fruitless.load(Ordering::Acquire)
    }

    /// Takes no segment for a victim that is damaged, until the database is opened again: others may be worth a round.
    fn leave_alone(&self, segment: SegmentId, error: &Error) {
        self.occasion();
        let mut state = self.state.lock();
        state.left_alone.insert(segment);
        state.error.get_or_insert_with(|| error.to_string());
    }

    /// Takes note of segments that a round has written, before they are in the manifest, or a pass.
    fn born(&self, values: &[ValuePointer], victims: &[SegmentId], hidden_before: f64) {
        let mut born = BTreeMap::<SegmentId, u64>::new();
        for pointer in values {
            *born.entry(pointer.segment).or_default() += u64::from(pointer.length);
        }
        let mut state = self.state.lock();
        let victims = victims.iter().copied();
        state.hidden.moved(victims, hidden_before, &born);
        state.born.append(&mut born);
    }

    /// A flush is going to put so many bytes of values of these segments out of sight.
    pub(crate) fn overwriting(&self, bytes: Vec<(SegmentId, u64)>) {
        self.state.lock().overwriting = bytes;
    }

    /// A flush has taken effect.
    pub(crate) fn flushed(&self) {
        let mut state = self.state.lock();
        for (segment, bytes) in std::mem::take(&mut state.overwriting) {
            state.hidden.add(segment, bytes);
        }
    }

    /// What a round has written is in the manifest, and counts in the account.
    pub(crate) fn published(&self) {
        self.writing.store(0, Ordering::Relaxed);
    }

    /// A compaction has dropped so many bytes of values in segments that are not retired.
    pub(crate) fn dropped(&self, bytes: impl Iterator<Item = (SegmentId, u64)>) {
        let mut state = self.state.lock();
        bytes.for_each(|(segment, bytes)| state.hidden.dropped(segment, bytes));
    }

    /// These values are at other places now, and hidden where they were.
    fn left_behind(&self, pointers: &[ValuePointer]) {
        let mut state = self.state.lock();
        for pointer in pointers {
            (state.hidden).add(pointer.segment, u64::from(pointer.length));
        }
    }

    fn hidden_in(&self, segments: impl Iterator<Item = SegmentId>) -> f64 {
        let state = self.state.lock();
        segments.map(|segment| state.hidden.of(segment)).sum()
    }

    /// Learns from a round.
    fn learn(&self, outcome: &Outcome) {
        let count =
            |counter: &std::sync::atomic::AtomicU64, by| counter.fetch_add(by, Ordering::Relaxed);
        count(&self.counters.rounds, 1);
        count(&self.counters.victims, outcome.victims);
        count(&self.counters.records, outcome.records);
        count(&self.counters.relocated_records, outcome.live_records);
        count(&self.counters.cached_records, outcome.cached_records);
        let mut state = self.state.lock();
        let first = self.counters.rounds.load(Ordering::Relaxed) == 1;
        let weight = if first { 1.0 } else { LEARNT };
        let mix = |known: f64, new: f64| known + (new - known) * weight;
        if outcome.held_bytes > 0 {
            let (held, live) = (outcome.held_bytes, outcome.live_bytes);
            let all = state.account.live_bytes;
            state.hidden.learn(held, outcome.hidden_bytes, live, all);
        }
        if outcome.live_bytes > 0 {
            let taken = outcome.live_record_bytes as f64 / outcome.live_bytes as f64;
            state.overhead = mix(state.overhead, taken);
            let keyed = outcome.live_bytes + outcome.live_key_bytes;
            state.keyed = mix(state.keyed, keyed as f64 / outcome.live_bytes as f64);
            let cached = outcome.cached_bytes as f64 / outcome.live_bytes as f64;
            state.cached = mix(state.cached, cached);
        }
    }
}

impl Engine {
    /// Something has changed that space depends on: takes the account anew.
    pub(crate) fn update_space(&self) {
        if self.options.value_gc {
            self.gc.occasion();
            self.look_at_space();
        }
        // Else nobody goes by it; `stats()` takes its own.
    }

    fn look_at_space(&self) {
        self.take_account();
        self.update_space_debt();
    }

    /// Queues value GC if there is reason for a round.
    pub(crate) fn schedule_gc(&self) {
        let wanted = || {
            let account = self.gc.known_account();
            let held_off = self.gc.held_off.load(Ordering::Acquire) > 0;
            // As full as writers are told that it is: they wait for a round that is due.
            let fill = self.fill_now(&account);
            account.wants_round_at(fill) && (account.is_urgent_at(fill) || !held_off)
        };
        let wanted = self.options.value_gc && self.gc.may_begin() && !self.closing() && wanted();
        // Under a flush none can begin; when it has ended this is asked again.
        let wanted = wanted && self.flush_lock.try_lock().is_some();
        if wanted && !self.gc.queued.swap(true, Ordering::SeqCst) {
            self.jobs.push(self, Box::new(GcJob::default()));
        }
    }

    /// The account's fill with what the log, and the round that runs, have written since.
    pub(crate) fn fill_now(&self, account: &Account) -> f64 {
        account.fill_with(account.grown(&self.log) + self.gc.writing())
    }

    pub(crate) fn is_gc_urgent(&self) -> bool {
        let account = self.gc.known_account();
        account.is_urgent_at(self.fill_now(&account))
    }

    /// Commits changes with which values move, `from` in the order of their new places, with the keys whose values they are. Those that are cached are found there.
    fn commit_moved<'a>(
        &self,
        pending: Vec<Pending>,
        relocated: Relocated,
        from: impl Iterator<Item = (KeyspaceId, &'a [u8], ValuePointer)>,
    ) -> Result<()> {
        let to = relocated.values.pointers().to_vec();
        self.commit_relocation(pending, relocated)?;
        for ((keyspace, key, from), to) in from.zip(to) {
            (self.values).note_moved((keyspace, key), &from, &to, self.pipeline.visible());
        }
        Ok(())
    }

    /// Bytes of victims whose values a round may hold.
    fn gc_memory_bytes(&self) -> u64 {
        let share = self.options.memory_budget_bytes as u64 / MEMORY_SHARE;
        share.max(MEMORY_BYTES_MIN).min(self.gc_memory_bytes_max())
    }

    /// Bytes that it may hold at the utmost, with what is read for the next one; and a piece of values that are put in order.
    fn gc_memory_bytes_max(&self) -> u64 {
        self.options.memory_budget_bytes as u64 / MEMORY_SHARE_MAX
    }

    /// A round over the victims that the account names.
    fn begin_round(&self) -> Result<Begun> {
        let (victims, walks) = self.choose_victims()?;
        if victims.is_empty() {
            return Ok(Begun::Nothing);
        }
        let bytes: u64 = victims.iter().map(|victim| victim.bytes).sum();
        let live: u64 = victims.iter().map(|victim| victim.live_bytes).sum();
        let running = self.begin_writing(
            "round of value GC",
            live + live / 8,
            &self.compactions_called,
        )?;
        let begun = Round::begin(
            self,
            |state| {
                let flushed = state.flush_point.lsn.segment;
                let whole = victims
                    .iter()
                    .filter(|victim| victim.moved || victim.id < flushed);
                whole
                    .map(|victim| victim.id)
                    .filter(|id| state.is_live(*id))
                    .collect()
            },
            match walks {
                true => Scans::None,
                false => Scans::New {
                    keeps_values: bytes <= self.gc_memory_bytes(),
                },
            },
        )?;
        Ok(match begun {
            Some(round) if round.victims().len() > 0 => {
                Begun::Round(Box::new(round), running, bytes)
            }
            Some(_) => Begun::Nothing,
            None => Begun::Flushing,
        })
    }
}

/// What came of beginning a round.
enum Begun {
    /// With the bytes of its victims.
    Round(Box<Round>, Running, u64),
    /// There is none to begin.
    Nothing,
    /// A flush is under way.
    Flushing,
}

/// Runs one round.
#[derive(Default)]
struct GcJob {
    round: Option<(Box<Round>, Running)>,
    /// How many occasions there were when it began.
    occasions: u64,
    begun: Duration,
    /// Of the victims.
    bytes: u64,
    urgent: bool,
}

impl GcJob {
    fn ended(&mut self, engine: &Engine, fruitful: bool) -> Progress {
        self.round = None;
        engine.gc.writing.store(0, Ordering::Relaxed);
        if !fruitful {
            engine.remove_doomed();
            engine.gc.fruitless.store(self.occasions, Ordering::Release);
        }
        engine.gc.queued.store(false, Ordering::SeqCst);
        Progress::Done
    }
}

impl Job for GcJob {
    fn step(&mut self, engine: &Engine) -> Result<Progress> {
        if self.round.is_none() {
            // Before anything fails: one that could not begin has had its occasion too.
            self.occasions = engine.gc.occasions.load(Ordering::Acquire);
        }
        engine.may_compact()?;
        self.urgent = engine.is_gc_urgent();
        let Some((round, _)) = &mut self.round else {
            self.begun = engine.clock.monotonic();
            let (round, running, bytes) = match engine.begin_round()? {
                Begun::Round(round, running, bytes) => (round, running, bytes),
                Begun::Nothing => return Ok(self.ended(engine, false)),
                // When the flush has ended.
                Begun::Flushing => return Ok(self.ended(engine, true)),
            };
            (self.round, self.bytes) = (Some((round, running)), bytes);
            return Ok(Progress::More);
        };
        let stepped = round.step(engine)?;
        engine
            .gc
            .writing
            .store(round.file_bytes(), Ordering::Relaxed);
        let Some(outcome) = stepped else {
            return Ok(Progress::More);
        };
        engine.gc.learn(&outcome);
        let time = engine.clock.monotonic().saturating_sub(self.begun);
        let given_back = self.bytes.saturating_sub(outcome.live_record_bytes);
        engine.backpressure.space.learn(given_back, time);
        let fruitful = outcome.victims > 0;
        let progress = self.ended(engine, fruitful);
        engine.collect_garbage_if_waiting();
        match fruitful {
            true => engine.update_space(),
            // No occasion for the next one.
            false => engine.look_at_space(),
        }
        Ok(progress)
    }

    fn name(&self) -> String {
        "value GC".to_owned()
    }

    fn priority(&self) -> JobPriority {
        match self.urgent {
            true => JobPriority::Runs,
            false => JobPriority::Gc,
        }
    }

    fn abandon(mut self: Box<Self>, engine: &Engine, error: Option<&Error>) {
        let round = self.round.take();
        let victims: Vec<SegmentId> = (round.iter())
            .flat_map(|(round, _)| round.victims())
            .collect();
        if let Some((round, running)) = round {
            round.give_up();
            drop(running);
        }
        engine.gc.counters.given_up.fetch_add(1, Ordering::Relaxed);
        self.ended(engine, false);
        match error {
            // For want of space, or given way to a flush: at the next occasion.
            None => {}
            Some(error) if error.kind() == ErrorKind::NoSpace => {}
            // Of an index: which of the victims it concerns is not known.
            Some(error) if error.kind() == ErrorKind::Corruption => {
                victims
                    .into_iter()
                    .for_each(|victim| engine.gc.leave_alone(victim, error));
            }
            Some(error) => engine.note_background_error(error),
        }
    }
}
