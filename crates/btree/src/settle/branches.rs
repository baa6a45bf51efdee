//! Writes the branches above leaves that have changed, level by level, up to a new root.
//!
//! Not thread-safe: belongs to one slice.

use crate::edit::LEVELS_MAX;
use crate::node::{Child, Separated};
use crate::picture::Picture;
use crate::tree::Branch;
use bytes::Bytes;
use glintdb_core::key::{before_end, shared_prefix};
use glintdb_core::{EntryRef, Error, ErrorKind, FileId, FileKind, Result};
use glintdb_flash::DataClass;
use glintdb_runs::RunEnv;
use glintdb_runs::table::{BlockFileWriter, WrittenBlock};
use std::collections::HashSet;
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

    /// Rebuilds the branches of `picture` above leaves that are replaced. `victims` are files whose
    /// branches are all rewritten. The replacements ascend and do not overlap.
    ///
    /// # Errors
    /// I/O errors, `Corruption`, `NoSpace`.
    pub(crate) fn rebuild(
        &mut self,
        picture: &Picture,
        mut replaced: Vec<Replacement>,
        victims: &HashSet<FileId>,
    ) -> Result<Option<(Child, u8)>> {
        let top = picture.root.map_or(0, |root| root.level);
        for level in 1..=LEVELS_MAX {
            if level > top {
                // All nodes of the level below, which is complete, or has a single node.
                let nodes = self.children_above_root(picture, level, &replaced)?;
                match nodes.as_slice() {
                    [] => return Ok(None),
                    [(_, root)] => return Ok(Some((*root, level - 1))),
                    _ => {}
                }
                let children = self.write(nodes, Bytes::new())?;
                replaced = vec![Replacement {
                    lower: Bytes::new(),
                    upper: None,
                    children,
                }];
                continue;
            }
            if !victims.is_empty() {
                add_victims(picture, level, &mut replaced, victims)?;
            }
            replaced = self.rebuild_level(picture, level, replaced)?;
        }
        Err(Error::new(
            ErrorKind::Corruption,
            "a B+tree with more levels than any number of keys needs",
        ))
    }

    /// The nodes of the level below `level`, which is above the root of `picture`.
    fn children_above_root(
        &self,
        picture: &Picture,
        level: u8,
        replaced: &[Replacement],
    ) -> Result<Vec<Separated>> {
        match replaced {
            [all] if all.lower.is_empty() && all.upper.is_none() => Ok(all.children.clone()),
            _ => {
                // Only the level right above the root has something that is not replaced.
                let branch = picture.branch_at(level, &[])?;
                Ok(with_replaced(branch.children, replaced))
            }
        }
    }

    /// Rewrites the branches of `level` that have replaced children.
    fn rebuild_level(
        &mut self,
        picture: &Picture,
        level: u8,
        replaced: Vec<Replacement>,
    ) -> Result<Vec<Replacement>> {
        let mut above = Vec::new();
        let mut rest = replaced.as_slice();
        while let Some(first) = rest.first() {
            let Branch {
                node,
                lower,
                mut upper,
                mut children,
            } = picture.branch_at(level, &first.lower)?;
            self.dead.extend(node);
            // Neighbouring branches are rewritten together.
            let mut count = 0;
            while let Some(next) = rest.get(count)
                && before_end(&next.lower, &upper)
            {
                while let Some(end) = &upper
                    && next.upper.as_ref().is_none_or(|reach| reach > end)
                {
                    let neighbour = picture.branch_at(level, end)?;
                    self.dead.extend(neighbour.node);
                    children.extend(neighbour.children);
                    upper = neighbour.upper;
                }
                count += 1;
            }
            let (here, behind) = rest.split_at(count);
            rest = behind;
            let children = self.write(with_replaced(children, here), lower.clone())?;
            above.push(Replacement {
                lower,
                upper,
                children,
            });
        }
        Ok(above)
    }

    /// Writes branches of these children, about equally large. The first branch begins at `lower`.
    fn write(&mut self, children: Vec<Separated>, lower: Bytes) -> Result<Vec<Separated>> {
        let mut nodes: Vec<Separated> = Vec::new();
        let mut value = Vec::new();
        for part in parts(&children) {
            let long = part
                .iter()
                .any(|(separator, _)| separator.len() >= LONG_BYTES);
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
            let mut blocks: Vec<WrittenBlock> = Vec::new();
            for (separator, child) in part {
                value.clear();
                child.encode(&mut value);
                let entry = EntryRef::Inline(&value);
                if !writer.add(separator, entry) {
                    blocks.push(writer.end_block()?);
                    let added = writer.add(separator, entry);
                    assert!(added, "the first child of a branch fits");
                }
            }
            blocks.push(writer.end_block()?);
            let number = writer.id().number;
            for block in blocks {
                let node = Child::written(number, &block);
                self.nodes += 1;
                self.bytes += u64::from(node.length);
                nodes.push((block.separator, node));
            }
        }
        if let Some((separator, _)) = nodes.first_mut() {
            *separator = lower;
        }
        Ok(nodes)
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

/// Adds a replacement of each child of `level` by itself whose branch is in a victim.
fn add_victims(
    picture: &Picture,
    level: u8,
    replaced: &mut Vec<Replacement>,
    victims: &HashSet<FileId>,
) -> Result<()> {
    let mut own = Vec::new();
    let mut next = Some(Bytes::new());
    while let Some(lower) = next {
        let branch = picture.branch_at(level, &lower)?;
        let is_victim = branch
            .node
            .is_some_and(|node| victims.contains(&node.file(level)));
        if is_victim && let Some(first) = branch.children.first() {
            own.push(Replacement {
                lower: first.0.clone(),
                upper: branch.end_of(0).cloned(),
                children: vec![first.clone()],
            });
        }
        next = branch.upper;
    }
    let is_free = |own: &Replacement| {
        !replaced.iter().any(|other| {
            before_end(&other.lower, &own.upper) && before_end(&own.lower, &other.upper)
        })
    };
    own.retain(is_free);
    replaced.extend(own);
    replaced.sort_by(|a, b| a.lower.cmp(&b.lower));
    Ok(())
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
