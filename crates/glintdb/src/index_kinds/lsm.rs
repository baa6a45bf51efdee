//! The LSM index, as far as the engine and its tools name it.

pub(crate) use glintdb_lsm::{
    BottomLevel, LEVELS_BELOW_0_MAX, Lsm, TableChange, WrittenLevel, level_bytes,
};
pub use glintdb_lsm::{LsmExperiments, LsmOptions};
