//! The emulated open-channel SSD. [`nand`] is a model of the device: it computes when operations
//! are done, and has no bytes, threads or clock.

pub mod nand;
