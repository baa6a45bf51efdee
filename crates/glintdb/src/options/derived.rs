//! Sizes, and options of the directory, that follow from the options of a database. Thread-safe:
//! pure functions of [`Options`].

use super::Options;
use glintdb_flash::DirOptions;

/// Maximum of [`Options::read_ahead_bytes_max`].
const READ_AHEAD_BYTES_MAX: usize = 64 << 20;

impl Options {
    /// How to open the directory of the database.
    pub(crate) fn directory(&self) -> DirOptions {
        let experiments = &self.experiments;
        let defaults = DirOptions::default();
        DirOptions {
            direct: self.direct_io,
            read_engine: experiments.read_engine,
            read_depth: experiments.read_depth,
            begun_batches_max: match experiments.overlap_reads {
                true => defaults.begun_batches_max,
                false => 0,
            },
            sort_reads: experiments.sort_reads,
            merge_reads: experiments.merge_reads,
            kernel_read_ahead: experiments.kernel_read_ahead,
            recycle: experiments.recycle_files,
            create: self.create_if_missing,
            idle_buffer_bytes_max: self.idle_buffer_bytes_max(),
            ..defaults
        }
    }

    /// Memory in bytes for active and sealed memtables together.
    pub(crate) fn memtable_share_bytes(&self) -> usize {
        self.memory_budget_bytes / 4
    }

    /// Memory in bytes that idle read buffers may take. A round of value GC can use twice as much.
    /// Idle buffers are kept because new memory for each round would have to be cleared first.
    pub(crate) fn idle_buffer_bytes_max(&self) -> usize {
        (self.memory_budget_bytes / 16).clamp(1 << 20, 64 << 20)
    }

    /// Size in bytes at which the active memtables are sealed: half of the memtables' share. One
    /// generation fills while another is flushed.
    pub(crate) fn memtable_seal_bytes(&self) -> usize {
        self.memtable_share_bytes() / 2
    }

    /// Most memory in bytes of the active memtables. Once they have their size, only commits that
    /// are
    /// [within their share](crate::write::shares) may still go to them, and only while the sealed
    /// ones are not flushed.
    pub(crate) fn memtable_bytes_max(&self) -> usize {
        self.memtable_seal_bytes() + self.memtable_seal_bytes() / 8
    }

    /// Bytes of log at which the active memtables are sealed: half of `replay_bytes_max`, because
    /// the log of a second, sealed generation may have to be replayed too.
    pub(crate) fn log_seal_bytes(&self) -> u64 {
        self.replay_bytes_max / 2
    }

    /// Memory in bytes for compaction input that is read ahead.
    pub(crate) fn read_ahead_bytes_max(&self) -> usize {
        (self.memory_budget_bytes / 16).min(READ_AHEAD_BYTES_MAX)
    }

    /// Expected size in bytes of a flush's tables, used until the first flush: half of a memtable.
    pub(crate) fn run_bytes_expected(&self) -> u64 {
        self.memtable_seal_bytes() as u64 / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LOG_RING_BYTES;
    use glintdb_flash::{DirectIo, ReadEngine};

    #[test]
    fn each_switch_of_reads_reaches_the_directory() {
        let usual = Options::default().directory();
        let changed = |name: &str, value: &str| {
            let mut options = Options::default();
            options.set(name, value).unwrap();
            options.directory()
        };
        type Change = fn(&mut DirOptions);
        let cases: [(&str, &str, Change); 8] = [
            ("direct_io", "off", |dir| dir.direct = DirectIo::Off),
            ("read_engine", "sync", |dir| {
                dir.read_engine = ReadEngine::Sync
            }),
            ("read_depth", "7", |dir| dir.read_depth = 7),
            ("sort_reads", "off", |dir| dir.sort_reads = false),
            ("merge_reads", "off", |dir| dir.merge_reads = false),
            ("overlap_reads", "off", |dir| dir.begun_batches_max = 0),
            ("kernel_read_ahead", "on", |dir| {
                dir.kernel_read_ahead = true
            }),
            ("recycle_files", "off", |dir| dir.recycle = false),
        ];
        for (name, value, change) in cases {
            let mut expected = usual;
            change(&mut expected);
            assert_ne!(expected, usual, "{name}");
            assert_eq!(changed(name, value), expected, "{name}");
        }
    }

    /// Compares the "Memory" section of `docs/options.md`, and the defaults there that follow from
    /// the budget, with the code.
    #[test]
    fn budget_shares_are_as_documented() {
        let page = include_str!("../../../../docs/options.md");
        for row in [
            "| memtables | 1/4; a memtable is sealed at 1/8,",
            "| compaction input read ahead | at most 1/16 and at most 64M |",
            "| idle read buffers | at most 1/16, clamped to [1M, 64M] |",
        ] {
            assert!(page.contains(row), "{row}");
        }
        for (budget, ring) in [
            (8 << 20, 512 << 10),
            (64 << 20, 4 << 20),
            (1 << 30, LOG_RING_BYTES),
        ] {
            let options = Options::default().memory_budget_bytes(budget);
            let options = options.resolve().unwrap();
            assert_eq!(options.memtable_share_bytes(), budget / 4);
            assert_eq!(options.memtable_seal_bytes(), budget / 8);
            assert_eq!(options.log_ring_bytes, ring);
            assert_eq!(options.snapshot_pin_bytes_max, budget / 4);
            let sixteenth = budget / 16;
            assert_eq!(options.read_ahead_bytes_max(), sixteenth.min(64 << 20));
            let idle = options.idle_buffer_bytes_max();
            assert_eq!(idle, sixteenth.clamp(1 << 20, 64 << 20));
        }
    }
}
