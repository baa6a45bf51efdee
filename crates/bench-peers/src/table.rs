//! A table of medians with ratios to RocksDB.

use std::fmt::Write as _;

use glintdb_bench::{Report, bytes, grouped, median};

/// The engine that others are compared with, if it ran.
pub(crate) const BASELINE: &str = "rocksdb";

/// Markdown with one row an engine, in the order of `engines`. Each row is the run with the median
/// rate, so that its figures belong together; the last column is the range of rates over all runs.
/// All runs are of one workload with the same sizes.
pub(crate) fn table<E: AsRef<str>>(engines: &[E], reports: &[Report]) -> String {
    let Some(config) = reports.first() else {
        return String::new();
    };
    let mut out = format!(
        "**{}**: {} records of {} + {} B, {} thread{}, batches of {}, durability {}\n\n\
         | engine | ops/s | x | p50/p99/p99.9/max us | CPU us/op | RSS MiB | read | written | write amp | own count | space amp | most | stall ms | others | range |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        config.workload,
        grouped(config.num as f64),
        config.key_size,
        config.value_size,
        config.threads,
        if config.threads == 1 { "" } else { "s" },
        config.batch_size,
        config.durability,
    );
    let median_of = |engine: &str| median(reports.iter().filter(|report| report.engine == engine));
    let baseline = median_of(BASELINE).or_else(|| median_of(engines.first()?.as_ref()));
    for engine in engines {
        let Some(report) = median_of(engine.as_ref()) else {
            continue;
        };
        row(&mut out, report, baseline, reports);
    }
    out
}

fn row(out: &mut String, report: &Report, baseline: Option<&Report>, all: &[Report]) {
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
    let rates = || {
        all.iter()
            .filter(|other| other.engine == report.engine)
            .map(|other| other.ops_per_s)
    };
    let mut rate = grouped(report.ops_per_s);
    let mut latencies = report.latency.brief();
    if let Some(writes) = &report.write_latency {
        latencies += &format!(" wr {}", writes.brief());
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
        "| {} | {rate} | {} | {latencies} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.2} | {} to {} |",
        report.engine,
        number(baseline.map(|baseline| report.ops_per_s / baseline.ops_per_s)),
        report.cpu_us_per_op,
        report.rss_peak_bytes >> 20,
        bytes(report.disk_read_bytes),
        bytes(report.disk_written_bytes),
        number(report.write_amp_host),
        number(report.write_amp_engine()),
        number(report.space_amp),
        number(report.space_amp_max),
        report.longest_stall_ms,
        report.others_cpu_share,
        grouped(rates().fold(f64::INFINITY, f64::min)),
        grouped(rates().fold(0.0, f64::max)),
    );
}

#[cfg(test)]
pub(crate) mod tests {
    use glintdb_bench::Latency;

    use super::*;

    /// A report of a run that was not.
    pub(crate) fn report(engine: &str, ops_per_s: f64) -> Report {
        Report {
            engine: engine.to_owned(),
            workload: "fillrandom".to_owned(),
            num: 1000,
            key_size: 16,
            value_size: 100,
            threads: 1,
            batch_size: 1,
            durability: glintdb_bench::Durability::Os,
            ops: 1000,
            elapsed_s: 1000.0 / ops_per_s,
            ops_per_s,
            mb_per_s: 1.0,
            latency: Latency::default(),
            write_latency: None,
            writes_per_s: None,
            cpu_s: 0.1,
            cpu_us_per_op: 1.0,
            rss_peak_bytes: 1 << 20,
            disk_written_bytes: 1 << 20,
            disk_read_bytes: 0,
            settle_s: 0.0,
            write_amp_host: Some(2.0),
            written_by_engine_bytes: Some(3000),
            io: None,
            written_user_bytes: 1000,
            disk_use_bytes: 1 << 20,
            disk_use_max_bytes: 2 << 20,
            space_amp: Some(1.25),
            space_amp_max: Some(2.5),
            ops_by_second: vec![1000],
            longest_stall_ms: 1.0,
            others_cpu_share: 0.0,
            values_checked: 10,
            records_missing: 0,
            records_wrong: 0,
        }
    }

    #[test]
    fn rows_are_medians_with_ratios_to_rocksdb() {
        let engines = ["fjall", "rocksdb"];
        let mut wrong = report("fjall", 900.0);
        wrong.records_missing = 1;
        let reports = [
            report("fjall", 100.0),
            report("rocksdb", 300.0),
            wrong,
            report("rocksdb", 500.0),
            report("fjall", 2000.0),
            report("rocksdb", 450.0),
        ];
        let text = table(&engines, &reports);
        let rows: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("| fjall") || line.starts_with("| rocksdb"))
            .collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert!(text.starts_with("**fillrandom**: 1,000 records of 16 + 100 B, 1 thread,"));
        assert!(
            rows[0].contains("900 **WRONG ANSWERS** | 2.00 |"),
            "{}",
            rows[0]
        );
        assert!(rows[0].ends_with("100 to 2,000 |"), "{}", rows[0]);
        assert!(rows[1].contains("| 450 | 1.00 |"), "{}", rows[1]);
        assert!(
            rows[1].contains("| 2.00 | 3.00 | 1.25 | 2.50 |"),
            "{}",
            rows[1]
        );
    }
}
