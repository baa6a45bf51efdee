//! Counting the keys of a keyspace: exactly if it is small, else by a sample.
//!
//! The exact count of a large keyspace would read all of its index. Sums of entries say little: a
//! key that was overwritten or deleted has several. So a sample decides what share of the entries
//! are live:
//!
//! 1. [`SAMPLES`] keys are chosen, spread evenly over the entries of tables and memtables.
//! 2. From each of them on, a window of a few blocks is read twice: once merged, for the live keys,
//!    and once source by source, for all entries.
//! 3. keys = entries × mean of (live keys / entries) of the windows.
//!
//! The windows differ most if the keys of whole regions are live and those of others are deleted.
//! Then, with half of the entries live, the standard error of the mean is 0.5 / √1024 = 1.6 % of
//! the entries, so 3.2 % of the keys.
//!
//! Thread safety: reads one version at one sequence number, beside any writers.

use crate::Result;
use crate::keyspace::Keyspace;
use crate::read::merge::{Merge, merge_of};
use crate::shared::Shared;
use crate::state::version::{KeyspaceState, Version};
use bytes::Bytes;
use glintdb_core::{Direction, SeqNum};
use glintdb_memtable::{MemCursor, Memtable};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Keyspaces with at most this many entries are counted exactly: well below a second of reading.
const EXACT_ENTRIES_MAX: u64 = 1 << 18;
/// Windows of a sample.
const SAMPLES: u64 = 1024;
/// Longest window in a memtable, in entries: about what two blocks of a table hold.
const MEMTABLE_WINDOW: usize = 256;

/// A number of keys, and whether it is exact.
///
/// ```
/// use glintdb::KeyCount;
/// assert_eq!(KeyCount::Exact(12).to_string(), "12");
/// assert_eq!(KeyCount::About(1_200_000).to_string(), "about 1200000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyCount {
    /// The keys were counted one by one.
    Exact(u64),
    /// The number is an estimate from a sample. Expect it to be within 10 % of the exact one.
    About(u64),
}

impl KeyCount {
    /// Returns the number, exact or not.
    #[must_use]
    pub fn keys(self) -> u64 {
        match self {
            KeyCount::Exact(keys) | KeyCount::About(keys) => keys,
        }
    }

    /// Returns whether the number is exact.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, KeyCount::Exact(_))
    }
}

impl fmt::Display for KeyCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyCount::Exact(keys) => keys.fmt(f),
            KeyCount::About(keys) => write!(f, "about {keys}"),
        }
    }
}

impl Keyspace {
    /// Counts the keys of the keyspace at this moment.
    ///
    /// The count is exact if tables and memtables hold at most 262,144 entries of the keyspace. An
    /// entry is a put or a deletion of one key that compactions have not merged with a newer one
    /// yet. For a larger keyspace it is an estimate from a sample, which reads about 1,000 places
    /// of the index. Values are not read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = glintdb::Db::open(dir.path().join("db"))?;
    /// let fruit = db.keyspace_or_create("fruit", Default::default())?;
    /// fruit.put("apple", "green")?;
    /// fruit.put("apple", "red")?;
    /// fruit.put("pear", "yellow")?;
    /// assert_eq!(fruit.count()?, glintdb::KeyCount::Exact(2));
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption`, I/O errors, `NotFound` (the keyspace was dropped).
    pub fn count(&self) -> Result<KeyCount> {
        self.check_alive()?;
        count(&self.handle.engine.shared, &self.state, EXACT_ENTRIES_MAX)
    }

    /// Returns about `number` keys, spread evenly over the keyspace at this moment, in order. There
    /// are fewer if many entries are deleted, and at most one for each block of the index. Reads a
    /// few blocks for each key, and no values.
    ///
    /// # Errors
    /// The same as [`count`](Self::count).
    pub fn sample_keys(&self, number: usize) -> Result<Vec<Bytes>> {
        self.check_alive()?;
        let point = self.handle.engine.shared.read_point();
        let counted = Counted {
            version: &point.version,
            at: point.at,
            keyspace: &self.state,
        };
        let every = counted.entries().div_ceil(number.max(1) as u64);
        let mut keys = Vec::new();
        for start in counted.starts(every)? {
            let end = counted.end(&start)?;
            let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut merge = counted.merge(Bound::Included(&start), upper)?;
            if merge.advance()? {
                keys.push(Bytes::copy_from_slice(merge.key()));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

fn count(shared: &Shared, keyspace: &KeyspaceState, exact_entries_max: u64) -> Result<KeyCount> {
    let point = shared.read_point();
    let counted = Counted {
        version: &point.version,
        at: point.at,
        keyspace,
    };
    let entries = counted.entries();
    if entries <= exact_entries_max {
        let keys = counted.live_keys(Bound::Unbounded, Bound::Unbounded)?;
        return Ok(KeyCount::Exact(keys));
    }
    let keys = counted.live_share(entries.div_ceil(SAMPLES))? * entries as f64;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of entries"
    )]
    let keys = keys.round() as u64;
    Ok(KeyCount::About(keys))
}

/// A keyspace at one moment.
struct Counted<'a> {
    version: &'a Version,
    at: SeqNum,
    keyspace: &'a KeyspaceState,
}

impl Counted<'_> {
    fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let of_keyspace = |generation| {
            let mem = crate::state::version::Generation::keyspace(generation, self.keyspace.id)?;
            Some(&mem.map)
        };
        let generations = self.version.generations();
        generations.map(AsRef::as_ref).filter_map(of_keyspace)
    }

    /// Entries of all sources, merged or not.
    fn entries(&self) -> u64 {
        let in_memtables: u64 = self.memtables().map(|map| map.len() as u64).sum();
        let view = self.version.view(self.keyspace.id);
        let in_tables = view.map_or(0, |view| view.stats().entries);
        in_memtables + in_tables
    }

    /// Counts the keys within the bounds.
    fn live_keys(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let mut merge = self.merge(lower, upper)?;
        let mut keys = 0;
        while merge.advance()? {
            keys += 1;
        }
        Ok(keys)
    }

    fn merge(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Merge> {
        let direction = Direction::Forward;
        let (version, at, keyspace) = (self.version, self.at, self.keyspace);
        merge_of(version, at, keyspace, lower, upper, direction, None)
    }

    /// Returns the share of entries that are live, from windows at one entry of `every`.
    fn live_share(&self, every: u64) -> Result<f64> {
        let (mut shares, mut windows) = (0.0, 0_u32);
        for start in self.starts(every)? {
            let end = self.end(&start)?;
            let lower = Bound::Included(&*start);
            let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let entries = self.entries_within(lower, upper)?;
            // A window behind a fence may be empty, since a fence need not be a key.
            if entries > 0 {
                shares += self.live_keys(lower, upper)? as f64 / entries as f64;
                windows += 1;
            }
        }
        // Without a window, every entry counts as live.
        Ok(if windows == 0 {
            1.0
        } else {
            shares / f64::from(windows)
        })
    }

    fn starts(&self, every: u64) -> Result<Vec<Bytes>> {
        let mut starts = Vec::new();
        if let Some(view) = self.version.view(self.keyspace.id) {
            starts.extend(view.sample_keys(every)?);
        }
        // Continues the count from memtable to memtable, as they can be small.
        let mut until_next = every / 2;
        for map in self.memtables() {
            let mut cursor = self.memtable_cursor(map, Bound::Unbounded, Bound::Unbounded);
            while cursor.advance() {
                if until_next == 0 {
                    starts.push(Bytes::copy_from_slice(cursor.key()));
                    until_next = every;
                }
                until_next -= 1;
            }
        }
        Ok(starts)
    }

    /// Returns the end of the window that begins at `start`: the nearest end that a source gives.
    fn end(&self, start: &[u8]) -> Result<Option<Bytes>> {
        let mut ends = Vec::new();
        if let Some(view) = self.version.view(self.keyspace.id) {
            ends.extend(view.sample_end(start)?);
        }
        for map in self.memtables() {
            let mut cursor = self.memtable_cursor(map, Bound::Included(start), Bound::Unbounded);
            let mut steps = 0;
            while steps < MEMTABLE_WINDOW && cursor.advance() {
                steps += 1;
            }
            if steps == MEMTABLE_WINDOW {
                ends.push(Bytes::copy_from_slice(cursor.key()));
            }
        }
        Ok(ends.into_iter().min())
    }

    fn entries_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let mut entries = 0;
        if let Some(view) = self.version.view(self.keyspace.id) {
            entries += view.count_entries(lower, upper)?;
        }
        for map in self.memtables() {
            let mut cursor = self.memtable_cursor(map, lower, upper);
            while cursor.advance() {
                entries += 1;
            }
        }
        Ok(entries)
    }

    fn memtable_cursor(
        &self,
        map: &Arc<Memtable>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> MemCursor {
        map.cursor(lower, upper, Direction::Forward, self.at)
    }
}

#[cfg(test)]
mod tests;
