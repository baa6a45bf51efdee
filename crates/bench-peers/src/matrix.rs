//! Runs every combination of the arguments with the engines in turn: for each workload, value size
//! and number of threads every engine runs once, in another order each time, before any runs again.
//!
//! Invariants:
//! 1. A workload other than a fill runs on a data set that `fillrandom` filled and settled.
//! 2. Each run is a process of its own ([`one`](crate::one)).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use glintdb_bench::{Config, Contents, Durability, Report, Result, Workload, bytes};
use serde::{Deserialize, Serialize};

use crate::args::RunArgs;
use crate::balloon::Balloon;
use crate::engines;
use crate::host::remove;
use crate::one::{Answer, Order};

/// Records per commit when a data set is only prepared.
const PREPARE_BATCH: usize = 100;

/// A data set that inserts have made larger by more than one part in this many is filled anew. A
/// fast engine inserts more in the same time, and would soon be measured on more data than others.
const GROWN_MAX: u64 = 10;

/// What is known of a data set, kept beside it in a file.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct DataSet {
    contents: Contents,
    random_order: bool,
    /// Nothing was written since it was compacted.
    #[serde(default)]
    compacted: bool,
    /// A workload has written to it since it was filled for reading.
    #[serde(default)]
    written: bool,
}

/// One cell of the matrix: everything but engine and repetition.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) workload: Workload,
    pub(crate) config: Config,
}

/// Runs everything and hands the reports of each cell to `done`; with `--json` each report is also
/// printed as a line, as soon as it is there.
///
/// Returns whether every engine answered rightly.
///
/// # Errors
/// If a run fails as a process, files or memory cannot be had, or `done` fails.
pub(crate) fn run(args: &RunArgs, done: &mut dyn FnMut(&[Report]) -> Result<()>) -> Result<bool> {
    let mut matrix = Matrix {
        args,
        balloon: None,
    };
    if args.fresh {
        for dir in data_sets(args) {
            if state(&dir)?.is_none_or(|set| set.written) {
                remove(&dir)?;
            }
        }
    }
    let mut all_correct = true;
    for cell in args.cells() {
        let mut reports = Vec::new();
        if !cell.workload.is_fill() {
            // All before the first run, so that the memory limit is put up once.
            for engine in &args.engines {
                let dir = data_set(args, engine, cell.config.value_size);
                matrix.prepare(engine, &dir, &cell)?;
            }
        }
        for repetition in 0..args.repeat {
            for place in 0..args.engines.len() {
                let engine = &args.engines[(place + repetition) % args.engines.len()];
                let report = matrix.measure(engine, &cell)?;
                progress(&format!("{engine} {repetition}: {}", report.row()))?;
                if args.json {
                    let mut out = std::io::stdout().lock();
                    serde_json::to_writer(&mut out, &report)?;
                    writeln!(out)?;
                }
                all_correct &= report.is_correct();
                reports.push(report);
            }
        }
        done(&reports)?;
    }
    if !args.keep {
        remove_data(args)?;
    }
    Ok(all_correct)
}

/// Removes the data sets that a run with these arguments leaves with `--keep`.
///
/// # Errors
/// If one is there and cannot be removed.
pub(crate) fn remove_data(args: &RunArgs) -> Result<()> {
    data_sets(args).iter().try_for_each(|dir| remove(dir))
}

/// Directory of the data set of an engine and a size of values.
fn data_set(args: &RunArgs, engine: &str, value_size: usize) -> PathBuf {
    args.dir.join(format!(
        "{engine}-{}-{}-{value_size}-{}",
        args.num, args.key_size, args.seed
    ))
}

fn data_sets(args: &RunArgs) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for engine in &args.engines {
        for &value_size in &args.value_size {
            dirs.push(data_set(args, engine, value_size));
        }
    }
    dirs
}

struct Matrix<'a> {
    args: &'a RunArgs,
    balloon: Option<Balloon>,
}

impl Matrix<'_> {
    /// Prepares what the workload needs, runs it, and notes the state of the data set.
    fn measure(&mut self, engine: &str, cell: &Cell) -> Result<Report> {
        let dir = data_set(self.args, engine, cell.config.value_size);
        let mut set = if cell.workload.is_fill() {
            remove(&dir)?;
            DataSet::default()
        } else {
            self.prepare(engine, &dir, cell)?
        };
        fs::create_dir_all(&dir)?;
        // A run that is broken off leaves no data set that looks whole.
        remove(&state_file(&dir))?;
        self.limit(&dir, cell.workload)?;
        let order = self.order(engine, &dir, cell, set.contents);
        let answer = self.spawn(&order)?;
        if cell.workload.deletes() {
            remove(&dir)?;
            return Ok(answer.report);
        }
        set.contents = answer.contents;
        if cell.workload.writes() {
            set.written = true;
            set.compacted = cell.workload.is_compaction();
        }
        if cell.workload.is_fill() {
            set.random_order = cell.workload != Workload::FillSeq;
        }
        fs::write(state_file(&dir), serde_json::to_vec(&set)?)?;
        Ok(answer.report)
    }

    /// Fills a data set in random order, unless there is one of about the right size; a compaction
    /// also needs one that has been written to since the last compaction.
    fn prepare(&mut self, engine: &str, dir: &Path, cell: &Cell) -> Result<DataSet> {
        let config = &cell.config;
        if let Some(set) = state(dir)? {
            let grown = set.contents.inserted > config.num / GROWN_MAX;
            let idle = set.compacted && cell.workload.is_compaction();
            if set.random_order && !grown && !idle {
                return Ok(set);
            }
        }
        progress(&format!("{engine}: filling {}", dir.display()))?;
        remove(dir)?;
        fs::create_dir_all(dir)?;
        // Never under the limit: loading is prepared here, not measured.
        self.balloon = None;
        let cell = Cell {
            workload: Workload::FillRandom,
            config: Config {
                threads: 1,
                batch_size: PREPARE_BATCH,
                durability: Durability::Os,
                ..config.clone()
            },
        };
        let order = self.order(engine, dir, &cell, Contents::default());
        let answer = self.spawn(&order)?;
        if !answer.report.is_correct() {
            return Err(format!(
                "{engine} lost records while filling: {}",
                answer.report.row()
            )
            .into());
        }
        let set = DataSet {
            contents: answer.contents,
            random_order: true,
            ..DataSet::default()
        };
        fs::write(state_file(dir), serde_json::to_vec(&set)?)?;
        Ok(set)
    }

    /// Puts the memory limit in place, if one is asked for, and the data set out of the page cache.
    fn limit(&mut self, dir: &Path, workload: Workload) -> Result<()> {
        if self.args.cold && !workload.is_fill() {
            let read = glintdb_bench::make_cold(dir)?;
            progress(&format!(
                "read {} of {} with O_DIRECT",
                bytes(read),
                dir.display()
            ))?;
        }
        if let Some(limit_mb) = self.args.limit_mb {
            match &self.balloon {
                Some(balloon) => balloon.wait()?,
                None => self.balloon = Some(Balloon::inflate(limit_mb << 20)?),
            }
        }
        Ok(())
    }

    fn order(&self, engine: &str, dir: &Path, cell: &Cell, contents: Contents) -> Order {
        let reads = !matches!(cell.workload, Workload::Overwrite | Workload::Warmup)
            && !cell.workload.deletes()
            && !cell.workload.is_fill()
            && !cell.workload.is_compaction();
        Order {
            engine: engine.to_owned(),
            dir: dir.join("db"),
            memory_bytes: engines::budget_bytes(
                engine,
                self.args.memory_mb << 20,
                self.args.limit_mb.map(|limit| limit << 20),
            ),
            config: cell.config.clone(),
            contents,
            workload: cell.workload.name().to_owned(),
            warm: reads && !self.args.cold,
            verbose: self.args.verbose,
        }
    }

    fn spawn(&self, order: &Order) -> Result<Answer> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("one")
            .arg(serde_json::to_string(order)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let child = command.spawn()?;
        if let Some(balloon) = &self.balloon {
            balloon.set_engine(child.id());
        }
        let output = child.wait_with_output()?;
        if let Some(balloon) = &self.balloon {
            balloon.set_engine(0);
        }
        if !output.status.success() {
            return Err(format!("{} {}: {}", order.engine, order.workload, output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// What is known of the data set in `dir`; `None` where there is no whole one.
fn state(dir: &Path) -> Result<Option<DataSet>> {
    match fs::read(state_file(dir)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(_) => Ok(None),
    }
}

fn state_file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

fn progress(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "{line}")?)
}
