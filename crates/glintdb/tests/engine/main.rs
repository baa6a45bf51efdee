//! Tests of the engine through its public API.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]
#![allow(missing_docs, reason = "tests")]

mod basics;
