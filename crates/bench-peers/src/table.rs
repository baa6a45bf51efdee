//! A table of medians with ratios to RocksDB.

use std::fmt::Write as _;

use glintdb_bench::{Report, bytes, grouped};

use crate::matrix::Cell;

/// The engine that others are compared with, if it ran.
const BASELINE: &str = "rocksdb";

/// Markdown: one row an engine, in the order in which they were named. Each row is the run with the median rate, so
/// that its figures belong together; the last column is the range of rates over all runs.
pub(crate) fn table(cell: &Cell, engines: &[String], reports: &[Report]) -> String {
    let config = &cell.config;
    let mut out = format!(
        "**{}**: {} records of {} + {} B, {} thread{}, batches of {}, durability {}\n\n\
         | engine | ops/s | x | p50/p99/p99.9/max us | CPU us/op | RSS MiB | read | written | write amp | space amp | stall ms | others | range |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        cell.workload,
        grouped(config.num as f64),
        config.key_size,
        config.value_size,
        config.threads,
        if config.threads == 1 { "" } else { "s" },
        config.batch_size,
        config.durability,
    );
    let median_of = |engine: &str| median(reports.iter().filter(|report| report.engine == engine));
    let baseline = median_of(BASELINE).or_else(|| median_of(engines.first()?));
    for engine in engines {
        let Some(report) = median_of(engine) else {
            continue;
        };
        row(&mut out, report, baseline, reports);
    }
    out
}

fn row(out: &mut String, report: &Report, baseline: Option<&Report>, all: &[Report]) {
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
    let latency = |l: &glintdb_bench::Latency| {
        format!(
            "{:.1}/{:.1}/{:.1}/{:.0}",
            l.p50_us, l.p99_us, l.p999_us, l.max_us
        )
    };
    let rates = || {
        all.iter()
            .filter(|other| other.engine == report.engine)
            .map(|other| other.ops_per_s)
    };
    let mut rate = grouped(report.ops_per_s);
    let mut latencies = latency(&report.latency);
    if let Some(writes) = &report.write_latency {
        latencies += &format!(" wr {}", latency(writes));
        if let (Some(per_s), "readwhilewriting") = (report.writes_per_s, report.workload.as_str()) {
            rate += &format!(" (+{} wr)", grouped(per_s));
        }
    }
    if !report.is_correct() {
        rate += " **WRONG ANSWERS**";
    }
    // Writing to a String cannot fail.
    let _infallible = writeln!(
        out,
        "| {} | {rate} | {} | {latencies} | {:.1} | {} | {} | {} | {} | {} | {:.1} | {:.2} | {} to {} |",
        report.engine,
        number(baseline.map(|baseline| report.ops_per_s / baseline.ops_per_s)),
        report.cpu_us_per_op,
        report.rss_peak_bytes >> 20,
        bytes(report.disk_read_bytes),
        bytes(report.disk_written_bytes),
        number(report.write_amp_host),
        number(report.space_amp),
        report.longest_stall_ms,
        report.others_cpu_share,
        grouped(rates().fold(f64::INFINITY, f64::min)),
        grouped(rates().fold(0.0, f64::max)),
    );
}

/// The report with the median rate (the lower of two).
fn median<'a>(reports: impl Iterator<Item = &'a Report>) -> Option<&'a Report> {
    let mut sorted: Vec<_> = reports.collect();
    sorted.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
