//! What is there after a kill, a power cut, rot and a cut file.

use crate::support::*;
use glintdb_core::{ErrorKind, FileId, FileKind, SegmentId, SeqNum};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use glintdb_log::{FrameBuilder, Log, LogOptions, Lsn, Space};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemVolume};
use std::sync::Arc;

fn log_file(id: SegmentId) -> FileId {
    FileId::new(FileKind::Log, id.0)
}

type Life = (
    Arc<MemVolume>,
    Arc<Numbers>,
    Log,
    Lsn,
    Vec<(Batch, Committed)>,
);

/// A log of one segment with `count` batches, and where each ends.
fn one_segment(count: u64) -> Life {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let committed = (1..=count)
        .map(|n| {
            let batch = match n % 3 {
                0 => Batch::put(n, 20 + n as usize),
                1 => Batch::separated(n, 60 + n as usize),
                _ => Batch {
                    seqno: n,
                    ops: vec![Op::Delete(pattern(n, 10))],
                },
            };
            let committed = commit(&log, &batch);
            (batch, committed)
        })
        .collect();
    (volume, numbers, log, from, committed)
}

fn batches(committed: &[(Batch, Committed)]) -> Vec<Batch> {
    committed.iter().map(|(batch, _)| batch.clone()).collect()
}

#[test]
fn a_frame_never_copied_is_the_tail_and_what_follows_it_goes_for_good() {
    let (volume, numbers, log, from, committed) = one_segment(20);
    let mut frame = FrameBuilder::new();
    Batch::put(21, 50).build(&mut frame);
    let hole = log.reserve(frame.frame_bytes(), Space::Normal).unwrap();
    Batch::put(22, 60).build(&mut frame);
    let behind = log.reserve(frame.frame_bytes(), Space::Normal).unwrap();
    log.copy(&behind, &mut frame, SeqNum(22));
    drop(hole);
    let killed = volume.kill();
    // As if the frame behind the hole had reached the segment.
    let file = killed.open(log_file(from.segment)).unwrap();
    file.write_at(u64::from(behind.end().offset), &[1; 100])
        .unwrap();
    let replay = recover(setup(&killed, &numbers, small()), from);
    assert_eq!(replay.batches, batches(&committed));
    // Cut behind a seal of 48 bytes, and the reserved rest given back.
    let cut = killed.open(log_file(from.segment)).unwrap();
    let end = u64::from(replay.recovered.end.offset);
    assert_eq!(cut.len().unwrap(), end + 48);
    // The log goes on; what stood behind the hole does not come back, however often it is opened.
    commit(&replay.log, &Batch::put(21, 70));
    let killed = killed.kill();
    let again = recover(setup(&killed, &numbers, small()), from);
    assert_eq!(again.batches.len(), 21);
    assert_eq!(again.batches[20], Batch::put(21, 70));
}

/// What nobody has asked to be synced is, a segment late: a power cut takes no more than that, and recovery writes no more of it again.
#[test]
fn segments_that_are_full_are_synced_though_nobody_asks() {
    let rewritten = [false, true].map(|syncs| {
        let (volume, numbers) = (MemVolume::new(), numbers());
        let log = Log::create(setup(&volume, &numbers, small())).unwrap();
        let from = log.end();
        let mut committed = Vec::new();
        for n in 1..=300 {
            let batch = Batch::separated(n, 1000);
            let end = commit(&log, &batch).end;
            committed.push((batch, end));
            while log.spill_step().unwrap() {}
            if syncs && log.sync_full_due() {
                log.sync_full().unwrap();
                assert!(!log.sync_full_due());
            }
        }
        let durable = log.durable();
        let end = log.end();
        assert_eq!(syncs, durable > from);
        if syncs {
            // All but the segment that is written and one that was not full enough.
            assert!(durable.segment.0 + 2 >= end.segment.0, "{durable} of {end}");
            let cut = volume.crash(CrashMode::LoseUnsynced);
            let there = recover(setup(&cut, &numbers, small()), from).batches.len();
            let synced = committed.iter().filter(|(_, end)| *end <= durable);
            assert!(there >= synced.count(), "{there}");
        }
        let killed = volume.kill();
        let before = killed.stats().written_bytes;
        let replay = recover(setup(&killed, &numbers, small()), from);
        assert_eq!(replay.batches.len(), 300);
        killed.stats().written_bytes - before
    });
    assert!(
        rewritten[0] > 4 * small().segment_bytes && rewritten[1] < 3 * small().segment_bytes,
        "{rewritten:?}"
    );
}

/// Killed after the name of a segment that is dead was given to a new one, and before its header was written.
#[test]
fn a_file_with_an_older_segments_frames_is_none_of_the_stream() {
    let (volume, numbers, log, from, committed) = one_segment(20);
    log.sync_all().unwrap();
    let old = volume.open(log_file(from.segment)).unwrap();
    let bytes = old.read_at(0, 1 << 20).unwrap();
    let killed = volume.kill();
    let id = SegmentId(numbers.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let options = CreateOptions {
        class: DataClass::Log,
        reserve_bytes: 0,
        direct: false,
    };
    let new = killed.create(log_file(id), options).unwrap();
    new.write_at(0, &bytes).unwrap();
    let volume: Arc<dyn Volume> = Arc::clone(&killed) as Arc<dyn Volume>;
    let check = || {
        let checked =
            glintdb_log::check(&volume, DB, from, from, &[], &mut |_| Ok(()), &mut |_| ());
        checked.unwrap().errors
    };
    assert!(check().is_empty());
    let replay = recover(setup(&killed, &numbers, small()), from);
    assert_eq!(replay.batches, batches(&committed));
    assert!(killed.open(log_file(id)).is_err());
}

fn check(volume: &Arc<MemVolume>, from: Lsn) -> Vec<glintdb_core::Error> {
    let volume: Arc<dyn Volume> = Arc::clone(volume) as Arc<dyn Volume>;
    let checked = glintdb_log::check(&volume, DB, from, from, &[], &mut |_| Ok(()), &mut |_| ());
    checked.unwrap().errors
}

/// A log that goes on in a file which was another segment, full of values; where it begins there,
/// and the sequence number of the next batch.
fn in_a_recycled_file() -> (Arc<MemVolume>, Arc<Numbers>, Log, Lsn, u64) {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let mut next = 1;
    for _ in 1..10 {
        let from = log.end();
        if rest_of_block(&volume, from.segment, from.offset + 8) {
            return (volume, numbers, log, from, next);
        }
        // To its last block, so that no sync writes zeros ahead.
        for _ in 0..20 {
            commit(&log, &Batch::separated(next, 3000));
            next += 1;
        }
        seal(&log);
        log.sync_all().unwrap();
        log.delete(from.segment).unwrap();
        volume.sync_directory().unwrap();
    }
    panic!("no file was written again");
}

/// Whether something stands behind `offset` in its block.
fn rest_of_block(volume: &MemVolume, segment: SegmentId, offset: u32) -> bool {
    let file = volume.open(log_file(segment)).unwrap();
    let rest = 4096 - offset as usize % 4096;
    let bytes = file.read_at(u64::from(offset), rest).unwrap();
    bytes.iter().any(|&byte| byte != 0)
}

/// The segment is none that recovery cuts, and old bytes stood behind its seal: `glintdb check` called them damage.
#[test]
fn a_seal_that_only_the_ring_had_is_followed_by_zeros_in_a_file_that_was_another_segment() {
    let (volume, numbers, log, from, next) = in_a_recycled_file();
    let last = commit(&log, &Batch::put(next, 500));
    seal(&log);
    let killed = volume.kill();
    assert!(rest_of_block(&killed, from.segment, last.end.offset + 48));
    assert_eq!(check(&killed, from).len(), 0);
    let replay = recover(setup(&killed, &numbers, small()), from);
    assert_eq!(replay.batches, [Batch::put(next, 500)]);
    assert_eq!(check(&killed, from).len(), 0);
    assert!(!rest_of_block(&killed, from.segment, last.end.offset + 48));
}

#[test]
fn a_power_cut_that_leaves_a_seal_and_not_the_rest_of_its_block_is_no_damage() {
    let (volume, numbers, log, from, next) = in_a_recycled_file();
    // The seal begins a block of its own.
    let batch = Batch::separated(next, 800);
    let first = commit(&log, &batch);
    let rest = 4096 - 2 * (first.end.offset - first.lsn.offset) + 800;
    let batches = [batch, Batch::separated(next + 1, rest as usize)];
    let last = commit(&log, &batches[1]);
    assert_eq!(last.end.offset, 8192);
    log.sync_all().unwrap();
    seal(&log);
    while log.spill_step().unwrap() {}
    let mut torn = 0;
    for seed in 0..100 {
        let cut = volume.crash(CrashMode::Random { seed });
        assert_eq!(check(&cut, from).len(), 0, "{seed}");
        let seal = cut.open(log_file(from.segment)).unwrap();
        let seal = seal.read_at(u64::from(last.end.offset), 4).unwrap();
        let left = &seal[..] == b"GLF\x01";
        torn += u32::from(left && rest_of_block(&cut, from.segment, last.end.offset + 48));
        let replay = recover(setup(&cut, &numbers, small()), from);
        assert_eq!(replay.batches, batches);
        drop(replay);
        assert_eq!(check(&cut, from).len(), 0, "{seed}, opened");
    }
    assert!(torn > 0);
}

/// Once frames say that a seal was durable, what is behind it in its block was written with it.
#[test]
fn what_is_not_zero_behind_a_durable_seal_is_damage() {
    let (volume, _numbers, log, from, next) = in_a_recycled_file();
    commit(&log, &Batch::put(next, 500));
    seal(&log);
    log.sync_all().unwrap();
    commit(&log, &Batch::put(next + 1, 500));
    log.sync_all().unwrap();
    let killed = volume.kill();
    assert_eq!(check(&killed, from).len(), 0);
    killed.flip_bits(log_file(from.segment), 8191, 1).unwrap();
    assert_eq!(check(&killed, from).len(), 1);
}

/// A manifest that is older than the log gives such a number. The seal would name a segment that no
/// later opening goes on in.
#[test]
fn a_file_number_that_is_not_above_the_logs_own_is_corruption() {
    let volume = MemVolume::new();
    let [own, older] = [100, 1].map(|next| Arc::new(Numbers(next.into())));
    let log = Log::create(setup(&volume, &own, small())).unwrap();
    let from = log.end();
    commit(&log, &Batch::put(1, 100));
    let killed = volume.kill();
    let error = try_recover(setup(&killed, &older, small()), from, &[]);
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(error.place().unwrap().0, log_file(from.segment).to_string());
    let replay = recover(setup(&killed, &own, small()), from);
    assert_eq!(replay.batches, [Batch::put(1, 100)]);
}

#[test]
fn an_older_segments_header_over_frames_is_damage() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let [older, old, from] = [1, 2, 3].map(|n| {
        let begin = log.end();
        commit(&log, &Batch::put(n, 100));
        if n < 3 {
            seal(&log);
        }
        begin
    });
    log.sync_all().unwrap();
    let header = volume.open(log_file(older.segment)).unwrap();
    let header = header.read_at(0, 4096).unwrap();
    let volume: Arc<dyn Volume> = volume.kill();
    let file = volume.open(log_file(old.segment)).unwrap();
    file.write_at(0, &header).unwrap();
    let checked = glintdb_log::check(&volume, DB, from, from, &[], &mut |_| Ok(()), &mut |_| ());
    let errors = checked.unwrap().errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        errors[0].place().unwrap().0,
        log_file(old.segment).to_string()
    );
}

#[test]
fn damage_before_a_durable_claim_is_corruption_and_changes_nothing() {
    let (volume, numbers, log, from, committed) = one_segment(20);
    log.sync_all().unwrap();
    let claim = commit(&log, &Batch::put(21, 10));
    let damaged = volume.kill();
    // The ring still heals it; without the ring it is seen.
    let place = committed[7].1.lsn;
    damaged
        .flip_bits(log_file(place.segment), u64::from(place.offset) + 45, 4)
        .unwrap();
    let healed = recover(setup(&damaged.kill(), &numbers, small()), from);
    assert_eq!(healed.batches.len(), 21);

    log.spill_step().unwrap();
    let next = commit(&log, &Batch::put(22, 9000));
    log.sync_all().unwrap();
    let damaged = volume.kill();
    damaged.remove_ring().unwrap();
    damaged
        .flip_bits(log_file(place.segment), u64::from(place.offset) + 45, 4)
        .unwrap();
    for _ in 0..2 {
        let error = try_recover(setup(&damaged, &numbers, small()), from, &[])
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let file = log_file(place.segment).to_string();
        assert_eq!(error.place(), Some((&*file, u64::from(place.offset))));
        assert!(
            error.to_string().contains(&claim.lsn.to_string()),
            "{error}"
        );
    }
    damaged
        .flip_bits(log_file(place.segment), u64::from(place.offset) + 45, 4)
        .unwrap();
    let replay = recover(setup(&damaged, &numbers, small()), from);
    assert_eq!(replay.batches.len(), 22);
    assert_eq!(replay.ends[21], next.end);
}

#[test]
fn damage_behind_the_last_durable_claim_is_the_tail() {
    let (volume, numbers, log, from, committed) = one_segment(20);
    log.sync_all().unwrap();
    let damaged = volume.kill();
    damaged.remove_ring().unwrap();
    let place = committed[7].1.lsn;
    damaged
        .flip_bits(log_file(place.segment), u64::from(place.offset) + 45, 4)
        .unwrap();
    // No frame was written after the sync: nothing says that this one was durable.
    let replay = recover(setup(&damaged, &numbers, small()), from);
    assert_eq!(replay.batches, batches(&committed[..7]));
}

#[test]
fn a_claim_that_only_the_ring_holds_is_found_too() {
    for in_next_segment in [false, true] {
        let (volume, numbers, log, from, committed) = one_segment(20);
        if in_next_segment {
            seal(&log);
        }
        log.sync_all().unwrap();
        // The only frame that knows of the sync, and no segment has it.
        let claim = commit(&log, &Batch::put(21, 100));
        assert_eq!(claim.lsn.segment != from.segment, in_next_segment);
        let damaged = volume.kill();
        let place = committed[3].1.lsn;
        let file = damaged.open(log_file(place.segment)).unwrap();
        file.write_at(u64::from(place.offset), &[0; 8]).unwrap();
        // Rot in the ring's copy as well.
        let ring = damaged.ring(64 << 10).unwrap();
        ring.grow(64 << 10).unwrap();
        ring.write(place.offset as usize, &[0; 8]);
        drop(ring);
        let error = try_recover(setup(&damaged, &numbers, small()), from, &[])
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(
            error.to_string().contains(&claim.lsn.to_string()),
            "{error}"
        );
    }
}

#[test]
fn a_claim_in_a_later_segment_is_found_too() {
    let (volume, numbers, log, from, committed) = one_segment(20);
    seal(&log);
    log.sync_all().unwrap();
    let claim = commit(&log, &Batch::put(21, 100));
    log.sync_all().unwrap();
    let damaged = volume.kill();
    damaged.remove_ring().unwrap();
    let place = committed[3].1.lsn;
    let file = damaged.open(log_file(place.segment)).unwrap();
    file.write_at(u64::from(place.offset), &[0; 8]).unwrap();
    let error = try_recover(setup(&damaged, &numbers, small()), from, &[])
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(
        error.to_string().contains(&claim.lsn.to_string()),
        "{error}"
    );
}

#[test]
fn after_a_clean_close_every_flipped_bit_is_found_or_harmless() {
    let (volume, numbers, log, from, committed) = one_segment(9);
    log.close().unwrap();
    let closed = volume.crash(CrashMode::LoseUnsynced);
    closed.remove_ring().unwrap();
    let (file, end) = (log_file(from.segment), log.end().offset);
    let expected = batches(&committed);
    let mut harmless = 0;
    for byte in 0..u64::from(end) {
        if (64..4096).contains(&byte) {
            continue;
        }
        for bit in 0..8 {
            let damaged = closed.kill();
            damaged.flip_bits(file, byte, 1 << bit).unwrap();
            match try_recover(setup(&damaged, &numbers, small()), from, &[]) {
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Corruption | ErrorKind::UnsupportedFormat
                    ),
                    "byte {byte}: {error}"
                ),
                Ok(replay) => {
                    // The mark itself, and padding.
                    assert_eq!(replay.batches, expected, "byte {byte} bit {bit}");
                    harmless += 1;
                }
            }
        }
    }
    let mark_and_padding = 40 + 9 * 14;
    assert!(harmless <= mark_and_padding * 8, "{harmless}");
}

#[test]
fn a_log_cut_at_any_byte_gives_the_frames_that_are_whole() {
    let (volume, numbers, log, from, committed) = one_segment(12);
    // Written but never synced: no claims.
    log.verify(from.segment).unwrap();
    let end = log.end();
    let file = log_file(from.segment);
    for cut in u64::from(from.offset)..=u64::from(end.offset) {
        let torn = volume.kill();
        torn.remove_ring().unwrap();
        torn.open(file).unwrap().set_len(cut).unwrap();
        let whole = committed
            .iter()
            .filter(|(_, c)| u64::from(c.end.offset) <= cut)
            .count();
        let replay = recover(setup(&torn, &numbers, small()), from);
        assert_eq!(replay.batches, batches(&committed[..whole]), "cut at {cut}");
    }
}

#[test]
fn a_log_cut_before_a_durable_claim_is_corruption_where_the_claim_is_still_there() {
    let (volume, numbers, log, from, committed) = one_segment(12);
    seal(&log);
    log.sync_all().unwrap();
    commit(&log, &Batch::put(13, 10));
    log.sync_all().unwrap();
    let file = log_file(from.segment);
    for (_, place) in &committed {
        let torn = volume.kill();
        torn.remove_ring().unwrap();
        let cut = u64::from(place.lsn.offset);
        torn.open(file).unwrap().set_len(cut).unwrap();
        let error = try_recover(setup(&torn, &numbers, small()), from, &[])
            .err()
            .unwrap();
        assert_eq!(error.place(), Some((&*file.to_string(), cut)), "{error}");
    }
}

#[test]
fn a_missing_or_foreign_segment_is_named() {
    let (volume, numbers, log, from, _) = one_segment(3);
    seal(&log);
    let second = commit(&log, &Batch::put(4, 10));
    let missing = volume.kill();
    missing.delete(log_file(second.lsn.segment)).unwrap();
    let error = try_recover(setup(&missing, &numbers, small()), from, &[])
        .err()
        .unwrap();
    assert_eq!(
        error.place(),
        Some((&*log_file(second.lsn.segment).to_string(), 0))
    );
    let mut foreign = setup(&volume.kill(), &numbers, small());
    foreign.db = glintdb_core::DbId([9; 16]);
    let error = try_recover(foreign, from, &[]).err().unwrap();
    assert!(error.to_string().contains("database id"), "{error}");
    let error = try_recover(
        setup(&volume.kill(), &numbers, small()),
        from,
        &[SegmentId(999)],
    )
    .err()
    .unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn replay_begins_where_it_is_told_and_removes_what_nobody_names() {
    let (volume, numbers, log, from, committed) = one_segment(10);
    seal(&log);
    let later: Vec<_> = (11..=14).map(|n| Batch::separated(n, 99)).collect();
    let places: Vec<_> = later.iter().map(|batch| commit(&log, batch)).collect();
    log.sync_all().unwrap();

    let middle = committed[4].1.end;
    let replay = recover(setup(&volume.kill(), &numbers, small()), middle);
    assert_eq!(replay.batches[..5], batches(&committed)[5..]);
    assert_eq!(replay.batches[5..], later);
    assert_eq!(replay.recovered.end, places[3].end);

    // From the second segment on, the first is not needed unless it holds live values.
    let pointer = committed[0].1.pointers[0];
    for live in [false, true] {
        let volume = volume.kill();
        let live: Vec<_> = live.then_some(from.segment).into_iter().collect();
        let replay = try_recover(setup(&volume, &numbers, small()), places[1].end, &live).unwrap();
        assert_eq!(replay.batches, later[2..]);
        let kept = volume.list().unwrap().contains(&log_file(from.segment));
        assert_eq!(kept, !live.is_empty());
        assert_eq!(replay.log.read(&pointer).is_ok(), !live.is_empty());
    }
}

#[test]
fn the_ring_changes_its_size_only_after_it_was_emptied() {
    let (volume, numbers, log, from, committed) = one_segment(30);
    drop(log);
    let options = LogOptions {
        ring_bytes: 256 << 10,
        ..small()
    };
    let killed = volume.kill();
    let mut replay = recover(setup(&killed, &numbers, options), from);
    assert_eq!(replay.batches, batches(&committed));
    assert!(replay.recovered.ring_bytes > 0);
    assert!(replay.log.ring_differs());
    replay.log.resize_ring().unwrap();
    assert!(!replay.log.ring_differs());
    assert_eq!(replay.log.kept_ring_bytes(), 256 << 10);
    assert_eq!(killed.existing_ring_bytes().unwrap(), Some(256 << 10));
    commit(&replay.log, &Batch::put(31, 100));
    drop(replay);
    let again = recover(setup(&killed.kill(), &numbers, small()), from);
    assert_eq!(again.batches.len(), 31);
}

#[test]
fn synced_commits_survive_a_power_cut_that_takes_everything_else() {
    let (volume, numbers, log, from, committed) = one_segment(15);
    log.sync(committed[9].1.end).unwrap();
    assert!(log.durable() >= committed[9].1.end);
    for n in 16..=120 {
        commit(&log, &Batch::separated(n, 800));
    }
    let lost = volume.crash(CrashMode::LoseUnsynced);
    let replay = recover(setup(&lost, &numbers, small()), from);
    assert!(replay.batches.len() >= 15);
    assert_eq!(replay.batches[..15], batches(&committed));
    let synced = log.end();
    log.sync(synced).unwrap();
    let lost = volume.crash(CrashMode::LoseUnsynced);
    let replay = recover(setup(&lost, &numbers, small()), from);
    assert_eq!(replay.batches.len(), 120);
    // What recovery found is durable when it returns, also what the killed process never synced.
    let (volume, numbers, log, from, committed) = one_segment(40);
    drop(log);
    let killed = volume.kill();
    let replay = recover(setup(&killed, &numbers, small()), from);
    drop(replay);
    let lost = killed.crash(CrashMode::LoseUnsynced);
    let replay = recover(setup(&lost, &numbers, small()), from);
    assert_eq!(replay.batches, batches(&committed));
}

/// A sync failed, the process was killed, and the next one read frames that were in the page cache and nowhere else: its own sync said OK and wrote nothing, a later frame called
/// them durable, and after a power cut the log was corrupt. Found by the simulation.
#[test]
fn what_a_failed_sync_left_in_memory_is_written_again_by_recovery() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let first = commit(&log, &Batch::separated(1, 3000));
    log.sync(first.end).unwrap();
    let second = commit(&log, &Batch::separated(2, 3000));
    volume.fail(Fault {
        at_operation: 0,
        kind: FaultKind::SyncLosesData,
        sticky: false,
    });
    log.sync(second.end).unwrap_err();
    let volume = volume.kill();
    drop(log);
    let replay = recover(setup(&volume, &numbers, small()), from);
    assert_eq!(
        replay.batches,
        [Batch::separated(1, 3000), Batch::separated(2, 3000)]
    );
    let third = commit(&replay.log, &Batch::put(3, 100));
    replay.log.sync(third.end).unwrap();
    let volume = volume.crash(CrashMode::LoseUnsynced);
    let replay = recover(setup(&volume, &numbers, small()), from);
    assert_eq!(replay.batches.len(), 3);
}

/// What one read answers may be damaged on its way; read again, it is whole. Recovery gives everything or an error, and the next one everything.
#[test]
fn a_read_that_is_damaged_once_loses_nothing() {
    let (volume, numbers, log, from, committed) = one_segment(40);
    log.sync_all().unwrap();
    let operations = {
        let killed = volume.kill();
        recover(setup(&killed, &numbers, small()), from);
        killed.operation_count()
    };
    let mut whole = 0;
    for at_operation in 0..operations {
        let killed = volume.kill();
        killed.fail(Fault {
            at_operation,
            kind: FaultKind::MisdirectedRead,
            sticky: false,
        });
        if let Ok(replay) = try_recover(setup(&killed, &numbers, small()), from, &[]) {
            assert_eq!(replay.batches, batches(&committed));
            whole += 1;
        }
        let replay = recover(setup(&killed.kill(), &numbers, small()), from);
        assert_eq!(replay.batches, batches(&committed));
    }
    assert!(whole > 0, "of {operations}");
}

/// A power cut in the middle of a new sector leaves noise behind the last bytes that have a
/// checksum; a kill in the middle of a copy leaves the bytes that the ring had before.
#[test]
fn noise_in_the_padding_of_the_last_frame_is_no_damage_and_does_not_stay() {
    // The last value has 79 bytes, so the last byte of its frame is padding.
    let (volume, numbers, log, from, committed) = one_segment(19);
    let end = u64::from(log.end().offset);
    log.sync_all().unwrap();
    let cut = volume.crash(CrashMode::KeepUnsynced);
    let file = cut.open(log_file(from.segment)).unwrap();
    assert_eq!(&file.read_at(end - 2, 2).unwrap()[1..], &[0]);
    file.write_at(end - 1, &[7]).unwrap();
    let killed = volume.kill();
    let ring = killed.ring(small().ring_bytes).unwrap();
    ring.grow(small().ring_bytes).unwrap();
    let mut word = [0; 8];
    // The first segment begins at position 0 of the ring.
    let at = usize::try_from(end - 8).unwrap();
    ring.read(at, &mut word);
    assert!(word[6] != 0 && word[7] == 0, "{word:?}");
    word[7] = 7;
    ring.write(at, &word);
    drop(ring);
    // The ring alone has the frames.
    let file = killed.open(log_file(from.segment)).unwrap();
    let frames = vec![0xaa; usize::try_from(end).unwrap() - 4096];
    file.write_at(4096, &frames).unwrap();
    drop(file);
    for (image, context) in [(cut, "in the file"), (killed, "in the ring")] {
        assert_eq!(check(&image, from).len(), 0, "{context}");
        let replay = recover(setup(&image, &numbers, small()), from);
        assert_eq!(replay.batches, batches(&committed), "{context}");
        drop(replay);
        assert_eq!(check(&image, from).len(), 0, "{context}, recovered");
        let file = image.open(log_file(from.segment)).unwrap();
        assert_eq!(&file.read_at(end - 1, 1).unwrap()[..], &[0], "{context}");
    }
}
