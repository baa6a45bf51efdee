//! The databases behind the commands: keyspaces, expiry, locks, counts and cursors. Knows nothing of RESP.
//!
//! Thread-safe. Database 0 is the keyspace `default`, database *n* the keyspace `redis-db`*n*, made
//! at its first write. While a server runs, the key locks hold back its clients only: what other
//! code in the process writes to these keyspaces is seen, but does not wait for a lock.

pub(crate) mod count;
pub(crate) mod cursor;
pub(crate) mod expiry;
pub(crate) mod locks;
pub(crate) mod records;
pub(crate) mod view;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use glintdb::{
    Batch, DEFAULT_KEYSPACE, Db, Durability, KeyCount, Keyspace, KeyspaceOptions, Result,
};
use glintdb_core::clock::Clock;
use parking_lot::Mutex;

use count::Counter;
use cursor::Cursors;
use locks::{Held, Locks};

/// Longest key, in bytes: the engine's limit.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// Figures for INFO.
#[derive(Default)]
pub(crate) struct StoreStats {
    pub(crate) expired_keys: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

/// See the module.
pub(crate) struct Store {
    db: Db,
    durability: Durability,
    /// Options of the keyspaces that it creates.
    keyspace_options: KeyspaceOptions,
    clock: Arc<dyn Clock>,
    keyspaces: Vec<OnceLock<Keyspace>>,
    expiry: OnceLock<Keyspace>,
    creating: Mutex<()>,
    /// Whether any value may have a header. Until then a key exists when the engine says so, and no
    /// value is read to know.
    expiry_used: AtomicBool,
    locks: Locks,
    counters: Vec<Counter>,
    pub(crate) cursors: Cursors,
    pub(crate) stats: StoreStats,
}

impl Store {
    /// The databases of `db`.
    ///
    /// # Errors
    /// The engine's, when a keyspace cannot be opened.
    pub(crate) fn open(
        db: Db,
        databases: u32,
        durability: Durability,
        keyspace_options: KeyspaceOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Store> {
        let store = Store {
            keyspaces: (0..databases).map(|_| OnceLock::new()).collect(),
            counters: (0..databases).map(|_| Counter::default()).collect(),
            expiry: OnceLock::new(),
            creating: Mutex::new(()),
            expiry_used: AtomicBool::new(false),
            locks: Locks::new(),
            cursors: Cursors::default(),
            stats: StoreStats::default(),
            db,
            durability,
            keyspace_options,
            clock,
        };
        let there = store.db.keyspaces();
        for (number, slot) in (0u32..).zip(&store.keyspaces) {
            let name = keyspace_name(number);
            if there.contains(&name) {
                let keyspace = store.db.keyspace(&name)?;
                slot.get_or_init(|| keyspace);
            }
        }
        if there.iter().any(|name| name == expiry::KEYSPACE) {
            let keyspace = store.db.keyspace(expiry::KEYSPACE)?;
            store.expiry.get_or_init(|| keyspace);
            store.expiry_used.store(true, Ordering::Release);
        }
        Ok(store)
    }

    pub(crate) fn databases(&self) -> u32 {
        u32::try_from(self.keyspaces.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Milliseconds since 1970 UTC.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    /// The keyspace of database `db`, if anything was ever written to it.
    pub(crate) fn keyspace(&self, db: u32) -> Option<&Keyspace> {
        self.keyspaces[db as usize].get()
    }

    fn keyspace_or_create(&self, db: u32) -> Result<&Keyspace> {
        self.get_or_create(&self.keyspaces[db as usize], &keyspace_name(db))
    }

    fn expiry_or_create(&self) -> Result<&Keyspace> {
        self.expiry_used.store(true, Ordering::Release);
        self.get_or_create(&self.expiry, expiry::KEYSPACE)
    }

    fn get_or_create<'s>(&self, slot: &'s OnceLock<Keyspace>, name: &str) -> Result<&'s Keyspace> {
        if let Some(keyspace) = slot.get() {
            return Ok(keyspace);
        }
        let _creating = self.creating.lock();
        if let Some(keyspace) = slot.get() {
            return Ok(keyspace);
        }
        let keyspace = self
            .db
            .keyspace_or_create(name, self.keyspace_options.clone())?;
        Ok(slot.get_or_init(|| keyspace))
    }

    /// May any key have an expiry?
    fn expiry_used(&self) -> bool {
        self.expiry_used.load(Ordering::Acquire)
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    fn commit(&self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.db.write_with(batch, self.durability)
    }

    /// To be called by whoever changes `key`, under its lock and before the commit.
    fn note_change(&self, held: &mut Held<'_>, db: u32, key: &[u8]) {
        self.counters[db as usize].note(key);
        self.locks.touch(held, db, key);
    }

    /// Keys in database `db`, exactly: those whose expiry has passed but who are not removed yet included, as in Redis.
    pub(crate) fn count(&self, db: u32) -> Result<u64> {
        match self.keyspace(db) {
            Some(keyspace) => {
                self.counters[db as usize].count(&self.db, keyspace, &self.locks, self.now_ms())
            }
            None => Ok(0),
        }
    }

    /// Counts the keys in database `db` for INFO. The count is exact if the database is small, or
    /// if its keys are being counted for DBSIZE and this thread holds no locks (`unlocked`).
    pub(crate) fn count_for_info(&self, db: u32, unlocked: bool) -> Result<KeyCount> {
        let counter = &self.counters[db as usize];
        if unlocked && counter.is_counting() {
            return self.count(db).map(KeyCount::Exact);
        }
        match self.keyspace(db) {
            Some(keyspace) => counter.estimate(keyspace, self.now_ms()),
            None => Ok(KeyCount::Exact(0)),
        }
    }

    /// Once a second: keeps counts fresh, or gives them up.
    pub(crate) fn maintain_counts(&self) -> Result<()> {
        for (counter, keyspace) in self.counters.iter().zip(&self.keyspaces) {
            if let Some(keyspace) = keyspace.get() {
                counter.maintain(&self.db, keyspace, &self.locks, self.now_ms())?;
            }
        }
        Ok(())
    }

    /// Removes every key of database `db`, atomically.
    pub(crate) fn flush(&self, db: u32) -> Result<()> {
        let Some(keyspace) = self.keyspace(db) else {
            return Ok(());
        };
        let _held = self.locks.all();
        self.locks
            .touch_all(db, |key| keyspace.contains(key).unwrap_or(true));
        self.counters[db as usize].forget();
        let mut batch = Batch::new();
        batch.delete_range::<&[u8]>(keyspace, ..);
        self.commit(batch)
    }
}

/// Most databases that a server has.
pub(crate) const DATABASES_MAX: u32 = 1024;

/// The keyspace of database `db`.
fn keyspace_name(db: u32) -> String {
    match db {
        0 => DEFAULT_KEYSPACE.to_owned(),
        _ => format!("redis-db{db}"),
    }
}

/// The database whose keyspace has this name.
fn database_of(name: &str) -> Option<u32> {
    let number = match name {
        DEFAULT_KEYSPACE => Some(0),
        _ => name.strip_prefix("redis-db")?.parse().ok(),
    };
    number.filter(|&db| db < DATABASES_MAX && keyspace_name(db) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keyspaces_and_numbers_of_databases_belong_together() {
        for db in [0, 1, 15, DATABASES_MAX - 1] {
            assert_eq!(database_of(&keyspace_name(db)), Some(db));
        }
        for name in [
            "logs",
            "redis-expiry",
            "redis-db",
            "redis-db0",
            "redis-db01",
            "redis-db1024",
        ] {
            assert_eq!(database_of(name), None, "{name}");
        }
    }
}
