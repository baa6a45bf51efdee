//! The one cache of a database: key blocks of tables by where they stand, and values of the log by their keys, of each the one that was cached last.
//!
//! Thread-safe. Invariants: 1. what is cached was verified before it was put here, so a hit needs no checksum. 2. Each entry owns exactly its bytes: a slice of a larger
//! buffer is copied, else a 100-byte value would keep a 4 KiB read buffer alive and `used_bytes` would lie. 3. Files and segments are never rewritten and their numbers
//! never reused, and who asks for a value says where it stands, so nobody is given another one, of that key or of one with the same hash; blocks of deleted files leave by age. 4. Entries and the memory they lie in ([`slabs`](crate::slabs)) are bounded
//! each: what is free in slabs is no entry's, so entries weigh less than the capacity by that much. What callers hold of entries that left counts against up to half of it.

use crate::claims::Claims;
use crate::slabs::{COUNT_BEFORE_BYTES, Held, LINE_BYTES, SLAB_BYTES, Slabs};
use bytes::Bytes;
use glintdb_core::{FileId, Result, SegmentId, ValuePointer};
use parking_lot::Mutex;
use quick_cache::{OptionsBuilder, Weighter, sync};
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What an entry costs beside the memory that its bytes and their key lie in: slot and share of the hash table, which doubles (`examples/cache_hit.rs`).
const ENTRY_OVERHEAD_BYTES: usize = 64;
/// Below this capacity entries come from the allocator: slabs of many sizes would have more free than is in use.
const SLABS_FROM_BYTES: usize = 64 << 20;
/// So often memory for one entry is looked for, a slab being given up in between: where nothing is free the first time makes entries go.
const ATTEMPTS: usize = 4;
/// So many slabs are given up when the capacity shrinks; where that is not enough, each entry that comes gives up one more.
const GIVEN_UP_AT_ONCE: usize = 32;
/// Of the capacity, what is never filled, so that a few cells are free.
const RESERVE_PART: usize = 128;
/// The weight of entries is bounded anew where it is this part of it off: each time, what is known of entries that left is lost a little.
const WEIGHT_STEP_PART: u64 = 256;
/// Guess of an entry's size, by which the cache sizes its tables; they grow where it is wrong.
const ENTRY_BYTES_TYPICAL: usize = 2048;
/// Entries that are fetched from memory at once: about as many lines as a core waits for together.
const FETCHED_TOGETHER: usize = 32;
/// Lines of a range of values that are fetched from memory at once.
const RANGE_LINES: usize = 4;
/// Stripes of the counters; a power of two.
pub const STRIPES: usize = 16;

/// Where a separated value stands: in a segment of the log, at an offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValuePlace(pub SegmentId, pub u32);

impl ValuePlace {
    /// Of what has no place of its own.
    const NONE: ValuePlace = ValuePlace(SegmentId(0), 0);

    /// Where the value of `pointer` stands.
    #[must_use]
    #[inline]
    pub fn of(pointer: &ValuePointer) -> ValuePlace {
        ValuePlace(pointer.segment, pointer.offset)
    }
}

/// A key by two of its hashes: by the first its value is found, and the second, which has a seed that nobody knows, says that it is its. [`UNKNOWN`](KeyHash::UNKNOWN) as the second: that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash(pub u64, pub u64);

impl KeyHash {
    /// Of a key of which the first hash alone is at hand.
    pub const UNKNOWN: u64 = 0;
}

/// What is cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CacheKey {
    /// A block of a file, by its offset in bytes.
    Block(FileId, u64),
    /// A separated value: its key, and where it stands. Of values of one key, or of keys with the same first hash, one is cached: the one that came last.
    Value(KeyHash, ValuePlace),
    /// Values that scans come by one after the other, by the hash of the first one's key.
    Range(u64),
}

impl CacheKey {
    #[inline]
    fn slot(&self) -> Slot {
        match *self {
            CacheKey::Block(file, offset) => Slot((file.kind as u64) << 56 | file.number, offset),
            CacheKey::Value(key, _) => Slot::of_value(&key),
            CacheKey::Range(first) => Slot(Slot::RANGES, first),
        }
    }

    /// Where the value stands; of what is no value, nowhere.
    #[inline]
    fn place(&self) -> ValuePlace {
        match *self {
            CacheKey::Value(_, place) => place,
            CacheKey::Block(..) | CacheKey::Range(_) => ValuePlace::NONE,
        }
    }

    /// The second hash of a value's key.
    #[inline]
    fn whose(&self) -> u64 {
        match *self {
            CacheKey::Value(key, _) => key.1,
            CacheKey::Block(..) | CacheKey::Range(_) => KeyHash::UNKNOWN,
        }
    }
}

/// What there is one entry for, in two words, so that an entry is hardly more than a line of memory: kind and number of a file with an offset, or what no file has with a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slot(pub(crate) u64, pub(crate) u64);

impl Slot {
    const VALUES: u64 = u64::MAX;
    const RANGES: u64 = u64::MAX - 1;

    #[inline]
    fn of_value(key: &KeyHash) -> Slot {
        Slot(Slot::VALUES, key.0)
    }
}

/// What a slot has. It may be told that it stands elsewhere; its bytes stay where they are.
#[derive(Clone)]
struct Entry {
    held: Held,
    place: ValuePlace,
}

/// The cache. See the module's page.
pub struct Cache {
    entries: sync::Cache<Slot, Entry, ByteWeight, Mixer>,
    slabs: Slabs,
    capacity_bytes: AtomicUsize,
    /// More is used than that, and slabs could be given up.
    above: AtomicBool,
    weighing: Mutex<()>,
    counters: [Stripe; STRIPES],
    claims: Claims,
    whereabouts: Whereabouts,
}

/// Counters since the cache was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Lookups that found something.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Reads spared because another thread was reading the same.
    pub coalesced: u64,
    /// Threads that wait for another's read now.
    pub waiting: u64,
    /// Entries now.
    pub entries: u64,
    /// Bytes now, overhead included.
    pub used_bytes: u64,
    /// Bytes it may take.
    pub capacity_bytes: u64,
}

/// Counters of the threads that share a stripe, on cache lines of their own (two, because processors fetch lines in pairs).
#[repr(align(128))]
#[derive(Default)]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Cache {
    /// A cache of at most `capacity_bytes` (entries' overhead included). 0: nothing is kept.
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Self {
        let whereabouts = Whereabouts::new(capacity_bytes);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity_bytes / ENTRY_BYTES_TYPICAL).max(16))
            .weight_capacity(whereabouts.rest_of(capacity_bytes))
            .build()
            .expect("both capacities are set");
        Cache {
            entries: sync::Cache::with_options(
                options,
                ByteWeight,
                Mixer,
                sync::DefaultLifecycle::default(),
            ),
            slabs: Slabs::new(),
            capacity_bytes: AtomicUsize::new(capacity_bytes),
            above: AtomicBool::new(false),
            weighing: Mutex::new(()),
            counters: Default::default(),
            claims: Claims::default(),
            whereabouts,
        }
    }

    /// Whether threads that want the same thing at the same time read it once. Said before anything is read; as it is made, they do.
    #[must_use]
    pub fn coalescing(self, wanted: bool) -> Self {
        Cache {
            claims: Claims::new(wanted),
            ..self
        }
    }

    /// What is cached for `key`; shares the entry's memory.
    #[must_use]
    pub fn get(&self, key: &CacheKey) -> Option<Bytes> {
        let found = self.look_up(key);
        self.count(u64::from(found.is_some()), u64::from(found.is_none()));
        found
    }

    /// What is cached for `key`; counted if it is there, and only then. A value has to be known to be the key's: the place alone may come from where keys with the same hash are taken for one another.
    #[inline]
    #[must_use]
    pub fn get_there(&self, key: &CacheKey) -> Option<Bytes> {
        self.whereabouts.fetch_entry(&key.slot());
        let found = self.look_up_of(key);
        self.count(u64::from(found.is_some()), 0);
        found
    }

    #[inline]
    fn look_up_of(&self, key: &CacheKey) -> Option<Bytes> {
        let entry = self.entries.get(&key.slot())?;
        let its = (entry.place == key.place() && entry.held.whose() == key.whose())
            || glintdb_core::seeded::bug("flash: the cache has one value of a key for all of them");
        its.then(|| Bytes::from_owner(entry.held))
    }

    /// By its place alone, which whoever asks has from the index.
    #[inline]
    fn look_up(&self, key: &CacheKey) -> Option<Bytes> {
        let entry = self.entries.get(&key.slot())?;
        let its = entry.place == key.place()
            || glintdb_core::seeded::bug("flash: the cache has one value of a key for all of them");
        if its && entry.held.whose() != key.whose() && key.whose() != KeyHash::UNKNOWN {
            // From now on it is known.
            return Some(self.insert(*key, &[&entry.held]));
        }
        its.then(|| Bytes::from_owner(entry.held))
    }

    /// [`get`](Self::get) of many. An entry that was not looked at for a while is far away, and its references are counted by an operation that nothing goes past: one by one,
    /// they would be waited for one after the other. So where each lies is asked of a small table first, and all are fetched together.
    pub fn get_each(
        &self,
        keys: impl Iterator<Item = CacheKey> + Clone,
        mut found: impl FnMut(Option<Bytes>),
    ) {
        let (mut hits, mut misses) = (0, 0);
        self.fetch_each(keys, |key| {
            let bytes = self.look_up(&key);
            hits += u64::from(bytes.is_some());
            misses += u64::from(bytes.is_none());
            found(bytes);
        });
        self.count(hits, misses);
    }

    /// [`get_there`](Self::get_there) of many, as [`get_each`](Self::get_each).
    pub fn get_each_there(
        &self,
        keys: impl Iterator<Item = CacheKey> + Clone,
        mut found: impl FnMut(Option<Bytes>),
    ) {
        let mut hits = 0;
        self.fetch_each(keys, |key| {
            let bytes = self.look_up_of(&key);
            hits += u64::from(bytes.is_some());
            found(bytes);
        });
        self.count(hits, 0);
    }

    /// Calls `with` each of `keys`, what is cached for them being fetched from memory before.
    #[inline]
    fn fetch_each(
        &self,
        mut keys: impl Iterator<Item = CacheKey> + Clone,
        mut with: impl FnMut(CacheKey),
    ) {
        loop {
            let together = keys.clone().take(FETCHED_TOGETHER);
            for key in together.clone() {
                self.whereabouts.fetch_place(&key.slot());
            }
            for key in together.clone() {
                self.whereabouts.fetch_entry(&key.slot());
            }
            together.for_each(&mut with);
            if keys.nth(FETCHED_TOGETHER - 1).is_none() {
                return;
            }
        }
    }

    #[inline]
    fn count(&self, hits: u64, misses: u64) {
        let stripe = &self.counters[stripe_of_thread()];
        if hits > 0 {
            stripe.hits.fetch_add(hits, Ordering::Relaxed);
        }
        if misses > 0 {
            stripe.misses.fetch_add(misses, Ordering::Relaxed);
        }
    }

    /// What `read` finds for `key`, which was not cached: read by this thread, or by another one that is reading it now. `read` keeps what it finds, where that is to be
    /// kept, and gives it.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read_once(&self, key: CacheKey, read: impl FnOnce() -> Result<Bytes>) -> Result<Bytes> {
        self.claims.read(key, |key| self.peek(key), read)
    }

    /// [`read_once`](Self::read_once) of many together: `read` gets the indices of those that this thread is to read, and gives as many answers. It may be called a second
    /// time, for what another thread could not read.
    pub fn read_each_once(
        &self,
        keys: &[CacheKey],
        read: impl FnMut(&[usize]) -> Vec<Result<Bytes>>,
    ) -> Vec<Result<Bytes>> {
        self.claims.read_each(keys, |key| self.peek(key), read)
    }

    /// What is cached for `key`; counts nothing and makes nothing more recent.
    #[must_use]
    pub fn peek(&self, key: &CacheKey) -> Option<Bytes> {
        let entry = self.entries.peek(&key.slot())?;
        (entry.place == key.place()).then(|| Bytes::from_owner(entry.held))
    }

    /// Whether `key` is cached; counts nothing and makes nothing more recent.
    #[must_use]
    pub fn contains(&self, key: &CacheKey) -> bool {
        let entry = self.entries.peek(&key.slot());
        entry.is_some_and(|entry| entry.place == key.place())
    }

    /// Keeps a copy of `parts`, one behind the other (they may be parts of something larger), and gives back what it keeps (so that the caller need not hold a read buffer either).
    /// A value takes the place of the one that is cached of its key. Something too large for the cache is just given back.
    pub fn insert(&self, key: CacheKey, parts: &[&[u8]]) -> Bytes {
        match self.hold(key, parts) {
            None => parts.concat().into(),
            Some(held) => {
                self.keep(key, held.clone());
                Bytes::from_owner(held)
            }
        }
    }

    /// [`insert`](Self::insert) for whoever does not want it back.
    pub fn put(&self, key: CacheKey, parts: &[&[u8]]) {
        if let Some(held) = self.hold(key, parts) {
            self.keep(key, held);
        }
    }

    /// [`put`](Self::put), unless something is cached there, of a value's key whichever value.
    pub fn insert_new(&self, key: CacheKey, parts: &[&[u8]]) {
        if !self.entries.contains_key(&key.slot()) {
            self.put(key, parts);
        }
    }

    /// [`put`](Self::put) of what takes the place of something that was asked for: it counts as looked at once, for what is new is the first to leave.
    pub fn insert_seen(&self, key: CacheKey, parts: &[&[u8]]) {
        self.put(key, parts);
        let _seen = self.entries.get(&key.slot());
    }

    /// The value of a key that stands at `from` stands at `to` as well from now on, and is asked for there. Nothing is copied, and it is as recent as it was. Whether it is cached.
    pub fn moved(&self, key: &KeyHash, from: ValuePlace, to: ValuePlace) -> bool {
        let slot = Slot::of_value(key);
        let taken = glintdb_core::seeded::bug(
            "flash: what moves is taken for whatever is cached of its key",
        );
        let entry = (self.entries.peek(&slot)).filter(|entry| entry.place == from || taken);
        // Where another value of the key came in between, this one takes its place: whoever asks for that is told that it is not there.
        entry.is_some_and(|entry| {
            let moved = Entry { place: to, ..entry };
            self.entries.replace(slot, moved, true).is_ok()
        })
    }

    fn keep(&self, key: CacheKey, held: Held) {
        let (slot, place) = (key.slot(), key.place());
        self.whereabouts.note(&slot, &held);
        self.entries.insert(slot, Entry { held, place });
    }

    /// A copy of `parts` that may be kept; `None` where there is no memory for it.
    fn hold(&self, key: CacheKey, parts: &[&[u8]]) -> Option<Held> {
        if self.above.load(Ordering::Relaxed) {
            self.shrink(1);
        }
        let alone = self.is_small();
        let room = |bytes| alone || self.counted().all() + bytes <= self.capacity_bytes();
        let mut kept = false;
        for _ in 1..ATTEMPTS {
            if let Some(held) = self.slabs.hold(key.slot(), key.whose(), parts, alone, room) {
                return Some(held);
            }
            kept |= self.give_up_slab() == Some(false);
        }
        // What callers hold is not the cache's, nor is what they keep it from giving up.
        (self.slabs).hold(key.slot(), key.whose(), parts, alone, |bytes| {
            kept || room(bytes)
        })
    }

    fn is_small(&self) -> bool {
        self.capacity_bytes.load(Ordering::Relaxed) < SLABS_FROM_BYTES
    }

    fn counted(&self) -> Counted {
        let entries = usize::try_from(self.entries.weight()).unwrap_or(usize::MAX);
        let (free, stuck) = self.slabs.free_bytes();
        let others = self.used_bytes().saturating_sub(entries + free);
        Counted {
            entries,
            free,
            stuck,
            others: others.min(self.capacity_bytes() / 2),
        }
    }

    /// Gives up slabs, at most so many, until no more is used than may be.
    fn shrink(&self, slabs: usize) {
        let above = || self.counted().all() > self.capacity_bytes();
        let on = (0..slabs).all(|_| above() && self.give_up_slab() != Some(false));
        self.above.store(on && above(), Ordering::Relaxed);
    }

    /// Empties a slab: its entries move to cells that are free elsewhere, or are forgotten where there are none. Whether it is gone, as none is that callers refer to; `None`: no cell is
    /// free, and entries have gone instead.
    fn give_up_slab(&self) -> Option<bool> {
        let gone = self.slabs.give_up_one(|held| {
            let slot = held.slot();
            match (self.slabs).hold(slot, held.whose(), &[&held], false, |_| false) {
                Some(moved) => {
                    let entry = self.entries.peek(&slot);
                    // Else something else is there by now, or nothing.
                    if let Some(entry) = entry.filter(|entry| entry.held.is(&held)) {
                        self.whereabouts.note(&slot, &moved);
                        let moved = Entry {
                            held: moved,
                            ..entry
                        };
                        // It stays as recent as it is. Where somebody has removed it meanwhile, it is not put back.
                        let _removed = self.entries.replace(slot, moved, true);
                    }
                }
                None => {
                    self.entries.remove_if(&slot, |entry| entry.held.is(&held));
                }
            }
        });
        self.weigh(if gone.is_none() { SLAB_BYTES } else { 0 });
        gone
    }

    /// Lets entries weigh as much as the capacity leaves them beside what is used and not theirs, and `less` than now; what is above that goes now.
    fn weigh(&self, less: usize) {
        let _one = self.weighing.lock();
        let capacity = self.capacity_bytes();
        let counted = self.counted();
        let least = match self.is_small() {
            true => 0,
            false => SLAB_BYTES.max(capacity / RESERVE_PART),
        };
        let reserve = (counted.stuck + counted.others).max(least);
        // Half is the cache's whatever callers hold, but for room to grow.
        let half = (capacity / 2).saturating_sub(least);
        let mut weight = capacity.saturating_sub(reserve).max(half);
        if less > 0 && !self.is_small() {
            weight = weight.min(counted.entries.saturating_sub(less)).max(half);
        }
        let (weight, before) = (weight as u64, self.entries.capacity());
        let far = weight.abs_diff(before) > before / WEIGHT_STEP_PART;
        if far || less > 0 || self.is_small() {
            self.entries.set_capacity(weight);
        }
    }

    /// Forgets `key`; answers what it was.
    pub fn remove(&self, key: &CacheKey) -> Option<Bytes> {
        let its = |entry: &Entry| entry.place == key.place();
        let (_, entry) = self.entries.remove_if(&key.slot(), its)?;
        Some(Bytes::from_owner(entry.held))
    }

    /// Forgets whichever value is cached of a key.
    pub fn forget(&self, key: &KeyHash) {
        self.entries.remove(&Slot::of_value(key));
    }

    /// Bytes in use: entries, what is free beside them, and tables.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.slabs.taken_bytes() + self.entries.len() * ENTRY_OVERHEAD_BYTES
    }

    /// Bytes it may take.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        let capacity_bytes = self.capacity_bytes.load(Ordering::Relaxed);
        usize::try_from(self.whereabouts.rest_of(capacity_bytes)).unwrap_or(usize::MAX)
    }

    /// Changes the capacity; when it shrinks, entries go now, and so does memory that they leave, but for what more than 4 MiB of slabs hold: that goes with entries that come.
    pub fn set_capacity_bytes(&self, capacity_bytes: usize) {
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        self.weigh(0);
        self.shrink(GIVEN_UP_AT_ONCE);
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let sum = |counter: fn(&Stripe) -> &AtomicU64| {
            self.counters
                .iter()
                .map(|stripe| counter(stripe).load(Ordering::Relaxed))
                .sum()
        };
        CacheStats {
            hits: sum(|stripe| &stripe.hits),
            misses: sum(|stripe| &stripe.misses),
            coalesced: self.claims.saved(),
            waiting: self.claims.waiting(),
            entries: self.entries.len() as u64,
            used_bytes: self.used_bytes() as u64,
            capacity_bytes: self.capacity_bytes() as u64,
        }
    }
}

/// What is used of the capacity, in bytes.
struct Counted {
    /// Entries, with their share of the tables.
    entries: usize,
    /// Cells that are free.
    free: usize,
    /// Of these, those that giving up slabs does not bring together.
    stuck: usize,
    /// What callers hold of entries that left, and what is in slabs that are given up; at most half of the capacity.
    others: usize,
}

impl Counted {
    fn all(&self) -> usize {
        self.entries + self.free + self.others
    }
}

/// The stripe of the calling thread, below [`STRIPES`]: threads take them in turn. For counters that every read adds to.
#[inline]
#[must_use]
pub fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

/// Addresses of values in the cache, by a hash of what they are cached for, only to have them fetched from memory ahead: an address may be that of another value, or of one that
/// left long ago, and is never looked at.
struct Whereabouts(Box<[AtomicUsize]>);

impl Whereabouts {
    /// A place for so many bytes of capacity.
    const BYTES_A_PLACE: usize = 1024;
    const PLACES_MAX: usize = 1 << 20;

    fn new(capacity_bytes: usize) -> Whereabouts {
        let places = (capacity_bytes / Self::BYTES_A_PLACE).min(Self::PLACES_MAX);
        let places = places.next_power_of_two();
        Whereabouts((0..places).map(|_| AtomicUsize::new(0)).collect())
    }

    /// What is left for entries of a capacity.
    fn rest_of(&self, capacity_bytes: usize) -> u64 {
        capacity_bytes.saturating_sub(size_of_val(&*self.0)) as u64
    }

    #[inline]
    fn place(&self, slot: &Slot) -> &AtomicUsize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the places are a power of two: the low bits are what is wanted"
        )]
        let hash = Mixer.hash_one(slot) as usize;
        &self.0[hash & (self.0.len() - 1)]
    }

    fn note(&self, slot: &Slot, bytes: &Held) {
        if slot.0 >= Slot::RANGES {
            self.place(slot)
                .store(bytes.as_ptr() as usize, Ordering::Relaxed);
        }
    }

    #[inline]
    fn fetch_place(&self, slot: &Slot) {
        prefetch(std::ptr::from_ref(self.place(slot)) as usize);
    }

    #[inline]
    fn fetch_entry(&self, slot: &Slot) {
        let address = self.place(slot).load(Ordering::Relaxed);
        // The count of references stands before the bytes; of a range, who is in it first among them.
        let start = address.wrapping_sub(COUNT_BEFORE_BYTES);
        prefetch(start);
        // A cell that is no line of its own may begin in one and have its first bytes in the next.
        prefetch(start.wrapping_add(LINE_BYTES - 1));
        if slot.0 == Slot::RANGES {
            (1..RANGE_LINES).for_each(|line| prefetch(start.wrapping_add(line * LINE_BYTES)));
        }
    }
}

/// Has the processor fetch the cache line at `address`, whatever is there, and goes on.
#[inline(always)]
fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address, mapped or not, does nothing but fill the processor's caches, and is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::hint::black_box(address);
}

#[derive(Clone)]
struct ByteWeight;

impl Weighter<Slot, Entry> for ByteWeight {
    fn weight(&self, _: &Slot, entry: &Entry) -> u64 {
        (entry.held.bytes() + ENTRY_OVERHEAD_BYTES) as u64
    }
}

/// Hash of three small numbers by folded multiplication. Keys are our own file numbers and offsets, never a stranger's choice.
#[derive(Clone, Default)]
pub(crate) struct Mixer;

pub(crate) struct MixState(u64);

impl BuildHasher for Mixer {
    type Hasher = MixState;
    fn build_hasher(&self) -> MixState {
        MixState(0x243f_6a88_85a3_08d3)
    }
}

impl MixState {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of a product are what is folded"
    )]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for MixState {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.mix(u64::from(byte)));
    }
    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
    fn write_isize(&mut self, word: isize) {
        self.mix(word.cast_unsigned() as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::FileKind;

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
        let pool = crate::BufferPool::new(0);
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
}
