//! Registered read points: the versions that snapshots, transactions and iterators keep readable.
//!
//! Thread safety: any thread. Reads through a pin take no lock.
//!
//! Invariants:
//! 1. What a read point shows never changes. Once it has failed with `SnapshotTooOld`, it always
//!    does.
//! 2. Every read point that outlasts one call is registered. So the stats report the pinned memory,
//!    and the engine can give up the oldest read point.
//! 3. A thread that gives up another thread's read point holds a reference to the version, never to
//!    the database: only the user's own threads close a database.

use crate::read::merge::Merge;
use crate::state::version::{ReadPoint, Version};
use glintdb_cache::{STRIPES, stripe_of_thread};
use glintdb_core::sync::{ArcSwapOption, Mutex};
use glintdb_core::{Padded, SeqNum, planted};
use glintdb_memtable::Arena;
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The kind of a user's handle that reads at a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Iterator,
    Snapshot,
    Transaction,
}

/// The merge of one end of an iterator, until the pin is given up.
pub(crate) type PinnedMerge = Mutex<Option<Merge>>;

/// A version, until it is given up.
enum HeldVersion {
    /// The version of one iterator. No other thread reads it, so dropping it is cheap.
    Alone(Mutex<Option<Arc<Version>>>),
    /// A version that many threads may read at a time. Dropping it checks the pointers that other
    /// threads hold.
    Shared(ArcSwapOption<Version>),
}

impl HeldVersion {
    fn get(&self) -> Option<Arc<Version>> {
        match self {
            HeldVersion::Alone(version) => version.lock().clone(),
            HeldVersion::Shared(version) => version.load_full(),
        }
    }

    /// Whether the version was given up. Counts no reference.
    fn is_given_up(&self) -> bool {
        match self {
            HeldVersion::Alone(version) => version.lock().is_none(),
            HeldVersion::Shared(version) => version.load().is_none(),
        }
    }

    fn take(&self) -> Option<Arc<Version>> {
        match self {
            HeldVersion::Alone(version) => version.lock().take(),
            HeldVersion::Shared(version) => version.swap(None),
        }
    }
}

/// A version that a read point keeps readable, and its readers.
struct Held {
    /// Commit and number of the version, to compare ages. An older point has a smaller age, or the
    /// same.
    age: (SeqNum, u64),
    version: HeldVersion,
    /// Merges of its iterators, which hold memtables and tables too.
    merges: Mutex<Vec<Weak<PinnedMerge>>>,
    /// Handles of each [`Kind`] that read it. An iterator's own pin counts the iterator once.
    readers: [AtomicUsize; 3],
}

impl Held {
    /// Frees the version and the merges of its iterators. Returns false if that was done before.
    fn give_up(&self) -> bool {
        let version = self.version.take();
        let merges = std::mem::take(&mut *self.merges.lock());
        for merge in merges.iter().filter_map(Weak::upgrade) {
            // An iterator that holds the lock is reading, and checks the version afterwards.
            if let Some(mut merge) = merge.try_lock() {
                merge.take();
            }
        }
        version.is_some()
    }
}

/// A registered read point, with its place in [`Pins`].
pub(crate) struct Registered {
    pub(crate) at: SeqNum,
    stripe: usize,
    key: usize,
    held: Arc<Held>,
}

impl Registered {
    /// Counts one more handle of `kind` that reads here.
    pub(crate) fn add_reader(&self, kind: Kind) {
        self.held.readers[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one handle of `kind` less. An iterator's own pin goes with its iterator.
    pub(crate) fn remove_reader(&self, kind: Kind) {
        if matches!(self.held.version, HeldVersion::Shared(_)) {
            self.held.readers[kind as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Keeps an iterator's merge until the read point is given up.
    pub(crate) fn keep(&self, merge: Merge) -> Arc<PinnedMerge> {
        let merge = Arc::new(Mutex::new(Some(merge)));
        let mut merges = self.held.merges.lock();
        merges.retain(|merge| merge.strong_count() > 0);
        merges.push(Arc::downgrade(&merge));
        merge
    }

    /// The version, or `None` if it was given up.
    pub(crate) fn version(&self) -> Option<Arc<Version>> {
        self.held.version.get()
    }

    /// Whether [`version`](Self::version) is `None`.
    pub(crate) fn is_given_up(&self) -> bool {
        self.held.version.is_given_up()
    }

    /// Leaks the read point's memory, in a forked child.
    pub(crate) fn leak(&self) {
        std::mem::forget(Arc::clone(&self.held));
    }
}

/// All read points of a database. Every scan registers one, so each thread uses a stripe.
#[derive(Default)]
pub(crate) struct Pins {
    stripes: [Padded<Mutex<Slab<Arc<Held>>>>; STRIPES],
}

impl Pins {
    /// Registers the read point that `now` returns, for one iterator or for any number of handles.
    /// In a forked child nothing is registered, because locks may never be free there.
    pub(crate) fn register(
        &self,
        now: impl FnOnce() -> ReadPoint,
        one_iterator: bool,
        forked: bool,
    ) -> Registered {
        let stripe = stripe_of_thread();
        let mut registered = (!forked).then(|| self.stripes[stripe].lock());
        let ReadPoint { version, at } = now();
        let at = planted!(
            "glintdb: a snapshot shows what came after it",
            at,
            SeqNum::MAX
        );
        let age = (at, version.number);
        let version = match one_iterator {
            true => HeldVersion::Alone(Mutex::new(Some(version))),
            false => HeldVersion::Shared(ArcSwapOption::new(Some(version))),
        };
        let held = Arc::new(Held {
            age,
            version,
            merges: Mutex::new(Vec::new()),
            readers: [usize::from(one_iterator), 0, 0].map(AtomicUsize::new),
        });
        let key = match &mut registered {
            Some(registered) => registered.insert(Arc::clone(&held)),
            None => usize::MAX,
        };
        Registered {
            at,
            stripe,
            key,
            held,
        }
    }

    /// Forgets a read point. Returns whether its version was given up before, or goes with it: then
    /// segments may have lost their last reader.
    pub(crate) fn remove(&self, pin: &Registered) -> bool {
        self.stripes[pin.stripe].lock().remove(pin.key);
        let version = pin.held.version.take();
        version.is_none_or(|version| Arc::into_inner(version).is_some())
    }

    /// Number of read points.
    pub(crate) fn count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().len()).sum()
    }

    /// Number of handles of each [`Kind`], and of read points.
    pub(crate) fn readers(&self) -> ([usize; 3], usize) {
        let (mut readers, mut pins) = ([0; 3], 0);
        for stripe in &self.stripes {
            for (_, held) in stripe.lock().iter() {
                pins += 1;
                for (count, of_pin) in readers.iter_mut().zip(&held.readers) {
                    *count += of_pin.load(Ordering::Relaxed);
                }
            }
        }
        (readers, pins)
    }

    /// Returns all registered points, oldest first.
    fn all(&self) -> Vec<Arc<Held>> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            all.extend(stripe.lock().iter().map(|(_, held)| Arc::clone(held)));
        }
        all.sort_by_key(|held| held.age);
        all
    }

    /// Returns the addresses of the versions that pins keep, for comparison only.
    pub(crate) fn versions(&self) -> BTreeSet<*const Version> {
        let pins = self.all();
        let versions = pins.iter();
        versions
            .filter_map(|pin| pin.version.get().as_ref().map(Arc::as_ptr))
            .collect()
    }

    /// Gives up the oldest pins until the rest keep at most `bytes_max` of the arenas `kept`.
    /// Returns how many. Pins that keep none of these arenas stay. An arena that a read still uses
    /// counts as freed, because it goes with that read.
    pub(crate) fn give_up_beyond(&self, bytes_max: usize, kept: &[Arc<Arena>]) -> u64 {
        let bytes = |arena: &Arena| arena.allocated_bytes();
        if kept.iter().map(|arena| bytes(arena)).sum::<usize>() <= bytes_max {
            return 0;
        }
        // Pins are given up outside the lock, since dropping a version may remove files.
        let pins = self.all();
        // An arena is freed with the last pin that holds it.
        let mut goes = vec![0; pins.len()];
        let mut holds = vec![false; pins.len()];
        let mut rest: Vec<_> = kept.iter().collect();
        for (number, pin) in pins.iter().enumerate().rev() {
            let Some(version) = pin.version.get() else {
                continue;
            };
            holds[number] = kept.iter().any(|arena| version.has_arena(arena));
            rest.retain(|arena| {
                let here = version.has_arena(arena);
                goes[number] += if here { bytes(arena) } else { 0 };
                !here
            });
        }
        let mut left: usize = goes.iter().sum();
        let mut given_up = 0;
        for (number, pin) in pins.iter().enumerate() {
            if left <= bytes_max {
                break;
            }
            if holds[number] {
                given_up += u64::from(pin.give_up());
                left -= goes[number];
            }
        }
        given_up
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
