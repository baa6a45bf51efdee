//! Corpora and regressions of the fuzz targets, replayed: every input that a fuzzer kept, and some random mutations. A binary of its own, and one test, for memory is
//! measured by the process.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a hang is noticed by a thread with a clock"
)]

use glintdb_testkit::fuzz::campaign::{Case, Inputs, fuzz_dir};
use glintdb_testkit::fuzz::{Meter, TARGETS};
use peak_alloc::PeakAlloc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Mutations of each target: the campaign (`cargo xtask fuzz`) does millions.
const CASES: u64 = 40;

/// A case that hangs would hang the test: it ends the process instead.
fn end_after(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        eprintln!("the fuzz targets' corpora take longer than {time:?}");
        std::process::exit(1);
    });
}

#[test]
fn every_input_of_the_corpora_is_harmless() {
    end_after(Duration::from_secs(300));
    for target in TARGETS {
        let inputs = Inputs::of(target).expect("the corpus is readable");
        inputs.replay(target, Meter::PEAK);
        for number in 0..CASES {
            let data = inputs.case(target, Case { seed: 1, number });
            let told = format!("{} case {number}", target.name);
            inputs.tell(&told, || target.check(&data, Meter::PEAK));
        }
    }
    // Each directory is of a target: a renamed one would not be replayed any more.
    for part in ["corpus", "regressions"] {
        let Ok(entries) = std::fs::read_dir(fuzz_dir().join(part)) else {
            continue;
        };
        for entry in entries {
            let name = entry.expect("readable").file_name();
            let known = TARGETS.iter().any(|target| *target.name == *name);
            assert!(known, "fuzz/{part}/{} is of no target", name.display());
        }
    }
}
