//! File systems without space: a small tmpfs, and small ext4, xfs and btrfs disks. Writers write until there is no space; then what must go on does.
//!
//! What must hold: the error is `NoSpace`; reads and deletes work; a reopening on the full disk shows everything acknowledged; space that comes back is used again.
//!
//! Thread safety: none is needed.

use super::power::verified;
use crate::options::OptionSet;
use crate::rng::Rng;
use glintdb::{Db, Durability, Error, ErrorKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Keys written before it is full, at most.
const KEYS_MAX: u64 = 100_000;
/// Free space that writers find.
const FREE_BYTES: u64 = 40 << 20;
/// Writing works again within this time after space came back.
const BACK_MAX: Duration = Duration::from_secs(20);

/// Sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Disks filled.
    pub rounds: u64,
    /// Times that a commit was refused for want of space.
    pub refused: u64,
    /// Deletes on a full file system, none of them refused.
    pub deletes: u64,
    /// Commits acknowledged and looked for.
    pub commits: u64,
}

/// One database on one small file system.
struct Full<'a> {
    set: &'a OptionSet,
    dir: PathBuf,
    rng: Rng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    totals: Totals,
}

/// Fills the file system at `mount_point`, whose free space is some tens of MiB, and takes some of it back, twice.
///
/// # Errors
/// What was found wrong.
pub fn round(
    mount_point: &Path,
    set: &OptionSet,
    seed: u64,
    totals: &mut Totals,
) -> Result<(), String> {
    let mut full = Full {
        set,
        dir: mount_point.join("db"),
        rng: Rng::of(&[seed, 300]),
        model: BTreeMap::new(),
        totals: Totals::default(),
    };
    let outcome = full.run(mount_point);
    let done = full.totals;
    totals.rounds += 1;
    totals.refused += done.refused;
    totals.deletes += done.deletes;
    totals.commits += done.commits;
    outcome.map_err(|message| format!("\"{}\", seed {seed}: {message}", set.name))
}

fn free_bytes(mount_point: &Path) -> Result<u64, String> {
    let output = Command::new("df")
        .args(["--block-size=1", "--output=avail"])
        .arg(mount_point)
        .output()
        .map_err(|error| format!("df: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text
        .lines()
        .nth(1)
        .and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| format!("df says {text:?}"))
}

fn allocate(path: &Path, bytes: u64) -> Result<(), String> {
    let mut command = Command::new("fallocate");
    let status = command
        .args(["--length", &bytes.to_string()])
        .arg(path)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("fallocate of {bytes} bytes: {other:?}")),
    }
}

impl Full<'_> {
    fn run(&mut self, mount_point: &Path) -> Result<(), String> {
        // Somebody else's file, which takes space and gives it back.
        let ballast = mount_point.join("ballast");
        let wanted = FREE_BYTES + self.rng.below(8 << 20);
        let bytes = free_bytes(mount_point)?.saturating_sub(wanted).max(8 << 20);
        allocate(&ballast, bytes)?;
        let db = self.open("an empty file system")?;
        self.fill(&db)?;
        self.compare(&db, "full")?;
        self.delete_some(&db)?;
        self.compare(&db, "full, after deletes")?;
        drop(db);
        let db = self.open("a full file system")?;
        self.compare(&db, "reopened on a full file system")?;
        verified(&db)?;
        fs::remove_file(&ballast).map_err(|error| error.to_string())?;
        self.comes_back(&db)?;
        self.fill(&db)?;
        self.compare(&db, "full again")?;
        drop(db);
        let db = self.open("a file system full again")?;
        self.compare(&db, "reopened on a file system full again")?;
        verified(&db)
    }

    fn open(&self, where_: &str) -> Result<Db, String> {
        let options = self.set.options.clone();
        options
            .open(&self.dir)
            .map_err(|error| format!("open on {where_}: {error:?}"))
    }

    fn put(&mut self, db: &Db, key: u64) -> Result<(), Error> {
        let length = match self.rng.below(20) {
            0 => 20_000 + self.rng.below(40_000),
            1..=8 => 100 + self.rng.below(400),
            _ => 1_000 + self.rng.below(4_000),
        };
        let value = self.rng.bytes(length as usize);
        let durability = if self.set.syncs() || self.rng.one_in(16) {
            Durability::Sync
        } else {
            Durability::Os
        };
        let key = format!("{key:08}").into_bytes();
        db.default_keyspace().put_with(&key, &value, durability)?;
        self.totals.commits += 1;
        self.model.insert(key, value);
        Ok(())
    }

    /// Writes until there is no space.
    fn fill(&mut self, db: &Db) -> Result<(), String> {
        for number in 0..KEYS_MAX {
            let key = if self.rng.one_in(4) {
                self.rng.below(number + 1)
            } else {
                number + 10_000_000 * self.totals.rounds
            };
            match self.put(db, key) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    self.totals.refused += 1;
                    return Ok(());
                }
                Err(error) => return Err(format!("a full file system came out as {error:?}")),
            }
        }
        Err(format!("{KEYS_MAX} keys, and it is not full"))
    }

    /// Deletes work on a full file system: that is the way out.
    fn delete_some(&mut self, db: &Db) -> Result<(), String> {
        let keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        let rng = &mut self.rng;
        for key in keys.into_iter().filter(|_| rng.one_in(3)) {
            db.delete(&key)
                .map_err(|error| format!("delete on a full file system: {error:?}"))?;
            self.totals.deletes += 1;
            self.model.remove(&key);
        }
        Ok(())
    }

    /// Space came back: flush, compact, and a put that works within a while.
    fn comes_back(&mut self, db: &Db) -> Result<(), String> {
        let until = Instant::now() + BACK_MAX;
        loop {
            match self.put(db, 99_999_999) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NoSpace && Instant::now() < until => {
                    // What deletes freed comes back through flush and compaction.
                    if let Err(error) = db.compact()
                        && error.kind() != ErrorKind::NoSpace
                    {
                        return Err(format!("compact when space is back: {error:?}"));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(format!("a put when space is back: {error:?}")),
            }
        }
    }

    fn compare(&self, db: &Db, when: &str) -> Result<(), String> {
        let mut wanted = self.model.iter();
        for record in db.default_keyspace().iter() {
            let (key, value) = record.map_err(|error| format!("{when}: {error:?}"))?;
            let Some((wanted_key, wanted_value)) = wanted.next() else {
                return Err(format!("{when}: {} was not asked for", key.escape_ascii()));
            };
            if key[..] != wanted_key[..] || value[..] != wanted_value[..] {
                return Err(format!(
                    "{when}: {} with {} bytes is there instead of {} with {}",
                    key.escape_ascii(),
                    value.len(),
                    wanted_key.escape_ascii(),
                    wanted_value.len()
                ));
            }
        }
        match wanted.next() {
            None => Ok(()),
            Some((key, _)) => Err(format!("{when}: {} is gone", key.escape_ascii())),
        }
    }
}
