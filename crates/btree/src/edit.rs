//! Edits: what the manifest records of a change of a B+tree index.
//!
//! Operations on runs are relative, so a flush may commit beside a settling. Operations on the tree
//! come from one job at a time, and so do merges of runs.
//!
//! Encoding: nothing at all for "no change"; else a version byte (64), then operations to the end,
//! each a tag byte and its fields (`docs/format/tree.md`). Numbers are varints.
//!
//! Thread-safe: plain values.

use crate::node::Child;
use bytes::Bytes;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::key::KEY_BYTES_MAX;
use glintdb_core::{Error, ErrorKind, FileId, FileKind, Result};
use glintdb_runs::table::TableMeta;

/// Most levels of branches. With two children a branch at least, there are never more.
pub(crate) const LEVELS_MAX: u8 = 48;

/// The root of a tree, and the counts of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) node: Child,
    /// Level of the root: 0 if it is a leaf.
    pub(crate) level: u8,
    /// Entries of all leaves, tombstones included.
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// Bytes of the values in the log that the entries point to.
    pub(crate) pointed_bytes: u64,
}

/// What of a file the tree still needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Live {
    /// Number of nodes.
    pub(crate) nodes: u64,
    /// Bytes of the nodes.
    pub(crate) bytes: u64,
}

/// One step of an edit.
#[allow(
    clippy::large_enum_variant,
    reason = "edits are short lists that live for a moment"
)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EditOp {
    /// A table comes to a run of the shelf.
    AddTable { run: u64, meta: TableMeta },
    /// A table leaves a run of the shelf.
    RemoveTable { run: u64, number: u64 },
    /// Of the runs up to `run`, everything below `key` is in the tree.
    Clip { run: u64, key: Bytes },
    /// The tree has another root, or none.
    Root(Option<Root>),
    /// A table of leaves comes to the tree.
    AddLeaves { meta: TableMeta, live: Live },
    /// A file of branches comes to the tree.
    AddBranches { number: u64, bytes: u64, live: Live },
    /// The tree needs less of a file than before.
    Shrink { file: FileId, live: Live },
    /// The tree needs nothing of a file any more.
    RemoveFile { file: FileId },
    /// A run of the shelf is of this tier.
    Tier { run: u64, tier: u8 },
    /// The runs of the shelf are numbered from 1 on, the oldest first.
    Renumber,
}

/// A change of a B+tree index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) ops: Vec<EditOp>,
}

/// First byte of the edits of a B+tree index.
pub const EDIT_VERSION: u8 = 64;

impl Live {
    fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.nodes);
        put_varint(out, self.bytes);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Live> {
        Some(Live {
            nodes: reader.varint()?,
            bytes: reader.varint()?,
        })
    }
}

impl Root {
    fn encode(&self, out: &mut Vec<u8>) {
        self.node.encode(out);
        out.push(self.level);
        for field in [self.entries, self.tombstones, self.pointed_bytes] {
            put_varint(out, field);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Root> {
        let root = Root {
            node: Child::decode(reader)?,
            level: reader.u8()?,
            entries: reader.varint()?,
            tombstones: reader.varint()?,
            pointed_bytes: reader.varint()?,
        };
        let sound = root.level <= LEVELS_MAX && root.tombstones <= root.entries;
        sound.then_some(root)
    }
}

fn put_file(out: &mut Vec<u8>, file: FileId) {
    out.push(u8::from(file.kind == FileKind::Tree));
    put_varint(out, file.number);
}

fn file(reader: &mut Reader<'_>) -> Option<FileId> {
    let kind = match reader.u8()? {
        0 => FileKind::Table,
        1 => FileKind::Tree,
        _ => return None,
    };
    Some(FileId::new(kind, reader.varint()?))
}

impl EditOp {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            EditOp::AddTable { run, meta } => {
                assert!(meta.is_sound(), "unsound record {meta:?}");
                out.push(1);
                put_varint(out, *run);
                meta.encode(out);
            }
            EditOp::RemoveTable { run, number } => {
                out.push(2);
                put_varint(out, *run);
                put_varint(out, *number);
            }
            EditOp::Clip { run, key } => {
                out.push(3);
                put_varint(out, *run);
                put_bytes(out, key);
            }
            EditOp::Root(None) => out.push(4),
            EditOp::Root(Some(root)) => {
                out.push(5);
                root.encode(out);
            }
            EditOp::AddLeaves { meta, live } => {
                assert!(meta.is_sound(), "unsound record {meta:?}");
                out.push(6);
                live.encode(out);
                meta.encode(out);
            }
            EditOp::AddBranches {
                number,
                bytes,
                live,
            } => {
                out.push(7);
                put_varint(out, *number);
                put_varint(out, *bytes);
                live.encode(out);
            }
            EditOp::Shrink { file, live } => {
                out.push(8);
                put_file(out, *file);
                live.encode(out);
            }
            EditOp::RemoveFile { file } => {
                out.push(9);
                put_file(out, *file);
            }
            EditOp::Tier { run, tier } => {
                out.push(10);
                put_varint(out, *run);
                out.push(*tier);
            }
            EditOp::Renumber => out.push(11),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<EditOp> {
        Some(match reader.u8()? {
            1 => EditOp::AddTable {
                run: reader.varint()?,
                meta: TableMeta::decode(reader)?,
            },
            2 => EditOp::RemoveTable {
                run: reader.varint()?,
                number: reader.varint()?,
            },
            3 => EditOp::Clip {
                run: reader.varint()?,
                key: Some(reader.bytes()?)
                    .filter(|key| key.len() <= KEY_BYTES_MAX)
                    .map(Bytes::copy_from_slice)?,
            },
            4 => EditOp::Root(None),
            5 => EditOp::Root(Some(Root::decode(reader)?)),
            6 => EditOp::AddLeaves {
                live: Live::decode(reader)?,
                meta: TableMeta::decode(reader)?,
            },
            7 => EditOp::AddBranches {
                number: reader.varint()?,
                bytes: reader.varint()?,
                live: Live::decode(reader)?,
            },
            8 => EditOp::Shrink {
                file: file(reader)?,
                live: Live::decode(reader)?,
            },
            9 => EditOp::RemoveFile {
                file: file(reader)?,
            },
            10 => EditOp::Tier {
                run: reader.varint()?,
                tier: reader.u8()?,
            },
            11 => EditOp::Renumber,
            _ => return None,
        })
    }
}

impl Edit {
    /// The encoded form. Empty if there are no operations.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.ops.is_empty() {
            out.push(EDIT_VERSION);
        }
        self.ops.iter().for_each(|op| op.encode(&mut out));
        out
    }

    /// Reads the encoded form.
    ///
    /// # Errors
    /// `Corruption` (the offset counts from the edit's first byte), `UnsupportedFormat`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Edit> {
        let mut reader = Reader::new(bytes);
        let mut edit = Edit::default();
        match reader.u8() {
            None => return Ok(edit),
            Some(EDIT_VERSION) => {}
            Some(version) => {
                return Err(Error::new(
                    ErrorKind::UnsupportedFormat,
                    format!(
                        "edit of a B+tree index, version {version}: this build knows {EDIT_VERSION}"
                    ),
                ));
            }
        }
        while !reader.is_empty() {
            let offset = bytes.len() - reader.rest().len();
            edit.ops.push(EditOp::decode(&mut reader).ok_or_else(|| {
                Error::corruption(
                    "edit of a B+tree index",
                    offset as u64,
                    "expected an operation, found other bytes",
                )
            })?);
        }
        Ok(edit)
    }

    /// Whether the edit is of a job, and not of a flush or a relocation, which only add tables.
    pub(crate) fn is_of_job(&self) -> bool {
        let of_shelf = |op: &EditOp| matches!(op, EditOp::AddTable { .. } | EditOp::Renumber);
        !self.ops.iter().all(of_shelf)
    }

    /// Whether the edit renumbers the runs.
    pub(crate) fn renumbers(&self) -> bool {
        self.ops.contains(&EditOp::Renumber)
    }

    /// Runs that tables are added to.
    pub(crate) fn runs(&self) -> impl Iterator<Item = u64> {
        self.ops.iter().filter_map(|op| match op {
            EditOp::AddTable { run, .. } => Some(*run),
            _ => None,
        })
    }

    /// Files that the edit brings.
    pub(crate) fn new_files(&self) -> impl Iterator<Item = FileId> {
        self.ops.iter().filter_map(|op| match op {
            EditOp::AddTable { meta, .. } | EditOp::AddLeaves { meta, .. } => Some(meta.id),
            EditOp::AddBranches { number, .. } => Some(FileId::new(FileKind::Tree, *number)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::SeqNum;

    fn meta(number: u64) -> TableMeta {
        TableMeta {
            id: FileId::new(FileKind::Table, number),
            bytes: 8192,
            entries: 3,
            tombstones: 1,
            range_tombstones: 1,
            blocks: 1,
            pointed_bytes: 77,
            tail_offset: 4096,
            smallest: Bytes::from_static(b"a"),
            largest: Bytes::from_static(b"c"),
            range: (Bytes::from_static(b"a"), None),
            seqno_min: SeqNum(4),
            seqno_max: SeqNum(9),
        }
    }

    fn edit() -> Edit {
        let live = Live {
            nodes: 3,
            bytes: 12288,
        };
        let tree = FileId::new(FileKind::Tree, 9);
        let node = Child {
            number: 7,
            offset: 4096,
            length: 4096,
            checksum: 5,
        };
        let root = Root {
            node,
            level: 2,
            entries: 100,
            tombstones: 3,
            pointed_bytes: 9,
        };
        Edit {
            ops: vec![
                EditOp::RemoveTable { run: 3, number: 41 },
                EditOp::AddTable {
                    run: 4,
                    meta: meta(42),
                },
                EditOp::Clip {
                    run: 3,
                    key: Bytes::from_static(b"k"),
                },
                EditOp::Root(None),
                EditOp::Root(Some(root)),
                EditOp::AddLeaves {
                    meta: meta(43),
                    live,
                },
                EditOp::AddBranches {
                    number: 9,
                    bytes: 8192,
                    live,
                },
                EditOp::Shrink { file: tree, live },
                EditOp::RemoveFile { file: tree },
                EditOp::Tier { run: 4, tier: 2 },
                EditOp::Renumber,
            ],
        }
    }

    #[test]
    fn edits_round_trip_and_spoilt_ones_are_errors() {
        let edit = edit();
        let encoded = edit.encode();
        assert_eq!(Edit::decode(&encoded).unwrap(), edit);
        assert!(Edit::default().encode().is_empty());
        assert_eq!(Edit::decode(&[]).unwrap(), Edit::default());
        let mut whole = vec![1];
        for count in 1..=edit.ops.len() {
            let ops = edit.ops[..count].to_vec();
            whole.push(Edit { ops }.encode().len());
        }
        for cut in 1..encoded.len() {
            let decoded = Edit::decode(&encoded[..cut]);
            assert_eq!(decoded.is_ok(), whole.contains(&cut), "{cut}");
        }
        for at in 0..encoded.len() {
            for bit in 0..8 {
                let mut spoilt = encoded.clone();
                spoilt[at] ^= 1 << bit;
                if let Ok(decoded) = Edit::decode(&spoilt) {
                    assert_ne!(decoded, edit);
                }
            }
        }
    }
}
