//! A batch: the records that one end of an iterator has fetched together.
//!
//! Thread safety: belongs to the iterator.

use crate::read::values::key_hash::Wanted;
use crate::read::values::value_runs::Values;
use crate::{Error, Result};
use bytes::{Bytes, BytesMut};
use glintdb_core::{EntryRef, KeyspaceId, planted};
use std::ops::Range;

/// Bytes that are allocated for each key. Keys may be longer.
const KEY_BYTES_TYPICAL: usize = 32;
/// Bytes of keys and values at which a batch ends, and most bytes of blocks that it keeps for them.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Number of the batch's newest blocks that are compared with the block of a value: as many as the
/// runs of tables that may take turns.
const LENDERS_LATELY: usize = 4;

/// Records that were fetched together. One buffer has their keys, and one has the inline values
/// that had to be copied: two allocations for a batch, and not two for each entry. Other inline
/// values are lent by the blocks that hold them, until a caller takes one to keep.
#[derive(Default)]
pub(super) struct Batch {
    keys: Bytes,
    values: Bytes,
    lenders: Vec<Bytes>,
    pub(super) records: Vec<Record>,
    pub(super) fetched: Values,
    /// Number of records that were yielded.
    pub(super) yielded: usize,
}

/// The place of a record in its batch.
pub(super) struct Record {
    key: Range<usize>,
    value: Place,
}

enum Place {
    Inline(Range<usize>),
    /// In one of the blocks that lend values.
    Lent {
        lender: usize,
        range: Range<usize>,
    },
    Fetched(usize),
}

impl Batch {
    pub(super) fn is_over(&self) -> bool {
        self.yielded == self.records.len()
    }

    /// Bytes of keys and values that it has copies of. Other values are in the cache, or in blocks
    /// that are there or were.
    pub(super) fn copied_bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    pub(super) fn key(&self, at: usize) -> Option<&[u8]> {
        self.keys.get(self.records.get(at)?.key.clone())
    }

    /// The key yielded last.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.key(self.yielded.checked_sub(1)?)
    }

    /// Checks that the value of a record was read. An inline value needs no check.
    #[inline]
    pub(super) fn check(&self, at: usize) -> Result<()> {
        match self.records.get(at).map(|record| &record.value) {
            Some(Place::Inline(_) | Place::Lent { .. }) => Ok(()),
            _ => self.value(at).map(drop),
        }
    }

    #[inline]
    pub(super) fn value(&self, at: usize) -> Result<&[u8]> {
        match self.records.get(at).map(|record| &record.value) {
            Some(Place::Inline(range)) => Ok(&self.values[range.clone()]),
            Some(Place::Lent { lender, range }) => Ok(&self.lenders[*lender][range.clone()]),
            Some(Place::Fetched(index)) => match self.fetched.get(*index) {
                Some(value) => value,
                None => Err(Error::invalid("a value was not fetched")),
            },
            None => Err(Error::invalid("a record was not fetched")),
        }
    }

    /// Returns the record that was yielded last, owned, so that it does not keep a block, which may
    /// be much larger, in memory.
    pub(super) fn take(&mut self) -> (Bytes, Bytes) {
        let at = self.yielded - 1;
        if !self.lenders.is_empty() {
            self.copy_lent();
        }
        let record = &self.records[at];
        let value = match &record.value {
            Place::Lent { .. } => unreachable!("lent values were copied"),
            Place::Inline(range) => self.values.slice(range.clone()),
            Place::Fetched(index) => self.fetched.take(*index),
        };
        (self.keys.slice(record.key.clone()), value)
    }

    /// Copies all lent values, from the record that was yielded last on, and releases their blocks.
    fn copy_lent(&mut self) {
        let lenders = std::mem::take(&mut self.lenders);
        let from = self.yielded - 1;
        let rest = self.records.get_mut(from..).unwrap_or_default();
        let bytes = |record: &Record| match &record.value {
            Place::Inline(range) | Place::Lent { range, .. } => range.len(),
            Place::Fetched(_) => 0,
        };
        let mut values = BytesMut::with_capacity(rest.iter().map(bytes).sum());
        for record in rest {
            let value = match &record.value {
                Place::Inline(range) => &self.values[range.clone()],
                Place::Lent { lender, range } => &lenders[*lender][range.clone()],
                Place::Fetched(_) => continue,
            };
            let start = values.len();
            values.extend_from_slice(value);
            record.value = Place::Inline(start..values.len());
        }
        self.values = values.freeze();
    }
}

/// Returns the range of `value` in `memory`, if it is there.
fn range_in(memory: &[u8], value: &[u8]) -> Option<Range<usize>> {
    let start = (value.as_ptr().addr()).checked_sub(memory.as_ptr().addr())?;
    let end = start.checked_add(value.len())?;
    (end <= memory.len()).then_some(start..end)
}

/// A batch that is being built.
pub(super) struct Gathering {
    /// Whether inline values may be lent by their blocks.
    lends: bool,
    keyspace: KeyspaceId,
    /// Number of records that the batch should have.
    wanted: usize,
    with_values: bool,
    keys: BytesMut,
    values: BytesMut,
    lenders: Vec<Bytes>,
    lent_bytes: usize,
    records: Vec<Record>,
    /// Separated values that are to be fetched.
    separated: Vec<Wanted>,
    value_bytes: usize,
}

impl Gathering {
    pub(super) fn new(
        keyspace: KeyspaceId,
        wanted: usize,
        with_values: bool,
        lends: bool,
    ) -> Gathering {
        Gathering {
            lends,
            keyspace,
            wanted,
            with_values,
            keys: BytesMut::with_capacity(wanted * KEY_BYTES_TYPICAL),
            values: BytesMut::new(),
            lenders: Vec::new(),
            lent_bytes: 0,
            records: Vec::with_capacity(wanted),
            separated: Vec::new(),
            value_bytes: 0,
        }
    }

    /// Adds a record, whose value may be in `memory`. Returns whether there is room for another
    /// one.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], value: EntryRef<'_>, memory: Option<&Bytes>) -> bool {
        let value = match value {
            EntryRef::Inline(value) if self.with_values => self.place(value, memory),
            EntryRef::Pointer(pointer) if self.with_values => {
                if self.separated.is_empty() {
                    self.separated.reserve_exact(self.wanted);
                }
                self.value_bytes += pointer.length as usize;
                self.separated
                    .push(Wanted::scanned(self.keyspace, key, pointer));
                Place::Fetched(self.separated.len() - 1)
            }
            _ => Place::Inline(0..0),
        };
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key = start..self.keys.len();
        self.records.push(Record { key, value });
        let bytes = self.keys.len() + self.value_bytes;
        self.records.len() < self.wanted && bytes < BATCH_BYTES_MAX
    }

    /// Lends an inline value, or copies it.
    #[inline]
    fn place(&mut self, value: &[u8], memory: Option<&Bytes>) -> Place {
        self.value_bytes += value.len();
        let memory = memory.filter(|_| self.lends);
        let lent = memory.and_then(|memory| {
            let range = range_in(memory, value)?;
            Some((self.lender(memory)?, range))
        });
        match lent {
            Some((lender, range)) => Place::Lent { lender, range },
            None => self.copy(value),
        }
    }

    /// Keeps `memory` as a lender and returns its number. Returns `None` if the batch would keep
    /// too many bytes.
    #[inline]
    fn lender(&mut self, memory: &Bytes) -> Option<usize> {
        let mut lately = self.lenders.iter().rev().take(LENDERS_LATELY);
        let known = lately.position(|lender| {
            planted!(
                "glintdb: a scan takes a value out of the block before its own",
                lender.as_ptr() == memory.as_ptr(),
                true
            )
        });
        if let Some(back) = known {
            return Some(self.lenders.len() - 1 - back);
        }
        let bytes = self.lent_bytes + memory.len();
        if bytes > BATCH_BYTES_MAX {
            return None;
        }
        self.lent_bytes = bytes;
        self.lenders.push(memory.clone());
        Some(self.lenders.len() - 1)
    }

    fn copy(&mut self, value: &[u8]) -> Place {
        let start = self.values.len();
        if start > 0 && self.values.capacity() - start < value.len() {
            // Reserves about as much for each record that follows.
            let left = self.wanted - self.records.len();
            self.values
                .reserve((left * (value.len() + 8)).min(BATCH_BYTES_MAX));
        }
        self.values.extend_from_slice(value);
        Place::Inline(start..self.values.len())
    }

    /// Returns the batch, and the values that are to be fetched for it.
    pub(super) fn finish(self) -> (Batch, Vec<Wanted>) {
        let batch = Batch {
            keys: self.keys.freeze(),
            values: self.values.freeze(),
            lenders: self.lenders,
            records: self.records,
            ..Batch::default()
        };
        (batch, self.separated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a batch of values of 100 bytes, taken from each of `blocks` in turn.
    fn gathered(blocks: &[Bytes], records: usize) -> Batch {
        let mut gathering = Gathering::new(KeyspaceId(0), records, true, true);
        for n in 0..records {
            let block = &blocks[n % blocks.len()];
            let at = n / blocks.len() * 100;
            let value = EntryRef::Inline(&block[at..at + 100]);
            let more = gathering.push(&n.to_be_bytes(), value, Some(block));
            assert_eq!(more, n + 1 < records);
        }
        gathering.finish().0
    }

    fn blocks(count: u8, bytes: usize) -> Vec<Bytes> {
        let block = |n| {
            (0..bytes)
                .map(|at: usize| at.to_le_bytes()[0] ^ n)
                .collect()
        };
        (0..count).map(block).collect()
    }

    fn check(batch: &Batch, blocks: &[Bytes], records: usize) {
        for n in 0..records {
            let at = n / blocks.len() * 100;
            assert_eq!(
                batch.value(n).unwrap(),
                &blocks[n % blocks.len()][at..at + 100]
            );
            assert_eq!(batch.key(n).unwrap(), n.to_be_bytes());
        }
    }

    #[test]
    fn long_keys_end_a_batch() {
        let mut gathering = Gathering::new(KeyspaceId(0), 256, false, true);
        let key = vec![b'k'; 64 << 10];
        let pushed = (0..256).take_while(|_| gathering.push(&key, EntryRef::Inline(b""), None));
        assert_eq!(pushed.count() + 1, BATCH_BYTES_MAX / key.len());
    }

    #[test]
    fn blocks_that_take_turns_are_kept_once() {
        let blocks = blocks(u8::try_from(LENDERS_LATELY).unwrap(), 4096);
        let batch = gathered(&blocks, 100);
        assert_eq!(batch.lenders.len(), LENDERS_LATELY);
        check(&batch, &blocks, 100);
    }

    #[test]
    fn a_batch_keeps_a_bounded_number_of_blocks() {
        let blocks = blocks(200, 64 << 10);
        let mut batch = gathered(&blocks, 200);
        assert_eq!(batch.lenders.len(), BATCH_BYTES_MAX / (64 << 10));
        check(&batch, &blocks, 200);
        // A caller takes a record in the middle, after which no block is kept.
        batch.yielded = 11;
        let (key, value) = batch.take();
        assert!(key == 10_usize.to_be_bytes()[..] && value == blocks[10][..100]);
        assert!(batch.lenders.is_empty() && batch.values.len() == 190 * 100);
        batch.yielded = 200;
        assert!(batch.take().1 == blocks[199][..100]);
    }
}
