//! Gives back, without being asked, what deletions and readers that have ended leave behind.
//!
//! Deletions in memtables free nothing until they are flushed, and tombstones that a transaction
//! kept stay until a compaction is picked again. So a background thread *looks* a little after a
//! deletion, the end of a transaction, a drop of a keyspace, or the opening, and again while there
//! is something to do:
//!
//! - It flushes the active memtables if their deletions free much.
//! - It queues compactions.
//! - It gives back the part of the reserve that memtables of late did not need.
//! - On an idle engine with less data than before, it gives back space that was preallocated for
//!   more ([`trim`](super::trim)).
//!
//! Thread safety: any thread that holds no lock. One look runs at a time.

use crate::background::Background;
use crate::background::trim::data_bytes;
use crate::state::looks::PAUSE;
use crate::state::version::{KeyspaceMem, Version};
use glintdb_core::index::IndexView;
use glintdb_core::{RangeTombstone, SeqNum, proportion};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An engine is idle when it has had no commit for this time.
const IDLE: Duration = Duration::from_secs(1);
/// While there are commits, memtables are flushed early if their deletions free this part of the
/// data: a sixteenth.
const BUSY_PART: u64 = 16;
/// The least that they must free then.
const BUSY_BYTES: u64 = 16 << 20;
/// The same for an idle engine.
const IDLE_PART: u64 = 16;
/// The same for an idle engine.
const IDLE_BYTES: u64 = 1 << 20;
/// An idle engine is trimmed when its data has shrunk by this part: an eighth.
const SHRUNK_PART: u64 = 8;
/// Number of range tombstones of a memtable whose hidden bytes are looked up. They stand for all.
const RANGES_MAX: usize = 64;

/// What the looks so far have seen.
pub(super) struct Seen {
    newest: SeqNum,
    /// Number of looks in a row that found no new commit.
    quiet: u32,
    /// Most bytes of data and of the active memtables' log since the last trim.
    bytes_max: u64,
    /// Most bytes in memory of late that a flush would write.
    unflushed_bytes_max: u64,
    /// Bytes of log at which memtables are sealed because of their deletions. Each look that finds
    /// few of them doubles it.
    seals_at: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Seen {
            newest: SeqNum::ZERO,
            quiet: 0,
            bytes_max: 0,
            unflushed_bytes_max: 0,
            seals_at: u64::MAX,
        }
    }
}

impl Background {
    /// Looks for what can be given back, and asks for another look if there may be more.
    pub(super) fn look(&self) {
        let shared = &self.shared;
        let Some(mut seen) = self.seen.try_lock() else {
            return shared.ask_for_look();
        };
        if shared.closing() {
            return;
        }
        let newest = self.sequencer.newest();
        seen.quiet = match newest == seen.newest {
            true => seen.quiet.saturating_add(1),
            false => 0,
        };
        seen.newest = newest;
        let is_idle = PAUSE * seen.quiet >= IDLE;
        let version = shared.version.load_full();
        let log_bytes = self.sequencer.active_log_bytes();
        let all = data_bytes(&shared.manifest, &version) + log_bytes;
        seen.bytes_max = seen.bytes_max.max(all);
        let freed = self.freed_by_flush(&version, log_bytes, is_idle);
        // The version would keep files.
        drop(version);
        let least = match is_idle {
            true => (all / IDLE_PART).max(IDLE_BYTES),
            false => (all / BUSY_PART).max(BUSY_BYTES),
        };
        if freed >= least && shared.may_seal() {
            self.sequencer.seal_active();
        }
        shared.schedule();
        self.trim_reserve(&mut seen);
        let (waiting, running) = self.jobs.counts();
        let is_done = is_idle && waiting + running == 0;
        // Between two looks, commits seal their memtables themselves.
        seen.seals_at = match freed >= least && !is_idle {
            true => least,
            false if is_done => u64::MAX,
            false => seen.seals_at.saturating_mul(2),
        };
        self.sequencer.set_deletions_seal_bytes(seen.seals_at);
        if is_done && all < seen.bytes_max - seen.bytes_max / SHRUNK_PART {
            seen.bytes_max = all;
            if let Err(error) = self.trim()
                && !error.kind().passes()
            {
                shared.note_background_error(&error);
            }
        }
        if !is_done && shared.background_error().is_none() {
            shared.ask_for_look();
        }
    }

    /// Removes files of the reserve that memtables of late did not need.
    fn trim_reserve(&self, seen: &mut Seen) {
        let unflushed = self.sequencer.unflushed_bytes();
        let faded = seen.unflushed_bytes_max - seen.unflushed_bytes_max / 16;
        seen.unflushed_bytes_max = unflushed.max(faded);
        let kept = seen.unflushed_bytes_max;
        let indexes = self.shared.version.load_full().index_needs();
        let needed = || self.sequencer.unflushed_bytes().max(kept);
        let (reserve, numbers) = (&self.shared.reserve, &*self.shared.numbers);
        if let Err(error) = reserve.trim(numbers, indexes, needed)
            && !error.kind().passes()
        {
            self.shared.note_background_error(&error);
        }
    }

    /// About the bytes that a flush of the active memtables, which have `log_bytes` of log, frees
    /// by their deletions.
    fn freed_by_flush(&self, version: &Version, log_bytes: u64, is_idle: bool) -> u64 {
        let entries = version.active.entries() as u64;
        let mut freed = 0u64;
        for keyspace in version.live_keyspaces() {
            let Some(mem) = version.active.keyspace(keyspace.state.id) else {
                continue;
            };
            let in_log = proportion(log_bytes, mem.map.len() as u64, entries);
            let deletes = mem.deletes.load(Ordering::Relaxed);
            if deletes > 0 {
                let index = keyspace.view.stats();
                let bytes = index.bytes + index.pointed_bytes + in_log;
                let entries = index.entries + mem.map.len() as u64;
                freed += proportion(bytes, deletes.min(entries), entries);
            }
            if !mem.ranges.is_empty() {
                freed += hidden_bytes(mem, &*keyspace.view);
                // They may also hide what was put before them, which nothing has counted.
                freed += if is_idle { in_log } else { 0 };
            }
        }
        if is_idle && !self.shared.manifest.lock().state().dropped.is_empty() {
            // The log still holds commits to keyspaces that were dropped.
            freed += log_bytes;
        }
        freed
    }
}

/// About the bytes of an index that range tombstones of a memtable hide.
fn hidden_bytes(mem: &KeyspaceMem, view: &dyn IndexView) -> u64 {
    let (count, some) = mem.ranges.some_fragments(RANGES_MAX);
    let hidden = |range: &RangeTombstone| {
        let start = Bound::Included(&*range.start);
        let end = range.end.as_deref();
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        // An index that cannot be read gives back nothing.
        view.bytes_within(start, end).unwrap_or(0)
    };
    let bytes: u64 = some.iter().map(hidden).sum();
    proportion(bytes, count as u64, some.len() as u64)
}
