//! Back-pressure by the flush under way: writers fill the active memtables no faster than the
//! sealed ones are flushed. Many sleeps of milliseconds replace one stop of half a second.
//!
//! The share of the flush that is done, and the time this took, give the time that the rest will
//! take. A writer that would fill the active generation earlier is slowed to the rate that fills it
//! at that moment. Others are not slowed. The rate is set as the flush makes progress, and by each
//! writer that has slept. Without background threads writers flush themselves, and are not slowed
//! here.
//!
//! A flush is one long step. When it reports progress, it also lets the log spill if writers will
//! wait for that soon.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.

use super::rate_limiter::RateLimiter;
use glintdb_core::clock::Clock;
use glintdb_core::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How full the active generation should be when the flush ends. The rest is for flushes that take
/// longer than expected.
const FULL: f64 = 15.0 / 16.0;
/// Writers may be ahead of the flush by this part of a generation.
const AHEAD: f64 = 1.0 / 16.0;
/// Part of a flush that comes after its last entry: syncs and the manifest.
const LAST: f64 = 1.0 / 16.0;
/// Bytes a second that a flush is expected to write before the first flush has ended.
const FLUSH_RATE_FIRST: f64 = 150e6;
/// Weight of the latest flush in the expected rate.
const LEARNT: f64 = 0.5;
/// Smaller flushes are not measured, because writers wait for large ones.
const TELLING_BYTES: u64 = 1 << 20;
/// Bytes a second at which even the slowest writers go: they wait only if there is no room at all.
const RATE_MIN: f64 = 4e6;

/// How full the active generation is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// Part of its capacity; at 1 it is sealed.
    pub(crate) part: f64,
    /// Bytes that indexes will have to hold for it.
    pub(crate) bytes: u64,
}

/// The debt of the flush under way.
pub(crate) struct FlushDebt {
    clock: Arc<dyn Clock>,
    pub(super) limiter: RateLimiter,
    state: Mutex<State>,
}

struct State {
    /// Bytes a second of the last flushes.
    rate: f64,
    /// Bytes of a full generation.
    full_bytes: f64,
    flush: Option<Flush>,
}

/// The flush under way.
struct Flush {
    began: Duration,
    bytes: u64,
    /// Part of the flush that is done.
    done: f64,
}

impl Flush {
    /// Returns the seconds that the flush has taken at `now`, and those that it will take yet.
    fn seconds(&self, now: Duration, rate: f64) -> (f64, f64) {
        let elapsed = now.saturating_sub(self.began).as_secs_f64();
        let expected = self.bytes as f64 / rate;
        // Weight this flush's own rate by its progress. Early on, trust the average of earlier
        // flushes.
        let whole = match self.done > 0.0 {
            true => expected + (elapsed / self.done - expected) * self.done,
            false => expected,
        };
        (elapsed, (whole * (1.0 - self.done)).max(1e-3))
    }
}

impl FlushDebt {
    /// Creates a debt of 0. `full_bytes` is the expected size of a full generation.
    pub(crate) fn new(clock: Arc<dyn Clock>, full_bytes: usize) -> Self {
        FlushDebt {
            clock,
            limiter: RateLimiter::default(),
            state: Mutex::new(State {
                rate: FLUSH_RATE_FIRST,
                full_bytes: full_bytes as f64,
                flush: None,
            }),
        }
    }

    /// Whether writers are slowed.
    pub(crate) fn engaged(&self) -> bool {
        self.limiter.engaged()
    }

    /// Bytes a second that writers may go; 0 if there is no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.limiter.rate()
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

    /// Notes that a flush of `bytes` begins.
    pub(crate) fn begin(&self, bytes: u64) {
        self.state.lock().flush = Some(Flush {
            began: self.clock.monotonic(),
            bytes,
            done: 0.0,
        });
    }

    /// Notes that `entries` of the flush's entries are written.
    pub(crate) fn progress(&self, entries: usize, of: usize) {
        if let Some(flush) = &mut self.state.lock().flush {
            flush.done = entries as f64 / of.max(1) as f64 * (1.0 - LAST);
        }
    }

    /// Notes that the flush ended. It has taken effect if `through`, else it was given up.
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

    /// Sets the rate of writers by how full the active generation is.
    pub(crate) fn update(&self, fill: Fill) {
        let mut state = self.state.lock();
        if fill.part > AHEAD {
            state.full_bytes = fill.bytes as f64 / fill.part;
        }
        let Some(flush) = &state.flush else { return };
        let (elapsed, left) = flush.seconds(self.clock.monotonic(), state.rate);
        // A writer at this rate fills the generation when the flush ends.
        let due = FULL * elapsed / (elapsed + left);
        let rate = match fill.part > due + AHEAD {
            true => (FULL - fill.part).max(0.0) / left * state.full_bytes,
            false => return self.slow_to(0.0),
        };
        self.slow_to(rate.max(RATE_MIN));
    }

    /// Sets the rate. Called under the lock, so that a flush that has ended slows no writer.
    fn slow_to(&self, rate: f64) {
        self.limiter.set(rate, false, rate > 0.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::SLEEP_MAX;
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

    fn debt() -> (FlushDebt, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Duration::ZERO));
        let debt = FlushDebt::new(Arc::clone(&clock) as Arc<dyn Clock>, 64 << 20);
        (debt, clock)
    }

    /// Writes as fast as is allowed, but at most `natural` bytes in each turn of 100 µs, while a
    /// flush of 64 MB takes `turns`. Returns how full the active generation was at the end, and the
    /// longest row of turns without a write.
    fn beside_a_flush(
        debt: &FlushDebt,
        clock: &ManualClock,
        turns: usize,
        natural: u64,
    ) -> (f64, u32) {
        const TURN: Duration = Duration::from_micros(100);
        let (mut part, mut owed) = (0.0, Duration::ZERO);
        let (mut still, mut longest) = (0, 0);
        debt.begin(64 * MB);
        for turn in 0..turns {
            debt.progress(turn, turns);
            debt.update(fill(part));
            if owed > Duration::ZERO || part >= 1.0 {
                owed = owed.saturating_sub(TURN);
                still += 1;
                longest = longest.max(still);
            } else {
                still = 0;
                part += natural as f64 / (64 * MB) as f64;
                owed = debt.limiter.admit(natural, clock).unwrap_or_default();
                owed = owed.min(SLEEP_MAX);
            }
            clock.advance(TURN);
        }
        debt.end(true);
        (part, longest)
    }

    #[test]
    fn a_writer_fills_the_memtables_as_the_flush_ends() {
        let (debt, clock) = debt();
        // The expected rate is wrong at first, and wrong again when flushes take twice as long.
        for ms in [300, 300, 600, 600, 200, 1500, 300] {
            let (part, longest) = beside_a_flush(&debt, &clock, ms * 10, 40_000);
            assert!((0.7..1.0).contains(&part), "{ms} ms: {part}");
            assert!(longest < 200, "{ms} ms: {longest} times 100 µs");
            assert!(!debt.limiter.engaged() && debt.limiter.admit(1 << 30, &*clock).is_none());
        }
    }

    #[test]
    fn a_writer_slower_than_flushes_is_left_alone() {
        let (debt, clock) = debt();
        beside_a_flush(&debt, &clock, 5000, 1000);
        debt.begin(64 * MB);
        for part in 1..=10u32 {
            clock.advance(Duration::from_millis(50));
            debt.progress(part as usize, 10);
            debt.update(fill(f64::from(part) * 0.05));
            assert!(!debt.limiter.engaged(), "{part}");
        }
    }

    #[test]
    fn writers_slow_down_more_and_more_beside_a_stalled_flush() {
        let (debt, clock) = debt();
        debt.begin(64 * MB);
        clock.advance(Duration::from_millis(200));
        debt.progress(1, 2);
        let mut last = u64::MAX;
        for _ in 0..5 {
            debt.update(fill(0.7));
            assert!(debt.limiter.engaged() && debt.rate() < last);
            last = debt.rate();
            clock.advance(Duration::from_millis(300));
        }
        debt.end(false);
        assert!(!debt.limiter.engaged());
    }
}
