//! Tests of the memtable through its public interface: against a model, and with threads.
//!
//! `cargo test -p glintdb-memtable` runs them with nodes as they are used, `--features small-nodes` with nodes of four slots.

#![allow(clippy::unwrap_used, reason = "tests")]

mod arena;
mod histories;
mod model;
mod threads;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use glintdb_core::{Direction, EntryRef, EntryValue, SegmentId, SeqNum, ValuePointer};
use glintdb_memtable::{Arena, ChunkPool, Memtable};

/// What the memtable must agree with.
type Model = BTreeMap<(Vec<u8>, Reverse<SeqNum>), EntryValue>;

fn memtable() -> Arc<Memtable> {
    Arc::new(Memtable::new(Arena::new(ChunkPool::new(0))))
}

/// A value that tells which insert it came from, of each kind in turn.
fn value_of(number: u64) -> EntryValue {
    match number % 5 {
        0 => EntryValue::Tombstone,
        1 => EntryValue::Pointer(ValuePointer {
            segment: SegmentId(number << 32 | 7),
            offset: u32::try_from(number & 0xffff_ffff).unwrap(),
            length: 1000,
            checksum: !0,
        }),
        2 => EntryValue::Inline(Vec::new().into()),
        _ => EntryValue::Inline(
            number
                .to_le_bytes()
                .repeat(1 + (number % 13) as usize)
                .into(),
        ),
    }
}

fn put(memtable: &Memtable, model: &mut Model, key: &[u8], seqno: u64, number: u64) {
    let value = value_of(number);
    memtable.insert(key, SeqNum(seqno), value.as_ref());
    model.insert((key.to_vec(), Reverse(SeqNum(seqno))), value);
}

fn model_get(model: &Model, key: &[u8], at: SeqNum) -> Option<(SeqNum, EntryValue)> {
    let ((found, Reverse(seqno)), value) = model.range((key.to_vec(), Reverse(at))..).next()?;
    (found == key).then(|| (*seqno, value.clone()))
}

fn owned((seqno, value): (SeqNum, EntryRef<'_>)) -> (SeqNum, EntryValue) {
    (seqno, value.to_owned())
}

type Row = (Vec<u8>, SeqNum, EntryValue);

fn within(key: &[u8], lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    let above = match lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    };
    above
        && match upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        }
}

fn model_scan(
    model: &Model,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    direction: Direction,
    at: SeqNum,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for ((key, Reverse(seqno)), value) in model {
        let newest = rows.last().is_none_or(|row| row.0 != *key);
        if newest && *seqno <= at && within(key, lower, upper) {
            rows.push((key.clone(), *seqno, value.clone()));
        }
    }
    if direction == Direction::Reverse {
        rows.reverse();
    }
    rows
}

fn drain(cursor: &mut glintdb_memtable::MemCursor) -> Vec<Row> {
    let mut rows = Vec::new();
    while cursor.advance() {
        rows.push((
            cursor.key().to_vec(),
            cursor.seqno(),
            cursor.value().to_owned(),
        ));
    }
    assert!(!cursor.advance(), "a cursor at its end stays there");
    rows
}

fn scan(
    memtable: &Arc<Memtable>,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    direction: Direction,
    at: SeqNum,
) -> Vec<Row> {
    drain(&mut memtable.cursor(lower, upper, direction, at))
}

/// Everything the memtable says as of each of `ats`, compared with the model.
fn check_all(memtable: &Arc<Memtable>, model: &Model, ats: impl IntoIterator<Item = u64>) {
    let mut keys: Vec<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    keys.dedup();
    assert_eq!(memtable.len(), keys.len());
    assert_eq!(memtable.is_empty(), keys.is_empty());
    for at in ats.into_iter().map(SeqNum) {
        for key in &keys {
            assert_eq!(
                memtable.get(key, at).map(owned),
                model_get(model, key, at),
                "{key:?} at {at}"
            );
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let found = scan(memtable, Bound::Unbounded, Bound::Unbounded, direction, at);
            assert_eq!(
                found,
                model_scan(model, Bound::Unbounded, Bound::Unbounded, direction, at),
                "at {at}"
            );
        }
    }
    for key in keys {
        let newest = model_get(model, key, SeqNum::MAX).map(|(seqno, _)| seqno);
        assert_eq!(memtable.latest_seqno(key), newest);
    }
}
