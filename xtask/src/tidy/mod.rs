//! House lints: rules that neither rustfmt nor clippy checks. Each lint is a function from the
//! repository's files to a list of complaints `file:line: what`.

mod layers;
mod links;
mod map;
mod prose;
mod source;

use crate::run;
use crate::summary::Counts;
use crate::test::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the repository.
pub(crate) struct Text {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

type Lint = fn(&[Text]) -> Vec<String>;

const LINTS: [(&str, Lint); 15] = [
    ("no file over 1,000 lines", source::lengths),
    ("every Rust file opens with //!", source::heads),
    (
        "nothing left to be done, no test switched off",
        source::unfinished,
    ),
    ("no absolute path of a machine", source::machine_paths),
    (
        "unsafe only where the design allows it",
        source::unsafe_places,
    ),
    ("lines end cleanly", source::whitespace),
    (
        "every crate takes the workspace's lints",
        layers::lints_inherited,
    ),
    ("dependencies point down only", layers::downwards),
    ("links between pages resolve", links::resolve),
    ("the code map names every module", map::complete),
    ("lines of pages fit 120 columns", prose::page_lines),
    (
        "no more comment lines over 100 columns than before",
        prose::comment_columns,
    ),
    (
        "no more comments that refer to their module than before",
        prose::referrals,
    ),
    (
        "no more doc comments that are no sentence than before",
        prose::sentences,
    ),
    (
        "no more commit subjects over 72 characters than before",
        prose::subjects,
    ),
];

pub(crate) fn main() -> Result<bool, String> {
    Ok(step()?.counts.failed == 0)
}

/// The step of `xtask test`: one check a lint.
pub(crate) fn step() -> Result<Outcome, String> {
    let texts = texts()?;
    let mut counts = Counts::default();
    for (name, lint) in LINTS {
        let complaints = lint(&texts);
        counts.add(Counts::one(complaints.is_empty()));
        let verdict = if complaints.is_empty() {
            "ok"
        } else {
            "FAILED"
        };
        run::say(&format!("tidy: {name} ... {verdict}"));
        for complaint in complaints {
            run::say(&format!("  {complaint}"));
        }
    }
    let notes = [source::long_files(&texts), prose::notes(&texts)].concat();
    notes
        .iter()
        .for_each(|note| run::say(&format!("tidy: note: {note}")));
    Ok(Outcome::of(counts))
}

/// Files that git tracks, or would; relative to the root. Without git (a source archive): every file outside `target`.
pub(crate) fn files() -> Result<Vec<PathBuf>, String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = run::output(Command::new("git").current_dir(run::root()).args(arguments));
    let mut files = match listed {
        Ok(text) => text.lines().map(PathBuf::from).collect(),
        Err(_) => {
            let mut files = Vec::new();
            walk(&run::root(), Path::new(""), &mut files)?;
            files
        }
    };
    files.retain(|path| run::root().join(path).is_file());
    files.sort();
    Ok(files)
}

fn walk(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let dir = root.join(below);
    let entries = std::fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    for entry in entries.flatten() {
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            let name = entry.file_name();
            if name != "target" && name != ".git" && name != "data" {
                walk(root, &path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn texts() -> Result<Vec<Text>, String> {
    let root = run::root();
    Ok(files()?
        .into_iter()
        .filter_map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).ok()?;
            let path = path.to_string_lossy().replace('\\', "/");
            Some(Text { path, text })
        })
        .collect())
}
