//! Real processes that write and are killed ([`crate::kill`]); the child is this program again.

use super::lanes::Steps;
use crate::kill::child::{self, Task};
use crate::kill::parent::{self, Campaign};
use crate::options::{self, Lane};
use std::path::Path;
use std::process::Command;

const CYCLES: u64 = 12;
const SEED: u64 = 5;

/// The program, called so, is the child that writes: `--kill-child DIR SET [DONE,DONE…]`.
pub const KILL_CHILD: &str = "--kill-child";

pub(super) fn run(dir: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let campaign = Campaign {
        cycles: CYCLES,
        seed: SEED,
        dir: dir.join("kill"),
    };
    parent::fresh(&campaign.dir)?;
    parent::run(&campaign, |arguments| {
        Steps::count();
        // Which mistake is on, it inherits: `GLINTDB_SEEDED_BUG`.
        let mut command = Command::new(&program);
        command.arg(KILL_CHILD).arg(&campaign.dir);
        command.arg(arguments.set.to_string());
        if let Some(done) = arguments.done {
            let done: Vec<String> = done.iter().map(u64::to_string).collect();
            command.arg(done.join(","));
        }
        command
    })
    .map(drop)
}

/// What the child does.
///
/// # Errors
/// A sentence.
pub fn child_main(arguments: &[String]) -> Result<(), String> {
    let (dir, set, done) = match arguments {
        [dir, set] => (dir, set, None),
        [dir, set, done] => (dir, set, Some(done)),
        _ => return Err(format!("{KILL_CHILD} takes two or three arguments")),
    };
    let wrong = |_| "numbers are wanted".to_string();
    let sets = options::of(Lane::Kill);
    let set = sets.get(set.parse::<usize>().map_err(wrong)?);
    let done = done.map(|done| done.split(',').map(str::parse).collect());
    let done: Option<Vec<u64>> = done.transpose().map_err(wrong)?;
    child::run(&Task {
        dir: Path::new(dir),
        set: set.ok_or("no such option set")?,
        seed: SEED,
        done: done.as_deref(),
    })
}
