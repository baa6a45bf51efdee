//! Models of the table of hot keys under loom: a commit writes a key that others read, and a sure
//! place is never older than the commit that the reader knew to be visible.
//!
//! The engine around it is small: a version, the visible commit, and the number of the key's newest
//! value. Each model was seen to fail with a step removed (`docs/decisions/007-models.md`).

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

    /// Returns the value that a reader finds in the memtables.
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

    /// Commit 1 deletes the key, with a range.
    fn delete_range(&self) {
        self.version.store(1, Ordering::Release);
        self.hot.close();
        self.visible.store(1, Ordering::Release);
    }

    fn open(&self) {
        let numbered = || Some(SeqNum(self.version.load(Ordering::Acquire)));
        self.hot.open(SegmentId(1), numbered);
    }

    /// Reads the key without a mark, and returns the commit that wrote its value.
    fn look(&self) -> u64 {
        let look = self.hot.look(KeyspaceId(0), KEY).unwrap();
        match look.place(self.visible()) {
            Some(ValuePlace(_, offset)) => offset.into(),
            _ => self.find(),
        }
    }

    /// Reads the key, marks its place, and returns the commit that wrote its value.
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
fn a_sure_place_is_the_newest() {
    explore("a hot key is read and written", Some(2), || {
        let engine = Engine::new();
        let writer = Arc::clone(&engine);
        let writer = thread::spawn(move || writer.write());
        let reader = Arc::clone(&engine);
        // This reader marks nothing: in loom's order of stores, a store that failed may bring an
        // older one back.
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

/// Value GC moves the value that a commit overwrites. The new place is as sure as the old one was.
#[test]
fn a_value_that_moves_is_no_newer_than_before() {
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
fn no_place_is_sure_after_a_range_is_deleted() {
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
                // Enough reads to open the table again.
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
