//! Operations on a volume that fails: an error is an answer too. What was answered with one is not seen as long as the database is open, in whole or in part, and after
//! the next opening it is wholly there or wholly absent.

use super::{Runner, Stop};
use crate::operation::Operation;
use crate::sim::hash_of;
use glintdb::ErrorKind;

/// What came of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faulty {
    /// It went through.
    Done,
    /// It was answered with an error, and the database goes on.
    Refused(ErrorKind),
    /// It was answered with an error that leaves open what the database is now: only opening it tells.
    Ended(ErrorKind),
}

impl Runner {
    /// Applies one operation. `reads_fail`: reading may be answered with errors too; else it must go on after any error.
    ///
    /// # Errors
    /// What is wrong: an error of a kind that no fault explains, or something that must not be seen.
    pub fn step_with_faults(
        &mut self,
        operation: &Operation,
        kinds: &[ErrorKind],
        reads_fail: bool,
    ) -> Result<Faulty, String> {
        self.history.forget();
        self.faults = true;
        let error = match self.apply(operation) {
            Ok(()) => return Ok(Faulty::Done),
            Err(Stop::Wrong(message)) => return Err(message),
            Err(Stop::Engine(error)) => error,
        };
        let kind = error.kind();
        if !kinds.contains(&kind) {
            return Err(format!("an error that no fault explains: {error}"));
        }
        // Whether an edit of the manifest that failed is durable, only the next opening tells.
        let in_manifest = matches!(operation, Operation::Create(_) | Operation::Drop(_));
        let Some(db) = self.db.as_ref().filter(|_| !in_manifest) else {
            self.history.doubt_all();
            return Ok(Faulty::Ended(kind));
        };
        match hash_of(db) {
            Ok(shown) => {
                let several = matches!(operation, Operation::Group(..));
                self.history
                    .doubt(shown, several)
                    .map_err(|message| format!("{message}, after: {error}"))?;
                Ok(Faulty::Refused(kind))
            }
            Err(_) if reads_fail => {
                self.history.doubt_all();
                Ok(Faulty::Ended(kind))
            }
            Err(message) => Err(format!("{message}, after: {error}")),
        }
    }
}
