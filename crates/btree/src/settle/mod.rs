//! Settling: the oldest runs of the shelf are merged into the tree, and leaves and branches in
//! files with much garbage are written anew. One job is one *slice*: it ends when it has written
//! enough leaves, and its change commits by itself. The next slice goes on behind it.
//!
//! Not thread-safe: one slice at a time.
//!
//! Invariants:
//! 1. An entry is dropped only for one of three reasons: a newer entry of its key was met; a range
//!    tombstone of the index hides it; or it is a tombstone below the floor.
//! 2. The change loses the length of every dropped pointer, once.
//! 3. A leaf that the slice has not read stays as it is, with all that it has.
//! 4. Below the change's clip the settled runs have nothing that is not in the tree.

pub(crate) mod branches;
pub(crate) mod leaves;
mod window;

use crate::edit::{Edit, EditOp, Live, Root};
use crate::node::Child;
use crate::picture::Picture;
use crate::shared::{Fresh, Shared};
use crate::view::View;
use branches::{BranchWriter, Rebuilt, Replacement};
use bytes::Bytes;
use glintdb_core::index::{IndexChange, IndexJob, JobPriority, JobStep};
use glintdb_core::key::before_end;
use glintdb_core::{Direction, EntryRef, Error, FileId, Result, SeqNum, TombstoneWalk, planted};
use glintdb_flash::DataClass;
use glintdb_runs::keys::{KeyRange, TombstoneSet};
use glintdb_runs::read::Newest;
use glintdb_runs::table::BlockCursor;
use glintdb_runs::{Liveness, Run, RunEnv, Sorted, range_tombstones};
use leaves::LeafWriter;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use window::{Begun, Item, Leaf, Source, Window};

/// Most bytes of entries in a window.
const WINDOW_BYTES: usize = 1 << 20;
/// Where nodes are among what an index writes: branches above leaves.
const BRANCHES: DataClass = DataClass::Level { rank: 1, of: 2 };
const LEAVES: DataClass = DataClass::Level { rank: 2, of: 2 };

/// On a full medium, a slice shrinks down to this part of its size, or of the tree if that is less.
const SLICE_PARTS_MAX: u64 = 32;

/// About the bytes that a slice takes that writes `leaf_bytes` of leaves. The table has an eighth
/// more at most. Each leaf may have a branch of its own, and there are `branch_bytes` of branches.
fn slice_space(leaf_bytes: u64, branch_bytes: u64) -> u64 {
    leaf_bytes + leaf_bytes / 8 + leaf_bytes.min(branch_bytes)
}

/// About the bytes that a settling of deletions takes before it gives space back. A table of leaves
/// goes when all its leaves are written anew, and it is as large as a slice.
pub(crate) fn job_bytes(picture: &Picture, slice_bytes: u64) -> u64 {
    let shelf: u64 = picture.sorted().map(Sorted::bytes).sum();
    let (leaves, branches) = picture.live_bytes();
    slice_space(slice_bytes.min(shelf + leaves), branches)
}

/// What a slice shall do.
pub(crate) struct Plan {
    /// The runs that are merged into the tree, newest first.
    pub(crate) runs: Vec<Run>,
    /// Files whose nodes are written anew.
    pub(crate) victims: HashSet<FileId>,
    pub(crate) priority: JobPriority,
}

/// A slice under way.
pub(crate) struct SettleJob {
    shared: Arc<Shared>,
    view: Arc<View>,
    plan: Plan,
    floor: SeqNum,
    /// Bytes of leaves after which it ends.
    slice_bytes: u64,
    /// `None` before the first step, and after the last.
    slice: Option<Slice>,
    is_over: bool,
}

impl SettleJob {
    /// A slice over the tree of `view`. No other one is under way.
    pub(crate) fn new(shared: &Arc<Shared>, view: Arc<View>, plan: Plan) -> SettleJob {
        SettleJob {
            floor: shared.common.env.tombstone_floor(),
            shared: Arc::clone(shared),
            slice_bytes: view.common.options().experiments.slice_bytes,
            view,
            plan,
            slice: None,
            is_over: false,
        }
    }

    fn run(&mut self) -> Result<JobStep> {
        let mut slice = match self.slice.take() {
            Some(slice) => slice,
            None => Slice::begin(&self.view, &self.plan, self.floor, self.slice_bytes)?,
        };
        if slice.step()? {
            self.slice = Some(slice);
            return Ok(JobStep::More);
        }
        let mut change = slice.finish(&self.plan)?;
        self.shared.settled(&mut change);
        Ok(JobStep::Done(change.change))
    }
}

impl IndexJob for SettleJob {
    fn step_within(&mut self, _budget: u32) -> Result<JobStep> {
        let step = self.run();
        if !matches!(step, Ok(JobStep::More)) {
            self.is_over = matches!(step, Ok(JobStep::Done(_)));
        }
        step
    }

    fn name(&self) -> String {
        match self.plan.runs.len() {
            0 => "compaction of the tree".to_owned(),
            1 => "settling of 1 run".to_owned(),
            runs => format!("settling of {runs} runs"),
        }
    }

    fn space_bytes(&self) -> u64 {
        let shelf: u64 = self.plan.runs.iter().map(|run| run.tables.bytes()).sum();
        let (leaves, branches) = self.view.picture.live_bytes();
        // As much again for leaves that are not full.
        let leaves = self.slice_bytes.min(2 * (shelf + leaves));
        slice_space(leaves, branches)
    }

    fn limit_space(&mut self, bytes: u64) -> bool {
        let (tree, branches) = self.view.picture.live_bytes();
        // What `slice_space` makes `bytes` of: few leaves beneath as many branches, or many leaves.
        let leaves = (bytes / 17 * 8).max(bytes.saturating_sub(branches) / 9 * 8);
        let least = self.slice_bytes.min(tree) / SLICE_PARTS_MAX;
        let can = leaves >= least;
        if can {
            self.slice_bytes = self.slice_bytes.min(leaves);
        }
        can
    }

    fn priority(&self) -> JobPriority {
        self.plan.priority
    }
}

impl Drop for SettleJob {
    fn drop(&mut self) {
        // Its files are removed before another slice may begin.
        self.slice = None;
        if !self.is_over {
            self.shared.end_slice();
        }
    }
}

/// The change of a slice, and what the index counts of it.
pub(crate) struct SliceChange {
    pub(crate) change: IndexChange,
    /// The directory of the tree after the change.
    pub(crate) directory: Option<Fresh>,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// The leaf that is being merged.
struct Open {
    lower: Bytes,
    upper: Option<Bytes>,
    /// Its entries. `None`: it has no more.
    entries: Option<BlockCursor>,
}

/// Entries, tombstones and bytes of values of leaves.
#[derive(Clone, Copy, Default)]
struct Counts {
    entries: u64,
    tombstones: u64,
    pointed_bytes: u64,
}

impl Counts {
    fn add(&mut self, value: EntryRef<'_>) {
        self.entries += 1;
        match value {
            EntryRef::Inline(_) => {}
            EntryRef::Tombstone => self.tombstones += 1,
            EntryRef::Pointer(pointer) => self.pointed_bytes += u64::from(pointer.length),
        }
    }
}

/// A merge into the tree.
struct Slice {
    view: Arc<View>,
    victims: HashSet<FileId>,
    floor: SeqNum,
    slice_bytes: u64,
    leaf_batch: usize,
    window_bytes: usize,
    /// The entries of the runs; `None`: nothing is settled.
    newest: Option<Newest>,
    /// Whether `newest` is at an entry that no window has yet.
    has_entry: bool,
    /// Range tombstones of the runs: leaves under them are merged.
    of_runs: TombstoneSet,
    /// All range tombstones of the index: they hide entries.
    hiding: Arc<TombstoneSet>,
    walk: TombstoneWalk,
    /// Where the slice began.
    from: Bytes,
    /// Everything below it is in a window. `None`: everything is.
    gathered: Option<Bytes>,
    /// The first key of the leaf that a window has last.
    last_leaf: Option<Bytes>,
    begun: Option<Begun>,
    /// The leaf that is being merged, in the stretch that began at `stretch`.
    open: Option<Open>,
    stretch: Option<Bytes>,
    /// The first key behind the leaf that was closed last.
    end: Option<Bytes>,
    leaves: LeafWriter,
    replaced: Vec<Replacement>,
    dead: Vec<Child>,
    /// Bytes of the leaves that are replaced.
    dead_bytes: u64,
    /// Entries of the leaves that were merged.
    old: Counts,
    /// Entries that were written.
    new: Counts,
    liveness: Liveness,
    /// Number of entries of the runs that were merged.
    merged: u64,
    /// Number of entries that were dropped.
    dropped: u64,
    read_bytes: u64,
}

impl Slice {
    fn begin(view: &Arc<View>, plan: &Plan, floor: SeqNum, slice_bytes: u64) -> Result<Slice> {
        let (picture, common) = (&view.picture, &view.common);
        let options = common.options();
        let window_bytes = usize::try_from(slice_bytes / 2).unwrap_or(usize::MAX);
        let clip = picture.clip.as_ref().filter(|_| !plan.runs.is_empty());
        let from = clip.map_or_else(Bytes::new, |clip| clip.key.clone());
        let range = KeyRange {
            start: from.clone(),
            end: None,
        };
        let hiding = Arc::clone(picture.tombstones()?);
        let directory = picture.directory()?;
        directory.load_children(0..directory.branches().len(), picture)?;
        let tables = || plan.runs.iter().map(|run| &run.tables);
        let of_runs = range_tombstones(tables().flat_map(|tables| tables.slots()))?;
        let of_runs = TombstoneSet::new(of_runs.clipped(&range));
        let mut newest = None;
        let mut has_entry = false;
        if !plan.runs.is_empty() {
            let mut walk = Newest::new(tables(), &range)?;
            has_entry = walk.advance()?;
            newest = Some(walk);
        }
        Ok(Slice {
            leaves: LeafWriter::new(&common.env, options.leaf_config(), LEAVES),
            view: Arc::clone(view),
            victims: plan.victims.clone(),
            floor,
            slice_bytes,
            window_bytes: WINDOW_BYTES.min(window_bytes),
            // A slice ends with a window.
            leaf_batch: (options.experiments.leaf_batch as usize)
                .min((window_bytes / options.block_bytes as usize).max(1)),
            newest,
            has_entry,
            of_runs,
            hiding,
            walk: TombstoneWalk::default(),
            gathered: Some(from.clone()),
            from,
            last_leaf: None,
            begun: None,
            open: None,
            stretch: None,
            end: None,
            replaced: Vec::new(),
            dead: Vec::new(),
            dead_bytes: 0,
            old: Counts::default(),
            new: Counts::default(),
            liveness: Liveness::default(),
            merged: 0,
            dropped: 0,
            read_bytes: 0,
        })
    }

    fn picture(&self) -> &Picture {
        &self.view.picture
    }

    /// Merges a window, while the next one is read. Returns false if the slice is complete.
    fn step(&mut self) -> Result<bool> {
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => match self.gather()? {
                Some(begun) => begun,
                None => return Ok(false),
            },
        };
        // A slice that deletes writes little, and gives back space when it commits.
        let is_last =
            self.leaves.bytes >= self.slice_bytes || self.dead_bytes >= 2 * self.slice_bytes;
        if !is_last {
            self.begun = self.gather()?;
        }
        let view = Arc::clone(&self.view);
        let (blocks, read) = begun.wait(&view.picture)?;
        self.read_bytes += read;
        self.merge(&begun.window, blocks)?;
        Ok(self.begun.is_some())
    }

    /// Gathers the next window, and begins to read its leaves. `None`: nothing is left.
    fn gather(&mut self) -> Result<Option<Begun>> {
        let mut window = Window::default();
        while let Some(from) = self.gathered.clone() {
            if window.leaves >= self.leaf_batch || window.entry_bytes() >= self.window_bytes {
                break;
            }
            let Some(key) = self.next_touched(&from)? else {
                self.gathered = None;
                break;
            };
            self.gather_leaf(&key, &mut window)?;
        }
        if window.is_empty() {
            return Ok(None);
        }
        let index = self.view.common.env.index();
        Begun::new(window, self.picture(), &index.volume, &index.memory).map(Some)
    }

    /// The first key from `from` on whose leaf must be merged.
    fn next_touched(&mut self, from: &Bytes) -> Result<Option<Bytes>> {
        let entry = self.newest.as_ref().filter(|_| self.has_entry);
        let entry = entry.and_then(Newest::entry).map(|(key, ..)| key);
        let mut next = entry.map(Bytes::copy_from_slice);
        let rest = KeyRange {
            start: from.clone(),
            end: None,
        };
        if let Some(range) = self.of_runs.meeting(&rest).first() {
            let start = (&range.start).max(from).clone();
            if next.as_ref().is_none_or(|next| start < *next) {
                next = Some(start);
            }
        }
        if !self.victims.is_empty() {
            let victim = self.next_victim(from, next.as_ref())?;
            next = victim.or(next);
        }
        Ok(next)
    }

    /// The first key of the first leaf from `from` on, and before `end`, that is in a victim.
    fn next_victim(&self, from: &Bytes, end: Option<&Bytes>) -> Result<Option<Bytes>> {
        let picture = self.picture();
        let directory = picture.directory()?;
        let mut next = directory.leaf_of(from, picture, &mut 0)?;
        let mut is_first = true;
        while let Some((place, node)) = next {
            let is_victim = self.victims.contains(&node.file(0));
            if is_victim || place.child == 0 {
                let (lower, _) = directory.range_of(place, picture)?;
                if end.is_some_and(|end| lower >= *end) {
                    return Ok(None);
                }
                // A leaf that begins before `from` was passed already.
                if is_victim && (!is_first || lower >= *from) {
                    return Ok(Some(lower));
                }
            }
            is_first = false;
            next = directory.leaf_behind(place, picture)?;
        }
        Ok(None)
    }

    /// Adds the leaf that may have `key` to the window, unless the window before has begun it, and
    /// the entries that go to it, as many as there is room for.
    fn gather_leaf(&mut self, key: &Bytes, window: &mut Window) -> Result<()> {
        let picture = self.picture();
        let directory = picture.directory()?;
        let (node, (lower, upper)) = match directory.leaf_of(key, picture, &mut 0)? {
            Some((place, leaf)) => (Some(leaf), directory.range_of(place, picture)?),
            None => (None, (Bytes::new(), None)),
        };
        // Entries that did not fit the window before go to the leaf that it ended with.
        if self.last_leaf.as_ref() != Some(&lower) {
            self.last_leaf = Some(lower.clone());
            let upper = upper.clone();
            window.add_leaf(Leaf { lower, upper, node });
        }
        while self.has_entry {
            let Some(newest) = &mut self.newest else {
                break;
            };
            let Some((key, seqno, value)) = newest.entry() else {
                break;
            };
            if !before_end(key, &upper) {
                break;
            }
            if window.entry_bytes() >= self.window_bytes {
                self.gathered = Some(Bytes::copy_from_slice(key));
                return Ok(());
            }
            window.add(key, seqno, value);
            self.has_entry = newest.advance()?;
        }
        self.gathered = upper;
        Ok(())
    }

    /// Merges the entries of a window into its leaves.
    fn merge(&mut self, window: &Window, blocks: Vec<Option<Source>>) -> Result<()> {
        let mut blocks = blocks.into_iter();
        for item in &window.items {
            match item {
                Item::Leaf(leaf) => {
                    let source = blocks.next().flatten();
                    self.open_leaf(leaf, source)?;
                }
                Item::Entry(entry) => {
                    let (key, value) = (window.key(entry), window.value(entry));
                    self.merge_entry(key, entry.seqno, value)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the leaf before, and begins this one.
    fn open_leaf(&mut self, leaf: &Leaf, source: Option<Source>) -> Result<()> {
        let before = self.close_leaf()?;
        let joins = before.flatten().as_ref() == Some(&leaf.lower);
        if !joins {
            self.end_stretch()?;
            self.stretch = Some(leaf.lower.clone());
        }
        self.begin_leaf(leaf, source)
    }

    /// Begins to merge a leaf.
    fn begin_leaf(&mut self, leaf: &Leaf, source: Option<Source>) -> Result<()> {
        let mut entries = None;
        let is_cached = source.as_ref().is_some_and(|source| source.is_cached);
        self.leaves.replaces_cached(is_cached);
        if let (Some(node), Some(Source { block, .. })) = (leaf.node, source) {
            let mut cursor = BlockCursor::new(Direction::Forward);
            cursor.enter(node.file(0), block)?;
            entries = cursor.advance()?.then_some(cursor);
            self.dead.push(node);
            self.dead_bytes += u64::from(node.length);
        }
        self.open = Some(Open {
            lower: leaf.lower.clone(),
            upper: leaf.upper.clone(),
            entries,
        });
        Ok(())
    }

    /// Writes what is left of the open leaf. Returns the first key behind it; `None`: there was no
    /// open leaf.
    fn close_leaf(&mut self) -> Result<Option<Option<Bytes>>> {
        let Some(mut open) = self.open.take() else {
            return Ok(None);
        };
        if let Some(cursor) = open.entries.take() {
            self.copy_until(&open, cursor, None)?;
        }
        self.end = open.upper.clone();
        Ok(Some(open.upper))
    }

    /// Ends the stretch, if one has begun. If it makes a leaf less than half full, and the leaf
    /// behind it fits in the same leaf, the two are joined. Otherwise deletions here and there
    /// would leave many small leaves.
    fn end_stretch(&mut self) -> Result<()> {
        if self.stretch.is_some() && self.leaves.is_sparse() {
            self.join_next()?;
        }
        if let Some(lower) = self.stretch.take() {
            let stretch = self.leaves.end_stretch(lower, self.end.clone())?;
            self.replaced.push(stretch);
        }
        Ok(())
    }

    /// Takes the leaf behind the stretch, which nothing in this slice goes to, into the stretch, if
    /// there is room.
    fn join_next(&mut self) -> Result<()> {
        let Some(end) = self.end.clone() else {
            return Ok(());
        };
        let view = Arc::clone(&self.view);
        let (picture, directory) = (&view.picture, view.picture.directory()?);
        let Some((place, node)) = directory.leaf_of(&end, picture, &mut 0)? else {
            return Ok(());
        };
        let (lower, upper) = directory.range_of(place, picture)?;
        let mut reads = 0;
        let leaf = picture.leaf(&node, &mut reads)?;
        self.read_bytes += u64::from(reads) * u64::from(node.length);
        if !self.leaves.has_room(leaf.block.used_bytes()) {
            return Ok(());
        }
        let source = Source {
            block: leaf.block,
            is_cached: reads == 0,
        };
        let node = Some(node);
        self.begin_leaf(&Leaf { lower, upper, node }, Some(source))?;
        self.close_leaf().map(drop)
    }

    /// Copies the entries of the open leaf that are below `end`. Returns the cursor, unless there
    /// is no entry left.
    fn copy_until(
        &mut self,
        open: &Open,
        mut cursor: BlockCursor,
        end: Option<&[u8]>,
    ) -> Result<Option<BlockCursor>> {
        loop {
            let key = cursor.key();
            if end.is_some_and(|end| key >= end) {
                return Ok(Some(cursor));
            }
            if key < &*open.lower || !before_end(key, &open.upper) {
                return Err(cursor.corrupt("a key that is outside of what the branch says"));
            }
            let (seqno, value) = (cursor.seqno(), cursor.value()?);
            self.old.add(value);
            self.keep(key, seqno, value)?;
            if !cursor.advance()? {
                return Ok(None);
            }
        }
    }

    /// Merges an entry of the runs into the open leaf.
    fn merge_entry(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<()> {
        self.merged += 1;
        if let Some(mut open) = self.open.take() {
            if let Some(cursor) = open.entries.take() {
                open.entries = self.copy_until(&open, cursor, Some(key))?;
            }
            if let Some(cursor) = &mut open.entries
                && cursor.key() == key
            {
                let old = cursor.value()?;
                self.old.add(old);
                planted!(
                    "btree: a value that is overwritten in a leaf is not counted",
                    self.liveness.lose(old),
                    ()
                );
                self.dropped += 1;
                if !cursor.advance()? {
                    open.entries = None;
                }
            }
            self.open = Some(open);
        }
        self.keep(key, seqno, value)
    }

    /// Writes an entry, unless it is hidden, or a tombstone that is not needed.
    fn keep(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<()> {
        let is_hidden =
            !self.hiding.is_empty() && self.walk.seqno_at(self.hiding.fragments(), key) > seqno;
        let is_needed = value != EntryRef::Tombstone
            || planted!(
                "btree: a tombstone goes while a transaction needs it",
                seqno >= self.floor,
                false
            );
        if is_hidden || !is_needed {
            self.liveness.lose(value);
            self.dropped += 1;
            return Ok(());
        }
        self.new.add(value);
        self.leaves.add(key, seqno, value)
    }

    /// Writes what is left, and makes the change.
    fn finish(mut self, plan: &Plan) -> Result<SliceChange> {
        self.close_leaf()?;
        self.end_stretch()?;
        let view = Arc::clone(&self.view);
        let (picture, env) = (&view.picture, &view.common.env);
        self.count_runs();
        let settled = KeyRange {
            start: self.from.clone(),
            end: self.gathered.clone(),
        };
        for range in self.of_runs.clipped(&settled) {
            if planted!(
                "btree: a range deletion goes while a transaction needs it",
                range.seqno >= self.floor,
                false
            ) {
                self.leaves.keep(range);
            }
        }
        let mut files = NewFiles::of(env);
        let (nodes, bytes) = (self.leaves.nodes, self.leaves.bytes);
        let table = self.leaves.finish()?;
        files.extend(table.iter().map(|meta| meta.id));
        let mut branches = BranchWriter::new(env, BRANCHES);
        let Rebuilt { root, directory } =
            branches.rebuild(picture, &self.replaced, &self.victims)?;
        let of_branches = Live {
            nodes: branches.nodes,
            bytes: branches.bytes,
        };
        let dead_branches = std::mem::take(&mut branches.dead);
        let written = branches.finish()?;
        files.extend(written.map(|(id, _)| id));
        if !files.is_empty() {
            planted!(
                "btree: the names of a slice's files are not made durable",
                env.index().volume.sync_directory()?,
                ()
            );
        }
        let mut edit = Edit::default();
        let read_bytes = self.read_bytes;
        let mut written_bytes = 0;
        let seqno_max = table.as_ref().map_or(SeqNum::ZERO, |meta| meta.seqno_max);
        if let Some(meta) = table {
            written_bytes += meta.bytes;
            let live = Live { nodes, bytes };
            edit.ops.push(EditOp::AddLeaves { meta, live });
        }
        if let Some((id, bytes)) = written {
            written_bytes += bytes;
            edit.ops.push(EditOp::AddBranches {
                number: id.number,
                bytes,
                live: of_branches,
            });
        }
        let leaves = self.dead.iter().map(|leaf| (leaf.file(0), leaf));
        let branches = dead_branches.iter().map(|branch| (branch.file(1), branch));
        let is_complete = self.gathered.is_none();
        let rewritten = plan.victims.iter().filter(|_| is_complete).collect();
        let dead = leaves.chain(branches);
        shrink(picture, dead, &rewritten, self.floor, &mut edit)?;
        let root = root.map(|(node, level)| root_of(picture, node, level, self.old, self.new));
        if root != picture.root {
            edit.ops.push(EditOp::Root(root));
        }
        leave_shelf(&plan.runs, self.gathered.as_ref(), &mut edit);
        files.commit();
        let change = IndexChange {
            edit: edit.encode(),
            liveness: self.liveness.deltas(),
            seqno_max,
        };
        let root = root.map(|root| root.node);
        Ok(SliceChange {
            change,
            directory: Some(Fresh { root, directory }),
            read_bytes,
            written_bytes,
        })
    }

    /// Adds what the walk over the runs has dropped.
    ///
    /// # Panics
    /// If an entry was neither written nor dropped.
    fn count_runs(&mut self) {
        let mut passed = 0;
        if let Some(newest) = &mut self.newest {
            let (liveness, all, older) = newest.take_counts();
            self.liveness.merge(liveness);
            // The entry that the next slice begins with is passed, but not merged.
            passed = all - u64::from(self.has_entry);
            self.merged += older;
            self.dropped += older;
        }
        let (old, new, dropped) = (self.old.entries, self.new.entries, self.dropped);
        assert!(
            passed == self.merged && old + passed == new + dropped,
            "of {old} entries of leaves and {passed} of runs, of which {} were merged, {new} were \
             written and {dropped} dropped",
            self.merged
        );
    }
}

/// Files of a slice. They are removed when it fails.
struct NewFiles<'a> {
    env: &'a RunEnv,
    files: Vec<FileId>,
}

impl<'a> NewFiles<'a> {
    fn of(env: &'a RunEnv) -> Self {
        let files = Vec::new();
        NewFiles { env, files }
    }

    fn extend(&mut self, files: impl IntoIterator<Item = FileId>) {
        self.files.extend(files);
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Keeps the files.
    fn commit(mut self) {
        self.files.clear();
    }
}

impl Drop for NewFiles<'_> {
    fn drop(&mut self) {
        for file in self.files.drain(..) {
            self.env.remove_file(file);
        }
    }
}

/// The root `node`, where leaves had the `old` entries and have the `new` ones now.
fn root_of(picture: &Picture, node: Child, level: u8, old: Counts, new: Counts) -> Root {
    let before = picture.root.as_ref();
    let after = |field: fn(&Root) -> u64, old: u64, new: u64| {
        before.map_or(0, field).saturating_sub(old) + new
    };
    Root {
        node,
        level,
        entries: after(|root| root.entries, old.entries, new.entries),
        tombstones: after(|root| root.tombstones, old.tombstones, new.tombstones),
        pointed_bytes: after(
            |root| root.pointed_bytes,
            old.pointed_bytes,
            new.pointed_bytes,
        ),
    }
}

/// Records what the tree still needs of files, without the nodes that are `dead`. Of the files in
/// `rewritten`, these are all nodes.
///
/// # Errors
/// `Corruption` if the tree needs fewer nodes of a file than were found in it, or more of a file
/// that was rewritten. Such a file would be picked again for ever.
fn shrink<'a>(
    picture: &Picture,
    dead: impl Iterator<Item = (FileId, &'a Child)>,
    rewritten: &HashSet<&FileId>,
    floor: SeqNum,
    edit: &mut Edit,
) -> Result<()> {
    let mut lost: HashMap<FileId, Live> = HashMap::new();
    for (file, node) in dead {
        let lost = lost.entry(file).or_insert(Live { nodes: 0, bytes: 0 });
        lost.nodes += 1;
        lost.bytes += u64::from(node.length);
    }
    for (id, file) in &picture.files {
        let lost = lost.get(id).copied().unwrap_or(Live { nodes: 0, bytes: 0 });
        let nodes = file.live.nodes.checked_sub(lost.nodes);
        let bytes = file.live.bytes.checked_sub(lost.bytes);
        let (Some(nodes), Some(bytes)) = (nodes, bytes) else {
            let what = format!("{lost:?} was found of a file that has {:?}", file.live);
            return Err(Error::corruption(*id, 0, what));
        };
        let live = Live { nodes, bytes };
        if nodes > 0 && rewritten.contains(id) {
            let what = format!("{lost:?} was found of a file that has {:?}", file.live);
            return Err(Error::corruption(*id, 0, what));
        }
        if nodes == 0 && !file.has_needed_tombstones(floor) {
            edit.ops.push(EditOp::RemoveFile { file: *id });
        } else if live != file.live {
            edit.ops.push(EditOp::Shrink { file: *id, live });
        }
    }
    Ok(())
}

/// Records that everything below `clip` (`None`: everything) of these runs is in the tree.
fn leave_shelf(runs: &[Run], clip: Option<&Bytes>, edit: &mut Edit) {
    let mut newest_left = None;
    for run in runs {
        for slot in run.tables.slots() {
            let is_settled = match (clip, &slot.range.end) {
                (None, _) => true,
                (Some(clip), Some(end)) => end <= clip,
                (Some(_), None) => false,
            };
            if is_settled {
                edit.ops.push(EditOp::RemoveTable {
                    run: run.id,
                    number: slot.number(),
                });
            } else {
                newest_left = newest_left.max(Some(run.id));
            }
        }
    }
    // A run to come may get the number of a run that is gone, and must not be clipped.
    let newest = planted!(
        "btree: a clip is for a run that is gone",
        newest_left,
        newest_left.and(runs.first().map(|run| run.id))
    );
    if let (Some(run), Some(key)) = (newest, clip) {
        let key = key.clone();
        edit.ops.push(EditOp::Clip { run, key });
    }
}
