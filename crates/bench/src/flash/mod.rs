//! `flash-bench`: readers and writers on the modelled device itself, without a database, as
//! `oc_bench` of the DapDB paper (section III) had them on a real open-channel drive.
//!
//! [`Setup`] says what runs, [`simulate`] runs it in the model's own time and gives an
//! [`Outcome`]. Equal setups give equal outcomes. [`FlashBenchArgs`] is the command line.

mod args;
mod report;
mod setup;
mod simulation;
#[cfg(test)]
mod tests;

pub use args::{FlashBenchArgs, Look, Looks, Run};
pub use report::{FlashReport, Rates};
pub use setup::{Blocks, Layout, Setup};
pub use simulation::{Ended, Outcome, Side, simulate};
