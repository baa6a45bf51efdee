//! Commits become visible in their order, and none behind one that failed.
#![allow(
    clippy::disallowed_methods,
    reason = "threads that may hang must not be waited for"
)]

use crate::gate::Gate;
use crate::support::*;
use glintdb::{Db, Durability, ErrorKind};
use glintdb_simdisk::{FaultKind, HookedVolume, MemVolume};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

struct Stage {
    volume: Arc<MemVolume>,
    gate: Arc<Gate>,
    db: Db,
}

fn stage() -> Stage {
    let (volume, gate) = (MemVolume::new(), Arc::new(Gate::default()));
    let gated = HookedVolume::new(volume.clone(), gate.clone());
    let db = options().open_volume(gated, env()).unwrap();
    Stage { volume, gate, db }
}

/// Opens the gate also when the test fails, so that it fails and does not hang.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A `Sync` commit of "a" that waits in its sync, and an `Os` commit of "b" behind it; answers both results once the gate opens after `meanwhile`.
fn sync_then_os(stage: &Stage, meanwhile: impl FnOnce(&Db)) -> [glintdb::Result<()>; 2] {
    let Stage { gate, db, .. } = stage;
    gate.close();
    let open_at_end = OpenAtEnd(gate);
    let put = |key: &'static str, durability| {
        let keyspace = db.default_keyspace();
        let (done, result) = channel();
        std::thread::spawn(move || done.send(keyspace.put_with(key, "new", durability)).ok());
        result
    };
    let synced = put("a", Durability::Sync);
    gate.wait_for_one();
    let before = db.stats().commits;
    let behind = put("b", Durability::Os);
    while db.stats().commits == before {
        std::thread::yield_now();
    }
    // Long enough for it to become visible, were it allowed to.
    let early = behind.recv_timeout(Duration::from_millis(30));
    assert!(early.is_err(), "acknowledged before a commit before it");
    meanwhile(db);
    drop(open_at_end);
    [synced, behind].map(|result| {
        result
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|_| panic!("a commit hangs: {:?}", db.stats().waits))
    })
}

fn shown(db: &Db) -> [bool; 3] {
    let keyspace = db.default_keyspace();
    ["zero", "a", "b"].map(|key| {
        let there = keyspace.get(key).unwrap().is_some();
        assert_eq!(there, db.snapshot().contains(&keyspace, key).unwrap());
        assert_eq!(there, keyspace.iter().any(|entry| entry.unwrap().0 == key));
        there
    })
}

#[test]
fn an_os_commit_behind_a_pending_sync_commit_is_not_seen_before_it() {
    let stage = stage();
    stage.db.put("zero", "there").unwrap();
    let results = sync_then_os(&stage, |db| assert_eq!(shown(db), [true, false, false]));
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(shown(&stage.db), [true, true, true]);
}

#[test]
fn nothing_behind_a_failed_sync_commit_is_ever_seen() {
    let stage = stage();
    stage.db.put("zero", "there").unwrap();
    let volume = Arc::clone(&stage.volume);
    let results = sync_then_os(&stage, |_| {
        fail_at(&volume, 0, FaultKind::SyncLosesData, false);
    });
    let [synced, behind] = results.map(|result| result.unwrap_err().kind());
    assert_eq!((synced, behind), (ErrorKind::Io, ErrorKind::Poisoned));
    assert_eq!(shown(&stage.db), [true, false, false]);
    assert_eq!(
        stage.db.put("c", "x").unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    assert_eq!(shown(&stage.db), [true, false, false]);
    // After a kill both may be there, but "b" never without "a".
    let db = open(&stage.volume.kill()).unwrap();
    assert!(shown(&db)[1] || !shown(&db)[2]);
}
