//! Checks every byte of the files of an index that it needs, and the order and the counts of the
//! tree.
//!
//! Thread-safe: plain functions over immutable pictures.

use crate::edit::Live;
use crate::node::Child;
use crate::picture::Picture;
use crate::walk::{Visitor, walk};
use glintdb_core::{EntryRef, Error, FileId, Result, SeqNum, ValuePointer};
use glintdb_runs::keys::KeyRange;
use glintdb_runs::read::verify_tables;
use std::collections::HashMap;

/// What a walk over the tree has counted.
struct Counts<'v> {
    held: &'v mut dyn FnMut(ValuePointer),
    entries: u64,
    tombstones: u64,
    pointed_bytes: u64,
    /// What the nodes take of each file.
    live: HashMap<FileId, Live>,
}

/// Checks the shelf and the tree. `report` gets each error, `held` every pointer that the shelf and
/// the leaves have, `checked` the length of each file. Returns whether there was no error.
pub(crate) fn verify(
    picture: &Picture,
    report: &mut dyn FnMut(Error),
    held: &mut dyn FnMut(ValuePointer),
    checked: &mut dyn FnMut(u64),
) -> bool {
    let mut sound = true;
    for run in &picture.runs {
        sound &= verify_tables(run.id, &run.tables, report, held, checked);
    }
    for file in picture.files.values() {
        let mut fail = |error| {
            sound = false;
            report(error);
        };
        match file.file.leaves() {
            Some(slot) => slot.table.verify(&mut fail, &mut |_, _| {}),
            None => file.file.blocks().verify(file.file.bytes(), &mut fail),
        }
        checked(file.file.bytes());
    }
    let mut counts = Counts {
        held,
        entries: 0,
        tombstones: 0,
        pointed_bytes: 0,
        live: HashMap::new(),
    };
    let walked = walk(picture, &mut counts);
    if let Err(error) = walked.and_then(|()| compare(picture, &counts)) {
        sound = false;
        report(error);
    }
    sound
}

impl Visitor for Counts<'_> {
    fn node(&mut self, file: FileId, node: &Child) {
        let live = self.live.entry(file).or_insert(Live { nodes: 0, bytes: 0 });
        live.nodes += 1;
        live.bytes += u64::from(node.length);
    }

    fn entry(&mut self, _: FileId, _: &[u8], _: SeqNum, value: EntryRef<'_>) -> Result<()> {
        self.entries += 1;
        match value {
            EntryRef::Inline(_) => {}
            EntryRef::Tombstone => self.tombstones += 1,
            EntryRef::Pointer(pointer) => {
                self.pointed_bytes += u64::from(pointer.length);
                (self.held)(pointer);
            }
        }
        Ok(())
    }

    fn lost(&mut self, _: FileId, _: KeyRange, error: Error) -> Result<()> {
        Err(error)
    }
}

/// Compares what was counted with what the manifest says.
fn compare(picture: &Picture, counts: &Counts<'_>) -> Result<()> {
    let misfit = |what: String| Err(Error::corruption("manifest", 0, what));
    let found = (counts.entries, counts.tombstones, counts.pointed_bytes);
    let recorded = picture
        .root
        .map_or((0, 0, 0), |r| (r.entries, r.tombstones, r.pointed_bytes));
    if found != recorded {
        return misfit(format!(
            "entries, tombstones and bytes of values of a B+tree: {recorded:?} are recorded, \
             {found:?} were found"
        ));
    }
    for (id, file) in &picture.files {
        let found = counts.live.get(id).copied();
        let found = found.unwrap_or(Live { nodes: 0, bytes: 0 });
        if found != file.live {
            return misfit(format!(
                "{id}: {:?} is recorded, {found:?} found",
                file.live
            ));
        }
    }
    Ok(())
}
