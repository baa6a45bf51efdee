//! How fast one table is: building, point lookups in memory, scans.
//!
//! ```text
//! cargo run --release -p glintdb-runs --example table_bench -- [ENTRIES] [VALUE_BYTES] [DIRECTORY]
//! ```
//!
//! Keys are 16 bytes. VALUE_BYTES 0 stands for values that are separated (a pointer of 20 bytes in the index). Each figure is the best of several rounds, in ns an entry or
//! lookup, as other load on a machine only ever adds time.
#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints figures"
)]

use glintdb_cache::Cache;
use glintdb_core::clock::Clock;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{
    DbId, Direction, EntryRef, FileId, FileKind, Result, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::{DataClass, DirOptions, DirVolume, SystemClock};
use glintdb_runs::table::{
    Block, Compression, Purpose, Table, TableConfig, TableEnv, TableMeta, TableWriter, key_hash,
};
use std::hint::black_box;
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: usize = 5;
/// Lookups are timed in batches shorter than a time slice.
const BATCHES: usize = 100;
const BATCH: usize = 2_000;

type Keys = Vec<[u8; 16]>;

/// Best time of several rounds, in ns divided by `count`.
fn best(count: usize, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    best_of(0..ROUNDS, count, |_| round())
}

/// Best time of `round` over `items`, in ns divided by `count`.
fn best_of<T>(
    items: impl Iterator<Item = T>,
    count: usize,
    mut round: impl FnMut(T) -> Result<()>,
) -> Result<f64> {
    let clock = SystemClock::new();
    let mut best = f64::MAX;
    for item in items {
        let start = clock.monotonic();
        round(item)?;
        let time = clock.monotonic() - start;
        best = best.min(time.as_nanos() as f64 / count as f64);
    }
    Ok(best)
}

/// A cheap generator: the order only has to be scattered.
fn scattered(seed: u64, n: usize) -> impl Iterator<Item = usize> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or(0) % n
    })
}

fn keys(entries: u64) -> Keys {
    let key = |n: u64| {
        let digits = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10u64.pow(16);
        let mut key = [0; 16];
        key.copy_from_slice(format!("{digits:016}").as_bytes());
        key
    };
    let mut keys: Keys = (0..entries).map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn build(
    env: &Arc<TableEnv>,
    number: u64,
    config: &TableConfig,
    keys: &Keys,
    value: &[u8],
) -> Result<TableMeta> {
    let id = FileId::new(FileKind::Table, number);
    let mut writer = TableWriter::create(env, id, DataClass::Flush, config, keys.len())?;
    for (n, key) in (0u32..).zip(keys) {
        let seqno = SeqNum(u64::from(n) * 7919 % 1_000_000);
        let pointer = ValuePointer {
            segment: SegmentId(3),
            offset: n,
            length: 1024,
            checksum: n.wrapping_mul(77),
        };
        let value = if value.is_empty() {
            EntryRef::Pointer(pointer)
        } else {
            EntryRef::Inline(value)
        };
        writer.add(key, seqno, value)?;
    }
    writer.finish()
}

fn scan(table: &Arc<Table>, direction: Direction, purpose: Purpose) -> Result<()> {
    let mut cursor = table.cursor(Unbounded, Unbounded, direction, purpose);
    while cursor.advance()? {
        black_box((cursor.key(), cursor.seqno(), cursor.value()));
    }
    Ok(())
}

fn bench(
    env: &Arc<TableEnv>,
    name: &str,
    config: &TableConfig,
    keys: &Keys,
    value: &[u8],
) -> Result<()> {
    // The cache knows blocks by file number, so numbers are never used twice.
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let mut last: Option<TableMeta> = None;
    let built = best(keys.len(), || {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        if let Some(old) = last.replace(build(env, number, config, keys, value)?) {
            env.volume.delete(old.id)?;
        }
        Ok(())
    })?;
    let Some(meta) = last else { return Ok(()) };
    let bytes = meta.bytes as f64 / keys.len() as f64;
    let table = Table::open(env, meta);
    table.load()?;
    let compaction = best(keys.len(), || {
        scan(&table, Direction::Forward, Purpose::Compaction)
    })?;
    scan(&table, Direction::Forward, Purpose::Read)?;
    let forward = best(keys.len(), || {
        scan(&table, Direction::Forward, Purpose::Read)
    })?;
    let reverse = best(keys.len(), || {
        scan(&table, Direction::Reverse, Purpose::Read)
    })?;
    let order: Vec<usize> = scattered(1, keys.len()).take(BATCHES * BATCH).collect();
    let get = best_of(order.chunks(BATCH), BATCH, |batch| {
        for &n in batch {
            let key = &keys[n];
            black_box(table.get(key, key_hash(key))?);
        }
        Ok(())
    })?;
    let absent = best_of(order.chunks(BATCH), BATCH, |batch| {
        for &n in batch {
            let mut key = keys[n];
            key[15] = b'x';
            black_box(table.get(&key, key_hash(&key))?);
        }
        Ok(())
    })?;
    // A few hundred keys whose blocks stay in the processor's caches: the search itself.
    let hot: Vec<(Block, [u8; 16])> = keys
        .iter()
        .step_by(keys.len() / 200 + 1)
        .filter_map(|key| {
            let handle = table.locate(key, key_hash(key)).ok()??;
            Some((table.cached_block(handle)?, *key))
        })
        .collect();
    let search = best_of(0..BATCHES as u64, BATCH, |seed| {
        for n in scattered(seed, hot.len()).take(BATCH) {
            let (block, key) = &hot[n];
            black_box(table.search(block, key)?);
        }
        Ok(())
    })?;
    println!(
        "{name:<22} build {built:>5.0}  get {get:>5.0}  absent {absent:>4.0}  in-block {search:>4.0}  scan {forward:>3.0}  back {reverse:>3.0}  compaction {compaction:>3.0}  \
         {bytes:.1} B/entry, {:.2} B/entry fences and filter",
        table.memory_bytes() as f64 / keys.len() as f64
    );
    table.mark_obsolete();
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let entries = arguments.next().and_then(|text| text.parse().ok());
    let value_bytes = arguments.next().and_then(|text| text.parse().ok());
    let directory = arguments
        .next()
        .unwrap_or_else(|| "target/table_bench".into());
    let keys = keys(entries.unwrap_or(500_000));
    let value = vec![7; value_bytes.unwrap_or(0)];
    let options = DirOptions {
        create: true,
        ..DirOptions::default()
    };
    let volume = DirVolume::open(&directory, options)?;
    let env = Arc::new(TableEnv {
        volume,
        cache: Arc::new(Cache::new(1 << 30)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db: DbId([7; 16]),
        reads: None,
        remaps: false,
    });
    println!(
        "{} keys of 16 B, values of {} B (0: pointers); ns",
        keys.len(),
        value.len()
    );
    for interval in [4, 8, 16] {
        let config = TableConfig {
            restart_interval: interval,
            ..TableConfig::default()
        };
        bench(
            &env,
            &format!("plain, interval {interval}"),
            &config,
            &keys,
            &value,
        )?;
    }
    let lz4 = TableConfig::with_compression(Compression::Lz4);
    bench(&env, "lz4, 16 KiB", &lz4, &keys, &value)?;
    println!(
        "buffers left: {} B",
        env.memory.used_bytes(MemoryPart::Buffers)
    );
    Ok(())
}
