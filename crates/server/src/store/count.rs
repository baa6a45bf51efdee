//! DBSIZE: the exact number of keys, without reading before every write and without a scan at every question.
//!
//! A blind SET does not know whether its key is new, and finding out would double the cost of a write. So keys are counted only while somebody asks:
//! the first question counts by a scan of the keys and takes a snapshot; from then on the names of changed keys are noted, and each
//! further question (and each second) looks up just those, in the old snapshot and in a new one. [`IDLE_MS`] after the last question, or when more than
//! [`CHANGED_BYTES_MAX`] of changed keys pile up, noting ends, and the next question scans again.
//!
//! Thread-safe. Lock order: `base`, then the gate of the key locks, then `changed`. Invariant: a change is noted before it is committed, under the shared gate;
//! the notes are swapped and the snapshot taken under the gate held alone. So a change is in the snapshot exactly when its note is among those swapped out
//! then or before.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;
use glintdb::{Db, KeyCount, Keyspace, Result, Snapshot};
use parking_lot::Mutex;

use super::locks::Locks;

/// Counting goes on for so long after a question: longer than monitoring systems' intervals.
const IDLE_MS: u64 = 120_000;

/// Most bytes of changed keys noted between two looks, 64 beyond its bytes reckoned for each.
const CHANGED_BYTES_MAX: usize = 64 << 20;
const KEY_OVERHEAD_BYTES: usize = 64;

/// A snapshot pins memory and files; it is renewed at least so often.
const SNAPSHOT_AGE_MS_MAX: u64 = 5_000;

/// An estimate reads about a thousand places of the index, so INFO shows one for this long.
const ESTIMATE_AGE_MS_MAX: u64 = 10_000;

struct Base {
    keys: u64,
    snapshot: Snapshot,
    taken_ms: u64,
    asked_ms: u64,
}

#[derive(Default)]
struct Changed {
    keys: HashSet<Box<[u8]>, RandomState>,
    bytes: usize,
    /// Some change was not noted: `keys` is no use.
    lost: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Counter {
    base: Mutex<Option<Base>>,
    changed: Mutex<Changed>,
    /// Are changes to be noted? Changes only while the gate is held alone, or from true to false.
    noting: AtomicBool,
    /// The newest estimate for INFO, and when it was made.
    estimate: Mutex<Option<(u64, KeyCount)>>,
}

impl Counter {
    /// Notes that `key` is about to change; under the gate.
    pub(crate) fn note(&self, key: &[u8]) {
        if !self.noting.load(Ordering::Acquire) {
            return;
        }
        let mut changed = self.changed.lock();
        if changed.lost || changed.keys.contains(key) {
            return;
        }
        changed.bytes += key.len() + KEY_OVERHEAD_BYTES;
        if changed.bytes > CHANGED_BYTES_MAX {
            self.lose(&mut changed);
        } else {
            changed.keys.insert(Box::from(key));
        }
    }

    /// Everything changes at once: the next question counts anew.
    pub(crate) fn forget(&self) {
        self.lose(&mut self.changed.lock());
        *self.estimate.lock() = None;
    }

    fn lose(&self, changed: &mut Changed) {
        *changed = Changed {
            lost: true,
            ..Changed::default()
        };
        self.noting.store(false, Ordering::Release);
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.noting.load(Ordering::Acquire)
    }

    /// The number of keys in `keyspace`, which must be the same at each call.
    pub(crate) fn count(
        &self,
        db: &Db,
        keyspace: &Keyspace,
        locks: &Locks,
        now_ms: u64,
    ) -> Result<u64> {
        let mut base = self.base.lock();
        self.renew(&mut base, db, keyspace, locks, now_ms, now_ms)
    }

    /// The engine's count of `keyspace`. An estimate is taken anew once it is
    /// [`ESTIMATE_AGE_MS_MAX`] old.
    pub(crate) fn estimate(&self, keyspace: &Keyspace, now_ms: u64) -> Result<KeyCount> {
        let mut estimate = self.estimate.lock();
        if let Some((taken_ms, count)) = *estimate
            && now_ms.abs_diff(taken_ms) < ESTIMATE_AGE_MS_MAX
        {
            return Ok(count);
        }
        let count = keyspace.count()?;
        *estimate = (!count.is_exact()).then_some((now_ms, count));
        Ok(count)
    }

    /// See [`super::Store::maintain_counts`].
    pub(crate) fn maintain(
        &self,
        db: &Db,
        keyspace: &Keyspace,
        locks: &Locks,
        now_ms: u64,
    ) -> Result<()> {
        let mut base = self.base.lock();
        let Some(Base {
            taken_ms, asked_ms, ..
        }) = *base
        else {
            return Ok(());
        };
        // The clock may jump; then counting just ends early or late.
        if now_ms.abs_diff(asked_ms) > IDLE_MS || !self.is_counting() {
            self.forget();
            *base = None;
            return Ok(());
        }
        let old = now_ms.abs_diff(taken_ms) > SNAPSHOT_AGE_MS_MAX;
        if old || !self.changed.lock().keys.is_empty() {
            self.renew(&mut base, db, keyspace, locks, now_ms, asked_ms)?;
        }
        Ok(())
    }

    fn renew(
        &self,
        base: &mut Option<Base>,
        db: &Db,
        keyspace: &Keyspace,
        locks: &Locks,
        now_ms: u64,
        asked_ms: u64,
    ) -> Result<u64> {
        let (snapshot, changed, complete) = {
            let _alone = locks.all();
            let changed = std::mem::take(&mut *self.changed.lock());
            let complete = self.noting.swap(true, Ordering::AcqRel) && !changed.lost;
            (db.snapshot(), changed.keys, complete)
        };
        let from_changes = match base.take() {
            Some(old) if complete => recount(&old, &snapshot, keyspace, &changed).ok(),
            _ => None,
        };
        let keys = match from_changes {
            Some(keys) => keys,
            None => {
                let mut keys = 0;
                for key in snapshot.iter(keyspace).keys() {
                    key.inspect_err(|_| self.forget())?;
                    keys += 1;
                }
                keys
            }
        };
        *base = Some(Base {
            keys,
            snapshot,
            taken_ms: now_ms,
            asked_ms,
        });
        Ok(keys)
    }
}

fn recount(
    old: &Base,
    new: &Snapshot,
    keyspace: &Keyspace,
    changed: &HashSet<Box<[u8]>, RandomState>,
) -> Result<u64> {
    let mut keys = old.keys;
    for key in changed {
        let was = old.snapshot.contains(keyspace, key)?;
        let is = new.contains(keyspace, key)?;
        keys = keys + u64::from(is) - u64::from(was);
    }
    Ok(keys)
}
