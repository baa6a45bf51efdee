//! A volume over one directory of a file system.
//!
//! A [`FileId`] names each file of the engine. The volume makes a few more: `LOCK`, which the
//! process that has the directory open holds; `ring`, the log's ring, and `ring.new` while that is
//! being made; `spare-N.glint`, files that are kept to be written again; for a moment `probe.tmp`;
//! and, in each directory of a database that has several, `unit` ([`unit`]).
//! It never touches any other name, and [`DirVolume::contents`] tells beforehand whether a
//! directory has others.
//!
//! Thread-safe. Invariants:
//! 1. The lock is held as long as the volume, a file or the ring of it lives, or until
//!    [`release`](DirVolume::release).
//! 2. A file is read directly only while the page cache has no unsynced bytes of it, which reading
//!    would force out. Both ways see the same bytes at all times, because Linux keeps direct and
//!    buffered access of one file coherent.
//! 3. After a failed sync, a file takes no writes, and no later sync of any file of the volume is
//!    believed.
//! 4. The lock, the directory and the ring stay open. Everything else takes descriptors through
//!    [`descriptors`].

mod blocks;
mod contents;
mod descriptors;
mod file;
mod handles;
mod hint;
mod lock;
mod probe;
mod ring;
mod spares;
mod unit;
mod writes;

use crate::buffer::BufferPool;
use crate::clock::SystemClock;
use crate::process::ProcessToken;
use crate::reads::plan;
use crate::volume::{
    BegunBatch, CreateOptions, ReadRequest, Ring, Volume, VolumeFile, VolumeStats,
};
pub use contents::DirContents;
use descriptors::Descriptors;
pub(crate) use descriptors::{BegunReads, idle_queues_max};
pub(crate) use file::{DirFile, Extent, slice_of};
use glintdb_core::clock::Clock;
use glintdb_core::{Error, ErrorKind, FileId, Result};
pub(crate) use handles::Descriptor;
use handles::Handles;
use lock::DirLock;
use parking_lot::Mutex;
use spares::Spares;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use unit::open as open_units;
pub(crate) use writes::cut_off;

/// Whether files bypass the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum DirectIo {
    /// Bypass the page cache if the file system accepts it. The default.
    #[default]
    Auto,
    /// Bypass the page cache. Opening fails if the file system does not accept it.
    On,
    /// Use the page cache.
    Off,
}

/// How batches of reads are submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ReadEngine {
    /// io_uring if the kernel allows it, else libaio if I/O is direct, else threads, else one read
    /// after the other. The default.
    #[default]
    Auto,
    /// io_uring. Opening fails if the kernel does not allow it.
    IoUring,
    /// The kernel's older asynchronous I/O. Opening fails if the kernel does not allow it. Without
    /// direct I/O it does one read after the other.
    Libaio,
    /// Sixteen threads. Opening fails if they cannot be started.
    Threads,
    /// One read after the other.
    Sync,
}

/// Greatest number of reads of one batch in flight: 256. The measured drives gain nothing beyond
/// 64.
pub const READ_DEPTH_MAX: usize = 256;

/// How to open a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirOptions {
    /// Whether to go round the page cache.
    pub direct: DirectIo,
    /// How batches are read.
    pub read_engine: ReadEngine,
    /// The most reads of one batch in flight, from 1 to [`READ_DEPTH_MAX`] (others are taken for
    /// the nearest).
    pub read_depth: usize,
    /// The most batches that go on by themselves ([`Volume::begin_batch`]). Each takes a queue and
    /// its buffers. With 0, such a batch is read at once.
    pub begun_batches_max: usize,
    /// Whether the reads of a batch are done in the order of their places. If false, they are done
    /// in the order of the requests.
    pub sort_reads: bool,
    /// Whether neighbouring reads of a batch become one read of up to 256 KiB.
    pub merge_reads: bool,
    /// Whether the kernel may read ahead in files that go through the page cache.
    pub kernel_read_ahead: bool,
    /// Whether unneeded files are kept to be written again ([`Volume::recycle`]), if the file
    /// system overwrites in place.
    pub recycle: bool,
    /// Make the directory and its parents if they are missing.
    pub create: bool,
    /// Open the directory for reading only: nothing in it is created, changed or removed, and it
    /// may be one that the process cannot write to. Several processes may do so at once.
    pub read_only: bool,
    /// Most memory kept in unused read buffers, in bytes.
    pub idle_buffer_bytes_max: usize,
}

impl Default for DirOptions {
    fn default() -> Self {
        DirOptions {
            direct: DirectIo::Auto,
            read_engine: ReadEngine::Auto,
            read_depth: 128,
            begun_batches_max: 8,
            sort_reads: true,
            merge_reads: true,
            kernel_read_ahead: false,
            recycle: true,
            create: false,
            read_only: false,
            idle_buffer_bytes_max: 8 << 20,
        }
    }
}

/// What the directories of a database share.
pub(crate) struct Common {
    /// Reads batches of files of all of them.
    engine: plan::Engine,
    pub(crate) pool: BufferPool,
    pub(crate) descriptors: Descriptors,
    /// Whether a sync of some file, of the ring or of a directory has failed since they were
    /// opened.
    sync_failed: AtomicBool,
}

/// What the volume's files and ring share with it.
pub(crate) struct Shared {
    path: PathBuf,
    /// The directory, for syncing it.
    directory: fs::File,
    /// The process that opened the directory. A forked child changes nothing in it.
    pub(crate) process: ProcessToken,
    /// Whether nothing may be changed.
    read_only: bool,
    /// Files are opened with `O_DIRECT`.
    pub(crate) direct: bool,
    /// Batches are read in the order of places.
    pub(crate) sort_reads: bool,
    /// Neighbouring reads of a batch are merged.
    pub(crate) merge_reads: bool,
    kernel_read_ahead: bool,
    /// Measures how long operations take. It decides nothing.
    clock: SystemClock,
    /// What it has together with the other directories of the database.
    pub(crate) common: Arc<Common>,
    pub(crate) counters: Counters,
    handles: Handles,
    spares: Spares,
    /// `None` once the directory was released, and if it is open for reading only and has no lock.
    lock: Mutex<Option<DirLock>>,
}

/// Relaxed counters behind [`VolumeStats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) read_batches: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) recycled_files: AtomicU64,
    pub(crate) read_ns: AtomicU64,
    pub(crate) write_ns: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
}

impl Counters {
    pub(crate) fn count_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    fn count_batch(&self) {
        self.read_batches.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }
    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }
}

impl Common {
    /// `direct`: whether files bypass the page cache.
    fn new(options: DirOptions, direct: bool) -> Result<Common> {
        Ok(Common {
            engine: plan::Engine::choose(
                options.read_engine,
                options.read_depth.clamp(1, READ_DEPTH_MAX),
                options.begun_batches_max,
                direct,
            )?,
            pool: BufferPool::new(options.idle_buffer_bytes_max),
            descriptors: Descriptors::default(),
            sync_failed: AtomicBool::new(false),
        })
    }
}

/// A directory that is locked and was looked at.
struct Prepared {
    path: PathBuf,
    directory: fs::File,
    lock: Option<DirLock>,
    direct: bool,
    direct_reason: String,
    overwrites_in_place: bool,
}

impl Prepared {
    /// Makes the directory if that is asked for, and locks it.
    fn new(path: &Path, options: DirOptions) -> Result<Prepared> {
        let create = options.create && !options.read_only;
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(not_a_directory(path));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
                create_durably(path)?
            }
            Err(error) => {
                return Err(Error::access(
                    format!("open directory {}", path.display()),
                    error,
                ));
            }
        }
        let path = path
            .canonicalize()
            .map_err(|error| Error::access(format!("resolve {}", path.display()), error))?;
        let lock = match options.read_only {
            true => DirLock::share(&path)?,
            false => Some(DirLock::take(&path)?),
        };
        let directory = open_directory(&path)?;
        let probe = match options.read_only {
            true => probe::direct_reads,
            false => probe::direct_io,
        };
        let (direct, direct_reason) = match options.direct {
            DirectIo::Off => (false, "buffered (asked for)".to_owned()),
            wanted => match probe(&path) {
                Ok(()) => (true, "direct".to_owned()),
                Err(error) if wanted == DirectIo::On => {
                    return Err(Error::new(
                        ErrorKind::InvalidArgument,
                        format!("direct I/O is refused in {}: {error}", path.display()),
                    ));
                }
                Err(error) => (false, format!("buffered (direct I/O refused: {error})")),
            },
        };
        Ok(Prepared {
            overwrites_in_place: probe::overwrites_in_place(&directory).is_ok(),
            path,
            directory,
            lock,
            direct,
            direct_reason,
        })
    }

    fn finish(self, options: DirOptions, common: &Arc<Common>) -> Arc<DirVolume> {
        let recycle = options.recycle && !options.read_only && self.overwrites_in_place;
        Arc::new(DirVolume {
            shared: Arc::new(Shared {
                path: self.path,
                directory: self.directory,
                process: ProcessToken::current(),
                read_only: options.read_only,
                direct: self.direct,
                sort_reads: options.sort_reads,
                merge_reads: options.merge_reads,
                kernel_read_ahead: options.kernel_read_ahead,
                clock: SystemClock::new(),
                common: Arc::clone(common),
                counters: Counters::default(),
                handles: Handles::default(),
                spares: Spares::new(recycle),
                lock: Mutex::new(self.lock),
            }),
            direct_reason: self.direct_reason,
            ring: Mutex::new(None),
        })
    }
}

impl Shared {
    /// Does `act`, and adds the time that it takes to a counter of nanoseconds.
    pub(crate) fn timed<T>(&self, counter: &AtomicU64, act: impl FnOnce() -> T) -> T {
        let start = self.clock.monotonic();
        let result = act();
        let time = self.clock.monotonic().saturating_sub(start);
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        counter.fetch_add(time_ns, Ordering::Relaxed);
        result
    }

    /// Refuses to change anything in a forked child, and in a volume that is open for reading only.
    fn check_changes(&self) -> Result<()> {
        self.process.check()?;
        match self.read_only {
            true => Err(Error::invalid(format!(
                "{} is open for reading only",
                self.path.display()
            ))),
            false => Ok(()),
        }
    }

    /// Does `sync`, and believes it only if no sync of any file has failed so far: a device whose
    /// flush failed may have lost what it had taken of all files, and the kernel tells only one
    /// caller. (No space is the file's own matter: no flush has failed.)
    pub(crate) fn sync_with(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        self.counters.count_sync();
        self.timed(&self.counters.sync_ns, sync)
            .inspect_err(|error| {
                let device = error.kind() != ErrorKind::NoSpace;
                self.common.sync_failed.fetch_or(device, Ordering::SeqCst);
            })?;
        // Afterwards: one that failed meanwhile may have been told of this file's bytes.
        self.check_syncs()
    }

    /// Checks that no sync has failed so far.
    fn check_syncs(&self) -> Result<()> {
        if self.common.sync_failed.load(Ordering::SeqCst) {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "a sync in this directory failed before; what the device had taken since may be gone",
            ));
        }
        Ok(())
    }

    /// Syncs the directory.
    fn sync_names(&self) -> Result<()> {
        let failed = |error| Error::io(format!("sync directory {}", self.path.display()), error);
        self.sync_with(|| self.directory.sync_all().map_err(failed))
    }

    /// Does what needs space, and if there is none, does it again without the files that are kept
    /// to be written again, whichever thread has removed them.
    pub(crate) fn with_space<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let releases = self.spares.releases();
            let result = act();
            let full = (result.as_ref()).is_err_and(|error| error.kind() == ErrorKind::NoSpace);
            if !full || !self.spares.release_since(releases, self) {
                return result;
            }
        }
    }

    pub(crate) fn file_path(&self, id: FileId) -> PathBuf {
        self.path.join(id.to_string())
    }
}

impl Shared {
    /// Removes the spares and gives the lock back, once. Does nothing in a forked child.
    fn release(&self) {
        if !self.process.is_current() {
            return;
        }
        let mut lock = self.lock.lock();
        if lock.is_some() {
            self.spares.clear(&self.path);
            lock.take();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.release();
    }
}

/// A volume over one directory. Thread-safe.
pub struct DirVolume {
    shared: Arc<Shared>,
    direct_reason: String,
    /// Held while the ring is made or removed. Why it is in plain memory, if it is.
    ring: Mutex<Option<String>>,
}

impl DirVolume {
    /// Opens the directory `path` and locks it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use glintdb_core::{FileId, FileKind};
    /// use glintdb_flash::{CreateOptions, DirOptions, DirVolume, DataClass, Volume};
    /// let volume = DirVolume::open(dir.path(), DirOptions::default())?;
    /// let id = FileId::new(FileKind::Table, 1);
    /// let file = volume.create(id, CreateOptions { class: DataClass::Flush, reserve_bytes: 0, direct: true })?;
    /// file.write_at(0, b"hello")?;
    /// file.sync()?;
    /// volume.sync_directory()?;
    /// assert_eq!(&volume.open(id)?.read_at(1, 100)?[..], b"ello");
    /// # Ok::<(), glintdb_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Locked`: the directory is open already, here or in another process.
    /// - `NotFound`: it is missing, and `create` is false.
    /// - `Unavailable`: the process may have too few descriptors, or may not do this.
    /// - `InvalidArgument`: `path` is no directory, or one of several of a database; or an engine
    ///   that was asked for is refused.
    /// - I/O errors.
    pub fn open(path: impl AsRef<Path>, options: DirOptions) -> Result<Arc<DirVolume>> {
        descriptors::check_limit()?;
        unit::refuse(path.as_ref())?;
        let prepared = Prepared::new(path.as_ref(), options)?;
        let common = Common::new(options, prepared.direct)?;
        Ok(prepared.finish(options, &Arc::new(common)))
    }

    /// Gives the directory to the next opener, though the volume, files or the ring of it may still
    /// live: from now on the caller uses none of them. [`ClosableVolume`](crate::ClosableVolume)
    /// makes sure of that.
    pub fn release(&self) {
        self.shared.release();
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Number of the file system's device, to tell whether two directories share their space.
    pub(crate) fn device(&self) -> Result<u64> {
        let metadata = self.shared.directory.metadata();
        metadata
            .map(|metadata| metadata.dev())
            .map_err(|error| Error::access(format!("look at {}", self.path().display()), error))
    }

    /// For unit tests of what works on it.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where reads get their buffers; tells how much memory they take.
    #[must_use]
    pub fn buffers(&self) -> &BufferPool {
        &self.shared.common.pool
    }
}

impl Volume for DirVolume {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.shared.check_changes()?;
        let create = || DirFile::create(&self.shared, id, options);
        Ok(Arc::new(self.shared.with_space(create)?))
    }

    fn create_recycled(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.shared.check_changes()?;
        let path = self.shared.file_path(id);
        let spares = &self.shared.spares;
        if !spares.take(&self.shared.path, &path, options.reserve_bytes) {
            return self.create(id, options);
        }
        let recycle = || DirFile::recycle(&self.shared, id, options);
        let file = match self.shared.with_space(recycle) {
            Ok(file) => file,
            // Whatever is wrong with the file, a new one has nothing to do with it. But its name
            // must be free.
            Err(error) => match fs::remove_file(&path) {
                Err(stays) if stays.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => return self.create(id, options),
            },
        };
        let recycled = &self.shared.counters.recycled_files;
        recycled.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(file))
    }

    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        self.shared.process.check()?;
        Ok(Arc::new(DirFile::open(&self.shared, id)?))
    }

    fn delete(&self, id: FileId) -> Result<()> {
        self.shared.check_changes()?;
        self.shared.remove_name(id, || {
            fs::remove_file(self.shared.file_path(id))
                .map_err(|error| Error::access(format!("delete {id}"), error))
        })
    }

    fn recycle(&self, id: FileId) -> Result<()> {
        self.shared.check_changes()?;
        match self.shared.spares.keep(&self.shared, id) {
            true => Ok(()),
            false => self.delete(id),
        }
    }

    fn delete_recycled(&self) {
        if self.shared.process.is_current() {
            self.shared.spares.clear(&self.shared.path);
        }
    }

    fn list(&self) -> Result<Vec<FileId>> {
        self.shared.process.check()?;
        let failed = |error| Error::access(format!("list {}", self.shared.path.display()), error);
        let read = || fs::read_dir(&self.shared.path).map_err(failed);
        let mut ids = Vec::new();
        for entry in self.shared.with_descriptors(read)? {
            ids.extend(
                entry
                    .map_err(failed)?
                    .file_name()
                    .to_str()
                    .and_then(FileId::parse),
            );
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn sync_directory(&self) -> Result<()> {
        self.shared.check_changes()?;
        let spares = &self.shared.spares;
        let before = spares.before_sync();
        self.shared.sync_names()?;
        spares.synced(before);
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest]) {
        if let Err(error) = self.shared.process.check() {
            return refuse_all(requests, &error);
        }
        let counters = &self.shared.counters;
        counters.count_batch();
        let read = || self.shared.common.engine.read_batch(&self.shared, requests);
        self.shared.timed(&counters.read_ns, read);
    }

    fn begin_batch(&self, mut requests: Vec<ReadRequest>) -> BegunBatch {
        if let Err(error) = self.shared.process.check() {
            refuse_all(&mut requests, &error);
            return BegunBatch::done(requests);
        }
        let counters = &self.shared.counters;
        counters.count_batch();
        let begin = || {
            self.shared
                .common
                .engine
                .begin_batch(&self.shared, requests)
        };
        let begun = self.shared.timed(&counters.read_ns, begin);
        let shared = Arc::clone(&self.shared);
        BegunBatch::new(move || shared.timed(&shared.counters.read_ns, || begun.wait()))
    }

    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        self.shared.process.check()?;
        let mut refusal = self.ring.lock();
        let open = || ring::open_or_create(&self.shared, bytes);
        let open = || self.shared.with_descriptors(open);
        let (ring, reason) = self.shared.with_space(open)?;
        *refusal = reason;
        Ok(ring)
    }

    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        self.shared.process.check()?;
        let _one = self.ring.lock();
        ring::existing_bytes(&self.shared.path)
    }

    fn remove_ring(&self) -> Result<()> {
        self.shared.check_changes()?;
        let _one = self.ring.lock();
        if ring::remove(&self.shared.path)? {
            self.sync_directory()?;
        }
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        let free = blocks::free_bytes(&self.shared.directory)?;
        Some(free.saturating_add(self.shared.spares.bytes()))
    }

    fn link(&self, id: FileId, target: &Path) -> Result<bool> {
        self.shared.process.check()?;
        // Counts as an open handle, so that the file is not recycled: the system may give a file
        // that it found by its name a second one after the first has gone.
        let _linking = Handles::use_file(&self.shared, id);
        let source = self.shared.file_path(id);
        let target = target.join(id.to_string());
        match fs::hard_link(&source, &target) {
            Ok(()) => Ok(true),
            // These say nothing about links: a copy would fail in the same way or hide a mistake.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                ) =>
            {
                Err(Error::io(
                    format!("link {id} to {}", target.display()),
                    error,
                ))
            }
            Err(_) => Ok(false),
        }
    }

    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
        self.shared.process.check()?;
        if path.try_exists().unwrap_or(true) {
            return Err(Error::exists(path.display().to_string()));
        }
        let options = DirOptions {
            direct: match self.shared.direct {
                true => DirectIo::Auto,
                false => DirectIo::Off,
            },
            read_engine: ReadEngine::Sync,
            create: true,
            ..DirOptions::default()
        };
        let open = || DirVolume::open(path, options);
        Ok(self.shared.with_descriptors(open)?)
    }

    fn stats(&self) -> VolumeStats {
        let counters = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VolumeStats {
            reads: get(&counters.reads),
            read_bytes: get(&counters.read_bytes),
            read_batches: get(&counters.read_batches),
            writes: get(&counters.writes),
            written_bytes: get(&counters.written_bytes),
            syncs: get(&counters.syncs),
            read_us: get(&counters.read_ns) / 1000,
            write_us: get(&counters.write_ns) / 1000,
            sync_us: get(&counters.sync_ns) / 1000,
            recycled_files: get(&counters.recycled_files),
            idle_buffer_bytes: self.shared.common.pool.idle_bytes() as u64,
            idle_buffer_bytes_most: self.shared.common.pool.idle_bytes_most() as u64,
        }
    }

    fn describe(&self) -> String {
        let mut text = format!(
            "{}, {}",
            self.direct_reason,
            self.shared.common.engine.describe()
        );
        if let Some(reason) = &*self.ring.lock() {
            text.push_str(&format!(
                ", ring in plain memory (mapping refused: {reason})"
            ));
        }
        text
    }
}

/// Gives every request the same error.
fn refuse_all(requests: &mut [ReadRequest], error: &Error) {
    for request in requests {
        request.result = Some(Err(error.clone()));
    }
}

fn not_a_directory(path: &Path) -> Error {
    Error::invalid(format!("{} is not a directory", path.display()))
}

fn open_directory(path: &Path) -> Result<fs::File> {
    fs::OpenOptions::new()
        .read(true)
        .open(path)
        .map_err(|error| Error::access(format!("open directory {}", path.display()), error))
}

/// Makes `path` and its missing parents, and syncs each of them and the first that was there
/// before, so that the names last.
fn create_durably(path: &Path) -> Result<()> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Error::access(format!("resolve {}", path.display()), error))?;
    let existing = absolute
        .ancestors()
        .find(|ancestor| ancestor.is_dir())
        .unwrap_or(Path::new("/"));
    fs::create_dir_all(&absolute)
        .map_err(|error| Error::access(format!("create directory {}", path.display()), error))?;
    for directory in absolute.ancestors() {
        open_directory(directory)?
            .sync_all()
            .map_err(|error| Error::io(format!("sync directory {}", directory.display()), error))?;
        if directory == existing {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
