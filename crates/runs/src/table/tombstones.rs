//! The section of range tombstones: checksum u32 (of everything behind it), then for each
//! tombstone, ordered by start: start (varint length, bytes), a byte that is 1 if there is an end,
//! the end, the sequence number (varint).

use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::{RangeTombstone, SeqNum};

pub(super) fn encode(tombstones: &[RangeTombstone], seed: FileSeed, offset: u64) -> Vec<u8> {
    let mut out = vec![0; 4];
    for tombstone in tombstones {
        put_bytes(&mut out, &tombstone.start);
        out.push(u8::from(tombstone.end.is_some()));
        if let Some(end) = &tombstone.end {
            put_bytes(&mut out, end);
        }
        put_varint(&mut out, tombstone.seqno.0);
    }
    let checksum = seed.checksum(offset, &out[4..]);
    out[..4].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// Reads a section whose checksum was verified and that holds `count` tombstones. Their keys are
/// parts of one copy of the section: an allocation for each key would take more memory, and most of
/// what compactions free would stay with the allocator.
pub(super) fn decode(section: &[u8], count: u64) -> Option<Vec<RangeTombstone>> {
    let section = Bytes::copy_from_slice(section);
    let mut reader = Reader::new(&section);
    reader.u32()?;
    let mut tombstones = Vec::new();
    while !reader.is_empty() {
        tombstones.push(RangeTombstone {
            start: section.slice_ref(reader.bytes()?),
            end: match reader.u8()? {
                0 => None,
                1 => Some(section.slice_ref(reader.bytes()?)),
                _ => return None,
            },
            seqno: SeqNum(reader.varint()?),
        });
    }
    if tombstones.len() as u64 != count || !tombstones.is_sorted_by_key(|one| &one.start) {
        return None;
    }
    tombstones.shrink_to_fit();
    Some(tombstones)
}
