//! The header of a frame (`docs/format/log.md`, "Frame header").

use super::pad8;
use super::segment::SegmentKind;
use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::Reader;
use glintdb_core::{SeqNum, planted};

/// First four bytes of every frame; the last names the version.
pub const FRAME_MAGIC: [u8; 4] = *b"GLF\x01";
/// Size of a frame header.
pub const FRAME_HEADER_BYTES: usize = 40;
/// Size of a seal frame, which closes a segment and names the next.
pub const SEAL_FRAME_BYTES: usize = FRAME_HEADER_BYTES + 8;
/// Size of a mark frame, which only carries a durable position.
pub const MARK_FRAME_BYTES: usize = FRAME_HEADER_BYTES;
/// Size of the frame without entries that ends a values segment.
pub const VALUES_END_BYTES: usize = FRAME_HEADER_BYTES;
/// Room that every segment of the stream keeps behind its last commit: a mark and a seal.
pub const TRAILER_BYTES: usize = SEAL_FRAME_BYTES + MARK_FRAME_BYTES;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// One committed batch.
    Commit,
    /// The segment ends here; the metadata is the next segment's id.
    Seal,
    /// Nothing but a durable position: written at a clean close.
    Mark,
    /// Values moved by value GC, in values segments only; never replayed. One without entries ends its segment.
    Relocation,
}

impl FrameKind {
    /// Its byte on the medium.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            FrameKind::Commit => 1,
            FrameKind::Seal => 2,
            FrameKind::Mark => 3,
            FrameKind::Relocation => 4,
        }
    }

    /// Its name in dumps.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FrameKind::Commit => "commit",
            FrameKind::Seal => "seal",
            FrameKind::Mark => "mark",
            FrameKind::Relocation => "relocation",
        }
    }

    /// Whether its metadata section is entries.
    #[must_use]
    pub fn has_entries(self) -> bool {
        matches!(self, FrameKind::Commit | FrameKind::Relocation)
    }

    /// Whether such frames stand in segments of kind `segment`.
    #[must_use]
    pub fn belongs_in(self, segment: SegmentKind) -> bool {
        (self == FrameKind::Relocation) == (segment == SegmentKind::Values)
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(FrameKind::Commit),
            2 => Some(FrameKind::Seal),
            3 => Some(FrameKind::Mark),
            4 => Some(FrameKind::Relocation),
            _ => None,
        }
    }
}

/// The place that the checksum of a frame at `offset` covers.
fn bound_to(offset: u32) -> u64 {
    planted!(
        "log: a frame's checksum is not bound to its place",
        u64::from(offset),
        0
    )
}

/// Header of a frame. Its checksum covers every other byte of it, seeded with database, segment and offset, so that a frame is valid in one place only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// What it is.
    pub kind: FrameKind,
    /// Sequence number of the batch; 0 where there is none.
    pub seqno: SeqNum,
    /// Every stream byte before this position was durable when the frame was encoded.
    pub durable_position: u64,
    /// Length of the metadata section (entries without separated values), without padding.
    pub meta_bytes: u32,
    /// Length of the values section, without padding.
    pub values_bytes: u32,
    /// Entries in the metadata section.
    pub entry_count: u32,
    /// CRC-32C of the metadata section.
    pub meta_checksum: u32,
}

impl FrameHeader {
    /// The frame that ends a values segment.
    pub(crate) const VALUES_END: FrameHeader = FrameHeader {
        kind: FrameKind::Relocation,
        seqno: SeqNum::ZERO,
        durable_position: 0,
        meta_bytes: 0,
        values_bytes: 0,
        entry_count: 0,
        meta_checksum: 0,
    };

    /// Whether nothing behind the frame belongs to its segment.
    pub(crate) fn ends_segment(&self) -> bool {
        match self.kind {
            FrameKind::Seal => true,
            FrameKind::Relocation => self.entry_count == 0,
            FrameKind::Commit | FrameKind::Mark => false,
        }
    }

    /// Bytes the frame takes, header and padding included.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES + pad8(self.meta_bytes as usize) + pad8(self.values_bytes as usize))
            as u64
    }

    /// Offset of the values section from the frame's start.
    #[must_use]
    pub fn values_offset(&self) -> u64 {
        (FRAME_HEADER_BYTES + pad8(self.meta_bytes as usize)) as u64
    }

    /// Encoded form for `offset` of the file that `seed` belongs to.
    #[must_use]
    pub fn encode(&self, seed: FileSeed, offset: u32) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        let seqno_and_kind = self.seqno.0 | u64::from(self.kind.code()) << 56;
        out[0..4].copy_from_slice(&FRAME_MAGIC);
        out[8..16].copy_from_slice(&seqno_and_kind.to_le_bytes());
        out[16..24].copy_from_slice(&self.durable_position.to_le_bytes());
        out[24..28].copy_from_slice(&self.meta_bytes.to_le_bytes());
        out[28..32].copy_from_slice(&self.values_bytes.to_le_bytes());
        out[32..36].copy_from_slice(&self.entry_count.to_le_bytes());
        out[36..40].copy_from_slice(&self.meta_checksum.to_le_bytes());
        let checksum = seed.checksum(bound_to(offset), &out[8..]);
        out[4..8].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header at the front of `bytes`, which stand at `offset` of the file that `seed` belongs to; `None` where there is no valid one.
    #[must_use]
    pub fn decode(seed: FileSeed, offset: u32, bytes: &[u8]) -> Option<FrameHeader> {
        let mut reader = Reader::new(bytes.get(..FRAME_HEADER_BYTES)?);
        if reader.array::<4>()? != FRAME_MAGIC {
            return None;
        }
        let stored = reader.u32()?;
        if seed.checksum(bound_to(offset), reader.rest()) != stored {
            return None;
        }
        let seqno_and_kind = reader.u64()?;
        Some(FrameHeader {
            kind: FrameKind::from_code((seqno_and_kind >> 56) as u8)?,
            seqno: SeqNum(seqno_and_kind & SeqNum::MAX.0),
            durable_position: reader.u64()?,
            meta_bytes: reader.u32()?,
            values_bytes: reader.u32()?,
            entry_count: reader.u32()?,
            meta_checksum: reader.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::{DbId, SegmentId};

    #[test]
    fn header_is_valid_in_one_place_only_and_every_flipped_bit_is_found() {
        let seed = FileSeed::new(DbId([1; 16]), SegmentId(3).file());
        let header = FrameHeader {
            kind: FrameKind::Commit,
            seqno: SeqNum(77),
            durable_position: 4096,
            meta_bytes: 33,
            values_bytes: 1001,
            entry_count: 2,
            meta_checksum: 5,
        };
        assert_eq!(header.frame_bytes(), 40 + 40 + 1008);
        let bytes = header.encode(seed, 4096);
        assert_eq!(FrameHeader::decode(seed, 4096, &bytes), Some(header));
        assert_eq!(FrameHeader::decode(seed, 4104, &bytes), None);
        for (db, id) in [(2, 3), (1, 4)] {
            let other = FileSeed::new(DbId([db; 16]), SegmentId(id).file());
            assert_eq!(FrameHeader::decode(other, 4096, &bytes), None);
        }
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(seed, 4096, &bad), None, "bit {bit}");
        }
    }
}
