//! Something fails at the N-th operation of the volume, for many N: an error once or from then on,
//! a full disk, no descriptors, no permission, a sync that loses data.
//!
//! What must hold: the answer to a commit is true (a refused one never was, an acknowledged one
//! stays, an unclear one is wholly there or not), reads go on or say that they cannot, and after
//! the fault the database opens again, whole, even if the power goes in between.

use super::lanes::Steps;
use super::shapes::Sequences;
use crate::model::History;
use crate::operation::{Change, Mix, Operation, Space, Write};
use crate::options::{self, OptionSet, other_kind};
use crate::place::Place;
use crate::runner::{Stop, read_all};
use glintdb::{Batch, Db, Durability, Error, ErrorKind};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemVolume};
use std::sync::Arc;

const SEQUENCES: u64 = 3;
const OPERATIONS: usize = 100;
/// Places in each sequence at which something fails.
const FAULTS: u64 = 40;

const KINDS: [(FaultKind, bool); 8] = [
    (FaultKind::Io, false),
    (FaultKind::Io, true),
    (FaultKind::NoSpace, false),
    (FaultKind::NoSpace, true),
    (FaultKind::SyncLosesData, false),
    (FaultKind::NoDescriptor, false),
    (FaultKind::NoDescriptor, true),
    (FaultKind::NoPermission, true),
];

pub(super) fn run() -> Result<(), String> {
    let mut sequences = Sequences::new(4, Mix::default(), OPERATIONS);
    for number in 0..SEQUENCES {
        let operations = sequences.next();
        for set in options::deterministic() {
            let (from, to) = Life::new(&set).measure(&operations)?;
            for at in 0..FAULTS {
                let operation = from + (to - from) * at / FAULTS;
                for (kind, sticky) in KINDS {
                    Steps::count();
                    let fault = Fault {
                        at_operation: operation,
                        kind,
                        sticky,
                    };
                    Life::new(&set)
                        .run(&operations, fault, at + number)
                        .map_err(|message| {
                            format!(
                                "options `{}`, sequence {number}, {fault:?}: {message}",
                                set.name
                            )
                        })?;
                }
            }
        }
    }
    Ok(())
}

/// One database with a fault in its life.
struct Life<'a> {
    set: &'a OptionSet,
    volume: Arc<MemVolume>,
    history: History,
    /// Whether the fault refuses operations before anything is written, and does nothing else.
    refuses: bool,
}

impl<'a> Life<'a> {
    fn new(set: &'a OptionSet) -> Life<'a> {
        Life {
            set,
            volume: MemVolume::new(),
            history: History::default(),
            refuses: false,
        }
    }

    fn open(&self) -> glintdb::Result<Db> {
        Place::Memory(Arc::clone(&self.volume)).open(self.set.options.clone())
    }

    /// Operations of the volume before the first operation and after the last.
    fn measure(mut self, operations: &[Operation]) -> Result<(u64, u64), String> {
        let db = self.open().map_err(|error| error.to_string())?;
        let from = self.volume.operation_count();
        for operation in operations {
            self.apply(&db, operation)?;
        }
        Ok((from, self.volume.operation_count()))
    }

    fn run(mut self, operations: &[Operation], fault: Fault, seed: u64) -> Result<(), String> {
        let db = self.open().map_err(|error| error.to_string())?;
        self.volume.fail(fault);
        self.refuses = matches!(
            fault.kind,
            FaultKind::NoDescriptor | FaultKind::NoPermission
        );
        for (index, operation) in operations.iter().enumerate() {
            let at = |message| format!("operation {index} {operation:?}: {message}");
            if !self.apply(&db, operation).map_err(at)? {
                break;
            }
        }
        self.volume.clear_faults();
        drop(db);
        // The process ends here; every other time the machine too.
        let power_cut = seed.is_multiple_of(2);
        self.volume = match power_cut {
            true => self.volume.crash(CrashMode::LoseUnsynced),
            false => self.volume.kill(),
        };
        for _ in 0..2 {
            let db = self
                .open()
                .map_err(|error| format!("does not open afterwards: {error}"))?;
            let found = read_all(&db).map_err(sentence)?;
            self.history.recover(power_cut, &found)?;
            self.history.raise(Durability::Sync);
            let report = db.verify().map_err(|error| error.to_string())?;
            if !report.errors.is_empty() {
                return Err(format!("verify afterwards: {:?}", report.errors));
            }
            db.put("afterwards", "it takes writes")
                .and_then(|()| db.delete("afterwards"))
                .and_then(|()| db.close())
                .map_err(|error| format!("no writes afterwards: {error}"))?;
        }
        Ok(())
    }

    /// `false`: the database takes no more, or it is not known what it took.
    fn apply(&mut self, db: &Db, operation: &Operation) -> Result<bool, String> {
        let (writes, durability) = match operation {
            Operation::Write(write, durability) => (std::slice::from_ref(write), *durability),
            Operation::Batch(writes, durability) => (&writes[..], *durability),
            Operation::Flush => return self.settled(db.flush()),
            Operation::FlushLog(durability) => {
                let done = db.flush_log(*durability);
                if done.is_ok() {
                    self.history.raise(*durability);
                }
                return self.settled(done);
            }
            Operation::Compact(_) => return self.settled(db.compact()),
            Operation::CompactValues(_) => {
                return self.settled(db.default_keyspace().compact_values());
            }
            Operation::Convert(_, number) => {
                let keyspace = db.default_keyspace();
                let kind = other_kind(keyspace.options().index);
                return self.settled(keyspace.convert(self.set.other_options(kind, *number)));
            }
            Operation::Create(space) if self.history.now().records(*space).is_none() => {
                return self.create(db, *space);
            }
            Operation::Read(..) | Operation::Iterate(..) => return self.compare(db),
            _ => return Ok(true),
        };
        let there = |write: &&Write| self.history.now().records(write.space).is_some();
        let writes: Vec<Write> = writes.iter().filter(there).cloned().collect();
        if writes.iter().all(|write| write.change.is_nothing()) {
            return Ok(true);
        }
        let batch = encode(db, &writes).map_err(|error| error.to_string())?;
        self.history.begin(|state| state.apply(&writes));
        match db.write_with(batch, durability) {
            Ok(()) => self.history.raise(durability),
            Err(error) if error.kind().passes() => self.history.refuse(),
            Err(error) => return self.expected(&error),
        }
        Ok(true)
    }

    fn create(&mut self, db: &Db, space: Space) -> Result<bool, String> {
        self.history.begin(|state| state.create(space));
        match db.create_keyspace(&space.name(), self.set.keyspace.clone()) {
            Ok(_) => self.history.raise(Durability::Sync),
            Err(error) if error.kind().passes() => self.history.refuse(),
            Err(error) => return self.expected(&error),
        }
        Ok(true)
    }

    /// Whatever can be read is right.
    fn compare(&self, db: &Db) -> Result<bool, String> {
        match read_all(db) {
            Ok(found) => match found.difference(self.history.now()) {
                Some(difference) => Err(format!("the database and the model differ: {difference}")),
                None => Ok(true),
            },
            Err(Stop::Engine(error))
                if matches!(error.kind(), ErrorKind::Io | ErrorKind::Unavailable) =>
            {
                Ok(true)
            }
            Err(stop) => Err(sentence(stop)),
        }
    }

    /// Work that changes nothing to see may fail: later operations show whether it did harm.
    fn settled(&self, done: glintdb::Result<()>) -> Result<bool, String> {
        match done {
            Ok(()) => Ok(true),
            Err(error) if error.kind().passes() => Ok(true),
            Err(error) => self.expected(&error),
        }
    }

    /// Errors that the fault may cause end the life. Others are wrong, and so are these after a
    /// fault that only refuses operations.
    fn expected(&self, error: &Error) -> Result<bool, String> {
        match error.kind() {
            ErrorKind::Io | ErrorKind::Poisoned if !self.refuses => Ok(false),
            _ => Err(format!("unexpected error: {error}")),
        }
    }
}

fn encode(db: &Db, writes: &[Write]) -> glintdb::Result<Batch> {
    let mut batch = Batch::new();
    for write in writes {
        let keyspace = db.keyspace(&write.space.name())?;
        match &write.change {
            Change::Put(key, value) => batch.put(&keyspace, key.bytes(), value.bytes()),
            Change::Delete(key) => batch.delete(&keyspace, key.bytes()),
            Change::DeleteRange(range) => batch.delete_range(&keyspace, range.bounds()),
        };
    }
    Ok(batch)
}

fn sentence(stop: Stop) -> String {
    match stop {
        Stop::Engine(error) => format!("unexpected error: {error}"),
        Stop::Wrong(message) => message,
    }
}
