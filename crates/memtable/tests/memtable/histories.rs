//! Named cases: insertion orders, long histories of one key, the edges of what a key may be.

use super::*;

fn fill(order: impl IntoIterator<Item = u64>, key: impl Fn(u64) -> Vec<u8>) {
    let (memtable, mut model) = (memtable(), Model::new());
    for (number, i) in order.into_iter().enumerate() {
        put(&memtable, &mut model, &key(i), 1 + number as u64, i);
    }
    check_all(&memtable, &model, [SeqNum::MAX.0, 100]);
}

const KEYS: u64 = if cfg!(miri) { 24 } else { 6_000 };

fn scattered() -> impl Iterator<Item = u64> {
    // 7919 is prime and does not divide KEYS, so this visits every number once.
    (0..KEYS).map(|i| i * 7919 % KEYS)
}

#[test]
fn ascending_descending_and_scattered_inserts_keep_order() {
    let decimal = |i: u64| format!("{i:016}").into_bytes();
    fill(0..KEYS, decimal);
    fill((0..KEYS).rev(), decimal);
    fill(scattered(), decimal);
}

#[test]
fn interleaved_ascending_streams_keep_order() {
    let key = |i: u64| format!("stream-{}/{:010}", i % 5, i / 5).into_bytes();
    fill(0..KEYS, key);
    fill((0..KEYS).rev(), key);
    fill(scattered(), key);
}

#[test]
fn keys_of_every_length_and_long_shared_prefixes_keep_order() {
    fill(scattered().take(if cfg!(miri) { 24 } else { 400 }), |i| {
        b"x".repeat(usize::try_from(i).unwrap())
    });
    fill(scattered(), |i| {
        format!("a/very/long/prefix/that/all/of/the/keys/share/{i}").into_bytes()
    });
    fill(scattered(), |i| {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[..1 + (i % 8) as usize].to_vec()
    });
}

#[test]
fn a_foreign_prefix_late_in_an_edge_node_is_found() {
    // Edge nodes skip the bytes their present keys share; a key that does not share them must still go to its place.
    let (memtable, mut model) = (memtable(), Model::new());
    for i in 0..KEYS / 2 {
        put(
            &memtable,
            &mut model,
            format!("middle/middle/middle/{i:06}").as_bytes(),
            i + 1,
            i,
        );
    }
    for (i, key) in [
        &b""[..],
        b"\0",
        b"m",
        b"middle/middle/middl",
        b"middle/middle/middle/\xff",
        b"zz",
        b"\xff",
    ]
    .iter()
    .enumerate()
    {
        put(&memtable, &mut model, key, KEYS + i as u64, 3);
    }
    check_all(&memtable, &model, [SeqNum::MAX.0, KEYS + 2]);
}

#[test]
fn zero_bytes_at_the_end_make_distinct_ordered_keys() {
    let (memtable, mut model) = (memtable(), Model::new());
    for i in scattered().take(40) {
        let mut key = b"a".to_vec();
        key.resize(1 + usize::try_from(i).unwrap() % 40, 0);
        put(&memtable, &mut model, &key, 1 + i, i);
    }
    for key in [
        &b""[..],
        b"\0",
        b"\0\0",
        b"a",
        b"a\0",
        b"a\0\0",
        b"a\0\x01",
        b"a\x01",
    ] {
        put(&memtable, &mut model, key, 1_000_000, 4);
    }
    check_all(&memtable, &model, [SeqNum::MAX.0, 3]);
}

#[test]
fn same_key_and_seqno_later_insert_wins() {
    let memtable = memtable();
    for (seqno, value) in [
        (5, "first"),
        (9, "other"),
        (5, "second"),
        (5, "third"),
        (1, "old"),
        (9, "last"),
    ] {
        memtable.insert(b"k", SeqNum(seqno), EntryRef::Inline(value.as_bytes()));
    }
    let get = |at| memtable.get(b"k", SeqNum(at));
    assert_eq!(get(0), None);
    assert_eq!(get(4), Some((SeqNum(1), EntryRef::Inline(b"old"))));
    assert_eq!(get(8), Some((SeqNum(5), EntryRef::Inline(b"third"))));
    assert_eq!(get(9), Some((SeqNum(9), EntryRef::Inline(b"last"))));
    assert_eq!(memtable.len(), 1);
}

#[test]
fn every_version_of_a_much_overwritten_key_is_found() {
    let (memtable, mut model) = (memtable(), Model::new());
    // Mostly in order, some late, some twice: as parallel writers deliver them.
    for i in 0..KEYS {
        let seqno = if i % 7 == 3 { i / 2 + 1 } else { i + 1 };
        put(&memtable, &mut model, b"counter", seqno, i);
        put(
            &memtable,
            &mut model,
            format!("other{}", i % 50).as_bytes(),
            i + 1,
            i,
        );
    }
    for at in 0..=KEYS {
        assert_eq!(
            memtable.get(b"counter", SeqNum(at)).map(owned),
            model_get(&model, b"counter", SeqNum(at))
        );
    }
    check_all(&memtable, &model, [1, KEYS / 2, KEYS]);
}

#[test]
fn an_old_snapshot_of_a_hot_key_is_read_without_walking_all_newer_versions() {
    // Walked one by one, these reads would take 10^10 steps: the test would not end.
    let memtable = memtable();
    let versions = if cfg!(miri) { 70 } else { 100_000 };
    for seqno in 1..=versions {
        memtable.insert(
            b"counter",
            SeqNum(seqno),
            EntryRef::Inline(&seqno.to_le_bytes()),
        );
    }
    for at in 1..=versions {
        let found = memtable.get(b"counter", SeqNum(at));
        assert_eq!(
            found,
            Some((SeqNum(at), EntryRef::Inline(&at.to_le_bytes())))
        );
        // Late arrivals far behind, as a relocation of an old value makes them.
        if at.is_multiple_of(100) {
            memtable.insert(b"counter", SeqNum(at), EntryRef::Tombstone);
            assert_eq!(
                memtable.get(b"counter", SeqNum(at)),
                Some((SeqNum(at), EntryRef::Tombstone))
            );
        }
    }
}

#[test]
fn an_empty_memtable_answers() {
    let memtable = memtable();
    check_all(&memtable, &Model::new(), [0, SeqNum::MAX.0]);
    assert_eq!(memtable.get(b"", SeqNum::MAX), None);
    assert_eq!(
        memtable.latest_seqno_in(Bound::Unbounded, Bound::Unbounded, SeqNum::ZERO),
        None
    );
    let mut cursor = memtable.cursor(
        Bound::Included(b"b"),
        Bound::Excluded(b"a"),
        Direction::Reverse,
        SeqNum::MAX,
    );
    assert!(!cursor.advance());
    memtable.insert(b"b", SeqNum(1), EntryRef::Tombstone);
    assert!(
        !cursor.advance(),
        "bounds that exclude each other stay empty"
    );
}

#[test]
#[should_panic(expected = "stands at no key")]
fn key_of_a_cursor_that_was_not_advanced_panics() {
    let cursor = memtable().cursor(
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
        SeqNum::MAX,
    );
    assert!(!cursor.key().is_empty(), "not reached");
}

#[test]
fn a_cursor_outlives_the_last_handle() {
    let memtable = memtable();
    (0..200_u32).for_each(|i| memtable.insert(&i.to_be_bytes(), SeqNum(1), EntryRef::Inline(b"v")));
    let mut cursor = memtable.cursor(
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Reverse,
        SeqNum::MAX,
    );
    drop(memtable);
    assert_eq!(drain(&mut cursor).len(), 200);
}
