//! The whole index against a model: random runs, jobs, views, reopenings, crashes and threads.
#![allow(
    clippy::cast_possible_truncation,
    reason = "random numbers are cut to what is needed"
)]

mod ahead;
mod concurrent;
mod crash;
mod deletions;
pub(crate) mod harness;
mod limits;
mod pins;
mod prop;
mod relocation;
