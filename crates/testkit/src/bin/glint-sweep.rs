//! The corruption sweep as a program: `cargo xtask sweep`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::program;
use glintdb_testkit::report::Report;
use glintdb_testkit::sweep::campaign::{self, Part, Tally, resident_bytes_max};
use glintdb_testkit::sweep::mutation::Family;
use glintdb_testkit::sweep::probe::{Outcome, Prober};
use glintdb_testkit::sweep::subjects;
use std::process::ExitCode;
use std::time::Instant;

/// Without `--full`, one bit in so many is flipped in all but the smallest database, and in that where nothing was written: a prime, so that all bits of a byte come in turn.
const BITS_ONE_IN: usize = 101;
/// Without `--full`, all but the smallest are cut at one byte in so many.
const CUTS_ONE_IN: usize = 11;
/// Databases to which everything is done without `--full`, but for one bit in [`BITS_ONE_IN`] where nothing was written.
const WHOLE: usize = 1;

/// Small databases are damaged in every way: each bit flipped, each pair of blocks swapped, each file cut at every byte, extended, deleted, replaced, exchanged.
/// Each image is checked, opened, read whole in every way, and verified: the damage is harmless, or an error names it; never a wrong answer.
#[derive(Parser)]
#[command(bin_name = "cargo xtask sweep")]
struct Arguments {
    /// Only this database.
    #[arg(long, value_name = "NAME", value_parser = subjects::names())]
    set: Option<String>,
    /// Only these mutations: bits, swaps, truncations or files.
    #[arg(long, value_name = "KIND", value_parser = family_named)]
    kind: Option<Family>,
    /// Every mutation of every database; without it, every one of the smallest (where nothing was written one bit in 101), and of the others all swaps and all that is done to whole files, one bit in 101 and one cut in 11.
    #[arg(long)]
    full: bool,
    /// Which ones of those.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: usize,
    /// So many at a time (as many as there are cores).
    #[arg(long, value_name = "T", default_value_t = cores(), hide_default_value = true)]
    threads: usize,
    /// Only the mutation of this number: what a failure prints.
    #[arg(long, value_name = "N")]
    index: Option<usize>,
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn family_named(name: &str) -> Result<Family, String> {
    let found = Family::ALL.into_iter().find(|family| family.name() == name);
    found.ok_or_else(|| format!("no kind {name:?}"))
}

fn main() -> ExitCode {
    program::end("glint-sweep", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let start = Instant::now();
    let mut total = Tally::default();
    for (number, name) in subjects::names().into_iter().enumerate() {
        if arguments.set.as_ref().is_some_and(|set| set != name) {
            continue;
        }
        total.add(sweep(number, name, arguments));
    }
    let seconds = start.elapsed().as_secs_f64();
    table(&total);
    for failure in &total.failures {
        println!("WRONG {failure}");
    }
    println!(
        "{} mutations, {} bits flipped, {} harmless, {} detected, {} wrong; {seconds:.1} s, {:.0} a second, at most {} MiB",
        total.total(),
        total.what("bit flipped"),
        total.outcome("harmless"),
        total.outcome("at open") + total.outcome("at read") + total.outcome("by check"),
        total.failed,
        total.total() as f64 / seconds,
        resident_bytes_max() >> 20,
    );
    let mut report = Report::new("sweep", command());
    report.seconds = seconds;
    report.threads = u32::try_from(arguments.threads).unwrap_or(u32::MAX);
    for what in [
        "bit flipped",
        "sectors swapped",
        "blocks swapped",
        "sector zeroed",
        "truncated",
        "extended",
        "deleted",
        "replaced",
        "returned",
        "exchanged",
    ] {
        report.count(what, total.what(what));
    }
    for outcome in Outcome::NAMES {
        report.count(outcome, total.outcome(outcome));
    }
    report.failures.clone_from(&total.failures);
    report.save_where_asked()?;
    Ok(total.failed == 0 && total.total() > 0)
}

fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo xtask sweep {}", words.join(" "))
        .trim_end()
        .to_owned()
}

/// All that is asked for of one database.
fn sweep(number: usize, name: &str, arguments: &Arguments) -> Tally {
    let mut total = Tally::default();
    let Some(subject) = subjects::build(name) else {
        return total;
    };
    let prober = Prober::new(&subject);
    println!(
        "{name}: {} files, {} bytes",
        subject.image.files.len(),
        subject.image.bytes()
    );
    for family in Family::ALL {
        if arguments.kind.is_some_and(|kind| kind != family) {
            continue;
        }
        let one_in = match family {
            Family::Bits if number >= WHOLE && !arguments.full => BITS_ONE_IN,
            Family::Truncations if number >= WHOLE && !arguments.full => CUTS_ONE_IN,
            _ => 1,
        };
        let unwritten_one_in = match family {
            Family::Bits if !arguments.full => BITS_ONE_IN,
            _ => 1,
        };
        let part = Part {
            one_in,
            unwritten_one_in,
            first: arguments.seed,
            index: arguments.index,
        };
        let start = Instant::now();
        let tally = campaign::run(&prober, name, family, part, arguments.threads.max(1));
        println!(
            "  {:12} {:8} tried, {} wrong, {:.1} s",
            family.name(),
            tally.total(),
            tally.failed,
            start.elapsed().as_secs_f64()
        );
        total.add(tally);
    }
    total
}

fn table(tally: &Tally) {
    print!("\n{:10} {:16}", "file", "what");
    for outcome in Outcome::NAMES {
        print!(" {outcome:>12}");
    }
    println!();
    for ((kind, what), outcomes) in &tally.rows {
        print!("{kind:10} {what:16}");
        for outcome in Outcome::NAMES {
            print!(
                " {:>12}",
                outcomes.get(outcome).copied().unwrap_or_default()
            );
        }
        println!();
    }
    println!();
}
