//! The commit path: a place in the order and in the log under one short lock, everything else in parallel.
//!
//! Thread safety: any number of threads commit at once. The sequencer's lock is held for the numbering alone: no I/O, no allocation but at a seal.
//!
//! Invariants:
//! 1. Sequence numbers and log places are given out together, so log order is commit order.
//! 2. A commit's entries go to the generation that was active when it was numbered.
//! 3. A thread that holds numbered commits which are not visible yet never waits for anything but them (`settle` comes before every other wait), and for a reader that writes down a place of the same bucket of hot keys,
//!    which waits for nobody.

use crate::batch::Batch;
use crate::engine::Engine;
use crate::options::{Durability, Options};
use crate::state::version::{Generation, KeyspaceState, Version};
use crate::transaction::Checks;
use crate::write::backpressure::flush_debt::Fill;
use crate::write::backpressure::waits::Wait;
use crate::write::pipeline::{Reached, SLOTS};
use crate::{Error, ErrorKind, Result};
use glintdb_core::{SeqNum, sync};
use glintdb_log::{LargeFrame, Lsn, Reservation, Space, WaitReason};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Gives out sequence numbers.
pub(crate) struct Sequencer {
    next: SeqNum,
    active: Arc<Generation>,
    /// Log bytes of the active generation.
    log_bytes: u64,
    /// Bytes that indexes will have to hold for the active generation, and for all of them.
    index_bytes: u64,
    unflushed_bytes: u64,
    /// Counted here, where the lock is held anyway: shared counters would cost every commit a contended cache line each.
    counts: Counts,
}

/// What was committed since open.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) commits: u64,
    pub(crate) operations: u64,
    pub(crate) user_bytes: u64,
}

impl Counts {
    fn add(&mut self, batch: &Batch) {
        self.commits += 1;
        self.operations += batch.len() as u64;
        self.user_bytes += batch.size_bytes() as u64;
    }
}

impl Sequencer {
    /// `log_bytes`: of the log that was replayed, all of which `active` may hold.
    pub(crate) fn new(newest: SeqNum, active: Arc<Generation>, log_bytes: u64) -> Self {
        // What was replayed takes less in tables than in memory.
        let replayed = match active.first_seqno == newest.next() {
            true => 0,
            false => active.bytes() as u64,
        };
        Sequencer {
            next: newest.next(),
            active,
            log_bytes: if replayed > 0 { log_bytes } else { 0 },
            index_bytes: replayed,
            unflushed_bytes: replayed,
            counts: Counts::default(),
        }
    }

    /// What was committed since open.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes that flushes of everything in memory would write, about.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    /// Generations of so many bytes are in the indexes now.
    pub(crate) fn flushed(&mut self, index_bytes: u64) {
        self.unflushed_bytes -= index_bytes;
    }

    /// How full the active generation is.
    pub(crate) fn fill(&self, options: &Options) -> Fill {
        let memory = self.active.filled_bytes() as f64 / options.memtable_seal_bytes() as f64;
        let log = self.log_bytes as f64 / options.log_seal_bytes() as f64;
        Fill {
            part: memory.max(log),
            bytes: self.index_bytes,
        }
    }

    /// Whether no commit is in the active generation.
    pub(crate) fn nothing_is_active(&self) -> bool {
        self.active.first_seqno == self.next
    }

    /// The newest number given out.
    pub(crate) fn newest(&self) -> SeqNum {
        SeqNum(self.next.0 - 1)
    }
}

/// A numbered commit with its place.
struct Numbered<'a> {
    seqno: SeqNum,
    place: Reservation,
    /// The frame goes round the ring, into a segment of its own.
    large: Option<LargeFrame<'a>>,
    generation: Arc<Generation>,
}

/// The newest of a thread's commits that are done but perhaps not visible.
pub(crate) struct Outstanding {
    seqno: SeqNum,
    place: Reservation,
}

sync::thread_local! {
    /// Reused by single puts and deletes.
    static SCRATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

impl Engine {
    /// Commits one operation.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceState>,
        durability: Durability,
        fill: impl FnOnce(&mut Batch),
    ) -> Result<()> {
        SCRATCH.with(|scratch| {
            let batch = &mut *scratch.borrow_mut();
            // Also before: a commit that panicked left its operations here.
            batch.clear();
            fill(batch);
            debug_assert!(
                batch
                    .keyspaces
                    .iter()
                    .all(|known| Arc::ptr_eq(known, keyspace))
            );
            let result = self.commit(batch, durability);
            batch.clear();
            result
        })
    }

    /// Commits a batch.
    pub(crate) fn commit(&self, batch: &mut Batch, durability: Durability) -> Result<()> {
        let mut outstanding = None;
        self.commit_one(batch, durability, None, &mut outstanding)?;
        self.acknowledge(&mut outstanding, durability)?;
        self.run_inline();
        Ok(())
    }

    /// Commits a transaction's batch if nothing it depends on was written since its snapshot.
    pub(crate) fn commit_checked(
        &self,
        batch: &mut Batch,
        durability: Durability,
        checks: &Checks,
    ) -> Result<()> {
        let mut outstanding = None;
        self.commit_one(batch, durability, Some(checks), &mut outstanding)
            .inspect_err(|error| {
                if error.kind() == ErrorKind::Conflict {
                    self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
                }
            })?;
        self.settle(&mut outstanding, durability)?;
        self.run_inline();
        Ok(())
    }

    /// Commits batches in order, waiting once.
    pub(crate) fn commit_group(&self, batches: Vec<Batch>, durability: Durability) -> Result<()> {
        let mut outstanding = None;
        for mut batch in batches {
            if let Err(error) = self.commit_one(&mut batch, durability, None, &mut outstanding) {
                self.settle(&mut outstanding, durability)?;
                return Err(error);
            }
        }
        self.acknowledge(&mut outstanding, durability)?;
        self.run_inline();
        Ok(())
    }

    /// The end of a commit. Where nothing was written it promises what every commit promises of those before it: they are as durable as was asked.
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

    /// Numbers a batch and puts it into log and memtables. It is visible, and may be acknowledged, after `settle`.
    pub(crate) fn commit_one(
        &self,
        batch: &mut Batch,
        durability: Durability,
        checks: Option<&Checks>,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        self.check_open()?;
        batch.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.pipeline.check()?;
        self.check_keyspaces(batch)?;
        if self.backpressure.engaged() {
            self.pay_debts(batch, durability, outstanding)?;
        }
        batch.frame.finish();
        let Numbered {
            seqno,
            place,
            large,
            generation,
        } = self.number(batch, durability, checks, outstanding)?;
        let in_flight = self.pipeline.begin(seqno);
        match large {
            None => self.log.copy(&place, &mut batch.frame, seqno),
            Some(large) => self
                .log
                .copy_large(large, &place, &mut batch.frame, seqno)
                .inspect_err(|error| self.pipeline.fail(error))?,
        }
        batch.insert_into(&generation, seqno, batch.frame.pointers(&place));
        drop(generation);
        let hidden = match self.hot.any() {
            true => self.tell_hot(batch, &place, seqno),
            false => Vec::new(),
        };
        in_flight.done(place.end_position(), durability);
        self.pipeline
            .advance_completed(|end| self.log.complete_to(end));
        if !hidden.is_empty() {
            self.keep_hot(hidden);
        }
        self.keep_written(batch, &place);
        *outstanding = Some(Outstanding { seqno, place });
        Ok(())
    }

    fn check_keyspaces(&self, batch: &Batch) -> Result<()> {
        let version = self.version.load();
        for keyspace in &batch.keyspaces {
            let known = version
                .keyspace(keyspace.id)
                .is_some_and(|known| Arc::ptr_eq(&known.state, keyspace));
            if !known {
                return Err(gone(keyspace));
            }
        }
        Ok(())
    }

    /// Waits until everything outstanding is complete at its level, and so visible.
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
            Durability::Os if self.log.survives_kill() => Ok(()),
            Durability::Os => self
                .pipeline
                .wait_completed(seqno)
                .and_then(|()| self.log.write_out(&place)),
            Durability::Sync => self.pipeline.wait_completed(seqno).and_then(|()| {
                let _timed = self.waits.start(Wait::LogSync);
                self.log.sync_while(place.end(), || self.help_reading())
            }),
        };
        if let Err(error) = written {
            self.pipeline.fail(&error);
            return Err(error);
        }
        self.pipeline.advance_visible(|| self.reached());
        self.schedule_spill();
        if glintdb_core::seeded::bug("glintdb: a commit is acknowledged before it is visible") {
            return Ok(());
        }
        self.pipeline.wait_visible(seqno)
    }

    fn reached(&self) -> Reached {
        Reached {
            written: self.log.written_position(),
            durable: self.log.durable_position(),
        }
    }

    /// Takes the next number and a place in the log.
    fn number(
        &self,
        batch: &Batch,
        durability: Durability,
        checks: Option<&Checks>,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<Numbered<'_>> {
        let frame_bytes = batch.frame.frame_bytes();
        let space = if batch.only_deletes() {
            Space::Reserve
        } else {
            Space::Normal
        };
        let index_bytes = batch.index_bytes();
        // For a transaction: everything up to here was checked against what it read and writes.
        let mut checked_to = SeqNum::ZERO;
        if let Some(checks) = checks {
            checked_to = self.check_transaction(checks)?;
        }
        // Holds a lock of the log that flushes need too, so it is given up before any wait but the log's own.
        let mut large = None;
        let mut goes_round = self.log.is_large(frame_bytes);
        let mut waiting = self.waits.waiting();
        // Versions that are looked at or replaced under the sequencer's lock go after it: with the last handle of one go files.
        let mut looked_at;
        let mut _replaced;
        loop {
            looked_at = None;
            if goes_round && large.is_none() {
                self.settle(outstanding, durability)?;
                if space == Space::Normal {
                    self.cover(index_bytes)?;
                }
                large = Some(self.prepare_large(batch, space)?);
            }
            let mut sequencer = self.sequencer.lock();
            self.pipeline.check()?;
            // Under the lock: what `finish_close` finds to be the newest number is the last one.
            self.check_open()?;
            if let Some(keyspace) = batch
                .keyspaces
                .iter()
                .find(|keyspace| keyspace.dropped.load(Ordering::Acquire))
            {
                return Err(gone(keyspace));
            }
            let seqno = sequencer.next;
            if seqno.0 - self.pipeline.visible().0 >= SLOTS {
                drop(sequencer);
                drop(large.take());
                self.settle(outstanding, durability)?;
                self.pipeline.wait_visible(SeqNum(seqno.0 - SLOTS / 2))?;
                continue;
            }
            if space == Space::Normal && !self.is_covered(&sequencer, index_bytes) {
                drop(sequencer);
                drop(large.take());
                self.settle(outstanding, durability)?;
                self.cover(index_bytes)?;
                continue;
            }
            let seal = sequencer.active.filled_bytes() >= self.options.memtable_seal_bytes()
                || (sequencer.log_bytes + frame_bytes > self.options.log_seal_bytes()
                    && sequencer.log_bytes > 0)
                // Nobody waits for this one: it is to show what of the log is garbage.
                || (sequencer.log_bytes > self.gc.seal_bytes() && self.may_seal());
            if seal && !self.may_seal() {
                drop(sequencer);
                drop(large.take());
                self.settle(outstanding, durability)?;
                waiting.on(Wait::MemtableFull);
                self.wait_for_memtable()?;
                continue;
            }
            if let Some(checks) = checks {
                // Every earlier commit in its memtable: a matter of microseconds, for nobody can be numbered meanwhile and none of them waits for us.
                self.pipeline.wait_completed(sequencer.newest())?;
                let version = looked_at.insert(self.version.load_full());
                if !checks.check_last(version, checked_to)? {
                    drop(sequencer);
                    drop(large.take());
                    checked_to = self.check_transaction(checks)?;
                    continue;
                }
            }
            let reserved = match &mut large {
                Some(large) => self.log.reserve_large(large),
                None => self.log.reserve(frame_bytes, space),
            };
            let place = match reserved {
                Ok(place) => place,
                Err(WaitReason::Large) => {
                    goes_round = true;
                    continue;
                }
                Err(reason) => {
                    drop(sequencer);
                    self.settle(outstanding, durability)?;
                    waiting.on(Wait::LogSpace);
                    match self.wait_for_log(reason, space) {
                        // There may be space for one small segment where there is none for the
                        // ring.
                        Err(error)
                            if error.kind() == ErrorKind::NoSpace
                                && reason == WaitReason::Ring
                                && !goes_round =>
                        {
                            goes_round = true;
                        }
                        waited => waited?,
                    }
                    continue;
                }
            };
            let late = glintdb_core::seeded::bug(
                "glintdb: a memtable is sealed after the commit that finds it full",
            );
            if seal && !late {
                _replaced = self.seal(&mut sequencer, place.lsn());
            }
            sequencer.next = seqno.next();
            if seal && late {
                _replaced = self.seal(&mut sequencer, place.lsn());
            }
            sequencer.log_bytes += frame_bytes;
            sequencer.index_bytes += index_bytes;
            sequencer.unflushed_bytes += index_bytes;
            sequencer.counts.add(batch);
            return Ok(Numbered {
                seqno,
                place,
                large,
                generation: Arc::clone(&sequencer.active),
            });
        }
    }

    fn check_transaction(&self, checks: &Checks) -> Result<SeqNum> {
        let point = self.read_point();
        checks.check_all(self, &point.version)?;
        Ok(point.at)
    }

    fn prepare_large(&self, batch: &Batch, space: Space) -> Result<LargeFrame<'_>> {
        let prepare = || self.log.prepare_large(&batch.frame, space);
        match prepare() {
            Err(error) if error.kind() == ErrorKind::NoSpace && space == Space::Reserve => {
                self.free_log_space()?;
                self.with_reserve(prepare)
            }
            prepared => prepared,
        }
    }

    /// Seals the active generation; the next commit, at `start`, opens a new one. Answers the version that was, to be let go of outside of locks.
    fn seal(&self, sequencer: &mut Sequencer, start: Lsn) -> Arc<Version> {
        let replaced = self.rotate_locked(sequencer, start, Version::clone);
        self.queue_flush();
        replaced
    }

    #[must_use = "it is to be let go of outside of locks"]
    pub(crate) fn rotate_locked(
        &self,
        sequencer: &mut Sequencer,
        start: Lsn,
        change: impl FnOnce(&Version) -> Version,
    ) -> Arc<Version> {
        self.install(|version| {
            let mut next = change(version);
            let ids = next
                .live_keyspaces()
                .map(|keyspace| keyspace.state.id)
                .collect::<Vec<_>>();
            let active = self.new_generation(sequencer.next, start, ids.into_iter());
            let old = std::mem::replace(&mut next.active, Arc::clone(&active));
            old.set_index_bytes(sequencer.index_bytes);
            if old.first_seqno != sequencer.next {
                next.sealed.insert(0, old);
            }
            sequencer.active = active;
            sequencer.log_bytes = 0;
            sequencer.index_bytes = 0;
            next
        })
    }

    /// Installs a changed version with a new active generation that has a memtable for each of its keyspaces.
    pub(crate) fn rotate_with(&self, change: impl FnOnce(Version) -> Version) {
        // Goes after the lock.
        let _replaced;
        let mut sequencer = self.sequencer.lock();
        let start = self.log.next_lsn();
        _replaced = self.rotate_locked(&mut sequencer, start, |version| change(version.clone()));
    }

    /// Raises everything committed so far to `durability`.
    pub(crate) fn flush_log(&self, durability: Durability) -> Result<()> {
        self.pipeline.check()?;
        let newest = self.sequencer.lock().newest();
        self.pipeline.wait_completed(newest)?;
        let result = match durability {
            Durability::Buffered => Ok(()),
            Durability::Os if self.log.survives_kill() => Ok(()),
            Durability::Os => self.log.write_out_all(),
            Durability::Sync => self.log.sync_all(),
        };
        if let Err(error) = result {
            self.pipeline.fail(&error);
            return Err(error);
        }
        self.pipeline.advance_visible(|| self.reached());
        Ok(())
    }

    /// Writes all memtables to their indexes.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_all()?;
        self.background_recovered();
        self.schedule();
        self.run_inline();
        Ok(())
    }

    pub(crate) fn flush_all(&self) -> Result<()> {
        {
            // Goes after the lock.
            let _replaced;
            let mut sequencer = self.sequencer.lock();
            if !sequencer.nothing_is_active() {
                let start = self.log.next_lsn();
                _replaced = self.rotate_locked(&mut sequencer, start, Version::clone);
            }
        }
        while self.flush_oldest()? {
            self.check_open()?;
        }
        Ok(())
    }
}

fn gone(keyspace: &KeyspaceState) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "keyspace {:?} was dropped, or belongs to another database",
            keyspace.name
        ),
    )
}

#[cfg(all(test, loom))]
mod models;
