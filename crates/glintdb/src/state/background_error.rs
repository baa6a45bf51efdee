//! The error that stopped a background job, until the job is tried again.
//!
//! An error that passes, such as a full disk, gets a time at which the job is tried again even if
//! no writer asks for it. The pause before doubles while retries fail.
//!
//! Thread safety: any thread.

use crate::{Error, ErrorKind};
use glintdb_core::sync::Mutex;
use std::time::Duration;

/// The shortest pause before a retry.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest one. A failure that comes later than two of these after a retry is a new one.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The first error of background jobs since they last succeeded.
#[derive(Default)]
pub(crate) struct BackgroundError(Mutex<State>);

#[derive(Default)]
struct State {
    error: Option<Error>,
    /// When the job is tried again, in monotonic time. `None`: only when a writer asks for it.
    retry_at: Option<Duration>,
    /// The pause before the last retry.
    pause: Duration,
    /// Time of the last retry.
    retried: Duration,
}

impl State {
    /// Forgets the error. One that only another open can clear stays.
    fn forget(&mut self) -> bool {
        let mends = |error: &mut Error| error.kind() != ErrorKind::Poisoned;
        let forgotten = self.error.take_if(mends).is_some();
        if forgotten {
            self.retry_at = None;
        }
        forgotten
    }
}

impl BackgroundError {
    /// Returns the error.
    pub(crate) fn get(&self) -> Option<Error> {
        self.0.lock().error.clone()
    }

    /// Keeps the first error. `now` is the monotonic time.
    pub(crate) fn note(&self, error: &Error, now: Duration) {
        let mut state = self.0.lock();
        if state.error.is_some() {
            return;
        }
        state.error = Some(error.clone());
        if error.kind().passes() {
            let is_new = now.saturating_sub(state.retried) > 2 * PAUSE_MAX;
            let pause = if is_new { PAUSE_MIN } else { 2 * state.pause };
            state.pause = pause.clamp(PAUSE_MIN, PAUSE_MAX);
            state.retry_at = Some(now + state.pause);
        }
    }

    /// Replaces any earlier error by one that stays.
    pub(crate) fn replace(&self, error: Error) {
        let mut state = self.0.lock();
        state.error = Some(error);
        state.retry_at = None;
    }

    /// Forgets the error, because the failed job is tried again. Returns whether there was one.
    pub(crate) fn forget(&self) -> bool {
        self.0.lock().forget()
    }

    /// Forgets the error, because a job succeeded. Returns whether there was one.
    pub(crate) fn recovered(&self) -> bool {
        let mut state = self.0.lock();
        state.pause = Duration::ZERO;
        state.forget()
    }

    /// Forgets the error if the time of its retry has come. Returns whether it has.
    pub(crate) fn retry_if_due(&self, now: Duration) -> bool {
        let mut state = self.0.lock();
        let due = state.retry_at.is_some_and(|at| at <= now);
        if due {
            state.retried = now;
            state.forget();
        }
        due
    }

    /// Time until the retry. `None`: there is no error that passes.
    pub(crate) fn until_retry(&self, now: Duration) -> Option<Duration> {
        let retry_at = self.0.lock().retry_at;
        retry_at.map(|at| at.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "simulated")
    }

    #[test]
    fn pauses_between_retries_double_up_to_a_bound() {
        let failed = BackgroundError::default();
        let mut now = Duration::from_secs(100);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            failed.note(&error(ErrorKind::Unavailable), now);
            let pause = failed.until_retry(now).unwrap();
            assert!(!failed.retry_if_due(now + pause - Duration::from_millis(1)));
            assert!(failed.get().is_some());
            now += pause;
            assert!(failed.retry_if_due(now) && failed.get().is_none());
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        now += 3 * PAUSE_MAX;
        failed.note(&error(ErrorKind::NoSpace), now);
        assert_eq!(failed.until_retry(now), Some(PAUSE_MIN), "a new failure");
        assert!(failed.recovered());
        failed.note(&error(ErrorKind::NoSpace), now);
        assert_eq!(failed.until_retry(now), Some(PAUSE_MIN), "after a success");
    }

    #[test]
    fn errors_that_do_not_pass_wait_for_a_writer_or_the_next_open() {
        let failed = BackgroundError::default();
        failed.note(&error(ErrorKind::Io), Duration::ZERO);
        failed.note(&error(ErrorKind::NoSpace), Duration::ZERO);
        assert_eq!(
            failed.get().unwrap().kind(),
            ErrorKind::Io,
            "the first stays"
        );
        assert_eq!(failed.until_retry(Duration::ZERO), None);
        failed.replace(error(ErrorKind::Poisoned));
        assert!(!failed.forget() && !failed.recovered());
        assert_eq!(failed.get().unwrap().kind(), ErrorKind::Poisoned);
    }
}
