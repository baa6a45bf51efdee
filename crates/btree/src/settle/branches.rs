//! Writes the branches above leaves that have changed, and a new root.
//!
//! Not thread-safe: belongs to one slice.

use crate::directory::{Branch, Directory};
use crate::edit::LEVELS_MAX;
use crate::node::{Child, Separated};
use crate::picture::Picture;
use bytes::Bytes;
use glintdb_core::key::{before_end, shared_prefix};
use glintdb_core::{EntryRef, Error, ErrorKind, FileId, FileKind, Result};
use glintdb_flash::DataClass;
use glintdb_runs::RunEnv;
use glintdb_runs::table::{BlockFileWriter, WrittenBlock};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an entry of a branch beside its separator: lengths, and the place of the child.
const CHILD_BYTES: usize = 18;
/// Separators of this length and more are *long*: of them a page would hold too few.
const LONG_BYTES: usize = 256;
/// Children of a branch with long separators.
const LONG_CHILDREN: usize = 16;
/// Bytes of a branch that are not entries: its header.
const HEADER_BYTES: usize = 28;
const BLOCK_BYTES: usize = 4096;
const RESTART_INTERVAL: usize = 8;

/// The keys from `lower` to `upper` have these children from now on.
pub(crate) struct Replacement {
    pub(crate) lower: Bytes,
    pub(crate) upper: Option<Bytes>,
    pub(crate) children: Vec<Separated>,
}

/// A tree with new branches.
pub(crate) struct Rebuilt {
    /// The root and its level.
    pub(crate) root: Option<(Child, u8)>,
    pub(crate) directory: Arc<Directory>,
}

/// A part of the branches right above the leaves.
enum Part {
    Kept(Arc<Branch>),
    /// Children that are written as one branch or several, and the first key that they may have.
    New(Bytes, Vec<Separated>),
}

/// Writes branches.
pub(crate) struct BranchWriter {
    env: Arc<RunEnv>,
    class: DataClass,
    writer: Option<BlockFileWriter>,
    /// Branches that are replaced.
    pub(crate) dead: Vec<Child>,
    pub(crate) nodes: u64,
    pub(crate) bytes: u64,
}

impl BranchWriter {
    pub(crate) fn new(env: &Arc<RunEnv>, class: DataClass) -> BranchWriter {
        BranchWriter {
            env: Arc::clone(env),
            class,
            writer: None,
            dead: Vec::new(),
            nodes: 0,
            bytes: 0,
        }
    }

    /// Rebuilds the branches of `picture` above leaves that are replaced, and those in `victims`.
    /// The levels above the branches are small, and written anew as a whole. The replacements
    /// ascend and do not overlap.
    ///
    /// # Errors
    /// I/O errors, `Corruption`, `NoSpace`.
    pub(crate) fn rebuild(
        &mut self,
        picture: &Picture,
        replaced: &[Replacement],
        victims: &HashSet<FileId>,
    ) -> Result<Rebuilt> {
        let directory = picture.directory()?;
        let is_victim = |node: &Child| victims.contains(&node.file(1));
        let mut parts = self.parts_of(picture, replaced, is_victim)?;
        let is_kept = |part: &Part| matches!(part, Part::Kept(_));
        if parts.iter().all(is_kept) && !directory.upper.iter().any(is_victim) {
            return Ok(Rebuilt {
                root: picture.root.map(|root| (root.node, root.level)),
                directory: Arc::clone(directory),
            });
        }
        let memory = Arc::clone(&self.env.index().memory);
        self.dead.extend(&directory.upper);
        // A tree of one leaf has no branch.
        parts.retain(|part| !matches!(part, Part::New(_, children) if children.is_empty()));
        let only = match parts.as_slice() {
            [] => Some(None),
            [Part::New(_, children)] if children.len() == 1 => children.first().map(Some),
            _ => None,
        };
        if let Some(leaf) = only {
            let children = leaf.map(|(_, node)| (Bytes::new(), *node));
            let children = children.as_slice();
            let branch = Branch::with_children(Bytes::new(), None, children, &memory);
            return Ok(Rebuilt {
                root: leaf.map(|(_, node)| (*node, 0)),
                directory: Arc::new(Directory::new(vec![branch], Vec::new(), &memory)),
            });
        }
        let mut branches: Vec<Arc<Branch>> = Vec::new();
        for part in parts {
            match part {
                Part::Kept(branch) => branches.push(branch),
                Part::New(lower, children) => {
                    for (lower, node, own) in self.write(&children, lower)? {
                        let own = &children[own];
                        let branch = Branch::with_children(lower, Some(node), own, &memory);
                        branches.push(branch);
                    }
                }
            }
        }
        let mut nodes: Vec<Separated> = (branches.iter())
            .filter_map(|branch| branch.node.map(|node| (branch.lower.clone(), node)))
            .collect();
        let mut upper = Vec::new();
        for level in 1..=LEVELS_MAX {
            if let [(_, root)] = nodes.as_slice() {
                return Ok(Rebuilt {
                    root: Some((*root, level)),
                    directory: Arc::new(Directory::new(branches, upper, &memory)),
                });
            }
            let written = self.write(&nodes, Bytes::new())?;
            nodes = written
                .into_iter()
                .map(|(lower, node, _)| (lower, node))
                .collect();
            upper.extend(nodes.iter().map(|(_, node)| *node));
        }
        let what = "a B+tree with more levels than any number of keys needs";
        Err(Error::new(ErrorKind::Corruption, what))
    }

    /// The branches right above the leaves, kept or with new children.
    fn parts_of(
        &mut self,
        picture: &Picture,
        replaced: &[Replacement],
        is_victim: impl Fn(&Child) -> bool,
    ) -> Result<Vec<Part>> {
        let directory = picture.directory()?;
        let mut parts = Vec::new();
        let mut rest = replaced;
        let mut at = 0;
        while let Some(branch) = directory.branches().get(at) {
            let begins_here = |replaced: &Replacement, end: Option<&Bytes>| {
                end.is_none_or(|end| replaced.lower < *end)
            };
            let first = at;
            at += 1;
            // A stretch may reach over several branches, which are written together.
            let mut count = 0;
            while let Some(next) = rest.get(count)
                && begins_here(next, directory.end_of(at - 1))
            {
                while let Some(end) = directory.end_of(at - 1)
                    && next.upper.as_ref().is_none_or(|reach| reach > end)
                {
                    at += 1;
                }
                count += 1;
            }
            let (here, behind) = rest.split_at(count);
            rest = behind;
            if here.is_empty() && !branch.node.as_ref().is_some_and(&is_victim) {
                parts.push(Part::Kept(Arc::clone(branch)));
                continue;
            }
            let mut children = Vec::new();
            for one in first..at {
                children.extend(directory.separated(one, picture)?);
                self.dead.extend(directory.branches()[one].node);
            }
            parts.push(Part::New(
                branch.lower.clone(),
                with_replaced(children, here),
            ));
        }
        Ok(parts)
    }

    /// Writes branches of these children, about equally large. The first branch begins at `lower`.
    /// Returns each with its first key and the places of its children.
    fn write(
        &mut self,
        children: &[Separated],
        lower: Bytes,
    ) -> Result<Vec<(Bytes, Child, Range<usize>)>> {
        let mut written: Vec<(Bytes, Child, Range<usize>)> = Vec::new();
        let mut value = Vec::new();
        let mut start = 0;
        for part in parts(children) {
            let is_long = |(separator, _): &Separated| separator.len() >= LONG_BYTES;
            let long = part.iter().any(is_long);
            let writer = self.writer()?;
            match long {
                // One restart point, and room for all of them.
                true => {
                    let keys: usize = part.iter().map(|(separator, _)| separator.len()).sum();
                    let bytes = keys + part.len() * 2 * CHILD_BYTES + BLOCK_BYTES;
                    writer.begin_block(bytes.next_multiple_of(BLOCK_BYTES), LONG_CHILDREN);
                }
                false => writer.begin_block(BLOCK_BYTES, RESTART_INTERVAL),
            }
            let mut blocks: Vec<(WrittenBlock, Range<usize>)> = Vec::new();
            let mut begin = start;
            for (at, (separator, child)) in (start..).zip(part) {
                value.clear();
                child.encode(&mut value);
                let entry = EntryRef::Inline(&value);
                if !writer.add(separator, entry) {
                    blocks.push((writer.end_block()?, begin..at));
                    begin = at;
                    let added = writer.add(separator, entry);
                    assert!(added, "the first child of a branch fits");
                }
            }
            start += part.len();
            blocks.push((writer.end_block()?, begin..start));
            let number = writer.id().number;
            for (block, own) in blocks {
                let node = Child::written(number, &block);
                self.nodes += 1;
                self.bytes += u64::from(node.length);
                written.push((block.separator, node, own));
            }
        }
        if let Some((separator, ..)) = written.first_mut() {
            *separator = lower;
        }
        Ok(written)
    }

    fn writer(&mut self) -> Result<&mut BlockFileWriter> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let id = FileId::new(FileKind::Tree, self.env.index().numbers.next()?);
                let tables = self.env.tables();
                BlockFileWriter::create(tables, id, self.class, BLOCK_BYTES, RESTART_INTERVAL)?
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Makes the file of the new branches durable. Returns it with its length, if there are any.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. The file is removed then.
    pub(crate) fn finish(mut self) -> Result<Option<(FileId, u64)>> {
        let Some(writer) = self.writer.take() else {
            return Ok(None);
        };
        let id = writer.id();
        Ok(Some((id, writer.finish()?)))
    }
}

/// The children with those that are replaced exchanged.
fn with_replaced(children: Vec<Separated>, replaced: &[Replacement]) -> Vec<Separated> {
    let mut result = Vec::with_capacity(children.len());
    let mut children = children.into_iter().peekable();
    for one in replaced {
        while let Some(child) = children.next_if(|(lower, _)| *lower < one.lower) {
            result.push(child);
        }
        while children
            .next_if(|(lower, _)| before_end(lower, &one.upper))
            .is_some()
        {}
        result.extend(one.children.iter().cloned());
    }
    result.extend(children);
    result
}

/// Divides children into parts of about equal size, each for one branch: two children at least,
/// unless there is only one.
fn parts(children: &[Separated]) -> Vec<&[Separated]> {
    let long = children
        .iter()
        .any(|(separator, _)| separator.len() >= LONG_BYTES);
    if long {
        let count = children.len().div_ceil(LONG_CHILDREN).max(1);
        let each = children.len().div_ceil(count).max(1);
        return children.chunks(each).collect();
    }
    let mut last: &[u8] = &[];
    let sizes: Vec<usize> = children
        .iter()
        .map(|(separator, _)| {
            let suffix = separator.len() - shared_prefix(last, separator);
            last = separator;
            suffix + CHILD_BYTES
        })
        .collect();
    let all: usize = sizes.iter().sum();
    let branches = all.div_ceil(BLOCK_BYTES - HEADER_BYTES).max(1);
    let each = all.div_ceil(branches).max(1);
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, size) in sizes.iter().enumerate() {
        if bytes + size > each && at > start + 1 && parts.len() + 1 < branches {
            parts.push(&children[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < children.len() {
        parts.push(&children[start..]);
    }
    parts
}
