//! Reads the tree: finds the leaf of a key, and reads nodes.
//!
//! Thread-safe: plain functions over immutable pictures.

use crate::directory::Directory;
use crate::node::{Child, Separated};
use crate::picture::{NodeFile, Picture};
use bytes::Bytes;
use glintdb_core::{Direction, Entry, EntryRef, Error, Result};
use glintdb_flash::{ReadRequest, read_each};
use glintdb_runs::table::{Block, BlockCursor, stored_checksum};
use std::sync::Arc;

/// A node in memory, with the file that it is in.
pub(crate) struct Node<'a> {
    pub(crate) file: &'a NodeFile,
    pub(crate) block: Block,
}

impl NodeFile {
    /// The read that gives a node, to be submitted with others.
    ///
    /// # Errors
    /// I/O errors at first use of the file.
    pub(crate) fn request(&self, node: &Child) -> Result<ReadRequest> {
        self.blocks().request(node.handle())
    }

    /// Checks what a read of a node gave, and makes the block of it. Puts it into the cache if
    /// `keep` is set.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn accept(&self, node: &Child, stored: Bytes, keep: bool) -> Result<Block> {
        let blocks = self.blocks();
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
}

impl Picture {
    /// The directory of the tree. Reads the levels above it at first use.
    ///
    /// # Errors
    /// I/O errors, `Corruption`. An error is not remembered.
    pub(crate) fn directory(&self) -> Result<&Arc<Directory>> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory);
        }
        let loaded = Arc::new(Directory::load(self)?);
        Ok(self.directory.get_or_init(|| loaded))
    }

    /// The file of a node at `level`.
    ///
    /// # Errors
    /// `Corruption` if the tree has no such file.
    pub(crate) fn file_of(&self, level: u8, node: &Child) -> Result<&NodeFile> {
        let id = node.file(level);
        let file = self.files.get(&id).map(|file| &file.file);
        file.ok_or_else(|| {
            let what = "a branch names a file that the tree has not";
            Error::corruption(id, node.offset, what)
        })
    }

    /// The leaf, from the cache or the medium. Adds to `reads` if it was read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn leaf(&self, node: &Child, reads: &mut u32) -> Result<Node<'_>> {
        let file = self.file_of(0, node)?;
        if let Some(block) = file.blocks().cached(node.handle()) {
            return Ok(Node { file, block });
        }
        *reads += 1;
        self.read(0, node, true)
    }

    /// Reads a node from the medium, whatever the cache has, and puts it there if `keep` is set.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn read(&self, level: u8, node: &Child, keep: bool) -> Result<Node<'_>> {
        let file = self.file_of(level, node)?;
        let request = file.request(node)?;
        let stored = request.file.read_at(request.offset, request.length)?;
        let block = file.accept(node, stored, keep)?;
        Ok(Node { file, block })
    }

    /// Reads branches of a level in one batch. They do not go to the cache.
    pub(crate) fn read_many(&self, level: u8, nodes: &[Child]) -> Vec<Result<Node<'_>>> {
        let files: Vec<Result<&NodeFile>> =
            nodes.iter().map(|node| self.file_of(level, node)).collect();
        let request = |(file, node): (&Result<&NodeFile>, &Child)| match file {
            Ok(file) => file.request(node),
            Err(error) => Err(error.clone()),
        };
        let requests = files.iter().zip(nodes).map(request);
        let answers = read_each(&*self.env.index().volume, requests).into_iter();
        let accept = |((file, node), stored): ((Result<_>, &Child), Result<Bytes>)| {
            let file: &NodeFile = file?;
            let block = file.accept(node, stored?, false)?;
            Ok(Node { file, block })
        };
        files
            .into_iter()
            .zip(nodes)
            .zip(answers)
            .map(accept)
            .collect()
    }

    /// The entry of `key` in the tree. Adds to `reads` what was read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn find(&self, key: &[u8], reads: &mut u32) -> Result<Option<Entry>> {
        if self.root.is_none() {
            return Ok(None);
        }
        let Some((_, leaf)) = self.directory()?.leaf_of(key, self, reads)? else {
            return Ok(None);
        };
        let leaf = self.leaf(&leaf, reads)?;
        leaf.file.blocks().search(&leaf.block, key)
    }
}

/// The children of a branch that has the keys from `lower` to `upper`.
///
/// # Errors
/// `Corruption` where it has something else than children in order, or none.
pub(crate) fn decode_branch(
    branch: &Node<'_>,
    lower: &Bytes,
    upper: Option<&Bytes>,
) -> Result<Vec<Separated>> {
    let mut cursor = BlockCursor::new(Direction::Forward);
    cursor.enter(branch.file.blocks().id(), branch.block.clone())?;
    let mut children: Vec<Separated> = Vec::new();
    while cursor.advance()? {
        let child = match cursor.value()? {
            EntryRef::Inline(value) => Child::from_value(value),
            EntryRef::Pointer(_) | EntryRef::Tombstone => None,
        };
        let child = child.ok_or_else(|| cursor.corrupt("an entry of a branch names no child"))?;
        let separator = match children.is_empty() {
            true => lower.clone(),
            false => Bytes::copy_from_slice(cursor.key()),
        };
        let before = children.last().map(|(separator, _)| separator);
        let in_order = before.is_none_or(|before| separator > *before);
        if !in_order || upper.is_some_and(|upper| separator >= *upper) {
            return Err(cursor.corrupt("a child outside of its branch"));
        }
        children.push((separator, child));
    }
    match children.is_empty() {
        true => Err(cursor.corrupt("a branch without children")),
        false => Ok(children),
    }
}
