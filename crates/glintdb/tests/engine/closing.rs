//! `Db::close` closes the database whatever handles live: each operation afterwards fails with
//! `Closed`, what other threads are in the middle of ends, nothing acknowledged is lost, and the
//! next opener has the directory for itself.
#![allow(
    clippy::disallowed_methods,
    reason = "threads that may hang must not be waited for"
)]

use crate::gate::Gate;
use crate::support::*;
use bytes::Bytes;
use glintdb::{
    Batch, Db, Durability, ErrorKind, Experiments, KeyspaceOptions, Options, Result, SalvageOptions,
};
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, FaultKind, HookedVolume, Hooks, MemVolume};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Does `work` on a thread of its own; its result comes through the channel.
fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(work()).ok());
    result
}

fn end<T>(result: &Receiver<T>) -> T {
    match result.recv_timeout(HANGS_AFTER) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("a thread hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("a thread panicked, see above"),
    }
}

fn is_closed<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Closed)
}

fn with_threads(threads: usize) -> Options {
    options().background_threads(threads)
}

/// Through the gate, which holds up syncs or reads.
fn gated(options: Options) -> (Arc<MemVolume>, Arc<Gate>, Db) {
    let (volume, gate) = (MemVolume::new(), Arc::new(Gate::default()));
    let hooked = HookedVolume::new(volume.clone(), gate.clone());
    let db = options.open_volume(hooked, env()).unwrap();
    (volume, gate, db)
}

#[test]
fn after_close_every_operation_of_every_handle_fails_with_closed() {
    for threads in [0, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = with_threads(threads).open(&path).unwrap();
        let users = db
            .create_keyspace("users", KeyspaceOptions::default())
            .unwrap();
        for n in 0..300_u32 {
            users.put(n.to_be_bytes(), vec![7; 900]).unwrap();
        }
        let clone = db.clone();
        let snapshot = db.snapshot();
        let mut transaction = db.transaction();
        transaction.put(&users, "own", "1").unwrap();
        let mut untouched = db.transaction();
        let mut records = users.iter();
        records.next().unwrap().unwrap();
        let mut of_snapshot = snapshot.iter(&users);
        of_snapshot.next_back().unwrap().unwrap();
        let mut keys = transaction.iter(&users).keys();
        keys.next().unwrap().unwrap();
        let mut empty = users.range("a".."a");
        db.close().unwrap();

        // The directory is the next opener's, while all of these live.
        let next = with_threads(threads).open(&path).unwrap();
        let next_users = next.keyspace("users").unwrap();
        next_users.delete_range::<&[u8]>(..).unwrap();
        next_users.put("new", "1").unwrap();
        next.compact().unwrap();

        assert!(is_closed(users.put("a", "1")));
        assert!(is_closed(users.put_with("a", "1", Durability::Buffered)));
        assert!(is_closed(users.delete("a")));
        assert!(is_closed(users.delete_range("a".."b")));
        assert!(is_closed(users.get(1_u32.to_be_bytes())));
        assert!(is_closed(users.contains("a")));
        assert!(is_closed(users.version_of("a")));
        assert!(users.multi_get(&["a", "b"]).into_iter().all(is_closed));
        assert!(
            users
                .multi_get_within(&["a"], 10)
                .into_iter()
                .all(is_closed)
        );
        assert!(is_closed(users.iter().next().unwrap()));
        assert!(is_closed(users.range("a".."b").next_ref().map(drop)));
        assert!(is_closed(users.prefix("a").keys().next_back().unwrap()));
        assert!(is_closed(users.count()));
        assert!(is_closed(users.sample_keys(3)));
        assert!(is_closed(users.compact()));
        assert!(is_closed(users.compact_range("a".."b")));
        assert!(is_closed(users.compact_values()));
        assert!(is_closed(users.compact_values_range("a".."b")));
        assert!(is_closed(users.set_options(KeyspaceOptions::default())));
        assert!(is_closed(clone.put("a", "1")));
        assert!(is_closed(clone.get("a")));
        assert!(is_closed(clone.delete("a")));
        assert!(is_closed(clone.keyspace("users")));
        assert!(is_closed(
            clone.create_keyspace("b", KeyspaceOptions::default())
        ));
        assert!(is_closed(
            clone.keyspace_or_create("b", KeyspaceOptions::default())
        ));
        assert!(is_closed(clone.drop_keyspace("users")));
        let mut batch = Batch::new();
        batch.put(&users, "a", "1");
        assert!(is_closed(clone.write_group(vec![batch], Durability::Os)));
        assert!(is_closed(clone.write(Batch::new())));
        assert!(is_closed(clone.write_group(Vec::new(), Durability::Sync)));
        assert!(is_closed(clone.flush()));
        assert!(is_closed(clone.flush_log(Durability::Buffered)));
        assert!(is_closed(clone.compact()));
        assert!(is_closed(clone.compact_values()));
        assert!(is_closed(clone.checkpoint(directory.path().join("copy"))));
        assert!(is_closed(clone.verify()));
        assert!(is_closed(snapshot.get(&users, "a")));
        assert!(is_closed(snapshot.contains(&users, "a")));
        assert!(
            snapshot
                .multi_get(&users, &["a"])
                .into_iter()
                .all(is_closed)
        );
        assert!(is_closed(clone.snapshot().get(&users, "a")));
        assert!(is_closed(records.next().unwrap()));
        assert!(
            records.next().is_none(),
            "after its error an iterator has ended"
        );
        assert!(is_closed(of_snapshot.next_ref().map(drop)));
        assert!(is_closed(keys.next().unwrap()));
        assert!(empty.next().is_none());
        assert!(is_closed(transaction.get(&users, "own")));
        assert!(is_closed(transaction.contains(&users, "a")));
        assert!(is_closed(transaction.put(&users, "a", "2")));
        assert!(is_closed(transaction.delete(&users, "a")));
        assert!(is_closed(transaction.delete_range(&users, "a".."b")));
        assert!(is_closed(
            transaction.range(&users, "a".."b").next().unwrap()
        ));
        assert!(is_closed(transaction.commit()));
        assert!(is_closed(untouched.get(&users, "a")));
        assert!(is_closed(untouched.commit()));

        // What only looks at memory goes on.
        assert_eq!(clone.keyspaces(), ["default", "users"]);
        assert_eq!(users.name(), "users");
        assert_eq!(clone.stats().commits, 300);
        assert!(clone.close().is_ok(), "a second close finds it closed");

        drop((snapshot, records, of_snapshot, keys, users));
        let found: Vec<_> = next_users.iter().collect::<Result<_>>().unwrap();
        assert_eq!(found, [(Bytes::from("new"), Bytes::from("1"))]);
        check_clean(&next, &"the next opener's database");
    }
}

#[test]
fn close_marks_a_clean_end_and_syncs_everything_while_handles_live() {
    for threads in [0, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = with_threads(threads).open(&path).unwrap();
        db.default_keyspace()
            .put_with("a", "1", Durability::Buffered)
            .unwrap();
        let _iterator = db.default_keyspace().iter();
        db.close().unwrap();
        let out = directory.path().join("out");
        let report = glintdb::salvage(&path, out, &SalvageOptions::default()).unwrap();
        assert!(report.closed && report.is_complete(), "{report:?}");

        let volume = MemVolume::new();
        let db = open_with(&volume, with_threads(threads)).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put_with("a", "1", Durability::Buffered).unwrap();
        db.close().unwrap();
        let found = open(&volume.crash(CrashMode::LoseUnsynced))
            .unwrap()
            .get("a");
        assert_eq!(found.unwrap().as_deref(), Some(&b"1"[..]));
    }
}

/// Adds one record after the other until one is refused; how many were acknowledged.
fn write_until_closed(db: &Db, writer: u8, durability: Durability) -> u32 {
    let keyspace = db.default_keyspace();
    for n in 0_u32.. {
        let key = [&[writer][..], &n.to_be_bytes()].concat();
        let value = vec![writer; if n % 3 == 0 { 2000 } else { 50 }];
        let mut batch = Batch::new();
        batch.put(&keyspace, &key, &value);
        let done = match n % 5 {
            0 => db.write_group(vec![batch], durability),
            1 => {
                let mut transaction = db.transaction();
                let written = transaction.put(&keyspace, &key, &value);
                written.and_then(|()| transaction.commit())
            }
            // Round the ring, into a segment of its own.
            2 if n % 50 == 2 => keyspace.put_with(&key, vec![writer; 40_000], durability),
            _ => keyspace.put_with(&key, &value, durability),
        };
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Closed => return n,
            Err(error) => panic!("writer {writer}, record {n}: {error}"),
        }
    }
    unreachable!("there are always more")
}

/// Does everything else until it is refused.
fn disturb_until_closed(db: &Db, directory: Option<&Path>) {
    let keyspace = db.default_keyspace();
    let snapshot = db.snapshot();
    for n in 0.. {
        let done = match n % 8 {
            0 => db.flush(),
            1 => keyspace.get([1, 0, 0, 0, 1]).map(drop),
            2 => keyspace
                .iter()
                .take(40)
                .try_for_each(|record| record.map(drop)),
            3 => db.compact(),
            4 => snapshot
                .iter(&keyspace)
                .try_for_each(|record| record.map(drop)),
            5 => keyspace.compact_values(),
            6 => db
                .verify()
                .map(|report| assert!(report.is_clean(), "{report:?}")),
            _ => match directory {
                Some(directory) => {
                    let copy = directory.join(format!("copy {n}"));
                    let done = db.checkpoint(&copy);
                    std::fs::remove_dir_all(copy).ok();
                    done
                }
                None => db.flush_log(Durability::Sync),
            },
        };
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) => panic!("operation {n}: {error}"),
        }
    }
}

#[test]
fn operations_beside_a_close_end_or_fail_with_closed_and_no_acknowledged_write_is_lost() {
    for round in 0..24_u64 {
        let threads = if round % 2 == 0 { 0 } else { 2 };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = with_threads(threads).open(&path).unwrap();
        let writers: Vec<_> = [Durability::Os, Durability::Sync, Durability::Buffered]
            .into_iter()
            .enumerate()
            .map(|(writer, durability)| {
                let db = db.clone();
                begin(move || write_until_closed(&db, writer as u8, durability))
            })
            .collect();
        let disturbers: Vec<_> = (0..2)
            .map(|number| {
                let (db, directory) = (db.clone(), directory.path().to_owned());
                begin(move || disturb_until_closed(&db, (number == 0).then_some(&directory)))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(3 + round * 7));
        let (one, other) = (db.clone(), db);
        let closes = [begin(move || one.close()), begin(move || other.close())];
        for close in &closes {
            end(close).unwrap();
        }
        // As another process could, at once.
        let next = with_threads(threads).open(&path).unwrap();
        let keyspace = next.default_keyspace();
        let mut found = BTreeMap::<u8, u32>::new();
        for key in keyspace.iter().keys() {
            *found.entry(key.unwrap()[0]).or_default() += 1;
        }
        check_clean(&next, &round);
        for (writer, acknowledged) in (0_u8..).zip(&writers) {
            let acknowledged = end(acknowledged);
            let found = found.get(&writer).copied().unwrap_or(0);
            // The one that was refused may be there: it was never said to be lost.
            assert!(
                (acknowledged..=acknowledged + 1).contains(&found),
                "round {round}, writer {writer}: {acknowledged} acknowledged, {found} found"
            );
        }
        disturbers.iter().for_each(end);
        check_clean(&next, &round);
    }
}

#[test]
fn a_writer_that_waits_for_a_flush_is_woken_with_closed() {
    // Segments that last: making one takes a sync too. They are an eighth of what was written.
    let options = with_threads(1)
        .experiments(Experiments::default().value_gc(false))
        .replay_bytes_max(64 << 20);
    let (volume, gate, db) = gated(options.log_segment_bytes(16 << 20));
    for n in 0..40_000_u64 {
        db.put(n.to_be_bytes(), [7; 1000]).unwrap();
    }
    // Until the next one is made, too.
    let mut operations = 0;
    while std::mem::replace(&mut operations, volume.operation_count()) != operations {
        std::thread::sleep(Duration::from_millis(50));
    }
    gate.close();
    let writer = db.clone();
    // Until the memtables are full: no flush ends while its sync is held up.
    let refused = begin(move || {
        let keyspace = writer.default_keyspace();
        (0_u64..).find_map(|n| keyspace.put(n.to_be_bytes(), [7; 100]).err())
    });
    let waits = |db: &Db| {
        let stats = db.stats();
        let full = stats.waits.iter().find(|wait| wait.name == "memtable_full");
        full.is_some_and(|wait| wait.waiting > 0)
    };
    while !waits(&db) {
        std::thread::yield_now();
    }
    let closer = db.clone();
    let close = begin(move || closer.close());
    let refused = end(&refused).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Closed, "{refused}");
    assert!(close.try_recv().is_err(), "the flush is still held up");
    gate.open();
    end(&close).unwrap();
}

#[test]
fn a_commit_that_waits_for_its_sync_ends_as_it_would_have() {
    for threads in [0, 1] {
        let (volume, gate, db) = gated(with_threads(threads));
        gate.close();
        let keyspace = db.default_keyspace();
        let synced = begin(move || keyspace.put_with("a", "1", Durability::Sync));
        gate.wait_for_one();
        let closer = db.clone();
        let close = begin(move || closer.close());
        while !is_closed(db.get("b")) {
            std::thread::yield_now();
        }
        assert!(close.recv_timeout(Duration::from_millis(30)).is_err());
        gate.open();
        end(&synced).unwrap();
        end(&close).unwrap();
        let after = open(&volume.crash(CrashMode::LoseUnsynced)).unwrap();
        assert_eq!(after.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn a_read_of_a_file_that_ends_after_the_close_gives_nothing_and_holds_nothing_up() {
    let read: [fn(&Db) -> Result<()>; 3] = [
        |db| db.get("key 50").map(drop),
        |db| {
            db.default_keyspace()
                .iter()
                .try_for_each(|record| record.map(drop))
        },
        |db| db.verify().map(drop),
    ];
    for read in read {
        let (volume, gate) = (MemVolume::new(), Arc::new(Gate::default()));
        let db = open(&volume).unwrap();
        for n in 0..100 {
            db.put(format!("key {n}"), vec![7; 900]).unwrap();
        }
        db.compact().unwrap();
        db.close().unwrap();
        let hooked = HookedVolume::new(volume.clone(), gate.clone());
        let db = options().open_volume(hooked, env()).unwrap();
        gate.close_to_reads();
        let reader = db.clone();
        let read = begin(move || read(&reader));
        gate.wait_for_one();
        let closer = db.clone();
        end(&begin(move || closer.close())).unwrap();
        // The next opener may do to the files what it likes.
        let next = open(&volume).unwrap();
        next.default_keyspace().delete_range::<&str>(..).unwrap();
        next.compact().unwrap();
        gate.open();
        assert!(is_closed(end(&read)));
    }
}

/// Does something once, before the ring is read or written.
#[derive(Default)]
struct AtRing {
    read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    write: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Hooks for AtRing {
    fn before_ring_read(&self) {
        let act = self.read.lock().take();
        act.into_iter().for_each(|act| act());
    }

    fn before_ring_write(&self) {
        let act = self.write.lock().take();
        act.into_iter().for_each(|act| act());
    }
}

fn at_ring() -> (Arc<MemVolume>, Arc<AtRing>, Db) {
    let (volume, hooks) = (MemVolume::new(), Arc::new(AtRing::default()));
    let hooked = HookedVolume::new(volume.clone(), hooks.clone());
    let db = options().open_volume(hooked, env()).unwrap();
    (volume, hooks, db)
}

#[test]
fn a_reader_of_the_ring_does_not_believe_what_the_next_opener_wrote_there() {
    let (volume, hooks, db) = at_ring();
    db.put("a", vec![7; 5000]).unwrap();
    let closer = Mutex::new(Some(db.clone()));
    let next = Arc::new(Mutex::new(None));
    let opened = Arc::clone(&next);
    *hooks.read.lock() = Some(Box::new(move || {
        closer.lock().take().unwrap().close().unwrap();
        let next = open(&volume).unwrap();
        for n in 0..100_u32 {
            next.put(n.to_be_bytes(), pattern(n.into(), 1000)).unwrap();
        }
        *opened.lock() = Some(next);
    }));
    let read = db.get("a");
    assert!(next.lock().is_some(), "the value was in the ring");
    assert!(is_closed(read));
}

/// A commit that was given up half done fails those that wait; one that is still copying goes on.
#[test]
fn close_after_a_failure_waits_for_commits_that_write_to_the_ring() {
    let (_, hooks, db) = at_ring();
    let (reached, reaches) = channel();
    let (go_on, goes_on) = channel::<()>();
    *hooks.write.lock() = Some(Box::new(move || {
        reached.send(()).unwrap();
        goes_on.recv().unwrap();
    }));
    let writer = db.clone();
    let put = begin(move || writer.put("a", "1"));
    end(&reaches);
    *hooks.write.lock() = Some(Box::new(|| panic!("planted")));
    let panicking = db.clone();
    let given_up = begin(move || panicking.put("b", "1").unwrap());
    assert!(given_up.recv_timeout(HANGS_AFTER).is_err());
    let close = begin(move || db.close());
    let early = close.recv_timeout(Duration::from_millis(100));
    assert_eq!(early.err(), Some(RecvTimeoutError::Timeout));
    go_on.send(()).unwrap();
    assert_eq!(end(&put).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(end(&close).unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn a_close_that_cannot_sync_says_so_to_every_caller_and_closes_all_the_same() {
    for threads in [0, 1] {
        let volume = MemVolume::new();
        let db = open_with(&volume, with_threads(threads)).unwrap();
        db.put("a", "1").unwrap();
        fail_at(&volume, volume.operation_count(), FaultKind::Io, true);
        let (one, two) = (db.clone(), db.clone());
        let first = one.close().unwrap_err();
        let second = two.close().unwrap_err();
        assert_eq!(first.to_string(), second.to_string());
        assert_eq!(first.kind(), ErrorKind::Io);
        assert!(is_closed(db.get("a")));
        let after = open(&volume.kill()).unwrap();
        assert_eq!(after.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn a_handle_that_outlives_the_close_removes_no_file_of_the_next_opener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = with_threads(1).open(&path).unwrap();
    let keyspace = db.default_keyspace();
    let fill = |db: &Db, with: u8| {
        for n in 0..400_u32 {
            db.put(n.to_be_bytes(), vec![with; 900]).unwrap();
        }
        db.compact().unwrap();
    };
    fill(&db, 1);
    // It keeps tables and segments that the overwrites below make garbage.
    let snapshot = db.snapshot();
    let mut records = snapshot.iter(&keyspace);
    records.next().unwrap().unwrap();
    fill(&db, 2);
    db.close().unwrap();
    // Without threads, which might remove garbage of its own between the two looks.
    let next = with_threads(0).open(&path).unwrap();
    fill(&next, 3);
    let names = || -> Vec<_> {
        let entries = std::fs::read_dir(&path).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    next.flush_log(Durability::Sync).unwrap();
    let before = names();
    drop((records, snapshot, keyspace));
    assert_eq!(names(), before);
    assert_eq!(
        next.get(399_u32.to_be_bytes()).unwrap().unwrap(),
        vec![3; 900]
    );
    check_clean(&next, &"after the old handles went");
    // Nor was its lock given away.
    assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Locked);
}

fn said(path: &Path) -> String {
    let error = options().open(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let text = error.to_string();
    let (_, said) = text
        .split_once(" is already open in this process: ")
        .unwrap();
    said.to_owned()
}

#[test]
fn a_second_opener_is_told_which_handles_are_alive() {
    for threads in [0, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = with_threads(threads).open(&path).unwrap();
        let tail = "; drop them or call Db::close";
        assert_eq!(said(&path), format!("1 Db handle is alive{tail}"));
        let clone = db.clone();
        let users = db
            .keyspace_or_create("users", KeyspaceOptions::default())
            .unwrap();
        users.put("a", "1").unwrap();
        let records = users.iter();
        assert_eq!(
            said(&path),
            format!("2 Db handles, 1 keyspace and 1 iterator are alive{tail}")
        );
        let snapshot = db.snapshot();
        let of_snapshot = snapshot.iter(&users).keys();
        let copies = [snapshot.clone(), snapshot];
        let mut transaction = db.transaction();
        transaction.put(&users, "b", "2").unwrap();
        let of_transaction = transaction.range(&users, "a"..);
        assert_eq!(
            said(&path),
            format!(
                "2 Db handles, 1 keyspace, 3 iterators, 2 snapshots and 1 transaction are alive{tail}"
            )
        );
        // What reads of one point leave behind it.
        drop((copies, transaction));
        assert_eq!(
            said(&path),
            format!("2 Db handles, 1 keyspace and 3 iterators are alive{tail}")
        );
        drop((clone, db, records, of_transaction));
        let of_keyspace = users.db();
        drop(of_keyspace);
        assert_eq!(
            said(&path),
            format!("1 keyspace and 1 iterator are alive{tail}")
        );
        let check = glintdb::check(&path).unwrap_err();
        assert!(
            check.to_string().contains("1 keyspace and 1 iterator"),
            "{check}"
        );
        drop(users);
        assert_eq!(said(&path), format!("1 iterator is alive{tail}"));
        drop(of_snapshot);
        drop(options().open(&path).unwrap());
    }
}

#[test]
fn a_directory_under_another_name_is_the_same_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = options().open(&path).unwrap();
    let other = directory.path().join("other");
    std::os::unix::fs::symlink(&path, &other).unwrap();
    assert_eq!(
        said(&other),
        "1 Db handle is alive; drop them or call Db::close"
    );
    let keyspace = db.default_keyspace();
    db.close().unwrap();
    // Closed, and open again: the handle of the first one does not count.
    let db = options().open(&path).unwrap();
    assert_eq!(
        said(&other),
        "1 Db handle is alive; drop them or call Db::close"
    );
    drop((db, keyspace));
}

#[test]
fn counting_goes_on_beside_threads_that_make_and_drop_handles() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = options().open(&path).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let (db, stop) = (db.clone(), Arc::clone(&stop));
            begin(move || {
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = db.clone().snapshot();
                    drop(snapshot.clone().iter(&db.default_keyspace()));
                    db.put("a", "1").unwrap();
                }
            })
        })
        .collect();
    for _ in 0..200 {
        assert!(said(&path).contains("alive"));
    }
    stop.store(true, Ordering::Relaxed);
    busy.iter().for_each(end);
    assert_eq!(
        said(&path),
        "1 Db handle is alive; drop them or call Db::close"
    );
}

#[test]
fn a_volume_that_was_given_stays_its_owners_when_the_database_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let volume = glintdb_flash::DirVolume::open(directory.path(), Default::default()).unwrap();
    let open = || options().open_volume(Arc::clone(&volume) as Arc<dyn Volume>, env());
    let db = open().unwrap();
    let keyspace = db.default_keyspace();
    keyspace.put("a", "1").unwrap();
    db.close().unwrap();
    assert!(is_closed(keyspace.get("a")));
    assert_eq!(
        Db::open(directory.path()).unwrap_err().kind(),
        ErrorKind::Locked
    );
    assert_eq!(
        open().unwrap().get("a").unwrap().as_deref(),
        Some(&b"1"[..])
    );
}
