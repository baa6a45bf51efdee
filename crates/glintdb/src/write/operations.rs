//! The operations of a commit, encoded as a log frame while they are added. The commit copies that
//! frame into the log.

use crate::state::range_tombstones::RangeSet;
use crate::state::version::{Generation, KeyspaceState};
use crate::{Error, Result};
use bytes::Bytes;
use glintdb_core::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use glintdb_core::{EntryRef, KeyspaceId, RangeTombstone, SeqNum, ValuePointer};
use glintdb_log::{FrameBuilder, LogEntry, LogOp, LogValue};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes of keys and values in one batch: 2 GiB.
pub const BATCH_BYTES_MAX: usize = 2 << 30;

/// Checks the limits of a key and a value.
pub(crate) fn check_limits(key_bytes: usize, value_bytes: usize) -> Result<()> {
    if key_bytes > KEY_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the key has {key_bytes} bytes, at most {KEY_BYTES_MAX} are allowed"
        )));
    }
    if value_bytes > VALUE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the value has {value_bytes} bytes, at most {VALUE_BYTES_MAX} are allowed"
        )));
    }
    Ok(())
}

/// A keyspace that operations name.
pub(crate) struct Named {
    pub(crate) state: Arc<KeyspaceState>,
    /// Bytes of log that the operations take, about. Never 0.
    pub(crate) log_bytes: u64,
    /// Bytes that the index will hold for the operations, about. Never 0.
    pub(crate) index_bytes: u64,
}

/// Bytes that an entry takes in the log, and in an index, beside its key and value, about.
const ENTRY_BYTES: usize = 16;

/// Operations over any number of keyspaces that are committed together.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) frame: FrameBuilder,
    /// Every keyspace that an operation names, once.
    pub(crate) keyspaces: Vec<Named>,
    bytes: usize,
    has_ranges: bool,
    has_puts: bool,
    has_deletes: bool,
    wrong: Option<Error>,
}

impl Operations {
    /// Number of operations.
    pub(crate) fn len(&self) -> usize {
        self.frame.entry_count() as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Bytes of all keys and values.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all operations and any error, and keeps the memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.frame.clear();
        self.keyspaces.clear();
        self.bytes = 0;
        self.has_ranges = false;
        self.has_puts = false;
        self.has_deletes = false;
        self.wrong = None;
    }

    /// Counts an operation, for which the index will hold `index_bytes`. Returns false if it
    /// exceeds the limits.
    fn admit(
        &mut self,
        keyspace: &Arc<KeyspaceState>,
        key_bytes: usize,
        value_bytes: usize,
        index_bytes: usize,
    ) -> bool {
        let checked = check_limits(key_bytes, value_bytes).and_then(|()| {
            if self.bytes + key_bytes + value_bytes > BATCH_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "the batch has more than {BATCH_BYTES_MAX} bytes of keys and values"
                )));
            }
            Ok(())
        });
        if let Err(error) = checked {
            self.wrong.get_or_insert(error);
            return false;
        }
        self.bytes += key_bytes + value_bytes;
        let log_bytes = (key_bytes + value_bytes + ENTRY_BYTES) as u64;
        let index_bytes = (index_bytes + ENTRY_BYTES) as u64;
        let mut named = self.keyspaces.iter_mut();
        match named.find(|named| Arc::ptr_eq(&named.state, keyspace)) {
            Some(named) => {
                named.log_bytes += log_bytes;
                named.index_bytes += index_bytes;
            }
            None => self.keyspaces.push(Named {
                state: Arc::clone(keyspace),
                log_bytes,
                index_bytes,
            }),
        }
        true
    }

    pub(crate) fn put(&mut self, keyspace: &Arc<KeyspaceState>, key: &[u8], value: &[u8]) {
        let separated = value.len() >= keyspace.separate_min_bytes;
        let in_index = match separated {
            true => ValuePointer::ENCODED_BYTES,
            false => value.len(),
        };
        if self.admit(keyspace, key.len(), value.len(), key.len() + in_index) {
            self.has_puts = true;
            match separated {
                true => self.frame.put_separated(keyspace.id, key, value),
                false => self.frame.put(keyspace.id, key, value),
            }
        }
    }

    pub(crate) fn delete(&mut self, keyspace: &Arc<KeyspaceState>, key: &[u8]) {
        if self.admit(keyspace, key.len(), 0, key.len()) {
            self.has_deletes = true;
            self.frame.delete(keyspace.id, key);
        }
    }

    /// Adds a range deletion. `start` and `end` may be one byte longer than a key: the successor of
    /// the longest key.
    pub(crate) fn delete_range(
        &mut self,
        keyspace: &Arc<KeyspaceState>,
        start: &[u8],
        end: Option<&[u8]>,
    ) {
        let end_bytes = end.map_or(0, <[u8]>::len);
        let bytes = start.len().max(end_bytes).saturating_sub(1);
        if self.admit(keyspace, bytes, 0, start.len() + end_bytes) {
            self.has_ranges = true;
            self.frame.delete_range(keyspace.id, start, end);
        }
    }

    /// Removes the keys that are put from the gaps of their keyspaces.
    pub(crate) fn close_gaps(&self) {
        if !self.has_puts
            || !self
                .keyspaces
                .iter()
                .any(|keyspace| keyspace.state.gaps.any())
        {
            return;
        }
        for entry in self.frame.entries() {
            if let LogOp::Put { key, .. } = entry.op
                && let Some(keyspace) = self
                    .keyspaces
                    .iter()
                    .find(|one| one.state.id == entry.keyspace)
            {
                keyspace.state.gaps.close(key);
            }
        }
    }

    /// Returns the first error that an operation caused.
    pub(crate) fn check(&self) -> Result<()> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// Returns whether there are deletions only. Such commits may use the reserve of a full disk.
    pub(crate) fn only_deletes(&self) -> bool {
        !self.has_puts
    }

    /// Returns whether keys or ranges are deleted.
    pub(crate) fn deletes_anything(&self) -> bool {
        self.has_deletes || self.has_ranges
    }

    /// Returns whether single keys are deleted.
    pub(crate) fn has_deletes(&self) -> bool {
        self.has_deletes
    }

    /// Returns about how many bytes the indexes will hold for these operations. Never 0 if there is
    /// one.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.keyspaces.iter().map(|named| named.index_bytes).sum()
    }

    /// Returns whether compactions of the index of one of the keyspaces owe work.
    #[inline]
    pub(crate) fn owe_compactions(&self) -> bool {
        self.keyspaces
            .iter()
            .any(|named| named.state.debt.engaged())
    }

    /// Returns whether writers to one of the keyspaces wait for compactions.
    pub(crate) fn are_stopped(&self) -> bool {
        self.keyspaces
            .iter()
            .any(|named| named.state.debt.stopped())
    }

    /// Inserts the operations into the memtables of `generation`. `pointers` are those of the
    /// separated values, in order.
    pub(crate) fn insert_into(
        &self,
        generation: &Generation,
        seqno: SeqNum,
        mut pointers: impl Iterator<Item = ValuePointer>,
    ) {
        let entries = self.frame.entries().map(|mut entry| {
            if let LogOp::Put {
                value: LogValue::Pointer(pointer),
                ..
            } = &mut entry.op
                && let Some(placed) = pointers.next()
            {
                *pointer = placed;
            }
            entry
        });
        insert_entries(generation, seqno, entries);
        if self.has_ranges {
            hide_covered(generation, seqno, self.frame.entries());
        }
    }
}

/// Inserts the operations of one commit into the memtables of `generation`. Skips operations on
/// keyspaces that the generation does not have.
pub(crate) fn insert_entries<'a>(
    generation: &Generation,
    seqno: SeqNum,
    entries: impl Iterator<Item = LogEntry<'a>>,
) {
    for entry in entries {
        let Some(mem) = generation.keyspace(entry.keyspace) else {
            continue;
        };
        match entry.op {
            LogOp::Put {
                key,
                value: LogValue::Inline(value),
            } => mem.map.insert(key, seqno, EntryRef::Inline(value)),
            LogOp::Put {
                key,
                value: LogValue::Pointer(pointer),
            } => mem.map.insert(key, seqno, EntryRef::Pointer(pointer)),
            LogOp::Delete { key } => {
                mem.map.insert(key, seqno, EntryRef::Tombstone);
                mem.deletes.fetch_add(1, Ordering::Relaxed);
            }
            LogOp::DeleteRange { start, end } => mem.ranges.insert(tombstone(start, end, seqno)),
        }
    }
}

fn tombstone(start: &[u8], end: Option<&[u8]>, seqno: SeqNum) -> RangeTombstone {
    RangeTombstone {
        start: Bytes::copy_from_slice(start),
        end: end.map(Bytes::copy_from_slice),
        seqno,
    }
}

/// Inserts a tombstone for each key whose last put in this commit comes before a range deletion of
/// the same commit that covers it. The range tombstone itself hides only older commits.
pub(crate) fn hide_covered<'a>(
    generation: &Generation,
    seqno: SeqNum,
    entries: impl Iterator<Item = LogEntry<'a>>,
) {
    let mut last_put: HashMap<(KeyspaceId, &[u8]), SeqNum> = HashMap::new();
    // The position of an operation in the commit takes the place of a sequence number.
    let mut ranges: HashMap<KeyspaceId, RangeSet> = HashMap::new();
    for (position, entry) in (1..).map(SeqNum).zip(entries) {
        match entry.op {
            LogOp::Put { key, .. } => drop(last_put.insert((entry.keyspace, key), position)),
            LogOp::Delete { .. } => {}
            LogOp::DeleteRange { start, end } => ranges
                .entry(entry.keyspace)
                .or_insert_with(|| RangeSet::new(None))
                .insert(tombstone(start, end, position)),
        }
    }
    for ((keyspace, key), put_at) in last_put {
        let covering = |ranges: &RangeSet| ranges.newest_covering(key, SeqNum::MAX, put_at);
        let hidden = ranges.get(&keyspace).and_then(covering).is_some();
        if let Some(mem) = generation.keyspace(keyspace).filter(|_| hidden) {
            mem.map.insert(key, seqno, EntryRef::Tombstone);
        }
    }
}
