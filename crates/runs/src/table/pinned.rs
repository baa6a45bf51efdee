//! The key blocks of one table, all of them in memory: looked up by number, without a hash table and without the medium.
//!
//! Thread-safe: immutable once it is complete; the counters are relaxed, they bound memory and decide nothing else.
//!
//! Invariants:
//! 1. A block was verified, or written by this process, before it came here.
//! 2. The sum of what is here and of what is being gathered is never above the limit that stood when the last block came.

use super::block::{Block, BlockHandle, StoredBlock};
use bytes::Bytes;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::planted;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a pinned block costs beside its image: its place in the list (48), the reference count that it gets when it is first shared (32), the allocator's headers (16).
pub(crate) const PINNED_BLOCK_OVERHEAD_BYTES: usize = 96;

/// Memory for the pins of one index.
pub struct PinMemory {
    used_bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    budget: Arc<MemoryBudget>,
}

impl PinMemory {
    /// Nothing used, nothing allowed.
    #[must_use]
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<PinMemory> {
        Arc::new(PinMemory {
            used_bytes: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(0),
            budget,
        })
    }

    /// Bytes of pinned blocks, of those that are being gathered too.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// What may be used.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes what may be used; what is there stays until it is unpinned.
    pub fn set_limit_bytes(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> bool {
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        if used + bytes > self.limit_bytes() {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.budget.add(MemoryPart::Pinned, bytes);
        true
    }

    fn give_back(&self, bytes: usize) {
        let used = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // No more is given back than was taken.
        assert!(used >= bytes, "{bytes} of {used} pinned bytes given back");
        self.budget.sub(MemoryPart::Pinned, bytes);
    }
}

/// See the module's page.
pub struct PinnedBlocks {
    blocks: Vec<Block>,
    bytes: usize,
    memory: Arc<PinMemory>,
}

impl PinnedBlocks {
    /// None yet.
    #[must_use]
    pub(crate) fn new(memory: &Arc<PinMemory>) -> PinnedBlocks {
        PinnedBlocks {
            blocks: Vec::new(),
            bytes: 0,
            memory: Arc::clone(memory),
        }
    }

    /// Copies the image of the table's next block. `false`: there is no room for it, or it is not the next one; all of this is to be given up then.
    #[must_use]
    pub(super) fn push(&mut self, image: &[u8], handle: BlockHandle) -> bool {
        let bytes = image.len() + PINNED_BLOCK_OVERHEAD_BYTES;
        if handle.index as usize != self.blocks.len() || !self.memory.take(bytes) {
            return false;
        }
        self.bytes += bytes;
        // An image of its own: pages of one large buffer would put all blocks' headers into the same sets of the processor's caches.
        match Block::new(Bytes::copy_from_slice(image), handle) {
            Ok(block) => self.blocks.push(block),
            Err(_) => return false,
        }
        true
    }

    /// Copies the next block of a table that is read. `false`: as [`push`](Self::push).
    #[must_use]
    pub(crate) fn take(&mut self, stored: &StoredBlock) -> bool {
        let image = &stored.block.image;
        let used = stored.block.view().map(|view| view.layout.used);
        used.is_ok_and(|used| {
            (image.get(..used)).is_some_and(|image| self.push(image, stored.block.handle))
        })
    }

    /// Blocks so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    #[inline]
    pub(super) fn block(&self, handle: BlockHandle) -> Option<&Block> {
        let index = handle.index as usize;
        self.blocks.get(planted!(
            "lsm: a pinned block stands for its neighbour",
            index,
            index.saturating_sub(1)
        ))
    }

    /// Has the beginning of a block fetched from memory, if there is one with this number.
    #[inline]
    pub(super) fn prefetch(&self, index: usize) {
        if let Some(block) = self.blocks.get(index) {
            block.prefetch();
        }
    }
}

impl Drop for PinnedBlocks {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}
