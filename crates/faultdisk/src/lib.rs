//! A block device in user space, for tests of what real file systems of the running kernel do with a failing disk.
//!
//! A FUSE file system serves one file whose bytes are an [`Image`] in memory; a loop device with direct I/O stands on that file, and a file system is made and mounted
//! on it. Every write comes to the server as it would come to a disk, and every flush as an `fsync` of the file; a forced write (FUA) comes as a write and a flush.
//!
//! - [`image`]: the bytes, in blocks that images share until one is written to.
//! - [`tape`]: every write and flush in order; what a power cut at any place may leave.
//! - [`fault`]: which reads, writes and flushes fail, and how.
//! - [`disk`]: the device, and mounting on it. [`disk::missing`] says what a machine lacks for it.
//! - [`process`](serve): the disk is served by a process of its own, the program `glint-disk`. `server`: the FUSE side of it. `connection`: what it is asked through a socket, and
//!   `wire`: how.
//! - `leftovers`: what a process that was killed left is removed by the next.
//!
//! Requests are served one after the other, so that there is one order. Needs root, `/dev/fuse`, a free loop device and `losetup` and `blockdev` of util-linux.
//!
//! Thread-safe: a [`Disk`] is used from any thread.
#![allow(
    clippy::disallowed_methods,
    reason = "test equipment: real processes and files"
)]

mod connection;
pub mod disk;
pub mod fault;
pub mod image;
mod leftovers;
mod process;
mod server;
pub mod tape;
mod wire;

pub use disk::{Disk, missing};
pub use fault::{Effect, Fault, On, Times};
pub use image::Image;
pub use process::serve;
pub use tape::{Entry, Kept, Replay, Tape};
