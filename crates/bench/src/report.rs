//! Results of a workload, as a table row for people and as JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// Latencies of one kind of call, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Calls measured.
    pub calls: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95 % are no slower.
    pub p95_us: f64,
    /// 99 % are no slower.
    pub p99_us: f64,
    /// 99.9 % are no slower.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    /// `p50/p99/p99.9/max` in microseconds, for a cell of a table.
    #[must_use]
    pub fn brief(&self) -> String {
        format!(
            "{:.1}/{:.1}/{:.1}/{:.0}",
            self.p50_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}

/// A histogram of nanoseconds with two significant digits: 1 % is finer than runs repeat, and small enough
/// for a core's cache.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u32>);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    const MAX_NS: u64 = 1_000_000_000_000;

    /// An empty histogram for up to 1,000 s.
    #[must_use]
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, Self::MAX_NS, 2) {
            Ok(histogram) => Self(histogram),
            Err(error) => panic!("constant bounds are valid: {error}"),
        }
    }

    /// Counts one call.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds another thread's calls.
    pub fn add(&mut self, other: &Self) {
        if let Err(error) = self.0.add(&other.0) {
            panic!("histograms have equal bounds: {error}");
        }
    }

    /// The figures, or `None` if nothing was recorded.
    #[must_use]
    pub fn summary(&self) -> Option<Latency> {
        if self.0.is_empty() {
            return None;
        }
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        Some(Latency {
            calls: self.0.len(),
            mean_us: self.0.mean() / 1000.0,
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1000.0,
        })
    }
}

/// All figures of one workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Engine as the store names itself.
    pub engine: String,
    /// Name of the workload.
    pub workload: String,
    /// Records of the database.
    pub num: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Threads of the main operation.
    pub threads: usize,
    /// Records per commit.
    pub batch_size: usize,
    /// What each commit survives.
    pub durability: crate::Durability,
    /// Operations finished: records written, keys looked up, or scans; background writer apart.
    pub ops: u64,
    /// Seconds until the last of them, settling apart.
    pub elapsed_s: f64,
    /// `ops / elapsed_s`.
    pub ops_per_s: f64,
    /// User bytes (keys and values) read and written per second, in units of 10^6.
    pub mb_per_s: f64,
    /// Latency of the main call (a batch or a multi-get is one call).
    pub latency: Latency,
    /// Latency of writes where the main call is a read.
    pub write_latency: Option<Latency>,
    /// Writes per second beside the reads.
    pub writes_per_s: Option<f64>,
    /// CPU seconds of the process, all threads, settling included.
    pub cpu_s: f64,
    /// `cpu_s` divided by all operations, microseconds.
    pub cpu_us_per_op: f64,
    /// Largest resident memory during the workload, bytes.
    pub rss_peak_bytes: u64,
    /// Bytes sent to storage, settling included.
    pub disk_written_bytes: u64,
    /// Bytes fetched from storage, settling included.
    pub disk_read_bytes: u64,
    /// Seconds of flushing and waiting for background work after the last operation.
    pub settle_s: f64,
    /// Bytes sent to storage per user byte written, as the kernel counts them for the process: the same for all engines.
    pub write_amp_host: Option<f64>,
    /// Bytes handed to the operating system as the engine counts them, settling included, where it counts them.
    #[serde(default)]
    pub written_by_engine_bytes: Option<u64>,
    /// Reads, writes and syncs until the last operation, settling apart, where the engine counts
    /// them.
    #[serde(default)]
    pub io: Option<crate::Io>,
    /// Keys and values written, bytes.
    #[serde(default)]
    pub written_user_bytes: u64,
    /// Disk use of the directory at the end, bytes.
    pub disk_use_bytes: u64,
    /// Most that it was at any look, each 100 ms, bytes.
    #[serde(default)]
    pub disk_use_max_bytes: u64,
    /// Disk use at the end per user byte that is live then.
    pub space_amp: Option<f64>,
    /// Most disk use at any look per user byte that is live at the end.
    #[serde(default)]
    pub space_amp_max: Option<f64>,
    /// Operations that finished in each second.
    #[serde(default)]
    pub ops_by_second: Vec<u64>,
    /// Longest time in which no main operation of any thread finished, milliseconds.
    pub longest_stall_ms: f64,
    /// Share of all cores taken by other processes during the operations, 0 to 1.
    pub others_cpu_share: f64,
    /// Values compared with what was stored.
    pub values_checked: u64,
    /// Records that should have been found and were not.
    pub records_missing: u64,
    /// Values, or orders of keys in scans, that were wrong.
    pub records_wrong: u64,
}

impl Report {
    /// Whether everything read was right. A report of a wrong store is not a figure.
    #[must_use]
    pub fn is_correct(&self) -> bool {
        self.records_missing == 0 && self.records_wrong == 0
    }

    /// Bytes per user byte written as the engine counts them itself, if it does.
    #[must_use]
    pub fn write_amp_engine(&self) -> Option<f64> {
        let written = self.written_by_engine_bytes?;
        (self.written_user_bytes > 0).then(|| written as f64 / self.written_user_bytes as f64)
    }

    /// The parts of a compaction's time that threads waited for reads, writes and syncs.
    fn steps(&self) -> Option<String> {
        let workload = self.workload.parse().is_ok_and(Workload::is_compaction);
        let io = self.io.filter(|_| workload)?;
        let part = |us: u64| {
            let seconds = us as f64 / 1e6;
            format!("{seconds:.2} s ({:.0} %)", 100.0 * seconds / self.elapsed_s)
        };
        Some(format!(
            "  of {:.2} s: reads {}, writes {}, syncs {}; {} reads of {} in {} batches",
            self.elapsed_s,
            part(io.read_us),
            part(io.write_us),
            part(io.sync_us),
            grouped(io.reads as f64),
            bytes(io.read_bytes.checked_div(io.reads).unwrap_or(0)),
            grouped(io.read_batches as f64),
        ))
    }

    /// Notes the most that the disk use was while the workload ran.
    pub(crate) fn note_disk_use_max(&mut self, bytes: u64) {
        self.disk_use_max_bytes = bytes.max(self.disk_use_bytes);
        let growth = self.disk_use_max_bytes as f64 / self.disk_use_bytes.max(1) as f64;
        self.space_amp_max = self.space_amp.map(|amp| amp * growth);
    }

    /// Column titles for [`row`](Self::row).
    #[must_use]
    pub fn header() -> String {
        format!(
            "{:<22} {:>3} {:>11} {:>8} {:>9} {:>9} {:>9} {:>9} {:>11} {:>8} {:>7} {:>8} {:>9} {:>6} {:>6} {:>6} {:>9} {:>7}",
            "workload",
            "thr",
            "ops/s",
            "MB/s",
            "p50 us",
            "p95 us",
            "p99 us",
            "p99.9 us",
            "max us",
            "CPU s",
            "us/op",
            "RSS MiB",
            "written",
            "w-amp",
            "space",
            "most",
            "stall ms",
            "others"
        )
    }

    /// One line under [`header`](Self::header), and a second one if writes run beside reads or for
    /// a compaction.
    #[must_use]
    pub fn row(&self) -> String {
        let optional = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
        let mut row = format!(
            "{:<22} {:>3} {:>11} {:>8.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>11.1} {:>8.2} {:>7.2} {:>8} {:>9} {:>6} {:>6} {:>6} {:>9.1} {:>6.0}%",
            self.workload,
            self.threads,
            grouped(self.ops_per_s),
            self.mb_per_s,
            self.latency.p50_us,
            self.latency.p95_us,
            self.latency.p99_us,
            self.latency.p999_us,
            self.latency.max_us,
            self.cpu_s,
            self.cpu_us_per_op,
            self.rss_peak_bytes >> 20,
            bytes(self.disk_written_bytes),
            optional(self.write_amp_host),
            optional(self.space_amp),
            optional(self.space_amp_max),
            self.longest_stall_ms,
            self.others_cpu_share * 100.0,
        );
        if let Some(write) = &self.write_latency {
            // Writing to a String cannot fail.
            let _infallible = write!(
                row,
                "\n{:<22} {:>3} {:>11} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>11.1}",
                "  of these, writes",
                "",
                self.writes_per_s.map_or_else(|| "-".to_owned(), grouped),
                "",
                write.p50_us,
                write.p95_us,
                write.p99_us,
                write.p999_us,
                write.max_us,
            );
        }
        if let Some(steps) = self.steps() {
            let _infallible = write!(row, "\n{steps}");
        }
        if !self.is_correct() {
            let _infallible = write!(
                row,
                "\n  WRONG: {} records missing, {} with wrong content: these figures mean nothing",
                self.records_missing, self.records_wrong
            );
        }
        row
    }
}

/// The report with the median rate, the lower of the two middle ones of an even number.
pub fn median<'a>(reports: impl Iterator<Item = &'a Report>) -> Option<&'a Report> {
    let mut sorted: Vec<_> = reports.collect();
    sorted.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// `1234567.8` as `1,234,568`.
#[must_use]
pub fn grouped(x: f64) -> String {
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A byte count with a binary unit, four characters of number.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 100.0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_summarise_to_a_percent() {
        let mut one = Latencies::new();
        let mut two = Latencies::new();
        for us in 1..=1000 {
            let half = if us % 2 == 0 { &mut one } else { &mut two };
            half.record(Duration::from_micros(us));
        }
        assert!(Latencies::new().summary().is_none());
        one.add(&two);
        let sum = one.summary().unwrap();
        let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.011, "{got} {want}");
        assert_eq!(sum.calls, 1000);
        near(sum.p50_us, 500.0);
        near(sum.p95_us, 950.0);
        near(sum.p99_us, 990.0);
        near(sum.p999_us, 999.0);
        near(sum.max_us, 1000.0);
        one.record(Duration::from_secs(5000));
        assert_eq!(one.summary().unwrap().calls, 1001);
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(grouped(1_234_567.8), "1,234,568");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(300 << 20), "300 MiB");
    }
}
