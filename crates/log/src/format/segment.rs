//! The header block of a segment file (`docs/format/log.md`, "Segment header").

use super::BLOCK_BYTES;
use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::Reader;
use glintdb_core::{DbId, Error, ErrorKind, Result, SegmentId};

/// First eight bytes of every segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"GLINTLOG";
/// Format version written and understood.
pub const SEGMENT_VERSION: u32 = 1;
/// Bytes of the header that mean something; the rest of the block is zero.
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// No segment begins at or behind this position: whatever is added to one before it still fits.
const BASES_END: u64 = 1 << 63;

/// What a segment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// A piece of the stream, its frames went through the ring.
    Stream,
    /// One frame that is too large for the ring, written straight to the file.
    Large,
    /// Values moved by value GC: written whole before anything names it, no part of the stream, never replayed.
    Values,
}

impl SegmentKind {
    /// Its name in dumps.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SegmentKind::Stream => "stream",
            SegmentKind::Large => "large",
            SegmentKind::Values => "values",
        }
    }

    fn code(self) -> u32 {
        match self {
            SegmentKind::Stream => 1,
            SegmentKind::Large => 2,
            SegmentKind::Values => 3,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(SegmentKind::Stream),
            2 => Some(SegmentKind::Large),
            3 => Some(SegmentKind::Values),
            _ => None,
        }
    }
}

/// Header of a segment, immutable; in the stream durable before the segment takes its first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// What it is for.
    pub kind: SegmentKind,
    /// Database it belongs to.
    pub db: DbId,
    /// Its id, also the number of its file.
    pub id: SegmentId,
    /// Stream position of the file's first byte; a multiple of 4 KiB. 0 in a values segment, which has none.
    pub base: u64,
    /// Bytes the file may take, header block included; a multiple of 4 KiB, below 4 GiB.
    pub capacity: u64,
}

impl SegmentHeader {
    /// The whole header block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_BYTES as usize);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.kind.code().to_le_bytes());
        out.extend_from_slice(&self.db.0);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(&self.capacity.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let checksum = FileSeed::new(self.db, self.id.file()).checksum(0, &out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.resize(BLOCK_BYTES as usize, 0);
        out
    }

    /// Reads a header block of the file that is named after `id`.
    ///
    /// # Errors
    /// `Corruption` and `UnsupportedFormat`, naming the file.
    pub fn decode(id: SegmentId, block: &[u8]) -> Result<SegmentHeader> {
        let file = id.file();
        let header = Self::fields(block).ok_or_else(|| {
            Error::corruption(
                file,
                0,
                "expected a segment header, found something else or less",
            )
        })?;
        let (version, kind, header, stored, computed) = header;
        if version != SEGMENT_VERSION {
            return Err(Error::new(
                ErrorKind::UnsupportedFormat,
                format!(
                    "{file} has log format version {version}, this build reads {SEGMENT_VERSION}"
                ),
            ));
        }
        if stored != computed {
            return Err(Error::corruption(
                file,
                60,
                format!("segment header checksum: expected {computed:#010x}, found {stored:#010x}"),
            ));
        }
        if header.id != id {
            return Err(Error::corruption(
                file,
                32,
                format!("segment id: expected {id}, found {}", header.id),
            ));
        }
        let sound = header.base.is_multiple_of(BLOCK_BYTES)
            && header.capacity.is_multiple_of(BLOCK_BYTES)
            && header.capacity <= u64::from(u32::MAX)
            && header.base < BASES_END;
        match (sound, SegmentKind::from_code(kind)) {
            (true, Some(kind)) => Ok(SegmentHeader { kind, ..header }),
            _ => Err(Error::corruption(
                file,
                12,
                format!(
                    "segment kind {kind}, base {}, capacity {}: out of range",
                    header.base, header.capacity
                ),
            )),
        }
    }

    /// Whether `block` is the header of an older segment of `db`: `id`, whose file it stands in, was to be written over it, and its own header was not written yet.
    pub(crate) fn is_of_older(id: SegmentId, db: DbId, block: &[u8]) -> bool {
        Self::fields(block).is_some_and(|(_, _, header, stored, computed)| {
            stored == computed && header.db == db && header.id < id
        })
    }

    /// Whether `block` is no segment's header: noise, where a power cut came while one was written for the first time (`docs/format/media.md`, F9).
    pub(crate) fn is_of_none(block: &[u8]) -> bool {
        Self::fields(block).is_none_or(|(_, _, _, stored, computed)| stored != computed)
    }

    fn fields(block: &[u8]) -> Option<(u32, u32, SegmentHeader, u32, u32)> {
        let mut reader = Reader::new(block);
        if reader.array::<8>()? != SEGMENT_MAGIC {
            return None;
        }
        let version = reader.u32()?;
        let kind = reader.u32()?;
        let db = DbId(reader.array()?);
        let id = SegmentId(reader.u64()?);
        let base = reader.u64()?;
        let capacity = reader.u64()?;
        reader.u32()?;
        let stored = reader.u32()?;
        let covered = block.get(..SEGMENT_HEADER_BYTES - 4)?;
        let computed = FileSeed::new(db, id.file()).checksum(0, covered);
        let header = SegmentHeader {
            kind: SegmentKind::Stream,
            db,
            id,
            base,
            capacity,
        };
        Some((version, kind, header, stored, computed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            kind: SegmentKind::Large,
            db: DbId([7; 16]),
            id: SegmentId(9),
            base: 1 << 20,
            capacity: 64 << 10,
        }
    }

    #[test]
    fn header_round_trips_and_every_flipped_bit_of_it_is_found() {
        let block = header().encode();
        assert_eq!(block.len(), 4096);
        assert_eq!(
            SegmentHeader::decode(SegmentId(9), &block).unwrap(),
            header()
        );
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                SegmentHeader::decode(SegmentId(9), &bad).is_err(),
                "bit {bit}"
            );
        }
        for length in 0..SEGMENT_HEADER_BYTES {
            assert!(SegmentHeader::decode(SegmentId(9), &block[..length]).is_err());
        }
    }

    /// With a checksum that is right: the segments behind it had no room for their positions.
    #[test]
    fn header_with_a_base_that_leaves_no_room_for_more_is_refused() {
        let at = |base| SegmentHeader { base, ..header() };
        for base in [1 << 63, u64::MAX - (128 << 10) + 1] {
            let error = SegmentHeader::decode(SegmentId(9), &at(base).encode()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
        let last = at((1 << 63) - 4096);
        assert_eq!(
            SegmentHeader::decode(SegmentId(9), &last.encode()).unwrap(),
            last
        );
    }

    #[test]
    fn header_of_another_file_is_refused_by_name() {
        let error = SegmentHeader::decode(SegmentId(10), &header().encode()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.place(), Some(("log-000000000000000a.glint", 32)));
        let is_of_older =
            |id, db| SegmentHeader::is_of_older(SegmentId(id), DbId([db; 16]), &header().encode());
        assert_eq!(
            [(10, 7), (9, 7), (8, 7), (10, 8)].map(|(id, db)| is_of_older(id, db)),
            [true, false, false, false]
        );
    }
}
