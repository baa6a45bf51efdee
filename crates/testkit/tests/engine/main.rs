//! The whole engine from outside: against the model, at its limits, through its errors, across crashes. One binary, so that it links once.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "tests: what fails ends them"
)]

mod collecting;
mod concurrent;
mod crash;
mod errors;
mod histories;
mod limits;
mod memory;
mod prop;
mod simulation;
