//! Random aligned reads of one file at several depths, from one thread: what batches are worth on this machine.
//!
//! ```sh
//! cargo run --release -p glintdb-flash --example read_depth -- DIRECTORY [MEBIBYTES] [SECONDS]
//! ```
//!
//! Makes a file of MEBIBYTES (2048) in a new sub-directory of DIRECTORY, reads it once in sequence (so that every row starts equally warm), measures each row for
//! SECONDS (3), and removes it. Depth 1 is `read_at`; the others are `read_batch` of that many reads, the next batch submitted when the last has come back whole.
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use glintdb_core::clock::Clock;
use glintdb_core::{Error, FileId, FileKind, Result};
use glintdb_flash::{
    AlignedBuffer, CreateOptions, DataClass, DirOptions, DirVolume, DirectIo, READ_DEPTH_MAX,
    ReadEngine, ReadRequest, SystemClock, Volume, VolumeFile,
};
use std::sync::Arc;
use std::time::Duration;

const BLOCK_BYTES: usize = 4096;
const PIECE_BYTES: usize = 1 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .ok_or_else(|| Error::invalid("usage: read_depth DIRECTORY [MEBIBYTES] [SECONDS]"))?;
    let mut number = |default: u64| match arguments.next() {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| Error::invalid(format!("{text} is not a number"))),
    };
    let file_bytes = number(2048)? << 20;
    let seconds = Duration::from_secs(number(3)?);
    let path = std::path::Path::new(&directory).join("read_depth.tmp");
    let result = measure(&path, file_bytes, seconds);
    std::fs::remove_dir_all(&path)
        .map_err(|error| Error::io("remove the test's directory", error))?;
    result
}

fn measure(path: &std::path::Path, file_bytes: u64, seconds: Duration) -> Result<()> {
    let id = FileId::new(FileKind::Table, 1);
    let modes = [
        (DirectIo::Auto, ReadEngine::IoUring),
        (DirectIo::Auto, ReadEngine::Libaio),
        (DirectIo::Auto, ReadEngine::Threads),
        (DirectIo::Auto, ReadEngine::Sync),
        (DirectIo::Off, ReadEngine::IoUring),
        (DirectIo::Off, ReadEngine::Threads),
    ];
    for (mode, (direct, read_engine)) in modes.into_iter().enumerate() {
        let options = DirOptions {
            direct,
            read_engine,
            read_depth: READ_DEPTH_MAX,
            create: true,
            ..DirOptions::default()
        };
        let volume = DirVolume::open(path, options)?;
        if mode == 0 {
            write(&*volume, id, file_bytes)?;
        }
        let file = volume.open(id)?;
        for offset in (0..file_bytes).step_by(PIECE_BYTES) {
            file.read_at(offset, PIECE_BYTES)?;
        }
        println!("{}", volume.describe());
        println!(
            "{:>8} {:>10} {:>8} {:>10} {:>12}",
            "depth", "reads/s", "MB/s", "batch us", "CPU us/read"
        );
        for depth in [1, 2, 8, 32, 64, 128, 256] {
            row(
                &*volume,
                &file,
                file_bytes / BLOCK_BYTES as u64,
                depth,
                seconds,
            )?;
        }
    }
    Ok(())
}

fn write(volume: &dyn Volume, id: FileId, file_bytes: u64) -> Result<()> {
    let file = volume.create(
        id,
        CreateOptions {
            class: DataClass::Flush,
            reserve_bytes: file_bytes,
            direct: true,
        },
    )?;
    let mut piece = AlignedBuffer::zeroed(PIECE_BYTES)?;
    let mut random = 1;
    for offset in (0..file_bytes).step_by(PIECE_BYTES) {
        for bytes in piece.as_mut_slice().chunks_exact_mut(8) {
            bytes.copy_from_slice(&next(&mut random).to_le_bytes());
        }
        file.write_at(offset, piece.as_slice())?;
    }
    file.sync()
}

fn row(
    volume: &dyn Volume,
    file: &Arc<dyn VolumeFile>,
    blocks: u64,
    depth: usize,
    seconds: Duration,
) -> Result<()> {
    let clock = SystemClock::new();
    let (mut random, mut reads) = (7, 0_u64);
    let cpu = cpu_seconds();
    while clock.monotonic() < seconds {
        if depth == 1 {
            file.read_at(next(&mut random) % blocks * BLOCK_BYTES as u64, BLOCK_BYTES)?;
        } else {
            let mut batch: Vec<ReadRequest> = (0..depth)
                .map(|_| {
                    let offset = next(&mut random) % blocks * BLOCK_BYTES as u64;
                    ReadRequest::new(Arc::clone(file), offset, BLOCK_BYTES)
                })
                .collect();
            volume.read_batch(&mut batch);
            for request in batch {
                request.result.unwrap_or_else(|| Ok(Default::default()))?;
            }
        }
        reads += depth as u64;
    }
    let (elapsed, cpu) = (clock.monotonic().as_secs_f64(), cpu_seconds() - cpu);
    let rate = reads as f64 / elapsed;
    println!(
        "{depth:>8} {rate:>10.0} {:>8.0} {:>10.0} {:>12.2}",
        rate * BLOCK_BYTES as f64 / 1e6,
        1e6 / rate * depth as f64,
        cpu * 1e6 / reads as f64
    );
    Ok(())
}

/// Xorshift.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
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
