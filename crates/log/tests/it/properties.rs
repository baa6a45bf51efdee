//! Random frames, random hostile bytes.

use crate::support::*;
use glintdb_core::checksum::{FileSeed, crc32c};
use glintdb_core::{FileId, FileKind, SegmentId, SeqNum};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use glintdb_log::format::frame::{FrameHeader, FrameKind};
use glintdb_log::format::segment::{SegmentHeader, SegmentKind};
use glintdb_log::{DumpItem, Log, LogOptions, Lsn, Space, dump};
use glintdb_simdisk::MemVolume;
use proptest::prelude::*;
use std::sync::Arc;

fn op() -> impl Strategy<Value = Op> {
    let key = || proptest::collection::vec(any::<u8>(), 0..40);
    let value = || {
        (
            any::<u64>(),
            prop_oneof![8 => 0usize..300, 1 => 0usize..20_000],
        )
            .prop_map(|(seed, length)| pattern(seed, length))
    };
    prop_oneof![
        (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        (key(), value()).prop_map(|(key, value)| Op::Separated(key, value)),
        key().prop_map(Op::Delete),
        (key(), proptest::option::of(key())).prop_map(|(start, end)| Op::DeleteRange(start, end)),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Op>),
    Spill,
    Sync,
    Seal,
    Prepare,
    Verify,
    Close,
    Reopen,
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => proptest::collection::vec(op(), 0..6).prop_map(Step::Commit),
        3 => Just(Step::Spill),
        2 => Just(Step::Sync),
        1 => Just(Step::Seal),
        1 => Just(Step::Prepare),
        1 => Just(Step::Verify),
        1 => Just(Step::Close),
        1 => Just(Step::Reopen),
        1 => Just(Step::Delete),
    ]
}

fn log_options() -> impl Strategy<Value = LogOptions> {
    (4u64..40, 16usize..200, 0usize..3).prop_map(|(segment, ring, reserve_segments)| LogOptions {
        segment_bytes: segment << 12,
        ring_bytes: ring << 12,
        reserve_segments,
    })
}

proptest! {
    /// Whatever is done, every value is readable at every moment, and after a kill everything committed behind the replay point is there, in order.
    #[test]
    fn prop_log_is_a_list_of_batches(steps in proptest::collection::vec(step(), 1..60), options in log_options()) {
        let (mut volume, numbers) = (MemVolume::new(), numbers());
        let mut log = Log::create(setup(&volume, &numbers, options)).unwrap();
        let mut from = log.end();
        let mut batches: Vec<(Batch, Committed)> = Vec::new();
        let mut seqno = 0;
        for step in steps {
            match step {
                Step::Commit(ops) => {
                    seqno += 1;
                    let batch = Batch { seqno, ops };
                    let committed = commit(&log, &batch);
                    prop_assert!(batches.last().is_none_or(|(_, last)| last.end <= committed.lsn));
                    batches.push((batch, committed));
                }
                Step::Spill => drop(log.spill_step().unwrap()),
                Step::Sync => log.sync_all().unwrap(),
                Step::Seal => seal(&log),
                Step::Prepare => drop(log.prepare_step(Space::Normal).unwrap()),
                Step::Verify => {
                    for segment in log.segments().unwrap() {
                        let report = log.verify(segment.id).unwrap();
                        prop_assert!(report.errors.is_empty(), "{:?}", report.errors);
                    }
                }
                Step::Close => log.close().unwrap(),
                Step::Reopen => {
                    drop(log);
                    volume = volume.kill();
                    let replay = recover(setup(&volume, &numbers, options), from);
                    let expected: Vec<_> = batches.iter().map(|(batch, _)| batch.clone()).collect();
                    prop_assert_eq!(&replay.batches, &expected);
                    prop_assert!(replay.recovered.end >= batches.last().map_or(from, |(_, last)| last.end));
                    log = replay.log;
                }
                Step::Delete => {
                    // As after a flush of everything: older segments go, replay begins behind the last batch.
                    from = log.end();
                    batches.clear();
                    log.sync_all().unwrap();
                    for segment in log.segments().unwrap() {
                        if segment.id < from.segment {
                            drop(log.delete(segment.id));
                        }
                    }
                }
            }
            let pointers: Vec<_> = batches.iter().flat_map(|(_, c)| c.pointers.clone()).collect();
            let values = log.read_batch(&pointers);
            let expected = batches.iter().flat_map(|(batch, _)| &batch.ops).filter_map(|op| match op {
                Op::Separated(_, value) => Some(value),
                _ => None,
            });
            for ((pointer, found), value) in pointers.iter().zip(values).zip(expected) {
                prop_assert_eq!(&found.unwrap()[..], &value[..]);
                prop_assert_eq!(&log.read(pointer).unwrap()[..], &value[..]);
            }
        }
    }

    /// Bytes of no meaning behind a valid segment header are holes: no panic, no frame, all of the file told.
    #[test]
    fn prop_hostile_segment_is_holes(body in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let volume = hostile(&body);
        let mut at = 4096;
        for item in dump(&*volume, SegmentId(7)).unwrap() {
            match item.unwrap() {
                DumpItem::Hole { lsn, bytes, .. } => {
                    prop_assert_eq!(lsn.offset, at);
                    at += bytes as u32;
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(at as usize, 4096 + body.len());
    }

    /// Frames with right checksums and hostile lengths, counts and entries: an answer in bounded memory.
    #[test]
    fn prop_hostile_frame_with_right_checksums_is_refused_or_read(
        meta in proptest::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..200),
        kind in 0usize..4,
        lengths in proptest::option::of((any::<u32>(), any::<u32>())),
        entry_count in prop_oneof![0u32..5, any::<u32>()],
        durable_position in any::<u64>(),
        rest in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let kinds = [FrameKind::Commit, FrameKind::Seal, FrameKind::Mark, FrameKind::Relocation];
        let (meta_bytes, values_bytes) = lengths.unwrap_or((meta.len() as u32, 0));
        let header = FrameHeader {
            kind: kinds[kind],
            seqno: SeqNum(1),
            durable_position,
            meta_bytes,
            values_bytes,
            entry_count,
            meta_checksum: crc32c(&meta),
        };
        let seed = FileSeed::new(DB, SegmentId(7).file());
        let mut body = header.encode(seed, 4096).to_vec();
        body.extend_from_slice(&meta);
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend_from_slice(&rest);
        let volume = hostile(&body);
        let total: u64 = dump(&*volume, SegmentId(7)).unwrap().map(|item| match item.unwrap() {
            DumpItem::Frame(frame) => { assert!(frame.entries().count() <= 200); frame.header().frame_bytes() },
            DumpItem::Hole { bytes, .. } => bytes,
            _ => 0,
        }).sum();
        prop_assert_eq!(total, body.len() as u64);
        let result = try_recover(setup(&volume, &numbers_from(100), small()), Lsn::new(SegmentId(7), 4096), &[]);
        if let Err(error) = result {
            prop_assert!(error.place().is_some() || kind == 3, "{}", error);
        }
    }
}

fn numbers_from(first: u64) -> Arc<Numbers> {
    Arc::new(Numbers(std::sync::atomic::AtomicU64::new(first)))
}

fn hostile(body: &[u8]) -> Arc<MemVolume> {
    let volume = MemVolume::new();
    let options = CreateOptions {
        class: DataClass::Log,
        reserve_bytes: 0,
        direct: false,
    };
    let file = volume
        .create(FileId::new(FileKind::Log, 7), options)
        .unwrap();
    let header = SegmentHeader {
        kind: SegmentKind::Stream,
        db: DB,
        id: SegmentId(7),
        base: 0,
        capacity: 64 << 10,
    };
    file.write_at(0, &header.encode()).unwrap();
    file.write_at(4096, body).unwrap();
    volume
}
