//! A run that has ended, as a film: what each LUN does at a time of the model, and the rates around
//! that time.
//!
//! Invariant: the time that is asked for never goes back.

use glintdb_bench::flash::{Ended, Run};
use glintdb_flash::emulator::nand::{Ns, Operation, Span};
use std::collections::VecDeque;
use std::time::Duration;

/// The part of a film over which rates are taken: a fortieth, which is a quarter of a second of
/// ten.
const RATE_PARTS: Ns = 40;

/// The picture at a time of the model.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct State {
    /// What runs.
    pub(super) title: String,
    /// Which of how many runs it is.
    pub(super) number: String,
    /// Number of channels. LUN `n` is on channel `n` modulo this number.
    pub(super) channels: usize,
    /// What each LUN does; nothing if it is idle.
    pub(super) doing: Vec<Option<Operation>>,
    /// The readers.
    pub(super) reads: Rate,
    /// The writers.
    pub(super) writes: Rate,
    /// The model's time.
    pub(super) now: Ns,
    /// The model's time at the end.
    pub(super) end: Ns,
    /// Nanoseconds of the model in one of the viewer.
    pub(super) speed: f64,
}

/// What readers or writers have done.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Rate {
    /// Lately, in 10^6 bytes per second of the model.
    pub(super) mb_per_s: f64,
    /// Bytes from the beginning on.
    pub(super) bytes: u64,
}

/// A film.
pub(super) struct Player {
    state: State,
    /// In the order of their beginnings.
    spans: Vec<Span>,
    next_span: usize,
    /// What each LUN has begun and not ended.
    running: Vec<Vec<Span>>,
    /// Commands in the order of their ends.
    ended: Vec<Ended>,
    next_ended: usize,
    /// Commands of the last `window_ns`.
    lately: VecDeque<Ended>,
    window_ns: Ns,
}

impl Player {
    /// A film of a run, to be shown for `length`.
    pub(super) fn new(run: &Run<'_>, length: Duration) -> Player {
        let (setup, outcome) = (run.setup, run.outcome);
        let mut spans = outcome.trace.clone();
        spans.sort_by_key(|span| span.from);
        let ends = spans.iter().map(|span| span.until);
        let ends = ends.chain(outcome.ended.iter().map(|ended| ended.at));
        let end = ends.max().unwrap_or(0).max(1);
        let luns = outcome.units.len();
        Player {
            state: State {
                title: setup.title(),
                number: format!("run {} of {}", run.number + 1, run.of),
                channels: setup.profile.geometry.channels as usize,
                doing: vec![None; luns],
                reads: Rate::default(),
                writes: Rate::default(),
                now: 0,
                end,
                speed: end as f64 / length.as_nanos().max(1) as f64,
            },
            spans,
            next_span: 0,
            running: vec![Vec::new(); luns],
            ended: outcome.ended.clone(),
            next_ended: 0,
            lately: VecDeque::new(),
            window_ns: (end / RATE_PARTS).max(1),
        }
    }

    /// The picture when `part` of the film was shown, 0 to 1.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the end is a u64, and the part at most 1"
    )]
    pub(super) fn at(&mut self, part: f64) -> &State {
        let now = (self.state.end as f64 * part.clamp(0.0, 1.0)) as Ns;
        self.state.now = now;
        while let Some(span) = self.spans.get(self.next_span).filter(|s| s.from <= now) {
            self.running[span.lun as usize].push(*span);
            self.next_span += 1;
        }
        for (running, doing) in self.running.iter_mut().zip(&mut self.state.doing) {
            running.retain(|span| span.until > now);
            // A read that has interrupted a program began after it.
            *doing = running.last().map(|span| span.operation);
        }
        while let Some(ended) = self.ended.get(self.next_ended).filter(|e| e.at <= now) {
            let side = match ended.is_read {
                true => &mut self.state.reads,
                false => &mut self.state.writes,
            };
            side.bytes += ended.bytes;
            self.lately.push_back(*ended);
            self.next_ended += 1;
        }
        let window = self.window_ns.min(now.max(1));
        let from = now - window.min(now);
        while self.lately.front().is_some_and(|ended| ended.at <= from) {
            self.lately.pop_front();
        }
        let lately = |is_read| {
            let of_side = self.lately.iter().filter(|ended| ended.is_read == is_read);
            let bytes: u64 = of_side.map(|ended| ended.bytes).sum();
            bytes as f64 * 1000.0 / window as f64
        };
        (self.state.reads.mb_per_s, self.state.writes.mb_per_s) = (lately(true), lately(false));
        &self.state
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use glintdb_bench::flash::{Layout, Setup, simulate};
    use glintdb_flash::emulator::nand::Profile;

    #[test]
    fn a_film_shows_what_luns_do_and_ends_with_the_bytes_of_the_run() {
        // A page of 16 KiB takes 65 us to read, 3,800 to erase; a row of both planes is programmed
        // in 750 us.
        let setup = Setup {
            width: 8,
            layout: Layout::Isolated,
            bytes: 50_000_000,
            ..Setup::new(Profile::named("mqsim-mlc").unwrap())
        };
        let outcome = simulate(&setup, true).unwrap();
        let run = Run {
            setup: &setup,
            outcome: &outcome,
            number: 1,
            of: 3,
        };
        let mut player = Player::new(&run, Duration::from_secs(10));
        let first = player.at(0.0).clone();
        assert!(first.title.starts_with("mqsim-mlc: 1 readers, "));
        assert_eq!(first.number, "run 2 of 3");
        // The writer erases the blocks of its eight LUNs; the reader has eight of the other half.
        assert_eq!(first.doing[..8], [Some(Operation::Erase); 8]);
        assert_eq!(first.doing[8..32], [None; 24]);
        assert_eq!(first.doing[32..40], [Some(Operation::Read); 8]);
        assert_eq!((first.channels, first.doing.len()), (8, 64));
        assert_eq!((first.reads.bytes, first.writes.bytes), (0, 0));

        let (mut rates, mut programs) = (Vec::new(), 0);
        for step in 0..100 {
            let state = player.at(f64::from(step) / 100.0);
            let program = Some(Operation::Program);
            programs += state
                .doing
                .iter()
                .filter(|doing| **doing == program)
                .count();
            rates.push(state.writes.mb_per_s);
        }
        assert!(programs > 100, "{programs}");
        let last = player.at(1.0).clone();
        assert_eq!(last.now, last.end);
        assert!(last.doing.iter().all(Option::is_none));
        assert_eq!(last.reads.bytes, outcome.reads.bytes);
        assert_eq!(last.writes.bytes, outcome.writes.bytes);
        // The mean of the rates is about that of the whole run, which the slower side fills.
        let whole = outcome.writes.bytes as f64 * 1000.0 / last.end as f64;
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((0.9..1.1).contains(&(mean / whole)), "{mean}, {whole}");
        assert!((last.speed - last.end as f64 / 1e10).abs() < 1e-9);
    }

    #[test]
    fn a_read_within_a_program_is_shown_and_then_the_program_again() {
        let setup = Setup::new(Profile::named("z-nand").unwrap());
        let small = Setup { bytes: 1, ..setup };
        let mut outcome = simulate(&small, true).unwrap();
        let span = |operation, from, until| Span {
            lun: 3,
            operation,
            from,
            until,
        };
        let (read, program) = (Operation::Read, Operation::Program);
        outcome.trace = vec![span(program, 10, 1000), span(read, 400, 600)];
        outcome.ended = Vec::new();
        let run = Run {
            setup: &small,
            outcome: &outcome,
            number: 0,
            of: 1,
        };
        let mut player = Player::new(&run, Duration::from_secs(1));
        let shown = [0.0, 0.01, 0.399, 0.4, 0.599, 0.6, 0.999, 1.0];
        let shown = shown.map(|part| player.at(part).doing[3]);
        let (read, program) = (Some(read), Some(program));
        assert_eq!(
            shown,
            [None, program, program, read, read, program, program, None]
        );
    }
}
