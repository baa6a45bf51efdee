//! The divisible work of a round: a victim is scanned, a stretch of keys is verified, or an index walked.
//!
//! Thread safety: a unit belongs to whoever is in it ([`super::pieces`]); what it reads of others is immutable, but for the sequence numbers of its own records.

use super::pieces::{Pieces, Unit};
use super::records::Records;
use crate::engine::Engine;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::{Cursor, IndexView, STEP_BUDGET};
use glintdb_core::{Direction, EntryRef, EntryValue, KeyspaceId, SegmentId, SeqNum};
use glintdb_log::LiveScan;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// What a victim has come to.
pub(super) enum Scanned {
    /// To its end.
    Whole,
    /// Dead by now, or its end is still in the ring: not this time.
    NotNow,
    Failed(Error),
}

/// A victim that is read from end to end. It does not change any more, so that may be done before there is a round for it.
pub(crate) struct Scan {
    pub(super) id: SegmentId,
    /// Bytes of values that were found.
    pub(super) seen: BTreeMap<KeyspaceId, u64>,
    keeps_values: bool,
    scan: Option<LiveScan>,
    pub(super) records: Records,
    pub(super) scanned: Option<Scanned>,
}

impl Scan {
    pub(super) fn new(engine: &Engine, id: SegmentId, keeps_values: bool) -> Scan {
        Scan {
            id,
            seen: BTreeMap::new(),
            keeps_values,
            scan: None,
            records: Records::new(&engine.memory),
            scanned: None,
        }
    }

    /// Some records more; `true`: that was the end.
    fn read(&mut self, engine: &Engine) -> Result<bool> {
        let scan = match &mut self.scan {
            Some(scan) => scan,
            none => none.insert(engine.log.live_scan(self.id)?),
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

impl Unit for Scan {
    fn step(&mut self, engine: &Engine) -> bool {
        let begun = self.scan.is_some();
        let scanned = match self.read(engine) {
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

/// Scans for the round after this one, begun while nobody reads for this one.
pub(super) struct Ahead {
    pub(super) ids: Vec<SegmentId>,
    /// Until a round takes them over.
    pub(super) scans: Option<Arc<Pieces<Scan>>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.scans.iter().for_each(|scans| scans.discard());
    }
}

/// Records of one keyspace, beside one another in key order, that are looked up in the view.
pub(super) struct Verify {
    pub(super) records: Arc<Records>,
    pub(super) order: Arc<Vec<u32>>,
    pub(super) range: Range<usize>,
    pub(super) keyspace: KeyspaceId,
    pub(super) view: Arc<dyn IndexView>,
    pub(super) result: Result<()>,
}

impl Verify {
    fn verify(&self, engine: &Engine) -> Result<()> {
        let chunk = self.order.get(self.range.clone()).unwrap_or_default();
        let key = |index: &u32| self.records.key(*index);
        // A key that was written again and again is looked up once.
        let mut keys: Vec<&[u8]> = Vec::with_capacity(chunk.len());
        for index in chunk {
            if keys.last() != Some(&key(index)) {
                keys.push(key(index));
            }
        }
        let entries = self.view.get_batch(&keys);
        let overwritten = |key: &[u8]| {
            // Where somebody believes commits that are not durable yet.
            glintdb_core::seeded::bug("glintdb: value GC believes commits that are not durable")
                && (engine.version.load_full().generations()).any(|one| {
                    one.keyspace(self.keyspace)
                        .is_some_and(|mem| mem.get(key, SeqNum::MAX).is_some())
                })
        };
        let mut chunk = chunk.iter().peekable();
        for (entry, its_key) in entries.into_iter().zip(keys) {
            let found = entry?;
            while let Some(&index) = chunk.next_if(|index| key(index) == its_key) {
                let Some(found) = &found else { continue };
                let live = match &found.value {
                    EntryValue::Pointer(pointer) => {
                        *pointer == *self.records.pointer(index) && !overwritten(its_key)
                    }
                    EntryValue::Tombstone => {
                        glintdb_core::seeded::bug("glintdb: value GC brings back what was deleted")
                    }
                    EntryValue::Inline(_) => false,
                };
                if live {
                    self.records.set_live(index, found.seqno);
                }
            }
        }
        Ok(())
    }
}

impl Unit for Verify {
    fn step(&mut self, engine: &Engine) -> bool {
        self.result = self.verify(engine);
        true
    }
}

/// The index of a keyspace, which is walked for the entries whose values lie in victims: what is live, in key order.
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
        engine: &Engine,
        keyspace: KeyspaceId,
        view: Arc<dyn IndexView>,
        victims: Arc<BTreeSet<SegmentId>>,
    ) -> Walk {
        Walk {
            keyspace,
            view,
            victims,
            cursor: None,
            records: Records::new(&engine.memory),
            result: Ok(()),
        }
    }

    /// Some entries more; `true`: that was the end.
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

impl Unit for Walk {
    fn step(&mut self, _: &Engine) -> bool {
        let walked = self.walk();
        if let Ok(false) = walked {
            return false;
        }
        self.cursor = None;
        self.result = walked.map(drop);
        true
    }
}
