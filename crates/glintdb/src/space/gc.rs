//! The state of value GC: the account of space, the estimate of hidden values, whether a round is
//! worth while, and counters.
//!
//! Thread safety: any thread. Its lock is taken last of all and held for moments.
//!
//! Invariant: after a round that retired no segment, another one begins only after something has
//! changed.

use super::account::Account;
use super::hidden::Hidden;
use crate::Error;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::{SegmentId, ValuePointer};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a segment's header.
const HEADER_BYTES: u64 = 4096;
/// Weight of the latest round in averages.
const LEARNT: f64 = 0.3;

/// The result of a round.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    /// Number of retired segments.
    pub(crate) victims: u64,
    /// Number of records in the victims, and of live ones among them.
    pub(crate) records: u64,
    pub(crate) live_records: u64,
    /// Bytes of values in the victims that indexes pointed to.
    pub(crate) held_bytes: u64,
    /// Bytes of them that were known to be shadowed or hidden when the round began.
    pub(crate) hidden_bytes: f64,
    /// Bytes of live values.
    pub(crate) live_bytes: u64,
    /// Number and bytes of live values that came from the cache.
    pub(crate) cached_records: u64,
    pub(crate) cached_bytes: u64,
    /// Bytes of the live records' keys.
    pub(crate) live_key_bytes: u64,
    /// Bytes that the live records take in a segment.
    pub(crate) live_record_bytes: u64,
}

/// The state of value GC.
pub(crate) struct Gc {
    pub(super) queued: AtomicBool,
    /// Number of full compactions under way. A round would give them another run to compact, so
    /// only urgent rounds begin.
    pub(super) held_off: AtomicUsize,
    /// Whether a pass that puts values in key order is queued or runs.
    pub(super) ordering: AtomicBool,
    pub(super) state: Mutex<State>,
    /// Number of changes that may have made a round worth while.
    pub(super) occasions: AtomicU64,
    pub(super) fruitless: AtomicU64,
    /// Bytes that the round under way has written.
    pub(super) writing: AtomicU64,
    pub(crate) counters: Counters,
}

pub(super) struct State {
    pub(super) hidden: Hidden,
    /// Segments, and bytes of their values that the flush under way overwrites, estimated.
    overwriting: Vec<(SegmentId, u64)>,
    /// Bytes that a record takes in a segment, per byte of its value.
    pub(super) overhead: f64,
    /// Bytes of a record's key and value, per byte of its value.
    pub(super) keyed: f64,
    /// Bytes of values that each segment of a round had when it was written.
    pub(super) born: BTreeMap<SegmentId, u64>,
    /// Share of moved values that were cached.
    pub(super) cached: f64,
    pub(super) left_alone: BTreeSet<SegmentId>,
    pub(super) error: Option<String>,
    pub(super) account: Account,
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

/// A copy for `stats()`.
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

    pub(super) fn writing(&self) -> u64 {
        self.writing.load(Ordering::Relaxed)
    }

    /// Runs a full compaction, or a pass over values, during which only urgent rounds begin.
    pub(crate) fn while_held_off<T>(&self, work: impl FnOnce() -> T) -> T {
        self.held_off.fetch_add(1, Ordering::AcqRel);
        let done = work();
        self.held_off.fetch_sub(1, Ordering::AcqRel);
        done
    }

    pub(crate) fn known(&self) -> Known {
        let state = self.state.lock();
        Known {
            account: state.account,
            left_alone: state.left_alone.len() as u64,
            error: state.error.clone(),
        }
    }

    /// Notes a change that may have made a round worth while.
    pub(super) fn occasion(&self) {
        self.occasions.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn may_begin(&self) -> bool {
        self.occasions.load(Ordering::Acquire) != self.fruitless.load(Ordering::Acquire)
    }

    /// Excludes a damaged segment from rounds until the database is opened again.
    pub(super) fn leave_alone(&self, segment: SegmentId, error: &Error) {
        self.occasion();
        let mut state = self.state.lock();
        state.left_alone.insert(segment);
        state.error.get_or_insert_with(|| error.to_string());
    }

    /// Notes the segments that a round or a pass has written, before they are in the manifest.
    pub(super) fn born(&self, values: &[ValuePointer], victims: &[SegmentId], hidden_before: f64) {
        let mut born = BTreeMap::<SegmentId, u64>::new();
        for pointer in values {
            *born.entry(pointer.segment).or_default() += u64::from(pointer.length);
        }
        let mut state = self.state.lock();
        let victims = victims.iter().copied();
        state.hidden.moved(victims, hidden_before, &born);
        state.born.append(&mut born);
    }

    /// Notes how many bytes of values of which segments the flush under way overwrites.
    pub(crate) fn overwriting(&self, bytes: Vec<(SegmentId, u64)>) {
        self.state.lock().overwriting = bytes;
    }

    /// Notes that the flush has taken effect.
    pub(crate) fn flushed(&self) {
        let mut state = self.state.lock();
        for (segment, bytes) in std::mem::take(&mut state.overwriting) {
            state.hidden.add(segment, bytes);
        }
    }

    /// Notes that the files of a round are in the manifest, so that the account counts them.
    pub(crate) fn published(&self) {
        self.writing.store(0, Ordering::Relaxed);
    }

    /// Notes the bytes of values that a compaction has dropped, in segments that are not retired.
    pub(crate) fn dropped(&self, bytes: impl Iterator<Item = (SegmentId, u64)>) {
        let mut state = self.state.lock();
        bytes.for_each(|(segment, bytes)| state.hidden.dropped(segment, bytes));
    }

    /// Notes that values have moved: they are hidden at their old places.
    pub(super) fn left_behind(&self, pointers: &[ValuePointer]) {
        let mut state = self.state.lock();
        for pointer in pointers {
            (state.hidden).add(pointer.segment, u64::from(pointer.length));
        }
    }

    pub(super) fn hidden_in(&self, segments: impl Iterator<Item = SegmentId>) -> f64 {
        let state = self.state.lock();
        segments.map(|segment| state.hidden.of(segment)).sum()
    }

    /// Learns from a round.
    pub(super) fn learn(&self, outcome: &Outcome) {
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

impl State {
    /// Estimates the live bytes of a segment in which `live` bytes of values are live.
    pub(super) fn live_estimate(&self, id: SegmentId, bytes: u64, live: f64) -> u64 {
        let record = match self.born.get(&id) {
            Some(&born) => bytes as f64 / born.max(1) as f64,
            None => self.overhead,
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most the bytes of the segment"
        )]
        let live = (live * record) as u64;
        live.saturating_add(HEADER_BYTES).min(bytes)
    }
}
