//! Key locks: what makes read-modify-write commands, pipelines with writes and transactions atomic among clients.
//!
//! Thread-safe. **Lock order**: the gate, then shards in ascending order, then nothing else that blocks but the database itself.
//!
//! Invariants:
//! 1. Whoever changes a key holds its shard and the gate shared, or the gate alone. So nothing changes a key between a command's read and its commit.
//! 2. Watches of a key are kept in its shard, so they are told of a change before anyone can see it unlocked.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A power of two. Pipelines of 16 keys each meet by chance once in 64 (with 1,024 shards in every fourth, and a waiter may wait for a holder that has lost its core);
/// 16 bytes each, 256 KiB.
const SHARDS: usize = 1 << 14;

/// A key with the number of its database.
pub(crate) type DbKey = (u32, Box<[u8]>);

/// Set as soon as a watched key changes.
pub(crate) type Touched = Arc<AtomicBool>;

type Watches = HashMap<DbKey, Vec<Touched>, RandomState>;

/// The watches of the shard's keys; most shards have none.
type Shard = Option<Box<Watches>>;

/// See the module.
pub(crate) struct Locks {
    gate: RwLock<()>,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Watches in all shards together: zero saves looking for them.
    watched: AtomicUsize,
}

/// Held locks; dropping them unlocks.
pub(crate) enum Held<'a> {
    /// The shards of some keys, ascending.
    Keys(
        #[allow(dead_code, reason = "held, not used")] RwLockReadGuard<'a, ()>,
        Vec<(usize, MutexGuard<'a, Shard>)>,
    ),
    /// Everything.
    All(#[allow(dead_code, reason = "held, not used")] RwLockWriteGuard<'a, ()>),
}

impl Locks {
    pub(crate) fn new() -> Self {
        Locks {
            gate: RwLock::new(()),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            watched: AtomicUsize::new(0),
        }
    }

    fn shard(&self, db: u32, key: &[u8]) -> usize {
        // The upper bits of a foldhash are as good as the lower ones.
        usize::try_from(self.hasher.hash_one((db, key)) % SHARDS as u64).unwrap_or(0)
    }

    /// Locks some keys against changes by others.
    pub(crate) fn keys<'k>(&self, keys: impl Iterator<Item = (u32, &'k [u8])>) -> Held<'_> {
        let mut shards: Vec<usize> = keys.map(|(db, key)| self.shard(db, key)).collect();
        shards.sort_unstable();
        shards.dedup();
        let gate = self.gate.try_read();
        let gate = gate.unwrap_or_else(|| wait(|| self.gate.read()));
        let guards = shards
            .into_iter()
            .map(|index| {
                let guard = self.shards[index].try_lock();
                let guard = guard.unwrap_or_else(|| wait(|| self.shards[index].lock()));
                (index, guard)
            })
            .collect();
        Held::Keys(gate, guards)
    }

    /// Locks everything: no change is on its way while this is held.
    pub(crate) fn all(&self) -> Held<'_> {
        let gate = self.gate.try_write();
        Held::All(gate.unwrap_or_else(|| wait(|| self.gate.write())))
    }

    /// Tells the watches of `key`, which the holder of `held` changes.
    pub(crate) fn touch(&self, held: &mut Held<'_>, db: u32, key: &[u8]) {
        if self.watched.load(Ordering::Acquire) == 0 {
            return;
        }
        self.with_shard(held, db, key, |shard| {
            let key: DbKey = (db, Box::from(key));
            if let Some(watches) = shard.as_ref().and_then(|watches| watches.get(&key)) {
                for touched in watches {
                    touched.store(true, Ordering::Release);
                }
            }
        });
    }

    /// Tells the watches of all keys in `db`; for FLUSHDB, under [`Locks::all`]. `exists` tells which of them are there to be removed.
    pub(crate) fn touch_all(&self, db: u32, mut exists: impl FnMut(&[u8]) -> bool) {
        if self.watched.load(Ordering::Acquire) == 0 {
            return;
        }
        for shard in &self.shards {
            for ((watched_db, key), watches) in shard.lock().iter().flat_map(|all| all.iter()) {
                if *watched_db == db && exists(key) {
                    for touched in watches {
                        touched.store(true, Ordering::Release);
                    }
                }
            }
        }
    }

    /// Begins to watch `key`, which the holder of `held` has locked.
    pub(crate) fn watch(&self, held: &mut Held<'_>, db: u32, key: &[u8], touched: &Touched) {
        self.with_shard(held, db, key, |shard| {
            let watches = shard.get_or_insert_default();
            let watches = watches.entry((db, Box::from(key))).or_default();
            watches.push(Arc::clone(touched));
            self.watched.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// Ends a watch begun with the same flag; without locks held.
    pub(crate) fn unwatch(&self, db: u32, key: &[u8], touched: &Touched) {
        let mut shard = self.shards[self.shard(db, key)].lock();
        let Some(all) = shard.as_mut() else {
            return;
        };
        let key = (db, Box::from(key));
        if let Some(watches) = all.get_mut(&key) {
            if let Some(at) = watches.iter().position(|other| Arc::ptr_eq(other, touched)) {
                watches.swap_remove(at);
                self.watched.fetch_sub(1, Ordering::AcqRel);
            }
            if watches.is_empty() {
                all.remove(&key);
            }
        }
        if all.is_empty() {
            *shard = None;
        }
    }

    fn with_shard(&self, held: &mut Held<'_>, db: u32, key: &[u8], work: impl FnOnce(&mut Shard)) {
        let index = self.shard(db, key);
        match held {
            Held::All(_) => work(&mut self.shards[index].lock()),
            Held::Keys(_, guards) => {
                let at = guards
                    .binary_search_by_key(&index, |(held, _)| *held)
                    .expect("a key is changed or watched under its lock");
                work(&mut guards[at].1);
            }
        }
    }
}

/// A holder may run a transaction of seconds: whoever waits for it lets another thread take over the connections that want nothing of those keys.
fn wait<T>(lock: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_hears_of_its_key_only() {
        let locks = Locks::new();
        let touched = Touched::default();
        let keys: [(u32, &[u8]); 3] = [(0, b"a"), (0, b"b"), (1, b"a")];
        let mut held = locks.keys(keys.into_iter());
        locks.watch(&mut held, 0, b"a", &touched);
        locks.touch(&mut held, 0, b"b");
        locks.touch(&mut held, 1, b"a");
        assert!(!touched.load(Ordering::Acquire));
        locks.touch(&mut held, 0, b"a");
        assert!(touched.swap(false, Ordering::AcqRel));
        drop(held);
        locks.touch_all(0, |_| false);
        assert!(!touched.load(Ordering::Acquire));
        locks.touch_all(0, |key| key == b"a");
        assert!(touched.load(Ordering::Acquire));
        locks.unwatch(0, b"a", &touched);
        assert_eq!(locks.watched.load(Ordering::Acquire), 0);
        assert!(locks.shards.iter().all(|shard| shard.lock().is_none()));
    }
}
