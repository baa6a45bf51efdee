//! The log as a whole: its parts, options, counters, poisoning, segments.
//!
//! **Invariants** of positions of the stream, each of which only grows. `head` is the end of the
//! last frame that has a place.
//! 1. `reclaimed <= reclaimable <= spilled <= completed <= head <= reclaimed + ring length`: a ring
//!    byte is overwritten only when its frame is wholly in its segment. There are two exceptions.
//!    Behind a seal, `spilled` and `reclaimable` go to the end of the seal's block. In a gap
//!    between two segments the ring is empty, and `reclaimed`, `reclaimable` and `spilled` may be
//!    at the beginning of the next segment already.
//! 2. `reclaimable` is a frame boundary: at every moment each frame is wholly in the ring or wholly
//!    in its segment. The ring has everything from `reclaimed` on, frames that are in segments too
//!    included.
//! 3. `durable <= written in files <= completed`: bytes before `durable` survive power loss.
//! 4. Sequence numbers of the batches of one process ascend by one along the stream.
//!
//! Release builds assert them: where a frame gets its place and is copied (`write/append.rs`), at
//! the end of each segment (`write/order.rs`), before and after blocks are moved
//! (`write/spill.rs`), before `durable` moves (`write/sync.rs`), and before a log goes on behind
//! what recovery found (`recover/mod.rs`).

use crate::format::frame::TRAILER_BYTES;
use crate::format::segment::SegmentKind;
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET};
use crate::lsn::Lsn;
use crate::segment::{Doomed, LogView, Segment, SegmentInfo, SegmentTable};
use crate::write::append::{Sequencer, WaitReason};
use crate::write::prepare::PrepareState;
use crate::write::ring_space::RingSpace;
use crate::write::spill::SpillState;
use crate::write::sync::SyncState;
use glintdb_core::clock::Clock;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::sync::{ArcSwap, Condvar, Mutex};
use glintdb_core::{DbId, Error, ErrorKind, FileNumbers, Padded, Result, SegmentId};
use glintdb_flash::{Ring, Volume};
use std::sync::{Arc, OnceLock};

/// Sizes of segments are multiples of a power of two divided by this.
const SEGMENT_STEPS: u64 = 16;
/// Size of the first segments of a log, in bytes, where [`LogOptions::segment_bytes`] allows it.
const SEGMENT_BYTES_FIRST: u64 = 1 << 20;
/// The smallest segment that is made, in bytes: on a full disk, where the first one finds no space.
const SEGMENT_BYTES_MIN: u64 = 32 << 10;
/// A segment is this part of what was written since the log was opened. With the next segment and
/// the reserve, the preallocated space is about half as much as was written.
const WRITTEN_PART: u64 = 8;
/// A segment is at least this part of the data, which may be in the log or elsewhere.
const DATA_PART: u64 = 64;

/// Sizes of a log's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// The largest size of a segment's file, in bytes, from 16 KiB to 1 GiB, rounded up to 4 KiB.
    /// [`Log::segment_bytes`] says how large the next one is.
    pub segment_bytes: u64,
    /// Size of the ring, in bytes, at least 64 KiB, rounded up to 4 KiB. It counts in the memory
    /// budget.
    pub ring_bytes: usize,
    /// Number of segments whose space is preallocated for a full disk.
    pub reserve_segments: usize,
}

impl LogOptions {
    /// Default of [`segment_bytes`](Self::segment_bytes).
    pub const SEGMENT_BYTES: u64 = 64 << 20;
    /// Default of [`ring_bytes`](Self::ring_bytes) (`docs/decisions/001-log-write-path.md`).
    pub const RING_BYTES: usize = 32 << 20;
    /// Default of [`reserve_segments`](Self::reserve_segments).
    pub const RESERVE_SEGMENTS: usize = 2;

    /// Bytes of a segment that are not for commits: its header, and room for its end.
    const SEGMENT_OVERHEAD_BYTES: u64 = FIRST_FRAME_OFFSET as u64 + TRAILER_BYTES as u64;

    /// The largest frame that goes through the ring.
    pub(crate) fn frame_bytes_max(&self) -> u64 {
        let room = self.segment_bytes - Self::SEGMENT_OVERHEAD_BYTES;
        room.min(self.ring_bytes as u64 / 4)
    }

    /// Size of the first segments of a log, in bytes: 1 MiB, or
    /// [`segment_bytes`](Self::segment_bytes) where that is less.
    #[must_use]
    pub fn segment_bytes_first(&self) -> u64 {
        self.segment_bytes.min(SEGMENT_BYTES_FIRST)
    }

    /// Size of the first segment where there is no space for [that](Self::segment_bytes_first).
    pub(crate) fn segment_bytes_min(&self) -> u64 {
        self.segment_bytes.min(SEGMENT_BYTES_MIN)
    }

    pub(crate) fn rounded(self) -> LogOptions {
        LogOptions {
            segment_bytes: self
                .segment_bytes
                .clamp(16 << 10, 1 << 30)
                .next_multiple_of(4096),
            ring_bytes: self.ring_bytes.max(64 << 10).next_multiple_of(4096),
            ..self
        }
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: Self::SEGMENT_BYTES,
            ring_bytes: Self::RING_BYTES,
            reserve_segments: Self::RESERVE_SEGMENTS,
        }
    }
}

/// What a log is made with.
#[derive(Clone)]
pub struct LogSetup {
    /// The volume that has the segments and the ring.
    pub volume: Arc<dyn Volume>,
    /// The database, which seeds every checksum.
    pub db: DbId,
    /// Tells how long the leader of a group sync has waited for company.
    pub clock: Arc<dyn Clock>,
    /// Gives segment ids, each once, in ascending order.
    pub numbers: Arc<dyn FileNumbers>,
    /// Sizes.
    pub options: LogOptions,
}

/// Counters since the log was opened, and present sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LogStats {
    /// Bytes of commit frames that got a place in the log.
    pub appended_bytes: u64,
    /// Bytes written to segments of the stream (whole blocks).
    pub written_bytes: u64,
    /// Bytes written to segments of relocated values (whole blocks).
    pub relocated_bytes: u64,
    /// Syncs of segments.
    pub segment_syncs: u64,
    /// Calls of [`Log::sync`] that waited for the sync of another thread or did one.
    pub sync_waits: u64,
    /// Groups that a leader synced.
    pub sync_groups: u64,
    /// Times a commit found the ring full.
    pub ring_waits: u64,
    /// Times a commit found no segment prepared.
    pub segment_waits: u64,
    /// Frames that were too large for the ring.
    pub large_frames: u64,
    /// Bytes in the ring that are not in a segment yet.
    pub unspilled_bytes: u64,
    /// Size of the ring.
    pub ring_bytes: u64,
    /// Bytes of the ring that have space on the medium.
    pub ring_space_bytes: u64,
    /// Whether the ring survives the process. If not, `Os` commits write through the page cache.
    pub ring_survives_kill: bool,
    /// Number of segments, the prepared one included.
    pub segments: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) written_bytes: AtomicU64,
    pub(crate) relocated_bytes: AtomicU64,
    pub(crate) segment_syncs: AtomicU64,
    pub(crate) sync_waits: AtomicU64,
    pub(crate) sync_groups: AtomicU64,
    pub(crate) ring_waits: AtomicU64,
    pub(crate) segment_waits: AtomicU64,
    pub(crate) large_frames: AtomicU64,
}

/// The data log. Thread-safe: any thread may call every method.
pub struct Log {
    pub(crate) setup: LogSetup,
    pub(crate) ring: Arc<dyn Ring>,
    pub(crate) ring_bytes: u64,
    pub(crate) ring_space: RingSpace,
    pub(crate) survives_kill: bool,
    pub(crate) table: ArcSwap<SegmentTable>,
    /// Held while the table is changed. Nothing else is locked or done under it.
    table_changes: Mutex<()>,
    pub(crate) sequencer: Padded<Mutex<Sequencer>>,
    pub(crate) prepare: Mutex<PrepareState>,
    pub(crate) prepare_wanted: AtomicBool,
    /// Size of the next segment.
    segment_bytes: AtomicU64,
    /// Its limit, from [`set_segment_bytes`](Log::set_segment_bytes).
    segment_bytes_max: AtomicU64,
    /// Bytes of data, from [`set_data_bytes`](Log::set_data_bytes).
    data_bytes: AtomicU64,
    /// Bytes that were appended before segments were last made small again.
    pub(crate) written_before: AtomicU64,
    pub(crate) spill: Mutex<SpillState>,
    pub(crate) sync: SyncState,
    pub(crate) doomed: Mutex<Doomed>,
    /// Every frame before this position is whole, in the ring or in its segment.
    pub(crate) completed: Padded<AtomicU64>,
    /// Every byte before this position is in its segment's file.
    pub(crate) spilled: AtomicU64,
    /// Ring bytes before this position may be taken for other frames: their frames are wholly in
    /// segments.
    pub(crate) reclaimable: AtomicU64,
    /// Ring bytes before this position are taken: readers go to the segment. A reservation moves it
    /// under the sequencer's lock, before anything is overwritten.
    pub(crate) reclaimed: AtomicU64,
    /// Every byte before this position survives power loss.
    pub(crate) durable: AtomicU64,
    /// Sequence number of the first batch that got a place. Set when a batch is copied.
    pub(crate) first_seqno: OnceLock<u64>,
    /// Ring bytes before this position were made resident.
    pub(crate) populated: AtomicU64,
    /// Bytes of the segments that are wholly written and were not synced.
    pub(crate) full_unsynced_bytes: AtomicU64,
    /// Length of all gaps between segments, see [`completed_bytes`](Log::completed_bytes).
    pub(crate) skipped: AtomicU64,
    /// Bytes before this position are in their segments' files, those of blocks that are not full
    /// included. Kept only if the ring does not survive a kill.
    pub(crate) written: AtomicU64,
    poison: OnceLock<Error>,
    pub(crate) progress: Mutex<()>,
    pub(crate) progressed: Condvar,
    pub(crate) progress_waiters: AtomicUsize,
    pub(crate) counters: Counters,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Makes the log of a new database: its first segment, durable and empty. Replay begins at its
    /// [`end`](Self::end).
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub fn create(setup: LogSetup) -> Result<Log> {
        let options = setup.options.rounded();
        if setup
            .volume
            .existing_ring_bytes()?
            .is_some_and(|bytes| bytes != options.ring_bytes)
        {
            setup.volume.remove_ring()?;
        }
        let ring = setup.volume.ring(options.ring_bytes)?;
        let space = RingSpace::begin(&*ring)?;
        let mut prepare = PrepareState::new(0, &*ring);
        let setup = LogSetup { options, ..setup };
        let first = prepare.create_first(&setup)?;
        Log::start(
            setup,
            (ring, space),
            prepare,
            first,
            SegmentTable::default(),
        )
    }

    /// Returns a running log that goes on in the empty segment `first`.
    pub(crate) fn start(
        setup: LogSetup,
        (ring, ring_space): (Arc<dyn Ring>, RingSpace),
        prepare: PrepareState,
        first: Arc<Segment>,
        older: SegmentTable,
    ) -> Result<Log> {
        let start = first.stream().first_position();
        assert!(
            first.stream().end_offset().is_none() && start.is_multiple_of(BLOCK_BYTES),
            "a log goes on in an empty segment, at a whole block: position {start}"
        );
        Ok(Log {
            ring_bytes: ring.len() as u64,
            survives_kill: ring.survives_kill(),
            ring,
            ring_space,
            table: ArcSwap::from_pointee(older.with(Arc::clone(&first))),
            table_changes: Mutex::new(()),
            sequencer: Padded(Mutex::new(Sequencer::new(Arc::clone(&first)))),
            prepare: Mutex::new(prepare),
            prepare_wanted: AtomicBool::new(true),
            segment_bytes: AtomicU64::new(setup.options.segment_bytes_first()),
            segment_bytes_max: AtomicU64::new(setup.options.segment_bytes),
            data_bytes: AtomicU64::new(0),
            written_before: AtomicU64::new(0),
            spill: Mutex::new(SpillState::new(first)?),
            sync: SyncState::default(),
            doomed: Mutex::default(),
            completed: Padded(AtomicU64::new(start)),
            spilled: AtomicU64::new(start),
            reclaimable: AtomicU64::new(start),
            reclaimed: AtomicU64::new(start),
            durable: AtomicU64::new(start),
            first_seqno: OnceLock::new(),
            populated: AtomicU64::new(start),
            full_unsynced_bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            written: AtomicU64::new(start),
            poison: OnceLock::new(),
            progress: Mutex::new(()),
            progressed: Condvar::new(),
            progress_waiters: AtomicUsize::new(0),
            counters: Counters::default(),
            setup,
        })
    }

    /// Size of the ring in bytes if commits may be in the ring alone; 0 if the ring does not
    /// survive a kill, because then no commit is only there.
    #[must_use]
    pub fn kept_ring_bytes(&self) -> u64 {
        match self.survives_kill {
            true => self.ring_bytes,
            false => 0,
        }
    }

    /// Whether the ring that was found has another size than the options say.
    #[must_use]
    pub fn ring_differs(&self) -> bool {
        self.ring_bytes != self.setup.options.ring_bytes as u64
    }

    /// Replaces the ring by one of the size that the options say. The caller does so before the
    /// first commit, when no frame is in the old ring alone: recovery has moved them.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. There may be no ring then.
    pub fn resize_ring(&mut self) -> Result<()> {
        let volume = &self.setup.volume;
        volume.remove_ring()?;
        self.ring = volume.ring(self.setup.options.ring_bytes)?;
        self.ring_bytes = self.ring.len() as u64;
        let begin = self.completed.load(Ordering::Acquire);
        assert_eq!(
            begin % self.ring_bytes,
            u64::from(FIRST_FRAME_OFFSET),
            "the ring is replaced before the first commit, which goes to its front: position {begin}"
        );
        self.ring_space = RingSpace::begin(&*self.ring)?;
        self.survives_kill = self.ring.survives_kill();
        Ok(())
    }

    /// Whether a frame of `frame_bytes` is too large for the ring. The caller then calls
    /// [`prepare_large`](Self::prepare_large) and not [`reserve`](Self::reserve), which may also
    /// refuse a smaller frame ([`WaitReason::Large`]).
    #[must_use]
    pub fn is_large(&self, frame_bytes: u64) -> bool {
        frame_bytes > self.setup.options.frame_bytes_max()
    }

    /// Makes no segment larger than about `bytes` from now on. Smaller segments give their space
    /// back sooner, and are more files.
    pub fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes_max.store(bytes, Ordering::Relaxed);
        self.update_segment_bytes();
    }

    /// Tells the log how many bytes of data there are, in the log and elsewhere: segments are made
    /// no smaller than a 64th of that.
    pub fn set_data_bytes(&self, bytes: u64) {
        self.data_bytes.store(bytes, Ordering::Relaxed);
        self.update_segment_bytes();
    }

    /// Size of the next segment: an eighth of what was written since the log was opened, and no
    /// less than a 64th of the data; at least 1 MiB and at most what the options and
    /// [`set_segment_bytes`](Self::set_segment_bytes) say. So a small database has small files, and
    /// where much is written a segment is seldom made.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Computes [`segment_bytes`](Self::segment_bytes) again.
    pub(crate) fn update_segment_bytes(&self) {
        let appended = self.sequencer.lock().appended_bytes;
        let written = appended - self.written_before.load(Ordering::Relaxed).min(appended);
        self.segment_bytes
            .store(self.segment_bytes_after(written), Ordering::Relaxed);
    }

    /// Size of the next segment if nothing was written since the log was opened.
    pub(crate) fn fresh_segment_bytes(&self) -> u64 {
        self.segment_bytes_after(0)
    }

    fn segment_bytes_after(&self, written: u64) -> u64 {
        let options = &self.setup.options;
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let bytes = (written / WRITTEN_PART).max(load(&self.data_bytes) / DATA_PART);
        let bytes = bytes.min(load(&self.segment_bytes_max));
        // In steps: a recycled file is then often of the size that is wanted.
        let step = (bytes.next_power_of_two() / SEGMENT_STEPS).max(BLOCK_BYTES);
        (bytes - bytes % step).clamp(options.segment_bytes_first(), options.segment_bytes)
    }

    /// Bytes that the log has preallocated beyond what it would have right after an opening with
    /// `data_bytes` of data: of the ring, the segment in use, the next one and the reserve.
    #[must_use]
    pub fn surplus_bytes(&self, data_bytes: u64) -> u64 {
        let segment = self.segment_bytes() - self.fresh_segment_bytes().min(self.segment_bytes());
        let segments = 2 + self.setup.options.reserve_segments as u64;
        self.ring_surplus_bytes(data_bytes) + segments * segment
    }

    /// Does what `reason` asks for, so that [`reserve`](Self::reserve) can be tried again: gives
    /// the ring more space, or moves bytes out of it, or prepares a segment (of the reserve, where
    /// `space` allows it), or waits a moment for other threads that do. For [`WaitReason::Large`]
    /// it does nothing. The caller must hold no reservation that is not completed, unless others
    /// complete theirs before it.
    ///
    /// # Errors
    /// `NoSpace`: after [`WaitReason::Ring`] a segment of its own may still have space for the
    /// frame. `Unavailable`; `Poisoned`; I/O errors.
    pub fn wait(&self, reason: WaitReason, space: crate::Space) -> Result<()> {
        self.check()?;
        match reason {
            WaitReason::Ring => {
                self.counters.ring_waits.fetch_add(1, Ordering::Relaxed);
                if self.grow_ring_as_wanted()? {
                    return Ok(());
                }
                let seen = self.progress_seen();
                // A thread that has the lock writes already, for a sync perhaps the whole ring. Its
                // first piece makes enough room, and it notifies of that.
                let moved = match self.spill.try_lock() {
                    Some(mut state) => self.spill_some(&mut state, false)?,
                    None => false,
                };
                if !moved {
                    self.wait_progress(seen);
                }
                Ok(())
            }
            WaitReason::Segment => {
                self.counters.segment_waits.fetch_add(1, Ordering::Relaxed);
                self.prepare_step(space).map(drop)
            }
            WaitReason::Large => Ok(()),
        }
    }

    /// Checks that no write has failed so far.
    ///
    /// # Errors
    /// `Poisoned` if one has; `Closed` if it failed because the volume was closed.
    pub fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(error) if error.kind() == ErrorKind::Closed => Err(error.clone()),
            Some(error) => Err(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "the log takes no more writes until the database is opened again, because: {error}"
                ),
            )),
        }
    }

    pub(crate) fn poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Remembers the first failed write or sync, and returns the error.
    pub(crate) fn poison(&self, error: Error) -> Error {
        // These promise that nothing happened, and the next opening may find what failed here.
        let error = match error.kind().passes() {
            true => Error::new(ErrorKind::Io, error.to_string()),
            false => error,
        };
        self.poison.get_or_init(|| error.clone());
        self.notify_progress();
        error
    }

    /// Place behind the last completed frame.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.lsn_of(self.completed.load(Ordering::Acquire))
    }

    /// Place before which everything survives power loss.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.lsn_of(self.durable.load(Ordering::Acquire))
    }

    /// The place of a stream position of this process: in the last segment that begins before it,
    /// or, behind a seal, the beginning of the next segment.
    pub(crate) fn lsn_of(&self, position: u64) -> Lsn {
        let table = self.table.load();
        let mut next = None;
        for segment in table.iter().rev() {
            let Some(stream) = &segment.stream else {
                // A segment of an earlier process, or of values.
                continue;
            };
            if stream.first_position() <= position {
                return match (stream.end_position(), next) {
                    (Some(end), Some(next)) if end <= position => {
                        Lsn::new(next, FIRST_FRAME_OFFSET)
                    }
                    _ => Lsn::new(segment.id, (position - stream.base) as u32),
                };
            }
            next = Some(segment.id);
        }
        // Behind a seal whose segment was deleted.
        next.map_or(Lsn::ZERO, |next| Lsn::new(next, FIRST_FRAME_OFFSET))
    }

    /// The stream position of a place, or 0 for segments of earlier processes, which are durable.
    pub(crate) fn position_of(&self, lsn: Lsn) -> u64 {
        let table = self.table.load();
        table
            .get(lsn.segment)
            .and_then(|segment| segment.stream.as_ref())
            .map_or(0, |stream| stream.position(lsn.offset))
    }

    /// Returns a view that keeps every present segment readable as long as it lives.
    #[must_use]
    pub fn view(&self) -> LogView {
        LogView(self.table.load_full())
    }

    /// Lists every segment, in order.
    ///
    /// # Errors
    /// I/O errors; `Corruption` of a segment's header.
    pub fn segments(&self) -> Result<Vec<SegmentInfo>> {
        let table = self.table.load_full();
        let spilled = self.spilled.load(Ordering::Acquire);
        table
            .iter()
            .map(|segment| {
                let (volume, db) = (&*self.setup.volume, self.setup.db);
                let file = segment.file(volume, db)?;
                let growing = |stream: &crate::segment::Stream| stream.end_offset().is_none();
                let file_bytes = file.len()?;
                let written = |stream: &crate::segment::Stream| spilled.saturating_sub(stream.base);
                Ok(SegmentInfo {
                    id: segment.id,
                    kind: segment.kind(volume, db)?,
                    file_bytes,
                    written_bytes: (segment.stream.as_ref())
                        .filter(|stream| growing(stream))
                        .map_or(file_bytes, |stream| written(stream).min(file_bytes)),
                    active: segment.stream.as_ref().is_some_and(growing),
                })
            })
            .collect()
    }

    /// Returns what a segment is for. Opens its file if it is not open yet.
    ///
    /// # Errors
    /// `NotFound`; I/O errors; `Corruption` of its header.
    pub fn segment_kind(&self, id: SegmentId) -> Result<SegmentKind> {
        let table = self.table.load();
        let segment = table.get(id).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("log segment {id} is not there"),
            )
        })?;
        segment.kind(&*self.setup.volume, self.setup.db)
    }

    /// Removes a segment that is below every flush point of the *synced* manifest and has no live
    /// value. If a [`LogView`] has it, its file goes at the first
    /// [`remove_doomed`](Self::remove_doomed) after the last such view is gone, otherwise at once.
    /// If the removal must be durable, the caller calls `Volume::sync_directory`.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` for a segment that can still grow or is still in the ring; I/O
    /// errors.
    pub fn delete(&self, id: SegmentId) -> Result<()> {
        {
            let _prepare = self.prepare.lock();
            let table = self.table.load_full();
            let Some(segment) = table.get(id) else {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("log segment {id} is not there"),
                ));
            };
            if let Some(stream) = &segment.stream {
                let reclaimable = self.reclaimable.load(Ordering::Acquire);
                if stream.end_position().is_none_or(|end| end > reclaimable) {
                    return Err(Error::invalid(format!(
                        "log segment {id} is still being written"
                    )));
                }
            }
            self.forget_unsynced(id);
            self.change_table(|table| table.without(id));
            self.doomed.lock().waiting.push(Arc::clone(segment));
        }
        self.remove_doomed().map(drop)
    }

    pub(crate) fn change_table(&self, change: impl FnOnce(&SegmentTable) -> SegmentTable) {
        let _one_at_a_time = self.table_changes.lock();
        let table = change(&self.table.load());
        self.table.store(Arc::new(table));
    }

    /// Removes the files of deleted segments that are not in use any more, or keeps them to be
    /// written again. Returns how many still wait.
    ///
    /// # Errors
    /// I/O errors. A file that could not be removed waits for the next call.
    pub fn remove_doomed(&self) -> Result<usize> {
        loop {
            let mut doomed = self.doomed.lock();
            let Some(segment) = doomed.take() else {
                return Ok(doomed.waiting.len());
            };
            drop(doomed);
            let id = segment.id;
            // The volume writes only files again that are not open.
            drop(segment);
            let removed = self.setup.volume.recycle(id.file());
            self.doomed.lock().removed(id, removed.is_ok());
            removed?;
            self.prepare_wanted.store(true, Ordering::Release);
        }
    }

    /// Bytes of the files of deleted segments that are still in use.
    ///
    /// # Errors
    /// I/O errors.
    pub fn doomed_bytes(&self) -> Result<u64> {
        let doomed = self.doomed.lock();
        let (volume, db) = (&*self.setup.volume, self.setup.db);
        let waiting = doomed.waiting.iter();
        waiting.map(|segment| segment.file(volume, db)?.len()).sum()
    }

    /// Returns the log's counters and sizes.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let spilled = self.spilled.load(Ordering::Acquire);
        LogStats {
            appended_bytes: self.sequencer.lock().appended_bytes,
            written_bytes: count(&self.counters.written_bytes),
            relocated_bytes: count(&self.counters.relocated_bytes),
            segment_syncs: count(&self.counters.segment_syncs),
            sync_waits: count(&self.counters.sync_waits),
            sync_groups: count(&self.counters.sync_groups),
            ring_waits: count(&self.counters.ring_waits),
            segment_waits: count(&self.counters.segment_waits),
            large_frames: count(&self.counters.large_frames),
            unspilled_bytes: self
                .completed
                .load(Ordering::Acquire)
                .saturating_sub(spilled),
            ring_bytes: self.ring_bytes,
            ring_space_bytes: self.ring_space.grown(),
            ring_survives_kill: self.survives_kill,
            segments: self.table.load().iter().count() as u64,
        }
    }
}
