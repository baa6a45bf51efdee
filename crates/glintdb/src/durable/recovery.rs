//! Opening a database: the manifest, the indexes it names, and the log from the flush point on.
//!
//! Invariants:
//! 1. Nothing that was there is changed or removed before it is known to be readable, and every step can be repeated after a crash at any point. What openings that did not
//!    finish have written goes first: the log that it came from is there.
//! 2. The memory budget holds while the log is replayed: full memtables are written to index files meanwhile; they become visible only when the log they came from is
//!    durable and whole.
//! 3. A replayed sequence number follows the one before it; keyspace ids that are neither known nor recorded as dropped are corruption.

use crate::background::flush::write_generation;
use crate::background::install::{Pending, abandon, items_of};
use crate::db::DEFAULT_KEYSPACE;
use crate::durable::manifest::{
    FlushPoint, Found, Item, Loaded, Manifest, State, check_database, read_newest, unfinished_from,
};
use crate::durable::numbers::Numbers;
use crate::engine::{Engine, Env, IndexFactory, Parts};
use crate::options::{KeyspaceOptions, OpenProgress, Options};
use crate::space::reserve::Reserve;
use crate::space::trim::data_bytes;
use crate::state::version::{
    Generation, KeyspaceCounters, KeyspaceState, KeyspaceVersion, Version,
};
use crate::write::operations::{hide_covered, insert_entries};
use crate::{Error, ErrorKind, Result};
use glintdb_cache::Cache;
use glintdb_core::index::Index;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64};
use glintdb_core::{DbId, FileId, FileKind, FileNumbers, KeyspaceId, SeqNum};
use glintdb_flash::{ReadQueue, Volume};
use glintdb_log::{FrameView, Log, LogOp, LogOptions, LogSetup, Lsn};
use glintdb_lsm::LsmEnv;
use glintdb_memtable::{Arena, ChunkPool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Engine {
    /// Opens the database on a volume, creating it where there is none.
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
            // A crash while it was being created: the log was not begun.
            Some(loaded) if !loaded.has_begun() => opening.create_again(&loaded, number_next),
            Some(loaded) => opening.open_existing(loaded, number_next),
            None => opening.create(number_next),
        }
    }
}

/// What an open database is put together from.
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

/// Segments that an opening may walk, beside two for each MiB (or smaller segment) of log in them,
/// without a flush. Each opening makes a segment, so a database that is opened often and written
/// little would gather them without end.
const SEGMENTS_WALKED_MAX: u64 = 8;

/// Space that opening asks for beside the segment it goes on in: a manifest, and tables of a replay that does not fit memory.
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
        let reads = (options.read_batch_max > 0).then(|| {
            ReadQueue::new(
                Arc::clone(&volume),
                Arc::clone(&memory),
                Arc::clone(&env.clock),
                options.read_batch_max,
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
            // As many idle chunks as one generation has: the next one takes the memory of the one just flushed.
            chunks: ChunkPool::new(options.memtable_seal_bytes()),
            tombstone_floor: Arc::new(AtomicU64::new(0)),
            options,
        })
    }

    fn lsm_env(&self, numbers: &Arc<dyn FileNumbers>) -> IndexFactory {
        IndexFactory {
            env: LsmEnv {
                volume: Arc::clone(&self.volume),
                cache: Arc::clone(&self.cache),
                memory: Arc::clone(&self.memory),
                db: self.db,
                numbers: Arc::clone(numbers),
                run_bytes: self.options.run_bytes_expected(),
                tombstone_floor: Arc::clone(&self.tombstone_floor),
                reads: self.reads.clone(),
            },
        }
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

    /// Whether the segment is there, and this database's, where replay begins.
    fn check_log_start(&self, loaded: &Loaded) -> Result<()> {
        let segment = loaded.state.flush_point.lsn.segment;
        glintdb_log::check_segment(&*self.volume, loaded.db, segment)
    }

    /// Removes what a creation that was cut off has left, and creates. It can have left segments without a frame, and nothing else: where there is more, the manifest has lost
    /// the record that says where the log begins.
    fn create_again(mut self, loaded: &Loaded, manifest: u64) -> Result<Engine> {
        loaded.check_not_begun(&*self.volume)?;
        for file in self.volume.list()? {
            if file.kind != FileKind::Manifest {
                self.volume.delete(file)?;
            }
        }
        self.volume.sync_directory()?;
        // Numbers of files begin again, and nothing of the first attempt may pass for this one's.
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
        // Only now is there a log to replay; a manifest without this item says that nothing was ever stored.
        manifest.lock().commit(&[
            Item::FlushPoint(FlushPoint {
                lsn: log.next_lsn(),
                seqno: SeqNum::ZERO,
            }),
            Item::Ring(log.kept_ring_bytes()),
        ])?;
        let index = self.lsm_env(&numbers).create(&options)?;
        let default =
            self.keyspace_state(KeyspaceId(0), DEFAULT_KEYSPACE.to_owned(), options, index);
        let keyspaces = BTreeMap::from([(KeyspaceId(0), default)]);
        self.finish(keyspaces, manifest, numbers, log, SeqNum::ZERO, 0)
    }

    fn keyspace_state(
        &self,
        id: KeyspaceId,
        name: String,
        options: KeyspaceOptions,
        index: Arc<dyn Index>,
    ) -> Arc<KeyspaceState> {
        Arc::new(KeyspaceState {
            id,
            name,
            options: Mutex::new(options),
            separate_min_bytes: self.options.separate_min_bytes,
            index,
            dropped: AtomicBool::new(false),
            counters: KeyspaceCounters::default(),
            scattered: Default::default(),
        })
    }

    fn open_existing(self, loaded: Loaded, manifest_number: u64) -> Result<Engine> {
        // Before anything is written: a manifest that is not this database's would only make more that are not.
        if let Err(error) = self.check_log_start(&loaded) {
            check_database(&*self.volume, &loaded)?;
            return Err(error);
        }
        let mut state = loaded.state.clone();
        state.ring_bytes = Some(self.find_ring(&loaded)?);
        // Numbers of files that a crash left behind are below the durable high-water mark, so it is safe to go on from there.
        let cell = Arc::new(DeferredNumbers::default());
        let numbers: Arc<dyn FileNumbers> = Arc::clone(&cell) as Arc<dyn FileNumbers>;
        let factory = self.lsm_env(&numbers);
        let mut keyspaces = BTreeMap::new();
        for (id, record) in &loaded.state.keyspaces {
            let edits = loaded.edits.get(id).map_or(&[][..], Vec::as_slice);
            let index = factory
                .open(&record.options, edits)
                .map_err(|error| error.context(format!("open keyspace {:?}", record.name)))?;
            keyspaces.insert(
                *id,
                self.keyspace_state(*id, record.name.clone(), record.options.clone(), index),
            );
        }
        if !keyspaces.contains_key(&KeyspaceId(0)) {
            return Err(Error::corruption(
                FileId::new(FileKind::Manifest, loaded.number),
                0,
                "the default keyspace is missing",
            ));
        }
        self.remove_unfinished(&loaded, &keyspaces)?;
        let snapshots = keyspaces
            .iter()
            .map(|(id, keyspace)| (*id, keyspace.index.snapshot_edit()))
            .collect();
        let mut next_number = loaded.state.numbers_reserved;
        if glintdb_core::seeded::bug("glintdb: file numbers are given again after a crash") {
            next_number = next_number.saturating_sub(250).max(1);
        }
        let manifest = Manifest::create(
            Arc::clone(&self.volume),
            self.db,
            manifest_number,
            state,
            snapshots,
        )?;
        let manifest = Arc::new(Mutex::new(manifest));
        cell.set(Numbers::new(Arc::clone(&manifest), next_number));

        let mut replay = Replay {
            opening: &self,
            keyspaces: &keyspaces,
            loaded: &loaded,
            generation: self.generation(
                loaded.state.flush_point.seqno.next(),
                loaded.state.flush_point.lsn,
                keyspaces.keys().copied(),
            ),
            newest: loaded.state.flush_point.seqno,
            written: Vec::new(),
            bytes: 0,
        };
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
        let replayed_bytes = replay.bytes;
        let replayed = replay.finish(&manifest, recovered.next)?;
        let engine =
            self.finish_replayed(keyspaces, manifest, numbers, log, replayed, replayed_bytes)?;
        if !glintdb_core::seeded::bug("glintdb: files that no manifest names stay") {
            engine.remove_orphans()?;
        }
        let filled = replayed_bytes / log_options(&engine.options).segment_bytes_first();
        if walked > SEGMENTS_WALKED_MAX + 2 * filled {
            engine.flush_replayed();
        }
        engine.collect_garbage();
        Ok(engine)
    }

    /// Finds the log's ring, or makes it if no commit can be only in it. Returns how many bytes of
    /// commits may be only there from now on.
    fn find_ring(&self, loaded: &Loaded) -> Result<u64> {
        let needed = loaded.state.ring_bytes != Some(0) && !self.options.accept_missing_ring;
        if needed {
            loaded.check_ring(&*self.volume)?;
        }
        let bytes = match self.volume.existing_ring_bytes() {
            // No ring has that length. Nothing is lost with it.
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

    /// Gives the ring the size that the options say, and records in the manifest which ring the log
    /// has, before the first commit.
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

    /// Removes the tables that openings which did not finish have written from the log: each opening writes them again, and a row of them would fill the medium.
    fn remove_unfinished(
        &self,
        loaded: &Loaded,
        keyspaces: &BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    ) -> Result<()> {
        let Some(first) = unfinished_from(&*self.volume, loaded)? else {
            return Ok(());
        };
        let named = files_of(keyspaces.values().map(|keyspace| &keyspace.index));
        remove_tables(&*self.volume, |id| {
            id.number >= first && !named.contains(&id)
        })
    }

    fn finish(
        self,
        keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
        manifest: Arc<Mutex<Manifest>>,
        numbers: Arc<dyn FileNumbers>,
        log: Log,
        newest: SeqNum,
        replayed_bytes: u64,
    ) -> Result<Engine> {
        let generation = self.generation(newest.next(), log.next_lsn(), keyspaces.keys().copied());
        self.finish_replayed(
            keyspaces,
            manifest,
            numbers,
            log,
            Replayed { generation, newest },
            replayed_bytes,
        )
    }

    fn finish_replayed(
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
            let view = state.index.view();
            version = version.with_keyspace(KeyspaceVersion { state, view });
        }
        log.set_data_bytes(data_bytes(&manifest, &version));
        Ok(Engine::assemble(Parts {
            options: self.options,
            db: self.db,
            volume: self.volume,
            clock: self.env.clock,
            job_order: self.env.job_order,
            memory: self.memory,
            cache: self.cache,
            reads: self.reads,
            log: Arc::new(log),
            manifest,
            numbers,
            reserve: self.reserve,
            chunks: self.chunks,
            version,
            default_keyspace,
            tombstone_floor: self.tombstone_floor,
            newest: replayed.newest,
            replayed_bytes,
        }))
    }
}

/// What is left in memory after a replay.
struct Replayed {
    generation: Generation,
    newest: SeqNum,
}

/// A full generation, written to index files that no manifest names yet, with the newest commit in it and the place behind it.
type Written = (Vec<Pending>, SeqNum, Lsn);

fn give_up(written: impl IntoIterator<Item = Written>) {
    for (pending, _, _) in written {
        abandon(pending);
    }
}

/// A replay of the log into memtables.
struct Replay<'a> {
    opening: &'a Opening,
    keyspaces: &'a BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    loaded: &'a Loaded,
    generation: Generation,
    newest: SeqNum,
    /// Oldest first.
    written: Vec<Written>,
    /// Log replayed.
    bytes: u64,
}

impl Replay<'_> {
    fn frame(&mut self, frame: &FrameView<'_>) -> Result<()> {
        if frame.seqno() <= self.loaded.state.flush_point.seqno {
            return Ok(());
        }
        let wrong = |message: String| {
            Error::corruption(
                frame.lsn().segment.file(),
                u64::from(frame.lsn().offset),
                message,
            )
        };
        if frame.seqno() == self.loaded.state.flush_point.seqno.next()
            && glintdb_core::seeded::bug("glintdb: replay leaves out the frame at the flush point")
        {
            self.newest = frame.seqno();
            return Ok(());
        }
        if frame.seqno() != self.newest.next() {
            return Err(wrong(format!(
                "expected commit {}, found commit {}",
                self.newest.next(),
                frame.seqno()
            )));
        }
        if self.generation.filled_bytes() >= self.opening.options.memtable_seal_bytes() {
            self.write_out(frame.lsn())?;
        }
        let mut has_ranges = false;
        for entry in frame.entries() {
            has_ranges |= matches!(entry.op, LogOp::DeleteRange { .. });
            if self.generation.keyspace(entry.keyspace).is_none()
                && !self.loaded.state.dropped.contains_key(&entry.keyspace)
            {
                return Err(self.loaded.lacks(entry.keyspace, frame));
            }
        }
        let mut entries = frame.entries().count();
        if glintdb_core::seeded::bug("glintdb: replay leaves out the end of a batch") {
            entries = entries.div_ceil(2);
        }
        insert_entries(
            &self.generation,
            frame.seqno(),
            frame.entries().take(entries),
        );
        if has_ranges {
            hide_covered(&self.generation, frame.seqno(), frame.entries());
        }
        self.newest = frame.seqno();
        self.bytes += u64::from(frame.end().offset - frame.lsn().offset);
        Ok(())
    }

    /// Writes the full generation to index files and goes on with an empty one that begins at `next`.
    fn write_out(&mut self, next: Lsn) -> Result<()> {
        let empty =
            self.opening
                .generation(self.newest.next(), next, self.keyspaces.keys().copied());
        let full = std::mem::replace(&mut self.generation, empty);
        let reserve = &self.opening.reserve;
        let keyspaces = || self.keyspaces.values().cloned();
        let written = reserve.lending(|| write_generation(&full, keyspaces(), &mut |_| {}));
        let (pending, _) = written?;
        self.written.push((pending, self.newest, next));
        Ok(())
    }

    fn give_up(self) {
        give_up(self.written);
    }

    /// The log is durable and whole now: what was written from it becomes part of the database, oldest first.
    fn finish(self, manifest: &Arc<Mutex<Manifest>>, log_end: Lsn) -> Result<Replayed> {
        let mut manifest = manifest.lock();
        let mut written = self.written.into_iter();
        while let Some((pending, newest, next)) = written.next() {
            let point = FlushPoint {
                lsn: next,
                seqno: newest,
            };
            let items = items_of(&pending, Some(point));
            let committed = self.opening.reserve.lending(|| manifest.commit(&items));
            if let Err(error) = committed {
                // Of the edit itself the next opening decides where it is in doubt; those behind it were not begun.
                if manifest.check().is_ok() {
                    abandon(pending);
                }
                give_up(written);
                return Err(error);
            }
            for Pending { keyspace, change } in &pending {
                keyspace.index.apply(change)?;
            }
        }
        // From here on a hole before this place is damage, whoever wrote last. Where the disk is full, nobody is told.
        let mut items = vec![Item::LogDurable(log_end)];
        let nothing_in_memory = self.generation.first_seqno == self.newest.next();
        if nothing_in_memory {
            // The segments so far need not be walked again.
            items.push(Item::FlushPoint(FlushPoint {
                lsn: log_end,
                seqno: self.newest,
            }));
        }
        match manifest.commit(&items) {
            Err(error) if error.kind() != ErrorKind::NoSpace => return Err(error),
            _ => {}
        }
        // Everything that the manifest names was found; the old one held nothing else.
        manifest.remove_older()?;
        let mut generation = self.generation;
        if nothing_in_memory {
            // Replay would begin behind everything there is.
            generation.start_lsn = log_end;
        }
        let mut newest = self.newest;
        if glintdb_core::seeded::bug("glintdb: sequence numbers are given again after recovery") {
            newest = self.loaded.state.flush_point.seqno;
        }
        Ok(Replayed { generation, newest })
    }
}

/// File numbers that exist only once the manifest does.
#[derive(Default)]
struct DeferredNumbers {
    numbers: Mutex<Option<Numbers>>,
}

impl DeferredNumbers {
    fn set(&self, numbers: Numbers) {
        *self.numbers.lock() = Some(numbers);
    }
}

impl FileNumbers for DeferredNumbers {
    fn next(&self) -> Result<u64> {
        match &*self.numbers.lock() {
            Some(numbers) => numbers.next(),
            None => Err(Error::invalid("no file is created before the manifest is")),
        }
    }
}

impl Engine {
    /// Writes what was replayed to the indexes. Where that fails the log holds it all the same, as when a flush fails later.
    fn flush_replayed(&self) {
        if let Err(error) = self.flush_all()
            && error.kind() != ErrorKind::NoSpace
        {
            self.note_background_error(&error);
        }
    }

    /// Removes tables that no index names: outputs of flushes and compactions that a crash cut off.
    fn remove_orphans(&self) -> Result<()> {
        let version = self.version.load();
        let named = files_of(
            version
                .live_keyspaces()
                .map(|keyspace| &keyspace.state.index),
        );
        remove_tables(&*self.volume, |id| !named.contains(&id))
    }
}

fn files_of<'a>(indexes: impl Iterator<Item = &'a Arc<dyn Index>>) -> BTreeSet<FileId> {
    indexes.flat_map(|index| index.files()).collect()
}

fn remove_tables(volume: &dyn Volume, unwanted: impl Fn(FileId) -> bool) -> Result<()> {
    let mut removed = false;
    for id in volume.list()? {
        if id.kind.is_index() && unwanted(id) {
            volume.delete(id)?;
            removed = true;
        }
    }
    match removed {
        true => volume.sync_directory(),
        false => Ok(()),
    }
}
