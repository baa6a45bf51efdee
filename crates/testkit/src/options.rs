//! Option sets: whatever they are, the same operations give the same answers.

use glintdb::{Compression, DirectIo, KeyspaceOptions, LsmOptions, Options, ReadEngine};

/// Options for a database and for the keyspaces that are created in it.
#[derive(Clone)]
pub struct OptionSet {
    /// For messages.
    pub name: &'static str,
    /// The database's.
    pub options: Options,
    /// New keyspaces'.
    pub keyspace: KeyspaceOptions,
}

/// Small everything, so that a few hundred operations flush, compact, wrap the ring and fill segments.
fn small() -> Options {
    Options {
        background_threads: 0,
        memory_budget_bytes: 8 << 20,
        log_segment_bytes: 256 << 10,
        log_ring_bytes: 128 << 10,
        replay_bytes_max: 1 << 20,
        // Snapshots are held across everything here; that one may be given up is tested on its own.
        snapshot_pin_bytes_max: 1 << 30,
        ..Options::default()
    }
}

fn small_tables(compression: Compression) -> KeyspaceOptions {
    KeyspaceOptions {
        lsm: LsmOptions {
            size_ratio: 3,
            level0_runs_compact: 2,
            table_bytes_target: 32 << 10,
            base_level_bytes: 64 << 10,
            compression,
            ..LsmOptions::default()
        },
        ..KeyspaceOptions::default()
    }
}

/// Every set, from the plainest to the oddest.
#[must_use]
pub fn all() -> Vec<OptionSet> {
    vec![
        OptionSet {
            name: "defaults with a small ring",
            options: Options {
                log_ring_bytes: 1 << 20,
                memory_budget_bytes: 64 << 20,
                ..Options::default()
            },
            keyspace: KeyspaceOptions::default(),
        },
        OptionSet {
            name: "jobs on callers' threads, every value separated",
            options: Options {
                separate_min_bytes: 1,
                ..small()
            },
            keyspace: small_tables(Compression::None),
        },
        OptionSet {
            name: "jobs on callers' threads, values from 64 bytes separated, LZ4",
            options: Options {
                separate_min_bytes: 64,
                ..small()
            },
            keyspace: small_tables(Compression::Lz4),
        },
        OptionSet {
            name: "two background threads, every value inline, buffered and synchronous I/O",
            options: Options {
                background_threads: 2,
                separate_min_bytes: usize::MAX,
                direct_io: DirectIo::Off,
                read_engine: ReadEngine::Sync,
                ..small()
            },
            keyspace: small_tables(Compression::Lz4),
        },
    ]
}

/// Sets at the edge of what is allowed, jobs on callers' threads: a tree of many small levels, a log of the smallest segments and ring.
#[must_use]
pub fn extreme() -> Vec<OptionSet> {
    let deep = KeyspaceOptions {
        lsm: LsmOptions {
            size_ratio: 2,
            level0_runs_compact: 2,
            table_bytes_target: 4 << 10,
            base_level_bytes: 4 << 10,
            ..LsmOptions::default()
        },
        ..KeyspaceOptions::default()
    };
    vec![
        OptionSet {
            name: "many small levels, every value inline",
            options: Options {
                separate_min_bytes: usize::MAX,
                ..small()
            },
            keyspace: deep.clone(),
        },
        OptionSet {
            name: "the smallest log, values from 64 bytes separated",
            options: Options {
                separate_min_bytes: 64,
                log_segment_bytes: 64 << 10,
                log_ring_bytes: 64 << 10,
                replay_bytes_max: 128 << 10,
                ..small()
            },
            keyspace: deep,
        },
    ]
}

/// The sets whose jobs run in a fixed order, on the caller's thread: a sequence and a seed reproduce a run exactly.
#[must_use]
pub fn deterministic() -> Vec<OptionSet> {
    let mut sets = all();
    sets.retain(|set| set.options.background_threads == 0);
    sets
}
