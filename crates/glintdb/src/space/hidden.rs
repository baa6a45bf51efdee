//! An estimate, for each segment, of the values that index files point to although they are
//! shadowed or hidden.
//!
//! Flushes add the bytes that they overwrite, by a sample of their keys. Compactions subtract the
//! bytes that they drop. A round of value GC finds how many more bytes are hidden (by range
//! tombstones, or because samples miss them), and that share is assumed for all segments.
//!
//! Thread safety: a plain value.

use glintdb_core::SegmentId;
use std::collections::BTreeMap;

/// Weight of a round's result = bytes believed live in its victims / (those + this part of all live
/// bytes). Victims are the segments with the most hidden bytes by the samples, so they say little
/// about others.
const KNOWN_PART: f64 = 0.5;
/// Limits of the unknown hidden share. It is negative if flushes hid less than their samples said.
const REST: std::ops::RangeInclusive<f64> = -0.5..=0.95;

/// The estimate of hidden bytes.
#[derive(Default)]
pub(super) struct Hidden {
    /// Bytes known to be hidden in each segment, with the errors of samples. They may be negative
    /// for one segment, so that their sum is right.
    known: BTreeMap<SegmentId, f64>,
    /// Share of the other bytes that is hidden too.
    rest: f64,
}

impl Hidden {
    /// Adds bytes of a segment that were overwritten.
    pub(super) fn add(&mut self, segment: SegmentId, bytes: u64) {
        *self.known.entry(segment).or_default() += bytes as f64;
    }

    /// Subtracts bytes of a segment that a compaction has dropped.
    pub(super) fn dropped(&mut self, segment: SegmentId, bytes: u64) {
        *self.known.entry(segment).or_default() -= bytes as f64;
    }

    /// Returns the bytes of a segment that are known to be hidden.
    pub(super) fn of(&self, segment: SegmentId) -> f64 {
        self.known.get(&segment).copied().unwrap_or(0.0)
    }

    /// Estimates how many of the `held` bytes of a segment, to which index files point, are live.
    pub(super) fn live(&self, segment: SegmentId, held: u64) -> f64 {
        let held = held as f64;
        ((held - self.of(segment)) * (1.0 - self.rest)).clamp(held * 0.02, held)
    }

    /// Notes that a round has emptied `victims` and moved their live bytes to the segments `born`.
    /// `before` is the hidden bytes of the victims when it began. Bytes that were hidden since then
    /// have moved along.
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

    /// Learns from a round that found `live` of `held` bytes, of which `before` were known to be
    /// hidden. `all` is about the live bytes of all segments.
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
    fn hidden_bytes_count_for_their_segment_until_they_are_dropped() {
        let mut hidden = Hidden::default();
        hidden.add(A, 300);
        assert!((hidden.live(A, 1000) - 700.0).abs() < 1e-9);
        assert!((hidden.live(B, 1000) - 1000.0).abs() < 1e-9);
        hidden.dropped(A, 300);
        assert!((hidden.live(A, 700) - 700.0).abs() < 1e-9);
    }

    #[test]
    fn bytes_that_are_hidden_while_they_move_stay_hidden() {
        let mut hidden = Hidden::default();
        hidden.add(A, 300);
        let before = hidden.of(A);
        hidden.add(A, 50);
        hidden.moved([A].into_iter(), before, &BTreeMap::from([(B, 700)]));
        assert!((hidden.live(B, 700) - 650.0).abs() < 1e-9);
        assert!(hidden.of(A).abs() < 1e-9);
    }

    /// A round that finds more live bytes than samples said changes the estimate of other segments
    /// only a little, because the first victims are those with the largest errors of samples.
    #[test]
    fn a_round_with_more_live_bytes_than_expected_changes_the_estimate_little() {
        let mut hidden = Hidden::default();
        hidden.add(A, 300);
        hidden.learn(1000, 500.0, 600, 20_000);
        assert!((hidden.live(A, 1000) - 700.0).abs() < 10.0);
        // If that goes on, the estimate follows.
        for _ in 0..100 {
            hidden.learn(1000, 500.0, 600, 20_000);
        }
        assert!(hidden.live(A, 1000) > 830.0);
    }

    /// A round whose victim was nearly empty changes the estimate of other segments only a little,
    /// although all of the few bytes that were believed live were hidden.
    #[test]
    fn a_round_with_an_empty_victim_changes_the_estimate_little() {
        let mut hidden = Hidden::default();
        hidden.learn(1000, 950.0, 1, 20_000);
        assert!(hidden.live(A, 1000) > 990.0);
        hidden.learn(1000, 700.0, 100, 20_000);
        assert!(hidden.live(A, 1000) > 970.0);
    }

    #[test]
    fn the_unknown_hidden_share_is_learnt_from_rounds() {
        let mut hidden = Hidden::default();
        for _ in 0..100 {
            hidden.learn(1000, 0.0, 400, 20_000);
        }
        assert!((hidden.live(A, 1000) - 400.0).abs() < 1.0);
        for _ in 0..200 {
            hidden.learn(1000, 100.0, 900, 20_000);
        }
        assert!(hidden.live(A, 1000) > 990.0);
        // A round over all segments decides the estimate.
        let mut small = Hidden::default();
        (0..4).for_each(|_| small.learn(1000, 0.0, 400, 400));
        assert!((small.live(A, 1000) - 400.0).abs() < 10.0);
    }
}
