//! The memtable: descent, insert and lookup. See the crate's documentation for the whole.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::arena::Arena;
use crate::cursor::{self, MemCursor};
use crate::node::{Locked, Node, NodeRef, Position, SLOTS};
use crate::record::Record;
use glintdb_core::sync::atomic::{AtomicPtr, Ordering};
use glintdb_core::sync::{hint, thread_number};
use glintdb_core::{Direction, EntryRef, SeqNum, planted};

const COUNTERS: usize = 8;

#[repr(align(64))]
struct Counter(AtomicUsize);

/// An ordered concurrent map from (key, seqno) to value.
pub struct Memtable {
    /// Null before the first insert, so that a memtable without records takes nothing of the arena.
    root: AtomicPtr<Node>,
    /// Keys, counted apart by thread so that inserts do not meet at one cache line.
    keys: [Counter; COUNTERS],
    arena: Arc<Arena>,
}

// SAFETY: all shared state is atomics, and what they point to is either immutable or atomics again, in an arena that is
// `Send + Sync` and that this value keeps alive.
unsafe impl Send for Memtable {}
// SAFETY: as above.
unsafe impl Sync for Memtable {}

/// Which leaf a descent looks for.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// The leaf whose fences hold the key.
    Holding(&'a [u8]),
    /// The leaf whose fences hold the keys just below the key.
    Below(&'a [u8]),
    First,
    Last,
}

/// A node and the version at which it was reached; what is read from it counts once validated.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) node: NodeRef,
    pub(crate) version: u64,
}

impl Memtable {
    /// An empty memtable whose nodes and records will be in `arena`.
    #[must_use]
    pub fn new(arena: Arc<Arena>) -> Self {
        Self {
            root: AtomicPtr::new(std::ptr::null_mut()),
            keys: [const { Counter(AtomicUsize::new(0)) }; COUNTERS],
            arena,
        }
    }

    /// Adds a record. Any number of threads, seqnos in any order; of two records with the same key and seqno the one inserted later wins.
    ///
    /// # Panics
    /// If the key has 16 MiB or more, or the inline value 4 GiB or more: the engine refuses both long before.
    pub fn insert(&self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) {
        let mut new = New {
            key,
            seqno,
            value,
            record: None,
            spare: Vec::new(),
        };
        while self.try_insert(&mut new).is_none() {
            if !self.has_root() {
                self.make_root(&mut new);
            }
            hint::spin_loop();
        }
    }

    /// The newest record of `key` with a seqno of at most `at`. Takes no lock and writes nothing shared.
    #[must_use]
    pub fn get(&self, key: &[u8], at: SeqNum) -> Option<(SeqNum, EntryRef<'_>)> {
        let at = planted!(
            "memtable: a search takes the newest version",
            at,
            SeqNum::MAX
        );
        let record = self.newest(key)?.newest_at(at)?;
        Some((record.seqno(), record.value()))
    }

    /// The newest seqno of `key`, if the memtable has the key.
    #[must_use]
    pub fn latest_seqno(&self, key: &[u8]) -> Option<SeqNum> {
        self.newest(key).map(Record::seqno)
    }

    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys
            .iter()
            .map(|counter| counter.0.load(Ordering::Relaxed))
            .sum()
    }

    /// Whether nothing was ever inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A cursor over the keys in the bounds, in `direction`, that yields for each key its newest record with a seqno of at most `at` and
    /// passes over keys that have none. Bounds that exclude each other give an empty cursor.
    ///
    /// Inserts may go on: the cursor neither skips nor repeats a key that had such a record when it was made. Records inserted later
    /// at or below `at` may or may not be seen (the engine publishes a seqno only when all below it are in).
    pub fn cursor(
        self: &Arc<Self>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        at: SeqNum,
    ) -> MemCursor {
        MemCursor::new(Arc::clone(self), lower, upper, direction, at)
    }

    /// The newest seqno, if greater than `above`, among the records whose keys lie in the bounds. Walks the leaves of the range and
    /// reads records only in those that may hold something newer than `above`.
    #[must_use]
    pub fn latest_seqno_in(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        above: SeqNum,
    ) -> Option<SeqNum> {
        cursor::latest_seqno_in(self, lower, upper, above)
    }

    fn newest(&self, key: &[u8]) -> Option<Record> {
        loop {
            if let Some(leaf) = self.try_descend(Target::Holding(key))
                && let Some(position) = leaf.node.search(key)
                && leaf.node.validate(leaf.version)
            {
                return position.found;
            }
            if !self.has_root() {
                return None;
            }
            hint::spin_loop();
        }
    }

    /// Whether there was an insert. Without a root every descent fails.
    #[cold]
    pub(crate) fn has_root(&self) -> bool {
        !self.root.load(Ordering::Acquire).is_null()
    }

    /// Makes the first node the root, unless another thread has done so meanwhile.
    #[cold]
    fn make_root(&self, new: &mut New<'_>) {
        let root = new.node(&self.arena, 0);
        let made = self.root.compare_exchange(
            std::ptr::null_mut(),
            root.into_raw(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if made.is_err() {
            new.spare.push(root);
        }
    }

    /// The root and its version; `None` if it was just replaced, or there is none.
    fn seen_root(&self) -> Option<Seen> {
        let raw = self.root.load(Ordering::Acquire);
        // SAFETY: the root was stored with Release and lies in our arena.
        let node = unsafe { NodeRef::from_raw(raw) }?;
        let version = node.stable_version();
        // A split of the root changes its version before it stores the new root, so a version read while it was still the root
        // tells all later splits.
        (self.root.load(Ordering::Acquire) == raw).then_some(Seen { node, version })
    }

    /// One attempt to reach a leaf; `None` if a writer was in the way.
    #[inline]
    pub(crate) fn try_descend(&self, target: Target<'_>) -> Option<Seen> {
        let mut seen = self.seen_root()?;
        while !seen.node.is_leaf() {
            let index = match target {
                Target::Holding(key) => child_index(&seen.node.search(key)?),
                Target::Below(key) => seen.node.search(key)?.index,
                Target::First => 0,
                Target::Last => seen.node.count(),
            };
            seen = step(seen, index)?;
        }
        Some(seen)
    }

    /// One attempt; `None` if another writer was in the way or a node on the path had to be split first.
    fn try_insert(&self, new: &mut New<'_>) -> Option<()> {
        let mut parent: Option<(Seen, usize)> = None;
        let mut seen = self.seen_root()?;
        while !seen.node.is_leaf() {
            if seen.node.count() == SLOTS {
                // Split on the way down, so that a parent always has room for one more child.
                self.split(parent, seen, new, |node, right| node.split_inner(right));
                return None;
            }
            let index = child_index(&seen.node.search(new.key)?);
            parent = Some((seen, index));
            seen = step(seen, index)?;
        }
        let position = seen.node.search(new.key)?;
        let record = new.record(&self.arena, position.found.is_some());
        if let Some(newest) = position.found {
            let leaf = seen.node.lock(seen.version)?;
            leaf.raise_max_seqno(record.seqno());
            let wins = planted!(
                "memtable: of two writes in a batch the first one wins",
                newest.seqno() <= record.seqno(),
                newest.seqno() < record.seqno()
            );
            if wins {
                record.put_in_front_of(newest);
                leaf.replace_record(position.index, record);
            } else {
                record.put_behind(newest);
            }
            return Some(());
        }
        if seen.node.count() == SLOTS {
            let split = self.split(parent, seen, new, |leaf, right| {
                leaf.raise_max_seqno(record.seqno());
                leaf.split_leaf(right, position.index, record)
            });
            if !split {
                return None;
            }
        } else {
            let leaf = seen.node.lock(seen.version)?;
            leaf.raise_max_seqno(record.seqno());
            leaf.insert(position.index, record, None);
        }
        self.keys[thread_number() % COUNTERS]
            .0
            .fetch_add(1, Ordering::Relaxed);
        Some(())
    }

    /// Splits the full node `seen` with `split` and tells its parent (or makes a new root). False, and nothing done, if a writer was in
    /// the way.
    fn split(
        &self,
        parent: Option<(Seen, usize)>,
        seen: Seen,
        new: &mut New<'_>,
        split: impl FnOnce(&Locked, NodeRef) -> Record,
    ) -> bool {
        let level = seen.node.level();
        // Memory first: the locks below are held for as short as can be.
        let right = new.node(&self.arena, level);
        let new_root = parent.is_none().then(|| new.node(&self.arena, level + 1));
        // Parents before children everywhere, and never waiting: no deadlock.
        let parent = match parent {
            None => None,
            Some((parent, index)) => match parent.node.lock(parent.version) {
                None => return new.keep(right, new_root),
                Some(locked) => Some((locked, index)),
            },
        };
        let Some(locked) = seen.node.lock(seen.version) else {
            return new.keep(right, new_root);
        };
        let separator = split(&locked, right);
        match (parent, new_root) {
            (Some((parent, index)), _) => parent.insert(index, separator, Some(right)),
            (None, Some(new_root)) => {
                let Some(root) = new_root.lock(0) else {
                    unreachable!("nobody else knows the new root")
                };
                root.set_child(0, seen.node);
                root.insert(0, separator, Some(right));
                drop(root);
                self.root.store(new_root.into_raw(), Ordering::Release);
            }
            (None, None) => unreachable!("a node without a parent is the root"),
        }
        true
    }
}

/// An insert under way: what to insert, and what earlier attempts have allocated already.
struct New<'a> {
    key: &'a [u8],
    seqno: SeqNum,
    value: EntryRef<'a>,
    record: Option<Record>,
    spare: Vec<NodeRef>,
}

impl New<'_> {
    fn record(&mut self, arena: &Arena, has_history: bool) -> Record {
        *self.record.get_or_insert_with(|| {
            Record::create(arena, self.key, self.seqno, self.value, has_history)
        })
    }

    fn node(&mut self, arena: &Arena, level: u32) -> NodeRef {
        match self.spare.iter().position(|node| node.level() == level) {
            Some(at) => self.spare.swap_remove(at),
            None => NodeRef::create(arena, level),
        }
    }

    /// Keeps nodes for the next attempt; false, as nothing was inserted.
    fn keep(&mut self, right: NodeRef, new_root: Option<NodeRef>) -> bool {
        self.spare.push(right);
        self.spare.extend(new_root);
        false
    }
}

/// The child that holds a key: separators belong to the child to their right.
fn child_index(position: &Position) -> usize {
    position.index + usize::from(position.found.is_some())
}

/// From an inner node to a child, such that the child's fences were the parent's separators when its version was read.
#[inline]
fn step(parent: Seen, index: usize) -> Option<Seen> {
    let node = parent.node.child(index)?;
    node.prefetch(parent.node.level() - 1);
    let version = node.stable_version();
    // The child cannot have been split before its version was read, as that would have changed the parent.
    parent
        .node
        .validate(parent.version)
        .then_some(Seen { node, version })
}
