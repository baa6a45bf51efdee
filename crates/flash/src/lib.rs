//! The flash layer: [`Volume`] and what implements it, and the clocks.
//!
//! - [`DirVolume`]: a directory; direct I/O, many reads in flight (io_uring, libaio, threads), the log's ring as a mapped file.
//! - [`MemVolume`]: memory that behaves as badly as `docs/format/media.md` allows; for tests.
//!
//! **Architecture invariant:** only this crate opens files, maps memory or talks to a device.
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
mod dir;
mod mem;
mod process;
mod reads;
mod ring;
mod system;
pub mod volume;

pub use buffer::{AlignedBuffer, BufferPool, DIRECT_ALIGNMENT, POOLED_BYTES_MAX};
pub use clock::{ManualClock, SystemClock};
pub use closable::ClosableVolume;
pub use dir::{DirContents, DirOptions, DirVolume, DirectIo, READ_DEPTH_MAX, ReadEngine};
pub use mem::{
    Contents, CrashMode, Fault, FaultKind, HookedVolume, Hooks, MemOptions, MemVolume, Moment,
    Observer, Operation, OperationKind, SECTOR_BYTES,
};
pub use process::{ProcessToken, in_forked_child};
pub use reads::ahead::{Piece, ReadQueue, ReadQueueStats, Reader};
pub use system::{give_back_freed_memory, physical_memory_bytes, random_bytes, trim_freed_memory};
pub use volume::{
    BegunBatch, CreateOptions, ReadRequest, Ring, Stream, Volume, VolumeFile, VolumeStats,
};
