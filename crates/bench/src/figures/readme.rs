//! The README's table of figures: a few rows, a column for each engine.

use super::page::{rate, wrap};
use super::{Figures, Row};

/// Line before the table.
pub const README_BEGIN: &str = "<!-- figures:begin -->";

/// Line after the table.
pub const README_END: &str = "<!-- figures:end -->";

impl Figures {
    /// The table of the rows that are marked for the README, and the sentences above it.
    #[must_use]
    pub fn readme_table(&self) -> String {
        let columns: Vec<_> = (self.run.engines)
            .iter()
            .filter(|engine| engine.readme)
            .collect();
        let names: Vec<_> = columns.iter().map(|engine| engine.name.as_str()).collect();
        let mut out = match self.scale_warning() {
            Some(warning) => wrap(&warning) + "\n\n",
            None => String::new(),
        };
        out += &wrap(&self.readme_caption());
        out += &format!(
            "\n\n| workload | {} |\n|---|{}\n",
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
        out
    }

    /// Says what the numbers are, and on which machine they were measured.
    fn readme_caption(&self) -> String {
        let (run, machine) = (&self.run, &self.run.machine);
        let repeat = match run.repeat {
            1 => "One run".to_owned(),
            n => format!("Medians of {n} runs (sustained: one)"),
        };
        format!(
            "Operations a second and multiples of {}'s; the fastest is **bold**. {repeat} at commit {} on {} cores of {}, \
             {} on {}. All have equal memory for memtables and caches; *cold* rows limit the page cache too. \
             †: other programs took over 15 % of the machine.",
            run.name_of(&run.baseline),
            run.commit.get(..10).unwrap_or(&run.commit),
            machine.cores,
            machine.cpu,
            machine.file_system,
            machine.disk,
        )
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
