//! The setup of a run: the device, its readers and writers, and the LUNs that they use.

use glintdb_flash::emulator::nand::{Profile, VirtualBlock};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Most readers or writers.
pub(super) const WORKERS_MAX: u32 = 1024;

/// Which LUNs readers and writers use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Both use all LUNs.
    Shared,
    /// Each has half of the LUNs.
    Isolated,
}

/// Which virtual blocks writers use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// Each writer has one of its own.
    Own,
    /// All writers append to one.
    Shared,
}

/// A run of `flash-bench`.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The device.
    pub profile: Profile,
    /// Number of readers: 0 to 1,024.
    pub readers: u32,
    /// Number of writers: 0 to 1,024; one reader or writer at least.
    pub writers: u32,
    /// LUNs of a virtual block: at least 1, at most all LUNs, or half of them with
    /// [`Layout::Isolated`].
    pub width: u32,
    /// Which LUNs readers and writers use.
    pub layout: Layout,
    /// Which virtual blocks writers use.
    pub blocks: Blocks,
    /// Whether writers hold a lock: one for all while a virtual block is taken and erased; and with
    /// [`Blocks::Shared`] one for the virtual block during each call.
    pub locks: bool,
    /// Bytes of a call, at least 1, rounded up to units. `None`: the whole virtual block, as
    /// `oc_bench` does.
    pub call_bytes: Option<u64>,
    /// Commands of a lane that are in flight together, at least 1. A lane is a part of a virtual
    /// block that has a thread of its own in each call.
    pub queue_depth: u32,
    /// Bytes that all readers read together, and all writers write, rounded up to calls.
    pub bytes: u64,
}

impl Setup {
    /// The setup of `oc_bench`: virtual blocks of 64 LUNs, one reader, one writer, 20 GB each.
    #[must_use]
    pub fn new(profile: Profile) -> Setup {
        let width = (profile.geometry.luns_in_all() / 2).clamp(1, 64);
        Setup {
            readers: 1,
            writers: 1,
            width,
            layout: Layout::Shared,
            blocks: Blocks::Own,
            locks: true,
            call_bytes: None,
            queue_depth: 1,
            bytes: 20_000_000_000,
            profile,
        }
    }

    /// What runs, as the title of a picture.
    #[must_use]
    pub fn title(&self) -> String {
        let layout = match self.layout {
            Layout::Shared => "all LUNs shared",
            Layout::Isolated => "half of the LUNs each",
        };
        format!(
            "{}: {} readers, {} writers, virtual blocks of {} LUNs, {layout}",
            self.profile.name, self.readers, self.writers, self.width
        )
    }

    /// Checks that each value is within its limits.
    ///
    /// # Errors
    /// A text for people if a value is out of its limits.
    pub fn check(&self) -> Result<(), String> {
        let luns = self.profile.geometry.luns_in_all();
        for (name, count) in [("readers", self.readers), ("writers", self.writers)] {
            if count > WORKERS_MAX {
                return Err(format!(
                    "{count} {name}; at most {WORKERS_MAX} are possible"
                ));
            }
        }
        if self.readers + self.writers == 0 {
            return Err("there is neither a reader nor a writer".into());
        }
        let most = match self.layout {
            Layout::Shared => luns,
            Layout::Isolated => luns / 2,
        };
        if !(1..=most).contains(&self.width) {
            return Err(match self.layout {
                Layout::Shared => format!(
                    "a virtual block of {} LUNs; the device has {luns}",
                    self.width
                ),
                Layout::Isolated => format!(
                    "a virtual block of {} LUNs; readers and writers that are isolated have {most} \
                     of the {luns} each",
                    self.width
                ),
            });
        }
        if self.profile.geometry.blocks < 2 {
            return Err("the device has one block a plane; readers and writers need two".into());
        }
        if self.queue_depth == 0 {
            return Err("a queue depth of 0; it must be 1 at least".into());
        }
        if self.call_bytes == Some(0) {
            return Err("calls of 0 bytes; a call has 1 at least".into());
        }
        if self.bytes == 0 {
            return Err("0 bytes are to be read and written".into());
        }
        let unit_bytes = self.profile.geometry.row_bytes();
        let units = self.bytes / unit_bytes;
        if units > 1 << 32 {
            return Err(format!(
                "{} bytes are {units} units of {unit_bytes}; at most 2^32 units are possible",
                self.bytes
            ));
        }
        Ok(())
    }

    /// Groups of LUNs, each as wide as a virtual block, and blocks of each LUN, of readers or of
    /// writers.
    fn share(&self, reads: bool) -> (Range<u32>, Range<u32>) {
        let geometry = &self.profile.geometry;
        let groups = geometry.luns_in_all() / self.width;
        let half = match self.layout {
            Layout::Shared => geometry.blocks / 2,
            Layout::Isolated => groups / 2,
        };
        match (self.layout, reads) {
            (Layout::Shared, false) => (0..groups, 0..half),
            (Layout::Shared, true) => (0..groups, half..geometry.blocks),
            (Layout::Isolated, false) => (0..half, 0..geometry.blocks),
            (Layout::Isolated, true) => (half..groups, 0..geometry.blocks),
        }
    }

    /// The virtual blocks of readers or of writers, in the order in which they are taken.
    pub(super) fn virtual_blocks(&self, reads: bool) -> Pool {
        let (groups, blocks) = self.share(reads);
        Pool {
            profile: self.profile.clone(),
            width: self.width,
            groups,
            blocks,
            next: 0,
        }
    }
}

/// Virtual blocks to take, in turn.
pub(super) struct Pool {
    profile: Profile,
    width: u32,
    groups: Range<u32>,
    blocks: Range<u32>,
    next: u64,
}

impl Pool {
    /// The next virtual block; the first one again behind the last one.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "bounded by the numbers of groups and blocks"
    )]
    pub(super) fn take(&mut self) -> VirtualBlock {
        let (groups, blocks) = (self.groups.len() as u64, self.blocks.len() as u64);
        let at = self.next % (groups * blocks);
        self.next += 1;
        let group = self.groups.start + (at % groups) as u32;
        let block = self.blocks.start + (at / groups) as u32;
        let luns = group * self.width..(group + 1) * self.width;
        VirtualBlock::new(&self.profile, luns, block)
    }
}
