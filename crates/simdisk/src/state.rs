//! Everything a simulated volume holds, behind one mutex.
//!
//! Invariants: 1. an inode lives as long as a name (now, or after some power cut) or a handle
//! refers to it. 2. Directory 0 is the volume's own; the others were made for copies, and their
//! names are durable at once.

use super::directory::{Directory, RingFile};
use super::fault::{FaultKind, Faults, OperationKind, io_error, no_space, power_is_off};
use super::image::Image;
use super::moment::{Moment, Observer};
use super::random::Random;
use super::{CrashMode, MemOptions};
use glintdb_core::{Error, ErrorKind, FileId, Result, planted};
use glintdb_flash::{CreateOptions, VolumeStats};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, whatever its name.
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) image: Image,
    pub(super) reserve_bytes: u64,
    pub(super) handles: usize,
}

pub(super) struct State {
    pub(super) options: MemOptions,
    pub(super) faults: Faults,
    pub(super) random: Random,
    pub(super) stats: VolumeStats,
    pub(super) directories: Vec<Directory>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    paths: BTreeMap<PathBuf, usize>,
    inodes: BTreeMap<u64, Inode>,
    inode_next: u64,
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
            directories: vec![Directory::default()],
            observer: None,
            paths: BTreeMap::new(),
            inodes: BTreeMap::new(),
            inode_next: 0,
        }
    }

    /// Counts an operation of the directory or the ring. Returns the fault that hits it. `bytes`
    /// are those that it writes.
    ///
    /// # Errors
    /// The power is off; `Unavailable`.
    pub(super) fn begin(
        &mut self,
        directory: usize,
        kind: OperationKind,
        bytes: &[u8],
    ) -> Result<Option<FaultKind>> {
        let needs_descriptor = matches!(
            kind,
            OperationKind::Create(_)
                | OperationKind::Open(_)
                | OperationKind::List
                | OperationKind::CreateRing
        );
        self.begin_with(directory, kind, bytes, !needs_descriptor)
    }

    /// [`begin`](Self::begin) of an operation of a file. `is_open`: the file has a descriptor.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(super) fn begin_with(
        &mut self,
        directory: usize,
        kind: OperationKind,
        bytes: &[u8],
        is_open: bool,
    ) -> Result<Option<FaultKind>> {
        if let Some(observer) = &self.observer
            && !self.faults.power_is_off
        {
            observer.before(&Moment {
                state: self,
                directory,
                kind,
                bytes,
            });
        }
        self.faults.next(kind, is_open)
    }

    /// What `kill -9` leaves: everything, with the same things still un-synced; handles are gone.
    pub(super) fn after_kill(&self) -> State {
        let mut after = State {
            inodes: self.inodes.clone(),
            inode_next: self.inode_next,
            directories: self.directories.clone(),
            paths: self.paths.clone(),
            ..State::new(self.options)
        };
        for directory in &mut after.directories {
            directory.sync_failed = false;
            directory.forget_spares();
            if !self.options.ring_survives_kill {
                directory.ring = None;
            }
        }
        after
            .inodes
            .values_mut()
            .for_each(|inode| inode.handles = 0);
        after.forget_inodes();
        // What is un-synced goes on being older than what comes.
        after.faults.count = self.faults.count;
        after
    }

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self, mode: CrashMode) -> State {
        let mut random = Random::new(match mode {
            CrashMode::Random { seed } | CrashMode::Garbage { seed } => seed,
            CrashMode::LoseUnsynced | CrashMode::KeepUnsynced | CrashMode::Prefix { .. } => 0,
        });
        let mut after = State {
            inode_next: self.inode_next,
            paths: self.paths.clone(),
            directories: Vec::new(),
            ..State::new(self.options)
        };
        for directory in &self.directories {
            let mut left = directory.after_power_cut(mode, &mut random);
            for number in left.names().values() {
                if let Some(inode) = self.inodes.get(number) {
                    after.inodes.entry(*number).or_insert_with(|| Inode {
                        image: inode.image.after_power_cut(mode, &mut random),
                        reserve_bytes: inode.reserve_bytes,
                        handles: 0,
                    });
                }
            }
            let ring = directory.ring.as_ref();
            left.ring = ring
                .filter(|_| self.options.ring_survives_kill)
                .map(|ring| ring.after_power_cut(mode, &mut random));
            after.directories.push(left);
        }
        after
    }

    /// Makes a directory; durable at once.
    pub(super) fn make_directory(&mut self, path: &Path) -> Result<usize> {
        if self.paths.contains_key(path) {
            return Err(Error::exists(path.display().to_string()));
        }
        let number = self.directories.len();
        self.directories.push(Directory::default());
        self.paths.insert(path.to_path_buf(), number);
        Ok(number)
    }

    pub(super) fn directory_at(&self, path: &Path) -> Option<usize> {
        self.paths.get(path).copied()
    }

    /// Gives a file a second name in the directory `target`. Returns false if links are refused.
    pub(super) fn link(&mut self, from: usize, id: FileId, target: &Path) -> Result<bool> {
        let fault = self.begin(from, OperationKind::Link(id), &[])?;
        match fault {
            Some(FaultKind::Io) => return Err(io_error(format_args!("link {id}"))),
            Some(FaultKind::NoSpace) => return Err(no_space(format_args!("a link to {id}"))),
            _ => {}
        }
        let inode = self.directories[from].find(id)?;
        let Some(to) = self.directory_at(target) else {
            return Err(Error::invalid(format!(
                "link {id}: there is no directory {}",
                target.display()
            )));
        };
        if self.directories[to].names().contains_key(&id) {
            return Err(Error::exists(format!("link {id}")));
        }
        if !self.options.refuses_links {
            self.directories[to].change(id, Some(inode), self.faults.count);
        }
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(!self.options.refuses_links),
        }
    }

    /// Makes a file; of one that was recycled, where `recycled` allows it and there is one.
    pub(super) fn create(
        &mut self,
        directory: usize,
        id: FileId,
        options: CreateOptions,
        recycled: bool,
    ) -> Result<u64> {
        let fault = self.begin(directory, OperationKind::Create(id), &[])?;
        match fault {
            Some(FaultKind::Io) => return Err(io_error(format_args!("create {id}"))),
            Some(FaultKind::NoSpace) => return Err(no_space(id)),
            _ => {}
        }
        if self.directories[directory].names().contains_key(&id) {
            return Err(Error::exists(format!("create {id}")));
        }
        if options.reserve_bytes > self.free_bytes().unwrap_or(u64::MAX) {
            return Err(no_space(id));
        }
        let spare = match recycled {
            true => self.directories[directory].take_spare(),
            false => None,
        };
        let number = match spare {
            Some(number) => self.write_again(number, options.reserve_bytes),
            None => self.new_inode(options.reserve_bytes),
        };
        self.directories[directory].change(id, Some(number), self.faults.count);
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(number),
        }
    }

    fn new_inode(&mut self, reserve_bytes: u64) -> u64 {
        let number = self.inode_next;
        self.inode_next += 1;
        let inode = Inode {
            reserve_bytes,
            handles: 1,
            ..Inode::default()
        };
        self.inodes.insert(number, inode);
        number
    }

    /// Opens a file that is kept, no longer than what is reserved for it.
    fn write_again(&mut self, number: u64, reserve_bytes: u64) -> u64 {
        let operation = self.faults.count;
        let inode = self.inode_mut(number);
        let reserved = usize::try_from(reserve_bytes).unwrap_or(usize::MAX);
        let length = inode.image.len().min(reserved);
        inode.image.set_len(length, operation);
        (inode.reserve_bytes, inode.handles) = (reserve_bytes, 1);
        self.stats.recycled_files += 1;
        number
    }

    pub(super) fn open(&mut self, directory: usize, id: FileId) -> Result<u64> {
        match self.begin(directory, OperationKind::Open(id), &[])? {
            Some(FaultKind::Io) => return Err(io_error(format_args!("open {id}"))),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => {}
        }
        let number = self.directories[directory].find(id)?;
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.handles += 1;
        }
        Ok(number)
    }

    /// Removes a name; where `recycle` allows it and the file has no other one and is not open, it
    /// is kept to be written again.
    pub(super) fn delete(&mut self, directory: usize, id: FileId, recycle: bool) -> Result<()> {
        let fault = self.begin(directory, OperationKind::Delete(id), &[])?;
        if fault == Some(FaultKind::Io) {
            return Err(io_error(format_args!("delete {id}")));
        }
        let number = self.directories[directory].find(id)?;
        self.directories[directory].change(id, None, self.faults.count);
        if recycle && self.inode(number).handles == 0 {
            let has_another_name = planted!(
                "simdisk: a deleted file that has another name is recycled",
                self.has_name(number),
                false
            );
            if !has_another_name {
                self.directories[directory].keep(number);
            }
        }
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(()),
        }
    }

    /// Whether some directory has a name for the inode.
    fn has_name(&self, number: u64) -> bool {
        let names =
            |directory: &Directory| directory.names().values().any(|&inode| inode == number);
        self.directories.iter().any(names)
    }

    pub(super) fn list(&mut self, directory: usize) -> Result<Vec<FileId>> {
        match self.begin(directory, OperationKind::List, &[])? {
            Some(FaultKind::Io) => Err(io_error("list")),
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(self.directories[directory]
                .names()
                .keys()
                .copied()
                .collect()),
        }
    }

    pub(super) fn sync_directory(&mut self, directory: usize) -> Result<()> {
        self.stats.syncs += 1;
        match self.begin(directory, OperationKind::SyncDirectory, &[])? {
            Some(FaultKind::Io | FaultKind::SyncLosesData) => {
                self.directories[directory].sync_failed = true;
                Err(io_error("sync of the directory"))
            }
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ if self.directories[directory].sync_failed => Err(Error::new(
                ErrorKind::Poisoned,
                "a sync of the directory failed before",
            )),
            _ => {
                self.directories[directory].sync();
                self.forget_inodes();
                Ok(())
            }
        }
    }

    pub(super) fn create_ring(&mut self, directory: usize, bytes: usize) -> Result<()> {
        match self.begin(directory, OperationKind::CreateRing, &[])? {
            Some(FaultKind::Io) => return Err(io_error("create the ring")),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            Some(FaultKind::NoSpace) => return Err(no_space("the ring")),
            _ => {}
        }
        self.directories[directory].ring = Some(RingFile::new(bytes, self.faults.count));
        Ok(())
    }

    pub(super) fn grow_ring(&mut self, directory: usize, bytes: usize) -> Result<()> {
        match self.begin(directory, OperationKind::GrowRing(bytes), &[])? {
            Some(FaultKind::Io) => return Err(io_error("grow the ring")),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            Some(FaultKind::NoSpace) => return Err(no_space("the ring")),
            _ => {}
        }
        let free = self.free_bytes().unwrap_or(u64::MAX);
        if let Some(ring) = &mut self.directories[directory].ring {
            if bytes.saturating_sub(ring.allocated) as u64 > free {
                return Err(no_space("the ring"));
            }
            ring.allocated = ring.allocated.max(bytes);
        }
        Ok(())
    }

    pub(super) fn shrink_ring(&mut self, directory: usize, bytes: usize) -> Result<()> {
        match self.begin(directory, OperationKind::ShrinkRing(bytes), &[])? {
            Some(FaultKind::Io) => return Err(io_error("shrink the ring")),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => {}
        }
        let operation = self.faults.count;
        if let Some(ring) = &mut self.directories[directory].ring {
            ring.shrink(bytes, operation);
        }
        Ok(())
    }

    pub(super) fn remove_ring(&mut self, directory: usize) -> Result<()> {
        match self.begin(directory, OperationKind::RemoveRing, &[])? {
            Some(FaultKind::Io) => return Err(io_error("remove the ring")),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => self.directories[directory].ring = None,
        }
        Ok(())
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
        let inode = self.inode_mut(number);
        inode.handles -= 1;
        // No other inode loses anything: names and spares are lost in `sync_directory`.
        if inode.handles == 0 && !self.is_kept(number) {
            self.inodes.remove(&number);
        }
    }

    /// Whether some name refers to the inode, now or after some power cut, or it is kept to be
    /// written again.
    fn is_kept(&self, number: u64) -> bool {
        let mut directories = self.directories.iter();
        directories.any(|directory| directory.inodes().any(|kept| kept == number))
    }

    /// Bytes left of the capacity; `None`: no limit. What only a power cut could bring back takes
    /// no space.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let capacity = self.options.capacity_bytes?;
        let named: BTreeSet<u64> = self
            .directories
            .iter()
            .flat_map(|directory| directory.names().values().copied())
            .collect();
        let files: u64 = self
            .inodes
            .iter()
            .filter(|(number, inode)| inode.handles > 0 || named.contains(number))
            .map(|(_, inode)| inode.allocated())
            .sum();
        let rings: u64 = self.rings().map(|ring| ring.allocated as u64).sum();
        Some(capacity.saturating_sub(files + rings))
    }

    fn rings(&self) -> impl Iterator<Item = &RingFile> {
        self.directories
            .iter()
            .filter_map(|directory| directory.ring.as_ref())
    }

    /// Files with a name, and rings.
    fn named_images(&self) -> impl Iterator<Item = &Image> {
        let named = self
            .directories
            .iter()
            .flat_map(|directory| directory.names().values());
        named
            .map(|number| &self.inode(*number).image)
            .chain(self.rings().map(|ring| &ring.image))
    }

    /// Whether a power cut could take anything at all.
    pub(super) fn is_synced(&self) -> bool {
        self.directories.iter().all(Directory::is_synced)
            && self.named_images().all(Image::is_synced)
    }

    /// First operation of which something is un-synced.
    pub(super) fn unsynced_since(&self) -> Option<u64> {
        let images = self.named_images().filter_map(Image::unsynced_since);
        let names = self
            .directories
            .iter()
            .filter_map(Directory::unsynced_since);
        images.chain(names).min()
    }

    /// Hash of everything that is there now and of everything durable.
    pub(super) fn hash(&self) -> u64 {
        let mut items = Vec::new();
        for directory in &self.directories {
            for names in [directory.names(), directory.synced_names()] {
                items.push(names.len() as u64);
                for (id, number) in names {
                    items.extend([id.kind as u64, id.number]);
                    items.extend(self.inode(*number).image.hashes());
                }
            }
            items.extend(directory.ring.iter().flat_map(|ring| ring.image.hashes()));
        }
        let bytes: Vec<u8> = items.into_iter().flat_map(u64::to_le_bytes).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }

    pub(super) fn forget_inodes(&mut self) {
        let kept: BTreeSet<u64> = self
            .directories
            .iter()
            .flat_map(Directory::inodes)
            .collect();
        self.inodes
            .retain(|number, inode| inode.handles > 0 || kept.contains(number));
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

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::FileKind;
    use glintdb_flash::DataClass;

    #[test]
    fn an_inode_goes_with_the_last_of_its_names_and_handles() {
        let mut state = State::new(MemOptions::default());
        let options = CreateOptions {
            class: DataClass::Log,
            reserve_bytes: 0,
            direct: false,
        };
        let [gone, stays] = [1, 2].map(|number| FileId::new(FileKind::Log, number));
        let inode = state.create(0, gone, options, false).unwrap();
        let other = state.create(0, stays, options, false).unwrap();
        state.sync_directory(0).unwrap();
        assert_eq!(state.open(0, gone).unwrap(), inode);
        state.close(inode);
        // A power cut would bring the name back until the directory is synced; then the handle
        // alone keeps it.
        state.delete(0, gone, false).unwrap();
        state.sync_directory(0).unwrap();
        assert!(state.inodes.contains_key(&inode));
        state.close(inode);
        state.close(other);
        assert_eq!(state.inodes.keys().collect::<Vec<_>>(), [&other]);
    }
}
