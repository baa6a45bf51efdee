//! Notices when calls into the database have become slow, so that they are announced to the runtime. Thread-safe.
//!
//! Announcing a call (`block_in_place`) costs some microseconds: too much for a read out of memory, little for one from the medium, and needed when writers are being
//! slowed down, or else every thread waits and readers with them. A single slow call says nothing (the thread may have lost its core); one in nine does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A slow call adds so much, any other takes 1 away.
const SLOW_STEP: u32 = 8;
const SCORE_SLOW: u32 = 4 * SLOW_STEP;
const SCORE_MAX: u32 = 16 * SLOW_STEP;

/// Recent calls of one kind.
pub(crate) struct Pace {
    slow_from: Duration,
    score: AtomicU32,
}

impl Pace {
    /// Calls that take at least `slow_from` are slow.
    pub(crate) fn new(slow_from: Duration) -> Self {
        Pace {
            slow_from,
            score: AtomicU32::new(0),
        }
    }

    /// Are calls slow at present?
    pub(crate) fn is_slow(&self) -> bool {
        self.score.load(Ordering::Relaxed) > SCORE_SLOW
    }

    /// Notes how long a call took. Two threads at once may lose one note, which does no harm.
    pub(crate) fn note(&self, took: Duration) {
        let score = self.score.load(Ordering::Relaxed);
        let next = if took >= self.slow_from {
            (score + SLOW_STEP).min(SCORE_MAX)
        } else {
            score.saturating_sub(1)
        };
        if next != score {
            self.score.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slow_calls_count_for_nothing_many_do() {
        let pace = Pace::new(Duration::from_micros(100));
        for _ in 0..100 {
            pace.note(Duration::from_millis(5));
            assert!(!pace.is_slow());
            for _ in 0..20 {
                pace.note(Duration::from_micros(2));
            }
        }
        for _ in 0..50 {
            pace.note(Duration::from_micros(100));
        }
        assert!(pace.is_slow());
        for _ in 0..SCORE_MAX {
            pace.note(Duration::ZERO);
        }
        assert!(!pace.is_slow());
    }
}
