//! Draws reports as SVG, and writes the tables that `run` prints: from the JSON lines of `run
//! --json`, and the pictures of the page of figures from its rows.
//!
//! For each combination of workload, sizes, threads, batch and durability there are the median
//! rates as bars; the rate in each second as lines, where runs took some seconds; and, where
//! several engines have written, bytes written to storage against space taken, both for a byte of
//! the user's.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use glintdb_bench::figures::{Measured, Row, Run};
use glintdb_bench::{Report, Result, grouped};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::table::table;

/// Pixels. Pictures are as high as their engines need, so that no label lies on another.
const WIDTH: u32 = 900;

/// Height of an engine's bar, and of its line in a legend: more than its label's.
const ROW: u32 = 28;

/// Height of what else a picture of bars has: title, axis and margins.
const BESIDE_BARS: u32 = 96;

/// Height of lines by second, without their legend.
const LINES: u32 = 420;

/// Width of the names of rows beside points.
const NAMES: u32 = 250;

/// Width of the numbers beside points.
const NUMBERS: u32 = 70;

/// Engines in a line of the legend below points.
const LEGEND_COLUMNS: usize = 3;

/// Multiples that have a line and a label.
const TICKS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
];

/// Whole seconds from which on lines say something.
const SECONDS_MIN: usize = 5;

/// Colours in the order of engines: distinguishable also for most who see few colours.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 60),
    RGBColor(60, 60, 60),
];

/// Draws the reports in `lines` into `out` and prints the names of the files.
///
/// # Errors
/// If a line is no report, or a file cannot be read or written. Files that cannot be opened are all
/// named before anything is drawn.
pub(crate) fn run(lines: &[PathBuf], out: &Path) -> Result<()> {
    let mut cells: BTreeMap<String, Vec<Report>> = BTreeMap::new();
    for (path, file) in open(lines)? {
        for (line, number) in BufReader::new(file).lines().zip(1..) {
            let at = |error: &dyn Display| format!("{}:{number}: {error}", path.display());
            let line = line.map_err(|error| at(&error))?;
            if line.trim().is_empty() {
                continue;
            }
            let report: Report = serde_json::from_str(&line).map_err(|error| at(&error))?;
            cells.entry(cell(&report)).or_default().push(report);
        }
    }
    fs::create_dir_all(out)?;
    let mut tables = String::new();
    for (cell, reports) in &cells {
        let measured = Measured::of(reports);
        let medians: Vec<&Report> = measured.iter().map(|one| &one.report).collect();
        let engines: Vec<&str> = medians.iter().map(|r| r.engine.as_str()).collect();
        tables += &table(&engines, reports);
        tables += "\n";
        let path = out.join(format!("{cell}-rates.svg"));
        bars(&path, cell, &medians)?;
        writeln!(std::io::stdout(), "{}", path.display())?;
        if medians
            .iter()
            .any(|report| whole_seconds(report) >= SECONDS_MIN)
        {
            let path = out.join(format!("{cell}-seconds.svg"));
            seconds(&path, cell, &medians)?;
            writeln!(std::io::stdout(), "{}", path.display())?;
        }
        if medians.iter().filter_map(|r| amplifications(r)).count() > 1 {
            let path = out.join(format!("{cell}-amplification.svg"));
            amplification(&path, cell, &medians)?;
            writeln!(std::io::stdout(), "{}", path.display())?;
        }
    }
    let path = out.join("tables.md");
    fs::write(&path, tables)?;
    writeln!(std::io::stdout(), "{}", path.display())?;
    Ok(())
}

fn open(lines: &[PathBuf]) -> Result<Vec<(&Path, File)>> {
    let (mut files, mut failed) = (Vec::new(), Vec::new());
    for path in lines {
        match File::open(path) {
            Ok(file) => files.push((path.as_path(), file)),
            Err(error) => failed.push(format!("{}: {error}", path.display())),
        }
    }
    if failed.is_empty() {
        Ok(files)
    } else {
        Err(format!("cannot open {}", failed.join(", ")).into())
    }
}

/// Everything but engine and repetition, as part of a file's name.
fn cell(report: &Report) -> String {
    format!(
        "{}-{}x{}+{}-threads{}-batch{}-{}",
        report.workload,
        report.num,
        report.key_size,
        report.value_size,
        report.threads,
        report.batch_size,
        report.durability
    )
}

/// Draws the rates by second of a row of figures.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn seconds_of(path: &Path, row: &Row) -> Result<()> {
    seconds(path, &row.label.title, &reports_of(row))
}

/// Draws bytes written against space taken of a row of figures.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn amplification_of(path: &Path, row: &Row) -> Result<()> {
    amplification(path, &row.label.title, &reports_of(row))
}

fn reports_of(row: &Row) -> Vec<&Report> {
    row.measured.iter().map(|one| &one.report).collect()
}

/// Draws each engine's rate as a multiple of the baseline's: a line of points for each row, on a
/// logarithmic axis, and the subject's multiple in figures.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn ratios(path: &Path, title: &str, rows: &[&Row], run: &Run) -> Result<()> {
    // Each engine has the same colour in all pictures of a run.
    let mut engines: Vec<&str> = run.engines.iter().map(|engine| &*engine.id).collect();
    let measured = || rows.iter().flat_map(|row| &row.measured);
    for one in measured() {
        if !engines.contains(&one.report.engine.as_str()) {
            engines.push(&one.report.engine);
        }
    }
    let colour_of = |place: usize| COLOURS[place % COLOURS.len()];
    let in_rows = |engine: &str| measured().any(|one| one.report.engine == engine);
    let shown: Vec<(usize, &str)> = (engines.iter().copied().enumerate())
        .filter(|(_, engine)| in_rows(engine))
        .collect();
    let ratio = |row: &Row, engine: &str| {
        let ratio = row.ratio(engine, &run.baseline);
        ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    };
    let all: Vec<f64> = rows
        .iter()
        .flat_map(|row| shown.iter().filter_map(|(_, engine)| ratio(row, engine)))
        .collect();
    let least = all.iter().copied().fold(0.6, f64::min) * 0.8;
    let most = all.iter().copied().fold(1.6, f64::max) * 1.25;

    let lines = (ROW * rows.len() as u32) + BESIDE_BARS;
    let legend_lines = shown.len().div_ceil(LEGEND_COLUMNS) as u32;
    let height = lines + ROW * legend_lines + ROW / 2;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let style = label_style(&root);
    let right = style.pos(Pos::new(HPos::Right, VPos::Center));
    let (points, legend) = root.split_vertically(lines);
    let mut chart = ChartBuilder::on(&points)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(NAMES)
        .margin_right(NUMBERS)
        .build_cartesian_2d((least..most).log_scale(), 0.0..rows.len() as f64)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_axes()
        .x_desc(format!(
            "multiples of {}'s rate: right is faster",
            run.name_of(&run.baseline)
        ))
        .draw()?;
    let bottom = rows.len() as f64;
    for tick in TICKS
        .into_iter()
        .filter(|tick| (least..most).contains(tick))
    {
        let colour = match tick == 1.0 {
            true => BLACK.mix(0.7),
            false => BLACK.mix(0.15),
        };
        chart.draw_series([PathElement::new([(tick, 0.0), (tick, bottom)], colour)])?;
        let (x, y) = chart.plotting_area().map_coordinate(&(tick, 0.0));
        let centre = style.pos(Pos::new(HPos::Center, VPos::Center));
        points.draw(&Text::new(tick.to_string(), (x, y + 10), &centre))?;
    }
    for (place, row) in rows.iter().enumerate() {
        let y = bottom - place as f64 - 0.5;
        chart.draw_series([PathElement::new([(least, y), (most, y)], BLACK.mix(0.15))])?;
        let (x, at) = chart.plotting_area().map_coordinate(&(least, y));
        points.draw(&Text::new(row.name.as_str(), (x - 10, at), &right))?;
        // The subject last, so that no other point hides it.
        for &(place, engine) in shown.iter().rev() {
            if let Some(x) = ratio(row, engine) {
                let size = if engine == run.subject { 7 } else { 5 };
                chart.draw_series([Circle::new((x, y), size, colour_of(place).filled())])?;
            }
        }
        if let Some(own) = ratio(row, &run.subject) {
            let (x, at) = chart.plotting_area().map_coordinate(&(most, y));
            points.draw(&Text::new(format!("{own:.2}"), (x + 10, at), &style))?;
        }
    }
    for (line, &(place, engine)) in shown.iter().enumerate() {
        let x = 30 + (WIDTH as usize / LEGEND_COLUMNS * (line % LEGEND_COLUMNS)) as i32;
        let y = (ROW * (line / LEGEND_COLUMNS) as u32 + ROW / 2) as i32;
        legend.draw(&Circle::new((x, y), 5, colour_of(place).filled()))?;
        legend.draw(&Text::new(engine, (x + 17, y), &style))?;
    }
    Ok(root.present()?)
}

fn bars(path: &Path, title: &str, reports: &[&Report]) -> Result<()> {
    let height = BESIDE_BARS + ROW * reports.len() as u32;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let style = label_style(&root);
    let most = reports.iter().map(|r| r.ops_per_s).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(12)
        .build_cartesian_2d(0.0..most * 1.02, 0.0..reports.len() as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc("operations a second")
        .x_label_formatter(&|x| grouped(*x))
        .draw()?;
    for (place, report) in reports.iter().enumerate() {
        // The first engine on top.
        let y = (reports.len() - 1 - place) as f64;
        let colour = COLOURS[place % COLOURS.len()];
        let bar = [(0.0, y + 0.12), (report.ops_per_s, y + 0.88)];
        chart.draw_series([Rectangle::new(bar, colour.mix(0.6).filled())])?;
        let text = format!("{}: {}", report.engine, grouped(report.ops_per_s));
        chart.draw_series([Text::new(text, (most * 0.01, y + 0.5), &style)])?;
    }
    Ok(root.present()?)
}

fn seconds(path: &Path, title: &str, reports: &[&Report]) -> Result<()> {
    let height = LINES + ROW * reports.len() as u32 + ROW / 2;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let style = label_style(&root);
    let (lines, legend) = root.split_vertically(LINES);
    let rates = || {
        reports
            .iter()
            .flat_map(|r| &r.ops_by_second[..whole_seconds(r)])
    };
    let most = rates().copied().max().unwrap_or(1) as f64;
    let longest = reports.iter().map(|r| whole_seconds(r)).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(&lines)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(100)
        .build_cartesian_2d(0.0..longest as f64, 0.0..most * 1.02)?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .x_desc("seconds")
        .y_desc("operations in a second")
        .y_label_formatter(&|y| grouped(*y))
        .draw()?;
    for (place, report) in reports.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let points = report.ops_by_second[..whole_seconds(report)]
            .iter()
            .enumerate();
        let points = points.map(|(second, &ops)| (second as f64 + 0.5, ops as f64));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        // Below the lines: a label on them would hide some, or another label.
        let y = (ROW * place as u32 + ROW / 2) as i32;
        let sample = [(112, y), (130, y)];
        legend.draw(&PathElement::new(sample, colour.stroke_width(2)))?;
        legend.draw(&Text::new(report.engine.as_str(), (138, y), &style))?;
    }
    Ok(root.present()?)
}

/// Most disk use, and what was written to storage, for a byte of the user's, of a run that has written.
fn amplifications(report: &Report) -> Option<(f64, f64)> {
    let written = report.write_amp_host.filter(|&amp| amp > 0.0);
    report.space_amp_max.zip(written)
}

fn amplification(path: &Path, title: &str, reports: &[&Report]) -> Result<()> {
    let height = LINES + ROW * reports.len() as u32 + ROW / 2;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let style = label_style(&root);
    let (points, legend) = root.split_vertically(LINES);
    let most = |of: fn((f64, f64)) -> f64| {
        let amplifications = reports.iter().filter_map(|report| amplifications(report));
        amplifications.map(of).fold(1.0, f64::max) * 1.05
    };
    let mut chart = ChartBuilder::on(&points)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            0.0..most(|(space, _)| space),
            0.0..most(|(_, written)| written),
        )?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .x_desc("most disk use for a byte of the database")
        .y_desc("bytes written to storage for a byte that was put")
        .draw()?;
    // One engine with options that trade the one for the other is a curve.
    let mut curve: Vec<(f64, f64)> = (reports.iter())
        .filter(|report| report.engine.split(':').next() == Some("glintdb"))
        .filter_map(|report| amplifications(report))
        .collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    chart.draw_series(LineSeries::new(curve, COLOURS[0].mix(0.5)))?;
    for (place, report) in reports.iter().enumerate() {
        let y = (ROW * place as u32 + ROW / 2) as i32;
        let colour = COLOURS[place % COLOURS.len()].filled();
        let text = match amplifications(report) {
            Some((space, written)) => {
                chart.draw_series([Circle::new((space, written), 5, colour)])?;
                format!("{}: {space:.2} taken, {written:.2} written", report.engine)
            }
            None => format!("{}: nothing written", report.engine),
        };
        legend.draw(&Circle::new((121, y), 5, colour))?;
        legend.draw(&Text::new(text, (138, y), &style))?;
    }
    Ok(root.present()?)
}

/// Of an engine's label, which begins at its place and lies around it.
fn label_style(root: &DrawingArea<SVGBackend<'_>, Shift>) -> TextStyle<'static> {
    let style = ("sans-serif", 14).into_text_style(root);
    style.pos(Pos::new(HPos::Left, VPos::Center))
}

/// Seconds without the last, which ends somewhere in its middle.
fn whole_seconds(report: &Report) -> usize {
    report.ops_by_second.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use glintdb_bench::figures::{Engine, Machine};

    use super::*;
    use crate::table::tests::report;

    #[test]
    fn a_run_becomes_pictures() {
        let dir = temporary("run");
        let mut long = report("rocksdb", 300.0);
        (long.space_amp_max, long.write_amp_host) = (Some(1.5), Some(2.5));
        long.ops_by_second = vec![500, 200, 0, 300, 400, 350, 20];
        let lines: String = [report("glintdb:size_ratio=4", 900.0), long]
            .iter()
            .map(|report| serde_json::to_string(report).unwrap() + "\n")
            .collect();
        let path = dir.join("lines.jsonl");
        fs::write(&path, lines).unwrap();
        run(std::slice::from_ref(&path), &dir).unwrap();
        let cell = "fillrandom-1000x16+100-threads1-batch1-os";
        let rates = fs::read_to_string(dir.join(format!("{cell}-rates.svg"))).unwrap();
        assert!(rates.contains("glintdb:size_ratio=4: 900") && rates.contains("rocksdb: 300"));
        let tables = fs::read_to_string(dir.join("tables.md")).unwrap();
        assert!(
            tables.contains("| glintdb:size_ratio=4 | 900 | 3.00 |"),
            "{tables}"
        );
        let seconds = fs::read_to_string(dir.join(format!("{cell}-seconds.svg"))).unwrap();
        assert!(
            seconds.contains("<polyline") && seconds.contains("rocksdb"),
            "{seconds}"
        );
        let amplification = dir.join(format!("{cell}-amplification.svg"));
        let amplification = fs::read_to_string(amplification).unwrap();
        assert!(
            amplification.contains("rocksdb: 1.50 taken, 2.50 written"),
            "{amplification}"
        );

        fs::write(&path, "{}").unwrap();
        let error = run(&[path], &dir).unwrap_err().to_string();
        assert!(error.contains("lines.jsonl:1:"), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn files_that_are_missing_are_named_and_nothing_is_drawn() {
        let dir = temporary("missing");
        let there = dir.join("there.jsonl");
        fs::write(&there, serde_json::to_string(&report("redb", 1.0)).unwrap()).unwrap();
        let out = dir.join("out");
        let lines = [dir.join("one.jsonl"), there, dir.join("two.jsonl")];
        let error = run(&lines, &out).unwrap_err().to_string();
        assert!(error.contains("one.jsonl: No such file"), "{error}");
        assert!(error.contains("two.jsonl: No such file"), "{error}");
        assert!(!error.contains("there.jsonl") && !out.exists(), "{error}");
        let error = run(std::slice::from_ref(&dir), &out)
            .unwrap_err()
            .to_string();
        assert!(error.contains(dir.to_str().unwrap()), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn labels_overlap_neither_each_other_nor_the_edge() {
        let dir = temporary("labels");
        for engines in [1, 2, 8, 30] {
            for ops in [7, 1_234_567, 123_456_789] {
                let reports: Vec<_> = (0..engines)
                    .map(|place| {
                        let name = format!("glintdb:separate_min_bytes=1G:size_ratio={place}");
                        let mut report = report(&name, ops as f64 + f64::from(place));
                        report.ops_by_second = vec![ops; 8];
                        report
                    })
                    .collect();
                let reports: Vec<_> = reports.iter().collect();
                let title = cell(reports[0]);
                let path = dir.join("picture.svg");
                for draw in [bars, seconds, amplification] {
                    draw(&path, &title, &reports).unwrap();
                    check_labels(&fs::read_to_string(&path).unwrap(), reports.len() + 2);
                }
            }
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn ratios_have_a_line_for_each_row_and_labels_apart() {
        let dir = temporary("ratios");
        let path = dir.join("picture.svg");
        for (rows, fast) in [(1, 3.0), (2, 900.0), (20, 40_000.0)] {
            let rows: Vec<Row> = (0..rows)
                .map(|place| {
                    let mut reports = vec![
                        report("glintdb", fast),
                        report("rocksdb", 100.0),
                        report("wiredtiger", 20.0),
                    ];
                    reports.push(report("glintdb:space_amp_max=1.4", 0.0));
                    Row {
                        name: format!("sustained-ycsb-a-limited-{place}"),
                        label: Default::default(),
                        command: String::new(),
                        seconds: 0.0,
                        measured: Measured::of(&reports),
                        opened: Vec::new(),
                    }
                })
                .collect();
            let rows: Vec<&Row> = rows.iter().collect();
            ratios(&path, "Writes in memory", &rows, &run_of_figures()).unwrap();
            let svg = fs::read_to_string(&path).unwrap();
            // Title, axis, four engines; a name and a number for each row.
            check_labels(&svg, 6 + 2 * rows.len());
            assert!(svg.contains(&format!("{:.2}", fast / 100.0)), "{svg}");
            // Three points a row (an engine that did nothing has none), and four of the legend.
            assert_eq!(svg.matches("<circle").count(), 3 * rows.len() + 4);
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    fn run_of_figures() -> Run {
        let engine = |id: &str| Engine {
            id: id.to_owned(),
            name: id.to_uppercase(),
            version: "1".to_owned(),
            readme: true,
        };
        Run {
            machine: Machine {
                cpu: String::new(),
                cores: 1,
                memory_bytes: 0,
                kernel: String::new(),
                file_system: String::new(),
                disk: String::new(),
            },
            commit: String::new(),
            dirty: false,
            date: String::new(),
            scale: 1.0,
            repeat: 3,
            baseline: "rocksdb".to_owned(),
            subject: "glintdb".to_owned(),
            engines: ["glintdb", "rocksdb", "redb", "wiredtiger"]
                .map(engine)
                .into(),
        }
    }

    fn temporary(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("bench-peers-plot-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Asserts that there are at least `count` texts, all inside the picture and apart from each other.
    fn check_labels(svg: &str, count: usize) {
        let number = |name| attribute(svg, name).parse::<f64>().unwrap();
        let (width, height) = (number("width"), number("height"));
        let texts: Vec<_> = svg.split("<text").skip(1).map(text_box).collect();
        assert!(texts.len() >= count, "{texts:?}");
        for (place, (text, a)) in texts.iter().enumerate() {
            let inside = a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= width && a[3] <= height;
            assert!(inside, "{text} at {a:?} of {width} x {height}");
            for (other, b) in &texts[..place] {
                let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                assert!(apart, "{text} at {a:?}, {other} at {b:?}");
            }
        }
    }

    /// What a text says, and about where it lies: left, top, right, bottom. Letters of a sans-serif font are six tenths
    /// of its size wide at most on average, a line is as high as its size and a fifth.
    fn text_box(svg: &str) -> (&str, [f64; 4]) {
        let (tag, rest) = svg.split_once('>').unwrap();
        let text = rest.split_once("</text>").unwrap().0.trim();
        let number = |name| attribute(tag, name).parse::<f64>().unwrap();
        let (x, y, size) = (number("x"), number("y"), number("font-size"));
        let (width, height) = (text.chars().count() as f64 * size * 0.6, size * 1.2);
        let left = match attribute(tag, "text-anchor") {
            "start" => 0.0,
            "middle" => -width / 2.0,
            _ => -width,
        };
        let top = match attribute(tag, "dy") {
            "0.76em" => size - height,
            "0.5ex" => -height / 2.0,
            _ => -height,
        };
        let (right, bottom) = (left + width, top + height);
        let [left, top, right, bottom] = match tag.contains("rotate(270") {
            true => [top, -right, bottom, -left],
            false => [left, top, right, bottom],
        };
        (text, [x + left, y + top, x + right, y + bottom])
    }

    fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
        let from = tag.split_once(&format!(" {name}=\"")).unwrap().1;
        from.split_once('"').unwrap().0
    }
}
