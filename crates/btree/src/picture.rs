//! The state of an index: the runs of the shelf, and the files and the root of the tree. An edit
//! makes a new picture that shares tables and files with the old one.
//!
//! Thread-safe: immutable, except that range tombstones and the directory are read at first use.
//!
//! Invariants:
//! 1. Runs are in order, newest first.
//! 2. For each key, an upper source (runs newest first, then the tree) has nothing older than a
//!    lower source has. Below the clip, the runs up to `clip.run` have nothing.
//! 3. `files` has every file that a node of the tree is in, with what the tree needs of it.

use crate::directory::Directory;
use crate::edit::{Edit, EditOp, Live, Root};
use bytes::Bytes;
use glintdb_core::{Error, FileId, FileKind, Result, SeqNum};
use glintdb_runs::keys::TombstoneSet;
use glintdb_runs::table::BlockFile;
use glintdb_runs::{Run, RunEnv, Slot, Sorted, range_tombstones};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How far the oldest runs are settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Clip {
    /// The newest run that is being settled.
    pub(crate) run: u64,
    /// Everything below it in these runs is in the tree.
    pub(crate) key: Bytes,
}

/// A file of branches.
pub(crate) struct Branches {
    blocks: BlockFile,
    bytes: u64,
    env: Arc<RunEnv>,
    obsolete: AtomicBool,
}

impl Drop for Branches {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.env.remove_file(self.blocks.id());
        }
    }
}

/// A file of the tree.
#[derive(Clone)]
pub(crate) enum NodeFile {
    Leaves(Arc<Slot>),
    Branches(Arc<Branches>),
}

impl NodeFile {
    /// The blocks, which are nodes.
    pub(crate) fn blocks(&self) -> &BlockFile {
        match self {
            NodeFile::Leaves(slot) => slot.table.blocks(),
            NodeFile::Branches(branches) => &branches.blocks,
        }
    }

    /// Length of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            NodeFile::Leaves(slot) => slot.meta().bytes,
            NodeFile::Branches(branches) => branches.bytes,
        }
    }

    /// The table, if it is one of leaves.
    pub(crate) fn leaves(&self) -> Option<&Arc<Slot>> {
        match self {
            NodeFile::Leaves(slot) => Some(slot),
            NodeFile::Branches(_) => None,
        }
    }

    /// Has the file removed when its last handle goes.
    fn mark_obsolete(&self) {
        match self {
            NodeFile::Leaves(slot) => slot.table.mark_obsolete(),
            NodeFile::Branches(branches) => branches.obsolete.store(true, Ordering::Release),
        }
    }
}

/// A file of the tree, with what the tree needs of it.
#[derive(Clone)]
pub(crate) struct TreeFile {
    pub(crate) file: NodeFile,
    /// All of its nodes.
    pub(crate) all: Live,
    /// Those that the tree needs.
    pub(crate) live: Live,
}

impl TreeFile {
    /// Bytes of nodes that the tree does not need. A file that is kept for its range tombstones
    /// alone has no garbage, because it has no leaf to be rewritten.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        match self.live.nodes {
            0 => 0,
            _ => self.all.bytes - self.live.bytes,
        }
    }

    /// Whether the tree needs nothing of the file: no node, and its range tombstones are below the
    /// floor.
    pub(crate) fn is_unneeded(&self, floor: SeqNum) -> bool {
        self.live.nodes == 0 && !self.has_needed_tombstones(floor)
    }

    /// Whether the file has range tombstones that are not below the floor.
    pub(crate) fn has_needed_tombstones(&self, floor: SeqNum) -> bool {
        let meta = self.file.leaves().map(|slot| slot.meta());
        meta.is_some_and(|meta| meta.range_tombstones > 0 && meta.seqno_max >= floor)
    }
}

/// The state of an index.
#[derive(Clone)]
pub(crate) struct Picture {
    pub(crate) env: Arc<RunEnv>,
    /// The shelf, newest run first.
    pub(crate) runs: Vec<Run>,
    pub(crate) clip: Option<Clip>,
    pub(crate) root: Option<Root>,
    /// Tiers of runs, as far as they are not 0: how often their entries were merged on the shelf.
    pub(crate) tiers: BTreeMap<u64, u8>,
    /// In order, so that equal histories do the same I/O.
    pub(crate) files: BTreeMap<FileId, TreeFile>,
    tombstones: OnceLock<Arc<TombstoneSet>>,
    pub(crate) directory: OnceLock<Arc<Directory>>,
}

/// What was in a picture and is not in the next one.
#[derive(Default)]
pub(crate) struct Gone {
    tables: Vec<Arc<Slot>>,
    files: Vec<NodeFile>,
}

impl Gone {
    /// Has the files removed when their last handles go.
    pub(crate) fn mark_obsolete(&self) {
        for slot in &self.tables {
            slot.table.mark_obsolete();
        }
        self.files.iter().for_each(NodeFile::mark_obsolete);
    }
}

impl Picture {
    /// An index with nothing in it.
    pub(crate) fn empty(env: &Arc<RunEnv>) -> Picture {
        Picture {
            env: Arc::clone(env),
            runs: Vec::new(),
            clip: None,
            root: None,
            tiers: BTreeMap::new(),
            files: BTreeMap::new(),
            tombstones: OnceLock::new(),
            directory: OnceLock::new(),
        }
    }

    /// A shelf of these runs, newest first, above an empty tree.
    pub(crate) fn of_runs(env: &Arc<RunEnv>, runs: Vec<Sorted>) -> Picture {
        Picture {
            runs: Run::numbered(runs),
            ..Picture::empty(env)
        }
    }

    /// The runs of the shelf, newest first.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Sorted> {
        self.runs.iter().map(|run| &run.tables)
    }

    /// The tables of the shelf, each with its run.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u64, &Arc<Slot>)> {
        self.runs
            .iter()
            .flat_map(|run| run.tables.slots().iter().map(move |slot| (run.id, slot)))
    }

    /// The tier of a run.
    pub(crate) fn tier_of(&self, run: &Run) -> u8 {
        self.tiers.get(&run.id).copied().unwrap_or(0)
    }

    /// About the bytes that filters and fences of the shelf take in memory.
    pub(crate) fn tail_bytes(&self) -> u64 {
        let tails = self.slots().map(|(_, slot)| slot.table.tail_bytes());
        tails.sum()
    }

    /// Every file of the index.
    pub(crate) fn file_ids(&self) -> Vec<FileId> {
        let tables = self.slots().map(|(_, slot)| slot.meta().id);
        tables.chain(self.files.keys().copied()).collect()
    }

    /// Has all files removed when their last handles go.
    pub(crate) fn mark_obsolete(&self) {
        for (_, slot) in self.slots() {
            slot.table.mark_obsolete();
        }
        self.mark_tree_obsolete();
    }

    /// Has the files of the tree removed when their last handles go.
    pub(crate) fn mark_tree_obsolete(&self) {
        self.files
            .values()
            .for_each(|file| file.file.mark_obsolete());
    }

    /// Bytes of the files of the tree that it does not need.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.files.values().map(TreeFile::garbage_bytes).sum()
    }

    /// Bytes of the leaves and of the branches that the tree needs.
    pub(crate) fn live_bytes(&self) -> (u64, u64) {
        let (mut leaves, mut branches) = (0, 0);
        for file in self.files.values() {
            match file.file.leaves() {
                Some(_) => leaves += file.live.bytes,
                None => branches += file.live.bytes,
            }
        }
        (leaves, branches)
    }

    /// Number of leaves.
    pub(crate) fn leaves(&self) -> u64 {
        let leaves = self
            .files
            .values()
            .filter(|file| file.file.leaves().is_some());
        leaves.map(|file| file.live.nodes).sum()
    }

    /// The newest sequence number of the tables of leaves.
    pub(crate) fn newest(&self) -> SeqNum {
        let tables = self.files.values().filter_map(|file| file.file.leaves());
        let newest = tables.map(|slot| slot.meta().seqno_max).max();
        newest.unwrap_or(SeqNum::ZERO)
    }

    /// All range tombstones, flat. Reads those that are not in memory.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn tombstones(&self) -> Result<&Arc<TombstoneSet>> {
        if let Some(set) = self.tombstones.get() {
            return Ok(set);
        }
        let of_runs = self.slots().map(|(_, slot)| slot);
        let of_tree = self.files.values().filter_map(|file| file.file.leaves());
        let all = range_tombstones(of_runs.chain(of_tree))?;
        Ok(self.tombstones.get_or_init(|| Arc::new(all)))
    }

    /// The picture after `edit`, and the files that it has removed.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit.
    pub(crate) fn edited(&self, edit: &Edit, reshape: bool) -> Result<(Picture, Gone)> {
        let mut next = self.clone();
        let gone = next.replay(edit, reshape)?;
        Ok((next, gone))
    }

    /// Changes this picture. After an error it is useless.
    ///
    /// # Errors
    /// As [`edited`](Self::edited).
    pub(crate) fn replay(&mut self, edit: &Edit, reshape: bool) -> Result<Gone> {
        let mut gone = Gone::default();
        self.tombstones = OnceLock::new();
        for op in &edit.ops {
            self.replay_op(op, reshape, &mut gone)?;
        }
        self.runs.retain(|run| !run.tables.is_empty());
        (self.tiers).retain(|run, _| self.runs.iter().any(|other| other.id == *run));
        if let Some(clip) = &self.clip {
            if self.runs.last().is_none_or(|oldest| oldest.id > clip.run) {
                self.clip = None;
            } else if self.runs.iter().all(|run| run.id != clip.run) {
                return Err(misfit("the run of the clip is not there"));
            }
        }
        self.runs.iter_mut().for_each(|run| run.tables.index());
        if let Some(root) = &self.root
            && !self.files.contains_key(&root.node.file(root.level))
        {
            return Err(misfit("the file of the root is not there"));
        }
        Ok(gone)
    }

    fn replay_op(&mut self, op: &EditOp, reshape: bool, gone: &mut Gone) -> Result<()> {
        let env = Arc::clone(&self.env);
        match op {
            EditOp::AddTable { run, meta } => {
                let at = self.runs.partition_point(|other| other.id > *run);
                if self.runs.get(at).is_none_or(|found| found.id != *run) {
                    let tables = Sorted::default();
                    self.runs.insert(at, Run { id: *run, tables });
                }
                let tables = match reshape {
                    true => env.remapping_tables(),
                    false => env.tables(),
                };
                let slot = Slot::open(tables, meta.clone());
                let inserted = self.runs[at].tables.insert(slot);
                inserted.map_err(|_| misfit(&format!("{} overlaps its run", meta.id)))?;
            }
            EditOp::RemoveTable { run, number } => {
                let found = self.runs.iter_mut().find(|other| other.id == *run);
                let slot = found.and_then(|run| run.tables.remove(*number));
                let slot =
                    slot.ok_or_else(|| misfit(&format!("table {number:016x} is not in {run}")))?;
                gone.tables.push(slot);
            }
            EditOp::Clip { run, key } => self.clip_runs(*run, key)?,
            EditOp::Root(root) => {
                self.root = *root;
                self.directory = OnceLock::new();
            }
            EditOp::AddLeaves { meta, live } => {
                let slot = Slot::open(env.tables(), meta.clone());
                self.add_file(meta.id, NodeFile::Leaves(slot), *live)?;
            }
            EditOp::AddBranches {
                number,
                bytes,
                live,
            } => {
                let id = FileId::new(FileKind::Tree, *number);
                let branches = Arc::new(Branches {
                    blocks: BlockFile::new(env.tables(), id),
                    bytes: *bytes,
                    env,
                    obsolete: AtomicBool::new(false),
                });
                self.add_file(id, NodeFile::Branches(branches), *live)?;
            }
            EditOp::Shrink { file, live } => {
                let found = self.files.get_mut(file);
                let found = found.ok_or_else(|| misfit(&format!("{file} is not there")))?;
                if live.nodes > found.live.nodes || live.bytes > found.live.bytes {
                    return Err(misfit(&format!("{file} grows")));
                }
                found.live = *live;
            }
            EditOp::RemoveFile { file } => {
                let found = self.files.remove(file);
                let found = found.ok_or_else(|| misfit(&format!("{file} is not there")))?;
                gone.files.push(found.file);
            }
            EditOp::Tier { run, tier } => {
                self.tiers.insert(*run, *tier);
            }
            EditOp::Renumber => self.renumber(),
        }
        Ok(())
    }

    /// Numbers the runs from 1 on, the oldest first.
    fn renumber(&mut self) {
        let tiers = std::mem::take(&mut self.tiers);
        let clipped = self.clip.take();
        for (number, run) in (1..).zip(self.runs.iter_mut().rev()) {
            if let Some(tier) = tiers.get(&run.id) {
                self.tiers.insert(number, *tier);
            }
            if let Some(clip) = &clipped
                && run.id == clip.run
            {
                let (run, key) = (number, clip.key.clone());
                self.clip = Some(Clip { run, key });
            }
            run.id = number;
        }
    }

    fn add_file(&mut self, id: FileId, file: NodeFile, live: Live) -> Result<()> {
        let all = live;
        if live.bytes > file.bytes() || live.nodes > live.bytes {
            return Err(misfit(&format!("{id} has more nodes than bytes")));
        }
        match self.files.insert(id, TreeFile { file, all, live }) {
            None => Ok(()),
            Some(_) => Err(misfit(&format!("{id} is there already"))),
        }
    }

    /// Removes all keys below `key` from the runs up to `newest`.
    fn clip_runs(&mut self, newest: u64, key: &Bytes) -> Result<()> {
        let mut any = false;
        for run in self.runs.iter_mut().filter(|run| run.id <= newest) {
            any = true;
            let reaching: Vec<Arc<Slot>> = (run.tables.slots().iter())
                .filter(|slot| slot.range.start < *key)
                .cloned()
                .collect();
            for slot in reaching {
                if slot.range.end.as_ref().is_some_and(|end| end <= key) {
                    let what = format!("{} ends below the clip", slot.meta().id);
                    return Err(misfit(&what));
                }
                run.tables.remove(slot.number());
                let inserted = run.tables.insert(slot.clipped(key));
                inserted.map_err(|_| misfit("a clipped table overlaps its run"))?;
            }
        }
        if !any {
            return Err(misfit("there is no run to be clipped"));
        }
        let (run, key) = (newest, key.clone());
        self.clip = Some(Clip { run, key });
        Ok(())
    }

    /// The whole state as one edit.
    pub(crate) fn as_edit(&self) -> Edit {
        let mut ops: Vec<EditOp> = (self.slots())
            .map(|(run, slot)| EditOp::AddTable {
                run,
                meta: slot.meta().clone(),
            })
            .collect();
        let tiers = self.tiers.iter();
        ops.extend(tiers.map(|(&run, &tier)| EditOp::Tier { run, tier }));
        if let Some(Clip { run, key }) = self.clip.clone() {
            ops.push(EditOp::Clip { run, key });
        }
        for (&id, file) in &self.files {
            ops.push(match &file.file {
                NodeFile::Leaves(slot) => EditOp::AddLeaves {
                    meta: slot.meta().clone(),
                    live: file.all,
                },
                NodeFile::Branches(branches) => EditOp::AddBranches {
                    number: id.number,
                    bytes: branches.bytes,
                    live: file.all,
                },
            });
            if file.live != file.all {
                let live = file.live;
                ops.push(EditOp::Shrink { file: id, live });
            }
        }
        if self.root.is_some() {
            ops.push(EditOp::Root(self.root));
        }
        Edit { ops }
    }
}

fn misfit(message: &str) -> Error {
    Error::corruption(
        "manifest",
        0,
        format!("edit of a B+tree index does not fit its state: {message}"),
    )
}
