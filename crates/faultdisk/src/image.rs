//! The bytes of a disk. Copies share their blocks until one is written to, so that hundreds of images of a disk cost what they differ in.
//!
//! Thread safety: as any value.

use std::sync::Arc;

/// Size of the pieces that are shared.
pub(crate) const BLOCK_BYTES: usize = 4096;

pub(crate) type Block = [u8; BLOCK_BYTES];

/// The bytes of a disk; zeros where nothing was written.
#[derive(Clone)]
pub struct Image {
    blocks: Vec<Option<Arc<Block>>>,
}

impl Image {
    /// `bytes` zeros, rounded up to whole blocks of 4 KiB.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Image {
        Image {
            blocks: vec![None; bytes.div_ceil(BLOCK_BYTES)],
        }
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// What is not zeros: places and blocks.
    pub(crate) fn written(&self) -> impl Iterator<Item = (usize, &Block)> {
        let blocks = self.blocks.iter().enumerate();
        blocks.filter_map(|(at, block)| Some((at * BLOCK_BYTES, &**block.as_ref()?)))
    }

    /// Fills `out` from `offset` on; what is behind the end reads as zeros.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        pieces(offset, out.len(), |block, within, at| {
            let out = &mut out[at..at + within.len()];
            match self.blocks.get(block) {
                Some(Some(bytes)) => out.copy_from_slice(&bytes[within]),
                _ => out.fill(0),
            }
        });
    }

    /// Writes `bytes` at `offset`; what is behind the end is lost.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        pieces(offset, bytes.len(), |block, within, at| {
            let bytes = &bytes[at..at + within.len()];
            let Some(slot) = self.blocks.get_mut(block) else {
                return;
            };
            let whole = within.len() == BLOCK_BYTES;
            if bytes.iter().all(|&byte| byte == 0) && (whole || slot.is_none()) {
                *slot = None;
                return;
            }
            let block = slot.get_or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            Arc::make_mut(block)[within].copy_from_slice(bytes);
        });
    }
}

/// Calls `piece` with a block, the range within it, and where that stands in the whole.
fn pieces(
    offset: usize,
    length: usize,
    mut piece: impl FnMut(usize, std::ops::Range<usize>, usize),
) {
    let mut at = 0;
    while at < length {
        let start = (offset + at) % BLOCK_BYTES;
        let count = (BLOCK_BYTES - start).min(length - at);
        piece((offset + at) / BLOCK_BYTES, start..start + count, at);
        at += count;
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let written = self.blocks.iter().flatten().count();
        write!(f, "Image({} bytes, {written} blocks written)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_not_written_to_and_zeros_take_no_room() {
        let mut image = Image::zeroed(10_000);
        assert_eq!(image.bytes(), 12_288);
        image.write(4000, &[1; 200]);
        let copy = image.clone();
        image.write(4095, &[2; 2]);
        let mut out = [9; 6];
        image.read(4093, &mut out);
        assert_eq!(out, [1, 1, 2, 2, 1, 1]);
        copy.read(4093, &mut out);
        assert_eq!(out, [1; 6]);
        image.write(0, &[0; 8192]);
        assert!(image.blocks.iter().all(Option::is_none));
        image.read(12_280, &mut [1; 100]);
    }
}
