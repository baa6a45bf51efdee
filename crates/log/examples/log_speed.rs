//! How fast the log takes commits on a real directory, with the engine's order of calls: one lock gives places, copies run in parallel, completions are published in order.
//!
//! `cargo run --release -p glintdb-log --example log_speed -- DIR os|sync THREADS VALUE_BYTES COMMITS [RING_MIB]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a measuring program"
)]

use glintdb_core::{DbId, FileNumbers, KeyspaceId, Result, SeqNum};
use glintdb_flash::{DirOptions, DirVolume};
use glintdb_log::{FrameBuilder, Log, LogOptions, LogSetup, Lsn, Reservation, Space};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

const SLOTS: usize = 4096;

/// Publishes reservations in the order of sequence numbers, whoever is ready.
struct Publisher {
    slots: Vec<Mutex<Option<Reservation>>>,
    next: AtomicU64,
}

impl Publisher {
    fn publish(&self, log: &Log, seqno: u64, reservation: &Reservation) {
        *self.slots[seqno as usize % SLOTS].lock() = Some(reservation.clone());
        loop {
            let next = self.next.load(Ordering::SeqCst);
            let Some(ready) = self.slots[next as usize % SLOTS].lock().take() else {
                break;
            };
            log.complete(&ready);
            self.next.store(next + 1, Ordering::SeqCst);
        }
        while self.next.load(Ordering::SeqCst) <= seqno {
            std::thread::yield_now();
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, mode, threads, value_bytes, commits, ring @ ..] = &args[..] else {
        println!("DIR os|sync THREADS VALUE_BYTES COMMITS [RING_MIB]");
        return;
    };
    let threads: u64 = threads.parse().unwrap();
    let value_bytes: usize = value_bytes.parse().unwrap();
    let commits: u64 = commits.parse().unwrap();
    let ring_mib: usize = ring.first().map_or(64, |mib| mib.parse().unwrap());
    let sync = mode == "sync";
    std::fs::create_dir_all(dir).unwrap();
    let volume = DirVolume::open(std::path::Path::new(dir), DirOptions::default()).unwrap();
    let setup = LogSetup {
        volume,
        db: DbId([1; 16]),
        clock: Arc::new(glintdb_flash::SystemClock::new()),
        numbers: Arc::new(Numbers(AtomicU64::new(1))),
        options: LogOptions {
            ring_bytes: ring_mib << 20,
            ..LogOptions::default()
        },
    };
    let log = Log::create(setup.clone()).unwrap();
    log.prepare_step(Space::Normal).unwrap();
    let sequencer = Mutex::new(0u64);
    let publisher = Publisher {
        slots: (0..SLOTS).map(|_| Mutex::new(None)).collect(),
        next: AtomicU64::new(1),
    };
    let done = AtomicBool::new(false);
    let start = Instant::now();
    let mut elapsed = start.elapsed();
    let mut latencies: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if log.prepare_due() {
                    log.prepare_step(Space::Normal).unwrap();
                } else if !(log.spill_due() && log.spill_step().unwrap()) {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            }
        });
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let (log, sequencer, publisher) = (&log, &sequencer, &publisher);
                scope.spawn(move || {
                    let value = vec![7u8; value_bytes];
                    let mut frame = FrameBuilder::new();
                    let mut latencies = Vec::new();
                    for n in 0..commits / threads {
                        let begun = (sync || n % 16 == 0).then(Instant::now);
                        frame.clear();
                        let key = (n * threads + thread).to_be_bytes();
                        let key: Vec<u8> = [key, key].concat();
                        if value_bytes >= 512 {
                            frame.put_separated(KeyspaceId(1), &key, &value);
                        } else {
                            frame.put(KeyspaceId(1), &key, &value);
                        }
                        frame.finish();
                        let (seqno, reservation) = loop {
                            let mut next = sequencer.lock();
                            match log.reserve(frame.frame_bytes(), Space::Normal) {
                                Ok(reservation) => {
                                    *next += 1;
                                    break (*next, reservation);
                                }
                                Err(reason) => {
                                    drop(next);
                                    log.wait(reason, Space::Normal).unwrap();
                                }
                            }
                        };
                        log.copy(&reservation, &mut frame, SeqNum(seqno));
                        publisher.publish(log, seqno, &reservation);
                        log.write_out(&reservation).unwrap();
                        if sync {
                            log.sync(reservation.end()).unwrap();
                        }
                        if let Some(begun) = begun {
                            latencies.push(begun.elapsed().as_nanos() as u64);
                        }
                    }
                    latencies
                })
            })
            .collect();
        for writer in writers {
            latencies.extend(writer.join().unwrap());
        }
        elapsed = start.elapsed();
        done.store(true, Ordering::Relaxed);
        job.join().unwrap();
    });
    latencies.sort_unstable();
    let at = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let stats = log.stats();
    println!(
        "{mode} x{threads} {value_bytes} B: {:.0} commits/s, {:.0} MB/s, us p50 {:.2} p99 {:.2} p99.9 {:.2} max {:.0}, {stats:?}",
        commits as f64 / elapsed.as_secs_f64(),
        stats.appended_bytes as f64 / elapsed.as_secs_f64() / 1e6,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
    let from = Lsn::new(log.segments().unwrap()[0].id, 4096);
    drop((log, publisher));
    let start = Instant::now();
    let (log, recovered) =
        Log::recover(setup, from, from, &[], &mut |_| Ok(()), &mut |_| {}).unwrap();
    let elapsed = start.elapsed();
    println!(
        "recovered {} frames in {elapsed:?}, {:.0} MB/s",
        recovered.frames,
        stats.appended_bytes as f64 / elapsed.as_secs_f64() / 1e6
    );
    drop(log);
    std::fs::remove_dir_all(dir).unwrap();
}
