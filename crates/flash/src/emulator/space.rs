//! Where files lie on the modelled device: sectors, rows that fill, superblocks, and the collector.
//!
//! A *superblock* is a stripe of chunks, one of each of several units, which is filled row by row.
//! Files that are smaller than a chunk share the open superblock of their group. A larger file has
//! superblocks of its own from then on, whose width follows its size, so that all of their chunks
//! can be erased when the file goes.
//!
//! Not thread-safe: belongs to a volume, which holds a lock.
//!
//! Invariants:
//! 1. A sector that is written again takes a new place. Its old place is not valid any more.
//! 2. A superblock without valid sectors that is full, or has no file any more, gives its chunks
//!    back to be erased. At most one erase of them is under way on a unit.
//! 3. The collector moves the valid sectors of the shared superblock that has fewest, when the free
//!    chunks of a group run out. A spare part of each group is the collector's alone.

use super::nand::{Chunk, ChunkState, Device, NandOp, Ns, Ticket};
use glintdb_core::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Bytes of a sector of the map.
pub(super) const SECTOR_BYTES: u64 = 4096;
/// Units from which on a file has superblocks of its own.
const OWN_UNITS_MIN: u64 = 16;
/// Part of the chunks of a group that files cannot use: the collector needs them.
const SPARE_PART: u64 = 14;
/// Units on which erases begin at one look.
const ERASES_AT_ONCE: usize = 4;

/// A place of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    superblock: u32,
    index: u32,
}

/// The sector of a file that is at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    /// Number of the file.
    pub(super) file: u64,
    /// Number of the sector in it.
    pub(super) sector: u32,
}

struct Superblock {
    group: usize,
    chunks: Vec<Chunk>,
    /// Sectors that were filled, in the order of the stripe.
    owners: Vec<Option<Owner>>,
    valid: u32,
    is_shared: bool,
    /// The newest programs, as many as there are chunks.
    programs: VecDeque<Ticket>,
}

struct Group {
    units: Range<u32>,
    /// The shared superblock that is filled.
    open: Option<u32>,
    /// Chunks of its units, without those that are known to be bad.
    chunks: u64,
    /// Chunks of the superblocks that belong to one file each.
    own_chunks: u64,
    /// Valid sectors in shared superblocks.
    shared_valid: u64,
    /// Sectors that files are known to get, and have not yet.
    reserved: u64,
}

/// Free chunks of a unit.
#[derive(Default)]
struct Unit {
    /// Blocks that were never used, some of which may be bad.
    unused: Range<u32>,
    /// Erased ones, by wear.
    erased: BTreeSet<(u32, u32)>,
    /// Those that are to be erased.
    dirty: VecDeque<u32>,
    erasing_until: Ns,
}

impl Unit {
    /// Number of free chunks; those that were never used count even if they are bad.
    fn free(&self) -> usize {
        self.unused.len() + self.erased.len() + self.dirty.len()
    }
}

/// Counters since the volume was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceStats {
    /// Bytes that the host has written, in whole sectors.
    pub host_bytes: u64,
    /// Bytes that were programmed.
    pub programmed_bytes: u64,
    /// Bytes of rows that were filled up because of a sync.
    pub padding_bytes: u64,
    /// Bytes that the collector has moved.
    pub moved_bytes: u64,
    /// Files that had to use units of another group, because theirs were full.
    pub overflows: u64,
}

/// The space of a device.
pub(super) struct Space {
    groups: Vec<Group>,
    units: Vec<Unit>,
    superblocks: BTreeMap<u32, Superblock>,
    next_superblock: u32,
    next_unit: Vec<u32>,
    erase_cursor: usize,
    /// Sectors that were written to all units in turn.
    striped_sectors: u64,
    /// Whether each file has superblocks of its own over all units of its group, which are erased
    /// at once.
    pub(super) virtual_blocks: bool,
    sectors_of_row: u32,
    chunk_sectors: u64,
    pub(super) stats: SpaceStats,
    /// What the collector has moved: the owners' sectors have new places.
    pub(super) moved: Vec<(Owner, Place)>,
}

impl Space {
    pub(super) fn new(device: &Device, groups: Vec<Range<u32>>) -> Result<Space> {
        let geometry = &device.profile().geometry;
        let sectors_of_row = u32::try_from(geometry.row_bytes() / SECTOR_BYTES).unwrap_or(0);
        if sectors_of_row == 0 || !geometry.row_bytes().is_multiple_of(SECTOR_BYTES) {
            return Err(Error::invalid(format!(
                "profile {}: a volume needs rows of whole sectors of {SECTOR_BYTES} bytes; these have {}",
                device.profile().name,
                geometry.row_bytes()
            )));
        }
        let (luns, blocks) = (geometry.luns_in_all(), geometry.blocks);
        let unit = || Unit {
            unused: 0..blocks,
            ..Unit::default()
        };
        let units = (0..luns).map(|_| unit()).collect();
        let group = |units: &Range<u32>| Group {
            units: units.clone(),
            open: None,
            chunks: u64::from(blocks) * units.len() as u64,
            own_chunks: 0,
            shared_valid: 0,
            reserved: 0,
        };
        Ok(Space {
            next_unit: groups.iter().map(|units| units.start).collect(),
            groups: groups.iter().map(group).collect(),
            units,
            superblocks: BTreeMap::new(),
            next_superblock: 0,
            erase_cursor: 0,
            striped_sectors: 0,
            virtual_blocks: false,
            chunk_sectors: u64::from(geometry.rows()) * u64::from(sectors_of_row),
            sectors_of_row,
            stats: SpaceStats::default(),
            moved: Vec::new(),
        })
    }

    /// Sectors of a chunk.
    pub(super) fn chunk_sectors(&self) -> u64 {
        self.chunk_sectors
    }

    /// Sectors from which a file of a group gets superblocks of its own: those of one over
    /// [`OWN_UNITS_MIN`] units, or over all units of the group. A smaller file shares superblocks
    /// over all units, because over few units of its own it would be written and read slowly.
    pub(super) fn own_sectors_min(&self, group: usize) -> u64 {
        if self.virtual_blocks {
            return 0;
        }
        let units = (self.groups[group].units.len() as u64).min(OWN_UNITS_MIN);
        units * self.chunk_sectors
    }

    /// The group of the unit whose turn it is, for a sector of a file that is written to all units:
    /// a row on each unit in turn.
    pub(super) fn group_in_turn(&mut self) -> usize {
        let units = self.units.len() as u64;
        let unit = self.striped_sectors / u64::from(self.sectors_of_row) % units.max(1);
        self.striped_sectors += 1;
        let has = |group: &Group| group.units.contains(&u32::try_from(unit).unwrap_or(0));
        self.groups.iter().position(has).unwrap_or(0)
    }

    /// Sectors that files may still take in a group.
    fn free_sectors(&self, group: usize) -> u64 {
        let group = &self.groups[group];
        // The collector needs two superblocks: the open one, and one to move sectors to.
        let spare = (group.chunks / SPARE_PART).max(2 * group.units.len() as u64);
        let chunks = group.chunks.saturating_sub(spare + group.own_chunks);
        (chunks * self.chunk_sectors).saturating_sub(group.shared_valid + group.reserved)
    }

    /// Keeps sectors of a group for a file.
    pub(super) fn reserve(&mut self, group: usize, sectors: u64) {
        self.groups[group].reserved += sectors;
    }

    /// Gives back sectors that were [kept](Self::reserve).
    pub(super) fn unreserve(&mut self, group: usize, sectors: u64) {
        self.groups[group].reserved -= sectors;
    }

    /// Bytes that files may still take, in all groups: one that is full uses units of others.
    pub(super) fn free_bytes(&self) -> u64 {
        let free = (0..self.groups.len()).map(|group| self.free_sectors(group));
        free.sum::<u64>() * SECTOR_BYTES
    }

    /// The group for `sectors` more of a file of `group`: that one, or the emptiest if it is full.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn group_with_room(&mut self, group: usize, sectors: u64) -> Result<usize> {
        if self.free_sectors(group) >= sectors {
            return Ok(group);
        }
        let emptiest = (0..self.groups.len()).max_by_key(|group| self.free_sectors(*group));
        match emptiest.filter(|group| self.free_sectors(*group) >= sectors) {
            Some(group) => {
                self.stats.overflows += 1;
                Ok(group)
            }
            None => {
                let what = "no unit of the emulated device has room";
                Err(Error::new(ErrorKind::NoSpace, what))
            }
        }
    }

    /// Takes an erased chunk of a unit, the least worn one. Erases one if there is none.
    fn take_chunk(&mut self, device: &mut Device, lun: u32, now: Ns) -> Option<Chunk> {
        let unit = &mut self.units[lun as usize];
        for block in unit.unused.by_ref() {
            let chunk = Chunk { lun, block };
            if matches!(device.state(chunk), Ok(ChunkState::Free)) {
                return Some(chunk);
            }
            Self::lose(&mut self.groups, lun);
        }
        if let Some((_, block)) = unit.erased.pop_first() {
            return Some(Chunk { lun, block });
        }
        while let Some(block) = self.units[lun as usize].dirty.pop_front() {
            let chunk = Chunk { lun, block };
            if self.erase(device, chunk, now).is_some() {
                return Some(chunk);
            }
        }
        None
    }

    /// Erases a chunk. `None`: it is worn out, and lost.
    fn erase(&mut self, device: &mut Device, chunk: Chunk, now: Ns) -> Option<Ns> {
        let erased = device.submit(NandOp::Erase { chunk }, now).ok();
        if let Some(ticket) = erased.filter(|ticket| !ticket.has_failed) {
            return Some(ticket.done);
        }
        Self::lose(&mut self.groups, chunk.lun);
        None
    }

    /// Counts a chunk of a unit as bad.
    fn lose(groups: &mut [Group], lun: u32) {
        for group in groups.iter_mut() {
            group.chunks -= u64::from(group.units.contains(&lun));
        }
    }

    /// Opens a superblock of `width` units of a group.
    fn open(
        &mut self,
        device: &mut Device,
        group: usize,
        width: u32,
        is_shared: bool,
        now: Ns,
    ) -> Result<u32> {
        let units = self.groups[group].units.clone();
        let mut chunks = Vec::new();
        for _ in 0..units.len() {
            let lun = self.next_unit[group];
            self.next_unit[group] = match lun + 1 == units.end {
                true => units.start,
                false => lun + 1,
            };
            chunks.extend(self.take_chunk(device, lun, now));
            if chunks.len() == width as usize {
                break;
            }
        }
        if chunks.is_empty() {
            let what = "no unit of the emulated device has a free block";
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        if !is_shared {
            self.groups[group].own_chunks += chunks.len() as u64;
        }
        let number = self.next_superblock;
        self.next_superblock += 1;
        let superblock = Superblock {
            group,
            chunks,
            owners: Vec::new(),
            valid: 0,
            is_shared,
            programs: VecDeque::new(),
        };
        self.superblocks.insert(number, superblock);
        Ok(number)
    }

    /// Opens a superblock of a file's own, over `width` units, or as many as have room.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn open_own(
        &mut self,
        device: &mut Device,
        group: usize,
        width: u64,
        now: Ns,
    ) -> Result<u32> {
        let width = if self.virtual_blocks { u64::MAX } else { width };
        let room = self.free_sectors(group) / self.chunk_sectors;
        let most = room.clamp(1, self.groups[group].units.len() as u64);
        let width = u32::try_from(width.clamp(1, most)).unwrap_or(1);
        self.open(device, group, width, false, now)
    }

    fn is_full(&self, superblock: &Superblock) -> bool {
        superblock.owners.len() as u64 == self.chunk_sectors * superblock.chunks.len() as u64
    }

    /// Whether a superblock is full.
    pub(super) fn is_filled(&self, superblock: u32) -> bool {
        (self.superblocks.get(&superblock)).is_none_or(|superblock| self.is_full(superblock))
    }

    /// The shared superblock of a group that has room. Collects, if free chunks run out.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn shared(&mut self, device: &mut Device, group: usize, now: Ns) -> Result<u32> {
        if let Some(open) = self.groups[group].open {
            if !self.is_filled(open) {
                return Ok(open);
            }
            self.groups[group].open = None;
            if self
                .superblocks
                .get(&open)
                .is_some_and(|full| full.valid == 0)
            {
                self.release(open);
            }
        }
        self.collect(device, group, now)?;
        if let Some(open) = self.groups[group]
            .open
            .filter(|open| !self.is_filled(*open))
        {
            return Ok(open);
        }
        self.open_shared(device, group, now)
    }

    fn open_shared(&mut self, device: &mut Device, group: usize, now: Ns) -> Result<u32> {
        let width = u32::try_from(self.groups[group].units.len()).unwrap_or(1);
        let open = self.open(device, group, width, true, now)?;
        self.groups[group].open = Some(open);
        Ok(open)
    }

    /// Moves sectors until there are chunks for two superblocks.
    fn collect(&mut self, device: &mut Device, group: usize, now: Ns) -> Result<()> {
        let units = self.groups[group].units.clone();
        let luns = units.start as usize..units.end as usize;
        loop {
            let fewest = self.units[luns.clone()].iter().map(Unit::free).min();
            let fewest = fewest.unwrap_or(0);
            if fewest >= 2 {
                return Ok(());
            }
            let open = self.groups[group].open;
            let victim = (self.superblocks.iter())
                .filter(|(number, superblock)| {
                    superblock.is_shared && superblock.group == group && Some(**number) != open
                })
                .min_by_key(|(_, superblock)| superblock.valid)
                .filter(|(_, superblock)| (superblock.valid as usize) < superblock.owners.len())
                .map(|(number, _)| *number);
            let Some(victim) = victim else { return Ok(()) };
            self.move_away(device, victim, now)?;
        }
    }

    /// Moves the valid sectors of a superblock to the shared one, and releases it.
    fn move_away(&mut self, device: &mut Device, victim: u32, now: Ns) -> Result<()> {
        let Some(superblock) = self.superblocks.get(&victim) else {
            return Ok(());
        };
        let group = superblock.group;
        let valid: Vec<(u32, Owner)> = (superblock.owners.iter().enumerate())
            .filter_map(|(index, owner)| Some((u32::try_from(index).ok()?, (*owner)?)))
            .collect();
        let places = valid.iter().map(|(index, _)| Place {
            superblock: victim,
            index: *index,
        });
        for op in self.reads(places.collect()) {
            device.submit(op, now)?;
        }
        for (index, owner) in valid {
            let open = match self.groups[group]
                .open
                .filter(|open| !self.is_filled(*open))
            {
                Some(open) => open,
                None => self.open_shared(device, group, now)?,
            };
            let place = self.fill(device, open, Some(owner), now)?;
            self.moved.push((owner, place));
            self.stats.moved_bytes += SECTOR_BYTES;
            self.forget(Place {
                superblock: victim,
                index,
            });
        }
        // One that was full while it was open may have had nothing valid.
        if self.superblocks.contains_key(&victim) {
            self.release(victim);
        }
        Ok(())
    }

    /// Puts a sector into the next place of a superblock, and programs the row if it is full.
    ///
    /// # Errors
    /// I/O errors of the device.
    pub(super) fn fill(
        &mut self,
        device: &mut Device,
        number: u32,
        owner: Option<Owner>,
        now: Ns,
    ) -> Result<Place> {
        let Some(superblock) = self.superblocks.get_mut(&number) else {
            unreachable!("a superblock that is filled is there");
        };
        let index = u32::try_from(superblock.owners.len()).unwrap_or(u32::MAX);
        superblock.owners.push(owner);
        if owner.is_some() {
            superblock.valid += 1;
            if superblock.is_shared {
                self.groups[superblock.group].shared_valid += 1;
            }
        }
        if (index + 1).is_multiple_of(self.sectors_of_row) {
            let unit = index / self.sectors_of_row;
            let width = u32::try_from(superblock.chunks.len()).unwrap_or(1);
            let chunk = superblock.chunks[(unit % width) as usize];
            let row = unit / width;
            let ticket = device.submit(NandOp::Program { chunk, row }, now)?;
            superblock.programs.push_back(ticket);
            if superblock.programs.len() > width as usize {
                superblock.programs.pop_front();
            }
            self.stats.programmed_bytes += u64::from(self.sectors_of_row) * SECTOR_BYTES;
        }
        Ok(Place {
            superblock: number,
            index,
        })
    }

    /// Fills the row of a superblock that is begun, so that it is programmed.
    ///
    /// # Errors
    /// I/O errors of the device.
    pub(super) fn pad(&mut self, device: &mut Device, number: u32, now: Ns) -> Result<()> {
        while let Some(superblock) = self.superblocks.get(&number) {
            let filled = u32::try_from(superblock.owners.len()).unwrap_or(0);
            if filled.is_multiple_of(self.sectors_of_row) {
                break;
            }
            self.stats.padding_bytes += SECTOR_BYTES;
            self.fill(device, number, None, now)?;
        }
        Ok(())
    }

    /// When the newest programs of a superblock are acknowledged and done.
    pub(super) fn programmed(&self, device: &Device, number: u32) -> (Ns, Ns) {
        let programs = self
            .superblocks
            .get(&number)
            .map(|superblock| &superblock.programs);
        let programs = || programs.into_iter().flatten();
        let acknowledged = programs().map(|ticket| ticket.acknowledged).max();
        let done = programs().map(|ticket| device.done(ticket)).max();
        (acknowledged.unwrap_or(0), done.unwrap_or(0))
    }

    /// Makes a place invalid.
    pub(super) fn forget(&mut self, place: Place) {
        let Some(superblock) = self.superblocks.get_mut(&place.superblock) else {
            return;
        };
        let owner = &mut superblock.owners[place.index as usize];
        if owner.take().is_some() {
            superblock.valid -= 1;
            if superblock.is_shared {
                self.groups[superblock.group].shared_valid -= 1;
            }
        }
        let is_open = self.groups[superblock.group].open == Some(place.superblock);
        if superblock.is_shared && superblock.valid == 0 && !is_open {
            self.release(place.superblock);
        }
    }

    /// Gives the chunks of a superblock back, to be erased.
    pub(super) fn release(&mut self, number: u32) {
        let Some(superblock) = self.superblocks.remove(&number) else {
            return;
        };
        if !superblock.is_shared {
            self.groups[superblock.group].own_chunks -= superblock.chunks.len() as u64;
        }
        for chunk in superblock.chunks {
            self.units[chunk.lun as usize].dirty.push_back(chunk.block);
        }
    }

    /// Begins to erase chunks on a few units that have none under way.
    pub(super) fn erase_some(&mut self, device: &mut Device, now: Ns) {
        let count = self.units.len();
        let mut begun = 0;
        let at_once = if self.virtual_blocks {
            count
        } else {
            ERASES_AT_ONCE
        };
        for step in 0..count {
            let lun = (self.erase_cursor + step) % count;
            let unit = &mut self.units[lun];
            if unit.erasing_until > now || unit.dirty.is_empty() {
                continue;
            }
            let Some(block) = unit.dirty.pop_front() else {
                continue;
            };
            let chunk = Chunk {
                lun: u32::try_from(lun).unwrap_or(0),
                block,
            };
            if let Some(done) = self.erase(device, chunk, now) {
                let unit = &mut self.units[lun];
                unit.erasing_until = done;
                let wear = device.wear(chunk).unwrap_or(0);
                unit.erased.insert((wear, block));
            }
            begun += 1;
            if begun == at_once {
                self.erase_cursor = (lun + 1) % count;
                return;
            }
        }
    }

    /// The reads that give the sectors at `places`: neighbours of a chunk in one. Sectors of rows
    /// that are not programmed yet are in the cache.
    pub(super) fn reads(&self, places: Vec<Place>) -> Vec<NandOp> {
        let sectors_of_row = u64::from(self.sectors_of_row);
        let mut ops: Vec<(Chunk, u64, u64)> = Vec::new();
        for place in places {
            let Some(superblock) = self.superblocks.get(&place.superblock) else {
                continue;
            };
            let (index, width) = (u64::from(place.index), superblock.chunks.len() as u64);
            let unit = index / sectors_of_row;
            if (unit + 1) * sectors_of_row > superblock.owners.len() as u64 {
                continue;
            }
            let chunk = superblock.chunks[usize::try_from(unit % width).unwrap_or(0)];
            let sector = unit / width * sectors_of_row + index % sectors_of_row;
            match ops
                .iter_mut()
                .rev()
                .take(superblock.chunks.len())
                .find(|op| op.0 == chunk)
            {
                Some((_, from, count)) if *from + *count == sector => *count += 1,
                _ => ops.push((chunk, sector, 1)),
            }
        }
        let op = |(chunk, from, count): (Chunk, u64, u64)| NandOp::Read {
            chunk,
            offset: from * SECTOR_BYTES,
            bytes: count * SECTOR_BYTES,
        };
        ops.into_iter().map(op).collect()
    }

    /// Smallest and largest number of erases of a chunk that is erased or was never used.
    pub(super) fn wear(&self) -> (u32, u32) {
        let of = |unit: &Unit| {
            let erased = unit.erased.iter().map(|(wear, _)| *wear);
            let unused = (!unit.unused.is_empty()).then_some(0);
            erased.chain(unused).collect::<Vec<_>>()
        };
        let all: Vec<u32> = self.units.iter().flat_map(of).collect();
        let (least, most) = (all.iter().min(), all.iter().max());
        (least.copied().unwrap_or(0), most.copied().unwrap_or(0))
    }
}
