//! Tests of the data log over a simulated volume.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "tests"
)]

mod append;
mod crash;
mod footprint;
mod golden;
mod hook;
mod kill;
mod live_scan;
mod properties;
mod recovery;
mod support;
mod values;
