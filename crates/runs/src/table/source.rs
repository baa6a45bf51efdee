//! Where a cursor gets the blocks of its table from: the cache, a pinned level, or the medium, from which those behind one another are read together and ahead.
//!
//! Not thread-safe: belongs to one cursor.

use super::ahead::Ahead;
use super::block::{BlockHandle, StoredBlock};
use super::reader::{Opened, Table};
use bytes::Bytes;
use glintdb_core::memory::MemoryPart;
use glintdb_core::{Direction, Result};
use glintdb_flash::{BegunBatch, ReadRequest};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// What a cursor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Through the cache, with read-ahead that grows from 16 KiB to 256 KiB.
    Read,
    /// Round the cache, through the queue of reads ahead where there is one; else 1 MiB at a time, of which the next one is read while this one is walked. Blocks can be
    /// moved whole.
    Compaction,
}

impl Purpose {
    fn window_bytes(self) -> u64 {
        match self {
            Purpose::Read => 16 << 10,
            Purpose::Compaction => 1 << 20,
        }
    }

    fn window_bytes_max(self) -> u64 {
        match self {
            Purpose::Read => 256 << 10,
            Purpose::Compaction => 1 << 20,
        }
    }

    /// Blocks one behind the other are read together up to this many bytes; more becomes several reads in flight.
    fn request_bytes_max(self) -> u64 {
        match self {
            Purpose::Read => 64 << 10,
            Purpose::Compaction => 256 << 10,
        }
    }
}

/// Blocks that are read together.
struct Window {
    handles: Vec<BlockHandle>,
    /// Which of them each read covers.
    parts: Vec<Range<usize>>,
    batch: BegunBatch,
    bytes: usize,
}

/// See the module's page.
pub(super) struct BlockSource {
    pub(super) table: Arc<Table>,
    direction: Direction,
    purpose: Purpose,
    /// Blocks read ahead, in its direction.
    ready: VecDeque<StoredBlock>,
    /// What is read meanwhile, for compactions: from the queue, or without one.
    ahead: Option<Ahead>,
    begun: Option<Window>,
    window_bytes: u64,
    /// Bytes accounted for what was read ahead.
    accounted_bytes: usize,
}

impl BlockSource {
    pub(super) fn new(table: Arc<Table>, direction: Direction, purpose: Purpose) -> Self {
        let through_queue = purpose == Purpose::Compaction && direction == Direction::Forward;
        let queue = table.env().reads.as_ref().filter(|_| through_queue);
        BlockSource {
            ahead: queue.map(Ahead::new),
            table,
            direction,
            purpose,
            ready: VecDeque::new(),
            begun: None,
            window_bytes: purpose.window_bytes(),
            accounted_bytes: 0,
        }
    }

    /// Whether it has use for knowing beforehand what will be wanted.
    pub(super) fn looks_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Whether it gives blocks as they are stored, which can be moved whole.
    pub(super) fn gives_stored(&self) -> bool {
        self.purpose == Purpose::Compaction
    }

    /// Offers the first of `blocks` to be read.
    pub(super) fn offer(&mut self, blocks: &Range<usize>) {
        if let (Ok(opened), Some(ahead)) = (self.table.opened(), &mut self.ahead) {
            ahead.offer(&self.table, opened, blocks, 1);
        }
    }

    /// The cursor has jumped: what it reads next says little about what it reads then.
    pub(super) fn jumped(&mut self) {
        self.window_bytes = self.purpose.window_bytes();
    }

    /// The next one of `blocks` in its direction, which are not empty: read ahead already, cached, or read now together with those behind it.
    pub(super) fn fetch(&mut self, blocks: &Range<usize>) -> Result<StoredBlock> {
        let mut ahead = blocks.clone();
        let (index, next) = match self.direction {
            Direction::Forward => (blocks.start, ahead.nth(1)),
            Direction::Reverse => (blocks.end - 1, ahead.nth_back(1)),
        };
        while let Some(ready) = self.ready.pop_front() {
            if ready.block.handle.index as usize == index {
                return Ok(ready);
            }
        }
        let handle = self.table.opened()?.fences.handle(index);
        let (here, is_stored) = match self.purpose {
            Purpose::Read => (self.table.block_to_walk(handle, next), false),
            // A pinned level needs no reads to be merged. Stands for what is stored: whoever writes a block anew compresses what is not compressed.
            Purpose::Compaction => (self.table.pinned_block(handle), true),
        };
        if let Some(block) = here {
            return Ok(StoredBlock {
                file: self.table.meta().id,
                stored: if is_stored {
                    block.image.clone()
                } else {
                    Bytes::new()
                },
                block,
            });
        }
        let table = Arc::clone(&self.table);
        self.read_ahead(table.opened()?, index, blocks)?;
        let first = self.ready.pop_front();
        first.ok_or_else(|| table.malformed(handle))
    }

    /// Has the block `index` and those behind it up to the window read, in one batch.
    fn read_ahead(&mut self, opened: &Opened, index: usize, blocks: &Range<usize>) -> Result<()> {
        if let Some(ahead) = &mut self.ahead {
            let (handles, chunk) = ahead.take(&self.table, opened, &(index..blocks.end))?;
            self.account(chunk.len());
            let offset = handles[0].offset;
            return self.accept(&handles, offset, &chunk);
        }
        if self.purpose == Purpose::Compaction && self.direction == Direction::Forward {
            return self.read_behind(opened, index, blocks);
        }
        let mut handles = self.window(opened, index, blocks);
        if self.direction == Direction::Reverse {
            handles.reverse();
        }
        let (mut requests, parts) = self.requests(opened, &handles);
        match requests.as_mut_slice() {
            [one] => one.result = Some(opened.file.read_at(one.offset, one.length)),
            many => self.table.env().volume.read_batch(many),
        }
        self.account(requests.iter().map(|request| request.length).sum());
        self.accept_all(&handles, requests, parts)?;
        if self.direction == Direction::Reverse {
            self.ready.make_contiguous().reverse();
        }
        self.window_bytes = (self.window_bytes * 2).min(self.purpose.window_bytes_max());
        Ok(())
    }

    /// Waits for the window that begins with the block `index`, and begins the one behind it.
    fn read_behind(&mut self, opened: &Opened, index: usize, blocks: &Range<usize>) -> Result<()> {
        let begins_here = |window: &Window| window.handles[0].index as usize == index;
        let window = match self.begun.take().filter(begins_here) {
            Some(window) => window,
            None => self.begin(opened, index, blocks),
        };
        let next = index + window.handles.len();
        let requests = window.batch.wait();
        self.begun = (next < blocks.end).then(|| self.begin(opened, next, blocks));
        let behind = self.begun.as_ref().map_or(0, |begun| begun.bytes);
        self.account(window.bytes + behind);
        self.accept_all(&window.handles, requests, window.parts)
    }

    fn begin(&self, opened: &Opened, index: usize, blocks: &Range<usize>) -> Window {
        let handles = self.window(opened, index, blocks);
        let (requests, parts) = self.requests(opened, &handles);
        Window {
            handles,
            parts,
            bytes: requests.iter().map(|request| request.length).sum(),
            batch: self.table.env().volume.begin_batch(requests),
        }
    }

    /// Verifies the blocks that reads have given.
    fn accept_all(
        &mut self,
        handles: &[BlockHandle],
        requests: Vec<ReadRequest>,
        parts: Vec<Range<usize>>,
    ) -> Result<()> {
        for (request, range) in requests.into_iter().zip(parts) {
            let Some(part) = handles.get(range) else {
                continue;
            };
            let offset = request.offset;
            self.accept(part, offset, &request.answer()?)?;
        }
        Ok(())
    }

    /// The blocks to be read now, in its direction: up to the window, the bounds, and what the cache has.
    fn window(&self, opened: &Opened, index: usize, blocks: &Range<usize>) -> Vec<BlockHandle> {
        let mut handles = vec![opened.fences.handle(index)];
        let mut bytes = u64::from(handles[0].length);
        let behind: &mut dyn Iterator<Item = usize> = match self.direction {
            Direction::Forward => &mut (index + 1..blocks.end),
            Direction::Reverse => &mut (blocks.start..index).rev(),
        };
        for index in behind {
            let handle = opened.fences.handle(index);
            bytes += u64::from(handle.length);
            if bytes > self.window_bytes
                || self.purpose == Purpose::Read && self.table.is_cached(handle)
            {
                break;
            }
            handles.push(handle);
        }
        handles
    }

    /// Reads that cover `handles` (ascending), and which of them each covers.
    fn requests(
        &self,
        opened: &Opened,
        handles: &[BlockHandle],
    ) -> (Vec<ReadRequest>, Vec<Range<usize>>) {
        let mut requests: Vec<ReadRequest> = Vec::new();
        let mut parts: Vec<Range<usize>> = Vec::new();
        let bytes_max = self.purpose.request_bytes_max();
        for (position, handle) in handles.iter().enumerate() {
            let end = handle.offset + u64::from(handle.length);
            if let (Some(request), Some(part)) = (requests.last_mut(), parts.last_mut())
                && end - request.offset <= bytes_max
                && let Ok(length) = usize::try_from(end - request.offset)
            {
                request.length = length;
                part.end = position + 1;
                continue;
            }
            requests.push(ReadRequest::new(
                Arc::clone(&opened.file),
                handle.offset,
                handle.length as usize,
            ));
            parts.push(position..position + 1);
        }
        (requests, parts)
    }

    /// Verifies the blocks that a read starting at `offset` gave.
    fn accept(&mut self, handles: &[BlockHandle], offset: u64, chunk: &Bytes) -> Result<()> {
        for &handle in handles {
            let start = usize::try_from(handle.offset - offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(handle.length as usize);
            let stored = chunk.get(start..end).unwrap_or(&[]);
            let stored = chunk.slice_ref(stored);
            let accepted = match self.purpose {
                Purpose::Read => StoredBlock {
                    file: self.table.meta().id,
                    block: self.table.blocks().accept(handle, stored)?,
                    stored: Bytes::new(),
                },
                Purpose::Compaction => self.table.blocks().accept_stored(handle, stored)?,
            };
            self.ready.push_back(accepted);
        }
        Ok(())
    }

    /// Accounts for the bytes that are read ahead now, in place of those before.
    fn account(&mut self, bytes: usize) {
        let memory = &self.table.env().memory;
        memory.recharge(MemoryPart::Buffers, &mut self.accounted_bytes, bytes);
    }
}

impl Drop for BlockSource {
    fn drop(&mut self) {
        self.account(0);
    }
}
