//! Figures of everything, gathered when asked.

use crate::engine::Engine;
use crate::resident::Resident;
use crate::waits::WaitStats;
use glintdb_core::SegmentId;
use glintdb_core::index::IndexStats;
use glintdb_core::memory::MemoryPart;
use glintdb_flash::ReadQueueStats;
use std::sync::atomic::Ordering;

/// Figures of a database. Sizes in bytes; counters since open.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Newest visible commit.
    pub seqno: u64,
    /// Commits since open.
    pub commits: u64,
    /// Operations in them.
    pub operations: u64,
    /// Bytes of keys and values in them.
    pub user_bytes: u64,
    /// Transactions that lost.
    pub conflicts: u64,
    /// Memory.
    pub memory: MemoryStats,
    /// The data log.
    pub log: LogFigures,
    /// Value GC.
    pub value_gc: ValueGcFigures,
    /// Keyspaces, in the order they were created.
    pub keyspaces: Vec<KeyspaceStats>,
    /// What the volume did since open.
    pub volume: VolumeFigures,
    /// How compactions get their input.
    pub compaction_reads: ReadAheadFigures,
    /// What threads that waited did for compactions.
    pub help: HelpFigures,
    /// Cache lookups that hit, and that missed.
    pub cache_hits: u64,
    /// See `cache_hits`.
    pub cache_misses: u64,
    /// Reads of blocks and values spared because another thread was reading the same.
    pub coalesced_reads: u64,
    /// Threads that wait now for what another one reads.
    pub coalesced_waiting: u64,
    /// Waits by name.
    pub waits: Vec<WaitStats>,
    /// Jobs that wait to be run, by name.
    pub jobs_waiting: Vec<String>,
    /// Jobs that run now.
    pub jobs_running: u64,
    /// Snapshots, transactions and iterators that are open.
    pub pins: u64,
    /// Transactions that are running.
    pub transactions: u64,
    /// Memory that only they keep.
    pub pinned_bytes: u64,
    /// Snapshots that were given up because too much was pinned.
    pub snapshots_given_up: u64,
    /// Rate at which writers are slowed now, in bytes a second of what indexes take in; 0: not slowed.
    pub write_rate_max: u64,
    /// Rate at which writers are slowed because memtables fill faster than they are flushed, in bytes a second for indexes; 0: not slowed.
    pub memtable_rate_max: u64,
    /// Bytes a second that the last flushes wrote, about; a guess before the first.
    pub flush_bytes_per_s: u64,
    /// Whether writers are stopped until a compaction is through.
    pub writes_stopped: bool,
    /// Bytes written to log segments, tables and the manifest; without the ring, and without space that is only preallocated.
    pub disk_bytes: u64,
    /// Space kept for a full disk, in bytes, beside the log's two spare segments; not in `disk_bytes`.
    pub reserve_bytes: u64,
    /// Whether the medium is so full that the reserve is in use; puts are refused until there is space again.
    pub reserve_lent: bool,
    /// Flushes that are only in memory now (`pin_mode`).
    pub resident_runs: u64,
    /// Log that they keep: opening would replay it, beside that of memtables.
    pub resident_log_bytes: u64,
    /// Bytes of log that opening replayed.
    pub replayed_bytes: u64,
    /// What keeps background jobs from going on, if anything does.
    pub background_error: Option<String>,
}

/// Memory by part.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryStats {
    /// `memory_budget_bytes`.
    pub budget_bytes: u64,
    /// All parts together.
    pub used_bytes: u64,
    /// Name and bytes of each part.
    pub parts: Vec<(&'static str, u64)>,
}

/// The data log.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LogFigures {
    /// Segments.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of separated values that persisted indexes point at, but for those in segments that are retired: their files are gone, or wait for a reader.
    pub live_value_bytes: u64,
    /// Bytes of separated values that persisted indexes point at in segments that are retired: entries that compactions have yet to drop.
    pub stale_value_bytes: u64,
    /// Bytes written by value GC since open.
    pub relocated_bytes: u64,
    /// Bytes of frames put into the log since open.
    pub appended_bytes: u64,
    /// Bytes in the ring that are not in a segment yet.
    pub unspilled_bytes: u64,
    /// Groups of commits synced together.
    pub sync_groups: u64,
    /// Whether an `Os` commit needs no system call.
    pub ring_survives_kill: bool,
}

/// Value GC.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ValueGcFigures {
    /// Rounds since open.
    pub rounds: u64,
    /// Rounds that were given up.
    pub given_up: u64,
    /// Segments retired.
    pub victims: u64,
    /// Records found in them, dead ones too.
    pub records: u64,
    /// Records that were moved.
    pub relocated_records: u64,
    /// Of these, records whose values were taken from the cache (`Options::cache_written_min_bytes`).
    pub cached_records: u64,
    /// Records that were put in the order of their keys, as scans have called for it.
    pub ordered_records: u64,
    /// Of what indexes' files point to, the share that is shadowed or hidden: by what rounds have found.
    pub hidden_share: f64,
    /// Bytes of log segments that are not live, about, as far as flushes have told; and how many there may be, together with what is not flushed.
    pub garbage_bytes: u64,
    /// See `garbage_bytes`.
    pub garbage_bytes_max: u64,
    /// Bytes of log segments that no flush has told of, about: all of them may be live, or hidden by what was written later.
    pub unflushed_bytes: u64,
    /// Rate at which writers are slowed for space now, in bytes of log a second; 0: not slowed.
    pub write_rate_max: u64,
    /// Whether writers wait until a round has given space back. Deletions do not.
    pub writes_stopped: bool,
    /// Damaged segments, which stay as they are.
    pub left_alone: u64,
    /// What was wrong with the first of them.
    pub error: Option<String>,
}

/// One keyspace.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyspaceStats {
    /// Name.
    pub name: String,
    /// Keys in memtables.
    pub memtable_keys: u64,
    /// Memory of runs that are only in memory (`pin_mode`), and entries in them. A lookup visits them without a read.
    pub resident_bytes: u64,
    /// See `resident_bytes`.
    pub resident_entries: u64,
    /// Flushes since open, and entries they wrote.
    pub flushes: u64,
    /// See `flushes`.
    pub flushed_entries: u64,
    /// The levels that hold or may hold tables, from level 0 down.
    pub levels: Vec<LevelFigures>,
    /// Bytes of the index's files.
    pub index_bytes: u64,
    /// Entries in the index, tombstones included.
    pub index_entries: u64,
    /// Tombstones in the index.
    pub index_tombstones: u64,
    /// Compactions since open, bytes they read and wrote, and bytes they moved without writing.
    pub compactions: u64,
    /// See `compactions`.
    pub compaction_read_bytes: u64,
    /// See `compactions`.
    pub compaction_written_bytes: u64,
    /// See `compactions`.
    pub moved_bytes: u64,
    /// Most block reads that a point lookup can take now, pinned levels taken into account; a separated value is one more.
    pub lookup_reads_max: u32,
    /// Point lookups in the index since open, by the number of blocks they read from the medium (0, 1, 2 …); the last one counts those with that many or more.
    pub lookups_by_reads: Vec<u64>,
    /// Levels whose key blocks are pinned, counted from the top with level 0 as the first.
    pub pinned_levels: u32,
    /// Memory of pinned key blocks.
    pub pinned_index_bytes: u64,
}

/// One level of an LSM index.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LevelFigures {
    /// Its number; 0 is the newest.
    pub level: u32,
    /// Tables in it.
    pub tables: u32,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes it may hold before it is compacted; 0 where it has no target.
    pub target_bytes: u64,
}

/// Input of compactions, which is read ahead in pieces.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReadAheadFigures {
    /// Bytes that compactions had read.
    pub owner_bytes: u64,
    /// Bytes that other threads had read meanwhile, while they waited.
    pub helper_bytes: u64,
    /// Batches of reads.
    pub batches: u64,
    /// Pieces that were begun before the merge wanted them, and for how long it waited for them all the same.
    pub hits: u64,
    /// See `hits`.
    pub hit_wait_us: u64,
    /// Pieces that were read only then, and for how long the merge waited for them.
    pub misses: u64,
    /// See `misses`.
    pub miss_wait_us: u64,
    /// Bytes read for compactions that were given up.
    pub withdrawn_bytes: u64,
    /// Time that merges were spared, in microseconds: an estimate, by what a miss costs in the mean.
    pub saved_us: u64,
}

/// What threads that waited for something else did for compactions; what they had read is in [`ReadAheadFigures::helper_bytes`].
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HelpFigures {
    /// Steps of merges.
    pub steps: u64,
    /// Time they took, in microseconds: about what background threads were spared of, an estimate of the stall time saved.
    pub time_us: u64,
}

/// What the volume did.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct VolumeFigures {
    /// How reads and writes are done, and why not better.
    pub description: String,
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Batches of reads.
    pub read_batches: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
}

impl ReadAheadFigures {
    fn new(stats: &ReadQueueStats) -> Self {
        let miss_us = stats.miss_wait_us.checked_div(stats.misses).unwrap_or(0);
        let saved_us = stats.hits.saturating_mul(miss_us);
        ReadAheadFigures {
            owner_bytes: stats.owner_bytes,
            helper_bytes: stats.helper_bytes,
            batches: stats.batches,
            hits: stats.hits,
            hit_wait_us: stats.hit_wait_us,
            misses: stats.misses,
            miss_wait_us: stats.miss_wait_us,
            withdrawn_bytes: stats.withdrawn_bytes,
            saved_us: saved_us.saturating_sub(stats.hit_wait_us),
        }
    }
}

impl KeyspaceStats {
    fn new(name: &str, index: &IndexStats) -> Self {
        KeyspaceStats {
            name: name.to_owned(),
            levels: (0..)
                .zip(&index.levels)
                .filter(|(level, figures)| {
                    *level == 0 || figures.tables > 0 || figures.target_bytes > 0
                })
                .map(|(level, figures)| LevelFigures {
                    level,
                    tables: figures.tables,
                    bytes: figures.bytes,
                    entries: figures.entries,
                    target_bytes: figures.target_bytes,
                })
                .collect(),
            index_bytes: index.bytes,
            index_entries: index.entries,
            index_tombstones: index.tombstones,
            compactions: index.compactions,
            compaction_read_bytes: index.compaction_read_bytes,
            compaction_written_bytes: index.compaction_written_bytes,
            moved_bytes: index.moved_bytes,
            lookup_reads_max: index.lookup_reads_max,
            lookups_by_reads: index.lookups_by_reads.to_vec(),
            pinned_levels: index.pinned_levels,
            pinned_index_bytes: index.pinned_bytes,
            ..KeyspaceStats::default()
        }
    }
}

impl Engine {
    /// Gathers all figures.
    pub(crate) fn stats(&self) -> Stats {
        self.update_memory();
        let version = self.version.load_full();
        let keyspaces: Vec<KeyspaceStats> = version
            .live_keyspaces()
            .map(|keyspace| {
                let state = &keyspace.state;
                let resident = keyspace.resident.as_ref();
                let in_memory = version
                    .generations()
                    .filter_map(|generation| generation.keyspace(state.id));
                KeyspaceStats {
                    memtable_keys: in_memory.map(|mem| mem.map.len() as u64).sum(),
                    resident_bytes: resident.map_or(0, |held| held.image.bytes() as u64),
                    resident_entries: resident.map_or(0, Resident::entries),
                    flushes: state.counters.flushes.load(Ordering::Relaxed),
                    flushed_entries: state.counters.flushed_entries.load(Ordering::Relaxed),
                    ..KeyspaceStats::new(&state.name, &keyspace.view.stats())
                }
            })
            .collect();
        let counts = self.sequencer.lock().counts();
        let log_stats = self.log.stats();
        let log_bytes = self
            .log
            .segments()
            .map(|segments| segments.iter().map(|segment| segment.file_bytes).sum())
            .unwrap_or(0);
        let (live_value_bytes, stale_value_bytes, manifest_bytes) = {
            let manifest = self.manifest.lock();
            let state = manifest.state();
            let held = |segments: &mut dyn Iterator<Item = SegmentId>| -> u64 {
                segments.map(|segment| state.live_bytes(segment)).sum()
            };
            (
                held(&mut state.live_segments().into_iter()),
                held(&mut state.retired.iter().copied()),
                manifest.bytes(),
            )
        };
        self.take_account();
        let gc = self.gc.known();
        let volume = self.volume.stats();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let cache = self.cache.stats();
        Stats {
            seqno: self.pipeline.visible().0,
            commits: counts.commits,
            operations: counts.operations,
            user_bytes: counts.user_bytes,
            conflicts: load(&self.counters.conflicts),
            memory: MemoryStats {
                budget_bytes: self.memory.total_bytes() as u64,
                used_bytes: self.memory.used_bytes_total() as u64,
                parts: MemoryPart::ALL
                    .iter()
                    .map(|&part| (part.name(), self.memory.used_bytes(part) as u64))
                    .collect(),
            },
            log: LogFigures {
                segments: log_stats.segments,
                bytes: log_bytes,
                live_value_bytes,
                stale_value_bytes,
                relocated_bytes: log_stats.relocated_bytes,
                appended_bytes: log_stats.appended_bytes,
                unspilled_bytes: log_stats.unspilled_bytes,
                sync_groups: log_stats.sync_groups,
                ring_survives_kill: log_stats.ring_survives_kill,
            },
            value_gc: ValueGcFigures {
                rounds: load(&self.gc.counters.rounds),
                given_up: load(&self.gc.counters.given_up),
                victims: load(&self.gc.counters.victims),
                records: load(&self.gc.counters.records),
                relocated_records: load(&self.gc.counters.relocated_records),
                cached_records: load(&self.gc.counters.cached_records),
                ordered_records: load(&self.gc.counters.ordered_records),
                hidden_share: gc.account.hidden_share,
                garbage_bytes: gc.account.known_garbage_bytes(),
                garbage_bytes_max: gc.account.allowed_bytes,
                unflushed_bytes: gc.account.unflushed_bytes + gc.account.grown(&self.log),
                write_rate_max: self.gc.brake.rate(),
                writes_stopped: self.gc.brake.stopped(),
                left_alone: gc.left_alone,
                error: gc.error,
            },
            disk_bytes: log_bytes
                + manifest_bytes
                + keyspaces
                    .iter()
                    .map(|keyspace| keyspace.index_bytes)
                    .sum::<u64>(),
            reserve_bytes: self.reserve.bytes(),
            reserve_lent: self.reserve.is_lent(),
            keyspaces,
            volume: VolumeFigures {
                description: self.volume.describe(),
                reads: volume.reads,
                read_bytes: volume.read_bytes,
                read_batches: volume.read_batches,
                writes: volume.writes,
                written_bytes: volume.written_bytes,
                syncs: volume.syncs,
            },
            compaction_reads: self.reads.as_ref().map_or_else(Default::default, |reads| {
                ReadAheadFigures::new(&reads.stats())
            }),
            help: HelpFigures {
                steps: self.helping.steps.load(Ordering::Relaxed),
                time_us: self.helping.time_us.load(Ordering::Relaxed),
            },
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            coalesced_reads: cache.coalesced,
            coalesced_waiting: cache.waiting,
            waits: self.waits.stats(),
            jobs_waiting: self.jobs.names(),
            jobs_running: self.jobs.counts().1 as u64,
            pins: self.pins.count() as u64,
            transactions: self.transactions.count() as u64,
            pinned_bytes: self.pinned_bytes() as u64,
            snapshots_given_up: load(&self.counters.snapshots_given_up),
            write_rate_max: self.throttle.rate(),
            memtable_rate_max: self.drain.rate(),
            flush_bytes_per_s: self.drain.flushed_rate(),
            writes_stopped: self.throttle.stopped(),
            resident_runs: version.held.runs.into(),
            resident_log_bytes: version.held.log_bytes,
            replayed_bytes: self.replayed_bytes,
            background_error: self
                .background_error
                .lock()
                .as_ref()
                .map(ToString::to_string),
        }
    }
}
