//! The table of hot keys: which keys' separated values are read, and the place of each key's newest
//! value.
//!
//! It has two uses:
//! - A *sure* place is the place of the newest visible value of its key. A get that finds one needs
//!   neither memtables nor the index. It asks the cache, which knows the place of each value that
//!   it has.
//! - Any place is a hint to commits: a value that is written for such a key is cached at once,
//!   because it will be read again. By then the ring may have given it to the segment's file, from
//!   where each read is a read of the device.
//!
//! The table has hashes and places, but no keys: a few bits of each key's hash, and as many bits of
//! the place as fit beside them. It may take one key for another. Then the place that it returns is
//! not the place of the value that the cache has of the key, and the lookup misses; or a value is
//! cached that no read asks for. In a full bucket a new key replaces another, so the table knows
//! the keys that were read last.
//!
//! Thread safety: any thread. Reads never wait. A commit waits while a reader writes a place into
//! the same bucket: a few instructions, unless the reader loses its core. A write costs one relaxed
//! load until the first read of a separated value, and a hash and a cache line from then on. Lock
//! order: `opening` → the sequencer's, which is only tried, because its holder may wait for a
//! commit, and commits come here.
//!
//! Invariants:
//! 1. A commit tells the table each key that it writes ([`touch`](HotKeys::touch), and
//!    [`close`](HotKeys::close) for ranges) after it has its number and before it is completed.
//!    From then on the bucket's `newest` is at least its number, and no place of the key in the
//!    bucket is sure.
//! 2. A reader believes a bucket only if it reads all commits up to a number that is at least the
//!    bucket's `newest` and the table's `floor`. So it sees every commit that the bucket was told.
//!    The place that such a reader finds in the index is sure if `newest` is unchanged when it is
//!    written down. `LOCKED` keeps commits from the bucket meanwhile.
//! 3. Commits that were numbered before the table was in use told it nothing. Their numbers are at
//!    most `floor`.
//! 4. A value that value GC moves is still the newest of its key: if its old place was sure, the
//!    new one is. Numbers of segments are never used again.

use crate::read::values::key_hash::first_hash;
use crate::read::values::packed_place::{self, SEGMENT_BITS, TAG_SHIFT, place, tag, word};
use glintdb_cache::ValuePlace;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use glintdb_core::sync::{Mutex, hint, thread};
use glintdb_core::{KeyspaceId, Padded, SegmentId, SeqNum, ValuePointer, planted};

/// Keys in a bucket: with `newest` they fill a cache line. Few in models.
const KEYS: usize = if cfg!(loom) { 1 } else { 7 };
/// Bytes of the memory budget for each bucket.
const BUDGET_BYTES_A_BUCKET: usize = 4 << 10;
/// Least number of buckets. Few in models, so that keys share them.
const BUCKETS_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1 << 11 };
/// Largest number of buckets: 16 MiB.
const BUCKETS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1 << 18 };
/// Bit of a word: its place is sure.
const SURE: u64 = packed_place::FLAG;
/// Bit of a bucket's `newest`: a reader is writing into the bucket. Greater than every visible
/// number, so no other reader believes the bucket.
const LOCKED: u64 = 1 << 63;
/// Bit of `floor`: the table is closed. Greater than every visible number; the other bits count how
/// often the table was closed.
const CLOSED: u64 = 1 << 63;
/// Bytes of a page of memory.
const PAGE_BYTES: usize = 4 << 10;
/// A closed table opens after this many marks for each bucket, because opening it visits every
/// bucket.
const MARKS_A_BUCKET: u64 = 1;

#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    /// Number of the newest commit that wrote a key of this bucket.
    newest: AtomicU64,
    words: [AtomicU64; KEYS],
}

/// The table of hot keys.
pub(crate) struct HotKeys {
    /// Empty if the table is switched off.
    buckets: Box<[Bucket]>,
    state: Padded<State>,
    /// Number of marks since the table was closed.
    marks: AtomicU64,
    /// Held while the table is opened.
    opening: Mutex<()>,
}

struct State {
    /// Whether commits must tell the table their keys.
    any: AtomicBool,
    floor: AtomicU64,
    /// How often the table was closed.
    closed: AtomicU64,
    /// High bits of the segment numbers of all sure places.
    segments: AtomicU64,
}

/// The bucket of a key, which [`HotKeys::look`] returns.
pub(crate) struct Look<'a> {
    state: &'a State,
    bucket: &'a Bucket,
    hash: u64,
}

impl Bucket {
    /// Raises `newest` to at least `seqno`. From then on no reader writes down what it found
    /// before.
    fn raise(&self, seqno: SeqNum) {
        let mut turns = 0;
        loop {
            let newest = self.newest.load(Ordering::Acquire);
            if newest & LOCKED != 0 {
                // The thread that holds the lock may have lost its core.
                turns += 1;
                match turns % 64 {
                    0 => thread::yield_now(),
                    _ => hint::spin_loop(),
                }
                continue;
            }
            // If a newer commit came first, no reader believes the bucket yet: that commit becomes
            // visible only after this one is completed.
            let raised = newest.max(seqno.0);
            if (self.newest)
                .compare_exchange(newest, raised, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Makes every place unsure. A reader that read `newest` before this writes nothing down.
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

    /// Returns the slot for `word` in a bucket of the words `there`: the slot with its tag, else an
    /// empty one, else one whose place is not sure. If all places are sure, a sure word replaces
    /// any one, as reads come in no order.
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
    /// The first hash of the key.
    #[inline]
    pub(crate) fn first_hash(&self) -> u64 {
        self.hash
    }

    /// Returns the place of the key's newest value at commit `at`, which is visible, if that is
    /// known. It may be the place of another key's value.
    #[inline]
    pub(crate) fn place(&self, at: SeqNum) -> Option<ValuePlace> {
        let floor = self.state.floor.load(Ordering::Acquire);
        if floor & CLOSED != 0 {
            return None;
        }
        let segments = self.state.segments.load(Ordering::Acquire);
        let sure = tag(self.hash) << TAG_SHIFT | SURE;
        let words = self.bucket.words().into_iter();
        // Compares every word, so that the processor need not predict which one matches. A word
        // that matches is never 0.
        let found = words.fold(0, |found, word| {
            let mine = word & !(SURE - 1) == sure;
            if mine { word } else { found }
        });
        // Read after the words. So no commit newer than `at` was told before the words were read,
        // and the table was not opened again.
        let newest = self.bucket.newest.load(Ordering::Acquire);
        let believed = newest.max(floor) <= at.0
            && self.state.floor.load(Ordering::Acquire) == floor
            && found != 0;
        believed.then(|| place(found, segments))
    }

    /// Notes that the key's value is at `to` now: the same bytes, as sure as before. The caller
    /// reads all commits up to `at`.
    pub(crate) fn moved(&self, at: SeqNum, from: &ValuePointer, to: &ValuePointer) {
        let floor = self.state.floor.load(Ordering::Acquire);
        let segments = self.state.segments.load(Ordering::Acquire);
        let newest = self.bucket.newest.load(Ordering::Acquire);
        let high = [from, to].map(|pointer| pointer.segment.0 >> SEGMENT_BITS);
        if newest.max(floor) > at.0 || high != [segments; 2] {
            return;
        }
        let (was, now) = (word(self.hash, from), word(self.hash, to));
        // Usually absent. A racing `mark` of the old place is harmless: the cache no longer has a
        // value there.
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

    /// Calls `with` while no commit can tell the bucket anything, unless one did since `newest` and
    /// `floor` were read. Both are at most a visible number, so all commits that told the bucket
    /// something have ended.
    fn write_down(&self, newest: u64, floor: u64, with: impl FnOnce(&Bucket)) {
        let locked = (self.bucket.newest).compare_exchange(
            newest,
            newest | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if locked.is_ok() {
            // Checks that the table was not opened again, for other segments.
            if self.state.floor.load(Ordering::Acquire) == floor {
                with(self.bucket);
            }
            self.bucket.newest.store(newest, Ordering::Release);
        }
    }
}

impl HotKeys {
    /// Creates an empty table of a size that fits the budget. It stays empty and takes no memory if
    /// it is not `wanted`.
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
            // So many that the first mark opens the table.
            marks: AtomicU64::new(u64::MAX / 2),
            opening: Mutex::new(()),
        }
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Whether commits must tell the table their keys.
    pub(crate) fn any(&self) -> bool {
        self.state.any.load(Ordering::Relaxed)
    }

    /// Returns the bucket of `key`. `None` if the table is switched off.
    #[inline]
    pub(crate) fn look(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<Look<'_>> {
        let (bucket, hash) = self.bucket(keyspace, key)?;
        Some(Look {
            state: &self.state,
            bucket,
            hash,
        })
    }

    /// Notes that a read found the newest value of a key at `pointer`, among all commits up to
    /// `at`.
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
            // A word that is there already is as good.
            let known = |there: &u64| there >> TAG_SHIFT == word >> TAG_SHIFT;
            if !there.iter().any(known)
                && let Some(place) = Bucket::place_for(word, &there, pointer.checksum)
            {
                // On a lost race keep the other thread's word; it may be a sure one.
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
                // Release: a reader of the word reads the bucket's `newest` as it is now, or a
                // later one.
                bucket.words[place].store(word, Ordering::Release);
            }
        });
    }

    /// Notes that commit `seqno`, which is not completed yet, writes `key`: a separated value at
    /// `pointer`, or something else. Returns whether the key was read lately, as far as the table
    /// knows.
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
                    // A second word of the same key.
                    _ => 0,
                };
                slot.store(next, Ordering::Relaxed);
                known = true;
            }
        }
        known
    }

    /// Notes that a commit, which is not completed yet, deletes a range of keys: no place is sure
    /// any more.
    #[cold]
    pub(crate) fn close(&self) {
        self.marks.store(0, Ordering::Relaxed);
        let times = self.state.closed.fetch_add(1, Ordering::SeqCst) + 1;
        // A new value each time, so that a thread that opens the table sees the change.
        self.state.floor.store(CLOSED | times, Ordering::SeqCst);
    }

    /// Whether the table is closed, so that reads call [`open`](Self::open).
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.floor.load(Ordering::Relaxed) & CLOSED != 0 && !self.buckets.is_empty()
    }

    /// Opens the closed table if enough reads have asked for it. The caller found a separated value
    /// in `segment`.
    ///
    /// `newest` returns the newest number that was given to a commit, under the lock that gives
    /// them out, or `None` if that lock is taken: its holder may wait for a commit that waits here.
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
        // Commits that are numbered from now on tell the table; the others are at most `newest`.
        self.state.any.store(true, Ordering::SeqCst);
        let Some(newest) = newest() else {
            return;
        };
        let segments = segment.0 >> SEGMENT_BITS;
        let before = self.state.segments.swap(segments, Ordering::AcqRel);
        match closed {
            // The first opening: no place is sure, no reader writes anything down, and `floor` says
            // which readers may believe the table.
            CLOSED => self.make_pages(),
            _ => self.buckets.iter().for_each(|bucket| bucket.forget(newest)),
        }
        // Another floor for other segments, so that a reader that reads it twice sees the change.
        // Their segments come with commits, so a commit with this number is near.
        let floor = newest.0 + u64::from(before != segments);
        // Fails if the table was closed again.
        let _opened =
            (self.state.floor).compare_exchange(closed, floor, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Makes the operating system allocate the table's pages, if the allocator (jemalloc) leaves
    /// that to the first write. A page that is read first is allocated twice, and the second time
    /// all processors are interrupted: 10 to 30 ms for a table of 8 MiB, most of the time of a
    /// database's first get.
    fn make_pages(&self) {
        for bucket in self
            .buckets
            .iter()
            .step_by(PAGE_BYTES / size_of::<Bucket>())
        {
            // Counts as a write, whatever the value is.
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
            reason = "the number of buckets is a power of two, so the low bits are the index"
        )]
        let index = hash as usize & (self.buckets.len() - 1);
        Some((&self.buckets[index], hash))
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests;
