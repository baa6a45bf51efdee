//! Figures of an open database, collected when [`Db::stats`](crate::Db::stats) is called.

use crate::engine::Engine;
use crate::write::backpressure::waits::WaitStats;
use glintdb_core::SegmentId;
use glintdb_core::index::IndexStats;
use glintdb_core::memory::MemoryPart;
use glintdb_flash::{ClassStats, DeviceStats, PlacementChange, ReadQueueStats, UnitStats};
use std::sync::atomic::Ordering;

/// Figures of an open database, from [`Db::stats`](crate::Db::stats). Sizes are in bytes. Counters
/// start at 0 when the database is opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Sequence number of the newest visible commit.
    pub seqno: u64,
    /// Number of commits.
    pub commits: u64,
    /// Number of operations in all commits: puts, deletions and range deletions.
    pub operations: u64,
    /// Bytes of keys and values in all commits.
    pub user_bytes: u64,
    /// Number of transactions whose commit failed with `Conflict`.
    pub conflicts: u64,
    /// Number of deleted entries that iterators passed one by one.
    pub deleted_passed: u64,
    /// Memory in use, by part.
    pub memory: MemoryStats,
    /// Figures of the data log.
    pub log: LogFigures,
    /// Figures of value GC.
    pub value_gc: ValueGcFigures,
    /// Figures of each keyspace, in the order in which they were created.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Figures of file operations.
    pub volume: VolumeFigures,
    /// How compactions got their input.
    pub compaction_reads: ReadAheadFigures,
    /// Lookups of key blocks and values that the cache answered.
    pub cache_hits: u64,
    /// Lookups of key blocks and values that the cache could not answer.
    pub cache_misses: u64,
    /// Waits of threads by cause.
    pub waits: Vec<WaitStats>,
    /// Names of the background jobs that wait to run.
    pub jobs_waiting: Vec<String>,
    /// Number of background jobs that run now.
    pub jobs_running: u64,
    /// Number of open snapshots, transactions and iterators, and of checkpoints that are being
    /// made.
    pub pins: u64,
    /// Number of open transactions.
    pub transactions: u64,
    /// Memory kept alive only by open snapshots, transactions and iterators.
    pub pinned_bytes: u64,
    /// Snapshots, transactions and iterators that were given up because `pinned_bytes` exceeded
    /// `Options::snapshot_pin_bytes_max`.
    pub snapshots_given_up: u64,
    /// The least [`KeyspaceStats::write_rate_max`] of a keyspace whose writers are slowed. 0 if
    /// none are.
    pub write_rate_max: u64,
    /// Bytes per second to which a running flush slows writers now, counted as bytes of index
    /// entries. 0 if writers are not slowed.
    pub memtable_rate_max: u64,
    /// Bytes per second that recent flushes wrote, smoothed. A guess before the first flush.
    pub flush_bytes_per_s: u64,
    /// Whether writers to some keyspace are stopped now ([`KeyspaceStats::writes_stopped`]).
    pub writes_stopped: bool,
    /// Bytes written to log segments, tables and the manifest. Does not include the ring and space
    /// that is only preallocated.
    pub disk_bytes: u64,
    /// Bytes reserved for a full disk, beside the two spare segments of the log. Not included in
    /// `disk_bytes`.
    pub reserve_bytes: u64,
    /// Whether the disk is so full that the reserve is in use. Puts fail with `NoSpace` until there
    /// is space again.
    pub reserve_lent: bool,
    /// Bytes of log that opening replayed.
    pub replayed_bytes: u64,
    /// The error that keeps background jobs from continuing, if there is one.
    pub background_error: Option<String>,
}

/// Memory in use, by part.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// `Options::memory_budget_bytes`.
    pub budget_bytes: u64,
    /// Bytes used by all parts together.
    pub used_bytes: u64,
    /// Name and bytes of each part.
    pub parts: Vec<(&'static str, u64)>,
}

/// Figures of the data log.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LogFigures {
    /// Number of segments, the prepared one included.
    pub segments: u64,
    /// Bytes of the segments' files.
    pub bytes: u64,
    /// Bytes of separated values that durable index entries point to, in segments that are not
    /// retired.
    pub live_value_bytes: u64,
    /// Bytes of separated values that durable index entries point to in retired segments.
    /// Compactions have yet to drop these entries.
    pub stale_value_bytes: u64,
    /// Bytes that value GC wrote to segments since the database was opened.
    pub relocated_bytes: u64,
    /// Bytes of commits put into the log since the database was opened.
    pub appended_bytes: u64,
    /// Bytes in the ring that have not been moved to a segment yet.
    pub unspilled_bytes: u64,
    /// Number of syncs that made a group of commits durable, since the database was opened.
    pub sync_groups: u64,
    /// Whether the ring is mapped so that it survives a killed process. Then an `Os` commit needs
    /// no system call.
    pub ring_survives_kill: bool,
}

/// Figures of value GC, which returns the space of dead separated values. Counters start at 0 when
/// the database is opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ValueGcFigures {
    /// Number of rounds.
    pub rounds: u64,
    /// Number of rounds that were given up.
    pub given_up: u64,
    /// Number of segments that rounds emptied and retired.
    pub victims: u64,
    /// Number of records that rounds found in the segments they emptied, dead ones included.
    pub records: u64,
    /// Number of records that rounds moved.
    pub relocated_records: u64,
    /// Number of moved records whose values came from the cache
    /// (option `cache_written_min_bytes`).
    pub cached_records: u64,
    /// Number of records rewritten in key order for scans (option `order_for_scans`).
    pub ordered_records: u64,
    /// Share of the values that index entries point to but that newer entries hide, as estimated
    /// from earlier rounds. 0 to 1.
    pub hidden_share: f64,
    /// Bytes in log segments that are known to be garbage. An estimate that leaves out
    /// `unflushed_bytes`.
    pub garbage_bytes: u64,
    /// Bytes that garbage and unflushed commits may take together in log segments, by
    /// `Options::space_amp_max` and `Options::garbage_bytes_min`.
    pub garbage_bytes_max: u64,
    /// Bytes in log segments whose commits have not been flushed. All of them may be live, or newer
    /// commits may have replaced them.
    pub unflushed_bytes: u64,
    /// Bytes of log per second to which the bound on space slows writers now. 0 if writers are not
    /// slowed.
    pub write_rate_max: u64,
    /// Whether writers wait now until a round returns space. Deletions do not wait.
    pub writes_stopped: bool,
    /// Number of damaged segments, which value GC does not touch.
    pub left_alone: u64,
    /// The first error that value GC met in a segment, if there was one.
    pub error: Option<String>,
}

/// Figures of one keyspace.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Name of the keyspace.
    pub name: String,
    /// Entries in memtables: keys that were written and not flushed yet. A key can have an entry in
    /// several memtables and levels, so entries do not add up to keys:
    /// [`Keyspace::count`](crate::Keyspace::count) counts keys.
    pub memtable_keys: u64,
    /// Number of flushes since the database was opened.
    pub flushes: u64,
    /// Number of entries that flushes wrote since the database was opened.
    pub flushed_entries: u64,
    /// Levels that hold tables or have a target size, from level 0 down.
    pub levels: Vec<LevelFigures>,
    /// Kind of the index: `lsm`.
    pub index_kind: String,
    /// Number of the index's files.
    pub index_files: u64,
    /// Bytes of the index's files.
    pub index_bytes: u64,
    /// Bytes of the index's files that it still needs. The rest is garbage.
    pub index_live_bytes: u64,
    /// Number of entries in the index, tombstones and overwritten entries included.
    pub index_entries: u64,
    /// Number of tombstones and range tombstones in the index.
    pub index_tombstones: u64,
    /// Number of compactions finished since the database was opened.
    pub compactions: u64,
    /// Bytes that compactions read since the database was opened.
    pub compaction_read_bytes: u64,
    /// Bytes that compactions wrote since the database was opened.
    pub compaction_written_bytes: u64,
    /// Bytes of tables that compactions moved to another level without rewriting them, since the
    /// database was opened.
    pub moved_bytes: u64,
    /// Most key blocks that a point lookup can read from the device now. Pinned levels cost none. A
    /// separated value is one more read.
    pub lookup_reads_max: u32,
    /// Number of point lookups in the index that read 0, 1, 2 … key blocks from the device, since
    /// the database was opened. The last element counts lookups with that many or more reads.
    pub lookups_by_reads: Vec<u64>,
    /// Number of levels whose key blocks are pinned in memory, counted from level 0.
    pub pinned_levels: u32,
    /// Memory of pinned key blocks.
    pub pinned_index_bytes: u64,
    /// Bytes per second to which the debt of compactions slows writers to this keyspace now,
    /// counted as bytes of index entries. 0 if they are not slowed.
    pub write_rate_max: u64,
    /// Whether writers to this keyspace are stopped now until a compaction relieves level 0.
    pub writes_stopped: bool,
}

/// Figures of one level of an LSM index.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelFigures {
    /// Number of the level. Level 0 holds the newest entries.
    pub level: u32,
    /// Number of tables.
    pub tables: u32,
    /// Bytes of the tables' files.
    pub bytes: u64,
    /// Number of entries in the tables.
    pub entries: u64,
    /// Bytes that the level may hold before it is compacted. 0 if it has no target.
    pub target_bytes: u64,
}

/// How compactions got their input, which is read ahead in pieces of 256 KiB.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReadAheadFigures {
    /// Bytes whose read a compaction began itself.
    pub owner_bytes: u64,
    /// Bytes whose read another thread began while it waited for something else.
    pub helper_bytes: u64,
    /// Number of batches of reads.
    pub batches: u64,
    /// Number of pieces whose read had begun before the merge needed them.
    pub hits: u64,
    /// Time that merges waited for pieces whose read had begun early, in microseconds.
    pub hit_wait_us: u64,
    /// Number of pieces whose read began when the merge needed them.
    pub misses: u64,
    /// Time that merges waited for pieces whose read had not begun early, in microseconds.
    pub miss_wait_us: u64,
    /// Bytes read for compactions that were given up.
    pub withdrawn_bytes: u64,
    /// Waiting time that reading ahead saved, in microseconds: `hits` times the mean wait of a
    /// miss, less `hit_wait_us`.
    pub saved_us: u64,
}

/// Figures of file operations since the database was opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VolumeFigures {
    /// How reads and writes are done, and why faster ways were refused.
    pub description: String,
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of batches of reads.
    pub read_batches: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written, without commits copied into the ring.
    pub written_bytes: u64,
    /// Number of syncs of files, of the ring and of the directory.
    pub syncs: u64,
    /// Time that threads have waited for reads, in microseconds. Threads that wait at the same time
    /// count apart.
    pub read_us: u64,
    /// Time that threads have waited for writes, in microseconds.
    pub write_us: u64,
    /// Time that threads have waited for syncs, in microseconds.
    pub sync_us: u64,
    /// Figures of each of several directories, or of each unit of a modelled device. Empty for a
    /// database in one directory.
    pub units: Vec<UnitFigures>,
    /// Figures of each class of data, where there are `units`.
    pub classes: Vec<ClassFigures>,
    /// Figures of a modelled device; `None` if it is none.
    pub device: Option<DeviceFigures>,
}

/// Figures of a modelled device since it was opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceFigures {
    /// Bytes that the engine has written, in whole sectors of 4 KiB.
    pub host_bytes: u64,
    /// Bytes that were programmed.
    pub programmed_bytes: u64,
    /// Bytes that were programmed for each byte that was written.
    pub write_amp_device: f64,
    /// Bytes of rows that were filled up because of a sync.
    pub padding_bytes: u64,
    /// Bytes that the device's collector has moved.
    pub moved_bytes: u64,
    /// Fewest erases of a free block.
    pub wear_min: u32,
    /// Most erases of a free block.
    pub wear_max: u32,
    /// Changes between striping and isolation, if the placement is dynamic.
    pub placement_changes: Vec<PlacementChangeFigures>,
}

/// A change of the placement of new files.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PlacementChangeFigures {
    /// Time of the clock, in microseconds since its start.
    pub at_us: u64,
    /// Whether new files are isolated from then on.
    pub is_isolated: bool,
    /// Part of the time in which units of the busiest group would program, if files were isolated.
    pub busy: f64,
    /// Part of the time of small reads that they waited for programs and erases.
    pub wait: f64,
    /// How often a small read would meet a program if files were isolated, divided by how often it
    /// would if they were striped.
    pub meetings: f64,
}

impl From<DeviceStats> for DeviceFigures {
    fn from(device: DeviceStats) -> Self {
        let change = |change: PlacementChange| PlacementChangeFigures {
            at_us: change.at_ns / 1000,
            is_isolated: change.is_isolated,
            busy: change.busy,
            wait: change.wait,
            meetings: change.meetings,
        };
        DeviceFigures {
            host_bytes: device.host_bytes,
            programmed_bytes: device.programmed_bytes,
            write_amp_device: device.programmed_bytes as f64 / device.host_bytes.max(1) as f64,
            padding_bytes: device.padding_bytes,
            moved_bytes: device.moved_bytes,
            wear_min: device.wear.0,
            wear_max: device.wear.1,
            placement_changes: device.changes.into_iter().map(change).collect(),
        }
    }
}

/// Figures of a directory of several, or of a unit of a modelled device, since the database was
/// opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnitFigures {
    /// Path of the directory, or number of the unit.
    pub name: String,
    /// Number of reads that the engine asked for.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Number of writes that the engine asked for.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Number of files that it was given because the directories of their class had no room.
    pub overflow_files: u64,
    /// Bytes free for new files, if that is known.
    pub free_bytes: Option<u64>,
}

/// Figures of a class of data, such as `log`, `flush` (tables of flushes) or `level 2`, since the
/// database was opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClassFigures {
    /// Name of the class.
    pub name: String,
    /// Number of reads that the engine asked for.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Number of writes that the engine asked for.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
}

impl From<UnitStats> for UnitFigures {
    fn from(unit: UnitStats) -> Self {
        UnitFigures {
            name: unit.name,
            reads: unit.reads,
            read_bytes: unit.read_bytes,
            writes: unit.writes,
            written_bytes: unit.written_bytes,
            overflow_files: unit.overflow_files,
            free_bytes: unit.free_bytes,
        }
    }
}

impl From<ClassStats> for ClassFigures {
    fn from(class: ClassStats) -> Self {
        ClassFigures {
            name: class.name,
            reads: class.reads,
            read_bytes: class.read_bytes,
            writes: class.writes,
            written_bytes: class.written_bytes,
        }
    }
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
                    *level == 0 || figures.parts > 0 || figures.target_bytes > 0
                })
                .map(|(level, figures)| LevelFigures {
                    level,
                    tables: figures.parts,
                    bytes: figures.bytes,
                    entries: figures.entries,
                    target_bytes: figures.target_bytes,
                })
                .collect(),
            index_kind: index.kind.to_owned(),
            index_files: index.files,
            index_bytes: index.bytes,
            index_live_bytes: index.live_bytes,
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

fn into_all<T, U: From<T>>(all: Vec<T>) -> Vec<U> {
    all.into_iter().map(U::from).collect()
}

impl Engine {
    /// Collects all figures.
    pub(crate) fn stats(&self) -> Stats {
        if self.shared.is_forked() {
            return Stats::default();
        }
        self.shared.update_memory();
        let version = self.shared.version.load_full();
        let keyspaces: Vec<KeyspaceStats> = version
            .live_keyspaces()
            .map(|keyspace| {
                let state = &keyspace.state;
                let in_memory = version
                    .generations()
                    .filter_map(|generation| generation.keyspace(state.id));
                KeyspaceStats {
                    memtable_keys: in_memory.map(|mem| mem.map.len() as u64).sum(),
                    flushes: state.counters.flushes.load(Ordering::Relaxed),
                    flushed_entries: state.counters.flushed_entries.load(Ordering::Relaxed),
                    write_rate_max: state.debt.rate(),
                    writes_stopped: state.debt.stopped(),
                    ..KeyspaceStats::new(&state.name, &keyspace.view.stats())
                }
            })
            .collect();
        let rates = keyspaces.iter().map(|keyspace| keyspace.write_rate_max);
        let write_rate_max = rates.filter(|&rate| rate > 0).min().unwrap_or(0);
        let writes_stopped = keyspaces.iter().any(|keyspace| keyspace.writes_stopped);
        let counts = self.sequencer.counts();
        let log_stats = self.shared.log.stats();
        let log_bytes = self
            .shared
            .log
            .segments()
            .map(|segments| segments.iter().map(|segment| segment.file_bytes).sum())
            .unwrap_or(0);
        let (live_value_bytes, stale_value_bytes, manifest_bytes) = {
            let manifest = self.shared.manifest.lock();
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
        self.space.take_account();
        let gc = self.space.gc().known();
        let volume = self.shared.volume.stats();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let cache = self.shared.cache.stats();
        Stats {
            seqno: self.shared.pipeline.visible().0,
            commits: counts.commits,
            operations: counts.operations,
            user_bytes: counts.user_bytes,
            conflicts: load(&self.shared.counters.conflicts),
            deleted_passed: load(&self.shared.counters.deleted_passed),
            memory: MemoryStats {
                budget_bytes: self.shared.memory.total_bytes() as u64,
                used_bytes: self.shared.memory.used_bytes_total() as u64,
                parts: MemoryPart::ALL
                    .iter()
                    .map(|&part| (part.name(), self.shared.memory.used_bytes(part) as u64))
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
                rounds: load(&self.space.gc().counters.rounds),
                given_up: load(&self.space.gc().counters.given_up),
                victims: load(&self.space.gc().counters.victims),
                records: load(&self.space.gc().counters.records),
                relocated_records: load(&self.space.gc().counters.relocated_records),
                cached_records: load(&self.space.gc().counters.cached_records),
                ordered_records: load(&self.space.gc().counters.ordered_records),
                hidden_share: gc.account.hidden_share,
                garbage_bytes: gc.account.known_garbage_bytes(),
                garbage_bytes_max: gc.account.allowed_bytes,
                unflushed_bytes: gc.account.unflushed_bytes + gc.account.grown(&self.shared.log),
                write_rate_max: self.shared.backpressure.space.rate(),
                writes_stopped: self.shared.backpressure.space.stopped(),
                left_alone: gc.left_alone,
                error: gc.error,
            },
            disk_bytes: log_bytes
                + manifest_bytes
                + keyspaces
                    .iter()
                    .map(|keyspace| keyspace.index_bytes)
                    .sum::<u64>(),
            reserve_bytes: self.shared.reserve.bytes(),
            reserve_lent: self.shared.reserve.is_lent(),
            keyspaces,
            volume: VolumeFigures {
                description: self.shared.volume.describe(),
                reads: volume.reads,
                read_bytes: volume.read_bytes,
                read_batches: volume.read_batches,
                writes: volume.writes,
                written_bytes: volume.written_bytes,
                syncs: volume.syncs,
                read_us: volume.read_us,
                write_us: volume.write_us,
                sync_us: volume.sync_us,
                units: into_all(self.shared.volume.units()),
                classes: into_all(self.shared.volume.classes()),
                device: self.shared.volume.device().map(DeviceFigures::from),
            },
            compaction_reads: self
                .shared
                .reads
                .as_ref()
                .map_or_else(Default::default, |reads| {
                    ReadAheadFigures::new(&reads.stats())
                }),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            waits: self.shared.waits.stats(),
            jobs_waiting: self.background.job_names(),
            jobs_running: self.background.job_counts().1 as u64,
            pins: self.shared.pins.count() as u64,
            transactions: self.shared.transactions.count() as u64,
            pinned_bytes: self.shared.pinned_bytes() as u64,
            snapshots_given_up: load(&self.shared.counters.snapshots_given_up),
            write_rate_max,
            memtable_rate_max: self.shared.backpressure.flush.rate(),
            flush_bytes_per_s: self.shared.backpressure.flush.flushed_rate(),
            writes_stopped,
            replayed_bytes: self.shared.replayed_bytes,
            background_error: self
                .shared
                .background_error()
                .as_ref()
                .map(ToString::to_string),
        }
    }
}
