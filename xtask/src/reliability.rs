//! `cargo xtask reliability`: the tables of `docs/reliability.md`, from the reports that the lanes left.

use crate::run::{self, Build};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where lanes leave their reports: where `GLINTDB_REPORTS` says, else in the target directory.
pub(crate) fn reports_dir() -> PathBuf {
    match std::env::var_os("GLINTDB_REPORTS") {
        Some(dir) => PathBuf::from(dir),
        None => run::target_dir().join("reliability"),
    }
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
