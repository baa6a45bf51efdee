//! What the log's ring costs: copying records in (first and later laps), moving it to a segment, syncing it.
//!
//! ```sh
//! cargo run --release -p glintdb-flash --example ring_cost -- DIRECTORY [MEBIBYTES]
//! ```
//!
//! Works in a new sub-directory of DIRECTORY, with a ring of MEBIBYTES (64), and removes it.
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use glintdb_core::clock::Clock;
use glintdb_core::{Error, FileId, FileKind, Result};
use glintdb_flash::{
    AlignedBuffer, CreateOptions, DataClass, DirOptions, DirVolume, Ring, SystemClock, Volume,
};

const PIECE_BYTES: usize = 1 << 20;
const RECORD_BYTES: [usize; 3] = [128, 1024, 4096];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .ok_or_else(|| Error::invalid("usage: ring_cost DIRECTORY [MEBIBYTES]"))?;
    let mebibytes: usize = match arguments.next() {
        None => 64,
        Some(text) => text
            .parse()
            .map_err(|_| Error::invalid(format!("{text} is not a number")))?,
    };
    let path = std::path::Path::new(&directory).join("ring_cost.tmp");
    let result = measure(&path, mebibytes << 20);
    std::fs::remove_dir_all(&path)
        .map_err(|error| Error::io("remove the test's directory", error))?;
    result
}

fn measure(path: &std::path::Path, bytes: usize) -> Result<()> {
    let options = DirOptions {
        create: true,
        ..DirOptions::default()
    };
    let volume = DirVolume::open(path, options)?;
    let clock = SystemClock::new();
    let ring = volume.ring(bytes)?;
    println!(
        "create {} MiB: {:.1} ms, survives kill: {}",
        bytes >> 20,
        clock.monotonic().as_secs_f64() * 1e3,
        ring.survives_kill()
    );
    let clock = SystemClock::new();
    ring.grow(bytes)?;
    println!(
        "give it space: {:.1} ms",
        clock.monotonic().as_secs_f64() * 1e3
    );
    drop(ring);
    let clock = SystemClock::new();
    let ring = volume.ring(bytes)?;
    ring.grow(bytes)?;
    println!(
        "open it again: {:.1} ms",
        clock.monotonic().as_secs_f64() * 1e3
    );
    for lap in ["first lap", "second lap", "third lap"] {
        for record_bytes in RECORD_BYTES {
            fill(&*ring, lap, record_bytes);
        }
    }
    let clock = SystemClock::new();
    ring.sync()?;
    println!(
        "sync of all of it: {:.1} ms",
        clock.monotonic().as_secs_f64() * 1e3
    );
    fill(&*ring, "first lap after the sync", RECORD_BYTES[0]);
    fill(&*ring, "second lap after the sync", RECORD_BYTES[0]);
    ring.sync()?;
    let record = [7; 4096];
    let clock = SystemClock::new();
    for index in 0..500 {
        ring.write(index * 4096 % bytes, &record);
        ring.sync()?;
    }
    println!(
        "4 KiB into the ring and a sync: {:.0} us",
        clock.monotonic().as_secs_f64() * 1e6 / 500.0
    );
    let segment = CreateOptions {
        class: DataClass::Log,
        reserve_bytes: bytes as u64,
        direct: true,
    };
    for name in ["new segment", "once more over it"] {
        let id = FileId::new(FileKind::Log, 1);
        let file = volume.create(id, segment).or_else(|_| volume.open(id))?;
        let clock = SystemClock::new();
        for offset in (0..bytes).step_by(PIECE_BYTES) {
            ring.write_to(offset, PIECE_BYTES, &*file, offset as u64)?;
        }
        let each = clock.monotonic().as_secs_f64() * 1e6 / (bytes / PIECE_BYTES) as f64;
        println!("write_to a {name}: {each:.0} us a MiB");
        file.sync()?;
    }
    for (name, direct) in [("buffered", false), ("direct", true)] {
        let id = FileId::new(FileKind::Log, 2 + u64::from(direct));
        let file = volume.create(id, CreateOptions { direct, ..segment })?;
        let zeros = AlignedBuffer::zeroed(bytes)?;
        file.write_at(0, zeros.as_slice())?;
        file.sync()?;
        let clock = SystemClock::new();
        for index in 0..500 {
            file.write_at((index * 4096 % bytes) as u64, &zeros.as_slice()[..4096])?;
            file.sync()?;
        }
        println!(
            "4 KiB {name} over written blocks and a sync: {:.0} us",
            clock.monotonic().as_secs_f64() * 1e6 / 500.0
        );
    }
    Ok(())
}

fn fill(ring: &dyn Ring, lap: &str, record_bytes: usize) {
    let record = vec![7; record_bytes];
    let clock = SystemClock::new();
    for offset in (0..ring.len()).step_by(record_bytes) {
        ring.write(offset, &record);
    }
    let each = clock.monotonic().as_secs_f64() * 1e9 / (ring.len() / record_bytes) as f64;
    println!("{lap}, {record_bytes} bytes: {each:.0} ns a record");
}
