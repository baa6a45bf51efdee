//! Locks and condition variables whose waits are in virtual time, with `parking_lot`'s interface.
//!
//! Threads outside of a run wait as `parking_lot`'s do.

use super::{Current, current};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Threads that wait, first come first.
#[derive(Default)]
struct Queue {
    /// Their number, so that an unlock without waiting threads reads one word.
    count: AtomicUsize,
    threads: parking_lot::Mutex<VecDeque<Current>>,
}

impl Queue {
    fn push(&self, thread: Current) {
        self.threads.lock().push_back(thread);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes at most `most` threads.
    fn wake(&self, most: usize) {
        for _ in 0..most {
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            let first = self.threads.lock().pop_front();
            let Some(thread) = first else { return };
            self.count.fetch_sub(1, Ordering::SeqCst);
            thread.wake();
        }
    }

    /// Takes a thread away that no longer waits.
    fn remove(&self, thread: &Current) {
        let mut threads = self.threads.lock();
        let before = threads.len();
        threads.retain(|other| other.number != thread.number);
        self.count
            .fetch_sub(before - threads.len(), Ordering::SeqCst);
    }

    /// Waits until `acquire` returns something; `block` waits outside of a run.
    fn acquire<G>(
        &self,
        what: &'static str,
        acquire: impl Fn() -> Option<G>,
        block: impl FnOnce() -> G,
    ) -> G {
        loop {
            if let Some(guard) = acquire() {
                return guard;
            }
            let Some(current) = current() else {
                return block();
            };
            self.push(current.clone());
            current.wait(None, what);
        }
    }
}

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T> {
    waiting: Queue,
    inner: parking_lot::Mutex<T>,
}

/// As `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None` only inside a wait, and while it is dropped.
    held: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// As the original.
    pub fn new(value: T) -> Self {
        Mutex {
            waiting: Queue::default(),
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// As the original.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    /// As the original.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            lock: self,
            held: Some(self.acquire()),
        }
    }

    fn acquire(&self) -> parking_lot::MutexGuard<'_, T> {
        let inner = &self.inner;
        (self.waiting).acquire("a lock", || inner.try_lock(), || inner.lock())
    }

    /// As the original.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = Some(self.inner.try_lock()?);
        Some(MutexGuard { lock: self, held })
    }

    /// As the original.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> MutexGuard<'_, T> {
    fn release(&mut self) {
        self.held = None;
        self.lock.waiting.wake(1);
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.release();
        }
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
pub struct Condvar {
    waiting: Queue,
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// As the original.
    #[must_use]
    pub fn new() -> Self {
        Condvar::default()
    }

    /// As the original.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at_most(guard, None);
    }

    /// As the original, without its result.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        self.wait_at_most(guard, Some(time));
    }

    fn wait_at_most<T>(&self, guard: &mut MutexGuard<'_, T>, time: Option<Duration>) {
        let Some(current) = current() else {
            if let Some(held) = &mut guard.held {
                match time {
                    Some(time) => drop(self.inner.wait_for(held, time)),
                    None => self.inner.wait(held),
                }
            }
            return;
        };
        let limit = time.map(|time| {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            current.run.now().saturating_add(ns)
        });
        self.waiting.push(current.clone());
        guard.release();
        current.wait(limit, "a condition");
        self.waiting.remove(&current);
        guard.held = Some(guard.lock.acquire());
    }

    /// As the original.
    pub fn notify_one(&self) {
        self.waiting.wake(1);
        self.inner.notify_one();
    }

    /// As the original.
    pub fn notify_all(&self) {
        self.waiting.wake(usize::MAX);
        self.inner.notify_all();
    }
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T> {
    waiting: Queue,
    inner: parking_lot::RwLock<T>,
}

/// As the guards of `parking_lot::RwLock`.
pub struct Guarded<'a, G> {
    waiting: &'a Queue,
    held: Option<G>,
}

impl<T> RwLock<T> {
    /// As the original.
    pub fn new(value: T) -> Self {
        RwLock {
            waiting: Queue::default(),
            inner: parking_lot::RwLock::new(value),
        }
    }

    /// As the original.
    pub fn read(&self) -> Guarded<'_, parking_lot::RwLockReadGuard<'_, T>> {
        let (waiting, inner) = (&self.waiting, &self.inner);
        let held = Some(waiting.acquire("a lock", || inner.try_read(), || inner.read()));
        Guarded { waiting, held }
    }

    /// As the original.
    pub fn write(&self) -> Guarded<'_, parking_lot::RwLockWriteGuard<'_, T>> {
        let (waiting, inner) = (&self.waiting, &self.inner);
        let held = Some(waiting.acquire("a lock", || inner.try_write(), || inner.write()));
        Guarded { waiting, held }
    }
}

impl<G> Drop for Guarded<'_, G> {
    fn drop(&mut self) {
        self.held = None;
        self.waiting.wake(usize::MAX);
    }
}

impl<G: Deref> Deref for Guarded<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        match &self.held {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock until it is dropped"),
        }
    }
}

impl<G: DerefMut> DerefMut for Guarded<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        match &mut self.held {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock until it is dropped"),
        }
    }
}
