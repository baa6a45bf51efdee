//! How tables are written: from a sorted run, and from tables that are merged.

pub(crate) mod merging;
pub(crate) mod outputs;
pub(crate) mod run;

pub use merging::{MergeInputs, Merging};
pub use outputs::{OutputConfig, Outputs, Written};
pub use run::{RunConfig, WrittenRun, write_run};
