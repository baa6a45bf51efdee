//! Reports as pictures: from the JSON lines of `run --json` to SVG files.
//!
//! For each combination of workload, sizes, threads, batch and durability: the median rates as bars, and, where runs took
//! some seconds, the rate in each second as lines.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use glintdb_bench::{Report, Result, grouped};
use plotters::prelude::*;

use crate::table::median;

const SIZE: (u32, u32) = (900, 420);

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

/// Draws what stands in `lines` into `out` and prints the names of the files.
///
/// # Errors
/// If a line is no report, or a file cannot be read or written.
pub(crate) fn run(lines: &[PathBuf], out: &Path) -> Result<()> {
    fs::create_dir_all(out)?;
    let mut cells: BTreeMap<String, Vec<Report>> = BTreeMap::new();
    for path in lines {
        for (number, line) in BufReader::new(fs::File::open(path)?).lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let report: Report = serde_json::from_str(&line)
                .map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))?;
            cells.entry(cell(&report)).or_default().push(report);
        }
    }
    for (cell, reports) in &cells {
        let medians = medians(reports);
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
    }
    Ok(())
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

/// The median run of each engine, in the order in which engines first appear.
fn medians(reports: &[Report]) -> Vec<&Report> {
    let mut engines: Vec<&str> = Vec::new();
    for report in reports {
        if !engines.contains(&report.engine.as_str()) {
            engines.push(&report.engine);
        }
    }
    let median_of = |engine: &&str| median(reports.iter().filter(|r| r.engine == **engine));
    engines.iter().filter_map(median_of).collect()
}

fn bars(path: &Path, title: &str, reports: &[&Report]) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = reports.iter().map(|r| r.ops_per_s).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(32)
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
        chart.draw_series([Text::new(text, (most * 0.01, y + 0.6), ("sans-serif", 14))])?;
    }
    Ok(root.present()?)
}

fn seconds(path: &Path, title: &str, reports: &[&Report]) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let rates = || {
        reports
            .iter()
            .flat_map(|r| &r.ops_by_second[..whole_seconds(r)])
    };
    let most = rates().copied().max().unwrap_or(1) as f64;
    let longest = reports.iter().map(|r| whole_seconds(r)).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..longest as f64, 0.0..most * 1.02)?;
    chart
        .configure_mesh()
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
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(report.engine.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(root.present()?)
}

/// Seconds without the last, which ends somewhere in its middle.
fn whole_seconds(report: &Report) -> usize {
    report.ops_by_second.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::report;

    #[test]
    fn a_run_becomes_pictures() {
        let dir = std::env::temp_dir().join(format!("bench-peers-plot-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut long = report("rocksdb", 300.0);
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
        let seconds = fs::read_to_string(dir.join(format!("{cell}-seconds.svg"))).unwrap();
        assert!(
            seconds.contains("<polyline") && seconds.contains("rocksdb"),
            "{seconds}"
        );

        fs::write(&path, "{}").unwrap();
        let error = run(&[path], &dir).unwrap_err().to_string();
        assert!(error.contains("lines.jsonl:1:"), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
