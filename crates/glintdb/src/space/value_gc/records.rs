//! The records that a round found in its victims: keys in one piece of memory, and values as long
//! as they are needed.
//!
//! Thread safety: not thread-safe; they belong to their round.

use bytes::Bytes;
use glintdb_core::index::SortedRun;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{EntryRef, KeyspaceId, RangeTombstone, SeqNum, ValuePointer};
use glintdb_log::VALUES_RECORD_BYTES;
use std::ops::Range;
use std::sync::Arc;

/// A record in a victim.
pub(super) struct Record {
    pub(super) keyspace: KeyspaceId,
    /// Place of the key in [`Records::keys`].
    pub(super) key: Range<usize>,
    pub(super) pointer: ValuePointer,
    /// Sequence number of the view's entry, if that is this record. Else `SeqNum::MAX`.
    seqno: SeqNum,
    /// The value, whose checksum has not been verified. `None` if it is read when it is written.
    pub(super) value: Option<Bytes>,
}

/// Records with their keys. The memory budget is charged for them.
pub(super) struct Records {
    pub(super) all: Vec<Record>,
    keys: Vec<u8>,
    /// Length of the prefix that all keys share.
    shared: usize,
    memory: Arc<MemoryBudget>,
    charged: usize,
    value_bytes: usize,
}

impl Records {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Records {
        Records {
            all: Vec::new(),
            keys: Vec::new(),
            shared: usize::MAX,
            memory: Arc::clone(memory),
            charged: 0,
            value_bytes: 0,
        }
    }

    pub(super) fn add(&mut self, record: &glintdb_log::Record<'_>, with_value: bool) {
        let start = self.keys.len();
        self.keys.extend_from_slice(record.key);
        let key = start..self.keys.len();
        let value = record.unverified_value().filter(|_| with_value);
        self.value_bytes += value.as_ref().map_or(0, Bytes::len);
        self.shared = match self.all.first() {
            None => record.key.len(),
            Some(first) => {
                let first = self.keys.get(first.key.clone());
                let pairs = first
                    .unwrap_or_default()
                    .iter()
                    .zip(record.key)
                    .take(self.shared);
                pairs.take_while(|(a, b)| a == b).count()
            }
        };
        self.all.push(Record {
            keyspace: record.keyspace,
            key,
            pointer: record.pointer,
            seqno: SeqNum::MAX,
            value,
        });
    }

    /// Adds an entry of an index, whose value is read when it is written. Entries must come in key
    /// order.
    pub(super) fn add_live(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        pointer: ValuePointer,
        seqno: SeqNum,
    ) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.all.push(Record {
            keyspace,
            key: start..self.keys.len(),
            pointer,
            seqno,
            value: None,
        });
    }

    /// Adds the records of another scan at the end.
    pub(super) fn append(&mut self, mut other: Records) {
        let base = self.keys.len();
        self.keys.extend_from_slice(&other.keys);
        self.shared = match (self.all.first(), other.all.first()) {
            (Some(a), Some(b)) => {
                let key = |record: &Record| self.keys.get(record.key.clone()).unwrap_or_default();
                let theirs = other.keys.get(b.key.clone()).unwrap_or_default();
                let pairs = key(a).iter().zip(theirs);
                let common = pairs.take_while(|(a, b)| a == b).count();
                self.shared.min(other.shared).min(common)
            }
            (None, _) => other.shared,
            (_, None) => self.shared,
        };
        self.value_bytes += other.value_bytes;
        self.all.extend(other.all.drain(..).map(|mut record| {
            record.key = record.key.start + base..record.key.end + base;
            record
        }));
    }

    /// Notes that the view's entry of the key is this record, with the sequence number `seqno`.
    pub(super) fn set_live(&mut self, index: u32, seqno: SeqNum) {
        self.all[index as usize].seqno = seqno;
    }

    /// Sequence number of the record; [`SeqNum::MAX`] if it is not known to be live.
    pub(super) fn seqno(&self, index: u32) -> SeqNum {
        self.all[index as usize].seqno
    }

    /// Frees the values: all are written.
    pub(super) fn forget_values(&mut self) {
        self.all.iter_mut().for_each(|record| record.value = None);
        self.value_bytes = 0;
        self.charge();
    }

    pub(super) fn pointer(&self, index: u32) -> &ValuePointer {
        &self.all[index as usize].pointer
    }

    /// Returns the bytes of the record's key and value.
    pub(super) fn bytes(&self, index: u32) -> u64 {
        self.key(index).len() as u64 + u64::from(self.pointer(index).length)
    }

    /// Returns about how many bytes the record takes in a segment of values.
    pub(super) fn stored_bytes(&self, index: u32) -> u64 {
        self.bytes(index) + VALUES_RECORD_BYTES
    }

    pub(super) fn key(&self, index: u32) -> &[u8] {
        let key = self
            .all
            .get(index as usize)
            .map_or(0..0, |record| record.key.clone());
        self.keys.get(key).unwrap_or_default()
    }

    /// Indexes of the records in the order of keyspace and key.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<(KeyspaceId, u64, u32)> = (0u32..)
            .zip(&self.all)
            .map(|(index, record)| {
                let key = self.key(index).get(self.shared..).unwrap_or_default();
                let mut head = [0; 8];
                let bytes = key.len().min(8);
                head[..bytes].copy_from_slice(&key[..bytes]);
                (record.keyspace, u64::from_be_bytes(head), index)
            })
            .collect();
        order.sort_unstable_by(|a, b| {
            (a.0, a.1)
                .cmp(&(b.0, b.1))
                .then_with(|| self.key(a.2).cmp(self.key(b.2)))
                .then(a.2.cmp(&b.2))
        });
        order.into_iter().map(|(_, _, index)| index).collect()
    }

    /// Charges the memory budget with the memory of the records.
    pub(super) fn charge(&mut self) {
        let bytes =
            self.keys.capacity() + self.all.capacity() * size_of::<Record>() + self.value_bytes;
        self.memory
            .recharge(MemoryPart::Buffers, &mut self.charged, bytes);
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.memory
            .recharge(MemoryPart::Buffers, &mut self.charged, 0);
    }
}

/// Moved records as a sorted run: their keys and sequence numbers with the new pointers.
pub(super) struct MovedRun<'a> {
    records: &'a Records,
    moved: &'a [u32],
    pointers: &'a [ValuePointer],
    at: usize,
}

impl<'a> MovedRun<'a> {
    /// Creates a run of the records `moved`, whose values are now at `pointers`.
    ///
    /// # Panics
    /// If the numbers of records and places differ.
    pub(super) fn new(
        records: &'a Records,
        moved: &'a [u32],
        pointers: &'a [ValuePointer],
    ) -> MovedRun<'a> {
        assert_eq!(
            moved.len(),
            pointers.len(),
            "each value that moves has one new place"
        );
        MovedRun {
            records,
            moved,
            pointers,
            at: 0,
        }
    }
}

impl SortedRun for MovedRun<'_> {
    fn next(&mut self) -> glintdb_core::Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let (Some(&index), Some(pointer)) = (self.moved.get(self.at), self.pointers.get(self.at))
        else {
            return Ok(None);
        };
        self.at += 1;
        let seqno = self.records.seqno(index);
        Ok(Some((
            self.records.key(index),
            seqno,
            EntryRef::Pointer(*pointer),
        )))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &[]
    }

    fn entries_hint(&self) -> usize {
        self.moved.len()
    }
}
