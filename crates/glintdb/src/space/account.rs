//! The account of space: the size of the files, how much of it is live by the best estimate, and
//! how much garbage is allowed.
//!
//! **Garbage** is the part of log segments beyond their live records: dead, shadowed and hidden
//! records, and everything behind the flush point, whose commits may have overwritten each other.
//! Allowed garbage is the largest of three:
//!
//! - the bytes with which all files together have `space_amp_max` times the size of the live keys
//!   and values;
//! - a third of `space_amp_max - 1` of the live log, if the index and headers leave less;
//! - `garbage_bytes_min`, but at most a quarter of the space that is free or holds garbage.
//!
//! Segments that only snapshots, iterators and checkpoints keep are not counted. Those that another
//! reader keeps are counted.
//!
//! Thread safety: plain values.

use glintdb_core::SegmentId;
use glintdb_log::Log;

/// Part of the allowed garbage at which rounds begin.
const BEGIN: f64 = 0.87;
/// Part of the allowed garbage at which rounds go before compactions.
const URGENT: f64 = 0.92;
/// The log of a memtable is at least this part of the allowed garbage.
const SEAL_PART: u64 = 8;
/// Bytes of an index entry without its value, approximately. That part of tables is not live data.
pub(super) const INDEX_ENTRY_BYTES: u64 = 64;
/// Cost of finding a record in a victim and looking it up, in bytes of a long read that take as
/// long (`docs/decisions/010-relocation.md`, "Walking instead of scanning").
const RECORD_COST_BYTES: u64 = 700;
/// Cost of walking over an entry of an index, in the same unit.
const ENTRY_COST_BYTES: u64 = 70;
/// Cost of reading one value by itself, beside its bytes, in the same unit.
const READ_COST_BYTES: u64 = 16 << 10;

/// The account, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Account {
    /// Files of the log.
    pub(crate) log_bytes: u64,
    /// Bytes of them that are live and below the flush point, estimated.
    pub(crate) live_bytes: u64,
    /// Files that are not the log: tables and the manifest.
    pub(crate) other_bytes: u64,
    /// Bytes of garbage that are allowed.
    pub(crate) allowed_bytes: u64,
    /// Bytes of the log behind the flush point.
    pub(crate) unflushed_bytes: u64,
    /// Bytes of the log that only snapshots and iterators keep. The other sums do not count them.
    pub(crate) kept_bytes: u64,
    /// Whether some segment is worth a round.
    pub(crate) some_victim: bool,
    /// The share of the values that indexes' files point to that is shadowed or hidden.
    pub(crate) hidden_share: f64,
    /// Entries of all indexes.
    pub(super) index_entries: u64,
    pub(super) index_bytes: u64,
    /// Position of the log's files when the account was taken.
    pub(super) spilled: u64,
    pub(super) completed: u64,
}

impl Account {
    /// An account of `live_bytes` in values of one size.
    #[cfg(test)]
    pub(super) fn of_values(live_bytes: u64, value_bytes: u64) -> Account {
        let index_entries = live_bytes / value_bytes;
        Account {
            live_bytes,
            index_entries,
            index_bytes: index_entries * INDEX_ENTRY_BYTES,
            ..Account::default()
        }
    }

    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.log_bytes.saturating_sub(self.live_bytes)
    }

    /// Returns the garbage that flushes and rounds have found. The log behind the flush point is
    /// unknown, so all of it counts as garbage, but not here.
    pub(crate) fn known_garbage_bytes(&self) -> u64 {
        self.garbage_bytes().saturating_sub(self.unflushed_bytes)
    }

    /// Returns the garbage as a part of the allowed garbage.
    pub(crate) fn fill(&self) -> f64 {
        match self.allowed_bytes {
            0 => 0.0,
            allowed => self.garbage_bytes() as f64 / allowed as f64,
        }
    }

    /// Returns the [`fill`](Self::fill) after the log has grown by `grown` bytes.
    pub(crate) fn fill_with(&self, grown: u64) -> f64 {
        self.fill() + grown as f64 / self.allowed_bytes.max(1) as f64
    }

    /// Returns the bytes that the log has grown by since the account was taken, or will when
    /// commits leave the ring.
    pub(crate) fn grown(&self, log: &Log) -> u64 {
        let spilled = log.spilled_bytes().saturating_sub(self.spilled);
        let completed = log.completed_bytes().saturating_sub(self.completed);
        spilled.max(completed)
    }

    /// Returns the bytes of log at which a memtable is sealed: half of the allowed garbage less the
    /// known garbage, but at least [`SEAL_PART`] of it.
    pub(super) fn seal_bytes(&self) -> u64 {
        (self.allowed_bytes / 2)
            .saturating_sub(self.known_garbage_bytes())
            .max(self.allowed_bytes / SEAL_PART)
    }

    pub(crate) fn wants_round(&self) -> bool {
        self.wants_round_at(self.fill())
    }

    pub(crate) fn wants_round_at(&self, fill: f64) -> bool {
        self.some_victim && self.is_due_at(fill)
    }

    pub(super) fn is_due_at(&self, fill: f64) -> bool {
        fill >= BEGIN
    }

    pub(crate) fn is_urgent_at(&self, fill: f64) -> bool {
        fill >= URGENT
    }

    /// Returns whether a round over `victims` costs less if it walks the indexes and reads live
    /// values one by one than if it reads the victims and looks their records up. `cached` is the
    /// share of live values that need not be read.
    pub(super) fn is_walk_cheaper(&self, victims: &[Candidate], cached: f64) -> bool {
        if self.index_entries == 0 {
            return false;
        }
        let bytes: u64 = victims.iter().map(|victim| victim.bytes).sum();
        let live: u64 = victims.iter().map(|victim| victim.live_bytes).sum();
        let record_bytes = (self.live_bytes / self.index_entries).max(1);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of the bytes in victims"
        )]
        let read = (live as f64 * (1.0 - cached)) as u64;
        let scan = bytes + bytes / record_bytes * RECORD_COST_BYTES;
        let walk = self.index_bytes
            + self.index_entries * ENTRY_COST_BYTES
            + read
            + read / record_bytes * READ_COST_BYTES;
        walk < scan
    }
}

/// A segment that is worth a round.
pub(super) struct Candidate {
    pub(super) id: SegmentId,
    pub(super) bytes: u64,
    /// Bytes of it that are live, estimated.
    pub(super) live_bytes: u64,
    /// Whether it holds values that were moved, so that it is no part of the stream of commits.
    pub(super) moved: bool,
}

impl Candidate {
    pub(super) fn garbage(&self) -> f64 {
        1.0 - self.live_bytes as f64 / self.bytes.max(1) as f64
    }
}
