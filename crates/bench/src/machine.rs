//! What the process and the machine did meanwhile: CPU, memory, bytes written, other processes.
//!
//! Read from `/proc` and therefore zero where there is none. Clock ticks are 1/100 s on every Linux that
//! this runs on (`USER_HZ`), so CPU figures have a resolution of 10 ms.

use glintdb_flash::directories_of;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::store::Result;

const TICKS_PER_SECOND: f64 = 100.0;

/// A moment's counters. Differences of two are a workload's.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    at: Instant,
    cpu_s: f64,
    machine_busy_s: f64,
    written_bytes: u64,
    read_bytes: u64,
}

/// What happened between two [`Sample`]s.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Wall-clock seconds.
    pub elapsed_s: f64,
    /// CPU seconds of this process, all threads, user and system.
    pub cpu_s: f64,
    /// Bytes this process sent towards storage.
    pub written_bytes: u64,
    /// Bytes this process fetched from storage.
    pub read_bytes: u64,
    /// Share of all cores that other processes and the hypervisor took, 0 to 1.
    pub others_share: f64,
}

impl Sample {
    /// Reads the counters now.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "a benchmark measures wall-clock time"
    )]
    pub fn now() -> Self {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| {
            io.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .unwrap_or(0)
        };
        Self {
            at: Instant::now(),
            cpu_s: process_cpu_s(),
            machine_busy_s: machine_busy_s(),
            written_bytes: field("write_bytes:"),
            read_bytes: field("read_bytes:"),
        }
    }

    /// Usage from `self` to `later`.
    #[must_use]
    pub fn until(&self, later: &Self) -> Usage {
        let elapsed_s = later.at.duration_since(self.at).as_secs_f64();
        let cpu_s = later.cpu_s - self.cpu_s;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let busy_s = later.machine_busy_s - self.machine_busy_s;
        Usage {
            elapsed_s,
            cpu_s,
            written_bytes: later.written_bytes - self.written_bytes,
            read_bytes: later.read_bytes - self.read_bytes,
            others_share: if elapsed_s > 0.0 {
                ((busy_s - cpu_s) / (cores * elapsed_s)).clamp(0.0, 1.0)
            } else {
                0.0
            },
        }
    }
}

fn process_cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses and may hold spaces; 14 and 15 are utime, stime.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / TICKS_PER_SECOND
}

fn machine_busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // cpu user nice system idle iowait irq softirq steal: all but idle and iowait.
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let busy: u64 = fields
        .iter()
        .enumerate()
        .filter(|(i, _)| !matches!(i, 3 | 4))
        .map(|(_, ticks)| ticks)
        .sum();
    busy as f64 / TICKS_PER_SECOND
}

/// Starts a new measurement of [`rss_peak_bytes`]. Without permission the peak stays that of the process's life.
pub fn reset_rss_peak() {
    // Best effort by contract: there is no other way to reset VmHWM.
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// Largest resident set since [`reset_rss_peak`], bytes.
#[must_use]
pub fn rss_peak_bytes() -> u64 {
    fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            let kib = line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()
        })
        .map_or(0, |kib| kib << 10)
}

/// Time between looks at the disk use.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Watches the disk use of a directory from a thread of its own: the bound of an engine is about its worst moment,
/// not about the end of a run. Some 0.1 % of a core for a hundred files.
#[derive(Debug)]
pub(crate) struct DiskUse {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<u64>,
}

impl DiskUse {
    #[allow(
        clippy::disallowed_methods,
        reason = "a benchmark watches with a thread of its own"
    )]
    pub(crate) fn watch(dir: &Path) -> Result<Self> {
        let dir = dir.to_owned();
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("disk-use".to_owned())
            .spawn(move || most_of(&dir, &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends the watch; the most that was seen, bytes.
    pub(crate) fn most(self) -> u64 {
        drop(self.stop);
        match self.thread.join() {
            Ok(most) => most,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn most_of(dir: &Path, stopped: &Receiver<()>) -> u64 {
    let mut most = 0;
    loop {
        // A directory that goes away between two calls is no sample; the end of the run looks again, and reports.
        if let Ok(bytes) = disk_use_bytes(dir) {
            most = most.max(bytes);
        }
        if stopped.recv_timeout(LOOK_PERIOD) != Err(RecvTimeoutError::Timeout) {
            return most;
        }
    }
}

/// Bytes of disk that the files below `dir` occupy (blocks, not lengths), or below several
/// directories, `dirs:PATH,PATH`. Files that vanish meanwhile do not count.
///
/// # Errors
/// If a directory cannot be listed.
pub fn disk_use_bytes(dir: &Path) -> Result<u64> {
    let mut total = 0;
    let mut pending = directories_of(dir)?.unwrap_or_else(|| vec![dir.to_path_buf()]);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => pending.push(entry.path()),
                Ok(meta) => total += meta.blocks() * 512,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_and_disk_use_are_counted() {
        let before = Sample::now();
        let mut x = 1u64;
        while process_cpu_s() - before.cpu_s < 0.05 {
            for _ in 0..100_000 {
                x = crate::rng::mix64(x);
            }
        }
        let usage = before.until(&Sample::now());
        // The processor time is that of all threads, so of other tests too.
        assert!(x != 0 && usage.cpu_s >= 0.04 && usage.elapsed_s > 0.0);
        assert!((0.0..=1.0).contains(&usage.others_share));
        assert!(rss_peak_bytes() > 1 << 20);

        let dir = std::env::temp_dir().join(format!("glintdb-bench-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        fs::write(dir.join("below/file"), vec![1u8; 100_000]).unwrap();
        let used = disk_use_bytes(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        // File systems that allocate late or compress may show less than the length.
        assert!(used <= 1 << 20, "{used}");
    }

    #[test]
    fn the_most_is_what_was_there_in_between() {
        let dir = std::env::temp_dir().join(format!("glintdb-bench-most-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let watch = DiskUse::watch(&dir).unwrap();
        fs::write(dir.join("file"), vec![1u8; 8 << 20]).unwrap();
        let peak = disk_use_bytes(&dir).unwrap();
        std::thread::sleep(5 * LOOK_PERIOD);
        fs::remove_file(dir.join("file")).unwrap();
        assert!(disk_use_bytes(&dir).unwrap() < peak);
        let most = watch.most();
        fs::remove_dir_all(&dir).unwrap();
        // Blocks that are allocated late may be counted a little differently once they are.
        assert!(most.abs_diff(peak) <= peak / 8, "{most} {peak}");
    }
}
