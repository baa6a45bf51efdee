//! Models of a commit's place in the log under loom: the production log over a simulated volume,
//! the production pipeline, and numbering as the sequencer does it. The ring is nearly full, so
//! that a commit continues at the ring's start, in space that was given back while an earlier
//! commit is still being copied.
//!
//! What must hold: each value can be read at any time. After a power cut, every acknowledged commit
//! is whole in the log, and so is every commit before it.

use crate::options::Durability;
use crate::test_clock;
use crate::write::backpressure::waits::Waits;
use crate::write::pipeline::{Pipeline, Reached};
use glintdb_core::sync::{Mutex, explore, thread};
use glintdb_core::{DbId, FileNumbers, KeyspaceId, Result, SeqNum, ValuePointer};
use glintdb_flash::Volume;
use glintdb_log::{
    FrameBuilder, Log, LogOp, LogOptions, LogSetup, LogValue, Lsn, Space, WaitReason,
};
use glintdb_simdisk::{CrashMode, MemVolume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn setup(volume: &Arc<MemVolume>, numbers: u64) -> LogSetup {
    LogSetup {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        db: DbId([7; 16]),
        clock: Arc::new(glintdb_flash::ManualClock::default()),
        numbers: Arc::new(Numbers(AtomicU64::new(numbers))),
        options: LogOptions {
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            reserve_segments: 0,
        },
    }
}

/// Returns the value of commit `seqno`. Each of its bytes is the commit's number.
fn value(seqno: u64) -> Vec<u8> {
    let bytes = match seqno {
        // Four of them leave room in the ring for the small one behind them, and for nothing else.
        1..=4 => 15 << 10,
        5 => 1 << 10,
        _ => 6 << 10,
    };
    vec![seqno as u8; bytes]
}

struct Engine {
    volume: Arc<MemVolume>,
    log: Log,
    start: Lsn,
    pipeline: Pipeline,
    next: Mutex<u64>,
}

impl Engine {
    /// Creates an engine with four commits that fill most of the ring, none of which is in its
    /// segment. Also returns the place of the first value.
    fn new() -> (Arc<Engine>, ValuePointer) {
        let volume = MemVolume::new();
        let log = Log::create(setup(&volume, 1)).unwrap();
        let engine = Arc::new(Engine {
            start: log.end(),
            volume,
            log,
            pipeline: Pipeline::new(SeqNum(0), Arc::new(Waits::new(test_clock()))),
            next: Mutex::new(1),
        });
        let first = engine.commit(1);
        for seqno in 2..=4 {
            engine.commit(seqno);
        }
        (engine, first)
    }

    /// Commits the value of commit `bytes_as`, under whichever number comes next.
    fn commit(&self, bytes_as: u64) -> ValuePointer {
        let mut frame = FrameBuilder::new();
        frame.put_separated(KeyspaceId(1), b"key", &value(bytes_as));
        frame.finish();
        let (seqno, place) = loop {
            let mut next = self.next.lock();
            match self.log.reserve(frame.frame_bytes(), Space::Normal) {
                Ok(place) => {
                    *next += 1;
                    break (SeqNum(*next - 1), place);
                }
                Err(reason) => {
                    drop(next);
                    assert_eq!(reason, WaitReason::Ring);
                    // As `Log::wait` does, whose wait has a time limit, which loom does not know.
                    if !self.log.spill_step().unwrap() {
                        thread::yield_now();
                    }
                }
            }
        };
        let in_flight = self.pipeline.begin(seqno);
        self.log.copy(&place, &mut frame, seqno);
        let pointer = frame.pointers(&place).next().unwrap();
        in_flight.done(place.end_position(), Durability::Os);
        self.pipeline
            .advance_completed(|end| self.log.complete_to(end));
        self.pipeline.advance_visible(|| Reached {
            written: self.log.written_position(),
            durable: self.log.durable_position(),
        });
        self.pipeline.wait_visible(seqno).unwrap();
        pointer
    }

    fn assert_reads(&self, pointer: &ValuePointer, bytes_as: u64) {
        let read = self.log.read(pointer).unwrap();
        assert!(read[..] == value(bytes_as), "the value of {bytes_as}");
    }

    /// Recovers a log from `volume`. Returns the number in the value of each commit, in order.
    fn recovered(&self, volume: &Arc<MemVolume>) -> Vec<u64> {
        let (mut numbers, mut pointers) = (Vec::new(), Vec::new());
        let (log, _) = Log::recover(
            setup(volume, 1_000),
            self.start,
            self.start,
            &[],
            &mut |frame| {
                numbers.push(frame.seqno().0);
                for entry in frame.entries() {
                    if let LogOp::Put {
                        value: LogValue::Pointer(pointer),
                        ..
                    } = entry.op
                    {
                        pointers.push(pointer);
                    }
                }
                Ok(())
            },
            &mut |_| (),
        )
        .unwrap();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
        let number_in = |pointer| {
            let read = log.read(pointer).unwrap();
            let seqno = u64::from(read[0]);
            assert!(read[..] == value(seqno), "the value of {seqno}");
            seqno
        };
        pointers.iter().map(number_in).collect()
    }
}

/// One commit is slow. The other needs more space than the ring has, spills what is complete, and
/// continues at the ring's start. A third thread reads the oldest value, from the ring or the
/// segment, and then spills what is complete, as a job does.
#[test]
fn a_commit_wraps_around_the_ring_beside_a_slow_one() {
    explore("commit: over the ring's end", Some(2), || {
        let (engine, first) = Engine::new();
        let slow = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.commit(5))
        };
        let reader = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.assert_reads(&first, 1);
                engine.log.spill_step().unwrap();
            })
        };
        let large = engine.commit(6);
        engine.assert_reads(&large, 6);
        let small = slow.join().unwrap();
        reader.join().unwrap();
        for (pointer, bytes_as) in [(first, 1), (small, 5), (large, 6)] {
            engine.assert_reads(&pointer, bytes_as);
        }
        engine.log.sync_all().unwrap();
        let mut shown = engine.recovered(&engine.volume.crash(CrashMode::LoseUnsynced));
        shown[4..].sort_unstable();
        assert_eq!(shown, [1, 2, 3, 4, 5, 6]);
    });
}

/// The process is killed at any moment. The ring and the segments then hold a prefix of the
/// commits, with every acknowledged one.
#[test]
fn a_kill_at_any_moment_leaves_a_prefix() {
    explore("commit: killed at any moment", Some(2), || {
        let (engine, _) = Engine::new();
        let killed = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let acknowledged = engine.pipeline.visible().0;
                (acknowledged, engine.volume.kill())
            })
        };
        let slow = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.commit(5))
        };
        engine.commit(6);
        slow.join().unwrap();
        let (acknowledged, image) = killed.join().unwrap();
        let shown = engine.recovered(&image);
        assert!(
            shown.len() as u64 >= acknowledged,
            "{shown:?}, {acknowledged} acknowledged"
        );
        assert_eq!(shown[..4], [1, 2, 3, 4]);
    });
}
