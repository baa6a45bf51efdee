//! Walks over the whole tree, for tools: every node that the root leads to, from the medium.
//!
//! Thread-safe: plain functions over immutable pictures.

use crate::edit::Root;
use crate::node::Child;
use crate::picture::Picture;
use crate::tree::decode_branch;
use glintdb_core::key::before_end;
use glintdb_core::{Direction, EntryRef, Error, FileId, Result, SeqNum};
use glintdb_runs::keys::KeyRange;
use glintdb_runs::table::BlockCursor;

/// What a walk gives its nodes and entries to. An error of a method ends the walk.
pub(crate) trait Visitor {
    /// A node that the root or a branch names, before it is read.
    fn node(&mut self, file: FileId, node: &Child);

    /// An entry of a leaf in `file`.
    ///
    /// # Errors
    /// The visitor's own.
    fn entry(&mut self, file: FileId, key: &[u8], seqno: SeqNum, value: EntryRef<'_>)
    -> Result<()>;

    /// A node of `file` cannot be read, or a part of it makes no sense. The walk goes on behind it.
    ///
    /// # Errors
    /// The visitor's own.
    fn lost(&mut self, file: FileId, range: KeyRange, error: Error) -> Result<()>;
}

/// Walks over the tree of `picture`, in key order.
///
/// # Errors
/// Those of `visitor`.
pub(crate) fn walk(picture: &Picture, visitor: &mut dyn Visitor) -> Result<()> {
    let Some(Root { node, level, .. }) = picture.root else {
        return Ok(());
    };
    walk_node(picture, level, node, KeyRange::all(), visitor)
}

/// Walks over a node that has the keys of `range`, and everything beneath it.
fn walk_node(
    picture: &Picture,
    level: u8,
    node: Child,
    range: KeyRange,
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let file = node.file(level);
    visitor.node(file, &node);
    if level == 0 {
        return walk_leaf(picture, &node, range, visitor);
    }
    // From the medium, because it may differ from what the cache has.
    let opened = picture.read(level, &node, false);
    let decode = |opened| decode_branch(&opened, &range.start, range.end.as_ref());
    let children = match opened.and_then(decode) {
        Ok(children) => children,
        Err(error) => return visitor.lost(file, range, error),
    };
    for (place, (lower, child)) in children.iter().enumerate() {
        let next = children.get(place + 1).map(|(next, _)| next);
        let range = KeyRange {
            start: lower.clone(),
            end: next.or(range.end.as_ref()).cloned(),
        };
        walk_node(picture, level - 1, *child, range, visitor)?;
    }
    Ok(())
}

fn walk_leaf(
    picture: &Picture,
    node: &Child,
    range: KeyRange,
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let file = node.file(0);
    let mut cursor = BlockCursor::new(Direction::Forward);
    let entered = picture.read(0, node, false);
    if let Err(error) = entered.and_then(|leaf| cursor.enter(file, leaf.block)) {
        return visitor.lost(file, range, error);
    }
    loop {
        match cursor.advance() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return visitor.lost(file, range, error),
        }
        if cursor.key() < &*range.start || !before_end(cursor.key(), &range.end) {
            let error = cursor.corrupt("a key that is outside of what the branch says");
            return visitor.lost(file, range, error);
        }
        match cursor.value() {
            Ok(value) => visitor.entry(file, cursor.key(), cursor.seqno(), value)?,
            Err(error) => return visitor.lost(file, range, error),
        }
    }
}
