//! The README's table of figures: a few rows, a column for each engine.

use super::page::{rate, wrap};
use super::{Figures, Row};
use crate::report::bytes;

/// Line before the table.
pub const README_BEGIN: &str = "<!-- figures:begin -->";

/// Line after the table.
pub const README_END: &str = "<!-- figures:end -->";

impl Figures {
    /// The table of the rows that are marked for the README, and the sentences below it.
    #[must_use]
    pub fn readme_table(&self) -> String {
        let run = &self.run;
        let columns: Vec<_> = run.engines.iter().filter(|engine| engine.readme).collect();
        let names: Vec<_> = columns.iter().map(|engine| engine.name.as_str()).collect();
        let mut out = format!(
            "| operations a second | {} |\n|---|{}\n",
            names.join(" | "),
            "---:|".repeat(columns.len())
        );
        for row in self.readme_rows() {
            let cells: Vec<_> = columns
                .iter()
                .map(|engine| self.cell(row, &engine.id))
                .collect();
            out += &format!("| {} | {} |\n", row.label.title, cells.join(" | "));
        }
        out += "\n";
        if let Some(warning) = self.scale_warning() {
            out += &warning;
            out += "\n\n";
        }
        let machine = &run.machine;
        let repeat = match run.repeat {
            1 => "one run".to_owned(),
            n => format!("medians of {n} runs (sustained rows: one)"),
        };
        let caption = format!(
            "In brackets: multiples of {}'s rate. **Bold**: the fastest of the row. {} by `bench-peers report` on {} at \
             commit {}: {}, {} cores, {} of memory, {} on {}, kernel {}. Every engine has the same memory for memtables \
             and caches. The page cache is not limited, except in *cold* rows and rows in *limited memory*, where it counts \
             in the limit.",
            self.run.name_of(&run.baseline),
            capitalised(&repeat),
            run.date,
            run.commit.get(..10).unwrap_or(&run.commit),
            machine.cpu,
            machine.cores,
            bytes(machine.memory_bytes),
            machine.file_system,
            machine.disk,
            machine.kernel,
        );
        out + &wrap(&caption) + "\n"
    }

    /// The rows of the README's table that another engine of the table wins.
    #[must_use]
    pub fn readme_rows_lost(&self) -> Vec<&str> {
        let run = &self.run;
        let others = || {
            let columns = run.engines.iter().filter(|engine| engine.readme);
            columns.filter(|engine| engine.id != run.subject)
        };
        let lost = self.readme_rows().filter(|row| {
            others().any(|other| {
                row.ratio(&run.subject, &other.id)
                    .is_some_and(|ratio| ratio < 1.0)
            })
        });
        lost.map(|row| row.name.as_str()).collect()
    }

    /// An engine's rate with its multiple of the baseline's, bold where no column is faster.
    fn cell(&self, row: &Row, engine: &str) -> String {
        let Some(measured) = row.measured_by(engine) else {
            return "-".to_owned();
        };
        let mut text = rate(row, measured);
        if let Some(ratio) = row.ratio(engine, &self.run.baseline) {
            text += &format!(" ({ratio:.2})");
        }
        let columns = self.run.engines.iter().filter(|engine| engine.readme);
        let mut others = columns.filter_map(|other| row.ratio(engine, &other.id));
        match others.all(|ratio| ratio >= 1.0) {
            true => format!("**{text}**"),
            false => text,
        }
    }

    fn readme_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.label.readme)
    }
}

/// The text of a README with another table between its markers; `None` where it has no markers.
#[must_use]
pub fn readme_with(readme: &str, table: &str) -> Option<String> {
    let (before, rest) = readme.split_once(README_BEGIN)?;
    let (_, after) = rest.split_once(README_END)?;
    Some(format!(
        "{before}{README_BEGIN}\n{table}{README_END}{after}"
    ))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
