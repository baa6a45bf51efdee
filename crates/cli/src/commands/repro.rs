//! `repro`: figures of the papers beside ours, as tables, pages and plots.

use crate::args::Repro;
use crate::exit::Failure;
use crate::output;
use glintdb::Error;
use glintdb_bench::repro::{Comparison, FIGURES, Figure, How, PAPERS, figures_of, find};
use plotters::prelude::*;
use std::path::Path;

/// Labels of the x axis, at most.
const X_LABELS: usize = 8;

pub(super) fn run(arguments: &Repro) -> Result<(), Failure> {
    match (&*arguments.paper, arguments.figure.as_deref()) {
        ("list", None) => list(arguments.json),
        ("list", Some(_)) => Err(Failure::Usage("`repro list` takes no figure".into())),
        (paper, None) => {
            figures_of(paper)?;
            Err(Failure::Usage(format!(
                "repro needs a figure, such as `glintdb repro {paper} 4`, or `all`; `glintdb repro list` names them"
            )))
        }
        (paper, Some("all")) => {
            let mut models = figures_of(paper)?;
            models.retain(|figure| matches!(figure.how, How::Model(_)));
            if models.is_empty() {
                return Err(Failure::Usage(format!(
                    "no figure of {paper} is a model yet; `glintdb repro list` says how each is run"
                )));
            }
            compare(arguments, &models)?;
            let is_in_virtual_time = |figure: &Figure| matches!(figure.how, How::VirtualTime);
            if !arguments.json && figures_of(paper)?.iter().any(is_in_virtual_time) {
                output::line(&format!(
                    "the others run in virtual time: cargo xtask virtual-time repro {paper} all"
                ))?;
            }
            Ok(())
        }
        (paper, Some(number)) => compare(arguments, &[find(paper, number)?]),
    }
}

/// Prints all figures, and how each is run.
fn list(json: bool) -> Result<(), Failure> {
    let how = |figure: &Figure| match figure.how {
        How::Model(_) => format!("glintdb repro {} {}", figure.paper, figure.number),
        How::VirtualTime => format!(
            "cargo xtask virtual-time repro {} {}",
            figure.paper, figure.number
        ),
        How::Command { command, page } => format!("{command} … ({page})"),
        How::Missing(needs) => format!("not here: needs {needs}"),
    };
    if json {
        let figures: Vec<_> = (FIGURES.iter())
            .map(|figure| {
                serde_json::json!({
                    "paper": figure.paper, "figure": figure.number, "title": figure.title, "how": how(figure),
                })
            })
            .collect();
        return output::line(&serde_json::Value::from(figures).to_string());
    }
    for (paper, title) in PAPERS {
        output::line(&format!("{paper}: {title}"))?;
        for figure in FIGURES.iter().filter(|figure| figure.paper == paper) {
            let (number, title) = (figure.number, figure.title);
            output::line(&format!("  {number:<4} {title:<76} {}", how(figure)))?;
        }
    }
    Ok(())
}

fn compare(arguments: &Repro, figures: &[Figure]) -> Result<(), Failure> {
    if let Some(dir) = &arguments.out {
        let made = std::fs::create_dir_all(dir);
        made.map_err(|error| Error::io(format!("create {}", dir.display()), error))?;
    }
    let mut all = Vec::new();
    for figure in figures {
        let comparison = figure.run(arguments.quick)?;
        if let Some(dir) = &arguments.out {
            write(dir, &comparison)?;
        }
        if !arguments.json {
            print(&comparison)?;
        }
        all.push(comparison);
    }
    match arguments.json {
        true => {
            let text = serde_json::to_string_pretty(&all);
            let text = text.map_err(|error| Failure::Usage(error.to_string()))?;
            output::line(&text)
        }
        false => Ok(()),
    }
}

fn print(comparison: &Comparison) -> Result<(), Failure> {
    let Comparison {
        paper,
        figure,
        title,
        ..
    } = comparison;
    output::line(&format!("{paper}, figure {figure}: {title}"))?;
    let wide = comparison.rows.iter().map(|row| row.what.len()).max();
    let wide = wide.unwrap_or(0);
    output::line(&format!("{:<wide$} {:>8} {:>8}", "", "paper", "here"))?;
    for row in &comparison.rows {
        output::line(&format!(
            "{:<wide$} {:>8} {:>8.2}  {}",
            row.what,
            row.paper_text(),
            row.ours,
            row.verdict()
        ))?;
    }
    Ok(())
}

/// Writes the page and the plot of a figure.
fn write(dir: &Path, comparison: &Comparison) -> Result<(), Failure> {
    let name = format!("{}-{}", comparison.paper, comparison.figure);
    let plot =
        draw(comparison).map_err(|error| Failure::Usage(format!("it cannot be drawn: {error}")))?;
    let page = format!("{}\n![{name}]({name}.svg)\n", comparison.to_markdown());
    for (ending, text) in [("svg", plot), ("md", page)] {
        let path = dir.join(format!("{name}.{ending}"));
        let written = std::fs::write(&path, text);
        written.map_err(|error| Error::io(format!("write {}", path.display()), error))?;
    }
    Ok(())
}

/// The lines of a figure.
fn draw(comparison: &Comparison) -> Result<String, Box<dyn std::error::Error>> {
    // An axis that doubles has the logarithms.
    let at = |x: f64| if comparison.x_doubles { x.log2() } else { x };
    let points = || comparison.lines.iter().flat_map(|line| &line.points);
    let x_min = points().map(|point| at(point.0)).fold(f64::MAX, f64::min);
    let x_max = points()
        .map(|point| at(point.0))
        .fold(x_min + 1.0, f64::max);
    let y_max = points().map(|point| point.1).fold(0.0, f64::max) * 1.1;
    let label = |x: &f64| match comparison.x_doubles {
        true => format!("{:.0}", x.exp2()),
        false => format!("{x:.0}"),
    };
    let mut picture = String::new();
    let root = SVGBackend::with_string(&mut picture, (820, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x_min..x_max, 0.0..y_max)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_labels(X_LABELS)
        .x_label_formatter(&label)
        .x_desc(comparison.axes.0)
        .y_desc(comparison.axes.1)
        .draw()?;
    for (number, line) in comparison.lines.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(
                line.points.iter().map(|point| (at(point.0), point.1)),
                colour.stroke_width(2),
            ))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        let dots = line.points.iter().map(|point| (at(point.0), point.1));
        chart.draw_series(dots.map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    // Where the lines are low.
    let middle = f64::midpoint(x_min, x_max);
    let highest = |is_left: bool| {
        let of = points().filter(|point| (at(point.0) < middle) == is_left);
        of.map(|point| point.1).fold(0.0, f64::max)
    };
    let position = match highest(true) < highest(false) {
        true => SeriesLabelPosition::UpperLeft,
        false => SeriesLabelPosition::UpperRight,
    };
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(picture)
}
