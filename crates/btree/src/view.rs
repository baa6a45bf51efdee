//! An immutable picture of an index as an [`IndexView`].
//!
//! Thread-safe. Reads take no lock and write no counter that threads share.

use crate::common::Common;
use crate::cursor::{Overlay, TreeCursor};
use crate::directory::Place;
use crate::node::Child;
use crate::picture::{NodeFile, Picture};
use crate::settle;
use crate::verify;
use bytes::Bytes;
use glintdb_core::index::{Cursor, IndexStats, IndexView, LevelStats};
use glintdb_core::{
    Direction, Entry, EntryRef, Error, FileId, Result, SeqNum, ValuePointer, proportion,
};
use glintdb_flash::{ReadRequest, read_each};
use glintdb_runs::keys::{KeyRange, TombstoneSet, compare_ends};
use glintdb_runs::read::{self, Found, MergeCursor};
use glintdb_runs::table::{Block, Purpose};
use glintdb_runs::{RunEnv, Sorted};
use std::collections::HashMap;
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

    /// The first key behind the leaf that may have `key`.
    fn leaf_end(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let directory = self.picture.directory()?;
        let leaf = directory.leaf_of(key, &self.picture, &mut 0)?;
        let range = leaf.map(|(place, _)| directory.range_of(place, &self.picture));
        Ok(range.transpose()?.and_then(|(_, upper)| upper))
    }

    /// Number of leaves whose keys are all within `range`.
    fn leaves_within(&self, range: &KeyRange) -> Result<u64> {
        let (picture, directory) = (&self.picture, self.picture.directory()?);
        let first = directory.find(&range.start);
        let last =
            (range.end.as_ref()).map_or(directory.branches().len() - 1, |end| directory.find(end));
        directory.load_children(first..=last, picture)?;
        let mut leaves = 0;
        for branch in first..=last {
            let mut within = 0..directory.children(branch, picture, &mut 0)?.nodes.len();
            // Only the edges may be cut.
            let is_outside = |child: usize| -> Result<bool> {
                let (lower, upper) = directory.range_of(Place { branch, child }, picture)?;
                Ok(lower < range.start || compare_ends(&upper, &range.end).is_gt())
            };
            while !within.is_empty() && is_outside(within.start)? {
                within.start += 1;
            }
            while !within.is_empty() && is_outside(within.end - 1)? {
                within.end -= 1;
            }
            leaves += within.len() as u64;
        }
        Ok(leaves)
    }

    /// Looks up keys in the tree, where the shelf has no entry. Reads the leaves that are not in
    /// memory in one batch.
    fn find_in_tree(&self, keys: &[&[u8]], found: &mut [Found]) {
        let missing = |found: &Found| matches!(found.entry, Ok(None));
        let picture = &self.picture;
        if picture.root.is_none() {
            return;
        }
        let wanted: Vec<usize> = (0..keys.len()).filter(|&at| missing(&found[at])).collect();
        let directory = match picture.directory() {
            Ok(directory) => directory,
            Err(error) => {
                let fail = |&at: &usize| found[at].entry = Err(error.clone());
                return wanted.iter().for_each(fail);
            }
        };
        let branches = wanted.iter().map(|&at| directory.find(keys[at]));
        // If a branch cannot be read, the lookups in it fail below.
        drop(directory.load_children(branches, picture));
        let mut batch = LeafBatch::default();
        let leaves: Vec<(usize, Result<Wanted<'_>>)> = (wanted.iter())
            .map(|&at| {
                let leaf = directory.leaf_of(keys[at], picture, &mut found[at].reads);
                let wanted = leaf.and_then(|leaf| match leaf {
                    Some((_, leaf)) => batch.want(picture, leaf),
                    None => Ok(Wanted::Nothing),
                });
                (at, wanted)
            })
            .collect();
        let read = batch.read(&self.common.env);
        for (at, wanted) in leaves {
            let entry = wanted.and_then(|wanted| match wanted {
                Wanted::Nothing => Ok(None),
                Wanted::Cached(file, block) => file.blocks().search(&block, keys[at]),
                Wanted::Read(file, place) => {
                    found[at].reads += 1;
                    let block = read[place].as_ref().map_err(Error::clone)?;
                    file.blocks().search(block, keys[at])
                }
            });
            found[at].entry = entry;
        }
    }
}

/// A leaf that a lookup of a batch needs.
pub(crate) enum Wanted<'a> {
    /// The tree is empty.
    Nothing,
    Cached(&'a NodeFile, Block),
    /// It is read at this place of the batch.
    Read(&'a NodeFile, usize),
}

/// Leaves that are read together, each once.
#[derive(Default)]
pub(crate) struct LeafBatch<'a> {
    leaves: Vec<(&'a NodeFile, Child)>,
    places: HashMap<(u64, u64), usize>,
    requests: Vec<ReadRequest>,
}

impl<'a> LeafBatch<'a> {
    /// Takes a leaf from the cache, or adds it to the batch.
    pub(crate) fn want(&mut self, picture: &'a Picture, leaf: Child) -> Result<Wanted<'a>> {
        let file = picture.file_of(0, &leaf)?;
        if let Some(block) = file.blocks().cached(leaf.handle()) {
            return Ok(Wanted::Cached(file, block));
        }
        let place = (leaf.number, leaf.offset);
        if let Some(&place) = self.places.get(&place) {
            return Ok(Wanted::Read(file, place));
        }
        self.requests.push(file.request(&leaf)?);
        self.places.insert(place, self.leaves.len());
        self.leaves.push((file, leaf));
        Ok(Wanted::Read(file, self.leaves.len() - 1))
    }

    /// Reads the leaves into the cache.
    pub(crate) fn read(self, env: &RunEnv) -> Vec<Result<Block>> {
        let answers = read_each(&*env.index().volume, self.requests.into_iter().map(Ok));
        let accept = |((file, leaf), stored): ((&NodeFile, Child), Result<Bytes>)| {
            file.accept(&leaf, stored?, true)
        };
        self.leaves.into_iter().zip(answers).map(accept).collect()
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
        let every = usize::try_from((every / in_leaf).max(1)).unwrap_or(usize::MAX);
        let directory = self.picture.directory()?;
        let all = 0..directory.branches().len();
        directory.load_children(all.clone(), &self.picture)?;
        let mut next = every / 2;
        for branch in all {
            let leaves = directory
                .children(branch, &self.picture, &mut 0)?
                .nodes
                .len();
            while next < leaves {
                let child = next;
                let (lower, _) = directory.range_of(Place { branch, child }, &self.picture)?;
                keys.push(lower);
                next = next.saturating_add(every);
            }
            next -= leaves;
        }
        Ok(keys)
    }

    fn sample_end(&self, start: &[u8]) -> Result<Option<Bytes>> {
        let of_shelf = read::sample_end(self.picture.sorted(), start)?;
        // The end of the second leaf.
        let mut of_tree = None;
        if self.picture.root.is_some() {
            let mut next = Some(Bytes::copy_from_slice(start));
            for _ in 0..2 {
                let Some(key) = next else { break };
                next = self.leaf_end(&key)?;
                of_tree.clone_from(&next);
            }
        }
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
        let leaves = self.leaves_within(&range)?;
        let (of_leaves, _) = self.picture.live_bytes();
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
                + u32::from(root.is_some()),
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
        let slice_bytes = self.common.options().experiments.slice_bytes;
        stats.job_bytes = settle::job_bytes(picture, slice_bytes);
        stats.entries = shelf.entries + leaves.entries;
        stats.levels = vec![shelf, branches, leaves];
        stats.files = picture.file_ids().len() as u64;
        stats.bytes = self.bytes();
        stats.live_bytes = stats.bytes - picture.garbage_bytes();
        stats
    }
}
