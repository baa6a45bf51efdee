//! One workload on one engine in a process of its own, so that memory, CPU and bytes written are the engine's alone.
//!
//! The parent passes an [`Order`] as an argument and reads an [`Answer`] from standard output, both as JSON.

use std::io::Write;
use std::path::PathBuf;

use glintdb_bench::{Config, Contents, Report, Result, Runner, Workload};
use serde::{Deserialize, Serialize};

use crate::engines::{self, Setup};

/// What to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) engine: String,
    pub(crate) dir: PathBuf,
    pub(crate) memory_bytes: u64,
    pub(crate) config: Config,
    pub(crate) contents: Contents,
    pub(crate) workload: String,
    /// Read every record once before measuring.
    pub(crate) warm: bool,
    /// Print the engine's own statistics to standard error afterwards.
    pub(crate) verbose: bool,
}

/// What came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) report: Report,
    pub(crate) contents: Contents,
}

/// Carries out an order given as JSON and prints the answer.
///
/// # Errors
/// If the order is not one, or the engine fails.
pub(crate) fn run(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let workload: Workload = order.workload.parse()?;
    // If memory runs out, this process is to go. Best effort.
    drop(std::fs::write("/proc/self/oom_score_adj", "900"));
    let config = &order.config;
    let setup = Setup {
        memory_bytes: order.memory_bytes,
        data_bytes: config.num * (config.key_size + config.value_size) as u64,
        durability: config.durability,
    };
    let store = engines::open(&order.engine, &order.dir, setup)?;
    let mut runner = Runner::new(store.as_ref(), order.config, order.contents);
    if order.warm {
        runner.run(Workload::Warmup)?;
    }
    let answer = Answer {
        report: runner.run(workload)?,
        contents: runner.contents(),
    };
    if order.verbose
        && let Some(text) = store.describe()
    {
        writeln!(std::io::stderr(), "{text}")?;
    }
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &answer)?;
    writeln!(out)?;
    Ok(())
}
