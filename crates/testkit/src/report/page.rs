//! The tables of `docs/reliability.md`: one row for everything that a lane counted, in one CI run and in the recorded campaign.
//!
//! Reports lie in `RUNS/ci` and `RUNS/campaign`, each with a line `about.txt` that says when and where. Thread safety: none is needed.

use super::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->";

/// What one run left.
struct Run {
    about: String,
    reports: BTreeMap<String, Report>,
}

impl Run {
    fn load(directory: &Path) -> Result<Run, String> {
        let mut reports = BTreeMap::new();
        let about = std::fs::read_to_string(directory.join("about.txt")).unwrap_or_default();
        let Ok(entries) = std::fs::read_dir(directory) else {
            return Ok(Run { about, reports });
        };
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let report = Report::load(&path)?;
                reports.insert(report.lane.clone(), report);
            }
        }
        Ok(Run {
            about: about.trim().to_owned(),
            reports,
        })
    }

    /// The count, and the count a second and thread where that says something.
    fn cells(&self, lane: &str, what: &str) -> (String, String) {
        let counted = self
            .reports
            .get(lane)
            .and_then(|report| Some((report, *report.counts.get(what)?)));
        let Some((report, number)) = counted else {
            return ("–".into(), String::new());
        };
        let rate = number as f64 / report.seconds.max(0.001) / f64::from(report.threads.max(1));
        let rate = if number >= 1000 && rate >= 1.0 {
            grouped(rate.round() as u64)
        } else {
            String::new()
        };
        (grouped(number), rate)
    }

    fn failures(&self) -> Vec<String> {
        let lines = |report: &Report| {
            let lane = report.lane.clone();
            let failures = report.failures.clone();
            failures
                .into_iter()
                .map(move |failure| format!("`{lane}`: {failure}"))
        };
        self.reports.values().flat_map(lines).collect()
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The tables, and how many failures the reports hold.
fn tables(runs: &Path) -> Result<(String, usize), String> {
    let ci = Run::load(&runs.join("ci"))?;
    let campaign = Run::load(&runs.join("campaign"))?;
    let both = [&ci, &campaign];
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        writeln!(text, "{arguments}").map_err(|error| error.to_string())
    };
    line(format_args!("- One `.ci/run`: {}.", ci.about))?;
    line(format_args!("- Campaign: {}.\n", campaign.about))?;
    line(format_args!(
        "| lane | what was tried | one `.ci/run` | a second a thread | campaign | a second a thread |"
    ))?;
    line(format_args!("|---|---|---:|---:|---:|---:|"))?;
    let lanes: BTreeSet<&String> = both.iter().flat_map(|run| run.reports.keys()).collect();
    for lane in &lanes {
        let reports = both.iter().filter_map(|run| run.reports.get(*lane));
        let counts: BTreeSet<&String> = reports.flat_map(|report| report.counts.keys()).collect();
        for what in counts {
            let (number, rate) = ci.cells(lane, what);
            let (campaign_number, campaign_rate) = campaign.cells(lane, what);
            line(format_args!(
                "| `{lane}` | {what} | {number} | {rate} | {campaign_number} | {campaign_rate} |"
            ))?;
        }
    }
    let failures: Vec<String> = both.iter().flat_map(|run| run.failures()).collect();
    line(format_args!(
        "\nAcknowledged commits lost, holes, databases that do not open, panics, wrong values, damage undetected, in all of it: **{}**.\n",
        failures.len()
    ))?;
    for failure in &failures {
        line(format_args!("- {failure}"))?;
    }
    line(format_args!(
        "| lane | command of the campaign | seconds | threads |"
    ))?;
    line(format_args!("|---|---|---:|---:|"))?;
    for lane in &lanes {
        let report = campaign.reports.get(*lane).or(ci.reports.get(*lane));
        if let Some(report) = report {
            line(format_args!(
                "| `{lane}` | `{}` | {:.0} | {} |",
                report.command, report.seconds, report.threads
            ))?;
        }
    }
    for run in both {
        for report in run.reports.values() {
            for reason in &report.not_run {
                line(format_args!("\nNot run in `{}`: {reason}", report.lane))?;
            }
        }
    }
    Ok((text, failures.len()))
}

/// The page with its tables made anew.
fn renewed(page: &str, tables: &str) -> Result<String, String> {
    let (before, rest) = page
        .split_once(BEGIN)
        .ok_or("no mark where the tables begin")?;
    let (_, after) = rest.split_once(END).ok_or("no mark where the tables end")?;
    Ok(format!("{before}{BEGIN}{tables}{END}{after}"))
}

/// Writes the tables of `page` from the reports under `runs`; gives the number of failures that the reports hold.
///
/// # Errors
/// A sentence.
pub fn write(page: &Path, runs: &Path) -> Result<usize, String> {
    let sentence = |error: &dyn std::fmt::Display| format!("{}: {error}", page.display());
    let (tables, failures) = tables(runs)?;
    let old = std::fs::read_to_string(page).map_err(|error| sentence(&error))?;
    let new = renewed(&old, &tables).map_err(|error| sentence(&error))?;
    std::fs::write(page, new).map_err(|error| sentence(&error))?;
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn the_page_shows_what_the_reports_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
        let (tables, _) = tables(&root.join("docs/reliability/runs")).unwrap();
        assert_eq!(
            renewed(&page, &tables).unwrap(),
            page,
            "run `cargo xtask reliability`"
        );
    }

    #[test]
    fn failures_are_counted_and_shown() {
        let runs = tempfile::tempdir().unwrap();
        let mut report = Report::new("sim", "cargo xtask sim --minutes 1");
        report.count("crash points", 1_000_000);
        report.seconds = 100.0;
        report.threads = 2;
        report.failures.push("a commit is lost".into());
        report.save(&runs.path().join("ci")).unwrap();
        let (text, failures) = tables(runs.path()).unwrap();
        assert_eq!(failures, 1);
        assert!(text.contains("| `sim` | crash points | 1,000,000 | 5,000 | – |  |"));
        assert!(text.contains("- `sim`: a commit is lost"));
    }
}
