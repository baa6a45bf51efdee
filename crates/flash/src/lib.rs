//! The flash layer: volumes of files, batched reads, the log's ring, and clocks.
//!
//! - [`DirVolume`]: a directory. Direct I/O, many reads in flight (io_uring, libaio, threads), and
//!   the log's ring as a mapped file.
//! - [`Units`]: several directories, or other volumes, as one.
//! - `emulator` (with the feature of that name): a model of an open-channel SSD.
//!
//! `glintdb-simdisk` has a volume in memory for tests, which behaves as badly as
//! `docs/format/media.md` allows.
//!
//! **Architecture invariant:** only this crate opens or maps files, or talks to a device.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]
#![allow(
    unsafe_code,
    reason = "mapping, aligned memory and reads in flight; each block says who guarantees what"
)]

mod buffer;
mod clock;
mod closable;
mod cold;
mod dir;
#[cfg(feature = "emulator")]
pub mod emulator;
mod placement;
mod process;
mod reads;
mod ring;
mod system;
mod units;
pub mod volume;

pub use buffer::{AlignedBuffer, BufferPool, DIRECT_ALIGNMENT, POOLED_BYTES_MAX};
pub use clock::{ManualClock, SystemClock};
pub use closable::ClosableVolume;
pub use cold::make_cold;
pub use dir::{DirContents, DirOptions, DirVolume, DirectIo, READ_DEPTH_MAX, ReadEngine};
pub use placement::{Group, Placement, PlacementChange, Rule};
pub use process::{ProcessToken, in_forked_child};
pub use reads::ahead::{Piece, ReadQueue, ReadQueueStats, Reader};
#[doc(hidden)]
pub use ring::{assert_aligned, check_ring_bytes};
pub use system::{
    descriptor_limit, give_back_freed_memory, physical_memory_bytes, raise_descriptor_limit,
    random_bytes, trim_freed_memory,
};
pub use units::{Root, Units, directories_of};
pub use volume::{
    BegunBatch, ClassStats, CreateOptions, DataClass, DeviceStats, ReadRequest, Ring, UnitStats,
    Volume, VolumeFile, VolumeStats, read_each,
};
