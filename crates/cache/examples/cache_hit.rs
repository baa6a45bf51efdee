//! What a cache hit costs, and what an entry costs beside its bytes.
//!
//! ```sh
//! cargo run --release -p glintdb-cache --example cache_hit
//! ```
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use glintdb_cache::{Cache, CacheKey, KeyHash, ValuePlace};
use glintdb_core::clock::Clock;
use glintdb_core::{FileId, FileKind, SegmentId};
use glintdb_flash::SystemClock;
use std::hint::black_box;

const LOOKUPS: u64 = 4_000_000;

fn main() {
    for entries in [1_000_u64, 500_000] {
        let cache = Cache::new(1 << 30);
        let before = resident_bytes();
        for index in 0..entries {
            cache.insert(key(index), &[&[1; 100]]);
        }
        let grown = resident_bytes().saturating_sub(before);
        println!(
            "{entries} entries of 100 bytes: {} bytes each beside their own (counted as {})",
            (grown / entries).saturating_sub(100),
            (cache.used_bytes() as u64 / entries).saturating_sub(100)
        );
        for threads in [1, 2] {
            let (clock, cpu) = (SystemClock::new(), cpu_seconds());
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let cache = &cache;
                    scope.spawn(move || {
                        let mut random = thread + 1;
                        for _ in 0..LOOKUPS {
                            black_box(cache.get(&key(next(&mut random) % entries)));
                        }
                    });
                }
            });
            let each = clock.monotonic().as_secs_f64() * 1e9 / LOOKUPS as f64;
            let cpu = (cpu_seconds() - cpu) * 1e9 / (LOOKUPS * threads) as f64;
            println!(
                "  {threads} thread(s): {each:.0} ns a hit of each thread, {cpu:.0} ns CPU a hit"
            );
        }
        assert_eq!(cache.stats().misses, 0);
    }
}

fn key(index: u64) -> CacheKey {
    let place = u32::try_from(index % 1000).unwrap_or(0) * 4096;
    match index % 2 {
        0 => CacheKey::Block(FileId::new(FileKind::Table, index / 1000), u64::from(place)),
        _ => CacheKey::Value(
            KeyHash(index, index),
            ValuePlace(SegmentId(index / 1000), place),
        ),
    }
}

/// Xorshift.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// CPU time of this process so far, from `/proc` (10 ms steps).
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}
