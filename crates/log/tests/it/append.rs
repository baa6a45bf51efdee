//! Writing and reading back while the log is open.

use crate::support::*;
use glintdb_core::{ErrorKind, SeqNum};
use glintdb_flash::Volume;
use glintdb_log::{FrameBuilder, Log, Space, WaitReason};
use glintdb_simdisk::{CrashMode, MemOptions, MemVolume};
use std::sync::Arc;

#[test]
fn committed_batches_come_back_in_order_after_a_kill() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let batches: Vec<_> = (1..=400)
        .map(|n| match n % 3 {
            0 => Batch::put(n, (n * 7 % 500) as usize),
            1 => Batch::separated(n, (n * 31 % 3000) as usize),
            _ => Batch {
                seqno: n,
                ops: vec![
                    Op::Delete(b"a".to_vec()),
                    Op::DeleteRange(b"b".to_vec(), Some(b"c".to_vec())),
                    Op::DeleteRange(b"x".to_vec(), None),
                ],
            },
        })
        .collect();
    for batch in &batches {
        commit(&log, batch);
    }
    assert!(
        log.stats().segments > 2 && log.stats().ring_waits > 0,
        "the test goes round the ring: {:?}",
        log.stats()
    );
    // What stood in the ring before does not get into the segments.
    log.sync_all().unwrap();
    for segment in log.segments().unwrap() {
        for item in glintdb_log::dump(&*volume, segment.id).unwrap() {
            if let glintdb_log::DumpItem::Hole { zero, lsn, .. } = item.unwrap() {
                assert!(zero, "{lsn}");
            }
        }
    }
    let killed = volume.kill();
    let replay = recover(setup(&killed, &numbers, small()), from);
    assert_eq!(replay.batches, batches);
    assert_eq!(replay.recovered.frames, 400);
    assert_eq!(replay.recovered.seqno_max.0, 400);

    // The same again, nothing lost by recovering twice, and the log goes on.
    commit(&replay.log, &Batch::put(401, 10));
    let again = recover(setup(&killed.kill(), &numbers, small()), from);
    assert_eq!(again.batches.len(), 401);
    assert_eq!(again.batches[..400], batches);
}

#[test]
fn values_are_read_from_the_ring_and_from_segments_one_by_one_and_in_batches() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let mut pointers = Vec::new();
    for n in 1..=200 {
        pointers.extend(commit(&log, &Batch::separated(n, n as usize * 11)).pointers);
    }
    let values: Vec<_> = (1..=200).map(|n| pattern(n, n as usize * 11)).collect();
    for (pointer, value) in pointers.iter().zip(&values) {
        assert_eq!(log.read(pointer).unwrap(), value);
    }
    let batch = log.read_batch(&pointers);
    for (found, value) in batch.into_iter().zip(&values) {
        assert_eq!(found.unwrap(), value);
    }
}

#[test]
fn a_batch_larger_than_the_ring_gets_a_segment_of_its_own() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let mut batches = Vec::new();
    let mut pointers = Vec::new();
    for n in 1..=30 {
        let batch = match n % 5 {
            0 => Batch::separated(n, 3_000_000 + n as usize),
            2 => Batch::put(n, 70_000),
            _ => Batch::separated(n, 1000),
        };
        pointers.push((n, commit(&log, &batch).pointers));
        batches.push(batch);
    }
    assert_eq!(log.stats().large_frames, 12);
    for (n, pointers) in &pointers {
        for pointer in pointers {
            let value = pattern(*n, pointer.length as usize);
            assert_eq!(log.read(pointer).unwrap(), value);
        }
    }
    let replay = recover(setup(&volume.kill(), &numbers, small()), from);
    assert_eq!(replay.batches, batches);
    for segment in replay.log.segments().unwrap() {
        let report = replay.log.verify(segment.id).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

#[test]
fn a_ring_that_does_not_survive_writes_out_before_os_is_promised() {
    let options = MemOptions {
        ring_survives_kill: false,
        ..MemOptions::default()
    };
    let (volume, numbers) = (MemVolume::with_options(options), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let batches: Vec<_> = (1..=300).map(|n| Batch::separated(n, 777)).collect();
    for (n, batch) in batches.iter().enumerate() {
        commit(&log, batch);
        if n % 37 == 0 {
            let replay = recover(setup(&volume.kill(), &numbers, small()), from);
            assert_eq!(replay.batches, batches[..=n]);
        }
    }
}

/// Commits small frames that leave `left` bytes of the ring, until there is no room for another.
/// Returns how many bytes they have.
fn fill_ring(log: &Log, seqno: &mut u64, left: u64) -> u64 {
    let mut bytes = 0;
    let mut frame = FrameBuilder::new();
    loop {
        Batch::put(*seqno, 500).build(&mut frame);
        match log.reserve_leaving(frame.frame_bytes(), Space::Normal, left) {
            Ok(place) => {
                log.copy(&place, &mut frame, SeqNum(*seqno));
                log.complete(&place);
                bytes += frame.frame_bytes();
                *seqno += 1;
            }
            Err(WaitReason::Ring) => return bytes,
            Err(reason) => log.wait(reason, Space::Normal).unwrap(),
        }
    }
}

#[test]
fn a_part_of_the_ring_is_left_for_other_frames() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let (ring, left, mut seqno) = (log.stats().ring_bytes, 16 << 10, 1);
    // Until the ring has all of its space, and is empty.
    for _ in 0..500 {
        commit(&log, &Batch::put(seqno, 500));
        seqno += 1;
    }
    log.sync_all().unwrap();
    for _ in 0..20 {
        let taken = fill_ring(&log, &mut seqno, left);
        // The header of a segment may be between them, and the ends are blocks.
        assert!(
            taken + left <= ring && taken + left + (16 << 10) > ring,
            "{taken}"
        );
        assert_eq!(fill_ring(&log, &mut seqno, left), 0);
        let more = fill_ring(&log, &mut seqno, 0);
        assert!(more >= left / 4 && more <= left + (8 << 10), "{more}");
        log.sync_all().unwrap();
    }
}

#[test]
fn sealing_begins_a_new_segment_and_old_ones_go_when_no_view_holds_them() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let first = commit(&log, &Batch::separated(1, 100));
    let error = log.delete(first.lsn.segment).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    seal(&log);
    let second = commit(&log, &Batch::separated(2, 100));
    assert!(second.lsn.segment > first.lsn.segment);
    let view = log.view();
    log.delete(first.lsn.segment).unwrap();
    assert_eq!(
        log.delete(first.lsn.segment).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(log.read(&first.pointers[0]).is_err());
    assert_eq!(
        log.read_in(&view, &first.pointers[0]).unwrap(),
        pattern(1, 100)
    );
    assert_eq!(
        log.read_batch_in(&view, &[second.pointers[0], first.pointers[0]])
            .into_iter()
            .map(|value| value.unwrap().to_vec())
            .collect::<Vec<_>>(),
        [pattern(2, 100), pattern(1, 100)]
    );
    assert_eq!(log.remove_doomed().unwrap(), 1);
    drop(view);
    assert_eq!(log.remove_doomed().unwrap(), 0);
    // A verification that meets it between its list and its look once called that corruption.
    let error = log.verify(first.lsn.segment).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let replay = recover(setup(&volume.kill(), &numbers, small()), second.lsn);
    assert_eq!(replay.batches, [Batch::separated(2, 100)]);
}

/// Found by `prop_log_is_a_list_of_batches`: the end was named after the sealed segment, and after nothing once that was deleted.
#[test]
fn behind_a_seal_the_log_ends_in_the_segment_that_it_names() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let first = commit(&log, &Batch::put(1, 100));
    seal(&log);
    let end = log.end();
    assert!(end.segment > first.lsn.segment && end.offset == 4096);
    log.sync(end).unwrap();
    assert_eq!(log.durable(), end);
    log.delete(first.lsn.segment).unwrap();
    assert_eq!((log.end(), log.durable()), (end, end));
    let replay = recover(setup(&volume.kill(), &numbers, small()), end);
    assert!(replay.batches.is_empty());
    assert_eq!(commit(&log, &Batch::put(2, 100)).lsn, end);
}

#[test]
fn sealing_early_gives_the_unused_space_back_and_leaves_no_work() {
    let options = MemOptions {
        capacity_bytes: Some(1 << 20),
        ..MemOptions::default()
    };
    let (volume, numbers) = (MemVolume::with_options(options), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    commit(&log, &Batch::put(1, 100));
    seal(&log);
    let full = volume.free_bytes().unwrap();
    commit(&log, &Batch::put(2, 100));
    while log.spill_step().unwrap() {}
    assert!(!log.spill_due(), "{:?}", log.stats());
    assert_eq!(log.stats().unspilled_bytes, 160);
    assert_eq!(volume.free_bytes().unwrap(), full + (64 << 10) - 8192);
}

#[test]
fn many_threads_append_at_once_and_none_is_lost() {
    use parking_lot::Mutex;
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Arc::new(glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap());
    let from = log.end();
    // As the engine: one lock gives sequence number and place, another publishes in order.
    let sequencer = Mutex::new(0u64);
    let published = (Mutex::new(0u64), parking_lot::Condvar::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut frame = glintdb_log::FrameBuilder::new();
                for n in 0..300u64 {
                    let length = (n * 13 % 2000) as usize;
                    Batch::separated(n, length).build(&mut frame);
                    let (reservation, seqno) = loop {
                        let mut next = sequencer.lock();
                        match log.reserve(frame.frame_bytes(), Space::Normal) {
                            Ok(reservation) => {
                                *next += 1;
                                break (reservation, *next);
                            }
                            Err(reason) => {
                                drop(next);
                                log.wait(reason, Space::Normal).unwrap();
                            }
                        }
                    };
                    log.copy(&reservation, &mut frame, glintdb_core::SeqNum(seqno));
                    let mut turn = published.0.lock();
                    while *turn + 1 != seqno {
                        published.1.wait(&mut turn);
                    }
                    log.complete(&reservation);
                    *turn = seqno;
                    drop(turn);
                    published.1.notify_all();
                    let pointer = frame.pointers(&reservation).next().unwrap();
                    if n % 50 == 0 {
                        log.sync(reservation.end()).unwrap();
                        assert!(log.durable() >= reservation.end());
                    }
                    assert_eq!(log.read(&pointer).unwrap(), pattern(n, length));
                }
            });
        }
        scope.spawn(|| {
            while *published.0.lock() < 1200 {
                log.spill_step().unwrap();
                std::thread::yield_now();
            }
        });
    });
    let replay = recover(setup(&volume.kill(), &numbers, small()), from);
    let seqnos: Vec<_> = replay.batches.iter().map(|batch| batch.seqno).collect();
    assert_eq!(seqnos, (1..=1200).collect::<Vec<_>>());
}

#[test]
fn readers_beside_a_writer_that_recycles_the_ring_see_only_whole_values() {
    use parking_lot::RwLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let published = RwLock::new(Vec::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (log, published, done) = (&log, &published, &done);
            scope.spawn(move || {
                let mut state = reader + 1;
                let mut reads = 0u64;
                while !done.load(Ordering::Relaxed) || reads < 100 {
                    let some: Vec<(u64, glintdb_core::ValuePointer)> = {
                        let published = published.read();
                        if published.is_empty() {
                            continue;
                        }
                        // Mostly what is just being overwritten in the ring, sometimes anything.
                        (0..8)
                            .map(|_| {
                                state = state
                                    .wrapping_mul(6_364_136_223_846_793_005)
                                    .wrapping_add(1);
                                let back = (state >> 33) as usize % 90 + 1;
                                let index = if state % 5 == 0 {
                                    (state >> 20) as usize % published.len()
                                } else {
                                    published.len().saturating_sub(back)
                                };
                                published[index]
                            })
                            .collect()
                    };
                    let pointers: Vec<_> = some.iter().map(|(_, pointer)| *pointer).collect();
                    for ((n, pointer), value) in some.iter().zip(log.read_batch(&pointers)) {
                        assert_eq!(value.unwrap(), pattern(*n, 1000));
                        assert_eq!(log.read(pointer).unwrap(), pattern(*n, 1000));
                    }
                    reads += 1;
                }
            });
        }
        for n in 1..=4000 {
            let pointer = commit(&log, &Batch::separated(n, 1000)).pointers[0];
            published.write().push((n, pointer));
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A large frame was prepared and given up (the engine does so when it has to wait for a memtable, or the disk was full): the two segments made for it left a gap in the stream, the
/// next segment began behind it, farther from the active one than the ring is long, and every commit waited for ring space for ever. Found by the histories of `cargo xtask histories`.
#[test]
fn a_large_frame_that_is_given_up_leaves_no_gap_in_the_stream() {
    for full_disk in [false, true] {
        let (volume, numbers) = (MemVolume::new(), numbers());
        let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
        let from = log.end();
        let mut batches = Vec::new();
        for n in 1..=120 {
            let batch = Batch::separated(n, 3_000);
            let mut frame = glintdb_log::FrameBuilder::new();
            batch.build(&mut frame);
            let place =
                (0..1_000).find_map(|_| match log.reserve(frame.frame_bytes(), Space::Normal) {
                    Ok(place) => Some(place),
                    Err(reason) => {
                        log.wait(reason, Space::Normal).unwrap();
                        None
                    }
                });
            let place =
                place.unwrap_or_else(|| panic!("no place for batch {n}: {:?}", log.stats()));
            log.copy(&place, &mut frame, glintdb_core::SeqNum(n));
            log.complete(&place);
            batches.push(batch);
            if n % 10 == 0 {
                let mut large = glintdb_log::FrameBuilder::new();
                Batch::separated(n, 200_000).build(&mut large);
                if full_disk {
                    // Room for the frame's own segment, none for the one after.
                    let segment = small().segment_bytes;
                    let free = 200_000 + 3 * 4096 + segment / 2;
                    volume.set_capacity_bytes(Some(used_bytes(&volume) + free));
                }
                let prepared = log.prepare_large(&large, Space::Normal);
                assert_eq!(prepared.is_err(), full_disk, "{prepared:?}");
                drop(prepared);
                volume.set_capacity_bytes(None);
            }
        }
        let replay = recover(setup(&volume.kill(), &numbers, small()), from);
        assert_eq!(replay.batches, batches);
    }
}

/// Whole blocks and the one behind them that is not full: a commit that syncs waits for one write.
#[test]
fn a_small_sync_writes_once() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = glintdb_log::Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    commit(&log, &Batch::put(1, 100));
    log.sync_all().unwrap();
    let mut writes = volume.stats().writes;
    for n in 2..8 {
        commit(&log, &Batch::put(n, 5000));
        log.sync_all().unwrap();
        let now = volume.stats().writes;
        assert_eq!(now - writes, 1, "of commit {n}");
        writes = now;
    }
    let after = volume.crash(CrashMode::LoseUnsynced);
    let replay = recover(setup(&after, &numbers, small()), from);
    assert_eq!(replay.batches.len(), 7);
}
