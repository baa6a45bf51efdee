//! What GlintDB's tests share. One operation type for every layer: a [generator](operation::operations) makes sequences of [`Operation`]s, a
//! [`Runner`] applies them to the engine and to the reference [`Model`](model::State) and compares everything that can be seen from outside; crashes are operations too.
//!
//! - [`model`]: the reference: ordered maps, one state a commit.
//! - [`operation`]: operations, the keys and values they use, the generator.
//! - [`options`]: option sets under which the same sequence must give the same answers.
//! - [`fuzz`]: functions of any bytes, for fuzzers.
//! - [`place`]: where a test database lives: a directory, or a volume in memory that can lose power.
//! - [`program`]: what the lanes' programs share.
//! - [`report`]: what a lane of the reliability campaign did, as JSON.
//! - [`runner`]: applies and compares.
//! - [`seeded`]: mistakes planted in the engine, and the search for each; the program `glint-seeded` runs it.
//! - [`sim`]: deterministic simulation: every crash, every error; the program `glint-sim` runs it.
//! - [`ledger`]: what a crash may leave, for whoever looks on.
//! - [`histories`]: what real threads did and when, checked; the program `glint-histories` runs it.
//! - `schedules`: the engine under shuttle, in a build with `--cfg shuttle`; the program `glint-shuttle` runs it.
//! - [`kernel`]: power cuts, errors and full disks on real file systems; the program `glint-kernel` runs it.
//! - [`sweep`]: every bit flipped, every block swapped, every file cut, replaced or gone; the program `glint-sweep` runs it.
//! - [`kill`]: processes that write and are killed; the program `glint-kill` runs it.
//! - [`collecting`]: value GC beside everything else.
//! - [`memory`]: loads whose memory is easily forgotten, each in a process of its own.
//! - [`attack`]: the server under attack, and honest clients in between; the program `glint-attack` runs it.
//!
//! Thread safety: none is needed but in [`kernel`], [`kill`], [`histories`], [`ledger`], [`sim`] and [`attack`], which say so themselves.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    reason = "test code: a failed expectation ends the test"
)]

pub mod attack;
pub mod collecting;
pub mod fuzz;
pub mod histories;
pub mod kernel;
pub mod kill;
pub mod ledger;
pub mod memory;
pub mod model;
pub mod operation;
pub mod options;
pub mod place;
pub mod program;
pub mod report;
pub mod rng;
pub mod runner;
#[cfg(shuttle)]
pub mod schedules;
pub mod seeded;
pub mod sim;
pub mod sweep;

pub use operation::Operation;
pub use runner::Runner;
