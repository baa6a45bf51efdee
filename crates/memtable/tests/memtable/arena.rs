//! Memory: what is counted, what is recycled, what stays small.

use super::*;

#[test]
fn a_small_memtable_takes_little_memory() {
    let arena = Arena::new(ChunkPool::new(0));
    assert_eq!(arena.allocated_bytes(), 0);
    let tables: Vec<_> = (0..8).map(|_| Memtable::new(Arc::clone(&arena))).collect();
    tables
        .iter()
        .for_each(|table| table.insert(b"key", SeqNum(1), EntryRef::Inline(b"value")));
    assert!(
        arena.allocated_bytes() <= 64 << 10,
        "{}",
        arena.allocated_bytes()
    );
}

/// The memtables of thousands of keyspaces filled an arena before the first record came, so that
/// each commit found its generation full.
#[test]
fn a_memtable_without_records_takes_nothing_of_its_arena() {
    let arena = Arena::new(ChunkPool::new(0));
    let tables: Vec<_> = (0..100)
        .map(|_| Arc::new(Memtable::new(Arc::clone(&arena))))
        .collect();
    for table in &tables {
        assert_eq!(table.get(b"key", SeqNum::MAX), None);
        for direction in [Direction::Forward, Direction::Reverse] {
            let all = Bound::Unbounded;
            let mut cursor = table.cursor(all, all, direction, SeqNum::MAX);
            assert!(!cursor.advance());
            cursor.seek(b"key");
            assert!(!cursor.advance() && !cursor.advance());
        }
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(table.latest_seqno_in(all.0, all.1, SeqNum(0)), None);
    }
    assert_eq!((arena.allocated_bytes(), arena.filled_bytes()), (0, 0));
    // A cursor that was made before the first insert, and told to seek again.
    let all = Bound::Unbounded;
    let mut cursor = tables[0].cursor(all, all, Direction::Forward, SeqNum::MAX);
    assert!(!cursor.advance());
    tables[0].insert(b"key", SeqNum(1), EntryRef::Inline(b"value"));
    cursor.seek(b"a");
    assert!(cursor.advance() && cursor.key() == b"key");
}

#[test]
fn many_threads_leave_little_memory_unused() {
    let arena = Arena::new(ChunkPool::new(0));
    let memtable = Memtable::new(Arc::clone(&arena));
    let (threads, keys, value) = if cfg!(miri) {
        (3_u32, 20_u32, [1; 100])
    } else {
        (16, 4_000, [1; 100])
    };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let memtable = &memtable;
            scope.spawn(move || {
                for i in 0..keys {
                    let key = (u64::from(thread) << 32 | u64::from(i)).to_be_bytes();
                    memtable.insert(&key, SeqNum(1), EntryRef::Inline(&value));
                }
            });
        }
    });
    // 24 B header, 8 B key, 100 B value, padded to 136 B.
    let records = 136 * (threads * keys) as usize;
    assert!((records..=arena.allocated_bytes()).contains(&arena.filled_bytes()));
    assert!(
        arena.allocated_bytes() < 2 * records + (512 << 10),
        "{} for {records}",
        arena.allocated_bytes()
    );
}

#[test]
fn dropping_the_last_user_returns_chunks_to_the_pool_up_to_its_bound() {
    for bound in [0, 1 << 20, 64 << 20] {
        let pool = ChunkPool::new(bound);
        for _ in 0..2 {
            let arena = Arena::new(Arc::clone(&pool));
            let memtable = Memtable::new(Arc::clone(&arena));
            for i in 0..if cfg!(miri) { 30_u32 } else { 20_000 } {
                memtable.insert(&i.to_be_bytes(), SeqNum(1), EntryRef::Inline(&[1; 300]));
            }
            let held = arena.allocated_bytes();
            drop(arena);
            drop(memtable);
            assert!(pool.pooled_bytes() <= bound);
            assert!(
                bound < held || pool.pooled_bytes() == held,
                "all chunks fit the pool, so all must be there"
            );
        }
    }
}

#[test]
fn oversized_records_get_chunks_of_their_own_and_are_counted() {
    let arena = Arena::new(ChunkPool::new(0));
    let memtable = Memtable::new(Arc::clone(&arena));
    let key = vec![b'k'; 65_536];
    let value = vec![3; if cfg!(miri) { 1 << 16 } else { 9 << 20 }];
    memtable.insert(b"small", SeqNum(1), EntryRef::Inline(b"v"));
    memtable.insert(&key, SeqNum(2), EntryRef::Inline(&value));
    memtable.insert(b"small", SeqNum(3), EntryRef::Inline(b"w"));
    assert!(arena.allocated_bytes() >= key.len() + value.len());
    assert!(arena.allocated_bytes() <= key.len() + value.len() + (256 << 10));
    assert_eq!(
        memtable.get(&key, SeqNum::MAX),
        Some((SeqNum(2), EntryRef::Inline(&value)))
    );
    assert_eq!(
        memtable.get(b"small", SeqNum(2)),
        Some((SeqNum(1), EntryRef::Inline(b"v")))
    );
}
