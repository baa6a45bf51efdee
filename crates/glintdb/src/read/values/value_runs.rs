//! Value runs: values that are neighbours in key order, cached together, so that a scan needs one
//! lookup and one place in memory for about eight of them.
//!
//! The cache has values one by one, by their keys, so a scan waits for several cache lines for each
//! value. When a scan finds all values of a run in the cache, the run is cached in their place
//! ([`CacheKey::Range`]): a head for each value, then the values, in key order. A run begins at a
//! key whose hash says so, one key in [`RUN_TYPICAL`], and ends before the next such key. So two
//! scans over the same keys agree on their runs, whatever sources they read, and whichever keys
//! were overwritten.
//!
//! A get, and a scan that begins within a run, find the run through a table of hints. A value for
//! which there is no free hint stays cached by itself. A value that a get finds in a run is cached
//! by itself too, from then on.
//!
//! A place in the log never changes its contents, so a run is never wrong: it returns the values of
//! the pointers that it names, and no others. Once keys of the run are overwritten, their new
//! values are looked up one by one, and when those are many the run is built again.
//!
//! Thread safety: any thread. A wrong hint costs a lookup.

use crate::Result;
use crate::read::values::key_hash::Wanted;
use crate::read::values::packed_place::{TAG_SHIFT, tag};
use bytes::Bytes;
use glintdb_cache::{Cache, CacheKey, KeyHash, ValuePlace};
use glintdb_core::{SegmentId, planted};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Average number of values in a run.
const RUN_TYPICAL: u64 = 8;
/// Most values in a run. Hardly any run would exceed it.
const RUN_MAX: usize = 48;
/// Most bytes of values in a run.
const RUN_BYTES_MAX: usize = 48 << 10;
/// Most bytes of a value in a run, on average. If values are large, finding them is little of their
/// cost.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// This part of the cache must be free before runs are built of values that mostly stay cached one
/// by one.
const ROOM_PART: usize = 64;
/// A run takes at most this part of the cache, which has several parts that are not equally full.
const RUN_PART: usize = 256;
/// Stale runs are rebuilt in only one of this many batches.
const REPLACES_EVERY: u64 = 8;
/// Bytes of the number of members, at the start of a run.
const HEAD_BYTES: usize = 8;
/// Bytes of the head of each member. The values are behind all heads.
const MEMBER_BYTES: usize = 24;
/// Bytes of the memory budget for each hint.
const BYTES_A_HINT: usize = 512;
/// Largest number of hints.
const HINTS_MAX: usize = 1 << 22;
/// Hints in a bucket.
const WAYS: usize = 4;
/// The bits of its first key's hash that name a run: as many as a hint has beside its tag.
const RUN_MASK: u64 = (1 << 52) - 1;
/// A run is built if more than this part of its values are in none.
const STALE_PART: usize = 4;
/// Members of a run that are compared with the next value, and values at the start of a scan that
/// may have a hint of its run. Keys in between may have been overwritten or deleted.
const LOOK_PAST: usize = 4;
/// Values are in order if less than one in `APART_PART` is more than `GAP_MAX` bytes behind the one
/// before it.
const APART_PART: usize = 8;
/// Most bytes between two values that count as neighbours.
const GAP_MAX: u32 = 4096;
/// A scan of fewer values looks them up one by one.
const SCAN_MIN: usize = 4;

/// Values of a batch, in its order.
#[derive(Default)]
pub(crate) struct Values {
    values: Vec<Value>,
    /// The runs that some of the values are in.
    runs: Vec<Bytes>,
}

enum Value {
    /// The value, or the error of its read.
    Own(Result<Bytes>),
    /// The number of its run, and its place in the run.
    Within(usize, Range<usize>),
}

impl Values {
    pub(crate) fn get(&self, at: usize) -> Option<Result<&[u8]>> {
        Some(match self.values.get(at)? {
            Value::Own(Ok(value)) => Ok(value),
            Value::Own(Err(error)) => Err(error.clone()),
            Value::Within(run, place) => Ok(&self.runs[*run][place.clone()]),
        })
    }

    /// Returns a value that the caller may keep: a copy if it is in a run, so that the caller does
    /// not keep the whole run in memory.
    pub(crate) fn take(&mut self, at: usize) -> Bytes {
        match &mut self.values[at] {
            Value::Own(value) => std::mem::replace(value, Ok(Bytes::new())).unwrap_or_default(),
            Value::Within(run, place) => Bytes::copy_from_slice(&self.runs[*run][place.clone()]),
        }
    }

    /// Sets a value that was not found before and shares its memory with others, so that
    /// [`take`](Self::take) copies it.
    pub(crate) fn set_shared(&mut self, at: usize, value: Result<Bytes>) {
        self.values[at] = match value {
            Ok(value) => {
                self.runs.push(value);
                let number = self.runs.len() - 1;
                Value::Within(number, 0..self.runs[number].len())
            }
            Err(error) => Value::Own(Err(error)),
        };
    }

    /// Sets a value that was not found before.
    pub(crate) fn set(&mut self, at: usize, value: Result<Bytes>) {
        self.values[at] = Value::Own(value);
    }

    /// Reverses the order.
    pub(crate) fn reverse(&mut self) {
        self.values.reverse();
    }
}

impl FromIterator<Result<Bytes>> for Values {
    fn from_iter<T: IntoIterator<Item = Result<Bytes>>>(values: T) -> Self {
        Values {
            values: values.into_iter().map(Value::Own).collect(),
            runs: Vec::new(),
        }
    }
}

/// The hints of value runs. The runs are in the cache.
pub(crate) struct ValueRuns {
    /// Buckets by the low bits of a key's hash. A hint has the tag of a key and the name of its
    /// run. Empty if runs are switched off.
    hints: Box<[[AtomicU64; WAYS]]>,
    /// Whether a run may be cached.
    any: AtomicBool,
    /// Number of batches that were looked up in this database. It is not shared with other
    /// databases, so that a seed reproduces a test.
    batches: AtomicU64,
}

/// The members of a run from one of them on: the head of each (see [`head_of`]), and the place of
/// its value in the run.
#[derive(Clone)]
struct Members<'a> {
    /// Heads of the members that follow.
    heads: &'a [u8],
    /// Place of the next value.
    at: usize,
}

impl<'a> Members<'a> {
    fn new(run: &'a [u8]) -> Option<Members<'a>> {
        let (count, rest) = run.split_first_chunk::<HEAD_BYTES>()?;
        let bytes = usize::try_from(u64::from_le_bytes(*count)).ok()? * MEMBER_BYTES;
        Some(Members {
            heads: rest.get(..bytes)?,
            at: HEAD_BYTES + bytes,
        })
    }

    /// Returns the place of a value if it is one of the next `look` members, and goes on behind it.
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

/// Returns whether values that are neighbours in key order are neighbours in the log, but for a
/// few. Then one read covers them.
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

/// Returns the runs that begin among `values`: the name of each, and the numbers of its members.
/// The last run may be longer; a scan that goes on builds it again.
fn runs_among(values: &[Wanted]) -> impl Iterator<Item = (u64, Range<usize>)> {
    let begin = values.iter().enumerate();
    let mut begin = begin
        .filter_map(|(number, wanted)| Some((number, begun_by(wanted.key.0)?)))
        .peekable();
    std::iter::from_fn(move || {
        let (first, run) = begin.next()?;
        let end = begin.peek().map_or(values.len(), |(number, _)| *number);
        Some((run, first..end.min(first + RUN_MAX)))
    })
}

/// Returns whether a run of these members is worth while, and small enough for a cache of that
/// capacity.
fn fits(members: &[Wanted], capacity_bytes: impl FnOnce() -> usize) -> bool {
    let bytes: usize = members.iter().map(Wanted::len).sum();
    members.len() > 1
        && bytes <= RUN_BYTES_MAX.min(members.len() * VALUE_BYTES_MAX)
        && bytes <= capacity_bytes() / RUN_PART
}

/// Returns the bytes by which a member is found: segment and offset of its value.
fn identity(wanted: &Wanted) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&wanted.pointer.segment.0.to_le_bytes());
    bytes[8..].copy_from_slice(&wanted.pointer.offset.to_le_bytes());
    bytes
}

/// Returns the head of a member: its identity, the length of its value, and the hash of its key.
fn head_of(wanted: &Wanted) -> [u8; MEMBER_BYTES] {
    let mut bytes = [0; MEMBER_BYTES];
    bytes[..12].copy_from_slice(&identity(wanted));
    bytes[12..16].copy_from_slice(&wanted.pointer.length.to_le_bytes());
    bytes[16..].copy_from_slice(&wanted.key.0.to_le_bytes());
    bytes
}

/// Returns the first hash of a member's key, and the place of its value.
fn decode_head(head: &[u8; MEMBER_BYTES]) -> (KeyHash, ValuePlace) {
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

/// Returns the place of a value in a run, if the run has it.
fn in_run(run: &[u8], wanted: &Wanted) -> Option<Range<usize>> {
    Members::new(run)?.find(&identity(wanted), RUN_MAX)
}

/// Removes a run from the cache, and caches its values one by one. Leaves out keys that are in
/// `others`, whose values will be cached, and keys of which the cache has another value. Returns
/// whether the run was cached.
fn break_up(cache: &Cache, run: u64, others: &[Wanted]) -> bool {
    let Some(run) = cache.remove(&CacheKey::Range(run)) else {
        return false;
    };
    for (head, place) in Members::new(&run).into_iter().flatten() {
        let (key, at) = decode_head(head);
        if !others.iter().any(|other| other.key.0 == key.0)
            && let Some(value) = run.get(place)
        {
            cache.insert_new(CacheKey::Value(key, at), &[value]);
        }
    }
    true
}

impl ValueRuns {
    /// Creates hints for a memory budget. If `wanted` is false, there are no runs.
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

    /// Bytes of memory that the hints take.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.hints)
    }

    /// Returns those of the values `wanted`, which are neighbours in key order, that are in runs,
    /// and the numbers of the others.
    pub(crate) fn find(&self, cache: &Cache, wanted: &[Wanted]) -> (Values, Vec<usize>) {
        let mut values = Vec::with_capacity(wanted.len());
        let nothing = || Value::Own(Ok(Bytes::new()));
        let mut runs = Vec::new();
        self.batches.fetch_add(1, Ordering::Relaxed);
        if !self.serves(wanted) {
            values.resize_with(wanted.len(), nothing);
            return (Values { values, runs }, (0..wanted.len()).collect());
        }
        // The scan begins in the first run, and later runs begin within the scan.
        let first = (wanted.iter().take(LOOK_PAST))
            .take_while(|one| begun_by(one.key.0).is_none())
            .find_map(|one| self.hinted_run(one.key.0));
        let begun = wanted.iter().filter_map(|one| begun_by(one.key.0));
        let names: Vec<u64> = first.into_iter().chain(begun).collect();
        let mut there = Vec::with_capacity(names.len());
        let mut looked_up = names.iter();
        cache.get_each_there(names.iter().copied().map(CacheKey::Range), |run| {
            if let (Some(&name), Some(run)) = (looked_up.next(), run) {
                there.push(name);
                runs.push(run);
            }
        });
        let mut coming = (there.iter().zip(runs.iter().enumerate()))
            .filter_map(|(name, (number, bytes))| Some((*name, number, Members::new(bytes)?)))
            .peekable();
        let mut now = coming.next_if(|(name, ..)| Some(*name) == first);
        let mut others = Vec::new();
        for (number, one) in wanted.iter().enumerate() {
            // The next run begins here.
            if let Some(run) = coming.next_if(|(name, ..)| Some(*name) == begun_by(one.key.0)) {
                now = Some(run);
            }
            let look = match number < LOOK_PAST {
                true => RUN_MAX,
                false => LOOK_PAST,
            };
            let identity = identity(one);
            let found = (now.as_mut())
                .and_then(|(_, run, members)| Some((*run, members.find(&identity, look)?)));
            values.push(match found {
                Some((run, place)) => Value::Within(run, place),
                None => {
                    others.push(number);
                    nothing()
                }
            });
        }
        (Values { values, runs }, others)
    }

    /// Returns a value that is in a run, as a part of it. `cached` looks up the run.
    pub(crate) fn get(
        &self,
        wanted: &Wanted,
        cached: impl FnOnce(&CacheKey) -> Option<Bytes>,
    ) -> Option<Bytes> {
        let run = cached(&CacheKey::Range(self.run_with(wanted.key.0)?))?;
        let place = in_run(&run, wanted)?;
        Some(run.slice(place))
    }

    /// Caches the runs of `values`, all of which were cached, if many of a run's values are among
    /// the `others`, which were in no run.
    pub(crate) fn keep(&self, cache: &Cache, wanted: &[Wanted], values: &Values, others: &[usize]) {
        if !self.serves(wanted) {
            return;
        }
        let batch = self.batches.load(Ordering::Relaxed);
        let replaces = batch.is_multiple_of(REPLACES_EVERY);
        let mut room = None;
        for (run, numbers) in runs_among(wanted) {
            let first = numbers.start;
            let lacking = others.partition_point(|other| *other < numbers.end)
                - others.partition_point(|other| *other < first);
            let members = &wanted[numbers];
            if lacking * STALE_PART <= members.len() {
                continue;
            }
            if !fits(members, || cache.capacity_bytes()) {
                if lacking == members.len() {
                    // No read wants the run's values of these keys, and no other run will replace
                    // it. Values behind the batch may be wanted.
                    break_up(cache, run, members);
                }
                continue;
            }
            // Otherwise reads of snapshots and of the present would replace each other's runs.
            if !replaces && cache.contains(&CacheKey::Range(run)) {
                continue;
            }
            let room = *room.get_or_insert_with(|| {
                let capacity = cache.capacity_bytes();
                capacity.saturating_sub(cache.used_bytes()) > capacity / ROOM_PART
            });
            // A run that replaces its values may lack hints for them, and then it would be built at
            // every scan.
            if room || replaces {
                let kept = |at| values.get(first + at);
                self.keep_run(cache, run, members, kept, room, Cache::insert_seen);
            }
        }
    }

    /// Returns whether runs are built of values that were not cached, as soon as they are read: if
    /// they are small and were read in one piece.
    pub(crate) fn take_read(&self, wanted: &[Wanted]) -> bool {
        let bytes: usize = wanted.iter().map(Wanted::len).sum();
        self.serves(wanted) && bytes <= wanted.len() * VALUE_BYTES_MAX && lie_in_order(wanted)
    }

    /// Caches the runs of values that were read. Returns which values are in a run now.
    pub(crate) fn keep_read(
        &self,
        cache: &Cache,
        wanted: &[Wanted],
        values: &[Result<Bytes>],
    ) -> Vec<bool> {
        let mut kept = vec![false; values.len()];
        let capacity = cache.capacity_bytes();
        for (run, numbers) in runs_among(wanted) {
            let (first, members) = (numbers.start, &wanted[numbers.clone()]);
            if fits(members, || capacity) {
                let value = |at: usize| match values.get(first + at) {
                    Some(Ok(value)) => Some(Result::Ok(value.as_ref())),
                    _ => None,
                };
                let is = self.keep_run(cache, run, members, value, false, Cache::put);
                for (at, member) in numbers.zip(members) {
                    kept[at] = is && (at == first || self.hinted_run(member.key.0) == Some(run));
                }
            }
        }
        kept
    }

    /// Caches a run in place of those of its values that will be found in it. If the cache has no
    /// `room`, the run must replace at least half of its values. Returns whether the run is cached.
    fn keep_run<'a>(
        &self,
        cache: &Cache,
        run: u64,
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
        // Evict any cached version of each key, or a stale one would block the re-insertion when
        // the run is broken up.
        cache.forget(&first.key);
        for (hint, member) in hints {
            hint.store(tag(member.key.0) << TAG_SHIFT | run, Ordering::Relaxed);
            cache.forget(&member.key);
        }
        // The values of the former run may be wanted by a scan that goes on.
        break_up(cache, run, members);
        put(cache, CacheKey::Range(run), &parts);
        true
    }

    /// Breaks up the run that has a value, because the value moves. Returns whether there was one.
    pub(crate) fn dissolve(&self, cache: &Cache, wanted: &Wanted) -> bool {
        let Some(run) = self.run_with(wanted.key.0) else {
            return false;
        };
        let peek = |run: &CacheKey| cache.peek(run);
        self.get(wanted, peek).is_some() && break_up(cache, run, &[])
    }

    fn bucket(&self, hash: u64) -> &[AtomicU64; WAYS] {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the number of buckets is a power of two, so the low bits are the index"
        )]
        let index = hash as usize & (self.hints.len() - 1);
        &self.hints[index]
    }

    /// Returns a slot for the hint of a key: its present one, an empty one, or one that names a run
    /// which is not cached any more.
    fn place_of_hint(&self, cache: &Cache, key_hash: u64) -> Option<&AtomicU64> {
        let bucket = self.bucket(key_hash);
        let known = |way: &&AtomicU64| {
            let hint = way.load(Ordering::Relaxed);
            hint == 0 || hint >> TAG_SHIFT == tag(key_hash)
        };
        let gone = |way: &&AtomicU64| {
            let hint = way.load(Ordering::Relaxed);
            !cache.contains(&CacheKey::Range(hint & RUN_MASK))
        };
        let way = bucket.iter().find(known);
        way.or_else(|| bucket.iter().find(gone))
    }

    /// Returns the name of the run that may have the value of a key.
    fn run_with(&self, key_hash: u64) -> Option<u64> {
        match self.any.load(Ordering::Relaxed) {
            true => begun_by(key_hash).or_else(|| self.hinted_run(key_hash)),
            false => None,
        }
    }

    /// Returns the name of the run that the hint of a key names.
    fn hinted_run(&self, key_hash: u64) -> Option<u64> {
        let hints = self.bucket(key_hash).iter();
        let mut hints = hints.map(|way| way.load(Ordering::Relaxed));
        let hint = hints.find(|hint| *hint >> TAG_SHIFT == tag(key_hash))?;
        Some(hint & RUN_MASK)
    }
}

/// Returns the name of the run that begins with a key, if one does.
fn begun_by(key_hash: u64) -> Option<u64> {
    let begins = (key_hash >> 24).is_multiple_of(RUN_TYPICAL);
    begins.then_some(key_hash & RUN_MASK)
}

#[cfg(all(test, not(loom)))]
mod tests;
