//! What a command sees of a database while it runs, and where its changes go.
//!
//! Used by one thread, for one group of commands. Three kinds:
//! - *read*: straight from the engine; nothing is locked, nothing can be changed.
//! - *group*: a run of commands of one pipeline with at least one change among them. Their keys are locked; changes are collected per key, seen by the later commands of
//!   the run, and committed as one batch. Nobody can tell this from running them one after another: no other client reads or changes those keys in between, but for
//!   reads without locks, which see all of the run or nothing, and the run's answers are sent only after the commit.
//! - *transaction*: an EXEC; the engine's transaction gives scans and FLUSHDB a view with the transaction's own changes in it.
//!
//! Invariant: an expired key is never seen, and is removed (or handed on to be removed) by whoever comes across it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use foldhash::fast::RandomState;
use glintdb::{Batch, Iter, Keyspace, Result, Transaction, TransactionOptions};

use super::Store;
use super::expiry::index_key;
use super::locks::Held;
use crate::value::{StoredValue, encode, needs_header};

/// A value: out of the database, or out of the request that is being answered.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    Stored(Bytes),
    Request(&'a [u8]),
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Value::Stored(bytes) => bytes,
            Value::Request(bytes) => bytes,
        }
    }
}

/// A key that is there.
#[derive(Clone)]
pub(crate) struct Current<'a> {
    pub(crate) value: Value<'a>,
    /// Milliseconds since 1970 UTC; 0 = never.
    pub(crate) expires_ms: u64,
}

/// What a group knows of a key.
struct Slot<'a> {
    current: Option<Current<'a>>,
    /// The expiry in the database; `None` if it was not read.
    old_expires_ms: Option<u64>,
    /// To be committed.
    changed: bool,
    /// Changed by a command (and not just removed for having expired): what was read of it falls with the commit.
    commanded: bool,
}

struct Group<'a> {
    held: Held<'a>,
    slots: HashMap<&'a [u8], Slot<'a>, RandomState>,
    /// Of values that are in memory for it, those it made included.
    bytes: usize,
}

struct Exec<'a> {
    held: Held<'a>,
    transaction: Transaction,
    /// Databases emptied by FLUSHDB: their counts are forgotten at the commit.
    flushed: Vec<u32>,
    changed: bool,
}

enum Mode<'a> {
    Read { expired: Vec<(u32, Vec<u8>)> },
    Group(Group<'a>),
    Exec(Box<Exec<'a>>),
}

/// See the module.
pub(crate) struct View<'a> {
    pub(crate) store: &'a Store,
    pub(crate) db: u32,
    pub(crate) now_ms: u64,
    /// Set when the running command changes something, or reads what its group changed: its answer holds only if the group commits.
    pub(crate) tainted: bool,
    hits: u64,
    misses: u64,
    mode: Mode<'a>,
}

impl<'a> View<'a> {
    fn new(store: &'a Store, db: u32, mode: Mode<'a>) -> Self {
        View {
            store,
            db,
            now_ms: store.now_ms(),
            tainted: false,
            hits: 0,
            misses: 0,
            mode,
        }
    }

    pub(crate) fn read(store: &'a Store, db: u32) -> Self {
        let expired = Vec::new();
        View::new(store, db, Mode::Read { expired })
    }

    /// For commands whose keys are locked in `held`.
    pub(crate) fn group(store: &'a Store, db: u32, held: Held<'a>) -> Self {
        let group = Group {
            held,
            slots: HashMap::default(),
            bytes: 0,
        };
        View::new(store, db, Mode::Group(group))
    }

    /// For an EXEC, whose keys are locked in `held`.
    pub(crate) fn exec(store: &'a Store, db: u32, held: Held<'a>) -> Self {
        let transaction = store
            .db
            .transaction_with(TransactionOptions::default().durability(store.durability));
        let exec = Exec {
            held,
            transaction,
            flushed: Vec::new(),
            changed: false,
        };
        View::new(store, db, Mode::Exec(Box::new(exec)))
    }

    /// Bytes of values that a group keeps in memory until it is committed.
    pub(crate) fn group_bytes(&self) -> usize {
        match &self.mode {
            Mode::Group(group) => group.bytes,
            _ => 0,
        }
    }

    /// Reads many keys of a group at once, before its commands run; the first of them only, where more would take more than `bytes_max`.
    pub(crate) fn prefetch(&mut self, keys: &[&'a [u8]], bytes_max: usize) -> Result<()> {
        let (Mode::Group(group), Some(keyspace)) = (&mut self.mode, self.store.keyspace(self.db))
        else {
            return Ok(());
        };
        let found = keyspace.multi_get_within(keys, bytes_max);
        for (key, stored) in keys.iter().zip(found) {
            group.load(self.store, key, stored?, self.now_ms)?;
        }
        Ok(())
    }

    /// The key's value, for a command that only reads: counted as a hit or a miss.
    pub(crate) fn lookup(&mut self, key: &'a [u8]) -> Result<Option<Current<'a>>> {
        let current = self.get(key)?;
        self.count_lookup(current.is_some());
        Ok(current)
    }

    fn count_lookup(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.misses += u64::from(!hit);
    }

    /// Lookups of the first of `keys` at once: as many as have no more than `bytes_max` of values together, but at least one.
    pub(crate) fn lookup_many(
        &mut self,
        keys: &[&'a [u8]],
        bytes_max: usize,
    ) -> Vec<Result<Option<Current<'a>>>> {
        if !matches!(self.mode, Mode::Read { .. }) {
            return self.lookup_each(keys, bytes_max);
        }
        let Some(keyspace) = self.store.keyspace(self.db) else {
            self.misses += keys.len() as u64;
            return keys.iter().map(|_| Ok(None)).collect();
        };
        let stored = keyspace.multi_get_within(keys, bytes_max);
        keys.iter()
            .zip(stored)
            .map(|(key, stored)| {
                let current = self.decode_read(key, stored?)?;
                self.count_lookup(current.is_some());
                Ok(current)
            })
            .collect()
    }

    fn lookup_each(
        &mut self,
        keys: &[&'a [u8]],
        bytes_max: usize,
    ) -> Vec<Result<Option<Current<'a>>>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        for key in keys {
            let current = self.lookup(key);
            if let Ok(Some(current)) = &current {
                bytes += current.value.as_ref().len();
            }
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(current);
        }
        found
    }

    /// The key's value, if it is there.
    pub(crate) fn get(&mut self, key: &'a [u8]) -> Result<Option<Current<'a>>> {
        let Some(keyspace) = self.store.keyspace(self.db) else {
            // Not even the keyspace is there; but this group may have changed the key.
            return Ok(self.in_group(key).and_then(|slot| slot.current.clone()));
        };
        match &mut self.mode {
            Mode::Read { .. } => {
                let stored = keyspace.get(key)?;
                self.decode_read(key, stored)
            }
            Mode::Group(group) => {
                if !group.slots.contains_key(key) {
                    let stored = keyspace.get(key)?;
                    group.load(self.store, key, stored, self.now_ms)?;
                }
                Ok(self.in_group(key).and_then(|slot| slot.current.clone()))
            }
            Mode::Exec(exec) => {
                let Some(stored) = exec.transaction.get(keyspace, key)? else {
                    return Ok(None);
                };
                let current = decode(self.store, stored)?;
                if !expired(&current, self.now_ms) {
                    return Ok(Some(current));
                }
                self.remove(key)?;
                self.store
                    .stats
                    .expired_keys
                    .fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Is the key there? Reads no value where no key has an expiry.
    pub(crate) fn exists(&mut self, key: &'a [u8]) -> Result<bool> {
        if self.store.expiry_used() {
            return Ok(self.get(key)?.is_some());
        }
        if let Some(slot) = self.in_group(key) {
            return Ok(slot.current.is_some());
        }
        let Some(keyspace) = self.store.keyspace(self.db) else {
            return Ok(false);
        };
        match &mut self.mode {
            Mode::Exec(exec) => exec.transaction.contains(keyspace, key),
            _ => keyspace.contains(key),
        }
    }

    /// [`View::exists`] for a command that only reads.
    pub(crate) fn lookup_exists(&mut self, key: &'a [u8]) -> Result<bool> {
        let there = self.exists(key)?;
        self.count_lookup(there);
        Ok(there)
    }

    /// Sets the key; `expires_ms` 0 = never.
    pub(crate) fn put(&mut self, key: &'a [u8], value: Value<'a>, expires_ms: u64) -> Result<()> {
        self.tainted = true;
        let store = self.store;
        let keyspace = store.keyspace_or_create(self.db)?;
        match &mut self.mode {
            Mode::Read { .. } => panic!("a command that changes keys ran as one that reads"),
            Mode::Group(group) => {
                group.change(key, Some(Current { value, expires_ms }));
                Ok(())
            }
            Mode::Exec(exec) => {
                store.note_change(&mut exec.held, self.db, key);
                exec.changed = true;
                if needs_header(value.as_ref(), expires_ms) {
                    let index = store.expiry_or_create()?;
                    if expires_ms != 0 {
                        exec.transaction
                            .put(index, index_key(self.db, key, expires_ms), [])?;
                    }
                }
                let transaction = &mut exec.transaction;
                encode(value.as_ref(), expires_ms, |stored| {
                    transaction.put(keyspace, key, stored)
                })
            }
        }
    }

    /// Removes a key that is there.
    pub(crate) fn delete(&mut self, key: &'a [u8]) -> Result<()> {
        self.tainted = true;
        match &mut self.mode {
            Mode::Read { .. } => panic!("a command that changes keys ran as one that reads"),
            Mode::Group(group) => {
                group.change(key, None);
                Ok(())
            }
            Mode::Exec(_) => self.remove(key),
        }
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        let (Mode::Exec(exec), Some(keyspace)) = (&mut self.mode, self.store.keyspace(self.db))
        else {
            return Ok(());
        };
        self.store.note_change(&mut exec.held, self.db, key);
        exec.changed = true;
        exec.transaction.delete(keyspace, key)
    }

    /// Removes all keys of a database; in an EXEC that holds all locks.
    pub(crate) fn flush(&mut self, db: u32) -> Result<()> {
        let Mode::Exec(exec) = &mut self.mode else {
            return self.store.flush(db);
        };
        let Some(keyspace) = self.store.keyspace(db) else {
            return Ok(());
        };
        let transaction = &mut exec.transaction;
        self.store.locks.touch_all(db, |key| {
            transaction.contains(keyspace, key).unwrap_or(true)
        });
        exec.flushed.push(db);
        exec.changed = true;
        exec.transaction.delete_range::<&[u8]>(keyspace, ..)
    }

    /// The number of keys.
    pub(crate) fn count(&mut self) -> Result<u64> {
        let (Mode::Exec(exec), Some(keyspace)) = (&mut self.mode, self.store.keyspace(self.db))
        else {
            return self.store.count(self.db);
        };
        let mut keys = 0;
        for key in exec.transaction.iter(keyspace).keys() {
            key?;
            keys += 1;
        }
        Ok(keys)
    }

    /// Entries in key order. `None` if nothing was ever written to the database.
    pub(crate) fn range(
        &mut self,
        range: (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>),
    ) -> Option<Iter> {
        let keyspace: &Keyspace = self.store.keyspace(self.db)?;
        Some(match &mut self.mode {
            Mode::Exec(exec) => exec.transaction.range::<&[u8]>(keyspace, range),
            _ => keyspace.range::<&[u8]>(range),
        })
    }

    /// Commits the changes, and removes expired keys that a reader came across.
    pub(crate) fn commit(self) -> Result<()> {
        let View {
            store, db, now_ms, ..
        } = self;
        if self.hits + self.misses > 0 {
            store.stats.hits.fetch_add(self.hits, Ordering::Relaxed);
            store.stats.misses.fetch_add(self.misses, Ordering::Relaxed);
        }
        match self.mode {
            Mode::Read { expired } if expired.is_empty() => Ok(()),
            // Answers of a reader do not hang on this; the sweep tries again.
            Mode::Read { expired } => store.remove_expired(&expired, now_ms).or(Ok(())),
            Mode::Group(group) => group.commit(store, db),
            Mode::Exec(exec) if !exec.changed => {
                exec.transaction.rollback();
                Ok(())
            }
            Mode::Exec(exec) => {
                for db in exec.flushed {
                    store.counters[db as usize].forget();
                }
                exec.transaction.commit()
            }
        }
    }

    fn in_group(&mut self, key: &[u8]) -> Option<&Slot<'a>> {
        let Mode::Group(group) = &self.mode else {
            return None;
        };
        let slot = group.slots.get(key)?;
        self.tainted |= slot.commanded;
        Some(slot)
    }

    fn decode_read(&mut self, key: &[u8], stored: Option<Bytes>) -> Result<Option<Current<'a>>> {
        let Some(stored) = stored else {
            return Ok(None);
        };
        let current = decode(self.store, stored)?;
        if !expired(&current, self.now_ms) {
            return Ok(Some(current));
        }
        if let Mode::Read { expired } = &mut self.mode {
            expired.push((self.db, key.to_vec()));
        }
        Ok(None)
    }
}

impl<'a> Group<'a> {
    /// Remembers what the database holds for `key`.
    fn load(
        &mut self,
        store: &Store,
        key: &'a [u8],
        stored: Option<Bytes>,
        now_ms: u64,
    ) -> Result<()> {
        let Entry::Vacant(vacant) = self.slots.entry(key) else {
            return Ok(());
        };
        let current = stored.map(|stored| decode(store, stored)).transpose()?;
        self.bytes += current.as_ref().map_or(0, |c| c.value.as_ref().len());
        let due = current.as_ref().is_some_and(|c| expired(c, now_ms));
        if due {
            store.stats.expired_keys.fetch_add(1, Ordering::Relaxed);
        }
        vacant.insert(Slot {
            old_expires_ms: Some(current.as_ref().map_or(0, |c| c.expires_ms)),
            current: current.filter(|_| !due),
            changed: due,
            commanded: false,
        });
        Ok(())
    }

    fn change(&mut self, key: &'a [u8], current: Option<Current<'a>>) {
        if let Some(Value::Stored(made)) = current.as_ref().map(|current| &current.value) {
            self.bytes += made.len();
        }
        match self.slots.entry(key) {
            Entry::Occupied(mut slot) => {
                let slot = slot.get_mut();
                slot.current = current;
                slot.changed = true;
                slot.commanded = true;
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Slot {
                    current,
                    old_expires_ms: None,
                    changed: true,
                    commanded: true,
                });
            }
        }
    }

    fn commit(mut self, store: &Store, db: u32) -> Result<()> {
        let mut batch = Batch::new();
        for (key, slot) in self.slots.iter().filter(|(_, slot)| slot.changed) {
            // Only commands that set a key make its keyspace; one that removes a key found it.
            let keyspace = store.keyspace_or_create(db)?;
            store.note_change(&mut self.held, db, key);
            let expires_ms = slot.current.as_ref().map_or(0, |c| c.expires_ms);
            match &slot.current {
                Some(current) => {
                    if needs_header(current.value.as_ref(), expires_ms) {
                        // Before the first header: it tells other programs that there are some.
                        store.expiry_or_create()?;
                    }
                    encode(current.value.as_ref(), expires_ms, |stored| {
                        batch.put(keyspace, key, stored);
                    });
                }
                None => {
                    batch.delete(keyspace, key);
                }
            }
            let old = slot.old_expires_ms.filter(|old| *old != 0);
            if let (Some(old), Some(index)) = (old, store.expiry.get())
                && (expires_ms == 0 || old / 1000 != expires_ms / 1000)
            {
                batch.delete(index, index_key(db, key, old));
            }
            if expires_ms != 0 && old.is_none_or(|old| old / 1000 != expires_ms / 1000) {
                batch.put(
                    store.expiry_or_create()?,
                    index_key(db, key, expires_ms),
                    [],
                );
            }
        }
        store.commit(batch)
    }
}

fn decode(store: &Store, stored: Bytes) -> Result<Current<'static>> {
    let decoded = StoredValue::decode(stored)?;
    let expires_ms = decoded.expires_ms.unwrap_or(0);
    if expires_ms != 0 && !store.expiry_used() {
        store.expiry_used.store(true, Ordering::Release);
    }
    Ok(Current {
        value: Value::Stored(decoded.value),
        expires_ms,
    })
}

fn expired(current: &Current<'_>, now_ms: u64) -> bool {
    current.expires_ms != 0 && current.expires_ms <= now_ms
}
