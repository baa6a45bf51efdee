//! Writers fill the active memtables no faster than those that are sealed are flushed: instead of one stop of half a second at the end, many sleeps of milliseconds.
//!
//! While a generation is flushed, the share of it that is written, and the time that took, tell how long the rest will take. A writer that would have filled the active generation before that is slowed to the
//! rate at which it fills just then; one that would not is let go. Looked at as the flush goes on, and by each writer that has slept. Only where background threads flush: else writers do it themselves.
//!
//! A flush is one long step; where it looks, it also lets the log go first, if writers will wait for that soon.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.

use crate::Result;
use crate::batch::Batch;
use crate::engine::Engine;
use crate::options::Durability;
use crate::write::backpressure::rate_limiter::Pace;
use crate::write::backpressure::waits::Wait;
use crate::write::commit::Outstanding;
use glintdb_core::clock::Clock;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Entries between two looks at how far a flush is: about a millisecond.
pub(crate) const LOOK_ENTRIES: usize = 2048;

/// How full the active generation is to be when the flush ends: what is above is left for flushes that take longer than it looked.
const FULL: f64 = 15.0 / 16.0;
/// Writers may be ahead of the flush by this part of a generation.
const AHEAD: f64 = 1.0 / 16.0;
/// Part of a flush that is behind the last entry: syncs, the manifest.
const LAST: f64 = 1.0 / 16.0;
/// Bytes a second that a flush is thought to write before one has shown it.
const DRAIN_FIRST: f64 = 150e6;
/// What a flush shows counts this much against what was known.
const LEARNT: f64 = 0.5;
/// A flush of less says nothing about those that writers wait for.
const TELLING_BYTES: u64 = 1 << 20;
/// Bytes a second at which even the slowest writers go: they wait only where there is no room at all.
const RATE_MIN: f64 = 4e6;

/// How full the active generation is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// Of what it may hold: 1 where it would be sealed.
    pub(crate) part: f64,
    /// What indexes will have to hold for it.
    pub(crate) bytes: u64,
}

/// See the module's page.
pub(crate) struct Drain {
    clock: Arc<dyn Clock>,
    engaged: AtomicBool,
    pace: Pace,
    state: Mutex<State>,
}

struct State {
    /// Bytes a second of the last flushes.
    rate: f64,
    /// Bytes of a generation that is full.
    full_bytes: f64,
    flush: Option<Flush>,
}

/// The flush under way.
struct Flush {
    began: Duration,
    bytes: u64,
    /// Part of it that is done.
    done: f64,
}

impl Flush {
    /// Seconds it has taken and will take, at `now`.
    fn seconds(&self, now: Duration, rate: f64) -> (f64, f64) {
        let elapsed = now.saturating_sub(self.began).as_secs_f64();
        let expected = self.bytes as f64 / rate;
        // The further it is, the more it tells of itself.
        let whole = match self.done > 0.0 {
            true => expected + (elapsed / self.done - expected) * self.done,
            false => expected,
        };
        (elapsed, (whole * (1.0 - self.done)).max(1e-3))
    }
}

impl Drain {
    /// `full_bytes`: of a full generation, about.
    pub(crate) fn new(clock: Arc<dyn Clock>, full_bytes: usize) -> Self {
        Drain {
            clock,
            engaged: AtomicBool::new(false),
            pace: Pace::default(),
            state: Mutex::new(State {
                rate: DRAIN_FIRST,
                full_bytes: full_bytes as f64,
                flush: None,
            }),
        }
    }

    /// Whether writers are slowed.
    pub(crate) fn engaged(&self) -> bool {
        self.engaged.load(Ordering::Relaxed)
    }

    /// Bytes a second that writers may go; 0: as fast as they can.
    pub(crate) fn rate(&self) -> u64 {
        self.pace.rate()
    }

    /// Bytes a second of the last flushes.
    pub(crate) fn flushed_rate(&self) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "bytes a second of a medium"
        )]
        let rate = self.state.lock().rate as u64;
        rate
    }

    /// Admits `bytes`, and tells how long their writer must sleep for them.
    pub(crate) fn admit(&self, bytes: u64) -> Option<Duration> {
        self.pace.admit(bytes, &*self.clock)
    }

    /// A flush of so many bytes begins.
    pub(crate) fn begin(&self, bytes: u64) {
        self.state.lock().flush = Some(Flush {
            began: self.clock.monotonic(),
            bytes,
            done: 0.0,
        });
    }

    /// So many of the flush's entries are written.
    pub(crate) fn progress(&self, entries: usize, of: usize) {
        if let Some(flush) = &mut self.state.lock().flush {
            flush.done = entries as f64 / of.max(1) as f64 * (1.0 - LAST);
        }
    }

    /// The flush is through, or was given up.
    pub(crate) fn end(&self, through: bool) {
        let mut state = self.state.lock();
        if let Some(flush) = state.flush.take()
            && through
            && flush.bytes >= TELLING_BYTES
        {
            let seconds = self.clock.monotonic().saturating_sub(flush.began);
            let rate = flush.bytes as f64 / seconds.as_secs_f64().max(1e-6);
            state.rate += (rate - state.rate) * LEARNT;
        }
        self.slow_to(0.0);
    }

    /// Looks what writers may do.
    pub(crate) fn update(&self, fill: Fill) {
        let mut state = self.state.lock();
        if fill.part > AHEAD {
            state.full_bytes = fill.bytes as f64 / fill.part;
        }
        let Some(flush) = &state.flush else { return };
        let (elapsed, left) = flush.seconds(self.clock.monotonic(), state.rate);
        // A writer that keeps to it fills the generation as the flush ends.
        let due = FULL * elapsed / (elapsed + left);
        let rate = match fill.part > due + AHEAD {
            true => (FULL - fill.part).max(0.0) / left * state.full_bytes,
            false => return self.slow_to(0.0),
        };
        self.slow_to(rate.max(RATE_MIN));
    }

    /// Under the lock, so that a flush that has ended slows nobody.
    fn slow_to(&self, rate: f64) {
        self.pace.set_rate(rate);
        self.engaged.store(rate > 0.0, Ordering::Relaxed);
    }
}

/// The flush that writers keep to; given up where it is dropped.
pub(crate) struct Draining<'a> {
    engine: &'a Engine,
    entries: Cell<usize>,
    of: usize,
    through: Cell<bool>,
}

impl Draining<'_> {
    /// So many more entries are written.
    pub(crate) fn progress(&self, entries: usize) {
        if self.of > 0 {
            self.entries.set(self.entries.get() + entries);
            self.engine.drain.progress(self.entries.get(), self.of);
            self.engine.update_drain();
            self.engine.spill_if_urgent();
        }
    }

    /// What was flushed is visible.
    pub(crate) fn through(&self) {
        self.through.set(true);
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.engine.drain.end(self.through.get());
    }
}

impl Engine {
    /// A flush of so many entries and bytes begins. Without background threads nobody keeps to it: writers flush.
    pub(crate) fn begin_drain(&self, entries: usize, bytes: u64) -> Draining<'_> {
        let mut of = 0;
        if self.options.background_threads > 0 {
            of = entries;
            if self.options.pace_writers {
                self.drain.begin(bytes);
            }
        }
        Draining {
            engine: self,
            entries: Cell::new(0),
            of,
            through: Cell::new(false),
        }
    }

    fn update_drain(&self) {
        let fill = self.sequencer.lock().fill(&self.options);
        self.drain.update(fill);
    }

    /// Before a commit while the active memtables fill faster than the sealed ones are flushed.
    #[cold]
    pub(crate) fn keep_to_drain(
        &self,
        batch: &Batch,
        durability: Durability,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        let owed = self.drain.admit(batch.index_bytes());
        if self.pay(owed, Wait::MemtableDebt, durability, outstanding)? {
            self.update_drain();
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use glintdb_flash::ManualClock;

    const MB: u64 = 1 << 20;

    fn fill(part: f64) -> Fill {
        #[allow(clippy::cast_possible_truncation, reason = "a part of 64 MB")]
        Fill {
            part,
            bytes: (part * (64 * MB) as f64) as u64,
        }
    }

    fn drain() -> (Drain, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Duration::ZERO));
        let drain = Drain::new(Arc::clone(&clock) as Arc<dyn Clock>, 64 << 20);
        (drain, clock)
    }

    /// Writes as fast as is allowed, and no faster than `natural` bytes in 100 µs, while a flush of 64 MB takes so many of these; answers how full the active generation was at its end, and how
    /// many of them passed at most without a write.
    fn beside_a_flush(
        drain: &Drain,
        clock: &ManualClock,
        turns: usize,
        natural: u64,
    ) -> (f64, u32) {
        const TURN: Duration = Duration::from_micros(100);
        let (mut part, mut owed) = (0.0, Duration::ZERO);
        let (mut still, mut longest) = (0, 0);
        drain.begin(64 * MB);
        for turn in 0..turns {
            drain.progress(turn, turns);
            drain.update(fill(part));
            if owed > Duration::ZERO || part >= 1.0 {
                owed = owed.saturating_sub(TURN);
                still += 1;
                longest = longest.max(still);
            } else {
                still = 0;
                part += natural as f64 / (64 * MB) as f64;
                owed = drain.admit(natural).unwrap_or_default();
            }
            clock.advance(TURN);
        }
        drain.end(true);
        (part, longest)
    }

    #[test]
    fn a_writer_fills_the_memtables_as_the_flush_ends() {
        let (drain, clock) = drain();
        // What is known of flushes is wrong at first, and wrong again when they take twice as long.
        for ms in [300, 300, 600, 600, 200, 1500, 300] {
            let (part, longest) = beside_a_flush(&drain, &clock, ms * 10, 40_000);
            assert!((0.7..1.0).contains(&part), "{ms} ms: {part}");
            assert!(longest < 200, "{ms} ms: {longest} times 100 µs");
            assert!(!drain.engaged() && drain.admit(1 << 30).is_none());
        }
    }

    #[test]
    fn a_writer_slower_than_flushes_is_left_alone() {
        let (drain, clock) = drain();
        beside_a_flush(&drain, &clock, 5000, 1000);
        drain.begin(64 * MB);
        for part in 1..=10u32 {
            clock.advance(Duration::from_millis(50));
            drain.progress(part as usize, 10);
            drain.update(fill(f64::from(part) * 0.05));
            assert!(!drain.engaged(), "{part}");
        }
    }

    #[test]
    fn a_flush_that_stands_still_makes_writers_slower_and_slower() {
        let (drain, clock) = drain();
        drain.begin(64 * MB);
        clock.advance(Duration::from_millis(200));
        drain.progress(1, 2);
        let mut last = u64::MAX;
        for _ in 0..5 {
            drain.update(fill(0.7));
            assert!(drain.engaged() && drain.rate() < last);
            last = drain.rate();
            clock.advance(Duration::from_millis(300));
        }
        drain.end(false);
        assert!(!drain.engaged());
    }
}
