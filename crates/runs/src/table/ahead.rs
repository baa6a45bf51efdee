//! What the cursor of a compaction has offered to be read ahead of it.
//!
//! Not thread-safe: belongs to one cursor. Invariant: `parts` are stretches of blocks behind one another, all of them before `next`.

use super::block::BlockHandle;
use super::reader::{Opened, Table};
use bytes::Bytes;
use glintdb_core::Result;
use glintdb_flash::{Piece, ReadQueue, Reader};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Blocks one behind the other are one piece up to this many bytes; a longer block is a piece of its own.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// See the module's page.
pub(super) struct Ahead {
    queue: Arc<ReadQueue>,
    parts: VecDeque<Part>,
    /// The first block that was not offered.
    next: usize,
}

struct Part {
    blocks: Range<usize>,
    piece: Piece,
}

impl Ahead {
    pub(super) fn new(queue: &Arc<ReadQueue>) -> Self {
        Ahead {
            queue: Arc::clone(queue),
            parts: VecDeque::new(),
            next: 0,
        }
    }

    /// Offers what comes first of `blocks`, up to `count` pieces that were not taken yet.
    pub(super) fn offer(
        &mut self,
        table: &Table,
        opened: &Opened,
        blocks: &Range<usize>,
        count: usize,
    ) {
        self.next = self.next.max(blocks.start);
        while self.parts.len() < count && self.next < blocks.end {
            let first = opened.fences.handle(self.next);
            // A pinned level is merged without reads.
            if table.pinned_block(first).is_some() {
                return;
            }
            let start = self.next;
            let mut end = first.offset + u64::from(first.length);
            self.next += 1;
            while self.next < blocks.end {
                let handle = opened.fences.handle(self.next);
                let with_it = handle.offset + u64::from(handle.length);
                if with_it - first.offset > PIECE_BYTES_MAX {
                    break;
                }
                end = with_it;
                self.next += 1;
            }
            let length = usize::try_from(end - first.offset).unwrap_or(usize::MAX);
            self.parts.push_back(Part {
                blocks: start..self.next,
                piece: self.queue.offer(&opened.file, first.offset, length),
            });
        }
    }

    /// The blocks from `blocks.start` on that were read together, and their bytes.
    pub(super) fn take(
        &mut self,
        table: &Table,
        opened: &Opened,
        blocks: &Range<usize>,
    ) -> Result<(Vec<BlockHandle>, Bytes)> {
        while let Some(first) = self.parts.front()
            && first.blocks.start != blocks.start
        {
            self.parts.pop_front();
        }
        if self.parts.is_empty() {
            self.next = blocks.start;
        }
        // Two batches of them: while one is merged, the other is read.
        let count = 2 * self.queue.batch_max();
        self.offer(table, opened, blocks, count);
        let Some(Part {
            blocks: taken,
            piece,
        }) = self.parts.pop_front()
        else {
            // Pinned since it was looked for.
            let handle = opened.fences.handle(blocks.start);
            let read = opened.file.read_at(handle.offset, handle.length as usize)?;
            return Ok((vec![handle], read));
        };
        let bytes = piece.take()?;
        self.offer(table, opened, &(taken.end..blocks.end), count);
        if self
            .queue
            .is_due(self.parts.front().map(|part| &part.piece))
        {
            self.queue.begin(Reader::Owner);
        }
        let handles = taken.map(|index| opened.fences.handle(index)).collect();
        Ok((handles, bytes))
    }
}
