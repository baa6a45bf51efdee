//! The figures of many measurements: a JSON file, and the page and the table made from it.
//!
//! The program that measures fills [`Figures`] and saves them after each row. [`Figures::page`] and
//! [`Figures::readme_table`] make Markdown from the file alone, so that a test can hold the page to
//! the file without running anything. Every text that names an engine comes from the file.
//!
//! Invariants:
//! 1. All rows of a file are from one commit, one machine and one scale ([`Run::same_as`]).
//! 2. The same file always gives the same text.

mod page;
mod readme;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::report::{Report, median};
use crate::store::Result;

pub use page::{Picture, PictureKind};
pub use readme::{README_BEGIN, README_END, readme_with};

/// Name of the file in its directory.
pub const FIGURES_FILE: &str = "figures.json";

/// Scale below which a run only shows that the program works.
pub const SMOKE_SCALE_MAX: f64 = 0.25;

/// All figures of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figures {
    /// Where, when and from which sources the rows were measured.
    pub run: Run,
    /// Headings of the page, in its order.
    pub topics: Vec<Topic>,
    /// The rows, in the order of the page.
    pub rows: Vec<Row>,
}

/// Where, when and from which sources rows were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// Commit of the sources, or `unknown` outside a repository.
    pub commit: String,
    /// Whether the sources differed from that commit.
    pub dirty: bool,
    /// Day on which the run began, as `2026-11-27`.
    pub date: String,
    /// Factor of all sizes and durations; 1 is full.
    pub scale: f64,
    /// Runs of each row, but for rows that say otherwise.
    pub repeat: usize,
    /// Identifier of the engine that ratios are to.
    pub baseline: String,
    /// Identifier of the engine whose rows are won or lost.
    pub subject: String,
    /// The engines, in the order of columns and colours.
    pub engines: Vec<Engine>,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that the program may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Kind of the file system of the data.
    pub file_system: String,
    /// The block device below it.
    pub disk: String,
}

/// An engine as texts name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Name in reports and on command lines.
    pub id: String,
    /// Name in prose and in titles of columns.
    pub name: String,
    /// Version.
    pub version: String,
    /// Whether it has a column in the README's table.
    pub readme: bool,
}

/// A heading of the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// The heading.
    pub title: String,
    /// A paragraph below it.
    pub about: String,
}

/// One row: the same work done by several engines in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Unique name.
    pub name: String,
    /// What is not measured: texts and what to make of the numbers.
    #[serde(flatten)]
    pub label: Label,
    /// Command that measures this row, and nothing else.
    pub command: String,
    /// Seconds that measuring took, preparing the data included.
    pub seconds: f64,
    /// Results of workloads, in the order in which engines were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
    /// Results of opening after a kill.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Opened>,
}

/// What a row says besides its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Title of the [`Topic`] that the row belongs to.
    pub topic: String,
    /// The work, in a few words.
    pub title: String,
    /// Whether the rate is that of the second half of the seconds measured, and is drawn by second.
    #[serde(default)]
    pub sustained: bool,
    /// Name of the row that does the same for long, where this one is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Whether bytes written are drawn against space taken.
    #[serde(default)]
    pub curve: bool,
    /// Whether the README's table has the row.
    #[serde(default)]
    pub readme: bool,
}

/// What one engine did in a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// The run with the median rate, so that its figures belong together.
    pub report: Report,
    /// Number of runs.
    pub runs: usize,
    /// Lowest rate of all runs.
    pub ops_per_s_min: f64,
    /// Highest rate of all runs.
    pub ops_per_s_max: f64,
}

/// How long one engine took to open what a killed process left: the run with the median time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    /// The engine.
    pub engine: String,
    /// Milliseconds until the database was open.
    pub open_ms: f64,
    /// Least of all runs.
    pub open_ms_min: f64,
    /// Most of all runs.
    pub open_ms_max: f64,
    /// Microseconds of the first get.
    pub first_read_us: f64,
    /// Records that were put.
    pub records: u64,
    /// Fewest records that any run found.
    pub found: u64,
    /// Number of runs.
    pub runs: usize,
}

impl Figures {
    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// If the file cannot be read, or is not of this form; the error names the file.
    pub fn load(path: &Path) -> Result<Self> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read(path).map_err(|error| at(&error))?;
        Ok(serde_json::from_slice(&text).map_err(|error| at(&error))?)
    }

    /// Replaces the file in one step, so that a run that is cut off leaves the rows before it. Each
    /// row is a line.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let rows = self.rows.iter().map(serde_json::to_string);
        let rows = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        let text = format!(
            "{{\n\"run\": {},\n\"topics\": {},\n\"rows\": [\n{}\n]\n}}\n",
            serde_json::to_string_pretty(&self.run)?,
            serde_json::to_string_pretty(&self.topics)?,
            rows.join(",\n")
        );
        let new = path.with_extension("json.new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        Ok(written.map_err(|error: io::Error| format!("{}: {error}", path.display()))?)
    }

    /// The row of this name.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The rows below a heading.
    pub fn rows_of<'a>(&'a self, topic: &'a Topic) -> impl Iterator<Item = &'a Row> {
        let of_topic = move |row: &&Row| row.label.topic == topic.title;
        self.rows.iter().filter(of_topic)
    }
}

impl Run {
    /// Whether rows of both runs may be in one file: same sources, machine, scale and repetitions.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        let without_date = |run: &Self| Self {
            date: String::new(),
            ..run.clone()
        };
        without_date(self) == without_date(other)
    }

    /// The name of an engine in prose; its identifier where it has no name.
    #[must_use]
    pub fn name_of<'a>(&'a self, id: &'a str) -> &'a str {
        let engine = self.engines.iter().find(|engine| engine.id == id);
        engine.map_or(id, |engine| &engine.name)
    }
}

impl Row {
    /// What an engine did in this row.
    #[must_use]
    pub fn measured_by(&self, engine: &str) -> Option<&Measured> {
        self.measured.iter().find(|one| one.report.engine == engine)
    }

    /// The rate that the row is about, operations a second.
    #[must_use]
    pub fn rate(&self, measured: &Measured) -> f64 {
        let whole = measured.report.ops_per_s;
        match self.label.sustained {
            true => steady_rate(&measured.report.ops_by_second).unwrap_or(whole),
            false => whole,
        }
    }

    /// The rate of an engine as a multiple of another engine's.
    #[must_use]
    pub fn ratio(&self, engine: &str, to: &str) -> Option<f64> {
        let rate = |name| Some(self.rate(self.measured_by(name)?));
        Some(rate(engine)? / rate(to)?)
    }

    /// The fastest engine that is not `subject` or a variant of it.
    #[must_use]
    pub fn fastest_beside(&self, subject: &str) -> Option<&str> {
        let others = self.measured.iter().filter(|one| {
            let kind = one.report.engine.split(':').next();
            kind != Some(subject)
        });
        let fastest = others.max_by(|a, b| self.rate(a).total_cmp(&self.rate(b)));
        fastest.map(|one| one.report.engine.as_str())
    }
}

impl Measured {
    /// One result an engine, in the order in which engines first appear, from all runs of a row.
    #[must_use]
    pub fn of(reports: &[Report]) -> Vec<Self> {
        let mut engines: Vec<&str> = Vec::new();
        for report in reports {
            if !engines.contains(&report.engine.as_str()) {
                engines.push(&report.engine);
            }
        }
        let measured = engines.iter().filter_map(|engine| {
            let runs = || reports.iter().filter(|report| report.engine == *engine);
            let rates = || runs().map(|report| report.ops_per_s);
            Some(Self {
                report: median(runs())?.clone(),
                runs: runs().count(),
                ops_per_s_min: rates().fold(f64::INFINITY, f64::min),
                ops_per_s_max: rates().fold(0.0, f64::max),
            })
        });
        measured.collect()
    }
}

/// Operations a second in the second half of the whole seconds, where there are at least four.
fn steady_rate(ops_by_second: &[u64]) -> Option<f64> {
    // The last second is not a whole one.
    let whole = &ops_by_second[..ops_by_second.len().saturating_sub(1)];
    if whole.len() < 4 {
        return None;
    }
    let half = &whole[whole.len() / 2..];
    Some(half.iter().sum::<u64>() as f64 / half.len() as f64)
}
