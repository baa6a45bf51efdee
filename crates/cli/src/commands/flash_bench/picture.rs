//! A picture of what each LUN did, as SVG: a row a LUN, and time from left to right.

use glintdb_bench::flash::{Outcome, Setup};
use glintdb_flash::emulator::nand::{Operation, Span};
use plotters::prelude::*;

/// Columns of the picture: intervals of equal length.
const COLUMNS: usize = 240;
/// Steps between white and a colour.
const SHADES: u64 = 5;

/// Nanoseconds of each operation in an interval of a LUN.
#[derive(Clone, Copy, Default)]
struct Cell([u64; 3]);

fn number(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Program => 1,
        Operation::Erase => 2,
    }
}

fn colour_of(operation: usize) -> RGBColor {
    [
        RGBColor(38, 103, 178),
        RGBColor(230, 126, 34),
        RGBColor(170, 30, 45),
    ][operation]
}

/// For each LUN and interval of `width` nanoseconds, what the LUN did.
fn cells(luns: usize, width: u64, trace: &[Span]) -> Vec<Vec<Cell>> {
    let mut cells = vec![vec![Cell::default(); COLUMNS]; luns];
    for span in trace {
        let mut from = span.from;
        while from < span.until {
            let column = usize::try_from(from / width).unwrap_or(COLUMNS);
            let Some(cell) = cells[span.lun as usize].get_mut(column) else {
                break;
            };
            let end = span.until.min((from / width + 1) * width);
            cell.0[number(span.operation)] += end - from;
            from = end;
        }
    }
    cells
}

/// The operation that a cell shows, and how dark: 0 to `SHADES`.
fn shade(cell: &Cell, width: u64) -> (usize, u64) {
    let busy: u64 = cell.0.iter().sum();
    let most = (0..3)
        .max_by_key(|operation| cell.0[*operation])
        .unwrap_or(0);
    (most, (busy * SHADES).div_ceil(width.max(1)).min(SHADES))
}

/// Draws a run.
///
/// # Errors
/// A text for people if plotters cannot.
pub(super) fn draw(setup: &Setup, outcome: &Outcome) -> Result<String, Box<dyn std::error::Error>> {
    let luns = outcome.units.len();
    let end = outcome
        .trace
        .iter()
        .map(|span| span.until)
        .max()
        .unwrap_or(1);
    let width = end.div_ceil(COLUMNS as u64).max(1);
    let height = u32::try_from(luns * 6).unwrap_or(u32::MAX).clamp(240, 2400);
    let mut picture = String::new();
    let root = SVGBackend::with_string(&mut picture, (1100, height + 120)).into_drawing_area();
    root.fill(&WHITE)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut chart = ChartBuilder::on(&root)
        .caption(setup.title(), ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..seconds(end), 0.0..luns as f64)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("seconds of the model")
        .y_desc("LUN")
        .y_label_formatter(&|lun| format!("{lun:.0}"))
        .draw()?;
    for (lun, row) in cells(luns, width, &outcome.trace).iter().enumerate() {
        let mut column = 0;
        while column < COLUMNS {
            let shown = shade(&row[column], width);
            let from = column;
            while column < COLUMNS && shade(&row[column], width) == shown {
                column += 1;
            }
            let (operation, dark) = shown;
            if dark == 0 {
                continue;
            }
            let x = |column: usize| seconds((column as u64 * width).min(end));
            let corners = [(x(from), lun as f64), (x(column), (lun + 1) as f64)];
            let style = colour_of(operation)
                .mix(dark as f64 / SHADES as f64)
                .filled();
            chart.draw_series(std::iter::once(Rectangle::new(corners, style)))?;
        }
    }
    for (operation, name) in ["read", "program", "erase"].into_iter().enumerate() {
        let style = colour_of(operation).filled();
        chart
            .draw_series(std::iter::empty::<Rectangle<(f64, f64)>>())?
            .label(format!("mostly {name}"))
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(picture)
}
