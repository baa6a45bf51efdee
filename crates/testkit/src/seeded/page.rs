//! `docs/reliability/seeded-bugs.md`, from what the searches found.

use super::bugs::BUGS;
use super::lanes::Lane;
use super::search::Found;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# Seeded bugs

<!-- Made by `cargo xtask seeded --page`; edit crates/testkit/src/seeded/page.rs instead. -->

The harness is tested: each line is a mistake that can be switched on in the engine (feature `seeded-bugs`, which is off everywhere else), and what noticed it. The lane that
is expected to find it runs first, then the others; each lane does a fixed amount of work from fixed seeds, and all of them pass where no mistake is switched on.
`cargo xtask seeded --bug NAME` repeats one. A step is: of the lanes `model`, `directory`, `crash` and `threads` an operation; of `faults` a life with one fault in it; of `damage` a
database with one damage; of `kill` a process killed; of `sim` a crash point; of
`histories` a call, counted by rounds. Lanes with real threads and processes need more or fewer steps from run to run.
";

/// Where it is.
#[must_use]
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reliability/seeded-bugs.md")
}

/// The page.
#[must_use]
pub fn page(found: &[Found]) -> String {
    let mut page = String::from(HEAD);
    let caught = found.iter().filter(|found| found.lane.is_some()).count();
    let mut line = |text: String| {
        page.push_str(&text);
        page.push('\n');
    };
    line(String::new());
    line(format!("{} bugs, {caught} caught.", found.len()));
    line(String::new());
    line("| bug | what is wrong | caught by | after steps |".into());
    line("|---|---|---|---:|".into());
    for found in found {
        let mistake = BUGS.iter().find(|bug| bug.name == found.bug);
        let mut row = String::new();
        let lane = found.lane.map_or("**nothing**", Lane::name);
        let mistake = mistake.map_or("", |bug| bug.mistake);
        write!(
            row,
            "| {} | {mistake} | {lane} | {} |",
            found.bug, found.steps
        )
        .ok();
        line(row);
    }
    page
}
