//! Ten workloads on each kind of index, as a Markdown table with the fastest kinds in bold.
//!
//! `cargo run --release -p glintdb-bench --example kinds -- DIR [ROUNDS [SECONDS [NAME ...]]]`
//!
//! `DIR` is a new directory, which is removed at the end. Each workload has a new database with a
//! memory budget of 32 MiB and `garbage_bytes_min=16m`, filled with 232 MB of records and settled;
//! then it runs for `SECONDS` (5), in turn on an LSM tree, a B+tree, and a reshaped B+tree,
//! `ROUNDS` (3) times. The rate is the median of the rounds, and the bytes written for each byte
//! put count compactions that go on after the end of the workload. A kind is in bold if its rate is
//! at least nine tenths of the best one. With `NAME`s, only these workloads run.

use glintdb_bench::{
    Config, Contents, Durability, GlintOptions, GlintStore, Report, Result, Runner, Workload,
    median,
};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const KINDS: [&str; 3] = ["lsm", "btree", "btree-reshaped"];
const MEMORY_BYTES: u64 = 32 << 20;
/// The default is as large as the data, and hides the cost of garbage.
const GARBAGE_BYTES_MIN: u64 = 16 << 20;
/// Bytes of keys and values of each database.
const DATA_BYTES: u64 = 232_000_000;
/// Rates from this part of the best one on count as equal.
const EQUAL: f64 = 0.9;

/// A workload with a name that says what it is for.
struct Named {
    name: &'static str,
    what: &'static str,
    value_size: usize,
    scan_length: usize,
    /// What fills the database. `None`: the workload does.
    fill: Option<Workload>,
    workload: Workload,
}

const fn named(
    name: &'static str,
    what: &'static str,
    value_size: usize,
    fill: Option<Workload>,
    workload: Workload,
) -> Named {
    Named {
        name,
        what,
        value_size,
        scan_length: 50,
        fill,
        workload,
    }
}

const RANDOM: Option<Workload> = Some(Workload::FillRandom);

const WORKLOADS: [Named; 10] = [
    named(
        "time series",
        "puts in key order, deletes of the record a quarter behind; 100 B",
        100,
        None,
        Workload::Window,
    ),
    named(
        "import",
        "puts of new records in random order; 100 B",
        100,
        None,
        Workload::FillRandom,
    ),
    named(
        "queue",
        "puts at the end, takes from the front; 1,000 B",
        1000,
        None,
        Workload::Queue,
    ),
    named(
        "counters",
        "read, add, write (YCSB F); 16 B",
        16,
        RANDOM,
        Workload::F,
    ),
    named(
        "sessions",
        "half reads, half updates (YCSB A); 400 B",
        400,
        RANDOM,
        Workload::A,
    ),
    named(
        "profiles",
        "95 % reads, 5 % updates (YCSB B); 1,000 B",
        1000,
        RANDOM,
        Workload::B,
    ),
    named(
        "cache of pages",
        "reads, skewed (YCSB C); 4,096 B",
        4096,
        RANDOM,
        Workload::C,
    ),
    named(
        "archive",
        "reads, all records equally often; 100 B",
        100,
        RANDOM,
        Workload::ReadRandom,
    ),
    named(
        "index of a blog",
        "scans of 1 to 100, 5 % inserts (YCSB E); 16 B",
        16,
        RANDOM,
        Workload::E,
    ),
    Named {
        scan_length: 1000,
        ..named(
            "reports",
            "scans of 1,000; 100 B",
            100,
            RANDOM,
            Workload::SeekRandom,
        )
    },
];

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Runs a workload on a new database of one kind.
fn measure(dir: &Path, named: &Named, kind: &str, duration: Duration) -> Result<Report> {
    let mut options = GlintOptions::default();
    options.set_memory_bytes(MEMORY_BYTES);
    options.set(&format!("garbage_bytes_min={GARBAGE_BYTES_MIN}"))?;
    options.set(&format!("index={kind}"))?;
    let store = GlintStore::open(kind, dir, Durability::Os, options)?;
    let base = Config::default();
    let config = Config {
        num: DATA_BYTES / (base.key_size + named.value_size) as u64,
        value_size: named.value_size,
        scan_length: named.scan_length,
        duration: Some(duration),
        ..base
    };
    let mut runner = Runner::new(&store, config, Contents::default());
    if let Some(fill) = named.fill {
        runner.run(fill)?;
    }
    let report = runner.run(named.workload)?;
    drop(store);
    std::fs::remove_dir_all(dir)?;
    if report.is_correct() {
        return Ok(report);
    }
    Err(format!("{} on {kind} read wrong values", named.name).into())
}

/// The row of a workload, with the median reports of the kinds.
fn row(named: &Named, reports: &[&Report]) -> Result<String> {
    let best = reports
        .iter()
        .map(|report| report.ops_per_s)
        .fold(0.0, f64::max);
    let mut row = format!("| {} | {} ", named.name, named.what);
    for report in reports {
        let rate = glintdb_bench::grouped(report.ops_per_s);
        match report.ops_per_s >= EQUAL * best {
            true => write!(row, "| **{rate}** ")?,
            false => write!(row, "| {rate} ")?,
        }
    }
    let each = |figure: &dyn Fn(&Report) -> String| {
        let figures: Vec<String> = reports.iter().map(|report| figure(report)).collect();
        figures.join(", ")
    };
    let p99 = each(&|report| format!("{:.0}", report.latency.p99_us));
    let writes = reports
        .iter()
        .any(|report| report.written_user_bytes > 1_000_000);
    let written = match writes {
        true => each(&|report| format!("{:.1}", report.write_amp_host.unwrap_or(0.0))),
        false => String::new(),
    };
    let space = each(&|report| format!("{:.2}", report.space_amp.unwrap_or(0.0)));
    write!(row, "| {p99} | {written} | {space} |")?;
    Ok(row)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: kinds DIR [ROUNDS [SECONDS [NAME ...]]]";
    let dir = arguments.next().ok_or(usage)?;
    let rounds: u32 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let names: Vec<String> = arguments.collect();
    let known = |name: &&String| WORKLOADS.iter().all(|named| named.name != name.as_str());
    if let Some(unknown) = names.iter().find(known) {
        let all = WORKLOADS.map(|named| named.name).join("`, `");
        return Err(format!("no workload is named `{unknown}`; the names are `{all}`").into());
    }
    if rounds == 0 || seconds == 0 {
        return Err(format!("ROUNDS and SECONDS are at least 1; {usage}").into());
    }
    let dir = Path::new(&dir);
    std::fs::create_dir(dir)?;
    let kinds = KINDS.join(" | ");
    say(&format!(
        "| workload | operations | {kinds} | p99, µs | written for a byte | space for a byte |"
    ))?;
    say("|---|---|---|---|---|---|---|---|")?;
    let wanted = |named: &&Named| names.is_empty() || names.iter().any(|name| name == named.name);
    for named in WORKLOADS.iter().filter(wanted) {
        let mut reports: Vec<Vec<Report>> = vec![Vec::new(); KINDS.len()];
        for _ in 0..rounds {
            for (kind, reports) in KINDS.iter().zip(&mut reports) {
                let duration = Duration::from_secs(seconds);
                reports.push(measure(&dir.join(kind), named, kind, duration)?);
            }
        }
        let medians = reports
            .iter()
            .filter_map(|reports| median(reports.iter()))
            .collect::<Vec<_>>();
        say(&row(named, &medians)?)?;
    }
    std::fs::remove_dir(dir)?;
    Ok(())
}
