//! A volume on the modelled device: bytes, names and crashes come from another volume, and times
//! from the model.
//!
//! Thread-safe. The lock is not held while a thread waits for the device.
//!
//! Invariants:
//! 1. An operation does what it does on the inner volume, and ends when both have ended, the inner
//!    operation and the device's. After a crash the inner volume says what is there.
//! 2. A file's sectors on the device go when its name is deleted and its last handle is closed.

use super::files::{ClassReads, State, histogram};
use super::nand::{Device, Ns, Profile, UnitStats};
use super::profiler::Profiler;
use super::space::{SECTOR_BYTES, Space, SpaceStats};
use crate::placement::{Placement, PlacementChange};
use crate::units::counts::Counts;
use crate::volume::{
    BegunBatch, ClassStats, CreateOptions, DataClass, DeviceStats, ReadRequest, Ring, Volume,
    VolumeFile, VolumeStats, find_file, put_files_back, replace_files,
};
use bytes::Bytes;
use glintdb_core::clock::Clock;
use glintdb_core::sync::{Work, charge};
use glintdb_core::{Error, FileId, Result};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of an emulated volume since it was opened.
#[derive(Clone, Debug)]
pub struct EmulatedStats {
    /// Bytes written, programmed and moved.
    pub space: SpaceStats,
    /// Bytes that were programmed for each byte that the host has written.
    pub write_amp_device: f64,
    /// Fewest and most erases of a free block.
    pub wear: (u32, u32),
    /// Counters of each unit.
    pub units: Vec<UnitStats>,
    /// Small reads of files of each class.
    pub reads: BTreeMap<DataClass, ClassReads>,
    /// Changes of the placement of new files.
    pub changes: Vec<PlacementChange>,
    /// Waits for the device.
    pub waits: Waits,
}

/// Waits for the device: what the model computed for each, and what it took by the clock, which
/// wakes threads late. Nanoseconds, to two digits.
#[derive(Clone, Debug)]
pub struct Waits {
    /// Time from the beginning of an operation to its end in the model.
    pub computed: Histogram<u32>,
    /// Time from the beginning of an operation to the end of the wait for it.
    pub taken: Histogram<u32>,
}

impl Default for Waits {
    fn default() -> Self {
        Waits {
            computed: histogram(),
            taken: histogram(),
        }
    }
}

struct Shared {
    inner: Arc<dyn Volume>,
    clock: Arc<dyn Clock>,
    placement: Placement,
    /// End of a wait in which a thread spins.
    spin_ns: AtomicU64,
    waits: Mutex<Waits>,
    state: Mutex<State>,
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    sync_ns: AtomicU64,
    /// By class; the device counts by unit.
    counts: Counts,
}

/// A file in use. When its name and its last handle are gone, so is its layout.
struct InUse {
    shared: Arc<Shared>,
    file: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(layout) = state.files.get_mut(&self.file) {
            layout.handles -= 1;
        }
        state.remove_unused(self.file);
    }
}

/// A volume on a modelled device.
///
/// ```
/// use glintdb_flash::emulator::{Emulated, Placement, nand::Profile};
/// use glintdb_flash::{CreateOptions, DataClass, ManualClock, Volume};
/// # use glintdb_core::{FileId, FileKind, clock::Clock};
/// # use glintdb_simdisk::MemVolume;
/// use std::sync::Arc;
///
/// let clock = Arc::new(ManualClock::default());
/// let profile = Profile::named("westlake-mlc")?;
/// let volume = Emulated::new(MemVolume::new(), profile, Placement::Striping, clock.clone())?;
/// # let id = FileId::new(FileKind::Log, 1);
/// let options = CreateOptions { class: DataClass::Log, reserve_bytes: 0, direct: true };
/// let file = volume.create(id, options)?;
/// file.write_at(0, &[7; 32 << 10])?;
/// file.sync()?;
/// // 4.2 us over the link, 52.4 for each of two pages over the bus, 850 for the program.
/// assert_eq!(clock.monotonic().as_micros(), 959);
/// # Ok::<(), glintdb_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Emulated(Arc<Shared>);

impl Emulated {
    /// A volume whose bytes are in `inner`, on a device of this kind. `clock` says what time it is,
    /// and is asked to sleep until operations are done. With a clock that only moves when a thread
    /// sleeps, such as [`ManualClock`](crate::ManualClock), a run of one thread takes no time.
    ///
    /// Files that `inner` has are placed anew when they are first used.
    ///
    /// # Errors
    /// `InvalidArgument`: the profile has failure rates of operations, which a volume does not
    /// survive; its rows are no whole sectors of 4 KiB; or a group of `placement` has no unit.
    pub fn new(
        inner: Arc<dyn Volume>,
        profile: Profile,
        placement: Placement,
        clock: Arc<dyn Clock>,
    ) -> Result<Emulated> {
        let faults = &profile.faults;
        if faults.read_ppm + faults.program_ppm + faults.erase_ppm > 0 {
            return Err(Error::invalid(format!(
                "profile {}: a volume is not for devices with failure rates; flash-bench is",
                profile.name
            )));
        }
        let groups = placement.split(profile.geometry.luns_in_all())?;
        let profiler = matches!(placement, Placement::Dynamic(_)).then(|| {
            let row_ns = (profile.program_ns(0) + profile.program_ns(1)) as f64 / 2.0;
            let sectors = profile.geometry.row_bytes() / SECTOR_BYTES;
            Profiler::new(&groups, row_ns / sectors as f64)
        });
        let device = Device::new(profile)?;
        let state = State {
            space: Space::new(&device, groups)?,
            device,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            next_file: 0,
            reads: BTreeMap::new(),
            profiler,
        };
        Ok(Emulated(Arc::new(Shared {
            inner,
            clock,
            placement,
            spin_ns: AtomicU64::new(0),
            waits: Mutex::default(),
            state: Mutex::new(state),
            read_ns: AtomicU64::new(0),
            write_ns: AtomicU64::new(0),
            sync_ns: AtomicU64::new(0),
            counts: Counts::new(1),
        })))
    }

    /// Has threads spin for the last `time` of a wait, because sleepers wake late. Only for a clock
    /// that goes by itself.
    #[must_use]
    pub fn spin(self, time: Duration) -> Emulated {
        let spin_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.spin_ns.store(spin_ns, Ordering::Relaxed);
        self
    }

    /// Gives each file virtual blocks of its own, as the DapDB paper does: superblocks over all
    /// units of its group, however small the file is, which are erased at once when it is deleted.
    /// Without this, small files share superblocks, and erases are spread over time.
    #[must_use]
    pub fn with_virtual_blocks(self) -> Emulated {
        self.0.state.lock().space.virtual_blocks = true;
        self
    }

    /// What the device did.
    #[must_use]
    pub fn device_stats(&self) -> EmulatedStats {
        let state = self.0.state.lock();
        let space = state.space.stats;
        EmulatedStats {
            space,
            write_amp_device: space.programmed_bytes as f64 / space.host_bytes.max(1) as f64,
            wear: state.space.wear(),
            units: state.device.units().collect(),
            reads: state.reads.clone(),
            changes: state
                .profiler
                .iter()
                .flat_map(Profiler::changes)
                .copied()
                .collect(),
            waits: self.0.waits.lock().clone(),
        }
    }

    /// A handle for a file that the inner volume has created or opened.
    fn handle(
        &self,
        id: FileId,
        options: Option<CreateOptions>,
        inner: Arc<dyn VolumeFile>,
    ) -> Result<Arc<dyn VolumeFile>> {
        let length = inner.len()?;
        let shared = &self.0;
        let now = shared.now();
        let mut state = shared.state.lock();
        let known = state.names.get(&id).copied();
        let file = match known.filter(|_| options.is_none()) {
            Some(file) => file,
            None => {
                let class = options.map_or(DataClass::of_found(id), |options| options.class);
                // Files that keep space for a full disk hold nothing.
                let bytes = match (class, options) {
                    (DataClass::Reserve, _) => 0,
                    (_, Some(options)) => options.reserve_bytes,
                    (_, None) => length,
                };
                let group = shared.placement.group_of(class);
                let is_isolated = (state.profiler.as_mut()).is_none_or(|it| it.decide(now));
                let file = state.add(id, (class, is_isolated), group, bytes)?;
                if options.is_none() {
                    state.write(file, 0, length, now)?;
                }
                file
            }
        };
        let mut class = DataClass::of_found(id);
        if let Some(layout) = state.files.get_mut(&file) {
            layout.handles += 1;
            class = layout.class;
        }
        drop(state);
        let in_use = InUse {
            shared: Arc::clone(shared),
            file,
        };
        Ok(Arc::new(EmulatedFile {
            inner,
            in_use,
            class,
        }))
    }
}

impl Shared {
    fn now(&self) -> Ns {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits until `until`, and adds the time to `counter`.
    fn wait(&self, from: Ns, until: Ns, counter: &AtomicU64) {
        let now = self.now();
        let spin = self.spin_ns.load(Ordering::Relaxed);
        if until > now + spin {
            self.clock.sleep(Duration::from_nanos(until - now - spin));
        }
        while spin > 0 && self.now() < until {
            std::hint::spin_loop();
        }
        counter.fetch_add(until.saturating_sub(from), Ordering::Relaxed);
        if until > now {
            let taken = self.now().saturating_sub(from);
            let mut waits = self.waits.lock();
            waits.computed.saturating_record(until - from);
            waits.taken.saturating_record(taken);
        }
    }

    /// Writes sectors of a file as of `now`, and waits until they are acknowledged.
    fn write(&self, file: u64, offset: u64, length: u64, now: Ns) -> Result<()> {
        let acknowledged = {
            let mut state = self.state.lock();
            let acknowledged = state.write(file, offset, length, now)?;
            let State { device, space, .. } = &mut *state;
            space.erase_some(device, now);
            acknowledged
        };
        self.wait(now, acknowledged, &self.write_ns);
        Ok(())
    }

    /// Submits reads of a file. Returns when the last one is done.
    fn submit_read(&self, file: u64, offset: u64, length: usize, now: Ns) -> Result<Ns> {
        self.state.lock().read(file, offset, length as u64, now)
    }

    /// Makes what was written to a file durable, as of `now`.
    fn sync(&self, file: u64, now: Ns) -> Result<()> {
        let done = self.state.lock().sync(file, now)?;
        self.wait(now, done, &self.sync_ns);
        Ok(())
    }
}

/// A file of the volume.
struct EmulatedFile {
    inner: Arc<dyn VolumeFile>,
    in_use: InUse,
    class: DataClass,
}

impl EmulatedFile {
    fn of(file: &dyn VolumeFile) -> Option<&EmulatedFile> {
        find_file(file)
    }

    fn count_read(&self, bytes: usize) {
        let counts = &self.in_use.shared.counts;
        counts.count_read(0, self.class, bytes as u64);
    }

    fn count_write(&self, bytes: usize) {
        let counts = &self.in_use.shared.counts;
        counts.count_write(0, self.class, bytes as u64);
    }

    /// The file that has the bytes of this one.
    fn inner_of(file: &dyn VolumeFile) -> Option<Arc<dyn VolumeFile>> {
        Self::of(file).map(|file| Arc::clone(&file.inner))
    }
}

impl VolumeFile for EmulatedFile {
    fn id(&self) -> FileId {
        self.inner.id()
    }

    fn medium_file(&self) -> Option<&dyn VolumeFile> {
        Some(&*self.inner)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let shared = &self.in_use.shared;
        let now = shared.now();
        self.inner.write_at(offset, bytes)?;
        self.count_write(bytes.len());
        shared.write(self.in_use.file, offset, bytes.len() as u64, now)
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let shared = &self.in_use.shared;
        let now = shared.now();
        let done = shared.submit_read(self.in_use.file, offset, length, now)?;
        charge(Work::Read, 1);
        self.count_read(length);
        let bytes = self.inner.read_at(offset, length);
        shared.wait(now, done, &shared.read_ns);
        bytes
    }

    fn sync(&self) -> Result<()> {
        let now = self.in_use.shared.now();
        self.inner.sync()?;
        self.in_use.shared.sync(self.in_use.file, now)
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.inner.set_len(length)?;
        self.in_use
            .shared
            .state
            .lock()
            .cut(self.in_use.file, length);
        Ok(())
    }

    fn keep_open(&self, keep: bool) -> Result<()> {
        self.inner.keep_open(keep)
    }
}

impl Emulated {
    /// Submits the requests to the device. Returns when the last one is done.
    fn submit(&self, requests: &[ReadRequest], now: Ns) -> Result<Ns> {
        let mut done = now;
        for request in requests {
            if let Some(file) = EmulatedFile::of(&*request.file) {
                let (offset, length) = (request.offset, request.length);
                file.count_read(length);
                done = done.max(self.0.submit_read(file.in_use.file, offset, length, now)?);
            }
        }
        Ok(done)
    }
}

impl Volume for Emulated {
    /// There are no recycled files: a block that is erased gains nothing by being used again.
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        let inner = self.0.inner.create(id, options)?;
        self.handle(id, Some(options), inner).inspect_err(|_| {
            self.0.inner.delete(id).ok();
        })
    }

    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        self.handle(id, None, self.0.inner.open(id)?)
    }

    fn delete(&self, id: FileId) -> Result<()> {
        self.0.inner.delete(id)?;
        self.0.state.lock().forget_name(id);
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileId>> {
        self.0.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        let now = self.0.now();
        self.0.inner.sync_directory()?;
        let done = self.0.state.lock().sync_names(now)?;
        self.0.wait(now, done, &self.0.sync_ns);
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest]) {
        let now = self.0.now();
        let done = self.submit(requests, now);
        charge(Work::Read, requests.len() as u64);
        let files = replace_files(requests, EmulatedFile::inner_of);
        self.0.inner.read_batch(requests);
        put_files_back(requests, files);
        self.0.wait(now, done.unwrap_or(now), &self.0.read_ns);
    }

    fn begin_batch(&self, mut requests: Vec<ReadRequest>) -> BegunBatch {
        let now = self.0.now();
        let done = self.submit(&requests, now).unwrap_or(now);
        charge(Work::Read, requests.len() as u64);
        let files = replace_files(&mut requests, EmulatedFile::inner_of);
        let begun = self.0.inner.begin_batch(requests);
        let shared = Arc::clone(&self.0);
        BegunBatch::new(move || {
            let mut requests = begun.wait();
            put_files_back(&mut requests, files);
            let from = shared.now();
            shared.wait(from, done, &shared.read_ns);
            requests
        })
    }

    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        Ok(Arc::new(EmulatedRing(self.0.inner.ring(bytes)?)))
    }

    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        self.0.inner.existing_ring_bytes()
    }

    fn remove_ring(&self) -> Result<()> {
        self.0.inner.remove_ring()
    }

    fn free_bytes(&self) -> Option<u64> {
        let of_device = self.0.state.lock().space.free_bytes();
        let of_inner = self.0.inner.free_bytes().unwrap_or(u64::MAX);
        Some(of_device.min(of_inner))
    }

    /// The link, and the directory of a checkpoint, are not on the device.
    fn link(&self, id: FileId, target: &Path) -> Result<bool> {
        self.0.inner.link(id, target)
    }

    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
        self.0.inner.make_directory(path)
    }

    fn stats(&self) -> VolumeStats {
        let us = |counter: &AtomicU64| counter.load(Ordering::Relaxed) / 1000;
        let inner = self.0.inner.stats();
        VolumeStats {
            read_us: inner.read_us + us(&self.0.read_ns),
            write_us: inner.write_us + us(&self.0.write_ns),
            sync_us: inner.sync_us + us(&self.0.sync_ns),
            ..inner
        }
    }

    /// Reads and writes are operations of the medium, so a write is the program of a row.
    fn units(&self) -> Vec<crate::volume::UnitStats> {
        let state = self.0.state.lock();
        let stats = |(number, unit): (usize, UnitStats)| crate::volume::UnitStats {
            name: number.to_string(),
            reads: unit.reads,
            read_bytes: unit.read_bytes,
            writes: unit.programs,
            written_bytes: unit.programmed_bytes,
            ..Default::default()
        };
        state.device.units().enumerate().map(stats).collect()
    }

    fn classes(&self) -> Vec<ClassStats> {
        self.0.counts.classes()
    }

    fn device(&self) -> Option<DeviceStats> {
        let stats = self.device_stats();
        Some(DeviceStats {
            host_bytes: stats.space.host_bytes,
            programmed_bytes: stats.space.programmed_bytes,
            padding_bytes: stats.space.padding_bytes,
            moved_bytes: stats.space.moved_bytes,
            wear: stats.wear,
            changes: stats.changes,
        })
    }

    fn describe(&self) -> String {
        let state = self.0.state.lock();
        let name = &state.device.profile().name;
        format!("emulated device {name} over: {}", self.0.inner.describe())
    }
}

/// The ring is memory of the host; what it writes to files goes to the device.
struct EmulatedRing(Arc<dyn Ring>);

impl Ring for EmulatedRing {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn survives_kill(&self) -> bool {
        self.0.survives_kill()
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        self.0.grow(bytes)
    }

    fn shrink(&self, bytes: usize) -> Result<()> {
        self.0.shrink(bytes)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.write(offset, bytes);
    }

    fn populate(&self, offset: usize, length: usize) {
        self.0.populate(offset, length);
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        let Some(emulated) = EmulatedFile::of(file) else {
            return self.0.write_to(offset, length, file, file_offset);
        };
        let shared = &emulated.in_use.shared;
        let now = shared.now();
        let inner = &*emulated.inner;
        self.0.write_to(offset, length, inner, file_offset)?;
        emulated.count_write(length);
        shared.write(emulated.in_use.file, file_offset, length as u64, now)
    }

    fn sync(&self) -> Result<bool> {
        self.0.sync()
    }
}
