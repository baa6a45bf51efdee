//! Numbers that name things, each a type of its own so that one cannot stand for another.

use std::fmt;

/// Sequence number of a commit.
///
/// Width 64 bits, of which 56 are used (0 to 2^56 - 1); encoded little-endian; ordered by commit order. One number a committed *batch*: all operations of a
/// batch share it, and within a batch a later operation on the same key replaces an earlier one. 0 is "before the first commit" and never given to a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SeqNum(pub u64);

impl SeqNum {
    /// Before the first commit.
    pub const ZERO: SeqNum = SeqNum(0);
    /// Greater than every commit: reads "whatever is newest".
    pub const MAX: SeqNum = SeqNum((1 << 56) - 1);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> SeqNum {
        SeqNum(self.0 + 1)
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of a keyspace; 32 bits little-endian; never reused, also not after the keyspace is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyspaceId(pub u32);

/// Identity of a log segment: the number of its file; 64 bits little-endian; increasing; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The file that holds this segment.
    #[must_use]
    pub fn file(self) -> FileId {
        FileId {
            kind: FileKind::Log,
            number: self.0,
        }
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Random identity of a database, made when it is created; every checksum on the medium is seeded with it, so a foreign file never parses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DbId(pub [u8; 16]);

impl fmt::Display for DbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DbId({self})")
    }
}

/// What a file of a volume holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// A segment of the data log (`docs/format/log.md`).
    Log,
    /// A table of an index (`docs/format/table.md`).
    Table,
    /// Branch nodes of a B+tree index (`docs/format/tree.md`).
    Tree,
    /// A manifest (`docs/format/manifest.md`).
    Manifest,
    /// Space kept for a full disk; holds nothing (`docs/format/reserve.md`).
    Reserve,
}

impl FileKind {
    /// Every kind, in the order of the directory listing.
    pub const ALL: [FileKind; 5] = [
        FileKind::Log,
        FileKind::Table,
        FileKind::Tree,
        FileKind::Manifest,
        FileKind::Reserve,
    ];

    /// Whether files of this kind belong to an index of a keyspace.
    #[must_use]
    pub fn is_index(self) -> bool {
        matches!(self, FileKind::Table | FileKind::Tree)
    }

    /// First part of the file's name.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::Table => "table",
            FileKind::Tree => "tree",
            FileKind::Manifest => "manifest",
            FileKind::Reserve => "reserve",
        }
    }
}

/// Name of a file of a volume: its kind and a number that is never reused. Written `table-000000000000002a.glint`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// What it holds.
    pub kind: FileKind,
    /// Number from the database's [`FileNumbers`].
    pub number: u64,
}

impl FileId {
    /// Names a file.
    #[must_use]
    pub fn new(kind: FileKind, number: u64) -> Self {
        FileId { kind, number }
    }

    /// Reads a name as [`Display`](fmt::Display) writes it; `None` for a name that is not one of ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<FileId> {
        let (prefix, digits) = name.strip_suffix(".glint")?.split_once('-')?;
        let kind = FileKind::ALL
            .into_iter()
            .find(|kind| kind.prefix() == prefix)?;
        if digits.len() != 16
            || digits
                .bytes()
                .any(|b| !b.is_ascii_digit() && !(b'a'..=b'f').contains(&b))
        {
            return None;
        }
        u64::from_str_radix(digits, 16)
            .ok()
            .map(|number| FileId { kind, number })
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}.glint", self.kind.prefix(), self.number)
    }
}

/// Gives out file numbers that were never used before, also not before a crash (the engine makes a high-water mark durable in the manifest before it hands
/// out a number). Thread-safe.
pub trait FileNumbers: Send + Sync {
    /// The next number.
    ///
    /// # Errors
    /// Where the high-water mark could not be made durable.
    fn next(&self) -> crate::Result<u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_round_trips_and_foreign_names_are_refused() {
        for kind in FileKind::ALL {
            let id = FileId::new(kind, 0x2a);
            assert_eq!(FileId::parse(&id.to_string()), Some(id));
        }
        assert_eq!(
            FileId::new(FileKind::Table, 0x2a).to_string(),
            "table-000000000000002a.glint"
        );
        for name in [
            "LOCK",
            "table-2a.glint",
            "table-000000000000002A.glint",
            "tables-000000000000002a.glint",
            "table-000000000000002a.tmp",
        ] {
            assert_eq!(FileId::parse(name), None, "{name}");
        }
    }
}
