//! Places in the log.

use glintdb_core::SegmentId;
use std::fmt;

/// A place in the data log: a segment and a byte offset in its file.
///
/// 12 bytes encoded: segment u64, offset u32, little-endian. Ordered as the stream is: segment ids grow along it. A frame's `Lsn` is where its header begins; a
/// frame's *end* is where the next one would begin in the same segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lsn {
    /// Segment.
    pub segment: SegmentId,
    /// Offset in the segment's file, in bytes; a multiple of 8.
    pub offset: u32,
}

impl Lsn {
    /// Before everything.
    pub const ZERO: Lsn = Lsn {
        segment: SegmentId(0),
        offset: 0,
    };
    /// Size of the encoded form.
    pub const ENCODED_BYTES: usize = 12;

    /// A place.
    #[must_use]
    pub fn new(segment: SegmentId, offset: u32) -> Self {
        Lsn { segment, offset }
    }

    /// Writes the encoded form.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        out[..8].copy_from_slice(&self.segment.0.to_le_bytes());
        out[8..].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    /// Reads the encoded form; `None` where `bytes` has another length.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Lsn> {
        let (segment, rest) = bytes.split_first_chunk::<8>()?;
        let offset: &[u8; 4] = rest.try_into().ok()?;
        Some(Lsn {
            segment: SegmentId(u64::from_le_bytes(*segment)),
            offset: u32::from_le_bytes(*offset),
        })
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_segment_then_offset_and_the_encoding_round_trips() {
        let a = Lsn::new(SegmentId(1), 9000);
        let b = Lsn::new(SegmentId(2), 4096);
        assert!(Lsn::ZERO < a && a < b && b < Lsn::new(SegmentId(2), 4104));
        assert_eq!(Lsn::decode(&a.encode()), Some(a));
        assert_eq!(Lsn::decode(&a.encode()[1..]), None);
    }
}
