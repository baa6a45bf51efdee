//! The account of space: what the files take, how much of that is live by the best estimate, how much garbage there may be; and which segments hold most of it.
//!
//! **Garbage** is what log segments take beyond their live records: dead ones, shadowed and hidden ones, and everything behind the flush point (commits that may have overwritten
//! each other; a flush tells). There may be as much as makes all files together `space_amp_max` times the live keys and values; where what else they hold (the index, headers) leaves too little of that, a third of
//! `space_amp_max - 1` of the live log; and `garbage_bytes_min` in any case. Segments that only snapshots and iterators keep are not counted.

use super::State;
use crate::Result;
use crate::engine::Engine;
use crate::version::{Generation, Version};
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{Direction, EntryValue, SegmentId, SeqNum};
use glintdb_log::format::segment::SegmentKind;
use std::ops::Bound;

/// Part of the allowed garbage at which rounds begin.
const BEGIN: f64 = 0.8;
/// Part at which they go before compactions.
const URGENT: f64 = 0.92;
/// A round takes victims of this part of the allowed garbage.
const ROUND_PART: u64 = 8;
/// A segment is a victim where at least this part of `space_amp_max - 1` of it is garbage.
const WORTH: f64 = 0.4;
/// What an entry without its value takes in the index, about: that much of tables is not live records.
const INDEX_ENTRY_BYTES: u64 = 64;
/// Keys of a flush that are looked up, at most, to know how much it overwrites.
const SAMPLE_KEYS: usize = 256;
/// Header of a segment.
const HEADER_BYTES: u64 = 4096;

/// See the module's page. Bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Account {
    /// Files of the log.
    pub(crate) log_bytes: u64,
    /// Of these, what is live below the flush point, about.
    pub(crate) live_bytes: u64,
    /// Everything that is not in the log: tables, manifest.
    pub(crate) other_bytes: u64,
    /// Garbage that may be.
    pub(crate) allowed_bytes: u64,
    /// Of the log, what lies behind the flush point.
    pub(crate) unflushed_bytes: u64,
    /// Whether some segment is worth a round.
    pub(crate) some_victim: bool,
    /// Where the log's files ended.
    spilled: u64,
}

impl Account {
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.log_bytes.saturating_sub(self.live_bytes)
    }

    /// Garbage, as part of what may be.
    pub(crate) fn fill(&self) -> f64 {
        match self.allowed_bytes {
            0 => 0.0,
            allowed => self.garbage_bytes() as f64 / allowed as f64,
        }
    }

    /// [`fill`](Self::fill) when the log's files have grown to that position.
    pub(crate) fn fill_at(&self, spilled: u64) -> f64 {
        let grown = spilled.saturating_sub(self.spilled) as f64;
        self.fill() + grown / self.allowed_bytes.max(1) as f64
    }

    /// The log of one memtable should hold no more: half of what may be, less the garbage that is known; but no less than an eighth.
    fn seal_bytes(&self) -> u64 {
        let known = self.garbage_bytes().saturating_sub(self.unflushed_bytes);
        (self.allowed_bytes / 2)
            .saturating_sub(known)
            .max(self.allowed_bytes / 8)
    }

    pub(crate) fn wants_round(&self) -> bool {
        self.wants_round_at(self.fill())
    }

    pub(crate) fn wants_round_at(&self, fill: f64) -> bool {
        self.some_victim && fill >= BEGIN
    }

    pub(crate) fn is_urgent_at(&self, fill: f64) -> bool {
        fill >= URGENT
    }
}

/// A segment that is worth a round.
pub(super) struct Candidate {
    pub(super) id: SegmentId,
    pub(super) bytes: u64,
    /// Bytes of it that are live, about.
    pub(super) live_bytes: u64,
    /// It holds values that were moved: it is no part of the stream.
    pub(super) moved: bool,
}

impl Candidate {
    fn garbage(&self) -> f64 {
        1.0 - self.live_bytes as f64 / self.bytes.max(1) as f64
    }
}

impl State {
    /// Bytes of a segment that are live, about, where indexes' files point to `held` bytes of values in it.
    fn live_estimate(&self, id: SegmentId, bytes: u64, held: u64) -> u64 {
        let record = match self.born.get(&id) {
            Some(&born) => bytes as f64 / born.max(1) as f64,
            None => self.overhead,
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most what the segment has"
        )]
        let live = (held as f64 * (1.0 - self.hidden()) * record) as u64;
        live.saturating_add(HEADER_BYTES).min(bytes)
    }

    /// Bytes of live keys and values, about, where indexes' files point to `held` bytes of values.
    fn user_estimate(&self, held: u64) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of what files hold, more or less"
        )]
        let live = (held as f64 * (1.0 - self.hidden()) * self.keyed) as u64;
        live
    }
}

impl Engine {
    /// Every segment with what is live in it, and the bytes of all.
    fn survey(&self) -> Result<(Vec<Candidate>, Account)> {
        let spilled = self.log.spilled_position();
        let segments = self.log.segments()?;
        let mut held_bytes = 0;
        let (mut whole, mut account) = (Vec::new(), Account::default());
        let mut live_records = 0;
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let known = self.gc.state.lock();
        account.spilled = spilled;
        account.other_bytes = manifest.bytes();
        let flush_point = state.flush_point.lsn;
        let flushed = flush_point.segment;
        for segment in &segments {
            let (id, bytes) = (segment.id, segment.file_bytes);
            let moved = segment.kind == SegmentKind::Values;
            let ends = moved || id < flushed;
            // Only its readers keep it.
            if ends && !state.is_live(id) {
                continue;
            }
            account.log_bytes += bytes;
            if !ends {
                let before = if id == flushed { flush_point.offset } else { 0 };
                account.unflushed_bytes += bytes.saturating_sub(before.into());
            }
            let held = match state.is_live(id) {
                true => state.live_bytes(id),
                false => 0,
            };
            held_bytes += held;
            let live_bytes = known.live_estimate(id, bytes, held);
            account.live_bytes += live_bytes;
            live_records += known.user_estimate(held);
            if ends {
                whole.push(Candidate {
                    id,
                    bytes,
                    live_bytes,
                    moved,
                });
            }
        }
        drop(known);
        drop(manifest);
        let version = self.version.load_full();
        let mut inline_bytes = 0;
        for keyspace in version.live_keyspaces() {
            let stats = keyspace.view.stats();
            account.other_bytes += stats.bytes;
            inline_bytes += stats
                .bytes
                .saturating_sub(stats.entries * INDEX_ENTRY_BYTES);
        }
        drop(version);
        let amp = self.options.space_amp_max;
        // Where every byte of a small value costs more than that beside it, some garbage there may be all the same.
        let least = (amp - 1.0) * account.live_bytes as f64 / 3.0;
        let most = amp * (live_records + inline_bytes) as f64;
        let garbage = most - (account.live_bytes + account.other_bytes) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of what files hold, more or less"
        )]
        let part = garbage.max(least) as u64;
        account.allowed_bytes = part.max(self.options.garbage_bytes_min);
        let worth = WORTH * (1.0 - 1.0 / self.options.space_amp_max);
        let mut known = self.gc.state.lock();
        known.held_bytes = held_bytes as f64;
        known
            .born
            .retain(|id, _| segments.iter().any(|segment| segment.id == *id));
        whole.retain(|one| one.garbage() >= worth && !known.left_alone.contains(&one.id));
        account.some_victim = !whole.is_empty();
        drop(known);
        Ok((whole, account))
    }

    /// A generation is being flushed: how much it overwrites and deletes of what the indexes point to, by a sample of its keys.
    pub(crate) fn sample_overwritten(&self, generation: &Generation, version: &Version) {
        if !self.options.value_gc {
            return;
        }
        for keyspace in version.live_keyspaces() {
            let Some(mem) = generation
                .keyspace(keyspace.state.id)
                .filter(|mem| !mem.map.is_empty())
            else {
                continue;
            };
            let step = mem.map.len().div_ceil(SAMPLE_KEYS);
            let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
            let mut cursor = mem
                .map
                .cursor(lower, upper, Direction::Forward, SeqNum::MAX);
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let mut at = 0;
            while cursor.advance() {
                if at % step == 0 {
                    keys.push(cursor.key().to_vec());
                }
                at += 1;
            }
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            // What cannot be read is nothing to go by; whoever needs it is told.
            let found = keyspace
                .view
                .get_batch(&keys)
                .into_iter()
                .flatten()
                .flatten();
            let lengths = found.map(|entry| match entry.value {
                EntryValue::Pointer(pointer) => u64::from(pointer.length),
                EntryValue::Inline(_) | EntryValue::Tombstone => 0,
            });
            self.gc.overwritten(lengths.sum::<u64>() * step as u64);
        }
        self.update_space();
    }

    /// Takes the account.
    pub(crate) fn take_account(&self) {
        match self.survey() {
            Ok((_, account)) => {
                self.gc.state.lock().account = account;
                let seal = if self.options.value_gc {
                    account.seal_bytes()
                } else {
                    u64::MAX
                };
                self.gc.seal_bytes.store(seal, Ordering::Relaxed);
            }
            // Of a segment's header: whoever reads there is told.
            Err(error) => {
                self.gc
                    .state
                    .lock()
                    .error
                    .get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// The victims of the next round: those with the most garbage.
    pub(super) fn choose_victims(&self) -> Result<Vec<Candidate>> {
        let (mut candidates, account) = self.survey()?;
        if !account.wants_round() {
            return Ok(Vec::new());
        }
        candidates.sort_by(|a, b| b.garbage().total_cmp(&a.garbage()).then(a.id.cmp(&b.id)));
        let bytes_max = (account.allowed_bytes / ROUND_PART).min(self.gc_memory_bytes());
        let mut bytes = 0;
        let chosen = candidates.iter().take_while(|candidate| {
            let first = bytes == 0;
            bytes += candidate.bytes;
            first || bytes <= bytes_max
        });
        let count = chosen.count();
        candidates.truncate(count);
        Ok(candidates)
    }
}
