//! All mutations of some families on some threads, counted.
//!
//! Thread safety: workers take numbers of mutations from one counter in pieces; a watcher ends the process when one mutation takes longer than [`SECONDS_MAX`].
#![allow(
    clippy::disallowed_methods,
    reason = "a campaign measures its own time, in threads of its own"
)]

use super::mutation::{Family, Mutation, each};
use super::probe::{Outcome, Prober};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What one mutation may take before the engine counts as hanging.
pub const SECONDS_MAX: u64 = 20;
/// Memory that the whole process may take at any moment, address space that was only reserved not counted: what a damaged length must not blow up.
pub const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Mutations that a worker takes at a time.
const PIECE: usize = 64;
/// Failures told of one family of one database.
const FAILURES_MAX: usize = 20;

/// Row of the table: kind of file, what was done.
type Row = (&'static str, &'static str);

/// What came of many mutations.
#[derive(Default)]
pub struct Tally {
    /// By row, then by outcome.
    pub rows: BTreeMap<Row, BTreeMap<&'static str, u64>>,
    /// Each with the command that repeats it.
    pub failures: Vec<String>,
    /// Failures, told or not.
    pub failed: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Tally) {
        for (row, outcomes) in other.rows {
            let mine = self.rows.entry(row).or_default();
            for (outcome, count) in outcomes {
                *mine.entry(outcome).or_default() += count;
            }
        }
        self.failures.extend(other.failures);
        self.failed += other.failed;
    }

    fn count(&mut self, mutation: &Mutation, outcome: &Outcome) {
        let row = (mutation.target().kind(), mutation.what());
        *self
            .rows
            .entry(row)
            .or_default()
            .entry(outcome.name())
            .or_default() += 1;
    }

    /// Mutations tried.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.values().flat_map(BTreeMap::values).sum()
    }

    /// How many had this outcome.
    #[must_use]
    pub fn outcome(&self, name: &str) -> u64 {
        self.rows.values().filter_map(|row| row.get(name)).sum()
    }

    /// How many did this.
    #[must_use]
    pub fn what(&self, what: &str) -> u64 {
        let rows = self.rows.iter().filter(|((_, done), _)| *done == what);
        rows.flat_map(|(_, outcomes)| outcomes.values()).sum()
    }
}

/// Which mutations of a family.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Of so many, one.
    pub one_in: usize,
    /// Of so many bits of sectors to which nothing was written, one.
    pub unwritten_one_in: usize,
    /// The first of them.
    pub first: usize,
    /// Only the one of this number.
    pub index: Option<usize>,
}

/// Runs a family on a subject, on `threads` threads.
#[must_use]
pub fn run(prober: &Prober<'_>, name: &str, family: Family, part: Part, threads: usize) -> Tally {
    let subject = prober.subject();
    let mut mutations: Vec<(usize, Mutation)> = Vec::new();
    let mut number = 0;
    each(subject, family, &mut |mutation| {
        let wanted = match part.index {
            Some(index) => number == index,
            None => {
                let one_of = |many: usize| number % many == part.first % many;
                one_of(part.one_in)
                    && (one_of(part.unwritten_one_in) || !mutation.in_unwritten_sector(subject))
            }
        };
        if wanted {
            mutations.push((number, mutation));
        }
        number += 1;
    });
    let next = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    let total = Mutex::new(Tally::default());
    let busy: Vec<Mutex<Option<(usize, Instant)>>> =
        (0..threads).map(|_| Mutex::new(None)).collect();
    let repeat = |number: usize| {
        format!(
            "cargo xtask sweep --set {name} --kind {} --index {number}",
            family.name()
        )
    };
    // A panic is an outcome, told with the mutation that caused it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    std::thread::scope(|scope| {
        let workers: Vec<_> = busy
            .iter()
            .map(|busy| {
                let (next, total, mutations, repeat) = (&next, &total, &mutations, &repeat);
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    loop {
                        let start = next.fetch_add(PIECE, Ordering::Relaxed);
                        let piece = mutations.iter().skip(start).take(PIECE);
                        if piece.len() == 0 {
                            break;
                        }
                        for (number, mutation) in piece {
                            *busy.lock() = Some((*number, Instant::now()));
                            let Some(outcome) = prober.probe(mutation) else {
                                continue;
                            };
                            tally.count(mutation, &outcome);
                            if let Outcome::Wrong(why) = &outcome {
                                tally.failed += 1;
                                if tally.failures.len() < FAILURES_MAX {
                                    let repeat = repeat(*number);
                                    tally
                                        .failures
                                        .push(format!("{name}: {mutation}: {why} [{repeat}]"));
                                }
                            }
                        }
                    }
                    *busy.lock() = None;
                    total.lock().add(tally);
                })
            })
            .collect();
        scope.spawn(|| watch(&busy, &done, &repeat));
        for worker in workers {
            worker.join().ok();
        }
        done.store(true, Ordering::Release);
    });
    std::panic::set_hook(hook);
    total.into_inner()
}

/// Ends the process, with the command that repeats it, where a mutation hangs or memory is blown up.
fn watch(
    busy: &[Mutex<Option<(usize, Instant)>>],
    done: &AtomicBool,
    repeat: &dyn Fn(usize) -> String,
) {
    while !done.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
        let resident = resident_bytes_max();
        for busy in busy {
            let Some((number, since)) = *busy.lock() else {
                continue;
            };
            let hangs = since.elapsed() > Duration::from_secs(SECONDS_MAX);
            assert!(!hangs, "hangs: {}", abort(&repeat(number)));
            let much = resident > MEMORY_BYTES_MAX;
            assert!(!much, "took {resident} bytes: {}", abort(&repeat(number)));
        }
    }
}

/// Says what is wrong and ends the process: a thread that hangs cannot be ended.
fn abort(repeat: &str) -> String {
    use std::io::Write as _;
    writeln!(
        std::io::stderr(),
        "hangs, or takes too much memory: {repeat}"
    )
    .ok();
    std::process::abort()
}

/// The most memory this process had, where the kernel tells.
#[must_use]
pub fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}
