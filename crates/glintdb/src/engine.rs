//! The engine: the state that all handles of a database share, and the housekeeping between its
//! parts.
//!
//! Thread safety: everything from any thread.
//!
//! **Lock order**: ARCHITECTURE.md, *Lock order*. A read that opens the table of hot keys only
//! tries the sequencer's lock. No lock is held while a job's step runs, except `flush_lock` during
//! a flush. The sequencer's lock is never held across I/O.

use crate::background::compaction::CompactionJob;
use crate::background::flush::FlushJob;
use crate::background::log_jobs::{LogSyncJob, SpillJob};
use crate::background::queue::{Host, JobQueue};
use crate::durable::manifest::{Item, Manifest};
use crate::options::{KeyspaceOptions, Options};
use crate::read::pins::Pins;
use crate::read::values::directory::ValueDirectory;
use crate::space::reserve::Reserve;
use crate::space::value_gc::Gc;
use crate::state::transactions::Transactions;
use crate::state::version::{Generation, KeyspaceState, Version};
use crate::state::versions::Versions;
use crate::write::backpressure::Backpressure;
use crate::write::backpressure::waits::{Wait, Waits};
use crate::write::pipeline::Pipeline;
use crate::write::sequencer::Sequencer;
use crate::{Error, ErrorKind, Result};
use glintdb_cache::Cache;
use glintdb_core::clock::Clock;
use glintdb_core::index::{Index, JobPriority};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::{DbId, FileNumbers, KeyspaceId, Padded};
use glintdb_flash::{ProcessToken, ReadQueue, Volume};
use glintdb_log::{Log, Space};
use glintdb_lsm::{Lsm, LsmEnv};
use glintdb_memtable::{Arena, ChunkPool};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time between two looks of a closing thread at commits that are under way: each takes
/// microseconds.
const COMMITS_LOOK: Duration = Duration::from_micros(50);

/// What the engine is given from outside, so that tests and simulation decide it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identity for a database that is created.
    pub db: DbId,
    /// With no background threads: jobs are taken in an order that this seed decides, instead of the most urgent first. Any order must do, for threads may take them in any.
    pub job_order: Option<u64>,
}

impl Env {
    /// With jobs in order of urgency.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, db: DbId) -> Env {
        Env {
            clock,
            db,
            job_order: None,
        }
    }

    glintdb_core::setters! { job_order: Option<u64> }
}

/// Shared state of an open database.
pub(crate) struct Engine {
    /// The process that opened the database.
    pub(crate) process: ProcessToken,
    pub(crate) options: Options,
    pub(crate) db: DbId,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) values: ValueDirectory,
    /// Input of compactions that is read ahead.
    pub(crate) reads: Option<Arc<ReadQueue>>,
    pub(crate) log: Arc<Log>,
    pub(crate) manifest: Arc<Mutex<Manifest>>,
    pub(crate) numbers: Arc<dyn FileNumbers>,
    pub(crate) reserve: Reserve,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) sequencer: Padded<Mutex<Sequencer>>,
    pub(crate) pipeline: Pipeline,
    pub(crate) version: Versions<Version>,
    /// Memory of memtables that were flushed: an iterator may hold it without its version.
    pub(crate) flushed_arenas: Mutex<Vec<Weak<Arena>>>,
    pub(crate) default_keyspace: Arc<KeyspaceState>,
    pub(crate) jobs: JobQueue,
    pub(crate) flush_lock: Mutex<()>,
    pub(crate) flush_queued: AtomicBool,
    pub(crate) spill_queued: AtomicBool,
    pub(crate) log_sync_queued: AtomicBool,
    /// Compactions in the queue, and those that run on threads which called for them.
    pub(crate) compactions_running: Arc<AtomicUsize>,
    pub(crate) compactions_called: Arc<AtomicUsize>,
    /// A flush waits for the space that compactions have.
    pub(crate) flush_starves: AtomicBool,
    pub(crate) backpressure: Backpressure,
    /// Whether threads that wait begin reads of compactions.
    pub(crate) helps: bool,
    pub(crate) gc: Gc,
    pub(crate) pins: Pins,
    /// Memory that pinned levels take, as it was last divided.
    pub(crate) pins_taken: Mutex<usize>,
    pub(crate) transactions: Transactions,
    pub(crate) tombstone_floor: Arc<AtomicU64>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) counters: Counters,
    pub(crate) background_error: Mutex<Option<Error>>,
    pub(crate) replayed_bytes: u64,
    /// [`Db`](crate::Db) handles there are. On a line of its own: programs may clone one for each
    /// request.
    pub(crate) dbs: Padded<std::sync::atomic::AtomicUsize>,
    /// Every operation looks at it, and nothing that is written often lies beside it.
    closing: Padded<AtomicBool>,
}

/// Counters since open.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) conflicts: std::sync::atomic::AtomicU64,
    pub(crate) snapshots_given_up: std::sync::atomic::AtomicU64,
}

/// Makes the index of a keyspace.
pub(crate) struct IndexFactory {
    pub(crate) env: LsmEnv,
}

impl IndexFactory {
    pub(crate) fn create(&self, options: &KeyspaceOptions) -> Result<Arc<dyn Index>> {
        Ok(Lsm::create(self.env.clone(), options.lsm.clone())?)
    }

    pub(crate) fn open(
        &self,
        options: &KeyspaceOptions,
        edits: &[Vec<u8>],
    ) -> Result<Arc<dyn Index>> {
        Ok(Lsm::open(self.env.clone(), options.lsm.clone(), edits)?)
    }
}

impl Host for Engine {
    fn after_job(&self) {
        self.update_memory();
        self.schedule();
        self.backpressure.compaction.wake();
    }

    fn after_failed_job(&self) {
        self.update_memory();
        self.backpressure.compaction.wake();
    }

    fn after_panic(&self, what: &str) {
        let what = format!("there was a panic, open the database again: {what}");
        let error = Error::new(ErrorKind::Poisoned, what);
        // In the place of any other. First, so that whoever is told of it finds it.
        *self.background_error.lock() = Some(error.clone());
        self.pipeline.fail(&error);
        self.manifest.lock().fail(&error);
        self.backpressure.compaction.wake();
    }
}

impl Engine {
    pub(crate) fn index_factory(&self) -> IndexFactory {
        IndexFactory {
            env: LsmEnv {
                volume: Arc::clone(&self.volume),
                cache: Arc::clone(&self.cache),
                memory: Arc::clone(&self.memory),
                db: self.db,
                numbers: Arc::clone(&self.numbers),
                run_bytes: self.options.run_bytes_expected(),
                tombstone_floor: Arc::clone(&self.tombstone_floor),
                reads: self.reads.clone(),
            },
        }
    }

    /// Replaces the version by what `change` makes of it; answers the one that was, to be let go of outside of locks.
    #[must_use = "it is to be let go of outside of locks"]
    pub(crate) fn install(&self, change: impl FnOnce(&Version) -> Version) -> Arc<Version> {
        self.version.install(|old| {
            let mut new = change(old);
            new.number = old.number + 1;
            let mut flushed = self.flushed_arenas.lock();
            flushed.retain(|arena| arena.strong_count() > 0);
            let arenas = old.generations().map(|generation| generation.arena());
            let gone = arenas.filter(|arena| !new.has_arena(arena));
            flushed.extend(gone.map(Arc::downgrade));
            new
        })
    }

    /// A generation of empty memtables for `keyspaces`.
    pub(crate) fn new_generation(
        &self,
        first_seqno: glintdb_core::SeqNum,
        start_lsn: glintdb_log::Lsn,
        ids: impl Iterator<Item = KeyspaceId>,
    ) -> Arc<Generation> {
        Arc::new(Generation::new(
            first_seqno,
            start_lsn,
            Arena::new(Arc::clone(&self.chunks)),
            ids,
        ))
    }

    /// Queues the jobs there is reason for.
    pub(crate) fn schedule(&self) {
        if self.closing() {
            return;
        }
        self.schedule_flush();
        let limit = self.options.background_threads.max(1);
        if self.background_error.lock().is_some() {
            return;
        }
        self.schedule_gc();
        self.transactions.raise_floor(|| self.pipeline.visible());
        let version = self.version.load_full();
        for keyspace in version.live_keyspaces() {
            // Looked at each time: what a stopped queue hands back at once, or what fails at once, the index would give out again for ever.
            let goes_on = || !self.closing() && self.background_error.lock().is_none();
            while goes_on() && self.compactions_running.load(Ordering::Acquire) < limit {
                let Some(job) = keyspace.state.index.pick_job() else {
                    break;
                };
                let running = match self.begin_compaction(&*job, &self.compactions_running) {
                    Ok(running) => running,
                    Err(error) => {
                        drop(job);
                        self.note_background_error(&error);
                        return;
                    }
                };
                self.jobs.push(
                    self,
                    Box::new(CompactionJob {
                        keyspace: Arc::clone(&keyspace.state),
                        job,
                        running,
                    }),
                );
            }
        }
    }

    /// Queues a flush if a memtable is sealed.
    pub(crate) fn schedule_flush(&self) {
        if self.version.load().has_sealed() {
            self.queue_flush();
        }
    }

    /// Queues a flush.
    pub(crate) fn queue_flush(&self) {
        if !self.flush_queued.swap(true, Ordering::SeqCst) {
            self.jobs.push(self, Box::new(FlushJob));
        }
    }

    /// Forgets a background error, so that what failed is tried again.
    pub(crate) fn retry_background(&self) {
        self.forget_background_error();
        self.schedule();
    }

    /// Whether there was one. What only another open can mend stays.
    fn forget_background_error(&self) -> bool {
        let mends = |error: &mut Error| error.kind() != ErrorKind::Poisoned;
        self.background_error.lock().take_if(mends).is_some()
    }

    /// Whether the log has something to do.
    pub(crate) fn log_due(&self) -> bool {
        self.log.spill_due() || self.may_prepare()
    }

    /// Whether the next segment is to be made before somebody needs it: not of space that was lent.
    fn may_prepare(&self) -> bool {
        self.log.prepare_due() && !self.reserve.is_lent()
    }

    /// Does some of what the log has to do.
    pub(crate) fn log_step(&self) -> Result<()> {
        if self.may_prepare()
            && let Err(error) = self.log.prepare_step(Space::Normal)
            && error.kind() != ErrorKind::NoSpace
        {
            self.pipeline.fail(&error);
            return Err(error);
        }
        if !self.reserve.is_lent() {
            self.log.grow_ring_ahead();
        }
        self.log.populate_ahead();
        if self.log.spill_due() {
            self.log
                .spill_step()
                .inspect_err(|error| self.pipeline.fail(error))?;
            self.update_space_debt();
            self.values.update_room();
        }
        if self.log.sync_full_due() && !self.log_sync_queued.swap(true, Ordering::SeqCst) {
            self.jobs.push(self, Box::new(LogSyncJob));
        }
        Ok(())
    }

    /// Whether large values are worth caching when they are written: value GC has work or soon
    /// will, or the device lags.
    pub(crate) fn is_worth_caching(&self) -> bool {
        self.options.value_gc && (self.backpressure.space.is_near() || self.log.spill_urgent())
    }

    /// Queues a step of the log if one is due.
    pub(crate) fn schedule_spill(&self) {
        if self.log_due() && !self.spill_queued.swap(true, Ordering::SeqCst) {
            self.jobs.push(self, Box::new(SpillJob));
        }
    }

    /// Between the parts of something long on a background thread: what commits will wait for next. The other threads may be in something long too.
    pub(crate) fn spill_if_urgent(&self) {
        if self.may_prepare() || self.log.spill_urgent() {
            self.schedule_spill();
            self.jobs.help(self, JobPriority::Spill);
        }
    }

    /// With no background threads, callers run what is queued, in order.
    /// `false`: there was nothing to run here.
    pub(crate) fn run_inline(&self) -> bool {
        let mut ran = false;
        while self.options.background_threads == 0 && self.jobs.help(self, JobPriority::Background)
        {
            ran = true;
        }
        ran
    }

    /// Waits a little for running jobs, or runs one.
    pub(crate) fn wait_for_jobs(&self) -> Result<()> {
        self.check_open()?;
        if self.jobs.help(self, JobPriority::Background) {
            return Ok(());
        }
        if let Some(error) = self.background_error.lock().clone() {
            return Err(error);
        }
        // The inputs of a change whose edit failed stay reserved until the next open: nobody will ever finish with them.
        self.manifest.lock().check()?;
        let _timed = self.waits.start(Wait::Jobs);
        self.jobs.wait_finished(Duration::from_millis(10));
        Ok(())
    }

    /// Every index's whole state, for a new manifest.
    pub(crate) fn index_snapshots(&self) -> Vec<(KeyspaceId, Vec<u8>)> {
        let version = self.version.load();
        version
            .live_keyspaces()
            .map(|keyspace| (keyspace.state.id, keyspace.state.index.snapshot_edit()))
            .collect()
    }

    /// Keeps the first error of a background job, for stats and for writers that wait for it.
    pub(crate) fn note_background_error(&self, error: &Error) {
        self.background_error
            .lock()
            .get_or_insert_with(|| error.clone());
        self.backpressure.compaction.wake();
    }

    /// A job of a kind that had failed went through.
    pub(crate) fn background_recovered(&self) {
        if self.forget_background_error() {
            self.schedule();
        }
    }

    /// Whether this is a forked child of the process that opened the database. A child has none of
    /// the engine's threads, and locks that they held during the fork are never free in it: it must
    /// not take a lock of the engine, and drops none of its parts.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
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

    /// No new operations and jobs; background threads end after their step, and waiting writers
    /// look up.
    pub(crate) fn begin_close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.jobs.stop(self);
        self.backpressure.compaction.wake();
    }

    /// Records in the manifest that the log was closed: how far it is durable, so that finding less
    /// is damage and no torn tail, and that no commit is only in the ring.
    fn note_closed(&self) -> Result<()> {
        let items = [Item::LogDurable(self.log.durable()), Item::Ring(0)];
        let commit = || self.manifest.lock().commit(&items);
        match self.reserve.lending(commit) {
            // A close must not fail for want of it: the next open then needs the ring, which is
            // there.
            Err(error) if error.kind() == crate::ErrorKind::NoSpace => Ok(()),
            result => result,
        }
    }

    /// Background threads have ended: waits for what callers' threads still write, makes everything
    /// committed durable, and says so in the log's last frame, so that the next open can tell
    /// damage from a torn tail. Afterwards nothing writes to the ring or believes what it reads
    /// there, so the medium may be given to the next opener once the volume is closed.
    ///
    /// Writes to the ring are commits between their number and their end, seals of a checkpoint,
    /// and the last frame itself. Numbers are given out, and seals made, under the sequencer's lock
    /// by threads that find `closing` unset there. It was set before the lock is taken here, so the
    /// newest number is the last one and no seal follows. Then the commits up to that one end: by
    /// themselves, for they wait for nothing but the medium, which is still open. Everything else
    /// on callers' threads (a flush, a compaction, a round of value GC) works on files; the volume
    /// lets each write end and refuses the next one, which leaves what a crash at that moment
    /// leaves. Steps of jobs and flushes that have begun are waited for all the same, so that their
    /// work is not lost.
    ///
    /// # Errors
    /// Where something committed could not be made durable: its own error, or that of an earlier
    /// failure.
    pub(crate) fn finish_close(&self) -> Result<()> {
        {
            let _timed = self.waits.start(Wait::Jobs);
            self.jobs.wait_stopped();
        }
        let _no_flush = self.flush_lock.lock();
        let newest = self.sequencer.lock().newest();
        while !self.pipeline.all_ended(newest) {
            self.jobs.wait_finished(COMMITS_LOOK);
        }
        let closed = self
            .flush_log(crate::Durability::Sync)
            .and_then(|()| self.log.close())
            .and_then(|()| self.note_closed());
        if closed.is_ok() {
            // Everything is durable without the ring, so a failure costs space only.
            self.log.release_ring().ok();
        }
        closed.inspect_err(|error| self.note_background_error(error))
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

/// Pieces of [`Engine`] that only `recovery` puts together.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) db: DbId,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) job_order: Option<u64>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) reads: Option<Arc<ReadQueue>>,
    pub(crate) log: Arc<Log>,
    pub(crate) manifest: Arc<Mutex<Manifest>>,
    pub(crate) numbers: Arc<dyn FileNumbers>,
    pub(crate) reserve: Reserve,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) version: Version,
    pub(crate) default_keyspace: Arc<KeyspaceState>,
    pub(crate) tombstone_floor: Arc<AtomicU64>,
    pub(crate) newest: glintdb_core::SeqNum,
    pub(crate) replayed_bytes: u64,
}

impl Engine {
    pub(crate) fn assemble(parts: Parts) -> Engine {
        let waits = Arc::new(Waits::new(Arc::clone(&parts.clock)));
        let engine = Engine {
            sequencer: Padded(Mutex::new(Sequencer::new(
                parts.newest,
                Arc::clone(&parts.version.active),
                parts.replayed_bytes,
            ))),
            pipeline: Pipeline::new(parts.newest, Arc::clone(&waits)),
            version: Versions::new(parts.version),
            flushed_arenas: Mutex::default(),
            default_keyspace: parts.default_keyspace,
            jobs: JobQueue::new(parts.job_order),
            flush_lock: Mutex::new(()),
            flush_queued: AtomicBool::new(false),
            spill_queued: AtomicBool::new(false),
            log_sync_queued: AtomicBool::new(false),
            compactions_running: Arc::default(),
            compactions_called: Arc::default(),
            flush_starves: AtomicBool::new(false),
            backpressure: Backpressure::new(
                Arc::clone(&parts.clock),
                parts.options.memtable_seal_bytes(),
            ),
            helps: parts.options.help && parts.options.background_threads > 0,
            gc: Gc::default(),
            values: ValueDirectory::new(
                &parts.options,
                Arc::clone(&parts.log),
                Arc::clone(&parts.cache),
            ),
            pins: Pins::default(),
            pins_taken: Mutex::new(0),
            transactions: Transactions::new(Arc::clone(&parts.tombstone_floor)),
            tombstone_floor: parts.tombstone_floor,
            waits,
            counters: Counters::default(),
            background_error: Mutex::new(None),
            replayed_bytes: parts.replayed_bytes,
            process: ProcessToken::current(),
            dbs: Padded(Default::default()),
            closing: Padded(AtomicBool::new(false)),
            options: parts.options,
            db: parts.db,
            volume: parts.volume,
            clock: parts.clock,
            memory: parts.memory,
            cache: parts.cache,
            reads: parts.reads,
            log: parts.log,
            manifest: parts.manifest,
            numbers: parts.numbers,
            reserve: parts.reserve,
            chunks: parts.chunks,
        };
        engine.update_memory();
        engine.update_compaction_debt();
        engine.limit_first_memtable();
        engine
    }
}
