//! A database in virtual time.

#![cfg(virtual_time)]
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use glintdb::Durability;
use glintdb_bench::virtual_run::{Outcome, Phase, Setup, run};
use glintdb_flash::emulator::Placement;
use glintdb_flash::emulator::nand::Profile;
use std::process::Command;

/// A small run that flushes, compacts, and collects garbage of values.
fn setup(placement: &str) -> Setup {
    let setup = Setup::new(Profile::named("westlake-mlc").unwrap());
    let phase = |read_percent| Phase {
        operations: 6000,
        read_percent,
    };
    Setup {
        placement: Placement::parse(placement).unwrap(),
        clients: 16,
        loaded: 2000,
        records: 4000,
        phases: vec![phase(50), phase(10)],
        intervals: 4,
        options: (setup.options)
            .memory_budget_bytes(16 << 20)
            .background_threads(4),
        ..setup
    }
}

fn runs() -> Vec<Outcome> {
    let separated = Setup {
        separated: true,
        ..setup("dynamic")
    };
    let synced = Setup {
        options: setup("striping").options.durability(Durability::Sync),
        ..setup("isolation")
    };
    [setup("striping"), separated, synced]
        .iter()
        .map(|setup| run(setup).unwrap())
        .collect()
}

fn hashes(outcomes: &[Outcome]) -> String {
    let hashes = outcomes.iter().map(|it| format!("{:016x}", it.trace_hash));
    hashes.collect::<Vec<_>>().join(" ")
}

/// Set in processes that this test starts, which print their traces.
const CHILD: &str = "GLINTDB_PRINT_TRACES";

#[test]
fn equal_runs_have_equal_traces_in_two_processes() {
    if std::env::var_os(CHILD).is_some() {
        println!("traces: {}", hashes(&runs()));
        return;
    }
    let traces = || {
        let mut process = Command::new(std::env::current_exe().unwrap());
        let name = "equal_runs_have_equal_traces_in_two_processes";
        process
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1");
        let output = String::from_utf8(process.output().unwrap().stdout).unwrap();
        let line = output.lines().find_map(|line| line.split_once("traces: "));
        let (_, traces) = line.unwrap_or_else(|| panic!("no traces in {output}"));
        traces.to_owned()
    };
    let outcomes = runs();
    let first = hashes(&outcomes);
    assert_eq!(traces(), first);
    assert_eq!(traces(), first);
    // Not each other's: the hash tells runs apart.
    let of = |number: usize| first.split(' ').nth(number).unwrap();
    assert!(of(0) != of(1) && of(1) != of(2), "{first}");
}

#[test]
fn a_run_has_the_operations_and_times_that_were_asked_for() {
    let outcome = run(&setup("isolation:3:3:2")).unwrap();
    assert_eq!(outcome.phases.len(), 2);
    assert_eq!(outcome.intervals.len(), 4);
    for (phase, share) in outcome.phases.iter().zip([50.0, 10.0]) {
        let (gets, puts) = (phase.gets.summary().unwrap(), phase.puts.summary().unwrap());
        assert_eq!(gets.calls + puts.calls, 6000);
        let percent = gets.calls as f64 / 60.0;
        assert!((percent - share).abs() < 3.0, "{percent}");
        // A get that reads the device takes at least the sensing of a page.
        assert!(gets.max_us > 48.0, "{gets:?}");
    }
    let (end, last) = (outcome.phase_ends_ns[1], outcome.phase_ends_ns[0]);
    assert!(last > outcome.started_ns && end > last);
    // Time is the device's: the puts of the second phase alone take longer than their programs on
    // all units.
    let written = outcome.device.space.host_bytes - outcome.loaded.space.host_bytes;
    let fastest_s = written as f64 / (128.0 * 32768.0 / 1575e-6);
    assert!((end - outcome.started_ns) as f64 / 1e9 > fastest_s);
}
