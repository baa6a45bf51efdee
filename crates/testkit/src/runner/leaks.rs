//! Files that are nobody's: a database holds as many tables as its indexes name, and no segment that its log does not know.

use super::{Done, Runner, ensure};
use glintdb_core::FileKind;

/// Segments that the log keeps for a full disk, which its count leaves out.
const RESERVE_SEGMENTS: u64 = 2;

impl Runner {
    /// Only where nothing is under way: without background threads, snapshots and a crash to come.
    fn busy(&self) -> bool {
        self.set.options.background_threads > 0
            || self.planned.is_some()
            || self.snapshots.iter().any(Option::is_some)
    }

    /// At any time: a table goes with its last reader.
    pub(super) fn leaked_tables(&self) -> Done {
        if self.busy() {
            return Ok(());
        }
        let stats = self.db().stats();
        let named: u64 = (stats.keyspaces.iter())
            .map(|keyspace| keyspace.index_files)
            .sum();
        let tables = self.place.count(FileKind::Table)? + self.place.count(FileKind::Tree)?;
        ensure!(
            tables == named,
            "a leak: {tables} files of indexes, which name {named}"
        );
        Ok(())
    }

    /// After opening: segments that are gone may wait for the next occasion, and recovery removes what nobody names.
    pub(super) fn leaks(&self) -> Done {
        self.leaked_tables()?;
        if self.busy() {
            return Ok(());
        }
        let known = self.db().stats().log.segments;
        let segments = self.place.count(FileKind::Log)?;
        ensure!(
            segments <= known + RESERVE_SEGMENTS,
            "a leak: {segments} segments, of which the log knows {known}"
        );
        Ok(())
    }
}
