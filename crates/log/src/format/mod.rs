//! What the log looks like on the medium: `docs/format/log.md`. Decoders take hostile bytes: they answer `None` or an error, never panic, never allocate.

pub mod entry;
pub mod frame;
pub mod segment;

/// Segments begin with one header block, direct writes move whole blocks: 4 KiB.
pub const BLOCK_BYTES: u64 = 4096;
/// Offset of the first frame of a segment.
pub const FIRST_FRAME_OFFSET: u32 = 4096;
/// Frames and their sections begin at multiples of this.
pub const ALIGN: usize = 8;

/// `n` rounded up to a multiple of 8.
#[must_use]
pub const fn pad8(n: usize) -> usize {
    n.div_ceil(ALIGN) * ALIGN
}

/// `n` rounded up to a whole block.
#[must_use]
pub const fn block_up(n: u64) -> u64 {
    n.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// `n` rounded down to a whole block.
#[must_use]
pub const fn block_down(n: u64) -> u64 {
    n / BLOCK_BYTES * BLOCK_BYTES
}
