//! Bytes in shared blocks: copies share every block until one of them writes to it, so that an image of a small database costs microseconds.
//!
//! Invariants: 1. a block that is missing is zero. 2. Bytes of the last block beyond the length are zero. 3. A block's hash is that of its bytes, or not known yet.

use super::SECTOR_BYTES;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const BLOCK_BYTES: usize = 4096;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES));

/// 512 bytes that live or die together.
pub(super) type Sector = [u8; SECTOR_BYTES];

struct Block {
    bytes: [u8; BLOCK_BYTES],
    hash: OnceLock<u64>,
}

impl Clone for Block {
    /// For a writer: the hash of what will be there is not known.
    fn clone(&self) -> Self {
        Block {
            bytes: self.bytes,
            hash: OnceLock::new(),
        }
    }
}

/// See the module's page.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    blocks: Vec<Option<Arc<Block>>>,
    length: usize,
}

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Cuts, or extends with zeros.
    pub(super) fn resize(&mut self, length: usize) {
        self.blocks.resize(length.div_ceil(BLOCK_BYTES), None);
        let end_in_block = length % BLOCK_BYTES;
        if length < self.length
            && end_in_block != 0
            && let Some(Some(block)) = self.blocks.last_mut()
        {
            writable(block)[end_in_block..].fill(0);
        }
        self.length = length;
    }

    /// Fills `out` from `offset` on; zeros beyond the end.
    pub(super) fn read_into(&self, offset: usize, out: &mut [u8]) {
        for (block, at, range) in pieces(offset, out.len()) {
            let out = &mut out[range];
            match self.blocks.get(block) {
                Some(Some(block)) => out.copy_from_slice(&block.bytes[at..at + out.len()]),
                _ => out.fill(0),
            }
        }
    }

    /// `length` bytes from `offset` on, fewer where they end.
    pub(super) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let from = offset.min(self.length);
        let mut out = vec![0; length.min(self.length - from)];
        self.read_into(from, &mut out);
        out
    }

    /// Writes within the length.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        for (block, at, range) in pieces(offset, bytes.len()) {
            let bytes = &bytes[range];
            match &mut self.blocks[block] {
                Some(block) => writable(block)[at..at + bytes.len()].copy_from_slice(bytes),
                None if is_zero(bytes) => {}
                missing => {
                    let mut fresh = [0; BLOCK_BYTES];
                    fresh[at..at + bytes.len()].copy_from_slice(bytes);
                    *missing = Some(Arc::new(Block {
                        bytes: fresh,
                        hash: OnceLock::new(),
                    }));
                }
            }
        }
    }

    /// Sector `index`, zeros beyond the end.
    pub(super) fn sector(&self, index: usize) -> Sector {
        let mut sector = [0; SECTOR_BYTES];
        self.read_into(index * SECTOR_BYTES, &mut sector);
        sector
    }

    /// Writes a sector as far as the length reaches.
    pub(super) fn put_sector(&mut self, index: usize, sector: &Sector) {
        let from = (index * SECTOR_BYTES).min(self.length);
        let to = (from + SECTOR_BYTES).min(self.length);
        self.write(from, &sector[..to - from]);
    }

    /// Hash of length and contents; a block that is zero counts like one that is missing.
    pub(super) fn hash(&self) -> u64 {
        let mut hash = self.length as u64;
        for (index, block) in self.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            let of_block = *block.hash.get_or_init(|| {
                if is_zero(&block.bytes) {
                    0
                } else {
                    xxh3_64(&block.bytes)
                }
            });
            if of_block != 0 {
                let mut item = [0; 16];
                item[..8].copy_from_slice(&of_block.to_le_bytes());
                item[8..].copy_from_slice(&(index as u64).to_le_bytes());
                hash = xxh3_64_with_seed(&item, hash);
            }
        }
        hash
    }
}

/// Whether at most a block's bytes are all zero.
fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    bytes == &ZEROS[..bytes.len()]
}

/// The block's bytes, its own from here on.
fn writable(block: &mut Arc<Block>) -> &mut [u8; BLOCK_BYTES] {
    let block = Arc::make_mut(block);
    block.hash.take();
    &mut block.bytes
}

/// The pieces of `length` bytes from `offset` on: block, place in it, and which bytes.
fn pieces(
    offset: usize,
    length: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let (block, at) = ((offset + done) / BLOCK_BYTES, (offset + done) % BLOCK_BYTES);
        let range = done..length.min(done + BLOCK_BYTES - at);
        done = range.end;
        Some((block, at, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_blocks_and_do_not_see_each_others_writes() {
        let mut one = Blocks::default();
        one.resize(10_000);
        one.write(4000, &[7; 300]);
        let mut two = one.clone();
        assert_eq!(one.hash(), two.hash());
        two.write(4095, &[8, 9]);
        assert_eq!(one.read(4094, 4), [7; 4]);
        assert_eq!(two.read(4094, 4), [7, 8, 9, 7]);
        assert_ne!(one.hash(), two.hash());
        two.write(4095, &[7, 7]);
        assert_eq!(one.hash(), two.hash());
    }

    #[test]
    fn what_was_cut_off_reads_as_zeros_when_it_grows_again() {
        let mut blocks = Blocks::default();
        blocks.resize(9000);
        blocks.write(0, &[1; 9000]);
        blocks.resize(5000);
        blocks.resize(9000);
        assert_eq!(blocks.read(4999, 3), [1, 0, 0]);
        assert_eq!(blocks.read(8999, 100), [0]);
        let mut zeros = Blocks::default();
        zeros.resize(9000);
        blocks.write(0, &[0; 5000]);
        assert_eq!(blocks.hash(), zeros.hash());
    }
}
