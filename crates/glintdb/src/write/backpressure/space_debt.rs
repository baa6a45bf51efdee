//! Back-pressure by garbage: writers slow down as garbage comes near its bound, and wait where it
//! is reached.
//!
//! Between two accounts of space, garbage grows at most by what the log and the round under way
//! write. So the *fill*, the part of the allowed garbage that there is, is known at every moment.
//! From [`SLOW`] on, writers go at the rate at which rounds have given space back, times
//! [`FASTEST`] at `SLOW` and [`SLOWEST`] at 1. In between they are as fast as rounds, and settle
//! there.
//!
//! Writers stop only at [`STOP`]. Only very large values get there, with which one commit after a
//! sleep is still too fast. They stop only for a round that runs or is due: if nothing can be
//! collected, waiting does not help. Deletions never wait here.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.

use super::rate_limiter::RateLimiter;
use glintdb_core::planted;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Fill at which writers begin to be slowed.
const SLOW: f64 = 0.87;
/// Fill from which on writers look at the fill as the log grows.
const WATCHED: f64 = 0.5;
/// Fill at which writers stop.
const STOP: f64 = 1.2;
/// Factors of the rate of rounds at a fill of [`SLOW`] and at one of 1.
const FASTEST: f64 = 3.0;
const SLOWEST: f64 = 0.03;
/// Weight of the latest round in the known rate.
const LEARNT: f64 = 0.3;
/// Bytes a second that rounds are expected to give back before the first one has ended.
const RECLAIMED: f64 = 200e6;

/// The debt of value GC.
#[derive(Default)]
pub(crate) struct SpaceDebt {
    /// In bytes of log.
    pub(super) limiter: RateLimiter,
    /// Whether the fill is above [`WATCHED`], so that a round is due or will be.
    near: AtomicBool,
    /// Position of the log at the last look.
    pub(crate) looked_at: AtomicU64,
    /// Bytes a second that rounds give back while they run; 0 if not known yet.
    reclaimed: AtomicU64,
}

impl SpaceDebt {
    /// Whether a commit has to pay. Deletions do not.
    pub(crate) fn concerns(&self, only_deletes: bool) -> bool {
        self.limiter.engaged() && !only_deletes
    }

    /// Whether value GC has work, or soon will.
    pub(crate) fn is_near(&self) -> bool {
        self.near.load(Ordering::Relaxed)
    }

    /// Whether writers wait until a round has given space back.
    pub(crate) fn stopped(&self) -> bool {
        self.limiter.stopped()
    }

    /// Bytes of log a second that writers may go; 0 if there is no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.limiter.rate()
    }

    /// Learns that a round gave back `bytes` in `time`.
    pub(crate) fn learn(&self, bytes: u64, time: Duration) {
        if time.is_zero() {
            return;
        }
        let new = bytes as f64 / time.as_secs_f64();
        let known = self.reclaimed.load(Ordering::Relaxed) as f64;
        let mixed = if known == 0.0 {
            new
        } else {
            known + (new - known) * LEARNT
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "bytes a second of a medium"
        )]
        self.reclaimed
            .store((mixed as u64).max(1), Ordering::Relaxed);
    }

    /// Sets the rate by the fill, with what the round under way has written and without it.
    /// `collecting` is whether a round runs or is due.
    pub(crate) fn update(&self, fill: f64, without_round: f64, collecting: bool) {
        // What a round writes slows writers but never stops them, because it goes when the round
        // ends.
        let stopped = collecting && without_round >= STOP;
        let slow = ((fill - SLOW) / (1.0 - SLOW)).clamp(0.0, 1.0);
        let reclaimed = match self.reclaimed.load(Ordering::Relaxed) {
            0 => RECLAIMED,
            known => known as f64,
        };
        let slowed = collecting && slow > 0.0;
        let rate = if slowed {
            reclaimed * (FASTEST * (1.0 - slow) + SLOWEST)
        } else {
            0.0
        };
        let near = fill >= WATCHED;
        self.near.store(near, Ordering::Relaxed);
        // Writers that are not slowed yet look at the fill too: no other thread may get to it.
        planted!(
            "glintdb: writers are not slowed for space",
            self.limiter.set(rate, stopped, collecting && near),
            ()
        );
    }
}
