//! Nodes of the tree and their optimistic locks.
//!
//! A node is a sorted array of slots. A slot is an eight-byte prefix of a key (see [`prefix`](crate::prefix)), taken behind the
//! `skip` bytes that all keys of the node share, and the address of a record with that key: in a leaf the newest record of the key,
//! in an inner node any record whose key separates two children. Search touches records only where prefixes tie.
//!
//! Thread safety: a seqlock. `version` is odd while a writer changes the node. Readers remember an even version, read atomics in any
//! state, and believe what they read only after [`NodeRef::validate`] found the version unchanged; writers change a node only
//! through [`Locked`]. Every shared mutable field is an atomic, so an interrupted reader sees stale or mixed values but never
//! undefined ones; addresses are stored with Release and loaded with Acquire, so whatever they lead to is complete, and it stays
//! (nodes and records live as long as the arena).
//!
//! Invariants (of a node that is not locked):
//! 1. `prefixes[i] == prefix_at(key(i), skip)`, keys strictly ascend, `i < count <= SLOTS`.
//! 2. Every key that routes here is in `low..high` (a null fence is infinite). `low` never changes; `high` only falls, by splits.
//! 3. All keys share their first `skip` bytes. If `reference` is null, then all keys in `low..high` do; else a key has to be
//!    compared with those of `reference` before its prefix means anything.
//! 4. In a leaf, `right` is the leaf whose `low` is this leaf's `high`; `max_seqno` bounds the seqnos of all its records from above.
//! 5. In an inner node, `children[i]` holds the keys from `key(i - 1)` (included) to `key(i)` (excluded), `0 <= i <= count`.

use std::cmp::Ordering as Order;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

mod locked;

pub(crate) use locked::Locked;

use crate::arena::Arena;
use crate::prefetch_line;
use crate::prefix::prefix_at;
use crate::record::Record;
use glintdb_core::SeqNum;
use glintdb_core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use glintdb_core::sync::{hint, thread};

/// Slots of a node. Measured: see docs/decisions/002-memtable.md.
pub(crate) const SLOTS: usize = if cfg!(any(miri, loom, feature = "small-nodes")) {
    4
} else {
    64
};

#[repr(C, align(64))]
pub(crate) struct Node {
    version: AtomicU64,
    count: AtomicU32,
    skip: AtomicU32,
    reference: AtomicPtr<u8>,
    low: AtomicPtr<u8>,
    high: AtomicPtr<u8>,
    right: AtomicPtr<Node>,
    max_seqno: AtomicU64,
    /// 0 for a leaf. Immutable.
    level: u32,
    last_index: AtomicU16,
    ascending_run: AtomicU16,
    prefixes: [AtomicU64; SLOTS],
    records: [AtomicPtr<u8>; SLOTS],
}

#[repr(C)]
struct InnerNode {
    node: Node,
    children: [AtomicPtr<Node>; SLOTS + 1],
}

#[cfg(loom)]
impl Node {
    fn modelled(level: u32) -> Self {
        Node {
            version: AtomicU64::new(0),
            count: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            reference: AtomicPtr::default(),
            low: AtomicPtr::default(),
            high: AtomicPtr::default(),
            right: AtomicPtr::default(),
            max_seqno: AtomicU64::new(0),
            level,
            last_index: AtomicU16::new(0),
            ascending_run: AtomicU16::new(0),
            prefixes: std::array::from_fn(|_| AtomicU64::new(0)),
            records: std::array::from_fn(|_| AtomicPtr::default()),
        }
    }
}

/// Where a key is or belongs.
pub(crate) struct Position {
    /// The number of keys in the node that are smaller.
    pub(crate) index: usize,
    /// The record of slot `index`, if it has the very key.
    pub(crate) found: Option<Record>,
}

/// Address of a published node; valid as long as the arena.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRef(NonNull<Node>);

impl NodeRef {
    pub(crate) fn create(arena: &Arena, level: u32) -> Self {
        let bytes = if level == 0 {
            size_of::<Node>()
        } else {
            size_of::<InnerNode>()
        };
        let at = arena.allocate_node(bytes);
        // SAFETY: `bytes` fresh, cache-line-aligned bytes belong to us alone. All-zero bytes are a valid `Node` and `InnerNode`: atomics
        // of zero and null. The cast keeps the provenance of the whole allocation, so the children stay reachable.
        #[cfg(not(loom))]
        unsafe {
            at.as_ptr().write_bytes(0, bytes);
            let node = at.cast::<Node>();
            (&raw mut (*node.as_ptr()).level).write(level);
            Self(node)
        }
        // SAFETY: as above, but loom's atomics have to be made one by one.
        #[cfg(loom)]
        unsafe {
            let node = at.cast::<Node>();
            node.write(Node::modelled(level));
            if level > 0 {
                (&raw mut (*at.cast::<InnerNode>().as_ptr()).children)
                    .write(std::array::from_fn(|_| AtomicPtr::default()));
            }
            Self(node)
        }
    }

    /// # Safety
    /// `raw` is null or was made by [`NodeRef::into_raw`], was read with Acquire, and its arena outlives every use of the result.
    pub(crate) unsafe fn from_raw(raw: *mut Node) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    pub(crate) fn into_raw(self) -> *mut Node {
        self.0.as_ptr()
    }

    fn node(&self) -> &Node {
        // SAFETY: `self` exists only for initialised nodes whose arena lives (contract of `from_raw`).
        unsafe { self.0.as_ref() }
    }

    fn children(&self) -> &[AtomicPtr<Node>; SLOTS + 1] {
        assert!(self.node().level > 0, "a leaf has no children");
        // SAFETY: nodes of level above 0 were allocated and zeroed as `InnerNode` by `create`.
        unsafe { &self.0.cast::<InnerNode>().as_ref().children }
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.node().level == 0
    }

    pub(crate) fn level(self) -> u32 {
        self.node().level
    }

    /// Asks at once for all cache lines that a search and an insert will touch, instead of for one after the other. A descent knows
    /// the level before it has seen the node.
    #[inline]
    pub(crate) fn prefetch(self, level: u32) {
        let base = self.0.as_ptr().cast::<u8>().cast_const();
        let lines = |from: usize, to: usize| {
            let mut at = from;
            while at < to {
                prefetch_line(base.wrapping_add(at));
                at += 64;
            }
        };
        lines(0, offset_of!(Node, records));
        if level == 0 {
            lines(offset_of!(Node, records), size_of::<Node>());
        } else {
            // Its records are touched only where prefixes tie.
            lines(offset_of!(InnerNode, children), size_of::<InnerNode>());
        }
    }

    /// Waits until nobody changes the node; returns its version.
    #[inline]
    pub(crate) fn stable_version(self) -> u64 {
        let mut spins = 0_u32;
        loop {
            let version = self.node().version.load(Ordering::Acquire);
            if version & 1 == 0 {
                return version;
            }
            // A holder needs well under a microsecond, unless it was descheduled.
            spins += 1;
            if spins < 64 {
                hint::spin_loop()
            } else {
                thread::yield_now()
            }
        }
    }

    /// Whether the node is still as it was at `version`, that is: whether everything read since then is one consistent state.
    #[inline]
    pub(crate) fn validate(self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.node().version.load(Ordering::Relaxed) == version
    }

    /// Locks the node if it is still as it was at `version`.
    #[inline]
    pub(crate) fn lock(self, version: u64) -> Option<Locked> {
        let locked = self
            .node()
            .version
            .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        // Whoever sees one of the changes that follow also sees the odd version.
        fence(Ordering::Release);
        locked.then(|| Locked::new(self))
    }

    #[inline]
    pub(crate) fn count(self) -> usize {
        (self.node().count.load(Ordering::Relaxed) as usize).min(SLOTS)
    }

    #[inline]
    pub(crate) fn record(self, index: usize) -> Option<Record> {
        // SAFETY: slots only ever hold null or records of this node's arena, stored with Release.
        unsafe { Record::from_raw(self.node().records[index].load(Ordering::Acquire)) }
    }

    #[inline]
    pub(crate) fn child(self, index: usize) -> Option<Self> {
        // SAFETY: as for `record`.
        unsafe { Self::from_raw(self.children()[index].load(Ordering::Acquire)) }
    }

    pub(crate) fn low(self) -> Option<Record> {
        // SAFETY: as for `record`.
        unsafe { Record::from_raw(self.node().low.load(Ordering::Acquire)) }
    }

    pub(crate) fn high(self) -> Option<Record> {
        // SAFETY: as for `record`.
        unsafe { Record::from_raw(self.node().high.load(Ordering::Acquire)) }
    }

    pub(crate) fn right(self) -> Option<Self> {
        // SAFETY: as for `record`.
        unsafe { Self::from_raw(self.node().right.load(Ordering::Acquire)) }
    }

    fn reference(self) -> Option<Record> {
        // SAFETY: as for `record`.
        unsafe { Record::from_raw(self.node().reference.load(Ordering::Acquire)) }
    }

    pub(crate) fn max_seqno(self) -> SeqNum {
        SeqNum(self.node().max_seqno.load(Ordering::Relaxed))
    }

    /// Finds `key`, which must be within the fences of the validated node. `None` if the node was seen in the middle of a change.
    #[inline]
    pub(crate) fn search(self, key: &[u8]) -> Option<Position> {
        let node = self.node();
        let count = self.count();
        let skip = node.skip.load(Ordering::Relaxed) as usize;
        if let Some(reference) = self.reference() {
            let shared = reference.key().get(..skip)?;
            match key[..skip.min(key.len())].cmp(shared) {
                Order::Equal => {}
                Order::Less => {
                    return Some(Position {
                        index: 0,
                        found: None,
                    });
                }
                Order::Greater => {
                    return Some(Position {
                        index: count,
                        found: None,
                    });
                }
            }
        }
        let prefix = prefix_at(key, skip);
        let index = lower_bound(&node.prefixes, count, prefix);
        if index == count || node.prefixes[index].load(Ordering::Relaxed) != prefix {
            return Some(Position { index, found: None });
        }
        self.search_tied(key, prefix, index, count)
    }

    fn search_tied(self, key: &[u8], prefix: u64, first: usize, count: usize) -> Option<Position> {
        let prefixes = &self.node().prefixes;
        let mut low = first;
        let mut high = first + 1;
        while high < count && prefixes[high].load(Ordering::Relaxed) == prefix {
            high += 1;
        }
        while low < high {
            let middle = (low + high) / 2;
            let record = self.record(middle)?;
            match record.key().cmp(key) {
                Order::Less => low = middle + 1,
                Order::Equal => {
                    return Some(Position {
                        index: middle,
                        found: Some(record),
                    });
                }
                Order::Greater => high = middle,
            }
        }
        Some(Position {
            index: low,
            found: None,
        })
    }
}

/// The number of the first `count` prefixes that are smaller than `prefix`, without a branch that depends on them.
#[inline]
fn lower_bound(prefixes: &[AtomicU64; SLOTS], count: usize, prefix: u64) -> usize {
    let mut base = 0;
    let mut left = count;
    while left > 1 {
        let half = left / 2;
        // Always in bounds: base + left <= count <= SLOTS.
        let smaller = prefixes[(base + half - 1) & (SLOTS_MASK)].load(Ordering::Relaxed) < prefix;
        base = if smaller { base + half } else { base };
        left -= half;
    }
    if left == 1 && prefixes[base & SLOTS_MASK].load(Ordering::Relaxed) < prefix {
        base += 1;
    }
    base
}

/// Tells the compiler that an index is in bounds.
const SLOTS_MASK: usize = SLOTS.next_power_of_two() - 1;
