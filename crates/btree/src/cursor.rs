//! Walks the tree, and the shelf above it, in one direction.
//!
//! Not thread-safe: belongs to one reader. Keeps the files that it reads.
//!
//! Leaves do not name their neighbours: else a change of one leaf would rewrite all leaves of a
//! copy-on-write tree. The cursor finds the next leaf in the directory, and reads several leaves
//! ahead in one batch.

use crate::directory::Place;
use crate::view::{LeafBatch, View};
use bytes::Bytes;
use glintdb_core::index::{Cursor, Take};
use glintdb_core::key::{at_or_after, at_or_before};
use glintdb_core::{Direction, EntryRef, RangeTombstone, Result, SeqNum};
use glintdb_runs::keys::TombstoneSet;
use glintdb_runs::table::BlockCursor;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// Leaves that are read together at first. Each batch has twice as many as the one before.
const LEAVES_AHEAD_FIRST: usize = 4;
/// Most leaves that are read together: 256 KiB of the smallest.
const LEAVES_AHEAD_MAX: usize = 64;
/// Number of hidden entries in a row that the cursor passes one by one. Then it seeks behind what
/// the range tombstone covers.
const STEPS_BEFORE_SEEK: usize = 8;

/// A cursor over the entries of the tree, without those that range tombstones hide.
pub(crate) struct TreeCursor {
    view: Arc<View>,
    lower: Bound<Box<[u8]>>,
    upper: Bound<Box<[u8]>>,
    direction: Direction,
    tombstones: Option<Arc<TombstoneSet>>,
    /// Where the leaf is.
    place: Place,
    leaf: BlockCursor,
    ahead: usize,
    /// The edge of the range tombstone that a seek has passed last.
    passed: Option<Bytes>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first entry.
    New,
    /// On an entry.
    On,
    /// Behind the last entry, or after an error.
    End,
}

impl TreeCursor {
    /// A cursor over the entries within the bounds. Reads nothing yet. `tombstones` may hide
    /// entries.
    pub(crate) fn new(
        view: &Arc<View>,
        tombstones: &Arc<TombstoneSet>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> TreeCursor {
        TreeCursor {
            view: Arc::clone(view),
            lower: lower.map(Box::from),
            upper: upper.map(Box::from),
            direction,
            tombstones: (!tombstones.is_empty()).then(|| Arc::clone(tombstones)),
            place: Place {
                branch: 0,
                child: 0,
            },
            leaf: BlockCursor::new(direction),
            ahead: LEAVES_AHEAD_FIRST,
            passed: None,
            state: State::New,
        }
    }

    /// The bound at which the cursor begins.
    fn near(&self) -> Bound<&[u8]> {
        let near = match self.direction {
            Direction::Forward => &self.lower,
            Direction::Reverse => &self.upper,
        };
        near.as_ref().map(AsRef::as_ref)
    }

    /// Whether `key` is beyond the bound at which the cursor ends.
    fn is_beyond(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => !at_or_before(key, self.upper.as_ref().map(AsRef::as_ref)),
            Direction::Reverse => !at_or_after(key, self.lower.as_ref().map(AsRef::as_ref)),
        }
    }

    /// The order of two keys in the cursor's direction.
    fn order(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Reverse => b.cmp(a),
        }
    }

    /// Opens the leaf at the cursor's place, and reads those behind it ahead if it is not in
    /// memory.
    fn open_leaf(&mut self) -> Result<()> {
        let picture = &self.view.picture;
        let Place { branch, child } = self.place;
        let children = picture.directory()?.children(branch, picture, &mut 0)?;
        let leaf = &children.nodes[child];
        let file = picture.file_of(0, leaf)?;
        if let Some(block) = file.blocks().cached(leaf.handle()) {
            return self.leaf.enter(file.blocks().id(), block);
        }
        let ahead = match self.direction {
            Direction::Forward => child..(child + self.ahead).min(children.nodes.len()),
            Direction::Reverse => (child + 1).saturating_sub(self.ahead)..child + 1,
        };
        self.ahead = (self.ahead * 2).min(LEAVES_AHEAD_MAX);
        let mut batch = LeafBatch::default();
        for node in &children.nodes[ahead] {
            batch.want(picture, *node)?;
        }
        // An error is met again by the reader of the leaf.
        drop(batch.read(&self.view.common.env));
        let node = picture.leaf(leaf, &mut 0)?;
        self.leaf.enter(node.file.blocks().id(), node.block)
    }

    /// Goes to the edge of the leaf that may have `key` (`None`: of the first leaf in its
    /// direction). Returns false if the tree is empty.
    fn go_to_leaf(&mut self, key: Option<&[u8]>) -> Result<bool> {
        let picture = &self.view.picture;
        if picture.root.is_none() {
            return Ok(false);
        }
        let directory = picture.directory()?;
        let place = match (key, self.direction) {
            (Some(key), _) => directory
                .leaf_of(key, picture, &mut 0)?
                .map(|(place, _)| place),
            (None, Direction::Forward) => directory.edge_of(0, Direction::Forward, picture)?,
            (None, Direction::Reverse) => {
                let last = directory.branches().len() - 1;
                directory.edge_of(last, Direction::Reverse, picture)?
            }
        };
        let Some(place) = place else { return Ok(false) };
        self.place = place;
        self.open_leaf()?;
        Ok(true)
    }

    /// Goes to the edge of the next leaf. Returns false if there is none.
    fn next_leaf(&mut self) -> Result<bool> {
        let picture = &self.view.picture;
        let Some(next) = (picture.directory()?).next_to(self.place, self.direction, picture)?
        else {
            return Ok(false);
        };
        self.place = next;
        self.open_leaf()?;
        Ok(true)
    }

    /// Goes to the next entry, hidden or not.
    fn step(&mut self) -> Result<bool> {
        loop {
            if self.leaf.advance()? {
                return Ok(!self.is_beyond(self.leaf.key()));
            }
            if !self.next_leaf()? {
                return Ok(false);
            }
        }
    }

    /// Goes to the first entry at or behind `key`, hidden or not.
    fn go_to(&mut self, key: &[u8]) -> Result<bool> {
        if self.state == State::On {
            if self.leaf.seek(key)? {
                return Ok(!self.is_beyond(self.leaf.key()));
            }
            // It jumps, so what it reads next says little about what it reads then.
            self.ahead = LEAVES_AHEAD_FIRST;
        }
        if !self.go_to_leaf(Some(key))? {
            return Ok(false);
        }
        if self.leaf.seek(key)? {
            return Ok(!self.is_beyond(self.leaf.key()));
        }
        match self.next_leaf()? {
            true => self.step(),
            false => Ok(false),
        }
    }

    /// Goes to the first entry behind `key`, hidden or not.
    fn go_behind(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.go_to(key)?;
        match found && self.leaf.key() == key {
            true => self.step(),
            false => Ok(found),
        }
    }

    /// Goes to the first entry within the bounds, hidden or not.
    fn begin(&mut self) -> Result<bool> {
        let near = self.near().map(Box::<[u8]>::from);
        match near {
            Bound::Included(key) => self.go_to(&key),
            Bound::Excluded(key) => self.go_behind(&key),
            Bound::Unbounded => Ok(self.go_to_leaf(None)? && self.step()?),
        }
    }

    /// Goes on from the current entry while range tombstones hide it.
    fn pass_hidden(&mut self, mut found: bool) -> Result<bool> {
        let mut passed = 0;
        while found {
            let hidden_by = self.tombstones.as_ref().and_then(|set| {
                let range = set.fragment_at(self.leaf.key())?;
                (range.seqno > self.leaf.seqno()).then(|| range.clone())
            });
            let Some(range) = hidden_by else {
                return Ok(true);
            };
            passed += 1;
            found = match passed >= STEPS_BEFORE_SEEK && range.seqno > self.view.picture.newest() {
                true => self.pass_range(&range)?,
                false => self.step()?,
            };
        }
        Ok(false)
    }

    /// Goes behind what `range` covers, which hides everything in it.
    fn pass_range(&mut self, range: &RangeTombstone) -> Result<bool> {
        let edge = match self.direction {
            Direction::Forward => range.end.as_ref(),
            Direction::Reverse => Some(&range.start),
        };
        // With keys in a leaf that are outside of the leaf's range, the cursor would come back to
        // this range again and again.
        if let (Some(passed), Some(edge)) = (&self.passed, edge)
            && self.order(edge, passed).is_le()
        {
            let what = "a key in a range that the cursor has passed";
            return Err(self.leaf.corrupt(what));
        }
        self.passed = edge.cloned();
        match (self.direction, &range.end) {
            (Direction::Forward, Some(end)) => self.go_to(end),
            (Direction::Forward, None) => Ok(false),
            (Direction::Reverse, _) => self.go_behind(&range.start),
        }
    }

    /// Moves by `moves`. The cursor is over at its end, and after an error.
    fn moved(&mut self, moves: impl FnOnce(&mut Self) -> Result<bool>) -> Result<bool> {
        if self.state == State::End {
            return Ok(false);
        }
        let found = moves(self).and_then(|found| self.pass_hidden(found));
        self.state = match &found {
            Ok(true) => State::On,
            _ => State::End,
        };
        found
    }
}

impl Cursor for TreeCursor {
    fn advance(&mut self) -> Result<bool> {
        self.moved(|cursor| match cursor.state {
            State::New => cursor.begin(),
            _ => cursor.step(),
        })
    }

    fn walk(&mut self, take: &mut Take<'_>) -> Result<bool> {
        // Nothing is hidden, so the rest goes leaf by leaf.
        let is_plain = self.tombstones.is_none() && self.direction == Direction::Forward;
        while !(is_plain && self.state == State::On) {
            if !self.advance()? {
                return Ok(false);
            }
            if !take(self.key(), self.seqno(), self.value(), self.memory()) {
                return Ok(true);
            }
        }
        let walked = self.walk_leaves(take);
        if !matches!(walked, Ok(true)) {
            self.state = State::End;
        }
        walked
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.moved(|cursor| {
            if cursor.state == State::On && cursor.order(cursor.leaf.key(), key).is_ge() {
                return Ok(true);
            }
            let near = cursor.near();
            let is_before = match near {
                Bound::Included(near) | Bound::Excluded(near) => cursor.order(key, near).is_le(),
                Bound::Unbounded => false,
            };
            match cursor.state == State::New && is_before {
                true => cursor.begin(),
                false => cursor.go_to(key),
            }
        })
    }

    fn key(&self) -> &[u8] {
        self.leaf.key()
    }

    fn seqno(&self) -> SeqNum {
        self.leaf.seqno()
    }

    fn value(&self) -> EntryRef<'_> {
        // It was read once already when the cursor came to the entry.
        self.leaf.value().unwrap_or(EntryRef::Tombstone)
    }

    fn memory(&self) -> Option<&Bytes> {
        Some(self.leaf.memory())
    }
}

impl TreeCursor {
    /// Gives the entries behind the current one to `take`, leaf by leaf.
    fn walk_leaves(&mut self, take: &mut Take<'_>) -> Result<bool> {
        loop {
            let upper = self.upper.as_ref().map(AsRef::as_ref);
            let mut is_beyond = false;
            let stopped = self.leaf.walk(&mut |key, seqno, value, memory| {
                is_beyond = !at_or_before(key, upper);
                !is_beyond && take(key, seqno, value, memory)
            })?;
            if is_beyond {
                return Ok(false);
            }
            if stopped {
                return Ok(true);
            }
            if !self.next_leaf()? {
                return Ok(false);
            }
        }
    }
}

/// A cursor over the shelf and the tree. Of each key it shows the shelf's entry, if there is one.
pub(crate) struct Overlay {
    shelf: Side,
    tree: Side,
    direction: Direction,
    on: On,
    begun: bool,
}

/// One of the two cursors.
struct Side {
    cursor: Box<dyn Cursor>,
    has_entry: bool,
}

/// Where the current entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Nothing,
    Shelf,
    /// In the shelf. The tree has an older entry of the key.
    Both,
    Tree,
}

impl Side {
    fn new(cursor: Box<dyn Cursor>) -> Self {
        Side {
            cursor,
            has_entry: false,
        }
    }

    fn advance(&mut self) -> Result<()> {
        self.has_entry = self.cursor.advance()?;
        Ok(())
    }

    /// Seeks, unless the cursor is at its end or has reached `key`.
    fn seek(&mut self, key: &[u8], begun: bool, direction: Direction) -> Result<()> {
        if begun && !self.has_entry {
            return Ok(());
        }
        let order = match begun {
            true => self.cursor.key().cmp(key),
            false => return self.seek_now(key),
        };
        let reached = match direction {
            Direction::Forward => order.is_ge(),
            Direction::Reverse => order.is_le(),
        };
        match reached {
            true => Ok(()),
            false => self.seek_now(key),
        }
    }

    fn seek_now(&mut self, key: &[u8]) -> Result<()> {
        self.has_entry = self.cursor.seek(key)?;
        Ok(())
    }
}

impl Overlay {
    pub(crate) fn new(shelf: Box<dyn Cursor>, tree: TreeCursor, direction: Direction) -> Overlay {
        Overlay {
            shelf: Side::new(shelf),
            tree: Side::new(Box::new(tree)),
            direction,
            on: On::Nothing,
            begun: false,
        }
    }

    /// Finds the current entry after the cursors were moved.
    fn settle(&mut self) -> bool {
        self.begun = true;
        self.on = match (self.shelf.has_entry, self.tree.has_entry) {
            (false, false) => On::Nothing,
            (true, false) => On::Shelf,
            (false, true) => On::Tree,
            (true, true) => {
                let order = self.shelf.cursor.key().cmp(self.tree.cursor.key());
                let order = match self.direction {
                    Direction::Forward => order,
                    Direction::Reverse => order.reverse(),
                };
                match order {
                    Ordering::Less => On::Shelf,
                    Ordering::Equal => On::Both,
                    Ordering::Greater => On::Tree,
                }
            }
        };
        self.on != On::Nothing
    }

    fn current(&self) -> &dyn Cursor {
        match self.on {
            On::Shelf | On::Both => &*self.shelf.cursor,
            On::Tree => &*self.tree.cursor,
            On::Nothing => {
                panic!("a cursor was asked for its entry before advance or seek said true")
            }
        }
    }
}

impl Overlay {
    fn try_advance(&mut self) -> Result<bool> {
        if !self.begun {
            self.shelf.advance()?;
            self.tree.advance()?;
            return Ok(self.settle());
        }
        match self.on {
            On::Nothing => return Ok(false),
            On::Shelf => self.shelf.advance()?,
            On::Tree => self.tree.advance()?,
            On::Both => {
                self.shelf.advance()?;
                self.tree.advance()?;
            }
        }
        Ok(self.settle())
    }

    fn try_walk(&mut self, take: &mut Take<'_>) -> Result<bool> {
        loop {
            if self.on == On::Tree && !self.shelf.has_entry {
                // Nothing of the shelf is left.
                let stopped = self.tree.cursor.walk(take)?;
                self.tree.has_entry = stopped;
                self.settle();
                return Ok(stopped);
            }
            if !self.try_advance()? {
                return Ok(false);
            }
            let current = self.current();
            if !take(
                current.key(),
                current.seqno(),
                current.value(),
                current.memory(),
            ) {
                return Ok(true);
            }
        }
    }

    fn try_seek(&mut self, key: &[u8]) -> Result<bool> {
        let (begun, direction) = (self.begun, self.direction);
        self.shelf.seek(key, begun, direction)?;
        self.tree.seek(key, begun, direction)?;
        Ok(self.settle())
    }

    /// The cursor is over after an error.
    fn checked(&mut self, moved: Result<bool>) -> Result<bool> {
        if moved.is_err() {
            (self.shelf.has_entry, self.tree.has_entry) = (false, false);
            (self.on, self.begun) = (On::Nothing, true);
        }
        moved
    }
}

impl Cursor for Overlay {
    fn advance(&mut self) -> Result<bool> {
        let moved = self.try_advance();
        self.checked(moved)
    }

    fn walk(&mut self, take: &mut Take<'_>) -> Result<bool> {
        let moved = self.try_walk(take);
        self.checked(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let moved = self.try_seek(key);
        self.checked(moved)
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn seqno(&self) -> SeqNum {
        self.current().seqno()
    }

    fn value(&self) -> EntryRef<'_> {
        self.current().value()
    }

    fn memory(&self) -> Option<&Bytes> {
        self.current().memory()
    }
}
