//! Value GC: frees the space of dead values, by moving live values out of segments that hold much
//! garbage.
//!
//! One round runs at a time ([`round`]), as a job between level 0 and the other compactions. The
//! [account of space](crate::space::account) decides when a round is due and over which segments.
//! The live part is known exactly only for a round's own victims; for other segments it is
//! estimated from the pointers in index files and from the results of earlier rounds.
//!
//! Thread safety: any thread.
//!
//! Invariant: estimates decide when a round begins and over which segments, never whether a record
//! is live.

mod ordering;
mod records;
mod round;
mod scattered;
#[cfg(test)]
mod tests;
mod units;

#[cfg(test)]
pub(crate) use round::Place;
pub(crate) use round::{Round, Scans};

use crate::background::Background;
use crate::background::install::{Pending, Relocated};
use crate::background::queue::{Job, Progress};
use crate::shared::Shared;
use crate::space::DiskSpace;
use crate::space::priority::{Begun, Running};
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::JobPriority;
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{KeyspaceId, SegmentId, ValuePointer};
use std::sync::Arc;
use std::time::Duration;

/// Moves values: rounds of value GC, and passes that put values in key order.
pub(crate) struct ValueGc {
    shared: Arc<Shared>,
    space: Arc<DiskSpace>,
    background: Arc<Background>,
}

impl ValueGc {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        space: &Arc<DiskSpace>,
        background: &Arc<Background>,
    ) -> Self {
        ValueGc {
            shared: Arc::clone(shared),
            space: Arc::clone(space),
            background: Arc::clone(background),
        }
    }

    /// Queues a round if one is due.
    pub(crate) fn schedule(self: &Arc<Self>) {
        let gc = &self.space.gc;
        let wanted = || {
            let account = gc.known_account();
            let held_off = gc.held_off.load(Ordering::Acquire) > 0;
            // Uses the fill by which writers are slowed, because they wait for a round that is due.
            let fill = self.space.fill_now(&account);
            account.wants_round_at(fill) && (account.is_urgent_at(fill) || !held_off)
        };
        let may_begin = self.shared.options.experiments.value_gc
            && gc.may_begin()
            && !self.shared.closing()
            && wanted();
        // No round can begin during a flush. After the flush this is called again.
        if may_begin
            && self.background.try_no_flush().is_some()
            && !gc.queued.swap(true, Ordering::SeqCst)
        {
            self.background.push(Box::new(GcJob::new(self)));
        }
    }

    /// Commits changes that move values, and updates the directory of values. `from` has keys and
    /// old places, in the order of the new places.
    fn commit_moved<'a>(
        &self,
        pending: Vec<Pending>,
        relocated: Relocated,
        from: impl Iterator<Item = (KeyspaceId, &'a [u8], ValuePointer)>,
    ) -> Result<()> {
        let to = relocated.values.pointers().to_vec();
        self.background.commit_relocation(pending, relocated)?;
        for ((keyspace, key, from), to) in from.zip(to) {
            (self.shared.values).note_moved(
                (keyspace, key),
                &from,
                &to,
                self.shared.pipeline.visible(),
            );
        }
        Ok(())
    }

    /// Begins a round over the victims that the account names.
    fn begin_round(&self) -> Result<Beginning> {
        let (victims, walks) = self.space.choose_victims()?;
        if victims.is_empty() {
            return Ok(Beginning::Nothing);
        }
        let bytes: u64 = victims.iter().map(|victim| victim.bytes).sum();
        let live: u64 = victims.iter().map(|victim| victim.live_bytes).sum();
        let running =
            (self.space).begin_writing("round of value GC", live + live / 8, Begun::Called)?;
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
                    keeps_values: bytes <= self.space.gc_memory_bytes(),
                },
            },
        )?;
        Ok(match begun {
            Some(round) if round.victims().len() > 0 => {
                Beginning::Round(Box::new(round), running, bytes)
            }
            Some(_) => Beginning::Nothing,
            None => Beginning::Flushing,
        })
    }
}

/// Result of beginning a round.
enum Beginning {
    /// The round, its count as a running compaction, and the bytes of its victims.
    Round(Box<Round>, Running, u64),
    /// No round is to begin.
    Nothing,
    /// A flush is under way.
    Flushing,
}

/// Runs one round.
struct GcJob {
    gc: Arc<ValueGc>,
    round: Option<(Box<Round>, Running)>,
    /// Number of occasions when it began.
    occasions: u64,
    begun: Duration,
    /// Bytes of the victims.
    bytes: u64,
    urgent: bool,
}

impl GcJob {
    fn new(gc: &Arc<ValueGc>) -> Self {
        GcJob {
            gc: Arc::clone(gc),
            round: None,
            occasions: 0,
            begun: Duration::ZERO,
            bytes: 0,
            urgent: false,
        }
    }

    fn ended(&mut self, fruitful: bool) -> Progress {
        self.round = None;
        let space = &self.gc.space;
        space.gc.writing.store(0, Ordering::Relaxed);
        if !fruitful {
            space.remove_doomed();
            space.gc.fruitless.store(self.occasions, Ordering::Release);
        }
        space.gc.queued.store(false, Ordering::SeqCst);
        Progress::Done
    }
}

impl Job<Background> for GcJob {
    fn step(&mut self, _: &Background) -> Result<Progress> {
        let gc = Arc::clone(&self.gc);
        let (shared, space) = (&gc.shared, &gc.space);
        if self.round.is_none() {
            // Noted before anything can fail, so that a round that could not begin has used its
            // occasion.
            self.occasions = space.gc.occasions.load(Ordering::Acquire);
        }
        space.may_compact()?;
        self.urgent = space.is_gc_urgent();
        let Some((round, _)) = &mut self.round else {
            self.begun = shared.clock.monotonic();
            let (round, running, bytes) = match gc.begin_round()? {
                Beginning::Round(round, running, bytes) => (round, running, bytes),
                Beginning::Nothing => return Ok(self.ended(false)),
                // The end of the flush queues it again.
                Beginning::Flushing => return Ok(self.ended(true)),
            };
            (self.round, self.bytes) = (Some((round, running)), bytes);
            return Ok(Progress::More);
        };
        let stepped = round.step(&gc)?;
        space
            .gc
            .writing
            .store(round.file_bytes(), Ordering::Relaxed);
        let Some(outcome) = stepped else {
            return Ok(Progress::More);
        };
        space.gc.learn(&outcome);
        let time = shared.clock.monotonic().saturating_sub(self.begun);
        let given_back = self.bytes.saturating_sub(outcome.live_record_bytes);
        shared.backpressure.space.learn(given_back, time);
        let fruitful = outcome.victims > 0;
        let progress = self.ended(fruitful);
        space.collect_garbage_if_waiting();
        match fruitful {
            true => space.update_space(),
            // This is no occasion for another round.
            false => space.look_at_space(),
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

    fn abandon(mut self: Box<Self>, _: &Background, error: Option<&Error>) {
        let gc = Arc::clone(&self.gc);
        let (shared, space) = (&gc.shared, &gc.space);
        let round = self.round.take();
        let victims: Vec<SegmentId> = (round.iter())
            .flat_map(|(round, _)| round.victims())
            .collect();
        if let Some((round, running)) = round {
            round.give_up();
            drop(running);
        }
        space.gc.counters.given_up.fetch_add(1, Ordering::Relaxed);
        self.ended(false);
        match error {
            // It was given up, or found no space. The next occasion queues it again.
            None => {}
            Some(error) if error.kind() == ErrorKind::NoSpace => {}
            // An index is damaged. It is unknown which victims it concerns.
            Some(error) if error.kind() == ErrorKind::Corruption => {
                victims
                    .into_iter()
                    .for_each(|victim| space.gc.leave_alone(victim, error));
            }
            Some(error) => shared.note_background_error(error),
        }
    }
}
