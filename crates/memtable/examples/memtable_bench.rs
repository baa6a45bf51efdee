//! Compares the memtable with other ordered maps: `cargo run --release -p glintdb-memtable --example memtable_bench -- [KEYS] [MAPS] [THREADS]`,
//! for example `-- 2000000 ours,skiplist 1,2,8`. For each map, thread count and value size: random inserts, random gets of the same keys, one scan of all by one thread, and ascending
//! inserts into a fresh map, in millions a second of wall time and (in brackets) a second of CPU time of one thread.

#![allow(unsafe_code, reason = "reads the CPU clock of the thread")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for the terminal"
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Barrier, RwLock};
use std::time::{Duration, Instant};

use crossbeam_skiplist::SkipMap;
use glintdb_core::{Direction, EntryRef, SeqNum};
use glintdb_memtable::{Arena, ChunkPool, Memtable};

type Key = [u8; 16];
type VersionedKey = (Key, Reverse<u64>);
type Value = Box<[u8]>;

/// What is compared: a map from (key, seqno descending) to value.
trait Map: Send + Sync {
    fn put(&self, key: &Key, seqno: u64, value: &[u8]);
    /// First byte of the newest value.
    fn get(&self, key: &Key) -> Option<u8>;
    /// Walks all records in order of their keys (shard by shard where there are shards); the sum of the first bytes of keys and values.
    fn scan(self: Arc<Self>) -> u64;
}

impl Map for Memtable {
    fn put(&self, key: &Key, seqno: u64, value: &[u8]) {
        self.insert(key, SeqNum(seqno), EntryRef::Inline(value));
    }
    fn get(&self, key: &Key) -> Option<u8> {
        match Memtable::get(self, key, SeqNum::MAX)? {
            (_, EntryRef::Inline(value)) => value.first().copied(),
            _ => None,
        }
    }
    fn scan(self: Arc<Self>) -> u64 {
        let mut cursor = self.cursor(
            Bound::Unbounded,
            Bound::Unbounded,
            Direction::Forward,
            SeqNum::MAX,
        );
        let mut sum = 0;
        while cursor.advance() {
            if let EntryRef::Inline(value) = cursor.value() {
                sum += touch(cursor.key(), value);
            }
        }
        sum
    }
}

/// What every scan does with a record.
fn touch(key: &[u8], value: &[u8]) -> u64 {
    u64::from(key[0]) + u64::from(value[0])
}

impl Map for SkipMap<VersionedKey, Value> {
    fn put(&self, key: &Key, seqno: u64, value: &[u8]) {
        self.insert((*key, Reverse(seqno)), value.into());
    }
    fn get(&self, key: &Key) -> Option<u8> {
        let entry = self.lower_bound(Bound::Included(&(*key, Reverse(u64::MAX))))?;
        (entry.key().0 == *key).then(|| entry.value()[0])
    }
    fn scan(self: Arc<Self>) -> u64 {
        self.iter()
            .map(|entry| touch(&entry.key().0, entry.value()))
            .sum()
    }
}

/// `BTreeMap`s behind locks, the key's last byte choosing one: with more than one no ordered scan, but the fairest chance for threads.
struct Locked(Vec<RwLock<BTreeMap<VersionedKey, Value>>>);

impl Map for Locked {
    fn put(&self, key: &Key, seqno: u64, value: &[u8]) {
        let shard = &self.0[usize::from(key[15]) % self.0.len()];
        shard
            .write()
            .unwrap()
            .insert((*key, Reverse(seqno)), value.into());
    }
    fn get(&self, key: &Key) -> Option<u8> {
        let shard = self.0[usize::from(key[15]) % self.0.len()].read().unwrap();
        let (found, value) = shard.range((*key, Reverse(u64::MAX))..).next()?;
        (found.0 == *key).then(|| value[0])
    }
    fn scan(self: Arc<Self>) -> u64 {
        let shards = self.0.iter().map(|shard| shard.read().unwrap());
        shards
            .map(|shard| {
                shard
                    .iter()
                    .map(|(key, value)| touch(&key.0, value))
                    .sum::<u64>()
            })
            .sum()
    }
}

impl Map for scc::TreeIndex<VersionedKey, Value> {
    fn put(&self, key: &Key, seqno: u64, value: &[u8]) {
        self.insert_sync((*key, Reverse(seqno)), value.into())
            .unwrap();
    }
    fn get(&self, key: &Key) -> Option<u8> {
        let guard = scc::Guard::new();
        let (found, value) = self.range((*key, Reverse(u64::MAX)).., &guard).next()?;
        (found.0 == *key).then(|| value[0])
    }
    fn scan(self: Arc<Self>) -> u64 {
        let guard = scc::Guard::new();
        self.iter(&guard)
            .map(|(key, value)| touch(&key.0, value))
            .sum()
    }
}

fn create(name: &str, pool: &Arc<ChunkPool>) -> Arc<dyn Map> {
    match name {
        "ours" => Arc::new(Memtable::new(Arena::new(Arc::clone(pool)))),
        "skiplist" => Arc::new(SkipMap::new()),
        "btree" => Arc::new(Locked(vec![RwLock::default()])),
        "btree16" => Arc::new(Locked((0..16).map(|_| RwLock::default()).collect())),
        "scc" => Arc::new(scc::TreeIndex::new()),
        _ => panic!("maps are ours, skiplist, btree, btree16, scc"),
    }
}

/// SplitMix64's finaliser: a bijection, so distinct numbers give distinct keys.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn random_key(i: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(i).to_be_bytes());
    key[8..].copy_from_slice(&mix(!i).to_be_bytes());
    key
}

/// As db_bench writes them: decimal digits, so the first eight bytes tell nothing.
fn ascending_key(i: u64) -> Key {
    let mut key = [b'0'; 16];
    let mut rest = i;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn thread_cpu() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0, "every Linux has this clock");
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap(),
    )
}

/// Runs `operation` once for each of `0..count`, dealt out to `threads`; millions a second of wall time and of one thread's CPU.
fn timed(threads: usize, count: u64, operation: impl Fn(u64) + Sync) -> (f64, f64) {
    let barrier = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, operation) = (&barrier, &operation);
                scope.spawn(move || {
                    barrier.wait();
                    let before = thread_cpu();
                    (thread as u64..count).step_by(threads).for_each(operation);
                    thread_cpu() - before
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let cpu: Duration = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        let millions = count as f64 / 1e6;
        (
            millions / start.elapsed().as_secs_f64(),
            millions / cpu.as_secs_f64(),
        )
    })
}

fn run(name: &str, threads: usize, count: u64, value_bytes: usize, pool: &Arc<ChunkPool>) {
    let value = vec![7; value_bytes];
    let map = create(name, pool);
    let insert = timed(threads, count, |i| map.put(&random_key(i), i + 1, &value));
    let get = timed(threads, count, |i| {
        assert_eq!(map.get(&random_key(mix(i) % count)), Some(7));
    });
    let expected: u64 = (0..count).map(|i| u64::from(random_key(i)[0]) + 7).sum();
    let scan = timed(1, 1, |_| assert_eq!(Arc::clone(&map).scan(), expected));
    let scan = (scan.0 * count as f64, scan.1 * count as f64);
    drop(map);
    let map = create(name, pool);
    let ascending = timed(threads, count, |i| {
        map.put(&ascending_key(i), i + 1, &value)
    });
    println!(
        "{name:9} {threads} threads, {value_bytes:3} B: insert {:5.2} ({:5.2})  get {:5.2} ({:5.2})  scan {:5.1} ({:5.1})  ascending insert {:5.2} ({:5.2})",
        insert.0, insert.1, get.0, get.1, scan.0, scan.1, ascending.0, ascending.1
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument =
        |at: usize, default: &str| arguments.get(at).map_or(default.to_owned(), String::clone);
    let count = argument(0, "2000000").parse().unwrap();
    let names = argument(1, "ours,skiplist,btree,btree16,scc");
    let threads = argument(2, "1,2,8");
    let pool = ChunkPool::new(argument(3, "1073741824").parse().unwrap());
    for value_bytes in [100, 20] {
        for threads in threads.split(',') {
            for name in names.split(',') {
                run(name, threads.parse().unwrap(), count, value_bytes, &pool);
            }
        }
    }
}
