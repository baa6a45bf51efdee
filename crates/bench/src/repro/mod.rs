//! `repro`: runs a figure of one of the papers, and puts its figures beside the paper's.
//!
//! [`FIGURES`] names every figure and table with measurements in the five papers, and how each is
//! run here. [`Figure::run`] gives a [`Comparison`] for those that are models, or run in virtual
//! time: they give the same result each time.

mod dapdb;
mod list;
#[cfg(test)]
mod tests;

pub use list::{FIGURES, Figure, How, PAPERS, figures_of, find};

use crate::store::Result;
use serde::Serialize;

/// A statement of a paper beside what came of the run here.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure that is compared, in words.
    pub what: String,
    /// The paper's figure, or its bound.
    pub paper: f64,
    /// Whether the paper gives a figure, or only says that it is more or less than a bound.
    pub claim: Claim,
    /// The figure here.
    pub ours: f64,
    /// Whether both say the same about what is better: a figure is on the same side of 1 as the
    /// paper's, or on the side of the bound that the paper says.
    pub same_direction: bool,
}

/// What a paper says of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// It is this.
    Figure,
    /// It is more than this.
    MoreThan,
    /// It is less than this.
    LessThan,
}

impl Row {
    /// A row of two ratios, such as a speed-up.
    fn ratio(what: &str, paper: f64, ours: f64) -> Row {
        Row {
            what: what.into(),
            paper,
            claim: Claim::Figure,
            ours,
            same_direction: (paper >= 1.0) == (ours >= 1.0),
        }
    }

    /// A row of which the paper says only that it is more than `bound`.
    fn more_than(what: &str, bound: f64, ours: f64) -> Row {
        Row {
            what: what.into(),
            paper: bound,
            claim: Claim::MoreThan,
            ours,
            same_direction: ours > bound,
        }
    }

    /// A row of which the paper says only that it is less than `bound`.
    fn less_than(what: &str, bound: f64, ours: f64) -> Row {
        Row {
            claim: Claim::LessThan,
            same_direction: ours < bound,
            ..Row::more_than(what, bound, ours)
        }
    }

    /// What the paper says, as text.
    #[must_use]
    pub fn paper_text(&self) -> String {
        match self.claim {
            Claim::Figure => format!("{:.2}", self.paper),
            Claim::MoreThan => format!("> {:.2}", self.paper),
            Claim::LessThan => format!("< {:.2}", self.paper),
        }
    }

    /// The row's verdict in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        match (self.same_direction, self.claim) {
            (false, _) => "the other direction".into(),
            (true, Claim::Figure) => {
                format!(
                    "same direction, {:.2} times the paper's",
                    self.ours / self.paper
                )
            }
            (true, _) => "same direction".into(),
        }
    }
}

/// A line of a plot.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A figure that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Short name of the paper.
    pub paper: &'static str,
    /// Number of the figure.
    pub figure: &'static str,
    /// What the figure shows.
    pub title: &'static str,
    /// What was run, and what differs from the paper.
    pub notes: Vec<String>,
    /// The paper's figures beside ours.
    pub rows: Vec<Row>,
    /// What the axes are.
    pub axes: (&'static str, &'static str),
    /// Whether each step of the x axis doubles it.
    pub x_doubles: bool,
    /// The figure's lines, measured here.
    pub lines: Vec<Line>,
}

impl Comparison {
    /// The rows as a Markdown table, below a heading, with the notes.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut page = format!(
            "# {}, figure {}: {}\n\n",
            self.paper, self.figure, self.title
        );
        for note in &self.notes {
            page.push_str(note);
            page.push_str("\n\n");
        }
        page.push_str("| | paper | here | |\n|---|---:|---:|---|\n");
        for row in &self.rows {
            let (paper, ours, verdict) = (row.paper_text(), row.ours, row.verdict());
            page.push_str(&format!(
                "| {} | {paper} | {ours:.2} | {verdict} |\n",
                row.what
            ));
        }
        page
    }
}

impl Figure {
    /// Runs the figure. With `quick`, on less data.
    ///
    /// # Errors
    /// The figure is no model, or its run fails.
    pub fn run(&self, quick: bool) -> Result<Comparison> {
        match self.how {
            How::Model(run) => run(self, quick),
            How::VirtualTime => Err(format!(
                "{0} {1} runs the engine in virtual time, which is a build of its own: `cargo xtask virtual-time \
                 repro {0} {1}`",
                self.paper, self.number
            )
            .into()),
            How::Command { command, .. } => Err(format!(
                "{} {} is measured on this machine's drive, by: {command}",
                self.paper, self.number
            )
            .into()),
            How::Missing(needs) => Err(format!(
                "{} {} cannot be run: it needs {needs}",
                self.paper, self.number
            )
            .into()),
        }
    }
}
