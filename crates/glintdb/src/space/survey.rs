//! Takes the [account of space](super::account) from every segment and every index.
//!
//! Thread safety: any thread. The manifest's lock is held for the look at segments, and within it
//! that of [`Gc`](super::gc::Gc).

use super::DiskSpace;
use super::account::{Account, Candidate, INDEX_ENTRY_BYTES};
use crate::Result;
use crate::options::GcReads;
use crate::state::version::KeyspaceState;
use glintdb_core::EntryValue;
use glintdb_core::sync::atomic::Ordering;
use glintdb_log::format::segment::SegmentKind;
use std::sync::Arc;

/// A round takes victims of this part of the allowed garbage.
const ROUND_PART: u64 = 8;
/// Segments have this part of the allowed garbage, so that rounds give space back in small steps.
const SEGMENT_PART: u64 = 16;
/// A segment is a victim if at least this part of `space_amp_max - 1` of it is garbage.
const WORTH: f64 = 0.4;
/// Garbage may take at most this part of the free space, however much the options allow.
const ROOM_PART: u64 = 4;
/// The log grows by this much between two looks at a fill that slows writers.
const LOOK_BYTES: u64 = 128 << 10;
/// A round takes at most this part of the budget for keys and values. The cache is smaller by that
/// much, and a larger round saves little.
const MEMORY_SHARE: u64 = 32;
/// Bytes that a round may take in any case, because a small round looks up few values at a time.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// A round never takes more than this part of the budget. Larger victims are read twice.
const MEMORY_SHARE_MAX: u64 = 8;

/// Keys of a memtable, evenly spread.
pub(crate) struct Sample {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) keys: Vec<Vec<u8>>,
    /// Number of entries that each sampled one represents.
    pub(crate) step: usize,
}

/// Keeps the first victims that have at most `bytes_max` bytes together, and at least one.
fn limit(victims: &mut Vec<Candidate>, bytes_max: u64) {
    let mut bytes = 0;
    let chosen = victims.iter().take_while(|victim| {
        let first = bytes == 0;
        bytes += victim.bytes;
        first || bytes <= bytes_max
    });
    victims.truncate(chosen.count());
}

/// Divides the allowed garbage among the log and the indexes, by their live bytes. Small records
/// have more overhead than `space_amp_max` allows; half of (`space_amp_max` − 1) × its live bytes
/// is allowed to an index nevertheless.
fn share_garbage(account: &Account, indexes: &[(u64, Arc<KeyspaceState>)], space_amp_max: f64) {
    let in_indexes: u64 = indexes.iter().map(|(live, _)| live).sum();
    let all = (account.live_bytes + in_indexes).max(1) as f64;
    for (live, keyspace) in indexes {
        let live = *live as f64;
        let share = account.allowed_bytes as f64 * (live / all);
        let least = (space_amp_max - 1.0) * live / 2.0;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a share of the files' bytes"
        )]
        let garbage_max = share.max(least) as u64;
        keyspace.index().set_garbage_max(garbage_max);
    }
}

/// The result of a survey.
struct Survey {
    /// The segments that are worth a round.
    candidates: Vec<Candidate>,
    account: Account,
    /// Live bytes of each index.
    indexes: Vec<(u64, Arc<KeyspaceState>)>,
}

impl DiskSpace {
    /// Looks at every segment and every index.
    fn survey(&self) -> Result<Survey> {
        let spilled = self.shared.log.spilled_bytes();
        let completed = self.shared.log.completed_bytes();
        let segments = self.shared.log.segments()?;
        let pinned = self.shared.pins.versions();
        let kept = self
            .shared
            .version
            .kept_dead(|version| pinned.contains(&version));
        let (mut held_bytes, mut live_values) = (0.0, 0.0);
        let (mut whole, mut account) = (Vec::new(), Account::default());
        account.log_bytes = self.shared.log.doomed_bytes()?;
        let manifest = self.shared.manifest.lock();
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
            // Only snapshots and iterators keep the segment.
            if kept.contains(&id) {
                account.kept_bytes += bytes;
                continue;
            }
            account.log_bytes += bytes;
            // A reader or the ring still needs the segment.
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
        let version = self.shared.version.load_full();
        let (mut inline_bytes, mut indexes) = (0, Vec::new());
        for keyspace in version.live_keyspaces() {
            let stats = keyspace.view.stats();
            indexes.push((stats.live_bytes, Arc::clone(&keyspace.state)));
            account.index_bytes += stats.bytes;
            account.index_entries += stats.entries;
            inline_bytes += stats
                .live_bytes
                .saturating_sub(stats.entries * INDEX_ENTRY_BYTES);
        }
        drop(version);
        account.other_bytes += account.index_bytes;
        let amp = self.shared.options.space_amp_max;
        // Small values have more overhead than space_amp_max allows. Some garbage is allowed
        // nevertheless.
        let least = (amp - 1.0) * account.live_bytes as f64 / 3.0;
        let most = amp * (live_records + inline_bytes as f64);
        let garbage = most - (account.live_bytes + account.other_bytes) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "about a part of the bytes in files"
        )]
        let part = garbage.max(least) as u64;
        account.allowed_bytes = part.max(self.garbage_bytes_min(&account));
        let worth = WORTH * (1.0 - 1.0 / self.shared.options.space_amp_max);
        let mut known = self.gc.state.lock();
        let is_there = |id| segments.iter().any(|segment| segment.id == id);
        known.born.retain(|id, _| is_there(*id));
        known.hidden.retain(is_there);
        whole.retain(|one| one.garbage() >= worth && !known.left_alone.contains(&one.id));
        account.some_victim = !whole.is_empty();
        drop(known);
        Ok(Survey {
            candidates: whole,
            account,
            indexes,
        })
    }

    /// Returns the garbage that is allowed even if little is live: the bytes of the option, but at
    /// most a part of the space that the medium would have without garbage.
    fn garbage_bytes_min(&self, account: &Account) -> u64 {
        let free = self.shared.volume.free_bytes().unwrap_or(u64::MAX);
        let room = free.saturating_add(account.garbage_bytes());
        self.shared.options.garbage_bytes_min.min(room / ROOM_PART)
    }

    /// Sets, before the first account, a size at which the first memtable is sealed on a small file
    /// system. Otherwise the log could fill the disk before a flush shows which part of it is
    /// garbage.
    pub(crate) fn limit_first_memtable(&self) {
        let garbage = self.garbage_bytes_min(&Account::default());
        if self.shared.options.experiments.value_gc
            && garbage < self.shared.options.garbage_bytes_min
        {
            self.sequencer.set_garbage_seal_bytes(garbage / 2);
        }
    }

    /// Estimates, by samples of its keys, which values the flush under way overwrites and deletes.
    pub(crate) fn sample_overwritten(&self, samples: &[Sample]) {
        if !self.shared.options.experiments.value_gc {
            return;
        }
        let mut bytes = Vec::new();
        for sample in samples {
            let keys: Vec<&[u8]> = sample.keys.iter().map(Vec::as_slice).collect();
            // Entries that cannot be read are skipped. The read that needs them reports the error.
            let found = sample.keyspace.index().view().get_batch(&keys);
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
            Ok(Survey {
                account, indexes, ..
            }) => {
                self.gc.state.lock().account = account;
                self.shared
                    .log
                    .set_data_bytes(account.log_bytes + account.other_bytes);
                if !self.shared.options.experiments.value_gc {
                    return;
                }
                share_garbage(&account, &indexes, self.shared.options.space_amp_max);
                self.sequencer.set_garbage_seal_bytes(account.seal_bytes());
                self.shared
                    .log
                    .set_segment_bytes(account.allowed_bytes / SEGMENT_PART);
            }
            // The header of a segment cannot be read. Reads of the segment report it too.
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
        let Survey {
            mut candidates,
            account,
            ..
        } = self.survey()?;
        if !account.wants_round() {
            return Ok((Vec::new(), false));
        }
        candidates.sort_by(|a, b| b.garbage().total_cmp(&a.garbage()).then(a.id.cmp(&b.id)));
        let most = account.allowed_bytes / ROUND_PART;
        limit(&mut candidates, most.min(self.gc_memory_bytes_max()));
        let walks = match self.shared.options.experiments.value_gc_reads {
            GcReads::Auto => account.is_walk_cheaper(&candidates, self.gc.state.lock().cached),
            GcReads::Segments => false,
            GcReads::Index => true,
        };
        // A walk holds no values.
        if !walks {
            limit(&mut candidates, most.min(self.gc_memory_bytes()));
        }
        Ok((candidates, walks))
    }

    /// Takes the account again, after a change that space depends on.
    pub(crate) fn update_space(&self) {
        // Without value GC nothing uses the account; `stats()` takes its own.
        if self.shared.options.experiments.value_gc {
            self.gc.occasion();
            self.look_at_space();
        }
    }

    /// Takes the account and sets the rate of writers by it.
    pub(super) fn look_at_space(&self) {
        self.take_account();
        self.update_space_debt();
    }

    /// Returns the account's fill with the bytes that the log, and the round under way, have
    /// written since.
    pub(crate) fn fill_now(&self, account: &Account) -> f64 {
        account.fill_with(account.grown(&self.shared.log) + self.gc.writing())
    }

    /// Returns whether a round has priority over compactions.
    pub(crate) fn is_gc_urgent(&self) -> bool {
        let account = self.gc.known_account();
        account.is_urgent_at(self.fill_now(&account))
    }

    /// Returns the bytes of victims whose values a round normally holds at most.
    pub(super) fn gc_memory_bytes(&self) -> u64 {
        let share = self.shared.options.memory_budget_bytes as u64 / MEMORY_SHARE;
        share.max(MEMORY_BYTES_MIN).min(self.gc_memory_bytes_max())
    }

    /// Returns the most bytes of victims whose values a round may hold, and of a piece of values
    /// that are put in order.
    pub(super) fn gc_memory_bytes_max(&self) -> u64 {
        self.shared.options.memory_budget_bytes as u64 / MEMORY_SHARE_MAX
    }

    /// Sets the rate of writers by how full the allowed garbage is now.
    pub(crate) fn update_space_debt(&self) {
        if !self.shared.options.experiments.value_gc {
            return;
        }
        let debt = &self.shared.backpressure.space;
        let account = self.gc.known_account();
        let position = self.shared.log.completed_position();
        debt.looked_at.store(position, Ordering::Relaxed);
        let due = || account.some_victim && self.gc.may_begin();
        // A flush shows more garbage, which can then be collected.
        let flushing = || self.shared.flush_queued.load(Ordering::SeqCst);
        let collecting = (self.gc.is_queued() || due() || flushing())
            && !self.shared.closing()
            && self.shared.background_error().is_none();
        let without_round = account.fill_with(account.grown(&self.shared.log));
        let fill = self.fill_now(&account);
        debt.update(fill, without_round, collecting);
    }

    /// Sets the rate of writers again if the log has grown since the last look, or if they are
    /// stopped.
    pub(crate) fn update_space_debt_if_stale(&self) {
        let debt = &self.shared.backpressure.space;
        let looked_at = debt.looked_at.load(Ordering::Relaxed);
        let grown = self
            .shared
            .log
            .completed_position()
            .saturating_sub(looked_at);
        if grown >= LOOK_BYTES || debt.stopped() {
            self.update_space_debt();
        }
    }
}
