//! Readers and cursors among writers.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: u64 = 4;
const KEYS: u64 = if cfg!(miri) { 40 } else { 30_000 };

fn key(i: u64) -> Vec<u8> {
    format!("key{i:09}").into_bytes()
}

/// A permutation of `0..KEYS` that differs with `salt`.
fn scattered(salt: u64) -> impl Iterator<Item = u64> {
    (0..KEYS).map(move |i| (i * 7919 + salt * 104_729) % KEYS)
}

#[test]
fn parallel_inserts_are_all_there_in_order() {
    for ascending in [false, true] {
        let memtable = memtable();
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (memtable, next) = (&memtable, &next);
                scope.spawn(move || {
                    if ascending {
                        // All at the right edge at once.
                        loop {
                            let i = next.fetch_add(1, Ordering::Relaxed);
                            if i >= KEYS {
                                break;
                            }
                            memtable.insert(
                                &key(i),
                                SeqNum(i + 1),
                                EntryRef::Inline(&i.to_le_bytes()),
                            );
                        }
                    } else {
                        for i in scattered(writer).filter(|i| i % WRITERS == writer) {
                            memtable.insert(
                                &key(i),
                                SeqNum(i + 1),
                                EntryRef::Inline(&i.to_le_bytes()),
                            );
                            assert_eq!(
                                memtable.latest_seqno(&key(i)),
                                Some(SeqNum(i + 1)),
                                "own insert is visible"
                            );
                        }
                    }
                });
            }
        });
        assert_eq!(memtable.len() as u64, KEYS);
        let rows = scan(
            &memtable,
            Bound::Unbounded,
            Bound::Unbounded,
            Direction::Forward,
            SeqNum::MAX,
        );
        assert_eq!(rows.len() as u64, KEYS);
        for (i, (found, seqno, _)) in (0..).zip(&rows) {
            assert_eq!((found, *seqno), (&key(i), SeqNum(i + 1)));
        }
    }
}

#[test]
fn cursors_see_every_old_key_once_in_order_during_inserts() {
    let memtable = memtable();
    let old: Vec<Vec<u8>> = (0..KEYS).step_by(4).map(key).collect();
    old.iter()
        .for_each(|key| memtable.insert(key, SeqNum(1), EntryRef::Inline(b"old")));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = [Direction::Forward, Direction::Reverse]
            .into_iter()
            .map(|direction| {
                let (memtable, old, done) = (&memtable, &old, &done);
                scope.spawn(move || {
                    loop {
                        let last_round = done.load(Ordering::Acquire);
                        let mut rows = scan(
                            memtable,
                            Bound::Unbounded,
                            Bound::Unbounded,
                            direction,
                            SeqNum(1),
                        );
                        let mut newest = scan(
                            memtable,
                            Bound::Unbounded,
                            Bound::Unbounded,
                            direction,
                            SeqNum::MAX,
                        );
                        if direction == Direction::Reverse {
                            rows.reverse();
                            newest.reverse();
                        }
                        assert!(
                            rows.iter().map(|row| &row.0).eq(old),
                            "exactly the old keys"
                        );
                        assert!(
                            newest.windows(2).all(|pair| pair[0].0 < pair[1].0),
                            "strictly ascending"
                        );
                        let mut seen = newest.iter().map(|row| &row.0);
                        assert!(
                            old.iter().all(|key| seen.any(|found| found == key)),
                            "none missing"
                        );
                        if last_round {
                            break;
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let memtable = &memtable;
                scope.spawn(move || {
                    for i in scattered(writer).filter(|i| i % 2 == writer) {
                        memtable.insert(&key(i), SeqNum(2 + i), EntryRef::Inline(b"new"));
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(memtable.len() as u64, KEYS);
}

#[test]
fn versions_of_hot_keys_from_many_threads_form_one_ordered_history() {
    let memtable = memtable();
    let next = AtomicU64::new(1);
    let versions = if cfg!(miri) { 60 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                loop {
                    let seqno = next.fetch_add(1, Ordering::Relaxed);
                    if seqno > versions {
                        break;
                    }
                    // Between taking the number and inserting others overtake: seqnos arrive out of order.
                    if seqno.is_multiple_of(5) {
                        std::thread::yield_now();
                    }
                    memtable.insert(
                        &key(seqno % 3),
                        SeqNum(seqno),
                        EntryRef::Inline(&seqno.to_le_bytes()),
                    );
                }
            });
        }
    });
    for seqno in 3..=versions {
        let found = memtable.get(&key(seqno % 3), SeqNum(seqno));
        assert_eq!(
            found,
            Some((SeqNum(seqno), EntryRef::Inline(&seqno.to_le_bytes())))
        );
        assert_eq!(
            memtable
                .get(&key((seqno + 1) % 3), SeqNum(seqno))
                .map(|found| found.0),
            Some(SeqNum(seqno - 2)).filter(|seqno| seqno.0 > 0)
        );
    }
    assert_eq!(memtable.len(), 3);
}

#[test]
fn validation_of_ranges_sees_inserts_that_returned() {
    let memtable = memtable();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let memtable = &memtable;
            scope.spawn(move || {
                for i in scattered(writer)
                    .filter(|i| i % 2 == writer)
                    .take(if cfg!(miri) { 15 } else { 3_000 })
                {
                    memtable.insert(&key(i), SeqNum(i + 1), EntryRef::Tombstone);
                    let (from, to) = (key(i.saturating_sub(40)), key(i + 40));
                    let newest = memtable.latest_seqno_in(
                        Bound::Included(&from),
                        Bound::Excluded(&to),
                        SeqNum(i),
                    );
                    assert!(
                        newest.is_some_and(|newest| newest > SeqNum(i) && newest <= SeqNum(i + 40))
                    );
                }
            });
        }
    });
}
