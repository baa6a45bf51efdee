//! What a slice merges next: entries of the shelf, and the leaves that they go to. The leaves of a
//! window are read in one batch, while the window before is merged.
//!
//! Not thread-safe: belongs to one slice.

use crate::node::Child;
use crate::picture::Picture;
use bytes::Bytes;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{EntryRef, Result, SeqNum, ValuePointer};
use glintdb_flash::{BegunBatch, ReadRequest, Volume};
use glintdb_runs::table::Block;
use std::ops::Range;
use std::sync::Arc;

/// A leaf that is merged, and the keys that it may have.
pub(crate) struct Leaf {
    pub(crate) lower: Bytes,
    pub(crate) upper: Option<Bytes>,
    /// `None`: the tree is empty.
    pub(crate) node: Option<Child>,
}

/// A step of a merge.
pub(crate) enum Item {
    /// The next entries go to this leaf.
    Leaf(Leaf),
    /// An entry of the shelf.
    Entry(Entry),
}

/// An entry, whose bytes are in the window.
pub(crate) struct Entry {
    key: Range<usize>,
    pub(crate) seqno: SeqNum,
    value: Value,
}

enum Value {
    Inline(Range<usize>),
    Pointer(ValuePointer),
    Tombstone,
}

/// What is merged next.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) items: Vec<Item>,
    bytes: Vec<u8>,
    /// Number of leaves.
    pub(crate) leaves: usize,
}

impl Window {
    /// Adds a leaf. The entries that are added next go to it.
    pub(crate) fn add_leaf(&mut self, leaf: Leaf) {
        self.leaves += usize::from(leaf.node.is_some());
        self.items.push(Item::Leaf(leaf));
    }

    /// Adds an entry of the shelf.
    pub(crate) fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) {
        let key = self.append(key);
        let value = match value {
            EntryRef::Inline(bytes) => Value::Inline(self.append(bytes)),
            EntryRef::Pointer(pointer) => Value::Pointer(pointer),
            EntryRef::Tombstone => Value::Tombstone,
        };
        self.items.push(Item::Entry(Entry { key, seqno, value }));
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// The key of an entry.
    pub(crate) fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key.clone()]
    }

    /// The value of an entry.
    pub(crate) fn value(&self, entry: &Entry) -> EntryRef<'_> {
        match &entry.value {
            Value::Inline(range) => EntryRef::Inline(&self.bytes[range.clone()]),
            Value::Pointer(pointer) => EntryRef::Pointer(*pointer),
            Value::Tombstone => EntryRef::Tombstone,
        }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of the entries, about.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<Item>()
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>()
    }
}

/// The block of a leaf that is merged.
pub(crate) struct Source {
    pub(crate) block: Block,
    /// Whether it came from the cache.
    pub(crate) is_cached: bool,
}

/// A window whose leaves are being read.
pub(crate) struct Begun {
    pub(crate) window: Window,
    /// For each leaf with a node, in order: the block, if the cache has it.
    cached: Vec<Option<Block>>,
    /// The reads of the others, in order.
    batch: Option<BegunBatch>,
    memory: Arc<MemoryBudget>,
    accounted_bytes: usize,
}

impl Begun {
    /// Begins to read the leaves of `window` that the cache has not.
    ///
    /// # Errors
    /// I/O errors at first use of a file.
    pub(crate) fn new(
        window: Window,
        picture: &Picture,
        volume: &Arc<dyn Volume>,
        memory: &Arc<MemoryBudget>,
    ) -> Result<Begun> {
        let (mut cached, mut requests) = (Vec::new(), Vec::new());
        for item in &window.items {
            if let Item::Leaf(Leaf {
                node: Some(node), ..
            }) = item
            {
                let file = picture.file_of(0, node)?;
                let here = file.blocks().cached(node.handle());
                if here.is_none() {
                    requests.push(file.request(node)?);
                }
                cached.push(here);
            }
        }
        let read: usize = requests.iter().map(|request| request.length).sum();
        let mut begun = Begun {
            accounted_bytes: 0,
            memory: Arc::clone(memory),
            batch: (!requests.is_empty()).then(|| volume.begin_batch(requests)),
            cached,
            window,
        };
        let bytes = begun.window.memory_bytes() + read;
        begun
            .memory
            .recharge(MemoryPart::Buffers, &mut begun.accounted_bytes, bytes);
        Ok(begun)
    }

    /// Waits for the leaves. Returns the block of each leaf (`None`: the tree is empty), and the
    /// number of bytes that were read.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn wait(&mut self, picture: &Picture) -> Result<(Vec<Option<Source>>, u64)> {
        let answers = self.batch.take().map_or_else(Vec::new, BegunBatch::wait);
        let mut answers = answers.into_iter().map(ReadRequest::answer);
        let mut cached = std::mem::take(&mut self.cached).into_iter();
        let (mut blocks, mut read) = (Vec::new(), 0);
        for item in &self.window.items {
            let Item::Leaf(leaf) = item else { continue };
            let Some(node) = &leaf.node else {
                blocks.push(None);
                continue;
            };
            if let Some(Some(block)) = cached.next() {
                let is_cached = true;
                blocks.push(Some(Source { block, is_cached }));
                continue;
            }
            let Some(stored) = answers.next().transpose()? else {
                unreachable!("each leaf that the cache has not is read");
            };
            read += stored.len() as u64;
            let block = picture.file_of(0, node)?.accept(node, stored, false)?;
            let is_cached = false;
            blocks.push(Some(Source { block, is_cached }));
        }
        Ok((blocks, read))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.memory
            .recharge(MemoryPart::Buffers, &mut self.accounted_bytes, 0);
    }
}
