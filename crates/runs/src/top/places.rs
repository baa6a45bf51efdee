//! Numbers of runs, and the places that are reserved beneath runs to come.
//!
//! Plain values: the index keeps them under the lock under which it installs its views.
//!
//! Invariants:
//! 1. Every number is given out once, and is greater than all numbers before it.
//! 2. A place is pending from its reservation until [`free`](Places::free). While it is, no run
//!    above the lowest pending place may be taken from the top of the index.

use std::collections::BTreeSet;

/// The numbers of runs of one index. A greater number is a newer run.
pub struct Places {
    next: u64,
    pending: BTreeSet<u64>,
}

impl Places {
    /// Numbers above `newest`, the greatest number of a run that exists (0: there is none).
    pub fn above(newest: u64) -> Places {
        Places {
            next: newest + 1,
            pending: BTreeSet::new(),
        }
    }

    /// The number of a new run.
    pub fn next_run(&mut self) -> u64 {
        let run = self.next;
        self.next += 1;
        run
    }

    /// The greatest number that was given out.
    pub fn newest(&self) -> u64 {
        self.next - 1
    }

    /// Reserves a place beneath all runs that get their number from now on. Returns the number of
    /// the run that may come there.
    pub fn reserve(&mut self) -> u64 {
        let run = self.next_run();
        self.pending.insert(run);
        run
    }

    /// Frees a place, if this is the number of one: its run is visible, or will never come.
    ///
    /// # Panics
    /// If the number was never given out.
    pub fn free(&mut self, run: u64) {
        // Nothing becomes visible under a number that a later run may still get.
        assert!(run < self.next, "run {run} is freed, {} is next", self.next);
        self.pending.remove(&run);
    }

    /// The lowest pending place. Runs with its number and above must stay where they are.
    pub fn lowest(&self) -> Option<u64> {
        self.pending.first().copied()
    }

    /// Whether a place is pending.
    pub fn any_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_the_oldest_pending_place_counts() {
        let mut places = Places::above(7);
        assert_eq!((places.next_run(), places.lowest()), (8, None));
        let (first, second) = (places.reserve(), places.reserve());
        assert_eq!((first, second, places.next_run()), (9, 10, 11));
        assert_eq!(places.lowest(), Some(first));
        // A run that is no place frees nothing.
        places.free(8);
        places.free(first);
        assert_eq!(places.lowest(), Some(second));
        places.free(second);
        assert!(!places.any_pending());
    }

    #[test]
    #[should_panic(expected = "run 3 is freed, 3 is next")]
    fn a_number_that_was_not_given_out_cannot_be_freed() {
        Places::above(2).free(3);
    }
}
