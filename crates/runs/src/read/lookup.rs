//! Point lookups in sorted sequences of tables, newest data first: of one key, or of many keys at
//! once.
//!
//! Many keys are looked up in rounds. In a round, each key without a result goes on through its
//! tables until it needs a block that is neither pinned nor cached. Then all these blocks are read
//! in one batch, each once. So a key in the newest run and a key in the oldest table cost one batch
//! together.
//!
//! Thread-safe: works on immutable tables.

use crate::env::RunEnv;
use crate::keys::tombstones::TombstoneSet;
use crate::sorted::{Slot, Sorted};
use crate::table::{Block, BlockHandle, Table, key_hash};
use glintdb_core::{Entry, EntryValue, Result, SeqNum, planted};
use std::sync::Arc;

/// Bytes of blocks that are read in one batch: about a thousand of 4 KiB. Blocks of long keys are
/// larger.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// The entry of a key for a reader who knows that `deleted` is the sequence number of the newest
/// range tombstone over the key (0: there is none).
#[inline]
#[must_use]
pub fn resolve(entry: Option<Entry>, deleted: SeqNum) -> Option<Entry> {
    match entry {
        Some(entry)
            if planted!(
                "lsm: a range deletion hides what its own batch put after it",
                entry.seqno >= deleted,
                entry.seqno > deleted
            ) =>
        {
            Some(entry)
        }
        _ if deleted > SeqNum::ZERO => Some(Entry {
            seqno: deleted,
            value: EntryValue::Tombstone,
        }),
        entry => entry,
    }
}

/// Looks up one key. `tombstones` has the range tombstones of all sources.
///
/// # Errors
/// I/O errors, `Corruption`.
pub fn get<'a>(
    env: &RunEnv,
    sources: impl Iterator<Item = &'a Sorted>,
    tombstones: &TombstoneSet,
    key: &[u8],
) -> Result<Option<Entry>> {
    let deleted = tombstones.seqno_at(key);
    let mut reads = 0;
    let entry = find(sources, deleted, key, &mut reads)?;
    env.count_lookup(reads);
    Ok(resolve(entry, deleted))
}

/// Looks for the newest entry of a key, which may be hidden by the range tombstone with the
/// sequence number `deleted` (0: there is none). Adds to `reads` the blocks that it has read from
/// the medium.
///
/// # Errors
/// I/O errors, `Corruption`.
#[inline]
pub fn find<'a>(
    sources: impl Iterator<Item = &'a Sorted>,
    deleted: SeqNum,
    key: &[u8],
    reads: &mut u32,
) -> Result<Option<Entry>> {
    let hash = key_hash(key);
    for tables in sources {
        let Some(slot) = tables.candidate(key) else {
            continue;
        };
        // The deletion hides the whole table: spare the read.
        if deleted > SeqNum::ZERO && slot.meta().seqno_max < deleted {
            continue;
        }
        if slot.is_clipped_off(key) {
            continue;
        }
        if let Some(entry) = slot.table.get_counted(key, hash, reads)? {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// One key on its way through the sources.
struct Search<'a> {
    key: &'a [u8],
    hash: u64,
    deleted: SeqNum,
    /// Number of sources it has visited.
    source: usize,
    /// Number of blocks that were read for it.
    reads: u32,
    answer: Option<Result<Option<Entry>>>,
}

/// A block that a key waits for.
struct Wait<'a> {
    search: usize,
    slot: &'a Arc<Slot>,
    handle: BlockHandle,
}

/// Looks up many keys. Returns one result for each key, in their order. `tombstones` has the range
/// tombstones of all sources.
pub fn get_batch(
    env: &RunEnv,
    sources: &[&Sorted],
    tombstones: &TombstoneSet,
    keys: &[&[u8]],
) -> Vec<Result<Option<Entry>>> {
    let found = find_batch(env, sources, tombstones, keys);
    let resolved = found.into_iter().map(
        |Found {
             entry,
             deleted,
             reads,
         }| {
            env.count_lookup(reads);
            entry.map(|entry| resolve(entry, deleted))
        },
    );
    resolved.collect()
}

/// What [`find_batch`] has found for a key.
pub struct Found {
    /// The newest entry of the key.
    pub entry: Result<Option<Entry>>,
    /// Sequence number of the newest range tombstone over the key, which may hide the entry. 0:
    /// there is none.
    pub deleted: SeqNum,
    /// Number of blocks that were read for the key.
    pub reads: u32,
}

/// Looks for the newest entries of many keys, like [`find`], and reads together what they need.
/// Returns one result for each key, in their order.
pub fn find_batch(
    env: &RunEnv,
    sources: &[&Sorted],
    tombstones: &TombstoneSet,
    keys: &[&[u8]],
) -> Vec<Found> {
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
                && let Some((slot, handle)) = search.proceed(sources)
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
        // Groups the keys of one block, and gives the device ascending offsets.
        waits.sort_by_key(|wait| (wait.slot.number(), wait.handle.index));
        read(env, &waits, &mut searches);
    }
    let found = searches.into_iter().map(|search| Found {
        entry: search.answer.unwrap_or(Ok(None)),
        deleted: search.deleted,
        reads: search.reads,
    });
    found.collect()
}

impl<'a> Search<'a> {
    /// Goes on until the key has a result, or a block must be read.
    fn proceed<'s>(&mut self, sources: &[&'s Sorted]) -> Option<(&'s Arc<Slot>, BlockHandle)> {
        while let Some(tables) = sources.get(self.source) {
            self.source += 1;
            let Some(slot) = tables.candidate(self.key) else {
                continue;
            };
            if slot.meta().seqno_max < self.deleted || slot.is_clipped_off(self.key) {
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
        self.answer = Some(Ok(None));
        None
    }

    /// Searches a block for the key.
    fn look(&mut self, slot: &Slot, block: &Block) {
        match slot.table.search(block, self.key) {
            Ok(Some(entry)) => self.answer = Some(Ok(Some(entry))),
            Ok(None) => {}
            Err(error) => self.answer = Some(Err(error)),
        }
    }
}

/// Reads the blocks of `waits`, in which equal blocks are neighbours, and searches them.
fn read(env: &RunEnv, waits: &[Wait<'_>], searches: &mut [Search<'_>]) {
    let groups: Vec<&[Wait<'_>]> = waits
        .chunk_by(|a, b| a.slot.number() == b.slot.number() && a.handle.index == b.handle.index)
        .collect();
    let mut groups = groups.as_slice();
    while !groups.is_empty() {
        let blocks = groups.iter().filter_map(|group| group.first());
        let blocks = in_a_batch(blocks.map(|wait| wait.handle.length));
        let (batch, rest) = groups.split_at(blocks);
        read_batch(env, batch, searches);
        groups = rest;
    }
}

/// How many of the blocks with these lengths are read in one batch: one at least.
fn in_a_batch(lengths: impl Iterator<Item = u32>) -> usize {
    let mut bytes = 0;
    let fits = |length: &u32| {
        let before = bytes;
        bytes += u64::from(*length);
        before == 0 || bytes <= BATCH_BYTES_MAX
    };
    lengths.take_while(fits).count()
}

/// Reads a block for each group, in one batch, and searches it for the keys of the group.
fn read_batch(env: &RunEnv, groups: &[&[Wait<'_>]], searches: &mut [Search<'_>]) {
    let wanted: Vec<(&Table, BlockHandle)> = groups
        .iter()
        .filter_map(|group| group.first())
        .map(|first| (&*first.slot.table, first.handle))
        .collect();
    for (block, group) in Table::read_blocks(env.tables(), &wanted)
        .into_iter()
        .zip(groups)
    {
        match block {
            Ok(block) => {
                for wait in *group {
                    searches[wait.search].look(wait.slot, &block);
                }
            }
            Err(error) => {
                for wait in *group {
                    searches[wait.search].answer = Some(Err(error.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_reads_are_bounded_by_bytes() {
        for (length, blocks) in [(4096, 1024), (128 << 10, 32), (3 << 20, 1), (64 << 20, 1)] {
            assert_eq!(in_a_batch(std::iter::repeat_n(length, 2000)), blocks);
        }
        assert_eq!(in_a_batch([4096, 64 << 20, 4096].into_iter()), 1);
        assert_eq!(in_a_batch([4096; 3].into_iter()), 3);
    }
}
