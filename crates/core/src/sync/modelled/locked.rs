//! What stands for `arc-swap` under shuttle, which knows no weak memory: a lock around what is swapped.
//!
//! Thread safety: as the original, within one execution of a model.

use super::Mutex;
use std::ops::Deref;
use std::sync::Arc;

/// What stands for `arc-swap`: a lock around what is swapped.
pub struct Swapped<T>(Mutex<T>);

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

impl<T: Clone> Swapped<T> {
    /// As the original.
    pub fn new(value: T) -> Self {
        Swapped(Mutex::new(value))
    }

    /// As the original.
    pub fn load(&self) -> Loaded<T> {
        Loaded(self.load_full())
    }

    /// As the original.
    pub fn load_full(&self) -> T {
        self.0.lock().clone()
    }

    /// As the original.
    pub fn store(&self, value: T) {
        drop(self.swap(value));
    }

    /// As the original.
    pub fn swap(&self, value: T) -> T {
        std::mem::replace(&mut *self.0.lock(), value)
    }
}

impl<T> Swapped<Arc<T>> {
    /// As the original.
    pub fn from_pointee(value: T) -> Self {
        Swapped::new(Arc::new(value))
    }
}
