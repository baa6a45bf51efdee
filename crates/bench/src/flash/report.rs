//! Results of `flash-bench`, as rows for people and as JSON for programs.

use super::real_time::Paced;
use super::setup::{Blocks, Layout, Setup};
use super::simulation::{Outcome, Side};
use crate::report::Latency;
use serde::Serialize;

/// Rate and latencies of readers or writers.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// Rate in 10^6 bytes per second, of all together.
    pub mb_per_s: f64,
    /// Bytes.
    pub bytes: u64,
    /// Seconds until the last of them.
    pub elapsed_s: f64,
    /// Latency of a command.
    pub latency: Latency,
    /// Commands that the medium has failed or refused in part.
    pub failed: u64,
}

impl Rates {
    fn of(side: &Side) -> Rates {
        Rates {
            mb_per_s: side.mb_per_s(),
            bytes: side.bytes,
            elapsed_s: side.elapsed_ns as f64 / 1e9,
            latency: side.latencies.summary().unwrap_or_default(),
            failed: side.failed,
        }
    }
}

/// A run and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct FlashReport {
    /// Which LUNs readers and writers used.
    pub layout: Layout,
    /// Which virtual blocks writers used.
    pub blocks: Blocks,
    /// LUNs of a virtual block.
    pub width: u32,
    /// Number of readers.
    pub readers: u32,
    /// Number of writers.
    pub writers: u32,
    /// The readers.
    pub read: Rates,
    /// The writers.
    pub write: Rates,
    /// Sum of both rates, each over its own time, in 10^6 bytes per second. It can be above what
    /// the device does at a time.
    pub total_mb_per_s: f64,
    /// Part of the time that LUNs were busy: mean, and the busiest one.
    pub busy: (f64, f64),
    /// Number of erases.
    pub erases: u64,
    /// Erases that failed, or were refused.
    pub failed_erases: u64,
    /// Programs and erases that reads have interrupted.
    pub suspends: u64,
    /// The same run in real time, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<Box<RealTime>>,
}

/// A run in real time.
#[derive(Clone, Debug, Serialize)]
pub struct RealTime {
    /// What came of it, by the machine's clock.
    #[serde(flatten)]
    pub report: FlashReport,
    /// How late waits ended.
    pub late: Latency,
    /// Commands a second.
    pub commands_per_s: f64,
    /// Commands a second of the run in the model's own time.
    pub computed_commands_per_s: f64,
}

impl RealTime {
    /// The line below the run's row.
    fn line(&self) -> String {
        let late = &self.late;
        format!(
            "{:<9} {} waits ended late by {:.1}/{:.1}/{:.1} us (p50/p99/max); {:.0} commands a \
             second, {:.0} computed",
            "",
            late.calls,
            late.p50_us,
            late.p99_us,
            late.max_us,
            self.commands_per_s,
            self.computed_commands_per_s
        )
    }
}

impl FlashReport {
    /// The report of a run.
    #[must_use]
    pub fn new(setup: &Setup, outcome: &Outcome) -> FlashReport {
        let (read, write) = (Rates::of(&outcome.reads), Rates::of(&outcome.writes));
        let elapsed = outcome
            .reads
            .elapsed_ns
            .max(outcome.writes.elapsed_ns)
            .max(1) as f64;
        let busy = || {
            outcome
                .units
                .iter()
                .map(|unit| unit.busy_ns as f64 / elapsed)
        };
        FlashReport {
            layout: setup.layout,
            blocks: setup.blocks,
            width: setup.width,
            readers: setup.readers,
            writers: setup.writers,
            total_mb_per_s: read.mb_per_s + write.mb_per_s,
            busy: (
                busy().sum::<f64>() / outcome.units.len().max(1) as f64,
                busy().fold(0.0, f64::max),
            ),
            erases: outcome.units.iter().map(|unit| unit.erases).sum(),
            failed_erases: outcome.failed_erases,
            suspends: outcome.units.iter().map(|unit| unit.suspends).sum(),
            real_time: None,
            read,
            write,
        }
    }

    /// The report with what came of the same run in real time.
    #[must_use]
    pub fn with_real_time(mut self, setup: &Setup, paced: &Paced) -> FlashReport {
        let report = FlashReport::new(setup, &paced.outcome);
        self.real_time = Some(Box::new(RealTime {
            late: paced.late.summary().unwrap_or_default(),
            commands_per_s: report.commands_per_s(),
            computed_commands_per_s: self.commands_per_s(),
            report,
        }));
        self
    }

    /// Commands of readers and writers a second, until the last one has ended.
    fn commands_per_s(&self) -> f64 {
        let commands = self.read.latency.calls + self.write.latency.calls;
        commands as f64 / self.read.elapsed_s.max(self.write.elapsed_s).max(1e-9)
    }

    /// Whether any operation succeeded.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.read.bytes + self.write.bytes > 0
    }

    /// The heads of the columns of [`row`](Self::row).
    #[must_use]
    pub fn header() -> String {
        format!(
            "{:<9} {:>5} {:>7} {:>7} {:>10} {:>10} {:>10}  {:<30} {:<30} {:>11}",
            "layout",
            "width",
            "readers",
            "writers",
            "read MB/s",
            "write MB/s",
            "sum MB/s",
            "read p50/p99/p99.9/max us",
            "write p50/p99/p99.9/max us",
            "busy, most"
        )
    }

    /// The run as a row of a table, and two lines more with what came of it in real time.
    #[must_use]
    pub fn row(&self) -> String {
        let layout = match self.layout {
            Layout::Shared => "shared",
            Layout::Isolated => "isolated",
        };
        let mut row = self.row_of(layout);
        if let Some(real_time) = &self.real_time {
            let below = real_time.report.row_of("real time");
            row.push_str(&format!("\n{below}\n{}", real_time.line()));
        }
        row
    }

    fn row_of(&self, name: &str) -> String {
        let mut row = format!(
            "{name:<9} {:>5} {:>7} {:>7} {:>10.1} {:>10.1} {:>10.1}  {:<30} {:<30} {:>4.0}%, {:>3.0}%",
            self.width,
            self.readers,
            self.writers,
            self.read.mb_per_s,
            self.write.mb_per_s,
            self.total_mb_per_s,
            brief(&self.read.latency),
            brief(&self.write.latency),
            self.busy.0 * 100.0,
            self.busy.1 * 100.0,
        );
        let (reads, writes) = (self.read.failed, self.write.failed);
        if reads + writes + self.failed_erases > 0 {
            let erases = self.failed_erases;
            row.push_str(&format!(
                "  failed: {reads} commands of reads, {writes} of writes, {erases} erases"
            ));
        }
        row
    }
}

/// Percentiles in whole microseconds; `-` if there were no calls.
fn brief(latency: &Latency) -> String {
    match latency.calls {
        0 => "-".into(),
        _ => format!(
            "{:.0}/{:.0}/{:.0}/{:.0}",
            latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us
        ),
    }
}
