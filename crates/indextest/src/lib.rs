//! What tests of every kind of index share: an index over a volume in memory, beside a model of it.
//!
//! **Architecture invariants:** for tests only. No crate has it as an ordinary dependency.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::should_implement_trait,
    reason = "a test that unwraps fails, which is what it is for"
)]

mod crash;
mod harness;
mod histories;
mod model;
mod relocation;

pub use crash::{
    error_at_every_operation_leaves_nothing_behind, full_compaction,
    power_cut_before_the_manifest_leaves_no_effect,
};
pub use harness::{Harness, Kind, Numbers, Random, VecRun, env};
pub use histories::{Op, op, run_history};
pub use model::Model;
pub use relocation::{Moved, Relocating, live_pointers};
