//! Damage of a database that is not open: told by file and place, and never taken for what a crash leaves. What found these is the corruption sweep
//! (`cargo xtask sweep`), which does the same to every bit, block and file of small databases.

use crate::support::*;
use glintdb::{Durability, Env, Error, ErrorKind};
use glintdb_core::{DbId, FileId, FileKind};
use glintdb_flash::{ManualClock, Volume};
use glintdb_simdisk::{Contents, FaultKind, MemOptions, MemVolume};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Commits 0 to 9, five of them flushed; closed, or else killed.
fn image(closed: bool) -> Contents {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    for n in 0..10u64 {
        if n == 5 {
            db.flush().unwrap();
        }
        db.default_keyspace()
            .put_with(n.to_be_bytes(), pattern(n, 600), Durability::Sync)
            .unwrap();
    }
    if closed {
        drop(db);
        return volume.contents();
    }
    volume.kill().contents()
}

fn newest(contents: &Contents, kind: FileKind) -> FileId {
    let files = contents.files.iter().filter(|(id, bytes)| {
        // Segments made ahead hold a header and no frames.
        id.kind == kind && (kind != FileKind::Log || bytes.len() > 4096)
    });
    *files.last().unwrap().0
}

fn change(contents: &mut Contents, id: FileId, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = contents.files[&id].to_vec();
    change(&mut bytes);
    contents.files.insert(id, bytes.into());
}

fn volume(contents: &Contents) -> Arc<MemVolume> {
    MemVolume::of_contents(contents, MemOptions::default()).unwrap()
}

fn refused(contents: &Contents) -> Error {
    let error = open(&volume(contents)).expect_err("it is refused");
    let checked = glintdb::check_volume(&(volume(contents) as Arc<dyn Volume>)).unwrap();
    let told = |found: &Error| found.place() == error.place();
    assert!(
        checked.errors.iter().any(told),
        "check says so too: {error}"
    );
    error
}

fn named(error: &Error) -> &str {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    error.place().unwrap().0
}

/// The last frames of a log that was closed, the mark of the close among them, stood in one sector, and that rotted to zeros; or the file was cut. Nothing behind said
/// that they had been durable, so they were taken for a torn tail: acknowledged commits were gone, silently. Now the manifest remembers how far the log was durable.
#[test]
fn the_end_of_a_closed_log_is_never_taken_for_a_torn_tail() {
    let whole = image(true);
    let id = newest(&whole, FileKind::Log);
    let end = whole.files[&id]
        .iter()
        .rposition(|&byte| byte != 0)
        .unwrap();
    for from in (4096..=end).step_by(512) {
        let mut zeroed = whole.clone();
        change(&mut zeroed, id, |bytes| bytes[from..].fill(0));
        // The ring has the same frames, and would stand in for them.
        zeroed.ring = None;
        assert_eq!(
            named(&refused(&zeroed)),
            id.to_string(),
            "zeros from {from}"
        );
        let mut cut = zeroed.clone();
        change(&mut cut, id, |bytes| bytes.truncate(from));
        assert_eq!(named(&refused(&cut)), id.to_string(), "cut at {from}");
    }
}

/// The manifest's last record, which reserved file numbers, was damaged: the next opening gave the numbers out again, and failed with "create log-…: it exists already",
/// or took a number that checksums of deleted files are bound to. Now files with numbers that were never reserved say that the manifest is damaged.
#[test]
fn a_manifest_that_lost_its_last_record_is_named() {
    for closed in [true, false] {
        let whole = image(closed);
        let id = newest(&whole, FileKind::Manifest);
        // Header and first record; everything behind them is gone, as in an older version of the file.
        let first = u32::from_le_bytes(whole.files[&id][40..44].try_into().unwrap());
        let mut old = whole.clone();
        change(&mut old, id, |bytes| {
            bytes.truncate((48 + first as usize).next_multiple_of(8));
        });
        assert_eq!(named(&refused(&old)), id.to_string());
    }
}

/// A manifest of another database stood under the name of this one's. Opening wrote a new one with its state and removed it, before it found that nothing belonged to it;
/// and named the tables and segments as damaged, not the manifest. Now nothing is written, and the manifest is named.
#[test]
fn a_manifest_of_another_database_is_named_and_nothing_is_written() {
    let whole = image(true);
    let other = MemVolume::new();
    let env = Env::new(Arc::new(ManualClock::new(Duration::ZERO)), DbId([8; 16]));
    drop(
        options()
            .open_volume(Arc::clone(&other) as Arc<dyn Volume>, env)
            .unwrap(),
    );
    let other = other.contents();
    let (mine, theirs) = (
        newest(&whole, FileKind::Manifest),
        newest(&other, FileKind::Manifest),
    );
    assert_eq!(mine, theirs, "the same name");
    let mut mixed = whole.clone();
    mixed.files.insert(mine, other.files[&theirs].clone());
    assert_eq!(named(&refused(&mixed)), mine.to_string());
    let volume = volume(&mixed);
    assert!(open(&volume).is_err());
    assert_eq!(volume.contents().files, mixed.files);
}

/// An opening that found the log damaged had rewritten the manifest before, and removed the one that it found: with it went whatever of it had been passed over as a torn
/// record. Now the last process' manifest stays until an opening has found everything that it names, however often one is refused.
#[test]
fn openings_that_are_refused_leave_the_manifest_they_found() {
    let mut broken = image(true);
    let manifest = newest(&broken, FileKind::Manifest);
    let log = newest(&broken, FileKind::Log);
    let whole = broken.clone();
    broken.ring = None;
    change(&mut broken, log, |bytes| {
        // In the last commit but one, behind the flush point.
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        bytes[end - 1000] ^= 1;
    });
    let volume = volume(&broken);
    for _ in 0..3 {
        assert_eq!(named(&open(&volume).unwrap_err()), log.to_string());
        let now = volume.contents();
        assert_eq!(now.files.get(&manifest), whole.files.get(&manifest));
        let manifests = now.files.keys().filter(|id| id.kind == FileKind::Manifest);
        assert!(manifests.count() <= 2, "and do not gather");
    }
    // What was damaged is put right: the database opens, and the old manifest goes.
    let mut now = volume.contents();
    now.files.insert(log, whole.files[&log].clone());
    let volume = self::volume(&now);
    drop(open(&volume).unwrap());
    let left = volume.contents();
    let manifests = left.files.keys().filter(|id| id.kind == FileKind::Manifest);
    assert_eq!(manifests.count(), 1);
}

/// `check` opened the database: it replayed the log, cut its tail, rewrote the manifest, and so removed what it should have told. Now it changes nothing, and tells of bytes that
/// fill up blocks and frames too.
#[test]
fn a_check_changes_nothing_and_finds_what_nobody_reads() {
    let whole = image(false);
    let check = |contents: &Contents| {
        let volume = volume(contents);
        let report = glintdb::check_volume(&(Arc::clone(&volume) as Arc<dyn Volume>)).unwrap();
        assert_eq!(volume.contents(), *contents);
        report.errors
    };
    assert!(check(&whole).is_empty());
    let log = newest(&whole, FileKind::Log);
    let table = newest(&whole, FileKind::Table);
    for (id, at) in [(log, 1000), (table, 1000)] {
        let mut odd = whole.clone();
        change(&mut odd, id, |bytes| bytes[at] ^= 4);
        let errors = check(&odd);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(named(&errors[0]), id.to_string());
    }
}

/// A table that could not be read held, so it seemed, no values, and verification blamed the manifest for counting some.
#[test]
fn verification_blames_the_table_that_is_damaged_and_not_the_manifest() {
    let mut broken = image(true);
    let table = newest(&broken, FileKind::Table);
    change(&mut broken, table, |bytes| bytes[4096 + 50] ^= 1);
    let report = open(&volume(&broken)).unwrap().verify().unwrap();
    assert!(!report.is_clean());
    for error in &report.errors {
        assert_eq!(named(error), table.to_string());
    }
}

/// A database in its first life, nothing flushed: its manifest's last record says where the log begins. One bit of that made the opening believe that creation had been cut off:
/// it removed the log, answered an empty database, and gave file numbers out again, under which commits of the old life came back later.
#[test]
fn a_young_database_is_never_taken_for_one_that_was_not_finished() {
    let first = MemVolume::new();
    let db = open(&first).unwrap();
    for n in 0..10u64 {
        let durability = if n < 5 {
            Durability::Sync
        } else {
            Durability::Os
        };
        let space = db.default_keyspace();
        space
            .put_with(n.to_be_bytes(), pattern(n, 600), durability)
            .unwrap();
    }
    let whole = first.kill().contents();
    drop(db);
    let id = newest(&whole, FileKind::Manifest);
    let mut damaged = whole.clone();
    change(&mut damaged, id, |bytes| {
        let at = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        bytes[at] ^= 1;
    });
    assert_eq!(named(&refused(&damaged)), id.to_string());
    // Also where only the segments have them.
    damaged.ring = None;
    assert_eq!(named(&refused(&damaged)), id.to_string());
    let volume = volume(&damaged);
    open(&volume).unwrap_err();
    assert_eq!(volume.contents().files, damaged.files, "nothing is removed");
}

/// The frame that tells damage from a torn tail stands in a later segment, and that one could not be read for a moment: it was passed over, the log was cut at the damage, and the
/// segments behind it were removed.
#[test]
fn an_error_while_the_log_is_looked_at_never_makes_damage_a_torn_tail() {
    let first = MemVolume::new();
    let db = open(&first).unwrap();
    for n in 0..130u64 {
        db.default_keyspace()
            .put_with(n.to_be_bytes(), pattern(n, 600), Durability::Sync)
            .unwrap();
    }
    let mut whole = first.kill().contents();
    drop(db);
    // The segments alone have the commits.
    whole.ring = whole.ring.map(|ring| vec![0; ring.len()].into());
    let segments: Vec<FileId> = whole
        .files
        .iter()
        .filter(|(id, bytes)| id.kind == FileKind::Log && bytes.len() > 4096)
        .map(|(id, _)| *id)
        .collect();
    assert!(segments.len() > 1, "{segments:?}");
    let mut damaged = whole.clone();
    change(&mut damaged, segments[0], |bytes| {
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        bytes[(end - 300) / 512 * 512..].fill(0);
    });
    assert_eq!(named(&refused(&damaged)), segments[0].to_string());
    for at in 0..200 {
        let volume = volume(&damaged);
        fail_at(&volume, at, FaultKind::Io, false);
        open(&volume).expect_err("damage in front of durable frames");
    }
    // Nor does a second damage, of the headers behind it.
    for id in &segments[1..] {
        change(&mut damaged, *id, |bytes| bytes[8] ^= 1);
    }
    assert_eq!(refused(&damaged).kind(), ErrorKind::Corruption);
}

/// A dump of a damaged table shows all intact entries, and then the lost range.
#[test]
fn a_damaged_table_is_dumped_as_far_as_it_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    for n in 0..3000u32 {
        db.default_keyspace()
            .put(n.to_be_bytes(), pattern(u64::from(n), 40))
            .unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let dumped = |name: &str| {
        let mut lines = Vec::new();
        let ended = glintdb::inspect::dump(home.path(), name, &mut |line| {
            lines.push(line.to_string());
            ControlFlow::Continue(())
        });
        (lines, ended)
    };
    let names = glintdb::inspect::files(home.path()).unwrap();
    let (name, bytes) = (names.iter())
        .find(|(name, _)| name.starts_with("table"))
        .unwrap();
    let (whole, ended) = dumped(name);
    ended.unwrap();
    assert!(whole.len() > 1000, "one of the tables");
    let path = home.path().join(name);
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[usize::try_from(bytes / 2).unwrap()] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let (rest, ended) = dumped(name);
    assert_eq!(named(&ended.unwrap_err()), name);
    let lost: Vec<_> = whole.iter().filter(|line| !rest.contains(line)).collect();
    assert!((1..300).contains(&lost.len()), "{}", lost.len());
    assert!(rest.last().unwrap().starts_with("  lost start="));
    assert_eq!(rest.first(), whole.first());
    assert_eq!(
        rest.get(rest.len() - 2),
        whole.last(),
        "what is behind the damage"
    );
}
