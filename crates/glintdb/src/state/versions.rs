//! The current version, and the replaced ones that somebody still reads: which pictures there are, and what may go because none of them shows it.
//!
//! Thread safety: everything from any thread. Readers take no lock; installing and freeing take one, for a look and a swap.
//!
//! Invariants:
//! 1. Whatever a reader holds is the current version, or noted as replaced: it is noted before it stops being current.
//! 2. A dead segment is free when every version that had been replaced by the time it was found dead is gone; the current one must not name it. So: first the version without it is
//!    installed, then it is [`dead`](Versions::free).

use glintdb_core::sync::{ArcSwap, Mutex};
use glintdb_core::{SegmentId, SeqNum, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// See the module's page. Loom's models have versions of their own (`V`).
pub(crate) struct Versions<V> {
    current: ArcSwap<V>,
    replaced: Mutex<Replaced<V>>,
}

/// What was replaced and may still be in use.
struct Replaced<V> {
    versions: Vec<Weak<V>>,
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

    /// The current version, for a look: not to be kept.
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<V>> + use<'_, V> {
        self.current.load()
    }

    /// The current version.
    pub(crate) fn load_full(&self) -> Arc<V> {
        self.current.load_full()
    }

    /// A version, and a number up to which it shows every commit; `visible` says up to where all are whole.
    pub(crate) fn read_point(&self, visible: impl Fn() -> SeqNum) -> (Arc<V>, SeqNum) {
        loop {
            let version = self.current.load_full();
            let at = visible();
            // A memtable sealed in between would leave commits at or below `at` out of `version`.
            if Arc::ptr_eq(&version, &self.current.load()) {
                return (version, at);
            }
        }
    }

    /// Replaces the version by what `change` makes of it; one change at a time. Answers the one that was replaced: with the last handle of it go files that only it showed, which takes as long as the file
    /// system likes. So the caller lets go of it where nobody waits for the caller, and by then short looks at it are over, which else would have to see to that.
    #[must_use = "it is to be let go of outside of locks"]
    pub(crate) fn install(&self, change: impl FnOnce(&V) -> V) -> Arc<V> {
        let mut replaced = self.replaced.lock();
        replaced.prune();
        let old = self.current.load_full();
        let new = Arc::new(change(&old));
        replaced.versions.push(Arc::downgrade(&old));
        self.current.store(new);
        old
    }

    /// Takes note of segments that are dead by now (invariant 2), and hands out those that nobody reads any more, each once.
    pub(crate) fn free(&self, dead: impl IntoIterator<Item = SegmentId>) -> Vec<SegmentId> {
        let mut replaced = self.replaced.lock();
        replaced.prune();
        let users = planted!(
            "glintdb: a segment goes while a snapshot reads it",
            replaced.versions.clone(),
            Vec::new()
        );
        for segment in dead {
            replaced
                .dead
                .entry(segment)
                .or_insert_with(|| users.clone());
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

    /// A segment that was free and could not go yet: it is free at the next call of [`free`](Self::free).
    pub(crate) fn keep_dead(&self, segment: SegmentId) {
        self.replaced.lock().dead.insert(segment, Vec::new());
    }

    /// Dead segments that wait for a version of which `kept` says that it stays.
    pub(crate) fn kept_dead(&self, kept: impl Fn(*const V) -> bool) -> BTreeSet<SegmentId> {
        let replaced = self.replaced.lock();
        let is_kept = |version: &Weak<V>| version.strong_count() > 0 && kept(version.as_ptr());
        (replaced.dead.iter())
            .filter(|(_, users)| users.iter().any(is_kept))
            .map(|(segment, _)| *segment)
            .collect()
    }

    /// Whether a dead segment waits for something.
    pub(crate) fn some_wait(&self) -> bool {
        !self.replaced.lock().dead.is_empty()
    }
}

impl<V> Replaced<V> {
    fn prune(&mut self) {
        self.versions.retain(|version| version.strong_count() > 0);
    }
}

#[cfg(all(test, loom))]
mod models;
