//! What must hold of every image that a crash leaves.
//!
//! Opened by the engine, an image must hold one of the states that the ledger accepts; every byte of it must verify; no file may be there that nothing names; a commit
//! at `Sync` must go through, and be there with everything else after the power is cut once more and the database is opened again; checkpoints acknowledged before the
//! crash must open and hold what they held. While the image is opened, it is cut again at every operation, as deep as the budget goes. Some images are looked at by `glintdb check` too, before they are
//! opened and after: no crash leaves anything that it calls damage.
//!
//! An image's recovered state depends on nothing but its bytes, so an image that was checked before is only compared with what the ledger accepts now.

use super::Budget;
use super::counts::Counts;
use super::watcher::Watcher;
use crate::ledger::Ledger;
use crate::model::{hash_of_record, hash_of_space};
use crate::operation::Space;
use crate::options::OptionSet;
use crate::place::{self, Place, TestClock};
use crate::rng::Rng;
use crate::runner::read::read_all;
use glintdb::{Db, Durability, Placement};
use glintdb_core::clock::Clock;
use glintdb_simdisk::{CrashMode, MemVolume};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Written into every image after it is opened.
const KEY_AFTER: &[u8] = b"written after the crash";
const VALUE_AFTER: &[u8] = b"and there after the next one";

/// One image in so many is checked while nobody has it open. To check all of them would make a campaign try 0.58 times as many crashes in the same time; these cost a sixth.
const CHECKED_ONE_IN: u64 = 4;

/// How an image came to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Some crash on the way to it took what was not synced.
    pub(super) power: bool,
    /// Crashes on the way to it, this one not counted.
    pub(super) depth: u32,
    pub(super) seed: u64,
}

/// Checks images of one run. Thread-safe.
pub(super) struct Oracle {
    set: OptionSet,
    pub(super) budget: Budget,
    ledger: Arc<Ledger>,
    pub(super) counts: Mutex<Counts>,
    /// Images that were checked, by their hash, with the hash of the state that was found.
    seen: Mutex<HashMap<u64, u64>>,
}

impl Oracle {
    pub(super) fn new(set: OptionSet, budget: Budget, ledger: Arc<Ledger>) -> Oracle {
        Oracle {
            set,
            budget,
            ledger,
            counts: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap());
    }

    /// Checks one image.
    pub(super) fn check(self: &Arc<Self>, image: Arc<MemVolume>, cut: Cut) -> Result<(), String> {
        self.count(|counts| {
            counts.crash_points += 1;
            counts.nested += u64::from(cut.depth > 0);
            counts.kills += u64::from(!cut.power);
        });
        let hash = image.hash();
        let seen = self.seen.lock().unwrap().get(&hash).copied();
        if let Some(found) = seen {
            self.count(|counts| counts.identical += 1);
            return self.accepts(found, cut);
        }
        let found = self.check_new(&image, cut)?;
        self.seen.lock().unwrap().insert(hash, found);
        Ok(())
    }

    fn accepts(&self, found: u64, cut: Cut) -> Result<(), String> {
        let power = cut.power && !self.budget.promise_too_much;
        self.ledger.accepts(found, power)
    }

    fn check_new(self: &Arc<Self>, image: &Arc<MemVolume>, cut: Cut) -> Result<u64, String> {
        let mut rng = Rng::of(&[cut.seed, 0x0c]);
        self.check_copies(image, cut, &mut rng)?;
        let is_checked = Rng::of(&[cut.seed, 0x0d]).one_in(CHECKED_ONE_IN);
        if is_checked {
            check_closed(image, "before it is opened")?;
        }
        let nested = self.nested(image, cut, &mut rng);
        let db = self
            .open(image, rng.number())
            .map_err(|error| format!("does not open: {error}"))?;
        image.observe(None);
        if let Some(failure) = nested.and_then(|watcher| watcher.failure()) {
            return Err(failure);
        }
        let found = hash_of(&db)?;
        if let Err(message) = self.accepts(found, cut) {
            return Err(format!("{message}{}", self.difference(&db)));
        }
        let report = db.verify().map_err(|error| format!("verify: {error}"))?;
        if !report.errors.is_empty() {
            return Err(format!("verify: {:?}", report.errors));
        }
        // Background threads may be making files that are not named yet.
        if self.set.options.background_threads == 0 && !report.leftovers.is_empty() {
            let names: Vec<String> = report.leftovers.iter().map(ToString::to_string).collect();
            return Err(format!("files that nothing names: {}", names.join(", ")));
        }
        let after = self.write_and_cut(image, db, found, &mut rng)?;
        if is_checked {
            check_closed(image, "opened")?;
            check_closed(&after, "opened twice")?;
        }
        Ok(found)
    }

    /// A commit, a power cut, and everything must be there; the image that was cut.
    fn write_and_cut(
        &self,
        image: &Arc<MemVolume>,
        db: Db,
        found: u64,
        rng: &mut Rng,
    ) -> Result<Arc<MemVolume>, String> {
        let mut batch = glintdb::Batch::new();
        batch.put(&db.default_keyspace(), KEY_AFTER, VALUE_AFTER);
        db.write_with(batch, Durability::Sync)
            .map_err(|error| format!("takes no writes: {error}"))?;
        let mode = match rng.below(4) {
            0 => CrashMode::Random { seed: rng.number() },
            1 => CrashMode::KeepUnsynced,
            _ => CrashMode::LoseUnsynced,
        };
        let after = image.crash(mode);
        drop(db);
        let db = self
            .open(&after, rng.number())
            .map_err(|error| format!("does not open a second time: {error}"))?;
        let space = hash_of_space(&Space::DEFAULT.name());
        let added = hash_of_record(space, KEY_AFTER, VALUE_AFTER);
        let again = hash_of(&db)?;
        if again != found.wrapping_add(added) {
            return Err(format!(
                "opened a second time it holds something else than before and the commit between{}",
                self.difference(&db)
            ));
        }
        Ok(after)
    }

    /// Checkpoints that were acknowledged are whole, whatever happened to the database since.
    fn check_copies(&self, image: &Arc<MemVolume>, cut: Cut, rng: &mut Rng) -> Result<(), String> {
        let copies = self.ledger.now();
        for copy in copies.copies() {
            if cut.depth > 0 || !rng.one_in(8) {
                continue;
            }
            self.count(|counts| counts.checkpoints += 1);
            let what = |message: &dyn std::fmt::Display| {
                format!("the checkpoint {}: {message}", copy.path.display())
            };
            let volume = image
                .kill()
                .open_directory(&copy.path)
                .ok_or_else(|| what(&"its directory is gone"))?;
            let db = self
                .open(&volume, 0)
                .map_err(|error| what(&format_args!("does not open: {error}")))?;
            if hash_of(&db)? != copy.state.hash() {
                return Err(what(&"holds something else than when it was made"));
            }
        }
        Ok(())
    }

    /// Watches the image being opened, where the budget has room for crashes of its recovery.
    fn nested(
        self: &Arc<Self>,
        image: &Arc<MemVolume>,
        cut: Cut,
        rng: &mut Rng,
    ) -> Option<Arc<Watcher>> {
        let one_in = *self.budget.nested_one_in.get(cut.depth as usize)?;
        if one_in == 0 || !rng.one_in(one_in) {
            return None;
        }
        let cut = Cut {
            depth: cut.depth + 1,
            seed: rng.number(),
            ..cut
        };
        let watcher = Arc::new(Watcher::new(Arc::clone(self), cut));
        let observer: Arc<dyn glintdb_simdisk::Observer> = Arc::clone(&watcher) as _;
        image.observe(Some(observer));
        Some(watcher)
    }

    fn open(&self, image: &Arc<MemVolume>, job_order: u64) -> Result<Db, glintdb::Error> {
        Place::Memory(Arc::clone(image)).open_in_order(self.set.options.clone(), Some(job_order))
    }

    fn difference(&self, db: &Db) -> String {
        let found = read_all(db).ok();
        let ledger = self.ledger.now();
        let difference = found
            .as_ref()
            .zip(ledger.newest())
            .and_then(|(found, newest)| found.difference(newest));
        difference.map_or_else(String::new, |difference| {
            format!("; against the newest commit: {difference}")
        })
    }
}

/// Whether `glintdb check` finds fault with an image that nobody damaged. It looks at a copy, which is as if the process had been killed.
fn check_closed(image: &Arc<MemVolume>, when: &str) -> Result<(), String> {
    let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
    let image = place::medium(&image.kill(), &clock, &Placement::Striping)
        .map_err(|error| format!("open the files, {when}: {error}"))?;
    let report = match glintdb::check_volume(&image) {
        // The crash came while the database was made.
        Err(error) if error.kind() == glintdb::ErrorKind::NotFound => return Ok(()),
        report => report.map_err(|error| format!("check, {when}: {error}"))?,
    };
    // Of a manifest that was not synced, what fills up a record may be noise. Nobody reads it, and opening writes a new one.
    let in_manifest = |error: &&glintdb::Error| {
        (error.place()).is_some_and(|(file, _)| file.starts_with("manifest-"))
    };
    match report.errors.iter().find(|error| !in_manifest(error)) {
        None => Ok(()),
        Some(error) => Err(format!("check, {when}: {error}")),
    }
}

/// Hash of what a database holds; the order of its keys is checked in passing.
pub(crate) fn hash_of(db: &Db) -> Result<u64, String> {
    let mut hash = 0_u64;
    for name in db.keyspaces() {
        let space = hash_of_space(&name);
        hash = hash.wrapping_add(space);
        let sentence = |error: glintdb::Error| format!("reading keyspace {name:?}: {error}");
        let keyspace = db.keyspace(&name).map_err(sentence)?;
        let mut last: Option<glintdb::Bytes> = None;
        for record in keyspace.iter() {
            let (key, value) = record.map_err(sentence)?;
            if last.is_some_and(|last| last >= key) {
                return Err(format!("keyspace {name:?}: keys are out of order"));
            }
            hash = hash.wrapping_add(hash_of_record(space, &key, &value));
            last = Some(key);
        }
    }
    Ok(hash)
}
