//! Tests of the table of hot keys: a sure place is the place of the newest value.

use super::*;

const ONE: KeyspaceId = KeyspaceId(1);

fn at(segment: u64, offset: u32) -> ValuePointer {
    ValuePointer {
        segment: SegmentId(segment),
        offset,
        length: 100,
        checksum: offset,
    }
}

fn opened(budget_bytes: usize, newest: u64) -> HotKeys {
    let hot = HotKeys::new(true, budget_bytes);
    hot.open(SegmentId(1), || Some(SeqNum(newest)));
    hot
}

/// Returns the place that a reader at commit `at` finds for `key`.
fn place(hot: &HotKeys, key: &[u8], at: u64) -> Option<ValuePlace> {
    hot.look(ONE, key)?.place(SeqNum(at))
}

fn mark(hot: &HotKeys, key: &[u8], at: u64, pointer: &ValuePointer) {
    let look = hot.look(ONE, key).expect("it was opened");
    hot.mark(&look, SeqNum(at), pointer);
}

#[test]
fn commits_learn_which_of_their_keys_are_read() {
    let hot = opened(1 << 20, 0);
    let other = KeyspaceId(2);
    let replace =
        |keyspace, pointer: &ValuePointer| hot.touch(keyspace, b"a", SeqNum(1), Some(pointer));
    assert!(!replace(ONE, &at(5, 0)));
    let far = at((1 << 40) + 7, u32::MAX);
    mark(&hot, b"a", 0, &at((1 << 40) + 3, 64));
    mark(&hot, b"a", 0, &at((1 << 40) + 3, 64));
    assert!(!replace(other, &far));
    for pointer in [far, at((1 << 40) + 8, 0)] {
        assert!(replace(ONE, &pointer));
    }
    let slots = hot.buckets.iter().flat_map(|bucket| &bucket.words);
    let taken = slots.filter(|slot| slot.load(Ordering::Relaxed) != 0);
    assert_eq!(taken.count(), 1, "a key has one place");
    assert!(hot.touch(ONE, b"a", SeqNum(2), None));
    assert!(!replace(ONE, &far), "the key was deleted");
}

#[test]
fn a_full_table_knows_the_keys_that_were_read_last() {
    let hot = opened(16 << 20, 0);
    let room = u32::try_from(hot.buckets.len() * KEYS).unwrap();
    // The second condition excludes another key that the table takes for this one.
    let knows = |n: u32| {
        let key = n.to_le_bytes();
        let (bucket, hash) = hot.bucket(ONE, &key).unwrap();
        let is_here = |there: &u64| there & !SURE == word(hash, &at(1, n));
        let known = bucket.words().iter().any(is_here);
        let is_known = hot.touch(ONE, &key, SeqNum(1), Some(&at(1, n)));
        assert!(is_known || !known);
        known
    };
    (0..room / 2).for_each(|n| mark(&hot, &n.to_le_bytes(), 0, &at(1, n)));
    let known = (0..room / 2).filter(|&n| knows(n)).count();
    assert!(known * 100 > room as usize / 2 * 95, "{known} of {room}");
    (room..5 * room).for_each(|n| mark(&hot, &n.to_le_bytes(), 0, &at(1, n)));
    assert!((room / 2..room).all(|n| !knows(n)));
    let late = (9 * room / 2..5 * room).filter(|&n| knows(n)).count();
    assert!(late * 2 > room as usize / 2, "{late} of {room}");
}

#[test]
fn a_table_that_is_switched_off_knows_nothing() {
    let hot = HotKeys::new(false, 1 << 30);
    hot.open(SegmentId(1), || panic!("there is nothing to open"));
    assert!(!hot.is_closed() && !hot.any() && hot.look(ONE, b"a").is_none());
    assert!(!hot.touch(ONE, b"a", SeqNum(1), Some(&at(1, 2))));
    assert_eq!(hot.bytes(), 0);
}

#[test]
fn a_place_is_sure_until_its_key_is_written_and_again_after_the_next_read() {
    let hot = opened(1 << 20, 5);
    assert!(hot.any() && !hot.is_closed());
    // Commits before the table was in use told it nothing, and not all of them are visible at
    // 4.
    mark(&hot, b"a", 4, &at(1, 64));
    assert_eq!(place(&hot, b"a", 5), None);
    mark(&hot, b"a", 5, &at(1, 64));
    assert_eq!(place(&hot, b"a", 5), Some(ValuePlace::of(&at(1, 64))));
    // The commit is numbered and not visible; then visible; then read.
    hot.touch(ONE, b"a", SeqNum(7), Some(&at(2, 0)));
    assert_eq!((place(&hot, b"a", 6), place(&hot, b"a", 7)), (None, None));
    mark(&hot, b"a", 6, &at(1, 64));
    assert_eq!(place(&hot, b"a", 7), None, "found before");
    mark(&hot, b"a", 7, &at(2, 0));
    assert_eq!(place(&hot, b"a", 7), Some(ValuePlace::of(&at(2, 0))));
    assert_eq!(place(&hot, b"a", 6), None, "a snapshot before the commit");
    hot.touch(ONE, b"a", SeqNum(8), None);
    assert_eq!(place(&hot, b"a", 8), None);
}

#[test]
fn other_keys_of_a_bucket_stay_sure() {
    let hot = opened(1, 0);
    let keys: Vec<[u8; 4]> = (0..20_000u32).map(u32::to_le_bytes).collect();
    let of = |key: &[u8]| hot.bucket(ONE, key).unwrap().0;
    let first = &keys[0];
    let neighbour = keys[1..]
        .iter()
        .find(|key| std::ptr::eq(of(*key), of(first)));
    let neighbour = neighbour.unwrap();
    mark(&hot, first, 0, &at(1, 8));
    mark(&hot, neighbour, 0, &at(1, 16));
    hot.touch(ONE, first, SeqNum(1), None);
    assert_eq!(place(&hot, neighbour, 0), None, "the commit is not visible");
    let there = place(&hot, neighbour, 1);
    assert_eq!(there, Some(ValuePlace::of(&at(1, 16))));
}

#[test]
fn a_closed_table_has_no_sure_place_and_opens_after_many_reads() {
    let hot = opened(1, 0);
    mark(&hot, b"a", 0, &at(1, 64));
    hot.close();
    assert!(hot.is_closed() && place(&hot, b"a", 9).is_none());
    let ask = || hot.open(SegmentId(1), || Some(SeqNum(9)));
    (1..hot.buckets.len()).for_each(|_| ask());
    assert!(hot.is_closed());
    hot.open(SegmentId(1), || None);
    assert!(hot.is_closed(), "the newest number was not known");
    ask();
    assert!(!hot.is_closed() && place(&hot, b"a", 9).is_none());
    mark(&hot, b"a", 8, &at(1, 64));
    assert_eq!(place(&hot, b"a", 9), None, "found before");
    mark(&hot, b"a", 9, &at(1, 64));
    assert!(place(&hot, b"a", 9).is_some());
    // A segment number with other high bits closes the table, which then opens for those.
    let far = at((1 << 20) + 1, 64);
    mark(&hot, b"b", 9, &far);
    assert!(hot.is_closed() && place(&hot, b"b", 9).is_none());
    (0..hot.buckets.len()).for_each(|_| hot.open(far.segment, || Some(SeqNum(9))));
    assert!(!hot.is_closed());
    for key in [b"a", b"b"] {
        assert_eq!(place(&hot, key, 10), None);
    }
    mark(&hot, b"b", 10, &far);
    assert_eq!(place(&hot, b"b", 10), Some(ValuePlace::of(&far)));
    mark(&hot, b"a", 10, &at(1, 64));
    assert_eq!(
        place(&hot, b"a", 10),
        None,
        "a segment of the earlier high bits"
    );
}

#[test]
fn a_sure_place_follows_a_value_that_moves() {
    let hot = opened(1, 0);
    let moved = |seqno, from, to| {
        let look = hot.look(ONE, b"a").unwrap();
        let ((segment, offset), (to, at_there)) = (from, to);
        look.moved(SeqNum(seqno), &at(segment, offset), &at(to, at_there));
    };
    moved(0, (1, 64), (2, 0));
    assert_eq!(place(&hot, b"a", 9), None, "nothing was known");
    mark(&hot, b"a", 0, &at(1, 64));
    moved(0, (1, 72), (2, 0));
    assert_eq!(place(&hot, b"a", 0), Some(ValuePlace::of(&at(1, 64))));
    moved(0, (1, 64), (2, 0));
    assert_eq!(place(&hot, b"a", 0), Some(ValuePlace::of(&at(2, 0))));
    // A hint stays a hint.
    assert!(hot.touch(ONE, b"a", SeqNum(1), Some(&at(3, 8))));
    moved(0, (3, 8), (4, 0));
    moved(1, (2, 0), (4, 0));
    moved(1, (3, 8), (4, 8));
    assert_eq!(place(&hot, b"a", 1), None);
    assert!(hot.touch(ONE, b"a", SeqNum(2), None));
    // A place in a segment whose number has other high bits does not fit the table.
    mark(&hot, b"a", 2, &at(5, 0));
    moved(2, (5, 0), ((1 << 20) + 1, 0));
    assert_eq!(place(&hot, b"a", 2), Some(ValuePlace::of(&at(5, 0))));
}

/// One thread writes keys of few buckets and others read them. A sure place is never older than
/// the commit that the reader knew to be visible before.
#[test]
fn a_sure_place_is_never_older_than_what_is_visible() {
    const WRITES: u64 = 20_000;
    let hot = opened(1, 0);
    let visible = AtomicU64::new(0);
    let newest: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let key = |n: u64| (n % 4).to_le_bytes();
    let cell = |n: u64| &newest[usize::try_from(n % 4).unwrap()];
    let pointer = |seqno: u64| at(1, u32::try_from(seqno).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seqno in 1..=WRITES {
                hot.touch(ONE, &key(seqno), SeqNum(seqno), Some(&pointer(seqno)));
                cell(seqno).store(seqno, Ordering::SeqCst);
                visible.store(seqno, Ordering::SeqCst);
            }
        });
        for reader in 0..3 {
            let (hot, visible) = (&hot, &visible);
            scope.spawn(move || {
                let (mut n, mut sure) = (reader, 0);
                while visible.load(Ordering::SeqCst) < WRITES || sure == 0 {
                    n += 1;
                    let known = visible.load(Ordering::SeqCst);
                    let known = (known.saturating_sub(3)..=known).find(|seqno| seqno % 4 == n % 4);
                    let now = SeqNum(visible.load(Ordering::SeqCst));
                    let look = hot.look(ONE, &key(n)).unwrap();
                    match look.place(now) {
                        Some(ValuePlace(_, offset)) => {
                            assert!(u64::from(offset) >= known.unwrap_or(0));
                            sure += 1;
                        }
                        _ => {
                            let now = SeqNum(visible.load(Ordering::SeqCst));
                            // The value may be of a commit that is not visible at `now`. Then
                            // the bucket was told.
                            let found = cell(n).load(Ordering::SeqCst);
                            hot.mark(&look, now, &pointer(found));
                        }
                    }
                }
            });
        }
    });
}
