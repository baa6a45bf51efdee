//! The server from outside: real sockets, a real database in a temporary directory.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test may stop at the first surprise"
)]

mod attack;
mod concurrency;
mod expiry;
mod failures;
mod limits;
mod pipelines;
mod scans;
mod stopping;
mod support;
mod transcripts;
