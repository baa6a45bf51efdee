//! Miri: what undefined behaviour the tests of `core`, the memtable (nodes of four slots), and flash's buffers, ring words and slabs of the cache would show.

use crate::reliability::{Figures, save};
use crate::run;
use crate::summary::Counts;
use crate::test::Outcome;
use std::process::Command;
use std::time::Instant;

/// Where a thread seldom loses its core: Miri cannot run what `parking_lot` does with a lock that several wait for.
const SELDOM: &str = "-Zmiri-preemption-rate=0.001";

/// Arguments of `cargo miri test`, run after run, and Miri's flags.
const SETS: [(&[&str], &str); 4] = [
    (&["--package", "glintdb-core", "--lib"], ""),
    (
        &[
            "--package",
            "glintdb-memtable",
            "--test",
            "memtable",
            "--",
            "arena::",
            "threads::parallel",
            "threads::validation",
        ],
        "",
    ),
    (
        &[
            "--package",
            "glintdb-flash",
            "--lib",
            "--",
            "buffer::",
            "ring::tests",
            // Miri opens no file for direct I/O.
            "--skip",
            "uring::",
        ],
        SELDOM,
    ),
    (
        &["--package", "glintdb-cache", "--lib", "--", "slabs::"],
        SELDOM,
    ),
];

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let seeds = match arguments {
        [] => None,
        [flag, seeds] if flag == "--seeds" => Some(seeds.as_str()),
        _ => return Err("xtask miri takes nothing, or `--seeds N`".into()),
    };
    let outcome = run_sets(seeds)?;
    for reason in &outcome.not_run {
        println!("not run: {reason}");
    }
    Ok(outcome.counts.failed == 0)
}

/// Every set; with `seeds`, the memtable's tests of threads under so many of Miri's schedules too.
fn run_sets(seeds: Option<&str>) -> Result<Outcome, String> {
    if run::output(Command::new("cargo").args(["+nightly", "miri", "--version"])).is_err() {
        let reason =
            "there is no Miri (`rustup toolchain install nightly --component miri,rust-src`)";
        let mut figures = Figures::new("miri");
        figures.not_run.push(reason.into());
        save("cargo xtask miri", Instant::now(), figures)?;
        return Ok(Outcome::skipped(reason));
    }
    let start = Instant::now();
    let (mut counts, mut figures) = (Counts::default(), Figures::new("miri"));
    for (set, flags) in SETS {
        let found = miri(set, flags)?;
        if found.failed > 0 {
            figures.failures.push(set.join(" "));
        }
        counts.add(found);
    }
    if let Some(seeds) = seeds {
        let threads = [
            "--package",
            "glintdb-memtable",
            "--test",
            "memtable",
            "--",
            "threads::",
        ];
        let found = miri(&threads, &format!("-Zmiri-many-seeds=0..{seeds}"))?;
        if found.failed > 0 {
            figures.failures.push("many seeds".into());
        }
        counts.add(found);
    }
    figures.count("tests under Miri", counts.passed + counts.failed);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "miri: {} passed, {} failed, {seconds:.1} s",
        counts.passed, counts.failed
    );
    let command = match seeds {
        Some(seeds) => format!("cargo xtask miri --seeds {seeds}"),
        None => "cargo xtask miri".into(),
    };
    save(&command, start, figures)?;
    Ok(Outcome::of(counts))
}

fn miri(set: &[&str], flags: &str) -> Result<Counts, String> {
    let mut command = Command::new("cargo");
    command
        .current_dir(run::root())
        .args(["+nightly", "miri", "test", "--no-fail-fast"])
        .args(set)
        .env("CARGO_TARGET_DIR", run::target_dir().join("miri"))
        .env("PROPTEST_CASES", "2")
        // Property tests look at the environment and the clock.
        .env(
            "MIRIFLAGS",
            format!("-Zmiri-disable-isolation -Zmiri-strict-provenance {flags}"),
        );
    let mut counts = Counts::default();
    let ok = run::lines(&mut command, |line| {
        counts.add(Counts::of_cargo_line(line).unwrap_or_default());
    })?;
    if !ok && counts.failed == 0 {
        counts.failed = 1;
    }
    // Tests that say themselves that Miri cannot run them.
    counts.skipped = 0;
    Ok(counts)
}
