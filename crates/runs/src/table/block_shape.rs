//! How much one key block holds, by the length of its first key.
//!
//! A block stores its first key whole. If that takes more than half of the configured size, the
//! block holds that size, or a quarter of the key's, *beside* the key. Otherwise a block of 4 KiB
//! would hold one key of 4 KiB, and tables of long keys that share most of their bytes would be as
//! large as their keys. Such a block has one restart point, because others would repeat what their
//! keys do not share with the first one, and because offsets of restart points have 16 bits.

use super::format::{BLOCK_HEADER_BYTES, RESTART_BYTES, page_align};

/// Most entries of a block with one restart point: the format has a byte for the interval.
const INTERVAL_MAX: usize = 255;

/// The limits of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockShape {
    /// Most bytes of the image, before padding.
    pub(super) bytes_max: usize,
    /// Most entries.
    pub(super) entries_max: usize,
    /// Entries from one restart point to the next.
    pub(super) interval: usize,
    /// An image of fewer bytes is less than half full.
    bytes_min: usize,
}

impl BlockShape {
    /// The limits of a block whose first key has `key_bytes`.
    #[inline]
    pub(super) fn new(key_bytes: usize, block_bytes: usize, interval: usize) -> BlockShape {
        if key_bytes <= block_bytes / 2 {
            return BlockShape {
                bytes_max: block_bytes,
                entries_max: usize::from(u16::MAX),
                interval,
                bytes_min: block_bytes / 2,
            };
        }
        let (key, beside) = (
            BLOCK_HEADER_BYTES + RESTART_BYTES + key_bytes,
            block_bytes.max(key_bytes / 4),
        );
        // What is left of the last page costs nothing.
        let bytes_max = usize::try_from(page_align((key + beside) as u64));
        BlockShape {
            bytes_max: bytes_max.unwrap_or(usize::MAX),
            entries_max: INTERVAL_MAX,
            interval: INTERVAL_MAX,
            bytes_min: key + beside / 2,
        }
    }

    /// Whether a block with entries is less than half full, by bytes and by entries.
    pub(super) fn is_small(&self, used_bytes: usize, entries: usize) -> bool {
        entries > 0 && used_bytes < self.bytes_min && entries <= self.entries_max / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::format::PAGE_BYTES;

    #[test]
    fn short_keys_keep_blocks_at_their_configured_size() {
        for key_bytes in [0, 16, 2048] {
            let shape = BlockShape::new(key_bytes, 4096, 8);
            assert_eq!((shape.bytes_max, shape.interval), (4096, 8));
            assert!(shape.is_small(2047, 1) && !shape.is_small(2048, 1));
        }
    }

    #[test]
    fn long_keys_leave_room_for_others_and_fill_their_pages() {
        for (key_bytes, beside) in [(2049, 4096), (4096, 4096), (65_536, 16_384)] {
            let shape = BlockShape::new(key_bytes, 4096, 8);
            let room = shape.bytes_max - key_bytes - BLOCK_HEADER_BYTES - RESTART_BYTES;
            assert!((beside..beside + PAGE_BYTES).contains(&room), "{room}");
            assert_eq!(shape.bytes_max % PAGE_BYTES, 0);
            // One restart point, whose offset fits 16 bits.
            assert!(shape.entries_max <= shape.interval);
            assert!(shape.is_small(key_bytes + 200, 1));
            assert!(!shape.is_small(key_bytes + 200, 255));
            assert!(!shape.is_small(shape.bytes_max, 1));
        }
    }
}
