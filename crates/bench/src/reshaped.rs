//! The paper's key reshaping as a model, above any [`Store`] (S. Kim and Y. Son, "Optimizing
//! Key-Value Stores for Flash-Based SSDs via Key Reshaping", IEEE Access 2021, section III).
//!
//! An insert gets the next number, and the store is asked to put the value under the number. So its
//! tree grows at the right edge. An ordered table in memory has the number of each original key:
//! - a search looks up the number, then the value;
//! - an update is an insert, and the old number is deleted at once (*on-the-fly cleaning*);
//! - a scan walks the table, and looks up each value;
//! - each commit appends its entries to an image of the table, which is read at opening;
//! - when the numbers are used up, all live records are inserted again, under new numbers (*key
//!   cleaning*).
//!
//! Thread-safe. The table is locked for a search or a change, not while the store works.
//!
//! Invariants:
//! 1. The table names a number only after the store has its value, so a lookup that finds no value
//!    was overtaken by an update, and looks again.
//! 2. The image has an entry before the table has it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use crate::store::{Durability, Handle, Result, Store};

/// Most numbers before a key cleaning: the paper's is an int.
const NUMBERS_MAX: u64 = i32::MAX as u64;
/// The number that means in the image that the key was deleted.
const DELETED: u64 = u64::MAX;

/// A store with the paper's table in front of it.
pub struct Reshaped {
    name: String,
    store: Box<dyn Store>,
    durability: Durability,
    numbers_max: u64,
    table: Mutex<Table>,
    /// Held for writing by a key cleaning, else for reading by each operation.
    cleaning: RwLock<()>,
    times: Times,
}

/// The table from original keys to numbers, and its image.
struct Table {
    numbers: BTreeMap<Box<[u8]>, u64>,
    last: u64,
    /// Key cleanings so far. Numbers of different ones are told apart by it.
    epoch: u32,
    image: File,
    image_bytes: u64,
    path: PathBuf,
}

/// Nanoseconds spent on the table, for the overhead of tables 1 and 2 of the paper.
#[derive(Default)]
struct Times {
    search: AtomicU64,
    change: AtomicU64,
    image: AtomicU64,
}

/// Runs `work` and adds its time to `counter`.
#[allow(
    clippy::disallowed_methods,
    reason = "a measurement reads the real clock"
)]
fn timed<T>(counter: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(nanos, Ordering::Relaxed);
    done
}

/// The key of a number in the store.
fn reshaped_key(epoch: u32, number: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&epoch.to_be_bytes());
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

fn image_entry(out: &mut Vec<u8>, key: &[u8], number: u64) {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(key);
}

impl Table {
    /// Opens the table whose image is in `dir`, or makes an empty one.
    fn open(dir: &Path) -> Result<Table> {
        let path = dir.join("remapping-table");
        let mut numbers = BTreeMap::new();
        let (mut last, mut epoch) = (0, 0);
        if path.try_exists()? {
            let image = File::options().read(true).open(&path)?;
            let mut image = BufReader::new(image);
            let mut head = [0; 12];
            while image.read_exact(&mut head).is_ok() {
                let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
                let mut number = [0; 8];
                number.copy_from_slice(&head[4..]);
                let number = u64::from_le_bytes(number);
                let mut key = vec![0; length as usize];
                // An entry that is cut off belongs to a commit that did not end.
                if image.read_exact(&mut key).is_err() {
                    break;
                }
                if key.is_empty() {
                    // The first entry of an image: its epoch.
                    epoch = u32::try_from(number)?;
                } else if number == DELETED {
                    numbers.remove(key.as_slice());
                } else {
                    last = last.max(number);
                    numbers.insert(key.into_boxed_slice(), number);
                }
            }
        }
        let image = File::options().append(true).create(true).open(&path)?;
        let image_bytes = image.metadata()?.len();
        Ok(Table {
            numbers,
            last,
            epoch,
            image,
            image_bytes,
            path,
        })
    }

    fn write_image(&mut self, entries: &[u8], durability: Durability) -> Result<()> {
        self.image.write_all(entries)?;
        if durability == Durability::Sync {
            self.image.sync_data()?;
        }
        self.image_bytes += entries.len() as u64;
        Ok(())
    }
}

impl Reshaped {
    /// Puts the table in front of `store`; it calls itself `name` in reports.
    ///
    /// # Errors
    /// If the image of the table cannot be read or made.
    pub fn new(name: &str, store: Box<dyn Store>, durability: Durability) -> Result<Reshaped> {
        Reshaped::with_numbers(name, store, durability, NUMBERS_MAX)
    }

    fn with_numbers(
        name: &str,
        store: Box<dyn Store>,
        durability: Durability,
        numbers_max: u64,
    ) -> Result<Reshaped> {
        Ok(Reshaped {
            name: name.to_owned(),
            table: Mutex::new(Table::open(store.dir())?),
            store,
            durability,
            numbers_max,
            cleaning: RwLock::new(()),
            times: Times::default(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts all live records again, under numbers from 1 on in the order of the original keys,
    /// and deletes the old ones. The paper makes a new database; here the new numbers have another
    /// epoch in front.
    fn clean_keys(&self) -> Result<()> {
        let _alone = self
            .cleaning
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut table = self.table();
        if table.last < self.numbers_max {
            // Another thread has done it.
            return Ok(());
        }
        if table.numbers.len() as u64 + 1 >= self.numbers_max {
            return Err("there are more records than numbers".into());
        }
        let mut handle = self.store.handle()?;
        let (old_epoch, epoch) = (table.epoch, table.epoch + 1);
        let mut image = Vec::new();
        image_entry(&mut image, &[], epoch.into());
        let mut moved = Vec::new();
        for (number, (key, old)) in (1..).zip(&mut table.numbers) {
            let mut value = Vec::new();
            let old_key = reshaped_key(old_epoch, *old);
            handle.get(&old_key, &mut |found| value.extend_from_slice(found))?;
            handle.put(&reshaped_key(epoch, number), &value)?;
            image_entry(&mut image, key, number);
            moved.push(old_key);
            *old = number;
        }
        table.last = moved.len() as u64;
        table.epoch = epoch;
        // A new image takes the place of the old one at once.
        let new = table.path.with_extension("new");
        std::fs::write(&new, &image)?;
        std::fs::rename(&new, &table.path)?;
        table.image = File::options().append(true).open(&table.path)?;
        table.image_bytes = image.len() as u64;
        for old in moved {
            handle.delete(&old)?;
        }
        Ok(())
    }
}

impl Store for Reshaped {
    fn engine(&self) -> &str {
        &self.name
    }

    fn dir(&self) -> &Path {
        self.store.dir()
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(ReshapedHandle {
            model: self,
            inner: self.store.handle()?,
        }))
    }

    fn settle(&self) -> Result<()> {
        self.store.settle()
    }

    fn compact(&self) -> Result<()> {
        self.store.compact()
    }

    fn compact_values(&self) -> Result<()> {
        self.store.compact_values()
    }

    fn written_bytes(&self) -> Option<u64> {
        let image = self.table().image_bytes;
        self.store.written_bytes().map(|bytes| bytes + image)
    }

    fn units(&self) -> Option<serde_json::Value> {
        self.store.units()
    }

    /// What the table takes, and the times that the paper's tables 1 and 2 are made of.
    fn describe(&self) -> Option<String> {
        let table = self.table();
        let (keys, image) = (table.numbers.len(), table.image_bytes);
        drop(table);
        let millis = |counter: &AtomicU64| counter.load(Ordering::Relaxed) / 1_000_000;
        let times = &self.times;
        let own = format!(
            "remapping table: {keys} keys, image of {image} bytes; search {} ms, insert and \
             delete {} ms, writing the image {} ms",
            millis(&times.search),
            millis(&times.change),
            millis(&times.image)
        );
        let inner = self.store.describe().unwrap_or_default();
        Some(format!("{own}\n{inner}"))
    }
}

struct ReshapedHandle<'a> {
    model: &'a Reshaped,
    inner: Box<dyn Handle + 'a>,
}

impl ReshapedHandle<'_> {
    /// Gives numbers to these records and puts them, then names the numbers in the table.
    fn insert(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let model = self.model;
        loop {
            let shared = model
                .cleaning
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let (epoch, first) = {
                let mut table = model.table();
                let first = table.last + 1;
                table.last += records.len() as u64;
                (table.epoch, first)
            };
            if first + records.len() as u64 > model.numbers_max {
                drop(shared);
                model.clean_keys()?;
                continue;
            }
            let keys: Vec<[u8; 12]> = (first..)
                .zip(records)
                .map(|(number, _)| reshaped_key(epoch, number))
                .collect();
            match (records, keys.as_slice()) {
                ([(_, value)], [key]) => self.inner.put(key, value)?,
                _ => {
                    let reshaped: Vec<(&[u8], &[u8])> = (keys.iter())
                        .zip(records)
                        .map(|(key, (_, value))| (&key[..], *value))
                        .collect();
                    self.inner.put_batch(&reshaped)?;
                }
            }
            let mut image = Vec::new();
            for (number, (key, _)) in (first..).zip(records) {
                image_entry(&mut image, key, number);
            }
            let mut table = model.table();
            timed(&model.times.image, || {
                table.write_image(&image, model.durability)
            })?;
            let replaced: Vec<u64> = timed(&model.times.change, || {
                let insert = |(number, (key, _)): (u64, &(&[u8], &[u8]))| {
                    table.numbers.insert(Box::from(*key), number)
                };
                (first..).zip(records).filter_map(insert).collect()
            });
            drop(table);
            // On-the-fly cleaning.
            for old in replaced {
                self.inner.delete(&reshaped_key(epoch, old))?;
            }
            return Ok(());
        }
    }

    /// The key in the store of an original key.
    fn find(&self, key: &[u8]) -> Option<[u8; 12]> {
        let model = self.model;
        let table = model.table();
        let number = timed(&model.times.search, || table.numbers.get(key).copied());
        number.map(|number| reshaped_key(table.epoch, number))
    }
}

impl Handle for ReshapedHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(&[(key, value)])
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.insert(records)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let model = self.model;
        let _shared = model
            .cleaning
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut table = model.table();
        let epoch = table.epoch;
        let removed = timed(&model.times.change, || table.numbers.remove(key));
        let Some(number) = removed else {
            return Ok(());
        };
        let mut image = Vec::new();
        image_entry(&mut image, key, DELETED);
        timed(&model.times.image, || {
            table.write_image(&image, model.durability)
        })?;
        drop(table);
        self.inner.delete(&reshaped_key(epoch, number))
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let model = self.model;
        let _shared = model
            .cleaning
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut before = None;
        loop {
            let Some(place) = self.find(key) else {
                return Ok(false);
            };
            if self.inner.get(&place, visit)? {
                return Ok(true);
            }
            // The key was updated, and its old number deleted, after it was looked up.
            if before == Some(place) {
                return Err("the table names a number that the store has not".into());
            }
            before = Some(place);
        }
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let keys: Vec<Box<[u8]>> = {
            let table = self.model.table();
            let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
            let keys = table.numbers.range::<[u8], _>(range).take(limit);
            keys.map(|(key, _)| key.clone()).collect()
        };
        let mut found = 0;
        for key in &keys {
            if self.get(key, &mut |value| visit(key, value))? {
                found += 1;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Contents, GlintOptions, GlintStore, Runner, Workload};

    fn open(dir: &Path, numbers_max: u64) -> Reshaped {
        let mut options = GlintOptions::default();
        options.set_memory_bytes(32 << 20);
        options.set("index=btree").unwrap();
        let store = GlintStore::open("glintdb", dir, Durability::Os, options).unwrap();
        let store = Box::new(store);
        Reshaped::with_numbers("model", store, Durability::Os, numbers_max).unwrap()
    }

    fn contents(store: &Reshaped) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        let mut handle = store.handle().unwrap();
        let mut add = |key: &[u8], value: &[u8]| all.push((key.to_vec(), value.to_vec()));
        handle.scan(&[], usize::MAX, &mut add).unwrap();
        all
    }

    #[test]
    fn every_workload_is_answered_rightly() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), NUMBERS_MAX);
        let config = Config {
            num: 2000,
            value_size: 200,
            threads: 3,
            batch_size: 7,
            ops: Some(1000),
            ..Config::default()
        };
        let mut runner = Runner::new(&store, config, Contents::default());
        for workload in [
            Workload::FillRandom,
            Workload::Overwrite,
            Workload::ReadRandom,
            Workload::SeekRandom,
            Workload::A,
            Workload::F,
        ] {
            let report = runner.run(workload).unwrap();
            assert!(report.is_correct(), "{workload}: {report:?}");
        }
    }

    #[test]
    fn records_are_there_after_key_cleanings_and_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        let mut store = open(dir.path(), 100);
        for round in 0..20u32 {
            let mut handle = store.handle().unwrap();
            for n in 0..30u32 {
                let key = (n * 7 % 40).to_string().into_bytes();
                let value = format!("{round} {n}").into_bytes();
                if n % 10 == 9 {
                    handle.delete(&key).unwrap();
                    expected.remove(&key);
                } else {
                    handle.put(&key, &value).unwrap();
                    expected.insert(key, value);
                }
            }
            drop(handle);
            let expected: Vec<_> = expected.clone().into_iter().collect();
            assert_eq!(contents(&store), expected);
            if round % 5 == 4 {
                drop(store);
                store = open(dir.path(), 100);
                assert_eq!(contents(&store), expected);
            }
        }
        assert!(store.table().epoch >= 4, "{}", store.table().epoch);
        // No record is left under an old number.
        let mut handle = store.store.handle().unwrap();
        let all = handle.scan(&[], usize::MAX, &mut |_, _| {}).unwrap();
        assert_eq!(all, expected.len());
    }

    #[test]
    fn more_records_than_numbers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), 10);
        let mut handle = store.handle().unwrap();
        let put = |n: u32| n.to_string().into_bytes();
        let refused = (0..20).find_map(|n| handle.put(&put(n), b"value").err());
        assert!(refused.unwrap().to_string().contains("more records"));
    }
}
