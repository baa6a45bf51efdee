//! An immutable picture of an index as an [`IndexView`].
//!
//! Thread-safe. Reads take no lock and write no counter that threads share.

use crate::common::Common;
use crate::cursor::{Overlay, TreeCursor};
use crate::node::Child;
use crate::picture::Picture;
use crate::verify;
use bytes::Bytes;
use glintdb_core::index::{Cursor, IndexStats, IndexView, LevelStats};
use glintdb_core::{
    Direction, Entry, EntryRef, Error, FileId, Result, SeqNum, ValuePointer, proportion,
};
use glintdb_runs::Sorted;
use glintdb_runs::keys::{KeyRange, TombstoneSet};
use glintdb_runs::read::{self, Found, MergeCursor};
use glintdb_runs::table::Purpose;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// An immutable picture of an index.
pub(crate) struct View {
    pub(crate) picture: Picture,
    pub(crate) common: Arc<Common>,
    /// Cursors keep their view.
    own: Weak<View>,
}

impl View {
    pub(crate) fn new(picture: Picture, common: &Arc<Common>) -> Arc<View> {
        Arc::new_cyclic(|own| View {
            picture,
            common: Arc::clone(common),
            own: Weak::clone(own),
        })
    }

    fn arc(&self) -> Arc<View> {
        match self.own.upgrade() {
            Some(view) => view,
            None => unreachable!("a view that is borrowed is alive"),
        }
    }

    /// A cursor over the tree, without what `tombstones` hide.
    pub(crate) fn tree_cursor(
        &self,
        tombstones: &Arc<TombstoneSet>,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> TreeCursor {
        TreeCursor::new(&self.arc(), tombstones, bounds, direction)
    }

    /// Looks up keys in the tree, where the shelf has no entry. Reads the nodes of a level that are
    /// not in memory in one batch.
    fn find_in_tree(&self, keys: &[&[u8]], found: &mut [Found]) {
        let missing = |found: &Found| matches!(found.entry, Ok(None));
        let picture = &self.picture;
        let Some(root) = picture.root else { return };
        // The node that each key has come to.
        let mut nodes: BTreeMap<usize, _> = (found.iter().enumerate())
            .filter(|(_, found)| missing(found))
            .map(|(at, _)| (at, root.node))
            .collect();
        for level in (0..=root.level).rev() {
            let wanted: Vec<Child> = nodes.values().copied().collect();
            let read = picture.read_ahead(&self.common.env, level, &wanted);
            let mut failed = Vec::new();
            for (at, node) in &mut nodes {
                let was_read = read.contains(&(node.number, node.offset));
                found[*at].reads += u32::from(was_read);
                let answer = match level {
                    0 => picture.find_in_leaf(node, keys[*at], &mut 0).map(|entry| {
                        found[*at].entry = Ok(entry);
                    }),
                    _ => picture
                        .child_at(level, node, keys[*at], &mut 0)
                        .map(|child| {
                            *node = child;
                        }),
                };
                if let Err(error) = answer {
                    found[*at].entry = Err(error);
                    failed.push(*at);
                }
            }
            for at in failed {
                nodes.remove(&at);
            }
        }
    }
}

impl IndexView for View {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let deleted = self.picture.tombstones()?.seqno_at(key);
        let mut reads = 0;
        let entry = match read::find(self.picture.sorted(), deleted, key, &mut reads)? {
            Some(entry) => Some(entry),
            None => self.picture.find(key, &mut reads)?,
        };
        self.common.env.count_lookup(reads);
        Ok(read::resolve(entry, deleted))
    }

    fn get_batch(&self, keys: &[&[u8]]) -> Vec<Result<Option<Entry>>> {
        let env = &self.common.env;
        let tombstones = match self.picture.tombstones() {
            Ok(tombstones) => tombstones,
            Err(error) => return keys.iter().map(|_| Err(error.clone())).collect(),
        };
        let sources: Vec<&Sorted> = self.picture.sorted().collect();
        let mut found = read::find_batch(env, &sources, tombstones, keys);
        self.find_in_tree(keys, &mut found);
        let resolved = found.into_iter().map(|found| {
            env.count_lookup(found.reads);
            found.entry.map(|entry| read::resolve(entry, found.deleted))
        });
        resolved.collect()
    }

    fn cursor(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>> {
        let tombstones = self.picture.tombstones()?;
        let bounds = (lower, upper);
        let sources = self.picture.sorted();
        let shelf = MergeCursor::new(sources, tombstones, bounds, direction, Purpose::Read);
        if self.picture.root.is_none() {
            return Ok(shelf.boxed());
        }
        let tree = self.tree_cursor(tombstones, bounds, direction);
        Ok(match self.picture.runs.is_empty() {
            true => Box::new(tree),
            false => Box::new(Overlay::new(shelf.boxed(), tree, direction)),
        })
    }

    fn range_tombstone_seqno(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<Option<SeqNum>> {
        let range = KeyRange::from_bounds(lower, upper);
        if range.is_empty() {
            return Ok(None);
        }
        Ok(self.picture.tombstones()?.newest_meeting(&range))
    }

    fn verify(
        &self,
        report: &mut dyn FnMut(Error),
        held: &mut dyn FnMut(ValuePointer),
        live: &mut dyn FnMut(&[u8], ValuePointer),
        checked: &mut dyn FnMut(u64),
    ) {
        let sound = verify::verify(&self.picture, report, held, checked);
        let walked = (|| {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let mut cursor = self.cursor(all.0, all.1, Direction::Forward)?;
            while cursor.advance()? {
                if let EntryRef::Pointer(found) = cursor.value() {
                    live(cursor.key(), found);
                }
            }
            Ok(())
        })();
        if let Err(error) = walked
            && sound
        {
            // Otherwise the error comes from a file whose damage was reported above.
            report(error);
        }
    }

    fn sample_keys(&self, every: u64) -> Result<Vec<Bytes>> {
        let mut keys = read::sample_keys(self.picture.sorted(), every)?;
        let Some(root) = self.picture.root else {
            return Ok(keys);
        };
        let in_leaf = (root.entries / self.picture.leaves().max(1)).max(1);
        let every = (every / in_leaf).max(1);
        let mut until_next = every / 2;
        self.picture.each_branch(&Bytes::new(), |branch| {
            for (lower, _) in &branch.children {
                if until_next == 0 {
                    keys.push(lower.clone());
                    until_next = every;
                }
                until_next -= 1;
            }
            true
        })?;
        Ok(keys)
    }

    fn sample_end(&self, start: &[u8]) -> Result<Option<Bytes>> {
        let of_shelf = read::sample_end(self.picture.sorted(), start)?;
        // The second separator behind `start`.
        let mut skip = 1;
        let mut of_tree = None;
        self.picture.each_branch(start, |branch| {
            let behind = |(lower, _): &&(Bytes, _)| **lower > *start;
            for (lower, _) in branch.children.iter().filter(behind) {
                if skip == 0 {
                    of_tree = Some(lower.clone());
                    return false;
                }
                skip -= 1;
            }
            true
        })?;
        Ok([of_shelf, of_tree].into_iter().flatten().min())
    }

    fn bytes_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let range = KeyRange::from_bounds(lower, upper);
        if range.is_empty() {
            return Ok(0);
        }
        let mut bytes = 0;
        for slot in (self.picture.sorted()).flat_map(|tables| tables.meeting(&range)) {
            bytes += slot.bytes_within(&range)?;
        }
        let Some(root) = self.picture.root else {
            return Ok(bytes);
        };
        let mut leaves = 0;
        self.picture.each_branch(&range.start, |branch| {
            for place in 0..branch.children.len() {
                let within = branch.children[place].0 >= range.start
                    && glintdb_runs::keys::compare_ends(&branch.end_of(place).cloned(), &range.end)
                        .is_le();
                leaves += u64::from(within);
            }
            (branch.upper.as_ref())
                .is_some_and(|upper| glintdb_core::key::before_end(upper, &range.end))
        })?;
        let of_leaves: u64 = (self.picture.files.values())
            .filter(|file| file.file.leaves().is_some())
            .map(|file| file.live.bytes)
            .sum();
        let all = of_leaves.saturating_add(root.pointed_bytes);
        Ok(bytes + proportion(all, leaves, self.picture.leaves()))
    }

    fn count_entries(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let mut entries = read::count_entries(self.picture.sorted(), lower, upper)?;
        if self.picture.root.is_some() {
            let nothing_hidden = Arc::default();
            let mut cursor = self.tree_cursor(&nothing_hidden, (lower, upper), Direction::Forward);
            cursor.walk(&mut |_, _, _, _| {
                entries += 1;
                true
            })?;
        }
        Ok(entries)
    }

    fn files(&self) -> Vec<FileId> {
        self.picture.file_ids()
    }

    fn bytes(&self) -> u64 {
        let of_shelf: u64 = self.picture.sorted().map(Sorted::bytes).sum();
        let of_tree = self.picture.files.values().map(|file| file.file.bytes());
        of_shelf + of_tree.sum::<u64>()
    }

    fn stats(&self) -> IndexStats {
        let counters = &self.common.counters;
        let (picture, root) = (&self.picture, self.picture.root);
        let mut shelf = LevelStats::default();
        let mut stats = IndexStats {
            kind: "btree",
            lookups_by_reads: self.common.env.lookups_by_reads(),
            compactions: counters.settlings.load(Ordering::Relaxed),
            compaction_read_bytes: counters.read_bytes.load(Ordering::Relaxed),
            compaction_written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            lookup_reads_max: u32::try_from(picture.runs.len()).unwrap_or(u32::MAX)
                + root.map_or(0, |root| u32::from(root.level) + 1),
            ..IndexStats::default()
        };
        for (_, slot) in picture.slots() {
            let meta = slot.meta();
            shelf.parts += 1;
            shelf.bytes += meta.bytes;
            shelf.entries += meta.entries;
            stats.pointed_bytes += meta.pointed_bytes;
            stats.tombstones += meta.tombstones + meta.range_tombstones;
        }
        let (mut branches, mut leaves) = (LevelStats::default(), LevelStats::default());
        for file in picture.files.values() {
            let level = match file.file.leaves() {
                Some(slot) => {
                    stats.tombstones += slot.meta().range_tombstones;
                    &mut leaves
                }
                None => &mut branches,
            };
            level.parts = level
                .parts
                .saturating_add(u32::try_from(file.live.nodes).unwrap_or(u32::MAX));
            level.bytes += file.live.bytes;
        }
        if let Some(root) = root {
            leaves.entries = root.entries;
            stats.tombstones += root.tombstones;
            stats.pointed_bytes += root.pointed_bytes;
        }
        stats.entries = shelf.entries + leaves.entries;
        stats.levels = vec![shelf, branches, leaves];
        stats.files = picture.file_ids().len() as u64;
        stats.bytes = self.bytes();
        stats.live_bytes = stats.bytes - picture.garbage_bytes();
        stats
    }
}
