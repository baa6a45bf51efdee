//! Values that scans come by one after the other, kept together: one lookup and one place in memory for about eight of them.
//!
//! The cache has values one by one, by their keys, so a scan waits for several lines of memory a value. Where scans find all values of a *range* in the cache, they are cached together instead
//! ([`CacheKey::Range`]): first who they are, then the values, in key order. A range begins at a key whose hash says so, one in [`RANGE_TYPICAL`], and goes on to the next such key: two scans
//! that come by the same keys agree on their ranges, whatever sources they come from, and whichever were overwritten.
//!
//! A scan that begins within a range, and a get, ask a table of hints which it is; a value of which there is no room for a hint stays cached by itself. What a get finds in a range is cached by itself too, from then on.
//!
//! What a place holds never changes, so a range is never wrong: it gives the values of the pointers that it names and of no others. Where keys were overwritten since, the others are looked up one by one, and the range is made
//! anew when they are many.
//!
//! Thread safety: any thread; a hint that is wrong costs a lookup.

use crate::Result;
use crate::read::values::key_hash::Wanted;
use crate::read::values::packed_place::{TAG_SHIFT, tag};
use bytes::Bytes;
use glintdb_cache::{Cache, CacheKey, KeyHash, ValuePlace};
use glintdb_core::{SegmentId, planted};
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
const MEMBER_BYTES: usize = 24;
/// Bytes of the budget for each hint, and hints at most.
const BYTES_A_HINT: usize = 512;
const HINTS_MAX: usize = 1 << 22;
/// Hints of values with the same low bits in their hash.
const WAYS: usize = 4;
/// The bits of its first key's hash by which a range is known: as many as a hint has beside its tag.
const RANGE_MASK: u64 = (1 << 52) - 1;
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
pub(crate) struct ValueRuns {
    /// By a key's hash: the first key of its range. Empty: ranges are not wanted.
    hints: Box<[[AtomicU64; WAYS]]>,
    /// There may be some.
    any: AtomicBool,
    /// Batches that were looked up. Of this database alone: what it does must not depend on what its threads did in others.
    batches: AtomicU64,
}

/// The values of a range from one on: each one's head (see [`head_of`]), and where in the range it is.
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
        let mut next = members.by_ref().take(look);
        let (_, place) = next.find(|(head, _)| head.first_chunk() == Some(wanted))?;
        let place = planted!(
            "glintdb: a range gives the value before the one that is asked for",
            place,
            (self.clone().map(|(_, before)| before))
                .take_while(|before| before.end < place.end)
                .last()
                .unwrap_or(place)
        );
        *self = members;
        Some(place)
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8; MEMBER_BYTES], Range<usize>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (head, heads) = self.heads.split_first_chunk::<MEMBER_BYTES>()?;
        let (_, length) = head.split_first_chunk::<12>()?;
        let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
        let place = self.at..self.at + length;
        (self.heads, self.at) = (heads, place.end);
        Some((head, place))
    }
}

/// Whether values that are beside one another in key order lie so in the log, but for a few: they are read in one piece.
fn lie_in_order(wanted: &[Wanted]) -> bool {
    let apart = |two: &&[Wanted]| match two {
        [one, next] => one
            .pointer
            .gap_before(&next.pointer)
            .is_none_or(|gap| gap > GAP_MAX),
        _ => false,
    };
    wanted.windows(2).filter(apart).count() * APART_PART < wanted.len()
}

/// The ranges that begin among `values`: each one's name, and the numbers of its members. The last one may be longer; then it is made anew by a scan that goes on.
fn ranges(values: &[Wanted]) -> impl Iterator<Item = (u64, Range<usize>)> {
    let begin = values.iter().enumerate();
    let mut begin = begin
        .filter_map(|(number, wanted)| Some((number, begun_by(wanted.key.0)?)))
        .peekable();
    std::iter::from_fn(move || {
        let (first, range) = begin.next()?;
        let end = begin.peek().map_or(values.len(), |(number, _)| *number);
        Some((range, first..end.min(first + RANGE_MAX)))
    })
}

/// Whether these are worth a range, and there may be one as large in a cache of that capacity.
fn fits(members: &[Wanted], capacity_bytes: impl FnOnce() -> usize) -> bool {
    let bytes: usize = members.iter().map(Wanted::len).sum();
    members.len() > 1
        && bytes <= RANGE_BYTES_MAX.min(members.len() * VALUE_BYTES_MAX)
        && bytes <= capacity_bytes() / RANGE_PART
}

/// What a member is found by: segment and offset of its value.
fn identity(wanted: &Wanted) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&wanted.pointer.segment.0.to_le_bytes());
    bytes[8..].copy_from_slice(&wanted.pointer.offset.to_le_bytes());
    bytes
}

/// What a range says of a member: its identity, its value's length, and the hash of its key.
fn head_of(wanted: &Wanted) -> [u8; MEMBER_BYTES] {
    let mut bytes = [0; MEMBER_BYTES];
    bytes[..12].copy_from_slice(&identity(wanted));
    bytes[12..16].copy_from_slice(&wanted.pointer.length.to_le_bytes());
    bytes[16..].copy_from_slice(&wanted.key.0.to_le_bytes());
    bytes
}

/// A member's key, as far as a range knows it, and where its value stands.
fn who_is(head: &[u8; MEMBER_BYTES]) -> (KeyHash, ValuePlace) {
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    };
    let segment = SegmentId(number(&head[..8]));
    let offset = u32::try_from(number(&head[8..12])).unwrap_or(u32::MAX);
    let key = KeyHash(number(&head[16..]), KeyHash::UNKNOWN);
    (key, ValuePlace(segment, offset))
}

/// Where a range has a value, if it does.
fn within(range: &[u8], wanted: &Wanted) -> Option<Range<usize>> {
    Members::new(range)?.find(&identity(wanted), RANGE_MAX)
}

/// A range is cached no more, and its values one by one again, but those of keys of which another one is cached, or is going to be, with `others`. Whether it was.
fn break_up(cache: &Cache, range: u64, others: &[Wanted]) -> bool {
    let Some(range) = cache.remove(&CacheKey::Range(range)) else {
        return false;
    };
    for (head, place) in Members::new(&range).into_iter().flatten() {
        let (key, at) = who_is(head);
        if !others.iter().any(|other| other.key.0 == key.0)
            && let Some(value) = range.get(place)
        {
            cache.insert_new(CacheKey::Value(key, at), &[value]);
        }
    }
    true
}

impl ValueRuns {
    /// For a budget of so many bytes; `wanted`: else there are none.
    pub(crate) fn new(wanted: bool, budget_bytes: usize) -> ValueRuns {
        let hints = (budget_bytes / BYTES_A_HINT).min(HINTS_MAX);
        let buckets = match wanted {
            true => (hints / WAYS).next_power_of_two(),
            false => 0,
        };
        ValueRuns {
            hints: (0..buckets).map(|_| Default::default()).collect(),
            any: AtomicBool::new(false),
            batches: AtomicU64::new(0),
        }
    }

    fn serves(&self, wanted: &[Wanted]) -> bool {
        !self.hints.is_empty() && wanted.len() >= SCAN_MIN
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.hints)
    }

    /// Of the values `wanted`, which are beside one another in key order, those that ranges have; the numbers of the others.
    pub(crate) fn find(&self, cache: &Cache, wanted: &[Wanted]) -> (Values, Vec<usize>) {
        let mut values = Vec::with_capacity(wanted.len());
        let nothing = || Value::Own(Ok(Bytes::new()));
        let mut ranges = Vec::new();
        self.batches.fetch_add(1, Ordering::Relaxed);
        if !self.serves(wanted) {
            values.resize_with(wanted.len(), nothing);
            return (Values { values, ranges }, (0..wanted.len()).collect());
        }
        // A scan comes by the range that it begins in, and by those that begin while it goes on.
        let first = (wanted.iter().take(LOOK_PAST))
            .take_while(|one| begun_by(one.key.0).is_none())
            .find_map(|one| self.hinted(one.key.0));
        let begun = wanted.iter().filter_map(|one| begun_by(one.key.0));
        let names: Vec<u64> = first.into_iter().chain(begun).collect();
        let mut there = Vec::with_capacity(names.len());
        let mut looked_up = names.iter();
        cache.get_each_there(names.iter().copied().map(CacheKey::Range), |range| {
            if let (Some(&name), Some(range)) = (looked_up.next(), range) {
                there.push(name);
                ranges.push(range);
            }
        });
        let mut coming = (there.iter().zip(ranges.iter().enumerate()))
            .filter_map(|(name, (number, bytes))| Some((*name, number, Members::new(bytes)?)))
            .peekable();
        let mut now = coming.next_if(|(name, ..)| Some(*name) == first);
        let mut others = Vec::new();
        for (number, one) in wanted.iter().enumerate() {
            // Into the next range, where it begins.
            if let Some(range) = coming.next_if(|(name, ..)| Some(*name) == begun_by(one.key.0)) {
                now = Some(range);
            }
            let look = match number < LOOK_PAST {
                true => RANGE_MAX,
                false => LOOK_PAST,
            };
            let identity = identity(one);
            let found = (now.as_mut())
                .and_then(|(_, range, members)| Some((*range, members.find(&identity, look)?)));
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

    /// A value, if a range has it: a part of that. `cached` looks for the range.
    pub(crate) fn get(
        &self,
        wanted: &Wanted,
        cached: impl FnOnce(&CacheKey) -> Option<Bytes>,
    ) -> Option<Bytes> {
        let range = cached(&CacheKey::Range(self.range_with(wanted.key.0)?))?;
        let place = within(&range, wanted)?;
        Some(range.slice(place))
    }

    /// Keeps the ranges of `values`, all of which were cached one by one or in ranges, where many are among the `others`, which were in none.
    pub(crate) fn keep(&self, cache: &Cache, wanted: &[Wanted], values: &Values, others: &[usize]) {
        if !self.serves(wanted) {
            return;
        }
        let batch = self.batches.load(Ordering::Relaxed);
        let replaces = batch.is_multiple_of(REPLACES_EVERY);
        let mut room = None;
        for (range, numbers) in ranges(wanted) {
            let first = numbers.start;
            let lacking = others.partition_point(|other| *other < numbers.end)
                - others.partition_point(|other| *other < first);
            let members = &wanted[numbers];
            if lacking * STALE_PART <= members.len() {
                continue;
            }
            if !fits(members, || cache.capacity_bytes()) {
                if lacking == members.len() {
                    // What it has of these is not wanted any more, and no other range will take its place; of others, behind the batch, it may be.
                    break_up(cache, range, members);
                }
                continue;
            }
            // Snapshots and the present would take turns.
            if !replaces && cache.contains(&CacheKey::Range(range)) {
                continue;
            }
            let room = *room.get_or_insert_with(|| {
                let capacity = cache.capacity_bytes();
                capacity.saturating_sub(cache.used_bytes()) > capacity / ROOM_PART
            });
            // Where it takes the place of its values there may be no hints for them, and nobody remembers that.
            if room || replaces {
                let kept = |at| values.get(first + at);
                self.keep_range(cache, range, members, kept, room, Cache::insert_seen);
            }
        }
    }

    /// Whether it takes values that are not cached as soon as they are read: they are few bytes each, and were read in one piece.
    pub(crate) fn take_read(&self, wanted: &[Wanted]) -> bool {
        let bytes: usize = wanted.iter().map(Wanted::len).sum();
        self.serves(wanted) && bytes <= wanted.len() * VALUE_BYTES_MAX && lie_in_order(wanted)
    }

    /// Keeps the ranges of such values; which of them are in one now.
    pub(crate) fn keep_read(
        &self,
        cache: &Cache,
        wanted: &[Wanted],
        values: &[Result<Bytes>],
    ) -> Vec<bool> {
        let mut kept = vec![false; values.len()];
        let capacity = cache.capacity_bytes();
        for (range, numbers) in ranges(wanted) {
            let (first, members) = (numbers.start, &wanted[numbers.clone()]);
            if fits(members, || capacity) {
                let value = |at: usize| match values.get(first + at) {
                    Some(Ok(value)) => Some(Result::Ok(value.as_ref())),
                    _ => None,
                };
                let is = self.keep_range(cache, range, members, value, false, Cache::put);
                for (at, member) in numbers.zip(members) {
                    kept[at] = is && (at == first || self.hinted(member.key.0) == Some(range));
                }
            }
        }
        kept
    }

    /// Caches a range instead of those of its values that will be found in it. Where the cache has no `room` it takes their place or none.
    fn keep_range<'a>(
        &self,
        cache: &Cache,
        range: u64,
        members: &[Wanted],
        value: impl Fn(usize) -> Option<Result<&'a [u8]>>,
        room: bool,
        put: impl FnOnce(&Cache, CacheKey, &[&[u8]]),
    ) -> bool {
        let mut head = Vec::with_capacity(HEAD_BYTES + members.len() * MEMBER_BYTES);
        head.extend_from_slice(&(members.len() as u64).to_le_bytes());
        for member in members {
            head.extend_from_slice(&head_of(member));
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(members.len() + 1);
        parts.push(&head);
        for (at, member) in members.iter().enumerate() {
            match value(at) {
                Some(Ok(value)) if value.len() == member.len() => parts.push(value),
                _ => return false,
            }
        }
        let Some((first, rest)) = members.split_first() else {
            return false;
        };
        let mut hints: Vec<(&AtomicU64, &Wanted)> = Vec::with_capacity(rest.len());
        for member in rest {
            let taken = |way: &AtomicU64| hints.iter().any(|(other, _)| std::ptr::eq(*other, way));
            let way = self.place_of_hint(cache, member.key.0);
            hints.extend(way.filter(|way| !taken(way)).map(|way| (way, member)));
        }
        if !room && (hints.len() + 1) * 2 <= members.len() {
            return false;
        }
        self.any.store(true, Ordering::Relaxed);
        // Whichever value the cache has of each: one that was overwritten would keep this one's place when the range goes.
        cache.forget(&first.key);
        for (hint, member) in hints {
            hint.store(tag(member.key.0) << TAG_SHIFT | range, Ordering::Relaxed);
            cache.forget(&member.key);
        }
        // A scan that goes on may ask for what was there.
        break_up(cache, range, members);
        // In the place of what was asked for.
        put(cache, CacheKey::Range(range), &parts);
        true
    }

    /// A value moves: of the range that has it the values are cached one by one again. Whether there was one.
    pub(crate) fn dissolve(&self, cache: &Cache, wanted: &Wanted) -> bool {
        let Some(range) = self.range_with(wanted.key.0) else {
            return false;
        };
        let peek = |range: &CacheKey| cache.peek(range);
        self.get(wanted, peek).is_some() && break_up(cache, range, &[])
    }

    fn bucket(&self, hash: u64) -> &[AtomicU64; WAYS] {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the buckets are a power of two: the low bits are what is wanted"
        )]
        let index = hash as usize & (self.hints.len() - 1);
        &self.hints[index]
    }

    /// Where it may be noted in which range a key is: in the place of what was known of it, of nothing, or of one in a range that is not there any more.
    fn place_of_hint(&self, cache: &Cache, key_hash: u64) -> Option<&AtomicU64> {
        let bucket = self.bucket(key_hash);
        let known = |way: &&AtomicU64| {
            let hint = way.load(Ordering::Relaxed);
            hint == 0 || hint >> TAG_SHIFT == tag(key_hash)
        };
        let gone = |way: &&AtomicU64| {
            let hint = way.load(Ordering::Relaxed);
            !cache.contains(&CacheKey::Range(hint & RANGE_MASK))
        };
        let way = bucket.iter().find(known);
        way.or_else(|| bucket.iter().find(gone))
    }

    /// The range that has the value of a key, if one does.
    fn range_with(&self, key_hash: u64) -> Option<u64> {
        match self.any.load(Ordering::Relaxed) {
            true => begun_by(key_hash).or_else(|| self.hinted(key_hash)),
            false => None,
        }
    }

    /// The range that a key is in, if it seems to be in one and does not begin it.
    fn hinted(&self, key_hash: u64) -> Option<u64> {
        let hints = self.bucket(key_hash).iter();
        let mut hints = hints.map(|way| way.load(Ordering::Relaxed));
        let hint = hints.find(|hint| *hint >> TAG_SHIFT == tag(key_hash))?;
        Some(hint & RANGE_MASK)
    }
}

/// The range that begins with a key, if one does.
fn begun_by(key_hash: u64) -> Option<u64> {
    let begins = (key_hash >> 24).is_multiple_of(RANGE_TYPICAL);
    begins.then_some(key_hash & RANGE_MASK)
}

#[cfg(all(test, not(loom)))]
mod tests;
