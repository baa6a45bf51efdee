//! Workloads of db_bench and YCSB, and their measurement, for GlintDB and for any store that
//! implements [`Store`].
//!
//! [`Runner`] runs [`Workload`]s one after the other on one database and gives a [`Report`] for
//! each. [`BenchArgs`] is the command line. Answers are checked: a wrong value is recognised
//! ([`values`]), and the report of a store that answered wrongly says so. [`flash`] measures
//! readers and writers on a modelled flash device, without a store. [`repro`] runs figures of the
//! papers.
//!
//! Architecture invariants: operations depend on the seed, never on the engine or on time
//! ([`keys`], `plan`). No engine but GlintDB is named here: its peers are in the separate crate
//! `bench-peers`, so the default build compiles no C++.

#![allow(
    clippy::cast_possible_truncation,
    reason = "counts and sizes here fit 64-bit words, and figures are rounded for people"
)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed test may panic"))]

mod args;
pub mod figures;
pub mod flash;
mod glint;
pub mod keys;
pub mod machine;
mod options;
mod plan;
mod report;
pub mod repro;
mod reshaped;
pub mod rng;
mod run;
pub mod spread;
mod store;
pub mod values;
#[cfg(virtual_time)]
pub mod virtual_run;
mod volume;
mod worker;
mod workload;
pub mod zipf;

pub use args::{BenchArgs, parse_count, run_on};
pub use glint::{GlintStore, run};
pub use glintdb_flash::make_cold;
pub use options::GlintOptions;
pub use report::{Latencies, Latency, Report, bytes, grouped, median};
pub use reshaped::Reshaped;
pub use run::{Config, Contents, Runner};
pub use store::{Durability, Error, Handle, Io, Result, Store};
pub use volume::{OnDevice, VolumeName};
pub use workload::Workload;
