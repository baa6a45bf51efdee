//! Changes to a node, all through a value that holds its lock: insertion, splits, choice of the skipped prefix.
//!
//! Thread safety: one thread at a time changes a node; readers see the odd version meanwhile. Stores of addresses are Release, because a
//! reader may get an address from any slot it was moved to.

use std::sync::atomic::Ordering;

use glintdb_core::{SeqNum, planted};

use super::{NodeRef, SLOTS};
use crate::prefetch_line;
use crate::prefix::{common_len, prefix_at};
use crate::record::{RawRecord, Record};

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
    /// For the thread that has just made the version odd.
    pub(super) fn new(node: NodeRef) -> Self {
        Self(node)
    }

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
        let seqno = planted!(
            "memtable: a node's newest sequence number is not raised",
            seqno.0,
            0
        );
        if max.load(Ordering::Relaxed) < seqno {
            max.store(seqno, Ordering::Relaxed);
        }
    }

    /// Puts `record` at `index` (found by a search since the lock's version) into a node that is not full; in an inner node together
    /// with the child to the right of it.
    pub(crate) fn insert(&self, index: usize, record: Record, right_child: Option<NodeRef>) {
        let node = self.0.node();
        let count = self.0.count();
        assert!(count < SLOTS, "insert into a full node");
        assert!(
            index <= count,
            "a node's slots are used from the first one on: {index} of {count}"
        );
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
        let from = planted!(
            "memtable: a split loses an entry",
            from,
            SLOTS.min(from + usize::from(self.0.is_leaf()))
        );
        assert!(
            keep <= from && from <= SLOTS && right.0.count() == 0,
            "a split moves the upper slots to an empty node: keeps {keep}, moves from {from} on"
        );
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
