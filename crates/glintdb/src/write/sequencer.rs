//! The sequencer: a commit gets its sequence number, its place in the log and its generation of
//! memtables together, under one short lock.
//!
//! Thread safety: any number of threads. The lock is held for the numbering alone: there is no I/O
//! under it, and no allocation except at a seal.
//!
//! Invariants:
//! 1. Sequence numbers and places in the log are given out together, so the order of the log is the
//!    order of commits.
//! 2. A commit's entries go to the generation that was active when the commit got its number.

use crate::engine::Engine;
use crate::options::{Durability, Options};
use crate::state::version::{Generation, KeyspaceState, Version};
use crate::write::backpressure::flush_debt::Fill;
use crate::write::backpressure::waits::Wait;
use crate::write::commit::Outstanding;
use crate::write::conflicts::Checks;
use crate::write::operations::Operations;
use crate::write::pipeline::SLOTS;
use crate::{Error, ErrorKind, Result};
use glintdb_core::{SeqNum, planted};
use glintdb_log::{LargeFrame, Lsn, Reservation, Space, WaitReason};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Gives out sequence numbers. Behind the engine's sequencer lock.
pub(crate) struct Sequencer {
    next: SeqNum,
    active: Arc<Generation>,
    /// Bytes of the active generation's commits in the log.
    log_bytes: u64,
    /// Bytes that indexes will have to hold for the active generation.
    index_bytes: u64,
    /// Bytes that indexes will have to hold for all generations.
    unflushed_bytes: u64,
    /// Counted here because the lock is held anyway: shared counters would cost every commit a
    /// contended cache line each.
    counts: Counts,
}

/// Counts of what was committed since open.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) commits: u64,
    pub(crate) operations: u64,
    pub(crate) user_bytes: u64,
}

impl Counts {
    fn add(&mut self, batch: &Operations) {
        self.commits += 1;
        self.operations += batch.len() as u64;
        self.user_bytes += batch.size_bytes() as u64;
    }
}

impl Sequencer {
    /// `log_bytes`: bytes of log that were replayed, all of which `active` may hold.
    pub(crate) fn new(newest: SeqNum, active: Arc<Generation>, log_bytes: u64) -> Self {
        // Replayed entries take less space in tables than in memory.
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

    /// Counts of what was committed since open.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes that flushes of everything in memory would write, approximately.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    /// Notes that generations of `index_bytes` were flushed.
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

    /// The newest number that was given out.
    pub(crate) fn newest(&self) -> SeqNum {
        SeqNum(self.next.0 - 1)
    }
}

/// A commit with its number and its place.
pub(super) struct Numbered<'a> {
    pub(super) seqno: SeqNum,
    pub(super) place: Reservation,
    /// The frame bypasses the ring and goes to a segment of its own.
    pub(super) large: Option<LargeFrame<'a>>,
    pub(super) generation: Arc<Generation>,
}

/// A commit that has no number yet.
struct Attempt<'a> {
    frame_bytes: u64,
    index_bytes: u64,
    space: Space,
    /// For a transaction: its checks hold for all commits up to here.
    checked_to: SeqNum,
    /// Whether the frame bypasses the ring.
    is_large: bool,
    /// The prepared segment of a large frame. It holds a lock of the log that flushes need too, so
    /// it is given up before any wait but the log's own.
    large: Option<LargeFrame<'a>>,
}

/// Why a commit did not get a number.
enum Obstacle {
    /// All slots of the pipeline are taken; this number would be the next.
    Slots(SeqNum),
    /// The reserve does not cover what a flush would write with this commit.
    Reserve,
    /// The active generation is full, and a sealed one waits to be flushed.
    Memtable,
    /// A commit came between that the transaction may conflict with.
    Changed,
    /// The frame turned out to be too large for the ring.
    TooLarge,
    /// The log has no room.
    Log(WaitReason),
}

impl Engine {
    /// Takes the next number, and a place in the log. Waits for room where there is none.
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
            is_large: self.log.is_large(frame_bytes),
            large: None,
        };
        let mut waiting = self.waits.waiting();
        loop {
            if attempt.is_large && attempt.large.is_none() {
                self.settle(outstanding, durability)?;
                if attempt.space == Space::Normal {
                    self.cover(attempt.index_bytes)?;
                }
                attempt.large = Some(self.prepare_large(batch, attempt.space)?);
            }
            let obstacle = match self.try_number(batch, checks, &mut attempt)? {
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
                    self.pipeline.wait_visible(SeqNum(next.0 - SLOTS / 2))?;
                }
                Obstacle::Reserve => self.cover(attempt.index_bytes)?,
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
                        // There may be space for one small segment but none for the ring.
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

    /// Takes the next number and a place in the log if there is room.
    fn try_number<'a>(
        &'a self,
        batch: &Operations,
        checks: Option<&Checks>,
        attempt: &mut Attempt<'a>,
    ) -> Result<std::result::Result<Numbered<'a>, Obstacle>> {
        // Dropped after the lock, since files may go with the last handle of a version.
        let looked_at;
        let _replaced;
        let mut sequencer = self.sequencer.lock();
        self.pipeline.check()?;
        // Under the lock: the newest number that `finish_close` finds is the last one.
        self.check_open()?;
        let mut keyspaces = batch.keyspaces.iter();
        if let Some(dropped) = keyspaces.find(|one| one.dropped.load(Ordering::Acquire)) {
            return Err(gone(dropped));
        }
        let seqno = sequencer.next;
        if seqno.0 - self.pipeline.visible().0 >= SLOTS {
            return Ok(Err(Obstacle::Slots(seqno)));
        }
        if attempt.space == Space::Normal && !self.is_covered(&sequencer, attempt.index_bytes) {
            return Ok(Err(Obstacle::Reserve));
        }
        let seal = self.must_seal(&sequencer, attempt.frame_bytes);
        if seal && !self.may_seal() {
            return Ok(Err(Obstacle::Memtable));
        }
        if let Some(checks) = checks {
            // Until every earlier commit is in its memtable: microseconds, because no commit gets a
            // number meanwhile and none of them waits for this one.
            self.pipeline.wait_completed(sequencer.newest())?;
            looked_at = self.version.load_full();
            if !checks.check_last(&looked_at, attempt.checked_to)? {
                return Ok(Err(Obstacle::Changed));
            }
        }
        let reserved = match &mut attempt.large {
            Some(large) => self.log.reserve_large(large),
            None => self.log.reserve(attempt.frame_bytes, attempt.space),
        };
        let place = match reserved {
            Ok(place) => place,
            Err(WaitReason::Large) => return Ok(Err(Obstacle::TooLarge)),
            Err(reason) => return Ok(Err(Obstacle::Log(reason))),
        };
        if seal {
            sequencer.next = planted!(
                "glintdb: a memtable is sealed after the commit that finds it full",
                seqno,
                seqno.next()
            );
            _replaced = self.seal(&mut sequencer, place.lsn());
        }
        sequencer.next = seqno.next();
        sequencer.log_bytes += attempt.frame_bytes;
        sequencer.index_bytes += attempt.index_bytes;
        sequencer.unflushed_bytes += attempt.index_bytes;
        sequencer.counts.add(batch);
        Ok(Ok(Numbered {
            seqno,
            place,
            large: attempt.large.take(),
            generation: Arc::clone(&sequencer.active),
        }))
    }

    /// Whether the active generation must be sealed before a commit of `frame_bytes`.
    fn must_seal(&self, sequencer: &Sequencer, frame_bytes: u64) -> bool {
        let log_bytes = sequencer.log_bytes;
        sequencer.active.filled_bytes() >= self.options.memtable_seal_bytes()
            || (log_bytes + frame_bytes > self.options.log_seal_bytes() && log_bytes > 0)
            // Shows what of the log is garbage. No commit waits for this seal.
            || (log_bytes > self.gc.seal_bytes() && self.may_seal())
    }

    fn check_transaction(&self, checks: &Checks) -> Result<SeqNum> {
        let point = self.read_point();
        checks.check_all(&point.version)?;
        Ok(point.at)
    }

    fn prepare_large(&self, batch: &Operations, space: Space) -> Result<LargeFrame<'_>> {
        let prepare = || self.log.prepare_large(&batch.frame, space);
        match prepare() {
            Err(error) if error.kind() == ErrorKind::NoSpace && space == Space::Reserve => {
                self.free_log_space()?;
                self.with_reserve(prepare)
            }
            prepared => prepared,
        }
    }

    /// Seals the active generation. The next commit, at `start`, opens a new one. Returns the
    /// replaced version, to be dropped outside of locks.
    fn seal(&self, sequencer: &mut Sequencer, start: Lsn) -> Arc<Version> {
        let replaced = self.rotate_locked(sequencer, start, Version::clone);
        self.queue_flush();
        replaced
    }

    /// Makes a new generation active, in a version that `change` makes. Returns the replaced
    /// version.
    #[must_use = "drop it outside of locks"]
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

    /// Installs a changed version with a new active generation, which has a memtable for each
    /// keyspace of the version.
    pub(crate) fn rotate_with(&self, change: impl FnOnce(Version) -> Version) {
        // Dropped after the lock.
        let _replaced;
        let mut sequencer = self.sequencer.lock();
        let start = self.log.next_lsn();
        _replaced = self.rotate_locked(&mut sequencer, start, |version| change(version.clone()));
    }
}

/// The error of an operation on a keyspace that is not in this database.
pub(super) fn gone(keyspace: &KeyspaceState) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "keyspace {:?} was dropped, or belongs to another database",
            keyspace.name
        ),
    )
}
