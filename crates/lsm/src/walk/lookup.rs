//! Many point lookups at once. In rounds: every key that has no answer yet goes on to the next table whose filter says "maybe", answers come from the cache where
//! they can, and all blocks still missing are read in one batch, each once. So a key found at level 0 and one found at the bottom cost one batch together.
//!
//! Thread-safe: works on an immutable view.

use crate::levels::{Slot, Sorted};
use crate::table::{Block, BlockHandle, Table, key_hash};
use crate::view::{View, resolve};
use glintdb_core::{Entry, Result, SeqNum};
use std::sync::Arc;

/// One key on its way through the index.
struct Search<'a> {
    key: &'a [u8],
    hash: u64,
    deleted: SeqNum,
    /// Sources visited.
    source: usize,
    /// Blocks read for it.
    reads: u32,
    answer: Option<Result<Option<Entry>>>,
}

/// A block that a key waits for.
struct Wait<'a> {
    search: usize,
    slot: &'a Arc<Slot>,
    handle: BlockHandle,
}

/// See [`IndexView::get_batch`](glintdb_core::index::IndexView::get_batch).
pub(crate) fn get_batch(view: &View, keys: &[&[u8]]) -> Vec<Result<Option<Entry>>> {
    let tombstones = match view.levels.tombstones() {
        Ok(tombstones) => tombstones,
        Err(error) => return keys.iter().map(|_| Err(error.clone())).collect(),
    };
    let sources: Vec<&Sorted> = view.levels.sources().map(|(_, tables)| tables).collect();
    let mut searches: Vec<Search<'_>> = keys
        .iter()
        .map(|key| Search {
            key,
            hash: key_hash(key),
            deleted: tombstones.seqno_at(key),
            source: 0,
            reads: 0,
            answer: None,
        })
        .collect();
    loop {
        let mut waits: Vec<Wait<'_>> = Vec::new();
        for (at, search) in searches.iter_mut().enumerate() {
            if search.answer.is_none()
                && let Some((slot, handle)) = search.proceed(&sources)
            {
                search.reads += 1;
                waits.push(Wait {
                    search: at,
                    slot,
                    handle,
                });
            }
        }
        if waits.is_empty() {
            break;
        }
        // Keys of one block stand together, and the device sees ascending offsets.
        waits.sort_by_key(|wait| (wait.slot.number(), wait.handle.index));
        read(view, &waits, &mut searches);
    }
    for search in &searches {
        view.common.counters.lookups.count(search.reads);
    }
    searches
        .into_iter()
        .map(|search| search.answer.unwrap_or(Ok(None)))
        .collect()
}

impl<'a> Search<'a> {
    /// Goes on until there is an answer, or a block must be read.
    fn proceed<'s>(&mut self, sources: &[&'s Sorted]) -> Option<(&'s Arc<Slot>, BlockHandle)> {
        while let Some(tables) = sources.get(self.source) {
            self.source += 1;
            let Some(slot) = tables.candidate(self.key) else {
                continue;
            };
            if slot.meta().seqno_max < self.deleted {
                continue;
            }
            match slot.table.locate(self.key, self.hash) {
                Ok(Some(handle)) => match slot.table.block_here(handle) {
                    Some(block) => {
                        self.look(slot, &block);
                        if self.answer.is_some() {
                            return None;
                        }
                    }
                    None => return Some((slot, handle)),
                },
                Ok(None) => {}
                Err(error) => {
                    self.answer = Some(Err(error));
                    return None;
                }
            }
        }
        self.answer = Some(Ok(resolve(None, self.deleted)));
        None
    }

    /// Looks into a block.
    fn look(&mut self, slot: &Slot, block: &Block) {
        match slot.table.search(block, self.key) {
            Ok(Some(entry)) => self.answer = Some(Ok(resolve(Some(entry), self.deleted))),
            Ok(None) => {}
            Err(error) => self.answer = Some(Err(error)),
        }
    }
}

/// Reads the blocks of `waits` (those of one block next to each other) and looks for the keys in them.
fn read(view: &View, waits: &[Wait<'_>], searches: &mut [Search<'_>]) {
    let groups: Vec<&[Wait<'_>]> = waits
        .chunk_by(|a, b| a.slot.number() == b.slot.number() && a.handle.index == b.handle.index)
        .collect();
    let wanted: Vec<(&Table, BlockHandle)> = groups
        .iter()
        .filter_map(|group| group.first())
        .map(|first| (&*first.slot.table, first.handle))
        .collect();
    for (block, group) in Table::read_blocks(&view.common.table_env, &wanted)
        .into_iter()
        .zip(groups)
    {
        match block {
            Ok(block) => {
                for wait in group {
                    searches[wait.search].look(wait.slot, &block);
                }
            }
            Err(error) => {
                for wait in group {
                    searches[wait.search].answer = Some(Err(error.clone()));
                }
            }
        }
    }
}
