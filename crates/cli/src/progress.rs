//! Progress bars, on standard error and only where that is a terminal.

use glintdb::OpenProgress;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Arc, OnceLock};

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

/// A bar over `total` records, which is an estimate.
pub(crate) fn records(total: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    ProgressBar::new(total).with_style(style(
        "{bar:40} {human_pos}/~{human_len} records {per_sec} eta {eta}",
    ))
}

/// What `Options::progress` gets: shows the replay of a long log.
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
