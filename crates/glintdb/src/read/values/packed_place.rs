//! Where a value stands, in one word of a table that finds it by a hash: a tag of the hash above [`TAG_SHIFT`], a bit that the table may use, the low bits of the segment's number, the offset.
//!
//! What lacks of the segment's number the table knows otherwise, or guesses: a place may be another one, and whoever looks there must be able to tell.

use glintdb_cache::ValuePlace;
use glintdb_core::{SegmentId, ValuePointer};

/// Bits of the tag's place.
pub(crate) const TAG_SHIFT: u32 = 53;
/// The bit between tag and segment.
pub(crate) const FLAG: u64 = 1 << 52;
/// Low bits of a segment's number.
pub(crate) const SEGMENT_BITS: u32 = 20;
const SEGMENT_MASK: u64 = (1 << SEGMENT_BITS) - 1;

/// Never 0.
pub(crate) fn tag(hash: u64) -> u64 {
    (hash >> TAG_SHIFT).max(1)
}

/// Never 0, and its tag neither; without the flag.
pub(crate) fn word(hash: u64, pointer: &ValuePointer) -> u64 {
    tag(hash) << TAG_SHIFT | (pointer.segment.0 & SEGMENT_MASK) << 32 | u64::from(pointer.offset)
}

/// Where the value of `word` stands, or seems to; `segments`: what lacks of the segment's number.
pub(crate) fn place(word: u64, segments: u64) -> ValuePlace {
    let segment = segments << SEGMENT_BITS | (word >> 32 & SEGMENT_MASK);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is the offset"
    )]
    let offset = word as u32;
    ValuePlace(SegmentId(segment), offset)
}
