//! Every volume, by behaviour: what all of them promise (`conformance`), and what only a directory or only a simulation does.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on fails; its numbers are small"
)]

mod closable;
mod conformance;
mod directory;
mod fork;
mod hostile;
mod simulated;
mod units;
