//! The space that the log takes follows the data in it.

use crate::support::*;
use glintdb_core::ErrorKind;
use glintdb_flash::Volume;
use glintdb_log::{Log, LogOptions, Space};
use glintdb_simdisk::{CrashMode, MemOptions, MemVolume};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const CAPACITY_BYTES: u64 = 1 << 40;

/// The default sizes, except for a ring that is small beside the data.
fn options() -> LogOptions {
    LogOptions {
        ring_bytes: 1 << 20,
        ..LogOptions::default()
    }
}

fn volume() -> Arc<MemVolume> {
    MemVolume::with_options(MemOptions {
        capacity_bytes: Some(CAPACITY_BYTES),
        ..MemOptions::default()
    })
}

fn used_bytes(volume: &MemVolume) -> u64 {
    CAPACITY_BYTES - volume.free_bytes().unwrap()
}

/// What the engine's background job does.
fn run_jobs(log: &Log) {
    while log.prepare_due() {
        log.prepare_step(Space::Normal).unwrap();
    }
    log.grow_ring_ahead();
    while log.spill_step().unwrap() {}
}

/// Commits batches of 10 kB until `bytes` are written; answers how many there are then.
fn write(log: &Log, from: u64, bytes: u64) -> u64 {
    let mut seqno = from;
    while log.stats().appended_bytes < bytes {
        seqno += 1;
        commit(log, &Batch::separated(seqno, 10_000));
        run_jobs(log);
    }
    seqno
}

#[test]
fn segments_and_their_reserve_grow_with_what_is_written() {
    let (volume, numbers) = (volume(), numbers());
    let log = Log::create(setup(&volume, &numbers, options())).unwrap();
    let from = log.end();
    let mut seqno = 0;
    for mib in 1..=40 {
        seqno = write(&log, seqno, mib * MIB);
        let segment = log.segment_bytes();
        assert!(segment <= (mib * MIB / 8).max(MIB), "{segment}");
        // The data, the ring, the rest of the active segment, the next one, and the reserve, which
        // may be a segment larger than necessary.
        let most = log.stats().appended_bytes + MIB + 5 * segment;
        let used = used_bytes(&volume);
        assert!(used <= most, "{used} bytes used, {most} expected at most");
    }
    // Eight segments of 1 MiB; each later one is an eighth of all before it.
    let segments = log.stats().segments;
    assert!((18..=25).contains(&segments), "{segments}");

    drop(log);
    let killed = volume.kill();
    let written = seqno * 10_200;
    let replay = recover(setup(&killed, &numbers, options()), from);
    assert_eq!(replay.batches.len() as u64, seqno);
    run_jobs(&replay.log);
    let used = used_bytes(&killed);
    assert!(used <= written + 6 * MIB, "{used} bytes used after opening");
}

/// Ahead of commits, where the engine's job comes by, and no more than four times as far as they
/// are.
#[test]
fn the_ring_takes_space_as_it_is_written() {
    let options = LogOptions {
        ring_bytes: 8 << 20,
        ..options()
    };
    let (volume, numbers) = (volume(), numbers());
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    let from = log.end();
    assert_eq!(used_bytes(&volume), 2 * MIB, "the ring and a segment");
    let mut seqno = 0;
    for kib in 1..=10_000 {
        seqno = write(&log, seqno, kib << 10);
        let stats = log.stats();
        // Beside the frames there are the segments' headers.
        let place = stats.appended_bytes + stats.segments * 4096;
        assert!(stats.ring_space_bytes <= (4 * place).max(MIB));
        assert!(stats.ring_space_bytes >= stats.appended_bytes.min(8 * MIB));
    }
    let stats = log.stats();
    assert_eq!((stats.ring_space_bytes, stats.ring_waits), (8 * MIB, 0));
    drop(log);
    let killed = volume.kill();
    let replay = recover(setup(&killed, &numbers, options), from);
    assert_eq!(replay.batches.len() as u64, seqno);
    assert_eq!(replay.log.stats().ring_space_bytes, MIB, "it begins again");
    // Where no job comes by, the commits that come to its end give it space.
    for seqno in seqno + 1..seqno + 600 {
        commit(&replay.log, &Batch::separated(seqno, 10_000));
    }
    let stats = replay.log.stats();
    assert!(stats.ring_space_bytes >= 4 * MIB, "{stats:?}");
    drop(replay);
    let replay = recover(setup(&killed.kill(), &numbers, options), from);
    assert_eq!(replay.batches.len() as u64, seqno + 599);
}

/// On a small file system data need the space more than the ring: commits that come to the end of
/// what it has go round it, and go on at its beginning.
#[test]
fn a_ring_that_finds_no_space_is_used_again_from_its_beginning() {
    let options = LogOptions {
        ring_bytes: 8 << 20,
        ..options()
    };
    for (capacity, ring) in [(12 * MIB, MIB), (40 * MIB, 4 * MIB)] {
        let (volume, numbers) = (MemVolume::new(), numbers());
        volume.set_capacity_bytes(Some(capacity));
        let log = Log::create(setup(&volume, &numbers, options)).unwrap();
        log.set_segment_bytes(MIB);
        let mut dead = Vec::new();
        let mut batches = Vec::new();
        let mut from = log.end();
        for seqno in 1..=3000 {
            let batch = Batch::separated(seqno, 10_000);
            let committed = commit(&log, &batch);
            run_jobs(&log);
            if dead.last() != Some(&committed.lsn.segment) {
                dead.push(committed.lsn.segment);
                (from, batches) = (committed.lsn, Vec::new());
            }
            batches.push(batch);
            // Old segments are not needed.
            if dead.len() > 2 && log.delete(dead[0]).is_ok() {
                dead.remove(0);
            }
        }
        let stats = log.stats();
        assert!(stats.ring_space_bytes <= ring + ring / 8, "{stats:?}");
        assert!(stats.large_frames >= 5, "{stats:?}");
        drop(log);
        let replay = recover(setup(&volume.kill(), &numbers, options), from);
        assert_eq!(replay.batches, batches);
    }
}

#[test]
fn a_log_that_is_closed_gives_the_ring_back() {
    let options = LogOptions {
        ring_bytes: 8 << 20,
        ..options()
    };
    let (volume, numbers) = (volume(), numbers());
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    let from = log.end();
    let mut committed = Vec::new();
    for seqno in 1..=500 {
        let batch = Batch::separated(seqno, 10_000);
        committed.push((commit(&log, &batch).pointers[0], batch));
        run_jobs(&log);
    }
    let space = log.stats().ring_space_bytes;
    let used = used_bytes(&volume);
    // Not before everything is durable.
    log.release_ring().unwrap();
    assert_eq!(used_bytes(&volume), used);
    log.close().unwrap();
    log.release_ring().unwrap();
    assert_eq!(used_bytes(&volume), used - space + MIB);
    for (n, (pointer, _)) in committed.iter().enumerate() {
        assert_eq!(log.read(pointer).unwrap(), pattern(n as u64 + 1, 10_000));
    }
    let error = try_commit(&log, &Batch::put(501, 10), Space::Normal).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    drop(log);
    for volume in [volume.kill(), volume.crash(CrashMode::LoseUnsynced)] {
        let replay = recover(setup(&volume, &numbers, options), from);
        assert!(replay.batches.iter().eq(committed.iter().map(|one| &one.1)));
    }
}

#[test]
fn a_log_of_much_data_makes_larger_segments_from_the_beginning() {
    let (volume, numbers) = (volume(), numbers());
    let log = Log::create(setup(&volume, &numbers, options())).unwrap();
    for (data, segment) in [(0, 1), (64, 1), (640, 10), (1 << 20, 64)] {
        log.set_data_bytes(data * MIB);
        assert_eq!(log.segment_bytes(), segment * MIB, "{data} MiB of data");
    }
    log.set_segment_bytes(16 * MIB);
    assert_eq!(log.segment_bytes(), 16 * MIB);
}

/// A frame that the ring would hold, but no segment of so small a log.
#[test]
fn a_frame_larger_than_the_next_segment_gets_one_of_its_own() {
    let options = LogOptions {
        ring_bytes: 16 << 20,
        ..options()
    };
    let (volume, numbers) = (volume(), numbers());
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    let from = log.end();
    let mut batches = Vec::new();
    let mut put = |log: &Log, value_bytes| {
        let batch = Batch::separated(batches.len() as u64 + 1, value_bytes);
        let committed = commit(log, &batch);
        run_jobs(log);
        batches.push(batch);
        committed
    };
    let (small, large) = (100_000, 2 << 20);
    put(&log, small);
    let committed = put(&log, large);
    assert_eq!(log.stats().large_frames, 1);
    assert_eq!(
        log.read(&committed.pointers[0]).unwrap(),
        pattern(2, large)[..]
    );
    while log.segment_bytes() < 3 * MIB {
        put(&log, small);
    }
    // Its rest may be too small yet.
    while log.stats().segments == log.segment_ids().len() as u64 {
        put(&log, small);
    }
    let before = log.stats().large_frames;
    for _ in 0..5 {
        put(&log, large);
    }
    assert_eq!(log.stats().large_frames, before, "they go through the ring");
    drop(log);
    let replay = recover(setup(&volume.kill(), &numbers, options), from);
    assert!(replay.batches == batches);
}

/// Deletions on a full disk: with the reserve they have as much log as two segments of that size of
/// log, and what they fill is not taken from the next opening.
#[test]
fn the_reserve_holds_two_segments_of_the_size_that_is_made_then() {
    let (volume, numbers) = (volume(), numbers());
    let log = Log::create(setup(&volume, &numbers, options())).unwrap();
    let seqno = write(&log, 0, 48 * MIB);
    let segment = log.segment_bytes();
    assert!((5 * MIB..=6 * MIB).contains(&segment), "{segment}");
    volume.set_capacity_bytes(Some(used_bytes(&volume)));
    let full = log.stats().appended_bytes;
    let (refused, full) = (seqno + 1..)
        .find_map(|seqno| {
            let batch = Batch::separated(seqno, 10_000);
            let refused = try_commit(&log, &batch, Space::Normal).is_err();
            run_jobs_that_find_no_space(&log);
            refused.then(|| (seqno, log.stats().appended_bytes.max(full)))
        })
        .unwrap();
    let more = (refused..)
        .find_map(|seqno| {
            let batch = Batch::separated(seqno, 10_000);
            let refused = try_commit(&log, &batch, Space::Reserve).is_err();
            refused.then(|| log.stats().appended_bytes - full)
        })
        .unwrap();
    assert!(more >= 2 * segment - MIB, "{more} bytes of deletions");
}

fn run_jobs_that_find_no_space(log: &Log) {
    if log.prepare_due() {
        log.prepare_step(Space::Normal).ok();
    }
    while log.spill_step().unwrap() {}
}
