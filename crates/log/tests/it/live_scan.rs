//! The records of whole segments, as value GC reads them: streams, large frames, relocated values.

use crate::support::*;
use crate::values::{Moved, records, write};
use glintdb_core::{ErrorKind, SegmentId, ValuePointer};
use glintdb_flash::Volume;
use glintdb_log::format::segment::SegmentKind;
use glintdb_log::{LiveScan, Log, LogOptions, Space};
use glintdb_simdisk::MemVolume;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records of a segment by their pointers' places.
type Records = Vec<(Vec<u8>, ValuePointer, Vec<u8>)>;

/// Everything a scan gives, and how many batches it took.
fn scanned(mut scan: LiveScan) -> (Records, usize) {
    let (mut all, mut batches) = (Vec::new(), 0);
    while let Some(batch) = scan.next_batch().unwrap() {
        batches += 1;
        assert!(batch.records().len() > 0);
        let mut bytes = 0;
        for record in batch.records() {
            assert_eq!(record.keyspace, KEYSPACE);
            let value = record.value().unwrap();
            // Those longer than a batch are not in its memory.
            bytes += Some(value.len()).filter(|&n| n <= 1 << 20).unwrap_or(0);
            all.push((record.key.to_vec(), record.pointer, value.to_vec()));
        }
        assert!(bytes < 2 << 20, "{bytes}");
    }
    assert!(scan.next_batch().unwrap().is_none());
    (all, batches)
}

/// What was committed, by segment.
fn expected(committed: &[(Batch, Committed)]) -> BTreeMap<SegmentId, Records> {
    let mut all: BTreeMap<SegmentId, Records> = BTreeMap::new();
    for (batch, committed) in committed {
        let separated = batch.ops.iter().filter_map(|op| match op {
            Op::Separated(key, value) => Some((key, value)),
            _ => None,
        });
        for ((key, value), pointer) in separated.zip(&committed.pointers) {
            let record = (key.clone(), *pointer, value.clone());
            all.entry(pointer.segment).or_default().push(record);
        }
    }
    all
}

/// Commits, seals, and puts everything into the segments' files.
fn filled(log: &Log, batches: Vec<Batch>) -> Vec<(Batch, Committed)> {
    let committed = batches
        .into_iter()
        .map(|batch| {
            let committed = commit(log, &batch);
            (batch, committed)
        })
        .collect();
    seal(log);
    while log.spill_step().unwrap() {}
    log.sync_all().unwrap();
    committed
}

fn mixed(n: u64) -> Batch {
    match n % 5 {
        0 => Batch::put(n, 700),
        1 => Batch {
            seqno: n,
            ops: vec![
                Op::Delete(pattern(n, 10)),
                Op::DeleteRange(pattern(n, 5), None),
            ],
        },
        2 => Batch {
            seqno: n,
            ops: (0..n % 9)
                .flat_map(|at| {
                    let key = format!("key{n}:{at}").into_bytes();
                    let inline = Op::Put(key.clone(), pattern(at, 20));
                    [inline, Op::Separated(key, pattern(n + at, 900))]
                })
                .collect(),
        },
        _ => Batch::separated(n, (n * 37 % 2000) as usize),
    }
}

#[test]
fn a_scan_gives_every_separated_record_of_a_segment_and_nothing_else() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let batch = |n| match n {
        // Goes round the ring.
        151 => Batch::separated(n, 100_000),
        _ => mixed(n),
    };
    let committed = filled(&log, (1..=301).map(batch).collect());
    let expected = expected(&committed);
    assert!(expected.len() > 4);
    let mut kinds = Vec::new();
    for (&segment, records) in &expected {
        let scan = log.live_scan(segment).unwrap();
        kinds.push(scan.kind());
        assert_eq!(scanned(scan).0, *records, "segment {segment}");
    }
    assert!(kinds.contains(&SegmentKind::Large) && kinds.contains(&SegmentKind::Stream));
    // The active segment still grows.
    let error = log.live_scan(log.end().segment).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = log.live_scan(SegmentId(99_999)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // As an earlier process left them.
    let killed = volume.kill();
    let replay = recover(setup(&killed, &numbers, small()), from);
    for (&segment, records) in &expected {
        assert_eq!(scanned(replay.log.live_scan(segment).unwrap()).0, *records);
        let alone = LiveScan::open(&*killed, DB, segment).unwrap();
        assert_eq!(scanned(alone).0, *records);
    }
}

#[test]
fn a_segment_that_is_still_in_the_ring_is_not_scanned() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let committed = commit(&log, &Batch::separated(1, 900));
    seal(&log);
    let segment = committed.lsn.segment;
    let error = log.live_scan(segment).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    log.sync_all().unwrap();
    while log.spill_step().unwrap() {}
    assert_eq!(scanned(log.live_scan(segment).unwrap()).0.len(), 1);
}

#[test]
fn a_scan_goes_in_batches_and_reads_the_file_once() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let options = LogOptions {
        segment_bytes: 16 << 20,
        ..small()
    };
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    log.set_data_bytes(1 << 30);
    let mut records = records(9000, 1000);
    records[1000].value = pattern(1, 300_000);
    records[2000].value = pattern(2, 3 << 20);
    let moved = write(&log, &records);
    let pointers = moved.pointers().to_vec();
    let segment = moved.segments().next().unwrap();
    assert_eq!(moved.segments().len(), 1);
    log.publish_values(moved);
    let before = volume.stats();
    let (all, batches) = scanned(log.live_scan(segment).unwrap());
    let read = volume.stats().read_bytes - before.read_bytes;
    let length = volume.open(segment.file()).unwrap().len().unwrap();
    // The value longer than a batch was read alone; frames begin anew where a window ends within their entries.
    assert!(read < length + (3 << 20) + (2 << 20), "{read} of {length}");
    assert!((8..=14).contains(&batches), "{batches}");
    let expected: Records = records
        .into_iter()
        .zip(pointers)
        .map(|(Moved { key, value }, pointer)| (key, pointer, value))
        .collect();
    assert!(all == expected);
}

#[test]
fn a_frame_with_more_keys_than_a_window_is_scanned_in_pieces() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let ops = (0..60_000u32)
        .map(|n| {
            let key = format!("a key that is longer than its value {n:08}").into_bytes();
            Op::Separated(key, n.to_le_bytes().to_vec())
        })
        .collect();
    let committed = filled(&log, vec![Batch { seqno: 1, ops }]);
    let expected = expected(&committed);
    let (&segment, records) = expected.first_key_value().unwrap();
    let (all, batches) = scanned(log.live_scan(segment).unwrap());
    assert!(all == *records);
    assert!(batches > 1);
}

#[test]
fn damage_ends_a_scan_and_rot_in_a_value_harms_only_that_value() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..small()
    };
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    let moved = write(&log, &records(600, 900));
    let pointers = moved.pointers().to_vec();
    let segment = moved.segments().next().unwrap();
    log.publish_values(moved);
    let rotten = pointers[100];
    volume
        .flip_bits(segment.file(), u64::from(rotten.offset) + 5, 1)
        .unwrap();
    let mut scan = log.live_scan(segment).unwrap();
    let mut at = 0;
    while let Some(batch) = scan.next_batch().unwrap() {
        for record in batch.records() {
            assert_eq!(record.pointer, pointers[at]);
            match record.value() {
                Ok(_) => assert_ne!(at, 100),
                Err(error) => {
                    let file = segment.file().to_string();
                    assert_eq!(error.place(), Some((&*file, rotten.offset.into())));
                    assert_eq!(at, 100);
                }
            }
            at += 1;
        }
    }
    assert_eq!(at, 600);
    // Entries of the first frame; the frame header of the second; the end.
    let second = pointers
        .windows(2)
        .find(|p| p[1].offset - p[0].offset > 1000);
    let second = second.unwrap()[0];
    let second = (second.offset + second.length).next_multiple_of(8);
    let last = pointers[599];
    let end = (last.offset + last.length).next_multiple_of(8);
    for offset in [4150, second + 1, second + 12, end + 20] {
        volume.flip_bits(segment.file(), offset.into(), 1).unwrap();
        let mut scan = log.live_scan(segment).unwrap();
        let error = loop {
            match scan.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("damage at {offset} is passed over"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Corruption);
        volume.flip_bits(segment.file(), offset.into(), 1).unwrap();
    }
    // A file that is cut behind a whole frame.
    let cut: Arc<MemVolume> = volume.kill();
    cut.open(segment.file())
        .unwrap()
        .set_len(end.into())
        .unwrap();
    let mut scan = LiveScan::open(&*cut, DB, segment).unwrap();
    let mut ends = || loop {
        if scan.next_batch()?.is_none() {
            return Ok::<(), glintdb_core::Error>(());
        }
    };
    let error = ends().unwrap_err();
    let file = segment.file().to_string();
    assert_eq!(error.place(), Some((&*file, end.into())));
}

/// A process that was killed while the seal was only in the ring, and the flush point behind it.
#[test]
fn a_stream_segment_may_end_with_zeros() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let committed: Vec<_> = (1..20)
        .map(|n| commit(&log, &Batch::separated(n, 900)))
        .collect();
    log.sync_all().unwrap();
    let killed = volume.kill();
    let segment = committed[0].lsn.segment;
    let scan = LiveScan::open(&*killed, DB, segment).unwrap();
    assert_eq!(scanned(scan).0.len(), 19);
    let file = killed.open(segment.file()).unwrap();
    file.write_at(u64::from(committed[18].end.offset) + 64, &[1])
        .unwrap();
    let mut scan = LiveScan::open(&*killed, DB, segment).unwrap();
    let error = loop {
        match scan.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("what follows is not zero"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// Scanning holds the file, as reading does.
#[test]
fn a_segment_under_a_scan_keeps_its_file() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let moved = write(&log, &records(10, 900));
    let segment = moved.segments().next().unwrap();
    log.publish_values(moved);
    let scan = log.live_scan(segment).unwrap();
    log.delete(segment).unwrap();
    assert_eq!(log.remove_doomed().unwrap(), 1);
    assert_eq!(scanned(scan).0.len(), 10);
    assert_eq!(log.remove_doomed().unwrap(), 0);
    assert!(volume.open(segment.file()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Round and round: what a scan gives, written again, is what the next scan gives, whatever keys and values there are.
    #[test]
    fn prop_values_survive_being_moved_again_and_again(
        records in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..300), prop_oneof![0usize..5, 0usize..3000, 50_000usize..300_000]),
            0..60,
        ),
        segment_bytes in 16u64 << 10..256 << 10,
    ) {
        let (volume, numbers) = (MemVolume::new(), numbers());
        let log = Log::create(setup(&volume, &numbers, LogOptions { segment_bytes, ..small() })).unwrap();
        let records: Vec<Moved> = records
            .into_iter()
            .enumerate()
            .map(|(n, (key, length))| Moved { key, value: pattern(n as u64, length) })
            .collect();
        let mut ids: Vec<SegmentId> = {
            let moved = write(&log, &records);
            let ids = moved.segments().collect();
            log.publish_values(moved);
            ids
        };
        for _ in 0..2 {
            let mut writer = log.values_writer(Space::Normal, u64::MAX).unwrap();
            let mut all = Vec::new();
            for &id in &ids {
                prop_assert!(log.verify(id).unwrap().errors.is_empty());
                let mut scan = log.live_scan(id).unwrap();
                while let Some(batch) = scan.next_batch().unwrap() {
                    for record in batch.records() {
                        let value = record.value().unwrap();
                        writer.put(&log, record.keyspace, record.key, &value, record.pointer.checksum).unwrap();
                        all.push(Moved { key: record.key.to_vec(), value: value.to_vec() });
                    }
                }
            }
            prop_assert!(all == records);
            let moved = writer.finish(&log).unwrap();
            ids = moved.segments().collect();
            log.publish_values(moved);
        }
    }
}
