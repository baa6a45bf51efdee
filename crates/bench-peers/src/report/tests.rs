//! The report without engines: what is planned, skipped and saved.

use std::path::PathBuf;

use super::*;
use crate::table::tests::report;

fn args(line: &str) -> ReportArgs {
    let words = ["bench-peers", "report"]
        .into_iter()
        .chain(line.split_whitespace());
    match Program::try_parse_from(words).unwrap().command {
        Command::Report(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn temporary(name: &str) -> PathBuf {
    let dir =
        std::env::temp_dir().join(format!("bench-peers-report-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn row(name: &str) -> Row {
    Row {
        name: name.to_owned(),
        label: matrix::label(name).unwrap(),
        command: "bench-peers run".to_owned(),
        seconds: 1.0,
        measured: Measured::of(&[report("glintdb", 300.0), report("rocksdb", 100.0)]),
        opened: Vec::new(),
    }
}

#[test]
fn every_row_is_one_command_that_makes_sense_at_every_scale() {
    for scale in ["1", "0.5", "0.02"] {
        let plan = plan(&args(&format!("--scale {scale}"))).unwrap();
        assert_eq!(plan.len(), matrix::rows().count());
        for planned in &plan {
            assert!(planned.runs() > 0, "{}", planned.text);
            match &planned.command {
                Command::Run(run) => {
                    let cells = run.cells();
                    assert_eq!(cells.len(), run.workloads.len(), "{}", planned.text);
                    assert!(run.fresh && run.keep);
                }
                Command::Recovery(recovery) => assert_eq!(recovery.value_size.len(), 1),
                other => panic!("{other:?}"),
            }
            assert!(planned.row.seconds > 0.0);
        }
    }
}

#[test]
fn full_run_is_estimated_at_about_75_minutes() {
    let args = args("");
    let plan = plan(&args).unwrap();
    let seconds: f64 = plan.iter().map(|row| estimate(&plan, row, 1.0)).sum();
    assert!(seconds < 80.0 * 60.0, "{} minutes", minutes(seconds));
    assert!(announcement(&plan, &args).contains(&minutes(seconds)));
}

#[test]
fn rows_that_are_asked_for_are_planned_with_their_repetitions() {
    let args = args("--only sustained-overwrite-1k,get-1k-1 --repeat 5");
    let plan = plan(&args).unwrap();
    let names: Vec<_> = plan.iter().map(|planned| planned.row.name).collect();
    assert_eq!(names, ["sustained-overwrite-1k", "get-1k-1"]);
    assert!(plan[0].text.ends_with("--repeat 1") && plan[1].text.ends_with("--repeat 5"));
    assert!(
        plan[0]
            .text
            .starts_with("bench-peers run --engines glintdb,")
    );

    let error = super::plan(&self::args("--only get-1k-9"))
        .map(|_| ())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no row `get-1k-9`; there are fillseq-100-1 ")
    );
}

#[test]
fn resumed_run_measures_the_rows_that_are_missing() {
    let dir = temporary("resume");
    let line = format!("--out {} --only get-1k-1,get-1k-8", dir.display());
    let path = dir.join(FIGURES_FILE);
    let mut figures = begin(&args(&line), &path).unwrap();
    insert(&mut figures, row("get-1k-1"));
    figures.save(&path).unwrap();

    let resumed = args(&format!("{line} --resume"));
    let figures = begin(&resumed, &path).unwrap();
    let plan = plan(&resumed).unwrap();
    let names = |resume| {
        let rest = remaining(&plan, &figures, resume);
        rest.iter()
            .map(|planned| planned.row.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(true), ["get-1k-8"]);
    assert_eq!(names(false), ["get-1k-1", "get-1k-8"]);

    let begins = |line: &str| {
        begin(&args(line), &path)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let error = begins("");
    assert!(error.contains("--resume"), "{error}");
    for other in ["--repeat 2", "--scale 0.5"] {
        let error = begins(&format!("{line} --resume {other}"));
        assert!(
            error.contains("another commit, machine, scale or number"),
            "{error}"
        );
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn rows_are_saved_in_the_order_of_the_matrix_and_replaced_by_name() {
    let dir = temporary("order");
    let mut figures = begin(&args(""), &dir.join(FIGURES_FILE)).unwrap();
    for name in ["ycsb-a", "fillseq-100-1", "get-1k-1"] {
        insert(&mut figures, row(name));
    }
    let mut again = row("get-1k-1");
    again.seconds = 2.0;
    insert(&mut figures, again);
    let names: Vec<_> = figures
        .rows
        .iter()
        .map(|row| (row.name.as_str(), row.seconds))
        .collect();
    assert_eq!(
        names,
        [("fillseq-100-1", 1.0), ("get-1k-1", 2.0), ("ycsb-a", 1.0)]
    );
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn data_sets_are_shared_by_rows_of_the_same_records() {
    let planned = |name: &str| {
        let plan = plan(&args(&format!("--only {name}"))).unwrap();
        match plan.into_iter().next().unwrap().command {
            Command::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    };
    let (get, scan, small) = (
        planned("get-1k-1"),
        planned("scan-1k-1"),
        planned("get-100-1"),
    );
    let mut data = Vec::new();
    remove_other_data(&mut data, &get).unwrap();
    remove_other_data(&mut data, &scan).unwrap();
    assert_eq!(data.len(), 2);
    remove_other_data(&mut data, &small).unwrap();
    assert_eq!(data.len(), 1);
}

#[test]
fn rendering_writes_pictures_page_and_the_readme_of_the_repository() {
    let root = temporary("render");
    let dir = root.join("docs/figures");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(FIGURES_FILE);
    let mut figures = begin(&args(""), &path).unwrap();
    let mut sustained = row("sustained-overwrite-1k");
    for measured in &mut sustained.measured {
        measured.report.ops_by_second = vec![500, 400, 300, 200, 100, 50, 20];
    }
    let others = matrix::rows().filter(|row| row.name != sustained.name);
    for row in others
        .map(|other| row(other.name))
        .chain([sustained.clone()])
    {
        insert(&mut figures, row);
    }
    figures.rows[0].label.title = "an old title".to_owned();
    figures.save(&path).unwrap();
    fs::write(dir.join("lost.md"), "All is lost.\n").unwrap();
    let readme = root.join("README.md");
    fs::write(
        &readme,
        "# R\n\n<!-- figures:begin -->\n<!-- figures:end -->\n",
    )
    .unwrap();
    render::render(&path).unwrap();

    let page = fs::read_to_string(root.join("docs/figures.md")).unwrap();
    assert!(
        page.contains("All is lost.") && !page.contains("an old title"),
        "{page}"
    );
    for line in page.lines().filter(|line| line.starts_with("![")) {
        let file = line.split_once("](").unwrap().1.trim_end_matches(')');
        assert!(root.join("docs").join(file).exists(), "{file}");
    }
    assert!(page.contains("sustained-overwrite-1k-seconds.svg"));
    let prose = |line: &&str| !line.starts_with('|');
    let wide = page
        .lines()
        .filter(prose)
        .find(|line| line.chars().count() > 120);
    assert_eq!(wide, None);
    let readme = fs::read_to_string(readme).unwrap();
    assert!(
        readme.contains("| Overwrites, 1 KiB, 2 threads, short | **300 (3.00)** |"),
        "{readme}"
    );
    // A second time changes nothing.
    render::render(&path).unwrap();
    assert_eq!(fs::read_to_string(root.join("README.md")).unwrap(), readme);
    fs::remove_dir_all(&root).unwrap();
}
