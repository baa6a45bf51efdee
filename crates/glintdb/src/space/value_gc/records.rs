//! What a round has found in its victims: keys in one piece of memory, and values as long as they are needed; in the order of keyspace and key where it is asked for.
//!
//! Thread safety: changed by the thread that has them; once they are shared, only whether a record is live is, by whoever verifies it. What takes the work back makes that seen (the lock of its list).

use bytes::Bytes;
use glintdb_core::index::SortedRun;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{EntryRef, KeyspaceId, RangeTombstone, SeqNum, ValuePointer};
use glintdb_log::VALUES_RECORD_BYTES;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A record of a victim.
pub(super) struct Record {
    pub(super) keyspace: KeyspaceId,
    /// In [`Records::keys`].
    pub(super) key: Range<usize>,
    pub(super) pointer: ValuePointer,
    /// Of the view's entry, if that is this one: told by whoever has verified it.
    seqno: AtomicU64,
    /// Not yet verified. `None`: it is read when it is needed.
    pub(super) value: Option<Bytes>,
}

/// Records with their keys, accounted for.
pub(super) struct Records {
    pub(super) all: Vec<Record>,
    keys: Vec<u8>,
    /// Bytes that all keys have in common at their beginning.
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
            seqno: AtomicU64::new(SeqNum::MAX.0),
            value,
        });
    }

    /// An entry of an index, whose value is read when it is needed. To be added in key order.
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
            seqno: AtomicU64::new(seqno.0),
            value: None,
        });
    }

    /// Takes what another scan has found, behind its own.
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

    /// The record's entry in the view is this one, with that number.
    pub(super) fn set_live(&self, index: u32, seqno: SeqNum) {
        let record = self.all.get(index as usize);
        record
            .into_iter()
            .for_each(|record| record.seqno.store(seqno.0, Ordering::Relaxed));
    }

    /// [`SeqNum::MAX`]: it is not live, as far as is known.
    pub(super) fn seqno(&self, index: u32) -> SeqNum {
        let record = self.all.get(index as usize);
        record.map_or(SeqNum::MAX, |record| {
            SeqNum(record.seqno.load(Ordering::Relaxed))
        })
    }

    /// They are written.
    pub(super) fn forget_values(&mut self) {
        self.all.iter_mut().for_each(|record| record.value = None);
        self.value_bytes = 0;
        self.charge();
    }

    pub(super) fn pointer(&self, index: u32) -> &ValuePointer {
        &self.all[index as usize].pointer
    }

    /// Bytes of key and value.
    pub(super) fn bytes(&self, index: u32) -> u64 {
        self.key(index).len() as u64 + u64::from(self.pointer(index).length)
    }

    /// What it takes in a segment of values, about.
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

    /// Their indexes in the order of keyspace and key.
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

    /// Accounts for what they take.
    pub(super) fn charge(&mut self) {
        let bytes =
            self.keys.capacity() + self.all.capacity() * size_of::<Record>() + self.value_bytes;
        self.memory.add(MemoryPart::Buffers, bytes);
        self.memory.sub(MemoryPart::Buffers, self.charged);
        self.charged = bytes;
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.memory.sub(MemoryPart::Buffers, self.charged);
    }
}

/// Records that were moved, as a run: their keys and sequence numbers with the new pointers.
pub(super) struct MovedRun<'a> {
    pub(super) records: &'a Records,
    pub(super) moved: &'a [u32],
    pub(super) pointers: &'a [ValuePointer],
    pub(super) at: usize,
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
