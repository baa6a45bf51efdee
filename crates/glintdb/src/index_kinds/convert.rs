//! The replacement of an index by one of another kind ([why so](docs/decisions/040-convert.md)).
//!
//! Both kinds have runs of tables at the top, in the same format. The new index takes them over as
//! they are. All levels of an LSM tree become runs of a shelf, deeper levels as older runs. The
//! tree of a B+tree is copied to the bottom level of an LSM tree first.
//!
//! Not thread-safe: one thread converts an index.
//!
//! Invariants:
//! 1. The old index is paused, so the tree stays as it was copied. Flushes and relocations may add
//!    runs until [`Conversion::index`].
//! 2. Tables that both indexes have are the same objects, so a file that the new index removes
//!    stays until no view of the old one names it.
//! 3. A conversion that is dropped removes what it has written.

use super::AnyIndex;
use super::btree::{BTree, SettledTree};
use super::lsm::{BottomLevel, WrittenLevel};
use crate::options::{IndexKind, KeyspaceOptions};
use crate::{Error, Result};
use glintdb_core::index::Cursor;
use glintdb_core::planted;
use glintdb_runs::IndexEnv;
use std::sync::Arc;

/// A conversion under way.
pub(crate) struct Conversion {
    env: IndexEnv,
    old: Arc<AnyIndex>,
    options: KeyspaceOptions,
    state: State,
}

enum State {
    /// The tree is being copied.
    Copying(Box<Copying>),
    /// The new index can take over.
    Ready(Option<WrittenLevel>),
    /// An error has ended it.
    Over,
}

/// A copy of a tree to the bottom level of an LSM tree.
struct Copying {
    tree: SettledTree,
    cursor: Box<dyn Cursor>,
    level: BottomLevel,
    entries: u64,
}

impl Copying {
    /// Copies about `budget` entries. Returns false at the end of the tree.
    fn step(&mut self, budget: u32) -> Result<bool> {
        for _ in 0..budget {
            if !self.cursor.advance()? {
                return Ok(false);
            }
            let cursor = &self.cursor;
            self.level
                .add(cursor.key(), cursor.seqno(), cursor.value())?;
            self.entries += 1;
        }
        Ok(true)
    }

    /// Checks that all entries were copied, and makes the tables durable.
    fn finish(self) -> Result<WrittenLevel> {
        let (expected, found) = (self.tree.entries(), self.entries);
        if found != expected {
            let what = format!("expected {expected} entries in the tree, found {found}");
            return Err(Error::corruption("index", 0, what));
        }
        let level = self.level.finish()?;
        let (expected, found) = (self.tree.pointed_bytes(), level.pointed_bytes());
        if found != expected {
            let what = format!("expected {expected} bytes of values in the log, found {found}");
            return Err(Error::corruption("index", 0, what));
        }
        Ok(level)
    }
}

impl Conversion {
    /// Begins. `None`: a job of the old index must end first.
    pub(super) fn begin(
        env: IndexEnv,
        old: &Arc<AnyIndex>,
        options: &KeyspaceOptions,
    ) -> Result<Option<Conversion>> {
        let state = match (&**old, options.index) {
            (AnyIndex::Lsm(_), IndexKind::BTree) => State::Ready(None),
            (AnyIndex::BTree(old), IndexKind::Lsm) => {
                let Some(tree) = old.settled_tree() else {
                    return Ok(None);
                };
                let ranges = tree.range_tombstones()?;
                let lsm = options.lsm.clone();
                State::Copying(Box::new(Copying {
                    level: BottomLevel::new(env.clone(), lsm, tree.entries(), ranges)?,
                    cursor: tree.cursor(),
                    tree,
                    entries: 0,
                }))
            }
            (AnyIndex::Lsm(_), IndexKind::Lsm) | (AnyIndex::BTree(_), IndexKind::BTree) => {
                return Err(Error::invalid(format!(
                    "the index is of kind {} already",
                    options.index.name()
                )));
            }
        };
        Ok(Some(Conversion {
            env,
            old: Arc::clone(old),
            options: options.clone(),
            state,
        }))
    }

    /// About the bytes that [`step`](Self::step) writes in all.
    pub(crate) fn space_bytes(&self) -> u64 {
        match &self.state {
            State::Copying(copying) => copying.tree.bytes() + copying.tree.bytes() / 8,
            State::Ready(_) | State::Over => 0,
        }
    }

    /// Does a bounded piece of work, of about `budget` entries. Returns false once the new index
    /// can take over. After an error the conversion is over.
    pub(crate) fn step(&mut self, budget: u32) -> Result<bool> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Copying(mut copying) => {
                if copying.step(budget)? {
                    self.state = State::Copying(copying);
                    return Ok(true);
                }
                self.state = State::Ready(Some(copying.finish()?));
                Ok(false)
            }
            state => {
                self.state = state;
                Ok(false)
            }
        }
    }

    /// Returns the new index, which can take over, with all runs that the old one has now.
    pub(crate) fn index(&self) -> Result<AnyIndex> {
        match (&*self.old, &self.state) {
            (AnyIndex::Lsm(old), State::Ready(None)) => {
                let options = self.options.btree.clone();
                BTree::of_runs(self.env.clone(), options, old.runs()).map(AnyIndex::BTree)
            }
            (AnyIndex::BTree(old), State::Ready(Some(level))) => {
                let runs = planted!(
                    "glintdb: a conversion forgets the runs above a tree",
                    old.runs(),
                    Vec::new()
                );
                Ok(AnyIndex::Lsm(level.beneath(runs)))
            }
            _ => Err(Error::invalid("this conversion is not at its end")),
        }
    }

    /// Keeps what was written: the manifest names it, or may name it.
    pub(crate) fn keep(&mut self) {
        if let State::Ready(Some(level)) = std::mem::replace(&mut self.state, State::Over) {
            level.commit();
        }
    }
}
