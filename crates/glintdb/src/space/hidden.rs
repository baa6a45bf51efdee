//! How much of what indexes' files point to is shadowed or hidden, by segment: an estimate. Flushes add what they overwrite, by a sample of their keys; compactions take away what they drop; what
//! a round finds beyond that (range tombstones hide, a sample misses) is taken for the share everywhere.
//!
//! Thread safety: a plain value.

use glintdb_core::SegmentId;
use std::collections::BTreeMap;

/// What a round teaches counts by the bytes that it was about, against this part of all there are: victims are those of which samples say that most is hidden, so of the others they say little.
const KNOWN_PART: f64 = 0.5;
/// The share that is not accounted for, at most; less than nothing where flushes were thought to hide more than they did.
const REST: std::ops::RangeInclusive<f64> = -0.5..=0.95;

/// See the module's page.
#[derive(Default)]
pub(super) struct Hidden {
    /// Bytes, with the errors of samples: a segment's may be less than nothing, and only so is their sum right.
    known: BTreeMap<SegmentId, f64>,
    /// Of what is not known to be hidden, the share that is nevertheless.
    rest: f64,
}

impl Hidden {
    /// So many bytes of a segment have got out of sight.
    pub(super) fn add(&mut self, segment: SegmentId, bytes: u64) {
        *self.known.entry(segment).or_default() += bytes as f64;
    }

    /// A compaction has dropped so many bytes of a segment.
    pub(super) fn dropped(&mut self, segment: SegmentId, bytes: u64) {
        *self.known.entry(segment).or_default() -= bytes as f64;
    }

    /// Bytes of a segment that are known to be hidden.
    pub(super) fn of(&self, segment: SegmentId) -> f64 {
        self.known.get(&segment).copied().unwrap_or(0.0)
    }

    /// Of `held` bytes of a segment that indexes' files point to, those that are live.
    pub(super) fn live(&self, segment: SegmentId, held: u64) -> f64 {
        let held = held as f64;
        ((held - self.of(segment)) * (1.0 - self.rest)).clamp(held * 0.02, held)
    }

    /// A round has emptied `victims`, of which so much was known to be hidden when it began, and what was live is in `born` now: what has got out of sight meanwhile has moved along.
    pub(super) fn moved(
        &mut self,
        victims: impl Iterator<Item = SegmentId>,
        before: f64,
        born: &BTreeMap<SegmentId, u64>,
    ) {
        let now: f64 = victims
            .filter_map(|victim| self.known.remove(&victim))
            .sum();
        let bytes: u64 = born.values().sum();
        for (&segment, &part) in born {
            let meanwhile = (now - before).max(0.0);
            let share = part as f64 / bytes.max(1) as f64;
            *self.known.entry(segment).or_default() += meanwhile * share;
        }
    }

    /// A round has found `live` of `held` bytes, of which `before` were known to be hidden; `all` is what all segments have that is live, about.
    pub(super) fn learn(&mut self, held: u64, before: f64, live: u64, all: u64) {
        let believed = (held as f64 - before).max(0.0);
        let evidence = believed + all as f64 * KNOWN_PART;
        if evidence < 1.0 {
            return;
        }
        let expected = believed * (1.0 - self.rest);
        self.rest += (expected - live as f64) / evidence;
        self.rest = self.rest.clamp(*REST.start(), *REST.end());
    }

    /// Forgets the segments that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(SegmentId) -> bool) {
        self.known.retain(|id, _| is_there(*id));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const A: SegmentId = SegmentId(1);
    const B: SegmentId = SegmentId(2);

    #[test]
    fn what_a_flush_hides_counts_where_it_lies_until_it_is_dropped() {
        let mut hidden = Hidden::default();
        hidden.add(A, 300);
        assert!((hidden.live(A, 1000) - 700.0).abs() < 1e-9);
        assert!((hidden.live(B, 1000) - 1000.0).abs() < 1e-9);
        hidden.dropped(A, 300);
        assert!((hidden.live(A, 700) - 700.0).abs() < 1e-9);
    }

    #[test]
    fn what_gets_out_of_sight_while_it_is_moved_is_not_forgotten() {
        let mut hidden = Hidden::default();
        hidden.add(A, 300);
        let before = hidden.of(A);
        hidden.add(A, 50);
        hidden.moved([A].into_iter(), before, &BTreeMap::from([(B, 700)]));
        assert!((hidden.live(B, 700) - 650.0).abs() < 1e-9);
        assert!(hidden.of(A).abs() < 1e-9);
    }

    /// The first victims are those of which samples said too much. Believed of all others, their surplus made room for a quarter more data than was to be, and then writers stood.
    #[test]
    fn that_a_round_finds_more_than_was_believed_says_little_about_other_segments() {
        let mut hidden = Hidden::default();
        hidden.add(A, 300);
        hidden.learn(1000, 500.0, 600, 20_000);
        assert!((hidden.live(A, 1000) - 700.0).abs() < 10.0);
        // Where it goes on it is learnt.
        for _ in 0..100 {
            hidden.learn(1000, 500.0, 600, 20_000);
        }
        assert!(hidden.live(A, 1000) > 830.0);
    }

    /// Nor that a victim was as good as empty: of the little that was believed to be live in it, all was hidden. Believed of all others, 15 MB of 311 were live, and writers stood for ten rounds.
    #[test]
    fn that_a_victim_was_empty_says_little_about_other_segments() {
        let mut hidden = Hidden::default();
        hidden.learn(1000, 950.0, 1, 20_000);
        assert!(hidden.live(A, 1000) > 990.0);
        hidden.learn(1000, 700.0, 100, 20_000);
        assert!(hidden.live(A, 1000) > 970.0);
    }

    #[test]
    fn what_nobody_told_is_learnt_from_rounds_and_unlearnt() {
        let mut hidden = Hidden::default();
        for _ in 0..100 {
            hidden.learn(1000, 0.0, 400, 20_000);
        }
        assert!((hidden.live(A, 1000) - 400.0).abs() < 1.0);
        for _ in 0..200 {
            hidden.learn(1000, 100.0, 900, 20_000);
        }
        assert!(hidden.live(A, 1000) > 990.0);
        // A round over all there is says all.
        let mut small = Hidden::default();
        (0..4).for_each(|_| small.learn(1000, 0.0, 400, 400));
        assert!((small.live(A, 1000) - 400.0).abs() < 10.0);
    }
}
