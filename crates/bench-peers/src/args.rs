//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use glintdb_bench::{Config, Durability, Workload, parse_count};

use crate::engines;
use crate::matrix::Cell;
use crate::preset;

/// GlintDB measured against its peers with one harness.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Program {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run workloads on engines, interleaved, and print a table of medians
    ///
    /// `--preset NAME` stands for a set of arguments; those given beside it win.
    #[command(after_help = format!("Presets:\n{}", preset::help()))]
    Run(Box<RunArgs>),
    /// Measure all rows of the page of figures, and write figures, pictures and page
    ///
    /// Writes figures.json and the pictures to --out, and the page beside that directory:
    /// `--out docs/figures` writes docs/figures/figures.json and docs/figures.md. A text lost.md in
    /// that directory becomes the section "What is lost, and why". The figures are saved after each
    /// row; a run that was cut off goes on with --resume.
    Report(Box<ReportArgs>),
    /// Kill a process that has put records, and time how long the next one needs to open them
    Recovery(Box<RecoveryArgs>),
    /// List the engines of this build
    Engines,
    /// Draw JSON lines of `run --json` as SVG, and write their tables
    ///
    /// Draws the rates of each combination as bars, the rates by second of runs of some seconds,
    /// and bytes written against space taken.
    Plot {
        /// Files of JSON lines
        #[arg(required = true)]
        lines: Vec<PathBuf>,
        /// Directory of the pictures, and of tables.md
        #[arg(long, default_value = "plots")]
        out: PathBuf,
    },
    /// Live until killed, or open what such a life left: what `recovery` starts, with its order as JSON
    #[command(hide = true)]
    Life {
        /// The order
        order: String,
    },
    /// Run one workload on one engine: what `run` starts, with its order as JSON
    #[command(hide = true)]
    One {
        /// The order
        order: String,
    },
}

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Engines, comma-separated (see `engines`); GlintDB's options may follow its name, as in
    /// glintdb:size_ratio=4:direct_io=off
    #[arg(long, value_delimiter = ',', default_values_t = engines::default_names(), value_parser = parse_engine)]
    pub(crate) engines: Vec<String>,
    /// Option of every GlintDB as NAME=VALUE, with a name of docs/options.md; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) glint: Vec<String>,
    /// Workloads, comma-separated, as of `glintdb bench`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillrandom,overwrite,readrandom,multireadrandom,seekrandom"
    )]
    pub(crate) workloads: Vec<Workload>,
    /// Records; k, m and g stand for powers of 1,000
    #[arg(long, default_value = "1m", value_parser = parse_count)]
    pub(crate) num: u64,
    /// Bytes of a key, at least 8
    #[arg(long, default_value_t = 16)]
    pub(crate) key_size: usize,
    /// Bytes of a value, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1024")]
    pub(crate) value_size: Vec<usize>,
    /// Threads, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,
    /// Records per commit in fills and overwrite, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(crate) batch_size: Vec<usize>,
    /// What each commit survives: buffered, os or sync, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "os")]
    pub(crate) durability: Vec<Durability>,
    /// Share of reads in readrandomwriterandom, percent
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(crate) read_percent: u64,
    /// Keys per request in multireadrandom
    #[arg(long, default_value_t = 64)]
    pub(crate) multiget_size: usize,
    /// Records per scan in seekrandom
    #[arg(long, default_value_t = 50)]
    pub(crate) scan_length: usize,
    /// Operations of workloads other than fills
    #[arg(long, value_parser = parse_count)]
    pub(crate) ops: Option<u64>,
    /// Seconds after which such a workload ends
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) duration: Option<Duration>,
    /// Seconds for which such a workload runs before it is measured
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) warmup: Option<Duration>,
    /// Operations that such a workload runs before it is measured; with --warmup, whichever ends
    /// first
    #[arg(long, value_parser = parse_count)]
    pub(crate) warmup_ops: Option<u64>,
    /// Runs of each combination; the table shows the median
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: usize,
    /// Memory for memtables and caches of each engine, MiB; with --limit-mb, of those that use the page cache too
    #[arg(long, default_value_t = 512)]
    pub(crate) memory_mb: u64,
    /// Memory for an engine and its page cache together, MiB: the rest of the machine's is locked away meanwhile.
    /// Implies --cold
    #[arg(long)]
    pub(crate) limit_mb: Option<u64>,
    /// Drop the data set from the page cache and read it once with O_DIRECT before each run, instead of reading every
    /// record once through the engine
    #[arg(long)]
    pub(crate) cold: bool,
    /// Directory of the data sets: on the disk that is to be measured
    #[arg(long, default_value = "bench-peers-data")]
    pub(crate) dir: PathBuf,
    /// Keep the data sets, to go on with them next time
    #[arg(long)]
    pub(crate) keep: bool,
    /// Fill data sets anew that an earlier run has kept and written to
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Seed of keys, values and operations
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print every run as a line of JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the engines' own statistics too
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Arguments of `report`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// Directory of the figures and the pictures
    #[arg(long, default_value = "target/figures")]
    pub(crate) out: PathBuf,
    /// Factor of records, operations, durations and memory; below 0.25 a smoke run without memory
    /// limits
    #[arg(long, default_value_t = 1.0, value_parser = parse_scale)]
    pub(crate) scale: f64,
    /// Runs of each row; the figures are the median's. Rows that take long run once
    #[arg(long, default_value_t = 3, value_parser = parse_repeat)]
    pub(crate) repeat: usize,
    /// Go on with the figures in --out: measure the rows that they lack
    #[arg(long)]
    pub(crate) resume: bool,
    /// Measure these rows alone, comma-separated; without --resume also those that are measured
    /// already
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Directory of the data sets: on the disk that is to be measured
    #[arg(long, default_value = "bench-peers-data")]
    pub(crate) dir: PathBuf,
    /// Print the rows with their commands and the time they take, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Measure nothing: write the pictures, the page and the README's table of this file of
    /// figures. The table goes between the lines `<!-- figures:begin -->` and `<!-- figures:end
    /// -->` of README.md where the file is in docs/figures, else to standard output
    #[arg(long, value_name = "FIGURES", conflicts_with_all = ["out", "scale", "repeat", "resume", "only", "dir", "list"])]
    pub(crate) render: Option<PathBuf>,
}

/// Arguments of `recovery`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecoveryArgs {
    /// Engines, comma-separated, as of `run`
    #[arg(long, value_delimiter = ',', default_values_t = engines::default_names(), value_parser = parse_engine)]
    pub(crate) engines: Vec<String>,
    /// Records; k, m and g stand for powers of 1,000
    #[arg(long, default_value = "60k", value_parser = parse_some)]
    pub(crate) num: u64,
    /// Bytes of a key
    #[arg(long, default_value_t = 16, value_parser = parse_key_size)]
    pub(crate) key_size: usize,
    /// Bytes of a value, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1024")]
    pub(crate) value_size: Vec<usize>,
    /// What each commit survives: buffered, os or sync
    #[arg(long, default_value = "os")]
    pub(crate) durability: Durability,
    /// Memory for memtables and caches of each engine, MiB
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..))]
    pub(crate) memory_mb: u64,
    /// Kills of each engine; the table shows the median
    #[arg(long, default_value_t = 3, value_parser = parse_repeat)]
    pub(crate) repeat: usize,
    /// Directory of the databases
    #[arg(long, default_value = "bench-peers-data")]
    pub(crate) dir: PathBuf,
    /// Seed of keys, values and their order
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl RunArgs {
    /// Whether these make sense together, in words if not.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.cold |= self.limit_mb.is_some();
        for engine in &mut self.engines {
            *engine = engines::with_options(engine, &self.glint);
            engines::check(engine)?;
        }
        if self.num == 0 || self.num > 1 << 48 {
            return Err("--num must be 1 to 2^48".to_owned());
        }
        if self.key_size < glintdb_bench::keys::KEY_SIZE_MIN {
            return Err("--key-size must be at least 8".to_owned());
        }
        let positive = [&self.threads, &self.batch_size]
            .into_iter()
            .flatten()
            .all(|&n| n > 0);
        if !positive || self.multiget_size == 0 || self.repeat == 0 {
            return Err(
                "threads, batch and multi-get sizes and repetitions must be at least 1".to_owned(),
            );
        }
        if self.memory_mb < 16 {
            return Err("--memory-mb must be at least 16".to_owned());
        }
        if self.limit_mb.is_some_and(|limit| limit <= self.memory_mb) {
            return Err(
                "--limit-mb must exceed --memory-mb: the engine's own memory is in it".to_owned(),
            );
        }
        Ok(())
    }

    /// Every combination, in the order in which they run. Batch sizes multiply only workloads that have batches,
    /// durabilities only those that write.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &value_size in &self.value_size {
            for &workload in &self.workloads {
                let batches = workload.is_fill() || workload == Workload::Overwrite;
                let batch_sizes = if batches { &self.batch_size[..] } else { &[1] };
                let levels = if workload.writes() {
                    &self.durability[..]
                } else {
                    &self.durability[..1]
                };
                for &durability in levels {
                    for &batch_size in batch_sizes {
                        for &threads in &self.threads {
                            cells.push(Cell {
                                workload,
                                config: self.config(value_size, durability, batch_size, threads),
                            });
                        }
                    }
                }
            }
        }
        cells
    }

    fn config(
        &self,
        value_size: usize,
        durability: Durability,
        batch_size: usize,
        threads: usize,
    ) -> Config {
        Config {
            num: self.num,
            key_size: self.key_size,
            value_size,
            threads,
            batch_size,
            read_percent: self.read_percent,
            multiget_size: self.multiget_size,
            scan_length: self.scan_length,
            ops: self.ops,
            duration: self.duration,
            warmup: self.warmup,
            warmup_ops: self.warmup_ops,
            durability,
            seed: self.seed,
            ..Config::default()
        }
    }
}

fn parse_engine(text: &str) -> Result<String, String> {
    engines::check(text).map(|()| text.to_owned())
}

fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        num if (1..=1 << 48).contains(&num) => Ok(num),
        num => Err(format!("{num} is not among 1 to 2^48")),
    }
}

fn parse_key_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes >= glintdb_bench::keys::KEY_SIZE_MIN => Ok(bytes),
        _ => Err(format!("`{text}` is not a number of at least 8")),
    }
}

fn parse_repeat(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a number of at least 1")),
        Ok(repeat) => Ok(repeat),
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if scale > 0.0 && scale <= 100.0 => Ok(scale),
        _ => Err(format!("`{text}` is not a number above 0 and at most 100")),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> RunArgs {
        let words = ["bench-peers", "run"]
            .into_iter()
            .chain(line.split_whitespace());
        match Program::try_parse_from(words).unwrap().command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn combinations_multiply_only_where_they_mean_something() {
        let args = parse(
            "--workloads fillrandom,readrandom,ycsb-a --value-size 100,1024 --threads 1,8 --batch-size 1,100 \
             --durability os,sync",
        );
        let cells = args.cells();
        // Each value size: 2 x 2 x 2 fills, 2 reads, 2 x 2 YCSB A.
        assert_eq!(cells.len(), 2 * (8 + 2 + 4));
        assert!(cells.iter().any(|cell| cell.config.batch_size == 100));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--num 0",
            "--key-size 4",
            "--threads 0",
            "--repeat 0",
            "--limit-mb 512",
            "--memory-mb 8",
            "--glint size_ration=4",
        ] {
            assert!(parse(line).check().is_err(), "{line}");
        }
        let mut args =
            parse("--limit-mb 1200 --engines glintdb:direct_io=off,glintdb --glint size_ratio=4");
        args.check().unwrap();
        assert_eq!(
            args.engines,
            ["glintdb:size_ratio=4:direct_io=off", "glintdb:size_ratio=4"]
        );
        assert!(args.cold);
    }
}
