//! The times at which a bus or link is in use.
//!
//! Not thread-safe: belongs to a device.

use std::collections::VecDeque;

/// Nanoseconds since the beginning of a run.
pub type Ns = u64;

/// Reservations of something that serves one transfer at a time.
#[derive(Default)]
pub(super) struct Timeline {
    /// Disjoint, in order. Neighbours that touch are one.
    busy: VecDeque<(Ns, Ns)>,
}

impl Timeline {
    /// Reserves the first `length` free nanoseconds from `from` on, and returns when they end. A
    /// transfer that is ready early may take a gap before one that was reserved for later.
    pub(super) fn reserve(&mut self, from: Ns, length: Ns) -> Ns {
        if length == 0 {
            return from;
        }
        let (at, start) = self.find(from, length);
        let end = start + length;
        let joins_before = at > 0 && self.busy[at - 1].1 == start;
        let joins_behind = self.busy.get(at).is_some_and(|next| next.0 == end);
        match (joins_before, joins_behind) {
            (true, true) => {
                self.busy[at - 1].1 = self.busy[at].1;
                self.busy.remove(at);
            }
            (true, false) => self.busy[at - 1].1 = end,
            (false, true) => self.busy[at].0 = start,
            (false, false) => self.busy.insert(at, (start, end)),
        }
        end
    }

    /// When a reservation would end, without making it.
    pub(super) fn peek(&self, from: Ns, length: Ns) -> Ns {
        self.find(from, length).1 + length
    }

    /// The first gap of `length` from `from` on: before which reservation, and when it begins.
    fn find(&self, from: Ns, length: Ns) -> (usize, Ns) {
        let mut start = from;
        let mut at = self.busy.partition_point(|(_, end)| *end <= from);
        while let Some((busy_from, busy_until)) = self.busy.get(at) {
            if start + length <= *busy_from {
                break;
            }
            start = start.max(*busy_until);
            at += 1;
        }
        (at, start)
    }

    /// Forgets what ended before `now`. Nothing is reserved before it any more.
    pub(super) fn forget_before(&mut self, now: Ns) {
        while self.busy.front().is_some_and(|(_, end)| *end <= now) {
            self.busy.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timeline;

    #[test]
    fn transfers_take_the_first_gap_that_is_long_enough() {
        let mut bus = Timeline::default();
        assert_eq!(bus.reserve(100, 50), 150);
        assert_eq!(bus.reserve(110, 50), 200);
        assert_eq!(bus.reserve(300, 10), 310);
        // Before the first one, between the others, behind them all.
        assert_eq!(bus.reserve(20, 80), 100);
        assert_eq!(bus.reserve(30, 100), 300);
        assert_eq!(bus.reserve(30, 1), 311);
        assert_eq!(bus.reserve(0, 30), 341);
        assert_eq!(bus.reserve(0, 20), 20);
        assert_eq!(bus.busy.len(), 1);
        bus.forget_before(341);
        assert!(bus.busy.is_empty());
        assert_eq!(bus.reserve(500, 0), 500);
    }
}
