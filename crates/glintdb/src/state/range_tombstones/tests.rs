//! Sets of range tombstones agree with all of their tombstones, at every commit.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn tombstone(start: &[u8], end: Option<&[u8]>, seqno: u64) -> RangeTombstone {
    RangeTombstone {
        start: Bytes::copy_from_slice(start),
        end: end.map(Bytes::copy_from_slice),
        seqno: SeqNum(seqno),
    }
}

#[test]
fn lookups_respect_bounds_and_read_points() {
    let set = RangeSet::new(None);
    set.insert(tombstone(b"b", Some(b"d"), 5));
    set.insert(tombstone(b"c", None, 9));
    assert_eq!(set.newest_covering(b"a", SeqNum::MAX), None);
    assert_eq!(set.newest_covering(b"b", SeqNum::MAX), Some(SeqNum(5)));
    assert_eq!(set.newest_covering(b"c", SeqNum(8)), Some(SeqNum(5)));
    assert_eq!(set.newest_covering(b"d", SeqNum(8)), None);
    assert_eq!(set.newest_covering(b"z", SeqNum::MAX), Some(SeqNum(9)));
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
    let set = RangeSet::new(None);
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
        assert_eq!(set.newest_covering(&key, SeqNum(at)), expected);
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
    assert_eq!(
        set.newest_covering(&1998_u64.to_be_bytes(), SeqNum(999)),
        None
    );
    assert!(arena.filled_bytes() > newest_only);
    assert_eq!(arena.allocated_bytes(), arena.filled_bytes());
}

proptest! {
    #[test]
    fn prop_a_set_agrees_with_all_of_its_tombstones(
        raw in proptest::collection::vec((0u8..40, proptest::option::of(0u8..42)), 0..700),
        swaps in proptest::collection::vec((0usize..700, 1usize..30), 0..40),
        reads in proptest::collection::vec((0u8..44, 0u64..720), 1..60),
        count in 1usize..20,
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
        let set = RangeSet::new(None);
        for tombstone in &tombstones {
            set.insert(tombstone.clone());
        }
        let newest = |key: &[u8], at: SeqNum| {
            let seen = tombstones.iter().filter(|t| t.seqno <= at && t.covers(key));
            seen.map(|t| t.seqno).max()
        };
        for (key, at) in reads {
            let (key, at) = ([key], SeqNum(at));
            prop_assert_eq!(set.newest_covering(&key, at), newest(&key, at));
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut ranges = VecDeque::new();
                set.ranges_from(&key, direction, at, count, &mut ranges);
                prop_assert!(ranges.len() <= count && ranges[0].covers(&key));
                for range in &ranges {
                    for key in 0u8..44 {
                        if range.covers(&[key]) {
                            prop_assert_eq!(newest(&[key], at).unwrap_or(SeqNum::ZERO), range.seqno);
                        }
                    }
                }
                let neighbours = ranges.iter().zip(ranges.iter().skip(1));
                for (one, next) in neighbours {
                    let (low, high) = match direction {
                        Direction::Forward => (one, next),
                        Direction::Reverse => (next, one),
                    };
                    prop_assert_eq!(low.end.as_ref(), Some(&high.start));
                }
            }
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
        let set = RangeSet::new(None);
        for tombstone in &tombstones {
            set.insert(tombstone.clone());
        }
        let fragments = set.fragments();
        for pair in fragments.windows(2) {
            prop_assert!(pair[0].end.as_ref().unwrap() <= &pair[1].start);
        }
        let ends = tombstones.iter().flat_map(|t| [Some(t.start.clone()), t.end.clone()]).flatten();
        for key in ends.step_by(7) {
            let newest = tombstones.iter().filter(|t| t.covers(&key)).map(|t| t.seqno).max();
            prop_assert_eq!(set.newest_covering(&key, SeqNum::MAX), newest);
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut ranges = VecDeque::new();
                set.ranges_from(&key, direction, SeqNum::MAX, 20, &mut ranges);
                prop_assert!(ranges[0].covers(&key));
                prop_assert_eq!(ranges[0].seqno, newest.unwrap_or(SeqNum::ZERO));
                for range in ranges {
                    let newest = tombstones.iter().filter(|t| t.covers(&range.start)).map(|t| t.seqno).max();
                    prop_assert_eq!(range.seqno, newest.unwrap_or(SeqNum::ZERO));
                }
            }
            let of_fragments = fragments.iter().find(|t| t.covers(&key)).map(|t| t.seqno);
            prop_assert_eq!(of_fragments, newest);
            let meets = tombstones.iter().any(|t| t.start <= key);
            let newer = set.newer_meeting(Bound::Unbounded, Bound::Included(&key), SeqNum::ZERO);
            prop_assert_eq!(newer.is_some(), meets);
        }
    }
}
