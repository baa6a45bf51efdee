//! How fast compactions merge: nanoseconds an entry and MB/s of input, for small values and for pointers, on one thread; and what reads cost of what came out, cached.
//!
//! `cargo run --release -p glintdb-lsm --example compaction_bench [entries_per_run] [directory]`
//!
//! With `merge` in front: nanoseconds an entry of compactions of several shapes (or of those whose names contain a fourth argument), beside those of a plain merge;
//! medians of three rounds.
//!
//! With `reads` in front: how long compactions take with each way of reading, each input reading a megabyte at a time, now or meanwhile, or all of them through the queue
//! of reads ahead in batches of several sizes; medians of three rounds.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a measuring program prints, takes the time, and stops at errors"
)]

mod merge;

use glintdb_cache::Cache;
use glintdb_core::index::{Index, IndexJob, JobStep, SortedRun};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{
    DbId, Direction, EntryRef, FileNumbers, RangeTombstone, Result, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::{DirOptions, DirVolume, ReadEngine, ReadQueue, SystemClock, Volume};
use glintdb_lsm::{Lsm, LsmOptions};
use glintdb_runs::IndexEnv;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Wall time and CPU time of this thread, in seconds: the machine may have other work.
struct Timer {
    begun: Instant,
    cpu_begun: f64,
}

impl Timer {
    fn start() -> Timer {
        Timer {
            begun: Instant::now(),
            cpu_begun: cpu_seconds(),
        }
    }

    fn seconds(&self) -> (f64, f64) {
        (
            self.begun.elapsed().as_secs_f64(),
            cpu_seconds() - self.cpu_begun,
        )
    }
}

fn cpu_seconds() -> f64 {
    // The kernel brings the figure up to date when the thread gives way, else at its next tick, up to 4 ms later.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let on_cpu_ns: u64 = stat.split(' ').next().unwrap().parse().unwrap();
    on_cpu_ns as f64 / 1e9
}

#[derive(Default)]
struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Values {
    Pointers,
    Inline(usize),
}

struct Run {
    keys: Vec<[u8; 16]>,
    at: usize,
    seqno: u64,
    values: Values,
    inline: Vec<u8>,
}

impl SortedRun for Run {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let Some(key) = self.keys.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        let value = match self.values {
            Values::Pointers => EntryRef::Pointer(ValuePointer {
                segment: SegmentId(self.seqno),
                offset: self.at as u32,
                length: 1024,
                checksum: self.at as u32,
            }),
            Values::Inline(_) => EntryRef::Inline(&self.inline),
        };
        Ok(Some((
            key,
            SeqNum(self.seqno * 10_000_000 + self.at as u64),
            value,
        )))
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

/// `count` keys of 16 bytes: 16 decimal digits at random, or ascending.
fn keys(count: usize, seed: u64, from: Option<u64>) -> Vec<[u8; 16]> {
    let mut state = seed;
    let mut keys: Vec<[u8; 16]> = (0..count as u64)
        .map(|n| {
            let number = from.map_or_else(
                || random(&mut state) % 10_000_000_000_000_000,
                |from| from + n,
            );
            let mut key = [0; 16];
            key.copy_from_slice(format!("{number:016}").as_bytes());
            key
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn finish(lsm: &Lsm, mut job: Box<dyn IndexJob>) {
    loop {
        match job.step().unwrap() {
            JobStep::More => {}
            JobStep::Done(change) => return lsm.apply(&change).unwrap(),
        }
    }
}

fn compact(lsm: &Lsm) -> ((f64, f64), u64) {
    let before = lsm.view().stats().compaction_read_bytes;
    let timer = Timer::start();
    while let Some(job) = lsm.pick_full_compaction(Bound::Unbounded, Bound::Unbounded) {
        finish(lsm, job);
    }
    let read = lsm.view().stats().compaction_read_bytes - before;
    (timer.seconds(), read)
}

fn create(directory: &Path, options: DirOptions, batch: usize) -> Arc<Lsm> {
    let volume = DirVolume::open(directory, options).unwrap();
    let memory = Arc::new(MemoryBudget::new(1 << 30));
    let clock = Arc::new(SystemClock::new());
    let queue = |batch| {
        let volume = Arc::clone(&volume) as Arc<dyn Volume>;
        ReadQueue::new(volume, memory, clock, batch, 64 << 20)
    };
    let reads = (batch > 0).then_some(batch).map(queue);
    create_on(volume, reads)
}

fn create_on(volume: Arc<dyn Volume>, reads: Option<Arc<ReadQueue>>) -> Arc<Lsm> {
    let env = IndexEnv {
        volume,
        reads,
        cache: Arc::new(Cache::new(2 << 30)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db: DbId([1; 16]),
        numbers: Arc::new(Numbers::default()),
        run_bytes: 32 << 20,
        tombstone_floor: Arc::new(AtomicU64::new(u64::MAX)),
    };
    Lsm::create(env, LsmOptions::default()).unwrap()
}

fn flush_run(lsm: &Lsm, number: u64, keys: Vec<[u8; 16]>, values: Values) {
    let mut run = Run {
        keys,
        at: 0,
        seqno: number,
        values,
        inline: match values {
            Values::Inline(bytes) => vec![b'v'; bytes],
            Values::Pointers => Vec::new(),
        },
    };
    let change = lsm.write_run(&mut run).unwrap();
    lsm.apply(&change).unwrap();
}

/// A way of reading.
struct Way {
    engine: &'static str,
    options: DirOptions,
    /// Pieces read together through the queue; 0: without one.
    batch: usize,
}

/// Seconds, and those of CPU, of a compaction of four runs into one as large.
fn compaction_of(way: &Way, entries: usize, values: Values, root: &Path) -> (f64, f64) {
    const RUNS: usize = 4;
    let directory = tempfile::tempdir_in(root).unwrap();
    let lsm = create(directory.path(), way.options, way.batch);
    flush_run(&lsm, 1, keys(entries * RUNS, 1, None), values);
    compact(&lsm);
    for number in 2..2 + RUNS as u64 {
        flush_run(&lsm, number, keys(entries, number, None), values);
    }
    compact(&lsm).0
}

fn measure_ways_of_reading(entries: usize, root: &Path) {
    const ROUNDS: usize = 3;
    let mut ways = Vec::new();
    for (engine, read_engine) in [
        ("synchronous", ReadEngine::Sync),
        ("io_uring", ReadEngine::IoUring),
        ("libaio", ReadEngine::Libaio),
        ("threads", ReadEngine::Threads),
    ] {
        for (begun_batches_max, batch) in
            [(0, 0), (8, 0), (8, 1), (8, 4), (8, 16), (8, 64), (8, 256)]
        {
            let options = DirOptions {
                read_engine,
                read_depth: 256,
                begun_batches_max,
                ..DirOptions::default()
            };
            ways.push(Way {
                engine,
                options,
                batch,
            });
        }
    }
    println!(
        "{:<12} {:>17} {:>12} {:>8} {:>12} {:>8}",
        "engine", "read", "100 B: s", "CPU s", "16 KiB: s", "CPU s"
    );
    let sizes = [
        (entries, Values::Inline(100)),
        (entries / 100, Values::Inline(16 << 10)),
    ];
    let mut measured = vec![[const { Vec::new() }; 2]; ways.len()];
    for _ in 0..ROUNDS {
        for (way, of_way) in ways.iter().zip(&mut measured) {
            for ((count, values), times) in sizes.into_iter().zip(of_way) {
                times.push(compaction_of(way, count, values, root));
            }
        }
    }
    for (way, of_way) in ways.iter().zip(&mut measured) {
        let [small, large] = of_way.each_mut().map(|times| {
            times.sort_by(|a, b| a.0.total_cmp(&b.0));
            times[ROUNDS / 2]
        });
        let read = match (way.batch, way.options.begun_batches_max) {
            (0, 0) => "1 MiB, then".to_owned(),
            (0, _) => "1 MiB, meanwhile".to_owned(),
            (batch, _) => format!("batches of {batch}"),
        };
        println!(
            "{:<12} {read:>17} {:>12.3} {:>8.3} {:>12.3} {:>8.3}",
            way.engine, small.0, small.1, large.0, large.1
        );
    }
}

fn measure(name: &str, entries: usize, runs: u64, values: Values, sequential: bool, root: &Path) {
    let directory = tempfile::tempdir_in(root).unwrap();
    let lsm = create(directory.path(), DirOptions::default(), 0);
    let mut flush_seconds = 0.0;
    let mut total = 0;
    let mut flush = |number: u64, count: usize| {
        let keys = keys(count, number, sequential.then(|| number * count as u64));
        total += keys.len();
        let timer = Timer::start();
        flush_run(&lsm, number, keys, values);
        flush_seconds += timer.seconds().1;
    };
    // A base as large as the runs together, already at the bottom.
    flush(1, entries * runs as usize);
    compact(&lsm);
    for number in 2..2 + runs {
        flush(number, entries);
    }
    if !sequential {
        measure_reads(&lsm, entries * runs as usize);
    }
    let bytes = lsm.view().stats().bytes;
    let ((seconds, cpu), read) = compact(&lsm);
    println!(
        "{name}: flush {:.0} ns of CPU an entry; {runs} runs of {entries} into a base as large: {seconds:.2} s, CPU {cpu:.2} s, {:.0} ns an entry, {:.0} MB/s of input a CPU second ({:.0} MB of {:.0} MB)",
        flush_seconds * 1e9 / total as f64,
        cpu * 1e9 / total as f64,
        read as f64 / cpu / 1e6,
        read as f64 / 1e6,
        bytes as f64 / 1e6,
    );
    let view = lsm.view();
    let timer = Timer::start();
    let mut cursor = view
        .cursor(Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let mut count = 0u64;
    while cursor.advance().unwrap() {
        count += 1;
    }
    println!(
        "    walk of {count} entries: {:.0} ns of CPU an entry",
        timer.seconds().1 * 1e9 / count as f64
    );
    if !sequential {
        measure_reads(&lsm, entries * runs as usize);
    }
}

/// CPU time of lookups of keys that are there, and of seeks with 50 steps, everything cached.
fn measure_reads(lsm: &Lsm, entries: usize) {
    const READS: usize = 200_000;
    let view = lsm.view();
    let all = keys(entries, 1, None);
    let mut state = 5;
    let picked: Vec<&[u8]> = (0..READS)
        .map(|_| &all[random(&mut state) as usize % all.len()][..])
        .collect();
    for round in 0..2 {
        let timer = Timer::start();
        for key in &picked {
            assert!(view.get(key).unwrap().is_some());
        }
        let get = timer.seconds().1;
        let timer = Timer::start();
        for keys in picked.chunks(64) {
            for answer in view.get_batch(keys) {
                assert!(answer.unwrap().is_some());
            }
        }
        let batch = timer.seconds().1;
        let timer = Timer::start();
        for key in picked.iter().take(READS / 20) {
            let from = Bound::Included(*key);
            let mut cursor = view
                .cursor(from, Bound::Unbounded, Direction::Forward)
                .unwrap();
            for _ in 0..50 {
                cursor.advance().unwrap();
            }
        }
        let seek = timer.seconds().1;
        if round == 1 {
            println!(
                "    get {:.0} ns, in batches of 64 {:.0} ns, seek and 50 steps {:.0} ns of CPU ({} sources)",
                get * 1e9 / READS as f64,
                batch * 1e9 / READS as f64,
                seek * 1e9 / (READS / 20) as f64,
                view.stats().lookup_reads_max,
            );
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    let mut asked = |name: &str| args.next_if(|arg| arg == name).is_some();
    let (reads, merge) = (asked("reads"), asked("merge"));
    let entries: usize = args.next().map_or(500_000, |n| n.parse().unwrap());
    let root = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    if reads {
        return measure_ways_of_reading(entries, &root);
    }
    if merge {
        return merge::measure_all(entries, &root, &args.next().unwrap_or_default());
    }
    measure("pointers", entries, 4, Values::Pointers, false, &root);
    measure(
        "values of 100 bytes",
        entries,
        4,
        Values::Inline(100),
        false,
        &root,
    );
    measure(
        "values of 100 bytes, sequential",
        entries,
        4,
        Values::Inline(100),
        true,
        &root,
    );
    measure(
        "values of 400 bytes",
        entries / 4,
        4,
        Values::Inline(400),
        false,
        &root,
    );
}
