//! What the shape of the tree costs: host write amplification of the index under random overwrites, by size ratio and by how large the base level grows before another
//! level is put above it. Scaled down: runs of 1 MiB stand for memtables.
//!
//! `cargo run --release -p glintdb-lsm --example shape_bench [data_mib] [directory]`
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a measuring program prints and stops at errors"
)]

use glintdb_cache::Cache;
use glintdb_core::index::{Index, JobStep, SortedRun};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{DbId, EntryRef, FileNumbers, RangeTombstone, Result, SeqNum};
use glintdb_flash::{DirOptions, DirVolume, Volume};
use glintdb_lsm::{Lsm, LsmExperiments, LsmOptions};
use glintdb_runs::IndexEnv;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const RUN_BYTES: u64 = 1 << 20;
const VALUE: [u8; 100] = [b'v'; 100];

#[derive(Default)]
struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

struct Run {
    keys: Vec<[u8; 16]>,
    at: usize,
    seqno: u64,
}

impl SortedRun for Run {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let key = self.keys.get(self.at);
        self.at += 1;
        Ok(key.map(|key| (&key[..], SeqNum(self.seqno), EntryRef::Inline(&VALUE))))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &[]
    }

    fn entries_hint(&self) -> usize {
        self.keys.len()
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn measure(data_mib: u64, size_ratio: u32, base_runs: u64, compact: u32, root: &std::path::Path) {
    let directory = tempfile::tempdir_in(root).unwrap();
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let env = IndexEnv {
        volume: volume as Arc<dyn Volume>,
        cache: Arc::new(Cache::new(0)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db: DbId([1; 16]),
        numbers: Arc::new(Numbers::default()),
        run_bytes: RUN_BYTES,
        tombstone_floor: Arc::new(AtomicU64::new(u64::MAX)),
        reads: None,
    };
    let experiments = LsmExperiments::default()
        .level0_runs_compact(compact)
        .level0_runs_slow(compact + 4)
        .level0_runs_stop(compact + 8)
        .base_level_bytes(base_runs * RUN_BYTES);
    let options = LsmOptions::default()
        .size_ratio(size_ratio)
        .table_bytes_target(RUN_BYTES)
        .experiments(experiments);
    let lsm = Lsm::create(env, options).unwrap();
    let keys_all = (data_mib << 20) / 116;
    let (mut state, mut flushed, mut reads, mut longest) = (7, 0u64, 0, 0u64);
    let runs = data_mib * 3;
    for number in 1..=runs {
        let mut keys: Vec<[u8; 16]> = (0..RUN_BYTES / 116)
            .map(|_| {
                let mut key = [0; 16];
                key.copy_from_slice(format!("{:016}", random(&mut state) % keys_all).as_bytes());
                key
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let before = lsm.view().stats().bytes;
        let mut run = Run {
            keys,
            at: 0,
            seqno: number,
        };
        let change = lsm.write_run(&mut run).unwrap();
        lsm.apply(&change).unwrap();
        flushed += lsm.view().stats().bytes - before;
        while let Some(mut job) = lsm.pick_job() {
            let written = lsm.view().stats().compaction_written_bytes;
            loop {
                if let JobStep::Done(change) = job.step().unwrap() {
                    lsm.apply(&change).unwrap();
                    break;
                }
            }
            longest = longest.max(lsm.view().stats().compaction_written_bytes - written);
        }
        reads += lsm.view().stats().lookup_reads_max;
    }
    let stats = lsm.view().stats();
    let levels: Vec<String> = stats
        .levels
        .iter()
        .enumerate()
        .filter(|(_, level)| level.parts > 0)
        .map(|(n, level)| format!("L{n} {} MiB", level.bytes >> 20))
        .collect();
    println!(
        "ratio {size_ratio:>2}, {compact:>2} runs a compaction, base grows to {base_runs:>3} runs (0: auto): {:.2} bytes written a byte flushed, longest job {} MiB, {:.1} reads a lookup at worst (mean), {}",
        (flushed + stats.compaction_written_bytes) as f64 / flushed as f64,
        longest >> 20,
        f64::from(reads) / runs as f64,
        levels.join(", ")
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let data_mib: u64 = args.next().map_or(64, |n| n.parse().unwrap());
    let root = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    for compact in [4, 8, 16] {
        for base_runs in [0, 1, 2, 4, 8] {
            measure(data_mib, 10, base_runs * u64::from(compact), compact, &root);
        }
        for size_ratio in [4, 6] {
            measure(data_mib, size_ratio, 4 * u64::from(compact), compact, &root);
        }
    }
}
