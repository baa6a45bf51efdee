//! A model of a NAND device: how long reads, programs and erases take, and which of them the medium
//! allows.
//!
//! A device has *channels*. On each there are *LUNs* (dies, also called parallel units), which do
//! one operation at a time, and share the channel's bus for transfers. A LUN has *planes*, which
//! work together, and *blocks* on each plane. A [`Chunk`] is one block of each plane of a LUN; an
//! erase erases a chunk. A program fills a *row* of a chunk, and rows are filled front to back.
//! [`Geometry`] says how large all these are, [`Times`] how long operations take, and
//! [`Profile`] is the whole of a device: one of a list of names, or a TOML file.
//!
//! ```
//! use glintdb_flash::emulator::nand::{Chunk, Device, NandOp, Profile};
//!
//! let mut device = Device::new(Profile::named("westlake-mlc")?)?;
//! let chunk = Chunk { lun: 0, block: 7 };
//! let written = device.submit(NandOp::Program { chunk, row: 0 }, 0)?;
//! // 4.2 us over the link, 52.4 for each of two pages over the bus, 850 for the program.
//! assert_eq!(written.done / 1000, 959);
//! let read = NandOp::Read { chunk, offset: 0, bytes: 4096 };
//! // It waits for the program, as on a device that does not suspend programs.
//! assert!(device.submit(read, 10_000)?.done > written.done);
//! # Ok::<(), glintdb_core::Error>(())
//! ```
//!
//! Sources: the open-channel specification 2.0 (chunks, write pointers, states), measurements of
//! real open-channel drives (`docs/flash.md`).

mod chunks;
mod device;
mod profile;
mod timeline;
mod virtual_block;

#[cfg(test)]
mod tests;

pub use chunks::{Chunk, ChunkState};
pub use device::{Device, NandOp, Operation, Span, Ticket, UnitStats};
pub use profile::{Cache, Faults, Geometry, Link, PROFILE_NAMES, Profile, Rules, Suspend, Times};
pub use timeline::Ns;
pub use virtual_block::{Command, VirtualBlock};
