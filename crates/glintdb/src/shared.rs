//! The state that every owner works on: files, memory, the log, the manifest, versions, and whether
//! the database is open.
//!
//! It knows no owner. Owners are above it, each with private fields and locks: [`Sequencer`],
//! [`Reader`], [`DiskSpace`], [`Writer`], [`Background`], [`ValueGc`] and [`Durable`]. An owner
//! calls those below it. Upward calls go through [`Scheduler`] only: a writer asks for jobs that it
//! cannot name.
//!
//! Thread safety: any thread.
//!
//! [`Sequencer`]: crate::write::sequencer::Sequencer
//! [`Reader`]: crate::read::Reader
//! [`DiskSpace`]: crate::space::DiskSpace
//! [`Writer`]: crate::write::Writer
//! [`Background`]: crate::background::Background
//! [`ValueGc`]: crate::space::value_gc::ValueGc
//! [`Durable`]: crate::durable::Durable

use crate::durable::manifest::Manifest;
use crate::index_kinds::IndexFactory;
use crate::options::Options;
use crate::read::pins::Pins;
use crate::read::values::directory::ValueDirectory;
use crate::space::reserve::Reserve;
use crate::state::background_error::BackgroundError;
use crate::state::looks::Looks;
use crate::state::transactions::Transactions;
use crate::state::version::{Generation, KeyspaceState, ReadPoint, Version};
use crate::state::versions::Versions;
use crate::write::backpressure::Backpressure;
use crate::write::backpressure::waits::Waits;
use crate::write::pipeline::Pipeline;
use crate::{Error, ErrorKind, Result};
use glintdb_cache::Cache;
use glintdb_core::clock::Clock;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use glintdb_core::{DbId, FileNumbers, KeyspaceId, Padded, SegmentId, SeqNum};
use glintdb_flash::{ProcessToken, ReadQueue, Volume};
use glintdb_log::{Log, Lsn};
use glintdb_memtable::{Arena, ChunkPool};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Background work, as code below the job queue asks for it.
pub(crate) trait Scheduler: Send + Sync {
    /// Queues every job that is due.
    fn schedule(&self);
    /// Queues a flush. None is queued yet.
    fn push_flush(&self);
    /// Queues a step of the log. None is queued yet.
    fn push_spill(&self);
    /// Runs one step of the most urgent job on this thread. Returns false if none is queued.
    fn run_step(&self) -> bool;
    /// Waits until a job ends, or for `time`.
    fn wait_finished(&self, time: Duration);
    /// Removes jobs that are less urgent than a flush from the queue. Returns how many.
    fn give_up_below_flush(&self) -> usize;
    /// Writes all memtables to the indexes.
    fn flush_all(&self) -> Result<()>;
    /// Wakes a background thread that has nothing to do, so that it sees when to try again.
    fn wake(&self);
}

/// Counters since open.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) conflicts: std::sync::atomic::AtomicU64,
    pub(crate) snapshots_given_up: std::sync::atomic::AtomicU64,
    pub(crate) deleted_passed: std::sync::atomic::AtomicU64,
}

/// State that all owners of an open database share.
pub(crate) struct Shared {
    /// The process that opened the database.
    pub(crate) process: ProcessToken,
    pub(crate) options: Options,
    pub(crate) db: DbId,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) values: ValueDirectory,
    pub(crate) indexes: IndexFactory,
    /// Input of compactions that is read ahead.
    pub(crate) reads: Option<Arc<ReadQueue>>,
    pub(crate) log: Arc<Log>,
    pub(crate) manifest: Arc<Mutex<Manifest>>,
    pub(crate) numbers: Arc<dyn FileNumbers>,
    pub(crate) reserve: Reserve,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) pipeline: Pipeline,
    pub(crate) version: Versions<Version>,
    /// Arenas of flushed memtables, for as long as readers keep them. An iterator may keep one
    /// without its version.
    pub(crate) flushed_arenas: Mutex<Vec<Weak<Arena>>>,
    pub(crate) default_keyspace: Arc<KeyspaceState>,
    pub(crate) backpressure: Backpressure,
    /// Whether waiting threads begin reads of compactions.
    pub(crate) helps: bool,
    pub(crate) pins: Pins,
    /// Bytes that pinned levels took when memory was last divided.
    pub(crate) pins_taken: Mutex<usize>,
    pub(crate) transactions: Transactions,
    pub(crate) waits: Arc<Waits>,
    pub(crate) counters: Counters,
    pub(crate) replayed_bytes: u64,
    pub(crate) flush_queued: AtomicBool,
    pub(crate) spill_queued: AtomicBool,
    pub(crate) looks: Looks,
    pub(crate) lifecycle: Lifecycle,
}

/// Whether a database is open, how its background work goes, and which scheduler that has.
#[derive(Default)]
pub(crate) struct Lifecycle {
    background_error: BackgroundError,
    scheduler: OnceLock<Weak<dyn Scheduler>>,
    /// Whether the database is closed or closing. Every operation reads it, so no counter shares
    /// its cache line.
    closing: Padded<AtomicBool>,
}

impl Shared {
    /// Sets the scheduler, once. The reference is weak, because the scheduler owns this.
    pub(crate) fn set_scheduler(&self, scheduler: Weak<dyn Scheduler>) {
        let set = self.lifecycle.scheduler.set(scheduler);
        debug_assert!(set.is_ok(), "a database has one scheduler");
    }

    /// Calls the scheduler. Returns `None` while the database is being opened or dropped.
    fn scheduler<T>(&self, call: impl FnOnce(&dyn Scheduler) -> T) -> Option<T> {
        let scheduler = self.lifecycle.scheduler.get()?.upgrade()?;
        Some(call(&*scheduler))
    }

    /// Queues every job that is due.
    pub(crate) fn schedule(&self) {
        self.scheduler(|scheduler| scheduler.schedule());
    }

    /// Queues a flush.
    pub(crate) fn queue_flush(&self) {
        if !self.flush_queued.swap(true, Ordering::SeqCst) {
            self.scheduler(|scheduler| scheduler.push_flush());
        }
    }

    /// Queues a flush if a memtable is sealed.
    pub(crate) fn schedule_flush(&self) {
        if self.version.load().has_sealed() {
            self.queue_flush();
        }
    }

    /// Queues a step of the log if one is due.
    pub(crate) fn schedule_spill(&self) {
        if self.log_due() && !self.spill_queued.swap(true, Ordering::SeqCst) {
            self.scheduler(|scheduler| scheduler.push_spill());
        }
    }

    /// Without background threads, runs the queued jobs on this thread, in order. Returns false if
    /// it ran none.
    pub(crate) fn run_inline(&self) -> bool {
        if self.options.background_threads > 0 {
            return false;
        }
        let mut ran = false;
        while self.scheduler(|scheduler| scheduler.run_step()) == Some(true) {
            ran = true;
        }
        ran
    }

    /// Waits until a job ends, or for `time`.
    pub(crate) fn wait_finished(&self, time: Duration) {
        self.scheduler(|scheduler| scheduler.wait_finished(time));
    }

    /// Removes jobs that are less urgent than a flush from the queue. Returns how many.
    pub(crate) fn give_up_below_flush(&self) -> usize {
        self.scheduler(|scheduler| scheduler.give_up_below_flush())
            .unwrap_or(0)
    }

    /// Writes all memtables to the indexes.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.scheduler(|scheduler| scheduler.flush_all())
            .unwrap_or(Ok(()))
    }

    /// Whether a step of the log is due.
    pub(crate) fn log_due(&self) -> bool {
        self.log.spill_due() || self.may_prepare()
    }

    /// Whether the log's next segment should be made before a commit needs it. That does not use
    /// the reserve's space.
    pub(crate) fn may_prepare(&self) -> bool {
        self.log.prepare_due() && !self.reserve.is_lent()
    }

    /// Whether the active generation may be sealed now. At most one sealed generation waits to be
    /// flushed: each is sealed at half of the memtables' share of memory, or of the log that may be
    /// replayed, so both bounds hold.
    pub(crate) fn may_seal(&self) -> bool {
        !self.version.load().has_sealed()
    }

    /// Replaces the version with the result of `change`. Returns the replaced one, to be dropped
    /// outside of locks.
    #[must_use = "drop it outside of locks"]
    pub(crate) fn install(&self, change: impl FnOnce(&Version) -> Version) -> Arc<Version> {
        self.version.install(|old| {
            let mut new = change(old);
            new.number = old.number + 1;
            new.assert_follows(old);
            let mut flushed = self.flushed_arenas.lock();
            flushed.retain(|arena| arena.strong_count() > 0);
            let arenas = old.generations().map(|generation| generation.arena());
            let gone = arenas.filter(|arena| !new.has_arena(arena));
            flushed.extend(gone.map(Arc::downgrade));
            new
        })
    }

    /// Returns a generation of empty memtables for the keyspaces `ids`.
    pub(crate) fn new_generation(
        &self,
        first_seqno: SeqNum,
        start_lsn: Lsn,
        ids: impl Iterator<Item = KeyspaceId>,
    ) -> Generation {
        let arena = Arena::new(Arc::clone(&self.chunks));
        Generation::new(first_seqno, start_lsn, arena, ids)
    }

    /// Returns a version without memtables that keeps the files of the current one, which names
    /// segments up to `newest`. Called under the manifest's lock, under which dead segments are
    /// looked for.
    pub(crate) fn files_version(&self, newest: SegmentId) -> Arc<Version> {
        let current = self.version.load_full();
        let point = &current.active;
        let empty = self.new_generation(point.first_seqno, point.start_lsn, std::iter::empty());
        let version = Version {
            number: current.number,
            active: Arc::new(empty),
            sealed: Vec::new(),
            keyspaces: current.keyspaces.clone(),
        };
        self.version.keep(version, newest)
    }

    /// Returns a consistent pair of version and sequence number: all commits up to `at` are in
    /// `version`.
    pub(crate) fn read_point(&self) -> ReadPoint {
        let (version, at) = self.version.read_point(|| self.pipeline.visible());
        ReadPoint { version, at }
    }

    /// Returns every index's whole state, for a new manifest.
    pub(crate) fn index_snapshots(&self) -> Vec<(KeyspaceId, Vec<u8>)> {
        let version = self.version.load();
        version
            .live_keyspaces()
            .map(|keyspace| (keyspace.state.id, keyspace.state.index().snapshot_edit()))
            .collect()
    }

    /// Makes the log durable up to `lsn`, before `lsn` may become the flush point.
    pub(crate) fn sync_log_to(&self, lsn: Lsn) -> Result<()> {
        self.log
            .sync(lsn)
            .inspect_err(|error| self.pipeline.fail(error))
    }

    /// Sets the rates of the writers of `keyspaces` by the debts of their indexes.
    pub(crate) fn update_compaction_debts<'a>(
        &self,
        keyspaces: impl Iterator<Item = &'a KeyspaceState>,
    ) {
        let looks = keyspaces.map(|keyspace| (&keyspace.debt, keyspace.index().debt()));
        self.backpressure.compaction.update(looks);
    }

    /// Whether compactions of some index owe work, so that its writers are slowed.
    pub(crate) fn some_index_owes(&self) -> bool {
        let version = self.version.load();
        (version.live_keyspaces()).any(|keyspace| keyspace.state.debt.engaged())
    }

    /// Returns the error of a background job, until the job is tried again.
    pub(crate) fn background_error(&self) -> Option<Error> {
        self.lifecycle.background_error.get()
    }

    /// Keeps the first error of a background job, for stats and for writers that wait for it. If it
    /// passes, the job is tried again after a pause.
    pub(crate) fn note_background_error(&self, error: &Error) {
        let now = self.clock.monotonic();
        self.lifecycle.background_error.note(error, now);
        self.backpressure.compaction.wake();
        if error.kind().passes() {
            self.scheduler(|scheduler| scheduler.wake());
        }
    }

    /// Forgets a background error, so that the failed job is tried again.
    pub(crate) fn retry_background(&self) {
        self.lifecycle.background_error.forget();
        self.schedule();
    }

    /// Forgets a background error that passes, if the time to try again has come.
    pub(crate) fn retry_if_due(&self) -> bool {
        let now = self.clock.monotonic();
        self.lifecycle.background_error.retry_if_due(now)
    }

    /// Time until the job that failed is tried again; `None`: no job waits for that.
    pub(crate) fn until_retry(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let until = self.lifecycle.background_error.until_retry(now);
        until.filter(|_| !self.closing())
    }

    /// Asks a background thread to look for what can be given back. Without background threads
    /// there are no looks.
    #[inline]
    pub(crate) fn ask_for_look(&self) {
        if self.options.background_threads > 0 && self.looks.ask(|| self.clock.monotonic()) {
            self.scheduler(|scheduler| scheduler.wake());
        }
    }

    /// Time until the next look; `None`: nothing asks for one.
    pub(crate) fn until_look(&self) -> Option<Duration> {
        let until = self.looks.until(self.clock.monotonic());
        until.filter(|_| !self.closing())
    }

    /// Whether the calling thread has to look now.
    pub(crate) fn take_look(&self) -> bool {
        self.looks.take(self.clock.monotonic())
    }

    /// Notes that a job succeeded after jobs of its kind had failed.
    pub(crate) fn background_recovered(&self) {
        if self.lifecycle.background_error.recovered() {
            self.schedule();
        }
    }

    /// Refuses all writes, because the state that was being changed is unknown. `cause` says what
    /// happened.
    pub(crate) fn poison(&self, cause: &str) {
        let message = format!("open the database again: {cause}");
        let error = Error::new(ErrorKind::Poisoned, message);
        // Overwrites an earlier error before waiters are woken, so that they see this one.
        self.lifecycle.background_error.replace(error.clone());
        self.pipeline.fail(&error);
        self.manifest.lock().fail(&error);
        self.backpressure.compaction.wake();
    }

    /// Whether this process is a forked child of the one that opened the database. A child has none
    /// of the engine's threads, and locks that they held during the fork are never free in it: it
    /// must not take a lock of the engine, and drops none of its parts.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn closing(&self) -> bool {
        self.lifecycle.closing.load(Ordering::Acquire)
    }

    /// Refuses new operations and jobs from here on.
    pub(crate) fn set_closing(&self) {
        self.lifecycle.closing.store(true, Ordering::SeqCst);
    }

    /// Refuses every operation of a database that is closed, or closing, and every operation of a
    /// forked child. Each public operation that can fail begins with it, before it takes a lock.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closing() {
            true => Err(closed()),
            false => self.process.check(),
        }
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}
