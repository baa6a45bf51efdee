//! The way of a frame into the log: it is built, gets a place, is copied into the ring, and moves
//! to a segment. Segments are made in advance and synced in groups.
//!
//! Frames that are too large for the ring, and segments of relocated values, go to their files
//! directly.

pub(crate) mod append;
pub(crate) mod builder;
pub(crate) mod fresh;
pub(crate) mod large;
pub(crate) mod order;
pub(crate) mod prepare;
pub(crate) mod ring_space;
pub(crate) mod spill;
pub(crate) mod sync;
pub(crate) mod values;
