//! The data log: write-ahead log and value store in one (`docs/format/log.md` is the format, `docs/decisions/001-log-write-path.md` why it is written like this).
//!
//! One stream of *frames*, one frame a committed batch, in *segments* (files). A commit encodes its frame with a [`FrameBuilder`] outside any lock, takes its place
//! with [`Log::reserve`] under the engine's sequencer lock, copies with [`Log::copy`] in parallel with others, and is published in order with [`Log::complete`].
//! The copy goes to a *ring* that survives the process; [`Log::spill_step`] moves whole blocks from there to the segments; [`Log::sync`] makes them durable against power
//! loss; [`Log::recover`] finds everything again.
//!
//! Beside the stream there are *values segments*: values that value GC moves, written whole by a [`ValuesWriter`], never replayed.
//!
//! **Coordinates.** A [`Lsn`] is a segment and an offset in its file. A *stream position* is one ever-growing `u64`: a segment's base (in its header) plus the offset; its
//! remainder by the ring's length is where the byte stands in the ring. Both have the same order.
//!
//! **Architecture invariants.** Files are only known through `flash::Volume`; nothing here reads a clock or starts a thread; nothing here knows an index. Whatever
//! waits, waits for a lock with work being done under it, or in [`Log::wait`].
//!
//! **Lock order.** `prepare`, then `spill`, then the lock of the ring's space, then `sequencer`;
//! `sync` is held only around its own flags. Segment table and positions are read without a lock;
//! the lock under which the table is changed is the last of all. The log asks for file numbers
//! under `prepare`, so the source of the numbers must not call a function that takes it.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets stay below a segment's capacity, which is below 4 GiB; what is taken modulo the ring's length fits usize"
)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

pub mod format;
mod log;
mod lsn;
#[cfg(all(test, loom))]
mod models;
mod read;
mod recover;
mod segment;
#[cfg(all(test, not(any(loom, shuttle))))]
mod testing;
mod tools;
mod write;

pub use format::entry::{EntryReader, LogEntry, LogOp, LogValue};
pub use log::{Log, LogOptions, LogSetup, LogStats};
pub use lsn::Lsn;
pub use read::BegunValues;
pub use read::live_scan::{LiveScan, Record, RecordBatch};
pub use recover::{FrameView, Recovered, RecoveryProgress, first_frame};
pub use segment::{LogView, SegmentInfo};
pub use tools::check::{LogCheck, check, check_bytes, check_segment, database_of, read_values};
pub use tools::dump::{Dump, DumpFrame, DumpItem, SegmentReport, dump};
pub use tools::salvage::{SalvageFrame, SalvageItem, SegmentSalvage};
pub use write::append::{Reservation, Space, WaitReason};
pub use write::builder::FrameBuilder;
pub use write::fresh::FreshSegment;
pub use write::large::LargeFrame;
pub use write::values::{NewValues, VALUES_RECORD_BYTES, ValuesWriter};
