//! The corruption sweep as a program: `cargo xtask sweep`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use glintdb_testkit::report::Report;
use glintdb_testkit::sweep::campaign::{Part, Tally, resident_bytes_max, run};
use glintdb_testkit::sweep::mutation::Family;
use glintdb_testkit::sweep::probe::{Outcome, Prober};
use glintdb_testkit::sweep::subjects;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
cargo xtask sweep [--set NAME] [--kind bits|swaps|truncations|files] [--seed S] [--threads T] [--full] [--index N]

Small databases are damaged in every way: each bit flipped, each pair of blocks swapped, each file cut at every byte, extended, deleted, replaced, exchanged.
Each image is checked, opened, read whole in every way, and verified: the damage is harmless, or an error names it; never a wrong answer.
  --set NAME      only this database
  --kind KIND     only these mutations
  --full          every mutation of every database; without it, every one of the smallest, and of the others all swaps and all that is
                  done to whole files, one bit in 101 and one cut in 11
  --seed S        which ones of those (1)
  --threads T     so many at a time (as many as there are cores)
  --index N       only the mutation of this number: what a failure prints";

/// Without `--full`, one bit in so many is flipped in all but the smallest database: a prime, so that all bits of a byte come in turn.
const BITS_ONE_IN: usize = 101;
/// Without `--full`, all but the smallest are cut at one byte in so many.
const CUTS_ONE_IN: usize = 11;
/// Databases to which everything is done without `--full`.
const WHOLE: usize = 1;

struct Arguments {
    set: Option<String>,
    kind: Option<Family>,
    seed: usize,
    threads: usize,
    full: bool,
    index: Option<usize>,
}

fn parse() -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments {
        set: None,
        kind: None,
        seed: 1,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        full: false,
        index: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| {
            text.parse::<usize>()
                .map_err(|_| format!("{text:?} is not a number"))
        };
        match word.as_str() {
            "--set" => arguments.set = Some(value()?),
            "--kind" => {
                let text = value()?;
                let family = Family::ALL.into_iter().find(|family| family.name() == text);
                arguments.kind = Some(family.ok_or(format!("no kind {text:?}"))?);
            }
            "--seed" => arguments.seed = number(value()?)?,
            "--threads" => arguments.threads = number(value()?)?.max(1),
            "--index" => arguments.index = Some(number(value()?)?),
            "--full" => arguments.full = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("{other:?} is not understood")),
        }
    }
    if let Some(set) = &arguments.set
        && !subjects::names().contains(&set.as_str())
    {
        let names = subjects::names().join(", ");
        return Err(format!("no database {set:?}; there are {names}"));
    }
    Ok(Some(arguments))
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let mut total = Tally::default();
    for (number, name) in subjects::names().into_iter().enumerate() {
        if arguments.set.as_ref().is_some_and(|set| set != name) {
            continue;
        }
        total.add(sweep(number, name, &arguments));
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
    if let Err(message) = report.save_where_asked() {
        eprintln!("{message}");
        return ExitCode::FAILURE;
    }
    if total.failed == 0 && total.total() > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
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
        let part = Part {
            one_in,
            first: arguments.seed % one_in,
            index: arguments.index,
        };
        let start = Instant::now();
        let tally = run(&prober, name, family, part, arguments.threads);
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
