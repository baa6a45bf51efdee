//! Tests in Python: a virtual environment under `target/venv` with pytest and redis-py from PyPI, made once; then pytest over every directory of the repository
//! that holds `test_*.py`. They find the program under test in the environment variable `GLINTDB_BIN`.

use crate::run::{self, Build, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["pytest>=8,<10", "redis>=5,<8"];

pub(crate) fn step(scratch: &Scratch) -> Result<Outcome, String> {
    let directories = directories()?;
    if directories.is_empty() {
        return Ok(Outcome::skipped("no test_*.py in the repository"));
    }
    let python = match environment() {
        Ok(python) => python,
        Err(reason) => {
            return Ok(Outcome::skipped(format!(
                "Python tests ({} directories): {reason}",
                directories.len()
            )));
        }
    };
    let program = run::program("glintdb-cli", "glintdb", Build::WithTests)?;
    let mut command = Command::new(python);
    command
        .current_dir(run::root())
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"])
        .args(&directories)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GLINTDB_BIN", program)
        .env("TMPDIR", scratch.path());
    let mut counts = Counts::default();
    let mut not_run = Vec::new();
    let ok = run::lines(&mut command, |line| {
        if let Some(reason) = line.strip_prefix("SKIPPED ") {
            not_run.push(reason.to_string());
        }
        if let Some(found) = Counts::of_pytest_line(line) {
            counts.add(found);
        }
    })?;
    if !ok && counts.failed == 0 {
        counts.failed = 1;
    }
    Ok(Outcome { counts, not_run })
}

/// Directories with tests, relative to the root.
fn directories() -> Result<BTreeSet<PathBuf>, String> {
    let files = crate::tidy::files()?;
    let tests = files.iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("test_") && name.ends_with(".py")
    });
    Ok(tests
        .filter_map(|path| path.parent().map(Path::to_path_buf))
        .collect())
}

/// The environment's interpreter; made, and its packages installed, where that has not been done yet.
fn environment() -> Result<PathBuf, String> {
    let dir = run::target_dir().join("venv");
    let python = dir.join("bin/python");
    let stamp = dir.join("installed.txt");
    let wanted = PACKAGES.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    if !run::on_path("python3") {
        return Err("python3 is not installed".into());
    }
    run::say(&format!(
        "making {} with {}",
        dir.display(),
        PACKAGES.join(", ")
    ));
    run::output(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&dir),
    )
    .map_err(|error| format!("no virtual environment (Debian: python3-venv): {error}"))?;
    run::output(
        Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(PACKAGES),
    )
    .map_err(|error| format!("pip could not install {}: {error}", PACKAGES.join(", ")))?;
    std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}
