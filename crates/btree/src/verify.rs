//! Checks every byte of the files of an index that it needs, and the order and the counts of the
//! tree.
//!
//! Thread-safe: plain functions over immutable pictures.

use crate::edit::{Live, Root};
use crate::node::Child;
use crate::picture::Picture;
use crate::tree::decode_branch;
use bytes::Bytes;
use glintdb_core::key::before_end;
use glintdb_core::{Direction, EntryRef, Error, FileId, Result, ValuePointer};
use glintdb_runs::read::verify_tables;
use glintdb_runs::table::BlockCursor;
use std::collections::HashMap;

/// What a walk over the tree has counted.
#[derive(Default)]
struct Counts {
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
    let mut counts = Counts::default();
    let walked = match picture.root {
        Some(Root { node, level, .. }) => {
            counts.count(node.file(level), &node);
            walk(
                picture,
                level,
                node,
                (Bytes::new(), None),
                &mut counts,
                held,
            )
        }
        None => Ok(()),
    };
    if let Err(error) = walked.and_then(|()| compare(picture, &counts)) {
        sound = false;
        report(error);
    }
    sound
}

impl Counts {
    fn count(&mut self, file: FileId, node: &Child) {
        let live = self.live.entry(file).or_insert(Live { nodes: 0, bytes: 0 });
        live.nodes += 1;
        live.bytes += u64::from(node.length);
    }
}

/// Checks a node that has the keys from `lower` to `upper`, and everything beneath it.
fn walk(
    picture: &Picture,
    level: u8,
    node: Child,
    (lower, upper): (Bytes, Option<Bytes>),
    counts: &mut Counts,
    held: &mut dyn FnMut(ValuePointer),
) -> Result<()> {
    if level == 0 {
        return walk_leaf(picture, &node, (&lower, &upper), counts, held);
    }
    // From the medium, because it may differ from what the cache has.
    let opened = picture.read(level, &node, false)?;
    let children = decode_branch(&opened, &lower, upper.as_ref())?;
    for (place, (lower, child)) in children.iter().enumerate() {
        counts.count(child.file(level - 1), child);
        let end = children.get(place + 1).map(|(next, _)| next);
        let range = (lower.clone(), end.or(upper.as_ref()).cloned());
        walk(picture, level - 1, *child, range, counts, held)?;
    }
    Ok(())
}

fn walk_leaf(
    picture: &Picture,
    node: &Child,
    (lower, upper): (&Bytes, &Option<Bytes>),
    counts: &mut Counts,
    held: &mut dyn FnMut(ValuePointer),
) -> Result<()> {
    let leaf = picture.read(0, node, false)?;
    let mut cursor = BlockCursor::new(Direction::Forward);
    cursor.enter(leaf.file.blocks().id(), leaf.block)?;
    while cursor.advance()? {
        if cursor.key() < &**lower || !before_end(cursor.key(), upper) {
            return Err(cursor.corrupt("a key that is outside of what the branch says"));
        }
        counts.entries += 1;
        match cursor.value()? {
            EntryRef::Inline(_) => {}
            EntryRef::Tombstone => counts.tombstones += 1,
            EntryRef::Pointer(pointer) => {
                counts.pointed_bytes += u64::from(pointer.length);
                held(pointer);
            }
        }
    }
    Ok(())
}

/// Compares what was counted with what the manifest says.
fn compare(picture: &Picture, counts: &Counts) -> Result<()> {
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
