//! `kill -9` of a real process that writes to a real directory from several threads.
//!
//! The child is this test binary again, running [`child_that_commits_until_it_is_killed`], which does nothing without the environment variable.

use crate::support::*;
use glintdb_core::{FileId, FileKind, FileNumbers, SeqNum};
use glintdb_flash::{DirOptions, DirVolume, Volume};
use glintdb_log::{FrameBuilder, Log, LogOptions, LogSetup, Lsn, Space};
use glintdb_simdisk::MemVolume;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const DIRECTORY: &str = "GLINTDB_LOG_KILL_DIRECTORY";

fn dir_setup(directory: &Path) -> LogSetup {
    let volume = DirVolume::open(directory, DirOptions::default()).unwrap();
    let used = volume.list().unwrap();
    let next = used.iter().map(|file| file.number + 1).max().unwrap_or(1);
    LogSetup {
        volume,
        db: DB,
        clock: Arc::new(glintdb_flash::SystemClock::new()),
        numbers: Arc::new(Numbers(AtomicU64::new(next))) as Arc<dyn FileNumbers>,
        options: LogOptions {
            segment_bytes: 256 << 10,
            ring_bytes: 128 << 10,
            reserve_segments: 1,
        },
    }
}

/// The log begins in the lowest segment there is.
fn first(setup: &LogSetup) -> Option<Lsn> {
    let files = setup.volume.list().unwrap();
    let logs = files.into_iter().filter(|file| file.kind == FileKind::Log);
    logs.min()
        .map(|FileId { number, .. }| Lsn::new(glintdb_core::SegmentId(number), 4096))
}

fn batch(seqno: u64) -> Batch {
    match seqno % 50 {
        7 => Batch::separated(seqno, 60_000),
        n if n % 2 == 0 => Batch::separated(seqno, 900),
        _ => Batch::put(seqno, 120),
    }
}

#[test]
fn child_that_commits_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let setup = dir_setup(Path::new(&directory));
    let (log, last) = match first(&setup) {
        Some(from) => {
            let replay = recover(setup, from);
            (replay.log, replay.recovered.seqno_max.0)
        }
        None => (Log::create(setup).unwrap(), 0),
    };
    let sequencer = Mutex::new(last);
    let published = (Mutex::new(last), parking_lot::Condvar::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut frame = FrameBuilder::new();
                loop {
                    let mut next = sequencer.lock();
                    let seqno = *next + 1;
                    batch(seqno).build(&mut frame);
                    let reservation = if log.is_large(frame.frame_bytes()) {
                        let mut large = log.prepare_large(&frame, Space::Normal).unwrap();
                        let reservation = loop {
                            match log.reserve_large(&mut large) {
                                Ok(reservation) => break reservation,
                                Err(reason) => log.wait(reason, Space::Normal).unwrap(),
                            }
                        };
                        let seqno = SeqNum(seqno);
                        log.copy_large(large, &reservation, &mut frame, seqno)
                            .unwrap();
                        reservation
                    } else {
                        match log.reserve(frame.frame_bytes(), Space::Normal) {
                            Ok(reservation) => reservation,
                            Err(reason) => {
                                drop(next);
                                log.wait(reason, Space::Normal).unwrap();
                                continue;
                            }
                        }
                    };
                    *next = seqno;
                    drop(next);
                    if reservation.end().offset - reservation.lsn().offset < 10_000 {
                        log.copy(&reservation, &mut frame, SeqNum(seqno));
                    }
                    let mut turn = published.0.lock();
                    while *turn + 1 != seqno {
                        published.1.wait(&mut turn);
                    }
                    log.complete(&reservation);
                    log.write_out(&reservation).unwrap();
                    *turn = seqno;
                    // Acknowledged in order: one write, so a line is whole or not there.
                    let line = format!("ack {seqno}\n");
                    std::io::stderr().write_all(line.as_bytes()).unwrap();
                    drop(turn);
                    published.1.notify_all();
                }
            });
        }
        scope.spawn(|| {
            loop {
                log.spill_step().unwrap();
                if log.prepare_due() {
                    log.prepare_step(Space::Normal).unwrap();
                }
                std::thread::yield_now();
            }
        });
    });
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for cycle in 0..8u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child_that_commits_until_it_is_killed"])
            .arg("--nocapture")
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let wanted = 100 + cycle * 97 % 400;
        let mut seen = 0;
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        for line in &mut lines {
            let line = line.unwrap();
            if let Some(seqno) = line.strip_prefix("ack ") {
                acknowledged = acknowledged.max(seqno.parse().unwrap());
                seen += 1;
            }
            if seen == wanted {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= wanted, "the child died by itself after {seen}");
        let setup = dir_setup(directory.path());
        let from = first(&setup).unwrap();
        let replay = recover(setup, from);
        let there = replay.batches.len() as u64;
        assert!(
            there >= acknowledged,
            "{acknowledged} acknowledged, {there} there"
        );
        for (index, found) in replay.batches.iter().enumerate() {
            assert_eq!(*found, batch(index as u64 + 1));
        }
    }
}

/// Somebody put an older state of the database into the directory and let the spares be: they hold frames of the very segments that are made next.
#[test]
fn what_a_killed_process_kept_to_be_written_again_does_not_come_back() {
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    commit(&log, &Batch::put(1, 100));
    seal(&log);
    let mut frames = Vec::new();
    for n in 2..=8 {
        let later = commit(&log, &Batch::put(n, 1000)).lsn;
        log.sync_all().unwrap();
        let file = volume.open(later.segment.file()).unwrap();
        frames = file.read_at(0, 64 << 10).unwrap().to_vec();
        assert_eq!(later.segment.0, 2);
    }
    for slots in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        for slot in 0..slots {
            let spare = directory.path().join(format!("spare-{slot}.glint"));
            std::fs::write(spare, &frames).unwrap();
        }
        let setup = || LogSetup {
            options: small(),
            ..dir_setup(directory.path())
        };
        let log = Log::create(setup()).unwrap();
        let from = log.end();
        commit(&log, &Batch::put(1, 100));
        seal(&log);
        log.sync_all().unwrap();
        drop(log);
        let shown = recover(setup(), from).batches;
        assert!(shown == [Batch::put(1, 100)], "{} batches", shown.len());
    }
}
