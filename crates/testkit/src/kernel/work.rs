//! Writers on a database, with flushes and compactions beside them, all told to a [`History`].
//!
//! Threads: one per writer, one that disturbs them.

use super::history::History;
use crate::kill::WRITERS;
use crate::kill::child::apply;
use crate::kill::work::{self, Records};
use crate::rng::Rng;
use glintdb::{Db, Durability, Error, ErrorKind, Keyspace};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What writers do.
pub struct Work<'a> {
    /// The database.
    pub db: &'a Db,
    /// Who is told.
    pub history: &'a History,
    /// The seed of commits and of what goes on beside them.
    pub seed: u64,
    /// Commits of each writer.
    pub commits: u64,
    /// One commit in so many is at `Sync`.
    pub sync_every: u64,
    /// The disk's position; 0 where there is none.
    pub position: &'a (dyn Fn() -> usize + Sync),
    /// Told of every acknowledgement and beginning, in an order in which they happened.
    pub tell: &'a (dyn Fn(Event) + Sync),
}

/// Something that happened to a writer's commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It begins.
    Begin(u32, u64),
    /// It was acknowledged; at `Sync` or not.
    Done(u32, u64, bool),
}

/// Whether commit `number` is at `Sync`.
#[must_use]
pub fn is_sync(seed: u64, writer: u32, number: u64, every: u64) -> bool {
    Rng::of(&[seed, 77, u64::from(writer), number]).one_in(every)
}

impl Work<'_> {
    /// Works until every writer has made its commits or failed; gives the first error of each that did, and of the one who disturbs.
    pub fn run(&self, spaces: &[Keyspace; 2]) -> Vec<Error> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || self.write(spaces, writer)))
                .collect();
            let other = scope.spawn(|| self.disturb(&done));
            let joined = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Error>>| {
                thread.join().expect("no panic").err()
            };
            let mut errors: Vec<Error> = writers.into_iter().filter_map(joined).collect();
            done.store(true, Ordering::Relaxed);
            errors.extend(joined(other));
            errors
        })
    }

    fn write(&self, spaces: &[Keyspace; 2], writer: u32) -> Result<(), Error> {
        let first = self.history.begun()[writer as usize] + 1;
        for number in first..first + self.commits {
            let mut commit = work::commit(self.seed, writer, number);
            commit.sync = is_sync(self.seed, writer, number, self.sync_every);
            // Told before it is noted: who reads what is told knows of no acknowledgement that it did not hear of.
            (self.tell)(Event::Begin(writer, number));
            self.history.begin(writer, number);
            loop {
                match apply(self.db, spaces, &commit) {
                    Ok(()) => break,
                    // Little memory: a transaction's snapshot was given up, and nothing changed.
                    Err(error) if error.kind() == ErrorKind::SnapshotTooOld => {}
                    Err(error) => return Err(error.context(format!("commit of writer {writer}"))),
                }
            }
            self.history
                .acknowledge(writer, number, commit.sync, (self.position)());
            (self.tell)(Event::Done(writer, number, commit.sync));
        }
        Ok(())
    }

    /// Flushes, compacts and syncs now and then.
    fn disturb(&self, done: &AtomicBool) -> Result<(), Error> {
        let mut rng = Rng::of(&[self.seed, 78]);
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1 + rng.below(20)));
            let counts = self.history.acknowledged();
            match rng.below(6) {
                0 => self.db.compact(),
                1 => self.db.flush_log(Durability::Sync),
                _ => self.db.flush(),
            }?;
            self.history.promise(counts, (self.position)());
        }
        Ok(())
    }
}

/// All records, by writer.
///
/// # Errors
/// A sentence.
pub fn found(db: &Db) -> Result<BTreeMap<u32, Records>, String> {
    crate::kill::parent::read_all(db).map_err(|error| format!("read: {error}"))
}
