//! Reads the intact entries of an index whose database cannot be opened any more.
//!
//! The root leads to the leaves that the tree needs. Leaves that it does not need have entries that
//! were deleted since, so they are looked at for the keys of lost nodes alone.
//!
//! Not thread-safe: one salvage at a time.

use crate::common::Common;
use crate::edit::Edit;
use crate::node::Child;
use crate::options::BTreeOptions;
use crate::picture::Picture;
use crate::walk::{Visitor, walk};
use glintdb_core::key::before_end;
use glintdb_core::{EntryRef, Error, ErrorKind, FileId, RangeTombstone, Result, SeqNum, planted};
use glintdb_runs::keys::KeyRange;
use glintdb_runs::table::salvage::{TableSalvage, salvage as salvage_table};
use glintdb_runs::{IndexEnv, Slot};
use std::collections::BTreeMap;

/// A function that gets an entry: the file that it is in, its key, sequence number and value.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(FileId, &[u8], SeqNum, EntryRef<'_>) -> Result<()>;

/// What a salvage of an index gave.
#[derive(Default)]
pub struct Salvaged {
    /// Number of entries that each file gave, tombstones included. Files of branches give 0.
    pub entries: BTreeMap<FileId, u64>,
    /// Range tombstones.
    pub tombstones: Vec<RangeTombstone>,
    /// Errors, each with the file that it is in. A missing file has one error.
    pub damage: Vec<(FileId, Error)>,
    /// Keys whose newest entries may be lost.
    pub lost: Vec<KeyRange>,
    /// Number of entries in lost ranges that came from leaves and runs which the tree may not need
    /// any more. They may be outdated or deleted.
    pub outdated: u64,
}

/// Gives every intact entry of an index to `visit`. `edits` are those of the manifest, in its
/// order. Only reads.
///
/// # Errors
/// `Corruption` or `UnsupportedFormat` if the edits do not parse or do not fit each other, and
/// errors of `visit`. Damage, read errors included, is in the result.
pub fn salvage(env: IndexEnv, edits: &[Vec<u8>], visit: Visit<'_>) -> Result<Salvaged> {
    let common = Common::new(env, BTreeOptions::default());
    let mut picture = Picture::empty(&common.env);
    for edit in edits {
        drop(picture.replay(&Edit::decode(edit)?, false)?);
    }
    let mut salvage = Salvage {
        env: common.env.index(),
        visit,
        found: Salvaged::default(),
    };
    for file in picture.file_ids() {
        salvage.found.entries.insert(file, 0);
    }
    for (_, slot) in picture.slots() {
        salvage.run(slot)?;
    }
    let of_runs = salvage.found.lost.len();
    walk(&picture, &mut salvage)?;
    let mut lost = salvage.found.lost.split_off(of_runs);
    let offered = planted!(
        "btree: salvage offers leaves that the tree does not need",
        lost.clone(),
        vec![KeyRange::all()]
    );
    for file in picture.files.values() {
        if let Some(slot) = file.file.leaves() {
            salvage.tombstones(slot);
            salvage.outdated(slot, &offered)?;
        }
    }
    for (_, slot) in picture.slots() {
        salvage.outdated(slot, &offered)?;
    }
    salvage.found.lost.append(&mut lost);
    Ok(salvage.found)
}

struct Salvage<'s> {
    env: &'s IndexEnv,
    visit: Visit<'s>,
    found: Salvaged,
}

impl Salvage<'_> {
    /// Gives the entries of a table that `wanted` chooses. `None`: there is no such file.
    fn table(
        &mut self,
        slot: &Slot,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<(TableSalvage, u64)>> {
        let (meta, mut given) = (slot.meta(), 0);
        let IndexEnv { volume, db, .. } = self.env;
        let found = salvage_table(
            &**volume,
            *db,
            meta.id,
            Some(meta),
            &mut |key, seqno, value| {
                if !wanted(key) {
                    return Ok(());
                }
                given += 1;
                (self.visit)(meta.id, key, seqno, value)
            },
        );
        match found {
            Ok(found) => {
                *self.found.entries.entry(meta.id).or_default() += given;
                Ok(Some((found, given)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A table of the shelf, without what the tree has of it.
    fn run(&mut self, slot: &Slot) -> Result<()> {
        let found = self.table(slot, |key| key >= &*slot.range.start)?;
        let Some((found, _)) = found else {
            self.missing(slot.meta().id);
            self.found.lost.push(slot.range.clone());
            return Ok(());
        };
        self.found.tombstones.extend(found.tombstones);
        for damage in found.damage {
            self.found.damage.push((slot.meta().id, damage.error));
            let (start, end) = damage.range;
            let start = start.max(slot.range.start.clone());
            if before_end(&start, &end) {
                self.found.lost.push(KeyRange { start, end });
            }
        }
        Ok(())
    }

    /// The range tombstones of a table of leaves. What they hide is not in the tree.
    fn tombstones(&mut self, slot: &Slot) {
        match slot.table.range_tombstones() {
            Ok(tombstones) => self.found.tombstones.extend_from_slice(tombstones),
            Err(error) => self.damage(slot.meta().id, error),
        }
    }

    /// The entries of any table for keys whose leaves are lost.
    fn outdated(&mut self, slot: &Slot, lost: &[KeyRange]) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let is_lost = |key: &[u8]| {
            let behind = lost.partition_point(|range| &*range.start <= key);
            let range = behind.checked_sub(1).and_then(|at| lost.get(at));
            range.is_some_and(|range| before_end(key, &range.end))
        };
        let found = self.table(slot, is_lost)?;
        self.found.outdated += found.map_or(0, |(_, given)| given);
        Ok(())
    }

    fn damage(&mut self, file: FileId, error: Error) {
        match error.kind() {
            ErrorKind::NotFound => self.missing(file),
            _ => self.found.damage.push((file, error)),
        }
    }

    /// Notes that a file is missing, the first time.
    fn missing(&mut self, file: FileId) {
        if self.found.damage.iter().all(|(other, _)| *other != file) {
            let error =
                Error::corruption(file, 0, "expected a file of an index, found no such file");
            self.found.damage.push((file, error));
        }
    }
}

impl Visitor for Salvage<'_> {
    fn node(&mut self, _: FileId, _: &Child) {}

    fn entry(
        &mut self,
        file: FileId,
        key: &[u8],
        seqno: SeqNum,
        value: EntryRef<'_>,
    ) -> Result<()> {
        *self.found.entries.entry(file).or_default() += 1;
        (self.visit)(file, key, seqno, value)
    }

    fn lost(&mut self, file: FileId, range: KeyRange, error: Error) -> Result<()> {
        self.damage(file, error);
        self.found.lost.push(range);
        Ok(())
    }
}
