//! The most memory that processes take for loads of long keys, many keyspaces, many tables and
//! range deletions.
//!
//! To measure the loads in their full size:
//! `GLINTDB_MEMORY_PART=1 cargo test -p glintdb-testkit --test engine memory -- --nocapture`

use glintdb_testkit::memory::{ALLOWANCE_BYTES, Case, Stage, cases, child, measure};
use std::path::Path;
use std::process::Command;

const CASE: &str = "GLINTDB_MEMORY_CASE";
const STAGE: &str = "GLINTDB_MEMORY_STAGE";
const DIRECTORY: &str = "GLINTDB_MEMORY_DIRECTORY";
const PART: &str = "GLINTDB_MEMORY_PART";
/// The loads are this part of their full size. Smaller ones would not exceed the budget even if
/// nothing bounded them.
const PART_DEFAULT: usize = 4;

fn sized_cases() -> Vec<Case> {
    let part = std::env::var(PART).ok().and_then(|part| part.parse().ok());
    cases(part.unwrap_or(PART_DEFAULT))
}

/// Not a test by itself: the process that [`stays_within_budget`] measures.
#[test]
fn child_that_is_measured() {
    let (Ok(name), Ok(stage), Some(dir)) = (
        std::env::var(CASE),
        std::env::var(STAGE),
        std::env::var_os(DIRECTORY),
    ) else {
        return;
    };
    let cases = sized_cases();
    let case = cases.iter().find(|case| case.name == name).unwrap();
    let stage = Stage::ALL.into_iter().find(|one| one.name() == stage);
    child(case, stage.unwrap(), Path::new(&dir));
}

#[allow(clippy::print_stdout, reason = "the figures of decision 038")]
fn stays_within_budget(name: &str) {
    let cases = sized_cases();
    let case = cases.iter().find(|case| case.name == name).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let most = case.budget_bytes as u64 + ALLOWANCE_BYTES;
    let mut exceeded = Vec::new();
    for stage in Stage::ALL {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "memory::child_that_is_measured", "--nocapture"])
            .env(CASE, name)
            .env(STAGE, stage.name())
            .env(DIRECTORY, directory.path());
        let measured = measure(command, stage).unwrap();
        let line = format!(
            "{name}, {}, a budget of {} MiB: {measured}",
            stage.name(),
            case.budget_bytes >> 20
        );
        println!("{line}");
        if measured.peak_bytes > most {
            exceeded.push(line);
        }
    }
    assert!(exceeded.is_empty(), "{}", exceeded.concat());
}

#[test]
fn keys_of_4_kib_stay_within_the_memory_budget() {
    stays_within_budget("keys-4k");
}

#[test]
fn keys_of_64_kib_stay_within_the_memory_budget() {
    stays_within_budget("keys-64k");
}

#[test]
fn long_keys_of_many_lengths_stay_within_the_memory_budget() {
    stays_within_budget("keys-4k-64k");
}

#[test]
fn long_keys_that_differ_in_front_stay_within_the_memory_budget() {
    stays_within_budget("keys-apart-in-front");
}

#[test]
fn many_keyspaces_stay_within_the_memory_budget() {
    stays_within_budget("keyspaces");
}

#[test]
fn many_tables_stay_within_the_memory_budget() {
    stays_within_budget("tables");
}

#[test]
fn range_deletions_stay_within_the_memory_budget() {
    stays_within_budget("range-deletions");
}
