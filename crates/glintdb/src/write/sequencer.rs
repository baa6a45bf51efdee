//! The sequencer: a commit gets its sequence number, its place in the log and its generation of
//! memtables together, under one short lock.
//!
//! Thread safety: any number of threads. Under the lock there is no I/O, and no allocation except
//! at a seal. Locks that are taken under it: the versions', the pipeline's and the log's.
//!
//! Invariants:
//! 1. Sequence numbers and places in the log are given out together, so the order of the log is the
//!    order of commits.
//! 2. A commit's entries go to the generation that was active when the commit got its number.
//! 3. While the lock is held, no commit gets a number.

use crate::options::Options;
use crate::shared::Shared;
use crate::space::reserve::Reserve;
use crate::state::version::{Generation, KeyspaceState, Version};
use crate::write::backpressure::flush_debt::Fill;
use crate::write::conflicts::Checks;
use crate::write::operations::Operations;
use crate::write::pipeline::SLOTS;
use crate::write::shares::{Room, Shares, unkept};
use crate::{Error, ErrorKind, Result};
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{Padded, SeqNum, planted};
use glintdb_log::{LargeFrame, Lsn, Reservation, Space, WaitReason};
use std::sync::Arc;

/// Number of commits and operations since open, and their bytes of keys and values.
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

/// What the sequencer's lock protects.
struct Numbering {
    next: SeqNum,
    /// Position of the log behind the newest commit.
    log_position: u64,
    active: Arc<Generation>,
    /// Bytes of the active generation's commits in the log.
    log_bytes: u64,
    /// Bytes that indexes will have to hold for the active generation.
    index_bytes: u64,
    /// Bytes that indexes will have to hold for all generations.
    unflushed_bytes: u64,
    /// What each keyspace has taken of the active generation.
    shares: Shares,
    /// Counted here because the lock is held anyway: shared counters would cost every commit a
    /// contended cache line each.
    counts: Counts,
}

impl Numbering {
    /// Creates the numbering of a database that goes on after `newest`. `log_bytes` is the bytes of
    /// log that were replayed, all of which `active` may hold.
    fn new(newest: SeqNum, active: Arc<Generation>, log_bytes: u64) -> Self {
        let is_empty = active.first_seqno == newest.next();
        // Replayed entries take less space in tables than in memory.
        let replayed = match is_empty {
            true => 0,
            false => active.bytes() as u64,
        };
        Numbering {
            next: newest.next(),
            log_position: 0,
            active,
            log_bytes: if is_empty { 0 } else { log_bytes },
            index_bytes: replayed,
            unflushed_bytes: replayed,
            shares: Shares::default(),
            counts: Counts::default(),
        }
    }

    /// The parts of the active generation's room, in memory and in the log that may be replayed,
    /// that are taken.
    fn parts(&self, options: &Options) -> (f64, f64) {
        let memory = self.active.filled_bytes() as f64 / options.memtable_seal_bytes() as f64;
        let log = self.log_bytes as f64 / unkept(options.log_seal_bytes()) as f64;
        (memory, log)
    }

    /// How full the active generation is.
    fn fill(&self, options: &Options) -> Fill {
        let (memory, log) = self.parts(options);
        Fill {
            part: memory.max(log),
            bytes: self.index_bytes,
        }
    }

    /// Whether a commit is within its share of the room that the generation has least of.
    fn is_within_share(&self, options: &Options, batch: &Operations) -> bool {
        let (memory, log) = self.parts(options);
        let room = match memory >= log {
            true => Room::Memory,
            false => Room::Log,
        };
        self.shares.is_within_share(batch, room)
    }

    /// Whether a commit of `frame_bytes` needs room that is kept for commits within their share.
    fn only_kept_is_left(&self, options: &Options, frame_bytes: u64) -> bool {
        let log_bytes = unkept(options.log_seal_bytes());
        self.active.filled_bytes() >= options.memtable_seal_bytes()
            || (self.log_bytes + frame_bytes > log_bytes && self.log_bytes > 0)
    }

    /// Whether there is room for a commit of `frame_bytes` that is within its share.
    fn kept_is_left(&self, options: &Options, frame_bytes: u64) -> bool {
        self.active.filled_bytes() < options.memtable_bytes_max()
            && self.log_bytes + frame_bytes <= options.log_seal_bytes()
    }

    /// Whether the reserve holds what a flush of everything in memory and of `index_bytes` more
    /// would write.
    fn is_covered(&self, reserve: &Reserve, index_bytes: u64) -> bool {
        self.unflushed_bytes + index_bytes <= reserve.covered_bytes()
    }

    /// Whether no commit is in the active generation.
    fn nothing_is_active(&self) -> bool {
        self.active.first_seqno == self.next
    }

    /// The newest number that was given out.
    fn newest(&self) -> SeqNum {
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
pub(super) struct Attempt<'a> {
    pub(super) frame_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) space: Space,
    /// For a transaction: its checks hold for all commits up to here.
    pub(super) checked_to: SeqNum,
    /// Whether the frame bypasses the ring.
    pub(super) is_large: bool,
    /// The prepared segment of a large frame. It holds a lock of the log that flushes need too, so
    /// it is given up before any wait but the log's own.
    pub(super) large: Option<LargeFrame<'a>>,
}

/// Why a commit did not get a number.
pub(super) enum Obstacle {
    /// All slots of the pipeline are taken. This number would be the next.
    Slots(SeqNum),
    /// The reserve does not cover what a flush would write with this commit.
    Reserve,
    /// The active generation is full, and a sealed one waits to be flushed.
    Memtable,
    /// A commit came between, which the transaction may conflict with.
    Changed,
    /// The frame turned out to be too large for the ring.
    TooLarge,
    /// The log has no room.
    Log(WaitReason),
}

/// Gives out sequence numbers.
pub(crate) struct Sequencer {
    shared: Arc<Shared>,
    lock: Padded<Mutex<Numbering>>,
    /// Bytes of log at which the active memtables are sealed, so that a flush shows which part of
    /// the log is garbage. No commit waits for such a seal.
    garbage_seal_bytes: AtomicU64,
    /// The same, so that a flush frees what deletions leave.
    deletions_seal_bytes: AtomicU64,
    /// Bytes of the ring that are kept for commits within their share.
    kept_ring_bytes: u64,
}

impl Sequencer {
    /// Creates a sequencer whose first number follows `newest`.
    pub(crate) fn new(shared: &Arc<Shared>, newest: SeqNum) -> Self {
        let active = Arc::clone(&shared.version.load().active);
        let ring_bytes = shared.log.stats().ring_bytes;
        Sequencer {
            lock: Padded(Mutex::new(Numbering::new(
                newest,
                active,
                shared.replayed_bytes,
            ))),
            shared: Arc::clone(shared),
            garbage_seal_bytes: AtomicU64::new(u64::MAX),
            deletions_seal_bytes: AtomicU64::new(u64::MAX),
            kept_ring_bytes: ring_bytes - unkept(ring_bytes),
        }
    }

    /// Returns the counts since open.
    pub(crate) fn counts(&self) -> Counts {
        self.lock.lock().counts
    }

    /// The newest number that was given out.
    pub(crate) fn newest(&self) -> SeqNum {
        self.lock.lock().newest()
    }

    /// The newest number that was given out. `None` if the lock is taken, because its holder may
    /// wait for a commit.
    pub(crate) fn try_newest(&self) -> Option<SeqNum> {
        Some(self.lock.try_lock()?.newest())
    }

    /// Calls `work` with the newest number while no commit gets another.
    pub(crate) fn while_newest<T>(&self, work: impl FnOnce(SeqNum) -> T) -> T {
        let numbering = self.lock.lock();
        work(numbering.newest())
    }

    /// Bytes of the active generation's commits in the log.
    pub(crate) fn active_log_bytes(&self) -> u64 {
        self.lock.lock().log_bytes
    }

    /// Bytes that flushes of everything in memory would write, approximately.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.lock.lock().unflushed_bytes
    }

    /// Notes that generations of `index_bytes` were flushed.
    pub(crate) fn flushed(&self, index_bytes: u64) {
        self.lock.lock().unflushed_bytes -= index_bytes;
    }

    /// Whether the reserve holds what a flush of everything in memory and of `index_bytes` more
    /// would write.
    pub(crate) fn is_covered(&self, index_bytes: u64) -> bool {
        (self.lock.lock()).is_covered(&self.shared.reserve, index_bytes)
    }

    /// Seals the active memtables, from here on, when they have `bytes` of log.
    pub(crate) fn set_garbage_seal_bytes(&self, bytes: u64) {
        self.garbage_seal_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Seals the active memtables when they have `bytes` of log, because many of the commits are
    /// deletions.
    pub(crate) fn set_deletions_seal_bytes(&self, bytes: u64) {
        self.deletions_seal_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets the rate of writers by how full the active generation is now.
    pub(crate) fn update_flush_debt(&self) {
        let fill = self.lock.lock().fill(&self.shared.options);
        self.shared.backpressure.flush.update(fill);
    }

    /// Whether a commit is within its share of the active generation.
    pub(crate) fn is_within_share(&self, batch: &Operations) -> bool {
        (self.lock.lock()).is_within_share(&self.shared.options, batch)
    }

    /// Takes the next number and a place in the log if there is room.
    pub(super) fn try_number<'a>(
        &'a self,
        batch: &Operations,
        checks: Option<&Checks>,
        attempt: &mut Attempt<'a>,
    ) -> Result<std::result::Result<Numbered<'a>, Obstacle>> {
        // Dropped after the lock, since files may go with the last handle of a version.
        let looked_at;
        let _replaced;
        let mut numbering = self.lock.lock();
        self.shared.pipeline.check()?;
        // Checked under the lock, so that the newest number that `finish_close` finds is the last
        // one.
        self.shared.check_open()?;
        let mut keyspaces = batch.keyspaces.iter().map(|named| &named.state);
        if let Some(dropped) = keyspaces.find(|one| one.dropped.load(Ordering::Acquire)) {
            return Err(gone(dropped));
        }
        let seqno = numbering.next;
        if seqno.0 - self.shared.pipeline.visible().0 >= SLOTS {
            return Ok(Err(Obstacle::Slots(seqno)));
        }
        if attempt.space == Space::Normal
            && !numbering.is_covered(&self.shared.reserve, attempt.index_bytes)
        {
            return Ok(Err(Obstacle::Reserve));
        }
        let options = &self.shared.options;
        let mut seal = self.must_seal(&numbering, attempt.frame_bytes);
        if (seal || numbering.only_kept_is_left(options, attempt.frame_bytes))
            && !self.shared.may_seal()
        {
            if !numbering.kept_is_left(options, attempt.frame_bytes)
                || !numbering.is_within_share(options, batch)
            {
                return Ok(Err(Obstacle::Memtable));
            }
            seal = false;
        }
        if let Some(checks) = checks {
            // Waits until every earlier commit is in its memtable: microseconds, because no commit
            // gets a number meanwhile and none of them waits for this one.
            self.shared.pipeline.wait_completed(numbering.newest())?;
            looked_at = self.shared.version.load_full();
            if !checks.check_last(&looked_at, attempt.checked_to)? {
                return Ok(Err(Obstacle::Changed));
            }
        }
        let place = match self.reserve(&numbering, batch, attempt) {
            Ok(place) => place,
            Err(WaitReason::Large) => return Ok(Err(Obstacle::TooLarge)),
            Err(reason) => return Ok(Err(Obstacle::Log(reason))),
        };
        if seal {
            numbering.next = planted!(
                "glintdb: a memtable is sealed after the commit that finds it full",
                seqno,
                seqno.next()
            );
            _replaced = self.seal(&mut numbering, place.lsn());
        }
        assert!(
            place.end_position() > numbering.log_position,
            "the order of the log is the order of commits: commit {seqno} ends at {}, and the one \
             before it at {}",
            place.end_position(),
            numbering.log_position
        );
        assert!(
            numbering.active.first_seqno <= seqno,
            "commit {seqno} goes to the generation that is active, which begins with {}",
            numbering.active.first_seqno
        );
        numbering.next = seqno.next();
        numbering.log_position = place.end_position();
        numbering.log_bytes += attempt.frame_bytes;
        numbering.index_bytes += attempt.index_bytes;
        numbering.unflushed_bytes += attempt.index_bytes;
        numbering.shares.add(batch);
        numbering.counts.add(batch);
        Ok(Ok(Numbered {
            seqno,
            place,
            large: attempt.large.take(),
            generation: Arc::clone(&numbering.active),
        }))
    }

    /// Takes a place in the log.
    fn reserve(
        &self,
        numbering: &Numbering,
        batch: &Operations,
        attempt: &mut Attempt<'_>,
    ) -> std::result::Result<Reservation, WaitReason> {
        let log = &self.shared.log;
        if let Some(large) = &mut attempt.large {
            return log.reserve_large(large);
        }
        let (bytes, space) = (attempt.frame_bytes, attempt.space);
        match log.reserve_leaving(bytes, space, self.kept_ring_bytes) {
            Err(WaitReason::Ring) if numbering.shares.is_within_share(batch, Room::Log) => {
                log.reserve(bytes, space)
            }
            reserved => reserved,
        }
    }

    /// Whether the active generation must be sealed before a commit of `frame_bytes`.
    fn must_seal(&self, numbering: &Numbering, frame_bytes: u64) -> bool {
        let log_bytes = numbering.log_bytes;
        let early = [&self.garbage_seal_bytes, &self.deletions_seal_bytes];
        numbering.active.filled_bytes() >= self.shared.options.memtable_seal_bytes()
            || (log_bytes + frame_bytes > self.shared.options.log_seal_bytes() && log_bytes > 0)
            // No commit waits for an early seal.
            || (early.iter().any(|bytes| log_bytes > bytes.load(Ordering::Relaxed))
                && self.shared.may_seal())
    }

    /// Seals the active generation. The next commit, at `start`, opens a new one. Returns the
    /// replaced version, to be dropped outside of locks.
    fn seal(&self, numbering: &mut Numbering, start: Lsn) -> Arc<Version> {
        let replaced = self.rotate_locked(numbering, start, Version::clone);
        self.shared.queue_flush();
        replaced
    }

    /// Seals the active generation if a commit is in it.
    pub(crate) fn seal_active(&self) {
        // Dropped after the lock.
        let _replaced;
        let mut numbering = self.lock.lock();
        if !numbering.nothing_is_active() {
            let start = self.shared.log.next_lsn();
            _replaced = self.rotate_locked(&mut numbering, start, Version::clone);
        }
    }

    /// If no commit is in the active generation, begins another one at the log's present end.
    /// Returns whether it did.
    pub(crate) fn begin_empty_generation(&self) -> bool {
        // Dropped after the lock.
        let _replaced;
        let mut numbering = self.lock.lock();
        if !numbering.nothing_is_active() {
            return false;
        }
        let start = self.shared.log.next_lsn();
        _replaced = self.rotate_locked(&mut numbering, start, Version::clone);
        true
    }

    /// Makes a new generation active, in a version that `change` makes. Returns the replaced
    /// version.
    #[must_use = "drop it outside of locks"]
    fn rotate_locked(
        &self,
        numbering: &mut Numbering,
        start: Lsn,
        change: impl FnOnce(&Version) -> Version,
    ) -> Arc<Version> {
        self.shared.install(|version| {
            let mut next = change(version);
            let ids = next
                .live_keyspaces()
                .map(|keyspace| keyspace.state.id)
                .collect::<Vec<_>>();
            let ids = ids.into_iter();
            let mut active = self.shared.new_generation(numbering.next, start, ids);
            active.log_position = numbering.log_position;
            let active = Arc::new(active);
            let old = std::mem::replace(&mut next.active, Arc::clone(&active));
            old.set_index_bytes(numbering.index_bytes);
            if old.first_seqno != numbering.next {
                next.sealed.insert(0, old);
            }
            numbering.active = active;
            numbering.log_bytes = 0;
            numbering.index_bytes = 0;
            numbering.shares.clear();
            next
        })
    }

    /// Installs a changed version with a new active generation, which has a memtable for each
    /// keyspace of the version.
    pub(crate) fn rotate_with(&self, change: impl FnOnce(Version) -> Version) {
        // Dropped after the lock.
        let _replaced;
        let mut numbering = self.lock.lock();
        let start = self.shared.log.next_lsn();
        _replaced = self.rotate_locked(&mut numbering, start, |version| change(version.clone()));
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
