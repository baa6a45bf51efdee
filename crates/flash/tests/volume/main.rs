//! Every volume, by behaviour: what all of them promise (`conformance`), and what only a directory or only a simulation does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod directory;
mod simulated;
