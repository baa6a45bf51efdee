//! The memtable and its arena under loom: the production types, with nodes of four slots. What an ordering too weak breaks shows as a key that is not found, a record that
//! is not whole (loom tracks none of the arena's bytes, so whatever a wrong address leads to is read for what it is), or two records at one place.

use crate::{Arena, ChunkPool, Memtable};
use glintdb_core::sync::{explore, thread};
use glintdb_core::{Direction, EntryRef, SeqNum};
use std::ops::Bound;
use std::sync::Arc;

const VALUE: EntryRef<'_> = EntryRef::Inline(b"value");

fn memtable(keys: &[&[u8]]) -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new(Arena::new(ChunkPool::new(1 << 20))));
    for key in keys {
        memtable.insert(key, SeqNum(1), VALUE);
    }
    memtable
}

fn assert_holds(memtable: &Memtable, keys: &[&[u8]]) {
    for key in keys {
        let found = memtable.get(key, SeqNum::MAX);
        assert_eq!(found.map(|(_, value)| value), Some(VALUE), "{key:?}");
    }
}

fn insert(memtable: &Arc<Memtable>, key: &'static [u8], seqno: u64) -> thread::JoinHandle<()> {
    let memtable = Arc::clone(memtable);
    thread::spawn(move || memtable.insert(key, SeqNum(seqno), VALUE))
}

/// A thread that finds `there`, and `new` whole or not at all. (Readers are in the new thread, as loom finds few of the interleavings when they are in the first one.)
fn read(
    memtable: &Arc<Memtable>,
    there: &'static [u8],
    new: &'static [u8],
) -> thread::JoinHandle<()> {
    let memtable = Arc::clone(memtable);
    thread::spawn(move || {
        assert_holds(&memtable, &[there]);
        if let Some((seqno, value)) = memtable.get(new, SeqNum::MAX) {
            assert_eq!((seqno, value), (SeqNum(2), VALUE));
        }
    })
}

#[test]
fn two_inserts_into_one_leaf_are_both_there() {
    explore("memtable: insert beside insert", Some(2), || {
        let memtable = memtable(&[b"b"]);
        let both = [insert(&memtable, b"a", 2), insert(&memtable, b"c", 3)];
        for insert in both {
            insert.join().unwrap();
        }
        assert_holds(&memtable, &[b"a", b"b", b"c"]);
        assert_eq!(memtable.len(), 3);
    });
}

#[test]
fn two_first_inserts_are_both_there() {
    explore("memtable: two first inserts", Some(2), || {
        let memtable = memtable(&[]);
        let both = [insert(&memtable, b"a", 2), insert(&memtable, b"c", 2)];
        if let Some((seqno, value)) = memtable.get(b"c", SeqNum::MAX) {
            assert_eq!((seqno, value), (SeqNum(2), VALUE));
        }
        for insert in both {
            insert.join().unwrap();
        }
        assert_holds(&memtable, &[b"a", b"c"]);
        assert_eq!(memtable.len(), 2);
    });
}

#[test]
fn an_insert_beside_a_split_is_not_lost() {
    explore("memtable: insert beside a split", Some(2), || {
        let memtable = memtable(&[b"b", b"d", b"f", b"h"]);
        let both = [insert(&memtable, b"c", 2), insert(&memtable, b"g", 3)];
        for insert in both {
            insert.join().unwrap();
        }
        assert_holds(&memtable, &[b"b", b"c", b"d", b"f", b"g", b"h"]);
    });
}

#[test]
fn a_reader_beside_a_split_finds_what_was_there() {
    explore("memtable: read beside a split", Some(2), || {
        let memtable = memtable(&[b"b", b"d", b"f", b"h"]);
        let reader = read(&memtable, b"f", b"e");
        memtable.insert(b"e", SeqNum(2), VALUE);
        reader.join().unwrap();
        assert_holds(&memtable, &[b"e", b"h"]);
    });
}

#[test]
fn a_reader_beside_an_insert_finds_what_was_there() {
    explore("memtable: read beside an insert", Some(3), || {
        let memtable = memtable(&[b"b", b"d"]);
        let reader = read(&memtable, b"d", b"a");
        memtable.insert(b"a", SeqNum(2), VALUE);
        reader.join().unwrap();
    });
}

#[test]
fn versions_of_a_key_keep_their_order() {
    explore("memtable: versions of one key", Some(2), || {
        let memtable = memtable(&[b"a"]);
        let other = insert(&memtable, b"a", 5);
        memtable.insert(b"a", SeqNum(3), VALUE);
        assert!(
            memtable
                .get(b"a", SeqNum(3))
                .is_some_and(|(seqno, _)| seqno == SeqNum(3))
        );
        other.join().unwrap();
        for (at, expected) in [(1, 1), (2, 1), (4, 3), (9, 5)] {
            let found = memtable.get(b"a", SeqNum(at)).map(|(seqno, _)| seqno);
            assert_eq!(found, Some(SeqNum(expected)), "at {at}");
        }
    });
}

/// What comes between two records of a key while a reader goes from one to the other is newer than what the reader may see.
#[test]
fn a_reader_beside_a_record_put_between_two_does_not_see_it() {
    explore(
        "memtable: read beside a record put between",
        Some(3),
        || {
            let memtable = memtable(&[b"a"]);
            memtable.insert(b"a", SeqNum(5), VALUE);
            let reader = {
                let memtable = Arc::clone(&memtable);
                thread::spawn(move || {
                    let found = memtable.get(b"a", SeqNum(2)).map(|(seqno, _)| seqno);
                    assert_eq!(found, Some(SeqNum(1)));
                })
            };
            memtable.insert(b"a", SeqNum(3), VALUE);
            reader.join().unwrap();
        },
    );
}

#[test]
fn a_cursor_beside_a_split_neither_skips_nor_repeats() {
    for direction in [Direction::Forward, Direction::Reverse] {
        explore("memtable: cursor beside a split", Some(2), move || {
            let memtable = memtable(&[b"b", b"d", b"f", b"h"]);
            let reader = {
                let memtable = Arc::clone(&memtable);
                thread::spawn(move || {
                    let (all, at) = (Bound::Unbounded, SeqNum(1));
                    let mut cursor = memtable.cursor(all, all, direction, at);
                    let mut seen = Vec::new();
                    while cursor.advance() {
                        seen.push(cursor.key()[0]);
                    }
                    if direction == Direction::Reverse {
                        seen.reverse();
                    }
                    assert_eq!(seen, b"bdfh");
                })
            };
            memtable.insert(b"e", SeqNum(2), VALUE);
            reader.join().unwrap();
        });
    }
}

/// Two threads with one shard: a bump beside a bump and beside a new slab; and a chunk that comes back from another arena meanwhile.
#[test]
fn no_two_allocations_share_a_byte() {
    explore("arena: allocation and recycling", Some(3), || {
        const BYTES: usize = 4 << 10;
        let pool = ChunkPool::new(1 << 20);
        let old = Arena::new(Arc::clone(&pool));
        old.allocate_record(8);
        let arena = Arena::new(pool);
        let other = {
            let arena = Arc::clone(&arena);
            thread::spawn(move || {
                drop(old);
                [0; 3].map(|_| arena.allocate_record(BYTES).as_ptr() as usize)
            })
        };
        let mine = [0; 3].map(|_| arena.allocate_record(BYTES).as_ptr() as usize);
        let mut all = [mine, other.join().unwrap()].concat();
        all.sort_unstable();
        for pair in all.windows(2) {
            assert!(pair[0] + BYTES <= pair[1], "{all:?}");
        }
    });
}
