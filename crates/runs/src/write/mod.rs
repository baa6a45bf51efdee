//! How tables are written: from a sorted run, and from tables that are merged.

mod merging;
mod outputs;
mod run;

pub use merging::{MergeInputs, Merged, Merging, check_balance};
pub use outputs::{Grandparents, OutputConfig, Written};
pub use run::{RunWriter, WrittenRun, write_run};
