//! What a crash at this moment may leave: shared by the history of a run, which changes it, and by whoever looks at the volume in the middle of an operation.
//!
//! Thread-safe (one mutex).

use crate::model::State;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// See the module's page.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
}

/// The states since the oldest one that a crash can bring back, and the copies.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    states: Vec<State>,
    kept_at_kill: usize,
    kept_at_power_cut: usize,
    copies: Vec<Copy>,
}

/// A checkpoint that was acknowledged.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Its directory.
    pub path: PathBuf,
    /// What it holds.
    pub state: State,
}

impl Ledger {
    /// Only newest states change, so what is there already is not copied again.
    pub(crate) fn set(&self, states: &[State], kept_at_kill: usize, kept_at_power_cut: usize) {
        let mut entries = self.lock();
        entries.states.clear();
        entries.states.extend_from_slice(states);
        entries.kept_at_kill = kept_at_kill;
        entries.kept_at_power_cut = kept_at_power_cut;
    }

    /// A checkpoint is acknowledged; the one before it is not looked at any more.
    pub(crate) fn copied(&self, path: PathBuf, state: State) {
        self.lock().copies = vec![Copy { path, state }];
    }

    /// As of now.
    #[must_use]
    pub fn now(&self) -> Entries {
        self.lock().clone()
    }

    /// Whether a crash may leave a database of this hash.
    ///
    /// # Errors
    /// What is wrong with it: a sentence.
    pub fn accepts(&self, hash: u64, power_cut: bool) -> Result<(), String> {
        self.lock().accepts(hash, power_cut)
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap()
    }
}

impl Entries {
    /// As [`Ledger::accepts`].
    ///
    /// # Errors
    /// A sentence.
    pub fn accepts(&self, hash: u64, power_cut: bool) -> Result<(), String> {
        let first = if power_cut {
            self.kept_at_power_cut
        } else {
            self.kept_at_kill
        };
        match self.states.iter().rposition(|state| state.hash() == hash) {
            Some(index) if index >= first => Ok(()),
            Some(index) => Err(format!(
                "commits are lost: of {} commits up to {first} were acknowledged, found are those up to {index}",
                self.states.len() - 1
            )),
            None => Err("what is found is no prefix of the commits".into()),
        }
    }

    /// The newest state.
    #[must_use]
    pub fn newest(&self) -> Option<&State> {
        self.states.last()
    }

    /// Checkpoints that must be whole.
    #[must_use]
    pub fn copies(&self) -> &[Copy] {
        &self.copies
    }
}
