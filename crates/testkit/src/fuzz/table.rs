//! Target `table`: a whole table opened by its reader, verified, walked in both directions, asked for every key.
//!
//! Asserts: a file as its writer wrote it gives back exactly what was written; one that was damaged, checksums left as they were, gives back that or an error; what
//! `verify` finds nothing wrong with is read in strictly ascending key order, the same backwards, the same through a compaction's cursor, the same by `get` and from `seek`,
//! within bounds what lies within them, and keys beside those are absent; what is refused is `Corruption` that names file and offset, or `UnsupportedFormat`; nothing that
//! is malformed makes a walk longer than the file could be.

use super::input::Input;
use super::table_image::{ID, TableImage, Value};
use glintdb_core::{Direction, EntryRef, EntryValue, Error, ErrorKind};
use glintdb_runs::table::{Purpose, Table, key_hash};
use std::ops::Bound;
use std::sync::Arc;

type Entries = Vec<(Vec<u8>, (u64, Value))>;

/// No block expands more than 255 times, and an entry takes three bytes.
fn entries_max(bytes: usize) -> usize {
    bytes * 255 / 3
}

fn refused(error: &Error) {
    let kind = error.kind();
    assert!(
        kind == ErrorKind::UnsupportedFormat
            || (kind == ErrorKind::Corruption
                && error
                    .place()
                    .is_some_and(|(file, _)| file == ID.to_string())),
        "{error}"
    );
}

fn value_of(value: EntryRef<'_>) -> Value {
    match value {
        EntryRef::Inline(value) => Value::Inline(value.to_vec()),
        EntryRef::Pointer(pointer) => Value::Pointer(pointer),
        EntryRef::Tombstone => Value::Tombstone,
    }
}

fn walk(
    table: &Arc<Table>,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    direction: Direction,
    purpose: Purpose,
    max: usize,
) -> Result<Entries, Error> {
    let mut entries = Vec::new();
    let mut cursor = table.cursor(lower, upper, direction, purpose);
    while cursor.advance()? {
        entries.push((
            cursor.key().to_vec(),
            (cursor.seqno().0, value_of(cursor.value())),
        ));
        assert!(entries.len() <= max, "a walk that does not end");
    }
    assert!(!cursor.advance()?, "the end is the end");
    Ok(entries)
}

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let image = TableImage::build(&mut input);
    let table = match Table::open_file(&image.open_env(), ID) {
        Ok(table) => table,
        Err(error) => {
            assert!(image.edited, "{error}");
            return refused(&error);
        }
    };
    let max = entries_max(image.bytes.len());
    let mut wrong = Vec::new();
    table.verify(&mut |error| wrong.push(error), &mut |_, _| ());
    wrong.iter().for_each(refused);
    assert!(wrong.len() <= image.bytes.len());
    let all = |direction, purpose| {
        let walked = walk(
            &table,
            Bound::Unbounded,
            Bound::Unbounded,
            direction,
            purpose,
            max,
        );
        walked.inspect_err(refused)
    };
    let forward = all(Direction::Forward, Purpose::Read);
    let backward = all(Direction::Reverse, Purpose::Read);
    let compaction = all(Direction::Forward, Purpose::Compaction);
    if !image.edited {
        assert!(wrong.is_empty(), "{wrong:?}");
        let written: Entries = image.entries.clone().into_iter().collect();
        assert_eq!(
            forward.as_ref().ok(),
            Some(&written),
            "not what was written"
        );
        assert_eq!(table.range_tombstones().ok(), Some(&image.tombstones[..]));
    }
    if !image.forged {
        honest(&table, &image, max);
    }
    let asked = image.entries.keys().step_by(17);
    let absent: Vec<Vec<u8>> = asked.clone().map(|key| [&key[..], &[0]].concat()).collect();
    if !wrong.is_empty() {
        // Any answer but a panic.
        for key in asked.chain(&absent) {
            table.get(key, key_hash(key)).inspect_err(refused).ok();
            let mut cursor = table.cursor(
                Bound::Unbounded,
                Bound::Unbounded,
                Direction::Forward,
                Purpose::Read,
            );
            cursor.seek(key).inspect_err(refused).ok();
        }
        return;
    }
    let forward = forward.expect("verified");
    assert_eq!(compaction.expect("verified"), forward);
    let mut turned = backward.expect("verified");
    turned.reverse();
    assert_eq!(turned, forward, "another table backwards");
    assert!(forward.is_sorted_by(|a, b| a.0 < b.0), "keys do not ascend");
    assert_eq!(forward.len() as u64, table.meta().entries);
    keys(&table, &forward, &absent);
    ranges(&table, &forward, max);
}

/// Damage is noticed by checksums: every answer is what was written, or an error.
fn honest(table: &Arc<Table>, image: &TableImage, max: usize) {
    if let Ok(tombstones) = table.range_tombstones() {
        assert_eq!(tombstones, &image.tombstones[..]);
    }
    for (key, (seqno, value)) in image.entries.iter().step_by(1 + image.entries.len() / 64) {
        if let Ok(found) = table.get(key, key_hash(key)) {
            let found = found.map(|entry| (entry.seqno.0, owned(entry.value)));
            assert_eq!(found, Some((*seqno, value.clone())), "get of {key:?}");
        }
    }
    for purpose in [Purpose::Read, Purpose::Compaction] {
        let mut cursor = table.cursor(
            Bound::Unbounded,
            Bound::Unbounded,
            Direction::Forward,
            purpose,
        );
        let mut written = image.entries.iter().take(max);
        loop {
            match cursor.advance() {
                Ok(true) => {
                    let found = (cursor.seqno().0, value_of(cursor.value()));
                    assert_eq!(written.next(), Some((&cursor.key().to_vec(), &found)));
                }
                Ok(false) => break assert_eq!(written.next(), None, "entries are missing"),
                Err(_) => break,
            }
        }
    }
}

fn owned(value: EntryValue) -> Value {
    match value {
        EntryValue::Inline(value) => Value::Inline(value.to_vec()),
        EntryValue::Pointer(pointer) => Value::Pointer(pointer),
        EntryValue::Tombstone => Value::Tombstone,
    }
}

fn keys(table: &Arc<Table>, entries: &Entries, absent: &[Vec<u8>]) {
    for (key, (seqno, value)) in entries.iter().step_by(1 + entries.len() / 64) {
        let found = table.get(key, key_hash(key)).expect("verified");
        let found = found.map(|entry| (entry.seqno.0, owned(entry.value)));
        assert_eq!(
            found.as_ref(),
            Some(&(*seqno, value.clone())),
            "get of {key:?}"
        );
    }
    for key in absent {
        let there = entries.binary_search_by(|entry| entry.0.cmp(key)).is_ok();
        let found = table.get(key, key_hash(key)).expect("verified");
        assert_eq!(found.is_some(), there, "get of {key:?}");
    }
}

fn ranges(table: &Arc<Table>, entries: &Entries, max: usize) {
    let Some((first, last)) = entries
        .get(entries.len() / 3)
        .zip(entries.get(entries.len() * 2 / 3))
    else {
        return;
    };
    let (lower, upper) = (Bound::Excluded(&first.0[..]), Bound::Included(&last.0[..]));
    let expected: Entries = entries
        .iter()
        .filter(|(key, _)| *key > first.0 && *key <= last.0)
        .cloned()
        .collect();
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut found = walk(table, lower, upper, direction, Purpose::Read, max).expect("verified");
        if direction == Direction::Reverse {
            found.reverse();
        }
        assert_eq!(
            found, expected,
            "{direction:?} within {lower:?} to {upper:?}"
        );
    }
    let mut cursor = table.cursor(
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
        Purpose::Read,
    );
    assert!(cursor.seek(&last.0).expect("verified"));
    assert_eq!(cursor.key(), last.0);
}
