//! The account of space: what the files take, how much of that is live by the best estimate, how much garbage there may be; and which segments hold most of it.
//!
//! **Garbage** is what log segments take beyond their live records: dead ones, shadowed and hidden ones, and everything behind the flush point (commits that may have overwritten
//! each other; a flush tells). It may grow to `space_amp_max - 1` of what is live, or to `garbage_bytes_min` where that is more. Segments that only snapshots and iterators keep are not counted,
//! and neither are tables: what is shadowed in them, compactions take away.

use super::Gc;
use crate::Result;
use crate::engine::Engine;
use glintdb_core::SegmentId;
use glintdb_log::format::segment::SegmentKind;

/// Part of the allowed garbage at which rounds begin.
const BEGIN: f64 = 0.7;
/// Part at which they go before compactions.
const URGENT: f64 = 0.9;
/// A round takes victims of this part of the allowed garbage.
const ROUND_PART: u64 = 8;
/// A segment is a victim where at least this part of `space_amp_max - 1` of it is garbage.
const WORTH: f64 = 0.4;
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
    /// Whether some segment is worth a round.
    pub(crate) some_victim: bool,
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

    pub(crate) fn wants_round(&self) -> bool {
        self.some_victim && self.fill() >= BEGIN
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.fill() >= URGENT
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

impl Gc {
    /// Bytes of a segment that are live, about, where indexes' files point to `held` bytes of values in it.
    fn live_estimate(&self, id: SegmentId, bytes: u64, held: u64) -> u64 {
        let state = self.state.lock();
        let record = match state.born.get(&id) {
            Some(&born) => bytes as f64 / born.max(1) as f64,
            None => state.overhead,
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most what the segment has"
        )]
        let live = (held as f64 * (1.0 - state.hidden) * record) as u64;
        live.saturating_add(HEADER_BYTES).min(bytes)
    }
}

impl Engine {
    /// Every segment with what is live in it, and the bytes of all.
    fn survey(&self) -> Result<(Vec<Candidate>, Account)> {
        let segments = self.log.segments()?;
        let (mut whole, mut account) = (Vec::new(), Account::default());
        let manifest = self.manifest.lock();
        let state = manifest.state();
        account.other_bytes = manifest.bytes();
        let flushed = state.flush_point.lsn.segment;
        for segment in &segments {
            let (id, bytes) = (segment.id, segment.file_bytes);
            let moved = segment.kind == SegmentKind::Values;
            let ends = moved || id < flushed;
            // Only its readers keep it.
            if ends && !state.is_live(id) {
                continue;
            }
            account.log_bytes += bytes;
            let live_bytes = self.gc.live_estimate(
                id,
                bytes,
                match state.is_live(id) {
                    true => state.live_bytes(id),
                    false => 0,
                },
            );
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
        drop(manifest);
        let version = self.version.load_full();
        account.other_bytes += version
            .live_keyspaces()
            .map(|keyspace| keyspace.view.bytes())
            .sum::<u64>();
        drop(version);
        let live = account.live_bytes + account.other_bytes;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of what files hold, more or less"
        )]
        let part = (live as f64 * (self.options.space_amp_max - 1.0)) as u64;
        account.allowed_bytes = part.max(self.options.garbage_bytes_min);
        let worth = WORTH * (1.0 - 1.0 / self.options.space_amp_max);
        let mut known = self.gc.state.lock();
        known
            .born
            .retain(|id, _| segments.iter().any(|segment| segment.id == *id));
        whole.retain(|one| one.garbage() >= worth && !known.left_alone.contains(&one.id));
        account.some_victim = !whole.is_empty();
        drop(known);
        Ok((whole, account))
    }

    /// Takes the account.
    pub(crate) fn take_account(&self) {
        match self.survey() {
            Ok((_, account)) => self.gc.state.lock().account = account,
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
