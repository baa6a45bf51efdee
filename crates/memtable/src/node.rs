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
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use crate::arena::Arena;
use crate::prefetch_line;
use crate::prefix::{common_len, prefix_at};
use crate::record::{RawRecord, Record};
use glintdb_core::SeqNum;

/// Slots of a node. Measured: see docs/decisions/002-memtable.md.
pub(crate) const SLOTS: usize = if cfg!(any(miri, feature = "small-nodes")) {
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
        unsafe {
            at.as_ptr().write_bytes(0, bytes);
            let node = at.cast::<Node>();
            (&raw mut (*node.as_ptr()).level).write(level);
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
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
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
        locked.then(|| Locked(self))
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

/// A node locked by this thread; the lock ends with the value.
pub(crate) struct Locked(NodeRef);

impl Drop for Locked {
    fn drop(&mut self) {
        let version = &self.0.node().version;
        // Only the holder of the lock writes the version.
        version.store(version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Locked {
    pub(crate) fn node(&self) -> NodeRef {
        self.0
    }

    fn set_record(&self, index: usize, record: Option<Record>) {
        self.0.node().records[index].store(raw(record), Ordering::Release);
    }

    fn set_prefix(&self, index: usize, prefix: u64) {
        self.0.node().prefixes[index].store(prefix, Ordering::Relaxed);
    }

    fn set_count(&self, count: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "count <= SLOTS")]
        self.0.node().count.store(count as u32, Ordering::Relaxed);
    }

    pub(crate) fn set_child(&self, index: usize, child: NodeRef) {
        self.0.children()[index].store(child.into_raw(), Ordering::Release);
    }

    pub(crate) fn replace_record(&self, index: usize, record: Record) {
        self.set_record(index, Some(record));
    }

    pub(crate) fn raise_max_seqno(&self, seqno: SeqNum) {
        let max = &self.0.node().max_seqno;
        if max.load(Ordering::Relaxed) < seqno.0 {
            max.store(seqno.0, Ordering::Relaxed);
        }
    }

    /// Puts `record` at `index` (found by a search since the lock's version) into a node that is not full; in an inner node together
    /// with the child to the right of it.
    pub(crate) fn insert(&self, index: usize, record: Record, right_child: Option<NodeRef>) {
        let node = self.0.node();
        let count = self.0.count();
        assert!(count < SLOTS, "insert into a full node");
        let key = record.key();
        if count == 0 && self.0.reference().is_none() {
            self.refer_to(record, key.len().saturating_sub(8));
        } else if let Some(reference) = self.0.reference() {
            let skip = node.skip.load(Ordering::Relaxed) as usize;
            let shared = common_len(key, &reference.key()[..skip]);
            if shared < skip {
                self.rebuild_prefixes(shared);
            }
        }
        let mut to = count;
        while to > index {
            self.set_prefix(to, node.prefixes[to - 1].load(Ordering::Relaxed));
            to -= 1;
        }
        let mut to = count;
        while to > index {
            // Release: a reader may get the record's address from the slot it moved to.
            node.records[to].store(
                node.records[to - 1].load(Ordering::Relaxed),
                Ordering::Release,
            );
            to -= 1;
        }
        let skip = node.skip.load(Ordering::Relaxed) as usize;
        self.set_prefix(index, prefix_at(key, skip));
        self.set_record(index, Some(record));
        if let Some(right_child) = right_child {
            let children = self.0.children();
            let mut to = count + 1;
            while to > index + 1 {
                children[to].store(children[to - 1].load(Ordering::Relaxed), Ordering::Release);
                to -= 1;
            }
            self.set_child(index + 1, right_child);
        }
        self.set_count(count + 1);
        self.note_run(index);
    }

    fn note_run(&self, index: usize) {
        let node = self.0.node();
        #[expect(clippy::cast_possible_truncation, reason = "index < SLOTS")]
        let index = index as u16;
        let run = if index == node.last_index.load(Ordering::Relaxed).wrapping_add(1) {
            node.ascending_run.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        node.last_index.store(index, Ordering::Relaxed);
        node.ascending_run.store(run, Ordering::Relaxed);
    }

    /// How many slots a full node keeps when a key that belongs at `index` asks for room.
    fn split_index(&self, index: usize) -> usize {
        let node = self.0.node();
        let follows = index == usize::from(node.last_index.load(Ordering::Relaxed)) + 1;
        let ascending =
            follows && usize::from(node.ascending_run.load(Ordering::Relaxed)) >= SLOTS / 4;
        // Keys that come in order leave full nodes behind them.
        if index == SLOTS && (ascending || self.0.high().is_none()) {
            SLOTS
        } else if index == 0 && self.0.low().is_none() {
            0
        } else if ascending && index > 0 {
            index
        } else {
            SLOTS / 2
        }
    }

    /// Splits this full leaf around `record`, which belongs at `index`: the upper part moves to `right`, a new leaf. Returns the record
    /// whose key separates the two.
    pub(crate) fn split_leaf(&self, right: NodeRef, index: usize, record: Record) -> Record {
        let keep = self.split_index(index);
        let separator = if keep == SLOTS {
            record
        } else {
            self.0.record(keep).unwrap_or(record)
        };
        let right_locked = right
            .lock(0)
            .unwrap_or_else(|| unreachable!("nobody else knows the new node"));
        self.move_upper(&right_locked, keep, keep, separator);
        right
            .node()
            .max_seqno
            .store(self.0.max_seqno().0, Ordering::Relaxed);
        right.node().right.store(
            self.0
                .right()
                .map_or(std::ptr::null_mut(), NodeRef::into_raw),
            Ordering::Release,
        );
        // The new record is smaller than the separator, or is the separator itself (keep == SLOTS).
        let (home, at) = if index > keep || keep == SLOTS {
            (&right_locked, index - keep)
        } else {
            (self, index)
        };
        if home.node().count() == 0 {
            home.refer_to(record, self.0.node().skip.load(Ordering::Relaxed) as usize);
        }
        home.insert(at, record, None);
        self.refit();
        right_locked.refit();
        drop(right_locked);
        self.0
            .node()
            .right
            .store(right.into_raw(), Ordering::Release);
        separator
    }

    /// Splits this full inner node: the keys and children above the middle (above the last key, at the right edge) move to `right`, a
    /// new node of the same level. Returns the record whose key separates the two.
    pub(crate) fn split_inner(&self, right: NodeRef) -> Record {
        let keep = if self.0.high().is_none() {
            SLOTS - 1
        } else {
            SLOTS / 2
        };
        let separator = self
            .0
            .record(keep)
            .unwrap_or_else(|| unreachable!("slots below count hold records"));
        let right_locked = right
            .lock(0)
            .unwrap_or_else(|| unreachable!("nobody else knows the new node"));
        for index in keep + 1..=SLOTS {
            let child = self
                .0
                .child(index)
                .unwrap_or_else(|| unreachable!("an inner node has count + 1 children"));
            right_locked.set_child(index - keep - 1, child);
        }
        self.move_upper(&right_locked, keep, keep + 1, separator);
        self.refit();
        right_locked.refit();
        separator
    }

    /// Moves the slots from `from` on to the empty node `right`, keeps those below `keep`, and sets the fences of both.
    fn move_upper(&self, right: &Self, keep: usize, from: usize, separator: Record) {
        let (node, right_node) = (self.0.node(), right.0.node());
        for index in from..SLOTS {
            right.set_prefix(index - from, node.prefixes[index].load(Ordering::Relaxed));
            right.set_record(index - from, self.0.record(index));
        }
        right.set_count(SLOTS - from);
        self.set_count(keep);
        right_node
            .skip
            .store(node.skip.load(Ordering::Relaxed), Ordering::Relaxed);
        right_node
            .low
            .store(separator.into_raw(), Ordering::Release);
        right_node.high.store(raw(self.0.high()), Ordering::Release);
        node.high.store(separator.into_raw(), Ordering::Release);
        right_node
            .reference
            .store(raw(right.0.record(0)), Ordering::Release);
        if self.0.reference().is_some() {
            node.reference
                .store(raw(self.0.record(0)), Ordering::Release);
        }
        if usize::from(node.last_index.load(Ordering::Relaxed)) >= keep {
            // The run it belongs to went to the right node, which starts to watch anew.
            node.ascending_run.store(0, Ordering::Relaxed);
        }
    }

    /// After a split narrowed the fences: chooses `skip` and `reference` anew.
    fn refit(&self) {
        let node = self.0.node();
        let count = self.0.count();
        let (Some(first), Some(last)) = (self.0.record(0), self.0.record(count.max(1) - 1)) else {
            return;
        };
        if count == 0 {
            return;
        }
        let skip = node.skip.load(Ordering::Relaxed) as usize;
        let shared = match (self.0.low(), self.0.high()) {
            (Some(low), Some(high)) => {
                node.reference
                    .store(std::ptr::null_mut(), Ordering::Release);
                common_len(low.key(), high.key())
            }
            _ => {
                node.reference.store(first.into_raw(), Ordering::Release);
                common_len(first.key(), last.key())
            }
        };
        let prefixes = &node.prefixes[..count];
        let tied = || {
            prefixes
                .windows(2)
                .any(|pair| pair[0].load(Ordering::Relaxed) == pair[1].load(Ordering::Relaxed))
        };
        // Reading all keys again costs a cache miss each: only where the prefixes are wrong or have lost their worth.
        if skip > shared || shared >= skip + 4 || (shared > skip && tied()) {
            self.rebuild_prefixes(shared);
        }
    }

    fn refer_to(&self, record: Record, skip: usize) {
        let node = self.0.node();
        let skip = skip.min(record.key().len());
        node.reference.store(record.into_raw(), Ordering::Release);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "keys are shorter than 16 MiB"
        )]
        node.skip.store(skip as u32, Ordering::Relaxed);
    }

    fn rebuild_prefixes(&self, skip: usize) {
        let count = self.0.count();
        for index in 0..count {
            prefetch_line(self.0.node().records[index].load(Ordering::Relaxed));
        }
        for index in 0..count {
            if let Some(record) = self.0.record(index) {
                self.set_prefix(index, prefix_at(record.key(), skip));
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "keys are shorter than 16 MiB"
        )]
        self.0.node().skip.store(skip as u32, Ordering::Relaxed);
    }
}

fn raw(record: Option<Record>) -> RawRecord {
    record.map_or(std::ptr::null_mut(), Record::into_raw)
}
