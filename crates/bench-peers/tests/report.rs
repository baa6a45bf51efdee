//! The program as a user runs it, at a tiny scale with the engines of this build.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use glintdb_bench::figures::Figures;

/// Runs the program; whether it succeeded, and what it said on standard error.
fn bench_peers(line: &str) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-peers"))
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), text)
}

fn temporary(name: &str) -> PathBuf {
    let name = format!("bench-peers-program-{name}-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// The rows of a file of figures, each with the rate of its first engine.
fn rates(path: &Path) -> Vec<(String, f64)> {
    let figures = Figures::load(path).unwrap();
    let rows = figures.rows.into_iter();
    rows.map(|row| (row.name, row.measured[0].report.ops_per_s))
        .collect()
}

#[test]
fn report_measures_resumes_measures_again_and_renders() {
    let dir = temporary("report");
    let (out, data) = (dir.join("figures"), dir.join("data"));
    let path = out.join("figures.json");
    let report = |more: &str| {
        bench_peers(&format!(
            "report --scale 0.002 --repeat 1 --out {} --dir {} {more}",
            out.display(),
            data.display()
        ))
    };
    let (ok, said) = report("--only get-1k-1,overwrite-1k-2");
    assert!(ok, "{said}");
    assert!(said.starts_with("2 rows, "), "{said}");
    let first = rates(&path);
    let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["overwrite-1k-2", "get-1k-1"]);
    let left = fs::read_dir(&data).unwrap().count();
    assert_eq!(left, 0, "data sets are removed");
    let page = fs::read_to_string(dir.join("figures.md")).unwrap();
    assert!(page.contains("**Smoke run at scale 0.002") && page.contains("Gets, 1 KiB, 1 thread"));

    let (ok, said) = report("");
    assert!(!ok && said.contains("--resume"), "{said}");

    let (ok, said) = report("--resume --only get-1k-1,overwrite-1k-2,delete-1k-1");
    assert!(
        ok && said.contains("2 of them are measured already"),
        "{said}"
    );
    let second = rates(&path);
    assert_eq!(second.len(), 3);
    assert!(
        first.iter().all(|row| second.contains(row)),
        "{first:?} {second:?}"
    );

    let (ok, said) = report("--only get-1k-1");
    assert!(ok, "{said}");
    let third = rates(&path);
    let changed: Vec<_> = third.iter().filter(|row| !second.contains(row)).collect();
    assert_eq!((third.len(), changed.len()), (3, 1), "{second:?} {third:?}");
    assert_eq!(changed[0].0, "get-1k-1");

    fs::remove_file(dir.join("figures.md")).unwrap();
    let (ok, said) = bench_peers(&format!("report --render {}", path.display()));
    assert!(ok, "{said}");
    assert!(dir.join("figures.md").exists());
    assert_eq!(rates(&path), third);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn fresh_fills_data_sets_anew_that_were_written_to_and_no_others() {
    let dir = temporary("fresh");
    let run = |more: &str| {
        let (ok, said) = bench_peers(&format!(
            "run --engines glintdb --num 500 --value-size 100 --memory-mb 32 --repeat 1 --keep --dir {} {more}",
            dir.display()
        ));
        assert!(ok, "{said}");
        said.contains("filling")
    };
    assert!(run("--workloads readrandom"), "there was none");
    assert!(!run("--workloads readrandom --fresh"), "only read");
    assert!(!run("--workloads overwrite"), "kept");
    assert!(!run("--workloads readrandom"), "not asked for");
    assert!(run("--workloads readrandom --fresh"), "written to");
    assert!(!run("--workloads readrandom --fresh"), "filled anew");
    assert!(!run("--workloads fillrandom"), "a fill");
    assert!(run("--workloads readrandom --fresh"), "filled otherwise");
    fs::remove_dir_all(&dir).unwrap();
}
