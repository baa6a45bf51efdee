//! Time is given, never taken: the engine asks a [`Clock`], so that simulation can move it by hand.

use std::time::Duration;

/// A clock. Thread-safe.
pub trait Clock: Send + Sync {
    /// Time since some fixed start; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1 January 1970 UTC; may jump, and nothing but reporting and expiry may depend on it.
    fn wall(&self) -> Duration;
    /// Waits. A simulated clock just moves on.
    fn sleep(&self, time: Duration);
}
