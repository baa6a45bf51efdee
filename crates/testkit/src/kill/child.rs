//! The process that is killed. Acknowledgements go to standard output, 12 bytes each (writer u32, commit u64, little-endian), in one `write` that a pipe does not tear.
//!
//! Thread-safe: several threads write, and each tells of its own commits.

use super::work::{self, Commit, Way, Write};
use super::{SPACES, WRITERS, checkpoint_of, database_of, earlier_checkpoint_of};
use crate::options::{OptionSet, other_kind};
use crate::rng::Rng;
use glintdb::{Batch, Db, Durability, Error, ErrorKind, Keyspace, TransactionOptions};
use std::io::Write as _;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// In place of a writer's number: the database is open.
pub const READY: u32 = u32::MAX;
/// In place of a writer's number: a checkpoint is being made (commit 0), or is whole (commit 1).
pub const CHECKPOINT: u32 = u32::MAX - 1;
/// Length of an acknowledgement.
pub const ACKNOWLEDGEMENT_BYTES: usize = 12;

/// Set by the first thread that fails. The process then ends by itself, which the parent takes as a
/// failure.
static FAILED: AtomicBool = AtomicBool::new(false);

fn acknowledge(writer: u32, number: u64) -> std::io::Result<()> {
    let mut bytes = [0; ACKNOWLEDGEMENT_BYTES];
    bytes[..4].copy_from_slice(&writer.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()
}

/// What a child does.
pub struct Task<'a> {
    /// The directory of the campaign.
    pub dir: &'a Path,
    /// Its options.
    pub set: &'a OptionSet,
    /// The campaign's seed.
    pub seed: u64,
    /// Writer `w` goes on after commit `done[w]`; `None`: the child opens the database and writes nothing.
    pub done: Option<&'a [u64]>,
}

/// Opens the database and writes until it is killed.
///
/// # Errors
/// A sentence: the database does not open, a commit fails, the reader saw half a batch.
pub fn run(task: &Task<'_>) -> Result<(), String> {
    let options = task.set.options.clone();
    let opened = options.open(database_of(task.dir, task.seed));
    let db = opened.map_err(|error| format!("open: {error}"))?;
    let Some(done) = task.done else {
        acknowledge(READY, 0).map_err(|error| error.to_string())?;
        // Background threads go on with what recovery left to do; so does this one, until it is killed.
        loop {
            db.compact().map_err(sentence)?;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let spaces = task.set.keyspaces(&db, SPACES).map_err(sentence)?;
    acknowledge(READY, 0).map_err(|error| error.to_string())?;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (writer, done) in (0..WRITERS).zip(done) {
            let (db, spaces) = (&db, &spaces);
            threads.push(scope.spawn(move || noted(write(db, spaces, task, writer, *done))));
        }
        threads.push(scope.spawn(|| noted(read(&db, &spaces))));
        threads.push(scope.spawn(|| {
            noted(disturb(
                &db,
                &spaces,
                task,
                task.seed ^ done.iter().sum::<u64>(),
            ))
        }));
        let panicked = |_| Err("a thread panicked".into());
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

fn sentence(error: Error) -> String {
    error.to_string()
}

fn noted(outcome: Result<(), String>) -> Result<(), String> {
    if outcome.is_err() {
        FAILED.store(true, Ordering::Relaxed);
    }
    outcome
}

fn going_on() -> bool {
    !FAILED.load(Ordering::Relaxed)
}

fn write(
    db: &Db,
    spaces: &[Keyspace; 2],
    task: &Task<'_>,
    writer: u32,
    done: u64,
) -> Result<(), String> {
    let mut number = done;
    while going_on() {
        number += 1;
        let mut commit = work::commit(task.seed, writer, number);
        commit.sync |= task.set.syncs();
        loop {
            match apply(db, spaces, &commit) {
                Ok(()) => break,
                // With the little memory there is, a transaction's snapshot may be given up; it has changed nothing.
                Err(error) if error.kind() == ErrorKind::SnapshotTooOld => {}
                Err(error) => return Err(format!("writer {writer}, commit {number}: {error}")),
            }
        }
        acknowledge(writer, number).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Commits it.
pub(crate) fn apply(db: &Db, spaces: &[Keyspace; 2], commit: &Commit) -> Result<(), Error> {
    let durability = if commit.sync {
        Durability::Sync
    } else {
        Durability::Os
    };
    match (commit.way, commit.writes.first()) {
        (Way::Single, Some(Write::Put(space, key, value))) => {
            spaces[*space].put_with(key, value, durability)
        }
        (Way::Single, Some(Write::Delete(space, key))) if !commit.sync => {
            spaces[*space].delete(key)
        }
        (Way::Transaction, _) => {
            let mut transaction =
                db.transaction_with(TransactionOptions::default().durability(durability));
            for write in &commit.writes {
                match write {
                    Write::Put(space, key, value) => {
                        transaction.get(&spaces[*space], key)?;
                        transaction.put(&spaces[*space], key, value)?;
                    }
                    Write::Delete(space, key) => transaction.delete(&spaces[*space], key)?,
                    Write::DeleteRange(space, start, end) => {
                        transaction.delete_range(&spaces[*space], half_open(start, end))?;
                    }
                }
            }
            transaction.commit()
        }
        _ => {
            let mut batch = Batch::new();
            for write in &commit.writes {
                match write {
                    Write::Put(space, key, value) => batch.put(&spaces[*space], key, value),
                    Write::Delete(space, key) => batch.delete(&spaces[*space], key),
                    Write::DeleteRange(space, start, end) => {
                        batch.delete_range(&spaces[*space], half_open(start, end))
                    }
                };
            }
            db.write_with(batch, durability)
        }
    }
}

fn half_open(start: &[u8], end: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (
        Bound::Included(start.to_vec()),
        Bound::Excluded(end.to_vec()),
    )
}

/// Sees through snapshots that no batch is ever half there, and that a snapshot does not change.
fn read(db: &Db, spaces: &[Keyspace; 2]) -> Result<(), String> {
    while going_on() {
        let snapshot = db.snapshot();
        for writer in 0..WRITERS {
            let key = work::pair_key(writer);
            let seen = [0, 1, 0].map(|space: usize| snapshot.get(&spaces[space], &key));
            match seen {
                [Ok(one), Ok(two), Ok(again)] if one == two && one == again => {}
                [Ok(one), Ok(two), Ok(again)] => {
                    return Err(format!(
                        "writer {writer}: a snapshot shows {one:?}, {two:?}, then {again:?}"
                    ));
                }
                // With the little memory there is, a snapshot may be given up; the next one will do.
                seen => {
                    let errors = seen.into_iter().filter_map(Result::err);
                    if let Some(error) = errors
                        .into_iter()
                        .find(|error| error.kind() != ErrorKind::SnapshotTooOld)
                    {
                        return Err(format!("writer {writer}: {error}"));
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Flushes, compacts, converts and makes checkpoints now and then, beside what the engine does by
/// itself.
fn disturb(db: &Db, spaces: &[Keyspace; 2], task: &Task<'_>, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    while going_on() {
        std::thread::sleep(Duration::from_millis(5 + rng.below(80)));
        match rng.below(10) {
            0 => db.compact().map_err(sentence),
            8 => (db.default_keyspace().compact_values()).map_err(sentence),
            9 => convert(&spaces[rng.below(2) as usize], task, &mut rng),
            1 => db.flush_log(Durability::Sync).map_err(sentence),
            2 => checkpoint(db, task.dir),
            _ => db.flush().map_err(sentence),
        }
        .map_err(|error| format!("flush, compact, convert or checkpoint: {error}"))?;
    }
    Ok(())
}

/// Converts a keyspace to the other kind of index.
fn convert(keyspace: &Keyspace, task: &Task<'_>, rng: &mut Rng) -> Result<(), String> {
    let kind = other_kind(keyspace.options().index);
    let number = u8::try_from(rng.below(256)).unwrap_or_default();
    let options = task.set.other_options(kind, number);
    keyspace.convert(options).map_err(sentence)
}

fn checkpoint(db: &Db, dir: &Path) -> Result<(), String> {
    let path = checkpoint_of(dir);
    acknowledge(CHECKPOINT, 0).map_err(|error| error.to_string())?;
    if path.exists() {
        let earlier = earlier_checkpoint_of(dir);
        std::fs::rename(&path, &earlier).map_err(|error| error.to_string())?;
        std::fs::remove_dir_all(&earlier).map_err(|error| error.to_string())?;
    }
    db.checkpoint(&path).map_err(sentence)?;
    acknowledge(CHECKPOINT, 1).map_err(|error| error.to_string())
}
