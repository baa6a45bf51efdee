//! The command line of `bench`: arguments, and running them on a store with the results printed as they come.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::report::Report;
use crate::run::{Config, Contents, Runner};
use crate::store::{Durability, Result, Store};
use crate::volume::VolumeName;
use crate::workload::Workload;
use glintdb::Placement;

/// Arguments of `glintdb bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Workloads, comma-separated, run in this order on one database. Of db_bench: fillseq
    /// fillrandom overwrite readrandom readmissing multireadrandom seekrandom readwhilewriting
    /// readrandomwriterandom deleterandom compact. Of YCSB: load a b c d e f. Others:
    /// compactvalues, which puts values in key order; warmup, which reads each record once; queue,
    /// which puts records at one end and takes them from the other; window, which deletes the
    /// oldest record for each new one; rangedelete, half gets and half deletions of ranges;
    /// awhilecompacting, YCSB a beside one compactvalues. With records of their own, which they put
    /// and then read: longkeys, whose keys share all but their last 20 bytes; manykeyspaces
    #[arg(
        long,
        visible_alias = "benchmarks",
        value_delimiter = ',',
        default_value = "fillrandom,overwrite,readrandom,multireadrandom,seekrandom,deleterandom"
    )]
    pub workloads: Vec<Workload>,
    /// Number of records; k, m and g are powers of 1000
    #[arg(long, default_value = "1m", value_parser = parse_num)]
    pub num: u64,
    /// Size of a key in bytes, at least 8
    #[arg(long, default_value_t = 16, value_parser = parse_key_size)]
    pub key_size: usize,
    /// Size of a value in bytes, about half of it compressible; 1k is 1000
    #[arg(long, default_value = "100", value_parser = parse_size)]
    pub value_size: usize,
    /// Number of threads
    #[arg(long, default_value_t = 1, value_parser = parse_positive)]
    pub threads: usize,
    /// Records per commit in fills and overwrite
    #[arg(long, default_value_t = 1, value_parser = parse_positive)]
    pub batch_size: usize,
    /// Percentage of reads in readrandomwriterandom
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub read_percent: u64,
    /// Keys per request in multireadrandom
    #[arg(long, default_value_t = 64, value_parser = parse_positive)]
    pub multiget_size: usize,
    /// Records per scan in seekrandom and longkeys
    #[arg(long, default_value = "50", value_parser = parse_size)]
    pub scan_length: usize,
    /// Number of keyspaces in manykeyspaces
    #[arg(long, default_value_t = 300, value_parser = parse_positive)]
    pub keyspaces: usize,
    /// Operations per workload, except fills and the puts of longkeys and manykeyspaces [default:
    /// --num, a tenth of it for scans; unlimited with --duration]
    #[arg(long, value_parser = parse_count)]
    pub ops: Option<u64>,
    /// Stop each workload, except fills, after this many seconds
    #[arg(long, value_parser = parse_seconds)]
    pub duration: Option<Duration>,
    /// Run each workload, except fills, for this many seconds before measuring
    #[arg(long, value_parser = parse_seconds)]
    pub warmup: Option<Duration>,
    /// Run this many operations before measuring; with --warmup, until the first of both ends
    #[arg(long, value_parser = parse_count)]
    pub warmup_ops: Option<u64>,
    /// Durability of writes: os survives a killed process, sync also a power cut, buffered neither
    #[arg(long, default_value_t = Durability::Os)]
    pub durability: Durability,
    /// Seed of keys, values and operations; the same seed gives the same run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory of the database, kept afterwards [default: a temporary one in the current directory]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Reuse the database in --dir; --num, sizes and --seed must be those of the run that made it
    #[arg(long, requires = "dir")]
    pub use_existing: bool,
    /// Before each workload, drop the database's files from the page cache, and read them once past
    /// it, so that the host of a virtual disk has them all.
    #[arg(long)]
    pub cold: bool,
    /// Memory budget in MiB [default: the engine's own default]
    #[arg(long)]
    pub memory_mb: Option<u64>,
    /// Kind of index of the measured keyspace: lsm, btree or btree-reshaped. Default: lsm.
    #[arg(long, value_name = "KIND")]
    pub index: Option<String>,
    /// Set an option of docs/options.md, such as size_ratio=4 or direct_io=off. May be given
    /// several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub option: Vec<String>,
    /// Run on several directories, dirs:PATH,PATH, which are kept afterwards; or on a modelled
    /// flash device, as slow as a real one: emulator:PROFILE (the bytes are in memory) or
    /// emulator:PROFILE:DIR (in a directory). docs/flash.md lists profiles.
    #[arg(long, value_name = "VOLUME", conflicts_with_all = ["dir", "cold", "use_existing"])]
    pub volume: Option<VolumeName>,
    /// Which directories, or units of the device, files use: striping (all), isolation:1:1 (units
    /// of their own for the log and for tables, in this proportion), isolation:3:3:2 (for the log,
    /// for tables of flushes, and for deeper tables), another rule of docs/flash.md, or, on a
    /// modelled device, dynamic (striping or isolation, by the load).
    #[arg(long, requires = "volume", default_value = "striping")]
    pub placement: Placement,
    /// Put the paper's table of reshaped keys in front of the database: inserts get ascending
    /// numbers, and a table in memory has the number of each key.
    #[arg(long)]
    pub reshape_model: bool,
    /// Print the engine's own statistics at the end
    #[arg(long)]
    pub engine_stats: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    /// The part of the arguments that describes the workloads.
    #[must_use]
    pub fn config(&self) -> Config {
        Config {
            num: self.num,
            key_size: self.key_size,
            value_size: self.value_size,
            threads: self.threads,
            batch_size: self.batch_size,
            read_percent: self.read_percent,
            multiget_size: self.multiget_size,
            scan_length: self.scan_length,
            ops: self.ops,
            duration: self.duration,
            warmup: self.warmup,
            warmup_ops: self.warmup_ops,
            durability: self.durability,
            seed: self.seed,
            keyspaces: self.keyspaces,
        }
    }
}

/// Runs `args.workloads` on `store` and writes a table (each row as soon as it is known) or a JSON object to
/// `out`. Returns whether every answer of the store was right.
///
/// # Errors
/// If the store or writing to `out` fails.
pub fn run_on(store: &dyn Store, args: &BenchArgs, out: &mut dyn Write) -> Result<bool> {
    let config = args.config();
    let mut runner = Runner::new(store, config.clone(), Contents::default());
    let mut reports: Vec<Report> = Vec::with_capacity(args.workloads.len());
    if !args.json {
        writeln!(
            out,
            "{}: {} records of {} + {} B, batches of {}, durability {}, seed {}",
            store.engine(),
            config.num,
            config.key_size,
            config.value_size,
            config.batch_size,
            config.durability,
            config.seed
        )?;
        writeln!(out, "{}", Report::header())?;
        out.flush()?;
    }
    for workload in &args.workloads {
        if args.cold {
            glintdb_flash::make_cold(store.dir())?;
        }
        let report = runner.run(*workload)?;
        if !args.json {
            writeln!(out, "{}", report.row())?;
            out.flush()?;
        }
        reports.push(report);
    }
    let correct = reports.iter().all(Report::is_correct);
    let engine_stats = args.engine_stats.then(|| store.describe()).flatten();
    if args.json {
        let object = serde_json::json!({
            "engine": store.engine(),
            "config": config,
            "correct": correct,
            "results": reports,
            "engine_stats": engine_stats,
            "units": store.units(),
        });
        serde_json::to_writer_pretty(&mut *out, &object)?;
        writeln!(out)?;
    } else {
        writeln!(
            out,
            "bytes written, CPU and memory include flushing and compaction after the last operation; \
             w-amp: bytes written per user byte; space: disk use at the end per live user byte, \
             most: at any moment; \
             others: share of the machine that other processes took"
        )?;
        if let Some(stats) = engine_stats {
            writeln!(out, "{stats}")?;
        }
    }
    Ok(correct)
}

/// A number with `_` between digits and a suffix k, m or g (powers of 1,000) if wished.
///
/// # Errors
/// If `text` is anything else, or too large.
pub fn parse_count(text: &str) -> std::result::Result<u64, String> {
    let clean = text.replace('_', "").to_ascii_lowercase();
    let (digits, factor) = match clean.as_bytes().last() {
        Some(b'k') => (&clean[..clean.len() - 1], 1_000),
        Some(b'm') => (&clean[..clean.len() - 1], 1_000_000),
        Some(b'g') => (&clean[..clean.len() - 1], 1_000_000_000),
        _ => (clean.as_str(), 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is not a count such as 5000, 100k or 2m"))
}

fn parse_num(text: &str) -> std::result::Result<u64, String> {
    parse_count(text).and_then(|num| {
        if (1..=1 << 48).contains(&num) {
            Ok(num)
        } else {
            Err("records must be 1 to 2^48".to_owned())
        }
    })
}

fn parse_size(text: &str) -> std::result::Result<usize, String> {
    let size = parse_count(text)?;
    usize::try_from(size).map_err(|_| format!("`{text}` is too much"))
}

fn parse_positive(text: &str) -> std::result::Result<usize, String> {
    match parse_count(text)?.try_into() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("must be at least 1".to_owned()),
    }
}

fn parse_key_size(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(size) if (crate::keys::KEY_SIZE_MIN..=65_536).contains(&size) => Ok(size),
        _ => Err("a key has 8 to 65536 bytes".to_owned()),
    }
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> std::result::Result<BenchArgs, String> {
        Program::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
            .map(|program| program.bench)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = parse("").unwrap().config();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn arguments_reach_the_configuration() {
        let args = parse(
            "--workloads load,a,ycsb-f --num 2_500k --key-size 24 --value-size 1000 --threads 8 --batch-size 100 \
             --read-percent 50 --durability sync --seed 7 --duration 1.5 --keyspaces 2000 --json",
        )
        .unwrap();
        assert_eq!(args.workloads, [Workload::Load, Workload::A, Workload::F]);
        assert!(args.json);
        let config = args.config();
        assert_eq!((config.num, config.key_size), (2_500_000, 24));
        assert_eq!(config.duration, Some(Duration::from_millis(1500)));
        assert_eq!(config.durability, Durability::Sync);
        assert_eq!(config.keyspaces, 2000);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, word) in [
            ("--num 0", "records must be"),
            ("--num x", "not a count"),
            ("--num 99999999999g", "not a count"),
            ("--key-size 7", "8 to 65536"),
            ("--threads 0", "at least 1"),
            ("--read-percent 101", "101"),
            ("--duration -1", "negative"),
            ("--workloads fillrandon", "unknown workload"),
            ("--durability fsync", "unknown durability"),
            ("--use-existing", "--dir"),
        ] {
            let error = parse(&line.replace("n -1", "n=-1")).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
