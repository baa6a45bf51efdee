//! When a background thread looks next at what an idle engine can give back.
//!
//! Thread safety: any thread. Asking for a look that is asked for already is one relaxed load.

use glintdb_core::Padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time from the request for a look to the look.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// The time of the next look.
#[derive(Default)]
pub(crate) struct Looks {
    /// Monotonic time of the next look, in nanoseconds. 0: no look is requested. Every commit
    /// that deletes reads it, so no counter shares its cache line.
    due: Padded<AtomicU64>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Looks {
    /// Asks for a look, and returns whether this call was the first to ask.
    #[inline]
    pub(crate) fn ask(&self, now: impl FnOnce() -> Duration) -> bool {
        if self.due.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let due = nanos(now() + PAUSE);
        let asked = (self.due).compare_exchange(0, due, Ordering::Relaxed, Ordering::Relaxed);
        asked.is_ok()
    }

    /// Time until the next look. `None`: there is no request for one.
    pub(crate) fn until(&self, now: Duration) -> Option<Duration> {
        match self.due.load(Ordering::Relaxed) {
            0 => None,
            due => Some(Duration::from_nanos(due.saturating_sub(nanos(now)))),
        }
    }

    /// Takes the request for a look if it is due. Of several threads one gets it.
    pub(crate) fn take(&self, now: Duration) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let is_due = due != 0 && due <= nanos(now);
        is_due
            && (self.due)
                .compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_gives_one_look_after_a_pause() {
        let looks = Looks::default();
        let second = Duration::from_secs(1);
        assert_eq!(looks.until(second), None);
        assert!(!looks.take(second));
        assert!(looks.ask(|| second) && !looks.ask(|| second));
        assert_eq!(looks.until(second), Some(PAUSE));
        assert!(!looks.take(second));
        assert_eq!(looks.until(2 * second), Some(Duration::ZERO));
        assert!(looks.take(2 * second) && !looks.take(2 * second));
        assert_eq!(looks.until(second), None);
    }
}
