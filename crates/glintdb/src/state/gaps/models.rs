//! Models of gaps under loom: the production type, beside a sequencer, a memtable of one key, and
//! the number up to which commits are visible.

use super::*;
use glintdb_core::sync::atomic::AtomicU64;
use glintdb_core::sync::{Mutex, explore, thread};
use std::sync::Arc;

const KEY: &[u8] = b"k";

#[derive(Default)]
struct Database {
    gaps: Gaps,
    /// The newest number that was given out.
    sequencer: Mutex<u64>,
    /// The commit that has put the key. Zero: none.
    put_by: AtomicU64,
    /// The commit that is complete and visible.
    visible: AtomicU64,
}

impl Database {
    /// A commit that puts the key.
    fn put(&self) {
        let seqno = {
            let mut newest = self.sequencer.lock();
            *newest += 1;
            *newest
        };
        self.put_by.store(seqno, Ordering::Release);
        if self.gaps.any() {
            self.gaps.close(KEY);
        }
        self.visible.store(seqno, Ordering::Release);
    }

    /// A scan. Returns whether it shows the key, which is there from commit 1 on.
    fn scan(&self) {
        let at = self.visible.load(Ordering::Acquire);
        if self.gaps.around(KEY, SeqNum(at)).is_some() {
            assert_eq!(at, 0, "a scan at commit {at} passes the key");
            return;
        }
        let is_there = self.put_by.load(Ordering::Acquire);
        if is_there != 0 && is_there <= at {
            return;
        }
        assert_eq!(at, 0, "a scan at commit {at} does not find the key");
        let stretch = Stretch {
            start: Bytes::from_static(b"a"),
            end: Some(Bytes::from_static(b"z")),
            entries: 100,
        };
        self.gaps.add(&stretch, SeqNum(at), || {
            let Some(newest) = self.sequencer.try_lock().map(|newest| *newest) else {
                return false;
            };
            let all_ended = self.visible.load(Ordering::Acquire) >= newest;
            newest == at || (all_ended && self.put_by.load(Ordering::Acquire) <= at)
        });
    }
}

#[test]
fn a_scan_that_adds_a_gap_beside_a_put_hides_nothing() {
    explore("gaps: two scans beside a put", Some(3), || {
        let database = Arc::new(Database::default());
        let scan = {
            let database = Arc::clone(&database);
            thread::spawn(move || {
                database.scan();
                database.scan();
            })
        };
        database.put();
        database.scan();
        scan.join().unwrap();
        database.scan();
    });
}
