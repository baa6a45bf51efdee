//! Everything a simulated volume holds, behind one mutex.
//!
//! Invariants: 1. an inode lives as long as a name (now, or after some power cut) or a handle refers to it. 2. `names` is `synced_names` with all of `name_changes`.

use super::fault::{FaultKind, Faults, OperationKind, io_error, no_space, power_is_off};
use super::image::Image;
use super::random::Random;
use super::{CrashMode, MemOptions};
use crate::volume::{CreateOptions, VolumeStats};
use glintdb_core::{Error, ErrorKind, FileId, Result};
use std::collections::BTreeMap;

/// A file, whatever its name.
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) image: Image,
    pub(super) reserve_bytes: u64,
    pub(super) handles: usize,
}

/// A name that was made (`Some`) or removed since the directory was synced.
#[derive(Clone, Copy)]
struct NameChange {
    id: FileId,
    inode: Option<u64>,
}

pub(super) struct State {
    pub(super) options: MemOptions,
    pub(super) faults: Faults,
    pub(super) random: Random,
    pub(super) stats: VolumeStats,
    pub(super) ring: Option<Image>,
    inodes: BTreeMap<u64, Inode>,
    inode_next: u64,
    pub(super) names: BTreeMap<FileId, u64>,
    synced_names: BTreeMap<FileId, u64>,
    name_changes: Vec<NameChange>,
}

impl State {
    pub(super) fn new(options: MemOptions) -> Self {
        State {
            options,
            faults: Faults {
                log: options.log_operations.then(Vec::new),
                ..Faults::default()
            },
            random: Random::new(options.seed),
            stats: VolumeStats::default(),
            ring: None,
            inodes: BTreeMap::new(),
            inode_next: 0,
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            name_changes: Vec::new(),
        }
    }

    /// What `kill -9` leaves: everything, with the same things still un-synced; handles are gone.
    pub(super) fn after_kill(&self) -> State {
        let mut after = State {
            inodes: self.inodes.clone(),
            inode_next: self.inode_next,
            names: self.names.clone(),
            synced_names: self.synced_names.clone(),
            name_changes: self.name_changes.clone(),
            ..State::new(self.options)
        };
        if self.options.ring_survives_kill {
            after.ring.clone_from(&self.ring);
        }
        after
            .inodes
            .values_mut()
            .for_each(|inode| inode.handles = 0);
        after.forget_inodes();
        after
    }

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self, mode: CrashMode) -> State {
        let mut random = Random::new(match mode {
            CrashMode::Random { seed } => seed,
            CrashMode::LoseUnsynced | CrashMode::KeepUnsynced => 0,
        });
        let mut names = self.synced_names.clone();
        for change in &self.name_changes {
            let survives = match mode {
                CrashMode::LoseUnsynced => false,
                CrashMode::KeepUnsynced => true,
                CrashMode::Random { .. } => random.coin(),
            };
            if survives {
                change.apply(&mut names);
            }
        }
        let mut inodes = BTreeMap::new();
        for number in names.values() {
            if let Some(inode) = self.inodes.get(number) {
                let after = Inode {
                    image: inode.image.after_power_cut(mode, &mut random),
                    reserve_bytes: inode.reserve_bytes,
                    handles: 0,
                };
                inodes.insert(*number, after);
            }
        }
        let ring = self
            .ring
            .as_ref()
            .filter(|_| self.options.ring_survives_kill);
        State {
            ring: ring.map(|ring| ring.after_power_cut(mode, &mut random)),
            inodes,
            inode_next: self.inode_next,
            synced_names: names.clone(),
            names,
            ..State::new(self.options)
        }
    }

    pub(super) fn create(&mut self, id: FileId, options: CreateOptions) -> Result<u64> {
        let fault = self.faults.next(OperationKind::Create(id))?;
        match fault {
            Some(FaultKind::Io) => return Err(io_error(format_args!("create {id}"))),
            Some(FaultKind::NoSpace) => return Err(no_space(id)),
            _ => {}
        }
        if self.names.contains_key(&id) {
            return Err(Error::invalid(format!("create {id}: it exists already")));
        }
        if options.reserve_bytes > self.free_bytes().unwrap_or(u64::MAX) {
            return Err(no_space(id));
        }
        let number = self.inode_next;
        self.inode_next += 1;
        let inode = Inode {
            reserve_bytes: options.reserve_bytes,
            handles: 1,
            ..Inode::default()
        };
        self.inodes.insert(number, inode);
        self.change_name(id, Some(number));
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(number),
        }
    }

    pub(super) fn open(&mut self, id: FileId) -> Result<u64> {
        match self.faults.next(OperationKind::Open(id))? {
            Some(FaultKind::Io) => return Err(io_error(format_args!("open {id}"))),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => {}
        }
        let number = self.find(id)?;
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.handles += 1;
        }
        Ok(number)
    }

    pub(super) fn delete(&mut self, id: FileId) -> Result<()> {
        let fault = self.faults.next(OperationKind::Delete(id))?;
        if fault == Some(FaultKind::Io) {
            return Err(io_error(format_args!("delete {id}")));
        }
        self.find(id)?;
        self.change_name(id, None);
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(()),
        }
    }

    pub(super) fn list(&mut self) -> Result<Vec<FileId>> {
        match self.faults.next(OperationKind::List)? {
            Some(FaultKind::Io) => Err(io_error("list")),
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(self.names.keys().copied().collect()),
        }
    }

    pub(super) fn sync_directory(&mut self) -> Result<()> {
        self.stats.syncs += 1;
        match self.faults.next(OperationKind::SyncDirectory)? {
            Some(FaultKind::Io) => Err(io_error("sync of the directory")),
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => {
                self.synced_names.clone_from(&self.names);
                self.name_changes.clear();
                self.forget_inodes();
                Ok(())
            }
        }
    }

    pub(super) fn create_ring(&mut self, bytes: usize) -> Result<()> {
        match self.faults.next(OperationKind::CreateRing)? {
            Some(FaultKind::Io) => return Err(io_error("create the ring")),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            Some(FaultKind::NoSpace) => return Err(no_space("the ring")),
            _ => {}
        }
        if bytes as u64 > self.free_bytes().unwrap_or(u64::MAX) {
            return Err(no_space("the ring"));
        }
        let mut ring = Image::default();
        ring.set_len(bytes);
        ring.sync();
        self.ring = Some(ring);
        Ok(())
    }

    pub(super) fn remove_ring(&mut self) -> Result<()> {
        match self.faults.next(OperationKind::RemoveRing)? {
            Some(FaultKind::Io) => return Err(io_error("remove the ring")),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => self.ring = None,
        }
        Ok(())
    }

    pub(super) fn find(&self, id: FileId) -> Result<u64> {
        self.names
            .get(&id)
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{id} is not there")))
    }

    pub(super) fn inode(&self, number: u64) -> &Inode {
        self.inodes.get(&number).expect("a handle or name keeps it")
    }

    pub(super) fn inode_mut(&mut self, number: u64) -> &mut Inode {
        self.inodes
            .get_mut(&number)
            .expect("a handle or name keeps it")
    }

    pub(super) fn close(&mut self, number: u64) {
        self.inode_mut(number).handles -= 1;
        self.forget_inodes();
    }

    /// Bytes left of the capacity; `None`: no limit. What only a power cut could bring back takes no space.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let capacity = self.options.capacity_bytes?;
        let named: u64 = self
            .names
            .values()
            .map(|number| self.inode(*number).allocated())
            .sum();
        let unnamed: u64 = self
            .inodes
            .iter()
            .filter(|(number, inode)| {
                inode.handles > 0 && !self.names.values().any(|named| named == *number)
            })
            .map(|(_, inode)| inode.allocated())
            .sum();
        let ring = self.ring.as_ref().map_or(0, |ring| ring.len() as u64);
        Some(capacity.saturating_sub(named + unnamed + ring))
    }

    /// Whether a power cut could take anything at all.
    pub(super) fn is_synced(&self) -> bool {
        self.name_changes.is_empty()
            && self.ring.as_ref().is_none_or(Image::is_synced)
            && self
                .names
                .values()
                .all(|number| self.inode(*number).image.is_synced())
    }

    fn change_name(&mut self, id: FileId, inode: Option<u64>) {
        let change = NameChange { id, inode };
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    fn forget_inodes(&mut self) {
        let changed: Vec<u64> = self
            .name_changes
            .iter()
            .filter_map(|change| change.inode)
            .collect();
        let (names, synced) = (&self.names, &self.synced_names);
        self.inodes.retain(|number, inode| {
            inode.handles > 0
                || changed.contains(number)
                || names.values().any(|named| named == number)
                || synced.values().any(|named| named == number)
        });
    }
}

impl Inode {
    fn allocated(&self) -> u64 {
        (self.image.len() as u64).max(self.reserve_bytes)
    }

    /// How far the file may grow with `free` bytes on the volume.
    pub(super) fn length_max(&self, free: Option<u64>) -> u64 {
        free.map_or(u64::MAX, |free| self.allocated().saturating_add(free))
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<FileId, u64>) {
        match self.inode {
            Some(inode) => names.insert(self.id, inode),
            None => names.remove(&self.id),
        };
    }
}
