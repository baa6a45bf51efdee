//! The same names over loom or shuttle: `parking_lot`'s and `arc-swap`'s interfaces, as far as the engine uses them.
//!
//! Thread safety: as the originals, within one execution of a model.
//!
//! What a model cannot show, because of this file: whether `arc-swap` keeps its promises (`swap`, `locked`), and that a wait with a time limit ends by itself: loom's
//! never does (so a wake-up that is missing is a deadlock, which loom reports), shuttle's may end at any moment.

#[cfg(loom)]
use loom as model;
#[cfg(shuttle)]
use shuttle as model;

pub use model::{hint, thread, thread_local};
#[cfg(shuttle)]
pub use shuttle::sync::atomic;

#[cfg(loom)]
pub mod atomic;
#[cfg(shuttle)]
mod locked;
#[cfg(loom)]
mod swap;

#[cfg(shuttle)]
pub use locked::{ArcSwap, ArcSwapOption};
#[cfg(loom)]
pub use swap::{ArcSwap, ArcSwapOption};

use model::sync as inner;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

/// Tries every execution of a model (those with at most `preemptions`, where given), and says how many there were. One model at a time: see [`atomic`].
#[cfg(loom)]
pub fn explore(name: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let executions = Arc::new(AtomicU64::new(0));
    let model = Arc::new(model);
    for fences_behind_stores in [true, false] {
        atomic::fences_behind_stores(fences_behind_stores);
        let (model, executions) = (Arc::clone(&model), Arc::clone(&executions));
        let mut builder = loom::model::Builder::new();
        // loom has read `LOOM_MAX_PREEMPTIONS`, which may ask for more.
        let asked = builder.preemption_bound.unwrap_or(0);
        builder.preemption_bound = preemptions.map(|most| most.max(asked));
        builder.max_branches = 100_000;
        builder.check(move || {
            executions.fetch_add(1, Ordering::Relaxed);
            model();
        });
    }
    let bound = preemptions.map_or("all".to_owned(), |most| {
        format!("at most {most} preemptions")
    });
    let count = executions.load(Ordering::Relaxed);
    #[expect(clippy::print_stdout, reason = "`cargo xtask models` reads it")]
    {
        println!("loom: {name}: {count} executions ({bound})");
    }
}

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// As `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T> {
    #[cfg_attr(
        loom,
        expect(dead_code, reason = "shuttle's waits with a limit need it")
    )]
    lock: &'a inner::Mutex<T>,
    /// `None` only inside a wait.
    held: Option<inner::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// As the original.
    pub fn new(value: T) -> Self {
        Mutex(inner::Mutex::new(value))
    }

    /// As the original.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mutex<T> {
    /// As the original.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            lock: &self.0,
            held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// As the original.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = Some(self.0.try_lock().ok()?);
        Some(MutexGuard {
            lock: &self.0,
            held,
        })
    }

    /// As the original.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.held {
            Some(guard) => guard,
            None => unreachable!("the guard is lent to a wait"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.held {
            Some(guard) => guard,
            None => unreachable!("the guard is lent to a wait"),
        }
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar(inner::Condvar);

impl Condvar {
    /// As the original.
    pub fn new() -> Self {
        Condvar(inner::Condvar::new())
    }

    /// As the original.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held = guard
            .held
            .take()
            .map(|lent| self.0.wait(lent).unwrap_or_else(PoisonError::into_inner));
    }

    /// As the original; see the head of this file for the time limit.
    #[cfg(loom)]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) {
        self.wait(guard);
    }

    /// As the original; see the head of this file for the time limit.
    #[cfg(shuttle)]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) {
        guard.held = None;
        thread::yield_now();
        guard.held = Some(guard.lock.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// As the original.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// As the original.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    /// As the original.
    pub fn new(value: T) -> Self {
        RwLock(inner::RwLock::new(value))
    }
}

impl<T> RwLock<T> {
    /// As the original.
    pub fn read(&self) -> inner::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the original.
    pub fn write(&self) -> inner::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
