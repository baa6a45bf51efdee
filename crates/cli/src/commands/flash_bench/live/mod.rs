//! `--live`: plays each run in the terminal when it is computed.

mod frame;
mod player;

use crate::exit::Failure;
use glintdb_bench::flash::Run;
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;
use player::{Player, State};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// How long all runs are shown together, unless that would be less than [`RUN_MIN`] each.
const ALL: Duration = Duration::from_secs(10);
/// How long a run is shown at least.
const RUN_MIN: Duration = Duration::from_secs(2);
/// Time between two frames.
const FRAME: Duration = Duration::from_millis(33);

/// What a viewer wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    /// The next run.
    Next,
    /// The end of the films.
    Quit,
}

/// The screen of the films. The terminal is as it was before when they have ended, or this is
/// dropped.
pub(super) struct Live {
    /// From the first film on.
    terminal: Option<DefaultTerminal>,
    has_quit: bool,
}

impl Live {
    /// A screen on standard output. Nothing is drawn yet.
    ///
    /// # Errors
    /// Standard output is no terminal.
    pub(super) fn new() -> Result<Live, Failure> {
        if !io::stdout().is_terminal() {
            let text = "--live draws into a terminal, and standard output is none";
            return Err(Failure::Usage(text.into()));
        }
        Ok(Live {
            terminal: None,
            has_quit: false,
        })
    }

    /// Shows a run, unless the viewer has ended the films.
    ///
    /// # Errors
    /// The terminal cannot be read or written.
    pub(super) fn show(&mut self, run: &Run<'_>) -> io::Result<()> {
        if self.has_quit {
            return Ok(());
        }
        let terminal = match &mut self.terminal {
            Some(terminal) => terminal,
            none => none.insert(ratatui::try_init()?),
        };
        let length = length_of(run.of);
        let mut player = Player::new(run, length);
        let mut draw = |state: &State| {
            let drawn = terminal.draw(|area| frame::draw(area, state));
            drawn.map(|_| ())
        };
        let key = play(
            &mut player,
            length,
            &SystemClock::new(),
            &mut draw,
            &mut key,
        )?;
        if key == Some(Key::Quit) || run.number + 1 == run.of {
            self.leave();
        }
        Ok(())
    }

    /// Gives the terminal back. Nothing is shown any more.
    pub(super) fn leave(&mut self) {
        self.has_quit = true;
        if self.terminal.take().is_some() {
            // If the terminal is gone, nothing can be done about it.
            ratatui::try_restore().ok();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.leave();
    }
}

/// How long each of `runs` runs is shown.
fn length_of(runs: usize) -> Duration {
    let runs = u32::try_from(runs).unwrap_or(u32::MAX);
    (ALL / runs.max(1)).max(RUN_MIN)
}

/// The key that is pressed within `time`, if it means something.
fn key(time: Duration) -> io::Result<Option<Key>> {
    if !event::poll(time)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else {
        return Ok(None);
    };
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if has_control => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('n') => Some(Key::Next),
        _ => None,
    })
}

/// Shows a film for `length`, or until `key`, which waits for the time that it is given, returns a
/// key. Returns that key.
fn play(
    player: &mut Player,
    length: Duration,
    clock: &dyn Clock,
    draw: &mut dyn FnMut(&State) -> io::Result<()>,
    key: &mut dyn FnMut(Duration) -> io::Result<Option<Key>>,
) -> io::Result<Option<Key>> {
    let begin = clock.monotonic();
    loop {
        let shown = clock.monotonic() - begin;
        draw(player.at(shown.as_secs_f64() / length.as_secs_f64()))?;
        if shown >= length {
            return Ok(None);
        }
        // An event that is no key, such as a new size, draws the next frame early.
        if let Some(key) = key(FRAME)? {
            return Ok(Some(key));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use glintdb_bench::flash::{Setup, simulate};
    use glintdb_flash::ManualClock;
    use glintdb_flash::emulator::nand::Profile;

    /// Plays a run for a second, and presses `pressed` at the frame of that number. Returns the
    /// model's time in each frame, as a part of its end.
    fn frames(pressed: Option<(usize, Key)>) -> (Vec<f64>, Option<Key>) {
        let setup = Setup {
            bytes: 10_000_000,
            ..Setup::new(Profile::named("westlake-mlc").unwrap())
        };
        let outcome = simulate(&setup, true).unwrap();
        let run = Run {
            setup: &setup,
            outcome: &outcome,
            number: 0,
            of: 1,
        };
        let length = Duration::from_secs(1);
        let clock = ManualClock::default();
        let (mut frames, mut asked) = (Vec::new(), 0);
        let mut draw = |state: &State| {
            frames.push(state.now as f64 / state.end as f64);
            Ok(())
        };
        let mut key = |time| {
            clock.advance(time);
            asked += 1;
            Ok(pressed.filter(|(at, _)| *at == asked).map(|(_, key)| key))
        };
        let mut player = Player::new(&run, length);
        let key = play(&mut player, length, &clock, &mut draw, &mut key).unwrap();
        (frames, key)
    }

    #[test]
    fn a_film_has_thirty_frames_a_second_and_takes_its_length() {
        let (frames, key) = frames(None);
        assert_eq!(key, None);
        assert_eq!(frames.len(), 1 + 1000_usize.div_ceil(33));
        assert_eq!((frames[0], frames[frames.len() - 1]), (0.0, 1.0));
        assert!((frames[10] - 0.33).abs() < 0.001, "{}", frames[10]);
    }

    #[test]
    fn a_key_ends_a_film() {
        for wanted in [Key::Next, Key::Quit] {
            let (frames, key) = frames(Some((5, wanted)));
            assert_eq!((frames.len(), key), (5, Some(wanted)));
        }
    }

    #[test]
    fn runs_share_ten_seconds_and_have_two_each_at_least() {
        let seconds = |runs| length_of(runs).as_secs_f64();
        assert_eq!((seconds(1), seconds(2), seconds(28)), (10.0, 5.0, 2.0));
    }
}
