//! Opening a database: the manifest, the indexes that it names, and the log from the flush point
//! on.
//!
//! Thread safety: one thread opens a database.
//!
//! Invariant: no file is changed or removed before it is known to be readable, and every step can
//! be repeated after a crash at any point. Files of openings that did not finish are removed first,
//! because the log that they came from still exists.

use crate::background::trim::data_bytes;
use crate::durable::catalog::DEFAULT_KEYSPACE;
use crate::durable::manifest::{
    FlushPoint, Found, Item, Loaded, Manifest, State, check_database, read_newest,
};
use crate::durable::numbers::{DeferredNumbers, Numbers};
use crate::durable::orphans::{remove_orphans, remove_unfinished};
use crate::durable::replay::{Replay, Replayed};
use crate::engine::Engine;
use crate::env::Env;
use crate::index_kinds::{AnyIndex, IndexFactory};
use crate::options::{KeyspaceOptions, OpenProgress, Options};
use crate::read::pins::Pins;
use crate::read::values::directory::ValueDirectory;
use crate::shared::{Counters, Lifecycle, Shared};
use crate::space::reserve::Reserve;
use crate::state::looks::Looks;
use crate::state::transactions::Transactions;
use crate::state::version::{Generation, KeyspaceState, KeyspaceVersion, Version};
use crate::state::versions::Versions;
use crate::write::backpressure::Backpressure;
use crate::write::backpressure::waits::Waits;
use crate::write::pipeline::Pipeline;
use crate::{Error, ErrorKind, Result};
use glintdb_cache::Cache;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64};
use glintdb_core::{DbId, FileId, FileKind, FileNumbers, KeyspaceId, SeqNum, planted};
use glintdb_flash::{ProcessToken, ReadQueue, Volume};
use glintdb_log::{Log, LogOptions, LogSetup, Lsn};
use glintdb_memtable::{Arena, ChunkPool};
use glintdb_runs::IndexEnv;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Opens the database on a volume, or creates it there.
pub(crate) fn open(volume: Arc<dyn Volume>, env: Env, options: Options) -> Result<Engine> {
    let Found {
        loaded: found,
        number_next,
    } = read_newest(&*volume)?;
    match &found {
        Some(_) if options.error_if_exists => {
            return Err(Error::exists("the database, and error_if_exists is set"));
        }
        None if !options.create_if_missing => {
            return Err(Error::new(
                ErrorKind::NotFound,
                "there is no database here, and create_if_missing is not set",
            ));
        }
        _ => {}
    }
    let opening = Opening::new(volume, env, options, found.as_ref())?;
    match found {
        // A crash cut off its creation, before the log was begun.
        Some(loaded) if !loaded.has_begun() => opening.create_again(&loaded, number_next),
        Some(loaded) => opening.open_existing(loaded, number_next),
        None => opening.create(number_next),
    }
}

/// The parts of a database that is being opened.
struct Opening {
    volume: Arc<dyn Volume>,
    env: Env,
    db: DbId,
    options: Options,
    memory: Arc<MemoryBudget>,
    cache: Arc<Cache>,
    reads: Option<Arc<ReadQueue>>,
    chunks: Arc<ChunkPool>,
    tombstone_floor: Arc<AtomicU64>,
    reserve: Reserve,
}

/// Number of segments that an opening may walk without a flush, beside two for each MiB (or smaller
/// segment) of log in them. Each opening makes a segment, so a database that is opened often and
/// written little would collect segments without end.
const SEGMENTS_WALKED_MAX: u64 = 8;

/// Bytes that opening needs beside the segment in which it continues: for a manifest, and for
/// tables of a replay that does not fit memory.
const OPEN_BYTES: u64 = 256 << 10;

fn log_options(options: &Options) -> LogOptions {
    LogOptions {
        segment_bytes: options.log_segment_bytes,
        ring_bytes: options.log_ring_bytes,
        reserve_segments: LogOptions::RESERVE_SEGMENTS,
    }
}

impl Opening {
    fn new(
        volume: Arc<dyn Volume>,
        env: Env,
        options: Options,
        found: Option<&Loaded>,
    ) -> Result<Self> {
        let memory = Arc::new(MemoryBudget::new(options.memory_budget_bytes));
        memory.add(MemoryPart::LogRing, options.log_ring_bytes);
        let cache_bytes =
            options.memory_budget_bytes - options.memtable_share_bytes() - options.log_ring_bytes;
        let reserve = Reserve::open(
            Arc::clone(&volume),
            options.memtable_seal_bytes() as u64,
            2 * log_options(&options).segment_bytes_first() + OPEN_BYTES,
        )?;
        let reads = (options.experiments.read_batch_max > 0).then(|| {
            ReadQueue::new(
                Arc::clone(&volume),
                Arc::clone(&memory),
                Arc::clone(&env.clock),
                options.experiments.read_batch_max,
                options.read_ahead_bytes_max(),
            )
        });
        Ok(Opening {
            reserve,
            reads,
            db: found.map_or(env.db, |loaded| loaded.db),
            volume,
            env,
            memory,
            cache: Arc::new(Cache::new(cache_bytes)),
            // As many idle chunks as one generation has, so that the next generation takes the
            // memory of the flushed one.
            chunks: ChunkPool::new(options.memtable_seal_bytes()),
            tombstone_floor: Arc::new(AtomicU64::new(0)),
            options,
        })
    }

    fn index_factory(&self, numbers: &Arc<dyn FileNumbers>) -> IndexFactory {
        IndexFactory::new(IndexEnv {
            volume: Arc::clone(&self.volume),
            cache: Arc::clone(&self.cache),
            memory: Arc::clone(&self.memory),
            db: self.db,
            numbers: Arc::clone(numbers),
            run_bytes: self.options.run_bytes_expected(),
            tombstone_floor: Arc::clone(&self.tombstone_floor),
            reads: self.reads.clone(),
        })
    }

    fn log_setup(&self, numbers: &Arc<dyn FileNumbers>) -> LogSetup {
        LogSetup {
            volume: Arc::clone(&self.volume),
            db: self.db,
            clock: Arc::clone(&self.env.clock),
            numbers: Arc::clone(numbers),
            options: log_options(&self.options),
        }
    }

    fn generation(
        &self,
        first_seqno: SeqNum,
        start_lsn: Lsn,
        ids: impl Iterator<Item = KeyspaceId>,
    ) -> Generation {
        Generation::new(
            first_seqno,
            start_lsn,
            Arena::new(Arc::clone(&self.chunks)),
            ids,
        )
    }

    /// Checks that the segment where replay begins exists and belongs to this database.
    fn check_log_start(&self, loaded: &Loaded) -> Result<()> {
        let segment = loaded.state.flush_point.lsn.segment;
        glintdb_log::check_segment(&*self.volume, loaded.db, segment)
    }

    /// Removes the files of a creation that was cut off, and creates the database. Such a creation
    /// leaves only segments without a frame. If there is more, the manifest has lost the record of
    /// where the log begins.
    fn create_again(mut self, loaded: &Loaded, manifest: u64) -> Result<Engine> {
        loaded.check_not_begun(&*self.volume)?;
        for file in self.volume.list()? {
            if file.kind != FileKind::Manifest {
                self.volume.delete(file)?;
            }
        }
        self.volume.sync_directory()?;
        // File numbers begin again, so files of the first attempt must not be taken for files of
        // this database.
        self.db = self.env.db;
        self.create(manifest)
    }

    fn create(self, number: u64) -> Result<Engine> {
        let options = KeyspaceOptions::default();
        let mut state = State::empty();
        let default = Item::KeyspaceCreated {
            id: KeyspaceId(0),
            name: DEFAULT_KEYSPACE.to_owned(),
            options: options.clone(),
        };
        state.apply(&default).map_err(Error::invalid)?;
        let manifest =
            Manifest::create(Arc::clone(&self.volume), self.db, number, state, Vec::new())?;
        manifest.remove_older()?;
        let manifest = Arc::new(Mutex::new(manifest));
        let numbers: Arc<dyn FileNumbers> = Arc::new(Numbers::new(Arc::clone(&manifest), 1));
        let log = Log::create(self.log_setup(&numbers))?;
        // Recorded only now, when there is a log to replay. A manifest without this item says that
        // nothing was ever stored.
        manifest.lock().commit(&[
            Item::FlushPoint(FlushPoint {
                lsn: log.next_lsn(),
                seqno: SeqNum::ZERO,
            }),
            Item::Ring(log.kept_ring_bytes()),
        ])?;
        let index = self.index_factory(&numbers).create(&options)?;
        let default = self.keyspace(KeyspaceId(0), DEFAULT_KEYSPACE.to_owned(), options, index);
        let keyspaces = BTreeMap::from([(KeyspaceId(0), default)]);
        let newest = SeqNum::ZERO;
        let generation = self.generation(newest.next(), log.next_lsn(), keyspaces.keys().copied());
        let replayed = Replayed { generation, newest };
        self.finish(keyspaces, manifest, numbers, log, replayed, 0)
    }

    fn keyspace(
        &self,
        id: KeyspaceId,
        name: String,
        options: KeyspaceOptions,
        index: AnyIndex,
    ) -> Arc<KeyspaceState> {
        let separate_min_bytes = self.options.separate_min_bytes;
        Arc::new(KeyspaceState::new(
            id,
            name,
            options,
            separate_min_bytes,
            index,
        ))
    }

    fn open_existing(self, loaded: Loaded, manifest_number: u64) -> Result<Engine> {
        // Checked before anything is written: a manifest of another database would only lead to
        // more wrong files.
        if let Err(error) = self.check_log_start(&loaded) {
            check_database(&*self.volume, &loaded)?;
            return Err(error);
        }
        let mut state = loaded.state.clone();
        state.ring_bytes = Some(self.find_ring(&loaded)?);
        // Numbers of files that a crash left behind are below the durable high-water mark, so new
        // numbers begin there.
        let cell = Arc::new(DeferredNumbers::default());
        let numbers: Arc<dyn FileNumbers> = Arc::clone(&cell) as Arc<dyn FileNumbers>;
        let factory = self.index_factory(&numbers);
        let mut keyspaces = BTreeMap::new();
        for (id, record) in &loaded.state.keyspaces {
            let edits = loaded.edits.get(id).map_or(&[][..], Vec::as_slice);
            let index = factory
                .open(&record.options, edits)
                .map_err(|error| error.context(format!("open keyspace {:?}", record.name)))?;
            keyspaces.insert(
                *id,
                self.keyspace(*id, record.name.clone(), record.options.clone(), index),
            );
        }
        if !keyspaces.contains_key(&KeyspaceId(0)) {
            return Err(Error::corruption(
                FileId::new(FileKind::Manifest, loaded.number),
                0,
                "the default keyspace is missing",
            ));
        }
        remove_unfinished(&*self.volume, &loaded, &keyspaces)?;
        let snapshots = keyspaces
            .iter()
            .map(|(id, keyspace)| (*id, keyspace.index().snapshot_edit()))
            .collect();
        let reserved = loaded.state.numbers_reserved;
        let next_number = planted!(
            "glintdb: file numbers are given again after a crash",
            reserved,
            reserved.saturating_sub(250).max(1)
        );
        let manifest = Manifest::create(
            Arc::clone(&self.volume),
            self.db,
            manifest_number,
            state,
            snapshots,
        )?;
        let manifest = Arc::new(Mutex::new(manifest));
        cell.set(Numbers::new(Arc::clone(&manifest), next_number));

        let Opening {
            options,
            chunks,
            reserve,
            ..
        } = &self;
        let mut replay = Replay::new(options, chunks, reserve, &keyspaces, &loaded);
        let progress = self.options.progress.clone();
        let live = loaded.state.live_segments();
        let recovered = Log::recover(
            self.log_setup(&numbers),
            loaded.state.flush_point.lsn,
            loaded.state.log_durable,
            &live,
            &mut |frame| replay.frame(&frame),
            &mut |at| {
                if let Some(progress) = &progress {
                    progress(OpenProgress {
                        replayed_bytes: at.replayed_bytes,
                        total_bytes: at.total_bytes,
                    });
                }
            },
        );
        let (mut log, recovered) = match recovered {
            Ok(recovered) => recovered,
            Err(error) => {
                replay.give_up();
                return Err(error);
            }
        };
        if let Err(error) = self.settle_ring(&mut log, &manifest) {
            replay.give_up();
            return Err(error);
        }
        let walked = recovered.segments;
        let replayed_bytes = replay.bytes();
        let replayed = replay.finish(&manifest, recovered.next)?;
        let engine = self.finish(keyspaces, manifest, numbers, log, replayed, replayed_bytes)?;
        planted!(
            "glintdb: files that no manifest names stay",
            remove_orphans(&engine.shared)?,
            ()
        );
        let filled = replayed_bytes / log_options(&engine.shared.options).segment_bytes_first();
        if walked > SEGMENTS_WALKED_MAX + 2 * filled {
            flush_replayed(&engine);
        }
        engine.space.collect_garbage();
        Ok(engine)
    }

    /// Finds the log's ring, or creates it if no commit can be only in it. Returns the size of a
    /// ring that may hold commits which no segment has, or 0.
    fn find_ring(&self, loaded: &Loaded) -> Result<u64> {
        let needed = loaded.state.ring_bytes != Some(0) && !self.options.accept_missing_ring;
        if needed {
            loaded.check_ring(&*self.volume)?;
        }
        let bytes = match self.volume.existing_ring_bytes() {
            // No ring has that length, so nothing is lost with the file.
            Err(error) if error.kind() == ErrorKind::Corruption && !needed => {
                self.volume.remove_ring()?;
                None
            }
            found => found?,
        };
        let ring = self
            .volume
            .ring(bytes.unwrap_or(self.options.log_ring_bytes))?;
        Ok(match ring.survives_kill() {
            true => ring.len() as u64,
            false => 0,
        })
    }

    /// Resizes the ring to the size in the options, and records the ring in the manifest, before
    /// the first commit.
    fn settle_ring(&self, log: &mut Log, manifest: &Mutex<Manifest>) -> Result<()> {
        let record = |bytes: u64| {
            let recorded = manifest.lock().state().ring_bytes == Some(bytes);
            match recorded {
                true => Ok(()),
                false => (self.reserve).lending(|| manifest.lock().commit(&[Item::Ring(bytes)])),
            }
        };
        if log.ring_differs() {
            // A crash in between leaves no ring, and a manifest that expects none.
            record(0)?;
            self.reserve.lending(|| log.resize_ring())?;
        }
        record(log.kept_ring_bytes())
    }

    fn finish(
        self,
        keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
        manifest: Arc<Mutex<Manifest>>,
        numbers: Arc<dyn FileNumbers>,
        log: Log,
        replayed: Replayed,
        replayed_bytes: u64,
    ) -> Result<Engine> {
        let default_keyspace = keyspaces
            .get(&KeyspaceId(0))
            .cloned()
            .ok_or_else(|| Error::invalid("the default keyspace is missing"))?;
        let mut version = Version {
            number: 0,
            active: Arc::new(replayed.generation),
            sealed: Vec::new(),
            keyspaces: Vec::new(),
        };
        for state in keyspaces.into_values() {
            let view = state.index().view();
            version = version.with_keyspace(KeyspaceVersion { state, view });
        }
        let flushed = manifest.lock().state().flush_point;
        version.assert_begins_behind(flushed.seqno);
        assert!(
            replayed.newest >= flushed.seqno,
            "replay ends at or behind the flush point: at commit {}, which is before {flushed:?}",
            replayed.newest
        );
        assert!(
            log.next_lsn() >= version.active.start_lsn,
            "the next commit goes behind everything in memory: to {}, which is before {}",
            log.next_lsn(),
            version.active.start_lsn
        );
        log.set_data_bytes(data_bytes(&manifest, &version));
        let indexes = self.index_factory(&numbers);
        let job_order = self.env.job_order;
        let newest = replayed.newest;
        let options = self.options;
        let (log, clock) = (Arc::new(log), self.env.clock);
        let waits = Arc::new(Waits::new(Arc::clone(&clock)));
        let shared = Shared {
            process: ProcessToken::current(),
            values: ValueDirectory::new(&options, Arc::clone(&log), Arc::clone(&self.cache)),
            backpressure: Backpressure::new(Arc::clone(&clock), options.memtable_seal_bytes()),
            helps: options.experiments.help && options.background_threads > 0,
            pipeline: Pipeline::new(newest, Arc::clone(&waits)),
            version: Versions::new(version),
            transactions: Transactions::new(self.tombstone_floor),
            options,
            db: self.db,
            volume: self.volume,
            clock,
            memory: self.memory,
            cache: self.cache,
            indexes,
            reads: self.reads,
            log,
            manifest,
            numbers,
            reserve: self.reserve,
            chunks: self.chunks,
            default_keyspace,
            replayed_bytes,
            waits,
            flushed_arenas: Mutex::default(),
            pins: Pins::default(),
            pins_taken: Mutex::default(),
            counters: Counters::default(),
            flush_queued: AtomicBool::new(false),
            spill_queued: AtomicBool::new(false),
            looks: Looks::default(),
            lifecycle: Lifecycle::default(),
        };
        Ok(Engine::new(shared, newest, job_order))
    }
}

/// Writes what was replayed to the indexes. If that fails, the log still holds it.
fn flush_replayed(engine: &Engine) {
    if let Err(error) = engine.background.flush_all()
        && error.kind() != ErrorKind::NoSpace
    {
        engine.shared.note_background_error(&error);
    }
}
