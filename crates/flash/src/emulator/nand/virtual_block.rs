//! Virtual blocks: chunks of several LUNs that are written as one stripe of rows.
//!
//! As liblightnvm has them (`nvm_vblk`): unit *u* goes to chunk *u* modulo *n*, as its row *u*
//! divided by *n*. A call is cut into commands, and each command goes to up to
//! [`Rules::sectors_of_command_max`](super::Rules::sectors_of_command_max) sectors of neighbouring
//! chunks.

use super::chunks::Chunk;
use super::profile::Profile;
use std::ops::Range;

/// Units of one row that are read or written by one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The units.
    pub units: Range<u64>,
}

/// Chunks that are written as one stripe. A unit is one row of one chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualBlock {
    /// The chunks, in the order in which the stripe goes over them.
    pub chunks: Vec<Chunk>,
    rows: u32,
    row_bytes: u64,
    units_of_command: u64,
}

impl VirtualBlock {
    /// A virtual block over block `block` of each of `luns`.
    ///
    /// # Panics
    /// If there is no LUN.
    #[must_use]
    pub fn new(profile: &Profile, luns: impl IntoIterator<Item = u32>, block: u32) -> VirtualBlock {
        let chunk = |lun| Chunk { lun, block };
        let chunks: Vec<Chunk> = luns.into_iter().map(chunk).collect();
        assert!(!chunks.is_empty(), "a virtual block has a LUN");
        let geometry = &profile.geometry;
        let sectors = geometry.row_bytes() / u64::from(geometry.sector_bytes);
        let most = u64::from(profile.rules.sectors_of_command_max);
        VirtualBlock {
            units_of_command: (most / sectors).clamp(1, chunks.len() as u64),
            chunks,
            rows: geometry.rows(),
            row_bytes: geometry.row_bytes(),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.units() * self.row_bytes
    }

    /// Bytes of a unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Number of units.
    #[must_use]
    pub fn units(&self) -> u64 {
        u64::from(self.rows) * self.chunks.len() as u64
    }

    /// Chunk and row of a unit.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "bounded by the numbers of chunks and rows"
    )]
    pub fn place(&self, unit: u64) -> (Chunk, u32) {
        let width = self.chunks.len() as u64;
        (self.chunks[(unit % width) as usize], (unit / width) as u32)
    }

    /// Number of lanes: threads among which a call divides its commands. Each lane has chunks of
    /// its own, as many as a command, and does one command after another.
    #[must_use]
    pub fn lanes(&self) -> u64 {
        (self.chunks.len() as u64).div_ceil(self.units_of_command)
    }

    /// The commands of `lane` that read or write `units`, in order.
    pub fn commands(&self, units: Range<u64>, lane: u64) -> impl Iterator<Item = Command> + use<> {
        let width = self.chunks.len() as u64;
        let first = lane * self.units_of_command;
        let last = (first + self.units_of_command).min(width);
        let rows = units.start / width..units.end.div_ceil(width);
        rows.map(move |row| Command {
            units: (row * width + first).max(units.start)..(row * width + last).min(units.end),
        })
        .filter(|command| !command.units.is_empty())
    }

    /// The chunks that each command of an erase of the whole has. Erases of one call go one after
    /// the other.
    pub fn erases(&self, profile: &Profile) -> impl Iterator<Item = &[Chunk]> {
        let planes = profile.geometry.planes;
        let most = (profile.rules.sectors_of_command_max / planes).max(1);
        self.chunks.chunks(most as usize)
    }
}
