//! The machine's clock, and one that tests move by hand.

use glintdb_core::clock::Clock;
use parking_lot::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The machine's clock. Thread-safe.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everyone else is given"
    )]
    pub fn new() -> Self {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everyone else is given"
    )]
    fn wall(&self) -> Duration {
        // A clock set before 1970 reads as 1970.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A clock that stands still until it is moved; sleeping moves it. Thread-safe.
#[derive(Debug, Default)]
pub struct ManualClock {
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    monotonic: Duration,
    wall: Duration,
}

impl ManualClock {
    /// A clock that shows `wall` since 1970.
    #[must_use]
    pub fn new(wall: Duration) -> Self {
        ManualClock {
            times: Mutex::new(Times {
                monotonic: Duration::ZERO,
                wall,
            }),
        }
    }

    /// Lets `time` pass.
    pub fn advance(&self, time: Duration) {
        let mut times = self.times.lock();
        times.monotonic += time;
        times.wall += time;
    }

    /// Sets the wall clock, forwards or back, as an administrator would; no time passes.
    pub fn set_wall(&self, wall: Duration) {
        self.times.lock().wall = wall;
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        self.times.lock().monotonic
    }

    fn wall(&self) -> Duration {
        self.times.lock().wall
    }

    fn sleep(&self, time: Duration) {
        self.advance(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(Duration::from_secs(100));
        clock.sleep(Duration::from_secs(5));
        clock.set_wall(Duration::from_secs(50));
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.monotonic(), Duration::from_secs(6));
        assert_eq!(clock.wall(), Duration::from_secs(51));
    }

    #[test]
    fn system_clock_goes_forward_and_knows_the_year() {
        let clock = SystemClock::new();
        let before = clock.monotonic();
        clock.sleep(Duration::from_millis(2));
        assert!(clock.monotonic() >= before + Duration::from_millis(2));
        assert!(clock.wall() > Duration::from_secs(50 * 365 * 86_400));
    }
}
