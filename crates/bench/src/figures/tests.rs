//! Golden texts of a small file of figures, and the page of this repository held to its file.
//!
//! `GLINTDB_BLESS=1` writes the golden texts anew.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/figures")
}

fn small() -> Figures {
    Figures::load(&testdata().join(FIGURES_FILE)).unwrap()
}

/// The page of the figures in `dir`, as the program that measures writes it.
fn page_of(dir: &Path) -> String {
    let figures = Figures::load(&dir.join(FIGURES_FILE)).unwrap();
    let lost = fs::read_to_string(dir.join("lost.md")).unwrap();
    figures.page("figures", Some(&lost))
}

fn assert_golden(name: &str, text: &str) {
    let path = testdata().join(name);
    if std::env::var_os("GLINTDB_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert_eq!(text, golden, "{name} differs from the golden text");
}

#[test]
fn page_and_readme_table_of_a_small_file_are_the_golden_texts() {
    assert_golden("page.txt", &page_of(&testdata()));
    assert_golden("readme.txt", &small().readme_table());
}

#[test]
fn page_of_this_repository_is_what_its_figures_render_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/figures.md")).unwrap();
    let dir = root.join("docs/figures");
    let rendered = page.contains("`bench-peers report` makes this page");
    let measured = dir.join(FIGURES_FILE).exists();
    assert_eq!(
        rendered, measured,
        "docs/figures.md and docs/figures/{FIGURES_FILE} belong together"
    );
    if measured {
        let again = "run `bench-peers report --render docs/figures/figures.json`";
        assert!(page == page_of(&dir), "docs/figures.md is stale: {again}");
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        let table = Figures::load(&dir.join(FIGURES_FILE))
            .unwrap()
            .readme_table();
        let fresh = readme_with(&readme, &table);
        assert!(
            fresh.is_none_or(|fresh| fresh == readme),
            "the README's table is stale: {again}"
        );
    }
}

#[test]
fn hand_written_section_is_short_and_narrow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lost = fs::read_to_string(root.join("docs/figures/lost.md")).unwrap();
    assert!(lost.lines().count() <= 60, "at most 60 lines");
    let wide = lost.lines().find(|line| line.chars().count() > 120);
    assert_eq!(wide, None, "at most 120 columns");
}

#[test]
fn prose_of_the_page_has_at_most_120_columns() {
    let page = page_of(&testdata());
    let prose = |line: &&str| !line.starts_with('|');
    let wide = page
        .lines()
        .filter(prose)
        .find(|line| line.chars().count() > 120);
    assert_eq!(wide, None);
}

#[test]
fn saved_figures_load_as_they_were_with_a_line_for_each_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FIGURES_FILE);
    let figures = small();
    figures.save(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    for row in &figures.rows {
        let start = format!("{{\"name\":\"{}\"", row.name);
        assert_eq!(
            text.lines().filter(|line| line.starts_with(&start)).count(),
            1
        );
    }
    let back = Figures::load(&path).unwrap();
    assert_eq!(back.page("figures", None), figures.page("figures", None));
    assert!(back.run.same_as(&figures.run));

    fs::write(&path, "{}").unwrap();
    let error = Figures::load(&path).unwrap_err().to_string();
    assert!(
        error.contains(FIGURES_FILE) && error.contains("run"),
        "{error}"
    );
}

#[test]
fn rate_of_a_sustained_row_is_that_of_the_second_half() {
    let figures = small();
    let row = figures.row("sustained-overwrite-1k").unwrap();
    let own = row.measured_by("glintdb").unwrap();
    // 8 whole seconds: 200,000 in each of the first four, 60,000 in each of the others.
    assert_eq!(row.rate(own), 60_000.0);
    assert!(own.report.ops_per_s > 100_000.0);
    let ratio = row.ratio("glintdb", "rocksdb").unwrap();
    assert!((ratio - 0.6).abs() < 1e-9, "{ratio}");

    assert_eq!(
        steady_rate(&[7, 7, 7, 7]),
        None,
        "three whole seconds are few"
    );
    assert_eq!(steady_rate(&[9, 9, 3, 5, 1]), Some(4.0));
    assert_eq!(steady_rate(&[]), None);
}

#[test]
fn fastest_other_engine_is_no_variant_of_the_subject() {
    let figures = small();
    let row = figures.row("amplification-16k").unwrap();
    assert!(row.ratio("glintdb:value_gc=false", "rocksdb-blob").unwrap() > 1.0);
    assert_eq!(row.fastest_beside("glintdb"), Some("rocksdb-blob"));
}

#[test]
fn lost_rows_of_the_readme_are_named() {
    assert_eq!(small().readme_rows_lost(), ["sustained-overwrite-1k"]);
}

#[test]
fn readme_table_replaces_what_is_between_the_markers() {
    let readme = format!("# X\n\n{README_BEGIN}\nold\n{README_END}\n\nmore\n");
    let new = readme_with(&readme, "| a |\n").unwrap();
    assert_eq!(
        new,
        format!("# X\n\n{README_BEGIN}\n| a |\n{README_END}\n\nmore\n")
    );
    assert_eq!(readme_with(&new, "| a |\n").unwrap(), new);
    assert_eq!(readme_with("# X\n", "| a |\n"), None);
}

#[test]
fn medians_and_ranges_are_of_all_runs_of_each_engine() {
    let figures = small();
    let report = &figures.rows[0].measured[0].report;
    let run = |engine: &str, ops_per_s: f64| Report {
        engine: engine.to_owned(),
        ops_per_s,
        ..report.clone()
    };
    let reports = [
        run("b", 5.0),
        run("a", 30.0),
        run("b", 7.0),
        run("a", 10.0),
        run("b", 6.0),
        run("a", 20.0),
    ];
    let measured = Measured::of(&reports);
    let found: Vec<_> = measured
        .iter()
        .map(|one| {
            (
                one.report.engine.as_str(),
                one.report.ops_per_s,
                one.ops_per_s_min,
                one.ops_per_s_max,
                one.runs,
            )
        })
        .collect();
    assert_eq!(found, [("b", 6.0, 5.0, 7.0, 3), ("a", 20.0, 10.0, 30.0, 3)]);
}

#[test]
fn pictures_are_drawn_of_comparisons_sustained_rows_and_curves() {
    let figures = small();
    let files: Vec<_> = figures
        .topics
        .iter()
        .flat_map(|topic| figures.pictures(topic))
        .map(|picture| (picture.file, picture.rows.len()))
        .collect();
    let expected = [
        ("writes-in-memory.svg", 2),
        ("sustained-writes.svg", 1),
        ("sustained-overwrite-1k-seconds.svg", 1),
        ("space-and-writes.svg", 1),
        ("amplification-16k-amplification.svg", 1),
    ];
    assert_eq!(
        files,
        expected
            .map(|(file, rows)| (file.to_owned(), rows))
            .to_vec()
    );
    let page = figures.page("figures", None);
    for (file, _) in expected {
        assert!(page.contains(&format!("](figures/{file})")), "{file}");
    }
}
