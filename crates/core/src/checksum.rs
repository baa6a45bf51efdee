//! CRC-32C, seeded with where the bytes belong, so that a block read from another file or another place fails its check.

use crate::ids::{DbId, FileId};
use crate::planted;

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of what `crc` covers followed by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// What so many zero bytes behind some bytes make of their checksum, as a matrix over bits: column `n` is what becomes of bit `n`.
type Zeros = [u32; 32];

fn times(zeros: &Zeros, crc: u32) -> u32 {
    let bits = zeros.iter().enumerate();
    bits.fold(0, |sum, (n, column)| sum ^ (column * (crc >> n & 1)))
}

/// The matrix of twice as many.
fn twice(zeros: &Zeros) -> Zeros {
    zeros.map(|column| times(zeros, column))
}

/// The matrix of one zero byte.
fn zero_byte() -> Zeros {
    const POLYNOMIAL_REVERSED: u32 = 0x82f6_3b78;
    let mut bit = [0; 32];
    for (n, column) in bit.iter_mut().enumerate() {
        *column = if n == 0 {
            POLYNOMIAL_REVERSED
        } else {
            1 << (n - 1)
        };
    }
    twice(&twice(&twice(&bit)))
}

/// Checksums of any ranges of some bytes, each in time that hardly grows with its length: for those who must try a great many, as in a search for the next sound record in a file
/// whose lengths cannot be trusted.
#[derive(Debug)]
pub struct RangeChecksums<'a> {
    bytes: &'a [u8],
    /// Of everything before each multiple of [`STRIDE_BYTES`](Self::STRIDE_BYTES).
    marks: Vec<u32>,
    /// Of 1, 2, 4 … zero bytes.
    zeros: Vec<Zeros>,
}

impl<'a> RangeChecksums<'a> {
    const STRIDE_BYTES: usize = 64;

    /// Reads `bytes` once.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut before = 0;
        let marks = bytes.chunks(Self::STRIDE_BYTES).map(|chunk| {
            let mark = before;
            before = crc32c_append(before, chunk);
            mark
        });
        let doubled = std::iter::successors(Some(zero_byte()), |zeros| Some(twice(zeros)));
        let length_bits = usize::BITS - bytes.len().leading_zeros();
        RangeChecksums {
            marks: marks.collect(),
            zeros: doubled.take(length_bits as usize).collect(),
            bytes,
        }
    }

    /// `crc32c_append(crc, &bytes[range])`; `None` where the range is not within the bytes.
    #[must_use]
    pub fn append(&self, crc: u32, range: std::ops::Range<usize>) -> Option<u32> {
        let length = range.end.checked_sub(range.start)?;
        if length <= 2 * Self::STRIDE_BYTES {
            return Some(crc32c_append(crc, self.bytes.get(range)?));
        }
        let (before, until) = (self.before(range.start)?, self.before(range.end)?);
        // Checksums are linear: that of the range is `until` and `before`, moved by the range's length, and what is appended to is moved likewise.
        let powers = self.zeros.iter().enumerate();
        let asked = powers.filter(|(power, _)| length >> power & 1 == 1);
        let moved = asked.fold(crc ^ before, |crc, (_, zeros)| times(zeros, crc));
        Some(moved ^ until)
    }

    fn before(&self, end: usize) -> Option<u32> {
        // The last mark, where the end itself is one that nothing follows.
        let mark = (end / Self::STRIDE_BYTES).min(self.marks.len().checked_sub(1)?);
        let rest = self.bytes.get(mark * Self::STRIDE_BYTES..end)?;
        Some(crc32c_append(*self.marks.get(mark)?, rest))
    }
}

/// Seed of every checksum of one file: CRC-32C over database id (16 bytes), file kind's name and file number (u64 little-endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSeed(u32);

impl FileSeed {
    /// The seed of `file` in database `db`.
    #[must_use]
    pub fn new(db: DbId, file: FileId) -> Self {
        let of_database = planted!(
            "core: a checksum is not bound to its database",
            crc32c(&db.0),
            0
        );
        let of_kind = crc32c_append(of_database, file.kind.prefix().as_bytes());
        FileSeed(planted!(
            "core: a checksum is not bound to its file",
            crc32c_append(of_kind, &file.number.to_le_bytes()),
            of_kind
        ))
    }

    /// Checksum of `bytes` that stand at `offset` of the file: the seed, the offset (u64 little-endian), the bytes.
    #[must_use]
    pub fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c_append(self.0, &offset.to_le_bytes()), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FileKind;

    #[test]
    fn checksum_depends_on_database_file_and_offset() {
        let file = FileId::new(FileKind::Table, 1);
        let base = FileSeed::new(DbId([1; 16]), file).checksum(0, b"x");
        assert_ne!(base, FileSeed::new(DbId([2; 16]), file).checksum(0, b"x"));
        assert_ne!(
            base,
            FileSeed::new(DbId([1; 16]), FileId::new(FileKind::Log, 1)).checksum(0, b"x")
        );
        assert_ne!(base, FileSeed::new(DbId([1; 16]), file).checksum(1, b"x"));
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn checksums_of_ranges_are_those_of_their_bytes() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * n / 7).to_le_bytes()[0]).collect();
        let checksums = RangeChecksums::new(&bytes);
        for from in (0..=1000).step_by(13) {
            for to in from..=1000 {
                let expected = crc32c_append(0xdead_beef, &bytes[from..to]);
                assert_eq!(checksums.append(0xdead_beef, from..to), Some(expected));
            }
        }
        assert_eq!(checksums.append(0, 0..1001), None);
        assert_eq!(checksums.append(0, 1001..1001), None);
        let nothing = RangeChecksums::new(&[]);
        assert_eq!(
            (nothing.append(7, 0..0), nothing.append(7, 0..1)),
            (Some(7), None)
        );
    }
}
