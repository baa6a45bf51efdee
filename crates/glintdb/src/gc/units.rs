//! The divisible work of a round: a victim is scanned, a stretch of keys is verified.
//!
//! Thread safety: a unit belongs to whoever is in it ([`super::pieces`]); what it reads of others is immutable, but for the sequence numbers of its own records.

use super::pieces::Unit;
use super::records::Records;
use crate::engine::Engine;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::IndexView;
use glintdb_core::{EntryValue, KeyspaceId, SegmentId, SeqNum};
use glintdb_log::LiveScan;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What a victim has come to.
pub(super) enum Scanned {
    /// Everything that indexes point to was found.
    Whole,
    /// Dead by now, or its end is still in the ring: not this time.
    NotNow,
    /// It stays as it is.
    Damaged(Error),
    Failed(Error),
}

/// A victim that is read from end to end.
pub(super) struct Scan {
    pub(super) id: SegmentId,
    /// Bytes of values in it that indexes' files point to, and how many were found.
    held: BTreeMap<KeyspaceId, u64>,
    seen: BTreeMap<KeyspaceId, u64>,
    /// Keyspaces that are there.
    keyspaces: Arc<BTreeSet<KeyspaceId>>,
    keeps_values: bool,
    scan: Option<LiveScan>,
    pub(super) records: Records,
    pub(super) scanned: Option<Scanned>,
}

impl Scan {
    pub(super) fn new(
        engine: &Engine,
        id: SegmentId,
        held: BTreeMap<KeyspaceId, u64>,
        keyspaces: &Arc<BTreeSet<KeyspaceId>>,
        keeps_values: bool,
    ) -> Scan {
        Scan {
            id,
            held,
            seen: BTreeMap::new(),
            keyspaces: Arc::clone(keyspaces),
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
            return self.check().map(|()| true);
        };
        for record in batch.records() {
            if !self.keyspaces.contains(&record.keyspace) {
                continue;
            }
            *self.seen.entry(record.keyspace).or_default() += u64::from(record.pointer.length);
            self.records.add(&record, self.keeps_values);
        }
        self.records.charge();
        Ok(false)
    }

    /// Whether everything is there that indexes point to.
    fn check(&self) -> Result<()> {
        let of_those = (self.held.iter()).filter(|(id, _)| self.keyspaces.contains(*id));
        let seen = |id| self.seen.get(id).copied().unwrap_or(0);
        let mut missing = of_those.map(|(id, held)| held.saturating_sub(seen(id)));
        let Some(missing) = missing.find(|missing| *missing > 0) else {
            return Ok(());
        };
        let message =
            format!("expected values that indexes point to, of {missing} bytes found no record");
        Err(Error::corruption(self.id.file(), 0, message))
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
                ErrorKind::Corruption => Scanned::Damaged(error),
                _ => Scanned::Failed(error),
            },
        };
        self.scan = None;
        self.scanned = Some(scanned);
        true
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
        let keys: Vec<&[u8]> = chunk.iter().map(|&index| self.records.key(index)).collect();
        let entries = self.view.get_batch(&keys);
        let overwritten = |key: &[u8]| {
            // Where somebody believes commits that are not durable yet.
            glintdb_core::seeded::bug("glintdb: value GC believes commits that are not durable")
                && (engine.version.load_full().generations()).any(|one| {
                    one.keyspace(self.keyspace)
                        .is_some_and(|mem| mem.get(key, SeqNum::MAX).is_some())
                })
        };
        for ((&index, entry), key) in chunk.iter().zip(entries).zip(keys) {
            let Some(found) = entry? else { continue };
            let live = match &found.value {
                EntryValue::Pointer(pointer) => {
                    *pointer == *self.records.pointer(index) && !overwritten(key)
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
        Ok(())
    }
}

impl Unit for Verify {
    fn step(&mut self, engine: &Engine) -> bool {
        self.result = self.verify(engine);
        true
    }
}
