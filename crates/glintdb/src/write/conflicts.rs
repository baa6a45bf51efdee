//! The check of a transaction's commit: whether anything that it depends on was written since its
//! snapshot.
//!
//! Thread safety: any thread. Checks only read.
//!
//! Invariant: a commit is checked against every commit before it in commit order. The last check is
//! made under the sequencer's lock, so no other commit is numbered between it and the commit's own
//! number.

use crate::read::bounds::bound_slices;
use crate::read::merge::merge_of;
use crate::state::version::{KeyspaceState, Version};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::{Direction, SeqNum};
use std::ops::Bound;
use std::sync::Arc;

/// Keys and ranges that no commit may have changed since a transaction's snapshot.
pub(crate) struct Checks {
    pub(crate) since: SeqNum,
    pub(crate) keys: Vec<(Arc<KeyspaceState>, Bytes)>,
    pub(crate) ranges: Vec<(Arc<KeyspaceState>, Bound<Bytes>, Bound<Bytes>)>,
}

fn conflict(keyspace: &KeyspaceState, key: &[u8], seqno: SeqNum) -> Error {
    let shown = String::from_utf8_lossy(key.get(..64).unwrap_or(key));
    Error::new(
        ErrorKind::Conflict,
        format!(
            "keyspace {:?}, key {shown:?}: written by commit {seqno} since the transaction began",
            keyspace.name
        ),
    )
}

impl Checks {
    /// Whether every commit after `since` is in the memtables of `version`.
    fn in_memory(version: &Version, since: SeqNum) -> bool {
        version.oldest().first_seqno <= since.next()
    }

    /// Looks for writes newer than the snapshot in all of `version`; in the index only if its
    /// memtables do not reach back to the snapshot.
    pub(crate) fn check_all(&self, version: &Version) -> Result<()> {
        self.check_memory(version, self.since)?;
        if Self::in_memory(version, self.since) {
            return Ok(());
        }
        let newest = SeqNum::MAX;
        for (keyspace, key) in &self.keys {
            if let Some((seqno, _)) = version.find(newest, keyspace, key)?
                && seqno > self.since
            {
                return Err(conflict(keyspace, key, seqno));
            }
        }
        for (keyspace, lower, upper) in &self.ranges {
            let (lower, upper) = bound_slices(lower, upper);
            let mut tombstone = None;
            if let Some(view) = version.view(keyspace.id) {
                tombstone = tombstone.max(view.range_tombstone_seqno(lower, upper)?);
            }
            if let Some(seqno) = tombstone.filter(|seqno| *seqno > self.since) {
                return Err(conflict(keyspace, b"(a range)", seqno));
            }
            let mut merge = merge_of(
                version,
                newest,
                keyspace,
                lower,
                upper,
                Direction::Forward,
                None,
            )?
            .keep_deleted();
            while merge.advance()? {
                if merge.seqno() > self.since {
                    return Err(conflict(keyspace, merge.key(), merge.seqno()));
                }
            }
        }
        Ok(())
    }

    /// Looks for writes newer than `since` in the memtables of `version` alone.
    fn check_memory(&self, version: &Version, since: SeqNum) -> Result<()> {
        for generation in version.generations() {
            for (keyspace, key) in &self.keys {
                let Some(mem) = generation.keyspace(keyspace.id) else {
                    continue;
                };
                let newest = mem.map.latest_seqno(key).max(mem.ranges.newest_covering(
                    key,
                    SeqNum::MAX,
                    since,
                ));
                if let Some(seqno) = newest.filter(|seqno| *seqno > since) {
                    return Err(conflict(keyspace, key, seqno));
                }
            }
            for (keyspace, lower, upper) in &self.ranges {
                let Some(mem) = generation.keyspace(keyspace.id) else {
                    continue;
                };
                let (lower, upper) = bound_slices(lower, upper);
                let newer = (mem.map.latest_seqno_in(lower, upper, since))
                    .max(mem.ranges.newer_meeting(lower, upper, since));
                if let Some(seqno) = newer {
                    return Err(conflict(keyspace, b"(a range)", seqno));
                }
            }
        }
        Ok(())
    }

    /// Does the last check, under the sequencer's lock and with every earlier commit in its
    /// memtable. Returns false if a flush since `checked_to` makes another check of the index
    /// necessary.
    pub(crate) fn check_last(&self, version: &Version, checked_to: SeqNum) -> Result<bool> {
        if !Self::in_memory(version, checked_to) {
            return Ok(false);
        }
        self.check_memory(version, checked_to.max(self.since))?;
        Ok(true)
    }
}
