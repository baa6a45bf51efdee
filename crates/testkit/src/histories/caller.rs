//! What every client of an epoch has and notes, whatever it calls: who it is, its dice, and how the results of reads and commits are to be taken.
//!
//! Thread safety: a [`Caller`] belongs to one thread.

use super::linear::{UNKNOWN, Value};
use super::stage::{Floor, Stage};
use super::value;
use super::wrong::Wrong;
use crate::rng::Rng;
use glintdb::{Bytes, Durability, Error, ErrorKind};

/// When a call was made and when it returned.
pub type Interval = (u64, u64);
/// A call: what no history may have is an error.
pub type Outcome = Result<(), String>;

/// What a client notes, whatever it calls.
#[derive(Default)]
pub struct Notes {
    /// What its durable commits made safe.
    pub floors: Vec<Floor>,
    /// Values it has written, for the next epoch.
    pub values: u64,
    /// Transactions refused for a conflict.
    pub conflicts: u64,
}

/// One thread of an epoch.
pub(super) struct Caller<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) number: u16,
    pub(super) rng: Rng,
    pub(super) notes: Notes,
    wrong: Option<Wrong>,
}

impl<'a> Caller<'a> {
    /// Client `number`, which has written `values` values in earlier epochs.
    pub(super) fn new(
        stage: &'a Stage<'a>,
        number: u16,
        values: u64,
        rng: Rng,
        wrong: Option<Wrong>,
    ) -> Caller<'a> {
        Caller {
            stage,
            number,
            rng,
            wrong,
            notes: Notes {
                values,
                ..Notes::default()
            },
        }
    }

    /// A value that nobody else writes.
    pub(super) fn new_value(&mut self) -> Value {
        self.notes.values += 1;
        value::number(self.number, self.notes.values)
    }

    /// Once in `of` at `Sync`, so often `buffered`, else `Os`.
    pub(super) fn level(&mut self, of: u64, buffered: u64) -> Durability {
        match self.rng.below(of) {
            0 => Durability::Sync,
            n if n <= buffered => Durability::Buffered,
            _ => Durability::Os,
        }
    }

    /// Whether to do the wrong thing now, if that is what this client is for.
    pub(super) fn goes_wrong(&mut self, what: Wrong) -> bool {
        self.wrong == Some(what) && self.rng.one_in(what.once_in())
    }

    /// What a read found; `None` where its error is one that must be expected.
    pub(super) fn found(
        &self,
        result: glintdb::Result<Option<Bytes>>,
    ) -> Result<Option<Value>, String> {
        match result {
            Ok(found) => value::seen(found.as_deref()).map(Some),
            Err(error) if self.stage.expected(&error) => Ok(None),
            Err(error) => Err(format!("client {}: read: {error}", self.number)),
        }
    }

    /// Takes note of a commit at `level`; gives the interval in which its writes took effect, `None` where it was refused.
    pub(super) fn committed(
        &mut self,
        (call, ret): Interval,
        result: Result<(), Error>,
        level: Durability,
    ) -> Result<Option<Interval>, String> {
        match result {
            Ok(()) if self.stage.powered() => {
                self.notes.floors.push(Floor { call, ret, level });
                Ok(Some((call, ret)))
            }
            Ok(()) => Ok(Some((call, UNKNOWN))),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.notes.conflicts += 1;
                Ok(None)
            }
            Err(error) if self.stage.expected(&error) => Ok(Some((call, UNKNOWN))),
            Err(error) => Err(format!("client {}: commit: {error}", self.number)),
        }
    }
}
