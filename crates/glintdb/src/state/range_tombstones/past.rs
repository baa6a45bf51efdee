//! Range tombstones for readers of the past: those of a memtable in the order in which they were
//! inserted, in blocks of time.
//!
//! A block of a level has [`FANOUT`] blocks of the level below. Its fragments are made when a
//! reader first needs them. A reader of commit `at` looks at the fragments of blocks that have
//! nothing newer, and goes into the few that have both older and newer tombstones. So a lookup
//! takes O(log² n), and each block is cut into fragments at most once.
//!
//! Thread safety: grows under the write lock of its owner. Readers share it.

use super::fragments::Fragments;
use bytes::Bytes;
use glintdb_core::{RangeTombstone, SeqNum};
use std::ops::Range;
use std::sync::OnceLock;

/// Number of parts of a block.
const FANOUT: usize = 16;

/// Tombstones that were inserted one after the other.
struct Block {
    oldest: SeqNum,
    newest: SeqNum,
    fragments: OnceLock<Fragments>,
}

/// All tombstones of a memtable, in the order in which they were inserted.
#[derive(Default)]
pub(super) struct Past {
    tombstones: Vec<RangeTombstone>,
    /// Full blocks; those of `levels[n]` have `FANOUT` to the power of `n + 1` tombstones.
    levels: Vec<Vec<Block>>,
}

/// What a lookup has found so far.
struct Lookup<'a> {
    key: &'a [u8],
    at: SeqNum,
    /// The newest deletion of the key, in a range in which it is the newest for every key.
    found: RangeTombstone,
    /// Bytes of memory that fragments took that were made for this lookup.
    made_bytes: usize,
}

impl Past {
    pub(super) fn push(&mut self, tombstone: RangeTombstone) {
        let seqno = tombstone.seqno;
        self.tombstones.push(tombstone);
        let (mut oldest, mut newest, mut parts) = (seqno, seqno, FANOUT);
        for level in 0.. {
            if !self.tombstones.len().is_multiple_of(parts) {
                break;
            }
            let seqnos = |(low, high): (SeqNum, SeqNum), (oldest, newest)| {
                (low.min(oldest), high.max(newest))
            };
            let last = self.tombstones.len() - FANOUT;
            (oldest, newest) = match level {
                0 => (self.tombstones[last..].iter())
                    .map(|tombstone| (tombstone.seqno, tombstone.seqno))
                    .fold((oldest, newest), seqnos),
                _ => {
                    let below = &self.levels[level - 1];
                    (below[below.len() - FANOUT..].iter())
                        .map(|block| (block.oldest, block.newest))
                        .fold((oldest, newest), seqnos)
                }
            };
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(Block {
                oldest,
                newest,
                fragments: OnceLock::new(),
            });
            parts *= FANOUT;
        }
    }

    /// Returns the newest tombstone at or below `at` that covers `key`, cut to a range in which it
    /// is the newest of all keys; or such a range without a tombstone, with sequence number zero.
    /// Also returns how many bytes of memory the lookup has added.
    pub(super) fn at(&self, key: &[u8], at: SeqNum) -> (RangeTombstone, usize) {
        let mut lookup = Lookup {
            key,
            at,
            found: RangeTombstone {
                start: Bytes::new(),
                end: None,
                seqno: SeqNum::ZERO,
            },
            made_bytes: 0,
        };
        let mut end = self.tombstones.len();
        while end > 0 {
            let level = (0..self.levels.len())
                .take_while(|level| end.is_multiple_of(block_len(*level)))
                .last();
            let start = end - level.map_or(end % FANOUT, block_len);
            self.look(level, start..end, &mut lookup);
            end = start;
        }
        (lookup.found, lookup.made_bytes)
    }

    /// Looks at the block of a level that has these tombstones, or at tombstones that are in no
    /// full block.
    fn look(&self, level: Option<usize>, range: Range<usize>, lookup: &mut Lookup<'_>) {
        let Some(level) = level else {
            for tombstone in self.tombstones[range].iter().rev() {
                lookup.add_one(tombstone);
            }
            return;
        };
        let block = &self.levels[level][range.start / block_len(level)];
        if block.oldest > lookup.at || block.newest < lookup.found.seqno {
            return;
        }
        if block.newest <= lookup.at {
            let fragments = block.fragments.get_or_init(|| {
                let mut fragments = Fragments::default();
                for tombstone in &self.tombstones[range] {
                    fragments.add(tombstone);
                }
                lookup.made_bytes += Fragments::memory_bytes(fragments.len());
                fragments
            });
            lookup.add(fragments.range_at(lookup.key));
            return;
        }
        // A full block of level 0 has as many tombstones as parts.
        let below = level.checked_sub(1);
        let len = below.map_or(FANOUT, block_len);
        for start in range.step_by(len).rev() {
            self.look(below, start..start + len, lookup);
        }
    }
}

/// Number of tombstones in a block of a level.
fn block_len(level: usize) -> usize {
    (0..=level).fold(1, |len, _| len * FANOUT)
}

impl Lookup<'_> {
    /// Adds a tombstone.
    fn add_one(&mut self, tombstone: &RangeTombstone) {
        if tombstone.seqno > self.at || tombstone.seqno < self.found.seqno {
            return;
        }
        if tombstone.covers(self.key) {
            self.add(tombstone.clone());
            return;
        }
        // The tombstone covers keys on one side of the key.
        if tombstone.start.as_ref() > self.key {
            let end = tombstone.start.clone();
            self.found.narrow(&Bytes::new(), &Some(end));
        } else if let Some(end) = &tombstone.end {
            self.found.narrow(end, &None);
        }
    }

    /// Adds a range that has the key, in which one sequence number is the newest of all keys.
    fn add(&mut self, range: RangeTombstone) {
        self.found.seqno = self.found.seqno.max(range.seqno);
        self.found.narrow(&range.start, &range.end);
    }
}
