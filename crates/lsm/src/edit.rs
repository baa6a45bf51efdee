//! Edits: what the manifest records of a change of an LSM index. Relative (tables added, tables taken away), so that a flush and several compactions on
//! disjoint inputs can be in flight at once and commit in any order.
//!
//! Encoding: nothing at all for "no change"; else a version byte (1), then operations to the end, each a tag byte (1 add, 2 remove), the level (u8), the run
//! (varint; 0 below level 0), then for *add* the table's [`TableMeta`], for *remove* the table's file number (varint). A table that moves is removed from
//! one place and added at another.
//!
//! Thread-safe: plain values.

use glintdb_core::codec::{Reader, put_varint};
use glintdb_core::{Error, FileId, Result};
use glintdb_runs::table::TableMeta;
use std::collections::HashSet;

/// Number of levels, level 0 included. With the default ratio and base size the last one holds 512 MiB x 10^5.
pub(crate) const LEVELS: usize = 7;

/// Where a table stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Place {
    /// Level, 0 to [`LEVELS`] - 1.
    pub(crate) level: u8,
    /// At level 0 the run it belongs to: greater is newer. 0 at the other levels.
    pub(crate) run: u64,
}

impl Place {
    /// Place at a level below level 0.
    pub(crate) fn level(level: u8) -> Place {
        Place { level, run: 0 }
    }

    /// Place in a run of level 0.
    pub(crate) fn run(run: u64) -> Place {
        Place { level: 0, run }
    }

    /// Whether there is such a level, and the place names a run at level 0 only.
    fn is_sound(self) -> bool {
        usize::from(self.level) < LEVELS && (self.level == 0 || self.run == 0)
    }
}

/// One step of an edit.
#[allow(
    clippy::large_enum_variant,
    reason = "edits are short lists that live for a moment"
)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EditOp {
    /// A table comes.
    Add(Place, TableMeta),
    /// The table with this file number goes.
    Remove(Place, u64),
}

/// A change of the set of tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Edit {
    /// In order: removals come before additions of the same table.
    pub(crate) ops: Vec<EditOp>,
}

const VERSION: u8 = 1;
const TAG_ADD: u8 = 1;
const TAG_REMOVE: u8 = 2;

impl Edit {
    /// The encoded form. Empty if there are no operations.
    ///
    /// # Panics
    /// If a place or a table's record is one that [`decode`](Self::decode) refuses.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.ops.is_empty() {
            return out;
        }
        out.push(VERSION);
        for op in &self.ops {
            match op {
                EditOp::Add(place, meta) => {
                    assert!(meta.is_sound(), "unsound record {meta:?}");
                    put_place(&mut out, TAG_ADD, *place);
                    meta.encode(&mut out);
                }
                EditOp::Remove(place, number) => {
                    put_place(&mut out, TAG_REMOVE, *place);
                    put_varint(&mut out, *number);
                }
            }
        }
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
            Some(VERSION) => {}
            Some(version) => {
                return Err(Error::new(
                    glintdb_core::ErrorKind::UnsupportedFormat,
                    format!("edit of an LSM index, version {version}: this build knows {VERSION}"),
                ));
            }
        }
        while !reader.is_empty() {
            let offset = bytes.len() - reader.rest().len();
            edit.ops.push(decode_op(&mut reader).ok_or_else(|| {
                Error::corruption(
                    "edit of an LSM index",
                    offset as u64,
                    "expected an operation, found other bytes",
                )
            })?);
        }
        Ok(edit)
    }

    /// Numbers of the tables that are taken from where they stand.
    pub(crate) fn removed(&self) -> impl Iterator<Item = u64> {
        self.ops.iter().filter_map(|op| match op {
            EditOp::Remove(_, number) => Some(*number),
            EditOp::Add(..) => None,
        })
    }

    /// Runs of level 0 that tables are added to.
    pub(crate) fn runs(&self) -> impl Iterator<Item = u64> {
        self.ops.iter().filter_map(|op| match op {
            EditOp::Add(place, _) if place.level == 0 => Some(place.run),
            _ => None,
        })
    }

    /// Files that the edit brings: added, and not only moved.
    pub(crate) fn new_files(&self) -> impl Iterator<Item = FileId> {
        let removed: HashSet<u64> = self.removed().collect();
        self.ops.iter().filter_map(move |op| match op {
            EditOp::Add(_, meta) if !removed.contains(&meta.id.number) => Some(meta.id),
            _ => None,
        })
    }
}

fn put_place(out: &mut Vec<u8>, tag: u8, place: Place) {
    assert!(place.is_sound(), "no such place: {place:?}");
    out.push(tag);
    out.push(place.level);
    put_varint(out, place.run);
}

fn decode_op(reader: &mut Reader<'_>) -> Option<EditOp> {
    let tag = reader.u8()?;
    let place = Place {
        level: reader.u8()?,
        run: reader.varint()?,
    };
    if !place.is_sound() {
        return None;
    }
    match tag {
        TAG_ADD => Some(EditOp::Add(place, TableMeta::decode(reader)?)),
        TAG_REMOVE => Some(EditOp::Remove(place, reader.varint()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use glintdb_core::{FileKind, SeqNum};

    fn edit() -> Edit {
        let meta = TableMeta {
            id: FileId::new(FileKind::Table, 42),
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
        };
        Edit {
            ops: vec![
                EditOp::Remove(Place::run(3), 41),
                EditOp::Add(Place::level(6), meta),
            ],
        }
    }

    #[test]
    fn edit_round_trips() {
        let edit = edit();
        let encoded = edit.encode();
        assert_eq!(Edit::decode(&encoded).unwrap(), edit);
        assert!(Edit::default().encode().is_empty());
        assert_eq!(Edit::decode(&[]).unwrap(), Edit::default());
    }

    #[test]
    fn spoilt_edits_are_errors() {
        let edit = edit();
        let encoded = edit.encode();
        let whole_ops = {
            let mut one = edit.clone();
            one.ops.pop();
            one.encode().len()
        };
        for cut in 1..encoded.len() {
            let decoded = Edit::decode(&encoded[..cut]);
            assert_eq!(decoded.is_ok(), cut == 1 || cut == whole_ops, "{cut}");
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
