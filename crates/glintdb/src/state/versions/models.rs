//! Models of versions under loom: the production types ([`Versions`], the commit pipeline) with
//! pictures that are small enough to be checked whole. A reader's version shows every commit up to
//! its number and, in the index, none beyond it. A file is removed when no reader can read it any
//! more, and not before.
//!
//! `explore` tries every execution within its bound. Each model was seen to fail with a step
//! removed (`docs/decisions/007-models.md`).

use super::*;
use crate::options::Durability;
use crate::test_clock;
use crate::write::backpressure::waits::Waits;
use crate::write::pipeline::{Pipeline, Reached};
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use glintdb_core::sync::{explore, thread};

/// A generation of memtables. Commit `k` is in it when its cell holds `k`, relaxed like the bytes
/// of a record.
#[derive(Default)]
struct Cells([AtomicU64; 2]);

impl Cells {
    fn insert(&self, seqno: u64) {
        self.0[seqno as usize - 1].store(seqno, Ordering::Relaxed);
    }

    fn holds(&self, seqno: u64) -> bool {
        self.0[seqno as usize - 1].load(Ordering::Relaxed) == seqno
    }
}

#[derive(Clone, Default)]
struct Picture {
    active: Arc<Cells>,
    sealed: Option<Arc<Cells>>,
    /// The commits that were flushed.
    index: Vec<u64>,
}

impl Picture {
    fn holds(&self, seqno: u64) -> bool {
        self.active.holds(seqno)
            || self.sealed.iter().any(|sealed| sealed.holds(seqno))
            || self.index.contains(&seqno)
    }
}

/// The commit path as the engine has it: a number and the memtables under one lock, with a seal if
/// it is due.
struct Engine {
    versions: Versions<Picture>,
    pipeline: Pipeline,
    sequencer: Mutex<(u64, Arc<Cells>)>,
}

impl Engine {
    fn new() -> Arc<Engine> {
        let first = Picture::default();
        Arc::new(Engine {
            sequencer: Mutex::new((1, Arc::clone(&first.active))),
            versions: Versions::new(first),
            pipeline: Pipeline::new(SeqNum(0), Arc::new(Waits::new(test_clock()))),
        })
    }

    fn commit(&self, seal: bool) {
        let (seqno, cells) = {
            let mut sequencer = self.sequencer.lock();
            if seal {
                let active = Arc::default();
                drop(self.versions.install(|old| Picture {
                    active: Arc::clone(&active),
                    sealed: Some(Arc::clone(&old.active)),
                    index: old.index.clone(),
                }));
                sequencer.1 = active;
            }
            sequencer.0 += 1;
            (sequencer.0 - 1, Arc::clone(&sequencer.1))
        };
        let in_flight = self.pipeline.begin(SeqNum(seqno));
        cells.insert(seqno);
        in_flight.done(seqno, Durability::Buffered);
        self.pipeline.advance_completed(|_| ());
        self.pipeline.advance_visible(|| Reached {
            written: 0,
            durable: 0,
        });
    }

    /// Moves the commits up to `point`, which are in the sealed generation, to the index.
    fn flush(&self, point: u64) {
        let version = self.versions.load_full();
        let Some(sealed) = &version.sealed else {
            return;
        };
        self.pipeline.wait_visible(SeqNum(point)).unwrap();
        let run: Vec<u64> = (1..=2).filter(|&seqno| sealed.holds(seqno)).collect();
        drop(self.versions.install(|old| Picture {
            active: Arc::clone(&old.active),
            sealed: None,
            index: run,
        }));
    }

    fn assert_whole(&self) {
        let (version, at) = self.versions.read_point(|| self.pipeline.visible());
        for seqno in 1..=at.0 {
            assert!(
                version.holds(seqno),
                "{seqno} of {at} is not in the picture"
            );
        }
        let beyond = version.index.iter().find(|&&seqno| seqno > at.0);
        assert_eq!(beyond, None, "the index shows what is not visible at {at}");
    }
}

fn spawn(engine: &Arc<Engine>, run: impl FnOnce(&Engine) + 'static) -> thread::JoinHandle<()> {
    let engine = Arc::clone(engine);
    thread::spawn(move || run(&engine))
}

#[test]
fn a_reader_beside_a_seal_misses_nothing() {
    explore("versions: read beside a seal", Some(3), || {
        let engine = Engine::new();
        let reader = spawn(&engine, Engine::assert_whole);
        engine.commit(false);
        engine.commit(true);
        reader.join().unwrap();
        engine.assert_whole();
    });
}

/// Two committers, the later of which seals and may be done long before the earlier one.
#[test]
fn a_reader_beside_two_committers_misses_nothing() {
    explore("versions: two commits and a seal", Some(2), || {
        let engine = Engine::new();
        let reader = spawn(&engine, Engine::assert_whole);
        let first = spawn(&engine, |engine| engine.commit(false));
        engine.commit(true);
        first.join().unwrap();
        reader.join().unwrap();
        assert_eq!(engine.pipeline.visible(), SeqNum(2));
        engine.assert_whole();
    });
}

#[test]
fn a_reader_beside_a_flush_sees_each_commit_and_none_too_early() {
    explore("versions: read beside a flush", Some(2), || {
        let engine = Engine::new();
        // Commit 1 has its number and its place, and the generation is sealed behind it, but it is
        // not done.
        let cells = Arc::clone(&engine.sequencer.lock().1);
        engine.sequencer.lock().0 = 2;
        drop(engine.versions.install(|old| Picture {
            active: Arc::default(),
            sealed: Some(Arc::clone(&old.active)),
            index: Vec::new(),
        }));
        let reader = spawn(&engine, Engine::assert_whole);
        let committer = spawn(&engine, move |engine| {
            cells.insert(1);
            engine
                .pipeline
                .begin(SeqNum(1))
                .done(1, Durability::Buffered);
            engine.pipeline.advance_completed(|_| ());
            engine.pipeline.advance_visible(|| Reached {
                written: 0,
                durable: 0,
            });
        });
        engine.flush(1);
        committer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(engine.versions.load_full().index, [1]);
        engine.assert_whole();
    });
}

const SEGMENT: SegmentId = SegmentId(7);

/// Versions that name a segment or do not, and whether the segment's file exists.
struct Files {
    versions: Versions<bool>,
    there: AtomicBool,
}

impl Files {
    fn new() -> Arc<Files> {
        Arc::new(Files {
            versions: Versions::new(true),
            there: AtomicBool::new(true),
        })
    }

    /// A compaction after which nothing in the segment is live.
    fn compact(&self) {
        drop(self.versions.install(|_| false));
        self.remove(self.versions.free([SEGMENT]));
    }

    fn remove(&self, free: Vec<SegmentId>) {
        for segment in free {
            assert_eq!(segment, SEGMENT);
            assert!(self.there.swap(false, Ordering::Relaxed), "removed twice");
        }
    }

    fn read(&self, version: &bool) {
        if *version {
            assert!(
                self.there.load(Ordering::Relaxed),
                "the file of a pinned version is gone"
            );
        }
    }

    /// A snapshot: takes a version, reads now and later, drops it, and removes segments that have
    /// waited for that.
    fn snapshot(&self) {
        let (version, _) = self.versions.read_point(|| SeqNum(0));
        self.read(&version);
        self.read(&version);
        drop(version);
        if self.versions.some_wait() {
            self.remove(self.versions.free([]));
        }
    }
}

/// The file stays while a snapshot may read it, and is removed with the last snapshot, once, in
/// whatever order the threads run.
#[test]
fn a_segment_is_removed_with_its_last_reader() {
    explore("versions: pins against deletion", Some(3), || {
        let files = Files::new();
        let snapshots = [1, 2].map(|_| {
            let files = Arc::clone(&files);
            thread::spawn(move || files.snapshot())
        });
        files.compact();
        for snapshot in snapshots {
            snapshot.join().unwrap();
        }
        assert!(
            !files.there.load(Ordering::Relaxed),
            "the file was not removed"
        );
    });
}

/// A segment that could not be removed yet, because its last bytes were in the ring, waits for the
/// next call, and no call is missed.
#[test]
fn a_segment_that_could_not_be_removed_is_tried_again() {
    explore("versions: a segment kept in the ring", Some(3), || {
        let files = Files::new();
        let snapshot = {
            let files = Arc::clone(&files);
            thread::spawn(move || files.snapshot())
        };
        drop(files.versions.install(|_| false));
        for segment in files.versions.free([SEGMENT]) {
            files.versions.keep_dead(segment);
        }
        snapshot.join().unwrap();
        files.remove(files.versions.free([]));
        assert!(
            !files.there.load(Ordering::Relaxed),
            "the file was not removed"
        );
    });
}
