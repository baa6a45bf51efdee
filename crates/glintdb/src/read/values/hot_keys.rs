//! Which keys' separated values are being read, and where the newest value of each stands.
//!
//! Two uses of one table. A *sure* place is that of the newest visible value of its key: whoever asks for it needs neither memtables nor index, only the cache, which says where what it has of the key stands.
//! Any place is a hint to commits: what is written for such a key goes into the cache at once. It will be read again, and by then the ring may have
//! handed it to the segment's file, from where every read is one of the device.
//!
//! A table of hashes and places without a list of keys: of each key a few bits, and of its value's place as many as fit beside them. Two keys may be taken for one another: then what the cache has of the one does not stand
//! where the other's value does, and is not found; or a value is cached in vain. Where a bucket is full a key takes the place of another one, so what is known is of keys read lately.
//!
//! Thread safety: any thread. Reads wait for nobody; a commit waits for a reader that is writing down a place in the same bucket (a few instructions, unless it loses its core). A write pays one relaxed load until somebody has
//! read a separated value, a hash and a cache line from then on. Lock order: `opening` → the sequencer's, which is only tried: who holds that may wait for a commit, and commits come here.
//!
//! Invariants:
//! 1. A commit tells the table of every key that it writes ([`touch`](HotKeys::touch), [`close`](HotKeys::close) for ranges) after it has its number and before it is completed: the bucket's `newest` is its number or
//!    greater from then on, and no place of the key in it is sure.
//! 2. A bucket is believed only by who reads all commits up to a number that is not below its `newest` and the table's `floor`: nothing was told that such a reader does not see. What such a reader has found is sure if `newest` is
//!    still the same when it is written down; nobody can tell the bucket anything meanwhile (`LOCKED`).
//! 3. Commits that were numbered before the table was in use did not tell it anything: they are at or below `floor`.
//! 4. A value that moves (value GC) stays the newest one of its key: a place that was sure is so where the value went. Numbers of segments are never used again.

use crate::read::values::key_hash::first_hash;
use crate::read::values::packed_place::{self, SEGMENT_BITS, TAG_SHIFT, place, tag, word};
use glintdb_cache::ValuePlace;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use glintdb_core::sync::{Mutex, hint, thread};
use glintdb_core::{KeyspaceId, Padded, SegmentId, SeqNum, ValuePointer, planted};

/// Keys of a bucket: with its number a cache line of them; few in models.
const KEYS: usize = if cfg!(loom) { 1 } else { 7 };
/// The budget holds a bucket for each so many bytes.
const BUDGET_BYTES_A_BUCKET: usize = 4 << 10;
/// Few in models, so that keys meet.
const BUCKETS_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1 << 11 };
/// 16 MiB of them.
const BUCKETS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1 << 18 };
/// Of a word with a key's tag and place: that is sure.
const SURE: u64 = packed_place::FLAG;
/// In a bucket's `newest`: greater than every number that is visible.
const LOCKED: u64 = 1 << 63;
/// In `floor`: never visible. The rest counts how often it was closed.
const CLOSED: u64 = 1 << 63;
/// Of the system's memory.
const PAGE_BYTES: usize = 4 << 10;
/// A table that was closed is opened when it was told of so many places for each bucket: opening it looks at all of them.
const MARKS_A_BUCKET: u64 = 1;

#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    /// Of the commits that wrote keys of this bucket, the number of the newest one.
    newest: AtomicU64,
    words: [AtomicU64; KEYS],
}

/// See the module's page.
pub(crate) struct HotKeys {
    /// Empty: switched off.
    buckets: Box<[Bucket]>,
    state: Padded<State>,
    /// Marks since it was closed.
    marks: AtomicU64,
    /// Held by who opens the table.
    opening: Mutex<()>,
}

struct State {
    /// Whether commits have to tell it anything.
    any: AtomicBool,
    floor: AtomicU64,
    /// How often it was closed.
    closed: AtomicU64,
    /// The high bits of all segments' numbers that sure places have.
    segments: AtomicU64,
}

/// A key's place in the table; see [`HotKeys::look`].
pub(crate) struct Look<'a> {
    state: &'a State,
    bucket: &'a Bucket,
    hash: u64,
}

impl Bucket {
    /// A commit tells it something. Not lower than `seqno` from now on, and nobody writes down what was found before.
    fn raise(&self, seqno: SeqNum) {
        let mut turns = 0;
        loop {
            let newest = self.newest.load(Ordering::Acquire);
            if newest & LOCKED != 0 {
                // Whoever has it may have lost its core.
                turns += 1;
                match turns % 64 {
                    0 => thread::yield_now(),
                    _ => hint::spin_loop(),
                }
                continue;
            }
            // Where a newer commit came first, it is not visible before this one is completed: nobody believes the bucket.
            let raised = newest.max(seqno.0);
            if (self.newest)
                .compare_exchange(newest, raised, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Nothing in it is sure any more, nor what somebody is writing down who has read it before `newest`.
    fn forget(&self, newest: SeqNum) {
        self.raise(newest);
        for slot in &self.words {
            let word = slot.load(Ordering::Relaxed);
            if word & SURE != 0 {
                slot.store(word & !SURE, Ordering::Relaxed);
            }
        }
    }

    fn words(&self) -> [u64; KEYS] {
        std::array::from_fn(|place| self.words[place].load(Ordering::Acquire))
    }

    /// Where `word` is to stand, `there` being the bucket's words: in the place of what has its tag, else of nothing, else of what is not sure, else, if it is sure itself, of some one, as reads come in no order.
    fn place_for(word: u64, there: &[u64; KEYS], checksum: u32) -> Option<usize> {
        let find = |tag: u64| there.iter().position(|there| there >> TAG_SHIFT == tag);
        let some = checksum as usize % KEYS;
        let unsure = || {
            (0..KEYS)
                .map(|n| (some + n) % KEYS)
                .find(|&n| there[n] & SURE == 0)
        };
        find(word >> TAG_SHIFT)
            .or_else(|| find(0))
            .or_else(unsure)
            .or((word & SURE != 0).then_some(some))
    }
}

impl Look<'_> {
    /// Of the key, its first hash.
    #[inline]
    pub(crate) fn first_hash(&self) -> u64 {
        self.hash
    }

    /// Where the value stands that is the newest one of the key at `at`, which is visible, if that is known; or another key's.
    #[inline]
    pub(crate) fn place(&self, at: SeqNum) -> Option<ValuePlace> {
        let floor = self.state.floor.load(Ordering::Acquire);
        if floor & CLOSED != 0 {
            return None;
        }
        let segments = self.state.segments.load(Ordering::Acquire);
        let sure = tag(self.hash) << TAG_SHIFT | SURE;
        let words = self.bucket.words().into_iter();
        // All are looked at, so that processors need not guess which one it is. A word that is found is never 0.
        let found = words.fold(0, |found, word| {
            let mine = word & !(SURE - 1) == sure;
            if mine { word } else { found }
        });
        // Behind the words: so these are of before whatever was told that is newer than `at`, and of the same opening.
        let newest = self.bucket.newest.load(Ordering::Acquire);
        let believed = newest.max(floor) <= at.0
            && self.state.floor.load(Ordering::Acquire) == floor
            && found != 0;
        believed.then(|| place(found, segments))
    }

    /// The key's value stands at `to` now, where the same bytes are, and what is known of it holds there; told by who reads all commits up to `at`.
    pub(crate) fn moved(&self, at: SeqNum, from: &ValuePointer, to: &ValuePointer) {
        let floor = self.state.floor.load(Ordering::Acquire);
        let segments = self.state.segments.load(Ordering::Acquire);
        let newest = self.bucket.newest.load(Ordering::Acquire);
        let high = [from, to].map(|pointer| pointer.segment.0 >> SEGMENT_BITS);
        if newest.max(floor) > at.0 || high != [segments; 2] {
            return;
        }
        let (was, now) = (word(self.hash, from), word(self.hash, to));
        // Most are not known. Who writes it down just now has written what nobody finds: nothing is cached there.
        if !(self.bucket.words().iter()).any(|there| there & !SURE == was) {
            return;
        }
        self.write_down(newest, floor, |bucket| {
            for slot in &bucket.words {
                let there = slot.load(Ordering::Relaxed);
                if there & !SURE == was {
                    slot.store(now | there & SURE, Ordering::Release);
                }
            }
        });
    }

    /// Calls `with` while nobody can tell the bucket anything, unless somebody did since `newest` and `floor` were looked at. Both are not above a number that is visible, so commits that have told it something have ended.
    fn write_down(&self, newest: u64, floor: u64, with: impl FnOnce(&Bucket)) {
        let locked = (self.bucket.newest).compare_exchange(
            newest,
            newest | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if locked.is_ok() {
            // Not opened again for other segments.
            if self.state.floor.load(Ordering::Acquire) == floor {
                with(self.bucket);
            }
            self.bucket.newest.store(newest, Ordering::Release);
        }
    }
}

impl HotKeys {
    /// A table without keys, of a size that fits a budget; one that stays empty where it is not `wanted`.
    pub(crate) fn new(wanted: bool, budget_bytes: usize) -> Self {
        let fitting = (budget_bytes / BUDGET_BYTES_A_BUCKET).next_power_of_two();
        let buckets = match wanted {
            true => fitting.clamp(BUCKETS_MIN, BUCKETS_MAX),
            false => 0,
        };
        HotKeys {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            state: Padded(State {
                any: AtomicBool::new(false),
                floor: AtomicU64::new(CLOSED),
                closed: AtomicU64::new(0),
                segments: AtomicU64::new(0),
            }),
            // The first mark opens it.
            marks: AtomicU64::new(u64::MAX / 2),
            opening: Mutex::new(()),
        }
    }

    /// Memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Whether commits have to tell it anything.
    pub(crate) fn any(&self) -> bool {
        self.state.any.load(Ordering::Relaxed)
    }

    /// Where `key` is in it, if it is switched on.
    #[inline]
    pub(crate) fn look(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<Look<'_>> {
        let (bucket, hash) = self.bucket(keyspace, key)?;
        Some(Look {
            state: &self.state,
            bucket,
            hash,
        })
    }

    /// The newest value of a key is being read, where `pointer` says; it was looked for in everything up to commit `at`.
    #[inline]
    pub(crate) fn mark(&self, look: &Look<'_>, at: SeqNum, pointer: &ValuePointer) {
        let word = word(look.hash, pointer);
        let there = look.bucket.words();
        if (there.iter()).fold(false, |known, &there| known | (there == word | SURE)) {
            return;
        }
        let floor = self.state.floor.load(Ordering::Acquire);
        let segments = self.state.segments.load(Ordering::Acquire);
        let newest = look.bucket.newest.load(Ordering::Acquire);
        let believed = planted!(
            "glintdb: a place is sure although its key was written while it was looked for",
            newest.max(floor) <= at.0,
            newest & LOCKED == 0
        );
        let representable = pointer.segment.0 >> SEGMENT_BITS == segments;
        if !believed || !representable {
            // What is known already is no worse.
            let known = |there: &u64| there >> TAG_SHIFT == word >> TAG_SHIFT;
            if !there.iter().any(known)
                && let Some(place) = Bucket::place_for(word, &there, pointer.checksum)
            {
                // Where another word came meanwhile, that stays: it may be sure.
                let (was, order) = (there[place], Ordering::Relaxed);
                let _seen = look.bucket.words[place].compare_exchange(was, word, order, order);
            }
            if believed && pointer.segment.0 >> SEGMENT_BITS > segments {
                self.close();
            }
            return;
        }
        look.write_down(newest, floor, |bucket| {
            let (word, there) = (word | SURE, bucket.words());
            if let Some(place) = Bucket::place_for(word, &there, pointer.checksum) {
                // Release: who finds it finds the bucket's `newest` as it is now, or later.
                bucket.words[place].store(word, Ordering::Release);
            }
        });
    }

    /// Commit `seqno`, which is not completed yet, writes `key`: a separated value where `pointer` says, or something else. Whether its value was read lately, as far as is known.
    pub(crate) fn touch(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        seqno: SeqNum,
        pointer: Option<&ValuePointer>,
    ) -> bool {
        let Some((bucket, hash)) = self.bucket(keyspace, key) else {
            return false;
        };
        bucket.raise(seqno);
        let mut known = false;
        for slot in &bucket.words {
            if slot.load(Ordering::Relaxed) >> TAG_SHIFT == tag(hash) {
                let next = match pointer {
                    Some(pointer) if !known => word(hash, pointer),
                    // Each key once.
                    _ => 0,
                };
                slot.store(next, Ordering::Relaxed);
                known = true;
            }
        }
        known
    }

    /// A commit that is not completed yet deletes a range of keys: nothing is sure.
    #[cold]
    pub(crate) fn close(&self) {
        self.marks.store(0, Ordering::Relaxed);
        let times = self.state.closed.fetch_add(1, Ordering::SeqCst) + 1;
        // Another one each time, so that who is opening it sees that.
        self.state.floor.store(CLOSED | times, Ordering::SeqCst);
    }

    /// Whether it is closed, and so to be told to [`open`](Self::open).
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.floor.load(Ordering::Relaxed) & CLOSED != 0 && !self.buckets.is_empty()
    }

    /// A separated value of `segment` was found while the table was closed. Opens it, if that is due: `newest` says up to which commit all are numbered, under the lock that numbers them; `None` where that
    /// is not to be had at once. (Who holds it may wait for a commit that waits here.)
    #[cold]
    pub(crate) fn open(&self, segment: SegmentId, newest: impl FnOnce() -> Option<SeqNum>) {
        let marks = self.marks.fetch_add(1, Ordering::Relaxed) + 1;
        if marks < MARKS_A_BUCKET * self.buckets.len() as u64 {
            return;
        }
        let Some(_opening) = self.opening.try_lock() else {
            return;
        };
        let closed = self.state.floor.load(Ordering::SeqCst);
        if closed & CLOSED == 0 || self.buckets.is_empty() {
            return;
        }
        // Who is numbered from now on tells the table, and who was before is at or below `newest`.
        self.state.any.store(true, Ordering::SeqCst);
        let Some(newest) = newest() else {
            return;
        };
        let segments = segment.0 >> SEGMENT_BITS;
        let before = self.state.segments.swap(segments, Ordering::AcqRel);
        match closed {
            // For the first time: nothing is sure, nobody writes anything down, and `floor` says who may believe it.
            CLOSED => self.make_pages(),
            _ => self.buckets.iter().for_each(|bucket| bucket.forget(newest)),
        }
        // Never the same floor for others: whoever looks twice sees that. They come with commits, so the next one is not far.
        let floor = newest.0 + u64::from(before != segments);
        // Unless it was closed again meanwhile.
        let _opened =
            (self.state.floor).compare_exchange(closed, floor, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Has the system make the table's pages, where the allocator (jemalloc) has left that to who first writes to one. One that is read first is made twice, and the second time all processors are told of
    /// it: 10 to 30 ms for a table of 8 MiB, most of what the first get of an open database took.
    fn make_pages(&self) {
        for bucket in self
            .buckets
            .iter()
            .step_by(PAGE_BYTES / size_of::<Bucket>())
        {
            // A write, whatever is there.
            let _same = bucket
                .newest
                .compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn bucket(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<(&Bucket, u64)> {
        if self.buckets.is_empty() {
            return None;
        }
        let hash = first_hash(keyspace, key);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the buckets are a power of two: the low bits are what is wanted"
        )]
        let index = hash as usize & (self.buckets.len() - 1);
        Some((&self.buckets[index], hash))
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
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

    /// Where `key` is known to stand for who reads at `at`.
    fn place(hot: &HotKeys, key: &[u8], at: u64) -> Option<ValuePlace> {
        hot.look(ONE, key)?.place(SeqNum(at))
    }

    fn mark(hot: &HotKeys, key: &[u8], at: u64, pointer: &ValuePointer) {
        let look = hot.look(ONE, key).expect("it was opened");
        hot.mark(&look, SeqNum(at), pointer);
    }

    #[test]
    fn of_a_key_that_is_read_commits_are_told_so() {
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
        assert!(!replace(ONE, &far), "it was deleted");
    }

    #[test]
    fn as_many_keys_are_known_as_there_is_room_for_and_those_read_lately() {
        let hot = opened(16 << 20, 0);
        let room = u32::try_from(hot.buckets.len() * KEYS).unwrap();
        // And not another key that is taken for it.
        let knows = |n: u32| {
            let key = n.to_le_bytes();
            let (bucket, hash) = hot.bucket(ONE, &key).unwrap();
            let its = |there: &u64| there & !SURE == word(hash, &at(1, n));
            let known = bucket.words().iter().any(its);
            let told = hot.touch(ONE, &key, SeqNum(1), Some(&at(1, n)));
            assert!(told || !known);
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
    fn switched_off_it_knows_nothing() {
        let hot = HotKeys::new(false, 1 << 30);
        hot.open(SegmentId(1), || panic!("there is nothing to open"));
        assert!(!hot.is_closed() && !hot.any() && hot.look(ONE, b"a").is_none());
        assert!(!hot.touch(ONE, b"a", SeqNum(1), Some(&at(1, 2))));
        assert_eq!(hot.bytes(), 0);
    }

    #[test]
    fn a_place_is_sure_until_its_key_is_written_and_again_when_it_was_read_after_that() {
        let hot = opened(1 << 20, 5);
        assert!(hot.any() && !hot.is_closed());
        // What came before the table was in use told it nothing, and is not all visible.
        mark(&hot, b"a", 4, &at(1, 64));
        assert_eq!(place(&hot, b"a", 5), None);
        mark(&hot, b"a", 5, &at(1, 64));
        assert_eq!(place(&hot, b"a", 5), Some(ValuePlace::of(&at(1, 64))));
        // Numbered and not visible; then visible; then read.
        hot.touch(ONE, b"a", SeqNum(7), Some(&at(2, 0)));
        assert_eq!((place(&hot, b"a", 6), place(&hot, b"a", 7)), (None, None));
        mark(&hot, b"a", 6, &at(1, 64));
        assert_eq!(place(&hot, b"a", 7), None, "found before");
        mark(&hot, b"a", 7, &at(2, 0));
        assert_eq!(place(&hot, b"a", 7), Some(ValuePlace::of(&at(2, 0))));
        assert_eq!(place(&hot, b"a", 6), None, "a snapshot of before");
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
    fn closed_nothing_is_sure_and_it_opens_when_it_was_asked_often() {
        let hot = opened(1, 0);
        mark(&hot, b"a", 0, &at(1, 64));
        hot.close();
        assert!(hot.is_closed() && place(&hot, b"a", 9).is_none());
        let ask = || hot.open(SegmentId(1), || Some(SeqNum(9)));
        (1..hot.buckets.len()).for_each(|_| ask());
        assert!(hot.is_closed());
        hot.open(SegmentId(1), || None);
        assert!(hot.is_closed(), "the number was not to be had");
        ask();
        assert!(!hot.is_closed() && place(&hot, b"a", 9).is_none());
        mark(&hot, b"a", 8, &at(1, 64));
        assert_eq!(place(&hot, b"a", 9), None, "found before");
        mark(&hot, b"a", 9, &at(1, 64));
        assert!(place(&hot, b"a", 9).is_some());
        // A segment whose number has other high bits: then it is opened for those.
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
        assert_eq!(place(&hot, b"a", 10), None, "one of before");
    }

    #[test]
    fn what_is_known_of_a_value_moves_with_it() {
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
        // A hint stays one.
        assert!(hot.touch(ONE, b"a", SeqNum(1), Some(&at(3, 8))));
        moved(0, (3, 8), (4, 0));
        moved(1, (2, 0), (4, 0));
        moved(1, (3, 8), (4, 8));
        assert_eq!(place(&hot, b"a", 1), None);
        assert!(hot.touch(ONE, b"a", SeqNum(2), None));
        // Of a segment whose number has other high bits nothing can be said.
        mark(&hot, b"a", 2, &at(5, 0));
        moved(2, (5, 0), ((1 << 20) + 1, 0));
        assert_eq!(place(&hot, b"a", 2), Some(ValuePlace::of(&at(5, 0))));
    }

    /// Threads write keys of few buckets and read them; what is sure is never older than what the reader knew to be visible before it looked.
    #[test]
    fn what_is_sure_is_never_old() {
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
                        let known =
                            (known.saturating_sub(3)..=known).find(|seqno| seqno % 4 == n % 4);
                        let now = SeqNum(visible.load(Ordering::SeqCst));
                        let look = hot.look(ONE, &key(n)).unwrap();
                        match look.place(now) {
                            Some(ValuePlace(_, offset)) => {
                                assert!(u64::from(offset) >= known.unwrap_or(0));
                                sure += 1;
                            }
                            _ => {
                                let now = SeqNum(visible.load(Ordering::SeqCst));
                                // Perhaps of a commit that is not visible at `now`: then the bucket was told.
                                let found = cell(n).load(Ordering::SeqCst);
                                hot.mark(&look, now, &pointer(found));
                            }
                        }
                    }
                });
            }
        });
    }
}
