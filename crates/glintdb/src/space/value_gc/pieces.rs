//! What is divisible in a round: units of work, each done in steps of a millisecond or two, by the round's own thread and by whoever else has time.
//!
//! A step takes its unit off the list and puts it back, so two threads never have the same one; units begun go first, and are finished in any order, but handed out in the order in which they were
//! given: what a round writes does not depend on who did what. Whoever helps does so as a job of the queue ([`Invitation`]): a background thread that has nothing more urgent, or a thread that waits and
//! takes short steps meanwhile (`help`). It leaves after each step, and nothing is lost where nobody comes: the round's own thread takes what is there, and waits only for what others are in just then.
//!
//! Thread safety: any thread. No lock is held while a step runs. Invariant: [`Pieces::end`] hands out a unit only when it is over, and all of them or none.

use crate::Result;
use crate::background::help::STEP_ENTRIES;
use crate::background::queue::{Host, Job, Progress};
use crate::engine::Engine;
use glintdb_core::index::JobPriority;
use glintdb_core::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Work on data of its own, in bounded steps. What comes of it, errors too, it keeps.
pub(super) trait Unit<H = Engine>: Send {
    /// Does a piece; whether it was the last one.
    fn step(&mut self, host: &H) -> bool;
}

/// See the module's page.
pub(crate) struct Pieces<U> {
    state: Mutex<State<U>>,
    /// Signalled when somebody leaves.
    left: Condvar,
}

struct State<U> {
    /// With their places.
    waiting: VecDeque<(usize, U)>,
    over: Vec<(usize, U)>,
    /// Units that somebody is in.
    taken: usize,
    given_up: bool,
    /// Somebody panicked in a unit.
    lost: bool,
}

/// In a unit; dropped by a panic alone.
struct Inside<'a, U>(&'a Pieces<U>);

impl<U> Drop for Inside<'_, U> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.taken -= 1;
        state.lost = true;
        drop(state);
        self.0.left.notify_all();
    }
}

/// Whether a round goes on without whoever is in a unit.
fn is_left_behind() -> bool {
    glintdb_core::seeded::bug("glintdb: a piece of a round that a helper took is not waited for")
}

impl<U> Pieces<U> {
    pub(super) fn new(units: impl IntoIterator<Item = U>) -> Arc<Pieces<U>> {
        Arc::new(Pieces {
            state: Mutex::new(State {
                waiting: units.into_iter().enumerate().collect(),
                over: Vec::new(),
                taken: 0,
                given_up: false,
                lost: false,
            }),
            left: Condvar::new(),
        })
    }

    /// Units that nobody is in.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Does a step of one unit; `false`: there is none that nobody is in.
    pub(super) fn take<H>(&self, host: &H) -> bool
    where
        U: Unit<H>,
    {
        let mut state = self.state.lock();
        let Some((at, mut unit)) = state.waiting.pop_front() else {
            return false;
        };
        state.taken += 1;
        let joins = state.taken > 1;
        drop(state);
        if is_left_behind() {
            // That shows where others come in time, and take long.
            std::thread::sleep(std::time::Duration::from_millis(if joins { 5 } else { 1 }));
        }
        let inside = Inside(self);
        let over = unit.step(host);
        std::mem::forget(inside);
        let mut state = self.state.lock();
        state.taken -= 1;
        let unwanted = match (state.given_up, over) {
            (true, _) => Some(unit),
            (false, true) => {
                state.over.push((at, unit));
                None
            }
            (false, false) => {
                state.waiting.push_front((at, unit));
                None
            }
        };
        drop(state);
        drop(unwanted);
        self.left.notify_all();
        true
    }

    /// Waits for whoever is in a unit. All of them, in order; `None`: there is something to take again.
    pub(super) fn end(&self) -> Option<Vec<U>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && state.taken > 0 && !is_left_behind() {
            self.left.wait(&mut state);
        }
        assert!(!state.lost, "whoever was in a piece of a round panicked");
        if !state.waiting.is_empty() {
            return None;
        }
        let mut over = std::mem::take(&mut state.over);
        drop(state);
        over.sort_unstable_by_key(|(at, _)| *at);
        Some(over.into_iter().map(|(_, unit)| unit).collect())
    }

    /// Lets nobody begin anything; who is in a unit leaves nothing.
    pub(super) fn discard(&self) {
        let mut state = self.state.lock();
        state.given_up = true;
        let waiting = std::mem::take(&mut state.waiting);
        let over = std::mem::take(&mut state.over);
        drop(state);
        drop((waiting, over));
    }

    /// Lets nobody begin anything, and waits for whoever is in a unit: then nothing is left of them.
    pub(super) fn give_up(&self) {
        self.discard();
        let mut state = self.state.lock();
        while state.taken > 0 {
            self.left.wait(&mut state);
        }
    }
}

/// A job by which others come to the pieces of a round. It ends when it finds none.
pub(super) struct Invitation<U>(pub(super) Arc<Pieces<U>>);

impl<H: Host, U: Unit<H>> Job<H> for Invitation<U> {
    fn step(&mut self, host: &H) -> Result<Progress> {
        Ok(match self.0.take(host) {
            true => Progress::More,
            false => Progress::Done,
        })
    }

    fn is_divisible(&self, budget: u32) -> bool {
        // Who waits for a sync asks for less.
        budget >= STEP_ENTRIES
    }

    fn name(&self) -> String {
        "value GC, a piece".to_owned()
    }

    /// Level 0 goes first: where it is not compacted, writers wait too.
    fn priority(&self) -> JobPriority {
        JobPriority::Gc
    }

    fn abandon(self: Box<Self>, _host: &H, _error: Option<&crate::Error>) {}
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Panics;

    impl Unit<()> for Panics {
        fn step(&mut self, (): &()) -> bool {
            panic!("in a unit");
        }
    }

    /// The round waited for ever for a helper that would not come back.
    #[test]
    fn a_unit_in_which_somebody_panicked_is_not_waited_for() {
        let pieces = Pieces::new([Panics]);
        let caught = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
        assert!(caught(&|| _ = pieces.take(&())));
        assert!(caught(&|| drop(pieces.end())), "it does not count as done");
        pieces.give_up();
    }
}
