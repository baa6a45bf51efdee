//! Every write and flush of a disk in order, and what a power cut at any place of it may leave.
//!
//! Thread safety: as any value.
//!
//! Invariants: 1. what was written before a flush is there after every cut behind that flush. 2. Of what was written since the last flush, any subset of the 512-byte sectors
//! may be there, in the order in which it was written where sectors were written twice.

use crate::image::Image;
use std::sync::Arc;

/// Unit in which a disk tears.
pub const SECTOR_BYTES: usize = 512;

/// What happened to the disk.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Bytes were written.
    Write {
        /// Where.
        offset: usize,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// The disk was flushed, and said that it was.
    Flush,
}

/// A disk as it was once, and all that happened to it since.
#[derive(Clone, Debug)]
pub struct Tape {
    /// As it was.
    pub base: Image,
    /// What happened.
    pub entries: Vec<Entry>,
}

/// What of a write that no flush covers survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All.
    Whole,
    /// Nothing.
    Nothing,
    /// The sectors of which this says so; those behind its end do not.
    Sectors(Vec<bool>),
}

impl Tape {
    /// Places directly behind each flush.
    #[must_use]
    pub fn flushes(&self) -> Vec<usize> {
        let flushed =
            |(at, entry): (usize, &Entry)| matches!(entry, Entry::Flush).then_some(at + 1);
        self.entries
            .iter()
            .enumerate()
            .filter_map(flushed)
            .collect()
    }

    /// For images of cuts, from the front to the back.
    #[must_use]
    pub fn replay(&self) -> Replay<'_> {
        Replay {
            tape: self,
            durable: self.base.clone(),
            flushed: 0,
        }
    }
}

/// Walks along a tape.
pub struct Replay<'a> {
    tape: &'a Tape,
    durable: Image,
    /// Entries that `durable` has in it.
    flushed: usize,
}

impl Replay<'_> {
    /// The image that a power cut leaves when `cut` entries have happened: all that the last flush among them covers, and of each later write what `keep` says; it is asked in
    /// order, with the write's length in sectors. Cuts come in ascending order.
    ///
    /// # Panics
    /// Where they do not, or behind the end of the tape.
    pub fn cut(&mut self, cut: usize, keep: &mut dyn FnMut(usize) -> Kept) -> Image {
        let happened = &self.tape.entries[..cut];
        let last = happened
            .iter()
            .rposition(|entry| matches!(entry, Entry::Flush));
        let flushed = last.map_or(0, |last| last + 1);
        assert!(flushed >= self.flushed, "cuts in ascending order");
        for entry in &happened[self.flushed..flushed] {
            if let Entry::Write { offset, bytes } = entry {
                self.durable.write(*offset, bytes);
            }
        }
        self.flushed = flushed;
        let mut image = self.durable.clone();
        for entry in &happened[flushed..] {
            let Entry::Write { offset, bytes } = entry else {
                continue;
            };
            match keep(bytes.len().div_ceil(SECTOR_BYTES)) {
                Kept::Whole => image.write(*offset, bytes),
                Kept::Nothing => {}
                Kept::Sectors(kept) => {
                    for (number, (sector, kept)) in bytes.chunks(SECTOR_BYTES).zip(kept).enumerate()
                    {
                        if kept {
                            image.write(offset + number * SECTOR_BYTES, sector);
                        }
                    }
                }
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: usize, byte: u8, length: usize) -> Entry {
        let bytes = vec![byte; length].into();
        Entry::Write { offset, bytes }
    }

    fn byte(image: &Image, offset: usize) -> u8 {
        let mut byte = [0];
        image.read(offset, &mut byte);
        byte[0]
    }

    #[test]
    fn a_cut_keeps_what_was_flushed_and_what_it_is_told_of_the_rest() {
        let tape = Tape {
            base: Image::zeroed(1 << 16),
            entries: vec![
                write(0, 1, 512),
                write(4096, 1, 1024),
                Entry::Flush,
                write(4096, 2, 1024),
                write(0, 3, 512),
                Entry::Flush,
            ],
        };
        assert_eq!(tape.flushes(), [3, 6]);
        let seen = |cut, keep: &mut dyn FnMut(usize) -> Kept| {
            let image = tape.replay().cut(cut, keep);
            [0, 4096, 4608].map(|offset| byte(&image, offset))
        };
        assert_eq!(seen(2, &mut |_| Kept::Nothing), [0, 0, 0]);
        assert_eq!(seen(2, &mut |_| Kept::Whole), [1, 1, 1]);
        assert_eq!(seen(5, &mut |_| Kept::Nothing), [1, 1, 1]);
        let mut sectors = Vec::new();
        let torn = seen(5, &mut |count| {
            sectors.push(count);
            Kept::Sectors(vec![false, true])
        });
        assert_eq!((torn, &sectors[..]), ([1, 1, 2], &[2, 1][..]));
        assert_eq!(seen(6, &mut |_| Kept::Nothing), [3, 2, 2]);
    }
}
