//! The kill test: a child process writes with several threads at `Os` and acknowledges through a pipe; it is killed with SIGKILL at a random moment; the parent
//! opens the database and compares it with the model; then the next child goes on with the same database, under other options.
//!
//! What must hold after each kill, for each writer *w* with *n* acknowledged commits: the writer's keys are exactly as after its first *n* or its first *n + 1* commits
//! (the one in flight may have been kept). That is at once: nothing acknowledged is lost, nothing is there that was not asked for, no hole, batches whole.
//! Before the parent looks, more children may be killed one after the other while they recover what the first one left, and must then have changed nothing.
//! `verify()` must be clean. A checkpoint that a child finished must open, and be what the database was at some moment of that child's life.
//!
//! - [`work`]: what commit *n* of writer *w* is: a function of the two, so that child and parent agree without speaking.
//! - [`child`]: the writers, a reader that checks isolation, and one that flushes, compacts,
//!   converts keyspaces and makes checkpoints. Threads: one for each.
//! - [`life`]: one child, from its start to its death.
//! - [`parent`]: kills, opens, compares.
#![allow(
    clippy::disallowed_methods,
    reason = "real processes, real threads and real time are what is tested"
)]

pub mod child;
pub mod life;
pub mod parent;
pub mod work;

use std::path::{Path, PathBuf};

/// Threads that write.
pub const WRITERS: u32 = 4;

/// Names of the two keyspaces that batches span.
pub const SPACES: [&str; 2] = ["default", "second"];

/// The database of a campaign in `dir`: every other seed has it over two directories.
#[must_use]
pub fn database_of(dir: &Path, seed: u64) -> PathBuf {
    match seed.is_multiple_of(2) {
        false => dir.to_owned(),
        true => {
            let [one, two] = ["one", "two"].map(|name| dir.join(name));
            format!("dirs:{},{}", one.display(), two.display()).into()
        }
    }
}

/// Where the checkpoint of the database in `dir` goes.
#[must_use]
pub fn checkpoint_of(dir: &Path) -> PathBuf {
    beside(dir, ".checkpoint")
}

/// Where the one before it is put, before it is removed: in one step, so that a kill leaves no half of it in its place.
#[must_use]
pub fn earlier_checkpoint_of(dir: &Path) -> PathBuf {
    beside(dir, ".checkpoint-earlier")
}

fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
