//! The emulated open-channel SSD, in two parts. [`nand`] is a model of the device: it computes when
//! operations are done, and has no bytes, threads or clock. [`Emulated`] is a volume that has its
//! bytes in another volume, and its times from the model.

mod files;
pub mod nand;
mod profiler;
mod space;
mod volume;

pub use crate::placement::{Group, Placement, PlacementChange, Rule};
pub use files::ClassReads;
pub use space::SpaceStats;
pub use volume::{Emulated, EmulatedStats, Waits};
