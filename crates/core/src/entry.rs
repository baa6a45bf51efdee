//! What a key maps to: an inline value, a pointer into the data log, or a tombstone; each with the sequence number of its commit.

use crate::ids::{SegmentId, SeqNum};
use crate::key::before_end;
use bytes::Bytes;

/// Where a separated value lies in the data log. Encoded in [`ValuePointer::ENCODED_BYTES`] bytes: segment u64, offset u32, length u32, checksum u32, all
/// little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ValuePointer {
    /// Segment that holds the value.
    pub segment: SegmentId,
    /// Offset of the value's first byte in the segment's file.
    pub offset: u32,
    /// Length of the value in bytes.
    pub length: u32,
    /// CRC-32C of the value's bytes.
    pub checksum: u32,
}

impl ValuePointer {
    /// Size of the encoded form.
    pub const ENCODED_BYTES: usize = 20;

    /// Bytes between this value and `other`, where that lies behind it in the same segment.
    #[must_use]
    pub fn gap_before(&self, other: &ValuePointer) -> Option<u32> {
        let end = self.offset.saturating_add(self.length);
        let gap = other.offset.checked_sub(end);
        gap.filter(|_| self.segment == other.segment)
    }

    /// Writes the encoded form.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        out[0..8].copy_from_slice(&self.segment.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.offset.to_le_bytes());
        out[12..16].copy_from_slice(&self.length.to_le_bytes());
        out[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Reads the encoded form; `None` where `bytes` has another length.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<ValuePointer> {
        let bytes: &[u8; Self::ENCODED_BYTES] = bytes.try_into().ok()?;
        let (segment, rest) = bytes.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (checksum, _) = rest.split_first_chunk::<4>()?;
        Some(ValuePointer {
            segment: SegmentId(u64::from_le_bytes(*segment)),
            offset: u32::from_le_bytes(*offset),
            length: u32::from_le_bytes(*length),
            checksum: u32::from_le_bytes(*checksum),
        })
    }
}

/// A value as an index or memtable holds it, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryRef<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The value lies in the data log.
    Pointer(ValuePointer),
    /// The key is deleted.
    Tombstone,
}

impl EntryRef<'_> {
    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> EntryValue {
        match *self {
            EntryRef::Inline(value) => EntryValue::Inline(Bytes::copy_from_slice(value)),
            EntryRef::Pointer(pointer) => EntryValue::Pointer(pointer),
            EntryRef::Tombstone => EntryValue::Tombstone,
        }
    }
}

/// A value as an index or memtable holds it, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryValue {
    /// The value itself.
    Inline(Bytes),
    /// The value lies in the data log.
    Pointer(ValuePointer),
    /// The key is deleted.
    Tombstone,
}

impl EntryValue {
    /// Borrows it.
    #[must_use]
    pub fn as_ref(&self) -> EntryRef<'_> {
        match self {
            EntryValue::Inline(value) => EntryRef::Inline(value),
            EntryValue::Pointer(pointer) => EntryRef::Pointer(*pointer),
            EntryValue::Tombstone => EntryRef::Tombstone,
        }
    }
}

/// What an index answers for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Commit that wrote it. For a key hidden by a range tombstone: the tombstone's.
    pub seqno: SeqNum,
    /// What it wrote.
    pub value: EntryValue,
}

/// A deletion of all keys in `[start, end)` that are older than `seqno`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeTombstone {
    /// The first deleted key.
    pub start: Bytes,
    /// The first key behind the range. `None`: the range has no end.
    pub end: Option<Bytes>,
    /// The commit of the deletion.
    pub seqno: SeqNum,
}

impl RangeTombstone {
    /// Returns whether `key` is in the range.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && before_end(key, &self.end)
    }

    /// Takes away the keys that are not in `[start, end)`.
    pub fn narrow(&mut self, start: &Bytes, end: &Option<Bytes>) {
        if *start > self.start {
            self.start = start.clone();
        }
        if let Some(end) = end
            && before_end(end, &self.end)
        {
            self.end = Some(end.clone());
        }
    }
}

/// A position among disjoint range tombstones in key order that only moves forward: amortised O(1)
/// a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct TombstoneWalk {
    /// The number of tombstones that end at or before the last key.
    passed: usize,
}

impl TombstoneWalk {
    /// Returns the sequence number of the tombstone that covers `key`, which is not less than the
    /// keys of earlier calls with the same tombstones. Zero: there is none.
    #[inline]
    pub fn seqno_at(&mut self, tombstones: &[RangeTombstone], key: &[u8]) -> SeqNum {
        while let Some(tombstone) = tombstones.get(self.passed) {
            if before_end(key, &tombstone.end) {
                return match tombstone.start.as_ref() <= key {
                    true => tombstone.seqno,
                    false => SeqNum::ZERO,
                };
            }
            self.passed += 1;
        }
        SeqNum::ZERO
    }
}

/// Order in which a cursor yields keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Ascending.
    Forward,
    /// Descending.
    Reverse,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_round_trips_and_other_lengths_are_refused() {
        let pointer = ValuePointer {
            segment: SegmentId(7),
            offset: 4096,
            length: 1024,
            checksum: 0xdead_beef,
        };
        assert_eq!(ValuePointer::decode(&pointer.encode()), Some(pointer));
        assert_eq!(ValuePointer::decode(&pointer.encode()[..19]), None);
    }

    #[test]
    fn a_range_tombstone_excludes_its_end() {
        let tombstone = RangeTombstone {
            start: Bytes::from_static(b"b"),
            end: Some(Bytes::from_static(b"d")),
            seqno: SeqNum(1),
        };
        assert!(
            !tombstone.covers(b"a")
                && tombstone.covers(b"b")
                && tombstone.covers(b"c\xff")
                && !tombstone.covers(b"d")
        );
    }
}
