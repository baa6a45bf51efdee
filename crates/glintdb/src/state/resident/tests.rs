//! A keyspace's resident runs by themselves: what is newer wins, nothing is read but memory, and what they take is known.

use super::files::Files;
use super::*;
use crate::Env;
use crate::read::merge::{Merge, Source};
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, EntryValue, FileId, FileKind, SeqNum};
use glintdb_flash::{CreateOptions, MemOptions, MemVolume, Stream, Volume};
use std::ops::Bound;

/// Entries in order, and range tombstones.
struct Run {
    entries: Vec<(Vec<u8>, u64, EntryValue)>,
    ranges: Vec<RangeTombstone>,
    at: usize,
}

impl SortedRun for Run {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        self.at += 1;
        let entry = self.entries.get(self.at - 1);
        Ok(entry.map(|(key, seqno, value)| (key.as_slice(), SeqNum(*seqno), value.as_ref())))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.ranges
    }

    fn entries_hint(&self) -> usize {
        self.entries.len()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Every `step`-th key, put at `seqno`.
fn run(step: usize, seqno: u64, ranges: Vec<RangeTombstone>) -> Run {
    let value = |n: u64| EntryValue::Inline(Bytes::from(format!("{n} at {seqno}").repeat(10)));
    Run {
        entries: (0..3000)
            .step_by(step)
            .map(|n| (key(n), seqno, value(n)))
            .collect(),
        ranges,
        at: 0,
    }
}

#[test]
fn newer_runs_hide_older_ones_and_all_is_in_memory() {
    let db = DbId([7; 16]);
    let range = RangeTombstone {
        start: key(600).into(),
        end: Some(key(900).into()),
        seqno: SeqNum(2),
    };
    let first = Resident::with_run(None, db, KeyspaceId(0), &mut run(1, 1, Vec::new())).unwrap();
    let second =
        Resident::with_run(Some(&first), db, KeyspaceId(0), &mut run(7, 3, vec![range])).unwrap();
    assert_eq!((first.ranges.len(), second.ranges.len()), (0, 1));
    let all = (Bound::Unbounded, Bound::Unbounded);
    for (resident, runs) in [(&first, 1), (&second, 2)] {
        let mut cursor = resident
            .view
            .cursor(all.0, all.1, Direction::Forward)
            .unwrap();
        for n in 0..3000 {
            let hidden = runs == 2 && (600..900).contains(&n);
            let seqno = if runs == 2 && n % 7 == 0 { 3 } else { 1 };
            let found = resident.view.get(&key(n)).unwrap().unwrap();
            if hidden && seqno == 1 {
                assert_eq!(
                    (found.seqno, found.value),
                    (SeqNum(2), EntryValue::Tombstone)
                );
                continue;
            }
            assert_eq!(found.seqno, SeqNum(seqno), "{n}");
            assert!(cursor.advance().unwrap());
            assert_eq!((cursor.key(), cursor.seqno()), (&key(n)[..], found.seqno));
            assert_eq!(cursor.value(), found.value.as_ref());
        }
        assert!(!cursor.advance().unwrap());
        let stats = resident.view.stats();
        assert_eq!(stats.lookup_reads_max, 0);
        assert_eq!(stats.lookups_by_reads[1..].iter().sum::<u64>(), 0);
    }
    // Backwards, as iterators of the engine do.
    let cursor = second
        .view
        .cursor(all.0, all.1, Direction::Reverse)
        .unwrap();
    let mut merge = Merge::new(vec![Source::Index(cursor)], Vec::new(), Direction::Reverse);
    let mut count = 0;
    while merge.advance().unwrap() {
        count += 1;
    }
    assert_eq!(
        count,
        3000 - 300 + (600..900).filter(|n| n % 7 == 0).count()
    );
    // Of the files the tail alone is there, and it is small beside the blocks.
    let image = Arc::clone(&second.image);
    let bytes = image.bytes();
    assert!(
        image.files.bytes() < bytes / 8,
        "{} of {bytes}",
        image.files.bytes()
    );
    let plain: usize = (run(1, 1, Vec::new()).entries.iter())
        .chain(&run(7, 3, Vec::new()).entries)
        .map(|(key, _, value)| match value {
            EntryValue::Inline(value) => key.len() + value.len(),
            _ => key.len(),
        })
        .sum();
    assert!(bytes < plain * 3 / 2, "{bytes} for {plain}");
    assert!(Arc::ptr_eq(&first.image, &image));
}

#[test]
fn a_file_that_was_cut_says_what_it_has_lost() {
    let files = Files::default();
    let id = FileId::new(FileKind::Table, 1);
    let options = CreateOptions {
        stream: Stream::FreshIndex,
        reserve_bytes: 0,
        direct: false,
    };
    let file = files.create(id, options).unwrap();
    assert!(files.create(id, options).is_err());
    file.write_at(0, b"0123").unwrap();
    file.write_at(4, b"456789").unwrap();
    assert!(file.write_at(11, b"x").is_err());
    files.cut(id, 7).unwrap();
    assert_eq!((file.len().unwrap(), files.bytes()), (10, 3));
    assert_eq!(&file.read_at(8, 5).unwrap()[..], b"89");
    let error = file.read_at(6, 1).unwrap_err();
    assert!(error.to_string().contains("pinned"), "{error}");
    files.delete(id).unwrap();
    assert!(files.open(id).is_err() && files.list().unwrap().is_empty());
}

/// Deletions are numbered where the reserve has no room for what they will take: held, they would come together, and then nothing could write them.
#[test]
fn nothing_is_held_that_the_reserve_does_not_cover() {
    let volume = MemVolume::with_options(MemOptions {
        capacity_bytes: Some(64 << 20),
        ..MemOptions::default()
    });
    let options = Options::default()
        .memory_budget_bytes(16 << 20)
        .log_segment_bytes(4 << 20)
        .log_ring_bytes(1 << 20)
        .background_threads(0)
        .value_gc(false)
        .pin_mode(PinMode::LogBacked);
    let env = Env::new(crate::test_clock(), DbId([9; 16]));
    let db = options.open_volume(volume.clone(), env).unwrap();
    let engine = &db.handle.engine;
    let held = || {
        let version = engine.version.load_full();
        engine.may_hold(&version, &version.active)
    };
    db.put("first", "1").unwrap();
    assert!(held());
    let rest = CreateOptions {
        stream: Stream::Log,
        reserve_bytes: volume.free_bytes().unwrap(),
        direct: false,
    };
    drop(volume.create(FileId::new(FileKind::Reserve, u64::MAX), rest));
    // As many as the ring has space for: else they would be flushed.
    for n in 0..500 {
        db.delete(format!("{n:0300}")).unwrap();
    }
    assert!(!held());
    volume
        .delete(FileId::new(FileKind::Reserve, u64::MAX))
        .unwrap();
    assert!(held());
}
