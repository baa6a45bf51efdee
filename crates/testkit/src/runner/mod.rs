//! Applies a sequence of operations to the engine and to the model, and compares everything that can be seen from outside.
//!
//! Invariants:
//! 1. The model's newest state is what the database holds, except between a commit's beginning and its answer.
//! 2. An engine error ends the run as a failure, unless the power was switched off before: then it is the crash that was waited for.
//! 3. Snapshots are dropped before the database is closed or crashes.

mod crash;
mod faulty;
mod leaks;
pub(crate) mod read;
mod transact;
mod write;

use crate::model::{History, State};
use crate::operation::{Operation, SNAPSHOTS, Space};
use crate::options::{OptionSet, other_kind};
use crate::place::Place;
use glintdb::{Db, Error, ErrorKind, Keyspace, KeyspaceOptions, Snapshot};
use glintdb_simdisk::Observer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why an operation did not go through.
pub(crate) enum Stop {
    /// The engine answered with an error.
    Engine(Error),
    /// The engine answered wrongly; a sentence.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Engine(error)
    }
}

pub use faulty::Faulty;

pub(crate) type Done<T = ()> = Result<T, Stop>;

/// Fails with a sentence unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::runner::Stop::Wrong(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
pub(crate) use read::read_all;

/// A snapshot and what it must show for ever.
struct Taken {
    snapshot: Snapshot,
    state: State,
    /// Which keyspace of each name it was.
    epochs: BTreeMap<Space, u64>,
}

/// A crash to come.
#[derive(Clone, Copy)]
struct Planned {
    power_cut: bool,
    seed: u64,
    /// The operation of the volume that it hits.
    at_operation: u64,
}

/// A database under test and its model.
pub struct Runner {
    set: OptionSet,
    place: Place,
    db: Option<Db>,
    history: History,
    snapshots: [Option<Taken>; SNAPSHOTS as usize],
    /// Counts creations of each keyspace: a name may come again.
    epochs: BTreeMap<Space, u64>,
    /// Options that keyspaces were given; those of others are not looked at.
    options: BTreeMap<Space, KeyspaceOptions>,
    /// A crash that is planned: the power goes at some operation of the volume.
    planned: Option<Planned>,
    /// Whether operations of the volume may have failed.
    faults: bool,
    /// Directories given to checkpoints.
    checkpoints: u64,
    /// Is shown every operation of every volume that the database lives on.
    observer: Option<Arc<dyn Observer>>,
    /// Decides in which order jobs are taken.
    job_order: Option<u64>,
}

impl Runner {
    /// Opens a new database.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(set: OptionSet, place: Place) -> Result<Runner, String> {
        Self::watched(set, place, History::default(), None, None)
    }

    /// Opens a new database whose volume `observer` watches; `history` may have told it of a ledger. Jobs are taken in the order that `job_order` decides.
    ///
    /// # Errors
    /// A sentence.
    pub fn watched(
        set: OptionSet,
        place: Place,
        history: History,
        observer: Option<Arc<dyn Observer>>,
        job_order: Option<u64>,
    ) -> Result<Runner, String> {
        place.observe(observer.clone());
        let db = place.open_in_order(set.options.clone(), job_order);
        let db = db.map_err(|error| format!("open of a new database: {error}"))?;
        Ok(Runner {
            set,
            place,
            db: Some(db),
            history,
            observer,
            job_order,
            snapshots: [const { None }; SNAPSHOTS as usize],
            epochs: BTreeMap::new(),
            options: BTreeMap::new(),
            planned: None,
            faults: false,
            checkpoints: 0,
        })
    }

    /// Applies all operations; at the end everything is compared, also after closing and opening.
    ///
    /// # Errors
    /// What went wrong, at which operation, under which options.
    pub fn run(mut self, operations: &[Operation]) -> Result<(), String> {
        for (index, operation) in operations.iter().enumerate() {
            self.step(operation).map_err(|message| {
                format!(
                    "options `{}`, operation {index} {operation:?}: {message}",
                    self.set.name
                )
            })?;
        }
        self.finish()
            .map_err(|message| format!("options `{}`, at the end: {message}", self.set.name))
    }

    /// Applies one operation.
    ///
    /// # Errors
    /// What went wrong.
    pub fn step(&mut self, operation: &Operation) -> Result<(), String> {
        self.history.forget();
        let acknowledged = self.history.acknowledged();
        let outcome = self.apply(operation);
        // A process whose machine is off acknowledges nothing. The simulated one does not notice while it only copies into the log's ring, which cannot fail.
        let off = self
            .planned
            .filter(|planned| self.place.operations() > planned.at_operation);
        match (outcome, off) {
            (Err(Stop::Wrong(message)), _) => Err(message),
            (Ok(()) | Err(Stop::Engine(_)), Some(planned)) => {
                self.planned = None;
                self.history.unacknowledge(acknowledged);
                self.crash(planned.power_cut, planned.seed)
                    .map_err(sentence)
            }
            (Ok(()), None) => Ok(()),
            (Err(Stop::Engine(error)), None) => Err(format!("unexpected error: {error}")),
        }
    }

    fn apply(&mut self, operation: &Operation) -> Done {
        match operation {
            Operation::Write(write, durability) => self.write(write, *durability),
            Operation::Batch(writes, durability) => self.batch(writes, *durability),
            Operation::Group(batches, durability) => self.group(batches, *durability),
            Operation::Transaction {
                serializable,
                before,
                interfering,
                after,
                commit,
            } => self.transaction(*serializable, before, interfering, after, *commit),
            Operation::Read(space, keys) => self.read(*space, keys),
            Operation::Iterate(space, walk, meanwhile) => self.iterate(*space, walk, meanwhile),
            Operation::Snapshot(slot) => {
                self.snapshots[usize::from(*slot)] = Some(Taken {
                    snapshot: self.db().snapshot(),
                    state: self.history.now().clone(),
                    epochs: self.epochs.clone(),
                });
                Ok(())
            }
            Operation::ReadSnapshot(slot, space, keys, walk) => {
                self.read_snapshot(*slot, *space, keys, walk)
            }
            Operation::DropSnapshot(slot) => {
                self.snapshots[usize::from(*slot)] = None;
                Ok(())
            }
            Operation::Flush => {
                self.db().flush()?;
                // What is in an index is durable, and nothing is in an index before all commits up to it are.
                self.history.raise(glintdb::Durability::Sync);
                Ok(())
            }
            Operation::FlushLog(durability) => {
                self.db().flush_log(*durability)?;
                self.history.raise(*durability);
                Ok(())
            }
            Operation::Compact(space) => self.compact(*space),
            Operation::CompactValues(space) => self.compact_values(*space),
            Operation::Checkpoint => self.checkpoint(),
            Operation::Reopen => self.reopen(),
            Operation::Create(space) => self.create(*space),
            Operation::Drop(space) => self.drop_space(*space),
            Operation::SetOptions(space, number) => self.set_options(*space, *number),
            Operation::Convert(space, number) => self.convert(*space, *number),
            Operation::Verify => self.verify(),
            Operation::Crash { power_cut, seed } => self.plan_crash(*power_cut, *seed),
        }
    }

    /// A planned crash comes now; then everything is compared, also after closing and opening.
    ///
    /// # Errors
    /// What is wrong.
    pub fn finish(&mut self) -> Result<(), String> {
        if let Some(planned) = self.planned.take() {
            self.crash(planned.power_cut, planned.seed)
                .map_err(sentence)?;
        }
        self.snapshots = [const { None }; SNAPSHOTS as usize];
        let mut compare = || -> Done {
            self.compare_all(self.db())?;
            self.verify()?;
            self.leaked_tables()?;
            self.reopen()?;
            self.leaks()?;
            self.verify()
        };
        compare().map_err(sentence)
    }

    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }

    /// The keyspace, or `None` where the model has none; the engine must agree.
    pub(crate) fn keyspace(&self, space: Space) -> Done<Option<Keyspace>> {
        let there = self.history.now().records(space).is_some();
        match self.db().keyspace(&space.name()) {
            Ok(keyspace) => {
                ensure!(there, "{space:?} is there, and should not be");
                ensure!(
                    keyspace.name() == space.name(),
                    "{space:?} has another name"
                );
                let given = self.options.get(&space);
                ensure!(
                    given.is_none_or(|options| *options == keyspace.options()),
                    "{space:?} has options {:?}, {given:?} expected",
                    keyspace.options()
                );
                Ok(Some(keyspace))
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !there => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn close(&mut self) -> Done {
        self.snapshots = [const { None }; SNAPSHOTS as usize];
        if let Some(db) = self.db.take() {
            db.close()?;
        }
        Ok(())
    }

    fn reopen(&mut self) -> Done {
        self.background_succeeds()?;
        let closed = self.close();
        if let Some(planned) = self.planned.take() {
            // The power may have gone while closing; what is left is the crash's to look at.
            return self.crash(planned.power_cut, planned.seed);
        }
        closed?;
        // A clean close keeps everything, whatever its durability was.
        self.history.raise(glintdb::Durability::Os);
        self.db = Some(self.open()?);
        self.compare_all(self.db())
    }

    /// Checks that no background job failed, unless operations of the volume may have failed.
    fn background_succeeds(&self) -> Done {
        if self.faults || self.planned.is_some() {
            return Ok(());
        }
        let error = self.db().stats().background_error;
        ensure!(error.is_none(), "a background job failed: {error:?}");
        Ok(())
    }

    fn open(&self) -> Result<Db, Error> {
        self.place
            .open_in_order(self.set.options.clone(), self.job_order)
    }

    fn verify(&self) -> Done {
        let report = self.db().verify()?;
        if self.planned.is_some() {
            return Ok(());
        }
        ensure!(report.errors.is_empty(), "verify: {:?}", report.errors);
        Ok(())
    }

    fn compact(&self, space: Option<Space>) -> Done {
        match space {
            None => self.db().compact()?,
            Some(space) => {
                if let Some(keyspace) = self.keyspace(space)? {
                    keyspace.compact()?;
                }
            }
        }
        Ok(())
    }

    fn compact_values(&self, space: Space) -> Done {
        if let Some(keyspace) = self.keyspace(space)? {
            keyspace.compact_values()?;
        }
        Ok(())
    }

    fn set_options(&mut self, space: Space, number: u8) -> Done {
        let Some(keyspace) = self.keyspace(space)? else {
            return Ok(());
        };
        // Where a crash cuts it off, either may be there afterwards.
        self.options.remove(&space);
        let options = self.set.other_options(keyspace.options().index, number);
        keyspace.set_options(options.clone())?;
        if self.planned.is_none() {
            self.options.insert(space, options);
        }
        Ok(())
    }

    fn convert(&mut self, space: Space, number: u8) -> Done {
        let Some(keyspace) = self.keyspace(space)? else {
            return Ok(());
        };
        // Where a crash cuts it off, either may be there afterwards.
        self.options.remove(&space);
        let kind = other_kind(keyspace.options().index);
        let options = self.set.other_options(kind, number);
        keyspace.convert(options.clone())?;
        ensure!(
            keyspace.options() == options,
            "{space:?} has other options than it was converted to"
        );
        if self.planned.is_none() {
            self.options.insert(space, options);
        }
        Ok(())
    }

    fn create(&mut self, space: Space) -> Done {
        let options = self.set.keyspace.clone();
        if self.history.now().records(space).is_some() {
            return match self.db().create_keyspace(&space.name(), options) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error.into()),
                Ok(_) => Err(Stop::Wrong(format!("{space:?} was created twice"))),
            };
        }
        self.history.begin(|state| state.create(space));
        self.db().create_keyspace(&space.name(), options)?;
        self.history.raise(glintdb::Durability::Sync);
        *self.epochs.entry(space).or_default() += 1;
        Ok(())
    }

    fn drop_space(&mut self, space: Space) -> Done {
        if self.history.now().records(space).is_none() {
            return match self.db().drop_keyspace(&space.name()) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error.into()),
                Ok(()) => Err(Stop::Wrong(format!(
                    "{space:?} was dropped, and was not there"
                ))),
            };
        }
        if space == Space::DEFAULT {
            return match self.db().drop_keyspace(&space.name()) {
                Err(error) if error.kind() == ErrorKind::InvalidArgument => Ok(()),
                Err(error) => Err(error.into()),
                Ok(()) => Err(Stop::Wrong("the default keyspace was dropped".into())),
            };
        }
        self.options.remove(&space);
        self.history.begin(|state| state.drop_space(space));
        self.db().drop_keyspace(&space.name())?;
        self.history.raise(glintdb::Durability::Sync);
        *self.epochs.entry(space).or_default() += 1;
        Ok(())
    }
}

fn sentence(stop: Stop) -> String {
    match stop {
        Stop::Engine(error) => format!("unexpected error: {error}"),
        Stop::Wrong(message) => message,
    }
}
