//! Virtual time: a run of threads of which one runs at a time, with a clock that moves when all of
//! them wait.
//!
//! Threads are threads of the operating system. A thread gives the run to another one when it waits
//! for a lock or a condition, sleeps, yields, ends or is charged for work. The run goes to the
//! thread that is ready at the earliest time; of several, to the one that became ready first. So a
//! run has one order, which depends on nothing but the program: [`Run::trace_hash`] is equal in all
//! processes.
//!
//! A thread belongs to a run if it called [`Run::enter`] or if a thread of the run has started it.
//! For other threads, locks and threads are `parking_lot`'s and `std`'s. Threads of a run share
//! locks with each other only.
//!
//! Work of processors takes no time by itself. It is charged by constants ([`Costs`]).
//!
//! Thread safety: the state of a run has a lock, which is held for moments only.
//!
//! Invariants:
//! 1. Of the threads of a run, the one that `State::running` names runs, and all others are parked.
//! 2. A thread is in `ready` at most once, at `State::threads[it].wakes_at`.
//! 3. The time never goes back, and moves only when no thread is ready at it.

pub mod locks;
mod tests;
pub mod thread;

use super::Work;
use crate::clock::Clock;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds since the start of a run.
pub type Ns = u64;

/// Number of yields in a row after which time moves. A thread that yields until a sleeping one has
/// done something would else never see it.
const YIELDS_MAX: u32 = 1000;
/// Time that it moves by.
const YIELD_NS: Ns = 1000;
/// Wall time at the start of a run: 2026-01-01.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// What work costs in nanoseconds of a processor, and how many processors there are.
///
/// The defaults are rounded figures of the engine in memory on one core (docs/figures.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A put or deletion.
    pub put_ns: Ns,
    /// A get.
    pub get_ns: Ns,
    /// An entry that a flush or compaction writes.
    pub merge_ns: Ns,
    /// A read of the volume.
    pub read_ns: Ns,
    /// A KiB that is copied with its checksum.
    pub kib_ns: Ns,
    /// Number of processors: so many threads can be charged at once.
    pub processors: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            put_ns: 1500,
            get_ns: 1000,
            merge_ns: 100,
            read_ns: 3000,
            kib_ns: 200,
            processors: 8,
        }
    }
}

impl Costs {
    const fn of(&self, work: Work, count: u64) -> Ns {
        match work {
            Work::Put => self.put_ns * count,
            Work::Get => self.get_ns * count,
            Work::Merge => self.merge_ns * count,
            Work::Read => self.read_ns * count,
            Work::Bytes => self.kib_ns * count / 1024,
        }
    }
}

/// Number of a thread in a run.
type ThreadNumber = usize;
/// Time at which a thread is ready, and a number that orders threads of one time.
type Turn = (Ns, u64);

#[derive(Default)]
struct Parker {
    may_run: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn park(&self) {
        let mut may_run = self.may_run.lock();
        while !*may_run {
            self.changed.wait(&mut may_run);
        }
        *may_run = false;
    }

    fn unpark(&self) {
        *self.may_run.lock() = true;
        self.changed.notify_one();
    }
}

struct Thread {
    parker: Arc<Parker>,
    name: String,
    /// Its place in `ready`; `None` while it runs or waits without a limit, or has ended.
    wakes_at: Option<Turn>,
    /// What it waits for, for the message about a run that stands still.
    waits_for: &'static str,
}

struct State {
    threads: Vec<Thread>,
    ready: BTreeMap<Turn, ThreadNumber>,
    running: ThreadNumber,
    /// Number of the next turn.
    next_turn: u64,
    /// Time at which each processor is free.
    processors: Vec<Ns>,
    trace: u64,
    switches: u64,
    /// Yields since a thread waited or slept.
    yields: u32,
}

struct Shared {
    now: AtomicU64,
    costs: Costs,
    state: Mutex<State>,
}

/// A run in virtual time.
///
/// ```
/// use glintdb_core::clock::Clock;
/// use glintdb_core::sync::{thread, virtual_time::{Costs, Run}};
/// use std::time::Duration;
///
/// let run = Run::new(Costs::default());
/// let clock = run.clock();
/// run.enter(|| {
///     let of_thread = clock.clone();
///     let other = thread::spawn(move || of_thread.sleep(Duration::from_secs(3600)));
///     clock.sleep(Duration::from_secs(60));
///     other.join().unwrap();
/// });
/// assert_eq!(clock.monotonic(), Duration::from_secs(3600));
/// ```
#[derive(Clone)]
pub struct Run(Arc<Shared>);

/// A thread of a run.
#[derive(Clone)]
struct Current {
    run: Run,
    number: ThreadNumber,
    parker: Arc<Parker>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The run of this thread, if it has one.
fn current() -> Option<Current> {
    // A thread that ends may have lost its locals.
    CURRENT.try_with(|current| current.borrow().clone()).ok()?
}

/// The number of this thread in its run, if it has one.
pub(super) fn thread_number() -> Option<usize> {
    let number = |current: &RefCell<Option<Current>>| current.borrow().as_ref().map(|it| it.number);
    CURRENT.try_with(number).ok()?
}

/// Charges the thread for work; see [`super::charge`].
pub(super) fn charge(work: Work, count: u64) {
    if let Some(current) = current() {
        let ns = current.run.0.costs.of(work, count);
        current.work(ns);
    }
}

/// A mixture of the trace so far and two numbers (the finalizer of SplitMix64).
const fn mixed(trace: u64, number: u64, at: Ns) -> u64 {
    let mut hash = (trace ^ at).wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl State {
    /// Has a thread be ready at `at`, or earlier than it would have been.
    fn make_ready(&mut self, thread: ThreadNumber, at: Ns) {
        if let Some(turn) = self.threads[thread].wakes_at.take() {
            self.ready.remove(&turn);
        }
        let turn = (at, self.next_turn);
        self.next_turn += 1;
        self.threads[thread].wakes_at = Some(turn);
        self.ready.insert(turn, thread);
    }

    fn add_thread(&mut self, name: String, parker: Arc<Parker>) -> ThreadNumber {
        self.threads.push(Thread {
            parker,
            name,
            wakes_at: None,
            waits_for: "its start",
        });
        self.threads.len() - 1
    }
}

impl Run {
    /// A run without threads, at time zero.
    ///
    /// # Panics
    /// If there are no processors.
    #[must_use]
    pub fn new(costs: Costs) -> Run {
        assert!(costs.processors > 0, "a run needs a processor");
        let state = State {
            threads: Vec::new(),
            ready: BTreeMap::new(),
            running: 0,
            next_turn: 0,
            processors: vec![0; costs.processors],
            trace: 0,
            switches: 0,
            yields: 0,
        };
        Run(Arc::new(Shared {
            now: AtomicU64::new(0),
            costs,
            state: Mutex::new(state),
        }))
    }

    /// Calls `main` as the first thread of the run. All threads that it starts should have ended
    /// when it returns: those that have not stand still from then on.
    ///
    /// # Panics
    /// If the run was entered before, or this thread belongs to a run.
    pub fn enter<T>(&self, main: impl FnOnce() -> T) -> T {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.with(|current| current.borrow_mut().take());
            }
        }
        let parker = Arc::<Parker>::default();
        let number = {
            let mut state = self.0.state.lock();
            assert!(state.threads.is_empty(), "a run is entered once");
            state.add_thread("main".into(), Arc::clone(&parker))
        };
        let entered = Current {
            run: self.clone(),
            number,
            parker,
        };
        let before = CURRENT.with(|current| current.borrow_mut().replace(entered));
        assert!(before.is_none(), "this thread belongs to a run");
        let _leave = Leave;
        main()
    }

    /// Time since the start of the run.
    #[must_use]
    pub fn now(&self) -> Ns {
        self.0.now.load(Ordering::Relaxed)
    }

    /// A clock that shows the time of the run. Only threads of the run may sleep by it.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    /// A hash of which threads ran in which order at which times.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.0.state.lock().trace
    }

    /// Number of times that the run went to another thread, or that its time moved.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.0.state.lock().switches
    }
}

impl Clock for Run {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now())
    }

    fn wall(&self) -> Duration {
        EPOCH + self.monotonic()
    }

    fn sleep(&self, time: Duration) {
        let Some(current) = current() else {
            unreachable!("a thread outside of the run cannot sleep in its time");
        };
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        current.sleep_until(self.now().saturating_add(ns));
    }
}

impl Current {
    /// Gives the run away until `at`.
    fn sleep_until(&self, at: Ns) {
        let mut state = self.run.0.state.lock();
        state.yields = 0;
        state.make_ready(self.number, at);
        self.switch(state, "time");
    }

    /// Gives the run away until another thread calls [`wake`](Self::wake), at most until `limit`.
    fn wait(&self, limit: Option<Ns>, waits_for: &'static str) {
        let mut state = self.run.0.state.lock();
        state.yields = 0;
        if let Some(at) = limit {
            state.make_ready(self.number, at);
        }
        self.switch(state, waits_for);
    }

    /// Has this thread be ready now, if it waits.
    fn wake(&self) {
        let mut state = self.run.0.state.lock();
        let now = self.run.now();
        state.make_ready(self.number, now);
    }

    /// Lets the other threads run that are ready now.
    fn yield_now(&self) {
        let mut state = self.run.0.state.lock();
        let now = self.run.now();
        let is_alone = (state.ready.first_key_value()).is_none_or(|(turn, _)| turn.0 > now);
        state.yields += 1;
        if state.yields == YIELDS_MAX {
            state.yields = 0;
            state.make_ready(self.number, now + YIELD_NS);
        } else if is_alone {
            return;
        } else {
            state.make_ready(self.number, now);
        }
        self.switch(state, "its turn");
    }

    /// Holds a processor for this time, as soon as one is free.
    fn work(&self, ns: Ns) {
        if ns == 0 {
            return;
        }
        let until = {
            let mut state = self.run.0.state.lock();
            let now = self.run.now();
            let Some(free) = state.processors.iter_mut().min() else {
                return;
            };
            *free = now.max(*free) + ns;
            *free
        };
        self.sleep_until(until);
    }

    /// Gives the run to the next thread, and parks until it comes back.
    fn switch(&self, mut state: parking_lot::MutexGuard<'_, State>, waits_for: &'static str) {
        state.threads[self.number].waits_for = waits_for;
        if self.run.give_away(&mut state) == self.number {
            return;
        }
        let next = Arc::clone(&state.threads[state.running].parker);
        drop(state);
        next.unpark();
        self.parker.park();
    }

    /// Gives the run away for good.
    fn end(&self) {
        let mut state = self.run.0.state.lock();
        state.threads[self.number].waits_for = "nothing: it has ended";
        self.run.give_away(&mut state);
        let next = Arc::clone(&state.threads[state.running].parker);
        drop(state);
        next.unpark();
    }
}

impl Run {
    /// Takes the thread whose turn is next, and moves the time to it.
    fn give_away(&self, state: &mut State) -> ThreadNumber {
        let Some(((at, _), next)) = state.ready.pop_first() else {
            stands_still(state);
        };
        let now = at.max(self.now());
        self.0.now.store(now, Ordering::Relaxed);
        state.threads[next].wakes_at = None;
        state.running = next;
        state.switches += 1;
        state.trace = mixed(state.trace, next as u64, now);
        next
    }
}

/// Ends the process: all threads wait for each other, and the test or command would hang.
#[expect(clippy::print_stderr, reason = "the process ends here")]
fn stands_still(state: &State) -> ! {
    eprintln!("virtual time: all threads wait for each other:");
    for thread in &state.threads {
        eprintln!("  {} waits for {}", thread.name, thread.waits_for);
    }
    std::process::abort();
}
