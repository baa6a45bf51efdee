//! The chunks of a device: what the medium allows to be done with them.
//!
//! Not thread-safe: belongs to a device.
//!
//! Invariants, as in the open-channel specification 2.0:
//! 1. Rows of a chunk are programmed in order, each once between two erases.
//! 2. A chunk is open from its first row to its last one.
//! 3. A chunk that is offline (bad) stays so.

use super::profile::Profile;
use glintdb_core::{Error, Result};

/// One block of each plane of a LUN. An erase erases a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Chunk {
    /// Number of the LUN in the device. LUN `n` is on channel `n` modulo the number of channels, so
    /// neighbouring numbers are on different channels.
    pub lun: u32,
    /// Number of the block in each plane.
    pub block: u32,
}

impl std::fmt::Display for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {} of LUN {}", self.block, self.lun)
    }
}

/// State of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkState {
    /// Erased.
    Free,
    /// Programmed in part.
    Open,
    /// Programmed whole.
    Closed,
    /// Bad: from the factory, worn out, or since a program or erase that failed.
    Offline,
}

#[derive(Clone, Copy)]
struct Entry {
    rows: u32,
    wear: u32,
    is_offline: bool,
}

/// All chunks of a device.
pub(super) struct Chunks {
    blocks: u32,
    luns: u32,
    rows: u32,
    entries: Vec<Entry>,
    /// Open chunks, of the device and of each LUN.
    open: u32,
    open_of: Vec<u32>,
}

impl Chunks {
    pub(super) fn new(profile: &Profile) -> Chunks {
        let geometry = &profile.geometry;
        let (luns, blocks) = (geometry.luns_in_all(), geometry.blocks);
        let entry = Entry {
            rows: 0,
            wear: 0,
            is_offline: false,
        };
        Chunks {
            blocks,
            luns,
            rows: geometry.rows(),
            entries: vec![entry; luns as usize * blocks as usize],
            open: 0,
            open_of: vec![0; luns as usize],
        }
    }

    fn at(&self, chunk: Chunk) -> Result<usize> {
        if chunk.lun >= self.luns || chunk.block >= self.blocks {
            return Err(Error::invalid(format!(
                "{chunk}: the device has {} LUNs of {} blocks",
                self.luns, self.blocks
            )));
        }
        Ok(chunk.lun as usize * self.blocks as usize + chunk.block as usize)
    }

    pub(super) fn state(&self, chunk: Chunk) -> Result<ChunkState> {
        let entry = self.entries[self.at(chunk)?];
        Ok(match entry {
            _ if entry.is_offline => ChunkState::Offline,
            _ if entry.rows == 0 => ChunkState::Free,
            _ if entry.rows == self.rows => ChunkState::Closed,
            _ => ChunkState::Open,
        })
    }

    /// The row that is programmed next.
    pub(super) fn write_pointer(&self, chunk: Chunk) -> Result<u32> {
        Ok(self.entries[self.at(chunk)?].rows)
    }

    pub(super) fn wear(&self, chunk: Chunk) -> Result<u32> {
        Ok(self.entries[self.at(chunk)?].wear)
    }

    /// Checks that `row` may be programmed, and notes it as programmed.
    pub(super) fn program(&mut self, chunk: Chunk, row: u32, profile: &Profile) -> Result<()> {
        let at = self.at(chunk)?;
        let entry = self.entries[at];
        self.check_online(chunk)?;
        if entry.rows == self.rows {
            return Err(Error::invalid(format!(
                "{chunk} has all of its {} rows: it must be erased before row {row} is programmed",
                self.rows
            )));
        }
        if row != entry.rows {
            return Err(Error::invalid(format!(
                "{chunk}: row {row} is out of order, the next one is {}",
                entry.rows
            )));
        }
        if row == 0 {
            let rules = &profile.rules;
            let of_lun = &mut self.open_of[chunk.lun as usize];
            let is_beyond = |open: u32, max: u32| max > 0 && open >= max;
            if is_beyond(self.open, rules.open_chunks_max)
                || is_beyond(*of_lun, rules.open_chunks_of_lun_max)
            {
                return Err(Error::invalid(format!(
                    "{chunk}: {} chunks are open, {of_lun} of them of this LUN, and the device \
                     allows no more",
                    self.open
                )));
            }
            self.open += 1;
            *of_lun += 1;
        }
        self.entries[at].rows += 1;
        if self.entries[at].rows == self.rows {
            self.close(chunk);
        }
        Ok(())
    }

    fn close(&mut self, chunk: Chunk) {
        self.open -= 1;
        self.open_of[chunk.lun as usize] -= 1;
    }

    /// Checks that the chunk may be erased, and notes it as erased.
    pub(super) fn erase(&mut self, chunk: Chunk, profile: &Profile) -> Result<()> {
        let refuse = |why: &str| Err(Error::invalid(format!("{chunk} is not erased: {why}")));
        match self.state(chunk)? {
            ChunkState::Offline => return self.check_online(chunk),
            ChunkState::Free if !profile.rules.erases_free => return refuse("it is free"),
            ChunkState::Open if !profile.rules.erases_open => return refuse("it is open"),
            ChunkState::Open => self.close(chunk),
            ChunkState::Free | ChunkState::Closed => {}
        }
        let at = self.at(chunk)?;
        self.entries[at].rows = 0;
        self.entries[at].wear += 1;
        Ok(())
    }

    /// Marks the chunk as bad.
    pub(super) fn retire(&mut self, chunk: Chunk) -> Result<()> {
        if self.state(chunk)? == ChunkState::Open {
            self.close(chunk);
        }
        let at = self.at(chunk)?;
        self.entries[at].is_offline = true;
        Ok(())
    }

    /// Checks that the chunk is there and not bad.
    pub(super) fn check_online(&self, chunk: Chunk) -> Result<()> {
        match self.entries[self.at(chunk)?].is_offline {
            true => Err(Error::invalid(format!("{chunk} is offline"))),
            false => Ok(()),
        }
    }
}
