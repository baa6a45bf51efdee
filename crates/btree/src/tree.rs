//! Reads the tree: finds the leaf of a key, and the children of a branch.
//!
//! Thread-safe: plain functions over immutable pictures.

use crate::edit::Root;
use crate::node::{Child, Separated};
use crate::picture::{NodeFile, Picture};
use bytes::Bytes;
use glintdb_core::key::before_end;
use glintdb_core::{Direction, Entry, EntryRef, Error, Result};
use glintdb_flash::ReadRequest;
use glintdb_runs::RunEnv;
use glintdb_runs::table::{Block, BlockCursor, stored_checksum};
use std::collections::HashSet;

/// What is wrong with an entry of a branch that has something else than a place.
const NO_CHILD: &str = "an entry of a branch names no child";

/// The children of a branch, and the keys that they have together.
pub(crate) struct Branch {
    /// The branch's own place; `None` for the one that is not there, above the root.
    pub(crate) node: Option<Child>,
    /// The first key that it may have.
    pub(crate) lower: Bytes,
    /// The first key behind it; `None`: there is no end.
    pub(crate) upper: Option<Bytes>,
    /// Its children. The separator of the first one is `lower`.
    pub(crate) children: Vec<Separated>,
}

impl Branch {
    /// Index of the child that may have `key`, which is within the branch.
    pub(crate) fn place_of(&self, key: &[u8]) -> usize {
        let behind = self.children.partition_point(|(lower, _)| &**lower <= key);
        behind.saturating_sub(1)
    }

    /// The first key behind a child.
    pub(crate) fn end_of(&self, place: usize) -> Option<&Bytes> {
        let next = self.children.get(place + 1).map(|(lower, _)| lower);
        next.or(self.upper.as_ref())
    }
}

/// A node in memory, with the file that it is in.
pub(crate) struct Node<'a> {
    pub(crate) file: &'a NodeFile,
    pub(crate) block: Block,
}

impl Picture {
    /// The file of a node at `level`.
    ///
    /// # Errors
    /// `Corruption` if the tree has no such file.
    pub(crate) fn file_of(&self, level: u8, node: &Child) -> Result<&NodeFile> {
        let id = node.file(level);
        let file = self.files.get(&id).map(|file| &file.file);
        file.ok_or_else(|| {
            Error::corruption(
                id,
                node.offset,
                "a branch names a file that the tree has not",
            )
        })
    }

    /// The read that gives a node, to be submitted with others.
    ///
    /// # Errors
    /// I/O errors at first use of the file.
    pub(crate) fn request(&self, level: u8, node: &Child) -> Result<ReadRequest> {
        self.file_of(level, node)?.blocks().request(node.handle())
    }

    /// Checks what a read of a node gave, and makes the block of it. Puts it into the cache if
    /// `keep` is set.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn accept(
        &self,
        level: u8,
        node: &Child,
        stored: Bytes,
        keep: bool,
    ) -> Result<Block> {
        let blocks = self.file_of(level, node)?.blocks();
        let found = stored_checksum(&stored);
        if found != node.checksum {
            let what = format!(
                "a node with checksum {found:#010x}; its branch expects {:#010x}",
                node.checksum
            );
            return Err(Error::corruption(blocks.id(), node.offset, what));
        }
        match keep {
            true => blocks.accept(node.handle(), stored),
            false => blocks.accept_uncached(node.handle(), stored),
        }
    }

    /// The node, from the cache or the medium. Adds to `reads` if it was read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn node(&self, level: u8, node: &Child, reads: &mut u32) -> Result<Node<'_>> {
        let file = self.file_of(level, node)?;
        if let Some(block) = file.blocks().cached(node.handle()) {
            return Ok(Node { file, block });
        }
        *reads += 1;
        self.read(level, node, true)
    }

    /// Reads a node from the medium, whatever the cache has, and puts it there if `keep` is set.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn read(&self, level: u8, node: &Child, keep: bool) -> Result<Node<'_>> {
        let file = self.file_of(level, node)?;
        let request = file.blocks().request(node.handle())?;
        let stored = request.file.read_at(request.offset, request.length)?;
        let block = self.accept(level, node, stored, keep)?;
        Ok(Node { file, block })
    }

    /// The leaf that may have `key`. `None`: the tree is empty.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn leaf_of(&self, key: &[u8], reads: &mut u32) -> Result<Option<Child>> {
        let Some(Root { node, level, .. }) = self.root else {
            return Ok(None);
        };
        let mut child = node;
        for level in (1..=level).rev() {
            child = self.child_at(level, &child, key, reads)?;
        }
        Ok(Some(child))
    }

    /// The entry of `key` in the tree.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn find(&self, key: &[u8], reads: &mut u32) -> Result<Option<Entry>> {
        let Some(leaf) = self.leaf_of(key, reads)? else {
            return Ok(None);
        };
        self.find_in_leaf(&leaf, key, reads)
    }

    /// The branch at `level`, from 1 on, that may have `key`. Above the root there is a branch with
    /// the root as its only child, or without children.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn branch_at(&self, level: u8, key: &[u8]) -> Result<Branch> {
        let root = self.root.filter(|root| root.level < level);
        let mut branch = Branch {
            node: None,
            lower: Bytes::new(),
            upper: None,
            children: Vec::new(),
        };
        if self.root.is_none() || root.is_some() {
            branch
                .children
                .extend(root.map(|root| (Bytes::new(), root.node)));
            return Ok(branch);
        }
        let Some(Root {
            mut node,
            level: top,
            ..
        }) = self.root
        else {
            return Ok(branch);
        };
        for at in (level..=top).rev() {
            branch = self.open_branch(at, node, branch.lower, branch.upper)?;
            if at > level {
                let place = branch.place_of(key);
                branch.upper = branch.end_of(place).cloned();
                let (lower, child) = branch.children.swap_remove(place);
                (branch.lower, node) = (lower, child);
            }
        }
        Ok(branch)
    }

    /// Decodes a branch that has the keys from `lower` to `upper`.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn open_branch(
        &self,
        level: u8,
        node: Child,
        lower: Bytes,
        upper: Option<Bytes>,
    ) -> Result<Branch> {
        let opened = self.node(level, &node, &mut 0)?;
        decode_branch(&opened, node, lower, upper)
    }

    /// The child of the branch `node` that may have `key`. Adds to `reads` if the branch was read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn child_at(
        &self,
        level: u8,
        node: &Child,
        key: &[u8],
        reads: &mut u32,
    ) -> Result<Child> {
        let branch = self.node(level, node, reads)?;
        let blocks = branch.file.blocks();
        child_in(blocks.floor(&branch.block, key)?)
            .ok_or_else(|| Error::corruption(blocks.id(), node.offset, NO_CHILD))
    }

    /// The entry of `key` in a leaf. Adds to `reads` if the leaf was read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn find_in_leaf(
        &self,
        leaf: &Child,
        key: &[u8],
        reads: &mut u32,
    ) -> Result<Option<Entry>> {
        let leaf = self.node(0, leaf, reads)?;
        leaf.file.blocks().search(&leaf.block, key)
    }

    /// Gives the branches above the leaves to `visit`, from the one that may have `start` on, until
    /// it returns false.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn each_branch(
        &self,
        start: &[u8],
        mut visit: impl FnMut(&Branch) -> bool,
    ) -> Result<()> {
        let mut branch = self.branch_at(1, start)?;
        while visit(&branch)
            && let Some(next) = &branch.upper
        {
            branch = self.branch_at(1, next)?;
        }
        Ok(())
    }

    /// Reads those of these nodes of a level that are not in the cache, in one batch. Returns the
    /// files' numbers and the offsets of those that it has read. Errors are left to the readers of
    /// the nodes.
    pub(crate) fn read_ahead(
        &self,
        env: &RunEnv,
        level: u8,
        nodes: &[Child],
    ) -> HashSet<(u64, u64)> {
        let mut read = HashSet::new();
        let mut wanted = Vec::new();
        for node in nodes {
            if let Ok(file) = self.file_of(level, node)
                && file.blocks().cached(node.handle()).is_none()
                && read.insert((node.number, node.offset))
                && let Ok(request) = file.blocks().request(node.handle())
            {
                wanted.push((node, request));
            }
        }
        if wanted.is_empty() {
            return read;
        }
        let (nodes, mut requests): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        env.index().volume.read_batch(&mut requests);
        for (node, request) in nodes.into_iter().zip(requests) {
            if let Some(Ok(stored)) = request.result {
                drop(self.accept(level, node, stored, true));
            }
        }
        read
    }
}

/// Decodes the branch `node`, which has the keys from `lower` to `upper`.
///
/// # Errors
/// `Corruption` where it has something else than children in order.
pub(crate) fn decode_branch(
    opened: &Node<'_>,
    node: Child,
    lower: Bytes,
    upper: Option<Bytes>,
) -> Result<Branch> {
    let mut cursor = BlockCursor::new(Direction::Forward);
    cursor.enter(opened.file.blocks().id(), opened.block.clone())?;
    let mut children = Vec::new();
    while cursor.advance()? {
        let child = child_of(&cursor)?;
        let separator = match children.is_empty() {
            true => lower.clone(),
            false => Bytes::copy_from_slice(cursor.key()),
        };
        let in_order = children.is_empty() || (*separator > *lower);
        if !in_order || !before_end(&separator, &upper) {
            return Err(cursor.corrupt("a child outside of its branch"));
        }
        children.push((separator, child));
    }
    Ok(Branch {
        node: Some(node),
        lower,
        upper,
        children,
    })
}

/// The child that a value of a branch names.
fn child_in(value: EntryRef<'_>) -> Option<Child> {
    match value {
        EntryRef::Inline(value) => Child::from_value(value),
        EntryRef::Pointer(_) | EntryRef::Tombstone => None,
    }
}

/// The child that a cursor over a branch is at.
pub(crate) fn child_of(branch: &BlockCursor) -> Result<Child> {
    child_in(branch.value()?).ok_or_else(|| branch.corrupt(NO_CHILD))
}
