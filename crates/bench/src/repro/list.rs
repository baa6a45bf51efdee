//! Every figure and table of the papers that has measurements.

use super::{Comparison, dapdb};
use crate::store::Result;

/// How a figure is run here.
#[derive(Clone, Copy)]
pub enum How {
    /// In the time of a model.
    Model(fn(&Figure, bool) -> Result<Comparison>),
    /// In virtual time, which this build does not have (`--cfg virtual_time`).
    VirtualTime,
    /// By a command that measures this machine, whose results are on a page of the docs.
    Command {
        /// The command, without its options.
        command: &'static str,
        /// The page.
        page: &'static str,
    },
    /// Not at all: it needs something that is not there.
    Missing(&'static str),
}

/// A figure or table of a paper.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Short name of the paper.
    pub paper: &'static str,
    /// Its number, such as `4`; tables have a `t` in front.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// How it is run here.
    pub how: How,
}

/// The papers: short name and title.
pub const PAPERS: [(&str, &str); 5] = [
    (
        "dapdb",
        "DapDB: Cutting Latency in Key-Value Store with Dynamic Arrangement of Internal Parallelism in SSD",
    ),
    (
        "p-fetch",
        "Boosting Compaction in B-Tree Based Key-Value Store by Exploiting Parallel Reads in Flash SSDs",
    ),
    (
        "key-reshaping",
        "Optimizing Key-Value Stores for Flash-Based SSDs via Key Reshaping",
    ),
    ("lsm-kvd", "LSM-Tree-Based Key-Value SSDs"),
    (
        "parallel-compaction",
        "Improving Performance of Key–Value Stores for High-Performance Storage Devices",
    ),
];

const fn figure(
    paper: &'static str,
    number: &'static str,
    title: &'static str,
    how: How,
) -> Figure {
    Figure {
        paper,
        number,
        title,
        how,
    }
}

const P_FETCH: How = How::Command {
    command: "glintdb bench --workloads fillrandom,compactvalues",
    page: "docs/papers/p-fetch.md",
};
const RESHAPING: How = How::Command {
    command: "bench-peers run",
    page: "docs/papers/key-reshaping.md",
};

/// A figure of the engine in virtual time, if this build has it.
#[cfg(virtual_time)]
macro_rules! virtual_time {
    ($run:path) => {
        How::Model($run)
    };
}
#[cfg(not(virtual_time))]
macro_rules! virtual_time {
    ($run:path) => {
        How::VirtualTime
    };
}

const KEY_VALUE_SSD: How = How::Missing("a key-value SSD on the modelled device");
const HELPING: How = How::Command {
    command: "bench-peers run --preset ablation-help",
    page: "docs/decisions/011-helping.md",
};

/// The figures and tables, in the order of the papers.
pub const FIGURES: [Figure; 42] = [
    figure(
        "dapdb",
        "2",
        "reads and writes beside each other on a commercial drive",
        How::Missing("a drive of its own; `fio` measures it"),
    ),
    figure(
        "dapdb",
        "4",
        "what isolation brings readers and writers, by the width of virtual blocks",
        How::Model(dapdb::figure_4),
    ),
    figure(
        "dapdb",
        "rule",
        "proportion of units of the groups (section IV: \"through various experiments\")",
        virtual_time!(dapdb::engine::rules),
    ),
    figure(
        "dapdb",
        "6a",
        "throughput by the share of reads",
        virtual_time!(dapdb::engine::figure_6a),
    ),
    figure(
        "dapdb",
        "6b",
        "mean latency of reads by their share",
        virtual_time!(dapdb::engine::figure_6b),
    ),
    figure(
        "dapdb",
        "7",
        "mean latency of reads by level",
        virtual_time!(dapdb::engine::figure_7),
    ),
    figure(
        "dapdb",
        "8",
        "latency of the slowest 1 % of reads by level",
        virtual_time!(dapdb::engine::figure_8),
    ),
    figure(
        "dapdb",
        "9",
        "throughput while the workload changes",
        virtual_time!(dapdb::engine::figure_9),
    ),
    figure(
        "p-fetch",
        "2",
        "share of each step of a compaction",
        P_FETCH,
    ),
    figure(
        "p-fetch",
        "4",
        "time of a compaction, SATA drive, direct I/O",
        P_FETCH,
    ),
    figure(
        "p-fetch",
        "5",
        "time of a compaction, NVMe drive, direct I/O",
        P_FETCH,
    ),
    figure(
        "p-fetch",
        "6",
        "time of a compaction, SATA drive, buffered I/O",
        P_FETCH,
    ),
    figure(
        "p-fetch",
        "7",
        "time of a compaction, NVMe drive, buffered I/O",
        P_FETCH,
    ),
    figure("p-fetch", "8", "updates while a compaction runs", P_FETCH),
    figure(
        "p-fetch",
        "9",
        "time of reads by the size of batches",
        P_FETCH,
    ),
    figure("p-fetch", "10", "reads by the kernel's read-ahead", P_FETCH),
    figure(
        "key-reshaping",
        "1",
        "B+tree and LSM tree of WiredTiger",
        RESHAPING,
    ),
    figure(
        "key-reshaping",
        "8",
        "inserts by threads, SATA drive",
        RESHAPING,
    ),
    figure(
        "key-reshaping",
        "9",
        "inserts by threads, NVMe drive",
        RESHAPING,
    ),
    figure("key-reshaping", "10", "latency of inserts", RESHAPING),
    figure("key-reshaping", "11", "YCSB, SATA drive", RESHAPING),
    figure("key-reshaping", "12", "YCSB, NVMe drive", RESHAPING),
    figure("key-reshaping", "13", "sysbench", How::Missing("MongoDB")),
    figure(
        "key-reshaping",
        "14",
        "inserts on F2FS",
        How::Missing("a file system F2FS"),
    ),
    figure(
        "key-reshaping",
        "15",
        "size of the table by the size of values",
        RESHAPING,
    ),
    figure(
        "key-reshaping",
        "t1",
        "time of each step of inserts",
        RESHAPING,
    ),
    figure(
        "key-reshaping",
        "t2",
        "time of each step of updates",
        RESHAPING,
    ),
    figure("lsm-kvd", "1", "key-value SSD and block SSD", KEY_VALUE_SSD),
    figure(
        "lsm-kvd",
        "4",
        "reads and writes by height and pinned levels",
        How::Command {
            command: "glintdb advise --capacity 64G --key-size 32 --value-size 1024 --plot shapes.svg",
            page: "docs/decisions/017-advise.md",
        },
    ),
    figure(
        "lsm-kvd",
        "5",
        "memory by height and pinned levels",
        KEY_VALUE_SSD,
    ),
    figure(
        "lsm-kvd",
        "7",
        "reads and sorting in a compaction",
        KEY_VALUE_SSD,
    ),
    figure(
        "lsm-kvd",
        "9",
        "throughput of key-value SSDs",
        KEY_VALUE_SSD,
    ),
    figure(
        "lsm-kvd",
        "10",
        "reads of a lookup, cost of compactions",
        KEY_VALUE_SSD,
    ),
    figure(
        "lsm-kvd",
        "11",
        "distribution of the latency of reads",
        KEY_VALUE_SSD,
    ),
    figure(
        "lsm-kvd",
        "12",
        "throughput by the number of keys",
        KEY_VALUE_SSD,
    ),
    figure("lsm-kvd", "13", "cost of garbage collection", KEY_VALUE_SSD),
    figure(
        "lsm-kvd",
        "14",
        "throughput and latency by the shape of the tree",
        KEY_VALUE_SSD,
    ),
    figure(
        "lsm-kvd",
        "t1",
        "reads of a lookup: cache, filters, pinned levels",
        How::Command {
            command: "glintdb bench --workloads fillrandom,readrandom --engine-stats",
            page: "docs/decisions/012-pinned-levels.md",
        },
    ),
    figure(
        "lsm-kvd",
        "t3",
        "mean latency and slowest operations",
        KEY_VALUE_SSD,
    ),
    figure(
        "parallel-compaction",
        "2",
        "RocksDB by numbers of threads",
        HELPING,
    ),
    figure(
        "parallel-compaction",
        "4",
        "two drives, 1 to 16 threads",
        HELPING,
    ),
    figure(
        "parallel-compaction",
        "5",
        "numbers of compaction threads",
        HELPING,
    ),
];

/// The figures of a paper.
///
/// # Errors
/// There is no such paper; the text names those that there are.
pub fn figures_of(paper: &str) -> Result<Vec<Figure>> {
    let of_paper = FIGURES.iter().filter(|figure| figure.paper == paper);
    let figures: Vec<Figure> = of_paper.copied().collect();
    if figures.is_empty() {
        let names: Vec<&str> = PAPERS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no paper {paper:?}; there are: {}", names.join(", ")).into());
    }
    Ok(figures)
}

/// A figure by the names of its paper and itself.
///
/// # Errors
/// There is no such paper or figure; the text names those that there are.
pub fn find(paper: &str, number: &str) -> Result<Figure> {
    let figures = figures_of(paper)?;
    match figures.iter().find(|figure| figure.number == number) {
        Some(figure) => Ok(*figure),
        None => {
            let numbers: Vec<&str> = figures.iter().map(|figure| figure.number).collect();
            let what = format!(
                "{paper} has no figure {number:?}; it has: {}",
                numbers.join(", ")
            );
            Err(what.into())
        }
    }
}
