//! The real kernel: GlintDB on file systems that stand on a [faulty disk](glintdb_faultdisk), on full ones, and among processes that get in each other's way.
//!
//! - [`filesystem`]: ext4, xfs and btrfs: how each is made and mounted.
//! - [`history`]: what writers began and what was acknowledged to them; which states may be found afterwards.
//! - [`work`]: writers on a database, with flushes and compactions beside them.
//! - [`power`]: power cuts: the images that a cut may leave are mounted and opened, hundreds a life.
//! - [`errors`]: EIO on reads, writes and flushes under a process that writes.
//! - [`full`]: file systems without space.
//! - [`openers`]: locks, permissions, descriptors.
//!
//! Thread safety: each says so itself.
#![allow(
    clippy::disallowed_methods,
    reason = "real file systems, real threads and real time are what is tested"
)]

pub mod errors;
pub mod filesystem;
pub mod full;
pub mod history;
pub mod openers;
pub mod power;
pub mod work;
