//! Segments of relocated values: written beside the stream, read by pointers, kept or removed by recovery, never replayed.

use crate::support::*;
use glintdb_core::checksum::crc32c;
use glintdb_core::{ErrorKind, FileId, FileKind, FileNumbers, KeyspaceId, SegmentId, ValuePointer};
use glintdb_flash::Volume;
use glintdb_log::format::segment::{SegmentHeader, SegmentKind};
use glintdb_log::{Log, LogOptions, LogSetup, NewValues, Space, VALUES_RECORD_BYTES};
use glintdb_simdisk::{CrashMode, MemVolume};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A record to be moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

pub fn records(count: u64, value_bytes: usize) -> Vec<Moved> {
    (1..=count)
        .map(|n| Moved {
            key: format!("key{n:06}").into_bytes(),
            value: pattern(n, value_bytes + n as usize % 7),
        })
        .collect()
}

pub fn try_write(log: &Log, records: &[Moved]) -> glintdb_core::Result<NewValues> {
    try_write_of(log, records, u64::MAX)
}

/// Of which is said that they take `said` bytes.
fn try_write_of(log: &Log, records: &[Moved], said: u64) -> glintdb_core::Result<NewValues> {
    let mut writer = log.values_writer(Space::Normal, said)?;
    for Moved { key, value } in records {
        writer.put(log, KEYSPACE, key, value, crc32c(value))?;
    }
    assert_eq!(writer.records(), records.len());
    writer.finish(log)
}

pub fn write(log: &Log, records: &[Moved]) -> NewValues {
    try_write(log, records).unwrap()
}

fn segment_files(volume: &MemVolume) -> Vec<u64> {
    let files = volume.list().unwrap().into_iter();
    files
        .filter(|file| file.kind == FileKind::Log)
        .map(|file| file.number)
        .collect()
}

fn check_values(log: &Log, pointers: &[ValuePointer], records: &[Moved]) {
    assert_eq!(pointers.len(), records.len());
    for (pointer, record) in pointers.iter().zip(records) {
        assert_eq!(log.read(pointer).unwrap(), record.value);
    }
    for (found, record) in log.read_batch(pointers).into_iter().zip(records) {
        assert_eq!(found.unwrap(), record.value);
    }
}

#[test]
fn a_relocated_value_is_read_by_its_pointer_also_after_a_power_cut() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let records = records(1, 100);
    let moved = write(&log, &records);
    let pointers = moved.pointers().to_vec();
    let ids: Vec<SegmentId> = moved.segments().collect();
    // Not before it is published.
    let error = log.read(&pointers[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    log.publish_values(moved);
    check_values(&log, &pointers, &records);
    assert_eq!(log.segment_kind(ids[0]).unwrap(), SegmentKind::Values);
    assert_eq!(log.segment_kind(from.segment).unwrap(), SegmentKind::Stream);
    // The stream goes on as if it were not there, and its own places are found.
    let committed = commit(&log, &Batch::separated(1, 300));
    assert_eq!(log.end(), committed.end);
    log.sync(committed.end).unwrap();
    drop(log);

    let cut = volume.crash(CrashMode::LoseUnsynced);
    let replay = try_recover(setup(&cut, &numbers, small()), from, &ids).unwrap();
    assert_eq!(replay.batches, [Batch::separated(1, 300)]);
    assert_eq!(replay.recovered.files_removed, 0);
    check_values(&replay.log, &pointers, &records);
    assert_eq!(
        replay.log.segment_kind(ids[0]).unwrap(),
        SegmentKind::Values
    );
    replay.log.delete(ids[0]).unwrap();
    assert!(replay.log.read(&pointers[0]).is_err());
    assert!(!segment_files(&cut).contains(&ids[0].0));
}

/// Numbers of files come from the manifest, under whose lock values are published.
struct Guarded {
    numbers: Arc<Numbers>,
    manifest: Mutex<()>,
    asked: AtomicBool,
}

impl FileNumbers for Guarded {
    fn next(&self) -> glintdb_core::Result<u64> {
        self.asked.store(true, Ordering::SeqCst);
        let _manifest = self.manifest.lock().unwrap();
        self.numbers.next()
    }
}

/// Who prepared a segment waited for its number, who published values for the segment: a deadlock, seen by the lane `kernel` (a large batch beside value GC on a full disk).
#[test]
fn values_are_published_while_a_segment_that_is_prepared_waits_for_its_number() {
    let volume = MemVolume::new();
    let guarded = Arc::new(Guarded {
        numbers: numbers(),
        manifest: Mutex::new(()),
        asked: AtomicBool::new(false),
    });
    let setup = LogSetup {
        numbers: Arc::clone(&guarded) as Arc<dyn FileNumbers>,
        ..setup(&volume, &guarded.numbers, small())
    };
    let log = Log::create(setup).unwrap();
    let records = records(10, 100);
    let moved = write(&log, &records);
    let pointers = moved.pointers().to_vec();
    std::thread::scope(|scope| {
        let manifest = guarded.manifest.lock().unwrap();
        guarded.asked.store(false, Ordering::SeqCst);
        let log = &log;
        scope.spawn(|| commit(log, &Batch::put(1, 1 << 20)));
        while !guarded.asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let (published, wait) = mpsc::channel();
        scope.spawn(move || {
            log.publish_values(moved);
            published.send(()).unwrap();
        });
        let published = wait.recv_timeout(Duration::from_secs(20));
        drop(manifest);
        assert!(published.is_ok(), "it waits for who waits for the manifest");
    });
    check_values(&log, &pointers, &records);
}

#[test]
fn values_fill_as_many_segments_as_they_need_and_a_large_one_gets_its_own() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let mut records = records(300, 900);
    records[150].value = pattern(1, 3 << 20);
    let moved = write(&log, &records);
    let ids: Vec<SegmentId> = moved.segments().collect();
    assert!(ids.len() > 4, "{ids:?}");
    let pointers = moved.pointers().to_vec();
    log.publish_values(moved);
    check_values(&log, &pointers, &records);
    let alone = pointers[150].segment;
    // As long as the value needs; what is left of its last block may take a neighbour.
    let beside = pointers.iter().filter(|p| p.segment == alone).count();
    assert!(beside < 6, "{beside} records");
    // In order: a scan over neighbours reads one place.
    for pair in pointers.windows(2) {
        assert!((pair[0].segment, pair[0].offset) < (pair[1].segment, pair[1].offset));
    }
    for info in log.segments().unwrap() {
        let values = ids.contains(&info.id);
        assert_eq!(info.kind == SegmentKind::Values, values);
        if values {
            assert!(!info.active && info.file_bytes.is_multiple_of(4096));
            assert!(info.file_bytes <= 64 << 10 || info.id == alone);
        }
    }
    let written: u64 = log
        .segments()
        .unwrap()
        .iter()
        .filter(|info| ids.contains(&info.id))
        .map(|info| info.file_bytes)
        .sum();
    assert_eq!(log.stats().relocated_bytes, written);
    assert!(written < (3 << 20) + 300 * 1000 + ids.len() as u64 * 8192);
}

#[test]
fn nothing_moved_makes_no_file() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let before = segment_files(&volume);
    let moved = write(&log, &[]);
    assert_eq!(moved.segments().len(), 0);
    log.publish_values(moved);
    assert_eq!(segment_files(&volume), before);
}

#[test]
fn what_is_given_up_leaves_no_files_and_what_is_left_stays() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let before = segment_files(&volume);
    let mut writer = log.values_writer(Space::Normal, u64::MAX).unwrap();
    for Moved { key, value } in &records(200, 900) {
        writer
            .put(&log, KEYSPACE, key, value, crc32c(value))
            .unwrap();
    }
    assert!(segment_files(&volume).len() > before.len() + 1);
    drop(writer);
    assert_eq!(segment_files(&volume), before);
    drop(write(&log, &records(200, 900)));
    assert_eq!(segment_files(&volume), before);
    let left = write(&log, &records(10, 900));
    left.leave();
    assert_eq!(segment_files(&volume).len(), before.len() + 1);
}

/// What is made for more than it comes to hold is cut, and the device erases what is cut off.
#[test]
fn files_are_made_for_what_is_said_to_come_and_for_more_where_more_comes() {
    const SEGMENT_BYTES: u64 = 1 << 20;
    for (count, value_bytes) in [(2500, 1000), (158, 16_000), (8000, 300)] {
        made_for(SEGMENT_BYTES, &records(count, value_bytes));
    }
}

/// Of records that take two files and a half.
fn made_for(segment_bytes: u64, records: &[Moved]) {
    let bytes = |one: &Moved| (one.key.len() + one.value.len()) as u64 + VALUES_RECORD_BYTES;
    let exact: u64 = records.iter().map(bytes).sum();
    let made = |said| {
        let (volume, numbers) = (MemVolume::new(), numbers());
        let options = LogOptions {
            segment_bytes,
            ..small()
        };
        let log = Log::create(setup(&volume, &numbers, options)).unwrap();
        let moved = try_write_of(&log, records, said).unwrap();
        let pointers = moved.pointers().to_vec();
        let ids: Vec<SegmentId> = moved.segments().collect();
        log.publish_values(moved);
        check_values(&log, &pointers, records);
        let sizes = |id: SegmentId| {
            let file = volume.open(id.file()).unwrap();
            let block = file.read_at(0, 4096).unwrap();
            let header = SegmentHeader::decode(id, &block).unwrap();
            (header.capacity, file.len().unwrap())
        };
        ids.into_iter().map(sizes).collect::<Vec<_>>()
    };
    for said in [exact, exact + exact / 100] {
        let sizes = made(said);
        assert_eq!(sizes.len(), 3, "{sizes:?}");
        let fits = |&(capacity, length): &(u64, u64)| capacity - length <= segment_bytes / 8;
        assert!(sizes.iter().all(fits), "{said}: {sizes:?}");
    }
    for (said, segments) in [(0, 3), (exact / 2, 4), (2 * exact, 3), (u64::MAX, 3)] {
        let sizes = made(said);
        assert_eq!(sizes.len(), segments, "{said}: {sizes:?}");
        assert!(sizes.iter().all(|&(capacity, _)| capacity <= segment_bytes));
        assert_eq!(sizes.last().unwrap().0, segment_bytes, "{said}: {sizes:?}");
    }
}

#[test]
fn values_that_nothing_names_are_removed_at_opening() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    commit(&log, &Batch::put(1, 10));
    let kept = write(&log, &records(20, 900));
    let kept_ids: Vec<SegmentId> = kept.segments().collect();
    log.publish_values(kept);
    write(&log, &records(20, 900)).leave();
    // One that is cut off in the middle, by a kill.
    let mut writer = log.values_writer(Space::Normal, u64::MAX).unwrap();
    for Moved { key, value } in &records(70, 900) {
        writer
            .put(&log, KEYSPACE, key, value, crc32c(value))
            .unwrap();
    }
    let killed = volume.kill();
    let replay = try_recover(setup(&killed, &numbers, small()), from, &kept_ids).unwrap();
    assert_eq!(replay.batches, [Batch::put(1, 10)]);
    assert!(replay.recovered.files_removed >= 2);
    let mut expected: Vec<u64> = kept_ids.iter().map(|id| id.0).collect();
    expected.extend([from.segment.0, replay.recovered.next.segment.0]);
    expected.sort_unstable();
    assert_eq!(segment_files(&killed), expected);
}

#[test]
fn a_segment_of_values_that_is_missing_is_named() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let missing = SegmentId(77);
    let error = try_recover(setup(&volume.kill(), &numbers, small()), from, &[missing])
        .err()
        .unwrap();
    let file = FileId::new(FileKind::Log, 77).to_string();
    assert_eq!(error.place(), Some((&*file, 0)));
}

/// Their ids are above that of the tail's segment, they hold whole frames, and the stream has a hole.
#[test]
fn values_behind_the_tail_do_not_make_it_corruption() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let first = commit(&log, &Batch::separated(1, 900));
    log.sync(first.end).unwrap();
    let torn = commit(&log, &Batch::separated(2, 900));
    let moved = write(&log, &records(20, 900));
    let ids: Vec<SegmentId> = moved.segments().collect();
    let pointers = moved.pointers().to_vec();
    assert!(ids[0] > from.segment);
    log.publish_values(moved);
    // The power cut takes the second commit; of the first segment of values also the header is torn.
    for damaged_header in [false, true] {
        let cut = volume.crash(CrashMode::LoseUnsynced);
        cut.remove_ring().unwrap();
        if damaged_header {
            cut.flip_bits(ids[0].file(), 40, 1).unwrap();
        }
        let replay = try_recover(setup(&cut, &numbers, small()), from, &ids).unwrap();
        assert_eq!(replay.recovered.end, first.end);
        assert!(torn.lsn >= first.end);
        let found = replay.log.read(&pointers[0]);
        assert_eq!(found.is_ok(), !damaged_header, "{found:?}");
    }
}

#[test]
fn replay_never_enters_a_segment_of_values() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let moved = write(&log, &records(20, 900));
    let id = moved.segments().next().unwrap();
    moved.leave();
    let from = glintdb_log::Lsn::new(id, 4096);
    let error = try_recover(setup(&volume.kill(), &numbers, small()), from, &[])
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.place(), Some((&*id.file().to_string(), 12)));
}

#[test]
fn values_take_the_reserve_of_a_full_disk_only_where_they_may() {
    use glintdb_simdisk::MemOptions;
    let volume = MemVolume::with_options(MemOptions {
        capacity_bytes: Some(400 << 10),
        ..MemOptions::default()
    });
    let numbers = numbers();
    let options = LogOptions {
        reserve_segments: 2,
        ..small()
    };
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    log.prepare_step(Space::Normal).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        match try_write(&log, &records(40, 900)) {
            Ok(moved) => kept.push(moved),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(!log.prepare_due());
    let mut writer = log.values_writer(Space::Reserve, u64::MAX).unwrap();
    let records = records(40, 900);
    for Moved { key, value } in &records {
        writer
            .put(&log, KeyspaceId(9), key, value, crc32c(value))
            .unwrap();
    }
    let moved = writer.finish(&log).unwrap();
    let pointers = moved.pointers().to_vec();
    log.publish_values(moved);
    check_values(&log, &pointers, &records);
    // The log is not poisoned by the full disk, and fills its reserve again when there is room.
    assert!(log.prepare_due());
    drop(kept);
    log.prepare_step(Space::Normal).unwrap();
    commit(&log, &Batch::put(1, 10));
}

#[test]
fn a_write_or_sync_that_fails_gives_up_the_values_and_nothing_else() {
    use glintdb_simdisk::{Fault, FaultKind};
    let lives = |fault: Option<(u64, FaultKind)>| {
        let (volume, numbers) = (MemVolume::new(), numbers());
        let log = Log::create(setup(&volume, &numbers, small())).unwrap();
        let before = volume.operation_count();
        if let Some((at, kind)) = fault {
            volume.fail(Fault {
                at_operation: before + at,
                kind,
                sticky: false,
            });
        }
        let moved = try_write(&log, &records(120, 900));
        let operations = volume.operation_count() - before;
        if fault.is_some() {
            let error = moved.err().unwrap();
            assert_ne!(error.kind(), ErrorKind::Poisoned, "{error}");
            assert_eq!(segment_files(&volume), [1], "{error}");
        }
        // The stream knows nothing of it.
        commit(&log, &Batch::put(1, 10));
        log.spill_step().unwrap();
        operations
    };
    let operations = lives(None);
    assert!(operations >= 7, "{operations}");
    for at in 0..operations {
        lives(Some((at, FaultKind::Io)));
    }
    lives(Some((0, FaultKind::ShortWrite)));
    lives(Some((0, FaultKind::SyncLosesData)));
}

fn damage_errors(volume: &MemVolume, id: SegmentId) -> Vec<glintdb_core::Error> {
    let volume: Arc<dyn Volume> = volume.kill();
    let mut nothing = |_: glintdb_log::FrameView<'_>| Ok(());
    let from = glintdb_log::Lsn::new(SegmentId(1), 4096);
    let check = glintdb_log::check(&volume, DB, from, from, &[id], &mut nothing, &mut |_| ());
    check.unwrap().errors
}

/// Every bit that means something, in the header, in each frame, in the frame that ends it; and a file that is cut at any block.
#[test]
fn damage_of_values_is_found_by_verify_and_check() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let moved = write(&log, &records(12, 900));
    let id = moved.segments().next().unwrap();
    let last = *moved.pointers().last().unwrap();
    log.publish_values(moved);
    log.sync_all().unwrap();
    let report = log.verify(id).unwrap();
    assert_eq!((report.frames, report.entries, report.values), (2, 12, 12));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert!(damage_errors(&volume, id).is_empty());
    let end = (last.offset + last.length).next_multiple_of(8);
    let places = [
        0,
        12,
        40,
        4096,
        4111,
        4120,
        4140,
        5000,
        last.offset,
        end,
        end + 15,
        end + 39,
    ];
    for offset in places {
        volume.flip_bits(id.file(), u64::from(offset), 1).unwrap();
        let report = log.verify(id).unwrap();
        assert!(!report.errors.is_empty(), "verify, offset {offset}");
        let errors = damage_errors(&volume, id);
        assert!(!errors.is_empty(), "check, offset {offset}");
        let file = id.file().to_string();
        assert!(errors.iter().all(|e| e.place().unwrap().0 == file));
        volume.flip_bits(id.file(), u64::from(offset), 1).unwrap();
    }
    // The padding of the file's last block is zero, and checked.
    volume.flip_bits(id.file(), u64::from(end) + 40, 1).unwrap();
    assert_eq!(damage_errors(&volume, id).len(), 1);
    volume.flip_bits(id.file(), u64::from(end) + 40, 1).unwrap();
    assert!(damage_errors(&volume, id).is_empty());
    // What is cut behind a whole frame, or is zeros from there on, ends without the frame that says so.
    let file = volume.open(id.file()).unwrap();
    for cut in [file.len().unwrap() - 4096, 4096, u64::from(end)] {
        let copy = volume.kill();
        copy.open(id.file()).unwrap().set_len(cut).unwrap();
        assert!(!damage_errors(&copy, id).is_empty(), "cut at {cut}");
        copy.open(id.file()).unwrap().set_len(64 << 10).unwrap();
        assert!(!damage_errors(&copy, id).is_empty(), "zeros from {cut}");
    }
}

#[test]
fn check_looks_at_values_that_are_live_and_at_no_others() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let moved = write(&log, &records(12, 900));
    let id = moved.segments().next().unwrap();
    moved.leave();
    let flip = |offset| volume.flip_bits(id.file(), offset, 1).unwrap();
    flip(5000);
    assert_eq!(damage_errors(&volume, id).len(), 1);
    // As a crash left it.
    let mut nothing = |_: glintdb_log::FrameView<'_>| Ok(());
    let killed: Arc<dyn Volume> = volume.kill();
    let from = glintdb_log::Lsn::new(SegmentId(1), 4096);
    let check =
        glintdb_log::check(&killed, DB, from, from, &[], &mut nothing, &mut |_| ()).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
    assert_eq!(check.files, 2);
}

/// Written over a segment that was dead, nothing of it synced, and of all that was written the power cut took the first sector.
#[test]
fn values_that_nothing_names_under_an_older_segments_header_are_no_damage() {
    use glintdb_log::SegmentSalvage;
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let moved = write(&log, &records(12, 900));
    let id = moved.segments().next().unwrap();
    moved.leave();
    let [older, stream, from] = [1, 2, 3].map(|n| {
        let begin = commit(&log, &Batch::put(n, 100)).lsn;
        if n < 3 {
            seal(&log);
        }
        begin
    });
    log.sync_all().unwrap();
    let killed = volume.kill();
    let older = killed.open(older.segment.file()).unwrap();
    let older = older.read_at(0, 512).unwrap();
    for id in [id, stream.segment] {
        let file = killed.open(id.file()).unwrap();
        file.write_at(0, &older).unwrap();
    }
    let errors = |live: &[SegmentId]| {
        let killed: Arc<dyn Volume> = Arc::clone(&killed) as Arc<dyn Volume>;
        let check = glintdb_log::check(&killed, DB, from, from, live, &mut |_| Ok(()), &mut |_| ());
        let errors = check.unwrap().errors.into_iter();
        let mut places: Vec<_> = errors.map(|e| e.place().unwrap().0.to_owned()).collect();
        places.sort_unstable();
        places
    };
    // Frames of the stream say that the header was there once.
    let [values_file, stream_file] = [id, stream.segment].map(|id| id.file().to_string());
    assert_eq!(errors(&[]), [stream_file.as_str()]);
    assert_eq!(errors(&[id]).len(), 2, "{values_file} is live");
    let kind = |id| SegmentSalvage::open(&*killed, DB, id, None).unwrap().kind();
    assert_eq!(kind(id), Some(SegmentKind::Values));
    assert_eq!(kind(stream.segment), None);
}

#[test]
fn salvage_takes_values_out_of_a_segment_whose_header_and_first_frame_are_gone() {
    use glintdb_log::{LogOp, LogValue, SalvageItem, SegmentSalvage};
    let (volume, numbers) = (MemVolume::new(), numbers());
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..small()
    };
    let log = Log::create(setup(&volume, &numbers, options)).unwrap();
    let records = records(600, 900);
    let moved = write(&log, &records);
    let pointers = moved.pointers().to_vec();
    let id = moved.segments().next().unwrap();
    moved.leave();
    let take = || {
        let mut scan = SegmentSalvage::open(&*volume, DB, id, None).unwrap();
        let (mut taken, mut holes) = (Vec::new(), 0);
        while let Some(item) = scan.next_item().unwrap() {
            match item {
                SalvageItem::Frame(frame) => {
                    for entry in frame.entries() {
                        let LogOp::Put {
                            key,
                            value: LogValue::Pointer(pointer),
                        } = entry.op
                        else {
                            panic!("{entry:?}")
                        };
                        let value = scan_value(&*volume, &pointer);
                        taken.push((key.to_vec(), value, pointer));
                    }
                }
                SalvageItem::Hole { .. } => holes += 1,
                other => panic!("{other:?}"),
            }
        }
        (scan.kind(), taken, holes)
    };
    let (kind, taken, holes) = take();
    assert_eq!((kind, holes), (Some(SegmentKind::Values), 0));
    let all: Vec<_> = records
        .iter()
        .zip(&pointers)
        .map(|(record, pointer)| (record.key.clone(), record.value.clone(), *pointer))
        .collect();
    assert_eq!(taken, all);
    volume.flip_bits(id.file(), 20, 1).unwrap();
    volume.flip_bits(id.file(), 4100, 1).unwrap();
    let (kind, taken, holes) = take();
    assert_eq!((kind, holes), (None, 1));
    assert!(taken.len() > 200 && taken.len() < 600, "{}", taken.len());
    assert_eq!(taken, all[600 - taken.len()..]);
}

fn scan_value(volume: &dyn Volume, pointer: &ValuePointer) -> Vec<u8> {
    let file = volume.open(pointer.segment.file()).unwrap();
    file.read_at(pointer.offset.into(), pointer.length as usize)
        .unwrap()
        .to_vec()
}

#[test]
fn a_frame_of_relocated_values_in_the_stream_is_corruption() {
    use glintdb_core::SeqNum;
    use glintdb_core::checksum::FileSeed;
    use glintdb_log::format::frame::{FrameHeader, FrameKind};
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let from = log.end();
    let first = commit(&log, &Batch::put(1, 10));
    log.sync_all().unwrap();
    let killed = volume.kill();
    killed.remove_ring().unwrap();
    let header = FrameHeader {
        kind: FrameKind::Relocation,
        seqno: SeqNum::ZERO,
        durable_position: 0,
        meta_bytes: 0,
        values_bytes: 0,
        entry_count: 0,
        meta_checksum: 0,
    };
    let seed = FileSeed::new(DB, from.segment.file());
    let frame = header.encode(seed, first.end.offset);
    let file = killed.open(from.segment.file()).unwrap();
    file.write_at(first.end.offset.into(), &frame).unwrap();
    let error = try_recover(setup(&killed, &numbers, small()), from, &[])
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let place = (from.segment.file().to_string(), first.end.offset.into());
    assert_eq!(error.place(), Some((&*place.0, place.1)));
}

/// A power cut at every operation of a life with values in it. What was published, in the place of a manifest, is there; what was not is gone.
#[test]
fn a_power_cut_at_any_operation_keeps_published_values_and_leaves_no_others() {
    use glintdb_simdisk::{Fault, FaultKind};
    let life = |volume: &Arc<MemVolume>, numbers: &Arc<Numbers>| {
        let mut published = Vec::new();
        let mut inner = || -> glintdb_core::Result<()> {
            let log = Log::create(setup(volume, numbers, small()))?;
            for round in 0..4 {
                let committed = try_commit(&log, &Batch::separated(round + 1, 900), Space::Normal)?;
                log.sync(committed.end)?;
                let records = records(10 + 40 * round, 900);
                let moved = try_write(&log, &records)?;
                let ids: Vec<SegmentId> = moved.segments().collect();
                published.push((ids, moved.pointers().to_vec(), records));
                log.publish_values(moved);
            }
            Ok(())
        };
        drop(inner());
        published
    };
    let count = {
        let volume = MemVolume::new();
        assert_eq!(life(&volume, &numbers()).len(), 4);
        volume.operation_count()
    };
    for at in 0..count {
        let (volume, numbers) = (MemVolume::new(), numbers());
        volume.fail(Fault {
            at_operation: at,
            kind: FaultKind::PowerOff,
            sticky: false,
        });
        let published = life(&volume, &numbers);
        let cut = volume.crash(CrashMode::LoseUnsynced);
        if segment_files(&cut).is_empty() {
            continue;
        }
        let live: Vec<SegmentId> = published.iter().flat_map(|p| p.0.clone()).collect();
        let from = glintdb_log::Lsn::new(SegmentId(1), 4096);
        let replay = try_recover(setup(&cut, &numbers, small()), from, &live)
            .unwrap_or_else(|error| panic!("cut at {at}: {error}"));
        assert!(replay.batches.len() >= published.len(), "cut at {at}");
        for (_, pointers, records) in &published {
            check_values(&replay.log, pointers, records);
        }
        let there = segment_files(&cut).len();
        assert_eq!(
            there,
            live.len() + 2,
            "cut at {at}: the stream's two, and live values"
        );
        for &id in &live {
            let errors = replay.log.verify(id).unwrap().errors;
            assert!(errors.is_empty(), "cut at {at}: {errors:?}");
        }
    }
}
