//! What stands for `arc-swap` under loom: a number that is loaded with `Acquire` and changed with `AcqRel`, no more than `arc-swap` promises. A reader may so get what was replaced
//! already, as long as somebody holds that; what nobody holds any more is not brought back, and the reader looks again.
//!
//! Thread safety: as the original, within one execution of a model.

use loom::sync::atomic::{AtomicUsize, Ordering};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What can be swapped.
pub trait Held: Clone {
    /// What does not keep it.
    type Weak;
    /// Lets go of it.
    fn downgrade(&self) -> Self::Weak;
    /// It, if somebody kept it.
    fn upgrade(weak: &Self::Weak) -> Option<Self>;
}

impl<T> Held for Arc<T> {
    type Weak = Weak<T>;
    fn downgrade(&self) -> Weak<T> {
        Arc::downgrade(self)
    }
    fn upgrade(weak: &Weak<T>) -> Option<Arc<T>> {
        weak.upgrade()
    }
}

impl<T> Held for Option<Arc<T>> {
    type Weak = Option<Weak<T>>;
    fn downgrade(&self) -> Option<Weak<T>> {
        self.as_ref().map(Arc::downgrade)
    }
    fn upgrade(weak: &Option<Weak<T>>) -> Option<Option<Arc<T>>> {
        match weak {
            None => Some(None),
            Some(weak) => weak.upgrade().map(Some),
        }
    }
}

/// See the head of this file.
pub struct Swapped<T: Held> {
    newest: AtomicUsize,
    /// No other thread runs between a change of `newest` and that of this: loom's threads change only at loom's operations.
    values: Mutex<Values<T>>,
}

struct Values<T: Held> {
    current: T,
    older: Vec<T::Weak>,
}

/// As `arc_swap::ArcSwap`.
pub type ArcSwap<T> = Swapped<Arc<T>>;
/// As `arc_swap::ArcSwapOption`.
pub type ArcSwapOption<T> = Swapped<Option<Arc<T>>>;

/// As `arc_swap::Guard`.
pub struct Loaded<T>(T);

impl<T> Deref for Loaded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Held> Swapped<T> {
    /// As the original.
    pub fn new(value: T) -> Self {
        Swapped {
            newest: AtomicUsize::new(0),
            values: Mutex::new(Values {
                current: value,
                older: Vec::new(),
            }),
        }
    }

    fn values(&self) -> MutexGuard<'_, Values<T>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the original.
    pub fn load(&self) -> Loaded<T> {
        Loaded(self.load_full())
    }

    /// As the original.
    pub fn load_full(&self) -> T {
        let at = self.newest.load(Ordering::Acquire);
        {
            let values = self.values();
            let found = match values.older.get(at) {
                Some(weak) => T::upgrade(weak),
                None => Some(values.current.clone()),
            };
            if let Some(found) = found {
                return found;
            }
        }
        self.newest.fetch_add(0, Ordering::AcqRel);
        self.values().current.clone()
    }

    /// As the original.
    pub fn store(&self, value: T) {
        drop(self.swap(value));
    }

    /// As the original.
    pub fn swap(&self, value: T) -> T {
        self.newest.fetch_add(1, Ordering::AcqRel);
        let mut values = self.values();
        let old = std::mem::replace(&mut values.current, value);
        values.older.push(old.downgrade());
        old
    }
}

impl<T> Swapped<Arc<T>> {
    /// As the original.
    pub fn from_pointee(value: T) -> Self {
        Swapped::new(Arc::new(value))
    }
}
