//! The table of option sets. **A new technique, index or way in which a volume behaves joins every lane by one line here**, with `&Lane::ALL`; at the end, so that
//! numbers of sets stay what they are. Lanes whose sets are named alone are those that were written for these sets.

use super::{Lane, OptionSet, stop};
use glintdb::{
    BTreeOptions, Compression, DirectIo, Durability, GcReads, IndexKind, KeyspaceOptions, Options,
    PinnedLevels, ReadEngine,
};

/// One set: what it changes in the base of each lane that takes it.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) lanes: &'static [Lane],
    pub(super) change: fn(&mut OptionSet),
}

const fn line(name: &'static str, lanes: &'static [Lane], change: fn(&mut OptionSet)) -> Line {
    Line {
        name,
        lanes,
        change,
    }
}

const INLINE: usize = usize::MAX;

fn separated(set: &mut OptionSet, min_bytes: usize) {
    set.options.separate_min_bytes = min_bytes;
    set.options.experiments.cache_written_min_bytes = min_bytes;
}

/// Every value is separated, and hardly any garbage may be.
fn collects_eagerly(set: &mut OptionSet) {
    separated(set, 1);
    set.options.log_segment_bytes = 64 << 10;
    set.options.log_ring_bytes = 64 << 10;
    set.options.space_amp_max = 1.1;
    set.options.garbage_bytes_min = 1;
}

/// A B+tree so small that a settling takes several slices.
fn btree(set: &mut OptionSet) {
    let mut btree = BTreeOptions::default().table_bytes_target(32 << 10);
    btree.experiments.shelf_runs_settle = 2;
    btree.experiments.slice_bytes = 32 << 10;
    btree.experiments.leaf_batch = 3;
    set.keyspace = KeyspaceOptions::default()
        .index(IndexKind::BTree)
        .btree(btree);
}

/// A B+tree whose shelf has tiers of a few runs, and whose runs are often numbered anew.
fn reshaped(set: &mut OptionSet) {
    btree(set);
    let btree = &mut set.keyspace.btree;
    (btree.reshape, btree.reshape_share) = (true, 1);
    btree.experiments.reshape_fan = 2;
    btree.experiments.reshape_bits = 5;
}

fn lz4(set: &mut OptionSet) {
    set.keyspace.lsm.compression = Compression::Lz4;
}

fn plain_io(set: &mut OptionSet) {
    set.options.direct_io = DirectIo::Off;
    set.options.experiments.read_engine = ReadEngine::Sync;
}

/// A modelled device, and which units files use.
fn on_device(set: &mut OptionSet, placement: &str) {
    set.volume.on_device = true;
    set.options.placement = placement.parse().expect("a placement");
}

/// Two directories, and which files go to which.
fn two_units(set: &mut OptionSet, placement: &str) {
    set.volume.on_units = true;
    set.options.placement = placement.parse().expect("a placement");
}

/// Every set.
pub(super) const SETS: &[Line] = &[
    line("defaults with a small ring", &[Lane::Model], |set| {
        set.options = Options::default()
            .log_ring_bytes(1 << 20)
            .memory_budget_bytes(64 << 20);
        set.keyspace = KeyspaceOptions::default();
    }),
    line(
        "jobs on callers' threads, every value separated",
        &[Lane::Model],
        |set| separated(set, 1),
    ),
    line(
        "jobs on callers' threads, values from 64 bytes separated, LZ4",
        &[Lane::Model],
        |set| {
            separated(set, 64);
            lz4(set);
        },
    ),
    line(
        "two background threads, every value inline, buffered and synchronous I/O",
        &[Lane::Model],
        |set| {
            set.options.background_threads = 2;
            separated(set, INLINE);
            plain_io(set);
            lz4(set);
        },
    ),
    line(
        "many small levels, every value inline",
        &[Lane::Edge],
        |set| separated(set, INLINE),
    ),
    line(
        "the smallest log, values from 64 bytes separated",
        &[Lane::Edge],
        |set| {
            separated(set, 64);
            set.options.log_segment_bytes = 64 << 10;
            set.options.log_ring_bytes = 64 << 10;
            set.options.replay_bytes_max = 128 << 10;
            set.options.experiments.hot_keys = false;
            set.options.experiments.range_cache = false;
            set.options.experiments.pace_writers = false;
            set.options.experiments.recycle_files = false;
            set.options.experiments.compact_for_scans = false;
            set.options.experiments.order_for_scans = false;
        },
    ),
    line("small", &[Lane::Kill], |_| ()),
    line(
        "a ring and segments of 64 KiB, values from 64 bytes separated",
        &[Lane::Kill],
        |set| {
            separated(set, 64);
            set.options.log_ring_bytes = 64 << 10;
            set.options.log_segment_bytes = 64 << 10;
            set.options.replay_bytes_max = 1 << 20;
        },
    ),
    line("every commit at Sync", &[Lane::Kill], |set| {
        set.options.durability = Durability::Sync;
    }),
    line(
        "buffered and synchronous I/O, one background thread, every value inline",
        &[Lane::Kill],
        |set| {
            set.options.background_threads = 1;
            separated(set, INLINE);
            plain_io(set);
        },
    ),
    line(
        "jobs on callers' threads, every value separated, a ring of 256 KiB",
        &[Lane::Kill],
        |set| {
            set.options.background_threads = 0;
            separated(set, 1);
            set.options.log_ring_bytes = 256 << 10;
        },
    ),
    line("inline", &[Lane::Sim], |set| separated(set, INLINE)),
    line("separated", &[Lane::Sim], |set| separated(set, 1)),
    line("mixed", &[Lane::Sim, Lane::Sweep], |set| {
        separated(set, 64);
        lz4(set);
    }),
    line("sync", &[Lane::Sim], |set| {
        set.options.durability = Durability::Sync;
        separated(set, 200);
    }),
    line("plain-ring", &[Lane::Sim], |set| {
        set.volume.ring_survives_kill = false;
        separated(set, 200);
    }),
    line(
        "two background threads, long values separated, stalls",
        &[Lane::Histories],
        |set| stop(set, 3, 4),
    ),
    line(
        "one background thread, every value separated, LZ4",
        &[Lane::Histories],
        |set| {
            set.options.background_threads = 1;
            separated(set, 1);
            set.options.log_ring_bytes = 128 << 10;
            lz4(set);
            stop(set, 11, 12);
        },
    ),
    line(
        "four background threads, every value inline, buffered and synchronous I/O",
        &[Lane::Histories],
        |set| {
            set.options.background_threads = 4;
            separated(set, INLINE);
            set.options.replay_bytes_max = 256 << 10;
            plain_io(set);
            lz4(set);
            stop(set, 5, 6);
        },
    ),
    line(
        "jobs on callers' threads, values from 64 bytes separated",
        &[Lane::Histories],
        |set| {
            set.options.background_threads = 0;
            separated(set, 64);
            stop(set, 7, 8);
        },
    ),
    line(
        "two background threads, little may be pinned",
        &[Lane::Histories],
        |set| {
            set.options.snapshot_pin_bytes_max = 256 << 10;
            set.options.replay_bytes_max = 1 << 20;
            set.options.log_ring_bytes = 1 << 20;
            stop(set, 7, 8);
        },
    ),
    line("what the case draws", &[Lane::Schedules], |_| ()),
    line(
        "two background threads, batches read by threads, three reads at a time",
        &[Lane::Model, Lane::Kill],
        |set| {
            set.options.background_threads = 2;
            set.options.experiments.read_engine = ReadEngine::Threads;
            set.options.experiments.read_depth = 3;
            separated(set, 64);
        },
    ),
    line(
        "as many pinned levels as fit",
        &[Lane::Model, Lane::Sim, Lane::Histories, Lane::Kill],
        |set| {
            separated(set, 64);
            set.keyspace.lsm.pinned_levels = PinnedLevels::Auto;
        },
    ),
    line(
        "no pinned levels",
        &[Lane::Model, Lane::Sim, Lane::Histories],
        |set| {
            separated(set, 64);
            set.keyspace.lsm.pinned_levels = PinnedLevels::Levels(0);
        },
    ),
    line(
        "levels as large as flushes ask for",
        &[Lane::Model, Lane::Sim, Lane::Histories, Lane::Kill],
        |set| {
            separated(set, 64);
            set.keyspace.lsm.experiments.base_level_bytes = 0;
        },
    ),
    line(
        "GC eager",
        &[Lane::Model, Lane::Sim, Lane::Histories, Lane::Kill],
        collects_eagerly,
    ),
    line(
        "no pinned levels, LZ4, each input of a compaction read ahead for itself",
        &[Lane::Model, Lane::Sim, Lane::Histories],
        |set| {
            separated(set, 64);
            lz4(set);
            set.keyspace.lsm.pinned_levels = PinnedLevels::Levels(0);
            set.options.experiments.read_batch_max = 0;
        },
    ),
    line(
        "one background thread, every value inline, writers stop early and help",
        &[Lane::Model, Lane::Histories],
        |set| {
            set.options.background_threads = 1;
            separated(set, INLINE);
            set.keyspace.lsm.pinned_levels = PinnedLevels::Levels(0);
            set.options.experiments.read_batch_max = 2;
            stop(set, 3, 4);
        },
    ),
    line(
        "GC eager, by the index",
        &[Lane::Model, Lane::Sim, Lane::Histories, Lane::Kill],
        |set| {
            collects_eagerly(set);
            set.options.experiments.value_gc_reads = GcReads::Index;
        },
    ),
    line(
        "writers stop early and help, two pieces of a compaction read at a time",
        &[Lane::Kill],
        |set| {
            separated(set, 64);
            set.keyspace.lsm.pinned_levels = PinnedLevels::Levels(0);
            set.options.experiments.read_batch_max = 2;
            stop(set, 5, 6);
        },
    ),
    line("batches read by libaio", &[Lane::Kill], |set| {
        separated(set, 64);
        set.options.experiments.read_engine = ReadEngine::Libaio;
    }),
    line("checkpoints copy files", &[Lane::Sim], |set| {
        separated(set, 64);
        set.volume.refuses_links = true;
    }),
    line(
        "B+tree",
        &[
            Lane::Edge,
            Lane::Kill,
            Lane::Sim,
            Lane::Sweep,
            Lane::Histories,
        ],
        |set| {
            separated(set, 64);
            btree(set);
        },
    ),
    line(
        "B+tree, every value inline, each flush settled at once",
        &[Lane::Model],
        |set| {
            separated(set, INLINE);
            btree(set);
            set.keyspace.btree.experiments.shelf_runs_settle = 1;
            set.keyspace.btree.compression = Compression::Lz4;
        },
    ),
    line(
        "B+tree, GC eager",
        &[Lane::Model, Lane::Sim, Lane::Histories],
        |set| {
            collects_eagerly(set);
            btree(set);
        },
    ),
    line(
        "B+tree, reshaped",
        &[Lane::Model, Lane::Kill, Lane::Sim, Lane::Histories],
        |set| {
            collects_eagerly(set);
            reshaped(set);
        },
    ),
    line(
        "on a modelled device, isolated",
        &[Lane::Model, Lane::Sim, Lane::Histories],
        |set| {
            separated(set, 64);
            on_device(set, "isolation");
        },
    ),
    line("on a modelled device, dynamic", &[Lane::Model], |set| {
        collects_eagerly(set);
        on_device(set, "dynamic:3:3:2");
    }),
    line(
        "over two units, isolated",
        &[Lane::Model, Lane::Kill, Lane::Sim, Lane::Histories],
        |set| {
            separated(set, 64);
            two_units(set, "isolation:1:1");
        },
    ),
    line("over two units, striped", &[Lane::Model], |set| {
        collects_eagerly(set);
        two_units(set, "striping");
    }),
];
