//! The place of a value in one word of a hash table: a tag of the hash above [`TAG_SHIFT`], a bit
//! that the table may use, the low bits of the segment's number, and the offset.
//!
//! The high bits of the segment's number do not fit. The table knows them from elsewhere or guesses
//! them, so a place can be wrong, and the reader of the place must be able to tell.

use glintdb_cache::ValuePlace;
use glintdb_core::{SegmentId, ValuePointer};

/// Position of the tag.
pub(crate) const TAG_SHIFT: u32 = 53;
/// The bit between tag and segment.
pub(crate) const FLAG: u64 = 1 << 52;
/// Low bits of a segment's number.
pub(crate) const SEGMENT_BITS: u32 = 20;
const SEGMENT_MASK: u64 = (1 << SEGMENT_BITS) - 1;

/// Returns the tag of a hash. Never 0.
pub(crate) fn tag(hash: u64) -> u64 {
    (hash >> TAG_SHIFT).max(1)
}

/// Returns the word of a value at `pointer`, without the flag. Never 0, and its tag is not 0
/// either.
pub(crate) fn word(hash: u64, pointer: &ValuePointer) -> u64 {
    tag(hash) << TAG_SHIFT | (pointer.segment.0 & SEGMENT_MASK) << 32 | u64::from(pointer.offset)
}

/// Returns the place in `word`. `segments` has the high bits of the segment's number.
pub(crate) fn place(word: u64, segments: u64) -> ValuePlace {
    let segment = segments << SEGMENT_BITS | (word >> 32 & SEGMENT_MASK);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is the offset"
    )]
    let offset = word as u32;
    ValuePlace(SegmentId(segment), offset)
}
