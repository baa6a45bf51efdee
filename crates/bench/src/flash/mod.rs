//! `flash-bench`: readers and writers on the modelled device itself, without a database, as
//! `oc_bench` of the DapDB paper (section III) had them on a real open-channel drive.
//!
//! [`Setup`] says what runs, [`simulate`] runs it in the model's own time and gives an
//! [`Outcome`]. Equal setups give equal outcomes. [`run_in_real_time`] runs it by the machine's
//! clock. [`FlashBenchArgs`] is the command line.

mod args;
mod real_time;
mod report;
mod setup;
mod simulation;
#[cfg(test)]
mod tests;

pub use args::{FlashBenchArgs, Look, Looks, Run};
pub use real_time::{Paced, run_in_real_time};
pub use report::{FlashReport, Rates, RealTime};
pub use setup::{Blocks, Layout, Setup};
pub use simulation::{Ended, Outcome, Side, simulate};
