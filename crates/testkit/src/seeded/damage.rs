//! Files of a closed database are damaged, cut, swapped and exchanged. Everything must be detected or harmless: a read gives what was written, or says that it cannot.

use super::lanes::Steps;
use crate::operation::{Change, Key, Space, Value, Write};
use crate::options::{self, OptionSet};
use crate::place::TestClock;
use crate::rng::Rng;
use glintdb::{Batch, Db, Durability, Env, ErrorKind, IndexKind, SalvageOptions};
use glintdb_core::{DbId, FileId, FileKind};
use glintdb_simdisk::{Contents, MemOptions, MemVolume};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Bits turned over in each file.
const FLIPS: u64 = 60;
/// Pairs of blocks swapped.
const SWAPS: u64 = 100;
const BLOCK: usize = 4096;
const RECORDS: u32 = 400;
/// Keys of what is only in the log begin so; they sort in the order of their commits.
const LATER: &str = "later ";

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn run(dir: &Path) -> Result<(), String> {
    for (number, set) in options::deterministic().into_iter().enumerate() {
        salvage(&set, &dir.join(number.to_string()))
            .map_err(|message| format!("salvage, options `{}`: {message}", set.name))?;
        let mut sound = Sample::build(&set, 1)?;
        let twin = Sample::build(&set, 2)?;
        // After a clean close the segments hold everything: once with the ring, which can stand in for them, and once without.
        for with_ring in [true, false] {
            if !with_ring {
                sound.contents.ring = None;
            }
            sound.judge("nothing", &sound.contents, &set)?;
            sound.flip(&set)?;
            sound.swap(&set)?;
            sound.cut(&set)?;
            sound.exchange(&twin, &set)?;
        }
    }
    Ok(())
}

/// A database without damage, in which keys were deleted, gives all of its records and no others:
/// its B+tree has leaves that it does not need any more, with the records that were deleted.
fn salvage(set: &OptionSet, dir: &Path) -> Result<(), String> {
    Steps::count();
    let mut options = set.options.clone();
    options.separate_min_bytes = usize::MAX;
    options.garbage_bytes_min = 1 << 30;
    let mut keyspace = set.keyspace.clone();
    keyspace.btree.experiments.shelf_runs_settle = 1;
    // Entries that stay on the shelf make no leaf unneeded.
    keyspace.btree.reshape = false;
    let is_tree = keyspace.index == IndexKind::BTree;
    if !is_tree {
        keyspace = set.keyspace.clone();
    }
    let build = || -> glintdb::Result<(Records, bool)> {
        let db = options.clone().open(dir)?;
        let space = db.create_keyspace("salvaged", keyspace.clone())?;
        let mut rng = Rng::new(9);
        let key = |number: u32| format!("key {number:05}");
        for number in 0..3 * RECORDS {
            space.put(key(number), rng.bytes(60))?;
        }
        db.flush()?;
        for number in [10, 310, 610, 910] {
            space.delete(key(number))?;
            space.put(key(number + 1), rng.bytes(60))?;
        }
        db.flush()?;
        let left = space.iter();
        let left = left.map(|entry| entry.map(|(key, value)| (key.into(), value.into())));
        let left = left.collect::<glintdb::Result<Records>>()?;
        let figures = db.stats().keyspaces;
        let has_garbage = figures
            .iter()
            .any(|one| one.index_bytes > one.index_live_bytes);
        db.close()?;
        Ok((left, has_garbage))
    };
    let (left, has_garbage) = build().map_err(|error| error.to_string())?;
    if is_tree && !has_garbage {
        return Err("the tree needs all of its leaves".to_owned());
    }
    let out = dir.with_extension("out");
    let report = glintdb::salvage(dir, &out, &SalvageOptions::default());
    let report = report.map_err(|error| error.to_string())?;
    if !report.is_complete() {
        return Err(format!("it misses something: {report:?}"));
    }
    let found = || -> glintdb::Result<Records> {
        let space = set.options.clone().open(&out)?.keyspace("salvaged")?;
        let all = space
            .iter()
            .map(|entry| entry.map(|(k, v)| (k.into(), v.into())));
        all.collect()
    };
    let found = found().map_err(|error| error.to_string())?;
    match found == left {
        true => Ok(()),
        false => Err(format!("{} records became {}", left.len(), found.len())),
    }
}

/// A database that was closed, and what it holds.
struct Sample {
    contents: Contents,
    records: Records,
    db: DbId,
}

impl Sample {
    /// Databases of different `identity` hold other values of the same lengths, in files of the same names.
    fn build(set: &OptionSet, identity: u8) -> Result<Sample, String> {
        let volume = MemVolume::new();
        let db_id = DbId([identity; 16]);
        let mut sample = Sample {
            contents: Contents::default(),
            records: Records::new(),
            db: db_id,
        };
        let mut build = || -> glintdb::Result<()> {
            let db = sample.open(&volume, set)?;
            let mut rng = Rng::new(77);
            for number in 0..RECORDS {
                let write = Write {
                    space: Space::DEFAULT,
                    change: Change::Put(
                        Key(rng.below(u64::from(crate::operation::KEYS)) as u8),
                        Value {
                            length: 24 + rng.below(8) as u32 * 40,
                            seed: identity,
                        },
                    ),
                };
                sample.put(&db, number, &write)?;
                if number % 100 == 60 {
                    db.flush()?;
                }
            }
            db.compact()?;
            for number in RECORDS..RECORDS + 60 {
                let key = format!("{LATER}{number:03}");
                let value = vec![identity ^ number as u8; 411];
                db.default_keyspace()
                    .put_with(&key, &value, Durability::Os)?;
                sample.records.insert(key.into_bytes(), value);
            }
            db.close()
        };
        build().map_err(|error| format!("build a database to damage: {error}"))?;
        sample.contents = volume.contents();
        Ok(sample)
    }

    fn put(&mut self, db: &Db, number: u32, write: &Write) -> glintdb::Result<()> {
        let Change::Put(_, value) = &write.change else {
            return Ok(());
        };
        let key = format!("key {:05}", number * 7 % RECORDS).into_bytes();
        let mut batch = Batch::new();
        batch.put(&db.default_keyspace(), &key, value.bytes());
        db.write(batch)?;
        self.records.insert(key, value.bytes());
        Ok(())
    }

    fn open(&self, volume: &Arc<MemVolume>, set: &OptionSet) -> glintdb::Result<Db> {
        let env = Env::new(Arc::new(TestClock::default()), self.db);
        let volume = Arc::clone(volume) as Arc<dyn glintdb_flash::Volume>;
        set.options.clone().open_volume(volume, env)
    }

    fn files(&self) -> impl Iterator<Item = (&FileId, &glintdb::Bytes)> {
        let told = |file: &&FileId| file.kind != FileKind::Reserve;
        self.contents
            .files
            .iter()
            .filter(move |(file, _)| told(file))
    }

    fn with(&self, file: FileId, bytes: Option<Vec<u8>>) -> Contents {
        let mut contents = self.contents.clone();
        match bytes {
            Some(bytes) => contents.files.insert(file, bytes.into()),
            None => contents.files.remove(&file),
        };
        contents
    }

    fn flip(&self, set: &OptionSet) -> Result<(), String> {
        let mut rng = Rng::new(1);
        for (file, bytes) in self.files() {
            // Most of a log file is room that was never written.
            let used = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            for _ in 0..FLIPS.min(used as u64) {
                let at = rng.below(used as u64) as usize;
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1 << rng.below(8);
                self.judge(
                    &format!("a bit of {file} at {at}"),
                    &self.with(*file, Some(damaged)),
                    set,
                )?;
            }
        }
        Ok(())
    }

    fn swap(&self, set: &OptionSet) -> Result<(), String> {
        let mut rng = Rng::new(2);
        let blocks: Vec<(FileId, usize)> = self
            .files()
            .flat_map(|(file, bytes)| {
                let used = |at: &usize| bytes[at * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0);
                let used = (0..bytes.len() / BLOCK).filter(used);
                used.map(|at| (*file, at)).collect::<Vec<_>>()
            })
            .collect();
        for _ in 0..SWAPS {
            let one = blocks[rng.below(blocks.len() as u64) as usize];
            // As often with the block at the same place of another file: what a lost low bit of an address does.
            let alike: Vec<_> = blocks
                .iter()
                .filter(|other| other.0 != one.0 && other.0.kind == one.0.kind && other.1 == one.1)
                .collect();
            let other = match alike.is_empty() || rng.one_in(2) {
                true => blocks[rng.below(blocks.len() as u64) as usize],
                false => *alike[rng.below(alike.len() as u64) as usize],
            };
            let block = |(file, at): (FileId, usize)| {
                self.contents.files[&file][at * BLOCK..][..BLOCK].to_vec()
            };
            let (bytes_one, bytes_other) = (block(one), block(other));
            let mut contents = self.contents.clone();
            for ((file, at), bytes) in [(one, bytes_other), (other, bytes_one)] {
                let mut whole = contents.files[&file].to_vec();
                whole[at * BLOCK..][..BLOCK].copy_from_slice(&bytes);
                contents.files.insert(file, whole.into());
            }
            self.judge(&format!("blocks {one:?} and {other:?}"), &contents, set)?;
        }
        Ok(())
    }

    fn cut(&self, set: &OptionSet) -> Result<(), String> {
        let mut rng = Rng::new(3);
        for (file, bytes) in self.files() {
            self.judge(&format!("{file} removed"), &self.with(*file, None), set)?;
            let used = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            for _ in 0..10.min(used) {
                let length = rng.below(used as u64) as usize;
                self.judge(
                    &format!("{file} cut to {length}"),
                    &self.with(*file, Some(bytes[..length].to_vec())),
                    set,
                )?;
            }
        }
        Ok(())
    }

    fn exchange(&self, twin: &Sample, set: &OptionSet) -> Result<(), String> {
        for (file, _) in self.files() {
            if let Some(bytes) = twin.contents.files.get(file) {
                let what = format!("{file} of another database");
                self.judge(&what, &self.with(*file, Some(bytes.to_vec())), set)?;
            }
        }
        Ok(())
    }

    fn judge(&self, what: &str, contents: &Contents, set: &OptionSet) -> Result<(), String> {
        Steps::count();
        let volume = MemVolume::of_contents(contents, MemOptions::default())
            .map_err(|error| error.to_string())?;
        let opened = self.open(&volume, set);
        let untouched = *contents == self.contents;
        let wrong = |message: String| Err(format!("{what}, options `{}`: {message}", set.name));
        let db = match opened {
            Ok(db) => db,
            Err(error) if untouched => return wrong(error.to_string()),
            Err(error) => {
                return match error.kind() {
                    ErrorKind::Corruption | ErrorKind::UnsupportedFormat => Ok(()),
                    _ => wrong(format!("unexpected error: {error}")),
                };
            }
        };
        let space = db.default_keyspace();
        // A block that holds the last frames and the mark behind them: what is lost then looks like a torn tail (docs/format/log.md, "Tail or corruption").
        let tail = contents.ring.is_none() && !what.starts_with("a bit");
        let mut torn = false;
        for (key, value) in &self.records {
            match space.get(key) {
                Ok(None) if tail && key.starts_with(LATER.as_bytes()) => torn = true,
                Ok(Some(_)) if torn && key.starts_with(LATER.as_bytes()) => {
                    return wrong(format!("a hole before key {}", key.escape_ascii()));
                }
                Ok(found) if found.as_deref() == Some(&value[..]) => {}
                Ok(found) => {
                    return wrong(format!(
                        "key {}: a value of {:?} bytes, another expected",
                        key.escape_ascii(),
                        found.map(|found| found.len())
                    ));
                }
                Err(error) if error.kind() == ErrorKind::Corruption && !untouched => {}
                Err(error) => return wrong(format!("key {}: {error}", key.escape_ascii())),
            }
        }
        let mut wanted = self.records.iter();
        for record in space.iter() {
            let Ok((key, value)) = record else {
                return Ok(());
            };
            if torn && key.starts_with(LATER.as_bytes()) {
                wanted.next();
                continue;
            }
            let same = wanted.next().map(|(key, value)| (&key[..], &value[..]));
            if same != Some((&key[..], &value[..])) {
                return wrong(format!(
                    "a scan gives another record at {}",
                    key.escape_ascii()
                ));
            }
        }
        match wanted.next() {
            Some((key, _)) if torn && key.starts_with(LATER.as_bytes()) => Ok(()),
            Some((key, _)) => wrong(format!("a scan ends before {}", key.escape_ascii())),
            None => Ok(()),
        }
    }
}
