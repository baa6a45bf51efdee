//! The flash layer: [`Volume`](volume::Volume) and what implements it.
#![allow(
    unsafe_code,
    reason = "mapping, aligned memory and io_uring; each block says who guarantees what"
)]

pub mod volume;

pub use volume::{CreateOptions, ReadRequest, Ring, Stream, Volume, VolumeFile, VolumeStats};
