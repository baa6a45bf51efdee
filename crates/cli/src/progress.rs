//! Progress bars on standard error. Without a terminal there, they show nothing.

use glintdb::OpenProgress;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time between two looks at the figures of a running command.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Replays shorter than this show nothing.
const REPLAY_BYTES_SHOWN_MIN: u64 = 64 << 20;

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A bar over `total` bytes of input; a counter where the length is unknown.
pub(crate) fn bytes(total: Option<u64>, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    match total {
        Some(total) => ProgressBar::new(total).with_style(style(
            "{bar:40} {bytes}/{total_bytes} {binary_bytes_per_sec} {msg} eta {eta}",
        )),
        None => ProgressBar::new_spinner().with_style(style(
            "{spinner} {bytes} {binary_bytes_per_sec} {msg} {elapsed}",
        )),
    }
}

/// A bar over about `total` records.
pub(crate) fn records(total: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    ProgressBar::new(total).with_style(style(
        "{bar:40} {human_pos}/~{human_len} records {per_sec} eta {eta}",
    ))
}

/// Runs `work`, and meanwhile shows what `figures` says, with the elapsed time.
pub(crate) fn watched<T>(figures: impl Fn() -> String + Sync, work: impl FnOnce() -> T) -> T {
    let bar = ProgressBar::new_spinner().with_style(style("{spinner} {msg} {elapsed}"));
    if bar.is_hidden() {
        return work();
    }
    let (ended, end) = channel::<()>();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = end;
            loop {
                bar.set_message(figures());
                bar.tick();
                if end.recv_timeout(WATCH_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        // Dropped when the work is done, also by a panic: then the thread ends.
        let _ended = ended;
        work()
    });
    bar.finish_and_clear();
    result
}

/// Shows the replay of a long log; for `Options::progress`.
pub(crate) fn replay() -> Arc<dyn Fn(OpenProgress) + Send + Sync> {
    let bar: OnceLock<ProgressBar> = OnceLock::new();
    Arc::new(move |progress| {
        if progress.total_bytes < REPLAY_BYTES_SHOWN_MIN {
            return;
        }
        let bar = bar.get_or_init(|| {
            ProgressBar::new(progress.total_bytes).with_style(style(
                "replaying the log {bar:40} {bytes}/{total_bytes} eta {eta}",
            ))
        });
        bar.set_position(progress.replayed_bytes);
        if progress.replayed_bytes >= progress.total_bytes {
            bar.finish_and_clear();
        }
    })
}
