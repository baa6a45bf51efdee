//! The bound on space: writers are slowed down as garbage comes near what may be, and wait where it is reached.
//!
//! Between two accounts garbage grows by what the log and the round that runs write, at most: so the fill is known at every moment. While there is more than [`SLOW`] of what may be, writers go at
//! the rate at which rounds have given space back, times [`FASTEST`] there and [`SLOWEST`] where all of it is used: somewhere between they are as fast as rounds, and there they settle. They stop
//! only where even so a fifth more than what may be is there ([`STOP`]), as where values are so large that a commit that sleeps is still too fast; and only for a round that is under way or due: where nothing can be collected, waiting would not help. Deletions never wait here.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.

use crate::Result;
use crate::batch::Batch;
use crate::engine::Engine;
use crate::options::Durability;
use crate::write::backpressure::rate_limiter::Pace;
use crate::write::backpressure::waits::Wait;
use crate::write::commit::Outstanding;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Part of the allowed garbage at which writers begin to be slowed.
const SLOW: f64 = 0.87;
/// Part from which on they look how full it is, each time the log has grown by so many bytes.
const WATCHED: f64 = 0.5;
const LOOK_BYTES: u64 = 128 << 10;
/// Part at which they stop.
const STOP: f64 = 1.2;
/// Times the rate of rounds at which writers go at [`SLOW`], and from where all that may be is there.
const FASTEST: f64 = 3.0;
const SLOWEST: f64 = 0.03;
/// A writer that waits looks again after this time.
const LOOK: Duration = Duration::from_millis(5);
/// What a round gave back counts this much against what is known.
const LEARNT: f64 = 0.3;
/// Bytes a second that rounds are thought to give back before the first one has ended.
const RECLAIMED: f64 = 200e6;

/// See the module's page.
#[derive(Default)]
pub(crate) struct Brake {
    engaged: AtomicBool,
    stopped: AtomicBool,
    /// There is so much garbage that writers are watched, or will be when a round is due.
    near: AtomicBool,
    /// Where the log was when somebody looked last.
    looked_at: AtomicU64,
    /// In bytes of log.
    pace: Pace,
    /// Bytes a second that rounds give back while they run; 0: not known yet.
    reclaimed: AtomicU64,
}

impl Brake {
    pub(crate) fn engaged(&self) -> bool {
        self.engaged.load(Ordering::Relaxed)
    }

    /// Whether value GC has something to do, or soon will.
    pub(crate) fn is_near(&self) -> bool {
        self.near.load(Ordering::Relaxed)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Bytes of log a second that writers may go; 0: as fast as they can.
    pub(crate) fn rate(&self) -> u64 {
        self.pace.rate()
    }

    /// A round gave back so many bytes in that time.
    pub(super) fn learn(&self, bytes: u64, time: Duration) {
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

    /// Takes over how full it is, with what the round that runs has written and without; `collecting` is whether a round is under way or due.
    fn update(&self, fill: f64, without_round: f64, collecting: bool) {
        if glintdb_core::seeded::bug("glintdb: writers are not slowed for space") {
            return;
        }
        // What a round writes makes writers slow. It never stops them: it is a step's, and goes with the round.
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
        self.pace.set_rate(rate);
        self.stopped.store(stopped, Ordering::Relaxed);
        // Not yet slowed, writers look now and then all the same: nobody else may get to it while they write.
        let near = fill >= WATCHED;
        self.near.store(near, Ordering::Relaxed);
        self.engaged.store(collecting && near, Ordering::Relaxed);
    }
}

impl Engine {
    /// Looks how full it is now, for whoever writes.
    pub(crate) fn update_brake(&self) {
        if !self.options.value_gc {
            return;
        }
        let account = self.gc.known_account();
        let position = self.log.completed_position();
        self.gc.brake.looked_at.store(position, Ordering::Relaxed);
        let due = || account.some_victim && self.gc.may_begin();
        // What a flush will show to be garbage can be collected then.
        let flushing = || self.flush_queued.load(Ordering::SeqCst);
        let collecting = (self.gc.is_queued() || due() || flushing())
            && !self.closing()
            && self.background_error.lock().is_none();
        let without_round = account.fill_with(account.grown(&self.log));
        let fill = self.fill_now(&account);
        self.gc.brake.update(fill, without_round, collecting);
    }

    /// Before a commit that puts something: pays for its space.
    #[cold]
    pub(crate) fn brake(
        &self,
        batch: &Batch,
        durability: Durability,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        if batch.only_deletes() {
            return Ok(());
        }
        let looked_at = self.gc.brake.looked_at.load(Ordering::Relaxed);
        if self.log.completed_position().saturating_sub(looked_at) >= LOOK_BYTES {
            self.update_brake();
        }
        if self.gc.brake.stopped() {
            self.update_brake();
        }
        if self.gc.brake.stopped() {
            self.settle(outstanding, durability)?;
            let _timed = self.waits.start(Wait::Space);
            while self.gc.brake.stopped() {
                self.pipeline.check()?;
                self.schedule();
                self.collect_garbage_if_waiting();
                if !self.run_inline() {
                    self.help_while(|| !self.gc.brake.stopped());
                    self.jobs.wait_finished(LOOK);
                }
                self.update_brake();
            }
        }
        let bytes = batch.size_bytes() as u64;
        let owed = self.gc.brake.pace.admit(bytes, &*self.clock);
        self.pay(owed, Wait::Space, durability, outstanding)?;
        Ok(())
    }
}
