//! What a lane of the reliability campaign did, as a small JSON file: `docs/reliability.md` is made from these.
//!
//! Thread safety: none is needed.

pub mod page;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a lane did. A lane is one command: `sim`, `sweep`, `kill` …
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Its name, as in `cargo xtask LANE`.
    pub lane: String,
    /// The command that does it again.
    pub command: String,
    /// How long it took.
    pub seconds: f64,
    /// Threads that worked.
    pub threads: u32,
    /// What was tried, by what it is: `crash points`, `bits flipped` …
    pub counts: BTreeMap<String, u64>,
    /// What was wrong, a sentence each. Empty: nothing.
    pub failures: Vec<String>,
    /// What could not be run, and why.
    pub not_run: Vec<String>,
}

impl Report {
    /// An empty one.
    #[must_use]
    pub fn new(lane: &str, command: impl Into<String>) -> Report {
        Report {
            lane: lane.into(),
            command: command.into(),
            threads: 1,
            ..Report::default()
        }
    }

    /// Adds to what was tried.
    pub fn count(&mut self, what: &str, number: u64) {
        *self.counts.entry(what.into()).or_default() += number;
    }

    /// Writes `LANE.json` into `directory`, which is made where it is missing.
    ///
    /// # Errors
    /// A sentence.
    pub fn save(&self, directory: &Path) -> Result<PathBuf, String> {
        let path = directory.join(format!("{}.json", self.lane));
        let sentence = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        std::fs::create_dir_all(directory).map_err(|error| sentence(&error))?;
        let text = serde_json::to_string_pretty(self).map_err(|error| sentence(&error))?;
        std::fs::write(&path, text + "\n").map_err(|error| sentence(&error))?;
        Ok(path)
    }

    /// Writes it where `GLINTDB_REPORTS` says; nothing happens where that is not set. For the end of a lane's program.
    ///
    /// # Errors
    /// A sentence.
    pub fn save_where_asked(&self) -> Result<(), String> {
        match std::env::var_os("GLINTDB_REPORTS") {
            Some(directory) => self.save(Path::new(&directory)).map(drop),
            None => Ok(()),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// A sentence.
    pub fn load(path: &Path) -> Result<Report, String> {
        let sentence = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| sentence(&error))?;
        serde_json::from_str(&text).map_err(|error| sentence(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::new("sim", "cargo xtask sim --seed 1");
        report.count("crash points", 3);
        report.count("crash points", 4);
        let path = report.save(directory.path()).unwrap();
        assert_eq!(Report::load(&path).unwrap(), report);
        assert_eq!(report.counts["crash points"], 7);
    }
}
