//! The table under loom: a commit writes a key that others read, and what they are told is sure is never older than what they knew.
//!
//! The engine around it is small: a version, what is visible, and of the key the newest value that is. Each model was seen to fail with a step taken away (`docs/decisions/007-models.md`).

use super::*;
use glintdb_core::sync::explore;
use std::sync::Arc;

const KEY: &[u8] = b"key";

struct Engine {
    hot: HotKeys,
    /// The version: commits up to here are in its memtables once they are visible.
    version: AtomicU64,
    visible: AtomicU64,
}

fn at(seqno: u64) -> ValuePointer {
    ValuePointer {
        segment: SegmentId(1),
        offset: u32::try_from(seqno).unwrap(),
        length: 1,
        checksum: 0,
    }
}

impl Engine {
    fn new() -> Arc<Engine> {
        let hot = HotKeys::new(true, 1);
        hot.open(SegmentId(1), || Some(SeqNum(0)));
        Arc::new(Engine {
            hot,
            version: AtomicU64::new(0),
            visible: AtomicU64::new(0),
        })
    }

    fn visible(&self) -> SeqNum {
        SeqNum(self.visible.load(Ordering::Acquire))
    }

    /// What a reader finds that goes the long way.
    fn find(&self) -> u64 {
        let version = self.version.load(Ordering::Acquire);
        self.visible().0.min(version)
    }

    /// Commit 1 finds the memtable full, and writes the key to the next one.
    fn write(&self) {
        self.version.store(1, Ordering::Release);
        self.hot.touch(KeyspaceId(0), KEY, SeqNum(1), Some(&at(1)));
        self.visible.store(1, Ordering::Release);
    }

    /// Commit 1 deletes it, by a range.
    fn delete_range(&self) {
        self.version.store(1, Ordering::Release);
        self.hot.close();
        self.visible.store(1, Ordering::Release);
    }

    fn open(&self) {
        let numbered = || Some(SeqNum(self.version.load(Ordering::Acquire)));
        self.hot.open(SegmentId(1), numbered);
    }

    /// The commit that wrote what is found.
    fn look(&self) -> u64 {
        let look = self.hot.look(KeyspaceId(0), KEY).unwrap();
        match look.place(self.visible()) {
            Some(ValuePlace(_, offset)) => offset.into(),
            _ => self.find(),
        }
    }

    /// The same, which is written down.
    fn read(&self) -> u64 {
        let look = self.hot.look(KeyspaceId(0), KEY).unwrap();
        let before = self.visible();
        if let Some(ValuePlace(_, offset)) = look.place(before) {
            return offset.into();
        }
        let found = self.find();
        self.hot.mark(&look, before, &at(found));
        found
    }
}

#[test]
fn what_is_sure_is_the_newest() {
    explore("a hot key is read and written", Some(2), || {
        let engine = Engine::new();
        let writer = Arc::clone(&engine);
        let writer = thread::spawn(move || writer.write());
        let reader = Arc::clone(&engine);
        // Writes nothing down: in loom's order of stores one that fails to be written may bring back what it found.
        let reader = thread::spawn(move || {
            let first = reader.look();
            assert!(reader.look() >= first, "a reader goes back");
        });
        engine.read();
        writer.join().unwrap();
        assert_eq!(engine.read(), 1);
        reader.join().unwrap();
        assert_eq!(engine.read(), 1);
    });
}

/// Value GC moves the value that a commit overwrites: where it went it is as sure as it was, and no surer.
#[test]
fn what_moves_is_no_newer_than_it_was() {
    /// Offsets of places where values have moved.
    const MOVED: u32 = 1 << 16;
    explore(
        "a hot value moves while its key is written",
        Some(2),
        || {
            let engine = Engine::new();
            engine.read();
            let writer = Arc::clone(&engine);
            let writer = thread::spawn(move || writer.write());
            let mover = Arc::clone(&engine);
            let mover = thread::spawn(move || {
                let (from, mut to) = (at(0), at(0));
                to.offset += MOVED;
                let look = mover.hot.look(KeyspaceId(0), KEY).unwrap();
                look.moved(mover.visible(), &from, &to);
            });
            let first = engine.look() % u64::from(MOVED);
            writer.join().unwrap();
            assert_eq!(engine.look() % u64::from(MOVED), 1, "behind {first}");
            mover.join().unwrap();
            assert_eq!(engine.read(), 1);
        },
    );
}

#[test]
fn nothing_is_sure_behind_a_deleted_range() {
    explore(
        "a range is deleted while hot keys are read",
        Some(2),
        || {
            let engine = Engine::new();
            engine.read();
            let writer = Arc::clone(&engine);
            let writer = thread::spawn(move || writer.delete_range());
            let reader = Arc::clone(&engine);
            let reader = thread::spawn(move || {
                // As many as open it again.
                reader.open();
                reader.read();
            });
            writer.join().unwrap();
            assert_eq!(engine.read(), 1);
            engine.open();
            assert_eq!(engine.read(), 1);
            reader.join().unwrap();
            assert_eq!(engine.read(), 1);
        },
    );
}
