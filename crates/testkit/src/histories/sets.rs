//! Option sets under which nothing ever rests: memtables of tens of kilobytes, a ring that wraps every few hundred commits, real threads that flush and compact.

use crate::options::OptionSet;
use glintdb::{Compression, DirectIo, KeyspaceOptions, LsmOptions, Options, ReadEngine};

/// Generations are sealed every 32 KiB of log, the ring holds 64 KiB, a segment too.
fn tiny() -> Options {
    Options {
        background_threads: 2,
        memory_budget_bytes: 8 << 20,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 64 << 10,
        replay_bytes_max: 64 << 10,
        snapshot_pin_bytes_max: 1 << 30,
        ..Options::default()
    }
}

fn shape(compression: Compression, level0_runs_stop: u32) -> KeyspaceOptions {
    KeyspaceOptions {
        lsm: LsmOptions {
            size_ratio: 3,
            level0_runs_compact: 2,
            level0_runs_slow: level0_runs_stop - 1,
            level0_runs_stop,
            table_bytes_target: 16 << 10,
            block_bytes: 4 << 10,
            base_level_bytes: 32 << 10,
            compression,
            ..LsmOptions::default()
        },
        ..KeyspaceOptions::default()
    }
}

/// All of them.
#[must_use]
pub fn all() -> Vec<OptionSet> {
    vec![
        OptionSet {
            name: "two background threads, long values separated, stalls",
            options: tiny(),
            keyspace: shape(Compression::None, 4),
        },
        OptionSet {
            name: "one background thread, every value separated, LZ4",
            options: Options {
                background_threads: 1,
                separate_min_bytes: 1,
                log_ring_bytes: 128 << 10,
                ..tiny()
            },
            keyspace: shape(Compression::Lz4, 12),
        },
        OptionSet {
            name: "four background threads, every value inline, buffered and synchronous I/O",
            options: Options {
                background_threads: 4,
                separate_min_bytes: usize::MAX,
                replay_bytes_max: 256 << 10,
                direct_io: DirectIo::Off,
                read_engine: ReadEngine::Sync,
                ..tiny()
            },
            keyspace: shape(Compression::Lz4, 6),
        },
        OptionSet {
            name: "jobs on callers' threads, values from 64 bytes separated",
            options: Options {
                background_threads: 0,
                separate_min_bytes: 64,
                ..tiny()
            },
            keyspace: shape(Compression::None, 8),
        },
        OptionSet {
            name: "two background threads, little may be pinned",
            options: Options {
                snapshot_pin_bytes_max: 256 << 10,
                replay_bytes_max: 1 << 20,
                log_ring_bytes: 1 << 20,
                ..tiny()
            },
            keyspace: shape(Compression::None, 8),
        },
    ]
}
