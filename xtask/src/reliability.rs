//! `cargo xtask reliability`: the tables of `docs/reliability.md`, from the reports that the lanes left.

use crate::run::{self, Build};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Where lanes leave their reports: where `GLINTDB_REPORTS` says, else in the target directory.
pub(crate) fn reports_dir() -> PathBuf {
    match std::env::var_os("GLINTDB_REPORTS") {
        Some(dir) => PathBuf::from(dir),
        None => run::target_dir().join("reliability"),
    }
}

/// What a lane without a program of its own did.
#[derive(Default)]
pub(crate) struct Figures {
    lane: &'static str,
    counts: BTreeMap<String, u64>,
    pub(crate) failures: Vec<String>,
    pub(crate) not_run: Vec<String>,
}

impl Figures {
    pub(crate) fn new(lane: &'static str) -> Figures {
        Figures {
            lane,
            ..Figures::default()
        }
    }

    pub(crate) fn count(&mut self, what: &str, number: u64) {
        *self.counts.entry(what.into()).or_default() += number;
    }

    /// Of all counts whose name begins so.
    pub(crate) fn sum(&self, prefix: &str) -> u64 {
        let named = |what: &String| what.starts_with(prefix);
        (self.counts.iter().filter(|(what, _)| named(what)))
            .map(|(_, number)| number)
            .sum()
    }
}

/// Leaves the report of a lane that began at `start`, as `glintdb_testkit::report` writes and reads it.
pub(crate) fn save(command: &str, start: Instant, figures: Figures) -> Result<(), String> {
    let quoted = |text: &String| format!("{text:?}");
    let list = |texts: &[String]| texts.iter().map(quoted).collect::<Vec<_>>().join(", ");
    let counts: Vec<String> = (figures.counts.iter())
        .map(|(what, number)| format!("{what:?}: {number}"))
        .collect();
    let text = format!(
        "{{\"lane\": {:?}, \"command\": {command:?}, \"seconds\": {:.3}, \"threads\": 1, \"counts\": {{{}}}, \"failures\": [{}], \"not_run\": [{}]}}\n",
        figures.lane,
        start.elapsed().as_secs_f64(),
        counts.join(", "),
        list(&figures.failures),
        list(&figures.not_run),
    );
    let path = reports_dir().join(format!("{}.json", figures.lane));
    std::fs::create_dir_all(reports_dir())
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Forgets the reports of earlier runs.
pub(crate) fn forget() {
    std::fs::remove_dir_all(reports_dir()).ok();
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let runs = run::root().join("docs/reliability/runs");
    match arguments {
        [] => {}
        [flag, name] if flag == "--take" && (name == "ci" || name == "campaign") => {
            take(&reports_dir(), &runs.join(name))?;
        }
        _ => return Err("xtask reliability takes nothing, or `--take ci|campaign`".into()),
    }
    let program = run::program("glintdb-testkit", "glint-reliability", Build::Alone)?;
    let page = run::root().join("docs/reliability.md");
    run::lines(Command::new(program).arg(page).arg(runs), |_| ())
}

/// Copies the reports of a run, with a line that says when and where it was.
fn take(from: &Path, to: &Path) -> Result<(), String> {
    let sentence = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(to).map_err(|error| sentence(to, error))?;
    let mut taken = 0;
    for entry in std::fs::read_dir(from).map_err(|error| sentence(from, error))? {
        let path = entry.map_err(|error| sentence(from, error))?.path();
        let Some(name) = path.file_name() else {
            continue;
        };
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            std::fs::copy(&path, to.join(name)).map_err(|error| sentence(&path, error))?;
            taken += 1;
        }
    }
    if taken == 0 {
        return Err(format!("no reports in {}", from.display()));
    }
    let said = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        run::output(command.args(arguments).current_dir(run::root()))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let about = format!(
        "{}, after commit {}, {} cores, Linux {}\n",
        said("date", &["-u", "+%F"]),
        said("git", &["rev-parse", "--short", "HEAD"]),
        said("nproc", &[]),
        said("uname", &["-r"]),
    );
    let path = to.join("about.txt");
    std::fs::write(&path, about).map_err(|error| sentence(&path, error))
}
