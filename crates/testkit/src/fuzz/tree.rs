//! Target `tree`: a B+tree index (leaves, branches, runs of the shelf, the edit that names
//! them), damaged, opened, read, verified and settled.
//!
//! Asserts: undamaged, it gives what was written, and settles; damaged files whose checksums
//! are left as they were give that or an error, which `verify` finds too; what
//! `verify` finds nothing wrong with is read in strictly ascending key order, the same
//! backwards, by `get` and by a batch; with right checksums or another edit: no panic,
//! an end; errors are those of the medium; settling never makes a sound index unsound.

use super::check_error;
use super::tree_image::{self, Entries, Image, MemRun};
use glintdb_btree::BTree;
use glintdb_core::index::{Index, IndexJob, IndexView, JobStep};
use glintdb_core::{Direction, EntryValue, Error, ErrorKind, RangeTombstone, SeqNum};
use std::ops::Bound;
use std::sync::Arc;

/// Slices that a small index needs at most to settle and to remove all garbage.
const SLICES_MAX: u32 = 200;

pub(super) use super::tree_image::seeds;

/// Errors that hostile files may give.
fn expected(error: &Error) {
    let kinds = [
        ErrorKind::Corruption,
        ErrorKind::UnsupportedFormat,
        ErrorKind::NotFound,
        ErrorKind::Io,
    ];
    check_error(error, &kinds);
}

fn any<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(expected).ok()
}

/// All entries in one direction, up to the first error.
fn walk(view: &Arc<dyn IndexView>, direction: Direction, max: usize) -> (Entries, bool) {
    let mut entries = Entries::new();
    let all = Bound::Unbounded;
    let Some(mut cursor) = any(view.cursor(all, all, direction)) else {
        return (entries, false);
    };
    let mut last: Option<Vec<u8>> = None;
    let mut walked = 0;
    loop {
        match any(cursor.advance()) {
            Some(true) => {}
            Some(false) => return (entries, true),
            None => return (entries, false),
        }
        walked += 1;
        assert!(walked <= max, "a walk that does not end");
        let key = cursor.key().to_vec();
        let value = cursor.value().to_owned();
        let ascends = last.as_ref().is_none_or(|last| match direction {
            Direction::Forward => *last < key,
            Direction::Reverse => *last > key,
        });
        last = Some(key.clone());
        if !ascends {
            // Of a forged tree. The caller knows whether that may be.
            return (Entries::new(), false);
        }
        if value != EntryValue::Tombstone {
            entries.insert(key, (cursor.seqno(), value));
        }
    }
}

fn is_sound(view: &Arc<dyn IndexView>) -> bool {
    let mut errors = 0;
    view.verify(
        &mut |error| {
            expected(&error);
            errors += 1;
        },
        &mut |_| (),
        &mut |_, _| (),
        &mut |_| (),
    );
    errors == 0
}

pub(super) fn run(data: &[u8]) {
    let image = Image::build(data);
    let env = tree_image::env(&image.volume, 1000);
    let edits = [image.edit.clone()];
    let index = match BTree::open(env, tree_image::options(), &edits) {
        Ok(index) => index,
        Err(error) => {
            assert!(image.changed, "{error}");
            return expected(&error);
        }
    };
    let view = index.view();
    let sound = is_sound(&view);
    assert!(sound || image.changed, "an undamaged index does not verify");
    drop(view.stats());
    look(&view, &image, sound);
    drop(view);
    settle(&index, &image, sound);
}

/// Reads everything in every way.
fn look(view: &Arc<dyn IndexView>, image: &Image, sound: bool) {
    let max = image.bytes + 1;
    let (forward, ended) = walk(view, Direction::Forward, max);
    let (backward, ended_too) = walk(view, Direction::Reverse, max);
    if sound {
        assert!(ended && ended_too, "a walk of a sound index fails");
        assert!(forward == backward, "another index backwards");
    }
    let written = &image.whole.entries;
    let absent = b"absent".to_vec();
    let keys: Vec<&[u8]> = (image.whole.keys.iter().step_by(5))
        .chain([&absent])
        .map(|key| &key[..])
        .collect();
    let many = view.get_batch(&keys);
    assert_eq!(many.len(), keys.len());
    for (key, found) in keys.iter().zip(many) {
        let live = |entry: Option<glintdb_core::Entry>| {
            let entry = entry.map(|entry| (entry.seqno, entry.value));
            entry.filter(|(_, value)| *value != EntryValue::Tombstone)
        };
        let alone = any(view.get(key)).map(live);
        let found = any(found).map(live);
        if sound {
            let there = forward.get(*key);
            assert_eq!(alone.as_ref().map(Option::as_ref), Some(there), "{key:?}");
            assert_eq!(found.as_ref().map(Option::as_ref), Some(there), "{key:?}");
        }
        for found in [alone, found].into_iter().flatten() {
            assert!(
                image.forged || found.as_ref() == written.get(*key),
                "{key:?} has {found:?}"
            );
        }
    }
    if image.forged {
        return;
    }
    // Checksums tell of all damage: a walk gives what was written, up to its first error.
    for (walked, ended, turned) in [(forward, ended, false), (backward, ended_too, true)] {
        let expected: Vec<_> = match turned {
            false => written.iter().take(walked.len()).collect(),
            true => written.iter().rev().take(walked.len()).rev().collect(),
        };
        assert!(walked.iter().eq(expected), "another entry");
        assert!(!ended || walked.len() == written.len(), "entries are gone");
    }
}

/// Adds a run, and settles everything.
fn settle(index: &Arc<BTree>, image: &Image, sound: bool) {
    let mut run = MemRun::default();
    for (key, nth) in image.whole.keys.iter().step_by(9).zip(0..) {
        let value = match nth % 3 {
            0 => EntryValue::Tombstone,
            _ => EntryValue::Inline(vec![nth; 60].into()),
        };
        run.entries
            .push((key.clone(), SeqNum(1_000_000 + u64::from(nth)), value));
    }
    run.ranges.push(RangeTombstone {
        start: b"kkk0012".to_vec().into(),
        end: Some(b"kkk0018".to_vec().into()),
        seqno: SeqNum(999_999),
    });
    let written = any(index.write_run(&mut run));
    let applied =
        written.and_then(|change| any(index.check(&change).and_then(|()| index.apply(&change))));
    assert!(applied.is_some() || !sound, "a run cannot be added");
    for number in 0.. {
        assert!(number < SLICES_MAX, "slices that do not end");
        let all = Bound::Unbounded;
        let Some(job) = index
            .pick_job()
            .or_else(|| index.pick_full_compaction(all, all))
        else {
            break;
        };
        let Some(()) = slice(index, job) else {
            assert!(!sound, "a sound index does not settle");
            break;
        };
    }
    let view = index.view();
    let still = is_sound(&view);
    assert!(still || !sound, "settling has made it unsound");
    if !image.changed {
        let (found, ended) = walk(&view, Direction::Forward, image.bytes + 1000);
        let mut expected = image.whole.entries.clone();
        expected.retain(|key, _| !(&b"kkk0012"[..]..&b"kkk0018"[..]).contains(&&key[..]));
        for (key, seqno, value) in run.entries {
            expected.insert(key, (seqno, value));
        }
        expected.retain(|_, (_, value)| *value != EntryValue::Tombstone);
        assert!(ended && found == expected, "settling has changed something");
    }
}

fn slice(index: &Arc<BTree>, mut job: Box<dyn IndexJob>) -> Option<()> {
    loop {
        match any(job.step())? {
            JobStep::More => {}
            JobStep::Done(change) => {
                any(index.check(&change))?;
                return any(index.apply(&change));
            }
        }
    }
}
