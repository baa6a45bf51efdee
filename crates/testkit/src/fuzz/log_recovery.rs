//! Target `log_recovery`: a log over several segments and the ring, recovered.
//!
//! Asserts: recovery shows exactly the commits that a reader written from the format's page finds, or refuses where that one does, with an error that names file and offset;
//! nothing is changed by a refusal; every separated value that was shown can be read; recovering once more, also after a power cut, shows the same; the log then takes
//! a commit, which the next recovery shows too.

use super::input::Input;
use super::log_image::{CAPACITY, DB, LogImage, RING_BYTES};
use super::{log_frame, log_model};
use glintdb_core::checksum::crc32c;
use glintdb_core::{ErrorKind, FileNumbers, KeyspaceId, Result, SegmentId, SeqNum, ValuePointer};
use glintdb_flash::Volume;
use glintdb_log::{FrameBuilder, Log, LogOp, LogOptions, LogSetup, LogValue, Lsn, Space};
use glintdb_simdisk::{CrashMode, MemVolume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A commit as recovery shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    lsn: Lsn,
    seqno: SeqNum,
    meta: Vec<u8>,
    pointers: Vec<ValuePointer>,
}

fn recover(volume: &Arc<MemVolume>, numbers: u64) -> Result<(Log, Vec<Shown>)> {
    let setup = LogSetup {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        db: DB,
        clock: Arc::new(glintdb_flash::ManualClock::default()),
        numbers: Arc::new(Numbers(AtomicU64::new(numbers))),
        options: LogOptions {
            segment_bytes: CAPACITY,
            ring_bytes: RING_BYTES,
            reserve_segments: 0,
        },
    };
    let mut shown = Vec::new();
    let from = Lsn::new(SegmentId(1), 4096);
    let (log, recovered) = Log::recover(
        setup,
        from,
        from,
        &[],
        &mut |frame| {
            let pointers = frame.entries().filter_map(|entry| match entry.op {
                LogOp::Put {
                    value: LogValue::Pointer(pointer),
                    ..
                } => Some(pointer),
                _ => None,
            });
            shown.push(Shown {
                lsn: frame.lsn(),
                seqno: frame.seqno(),
                pointers: pointers.collect(),
                meta: log_frame::encode(frame.entries()),
            });
            Ok(())
        },
        &mut |_| (),
    )?;
    assert_eq!(recovered.frames, shown.len() as u64);
    Ok((log, shown))
}

fn values_are_there(log: &Log, shown: &[Shown]) {
    for pointer in shown.iter().flat_map(|shown| &shown.pointers) {
        let value = log.read(pointer).expect("a value that was shown");
        assert_eq!(crc32c(&value), pointer.checksum);
    }
}

pub(super) fn run(data: &[u8]) {
    let image = LogImage::build(Input::new(data));
    let volume = image.volume();
    let expected = log_model::read(&image);
    let (log, shown) = match (recover(&volume, 100), &expected) {
        (Ok(recovered), Ok(_)) => recovered,
        (Err(error), Err(_)) => {
            assert!(
                error.place().is_some() || error.kind() == ErrorKind::UnsupportedFormat,
                "{error}"
            );
            return;
        }
        (Ok(_), Err(why)) => panic!("recovered, but {why}"),
        (Err(error), Ok(_)) => panic!("refused, but nothing is wrong: {error}"),
    };
    let commits = expected.unwrap_or_default();
    let places = |shown: &[Shown]| -> Vec<(u64, u64, u64)> {
        let place = |shown: &Shown| (shown.lsn.segment.0, shown.lsn.offset.into(), shown.seqno.0);
        shown.iter().map(place).collect()
    };
    let expected: Vec<_> = commits
        .iter()
        .map(|frame| (frame.segment, frame.offset, frame.seqno))
        .collect();
    assert_eq!(places(&shown), expected, "other commits than the page says");
    values_are_there(&log, &shown);
    drop(log);

    let volume = volume.crash(CrashMode::LoseUnsynced);
    let (log, again) = recover(&volume, 200).expect("what was recovered once");
    assert_eq!(again, shown, "a second recovery differs");
    let commit = commit(&log);
    drop(log);

    let volume = volume.crash(CrashMode::LoseUnsynced);
    let (log, again) = recover(&volume, 300).expect("what was written to");
    assert_eq!(
        again.split_last().map(|(last, rest)| (last.lsn, rest)),
        Some((commit, &shown[..]))
    );
    values_are_there(&log, &again);
}

/// One commit at the log's end.
fn commit(log: &Log) -> Lsn {
    let mut frame = FrameBuilder::new();
    frame.put_separated(KeyspaceId(1), b"key", b"written after recovery");
    frame.finish();
    let reservation = loop {
        match log.reserve(frame.frame_bytes(), Space::Normal) {
            Ok(reservation) => break reservation,
            Err(reason) => log.wait(reason, Space::Normal).expect("memory takes it"),
        }
    };
    log.copy(&reservation, &mut frame, SeqNum(1 << 40));
    log.complete(&reservation);
    log.sync_all().expect("memory syncs");
    reservation.lsn()
}
