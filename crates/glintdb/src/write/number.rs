//! A commit's number: the wait for a place in the log and in the memtables, until the
//! [`sequencer`](crate::write::sequencer) gives both out with the number.
//!
//! Thread safety: any thread that holds no lock.
//!
//! Invariant: a thread with numbered commits that are not visible yet waits for nothing but them
//! (`settle` comes before every other wait).

use crate::options::Durability;
use crate::write::Writer;
use crate::write::backpressure::waits::Wait;
use crate::write::commit::Outstanding;
use crate::write::conflicts::Checks;
use crate::write::operations::Operations;
use crate::write::pipeline::SLOTS;
use crate::write::sequencer::{Attempt, Numbered, Obstacle};
use crate::{ErrorKind, Result};
use glintdb_core::SeqNum;
use glintdb_log::{LargeFrame, Space, WaitReason};

impl Writer {
    /// Takes the next number and a place in the log. Waits for room if there is none.
    pub(super) fn number(
        &self,
        batch: &Operations,
        durability: Durability,
        checks: Option<&Checks>,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<Numbered<'_>> {
        let frame_bytes = batch.frame.frame_bytes();
        let mut attempt = Attempt {
            frame_bytes,
            index_bytes: batch.index_bytes(),
            space: match batch.only_deletes() {
                true => Space::Reserve,
                false => Space::Normal,
            },
            checked_to: match checks {
                Some(checks) => self.check_transaction(checks)?,
                None => SeqNum::ZERO,
            },
            is_large: self.shared.log.is_large(frame_bytes),
            large: None,
        };
        let mut waiting = self.shared.waits.waiting();
        loop {
            if attempt.is_large && attempt.large.is_none() {
                self.settle(outstanding, durability)?;
                if attempt.space == Space::Normal {
                    self.space.cover(attempt.index_bytes)?;
                }
                attempt.large = Some(self.prepare_large(batch, attempt.space)?);
            }
            let obstacle = match self.sequencer.try_number(batch, checks, &mut attempt)? {
                Ok(numbered) => return Ok(numbered),
                Err(obstacle) => obstacle,
            };
            if !matches!(obstacle, Obstacle::Log(_)) {
                attempt.large = None;
            }
            if !matches!(obstacle, Obstacle::Changed | Obstacle::TooLarge) {
                self.settle(outstanding, durability)?;
            }
            match obstacle {
                Obstacle::Slots(next) => {
                    self.shared
                        .pipeline
                        .wait_visible(SeqNum(next.0 - SLOTS / 2))?;
                }
                Obstacle::Reserve => self.space.cover(attempt.index_bytes)?,
                Obstacle::Memtable => {
                    waiting.on(Wait::MemtableFull);
                    self.wait_for_memtable()?;
                }
                Obstacle::Changed => {
                    if let Some(checks) = checks {
                        attempt.checked_to = self.check_transaction(checks)?;
                    }
                }
                Obstacle::TooLarge => attempt.is_large = true,
                Obstacle::Log(reason) => {
                    waiting.on(Wait::LogSpace);
                    match self.wait_for_log(reason, attempt.space) {
                        // There may be space for one small segment but not for the ring.
                        Err(error)
                            if error.kind() == ErrorKind::NoSpace
                                && reason == WaitReason::Ring
                                && !attempt.is_large =>
                        {
                            attempt.is_large = true;
                        }
                        waited => waited?,
                    }
                }
            }
        }
    }

    fn check_transaction(&self, checks: &Checks) -> Result<SeqNum> {
        let point = self.shared.read_point();
        checks.check_all(&point.version)?;
        Ok(point.at)
    }

    fn prepare_large(&self, batch: &Operations, space: Space) -> Result<LargeFrame<'_>> {
        let prepare = || self.shared.log.prepare_large(&batch.frame, space);
        match prepare() {
            Err(error) if error.kind() == ErrorKind::NoSpace && space == Space::Reserve => {
                self.space.free_log_space()?;
                self.space.with_reserve(prepare)
            }
            prepared => prepared,
        }
    }
}
