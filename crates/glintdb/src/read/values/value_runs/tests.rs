//! Tests of value runs: a scan finds the values that it asks for and no others, whatever was
//! overwritten, moved or left out.

use super::*;
use glintdb_core::{KeyspaceId, ValuePointer};

fn at(n: u32) -> Wanted {
    written(n, n)
}

/// Returns the value of a key that was the `n`th write.
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

/// Scans values that are all cached. Returns how many were in no run.
fn scan(runs: &ValueRuns, cache: &Cache, pointers: &[Wanted]) -> usize {
    let (mut values, others) = runs.find(cache, pointers);
    for &other in &others {
        values.set(other, Ok(value(&pointers[other])));
    }
    for (number, pointer) in pointers.iter().enumerate() {
        let found = values.get(number).and_then(Result::ok);
        assert_eq!(found, Some(&*value(pointer)));
    }
    runs.keep(cache, pointers, &values, &others);
    for (number, pointer) in pointers.iter().enumerate() {
        assert_eq!(values.take(number), value(pointer));
    }
    others.len()
}

#[test]
fn values_are_found_in_runs_wherever_a_scan_begins() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..2000).map(at).collect();
    assert_eq!(scan(&runs, &cache, &all), all.len());
    // The values before the first begin of a run, and those behind the last, are in no run.
    assert!(scan(&runs, &cache, &all) < 120);
    let entries = cache.stats().entries;
    assert!((2000 / 12..2000 / 6).contains(&entries), "{entries}");
    let mut alone = 0;
    for start in 100..1800 {
        alone += scan(&runs, &cache, &all[start..start + 50]);
    }
    // Some hints replace others, and a few runs are cut at their largest length.
    assert!(alone < 1700 * 50 / 20, "{alone}");
    let before = cache.stats().hits;
    scan(&runs, &cache, &all[500..550]);
    let lookups = cache.stats().hits - before;
    assert!((3..16).contains(&lookups), "{lookups}");
}

/// Whatever keys look like, about one in eight begins a run, and few are far behind one.
#[test]
fn runs_begin_equally_often_for_all_kinds_of_keys() {
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
            far += usize::from(since >= RUN_MAX);
        }
        assert!((800..1200).contains(&begun), "{kind}: {begun}");
        assert!(far < 160, "{kind}: {far}");
    }
}

/// Every key with which a run begins is overwritten. The other values stay in their runs.
#[test]
fn a_run_is_found_after_the_value_of_its_first_key_has_changed() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    scan(&runs, &cache, &all);
    let before = scan(&runs, &cache, &all);
    let mut now = all.clone();
    let mut overwritten = 0;
    for (n, one) in now.iter_mut().enumerate() {
        if begun_by(one.key.0).is_some() {
            *one = written(u32::try_from(n).unwrap(), 5000 + overwritten);
            overwritten += 1;
        }
    }
    let after = scan(&runs, &cache, &now);
    assert!(after <= before + overwritten as usize, "{before} {after}");
    // The run stays while most of its values are current.
    assert!(overwritten > 80 && scan(&runs, &cache, &all) < 200);
}

#[test]
fn overwritten_deleted_and_inserted_keys_are_told_apart_and_learnt() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    let mut now = all.clone();
    scan(&runs, &cache, &now);
    let first = scan(&runs, &cache, &now);
    // Overwrites one key in four, and moves one in twenty.
    for (new, n) in (5000..).zip((0..1000).step_by(4)) {
        now[n] = written(u32::try_from(n).unwrap(), new);
    }
    for (new, n) in (7000..).zip((10..900).rev().step_by(20)) {
        now.remove(n);
        now.insert(n / 2, at(new));
    }
    let changed = scan(&runs, &cache, &now);
    assert!(changed > first && changed < 500, "{changed}");
    for _ in 0..2 * REPLACES_EVERY {
        assert!(scan(&runs, &cache, &now) <= changed);
    }
    let learnt = scan(&runs, &cache, &now);
    assert!(
        learnt < changed / 2,
        "{learnt} of {changed}, {first} at first"
    );
    // No value is left: each is looked up once, and then in runs again.
    let other: Vec<_> = (20_000..21_000).map(at).collect();
    assert_eq!(scan(&runs, &cache, &other), 1000);
    assert!(scan(&runs, &cache, &other) < 100);
}

/// Values that were cached one by one are cached once each after scans over any part of them, and
/// are found.
#[test]
fn values_are_cached_in_runs_and_by_themselves_again() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    let insert = |wanted: &Wanted| drop(cache.insert(wanted.cache_key(), &[&value(wanted)]));
    all.iter().for_each(insert);
    let alone = |wanted: &&Wanted| cache.contains(&wanted.cache_key());
    let check = |there: &[Wanted], found: &dyn Fn(usize) -> bool| {
        for pointer in there {
            let within = runs.get(pointer, |run| cache.peek(run));
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
    scan(&runs, &cache, &all);
    check(&all, &|alone| alone < 100);
    // Overwrites one key in three, some of which begin runs.
    let mut now = all.clone();
    for (new, n) in (5000..).zip((0..1000).step_by(3)) {
        now[n] = written(u32::try_from(n).unwrap(), new);
        insert(&now[n]);
    }
    for start in (0..950).chain(0..950) {
        scan(&runs, &cache, &now[start..start + start % 43 + 6]);
        check(&now, &|_| true);
    }
    for wanted in &now {
        runs.dissolve(&cache, wanted);
        let alone = cache.peek(&wanted.cache_key());
        assert_eq!(alone, Some(value(wanted)));
        assert_eq!(runs.get(wanted, |run| cache.peek(run)), None);
    }
}

#[test]
fn values_that_are_read_together_are_cached_in_runs_at_once() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    let mut in_runs = 0;
    for batch in all.chunks(50) {
        let read: Vec<_> = batch.iter().map(|pointer| Ok(value(pointer))).collect();
        let kept = runs.keep_read(&cache, batch, &read);
        for (pointer, kept) in batch.iter().zip(kept) {
            let within = runs.get(pointer, |run| cache.peek(run));
            assert_eq!(within, kept.then(|| value(pointer)));
            assert!(!cache.contains(&pointer.cache_key()));
            in_runs += usize::from(kept);
        }
    }
    assert!(in_runs > 700, "{in_runs} are in runs");
    // A value that could not be read prevents its own run, and no other.
    let mut read: Vec<_> = all.iter().map(|pointer| Ok(value(pointer))).collect();
    read[500] = Err(crate::Error::new(crate::ErrorKind::Io, "not read"));
    let kept = ValueRuns::new(true, 8 << 20).keep_read(&Cache::new(8 << 20), &all, &read);
    assert!(!kept[500] && kept.iter().filter(|kept| **kept).count() > 700);
}

#[test]
fn values_are_in_order_if_under_an_eighth_of_neighbours_are_far_apart() {
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
fn no_run_is_cached_without_the_option_or_without_room() {
    let all: Vec<_> = (0..1000).map(at).collect();
    for (wanted, bytes) in [(false, 8 << 20), (true, 4096)] {
        let (runs, cache) = (ValueRuns::new(wanted, 8 << 20), Cache::new(bytes));
        for _ in 0..3 {
            scan(&runs, &cache, &all);
        }
        assert!(!wanted || cache.stats().entries < 20);
        assert_eq!(runs.bytes() == 0, !wanted);
    }
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    for n in 0..997 {
        scan(&runs, &cache, &all[n..n + 3]);
    }
    assert_eq!(cache.stats().entries, 0, "short scans are not worth it");
}

/// Value GC moves a value of a run whose key was written again and is hot. The newer cached value
/// stays.
#[test]
fn a_run_that_goes_leaves_newer_values_cached() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    scan(&runs, &cache, &all);
    let newer: Vec<_> = (0..1000).map(|n| written(n, 5000 + n)).collect();
    for one in &newer {
        cache.put(one.cache_key(), &[&value(one)]);
    }
    let moved = all.iter().filter(|one| runs.dissolve(&cache, one));
    assert!(moved.count() > 80);
    assert!(newer.iter().all(|one| cache.contains(&one.cache_key())));
}

/// Values were cached one by one and then overwritten. A scan reads the new ones together. When
/// their runs go, they replace the old values.
#[test]
fn values_of_a_run_that_goes_replace_older_cached_values() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(8 << 20));
    for one in (0..1000).map(at) {
        cache.put(one.cache_key(), &[&value(&one)]);
    }
    let now: Vec<_> = (0..1000).map(|n| written(n, 5000 + n)).collect();
    for batch in now.chunks(50) {
        let read: Vec<_> = batch.iter().map(|one| Ok(value(one))).collect();
        runs.keep_read(&cache, batch, &read);
    }
    let there = |one: &&Wanted| {
        let within = runs.get(one, |run| cache.peek(run));
        within.is_some() || cache.contains(&one.cache_key())
    };
    let before = now.iter().filter(there).count();
    for one in now.iter().step_by(8) {
        runs.dissolve(&cache, one);
    }
    let after = now.iter().filter(there).count();
    assert!(before > 700 && after == before, "{after} of {before}");
}

/// All keys of runs were deleted or overwritten, except those that begin runs, which are too far
/// apart for new runs.
#[test]
fn a_run_without_wanted_values_goes() {
    let (runs, cache) = (ValueRuns::new(true, 8 << 20), Cache::new(1 << 20));
    let all: Vec<_> = (0..1000).map(at).collect();
    scan(&runs, &cache, &all);
    let names: Vec<u64> = all.iter().filter_map(|one| begun_by(one.key.0)).collect();
    let there = || (names.iter()).filter(|name| cache.contains(&CacheKey::Range(**name)));
    assert!(there().count() > 80);
    let first = |n: &u32| begun_by(at(*n).key.0).is_some();
    let now: Vec<_> = (0..1000)
        .filter(first)
        .map(|n| written(n, 5000 + n))
        .collect();
    scan(&runs, &cache, &now);
    assert_eq!(there().count(), 0);
}
