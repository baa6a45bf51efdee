//! Draws a [`State`] into a terminal: a pure function of it.

use super::player::{Rate, State};
use glintdb_bench::bytes;
use glintdb_flash::emulator::nand::{Ns, Operation};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Paragraph};

/// Columns before the cells of a channel.
const LABEL_COLUMNS: u16 = 11;
/// Lines besides the channels.
const OTHER_LINES: u16 = 8;

/// Letter and colours of what a LUN does. The letters are for those who see no colours.
fn look_of(doing: Option<Operation>) -> (char, Style) {
    let on = |colour| Style::new().fg(Color::White).bg(colour);
    match doing {
        None => ('.', Style::new().fg(Color::DarkGray)),
        Some(Operation::Read) => ('R', on(Color::Blue)),
        Some(Operation::Program) => ('P', Style::new().fg(Color::Black).bg(Color::Yellow)),
        Some(Operation::Erase) => ('E', on(Color::Red)),
    }
}

/// A cell of `width` columns: the letter in the middle.
fn cell(doing: Option<Operation>, width: u16) -> Span<'static> {
    let (letter, style) = look_of(doing);
    Span::styled(
        format!("{letter:^width$}", width = usize::from(width)),
        style,
    )
}

/// A time of the model, in the unit that suits the end of the run.
fn time(ns: Ns, end: Ns) -> String {
    match end {
        0..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn rate(name: &str, rate: &Rate) -> Line<'static> {
    Line::from(format!(
        "{name:<LABEL$}{:>9.1} MB/s   {:>10} so far",
        rate.mb_per_s,
        bytes(rate.bytes),
        LABEL = usize::from(LABEL_COLUMNS)
    ))
}

/// The lines of the channels, as many as fit into `area`.
fn channels(state: &State, area: Rect) -> Vec<Line<'static>> {
    let luns = state.doing.len() / state.channels.max(1);
    let room = usize::from(area.width.saturating_sub(LABEL_COLUMNS));
    let width = if luns * 3 <= room { 3 } else { 1 };
    let shown_luns = luns.min(room / usize::from(width));
    let lines = usize::from(area.height);
    let shown = match state.channels <= lines {
        true => state.channels,
        false => lines.saturating_sub(1),
    };
    let mut drawn: Vec<Line<'static>> = (0..shown)
        .map(|channel| {
            let mut spans = vec![Span::raw(format!("channel {channel:<3}"))];
            let of_channel = state.doing.iter().skip(channel).step_by(state.channels);
            spans.extend(of_channel.take(shown_luns).map(|doing| cell(*doing, width)));
            Line::from(spans)
        })
        .collect();
    if shown < state.channels && lines > 0 {
        let rest = state.channels - shown;
        drawn.push(Line::from(format!(
            "and {rest} more, for which the terminal is too small"
        )));
    }
    drawn
}

/// Draws the picture. What does not fit into the terminal is left out.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let rows = u16::try_from(state.channels).unwrap_or(u16::MAX);
    let rows = rows.min(frame.area().height.saturating_sub(OTHER_LINES));
    let lines = |count| Constraint::Length(count);
    let [head, units, foot, gauge, keys] =
        Layout::vertical([lines(4), lines(rows), lines(2), lines(1), lines(1)]).areas(frame.area());
    let bold = Style::new().bold();
    let title = Line::from(state.title.clone()).style(bold);
    let rates = [
        rate("readers", &state.reads),
        rate("writers", &state.writes),
    ];
    let head_lines: Vec<Line<'_>> = std::iter::once(title).chain(rates).collect();
    frame.render_widget(Paragraph::new(head_lines), head);
    frame.render_widget(Paragraph::new(channels(state, units)), units);
    let mut legend = vec![Span::raw(" ".repeat(usize::from(LABEL_COLUMNS)))];
    for (doing, name) in [
        (Some(Operation::Read), "read"),
        (Some(Operation::Program), "program"),
        (Some(Operation::Erase), "erase"),
        (None, "idle"),
    ] {
        legend.extend([cell(doing, 3), Span::raw(format!(" {name}   "))]);
    }
    frame.render_widget(Paragraph::new(Line::from(legend)), foot);
    let (now, end) = (time(state.now, state.end), time(state.end, state.end));
    let progress = Gauge::default()
        .ratio((state.now as f64 / state.end.max(1) as f64).min(1.0))
        .gauge_style(Style::new().fg(Color::Green).bg(Color::Black))
        .label(format!("{now} of {end} of the model"));
    frame.render_widget(progress, gauge);
    let speed = match state.speed >= 1.0 {
        true => format!("{:.1} times as fast as the device", state.speed),
        false => format!("{:.0} times slower than the device", 1.0 / state.speed),
    };
    let keys_line = format!("{}, {speed}   n: next run   q: end", state.number);
    frame.render_widget(Paragraph::new(keys_line), keys);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    /// Two channels with `luns` LUNs each. LUN 0 of channel 1 reads, LUN 1 of channel 0 programs,
    /// and the last one erases.
    fn state(luns: usize) -> State {
        let mut doing = vec![None; 2 * luns];
        doing[1] = Some(Operation::Read);
        doing[2] = Some(Operation::Program);
        doing[2 * luns - 1] = Some(Operation::Erase);
        State {
            title: "small: 1 readers".into(),
            number: "run 1 of 2".into(),
            channels: 2,
            doing,
            reads: Rate {
                mb_per_s: 1234.56,
                bytes: 3_000_000,
            },
            writes: Rate::default(),
            now: 25_000_000,
            end: 100_000_000,
            speed: 0.01,
        }
    }

    fn drawn(state: &State, width: u16, height: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn line(buffer: &Buffer, y: u16) -> String {
        let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn each_lun_is_a_cell_with_the_letter_and_colour_of_what_it_does() {
        let buffer = drawn(&state(4), 80, 12);
        let cell = |lun: u16, channel: u16| {
            let cell = &buffer[(LABEL_COLUMNS + 3 * lun + 1, 4 + channel)];
            (cell.symbol().to_owned(), cell.bg)
        };
        assert_eq!(cell(0, 0), (".".into(), Color::Reset));
        assert_eq!(cell(1, 0), ("P".into(), Color::Yellow));
        assert_eq!(cell(0, 1), ("R".into(), Color::Blue));
        assert_eq!(cell(3, 1), ("E".into(), Color::Red));
        // The colour fills the cell.
        assert_eq!(buffer[(LABEL_COLUMNS + 11, 5)].bg, Color::Red);
        assert_eq!(line(&buffer, 4), "channel 0   .  P  .  .");
        assert_eq!(line(&buffer, 5), "channel 1   R  .  .  E");
    }

    #[test]
    fn rates_time_progress_and_speed_are_shown() {
        let buffer = drawn(&state(4), 80, 12);
        assert_eq!(line(&buffer, 0), "small: 1 readers");
        let readers = line(&buffer, 1);
        assert!(
            readers.starts_with("readers       1234.6 MB/s"),
            "{readers}"
        );
        assert!(line(&buffer, 2).starts_with("writers          0.0 MB/s"));
        let legend = line(&buffer, 6);
        assert!(
            legend.contains("R  read    P  program    E  erase    .  idle"),
            "{legend}"
        );
        assert!(line(&buffer, 8).contains("25.0 ms of 100.0 ms of the model"));
        assert_eq!(
            line(&buffer, 9),
            "run 1 of 2, 100 times slower than the device   n: next run   q: end"
        );
        // A quarter of the gauge is filled: 20 of 80 columns.
        let filled = |x: u16| buffer[(x, 8)].fg == Color::Green && buffer[(x, 8)].symbol() != " ";
        assert!(filled(0) && filled(19) && !filled(20));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        // 40 LUNs with a column each.
        let buffer = drawn(&state(40), 60, 12);
        let channel = line(&buffer, 5);
        assert_eq!(channel.len(), usize::from(LABEL_COLUMNS) + 40);
        assert!(channel.ends_with(".E"), "{channel}");
        // A line for two channels.
        let buffer = drawn(&state(4), 80, 9);
        assert_eq!(
            line(&buffer, 4),
            "and 2 more, for which the terminal is too small"
        );
        for (width, height) in [(1, 1), (12, 3), (5, 40)] {
            drawn(&state(4), width, height);
        }
    }
}
