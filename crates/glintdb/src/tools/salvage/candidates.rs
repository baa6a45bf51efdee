//! The newest version of each key that was found so far, in a temporary database; range tombstones and what is suspected lost beside it.
//!
//! A version is a sequence number and the operation's place in its batch; what an index holds of a batch is its outcome, and so newer than any operation of it.
//!
//! Record of a key: sequence number (8 bytes, big-endian), place in the batch (4), kind (1: 0 deleted, 1 value, 2 pointer into the log), then the value or the pointer.

use super::SalvageOptions;
use crate::options::{KeyspaceOptions, Options};
use crate::{Db, Durability, Error, Keyspace, Result};
use bytes::Bytes;
use glintdb_core::{KeyspaceId, RangeTombstone, SeqNum, ValuePointer};
use glintdb_runs::table::salvage::KeyRange;
use std::collections::BTreeMap;
use std::path::Path;

/// When something was done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct When {
    pub(super) seqno: SeqNum,
    pub(super) order: u32,
}

impl When {
    /// What an index knows of a commit.
    pub(super) fn settled(seqno: SeqNum) -> Self {
        When {
            seqno,
            order: u32::MAX,
        }
    }

    /// In an order that is that of time.
    fn encode(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.seqno.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.order.to_be_bytes());
        bytes
    }
}

/// What a key has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    Deleted,
    Value(Bytes),
    /// A value that was verified where it lies.
    Pointer(ValuePointer),
}

/// A range tombstone of a batch.
#[derive(Clone, Debug)]
pub(super) struct RangeDeleted {
    pub(super) start: Bytes,
    pub(super) end: Option<Bytes>,
    pub(super) when: When,
}

/// What is known of one keyspace.
pub(super) struct Space {
    versions: Keyspace,
    /// Keys whose newest value is lost.
    suspects: Keyspace,
    ranges_deleted: Vec<RangeDeleted>,
    /// Where key blocks or tables are lost; merged and ascending once [`Candidates::settle`] was called.
    ranges_lost: Vec<KeyRange>,
    any_suspect: bool,
}

/// See the module.
pub(super) struct Candidates {
    db: Db,
    spaces: BTreeMap<KeyspaceId, Space>,
}

const HEAD_BYTES: usize = 13;

impl Candidates {
    pub(super) fn create(path: &Path, options: &SalvageOptions) -> Result<Self> {
        let db = Options::default()
            .memory_budget_bytes(options.memory_budget_bytes)
            .durability(Durability::Buffered)
            .open(path)?;
        Ok(Candidates {
            db,
            spaces: BTreeMap::new(),
        })
    }

    pub(super) fn close(self) -> Result<()> {
        drop(self.spaces);
        self.db.close()
    }

    pub(super) fn space(&mut self, id: KeyspaceId) -> Result<&mut Space> {
        if !self.spaces.contains_key(&id) {
            let create = |kind: &str| {
                let name = format!("{kind}-{}", id.0);
                self.db
                    .keyspace_or_create(&name, KeyspaceOptions::default())
            };
            let space = Space {
                versions: create("versions")?,
                suspects: create("suspects")?,
                ranges_deleted: Vec::new(),
                ranges_lost: Vec::new(),
                any_suspect: false,
            };
            self.spaces.insert(id, space);
        }
        let space = self.spaces.get_mut(&id);
        Ok(space.expect("it was made if it was not there"))
    }

    pub(super) fn spaces(&self) -> impl Iterator<Item = (KeyspaceId, &Space)> {
        self.spaces.iter().map(|(id, space)| (*id, space))
    }

    /// Whether anything is suspected lost.
    pub(super) fn any_suspect(&self) -> bool {
        self.spaces
            .values()
            .any(|space| space.any_suspect || !space.ranges_lost.is_empty())
    }

    /// Puts lost ranges in order, so that [`Space::is_suspect`] finds them.
    pub(super) fn settle(&mut self) {
        for space in self.spaces.values_mut() {
            space.ranges_lost.sort();
            let mut merged: Vec<KeyRange> = Vec::new();
            for (start, end) in space.ranges_lost.drain(..) {
                match merged.last_mut() {
                    Some((_, None)) => {}
                    Some((_, Some(last))) if start <= *last => match end {
                        Some(end) if end > *last => *last = end,
                        Some(_) => {}
                        None => {
                            if let Some((_, last)) = merged.last_mut() {
                                *last = None;
                            }
                        }
                    },
                    _ => merged.push((start, end)),
                }
            }
            space.ranges_lost = merged;
        }
    }
}

impl Space {
    /// Keeps the version if it is newer than what is there.
    pub(super) fn offer(&mut self, key: &[u8], when: When, what: &What) -> Result<()> {
        let mut record = Vec::with_capacity(HEAD_BYTES + 32);
        record.extend_from_slice(&when.encode());
        match what {
            What::Deleted => record.push(0),
            What::Value(value) => {
                record.push(1);
                record.extend_from_slice(value);
            }
            What::Pointer(pointer) => {
                record.push(2);
                record.extend_from_slice(&pointer.encode());
            }
        }
        match self.versions.get(key)? {
            Some(there) if there.get(..12) >= record.get(..12) => Ok(()),
            _ => self.versions.put(key, &record),
        }
    }

    /// The newest version of every key, in key order.
    pub(super) fn versions(&self) -> impl Iterator<Item = Result<(Bytes, When, What)>> {
        self.versions.iter().map(|entry| {
            let (key, record) = entry?;
            let (when, what) = decode(&record)
                .ok_or_else(|| Error::corruption("a candidate", 0, "it does not parse"))?;
            Ok((key, when, what))
        })
    }

    pub(super) fn delete_range(&mut self, tombstone: &RangeTombstone, when: When) {
        self.ranges_deleted.push(RangeDeleted {
            start: tombstone.start.clone(),
            end: tombstone.end.clone(),
            when,
        });
    }

    pub(super) fn ranges_deleted(&self) -> &[RangeDeleted] {
        &self.ranges_deleted
    }

    pub(super) fn suspect_range(&mut self, range: KeyRange) {
        if range.1.as_ref().is_none_or(|end| range.0 < *end) {
            self.ranges_lost.push(range);
        }
    }

    /// Notes that the value that `key` was given at `when` is not where it should be.
    pub(super) fn suspect(&mut self, key: &[u8], when: When) -> Result<()> {
        self.any_suspect = true;
        match self.suspects.get(key)?.and_then(|there| when_of(&there)) {
            Some(there) if there >= when => Ok(()),
            _ => self.suspects.put(key, when.encode()),
        }
    }

    /// The newest commit whose value of `key` is not where it should be.
    pub(super) fn suspected(&self, key: &[u8]) -> Result<Option<SeqNum>> {
        if !self.any_suspect {
            return Ok(None);
        }
        let when = self.suspects.get(key)?.and_then(|when| when_of(&when));
        Ok(when.map(|when| when.seqno))
    }

    /// Keys whose values are lost after all: nothing as new was found, not even another place of the same value.
    pub(super) fn lost(&self) -> impl Iterator<Item = Result<(Bytes, When)>> {
        self.suspects.iter().filter_map(|entry| {
            let lost = || {
                let (key, when) = entry?;
                let when = when_of(&when).unwrap_or(When::settled(SeqNum::ZERO));
                let found = self.versions.get(&key)?;
                let found = found.and_then(|record| when_of(&record));
                Ok(found
                    .is_none_or(|found| found.seqno < when.seqno)
                    .then_some((key, when)))
            };
            lost().transpose()
        })
    }

    /// Whether a newer version of `key` than any in its place may be lost.
    pub(super) fn is_suspect(&self, key: &[u8]) -> Result<bool> {
        Ok(self.is_in_lost_range(key) || self.suspected(key)?.is_some())
    }

    /// Whether `key` lies where a key block or a table is lost.
    pub(super) fn is_in_lost_range(&self, key: &[u8]) -> bool {
        let behind = self
            .ranges_lost
            .partition_point(|(start, _)| start.as_ref() <= key);
        behind.checked_sub(1).is_some_and(|at| {
            let end = self.ranges_lost.get(at).and_then(|(_, end)| end.as_ref());
            end.is_none_or(|end| key < end.as_ref())
        })
    }
}

/// What a record begins with.
fn when_of(record: &[u8]) -> Option<When> {
    Some(When {
        seqno: SeqNum(u64::from_be_bytes(*record.first_chunk()?)),
        order: u32::from_be_bytes(record.get(8..12)?.try_into().ok()?),
    })
}

fn decode(record: &Bytes) -> Option<(When, What)> {
    let when = when_of(record)?;
    let rest = record.slice(HEAD_BYTES.min(record.len())..);
    let what = match record.get(12)? {
        0 => What::Deleted,
        1 => What::Value(rest),
        2 => What::Pointer(ValuePointer::decode(&rest)?),
        _ => return None,
    };
    Some((when, what))
}
