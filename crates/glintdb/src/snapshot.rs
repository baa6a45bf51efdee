//! Snapshots: a version and a sequence number, kept readable until the last clone goes, or until what snapshots pin exceeds its bound.
//!
//! Thread safety: a [`Snapshot`] is `Send + Sync + Clone`; its reads take no lock.
//!
//! Invariants:
//! 1. What a snapshot shows never changes; once it has failed with `SnapshotTooOld` it always does.
//! 2. Every live read point that outlasts one call is registered, so the stats can say what is pinned, and the oldest can be given up.
//! 3. Who gives up a read point that is not its own holds what the point holds, and never the database: only the caller's own threads close it.

use crate::db::Handle;
use crate::engine::Engine;
use crate::iter::Iter;
use crate::keyspace::Keyspace;
use crate::read::point::ReadPoint;
use crate::state::version::{KeyspaceState, Version};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_cache::{STRIPES, stripe_of_thread};
use glintdb_core::sync::{ArcSwapOption, Mutex};
use glintdb_core::{Direction, Padded, SeqNum};
use glintdb_memtable::Arena;
use slab::Slab;
use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// A registered read point.
pub(crate) struct Pin {
    pub(crate) handle: Arc<Handle>,
    pub(crate) at: SeqNum,
    place: PinPlace,
    held: Arc<Held>,
}

/// Where a pin is registered.
#[derive(Clone, Copy)]
struct PinPlace {
    stripe: usize,
    key: usize,
}

/// What a read point keeps readable.
struct Held {
    /// Commit and number of the version: older points have a smaller one, or the same.
    age: (SeqNum, u64),
    version: HeldVersion,
    /// Merges of its iterators, which hold memtables and tables too.
    merges: Mutex<Vec<Weak<PinnedMerge>>>,
    /// Handles of each [`Kind`] that read it. Those of one iterator are not counted: it is one.
    readers: [AtomicUsize; 3],
}

/// Kind of a user's handle that reads at a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Iterator,
    Snapshot,
    Transaction,
}

/// A version, until it is given up.
enum HeldVersion {
    /// Of one iterator: nobody else reads it, and letting go costs nothing.
    Alone(Mutex<Option<Arc<Version>>>),
    /// Many threads may read it at a time. Letting go of it is a look at what all threads of the process have of such pointers.
    Shared(ArcSwapOption<Version>),
}

impl HeldVersion {
    fn alone(version: Arc<Version>) -> Self {
        HeldVersion::Alone(Mutex::new(Some(version)))
    }

    fn shared(version: Arc<Version>) -> Self {
        HeldVersion::Shared(ArcSwapOption::new(Some(version)))
    }

    fn get(&self) -> Option<Arc<Version>> {
        match self {
            HeldVersion::Alone(version) => version.lock().clone(),
            HeldVersion::Shared(version) => version.load_full(),
        }
    }

    /// Without counting a reference.
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

/// The merge of one end of an iterator, until the pin is given up.
pub(crate) type PinnedMerge = Mutex<Option<crate::read::merge::Merge>>;

/// All pins of a database. Every scan registers one, so threads have places of their own for it.
#[derive(Default)]
pub(crate) struct Pins {
    stripes: [Padded<Mutex<Slab<Arc<Held>>>>; STRIPES],
}

impl Pins {
    /// Pins registered now.
    pub(crate) fn count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().len()).sum()
    }

    /// Iterators, snapshots and transactions that read at them, and how many pins there are.
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

    /// Those that are registered, oldest first.
    fn all(&self) -> Vec<Arc<Held>> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            all.extend(stripe.lock().iter().map(|(_, held)| Arc::clone(held)));
        }
        all.sort_by_key(|held| held.age);
        all
    }

    /// Addresses of the versions that they keep: to compare, not to be followed.
    pub(crate) fn versions(&self) -> BTreeSet<*const Version> {
        let pins = self.all();
        let versions = pins.iter();
        versions
            .filter_map(|pin| pin.version.get().as_ref().map(Arc::as_ptr))
            .collect()
    }

    /// Gives up the oldest pins until the rest keeps at most `bytes_max` of the arenas `kept`;
    /// returns how many. Pins that keep none of them stay. An arena that a reader still uses counts
    /// as freed: it goes with that read.
    pub(crate) fn give_up_beyond(&self, bytes_max: usize, kept: &[Arc<Arena>]) -> u64 {
        let bytes = |arena: &Arena| arena.allocated_bytes();
        if kept.iter().map(|arena| bytes(arena)).sum::<usize>() <= bytes_max {
            return 0;
        }
        // Given up outside the lock: a version's drop may remove files.
        let pins = self.all();
        // Memory goes with the last pin that holds it.
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

impl Pin {
    /// Registers a new read point of the present.
    pub(crate) fn new(handle: &Arc<Handle>) -> Arc<Pin> {
        Pin::register(handle, HeldVersion::shared, [0, 0, 0])
    }

    /// The same, for one iterator.
    pub(crate) fn of_iterator(handle: &Arc<Handle>) -> Arc<Pin> {
        Pin::register(handle, HeldVersion::alone, [1, 0, 0])
    }

    /// The pin, for a handle of `kind` more.
    pub(crate) fn share(self: &Arc<Self>, kind: Kind) -> Arc<Pin> {
        self.held.readers[kind as usize].fetch_add(1, Ordering::Relaxed);
        Arc::clone(self)
    }

    /// A handle of `kind` is about to go.
    pub(crate) fn unshare(&self, kind: Kind) {
        // One iterator's own goes with its pin.
        if matches!(self.held.version, HeldVersion::Shared(_)) {
            self.held.readers[kind as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn register(
        handle: &Arc<Handle>,
        version_of: impl FnOnce(Arc<Version>) -> HeldVersion,
        readers: [usize; 3],
    ) -> Arc<Pin> {
        let engine = &handle.engine;
        let stripe = stripe_of_thread();
        // A forked child takes no lock; every read of its pin fails, and its drop removes nothing.
        let mut registered = (!engine.is_forked()).then(|| engine.pins.stripes[stripe].lock());
        let ReadPoint { version, mut at } = engine.read_point();
        if glintdb_core::seeded::bug("glintdb: a snapshot shows what came after it") {
            at = SeqNum::MAX;
        }
        let held = Arc::new(Held {
            age: (at, version.number),
            version: version_of(version),
            merges: Mutex::new(Vec::new()),
            readers: readers.map(AtomicUsize::new),
        });
        let key = match &mut registered {
            Some(registered) => registered.insert(Arc::clone(&held)),
            None => usize::MAX,
        };
        drop(registered);
        Arc::new(Pin {
            handle: Arc::clone(handle),
            at,
            place: PinPlace { stripe, key },
            held,
        })
    }
}

impl Held {
    /// Frees what it holds, its iterators' share included; `false`: that was done before.
    fn give_up(&self) -> bool {
        let version = self.version.take();
        let merges = std::mem::take(&mut *self.merges.lock());
        for merge in merges.iter().filter_map(Weak::upgrade) {
            // An iterator that holds the lock is reading, and looks at the version afterwards.
            if let Some(mut merge) = merge.try_lock() {
                merge.take();
            }
        }
        version.is_some()
    }
}

impl Pin {
    /// Takes note of an iterator's merge, to be freed when the pin is given up.
    pub(crate) fn keep(&self, merge: crate::read::merge::Merge) -> Arc<PinnedMerge> {
        let merge = Arc::new(Mutex::new(Some(merge)));
        let mut merges = self.held.merges.lock();
        merges.retain(|merge| merge.strong_count() > 0);
        merges.push(Arc::downgrade(&merge));
        merge
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// Its version, unless it was given up.
    pub(crate) fn version(&self) -> Result<Arc<Version>> {
        self.held.version.get().ok_or_else(|| {
            let bytes = self.engine().options.snapshot_pin_bytes_max;
            Error::new(ErrorKind::SnapshotTooOld, format!("snapshots pinned more than snapshot_pin_bytes_max ({bytes} bytes), and this was the oldest"))
        })
    }

    /// Whether [`version`](Self::version) fails.
    pub(crate) fn is_given_up(&self) -> bool {
        self.held.version.is_given_up()
    }

    pub(crate) fn get(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<Bytes>> {
        let version = self.version()?;
        self.engine().get_at(&version, self.at, keyspace, key)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let engine = &self.handle.engine;
        if engine.is_forked() {
            std::mem::forget(Arc::clone(&self.held));
            return;
        }
        let PinPlace { stripe, key } = self.place;
        engine.pins.stripes[stripe].lock().remove(key);
        let version = self.held.version.take();
        // Segments wait for a version's last reader: where there are others, there is nothing to be had.
        if version.is_none_or(|version| Arc::into_inner(version).is_some()) {
            engine.collect_garbage_if_waiting();
        }
    }
}

/// A view of the whole database at one commit. Later commits do not change it. `Send`, `Sync` and
/// cheap to clone.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// let users = db.default_keyspace();
/// users.put("ann", "1")?;
/// let snapshot = db.snapshot();
/// users.put("ann", "2")?;
/// assert_eq!(snapshot.get(&users, "ann")?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), glintdb::Error>(())
/// ```
///
/// An open snapshot keeps old memtables in memory and old files on disk. If open snapshots,
/// transactions and iterators keep more memory alive than
/// [`Options::snapshot_pin_bytes_max`](crate::Options::snapshot_pin_bytes_max), the engine gives up
/// the oldest. Every read through it then fails with [`ErrorKind::SnapshotTooOld`].
pub struct Snapshot {
    pin: Arc<Pin>,
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        Snapshot {
            pin: self.pin.share(Kind::Snapshot),
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.pin.unshare(Kind::Snapshot);
    }
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<Handle>) -> Self {
        Snapshot {
            pin: Pin::new(handle).share(Kind::Snapshot),
        }
    }

    /// Returns the sequence number of the newest commit that the snapshot shows.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.pin.at.0
    }

    /// Returns the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    /// - `SnapshotTooOld`: the snapshot was given up.
    /// - `InvalidArgument`: the keyspace belongs to another open database.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a read.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        keyspace.check_same_db(&self.pin.handle)?;
        self.pin.get(&keyspace.state, key.as_ref())
    }

    /// Returns whether `key` exists. Does not read a separated value.
    ///
    /// # Errors
    /// The same as [`get`](Self::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        keyspace.check_same_db(&self.pin.handle)?;
        let version = self.pin.version()?;
        let found = self
            .pin
            .engine()
            .find(&version, self.pin.at, &keyspace.state, key.as_ref())?;
        Ok(crate::keyspace::is_there(&found))
    }

    /// Returns the values of many keys, one result per key, in the order of `keys`. Submits the
    /// reads that they need in batches. The errors are those of [`get`](Self::get).
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Vec<Result<Option<Bytes>>> {
        let version = keyspace
            .check_same_db(&self.pin.handle)
            .and_then(|()| self.pin.version());
        match version {
            Ok(version) => {
                self.pin
                    .engine()
                    .multi_get(&version, self.pin.at, &keyspace.state, keys)
            }
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Returns an iterator over all keys and values of `keyspace`.
    #[must_use]
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        Iter::new(
            self.pin.share(Kind::Iterator),
            keyspace,
            Bound::Unbounded,
            Bound::Unbounded,
            None,
        )
    }

    /// Returns an iterator over the keys in `range` and their values.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        let (lower, upper) = crate::keyspace::owned_bounds(&range);
        Iter::new(self.pin.share(Kind::Iterator), keyspace, lower, upper, None)
    }

    /// Returns an iterator over the keys that begin with `prefix` and their values.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        let (lower, upper) = crate::keyspace::prefix_bounds(prefix.as_ref());
        Iter::new(self.pin.share(Kind::Iterator), keyspace, lower, upper, None)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(seqno {})", self.pin.at)
    }
}

/// Direction-independent pieces of a scan, for [`Iter`].
pub(crate) fn bound_slices<'a>(
    lower: &'a Bound<Bytes>,
    upper: &'a Bound<Bytes>,
) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (
        lower.as_ref().map(AsRef::as_ref),
        upper.as_ref().map(AsRef::as_ref),
    )
}

/// A merge over what `version` holds of a keyspace at `at` within bounds.
pub(crate) fn merge_of(
    version: &Version,
    at: SeqNum,
    keyspace: &KeyspaceState,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    direction: Direction,
    own: Option<crate::transaction::OwnView>,
) -> Result<crate::read::merge::Merge> {
    use crate::read::merge::{Merge, OwnWrites, Source};
    let mut sources = Vec::with_capacity(version.sealed.len() + 4);
    let mut hiding = Vec::new();
    if let Some(own) = own {
        hiding.extend(own.ranges);
        sources.push(Source::Own(OwnWrites::new(own.entries)));
    }
    for generation in version.generations() {
        let Some(mem) = generation.keyspace(keyspace.id) else {
            continue;
        };
        hiding.extend(mem.ranges.at(at));
        if !mem.map.is_empty() {
            sources.push(Source::Memtable(
                mem.map.cursor(lower, upper, direction, at),
            ));
        }
    }
    if let Some(view) = version.view(keyspace.id) {
        sources.push(Source::Index(view.cursor(lower, upper, direction)?));
    }
    Ok(Merge::new(sources, hiding, direction))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Env, Options};
    use glintdb_core::DbId;
    use glintdb_flash::ManualClock;
    use glintdb_simdisk::MemVolume;
    use std::time::Duration;

    /// Places are taken again by whoever comes next, so they say nothing of age; nor does the commit, where nothing was written in between.
    #[test]
    fn of_two_snapshots_of_one_commit_the_one_with_the_older_version_is_the_older_one() {
        let db = Options::default()
            .background_threads(0)
            .open_volume(
                MemVolume::new(),
                Env::new(Arc::new(ManualClock::new(Duration::ZERO)), DbId([7; 16])),
            )
            .unwrap();
        db.put("a", "1").unwrap();
        let first = Pin::new(&db.handle);
        let older = Pin::new(&db.handle);
        db.flush().unwrap();
        drop(first);
        let newer = Pin::new(&db.handle);
        assert!(older.at == newer.at && newer.place.key < older.place.key);
        let all = db.handle.engine.pins.all();
        assert!(Arc::ptr_eq(&all[0], &older.held) && Arc::ptr_eq(&all[1], &newer.held));
        assert_eq!(db.stats().pins, 2);
        drop((older, newer));
        assert_eq!(db.stats().pins, 0);
    }

    /// Giving up a snapshot that is being read frees nothing at once, so the next one was given up too, and so on to the last.
    #[test]
    fn a_busy_snapshot_that_is_given_up_takes_no_other_with_it() {
        let clock = Arc::new(ManualClock::new(Duration::ZERO));
        let db = Options::default()
            .memory_budget_bytes(8 << 20)
            .log_segment_bytes(64 << 10)
            .background_threads(0)
            .snapshot_pin_bytes_max(1 << 20)
            .open_volume(MemVolume::new(), Env::new(clock, DbId([7; 16])))
            .unwrap();
        let mut pins = Vec::new();
        let mut reading = None;
        let given_up = || db.stats().snapshots_given_up;
        while given_up() == 0 {
            for n in 0..400u64 {
                db.default_keyspace()
                    .put_with(n.to_be_bytes(), [7; 300], Durability::Buffered)
                    .unwrap();
            }
            let pin = Pin::new(&db.handle);
            // Somebody reads in the oldest for as long as the medium takes.
            reading.get_or_insert_with(|| pin.version().unwrap());
            pins.push(pin);
            db.flush().unwrap();
        }
        assert!(pins.len() > 3);
        assert_eq!(given_up(), 1);
        assert!(pins[0].version().is_err());
        assert!(pins[1..].iter().all(|pin| pin.version().is_ok()));
        drop(reading);
        db.flush().unwrap();
        assert_eq!(given_up(), 1);
    }
}
