//! The seam between the engine and its indexes. An index is a persistent ordered map from keys to
//! [`Entry`] values that changes only by whole sorted runs and by its own jobs.
//!
//! A change becomes visible in three steps:
//! 1. The index writes files, syncs them and their directory, and returns an [`IndexChange`]. No
//!    reader sees it yet.
//! 2. The engine [checks](Index::check) the change, syncs the log up to the newest sequence number
//!    in it, appends its edit to the manifest, and syncs the manifest.
//! 3. The engine calls [`Index::apply`], and installs the new [`IndexView`] in its version.
//!
//! A crash before the end of step 2 leaves files that no manifest names. The next open removes
//! them. Views are immutable. A file that newer views do not have is removed with the last view
//! that has it.
//!
//! **Architecture invariants:** an index never opens a file by path (it knows a volume), never
//! reads the clock, never starts a thread, and holds one entry a key.

use crate::{Direction, Entry, EntryRef, FileId, RangeTombstone, Result, SegmentId, SeqNum};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// A sorted run that a flush gives to an index: entries with ascending keys, one a key, and range
/// tombstones.
///
/// The range tombstones of a run hide only entries that are in the index already. Entries of the
/// run that they hide are not in it.
pub trait SortedRun {
    /// The next entry, or `None` at the end.
    ///
    /// # Errors
    /// Where the source could not be read.
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>>;
    /// Range tombstones, in any order.
    fn range_tombstones(&self) -> &[RangeTombstone];
    /// About how many entries there are.
    fn entries_hint(&self) -> usize;
}

/// Bytes of live values that a change adds to (or takes from) a log segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LivenessDelta {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes of values that became live (positive) or dead (negative): the pointers' `length`.
    pub bytes: i64,
}

/// A change whose files are durable but which nobody sees yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexChange {
    /// What the manifest must record, in the index's own encoding.
    pub edit: Vec<u8>,
    /// Liveness that changes with it, at most one delta a segment.
    pub liveness: Vec<LivenessDelta>,
    /// Newest sequence number of the entries and range tombstones that were written. The log must
    /// be durable up to it first.
    pub seqno_max: SeqNum,
}

/// How urgent a job is; jobs with a smaller value run first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum JobPriority {
    /// Log ring to segments: commits wait for it.
    Spill,
    /// Memtable to index: writers wait for it next.
    Flush,
    /// What slows writers down soonest.
    Runs,
    /// Values that move, so that segments of the log get free.
    Gc,
    /// Everything else.
    Background,
}

/// Entries of a step: about a millisecond.
pub const STEP_BUDGET: u32 = 8192;

/// What a step of a job came to.
#[derive(Debug)]
pub enum JobStep {
    /// There is more to do.
    More,
    /// Finished; the engine commits the change.
    Done(IndexChange),
}

/// A job of an index, such as a compaction, in resumable steps. If it is dropped before `Done`, or
/// its change is abandoned, the index stays as it was.
pub trait IndexJob: Send {
    /// Does a bounded piece of work (about a millisecond of CPU and one batch of I/O).
    ///
    /// # Errors
    /// I/O errors and corruption; the job is over then and its outputs are removed.
    fn step(&mut self) -> Result<JobStep> {
        self.step_within(STEP_BUDGET)
    }
    /// Does a [`step`](Self::step) of about `budget` entries, where 256 bytes of value count as one
    /// more entry. A job that cannot be cut there does a whole step. Tests choose the budget.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn step_within(&mut self, budget: u32) -> Result<JobStep>;
    /// Name in statistics, e.g. `"compaction L0->L4"`.
    fn name(&self) -> String;
    /// About the bytes that its new files take before its inputs go. Of the jobs of one compaction
    /// one returns them, and the others 0.
    fn space_bytes(&self) -> u64;
    /// Has a job that has not begun do only so much that it takes about `bytes`, for a medium that
    /// is nearly full. Returns false, and changes nothing, if it can do nothing useful with them.
    fn limit_space(&mut self, _bytes: u64) -> bool {
        false
    }
    /// How urgent it is.
    fn priority(&self) -> JobPriority;
}

/// A reserved place in an index for entries whose values move within the log. Nothing that is
/// written after it was reserved goes beneath it, so newer entries hide those that are written to
/// it. It is free again when it is dropped without [`write`](Self::write).
pub trait Relocation: Send {
    /// Everything beneath the place: the view when the relocation was begun. It keeps the index's
    /// files, but not the values that its pointers name, because compactions may drop what a range
    /// deletion hides meanwhile.
    fn view(&self) -> Arc<dyn IndexView>;

    /// Writes entries that are live in [`view`](Self::view), with the same sequence numbers and
    /// other pointers, and without range tombstones. They are synced and not visible yet, like
    /// those of [`Index::write_run`]. The place is free when the change was applied or abandoned.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors; nothing is left behind then, and the place is free.
    fn write(self: Box<Self>, run: &mut dyn SortedRun) -> Result<IndexChange>;
}

/// What the index owes; the engine turns it into write delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Debt {
    /// Sorted runs that a lookup must visit one by one at the top of the index.
    pub runs: u32,
    /// `runs` at which writers begin to be slowed.
    pub runs_slow: u32,
    /// `runs` at which writers must wait.
    pub runs_stop: u32,
    /// Bytes that compactions must still move before every level is within its target.
    pub compaction_bytes: u64,
    /// Bytes of `compaction_bytes` at which writers begin to be slowed.
    pub compaction_bytes_slow: u64,
    /// Bytes that deletions would free and compactions have not freed yet, with values in the log.
    pub deleted_bytes: u64,
    /// Bytes of `deleted_bytes` at which puts begin to be slowed. Deletions are not slowed by it.
    pub deleted_bytes_slow: u64,
    /// Bytes a second that the index has taken in lately while it worked off its debt; 0 if that is
    /// not known. Writers are never slowed to less than half of it.
    pub rate_bytes: u64,
}

/// How many levels of an index, from level 0 on, keep their key blocks in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum PinnedLevels {
    /// As many levels as fit the memory set aside for them. The number follows the tree as it
    /// grows.
    #[default]
    Auto,
    /// This number of levels, or fewer if they do not fit the memory budget.
    Levels(u8),
}

impl std::fmt::Display for PinnedLevels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PinnedLevels::Auto => f.write_str("auto"),
            PinnedLevels::Levels(levels) => levels.fmt(f),
        }
    }
}

impl std::str::FromStr for PinnedLevels {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(PinnedLevels::Auto),
            number => number.parse().map(PinnedLevels::Levels).map_err(|_| {
                crate::Error::invalid(format!("pinned levels are auto or a number, not {text:?}"))
            }),
        }
    }
}

/// An index's share of the memory budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryShare {
    /// Bytes that [`PinnedLevels::Auto`] fills with pinned levels.
    pub pins_auto_bytes: u64,
    /// Bytes that pinned levels never exceed, whatever the options ask for.
    pub pins_max_bytes: u64,
    /// Bytes that filters and fences of the shelf of a reshaped B+tree may take.
    pub remap_max_bytes: u64,
}

/// Places of [`IndexStats::lookups_by_reads`].
pub const LOOKUP_READS_PLACES: usize = 9;

/// Figures of an index, for `stats()`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexStats {
    /// Kind of the index, such as `lsm`.
    pub kind: &'static str,
    /// Figures of each level. Level 0 is the first.
    pub levels: Vec<LevelStats>,
    /// Number of files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes of the files that the index still needs. The rest is garbage, which a compaction
    /// removes.
    pub live_bytes: u64,
    /// About the bytes that a job takes that merges deletions in, before it gives space back: what
    /// a full medium must still have for it. 0 if merges of any size give space back.
    pub job_bytes: u64,
    /// Bytes of the values in the log that the entries point to.
    pub pointed_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones and range tombstones.
    pub tombstones: u64,
    /// Compactions finished since open.
    pub compactions: u64,
    /// Bytes read by compactions since open.
    pub compaction_read_bytes: u64,
    /// Bytes written by compactions since open.
    pub compaction_written_bytes: u64,
    /// Bytes moved from level to level without being rewritten, since open.
    pub moved_bytes: u64,
    /// Number of reads of a point lookup now, at worst: runs that are not pinned, and levels of
    /// nodes that are not pinned.
    pub lookup_reads_max: u32,
    /// Point lookups since open, by the number of blocks that they read from the medium. The last
    /// place counts those with that many or more.
    pub lookups_by_reads: [u64; LOOKUP_READS_PLACES],
    /// Levels pinned, counted from the top with level 0 as the first.
    pub pinned_levels: u32,
    /// Memory of pinned key blocks.
    pub pinned_bytes: u64,
}

/// Figures of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LevelStats {
    /// Parts that the level consists of: tables of an LSM tree, nodes of a B+tree.
    pub parts: u32,
    /// Bytes of the parts.
    pub bytes: u64,
    /// Entries in the parts.
    pub entries: u64,
    /// Bytes that the level may hold before it is compacted; 0 if it has no target.
    pub target_bytes: u64,
}

/// An index of one keyspace. Thread-safe. The engine runs one `write_run` and one `apply` at a
/// time, beside any number of jobs, whose inputs are disjoint.
pub trait Index: Send + Sync {
    /// What is visible now.
    fn view(&self) -> Arc<dyn IndexView>;

    /// Writes a sorted run into new files, which are synced and not visible yet. An empty run
    /// without range tombstones gives a change with an empty edit.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors; nothing is left behind then.
    fn write_run(&self, run: &mut dyn SortedRun) -> Result<IndexChange>;

    /// Reserves a place for entries that get other pointers, beneath everything that is written
    /// from now on. Every change of a `write_run` must have been applied or abandoned.
    fn begin_relocation(&self) -> Box<dyn Relocation>;

    /// Counts entries that scans have passed. Returns true once their merging has cost as much as a
    /// compaction would, which [`pick_job`](Self::pick_job) then returns.
    fn note_scanned(&self, _entries: u64) -> bool {
        false
    }

    /// The job that helps most now. Its inputs are reserved until it has finished or is dropped.
    fn pick_job(&self) -> Option<Box<dyn IndexJob>>;

    /// The next job that compacts the tables within the bounds to the bottom level. `None`: they
    /// are there, or [other jobs](Self::busy) must end first. `compact()` calls it until all of
    /// them are there and no other job runs.
    fn pick_full_compaction(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Option<Box<dyn IndexJob>>;

    /// Whether a job or a relocation of this index is running or its change waits to be applied.
    fn busy(&self) -> bool;

    /// Checks that a change fits the state, before the manifest records it. Changes nothing.
    ///
    /// # Errors
    /// `Corruption` where its edit does not fit.
    fn check(&self, change: &IndexChange) -> Result<()>;

    /// Makes a change visible that the manifest holds durably.
    ///
    /// # Errors
    /// `Corruption` where the edit does not fit the state.
    fn apply(&self, change: &IndexChange) -> Result<()>;

    /// Gives up a change that did not reach the manifest: removes its files.
    fn abandon(&self, change: IndexChange);

    /// The whole state as one edit, for a new manifest.
    fn snapshot_edit(&self) -> Vec<u8>;

    /// Files that the current state names.
    fn files(&self) -> Vec<FileId>;

    /// Changes the memory that the index may take. Returns how many bytes of it are or will be
    /// taken.
    fn set_memory_share(&self, _share: MemoryShare) -> u64 {
        0
    }

    /// Takes other options, in the index's own encoding, as the manifest has them. Running jobs end
    /// with the old options, and files stay as they are.
    ///
    /// # Errors
    /// `InvalidArgument` where they are none; nothing has changed then.
    fn set_options(&self, encoded: &[u8]) -> Result<()>;

    /// Returns the debt that slows writers.
    fn debt(&self) -> Debt;

    /// Sets how many bytes of garbage the files of the index may hold ([`IndexStats::live_bytes`]).
    /// Beyond them, [`pick_job`](Self::pick_job) returns jobs that remove garbage. An index whose
    /// files hold no garbage ignores it.
    fn set_garbage_max(&self, _bytes: u64) {}

    /// Begins nothing new until [`resume`](Self::resume): [`pick_job`](Self::pick_job) returns only
    /// jobs that continue what has begun. Flushes and relocations go on.
    fn pause(&self);

    /// Ends a [`pause`](Self::pause).
    fn resume(&self);

    /// Stops the index for good, because another index of the keyspace has taken over its runs. It
    /// returns no more jobs, and gives up its pinned memory. Files of runs stay. Each other file is
    /// removed as soon as no view names it. Call it only while the index is not
    /// [`busy`](Self::busy).
    fn release(&self);

    /// Stops the index for good and removes each file as soon as no view names it, because the
    /// keyspace was dropped.
    fn discard(&self);
}

/// An immutable picture of an index. Thread-safe. Keeps its files readable as long as it lives.
pub trait IndexView: Send + Sync {
    /// The entry of `key`, which may be a tombstone. If a range tombstone hides the key, it is an
    /// [`EntryValue::Tombstone`](crate::EntryValue::Tombstone) with that one's sequence number.
    /// `None`: the index has nothing about the key.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn get(&self, key: &[u8]) -> Result<Option<Entry>>;

    /// Looks up many keys, in any order, like [`get`](Self::get). Their reads are submitted
    /// together. Returns one result for each key, in their order.
    fn get_batch(&self, keys: &[&[u8]]) -> Vec<Result<Option<Entry>>>;

    /// A cursor over the entries within the bounds, one a key. It shows tombstones, and leaves out
    /// what range tombstones of the view hide.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn cursor(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>>;

    /// Newest sequence number of a range tombstone that meets the bounds.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn range_tombstone_seqno(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<Option<SeqNum>>;

    /// Reads every byte and checks checksums, order and counts.
    ///
    /// - `report` gets each error found.
    /// - `held` gets every pointer in the view's files, also those of overwritten and deleted
    ///   entries: their sum is the sum of all [`LivenessDelta`]s.
    /// - `live` gets the pointers of live entries, with their keys.
    /// - `checked` gets the length of each file, in bytes, once the file is checked.
    fn verify(
        &self,
        report: &mut dyn FnMut(crate::Error),
        held: &mut dyn FnMut(crate::ValuePointer),
        live: &mut dyn FnMut(&[u8], crate::ValuePointer),
        checked: &mut dyn FnMut(u64),
    );

    /// Keys spread evenly over the entries of the view's files, one for about `every` entries, in
    /// no particular order. Each is the first key of a block, or separates two blocks.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn sample_keys(&self, every: u64) -> Result<Vec<Bytes>>;

    /// A key behind `start`, so near that no file has more than two blocks from `start` up to it.
    /// `None`: no file has more than two blocks from `start` on.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn sample_end(&self, start: &[u8]) -> Result<Option<Bytes>>;

    /// About the bytes of the entries within the bounds, with the values in the log that they point
    /// to. Reads no entry.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn bytes_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64>;

    /// Counts the entries of the view's files within the bounds, also tombstones and entries that
    /// newer ones hide. Reads all of their blocks.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    fn count_entries(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64>;

    /// Files this view names.
    fn files(&self) -> Vec<FileId>;

    /// Bytes of its files.
    fn bytes(&self) -> u64;

    /// Figures.
    fn stats(&self) -> IndexStats;
}

/// Takes the entries of [`Cursor::walk`]: key, sequence number, value and the value's
/// [memory](Cursor::memory). Returns whether it wants another one.
pub type Take<'a> = dyn FnMut(&[u8], SeqNum, EntryRef<'_>, Option<&Bytes>) -> bool + 'a;

/// Walks an index in one direction.
pub trait Cursor: Send {
    /// Goes to the next entry (the first one at the first call); `false` at the end.
    ///
    /// # Errors
    /// I/O errors, `Corruption`; the cursor is over then.
    fn advance(&mut self) -> Result<bool>;

    /// Advances, and gives each entry to `take` until that returns false. Returns true then, with
    /// the cursor on the entry that `take` had last, and false at the end.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    fn walk(&mut self, take: &mut Take<'_>) -> Result<bool> {
        while self.advance()? {
            if !take(self.key(), self.seqno(), self.value(), self.memory()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes on to the first entry at or behind `key` in the cursor's direction. Returns false if
    /// there is none.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Key of the entry it stands on. Only after `advance` or `seek` said `true`.
    fn key(&self) -> &[u8];
    /// Sequence number of the entry it stands on.
    fn seqno(&self) -> SeqNum;
    /// Value of the entry it stands on.
    fn value(&self) -> EntryRef<'_>;
    /// The memory that holds an inline value, such as a block, to be shared instead of copied.
    /// `None`: it cannot be shared.
    fn memory(&self) -> Option<&Bytes> {
        None
    }
}
