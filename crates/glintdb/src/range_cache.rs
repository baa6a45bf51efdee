//! Values that scans come by one after the other, kept together: one lookup and one place in memory for about eight of them.
//!
//! The cache has values one by one, by where they stand in the log, so a scan waits for several lines of memory a value. Where scans find all values of a *range* in the cache, they are cached together instead
//! ([`CacheKey::Range`]): first who they are, then the values, in key order. A range begins at a value whose place has a hash that says so, one in [`RANGE_TYPICAL`], and goes on to the next such value: two scans
//! that come by the same values agree on their ranges, whatever sources they come from.
//!
//! A scan that begins within a range, and a get, ask a table of hints which it is; a value of which there is no room for a hint stays cached by itself. What a get finds in a range is cached by itself too, from then on.
//!
//! What a place holds never changes, so a range is never wrong: it gives the values of the pointers that it names and of no others. Where keys were overwritten since, the others are looked up one by one, and the range is made
//! anew when they are many.
//!
//! Thread safety: any thread; a hint that is wrong costs a lookup.

use crate::Result;
use crate::place_word::{SEGMENT_BITS, TAG_SHIFT, place, tag, word};
use crate::record::Owner;
use bytes::Bytes;
use foldhash::quality::FixedState;
use glintdb_core::{SegmentId, ValuePointer};
use glintdb_flash::{Cache, CacheKey};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Values of a range on average, and at most: hardly any would have more.
const RANGE_TYPICAL: u64 = 8;
const RANGE_MAX: usize = 48;
/// Bytes of a range's values at most, and of one of them on average: where they are large, finding them is little of what they cost.
const RANGE_BYTES_MAX: usize = 48 << 10;
const VALUE_BYTES_MAX: usize = 4 << 10;
/// Of the cache's capacity: what must be free for ranges to be made of values most of which stay cached one by one, and what a range takes at most. The cache is divided, and its parts are not equally full.
const ROOM_PART: usize = 64;
const RANGE_PART: usize = 256;
/// One batch in so many replaces ranges that do not fit any more.
const REPLACES_EVERY: u64 = 8;
/// Bytes of what a range has before its values, and of who each of them is.
const HEAD_BYTES: usize = 8;
const MEMBER_BYTES: usize = 16;
/// Bytes of the budget for each hint, and hints at most.
const BYTES_A_HINT: usize = 512;
const HINTS_MAX: usize = 1 << 22;
/// Hints of values with the same low bits in their hash.
const WAYS: usize = 4;
/// A range is made where more than this part of its values are in none.
const STALE_PART: usize = 4;
/// Members among which it looks for the next value, and values at the beginning of a scan that may say which range it is in: keys in between may have been overwritten or deleted.
const LOOK_PAST: usize = 4;
/// Values lie in order where less than this part of them lie further apart than so many bytes.
const APART_PART: usize = 8;
const GAP_MAX: u32 = 4096;
/// A scan of fewer values looks for them one by one.
const SCAN_MIN: usize = 4;

/// Values of a batch, in its order.
#[derive(Default)]
pub(crate) struct Values {
    values: Vec<Value>,
    /// Ranges that some of them lie in.
    ranges: Vec<Bytes>,
}

enum Value {
    /// Or why it could not be read.
    Own(Result<Bytes>),
    /// In one of the ranges.
    Within(usize, Range<usize>),
}

impl Values {
    pub(crate) fn get(&self, at: usize) -> Option<Result<&[u8]>> {
        Some(match self.values.get(at)? {
            Value::Own(Ok(value)) => Ok(value),
            Value::Own(Err(error)) => Err(error.clone()),
            Value::Within(range, place) => Ok(&self.ranges[*range][place.clone()]),
        })
    }

    /// The value, for whoever keeps it: of a range a copy, for nobody should hold a dozen values for one.
    pub(crate) fn take(&mut self, at: usize) -> Bytes {
        match &mut self.values[at] {
            Value::Own(value) => std::mem::replace(value, Ok(Bytes::new())).unwrap_or_default(),
            Value::Within(range, place) => {
                Bytes::copy_from_slice(&self.ranges[*range][place.clone()])
            }
        }
    }

    /// Puts a part of what others are parts of too in the place of a value that was not found before: whoever keeps it gets a copy.
    pub(crate) fn set_shared(&mut self, at: usize, value: Result<Bytes>) {
        self.values[at] = match value {
            Ok(value) => {
                self.ranges.push(value);
                let number = self.ranges.len() - 1;
                Value::Within(number, 0..self.ranges[number].len())
            }
            Err(error) => Value::Own(Err(error)),
        };
    }

    /// Puts a value in the place of one that was not found before.
    pub(crate) fn set(&mut self, at: usize, value: Result<Bytes>) {
        self.values[at] = Value::Own(value);
    }

    /// To the order of a scan that goes the other way.
    pub(crate) fn reverse(&mut self) {
        self.values.reverse();
    }
}

impl FromIterator<Result<Bytes>> for Values {
    fn from_iter<T: IntoIterator<Item = Result<Bytes>>>(values: T) -> Self {
        Values {
            values: values.into_iter().map(Value::Own).collect(),
            ranges: Vec::new(),
        }
    }
}

/// See the module's page.
pub(crate) struct RangeCache {
    /// By a hash of a value's place: where the first value of its range stands. Empty: ranges are not wanted.
    hints: Box<[[AtomicU64; WAYS]]>,
    /// There may be some.
    any: AtomicBool,
    /// Batches that were looked up. Of this database alone: what it does must not depend on what its threads did in others.
    batches: AtomicU64,
}

/// The values of a range from one on: who each is (see [`identity`]), and where in the range it is.
#[derive(Clone)]
struct Members<'a> {
    /// Heads of those that come.
    heads: &'a [u8],
    /// Where the next value is.
    at: usize,
}

impl<'a> Members<'a> {
    fn new(range: &'a [u8]) -> Option<Members<'a>> {
        let (count, rest) = range.split_first_chunk::<HEAD_BYTES>()?;
        let bytes = usize::try_from(u64::from_le_bytes(*count)).ok()? * MEMBER_BYTES;
        Some(Members {
            heads: rest.get(..bytes)?,
            at: HEAD_BYTES + bytes,
        })
    }

    /// Where a value is, if it is one of the next `look`; they go on behind it then.
    #[inline]
    fn find(&mut self, wanted: &[u8; 12], look: usize) -> Option<Range<usize>> {
        let mut members = self.clone();
        let mut before = None;
        for (identity, place) in members.by_ref().take(look) {
            if identity == wanted {
                *self = members;
                return Some(before.unwrap_or(place));
            }
            if glintdb_core::seeded::bug(
                "glintdb: a range gives the value before the one that is asked for",
            ) {
                before = Some(place);
            }
        }
        None
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8; 12], Range<usize>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (head, heads) = self.heads.split_first_chunk::<MEMBER_BYTES>()?;
        let (identity, length) = head.split_first_chunk::<12>()?;
        let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
        let place = self.at..self.at + length;
        (self.heads, self.at) = (heads, place.end);
        Some((identity, place))
    }
}

/// Whether values that are beside one another in key order lie so in the log, but for a few: they are read in one piece.
fn lie_in_order(pointers: &[ValuePointer]) -> bool {
    let apart = |two: &&[ValuePointer]| match two {
        [one, next] => one.gap_before(next).is_none_or(|gap| gap > GAP_MAX),
        _ => false,
    };
    pointers.windows(2).filter(apart).count() * APART_PART < pointers.len()
}

/// The ranges that begin among `pointers`: the key of each, and the numbers of its members. The last one may be longer; then it is made anew by a scan that goes on.
fn ranges(pointers: &[ValuePointer]) -> impl Iterator<Item = (CacheKey, Range<usize>)> {
    let begin = pointers.iter().enumerate();
    let mut begin = begin
        .filter_map(|(number, pointer)| Some((number, begun_by(pointer)?)))
        .peekable();
    std::iter::from_fn(move || {
        let (first, key) = begin.next()?;
        let end = begin.peek().map_or(pointers.len(), |(number, _)| *number);
        Some((key, first..end.min(first + RANGE_MAX)))
    })
}

/// Whether these are worth a range, and there may be one as large in a cache of that capacity.
fn fits(members: &[ValuePointer], capacity_bytes: impl FnOnce() -> usize) -> bool {
    let bytes: usize = members.iter().map(|member| member.length as usize).sum();
    members.len() > 1
        && bytes <= RANGE_BYTES_MAX.min(members.len() * VALUE_BYTES_MAX)
        && bytes <= capacity_bytes() / RANGE_PART
}

/// What a member is known by: segment and offset of its value.
fn identity(pointer: &ValuePointer) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&pointer.segment.0.to_le_bytes());
    bytes[8..].copy_from_slice(&pointer.offset.to_le_bytes());
    bytes
}

/// Where a member is cached by itself.
fn place_alone(identity: &[u8; 12]) -> Option<CacheKey> {
    let (segment, offset) = identity.split_first_chunk()?;
    let segment = SegmentId(u64::from_le_bytes(*segment));
    let offset = u32::from_le_bytes(*offset.first_chunk()?);
    Some(CacheKey::Value(segment, offset))
}

/// Where a range has the value at `pointer`, if it does.
fn within(range: &[u8], pointer: &ValuePointer) -> Option<Range<usize>> {
    Members::new(range)?.find(&identity(pointer), RANGE_MAX)
}

/// A range is cached no more, and its values one by one again, `but` those. Whether it was.
fn break_up(cache: &Cache, range: &CacheKey, but: &[ValuePointer]) -> bool {
    let Some(range) = cache.remove(range) else {
        return false;
    };
    for (who, place) in Members::new(&range).into_iter().flatten() {
        if let Some(alone) = place_alone(who)
            && !but.iter().any(|but| CacheKey::of(but) == alone)
            && let Some(value) = range.get(place)
            && !cache.contains(&alone)
        {
            Owner::unknown().record(value, |parts| cache.insert(alone, parts));
        }
    }
    true
}

impl RangeCache {
    /// For a budget of so many bytes; `wanted`: else there are none.
    pub(crate) fn new(wanted: bool, budget_bytes: usize) -> RangeCache {
        let hints = (budget_bytes / BYTES_A_HINT).min(HINTS_MAX);
        let buckets = match wanted {
            true => (hints / WAYS).next_power_of_two(),
            false => 0,
        };
        RangeCache {
            hints: (0..buckets).map(|_| Default::default()).collect(),
            any: AtomicBool::new(false),
            batches: AtomicU64::new(0),
        }
    }

    fn serves(&self, pointers: &[ValuePointer]) -> bool {
        !self.hints.is_empty() && pointers.len() >= SCAN_MIN
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.hints)
    }

    /// The values at `pointers`, which are beside one another in key order, that ranges have; the numbers of the others.
    pub(crate) fn find(&self, cache: &Cache, pointers: &[ValuePointer]) -> (Values, Vec<usize>) {
        let mut values = Vec::with_capacity(pointers.len());
        let nothing = || Value::Own(Ok(Bytes::new()));
        let mut ranges = Vec::new();
        self.batches.fetch_add(1, Ordering::Relaxed);
        if !self.serves(pointers) {
            values.resize_with(pointers.len(), nothing);
            return (Values { values, ranges }, (0..pointers.len()).collect());
        }
        // A scan comes by the range that it begins in, and by those that begin while it goes on.
        let first = (pointers.iter().take(LOOK_PAST))
            .take_while(|pointer| begun_by(pointer).is_none())
            .find_map(|pointer| self.hinted(pointer));
        let keys: Vec<CacheKey> = (first.into_iter())
            .chain(pointers.iter().filter_map(begun_by))
            .collect();
        cache.get_each_if(keys.iter().copied(), |range| {
            let there = range.is_some();
            ranges.extend(range);
            there
        });
        let mut coming = (ranges.iter().enumerate())
            .filter_map(|(range, bytes)| Some((range, Members::new(bytes)?)));
        let mut now = coming.next();
        let mut next = coming.next();
        let mut others = Vec::new();
        for (number, pointer) in pointers.iter().enumerate() {
            let wanted = identity(pointer);
            // Into the next range, where it begins.
            if let Some((range, members)) = &mut next
                && let Some(place) = members.find(&wanted, 1)
            {
                values.push(Value::Within(*range, place));
                (now, next) = (next, coming.next());
                continue;
            }
            let look = match number < LOOK_PAST {
                true => RANGE_MAX,
                false => LOOK_PAST,
            };
            let found = (now.as_mut())
                .and_then(|(range, members)| Some((*range, members.find(&wanted, look)?)));
            values.push(match found {
                Some((range, place)) => Value::Within(range, place),
                None => {
                    others.push(number);
                    nothing()
                }
            });
        }
        (Values { values, ranges }, others)
    }

    /// The value at `pointer`, if a range has it: a part of that. `cached` looks for the range.
    pub(crate) fn get(
        &self,
        pointer: &ValuePointer,
        cached: impl FnOnce(&CacheKey) -> Option<Bytes>,
    ) -> Option<Bytes> {
        let range = cached(&self.range_with(pointer)?)?;
        let place = within(&range, pointer)?;
        Some(range.slice(place))
    }

    /// Keeps the ranges of `values`, all of which were cached one by one or in ranges, where many are among the `others`, which were in none.
    pub(crate) fn keep(
        &self,
        cache: &Cache,
        pointers: &[ValuePointer],
        values: &Values,
        others: &[usize],
    ) {
        if !self.serves(pointers) {
            return;
        }
        let batch = self.batches.load(Ordering::Relaxed);
        let replaces = batch.is_multiple_of(REPLACES_EVERY);
        let mut room = None;
        for (key, numbers) in ranges(pointers) {
            let first = numbers.start;
            let lacking = others.partition_point(|other| *other < numbers.end)
                - others.partition_point(|other| *other < first);
            let members = &pointers[numbers];
            let fits = || fits(members, || cache.capacity_bytes());
            if lacking * STALE_PART <= members.len() || !fits() {
                continue;
            }
            // Snapshots and the present would take turns.
            if !replaces && cache.contains(&key) {
                continue;
            }
            let room = *room.get_or_insert_with(|| {
                let capacity = cache.capacity_bytes();
                capacity.saturating_sub(cache.used_bytes()) > capacity / ROOM_PART
            });
            // Where it takes the place of its values there may be no hints for them, and nobody remembers that.
            if room || replaces {
                let kept = |at| values.get(first + at);
                self.keep_range(cache, key, members, kept, room, Cache::insert_seen);
            }
        }
    }

    /// Whether it takes values that are not cached as soon as they are read: they are few bytes each, and were read in one piece.
    pub(crate) fn take_read(&self, pointers: &[ValuePointer]) -> bool {
        let bytes: usize = pointers.iter().map(|member| member.length as usize).sum();
        self.serves(pointers) && bytes <= pointers.len() * VALUE_BYTES_MAX && lie_in_order(pointers)
    }

    /// Keeps the ranges of such values; which of them are in one now.
    pub(crate) fn keep_read(
        &self,
        cache: &Cache,
        pointers: &[ValuePointer],
        values: &[Result<Bytes>],
    ) -> Vec<bool> {
        let mut kept = vec![false; values.len()];
        let capacity = cache.capacity_bytes();
        for (key, numbers) in ranges(pointers) {
            let (first, members) = (numbers.start, &pointers[numbers.clone()]);
            if fits(members, || capacity) {
                let value = |at: usize| match values.get(first + at) {
                    Some(Ok(value)) => Some(Result::Ok(value.as_ref())),
                    _ => None,
                };
                let insert = |cache: &Cache, key, parts: &[&[u8]]| drop(cache.insert(key, parts));
                let is = self.keep_range(cache, key, members, value, false, insert);
                for (at, pointer) in numbers.zip(members) {
                    kept[at] = is && (at == first || self.hinted(pointer) == Some(key));
                }
            }
        }
        kept
    }

    /// Caches a range instead of those of its values that will be found in it. Where the cache has no `room` it takes their place or none.
    fn keep_range<'a>(
        &self,
        cache: &Cache,
        key: CacheKey,
        pointers: &[ValuePointer],
        value: impl Fn(usize) -> Option<Result<&'a [u8]>>,
        room: bool,
        insert: impl FnOnce(&Cache, CacheKey, &[&[u8]]),
    ) -> bool {
        let mut head = Vec::with_capacity(HEAD_BYTES + pointers.len() * MEMBER_BYTES);
        head.extend_from_slice(&(pointers.len() as u64).to_le_bytes());
        for pointer in pointers {
            head.extend_from_slice(&identity(pointer));
            head.extend_from_slice(&pointer.length.to_le_bytes());
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(pointers.len() + 1);
        parts.push(&head);
        for (at, pointer) in pointers.iter().enumerate() {
            match value(at) {
                Some(Ok(value)) if value.len() == pointer.length as usize => parts.push(value),
                _ => return false,
            }
        }
        let Some((first, rest)) = pointers.split_first() else {
            return false;
        };
        let mut hints: Vec<(&AtomicU64, &ValuePointer)> = Vec::with_capacity(rest.len());
        for member in rest {
            let taken = |way: &AtomicU64| hints.iter().any(|(other, _)| std::ptr::eq(*other, way));
            let way = self.place_of_hint(cache, member).filter(|way| !taken(way));
            // A hint has not all of a segment's number.
            if let Some(way) = way
                && range_of(word(hash_of(member), first), member) == key
            {
                hints.push((way, member));
            }
        }
        if !room && (hints.len() + 1) * 2 <= pointers.len() {
            return false;
        }
        self.any.store(true, Ordering::Relaxed);
        cache.remove(&CacheKey::of(first));
        for (hint, member) in hints {
            hint.store(word(hash_of(member), first), Ordering::Relaxed);
            cache.remove(&CacheKey::of(member));
        }
        // A snapshot may ask for what was there, or a scan that goes on.
        break_up(cache, &key, pointers);
        // In the place of what was asked for.
        insert(cache, key, &parts);
        true
    }

    /// The value at `pointer` moves: of the range that has it the values are cached one by one again. Whether there was one.
    pub(crate) fn dissolve(&self, cache: &Cache, pointer: &ValuePointer) -> bool {
        let has_it = |range: &CacheKey| {
            let range = cache.peek(range);
            range.is_some_and(|range| within(&range, pointer).is_some())
        };
        (self.range_with(pointer).filter(has_it)).is_some_and(|range| break_up(cache, &range, &[]))
    }

    /// What was cached at `place` is not looked for there any more: of a range that begins with it the values are cached one by one again, for it would not be found.
    pub(crate) fn forget(&self, cache: &Cache, place: &CacheKey) {
        if let CacheKey::Value(segment, offset) = *place
            && self.any.load(Ordering::Relaxed)
            && let Some(range) = begun_at(segment, offset)
        {
            break_up(cache, &range, &[]);
        }
    }

    fn bucket(&self, hash: u64) -> &[AtomicU64; WAYS] {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the buckets are a power of two: the low bits are what is wanted"
        )]
        let index = hash as usize & (self.hints.len() - 1);
        &self.hints[index]
    }

    /// Where it may be noted in which range a value is: in the place of what was known of it, of nothing, or of one in a range that is not there any more.
    fn place_of_hint(&self, cache: &Cache, pointer: &ValuePointer) -> Option<&AtomicU64> {
        let hash = hash_of(pointer);
        let bucket = self.bucket(hash);
        let known = |way: &&AtomicU64| {
            let hint = way.load(Ordering::Relaxed);
            hint == 0 || hint >> TAG_SHIFT == tag(hash)
        };
        let gone = |way: &&AtomicU64| {
            let hint = way.load(Ordering::Relaxed);
            !cache.contains(&range_of(hint, pointer))
        };
        let way = bucket.iter().find(known);
        way.or_else(|| bucket.iter().find(gone))
    }

    /// The range that has a value, if one does.
    fn range_with(&self, pointer: &ValuePointer) -> Option<CacheKey> {
        match self.any.load(Ordering::Relaxed) {
            true => begun_by(pointer).or_else(|| self.hinted(pointer)),
            false => None,
        }
    }

    /// The range that a value is in, if it seems to be in one and does not begin it.
    fn hinted(&self, pointer: &ValuePointer) -> Option<CacheKey> {
        let hash = hash_of(pointer);
        let hints = self.bucket(hash).iter();
        let mut hints = hints.map(|way| way.load(Ordering::Relaxed));
        let hint = hints.find(|hint| *hint >> TAG_SHIFT == tag(hash))?;
        Some(range_of(hint, pointer))
    }
}

/// The range that a hint names, of a value in about the same segment.
fn range_of(hint: u64, pointer: &ValuePointer) -> CacheKey {
    let (segment, offset) = place(hint, pointer.segment.0 >> SEGMENT_BITS);
    CacheKey::Range(segment, offset)
}

fn hash(segment: SegmentId, offset: u32) -> u64 {
    FixedState::with_seed(0).hash_one((segment.0, offset))
}

fn hash_of(pointer: &ValuePointer) -> u64 {
    hash(pointer.segment, pointer.offset)
}

/// The range that begins at a place, if one does.
fn begun_at(segment: SegmentId, offset: u32) -> Option<CacheKey> {
    let begins = (hash(segment, offset) >> 24).is_multiple_of(RANGE_TYPICAL);
    begins.then_some(CacheKey::Range(segment, offset))
}

/// The range that begins with a value, if one does.
fn begun_by(pointer: &ValuePointer) -> Option<CacheKey> {
    begun_at(pointer.segment, pointer.offset)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record;

    fn at(n: u32) -> ValuePointer {
        ValuePointer {
            segment: SegmentId(u64::from(n / 1000) + (1 << 30)),
            offset: n % 1000 * 64,
            length: n % 50 + 1,
            checksum: n,
        }
    }

    fn value(pointer: &ValuePointer) -> Bytes {
        let byte = pointer.checksum.to_le_bytes()[0];
        vec![byte; pointer.length as usize].into()
    }

    /// A scan of values that are all cached; how many were in no range.
    fn scan(ranges: &RangeCache, cache: &Cache, pointers: &[ValuePointer]) -> usize {
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
        let (ranges, cache) = (RangeCache::new(true, 8 << 20), Cache::new(8 << 20));
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

    /// However far apart values stand, about one in eight begins a range, and few are far from one.
    #[test]
    fn ranges_begin_as_often_whatever_the_distance_of_values() {
        for segment in [1, 7, 1 << 33] {
            for stride in [64, 544, 1040, 1064, 4112] {
                let places = (0..8000).map(|n| begun_at(SegmentId(segment), n * stride));
                let (mut begun, mut far, mut since) = (0, 0, 0);
                for begins in places.map(|range| range.is_some()) {
                    begun += usize::from(begins);
                    since = if begins { 0 } else { since + 1 };
                    far += usize::from(since >= RANGE_MAX);
                }
                assert!((800..1200).contains(&begun), "{segment} {stride}: {begun}");
                assert!(far < 160, "{segment} {stride}: {far}");
            }
        }
    }

    #[test]
    fn what_was_overwritten_deleted_or_put_in_between_is_told_apart_and_learnt() {
        let (ranges, cache) = (RangeCache::new(true, 8 << 20), Cache::new(8 << 20));
        let all: Vec<_> = (0..1000).map(at).collect();
        let mut now = all.clone();
        scan(&ranges, &cache, &now);
        let first = scan(&ranges, &cache, &now);
        // One in twenty each.
        for (new, n) in (5000..).zip((0..1000).step_by(20)) {
            now[n] = at(new);
        }
        for (new, n) in (7000..).zip((10..900).rev().step_by(20)) {
            now.remove(n);
            now.insert(n / 2, at(new));
        }
        let changed = scan(&ranges, &cache, &now);
        assert!(changed > first && changed < 400, "{changed}");
        for _ in 0..2 * REPLACES_EVERY {
            assert!(scan(&ranges, &cache, &now) <= changed);
        }
        assert!(scan(&ranges, &cache, &now) < changed / 2);
        for member in &all {
            ranges.forget(&cache, &CacheKey::of(member));
        }
        assert!(scan(&ranges, &cache, &now) > changed);
        // Nothing is left as it was: everything is looked up, and then known again.
        let other: Vec<_> = (20_000..21_000).map(at).collect();
        assert_eq!(scan(&ranges, &cache, &other), 1000);
        assert!(scan(&ranges, &cache, &other) < 100);
    }

    /// Of values that were cached one by one each is cached once when scans have come by, wherever they began and ended, and found.
    #[test]
    fn values_leave_their_places_for_ranges_and_come_back() {
        let (ranges, cache) = (RangeCache::new(true, 8 << 20), Cache::new(8 << 20));
        let all: Vec<_> = (0..1000).map(at).collect();
        let insert = |pointer: &ValuePointer| {
            let value = value(pointer);
            Owner::unknown().record(&value, |parts| cache.insert(CacheKey::of(pointer), parts));
        };
        all.iter().for_each(insert);
        let alone = |pointer: &&ValuePointer| cache.contains(&CacheKey::of(pointer));
        let check = |found: &dyn Fn(usize) -> bool| {
            for pointer in &all {
                let within = ranges.get(pointer, |range| cache.peek(range));
                assert!(
                    within
                        .as_ref()
                        .is_none_or(|within| *within == value(pointer))
                );
                assert!(within.is_some() || alone(&pointer), "{pointer:?} is lost");
            }
            let alone = all.iter().filter(alone).count();
            assert!(found(alone), "{alone} are cached by themselves");
        };
        check(&|alone| alone == 1000);
        scan(&ranges, &cache, &all);
        check(&|alone| alone < 100);
        // One in three is another one, and some of those begin ranges.
        let mut now = all.clone();
        for (new, n) in (5000..).zip((0..1000).step_by(3)) {
            now[n] = at(new);
            insert(&now[n]);
        }
        for start in (0..950).chain(0..950) {
            scan(&ranges, &cache, &now[start..start + start % 43 + 6]);
            check(&|_| true);
        }
        for pointer in &all {
            ranges.forget(&cache, &CacheKey::of(pointer));
        }
        check(&|_| true);
        for start in 0..950 {
            scan(&ranges, &cache, &all[start..start + start % 43 + 6]);
        }
        for pointer in &all {
            ranges.dissolve(&cache, pointer);
            let alone = cache.peek(&CacheKey::of(pointer));
            let alone = alone.map(|it| record::value_at(pointer, it));
            assert_eq!(alone, Some(value(pointer)));
            assert_eq!(ranges.get(pointer, |range| cache.peek(range)), None);
        }
    }

    #[test]
    fn what_is_read_together_is_kept_in_ranges_at_once() {
        let (ranges, cache) = (RangeCache::new(true, 8 << 20), Cache::new(8 << 20));
        let all: Vec<_> = (0..1000).map(at).collect();
        let mut in_ranges = 0;
        for batch in all.chunks(50) {
            let read: Vec<_> = batch.iter().map(|pointer| Ok(value(pointer))).collect();
            let kept = ranges.keep_read(&cache, batch, &read);
            for (pointer, kept) in batch.iter().zip(kept) {
                let within = ranges.get(pointer, |range| cache.peek(range));
                assert_eq!(within, kept.then(|| value(pointer)));
                assert!(!cache.contains(&CacheKey::of(pointer)));
                in_ranges += usize::from(kept);
            }
        }
        assert!(in_ranges > 700, "{in_ranges} are in ranges");
        // What could not be read keeps its range from being made, and no other.
        let mut read: Vec<_> = all.iter().map(|pointer| Ok(value(pointer))).collect();
        read[500] = Err(crate::Error::new(crate::ErrorKind::Io, "not read"));
        let kept = RangeCache::new(true, 8 << 20).keep_read(&Cache::new(8 << 20), &all, &read);
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
            let (ranges, cache) = (RangeCache::new(wanted, 8 << 20), Cache::new(bytes));
            for _ in 0..3 {
                scan(&ranges, &cache, &all);
            }
            assert!(!wanted || cache.stats().entries < 20);
            assert_eq!(ranges.bytes() == 0, !wanted);
        }
        let (ranges, cache) = (RangeCache::new(true, 8 << 20), Cache::new(8 << 20));
        for n in 0..997 {
            scan(&ranges, &cache, &all[n..n + 3]);
        }
        assert_eq!(cache.stats().entries, 0, "short scans are not worth it");
    }
}
