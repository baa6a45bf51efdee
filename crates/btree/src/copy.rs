//! The tree of an index as a source for an index of another kind.
//!
//! Thread-safe: immutable.

use crate::view::View;
use glintdb_core::index::Cursor;
use glintdb_core::{Direction, RangeTombstone, Result};
use glintdb_runs::range_tombstones;
use std::ops::Bound;
use std::sync::Arc;

/// The tree of an index, without the shelf. No settling is half done.
pub struct SettledTree {
    view: Arc<View>,
}

impl SettledTree {
    pub(crate) fn new(view: Arc<View>) -> SettledTree {
        SettledTree { view }
    }

    /// Number of entries, tombstones included.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.view.picture.root.map_or(0, |root| root.entries)
    }

    /// Bytes of the values in the log that the entries point to.
    #[must_use]
    pub fn pointed_bytes(&self) -> u64 {
        self.view.picture.root.map_or(0, |root| root.pointed_bytes)
    }

    /// Bytes of the leaves.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let (leaves, _) = self.view.picture.live_bytes();
        leaves
    }

    /// A cursor over all entries, from the first key on.
    #[must_use]
    pub fn cursor(&self) -> Box<dyn Cursor> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let nothing_hidden = Arc::default();
        Box::new((self.view).tree_cursor(&nothing_hidden, all, Direction::Forward))
    }

    /// The range tombstones that transactions may still have to see. They hide no entry.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn range_tombstones(&self) -> Result<Vec<RangeTombstone>> {
        let floor = self.view.common.env.tombstone_floor();
        let files = self.view.picture.files.values();
        let all = range_tombstones(files.filter_map(|file| file.file.leaves()))?;
        let needed = all.fragments().iter().filter(|range| range.seqno >= floor);
        Ok(needed.cloned().collect())
    }
}
