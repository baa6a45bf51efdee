//! Passes that put values in key order: they rewrite the values of a keyspace in the order of its
//! keys, so that scans find neighbours together.
//!
//! A pass works in pieces. Each ends like a round of value GC: values in segments of their own, a
//! run of level 0 with the new pointers, one record of the manifest. No segment is retired. The old
//! copies are known to be hidden; they are freed by the compaction at the end, or by rounds before
//! it if there would be too many.
//!
//! Thread safety: any thread that holds no lock. Several passes may run at once.
//!
//! Invariants:
//! 1. The place in the index, the index's view and the view of the log are taken together, while no
//!    flush runs and the manifest does not change.
//! 2. Values that are in order stay where they are.
//! 3. A place is held only until level 0, which cannot be compacted meanwhile, slows writers.

use super::ValueGc;
use super::records::{MovedRun, Records};
use crate::Result;
use crate::background::install::{Pending, Relocated};
use crate::space::priority::Begun;
use crate::state::scattered::apart;
use crate::state::version::KeyspaceState;
use glintdb_core::index::{IndexView, Relocation};
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{Direction, EntryRef, ValuePointer, planted};
use glintdb_log::{LogView, NewValues, Space};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Most records of a piece.
const PIECE_RECORDS: u64 = 1 << 15;
/// Largest limit on the bytes of a piece.
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Smallest limit on the bytes of a piece.
const PIECE_BYTES_MIN: u64 = 256 << 10;
/// A piece makes at most this part of the allowed garbage.
const PIECE_PART: u64 = 8;
/// Neighbours that are checked together for their order, and moved together.
const GROUP_RECORDS: usize = 64;
/// Most bytes of values whose reads are in flight together.
const READ_BYTES: u64 = 1 << 20;

/// The result of a piece.
#[derive(Default)]
pub(super) struct Piece {
    /// The last key that was visited. `None` if there are no more.
    next: Option<Vec<u8>>,
    /// Number of records that have moved.
    pub(super) records: u64,
    /// Bytes of their values.
    pub(super) bytes: u64,
}

/// The limits of a piece.
#[derive(Clone, Copy)]
pub(super) struct PieceLimits {
    pub(super) records: u64,
    /// Bytes of keys and values.
    pub(super) bytes: u64,
}

impl ValueGc {
    /// Rewrites the values of the keys within bounds that are not in key order, and compacts the
    /// index.
    pub(crate) fn compact_values(
        &self,
        keyspace: &Arc<KeyspaceState>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<()> {
        self.background.flush()?;
        let ordered = (self.space.gc).while_held_off(|| self.order_values(keyspace, lower, upper));
        // Removes segments that the last view of the log has kept.
        self.space.remove_doomed();
        if ordered.is_err() {
            // Compactions may have waited for the place that was given up.
            self.shared.schedule();
            self.shared.run_inline();
        }
        ordered?;
        // The compaction drops pointers to the old copies.
        self.background.compact(keyspace, lower, upper)
    }

    fn order_values(
        &self,
        keyspace: &Arc<KeyspaceState>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<()> {
        let mut from = lower.map(<[u8]>::to_vec);
        while !keyspace.dropped.load(Ordering::Acquire) {
            self.make_way_for_values(keyspace)?;
            let lower = from.as_ref().map(Vec::as_slice);
            let limits = self.piece_limits();
            let piece = self.order_piece(keyspace, (lower, upper), limits, None)?;
            let Some(next) = piece.next else { break };
            from = Bound::Excluded(next);
        }
        Ok(())
    }

    /// Waits until compactions and value GC have caught up with the pieces so far.
    fn make_way_for_values(&self, keyspace: &KeyspaceState) -> Result<()> {
        loop {
            let debt = keyspace.index().debt();
            let crowded = debt.runs >= debt.runs_slow;
            let full = self.space.is_gc_urgent();
            if crowded || full {
                self.shared.schedule();
            }
            // Waits only if a job reduces it.
            let compacting = crowded && self.background.job_counts() != (0, 0);
            let collecting = full && self.space.gc.is_queued();
            if !compacting && !collecting {
                return Ok(());
            }
            self.background.wait_for_jobs()?;
        }
    }

    /// Puts the first values within bounds in order. With `goes_on`, it does not wait for a flush,
    /// and ends when `goes_on` returns false.
    pub(super) fn order_piece(
        &self,
        keyspace: &Arc<KeyspaceState>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        limits: PieceLimits,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<Piece> {
        let Some((relocation, log)) = self.begin_piece(keyspace, goes_on.is_none())? else {
            return Ok(Piece::default());
        };
        let view = relocation.view();
        let (records, mut next) = self.gather_piece(keyspace, &*view, (lower, upper), limits)?;
        drop(view);
        let mut moved = out_of_order(&records);
        if moved.is_empty() {
            return Ok(Piece {
                next,
                ..Piece::default()
            });
        }
        let bytes: u64 = moved.iter().map(|&index| records.bytes(index)).sum();
        let _running = self.space.begin_writing(
            "pass that puts values in key order",
            bytes + bytes / 8,
            Begun::Called,
        )?;
        let values = self.write_values(keyspace, &records, &moved, &log, goes_on)?;
        drop(log);
        let written = values.pointers().len();
        if let Some(&last) = moved.get(..written).and_then(<[u32]>::last)
            && written < moved.len()
        {
            next = Some(records.key(last).to_vec());
            moved.truncate(written);
        }
        let relocation = planted!(
            "glintdb: values in key order take their place above what came meanwhile",
            relocation,
            {
                drop(relocation);
                keyspace.index().begin_relocation()
            }
        );
        let mut run = MovedRun::new(&records, &moved, values.pointers());
        let change = relocation.write(&mut run)?;
        let left: Vec<ValuePointer> = (moved.iter())
            .map(|&index| *records.pointer(index))
            .collect();
        let born = values.pointers().to_vec();
        let pending = vec![Pending {
            keyspace: Arc::clone(keyspace),
            change,
        }];
        let relocated = Relocated {
            values,
            victims: Vec::new(),
        };
        let keys = moved.iter().map(|&index| records.key(index));
        let from = (keys.zip(&left)).map(|(key, from)| (keyspace.id, key, *from));
        self.commit_moved(pending, relocated, from)?;
        self.space.gc.born(&born, &[], 0.0);
        self.space.gc.left_behind(&left);
        self.space.update_space();
        Ok(Piece {
            next,
            records: left.len() as u64,
            bytes: left.iter().map(|from| u64::from(from.length)).sum(),
        })
    }

    /// Takes a place in the index, and the view of the log that belongs to it. Returns `None` if
    /// the keyspace was dropped. During a flush, and while another index is about to take over, it
    /// waits if `waits` is true, else it returns `None`.
    fn begin_piece(
        &self,
        keyspace: &KeyspaceState,
        waits: bool,
    ) -> Result<Option<(Box<dyn Relocation>, LogView)>> {
        loop {
            let no_flush = match waits {
                true => Some(self.background.no_flush()),
                false => self.background.try_no_flush(),
            };
            let Some(no_flush) = no_flush else {
                return Ok(None);
            };
            let manifest = self.shared.manifest.lock();
            manifest.check()?;
            if !keyspace.switching.load(Ordering::Acquire) {
                let is_there = !keyspace.dropped.load(Ordering::Acquire);
                let begin = || (keyspace.index().begin_relocation(), self.shared.log.view());
                return Ok(is_there.then(begin));
            }
            if !waits {
                return Ok(None);
            }
            drop((manifest, no_flush));
            self.background.wait_for_jobs()?;
        }
    }

    /// Returns the limits that memory and the allowed garbage set for a piece.
    pub(super) fn piece_limits(&self) -> PieceLimits {
        let allowed = match self.space.gc.known_account().allowed_bytes {
            // Value GC is off, so garbage is not counted.
            0 => u64::MAX,
            allowed => allowed / PIECE_PART,
        };
        let least = PIECE_BYTES_MIN.min(self.shared.options.log_segment_bytes);
        PieceLimits {
            records: PIECE_RECORDS,
            bytes: (self.space.gc_memory_bytes_max().min(allowed)).clamp(least, PIECE_BYTES_MAX),
        }
    }

    /// Returns the entries of the next piece whose values are separated, and the key at which it
    /// ended, if it did.
    fn gather_piece(
        &self,
        keyspace: &KeyspaceState,
        view: &dyn IndexView,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        limits: PieceLimits,
    ) -> Result<(Records, Option<Vec<u8>>)> {
        let mut records = Records::new(&self.shared.memory);
        let (mut bytes, mut count) = (0, 0);
        let mut cursor = view.cursor(lower, upper, Direction::Forward)?;
        let more = cursor.walk(&mut |key, seqno, value, _| {
            if let EntryRef::Pointer(pointer) = value {
                records.add_live(keyspace.id, key, pointer, seqno);
                bytes += u64::from(pointer.length) + key.len() as u64;
            }
            count += 1;
            count < limits.records && bytes < limits.bytes
        })?;
        records.charge();
        Ok((records, more.then(|| cursor.key().to_vec())))
    }

    /// Copies values to segments of their own, and reads each batch of them while the one before it
    /// is written. Ends early if writers would be slowed because level 0 waits for the place.
    fn write_values(
        &self,
        keyspace: &KeyspaceState,
        records: &Records,
        moved: &[u32],
        log: &LogView,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<NewValues> {
        let bytes = moved.iter().map(|&index| records.stored_bytes(index));
        let mut writer = self.shared.log.values_writer(Space::Normal, bytes.sum())?;
        let batches = batches(records, moved, self.shared.options.experiments.value_batch);
        let mut batches = batches.into_iter().map(|batch| &moved[batch]);
        let read = |batch: &[u32]| {
            let pointers = batch.iter().map(|&index| *records.pointer(index));
            self.shared.log.begin_read_batch_in(log, pointers.collect())
        };
        let mut begun = batches.next().map(|batch| (batch, read(batch)));
        while let Some((batch, values)) = begun {
            self.space.may_compact()?;
            self.shared.check_open()?;
            let values = values.wait();
            let debt = keyspace.index().debt();
            let goes_on = debt.runs < debt.runs_slow && goes_on.is_none_or(|goes_on| goes_on());
            begun = (batches.next().filter(|_| goes_on)).map(|batch| (batch, read(batch)));
            self.background.spill_if_urgent();
            for (&index, value) in batch.iter().zip(values) {
                let record = &records.all[index as usize];
                let checksum = record.pointer.checksum;
                let key = records.key(index);
                writer.put(&self.shared.log, record.keyspace, key, &value?, checksum)?;
            }
        }
        writer.finish(&self.shared.log)
    }
}

/// Divides `moved` into batches of up to `records_max` records that are read together.
fn batches(records: &Records, moved: &[u32], records_max: usize) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, &index) in moved.iter().enumerate() {
        match batches.last_mut() {
            Some(batch) if batch.len() < records_max && bytes < READ_BYTES => batch.end = at + 1,
            _ => {
                batches.push(at..at + 1);
                bytes = 0;
            }
        }
        bytes += records.bytes(index);
    }
    batches
}

/// Returns the records that are not in the order of their keys, group by group.
fn out_of_order(records: &Records) -> Vec<u32> {
    let mut moved = Vec::new();
    let indexes: Vec<u32> = (0u32..).take(records.all.len()).collect();
    for group in indexes.chunks(GROUP_RECORDS) {
        let pointers = group.iter().map(|&index| records.pointer(index));
        if apart(pointers.enumerate()) > 0 {
            moved.extend_from_slice(group);
        }
    }
    moved
}

#[cfg(all(test, not(loom)))]
mod tests;
