//! The kill test: a child process writes with several threads at `Os` and acknowledges through a pipe; it is killed with SIGKILL at a random moment; the parent
//! opens the database and compares it with the model; then the next child goes on with the same database.
//!
//! What must hold after each kill, for each writer *w* with *n* acknowledged commits: the writer's keys are exactly as after its first *n* or its first *n + 1* commits
//! (the one in flight may have been kept). That is at once: nothing acknowledged is lost, nothing is there that was not asked for, no hole, batches whole. Some
//! children are killed while they open the database, and must then have changed nothing. `verify()` must be clean.
//!
//! - [`work`]: what commit *n* of writer *w* is: a function of the two, so that child and parent agree without speaking.
//! - [`child`]: the writers, a reader that checks isolation, someone who flushes and compacts. Threads: one per writer, one for each of the others.
//! - [`parent`]: kills, opens, compares.
#![allow(
    clippy::disallowed_methods,
    reason = "real processes, real threads and real time are what is tested"
)]

pub mod child;
pub mod parent;
pub mod work;

use glintdb::{Options, Result};
use std::path::Path;

/// Threads that write.
pub const WRITERS: u32 = 4;

/// Names of the two keyspaces that batches span.
pub const SPACES: [&str; 2] = ["default", "second"];

/// Small memtables and segments, so that flushes, compactions and new segments happen all the time; the same in child and parent.
///
/// # Errors
/// Whatever the engine reports.
pub fn open(dir: &Path) -> Result<glintdb::Db> {
    let options = Options {
        background_threads: 2,
        memory_budget_bytes: 8 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 1 << 20,
        replay_bytes_max: 4 << 20,
        separate_min_bytes: 256,
        ..Options::default()
    };
    options.open(dir)
}
