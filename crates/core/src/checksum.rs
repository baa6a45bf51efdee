//! CRC-32C, seeded with where the bytes belong, so that a block read from another file or another place fails its check.

use crate::ids::{DbId, FileId};

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

/// Seed of every checksum of one file: CRC-32C over database id (16 bytes), file kind's name and file number (u64 little-endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSeed(u32);

impl FileSeed {
    /// The seed of `file` in database `db`.
    #[must_use]
    pub fn new(db: DbId, file: FileId) -> Self {
        let mut seed = crc32c(&db.0);
        if crate::seeded::bug("core: a checksum is not bound to its database") {
            seed = 0;
        }
        let seed = crc32c_append(seed, file.kind.prefix().as_bytes());
        if crate::seeded::bug("core: a checksum is not bound to its file") {
            return FileSeed(seed);
        }
        FileSeed(crc32c_append(seed, &file.number.to_le_bytes()))
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
}
