//! Tests of the cache: what is asked for is what is found, within the capacity.

use super::*;
use glintdb_core::{FileId, FileKind, SegmentId};
use std::hash::BuildHasher;

fn block(number: u64, offset: u64) -> CacheKey {
    CacheKey::Block(FileId::new(FileKind::Table, number), offset)
}

/// Of key `n`, the value that was written to a segment.
fn value(n: u32, segment: u64) -> CacheKey {
    CacheKey::Value(hash(n), ValuePlace(SegmentId(segment), n * 8))
}

fn hash(n: u32) -> KeyHash {
    KeyHash(n.into(), u64::from(n) + 1)
}

#[test]
fn hit_gives_the_bytes_and_is_counted_miss_too() {
    let cache = Cache::new(1 << 20);
    let value = value(512, 1);
    assert_eq!(cache.get(&value), None);
    let kept = cache.insert(value, &[b"value"]);
    assert_eq!(cache.get(&value).unwrap().as_ptr(), kept.as_ptr());
    assert_eq!(cache.get(&block(1, 4096)), None, "another kind of place");
    assert_eq!(cache.get_there(&block(1, 4096)), None, "not counted");
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (1, 2, 1));
    let alone = Slabs::bytes_of(5, true);
    assert_eq!(cache.used_bytes(), alone + ENTRY_OVERHEAD_BYTES);
    assert_eq!(cache.remove(&value), Some(kept));
    assert!(!cache.contains(&value) && cache.used_bytes() == 0);
}

#[test]
fn what_moves_is_cached_where_it_stands_now() {
    let cache = Cache::new(1 << 20);
    let (old, new) = (value(1, 1), value(1, 2));
    let moved = || cache.moved(&hash(1), old.place(), new.place());
    assert!(!moved());
    let kept = cache.insert(old, &[b"value"]);
    let used = cache.used_bytes();
    assert!(moved() && !moved());
    assert_eq!(cache.get(&new).unwrap().as_ptr(), kept.as_ptr());
    assert!(!cache.contains(&old) && cache.used_bytes() == used);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (1, 0), "moves are no lookups");
}

#[test]
fn of_a_key_one_value_is_cached_and_no_other_is_taken_for_it() {
    let cache = Cache::new(1 << 20);
    let (old, new) = (value(1, 1), value(1, 2));
    cache.insert(old, &[b"old"]);
    cache.insert(new, &[b"new"]);
    assert_eq!(cache.get(&new).as_deref(), Some(&b"new"[..]));
    assert_eq!((cache.get(&old), cache.peek(&old)), (None, None));
    assert_eq!((cache.get_there(&old), cache.remove(&old)), (None, None));
    let mut there = Vec::new();
    cache.get_each_there([old, new].into_iter(), |found| there.push(found.is_some()));
    cache.get_each([old, new].into_iter(), |found| there.push(found.is_some()));
    assert_eq!(there, [false, true, false, true]);
    // Who brings back what was there before, where nobody wants it any more.
    cache.insert_new(old, &[b"old"]);
    assert!(cache.contains(&new) && cache.stats().entries == 1);
    cache.forget(&hash(1));
    cache.insert_new(old, &[b"old"]);
    assert!(cache.contains(&old) && cache.stats().entries == 1);
}

#[test]
fn whose_a_value_is_is_told_by_who_has_its_place_from_an_index() {
    let cache = Cache::new(1 << 20);
    let place = value(1, 1).place();
    let of = |whose| CacheKey::Value(KeyHash(1, whose), place);
    cache.insert(of(KeyHash::UNKNOWN), &[b"value"]);
    assert_eq!(cache.get_there(&of(2)), None);
    assert_eq!(
        cache.get(&of(KeyHash::UNKNOWN)).as_deref(),
        Some(&b"value"[..])
    );
    assert_eq!(cache.get_there(&of(2)), None);
    assert_eq!(cache.get(&of(2)).as_deref(), Some(&b"value"[..]));
    assert_eq!(cache.get_there(&of(2)).as_deref(), Some(&b"value"[..]));
    // A key with the same first hash.
    assert_eq!(cache.get_there(&of(3)), None);
    assert_eq!(cache.stats().entries, 1);
}

#[test]
fn what_is_new_takes_the_place_of_what_it_hides() {
    let cache = Cache::new(4 << 20);
    let write = |segment: u64| {
        let byte = segment.to_le_bytes()[0];
        (0..2048).for_each(|n| drop(cache.insert(value(n, segment), &[&[byte; 1000]])));
    };
    write(0);
    let before = cache.stats();
    (1..20).for_each(write);
    // Nothing hidden is left, and so nothing else had to go.
    assert_eq!(cache.stats().used_bytes, before.used_bytes);
    assert!((0..2048).all(|n| cache.get(&value(n, 19)).is_some_and(|value| value[0] == 19)));
}

/// Of a full cache everything moves, as rounds of value GC do it: what was there stays.
#[test]
fn what_moves_stays_in_a_full_cache() {
    let cache = Cache::new(4 << 20);
    (0..8192).for_each(|n| drop(cache.insert(value(n, 1), &[&[0; 1000]])));
    let before = cache.stats();
    let place = |n, segment| value(n, segment).place();
    let moved = (0..8192).filter(|&n| cache.moved(&hash(n), place(n, 1), place(n, 2)));
    assert_eq!(moved.count() as u64, before.entries);
    assert!((0..8192).all(|n| !cache.contains(&value(n, 1))));
    assert_eq!(cache.stats(), before);
}

#[test]
fn what_is_kept_does_not_hold_the_buffer_it_came_from() {
    let pool = glintdb_flash::BufferPool::new(0);
    let read = pool.take(4096).unwrap().into_bytes();
    let cache = Cache::new(1 << 20);
    let kept = cache.insert(block(1, 0), &[&read.slice(100..200)]);
    drop(read);
    assert_eq!((pool.used_bytes(), kept.len()), (0, 100));
}

#[test]
fn many_are_looked_up_as_one_is() {
    let cache = Cache::new(1 << 20);
    let value = |n| value(n, 1);
    for n in (0..200).filter(|n| n % 3 > 0) {
        cache.insert(value(n), &[&n.to_le_bytes()]);
    }
    for count in [0, 1, 31, 32, 33, 64, 200] {
        let mut found = Vec::new();
        cache.get_each((0..count).map(value), |bytes| found.push(bytes));
        let one_by_one: Vec<_> = (0..count).map(|n| cache.get(&value(n))).collect();
        assert_eq!(found, one_by_one);
    }
    let stats = cache.stats();
    let looked_up = 2 * (1 + 31 + 32 + 33 + 64 + 200);
    assert_eq!(stats.hits + stats.misses, looked_up);
    assert_eq!(
        stats.misses,
        2 * [0, 1, 11, 11, 11, 22, 67].iter().sum::<u64>()
    );
}

#[test]
fn capacity_holds_and_can_change() {
    let cache = Cache::new(4 << 20);
    for offset in 0..4096 {
        cache.insert(block(1, offset * 4096), &[&[0; 4096]]);
        assert!(cache.used_bytes() <= 4 << 20);
    }
    assert!(cache.used_bytes() > 3 << 20);
    cache.set_capacity_bytes(1 << 20);
    assert!(cache.used_bytes() <= 1 << 20 && cache.capacity_bytes() <= (1 << 20) + 64);
    cache.set_capacity_bytes(0);
    cache.insert(block(2, 0), &[b"x"]);
    assert_eq!(cache.stats().entries, 0);
}

/// What is resident is what is counted: slabs, with what is free in them.
#[test]
fn capacity_holds_whatever_the_sizes_and_most_of_it_is_used() {
    const CAPACITY: usize = 80 << 20;
    let cache = Cache::new(CAPACITY);
    let mut number = 0_u32;
    for lengths in [
        1000..1001,
        60..64,
        4000..4001,
        1..3000,
        60_000..60_001,
        100..1000,
    ] {
        let mut inserted = 0;
        while inserted < 2 * CAPACITY {
            let length = lengths.start + number as usize % lengths.len();
            cache.insert(block(u64::from(number), 0), &[&vec![0; length]]);
            inserted += length;
            number += 1;
            assert!(cache.used_bytes() <= CAPACITY + SLAB_BYTES, "{number}");
        }
        let stats = cache.stats();
        let filled: usize = (0..number)
            .filter_map(|number| cache.peek(&block(u64::from(number), 0)))
            .map(|bytes| bytes.len() + size_of::<Slot>() + ENTRY_OVERHEAD_BYTES)
            .sum();
        assert!(filled * 10 > CAPACITY * 8, "{lengths:?} {filled} {stats:?}");
    }
    cache.set_capacity_bytes(0);
    assert_eq!((cache.stats().entries, cache.used_bytes()), (0, 0));
}

/// Entries that are asked for again and again, in no order, and cached where they are not; so each slab has some of those that leave.
fn use_at_random(cache: &Cache, length: usize, times: u64) {
    let before = cache.stats();
    for step in before.hits + before.misses..before.hits + before.misses + times {
        let random = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Squared: some more often than others.
        let key = block((random * random) >> 46, 0);
        if cache.get(&key).is_none() {
            cache.insert(key, &[&vec![0; length]]);
        }
    }
}

#[test]
fn a_capacity_that_goes_up_and_down_is_held_and_used() {
    let cache = Cache::new(160 << 20);
    use_at_random(&cache, 1000, 600_000);
    let used = |least: usize, most: usize| {
        let (entries, used) = (cache.counted().entries, cache.used_bytes());
        assert!(
            least << 20 < entries && used <= most << 20,
            "{entries} {used}"
        );
    };
    used(150, 160);
    for _ in 0..20 {
        // Said again and again, as the engine does.
        (0..5).for_each(|_| cache.set_capacity_bytes(120 << 20));
        use_at_random(&cache, 1000, 20_000);
        used(110, 120);
        (0..5).for_each(|_| cache.set_capacity_bytes(140 << 20));
        use_at_random(&cache, 1000, 60_000);
    }
    used(125, 140);
    // Of another size; and so small that slabs are no more made.
    use_at_random(&cache, 3000, 400_000);
    used(125, 140);
    cache.set_capacity_bytes(20 << 20);
    use_at_random(&cache, 500, 100_000);
    used(10, 20);
    cache.set_capacity_bytes(140 << 20);
    use_at_random(&cache, 60_000, 200_000);
    used(115, 140);
}

/// What callers keep of each slab does not keep others from being cached.
#[test]
fn what_callers_hold_counts_and_stops_nothing() {
    let cache = Cache::new(80 << 20);
    let insert = |n: u32| cache.insert(block(u64::from(n), 0), &[&[1; 1000]]);
    let held: Vec<Bytes> = (0..200_000).map(insert).step_by(100).collect();
    cache.set_capacity_bytes(72 << 20);
    let kept = |n: u32| {
        insert(n);
        assert!(cache.contains(&block(u64::from(n), 0)), "{n}");
    };
    (200_000..400_000).for_each(kept);
    assert!(cache.counted().entries > 66 << 20 && cache.used_bytes() <= 80 << 20);
    assert!(held.iter().all(|bytes| **bytes == [1; 1000]));
    // Of another size, for which slabs that callers keep from going would have to go.
    for n in 0..20_000 {
        cache.insert(block(n, 1), &[&[1; 3000]]);
        assert!(cache.contains(&block(n, 1)));
    }
    assert!(cache.counted().entries > 60 << 20);
    // Far more than the capacity, held by callers: half of it is the cache's all the same.
    let more: Vec<Bytes> = (400_000..600_000).map(insert).collect();
    (600_000..700_000).for_each(kept);
    assert!(cache.counted().entries > 30 << 20);
    drop((held, more));
    cache.set_capacity_bytes(72 << 20);
    (700_000..900_000).for_each(kept);
    assert!(cache.counted().entries > 66 << 20 && cache.used_bytes() <= 72 << 20);
}

/// Nobody is given what another put there, whatever moves meanwhile; what the cache has counts to the end.
#[test]
fn threads_cache_move_and_forget_while_the_capacity_changes() {
    const KEYS: u32 = 60_000;
    let at = |segment, n| value(n, segment);
    let value = |segment: u64, n: u32| {
        let length = 100 + (u64::from(n) * 7 + segment * 600) % 2000;
        let byte = n.to_le_bytes()[0] ^ segment.to_le_bytes()[0];
        vec![byte; usize::try_from(length).unwrap()]
    };
    let cache = Cache::new(80 << 20);
    let kept = std::thread::scope(|scope| {
        let work = |thread: u32| {
            let cache = &cache;
            move || {
                let mut kept = Vec::new();
                for step in 0..200_000_u32 {
                    let n = step.wrapping_mul(0x9e37_79b9).wrapping_add(thread) % KEYS;
                    let segment = u64::from(step / 50_000);
                    let found = cache.get(&at(segment, n));
                    assert!(
                        found
                            .as_ref()
                            .is_none_or(|found| *found == value(segment, n))
                    );
                    match step % 16 {
                        0 => cache.insert_new(at(segment, n), &[&value(segment, n)]),
                        1 => drop(cache.remove(&at(segment, n))),
                        // To where the same bytes stand, but for what others do.
                        4 => drop(cache.moved(
                            &hash(n),
                            at(segment, n).place(),
                            at(segment, n).place(),
                        )),
                        2 if step % 20_000 == 2 => {
                            cache.set_capacity_bytes((50 + step as usize % 30) << 20);
                        }
                        3 if step % 50 == 3 => kept.extend(found.map(|it| (segment, n, it))),
                        _ => drop(cache.insert(at(segment, n), &[&value(segment, n)])),
                    }
                }
                kept
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        let joined = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        joined.collect::<Vec<_>>()
    });
    cache.set_capacity_bytes(0);
    assert_eq!(cache.stats().entries, 0);
    assert!(cache.used_bytes() > 0 && !kept.is_empty());
    for (segment, n, it) in &kept {
        assert!(*it == value(*segment, *n));
    }
    drop(kept);
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn hashes_of_neighbouring_blocks_spread() {
    // 64 shards and 64 tags' worth of buckets, from the top and the bottom of the hash: none may stay empty or take four times its share.
    for shift in [0, 26, 58] {
        let mut buckets = [0_u32; 64];
        for number in 0..16 {
            for index in 0..256 {
                let hash = Mixer.hash_one(block(number, index * 4096));
                buckets[usize::try_from((hash >> shift) % 64).unwrap()] += 1;
            }
        }
        assert!(
            buckets.iter().all(|&count| (16..256).contains(&count)),
            "{buckets:?}"
        );
    }
}

/// Values come in three sizes, and then in three others, for what is there and for what is not: hardly a cell of what was there before may stay unused.
#[test]
fn values_of_changing_sizes_are_cached_as_they_are_written() {
    let cache = Cache::new(64 << 20);
    for turn in 0..6u32 {
        for n in 0..10_000u32 {
            let bytes = vec![7; 2048 << ((n + turn * 7) % 3)];
            cache.offer(value(n, u64::from(turn) + 1), &bytes, cache.room_bytes());
        }
        let kept = (0..10_000).filter(|&n| cache.contains(&value(n, u64::from(turn) + 1)));
        let bytes: usize = kept.map(|n| 2048 << ((n + turn * 7) % 3)).sum();
        assert!(cache.used_bytes() <= cache.capacity_bytes());
        assert!(bytes * 2 > cache.capacity_bytes(), "{turn}: {bytes}");
    }
}

/// In small caches, whose entries come from the allocator, and in those with slabs. A cache is divided, and one part is full before others are: so of what was offered a little goes.
#[test]
fn hardly_anything_goes_for_what_nobody_has_asked_for() {
    for capacity in [2 << 20, 64 << 20] {
        let cache = Cache::new(capacity);
        let bytes = vec![7; capacity / 2048];
        let asked_for = (0..512).map(|n| value(n, 1));
        for key in asked_for.clone() {
            cache.put(key, &[&bytes]);
            assert!(cache.get(&key).is_some());
        }
        let mut offered = Vec::new();
        for n in 512..4000 {
            let room = cache.room_bytes();
            let taken = cache.offer(value(n, 1), &bytes, room);
            assert!(taken <= room);
            if taken > 0 {
                offered.push(n);
            }
        }
        let there = |n: &u32| cache.place_of(&hash(*n)).is_some();
        let kept: Vec<u32> = offered.iter().copied().filter(there).collect();
        let part = kept.len() as f64 / 2048.0;
        assert!((0.5..0.65).contains(&part), "{capacity}: {part}");
        assert!(kept.len() * 100 > offered.len() * 95, "{capacity}");
        assert!(asked_for.clone().all(|key| cache.contains(&key)));
        // What takes another's place needs no room.
        for &n in &kept {
            assert_eq!(cache.offer(value(n, 2), &bytes, 0), 0);
            assert_eq!(cache.place_of(&hash(n)), Some(value(n, 2).place()));
        }
        // What is larger needs some, and where there is none the other one, which is dead, goes.
        let (larger, key) = (vec![8; 3 * bytes.len()], value(kept[0], 3));
        assert_eq!(cache.offer(key, &larger, 0), 0);
        assert_eq!(cache.place_of(&hash(kept[0])), None);
        let taken = cache.offer(value(kept[1], 3), &larger, larger.len());
        assert!(
            (2 * bytes.len()..3 * bytes.len()).contains(&taken),
            "{taken}"
        );
        assert_eq!(cache.peek(&value(kept[1], 3)).as_deref(), Some(&larger[..]));
        assert_eq!(cache.offer(value(kept[1], 3), &larger, 0), 0, "it is there");
        assert!(cache.contains(&value(kept[1], 3)));
        assert!(asked_for.clone().all(|key| cache.contains(&key)));
        assert!(cache.used_bytes() <= cache.capacity_bytes());
        assert_eq!(cache.place_of(&hash(4000)), None);
    }
}
