//! What writers began and what was acknowledged to them, and which states may be found afterwards.
//!
//! Commit *n* of writer *w* is [`work::commit`]: the state of the writer's keys after *n* commits is known. What was found is the state after *f(w)* commits of each writer, and
//!
//! 1. *f(w)* is at most what *w* began, and at least what `Sync` acknowledgements in front of the cut promise: the commit itself, and all that was acknowledged, at whatever
//!    level, before it began, for the log is one and has no hole;
//! 2. if commit *f(w)* of *w* is there, everything that was acknowledged to anyone before it began is there too.
//!
//! Thread-safe.

use crate::kill::WRITERS;
use crate::kill::work::{self, Records};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A number of commits for each writer.
pub type Counts = [u64; WRITERS as usize];

/// A promise that is kept behind a place of the disk's tape.
#[derive(Clone, Copy, Debug)]
struct Promise {
    position: usize,
    counts: Counts,
}

#[derive(Default)]
struct Inner {
    begun: Counts,
    acknowledged: Counts,
    /// What was acknowledged when a writer's commit began, in order of its commits behind `base`.
    seen: [Vec<Counts>; WRITERS as usize],
    promises: Vec<Promise>,
}

/// The history of one database.
pub struct History {
    seed: u64,
    /// Commits that were there at the start.
    base: Counts,
    records: [Records; WRITERS as usize],
    inner: Mutex<Inner>,
}

/// The states that a history allows, for many comparisons.
pub struct Allowed<'a> {
    history: &'a History,
    /// Fingerprints after `base`, `base + 1` … commits of each writer.
    states: [Vec<u64>; WRITERS as usize],
    seen: [Vec<Counts>; WRITERS as usize],
    promises: Vec<Promise>,
}

impl History {
    /// Of an empty database.
    #[must_use]
    pub fn new(seed: u64) -> History {
        History {
            seed,
            base: Counts::default(),
            records: Default::default(),
            inner: Mutex::default(),
        }
    }

    /// The writers' next numbers are behind these.
    #[must_use]
    pub fn begun(&self) -> Counts {
        self.inner.lock().begun
    }

    /// What was acknowledged, at whatever level.
    #[must_use]
    pub fn acknowledged(&self) -> Counts {
        self.inner.lock().acknowledged
    }

    /// A writer begins its next commit.
    pub fn begin(&self, writer: u32, number: u64) {
        let mut inner = self.inner.lock();
        let writer = writer as usize;
        // A commit that changed nothing (`NoSpace`) is begun again.
        if number == inner.begun[writer] + 1 {
            inner.begun[writer] = number;
            let seen = inner.acknowledged;
            inner.seen[writer].push(seen);
        }
    }

    /// The commit was acknowledged; `position` is the disk's after that.
    pub fn acknowledge(&self, writer: u32, number: u64, sync: bool, position: usize) {
        let mut inner = self.inner.lock();
        let writer = writer as usize;
        inner.acknowledged[writer] = number;
        if sync {
            let index = (number - self.base[writer] - 1) as usize;
            let mut counts = inner.seen[writer][index];
            counts[writer] = number;
            inner.promises.push(Promise { position, counts });
        }
    }

    /// Everything that was acknowledged when `counts` was taken is on the medium.
    pub fn promise(&self, counts: Counts, position: usize) {
        let mut inner = self.inner.lock();
        inner.promises.push(Promise { position, counts });
    }

    /// What may be found. For a history that has ended.
    #[must_use]
    pub fn allowed(&self) -> Allowed<'_> {
        let inner = self.inner.lock();
        let states = std::array::from_fn(|writer| {
            let mut records = self.records[writer].clone();
            let mut states = vec![records.fingerprint()];
            for number in self.base[writer] + 1..=inner.begun[writer] {
                records.apply(&work::commit(self.seed, writer as u32, number));
                states.push(records.fingerprint());
            }
            states
        });
        Allowed {
            history: self,
            states,
            seen: inner.seen.clone(),
            promises: inner.promises.clone(),
        }
    }

    /// A history that goes on from what was found.
    #[must_use]
    pub fn going_on(&self, found: Counts) -> History {
        let records = std::array::from_fn(|writer| self.after(writer, found[writer]));
        History {
            seed: self.seed,
            base: found,
            records,
            inner: Mutex::new(Inner {
                begun: found,
                acknowledged: found,
                ..Inner::default()
            }),
        }
    }

    fn after(&self, writer: usize, number: u64) -> Records {
        let mut records = self.records[writer].clone();
        for number in self.base[writer] + 1..=number {
            records.apply(&work::commit(self.seed, writer as u32, number));
        }
        records
    }
}

impl Allowed<'_> {
    /// What the promises in front of `position` add up to.
    #[must_use]
    pub fn promised(&self, position: usize) -> Counts {
        let mut counts = self.history.base;
        let kept = |promise: &&Promise| promise.position <= position;
        for promise in self.promises.iter().filter(kept) {
            for (count, promised) in counts.iter_mut().zip(promise.counts) {
                *count = promised.max(*count);
            }
        }
        counts
    }

    /// Compares what was found with what may be; gives how many commits of each writer are there.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(
        &self,
        found: &BTreeMap<u32, Records>,
        promised: Counts,
    ) -> Result<Counts, String> {
        let nothing = Records::default();
        // Where a commit changed nothing, two numbers stand for one state.
        let mut least = Counts::default();
        let mut most = Counts::default();
        for writer in 0..WRITERS as usize {
            let records = found.get(&(writer as u32)).unwrap_or(&nothing);
            let base = self.history.base[writer];
            let states = || self.states[writer].iter().zip(base..);
            let mut numbers = states()
                .filter(|(state, _)| **state == records.fingerprint())
                .map(|(_, number)| number);
            let Some(first) = numbers.next() else {
                let wanted = self.history.after(writer, promised[writer]);
                let difference = wanted.difference(records).unwrap_or_default();
                return Err(format!(
                    "writer {writer}: the records are not those after any number of its {} commits; against {}, which were promised: {difference}",
                    self.states[writer].len() - 1,
                    promised[writer]
                ));
            };
            let last = numbers.last().unwrap_or(first);
            if last < promised[writer] {
                let wanted = self.history.after(writer, promised[writer]);
                let difference = wanted.difference(records).unwrap_or_default();
                return Err(format!(
                    "writer {writer}: {} commits were promised, {last} are there: {difference}",
                    promised[writer]
                ));
            }
            (least[writer], most[writer]) = (first.max(promised[writer]), last);
        }
        for writer in 0..WRITERS as usize {
            let base = self.history.base[writer];
            if least[writer] <= base {
                continue;
            }
            let seen = &self.seen[writer][(least[writer] - base - 1) as usize];
            for (other, (seen, there)) in seen.iter().zip(most).enumerate() {
                if *seen > there {
                    return Err(format!(
                        "a hole: commit {} of writer {writer} is there; when it began, {seen} commits of writer {other} had been acknowledged, of which {there} are there (least {least:?}, most {most:?}, promised {promised:?})",
                        least[writer]
                    ));
                }
            }
        }
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found after these numbers of commits.
    fn found(counts: Counts) -> BTreeMap<u32, Records> {
        let history = History::new(5);
        let after = |writer: u32| history.after(writer as usize, counts[writer as usize]);
        (0..WRITERS).map(|writer| (writer, after(writer))).collect()
    }

    #[test]
    fn lost_commits_and_holes_are_seen() {
        let history = History::new(5);
        for number in 1..=20 {
            for writer in 0..2 {
                history.begin(writer, number);
                history.acknowledge(writer, number, writer == 0 && number == 10, number as usize);
            }
        }
        let allowed = history.allowed();
        assert_eq!(allowed.promised(9), [0; 4]);
        let promised = allowed.promised(10);
        assert_eq!(promised, [10, 9, 0, 0]);
        let check = |counts, promised| allowed.check(&found(counts), promised);
        assert!(check([10, 9, 0, 0], promised).is_ok());
        assert!(check([20, 20, 0, 0], promised).is_ok());
        assert!(
            check([9, 9, 0, 0], promised)
                .unwrap_err()
                .contains("promised")
        );
        assert!(
            check([20, 15, 0, 0], promised)
                .unwrap_err()
                .contains("hole")
        );
        assert!(
            check([15, 14, 1, 0], promised).is_err(),
            "nobody began that"
        );
        assert!(check([0, 0, 0, 0], [0; 4]).is_ok());
        let next = history.going_on([20, 20, 0, 0]);
        next.begin(1, 21);
        let allowed = next.allowed();
        assert!(
            allowed
                .check(&found([20, 20, 0, 0]), allowed.promised(0))
                .is_ok()
        );
        assert!(
            allowed
                .check(&found([20, 21, 0, 0]), allowed.promised(0))
                .is_ok()
        );
        assert!(
            allowed
                .check(&found([20, 19, 0, 0]), allowed.promised(0))
                .is_err()
        );
    }
}
