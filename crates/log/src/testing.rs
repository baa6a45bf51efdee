//! A small log in memory, for unit tests.

use crate::{Log, LogOptions, LogSetup};
use glintdb_core::clock::Clock;
use glintdb_core::{DbId, FileNumbers, Result};
use glintdb_simdisk::MemVolume;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A new log with a ring and segments of 64 KiB.
pub(crate) fn small(clock: Arc<dyn Clock>) -> Log {
    Log::create(LogSetup {
        volume: MemVolume::new(),
        db: DbId([7; 16]),
        clock,
        numbers: Arc::new(Numbers(AtomicU64::new(1))),
        options: LogOptions {
            segment_bytes: 64 << 10,
            ring_bytes: 64 << 10,
            reserve_segments: 0,
        },
    })
    .unwrap()
}
