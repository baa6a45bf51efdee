//! The commit path: a commit gets its number and its place in the log under one short lock
//! ([`sequencer`]), and does everything else in parallel with others.
//!
//! Thread safety: any number of threads commit at once.
//!
//! Invariant: a thread with numbered commits that are not visible yet waits for nothing but them
//! (`settle` comes before every other wait), and for a reader that writes a place into the same
//! bucket of hot keys, which waits for no thread.
//!
//! [`sequencer`]: crate::write::sequencer

use crate::options::Durability;
use crate::state::version::KeyspaceState;
use crate::write::Writer;
use crate::write::backpressure::waits::Wait;
use crate::write::conflicts::Checks;
use crate::write::operations::{Named, Operations};
use crate::write::pipeline::Reached;
use crate::write::sequencer::{Numbered, gone};
use crate::{ErrorKind, Result};
use glintdb_core::sync::{self, Work, charge};
use glintdb_core::{SeqNum, planted};
use glintdb_log::Reservation;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The newest of a thread's commits that are in the memtables but perhaps not visible.
pub(crate) struct Outstanding {
    seqno: SeqNum,
    place: Reservation,
}

sync::thread_local! {
    /// The batch that single puts and deletes of this thread reuse.
    static SCRATCH: RefCell<Operations> = RefCell::new(Operations::default());
}

impl Writer {
    /// Commits one operation.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceState>,
        durability: Durability,
        fill: impl FnOnce(&mut Operations),
    ) -> Result<()> {
        SCRATCH.with(|scratch| {
            let batch = &mut *scratch.borrow_mut();
            // A commit that panicked may have left its operations here.
            batch.clear();
            fill(batch);
            debug_assert!(
                batch
                    .keyspaces
                    .iter()
                    .all(|named| Arc::ptr_eq(&named.state, keyspace))
            );
            let result = self.commit(batch, durability);
            batch.clear();
            result
        })
    }

    /// Commits a batch.
    pub(crate) fn commit(&self, batch: &mut Operations, durability: Durability) -> Result<()> {
        let mut outstanding = None;
        self.commit_one(batch, durability, None, &mut outstanding)?;
        self.acknowledge(&mut outstanding, durability)?;
        self.shared.run_inline();
        Ok(())
    }

    /// Commits a transaction's batch if nothing that it depends on was written since its snapshot.
    pub(crate) fn commit_checked(
        &self,
        batch: &mut Operations,
        durability: Durability,
        checks: &Checks,
    ) -> Result<()> {
        let mut outstanding = None;
        self.commit_one(batch, durability, Some(checks), &mut outstanding)
            .inspect_err(|error| {
                if error.kind() == ErrorKind::Conflict {
                    self.shared
                        .counters
                        .conflicts
                        .fetch_add(1, Ordering::Relaxed);
                }
            })?;
        self.settle(&mut outstanding, durability)?;
        self.shared.run_inline();
        Ok(())
    }

    /// Commits batches in order, and waits once for all of them.
    pub(crate) fn commit_group(
        &self,
        batches: impl Iterator<Item = Operations>,
        durability: Durability,
    ) -> Result<()> {
        let mut outstanding = None;
        for mut batch in batches {
            if let Err(error) = self.commit_one(&mut batch, durability, None, &mut outstanding) {
                self.settle(&mut outstanding, durability)?;
                return Err(error);
            }
        }
        self.acknowledge(&mut outstanding, durability)?;
        self.shared.run_inline();
        Ok(())
    }

    /// Ends a commit. A commit without operations raises all earlier commits to its durability, as
    /// every commit does.
    fn acknowledge(
        &self,
        outstanding: &mut Option<Outstanding>,
        durability: Durability,
    ) -> Result<()> {
        match outstanding {
            Some(_) => self.settle(outstanding, durability),
            None => self.flush_log(durability),
        }
    }

    /// Gives a batch its number, and writes it to the log and the memtables. It is visible, and may
    /// be acknowledged, after `settle`.
    pub(crate) fn commit_one(
        &self,
        batch: &mut Operations,
        durability: Durability,
        checks: Option<&Checks>,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        self.shared.check_open()?;
        batch.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.shared.pipeline.check()?;
        self.check_keyspaces(batch)?;
        if batch.owe_compactions() || self.shared.backpressure.engaged() {
            self.pay_debts(batch, durability, outstanding)?;
        }
        batch.frame.finish();
        let Numbered {
            seqno,
            place,
            large,
            generation,
        } = self.number(batch, durability, checks, outstanding)?;
        let in_flight = self.shared.pipeline.begin(seqno);
        match large {
            None => self.shared.log.copy(&place, &mut batch.frame, seqno),
            Some(large) => self
                .shared
                .log
                .copy_large(large, &place, &mut batch.frame, seqno)
                .inspect_err(|error| self.shared.pipeline.fail(error))?,
        }
        batch.insert_into(&generation, seqno, batch.frame.pointers(&place));
        drop(generation);
        planted!(
            "glintdb: a put leaves the gap that it falls into",
            batch.close_gaps(),
            ()
        );
        let hidden = self.shared.values.note_write(batch, &place, seqno);
        in_flight.done(place.end_position(), durability);
        self.shared
            .pipeline
            .advance_completed(|end| self.shared.log.complete_to(end));
        (self.shared.values).keep_written(hidden, batch, &place, || self.is_worth_caching());
        *outstanding = Some(Outstanding { seqno, place });
        if batch.deletes_anything() {
            self.shared.ask_for_look();
        }
        charge(Work::Put, batch.len() as u64);
        charge(Work::Bytes, batch.size_bytes() as u64);
        Ok(())
    }

    fn check_keyspaces(&self, batch: &Operations) -> Result<()> {
        let version = self.shared.version.load();
        for Named {
            state: keyspace, ..
        } in &batch.keyspaces
        {
            let known = version
                .keyspace(keyspace.id)
                .is_some_and(|known| Arc::ptr_eq(&known.state, keyspace));
            if !known {
                return Err(gone(keyspace));
            }
        }
        Ok(())
    }

    /// Waits until everything outstanding is complete at its durability, and so visible.
    pub(crate) fn settle(
        &self,
        outstanding: &mut Option<Outstanding>,
        durability: Durability,
    ) -> Result<()> {
        let Some(Outstanding { seqno, place }) = outstanding.take() else {
            return Ok(());
        };
        let written = match durability {
            Durability::Buffered => Ok(()),
            Durability::Os if self.shared.log.survives_kill() => Ok(()),
            Durability::Os => self
                .shared
                .pipeline
                .wait_completed(seqno)
                .and_then(|()| self.shared.log.write_out(&place)),
            Durability::Sync => self.shared.pipeline.wait_completed(seqno).and_then(|()| {
                let _timed = self.shared.waits.start(Wait::LogSync);
                self.shared
                    .log
                    .sync_while(place.end(), || self.shared.help_reading())
            }),
        };
        if let Err(error) = written {
            self.shared.pipeline.fail(&error);
            return Err(error);
        }
        self.shared.pipeline.advance_visible(|| self.reached());
        self.shared.schedule_spill();
        planted!(
            "glintdb: a commit is acknowledged before it is visible",
            self.shared.pipeline.wait_visible(seqno),
            Ok(())
        )
    }

    fn reached(&self) -> Reached {
        Reached {
            written: self.shared.log.written_position(),
            durable: self.shared.log.durable_position(),
        }
    }

    /// Whether large values are worth caching when they are written: value GC has work or soon
    /// will, or the device lags.
    fn is_worth_caching(&self) -> bool {
        self.shared.options.experiments.value_gc
            && (self.shared.backpressure.space.is_near() || self.shared.log.spill_urgent())
    }

    /// Raises all commits so far to `durability`.
    pub(crate) fn flush_log(&self, durability: Durability) -> Result<()> {
        self.shared.pipeline.check()?;
        let newest = self.sequencer.newest();
        self.shared.pipeline.wait_completed(newest)?;
        let result = match durability {
            Durability::Buffered => Ok(()),
            Durability::Os if self.shared.log.survives_kill() => Ok(()),
            Durability::Os => self.shared.log.write_out_all(),
            Durability::Sync => self.shared.log.sync_all(),
        };
        if let Err(error) = result {
            self.shared.pipeline.fail(&error);
            return Err(error);
        }
        self.shared.pipeline.advance_visible(|| self.reached());
        Ok(())
    }
}

#[cfg(all(test, loom))]
mod models;
