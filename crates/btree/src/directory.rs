//! The directory: the branches of a tree in memory, and so the place of every leaf.
//!
//! The branches right above the leaves are in one list, whatever the height of the tree: a search
//! finds the branch, then the leaf. The levels above serve to find the branches when the directory
//! is loaded; they are read once. A branch's children are read at first use, or by a job behind the
//! opening. For each leaf of 4 KiB that is about 40 bytes.
//!
//! Thread-safe: immutable, except that children are read at first use. An error at first use is not
//! remembered.

use crate::edit::Root;
use crate::node::{Child, Separated};
use crate::picture::Picture;
use crate::tree::decode_branch;
use bytes::Bytes;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{Direction, Error, ErrorKind, Result};
use glintdb_runs::table::Separators;
use std::sync::{Arc, OnceLock};

/// Branches that are read in one batch: 1 MiB.
pub(crate) const BRANCH_BATCH: usize = 256;

/// Where a leaf is among all leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) branch: usize,
    pub(crate) child: usize,
}

/// Memory that is charged to the budget as long as this lives.
struct Charge {
    memory: Arc<MemoryBudget>,
    bytes: usize,
}

impl Charge {
    fn new(memory: &Arc<MemoryBudget>, bytes: usize) -> Charge {
        memory.add(MemoryPart::Fences, bytes);
        let memory = Arc::clone(memory);
        Charge { memory, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.sub(MemoryPart::Fences, self.bytes);
    }
}

/// The children of a branch.
pub(crate) struct Children {
    separators: Separators,
    pub(crate) nodes: Box<[Child]>,
    _charge: Charge,
}

impl Children {
    fn new(children: &[Separated], memory: &Arc<MemoryBudget>) -> Children {
        let separators = Separators::new(children.iter().map(|(separator, _)| &**separator));
        let nodes: Box<[Child]> = children.iter().map(|(_, node)| *node).collect();
        let bytes = size_of::<Children>() + separators.memory_bytes() + size_of_val(&*nodes);
        Children {
            separators,
            nodes,
            _charge: Charge::new(memory, bytes),
        }
    }

    /// Index of the child that may have `key`, which is within the branch.
    fn find(&self, key: &[u8]) -> usize {
        self.separators.find(key)
    }
}

/// A branch right above leaves.
pub(crate) struct Branch {
    /// The first key that it may have, unless it is the first branch.
    pub(crate) lower: Bytes,
    /// Its place; `None`: the root is a leaf, or the tree is empty.
    pub(crate) node: Option<Child>,
    /// 1. A branch of a higher level is damaged, and takes the place of all branches beneath it.
    level: u8,
    children: OnceLock<Children>,
}

impl Branch {
    /// A branch whose children are not in memory.
    fn unread(lower: Bytes, node: Child, level: u8) -> Arc<Branch> {
        Arc::new(Branch {
            lower,
            node: Some(node),
            level,
            children: OnceLock::new(),
        })
    }

    /// A branch with these children. The first one begins at `lower`.
    pub(crate) fn with_children(
        lower: Bytes,
        node: Option<Child>,
        children: &[Separated],
        memory: &Arc<MemoryBudget>,
    ) -> Arc<Branch> {
        Arc::new(Branch {
            lower,
            node,
            level: 1,
            children: OnceLock::from(Children::new(children, memory)),
        })
    }

    /// Whether the children are in memory.
    fn is_read(&self) -> bool {
        self.children.get().is_some()
    }
}

/// The branches of a tree.
pub(crate) struct Directory {
    lowers: Separators,
    branches: Box<[Arc<Branch>]>,
    /// The nodes above these branches.
    pub(crate) upper: Vec<Child>,
    _charge: Charge,
}

impl Directory {
    /// A directory of these branches, of which there is one at least.
    pub(crate) fn new(
        branches: Vec<Arc<Branch>>,
        upper: Vec<Child>,
        memory: &Arc<MemoryBudget>,
    ) -> Directory {
        assert!(!branches.is_empty(), "an empty tree has a branch, too");
        let lowers = Separators::new(branches.iter().map(|branch| &*branch.lower));
        let each = size_of::<Arc<Branch>>() + size_of::<Branch>() + 2 * size_of::<usize>();
        let keys: usize = branches.iter().map(|branch| branch.lower.len()).sum();
        let bytes = lowers.memory_bytes() + branches.len() * each + keys;
        Directory {
            lowers,
            branches: branches.into(),
            upper,
            _charge: Charge::new(memory, bytes),
        }
    }

    /// Reads the levels above the branches.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn load(picture: &Picture) -> Result<Directory> {
        let memory = &picture.env.index().memory;
        let Some(Root { node, level, .. }) = picture.root else {
            let empty = Branch::with_children(Bytes::new(), None, &[], memory);
            return Ok(Directory::new(vec![empty], Vec::new(), memory));
        };
        if level == 0 {
            let only = Branch::with_children(Bytes::new(), None, &[(Bytes::new(), node)], memory);
            return Ok(Directory::new(vec![only], Vec::new(), memory));
        }
        let mut upper = Vec::new();
        let mut nodes = vec![(Bytes::new(), node, level)];
        for level in (2..=level).rev() {
            let here: Vec<Child> = (nodes.iter())
                .filter(|(.., own)| *own == level)
                .map(|(_, node, _)| *node)
                .collect();
            let batches = here.chunks(BRANCH_BATCH);
            let mut opened = batches.flat_map(|batch| picture.read_many(level, batch));
            let mut below = Vec::new();
            for (at, (lower, node, own)) in nodes.iter().enumerate() {
                let opened = (*own == level).then(|| opened.next()).flatten();
                let end = nodes.get(at + 1).map(|(next, ..)| next);
                match opened.map(|opened| decode_branch(&opened?, lower, end)) {
                    Some(Ok(children)) => {
                        let children = children.into_iter();
                        below.extend(children.map(|(lower, child)| (lower, child, level - 1)));
                        upper.push(*node);
                    }
                    // Only the keys beneath it are lost.
                    Some(Err(error)) if error.kind() == ErrorKind::Corruption => {
                        below.push((lower.clone(), *node, *own));
                    }
                    Some(Err(error)) => return Err(error),
                    None => below.push((lower.clone(), *node, *own)),
                }
            }
            drop(opened);
            nodes = below;
        }
        let branches = nodes
            .into_iter()
            .map(|(lower, node, level)| Branch::unread(lower, node, level));
        Ok(Directory::new(branches.collect(), upper, memory))
    }

    /// The branches, in order.
    pub(crate) fn branches(&self) -> &[Arc<Branch>] {
        &self.branches
    }

    /// Index of the branch that may have `key`.
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        self.lowers.find(key)
    }

    /// The first key that a branch may have.
    pub(crate) fn lower_of(&self, branch: usize) -> Bytes {
        match branch {
            // The branches before it may be gone.
            0 => Bytes::new(),
            _ => self.branches[branch].lower.clone(),
        }
    }

    /// The first key behind a branch; `None`: there is no end.
    pub(crate) fn end_of(&self, branch: usize) -> Option<&Bytes> {
        self.branches.get(branch + 1).map(|next| &next.lower)
    }

    /// The children of a branch. Adds to `reads` if they were read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn children(
        &self,
        branch: usize,
        picture: &Picture,
        reads: &mut u32,
    ) -> Result<&Children> {
        if !self.branches[branch].is_read() {
            *reads += 1;
            self.read(&[branch], picture)?;
        }
        let children = self.branches[branch].children.get();
        Ok(children.expect("the children were read above"))
    }

    /// Reads the children of those of these branches that are not in memory, in batches.
    ///
    /// # Errors
    /// I/O errors, `Corruption`. Children that were read before are kept.
    pub(crate) fn load_children(
        &self,
        branches: impl Iterator<Item = usize>,
        picture: &Picture,
    ) -> Result<()> {
        let mut missing = branches.filter(|&branch| !self.branches[branch].is_read());
        loop {
            let batch: Vec<usize> = missing.by_ref().take(BRANCH_BATCH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.read(&batch, picture)?;
        }
    }

    /// Reads the children of these branches in one batch.
    fn read(&self, branches: &[usize], picture: &Picture) -> Result<()> {
        for branch in branches.iter().map(|&branch| &self.branches[branch]) {
            if let (Some(node), 2..) = (&branch.node, branch.level) {
                picture.read(branch.level, node, false)?;
                let what = "a branch could not be read before: the database must be opened again";
                return Err(Error::corruption(node.file(1), node.offset, what));
            }
        }
        let place = |&branch: &usize| self.branches[branch].node;
        let places: Vec<Child> = branches.iter().filter_map(place).collect();
        for (&at, opened) in branches.iter().zip(picture.read_many(1, &places)) {
            let branch = &self.branches[at];
            let children = decode_branch(&opened?, &self.lower_of(at), self.end_of(at))?;
            let children = Children::new(&children, &picture.env.index().memory);
            // Another thread may have read them at the same time.
            drop(branch.children.set(children));
        }
        Ok(())
    }

    /// The place of the leaf that may have `key`, and the leaf. `None`: the tree is empty. Adds to
    /// `reads` if the branch was read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn leaf_of(
        &self,
        key: &[u8],
        picture: &Picture,
        reads: &mut u32,
    ) -> Result<Option<(Place, Child)>> {
        let branch = self.find(key);
        let children = self.children(branch, picture, reads)?;
        let child = children.find(key);
        let leaf = children.nodes.get(child);
        Ok(leaf.map(|leaf| (Place { branch, child }, *leaf)))
    }

    /// The first leaf of a branch in this direction. `None`: the tree is empty.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn edge_of(
        &self,
        branch: usize,
        direction: Direction,
        picture: &Picture,
    ) -> Result<Option<Place>> {
        let children = &self.children(branch, picture, &mut 0)?.nodes;
        Ok(children.len().checked_sub(1).map(|last| Place {
            branch,
            child: match direction {
                Direction::Forward => 0,
                Direction::Reverse => last,
            },
        }))
    }

    /// The leaf that follows the one at `place` in this direction. `None`: it is the last one.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn next_to(
        &self,
        Place { branch, child }: Place,
        direction: Direction,
        picture: &Picture,
    ) -> Result<Option<Place>> {
        let (child, next) = match direction {
            Direction::Forward => {
                let children = self.children(branch, picture, &mut 0)?.nodes.len();
                let child = (child + 1 < children).then_some(child + 1);
                (
                    child,
                    Some(branch + 1).filter(|&next| next < self.branches.len()),
                )
            }
            Direction::Reverse => (child.checked_sub(1), branch.checked_sub(1)),
        };
        match (child, next) {
            (Some(child), _) => Ok(Some(Place { branch, child })),
            (None, Some(next)) => self.edge_of(next, direction, picture),
            (None, None) => Ok(None),
        }
    }

    /// The leaf behind the one at `place`, with its place. `None`: it is the last one.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn leaf_behind(
        &self,
        place: Place,
        picture: &Picture,
    ) -> Result<Option<(Place, Child)>> {
        let Some(next) = self.next_to(place, Direction::Forward, picture)? else {
            return Ok(None);
        };
        let children = self.children(next.branch, picture, &mut 0)?;
        Ok(Some((next, children.nodes[next.child])))
    }

    /// The first key of a leaf, and the first key behind it. For a tree without leaves: of all
    /// keys.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn range_of(
        &self,
        place: Place,
        picture: &Picture,
    ) -> Result<(Bytes, Option<Bytes>)> {
        let children = self.children(place.branch, picture, &mut 0)?;
        let separator = |child| Bytes::from(children.separators.key(child));
        let lower = match place.child {
            0 => self.lower_of(place.branch),
            child => separator(child),
        };
        let upper = match place.child + 1 < children.nodes.len() {
            true => Some(separator(place.child + 1)),
            false => self.end_of(place.branch).cloned(),
        };
        Ok((lower, upper))
    }

    /// The children of a branch with their separators.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn separated(&self, branch: usize, picture: &Picture) -> Result<Vec<Separated>> {
        let children = self.children(branch, picture, &mut 0)?;
        let nodes = children.nodes.iter().enumerate();
        let separated = nodes.map(|(child, node)| match child {
            0 => (self.lower_of(branch), *node),
            _ => (Bytes::from(children.separators.key(child)), *node),
        });
        Ok(separated.collect())
    }
}
