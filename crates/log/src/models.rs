//! Group sync under loom: the production log over a simulated volume.

use crate::{FrameBuilder, Log, LogOptions, LogSetup, Lsn, Space};
use glintdb_core::sync::{explore, thread};
use glintdb_core::{DbId, ErrorKind, FileNumbers, KeyspaceId, Result, SeqNum};
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemVolume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A log with two commits that are copied and completed.
fn log() -> (Arc<MemVolume>, Arc<Log>, [Lsn; 2]) {
    let volume = MemVolume::new();
    let setup = LogSetup {
        volume: Arc::clone(&volume) as Arc<dyn Volume>,
        db: DbId([7; 16]),
        clock: Arc::new(glintdb_flash::ManualClock::default()),
        numbers: Arc::new(Numbers(AtomicU64::new(1))),
        options: LogOptions {
            segment_bytes: 16 << 10,
            ring_bytes: 64 << 10,
            reserve_segments: 0,
        },
    };
    let log = Log::create(setup).unwrap();
    let ends = [1, 2].map(|seqno| {
        let mut frame = FrameBuilder::new();
        frame.put(KeyspaceId(1), b"key", b"value");
        frame.finish();
        let place = log.reserve(frame.frame_bytes(), Space::Normal).unwrap();
        log.copy(&place, &mut frame, SeqNum(seqno));
        log.complete(&place);
        place.end()
    });
    (volume, Arc::new(log), ends)
}

fn sync(log: &Arc<Log>, end: Lsn) -> thread::JoinHandle<Result<()>> {
    let log = Arc::clone(log);
    thread::spawn(move || {
        log.sync(end)?;
        assert!(log.durable() >= end, "answered before it was durable");
        Ok(())
    })
}

#[test]
fn one_leads_and_who_follows_is_woken() {
    explore("log: group sync", Some(2), || {
        let (volume, log, ends) = log();
        let both = ends.map(|end| sync(&log, end));
        for sync in both {
            sync.join().unwrap().unwrap();
        }
        let stats = log.stats();
        assert!(stats.sync_groups <= stats.sync_waits);
        let kept = volume.crash(CrashMode::LoseUnsynced);
        let file = kept.open(ends[0].segment.file()).unwrap();
        let bytes = file.read_at(0, ends[1].offset as usize).unwrap();
        assert_eq!(
            bytes.len(),
            ends[1].offset as usize,
            "both frames are on the medium"
        );
    });
}

/// The first sync loses its data, later ones say OK: nobody may be told that a commit is durable, not even who comes when the failed one is over.
#[test]
fn a_failed_sync_fails_everybody() {
    explore("log: failed group sync", Some(2), || {
        let (volume, log, ends) = log();
        volume.fail(Fault {
            at_operation: volume.operation_count(),
            kind: FaultKind::SyncLosesData,
            sticky: false,
        });
        let both = ends.map(|end| sync(&log, end));
        let mut kinds: Vec<_> = both
            .map(|sync| sync.join().unwrap().unwrap_err().kind())
            .to_vec();
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        assert_eq!(kinds, [ErrorKind::Io, ErrorKind::Poisoned]);
    });
}
