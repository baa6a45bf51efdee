//! The current version, and the replaced ones that readers still hold. They decide which dead
//! segments may be removed.
//!
//! Thread safety: any thread. Readers take no lock. Installing a version and freeing segments take
//! one, for a look and a swap.
//!
//! Invariants:
//! 1. A version that a reader holds is the current one, or is noted as replaced. It is noted before
//!    it stops being current, or before a reader has it.
//! 2. A dead segment is free once every version that had been replaced when it was found dead is
//!    gone. The current version must not name it then. So the version without the segment is
//!    installed before [`free`](Versions::free) is told of it.

use glintdb_core::sync::{ArcSwap, Mutex};
use glintdb_core::{SegmentId, SeqNum, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// The current version and the replaced ones. Models have versions of another type `V`.
pub(crate) struct Versions<V> {
    current: ArcSwap<V>,
    replaced: Mutex<Replaced<V>>,
}

/// Replaced versions that may still be in use, each with the newest segment that it may name.
struct Replaced<V> {
    versions: Vec<(Weak<V>, SegmentId)>,
    /// Segments found dead, with the versions that may still name them.
    dead: BTreeMap<SegmentId, Vec<Weak<V>>>,
}

impl<V> Versions<V> {
    pub(crate) fn new(first: V) -> Self {
        Versions {
            current: ArcSwap::from_pointee(first),
            replaced: Mutex::new(Replaced {
                versions: Vec::new(),
                dead: BTreeMap::new(),
            }),
        }
    }

    /// Returns the current version, for a short look: it must not be kept.
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<V>> + use<'_, V> {
        self.current.load()
    }

    /// Returns the current version.
    pub(crate) fn load_full(&self) -> Arc<V> {
        self.current.load_full()
    }

    /// Returns a version, and a number up to which it shows every commit. `visible` returns the
    /// number up to which all commits are visible.
    pub(crate) fn read_point(&self, visible: impl Fn() -> SeqNum) -> (Arc<V>, SeqNum) {
        loop {
            let version = self.current.load_full();
            let at = visible();
            // If a memtable was sealed in between, `version` would lack commits at or below `at`.
            if Arc::ptr_eq(&version, &self.current.load()) {
                return (version, at);
            }
        }
    }

    /// Replaces the version with the result of `change`. One change runs at a time.
    ///
    /// Returns the replaced version. Dropping the last handle of it removes files that only it
    /// showed, which takes as long as the file system likes. So the caller drops it where no other
    /// thread waits for the caller. Short looks of readers are over by then; otherwise they would
    /// remove the files.
    #[must_use = "drop it outside of locks"]
    pub(crate) fn install(&self, change: impl FnOnce(&V) -> V) -> Arc<V> {
        let mut replaced = self.replaced.lock();
        replaced.prune();
        let old = self.current.load_full();
        let new = Arc::new(change(&old));
        (replaced.versions).push((Arc::downgrade(&old), SegmentId(u64::MAX)));
        self.current.store(new);
        old
    }

    /// Keeps the files that `version` names until it is dropped, though it never was the current
    /// version. It names segments up to `newest`, and none that the current version does not. The
    /// caller holds the lock under which segments are found dead.
    pub(crate) fn keep(&self, version: V, newest: SegmentId) -> Arc<V> {
        let kept = Arc::new(version);
        let mut replaced = self.replaced.lock();
        planted!(
            "glintdb: a segment goes while a checkpoint copies it",
            replaced.versions.push((Arc::downgrade(&kept), newest)),
            ()
        );
        kept
    }

    /// Notes segments that are dead by now (invariant 2). Returns those that no reader holds any
    /// more, each once.
    pub(crate) fn free(&self, dead: impl IntoIterator<Item = SegmentId>) -> Vec<SegmentId> {
        let mut replaced = self.replaced.lock();
        replaced.prune();
        let Replaced {
            versions,
            dead: waiting,
        } = &mut *replaced;
        for segment in dead {
            waiting.entry(segment).or_insert_with(|| {
                let users = versions.iter().filter(|(_, newest)| segment <= *newest);
                planted!(
                    "glintdb: a segment goes while a snapshot reads it",
                    users.map(|(version, _)| Weak::clone(version)).collect(),
                    Vec::new()
                )
            });
        }
        let unused = |users: &[Weak<V>]| users.iter().all(|version| version.strong_count() == 0);
        let free: Vec<SegmentId> = (replaced.dead.iter())
            .filter(|(_, users)| unused(users))
            .map(|(segment, _)| *segment)
            .collect();
        for segment in &free {
            replaced.dead.remove(segment);
        }
        free
    }

    /// Notes a segment that was free and could not be removed yet. The next call of
    /// [`free`](Self::free) returns it again.
    pub(crate) fn keep_dead(&self, segment: SegmentId) {
        self.replaced.lock().dead.insert(segment, Vec::new());
    }

    /// Returns dead segments that wait for a version for which `kept` returns true.
    pub(crate) fn kept_dead(&self, kept: impl Fn(*const V) -> bool) -> BTreeSet<SegmentId> {
        let replaced = self.replaced.lock();
        let is_kept = |version: &Weak<V>| version.strong_count() > 0 && kept(version.as_ptr());
        (replaced.dead.iter())
            .filter(|(_, users)| users.iter().any(is_kept))
            .map(|(segment, _)| *segment)
            .collect()
    }

    /// Returns whether a dead segment waits for a reader, or to be tried again.
    pub(crate) fn some_wait(&self) -> bool {
        !self.replaced.lock().dead.is_empty()
    }
}

impl<V> Replaced<V> {
    fn prune(&mut self) {
        (self.versions).retain(|(version, _)| version.strong_count() > 0);
    }
}

#[cfg(all(test, loom))]
mod models;
