//! Files on the modelled device: which sectors of them are where, and what their reads, writes and
//! syncs cost.
//!
//! Not thread-safe: belongs to the volume, behind its lock.
//!
//! Invariants:
//! 1. A sector has one place at most, and the space knows its owner.
//! 2. A file without a name and a handle is gone, and its space with it.

use super::nand::{Device, Ns};
use super::profiler::Profiler;
use super::space::{Owner, Place, SECTOR_BYTES, Space};
use crate::volume::DataClass;
use glintdb_core::{FileId, Result};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};

/// A file on the device.
pub(super) struct Layout {
    pub(super) class: DataClass,
    /// The group of its class.
    class_group: usize,
    /// Whether it is written to units of its group only, or to those of all groups in turn.
    is_isolated: bool,
    /// Where each sector is; `None`: it was not written.
    sectors: Vec<Option<Place>>,
    /// Sectors that have a place.
    placed: u64,
    /// The group whose units it uses now.
    group: usize,
    /// Superblocks of its own, the one that is filled last.
    own: Vec<u32>,
    /// Bytes that it is known to get.
    expected_bytes: u64,
    /// Sectors of these that are kept for it in its group.
    reserved: u64,
    /// Superblocks that it was written to since its last sync.
    unsynced: BTreeSet<u32>,
    /// Number of handles in use.
    pub(super) handles: u64,
    /// Whether it has its name still.
    pub(super) is_named: bool,
}

/// All files, the device and its space.
pub(super) struct State {
    pub(super) device: Device,
    pub(super) space: Space,
    pub(super) files: BTreeMap<u64, Layout>,
    pub(super) names: BTreeMap<FileId, u64>,
    pub(super) next_file: u64,
    pub(super) reads: BTreeMap<DataClass, ClassReads>,
    /// What chooses the placement of new files, if it changes.
    pub(super) profiler: Option<Profiler>,
}

/// Longest read that counts in [`EmulatedStats::reads`], in bytes. Gets make those; longer ones are
/// of compactions.
const SMALL_READ_BYTES: u64 = 64 << 10;

/// A histogram of nanoseconds up to 1,000 seconds, to two digits.
pub(super) fn histogram() -> Histogram<u32> {
    match Histogram::new_with_bounds(1, 1_000_000_000_000, 2) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("constant bounds are valid: {error}"),
    }
}

/// Reads of files of a class, of at most 64 KiB.
#[derive(Clone, Debug)]
pub struct ClassReads {
    /// Time of each in nanoseconds, to two digits.
    pub latencies: Histogram<u32>,
    /// Reads that waited for programs or erases.
    pub waited: u64,
    /// Time that they waited for these, in nanoseconds.
    pub write_wait_ns: Ns,
}

impl Default for ClassReads {
    fn default() -> Self {
        ClassReads {
            latencies: histogram(),
            waited: 0,
            write_wait_ns: 0,
        }
    }
}

impl ClassReads {
    fn record(&mut self, ns: Ns, write_wait_ns: Ns) {
        self.latencies.saturating_record(ns);
        self.waited += u64::from(write_wait_ns > 0);
        self.write_wait_ns += write_wait_ns;
    }
}

impl State {
    /// Takes over where the collector has moved sectors.
    fn follow(&mut self) {
        for (owner, place) in std::mem::take(&mut self.space.moved) {
            let layout = self.files.get_mut(&owner.file);
            if let Some(at) =
                layout.and_then(|layout| layout.sectors.get_mut(owner.sector as usize))
            {
                *at = Some(place);
            }
        }
    }

    /// The superblock that takes the next sector of a file.
    fn superblock_for(&mut self, file: u64, now: Ns) -> Result<u32> {
        let State {
            device,
            space,
            files,
            ..
        } = self;
        let Some(layout) = files.get_mut(&file) else {
            unreachable!("a file that is written is there");
        };
        if !layout.is_isolated {
            let group = space.group_in_turn();
            let group = space.group_with_room(group, 1)?;
            return space.shared(device, group, now);
        }
        let size = layout.placed.max(layout.expected_bytes / SECTOR_BYTES);
        let has_room = layout.reserved > 0;
        if size < space.own_sectors_min(layout.group) {
            if !has_room {
                layout.group = space.group_with_room(layout.group, 1)?;
            }
            return space.shared(device, layout.group, now);
        }
        if let Some(own) = layout.own.last().filter(|own| !space.is_filled(**own)) {
            return Ok(*own);
        }
        // As wide as the file has chunks, so that all of them are filled.
        let rest = size.saturating_sub(layout.placed).max(layout.placed);
        if !has_room {
            layout.group = space.group_with_room(layout.group, space.chunk_sectors())?;
        }
        let own = space.open_own(device, layout.group, rest / space.chunk_sectors(), now)?;
        layout.own.push(own);
        Ok(own)
    }

    pub(super) fn write(&mut self, file: u64, offset: u64, length: u64, now: Ns) -> Result<Ns> {
        let sectors = offset / SECTOR_BYTES..(offset + length).div_ceil(SECTOR_BYTES);
        if let (Some(profiler), Some(layout)) = (&mut self.profiler, self.files.get(&file)) {
            profiler.note_write(layout.class_group, sectors.end - sectors.start);
        }
        let mut touched = BTreeSet::new();
        for sector in sectors {
            let superblock = self.superblock_for(file, now);
            // Also after an error: the collector may have moved sectors before it.
            self.follow();
            let superblock = superblock?;
            let Some(layout) = self.files.get_mut(&file) else {
                continue;
            };
            let at = usize::try_from(sector).unwrap_or(usize::MAX);
            if layout.sectors.len() <= at {
                layout.sectors.resize(at + 1, None);
            }
            if let Some(old) = layout.sectors[at].take() {
                self.space.forget(old);
                layout.placed -= 1;
            }
            let owner = Owner {
                file,
                sector: u32::try_from(sector).unwrap_or(u32::MAX),
            };
            let place = self
                .space
                .fill(&mut self.device, superblock, Some(owner), now)?;
            layout.sectors[at] = Some(place);
            layout.placed += 1;
            if layout.reserved > 0 {
                layout.reserved -= 1;
                self.space.unreserve(layout.group, 1);
            }
            self.space.stats.host_bytes += SECTOR_BYTES;
            touched.insert(superblock);
        }
        let mut acknowledged = now;
        for superblock in &touched {
            acknowledged = acknowledged.max(self.space.programmed(&self.device, *superblock).0);
        }
        if let Some(layout) = self.files.get_mut(&file) {
            layout.unsynced.extend(touched);
        }
        Ok(acknowledged)
    }

    pub(super) fn read(&mut self, file: u64, offset: u64, length: u64, now: Ns) -> Result<Ns> {
        let Some(layout) = self.files.get(&file) else {
            return Ok(now);
        };
        let from = usize::try_from(offset / SECTOR_BYTES).unwrap_or(usize::MAX);
        let until = (offset + length).div_ceil(SECTOR_BYTES);
        let until = usize::try_from(until)
            .unwrap_or(usize::MAX)
            .min(layout.sectors.len());
        let places = layout.sectors.get(from..until).unwrap_or_default();
        let (class, class_group) = (layout.class, layout.class_group);
        let ops = self.space.reads(places.iter().flatten().copied().collect());
        let (mut done, mut write_wait_ns) = (now, 0);
        for op in ops {
            let ticket = self.device.submit(op, now)?;
            done = done.max(ticket.done);
            write_wait_ns = ticket.write_wait_ns.max(write_wait_ns);
        }
        if length <= SMALL_READ_BYTES {
            let reads = self.reads.entry(class).or_default();
            reads.record(done - now, write_wait_ns);
            if let Some(profiler) = &mut self.profiler {
                profiler.note_read(class_group, done - now, write_wait_ns);
            }
        }
        Ok(done)
    }

    /// Programs rows that are begun, and returns when all of the file is programmed. With a cache
    /// that survives a power cut, nothing is to be done.
    pub(super) fn sync(&mut self, file: u64, now: Ns) -> Result<Ns> {
        let Some(layout) = self.files.get_mut(&file) else {
            return Ok(now);
        };
        let unsynced = std::mem::take(&mut layout.unsynced);
        if self.device.profile().cache.power_loss_protection {
            return Ok(now);
        }
        let mut done = now;
        for superblock in unsynced {
            self.space.pad(&mut self.device, superblock, now)?;
            done = done.max(self.space.programmed(&self.device, superblock).1);
        }
        Ok(done)
    }

    /// Makes names durable: a sector of metadata in a row of its own.
    pub(super) fn sync_names(&mut self, now: Ns) -> Result<Ns> {
        let State { device, space, .. } = self;
        let superblock = space.shared(device, 0, now);
        self.follow();
        let superblock = superblock?;
        let State { device, space, .. } = self;
        space.fill(device, superblock, None, now)?;
        space.stats.host_bytes += SECTOR_BYTES;
        let done = match device.profile().cache.power_loss_protection {
            true => now,
            false => {
                space.pad(device, superblock, now)?;
                space.programmed(device, superblock).1
            }
        };
        Ok(done)
    }

    pub(super) fn cut(&mut self, file: u64, length: u64) {
        let Some(layout) = self.files.get_mut(&file) else {
            return;
        };
        // Space that was reserved beyond the length is given back.
        self.space.unreserve(layout.group, layout.reserved);
        layout.reserved = 0;
        let keep = usize::try_from(length.div_ceil(SECTOR_BYTES)).unwrap_or(usize::MAX);
        for place in layout
            .sectors
            .drain(keep.min(layout.sectors.len())..)
            .flatten()
        {
            self.space.forget(place);
            layout.placed -= 1;
        }
    }

    /// Adds a file that will have about `bytes`.
    pub(super) fn add(
        &mut self,
        id: FileId,
        (class, is_isolated): (DataClass, bool),
        group: usize,
        bytes: u64,
    ) -> Result<u64> {
        let sectors = bytes.div_ceil(SECTOR_BYTES);
        let class_group = group;
        let group = self.space.group_with_room(group, sectors)?;
        let file = self.next_file;
        self.next_file += 1;
        let layout = Layout {
            class,
            class_group,
            is_isolated,
            sectors: Vec::new(),
            placed: 0,
            group,
            own: Vec::new(),
            expected_bytes: bytes,
            reserved: sectors,
            unsynced: BTreeSet::new(),
            handles: 0,
            is_named: true,
        };
        self.space.reserve(group, sectors);
        self.files.insert(file, layout);
        self.names.insert(id, file);
        Ok(file)
    }

    pub(super) fn forget_name(&mut self, id: FileId) {
        let Some(file) = self.names.remove(&id) else {
            return;
        };
        if let Some(layout) = self.files.get_mut(&file) {
            layout.is_named = false;
        }
        self.remove_unused(file);
    }

    /// Removes a file that has neither a name nor a handle.
    pub(super) fn remove_unused(&mut self, file: u64) {
        let is_used = |layout: &Layout| layout.is_named || layout.handles > 0;
        if self.files.get(&file).is_some_and(is_used) {
            return;
        }
        let Some(layout) = self.files.remove(&file) else {
            return;
        };
        self.space.unreserve(layout.group, layout.reserved);
        for place in layout.sectors.into_iter().flatten() {
            self.space.forget(place);
        }
        for own in layout.own {
            self.space.release(own);
        }
    }
}
