//! The one cache of a database: key blocks of tables by where they stand, and values of the log by their keys, of each the one that was cached last.
//!
//! Thread-safe. Invariants: 1. what is cached was verified before it was put here, so a hit needs no checksum. 2. Each entry owns exactly its bytes: a slice of a larger
//! buffer is copied, else a 100-byte value would keep a 4 KiB read buffer alive and `used_bytes` would lie. 3. Files and segments are never rewritten and their numbers
//! never reused, and who asks for a value says where it stands, so nobody is given another one, of that key or of one with the same hash; blocks of deleted files leave by age. 4. Entries and the memory they lie in ([`slabs`](crate::slabs)) are bounded
//! each: what is free in slabs is no entry's, so entries weigh less than the capacity by that much. What callers hold of entries that left counts against up to half of it.

mod key;
mod prefetch_hints;
#[cfg(test)]
mod tests;

pub use key::{CacheKey, KeyHash, ValuePlace};
pub(crate) use key::{Mixer, Slot};

use crate::slabs::{Held, SLAB_BYTES, Slabs};
use bytes::Bytes;
use glintdb_core::planted;
use parking_lot::Mutex;
use prefetch_hints::PrefetchHints;
use quick_cache::{OptionsBuilder, Weighter, sync};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What an entry costs beside the memory that its bytes and their key lie in: slot and share of the hash table, which doubles (`examples/cache_hit.rs`).
const ENTRY_OVERHEAD_BYTES: usize = 64;
/// Below this capacity entries come from the allocator: slabs of many sizes would have more free than is in use.
const SLABS_FROM_BYTES: usize = 64 << 20;
/// So often memory for one entry is looked for, a slab being given up in between: where nothing is free the first time makes entries go.
const ATTEMPTS: usize = 4;
/// So many slabs are given up when the capacity shrinks; where that is not enough, each entry that comes gives up one more.
const GIVEN_UP_AT_ONCE: usize = 32;
/// Of the capacity, what values that nobody has asked for leave free.
const SPARE_PART: usize = 8;
/// Of the capacity, what is never filled, so that a few cells are free.
const RESERVE_PART: usize = 128;
/// The weight of entries is bounded anew where it is this part of it off: each time, what is known of entries that left is lost a little.
const WEIGHT_STEP_PART: u64 = 256;
/// Guess of an entry's size, by which the cache sizes its tables; they grow where it is wrong.
const ENTRY_BYTES_TYPICAL: usize = 2048;
/// Entries that are fetched from memory at once: about as many lines as a core waits for together.
const FETCHED_TOGETHER: usize = 32;
/// Stripes of what every read writes to, such as counters; a power of two.
pub const STRIPES: usize = 16;

/// What a slot has. It may be told that it stands elsewhere; its bytes stay where they are.
#[derive(Clone)]
struct Entry {
    held: Held,
    place: ValuePlace,
}

impl Entry {
    /// What it costs, with its share of the tables.
    fn bytes(&self) -> usize {
        self.held.bytes() + ENTRY_OVERHEAD_BYTES
    }

    #[inline]
    fn stands_at(&self, key: &CacheKey) -> bool {
        self.place == key.place()
    }
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
    prefetch_hints: PrefetchHints,
}

/// Counters since the cache was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Lookups that found something.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
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
        let prefetch_hints = PrefetchHints::new(capacity_bytes);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity_bytes / ENTRY_BYTES_TYPICAL).max(16))
            .weight_capacity(prefetch_hints.rest_of(capacity_bytes))
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
            prefetch_hints,
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
        self.prefetch_hints.fetch_entry(&key.slot());
        let found = self.look_up_of(key);
        self.count(u64::from(found.is_some()), 0);
        found
    }

    #[inline]
    fn look_up_of(&self, key: &CacheKey) -> Option<Bytes> {
        let entry = self.entry(key)?;
        (entry.held.whose() == key.whose()).then(|| Bytes::from_owner(entry.held))
    }

    /// By its place alone, which whoever asks has from the index.
    #[inline]
    fn look_up(&self, key: &CacheKey) -> Option<Bytes> {
        let entry = self.entry(key)?;
        if entry.held.whose() != key.whose() && key.whose() != KeyHash::UNKNOWN {
            // From now on it is known.
            return Some(self.insert(*key, &[&entry.held]));
        }
        Some(Bytes::from_owner(entry.held))
    }

    /// What stands where the key says, which is more recent from now on.
    #[inline]
    fn entry(&self, key: &CacheKey) -> Option<Entry> {
        let entry = self.entries.get(&key.slot())?;
        let its = planted!(
            "cache: the cache has one value of a key for all of them",
            entry.stands_at(key),
            true
        );
        its.then_some(entry)
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
                self.prefetch_hints.fetch_place(&key.slot());
            }
            for key in together.clone() {
                self.prefetch_hints.fetch_entry(&key.slot());
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

    /// What is cached for `key`; counts nothing and makes nothing more recent.
    #[must_use]
    pub fn peek(&self, key: &CacheKey) -> Option<Bytes> {
        let entry = self.entries.peek(&key.slot())?;
        entry.stands_at(key).then(|| Bytes::from_owner(entry.held))
    }

    /// Whether `key` is cached; counts nothing and makes nothing more recent.
    #[must_use]
    pub fn contains(&self, key: &CacheKey) -> bool {
        let entry = self.entries.peek(&key.slot());
        entry.is_some_and(|entry| entry.stands_at(key))
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

    /// Bytes that may be cached before anything has to go for them, about; some is left for who asks for something next.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        let capacity = self.capacity_bytes();
        let counted = self.counted();
        let weight_max = usize::try_from(self.entries.capacity()).unwrap_or(usize::MAX);
        let entries = weight_max.saturating_sub(counted.entries);
        let slabs = capacity.saturating_sub(counted.all());
        entries.min(slabs).saturating_sub(capacity / SPARE_PART)
    }

    /// Where the value stands that is cached of a key, if one is; counts nothing and makes nothing more recent.
    #[must_use]
    pub fn place_of(&self, key: &KeyHash) -> Option<ValuePlace> {
        let entry = self.entries.peek(&Slot::of_value(key));
        entry.map(|entry| entry.place)
    }

    /// [`put`](Self::put) of a value that nobody has asked for, where hardly anything has to go for it: in the place of another value of its key, and `room` bytes. Answers how many it takes of these.
    pub fn offer(&self, key: CacheKey, value: &[u8], room: usize) -> usize {
        let slot = key.slot();
        let alone = self.is_small();
        let bytes = Slabs::bytes_of(value.len(), alone) + ENTRY_OVERHEAD_BYTES;
        let there = self.entries.peek(&slot);
        if there.as_ref().is_some_and(|entry| entry.stands_at(&key)) {
            return 0;
        }
        let takes = bytes.saturating_sub(there.as_ref().map_or(0, Entry::bytes));
        // Of what is there only, not what the cache remembers of keys that have left it.
        let forget = |there: Option<Entry>| {
            if there.is_some() {
                drop(there);
                self.entries.remove_if(&slot, |_| true);
            }
        };
        if takes > room {
            forget(there);
            return 0;
        }
        let grows = |bytes| self.has_room_for(bytes, alone);
        let hold = || (self.slabs).hold(slot, key.whose(), &[value], alone, grows);
        let held = hold().or_else(|| {
            // It goes all the same, and leaves a cell.
            forget(there);
            hold()
        });
        let Some(held) = held else { return 0 };
        self.keep(key, held);
        takes
    }

    /// The value of a key that stands at `from` stands at `to` as well from now on, and is asked for there. Nothing is copied, and it is as recent as it was. Whether it is cached.
    pub fn moved(&self, key: &KeyHash, from: ValuePlace, to: ValuePlace) -> bool {
        let slot = Slot::of_value(key);
        let moves = |entry: &Entry| {
            planted!(
                "cache: what moves is taken for whatever is cached of its key",
                entry.place == from,
                true
            )
        };
        let entry = self.entries.peek(&slot).filter(moves);
        // Where another value of the key came in between, this one takes its place: whoever asks for that is told that it is not there.
        entry.is_some_and(|entry| {
            let moved = Entry { place: to, ..entry };
            self.entries.replace(slot, moved, true).is_ok()
        })
    }

    fn keep(&self, key: CacheKey, held: Held) {
        let (slot, place) = (key.slot(), key.place());
        self.prefetch_hints.note(&slot, &held);
        self.entries.insert(slot, Entry { held, place });
    }

    /// A copy of `parts` that may be kept; `None` where there is no memory for it.
    fn hold(&self, key: CacheKey, parts: &[&[u8]]) -> Option<Held> {
        if self.above.load(Ordering::Relaxed) {
            self.shrink(1);
        }
        let alone = self.is_small();
        let room = |bytes| self.has_room_for(bytes, alone);
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

    /// Whether there may be so many bytes more. What is `alone` makes entries go by its weight.
    fn has_room_for(&self, bytes: usize, alone: bool) -> bool {
        alone || self.counted().all() + bytes <= self.capacity_bytes()
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
                        self.prefetch_hints.note(&slot, &moved);
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
        let its = |entry: &Entry| entry.stands_at(key);
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
        usize::try_from(self.prefetch_hints.rest_of(capacity_bytes)).unwrap_or(usize::MAX)
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

/// The stripe of the calling thread, below [`STRIPES`]. For what every read writes to.
#[inline]
#[must_use]
pub fn stripe_of_thread() -> usize {
    glintdb_core::sync::thread_number() % STRIPES
}

#[derive(Clone)]
struct ByteWeight;

impl Weighter<Slot, Entry> for ByteWeight {
    fn weight(&self, _: &Slot, entry: &Entry) -> u64 {
        entry.bytes() as u64
    }
}
