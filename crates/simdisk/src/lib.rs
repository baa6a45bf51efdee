//! A simulated medium for tests: a volume in memory that behaves as badly as the media assumptions
//! (`docs/format/media.md`) allow, and fails on request.
//!
//! [`MemVolume::crash`] returns the volume that a *power cut* would leave now, [`MemVolume::kill`]
//! the one that `kill -9` would leave. Both leave the original as it is, so that a test can cut one
//! run in many ways at the same place. [`MemVolume::fail`] plans errors by the number of the
//! operation.
//! [`HookedVolume`] calls a test back before some operations of another volume.
//!
//! The same seed and the same operations give the same survivors: nothing depends on time,
//! addresses or hash order.
//!
//! Thread-safe. One mutex gives the operations of concurrent threads a total order.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]

mod blocks;
mod contents;
mod directory;
mod fault;
mod file;
mod hooks;
mod image;
mod misdirect;
mod moment;
mod random;
mod ring;
mod state;

pub use contents::Contents;
pub use fault::{CrashMode, Fault, FaultKind, Operation, OperationKind};
use file::MemFile;
use glintdb_core::sync::Mutex;
use glintdb_core::{FileId, Result};
use glintdb_flash::{CreateOptions, ReadRequest, Ring, Volume, VolumeFile, VolumeStats};
pub use hooks::{HookedVolume, Hooks};
pub use moment::{Moment, Observer};
use state::State;
use std::path::Path;
use std::sync::Arc;

/// What a power cut tears at, in bytes: a sector is written whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// How a simulated volume behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemOptions {
    /// Bytes that files (their reserves included) and what the ring has grown to may take; `None`:
    /// no limit.
    pub capacity_bytes: Option<u64>,
    /// Whether the ring is like a mapped file; else it is plain memory, gone with the process.
    pub ring_survives_kill: bool,
    /// Whether hard links are refused, as between two file systems.
    pub refuses_links: bool,
    /// Keep a log of every operation (about 64 bytes each) for [`MemVolume::operations`].
    pub log_operations: bool,
    /// Decides what a fault leaves of the operation it hits.
    pub seed: u64,
    /// For tests that put a volume on a modelled device when they open it. The volume itself does
    /// nothing with it; images of crashes have it too.
    pub on_device: bool,
    /// The same for tests that open the volume as one of two units, the other of which is a
    /// directory that it makes.
    pub on_units: bool,
}

impl Default for MemOptions {
    fn default() -> Self {
        MemOptions {
            capacity_bytes: None,
            ring_survives_kill: true,
            refuses_links: false,
            log_operations: false,
            seed: 0,
            on_device: false,
            on_units: false,
        }
    }
}

/// What handles share with the volume.
struct Shared {
    options: MemOptions,
    state: Mutex<State>,
}

/// A volume in memory. Thread-safe.
pub struct MemVolume {
    shared: Arc<Shared>,
    /// Which of its directories this is; 0: the volume's own.
    directory: usize,
}

impl MemVolume {
    /// An empty volume without limits or faults.
    #[must_use]
    pub fn new() -> Arc<MemVolume> {
        Self::with_options(MemOptions::default())
    }

    /// An empty volume.
    #[must_use]
    pub fn with_options(options: MemOptions) -> Arc<MemVolume> {
        Self::of_state(State::new(options))
    }

    /// How it behaves.
    #[must_use]
    pub fn options(&self) -> MemOptions {
        self.shared.options
    }

    fn of_state(state: State) -> Arc<MemVolume> {
        Arc::new(MemVolume {
            shared: Arc::new(Shared {
                options: state.options,
                state: Mutex::new(state),
            }),
            directory: 0,
        })
    }

    /// A directory that [`Volume::make_directory`] made, with the files that were linked into it, as a volume of its own; `None`: there is none.
    #[must_use]
    pub fn open_directory(&self, path: &Path) -> Option<Arc<MemVolume>> {
        let directory = self.shared.state.lock().directory_at(path)?;
        Some(self.of_directory(directory))
    }

    /// Whether it is a directory that [`Volume::make_directory`] made, and not the volume's own.
    #[must_use]
    pub fn is_made_directory(&self) -> bool {
        self.directory > 0
    }

    fn of_directory(&self, directory: usize) -> Arc<MemVolume> {
        Arc::new(MemVolume {
            shared: Arc::clone(&self.shared),
            directory,
        })
    }

    fn create_file(
        &self,
        id: FileId,
        options: CreateOptions,
        recycled: bool,
    ) -> Result<Arc<dyn VolumeFile>> {
        let mut state = self.shared.state.lock();
        let inode = state.create(self.directory, id, options, recycled)?;
        drop(state);
        Ok(Arc::new(MemFile::new(
            &self.shared,
            self.directory,
            id,
            inode,
        )))
    }

    /// Shows `observer` every operation from now on, with the volume's lock held; `None`: nobody.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.shared.state.lock().observer = observer;
    }

    /// Hash of names and bytes, those that are there now and those that are durable: two volumes of the same hash look the same from outside until one crashes while
    /// it has un-synced writes.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.shared.state.lock().hash()
    }

    /// The volume that a power cut would leave now, without faults. This one stays as it is.
    ///
    /// ```
    /// use glintdb_core::{FileId, FileKind};
    /// use glintdb_flash::{CreateOptions, DataClass, Volume};
    /// use glintdb_simdisk::{CrashMode, MemVolume};
    /// let volume = MemVolume::new();
    /// let id = FileId::new(FileKind::Log, 1);
    /// let file = volume.create(id, CreateOptions { class: DataClass::Log, reserve_bytes: 0, direct: false })?;
    /// volume.sync_directory()?;
    /// file.write_at(0, b"synced")?;
    /// file.sync()?;
    /// file.write_at(6, b"not")?;
    /// let after = volume.crash(CrashMode::LoseUnsynced);
    /// assert_eq!(&after.open(id)?.read_at(0, 100)?[..], b"synced");
    /// # Ok::<(), glintdb_core::Error>(())
    /// ```
    #[must_use]
    pub fn crash(&self, mode: CrashMode) -> Arc<MemVolume> {
        Self::of_state(self.shared.state.lock().after_power_cut(mode))
    }

    /// The volume that `kill -9` of the process would leave now, without faults: nothing is lost (the ring is, where it is plain memory), and what was not synced
    /// still is not. This one stays as it is.
    #[must_use]
    pub fn kill(&self) -> Arc<MemVolume> {
        Self::of_state(self.shared.state.lock().after_kill())
    }

    /// Plans a fault.
    pub fn fail(&self, fault: Fault) {
        self.shared.state.lock().faults.planned.push(fault);
    }

    /// Takes all planned faults back, and switches the power on again.
    pub fn clear_faults(&self) {
        let mut state = self.shared.state.lock();
        state.faults.planned.clear();
        state.faults.power_is_off = false;
    }

    /// Number of operations so far: the number the next one gets.
    #[must_use]
    pub fn operation_count(&self) -> u64 {
        self.shared.state.lock().faults.count
    }

    /// Number of operations that a fault hit.
    #[must_use]
    pub fn fault_count(&self) -> u64 {
        self.shared.state.lock().faults.hits
    }

    /// The log of operations, oldest first; empty unless [`MemOptions::log_operations`].
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.shared
            .state
            .lock()
            .faults
            .log
            .clone()
            .unwrap_or_default()
    }

    /// Whether a power cut now would take nothing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.shared.state.lock().is_synced()
    }

    /// Changes how much the volume holds; less than it holds now means that nothing more fits.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.shared.state.lock().options.capacity_bytes = capacity_bytes;
    }

    /// Rot: flips the bits of `mask` in the byte at `offset` of `id`, on the medium and in what is read. Counts as no operation.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn flip_bits(&self, id: FileId, offset: u64, mask: u8) -> Result<()> {
        let mut state = self.shared.state.lock();
        let number = state.directories[self.directory].find(id)?;
        let place = usize::try_from(offset).unwrap_or(usize::MAX);
        state.inode_mut(number).image.flip(place, mask);
        Ok(())
    }
}

impl Volume for MemVolume {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.create_file(id, options, false)
    }

    fn create_recycled(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.create_file(id, options, true)
    }

    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        let inode = self.shared.state.lock().open(self.directory, id)?;
        Ok(Arc::new(MemFile::new(
            &self.shared,
            self.directory,
            id,
            inode,
        )))
    }

    fn delete(&self, id: FileId) -> Result<()> {
        self.shared.state.lock().delete(self.directory, id, false)
    }

    fn recycle(&self, id: FileId) -> Result<()> {
        self.shared.state.lock().delete(self.directory, id, true)
    }

    fn delete_recycled(&self) {
        let mut state = self.shared.state.lock();
        state.directories[self.directory].forget_spares();
        state.forget_inodes();
    }

    fn list(&self) -> Result<Vec<FileId>> {
        self.shared.state.lock().list(self.directory)
    }

    fn sync_directory(&self) -> Result<()> {
        self.shared.state.lock().sync_directory(self.directory)
    }

    fn read_batch(&self, requests: &mut [ReadRequest]) {
        self.shared.state.lock().stats.read_batches += 1;
        for request in requests {
            request.result = Some(request.file.read_at(request.offset, request.length));
        }
    }

    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        Ok(Arc::new(ring::MemRing::open(
            &self.shared,
            self.directory,
            bytes,
        )?))
    }

    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        let state = self.shared.state.lock();
        let ring = state.directories[self.directory].ring.as_ref();
        Ok(ring.map(|ring| ring.image.len()))
    }

    fn remove_ring(&self) -> Result<()> {
        self.shared.state.lock().remove_ring(self.directory)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.state.lock().free_bytes()
    }

    fn link(&self, id: FileId, target: &Path) -> Result<bool> {
        self.shared.state.lock().link(self.directory, id, target)
    }

    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
        let directory = self.shared.state.lock().make_directory(path)?;
        Ok(self.of_directory(directory))
    }

    fn stats(&self) -> VolumeStats {
        self.shared.state.lock().stats
    }

    fn describe(&self) -> String {
        "memory (simulated)".to_owned()
    }
}
