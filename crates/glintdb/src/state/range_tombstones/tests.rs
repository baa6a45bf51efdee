//! Sets of range tombstones agree with all of their tombstones, at every commit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn newest_at(set: &RangeSet, key: &[u8], at: SeqNum) -> Option<SeqNum> {
    set.newest_covering(key, at, SeqNum::ZERO)
}

fn tombstone(start: &[u8], end: Option<&[u8]>, seqno: u64) -> RangeTombstone {
    RangeTombstone {
        start: Bytes::copy_from_slice(start),
        end: end.map(Bytes::copy_from_slice),
        seqno: SeqNum(seqno),
    }
}

#[test]
fn lookups_respect_bounds_and_read_points() {
    let set = Arc::new(RangeSet::new(None));
    set.insert(tombstone(b"b", Some(b"d"), 5));
    set.insert(tombstone(b"c", None, 9));
    assert_eq!(newest_at(&set, b"a", SeqNum::MAX), None);
    assert_eq!(newest_at(&set, b"b", SeqNum::MAX), Some(SeqNum(5)));
    assert_eq!(newest_at(&set, b"c", SeqNum(8)), Some(SeqNum(5)));
    assert_eq!(newest_at(&set, b"d", SeqNum(8)), None);
    assert_eq!(newest_at(&set, b"z", SeqNum::MAX), Some(SeqNum(9)));
    let newer = |lower, upper, since| set.newer_meeting(lower, upper, SeqNum(since));
    let (all, b) = (Bound::Unbounded, &b"b"[..]);
    assert_eq!(newer(all, Bound::Excluded(b), 0), None);
    assert_eq!(newer(all, Bound::Included(b), 0), Some(SeqNum(5)));
    assert_eq!(newer(all, Bound::Included(b), 5), None);
    assert_eq!(newer(Bound::Excluded(b"c"), all, 5), Some(SeqNum(9)));
    assert_eq!(newer(Bound::Included(b), Bound::Excluded(b), 0), None);
}

#[test]
fn deletions_of_a_growing_prefix_leave_one_fragment() {
    let set = Arc::new(RangeSet::new(None));
    for seqno in 1..=5000_u64 {
        set.insert(tombstone(b"", Some(&seqno.to_be_bytes()), seqno));
    }
    let key = 77_u64.to_be_bytes();
    assert_eq!(
        set.fragments(),
        [tombstone(b"", Some(&5000_u64.to_be_bytes()), 5000)]
    );
    // A reader of the past sees the deletions of its time.
    for at in [1, 76, 77, 78, 79, 1000, 4999] {
        let expected = (at > 77).then_some(SeqNum(at));
        assert_eq!(newest_at(&set, &key, SeqNum(at)), expected);
    }
}

#[test]
fn memory_counts_as_memory_of_the_arena() {
    let arena = Arena::new(glintdb_memtable::ChunkPool::new(0));
    let set = RangeSet::new(Some(Arc::clone(&arena)));
    for n in 0..1000_u64 {
        set.insert(tombstone(
            &(2 * n).to_be_bytes(),
            Some(&(2 * n + 1).to_be_bytes()),
            n + 1,
        ));
    }
    let newest_only = arena.filled_bytes();
    assert!(newest_only > 1000 * 2 * (8 + size_of::<Bytes>()));
    // Fragments for readers of the past count too.
    assert_eq!(newest_at(&set, &1998_u64.to_be_bytes(), SeqNum(999)), None);
    assert!(arena.filled_bytes() > newest_only);
    assert_eq!(arena.allocated_bytes(), arena.filled_bytes());
}

/// Neighbouring keys are found in the same range, others are not.
#[test]
fn cursors_tell_whether_keys_are_in_the_same_range() {
    let set = Arc::new(RangeSet::new(None));
    for n in 0..1000_u64 {
        let (start, end) = ((4 * n).to_be_bytes(), (4 * n + 2).to_be_bytes());
        set.insert(tombstone(&start, Some(&end), n + 1));
    }
    let mut cursor = RangeCursor::new(&set, SeqNum::MAX);
    let mut last = None;
    for key in (0..4000_u64).chain((0..4000).rev()) {
        let covering = cursor.seek(&key.to_be_bytes());
        let n = key / 4;
        assert_eq!(covering, SeqNum(if key % 4 < 2 { n + 1 } else { 0 }));
        let range = (covering > SeqNum::ZERO).then_some((n, cursor.moves()));
        if let (Some((other, moves)), Some((n, now))) = (last, range) {
            assert_eq!(moves == now, n == other, "key {key}");
        }
        last = range.or(last);
    }
}

/// What a cursor has found for its commit stays so beside later insertions, which change chunks
/// that the cursor has.
#[test]
fn cursors_are_not_disturbed_by_later_tombstones() {
    let set = Arc::new(RangeSet::new(None));
    for n in 0..500_u64 {
        let (start, end) = ((4 * n).to_be_bytes(), (4 * n + 2).to_be_bytes());
        set.insert(tombstone(&start, Some(&end), n + 1));
    }
    let mut cursor = RangeCursor::new(&set, SeqNum(500));
    for key in 0..2000_u64 {
        let n = key / 4;
        let expected = SeqNum(if key % 4 < 2 { n + 1 } else { 0 });
        assert_eq!(cursor.seek(&key.to_be_bytes()), expected, "key {key}");
        let (start, end) = ((key + 1).to_be_bytes(), (key + 3).to_be_bytes());
        set.insert(tombstone(&start, Some(&end), 501 + key));
        // A start with another prefix, after which all heads are others.
        if key == 1000 {
            set.insert(tombstone(b"x", None, 501 + key));
        }
        assert_eq!(cursor.seek(&key.to_be_bytes()), expected, "key {key}");
    }
}

proptest! {
    #[test]
    fn prop_a_set_agrees_with_all_of_its_tombstones(
        raw in proptest::collection::vec((0u8..40, proptest::option::of(0u8..42)), 0..700),
        swaps in proptest::collection::vec((0usize..700, 1usize..30), 0..40),
        reads in proptest::collection::vec((0u8..44, 0u64..720), 1..60),
    ) {
        let seqnos = 1..;
        let mut tombstones: Vec<_> = raw.iter().zip(seqnos)
            .map(|((start, end), seqno)| tombstone(&[*start], end.as_ref().map(std::slice::from_ref), seqno))
            .collect();
        // Commits insert their tombstones nearly in order.
        for (at, ahead) in swaps {
            if at + ahead < tombstones.len() {
                tombstones.swap(at, at + ahead);
            }
        }
        let set = Arc::new(RangeSet::new(None));
        for tombstone in &tombstones {
            set.insert(tombstone.clone());
        }
        let newest = |key: &[u8], at: SeqNum| {
            let seen = tombstones.iter().filter(|t| t.seqno <= at && t.covers(key));
            seen.map(|t| t.seqno).max()
        };
        let read_points: Vec<_> = reads.iter().map(|(_, at)| SeqNum(*at)).take(4).collect();
        for at in read_points {
            let deleted: Vec<_> = (0u8..44).map(|key| newest(&[key], at)).collect();
            // Up, down, and in the order of the reads.
            let keys = (0u8..44).chain((0u8..44).rev()).chain(reads.iter().map(|(key, _)| *key));
            let mut cursor = RangeCursor::new(&set, at);
            for key in keys {
                let found = cursor.seek(&[key]);
                prop_assert_eq!(found, deleted[usize::from(key)].unwrap_or(SeqNum::ZERO));
                if found > SeqNum::ZERO {
                    let range = cursor.range().unwrap();
                    prop_assert!(range.covers(&[key]));
                    let covered = (0u8..44).filter(|key| range.covers(&[*key]));
                    for key in covered {
                        prop_assert_eq!(deleted[usize::from(key)], Some(found));
                    }
                }
            }
        }
        for (key, at) in reads {
            let (key, at) = ([key], SeqNum(at));
            prop_assert_eq!(newest_at(&set, &key, at), newest(&key, at));
            let newer = set.newer_meeting(Bound::Unbounded, Bound::Included(&key), at);
            let meets = |t: &RangeTombstone| t.start.as_ref() <= &key[..] && t.end.as_ref() != Some(&t.start);
            if let Some(newer) = newer {
                prop_assert!(tombstones.iter().any(|t| t.seqno == newer && newer > at && meets(t)));
            } else {
                let any = (0..=key[0]).any(|key| newest(&[key], SeqNum::MAX) > Some(at));
                prop_assert!(!any);
            }
        }
        let fragments = set.fragments();
        for pair in fragments.windows(2) {
            prop_assert!(pair[0].end.as_ref().unwrap() <= &pair[1].start);
        }
        for key in 0u8..44 {
            let of_fragments = fragments.iter().find(|t| t.covers(&[key])).map(|t| t.seqno);
            prop_assert_eq!(of_fragments, newest(&[key], SeqNum::MAX));
        }
    }

    #[test]
    fn prop_many_narrow_ranges_are_found(
        raw in proptest::collection::vec((0u16..4000, 1u16..12), 0..1500),
        wide in proptest::collection::vec((0u16..4000, 1u16..2500), 0..6),
        odd in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..9), 0..4),
    ) {
        let key = |n: u16| format!("shared/{n:05}").into_bytes();
        let mut tombstones: Vec<RangeTombstone> = Vec::new();
        let narrow = raw.iter().map(|&(from, len)| (key(from), Some(key(from + len))));
        let wide = wide.iter().map(|&(from, len)| (key(from), Some(key(from + len))));
        let odd = odd.iter().map(|start| (start.clone(), Some(start.iter().copied().chain([7]).collect())));
        for ((start, end), seqno) in narrow.chain(wide).chain(odd).zip(1..) {
            tombstones.push(tombstone(&start, end.as_deref(), seqno));
        }
        // Wide ranges and odd keys come between the others.
        tombstones.sort_by_key(|tombstone| tombstone.seqno.0 % 251);
        for (tombstone, seqno) in tombstones.iter_mut().zip(1..) {
            tombstone.seqno = SeqNum(seqno);
        }
        let set = Arc::new(RangeSet::new(None));
        for tombstone in &tombstones {
            set.insert(tombstone.clone());
        }
        let fragments = set.fragments();
        for pair in fragments.windows(2) {
            prop_assert!(pair[0].end.as_ref().unwrap() <= &pair[1].start);
        }
        let mut cursor = RangeCursor::new(&set, SeqNum::MAX);
        let ends = tombstones.iter().flat_map(|t| [Some(t.start.clone()), t.end.clone()]).flatten();
        for key in ends.step_by(7) {
            let newest = tombstones.iter().filter(|t| t.covers(&key)).map(|t| t.seqno).max();
            prop_assert_eq!(newest_at(&set, &key, SeqNum::MAX), newest);
            prop_assert_eq!(cursor.seek(&key), newest.unwrap_or(SeqNum::ZERO));
            prop_assert!(newest.is_none() || cursor.range().unwrap().covers(&key));
            let of_fragments = fragments.iter().find(|t| t.covers(&key)).map(|t| t.seqno);
            prop_assert_eq!(of_fragments, newest);
            let meets = tombstones.iter().any(|t| t.start <= key);
            let newer = set.newer_meeting(Bound::Unbounded, Bound::Included(&key), SeqNum::ZERO);
            prop_assert_eq!(newer.is_some(), meets);
        }
    }
}
