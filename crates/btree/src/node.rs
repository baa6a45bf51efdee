//! Places of nodes, and how a branch names its children.
//!
//! A node is a key block. A *leaf* is a block of a table, whose entries are those of the index. A
//! *branch* is a block of a file of kind [`FileKind::Tree`]. Each of its entries is a child: the
//! key is the child's *separator*, the shortest key that is above every key of the child before it,
//! and the value is the child's place and checksum. The first child of a node begins where the node
//! begins, whatever its separator is.
//!
//! Thread-safe: plain values.

use bytes::Bytes;
use glintdb_core::codec::{Reader, put_varint};
use glintdb_core::{FileId, FileKind};
use glintdb_runs::table::{BlockHandle, WrittenBlock};

/// A node's size if nothing else is said of it: one flash page.
const PAGE_BYTES: u64 = 4096;

/// Where a node is, and the checksum that it must have. The checksum finds writes that were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    /// Number of the file.
    pub(crate) number: u64,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// Bytes stored.
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

/// A child with its separator.
pub(crate) type Separated = (Bytes, Child);

impl Child {
    /// The node that was written as this block of file `number`.
    pub(crate) fn written(number: u64, block: &WrittenBlock) -> Child {
        Child {
            number,
            offset: block.handle.offset,
            length: block.handle.length,
            checksum: block.checksum,
        }
    }

    /// The file of a node at `level`, 0 being that of the leaves.
    pub(crate) fn file(&self, level: u8) -> FileId {
        FileId::new(kind_at(level), self.number)
    }

    /// The place in the file.
    pub(crate) fn handle(&self) -> BlockHandle {
        BlockHandle {
            // Nodes are not found by their index.
            index: 0,
            offset: self.offset,
            length: self.length,
        }
    }

    /// Appends the encoded form: the file's number, the offset (in pages, doubled, if the node is a
    /// page at a multiple of its size; else in bytes, doubled, plus 1, and then the length), and
    /// the checksum (u32).
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        if self.offset.is_multiple_of(PAGE_BYTES) && u64::from(self.length) == PAGE_BYTES {
            put_varint(out, self.offset / PAGE_BYTES * 2);
        } else {
            put_varint(out, self.offset * 2 + 1);
            put_varint(out, self.length.into());
        }
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    /// Reads the encoded form from the front of `reader`.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Child> {
        let number = reader.varint()?;
        let place = reader.varint()?;
        let (offset, length) = match place % 2 {
            0 => (
                (place / 2).checked_mul(PAGE_BYTES)?,
                u32::try_from(PAGE_BYTES).ok()?,
            ),
            _ => (place / 2, reader.varint32()?),
        };
        // Behind the header, and within what file systems allow.
        if offset < PAGE_BYTES || offset > i64::MAX as u64 || length == 0 {
            return None;
        }
        Some(Child {
            number,
            offset,
            length,
            checksum: reader.u32()?,
        })
    }

    /// Decodes a whole value.
    pub(crate) fn from_value(value: &[u8]) -> Option<Child> {
        let mut reader = Reader::new(value);
        Child::decode(&mut reader).filter(|_| reader.is_empty())
    }
}

/// The kind of the files of nodes at `level`.
pub(crate) fn kind_at(level: u8) -> FileKind {
    match level {
        0 => FileKind::Table,
        _ => FileKind::Tree,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_children_round_trip_and_cut_ones_are_refused(
            number: u64, page in 1u64..1 << 40, unaligned in 0u64..4096, length in 1u32..,
            checksum: u32,
        ) {
            for (offset, length) in [(page * 4096, 4096), (page * 4096 + unaligned, length)] {
                let child = Child { number, offset, length, checksum };
                let mut encoded = Vec::new();
                child.encode(&mut encoded);
                prop_assert_eq!(Child::from_value(&encoded), Some(child));
                for cut in 0..encoded.len() {
                    prop_assert_eq!(Child::from_value(&encoded[..cut]), None);
                }
                encoded.push(0);
                prop_assert_eq!(Child::from_value(&encoded), None);
            }
        }
    }
}
