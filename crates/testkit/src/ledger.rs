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
    /// Number of the first of them since the beginning.
    first: u64,
    /// States that are possible beside them, where a commit's outcome is unknown.
    doubtful: Vec<State>,
    /// Indices of the last states that survive a kill, and a power cut.
    kept: [usize; 2],
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
    /// Everything a crash may leave from now on; `kept` as in [`Entries`].
    pub(crate) fn set(&self, states: &[State], doubtful: &[State], first: u64, kept: [usize; 2]) {
        let mut entries = self.lock();
        entries.states.clear();
        entries.states.extend_from_slice(states);
        entries.doubtful.clear();
        entries.doubtful.extend_from_slice(doubtful);
        entries.first = first;
        entries.kept = kept;
    }

    /// One that says always the same.
    #[must_use]
    pub fn fixed(entries: Entries) -> Ledger {
        Ledger {
            entries: Mutex::new(entries),
        }
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
        let first = self.kept[usize::from(power_cut)];
        if self.doubtful.iter().any(|state| state.hash() == hash) {
            return Ok(());
        }
        match self.states.iter().rposition(|state| state.hash() == hash) {
            Some(index) if index >= first => Ok(()),
            Some(index) => Err(format!(
                "commits are lost: of {} commits up to {first} were acknowledged, found are those up to {index}",
                self.states.len() - 1
            )),
            None => Err("what is found is no prefix of the commits".into()),
        }
    }

    /// For an image taken between two looks, `self` and then `later`, while commits went on: what was acknowledged before must be there, what was begun until after may be.
    #[must_use]
    pub fn until(&self, later: &Entries) -> Entries {
        let shared = usize::try_from(later.first.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut states = self.states.clone();
        states.truncate(shared);
        states.extend_from_slice(&later.states);
        Entries {
            states,
            first: self.first,
            doubtful: later.doubtful.clone(),
            kept: self.kept,
            copies: Vec::new(),
        }
    }

    /// The states, oldest first.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.states
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
