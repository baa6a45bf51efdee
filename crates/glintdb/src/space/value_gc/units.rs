//! The reads of a round of value GC, in steps: a scan of a victim, a lookup of some keys, or a walk
//! of an index.
//!
//! Thread safety: each belongs to its round.

use super::ValueGc;
use super::records::Records;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::{Cursor, IndexView, STEP_BUDGET};
use glintdb_core::{Direction, EntryRef, EntryValue, KeyspaceId, SegmentId, planted};
use glintdb_log::LiveScan;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The result of a scan.
pub(super) enum Scanned {
    /// The victim was read to its end.
    Whole,
    /// The victim is retired, or its end is still in the ring: this round leaves it.
    NotNow,
    Failed(Error),
}

/// A victim that is read from its begin to its end.
pub(super) struct Scan {
    pub(super) id: SegmentId,
    /// Bytes of values found, by keyspace.
    pub(super) seen: BTreeMap<KeyspaceId, u64>,
    keeps_values: bool,
    scan: Option<LiveScan>,
    pub(super) records: Records,
    pub(super) scanned: Option<Scanned>,
}

impl Scan {
    pub(super) fn new(gc: &ValueGc, id: SegmentId, keeps_values: bool) -> Scan {
        Scan {
            id,
            seen: BTreeMap::new(),
            keeps_values,
            scan: None,
            records: Records::new(&gc.shared.memory),
            scanned: None,
        }
    }

    /// Reads some more records. Returns whether that was the end.
    fn read(&mut self, gc: &ValueGc) -> Result<bool> {
        let scan = match &mut self.scan {
            Some(scan) => scan,
            none => none.insert(gc.shared.log.live_scan(self.id)?),
        };
        let Some(batch) = scan.next_batch()? else {
            return Ok(true);
        };
        for record in batch.records() {
            *self.seen.entry(record.keyspace).or_default() += u64::from(record.pointer.length);
            self.records.add(&record, self.keeps_values);
        }
        self.records.charge();
        Ok(false)
    }
}

impl Scan {
    /// Does a bounded piece of work. Returns whether the scan is over.
    pub(super) fn step(&mut self, gc: &ValueGc) -> bool {
        let begun = self.scan.is_some();
        let scanned = match self.read(gc) {
            Ok(false) => return false,
            Ok(true) => Scanned::Whole,
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::InvalidArgument if !begun => Scanned::NotNow,
                _ => Scanned::Failed(error),
            },
        };
        self.scan = None;
        self.scanned = Some(scanned);
        true
    }
}

/// Looks up `chunk`, records of one keyspace in key order, in the keyspace's view, and marks those
/// that are live.
pub(super) fn verify(records: &mut Records, chunk: &[u32], view: &dyn IndexView) -> Result<()> {
    // A key that was written several times is looked up once.
    let mut keys: Vec<&[u8]> = Vec::with_capacity(chunk.len());
    for &index in chunk {
        let key = records.key(index);
        if keys.last() != Some(&key) {
            keys.push(key);
        }
    }
    let entries = view.get_batch(&keys);
    let mut live = Vec::new();
    let mut chunk = chunk.iter().copied().peekable();
    for (entry, key) in entries.into_iter().zip(keys) {
        let found = entry?;
        while let Some(index) = chunk.next_if(|index| records.key(*index) == key) {
            let Some(found) = &found else { continue };
            let is_live = match &found.value {
                EntryValue::Pointer(pointer) => pointer == records.pointer(index),
                EntryValue::Tombstone => planted!(
                    "glintdb: value GC brings back what was deleted",
                    false,
                    true
                ),
                EntryValue::Inline(_) => false,
            };
            if is_live {
                live.push((index, found.seqno));
            }
        }
    }
    for (index, seqno) in live {
        records.set_live(index, seqno);
    }
    Ok(())
}

/// A walk over the index of a keyspace for the entries whose values are in victims: the live
/// records, in key order.
pub(super) struct Walk {
    pub(super) keyspace: KeyspaceId,
    pub(super) view: Arc<dyn IndexView>,
    pub(super) victims: Arc<BTreeSet<SegmentId>>,
    cursor: Option<Box<dyn Cursor>>,
    pub(super) records: Records,
    pub(super) result: Result<()>,
}

impl Walk {
    pub(super) fn new(
        gc: &ValueGc,
        keyspace: KeyspaceId,
        view: Arc<dyn IndexView>,
        victims: Arc<BTreeSet<SegmentId>>,
    ) -> Walk {
        Walk {
            keyspace,
            view,
            victims,
            cursor: None,
            records: Records::new(&gc.shared.memory),
            result: Ok(()),
        }
    }

    /// Visits some more entries. Returns whether that was the end.
    fn walk(&mut self) -> Result<bool> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(self.view.cursor(
                Bound::Unbounded,
                Bound::Unbounded,
                Direction::Forward,
            )?),
        };
        let mut entries = 0;
        let more = cursor.walk(&mut |key, seqno, value, _| {
            if let EntryRef::Pointer(pointer) = value
                && self.victims.contains(&pointer.segment)
            {
                self.records.add_live(self.keyspace, key, pointer, seqno);
            }
            entries += 1;
            entries < STEP_BUDGET
        })?;
        self.records.charge();
        Ok(!more)
    }
}

impl Walk {
    /// Does a bounded piece of work. Returns whether the walk is over.
    pub(super) fn step(&mut self) -> bool {
        let walked = self.walk();
        if let Ok(false) = walked {
            return false;
        }
        self.cursor = None;
        self.result = walked.map(drop);
        true
    }
}
