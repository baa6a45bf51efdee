//! The ways to write a log that `docs/decisions/001-log-write-path.md` compares, over the flash layer: a leader writes what the group has gathered.
//!
//! `cargo run --release -p glintdb-log --example write_path -- DIR os|sync pwrite|prealloc|direct|ring THREADS VALUE_BYTES COMMITS`
//!
//! - `pwrite`: through the page cache, growing file. `prealloc`: the same, 64 MiB reserved. `direct`: whole blocks, the last one again and again, 64 MiB reserved.
//! - `ring`: into the mapped ring, nothing else (no segment is written: 32 MiB are overwritten for ever); with `sync`, the ring is synced.
//!
//! The finished log, spill included, is measured by the example `log_speed`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a measuring program"
)]

use glintdb_core::checksum::crc32c;
use glintdb_core::{FileId, FileKind};
use glintdb_flash::{
    AlignedBuffer, CreateOptions, DataClass, DirOptions, DirVolume, Ring, Volume, VolumeFile,
};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

const SEGMENT_BYTES: u64 = 64 << 20;
const RING_BYTES: usize = 32 << 20;

/// Where the leader writes the group.
enum Sink {
    Files {
        volume: Arc<DirVolume>,
        options: CreateOptions,
        file: Arc<dyn VolumeFile>,
        number: u64,
    },
    Ring(Arc<dyn Ring>),
}

struct Writer {
    sink: Sink,
    /// Offset in the file or ring; a multiple of 4 KiB behind a direct write's whole blocks.
    offset: u64,
    /// Bytes of the last, partial block of a direct write.
    tail: Vec<u8>,
    direct: bool,
    sync: bool,
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) {
        match &mut self.sink {
            Sink::Ring(ring) => {
                for chunk in bytes.chunks(4096) {
                    let at = self.offset as usize % RING_BYTES;
                    let (first, rest) = chunk.split_at(chunk.len().min(RING_BYTES - at));
                    ring.write(at, first);
                    ring.write(0, rest);
                    self.offset += chunk.len() as u64;
                }
                if self.sync {
                    assert!(ring.sync().unwrap());
                }
            }
            Sink::Files {
                volume,
                options,
                file,
                number,
            } => {
                if self.offset + (bytes.len() as u64).next_multiple_of(4096) + 4096 > SEGMENT_BYTES
                {
                    *number += 1;
                    *file = volume
                        .create(FileId::new(FileKind::Log, *number), *options)
                        .unwrap();
                    self.offset = 0;
                }
                if self.direct {
                    self.tail.extend_from_slice(bytes);
                    let mut blocks =
                        AlignedBuffer::zeroed(self.tail.len().next_multiple_of(4096)).unwrap();
                    blocks.as_mut_slice()[..self.tail.len()].copy_from_slice(&self.tail);
                    file.write_at(self.offset, blocks.as_slice()).unwrap();
                    let whole = self.tail.len() / 4096 * 4096;
                    self.tail.drain(..whole);
                    self.offset += whole as u64;
                } else {
                    file.write_at(self.offset, bytes).unwrap();
                    self.offset += bytes.len() as u64;
                }
                if self.sync {
                    file.sync().unwrap();
                }
            }
        }
    }
}

#[derive(Default)]
struct Group {
    gathered: Vec<u8>,
    tickets: u64,
    written: u64,
    leading: bool,
}

fn commit(group: &Mutex<Group>, done: &Condvar, writer: &Mutex<Writer>, frame: &[u8]) {
    let mut state = group.lock();
    state.gathered.extend_from_slice(frame);
    state.tickets += 1;
    let mine = state.tickets;
    while state.written < mine {
        if state.leading {
            done.wait(&mut state);
            continue;
        }
        state.leading = true;
        let bytes = std::mem::take(&mut state.gathered);
        let up_to = state.tickets;
        drop(state);
        writer.lock().write(&bytes);
        state = group.lock();
        state.leading = false;
        state.written = up_to;
        done.notify_all();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, mode, method, threads, value_bytes, commits] = &args[..] else {
        println!("DIR os|sync pwrite|prealloc|direct|ring THREADS VALUE_BYTES COMMITS");
        return;
    };
    let threads: u64 = threads.parse().unwrap();
    let value_bytes: usize = value_bytes.parse().unwrap();
    let commits: u64 = commits.parse().unwrap();
    std::fs::create_dir_all(dir).unwrap();
    let volume = DirVolume::open(dir, DirOptions::default()).unwrap();
    let direct = method == "direct";
    let options = CreateOptions {
        class: DataClass::Log,
        reserve_bytes: if method == "pwrite" { 0 } else { SEGMENT_BYTES },
        direct,
    };
    let sink = if method == "ring" {
        let ring = volume.ring(RING_BYTES).unwrap();
        ring.grow(RING_BYTES).unwrap();
        Sink::Ring(ring)
    } else {
        let file = volume
            .create(FileId::new(FileKind::Log, 1), options)
            .unwrap();
        Sink::Files {
            volume: Arc::clone(&volume),
            options,
            file,
            number: 1,
        }
    };
    let writer = Mutex::new(Writer {
        sink,
        offset: 0,
        tail: Vec::new(),
        direct,
        sync: mode == "sync",
    });
    let (group, done) = (Mutex::new(Group::default()), Condvar::new());
    let start = Instant::now();
    let mut latencies: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (group, done, writer) = (&group, &done, &writer);
                scope.spawn(move || {
                    let mut frame = vec![thread as u8; (56 + 16 + value_bytes).next_multiple_of(8)];
                    let mut latencies = Vec::new();
                    for n in 0..commits / threads {
                        let begun = Instant::now();
                        let checksum = crc32c(&frame[40..]) ^ n as u32;
                        frame[..4].copy_from_slice(&checksum.to_le_bytes());
                        commit(group, done, writer, &frame);
                        latencies.push(begun.elapsed().as_nanos() as u64);
                    }
                    latencies
                })
            })
            .collect();
        for thread in threads {
            latencies.extend(thread.join().unwrap());
        }
    });
    let elapsed = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    println!(
        "{mode} {method} x{threads} {value_bytes} B: {:.0} commits/s, us p50 {:.2} p99 {:.2} max {:.0}",
        latencies.len() as f64 / elapsed,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    drop(writer);
    std::fs::remove_dir_all(dir).unwrap();
}
