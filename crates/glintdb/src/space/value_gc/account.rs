//! The account of space: what the files take, how much of that is live by the best estimate, how much garbage there may be; and which segments hold most of it.
//!
//! **Garbage** is what log segments take beyond their live records: dead ones, shadowed and hidden
//! ones, and everything behind the flush point (commits that may have overwritten each other; a
//! flush tells). Allowed garbage is the largest of three:
//!
//! - what makes all files together `space_amp_max` times the live keys and values;
//! - a third of `space_amp_max - 1` of the live log, where the index and headers leave less;
//! - `garbage_bytes_min`, but at most a quarter of the space that is free or holds garbage.
//!
//! Segments that snapshots and iterators keep are not counted; those that any other reader keeps
//! are.

use super::State;
use crate::Result;
use crate::background::flush::Sample;
use crate::engine::Engine;
use crate::options::GcReads;
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{EntryValue, SegmentId};
use glintdb_log::Log;
use glintdb_log::format::segment::SegmentKind;

/// Part of the allowed garbage at which rounds begin.
const BEGIN: f64 = 0.87;
/// Part at which they go before compactions.
const URGENT: f64 = 0.92;
/// The log of a memtable is at least this part of it.
const SEAL_PART: u64 = 8;
/// A round takes victims of this part of the allowed garbage.
const ROUND_PART: u64 = 8;
/// Segments are made of this part of it, so that a round gives space back in small steps.
const SEGMENT_PART: u64 = 16;
/// A segment is a victim where at least this part of `space_amp_max - 1` of it is garbage.
const WORTH: f64 = 0.4;
/// Garbage may take this part of the free space, however much the options allow.
const ROOM_PART: u64 = 4;
/// What an entry without its value takes in the index, about: that much of tables is not live records.
const INDEX_ENTRY_BYTES: u64 = 64;
/// What it costs to find a record in a victim and to look it up; to walk over an entry of an index; and to read a value for itself, beside its bytes: in bytes of a long read
/// (`docs/decisions/010-relocation.md`, "Walking instead of scanning").
const RECORD_COST_BYTES: u64 = 700;
const ENTRY_COST_BYTES: u64 = 70;
const READ_COST_BYTES: u64 = 16 << 10;
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
    /// Of the log, what only snapshots and iterators keep; not counted in the others.
    pub(crate) kept_bytes: u64,
    /// Whether some segment is worth a round.
    pub(crate) some_victim: bool,
    /// Of what indexes' files point to, the share that is shadowed or hidden.
    pub(crate) hidden_share: f64,
    /// Entries of all indexes, and bytes of their files.
    index_entries: u64,
    index_bytes: u64,
    /// How far the log's files went, and its commits.
    spilled: u64,
    completed: u64,
}

impl Account {
    /// Of so many live bytes in values of one size.
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

    /// What is garbage as far as flushes and rounds have told: of what lies behind the flush point nobody knows, and to the bound it all counts.
    pub(crate) fn known_garbage_bytes(&self) -> u64 {
        self.garbage_bytes().saturating_sub(self.unflushed_bytes)
    }

    /// Garbage, as part of what may be.
    pub(crate) fn fill(&self) -> f64 {
        match self.allowed_bytes {
            0 => 0.0,
            allowed => self.garbage_bytes() as f64 / allowed as f64,
        }
    }

    /// [`fill`](Self::fill) when so many bytes have come since.
    pub(crate) fn fill_with(&self, grown: u64) -> f64 {
        self.fill() + grown as f64 / self.allowed_bytes.max(1) as f64
    }

    /// What the log has grown by since, or is going to: commits are in the ring for a while.
    pub(crate) fn grown(&self, log: &Log) -> u64 {
        let spilled = log.spilled_bytes().saturating_sub(self.spilled);
        let completed = log.completed_bytes().saturating_sub(self.completed);
        spilled.max(completed)
    }

    /// The log of one memtable should hold no more: half of what may be, less the garbage that is known; but no less than a part of it.
    fn seal_bytes(&self) -> u64 {
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

    /// Whether a round over these victims has less to do where it walks the indexes and reads what is live, value by value, than where it reads the victims from end to end and looks their records up: what
    /// each costs, in bytes that a long read of the device brings in the same time. Of what is live `cached` need not be read.
    pub(super) fn is_walk_cheaper(&self, victims: &[Candidate], cached: f64) -> bool {
        if self.index_entries == 0 {
            return false;
        }
        let bytes: u64 = victims.iter().map(|victim| victim.bytes).sum();
        let live: u64 = victims.iter().map(|victim| victim.live_bytes).sum();
        let record_bytes = (self.live_bytes / self.index_entries).max(1);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of what victims hold"
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
    /// Bytes of it that are live, about.
    pub(super) live_bytes: u64,
    /// It holds values that were moved: it is no part of the stream.
    pub(super) moved: bool,
}

/// Leaves the first victims, of so many bytes at most, or one.
fn limit(victims: &mut Vec<Candidate>, bytes_max: u64) {
    let mut bytes = 0;
    let chosen = victims.iter().take_while(|victim| {
        let first = bytes == 0;
        bytes += victim.bytes;
        first || bytes <= bytes_max
    });
    victims.truncate(chosen.count());
}

impl Candidate {
    fn garbage(&self) -> f64 {
        1.0 - self.live_bytes as f64 / self.bytes.max(1) as f64
    }
}

impl State {
    /// Bytes of a segment that are live, about, where `live` bytes of values in it are.
    fn live_estimate(&self, id: SegmentId, bytes: u64, live: f64) -> u64 {
        let record = match self.born.get(&id) {
            Some(&born) => bytes as f64 / born.max(1) as f64,
            None => self.overhead,
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most what the segment has"
        )]
        let live = (live * record) as u64;
        live.saturating_add(HEADER_BYTES).min(bytes)
    }
}

impl Engine {
    /// Every segment with what is live in it, and the bytes of all.
    fn survey(&self) -> Result<(Vec<Candidate>, Account)> {
        let spilled = self.log.spilled_bytes();
        let completed = self.log.completed_bytes();
        let segments = self.log.segments()?;
        let pinned = self.pins.versions();
        let kept = self.version.kept_dead(|version| pinned.contains(&version));
        let (mut held_bytes, mut live_values) = (0.0, 0.0);
        let (mut whole, mut account) = (Vec::new(), Account::default());
        account.log_bytes = self.log.doomed_bytes()?;
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let known = self.gc.state.lock();
        (account.spilled, account.completed) = (spilled, completed);
        account.other_bytes = manifest.bytes();
        let flush_point = state.flush_point.lsn;
        let flushed = flush_point.segment;
        for segment in &segments {
            let (id, bytes) = (segment.id, segment.written_bytes);
            let moved = segment.kind == SegmentKind::Values;
            let ends = moved || id < flushed;
            // Snapshots and iterators keep it.
            if kept.contains(&id) {
                account.kept_bytes += bytes;
                continue;
            }
            account.log_bytes += bytes;
            // It waits for somebody who reads just now, or for the ring.
            if ends && !state.is_live(id) {
                continue;
            }
            if !ends {
                let before = if id == flushed { flush_point.offset } else { 0 };
                account.unflushed_bytes += bytes.saturating_sub(before.into());
            }
            let held = match state.is_live(id) {
                true => state.live_bytes(id),
                false => 0,
            };
            let live = known.hidden.live(id, held);
            held_bytes += held as f64;
            live_values += live;
            let live_bytes = known.live_estimate(id, bytes, live);
            account.live_bytes += live_bytes;
            if ends {
                whole.push(Candidate {
                    id,
                    bytes,
                    live_bytes,
                    moved,
                });
            }
        }
        let live_records = live_values * known.keyed;
        account.hidden_share = match held_bytes {
            0.0 => 0.0,
            held => 1.0 - live_values / held,
        };
        drop(known);
        drop(manifest);
        let version = self.version.load_full();
        let mut inline_bytes = 0;
        for keyspace in version.live_keyspaces() {
            let stats = keyspace.view.stats();
            account.index_bytes += stats.bytes;
            account.index_entries += stats.entries;
            inline_bytes += stats
                .bytes
                .saturating_sub(stats.entries * INDEX_ENTRY_BYTES);
        }
        drop(version);
        account.other_bytes += account.index_bytes;
        let amp = self.options.space_amp_max;
        // Where every byte of a small value costs more than that beside it, some garbage there may be all the same.
        let least = (amp - 1.0) * account.live_bytes as f64 / 3.0;
        let most = amp * (live_records + inline_bytes as f64);
        let garbage = most - (account.live_bytes + account.other_bytes) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of what files hold, more or less"
        )]
        let part = garbage.max(least) as u64;
        account.allowed_bytes = part.max(self.garbage_bytes_min(&account));
        let worth = WORTH * (1.0 - 1.0 / self.options.space_amp_max);
        let mut known = self.gc.state.lock();
        let is_there = |id| segments.iter().any(|segment| segment.id == id);
        known.born.retain(|id, _| is_there(*id));
        known.hidden.retain(is_there);
        whole.retain(|one| one.garbage() >= worth && !known.left_alone.contains(&one.id));
        account.some_victim = !whole.is_empty();
        drop(known);
        Ok((whole, account))
    }

    /// Garbage that there may be however little is live: what the option says, but no more than a
    /// part of what the medium would have free without any garbage.
    fn garbage_bytes_min(&self, account: &Account) -> u64 {
        let free = self.volume.free_bytes().unwrap_or(u64::MAX);
        let room = free.saturating_add(account.garbage_bytes());
        self.options.garbage_bytes_min.min(room / ROOM_PART)
    }

    /// Before the first account: on a small file system the first memtable is sealed early as well,
    /// or the log would fill the disk before a flush shows what of it is garbage.
    pub(crate) fn limit_first_memtable(&self) {
        let garbage = self.garbage_bytes_min(&Account::default());
        if self.options.value_gc && garbage < self.options.garbage_bytes_min {
            self.gc.seal_bytes.store(garbage / 2, Ordering::Relaxed);
        }
    }

    /// A generation is being flushed: how much it overwrites and deletes of what the indexes point to, by a sample of its keys.
    pub(crate) fn sample_overwritten(&self, samples: &[Sample]) {
        if !self.options.value_gc {
            return;
        }
        let mut bytes = Vec::new();
        for sample in samples {
            let keys: Vec<&[u8]> = sample.keys.iter().map(Vec::as_slice).collect();
            // What cannot be read is nothing to go by; whoever needs it is told.
            let found = sample.keyspace.index.view().get_batch(&keys);
            for entry in found.into_iter().flatten().flatten() {
                if let EntryValue::Pointer(pointer) = entry.value {
                    let stand_for = u64::from(pointer.length) * sample.step as u64;
                    bytes.push((pointer.segment, stand_for));
                }
            }
        }
        self.gc.overwriting(bytes);
    }

    /// Takes the account.
    pub(crate) fn take_account(&self) {
        match self.survey() {
            Ok((_, account)) => {
                self.gc.state.lock().account = account;
                self.log
                    .set_data_bytes(account.log_bytes + account.other_bytes);
                if !self.options.value_gc {
                    return;
                }
                self.gc
                    .seal_bytes
                    .store(account.seal_bytes(), Ordering::Relaxed);
                self.log
                    .set_segment_bytes(account.allowed_bytes / SEGMENT_PART);
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

    /// Chooses the victims of the next round: the segments with the most garbage. Also returns
    /// whether the round should walk the indexes.
    pub(super) fn choose_victims(&self) -> Result<(Vec<Candidate>, bool)> {
        let (mut candidates, account) = self.survey()?;
        if !account.wants_round() {
            return Ok((Vec::new(), false));
        }
        candidates.sort_by(|a, b| b.garbage().total_cmp(&a.garbage()).then(a.id.cmp(&b.id)));
        let most = account.allowed_bytes / ROUND_PART;
        limit(&mut candidates, most.min(self.gc_memory_bytes_max()));
        let walks = match self.options.value_gc_reads {
            GcReads::Auto => account.is_walk_cheaper(&candidates, self.gc.state.lock().cached),
            GcReads::Segments => false,
            GcReads::Index => true,
        };
        // Who walks holds no values.
        if !walks {
            limit(&mut candidates, most.min(self.gc_memory_bytes()));
        }
        Ok((candidates, walks))
    }
}
