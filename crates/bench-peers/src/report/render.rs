//! A file of figures becomes the page, the pictures and the README's table.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use glintdb_bench::Result;
use glintdb_bench::figures::{Figures, PictureKind, readme_with};

use super::{matrix, say};
use crate::plot;

/// Name of the hand-written section, beside the figures.
const LOST_FILE: &str = "lost.md";

/// Rows of the README's table that another engine should win: a table of victories proves nothing.
const LOST_ROWS_MIN: usize = 3;

/// Writes the pictures beside the figures in `path`, and the page beside their directory, with its
/// name: `docs/figures/figures.json` becomes `docs/figures.md`. The README's table goes between the
/// markers of the README of the repository whose `docs/figures` that is, else to standard output.
///
/// Titles, topics and marks are those of this program's matrix, so that a text can be mended
/// without measuring again. The file is saved with them.
///
/// # Errors
/// If a file cannot be read or written.
pub(super) fn render(path: &Path) -> Result<()> {
    let mut figures = Figures::load(path)?;
    figures.topics = matrix::topics();
    figures.run.engines = matrix::engines();
    for row in &mut figures.rows {
        row.label = matrix::label(&row.name)
            .ok_or_else(|| format!("{}: no row `{}` in the matrix", path.display(), row.name))?;
    }
    figures.save(path)?;

    let path = path.canonicalize()?;
    let dir = path.parent().ok_or("a file without a directory")?;
    for topic in &figures.topics {
        for picture in figures.pictures(topic) {
            let file = dir.join(&picture.file);
            match (picture.kind, picture.rows.first()) {
                (PictureKind::Seconds, Some(row)) => plot::seconds_of(&file, row)?,
                (PictureKind::Amplification, Some(row)) => plot::amplification_of(&file, row)?,
                _ => plot::ratios(&file, &topic.title, &picture.rows, &figures.run)?,
            }
        }
    }
    let lost = fs::read_to_string(dir.join(LOST_FILE)).ok();
    if lost.is_none() {
        say(&format!(
            "no {LOST_FILE} in {}: the page has no such section",
            dir.display()
        ))?;
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let page = dir.with_extension("md");
    fs::write(&page, figures.page(&name, lost.as_deref()))?;
    say(&format!("wrote {}", page.display()))?;
    readme(&figures, dir)
}

fn readme(figures: &Figures, dir: &Path) -> Result<()> {
    let table = figures.readme_table();
    let lost = figures.readme_rows_lost();
    if lost.len() < LOST_ROWS_MIN {
        say(&format!(
            "warning: {} of the README's rows are lost, and at least {LOST_ROWS_MIN} should be: mark others in the matrix",
            lost.len()
        ))?;
    }
    if let Some(path) = readme_of(dir)
        && let Ok(text) = fs::read_to_string(&path)
        && let Some(new) = readme_with(&text, &table)
    {
        fs::write(&path, new)?;
        return say(&format!("wrote the table of {}", path.display()));
    }
    Ok(write!(std::io::stdout(), "{table}")?)
}

/// The README above `docs/figures`.
fn readme_of(dir: &Path) -> Option<PathBuf> {
    let root = dir.parent()?.parent()?;
    dir.ends_with("docs/figures")
        .then(|| root.join("README.md"))
}
