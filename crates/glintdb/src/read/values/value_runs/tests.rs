//! Tests of ranges: a scan finds what it wants and nothing else, whatever was overwritten, moved or left out.

use super::*;
use glintdb_core::{KeyspaceId, ValuePointer};

fn at(n: u32) -> Wanted {
    written(n, n)
}

/// The value that was written as the `n`th one, for a key.
fn written(key: u32, n: u32) -> Wanted {
    let pointer = ValuePointer {
        segment: SegmentId(u64::from(n / 1000) + (1 << 30)),
        offset: n % 1000 * 64,
        length: n % 50 + 1,
        checksum: n,
    };
    Wanted::new(KeyspaceId(1), &key.to_be_bytes(), pointer)
}

fn value(wanted: &Wanted) -> Bytes {
    let byte = wanted.pointer.checksum.to_le_bytes()[0];
    vec![byte; wanted.len()].into()
}

/// A scan of values that are all cached; how many were in no range.
fn scan(ranges: &ValueRuns, cache: &Cache, pointers: &[Wanted]) -> usize {
    let (mut values, others) = ranges.find(cache, pointers);
    for &other in &others {
        values.set(other, Ok(value(&pointers[other])));
    }
    for (number, pointer) in pointers.iter().enumerate() {
        let found = values.get(number).and_then(Result::ok);
        assert_eq!(found, Some(&*value(pointer)));
    }
    ranges.keep(cache, pointers, &values, &others);
    for (number, pointer) in pointers.iter().enumerate() {
        assert_eq!(values.take(number), value(pointer));
    }
    others.len()
}

#[test]
fn what_was_scanned_once_is_found_together_wherever_a_scan_begins() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..2000).map(at).collect();
    assert_eq!(scan(&ranges, &cache, &all), all.len());
    // Of what is before the first beginning and behind the last, nobody knows where it ends.
    assert!(scan(&ranges, &cache, &all) < 120);
    let entries = cache.stats().entries;
    assert!((2000 / 12..2000 / 6).contains(&entries), "{entries}");
    let mut alone = 0;
    for start in 100..1800 {
        alone += scan(&ranges, &cache, &all[start..start + 50]);
    }
    // Hints share their places with others, and few ranges are longer than they may be.
    assert!(alone < 1700 * 50 / 20, "{alone}");
    let before = cache.stats().hits;
    scan(&ranges, &cache, &all[500..550]);
    let lookups = cache.stats().hits - before;
    assert!((3..16).contains(&lookups), "{lookups}");
}

/// Whatever keys look like, about one in eight begins a range, and few are far from one.
#[test]
fn ranges_begin_as_often_whatever_the_keys() {
    let keys: [&dyn Fn(u32) -> Vec<u8>; 4] = [
        &|n| n.to_be_bytes().into(),
        &|n| (u64::from(n) << 40).to_le_bytes().into(),
        &|n| format!("user{n:020}").into_bytes(),
        &|n| vec![7; 10 + n as usize % 4000],
    ];
    for (kind, key) in (0..).zip(keys) {
        let hashes =
            (0..8000).map(|n| crate::read::values::key_hash::first_hash(KeyspaceId(kind), &key(n)));
        let (mut begun, mut far, mut since) = (0, 0, 0);
        for begins in hashes.map(|hash| begun_by(hash).is_some()) {
            begun += usize::from(begins);
            since = if begins { 0 } else { since + 1 };
            far += usize::from(since >= RANGE_MAX);
        }
        assert!((800..1200).contains(&begun), "{kind}: {begun}");
        assert!(far < 160, "{kind}: {far}");
    }
}

/// Every key is overwritten, one in eight of them one with which a range begins: the others stay in it.
#[test]
fn a_range_is_found_by_its_first_key_whose_value_is_another_one() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    scan(&ranges, &cache, &all);
    let before = scan(&ranges, &cache, &all);
    let mut now = all.clone();
    let mut overwritten = 0;
    for (n, one) in now.iter_mut().enumerate() {
        if begun_by(one.key.0).is_some() {
            *one = written(u32::try_from(n).unwrap(), 5000 + overwritten);
            overwritten += 1;
        }
    }
    let after = scan(&ranges, &cache, &now);
    assert!(after <= before + overwritten as usize, "{before} {after}");
    // As long as most of it is as it was.
    assert!(overwritten > 80 && scan(&ranges, &cache, &all) < 200);
}

#[test]
fn what_was_overwritten_deleted_or_put_in_between_is_told_apart_and_learnt() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    let mut now = all.clone();
    scan(&ranges, &cache, &now);
    let first = scan(&ranges, &cache, &now);
    // One in four, and of others one in twenty.
    for (new, n) in (5000..).zip((0..1000).step_by(4)) {
        now[n] = written(u32::try_from(n).unwrap(), new);
    }
    for (new, n) in (7000..).zip((10..900).rev().step_by(20)) {
        now.remove(n);
        now.insert(n / 2, at(new));
    }
    let changed = scan(&ranges, &cache, &now);
    assert!(changed > first && changed < 500, "{changed}");
    for _ in 0..2 * REPLACES_EVERY {
        assert!(scan(&ranges, &cache, &now) <= changed);
    }
    let learnt = scan(&ranges, &cache, &now);
    assert!(
        learnt < changed / 2,
        "{learnt} of {changed}, {first} at first"
    );
    // Nothing is left as it was: everything is looked up, and then known again.
    let other: Vec<_> = (20_000..21_000).map(at).collect();
    assert_eq!(scan(&ranges, &cache, &other), 1000);
    assert!(scan(&ranges, &cache, &other) < 100);
}

/// Of values that were cached one by one each is cached once when scans have come by, wherever they began and ended, and found.
#[test]
fn values_leave_their_places_for_ranges_and_come_back() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    let insert = |wanted: &Wanted| drop(cache.insert(wanted.cache_key(), &[&value(wanted)]));
    all.iter().for_each(insert);
    let alone = |wanted: &&Wanted| cache.contains(&wanted.cache_key());
    let check = |there: &[Wanted], found: &dyn Fn(usize) -> bool| {
        for pointer in there {
            let within = ranges.get(pointer, |range| cache.peek(range));
            assert!(
                within
                    .as_ref()
                    .is_none_or(|within| *within == value(pointer))
            );
            assert!(within.is_some() || alone(&pointer), "{pointer:?} is lost");
        }
        let alone = there.iter().filter(alone).count();
        assert!(found(alone), "{alone} are cached by themselves");
    };
    check(&all, &|alone| alone == 1000);
    scan(&ranges, &cache, &all);
    check(&all, &|alone| alone < 100);
    // One in three is overwritten, and some of those begin ranges.
    let mut now = all.clone();
    for (new, n) in (5000..).zip((0..1000).step_by(3)) {
        now[n] = written(u32::try_from(n).unwrap(), new);
        insert(&now[n]);
    }
    for start in (0..950).chain(0..950) {
        scan(&ranges, &cache, &now[start..start + start % 43 + 6]);
        check(&now, &|_| true);
    }
    for wanted in &now {
        ranges.dissolve(&cache, wanted);
        let alone = cache.peek(&wanted.cache_key());
        assert_eq!(alone, Some(value(wanted)));
        assert_eq!(ranges.get(wanted, |range| cache.peek(range)), None);
    }
}

#[test]
fn what_is_read_together_is_kept_in_ranges_at_once() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    let mut in_ranges = 0;
    for batch in all.chunks(50) {
        let read: Vec<_> = batch.iter().map(|pointer| Ok(value(pointer))).collect();
        let kept = ranges.keep_read(&cache, batch, &read);
        for (pointer, kept) in batch.iter().zip(kept) {
            let within = ranges.get(pointer, |range| cache.peek(range));
            assert_eq!(within, kept.then(|| value(pointer)));
            assert!(!cache.contains(&pointer.cache_key()));
            in_ranges += usize::from(kept);
        }
    }
    assert!(in_ranges > 700, "{in_ranges} are in ranges");
    // What could not be read keeps its range from being made, and no other.
    let mut read: Vec<_> = all.iter().map(|pointer| Ok(value(pointer))).collect();
    read[500] = Err(crate::Error::new(crate::ErrorKind::Io, "not read"));
    let kept = ValueRuns::new(true, 8 << 20).keep_read(&Cache::new(8 << 20), &all, &read);
    assert!(!kept[500] && kept.iter().filter(|kept| **kept).count() > 700);
}

#[test]
fn values_lie_in_order_where_few_steps_lead_elsewhere() {
    let mut pointers: Vec<_> = (0..50).map(at).collect();
    assert!(lie_in_order(&pointers));
    pointers[10] = at(7000);
    assert!(lie_in_order(&pointers));
    pointers
        .iter_mut()
        .step_by(4)
        .for_each(|one| *one = at(7000));
    assert!(!lie_in_order(&pointers));
    pointers.reverse();
    assert!(!lie_in_order(&pointers));
}

#[test]
fn nothing_is_kept_that_is_not_wanted_or_for_which_there_is_no_room() {
    let all: Vec<_> = (0..1000).map(at).collect();
    for (wanted, bytes) in [(false, 8 << 20), (true, 4096)] {
        let (ranges, cache) = (ValueRuns::new(wanted, 8 << 20), Cache::new(bytes));
        for _ in 0..3 {
            scan(&ranges, &cache, &all);
        }
        assert!(!wanted || cache.stats().entries < 20);
        assert_eq!(ranges.bytes() == 0, !wanted);
    }
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    for n in 0..997 {
        scan(&ranges, &cache, &all[n..n + 3]);
    }
    assert_eq!(cache.stats().entries, 0, "short scans are not worth it");
}

/// A round moves what a range has of a key that was written again since, which is hot: what is cached of it stays.
#[test]
fn a_range_that_goes_takes_nothing_newer_with_it() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    scan(&ranges, &cache, &all);
    let newer: Vec<_> = (0..1000).map(|n| written(n, 5000 + n)).collect();
    for one in &newer {
        cache.put(one.cache_key(), &[&value(one)]);
    }
    let moved = all.iter().filter(|one| ranges.dissolve(&cache, one));
    assert!(moved.count() > 80);
    assert!(newer.iter().all(|one| cache.contains(&one.cache_key())));
}

/// Values were cached one by one, and overwritten while nobody was told; a scan has read the new ones together.
#[test]
fn values_of_a_range_that_goes_take_the_places_of_those_before_them() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    for one in (0..1000).map(at) {
        cache.put(one.cache_key(), &[&value(&one)]);
    }
    let now: Vec<_> = (0..1000).map(|n| written(n, 5000 + n)).collect();
    for batch in now.chunks(50) {
        let read: Vec<_> = batch.iter().map(|one| Ok(value(one))).collect();
        ranges.keep_read(&cache, batch, &read);
    }
    let there = |one: &&Wanted| {
        let within = ranges.get(one, |range| cache.peek(range));
        within.is_some() || cache.contains(&one.cache_key())
    };
    let before = now.iter().filter(there).count();
    for one in now.iter().step_by(8) {
        ranges.dissolve(&cache, one);
    }
    let after = now.iter().filter(there).count();
    assert!(before > 700 && after == before, "{after} of {before}");
}

/// All that ranges have was deleted or overwritten, but for the keys that they begin with, and those are too far apart for ranges.
#[test]
fn a_range_of_which_nothing_is_wanted_goes() {
    let (ranges, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(1 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    scan(&ranges, &cache, &all);
    let names: Vec<u64> = all.iter().filter_map(|one| begun_by(one.key.0)).collect();
    let there = || (names.iter()).filter(|name| cache.contains(&CacheKey::Range(**name)));
    assert!(there().count() > 80);
    let first = |n: &u32| begun_by(at(*n).key.0).is_some();
    let now: Vec<_> = (0..1000)
        .filter(first)
        .map(|n| written(n, 5000 + n))
        .collect();
    scan(&ranges, &cache, &now);
    assert_eq!(there().count(), 0);
}
