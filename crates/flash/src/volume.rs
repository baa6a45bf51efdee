//! The medium as the engine sees it: files that are created for a class of data, appended to,
//! synced, read (one by one or in a batch), deleted (or written again under another name) and
//! listed.
//!
//! What a volume promises (`docs/format/media.md`): a write is durable after [`VolumeFile::sync`]
//! of its file; a file's *name* (created or deleted) after [`Volume::sync_directory`]; before that,
//! writes may be lost, torn at 512 bytes or reordered. Thread-safe: writes to one file are the
//! caller's to order, everything else may come from any thread at any time.

use crate::placement::PlacementChange;
use bytes::Bytes;
use glintdb_core::{Error, ErrorKind, FileId, FileKind, Result};
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// What a file holds. A volume with parallel units may place each class on units of its own,
/// because files of one class live about equally long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum DataClass {
    /// Log segments: written once, read by recovery and for values.
    Log,
    /// Tables of flushes: short-lived.
    Flush,
    /// Tables of compactions. Deeper levels live longer.
    Level {
        /// Place of the level among those that hold data below the newest runs, from 1.
        rank: u8,
        /// Number of such levels.
        of: u8,
    },
    /// Values that value GC moved, and the tables that point to them: longest-lived.
    Relocated,
    /// Manifests.
    Manifest,
    /// Files without data that keep space for a full disk.
    Reserve,
}

impl DataClass {
    /// The class of a file that an earlier process made, as far as its name tells.
    #[must_use]
    pub fn of_found(id: FileId) -> DataClass {
        match id.kind {
            FileKind::Log => DataClass::Log,
            FileKind::Table | FileKind::Tree => DataClass::Level {
                rank: u8::MAX,
                of: u8::MAX,
            },
            FileKind::Manifest => DataClass::Manifest,
            _ => DataClass::Reserve,
        }
    }
}

/// How a file will be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateOptions {
    /// What the file holds.
    pub class: DataClass,
    /// Space to reserve now, so that `NoSpace` comes here and not later; the file's length stays
    /// what is written. 0: none.
    pub reserve_bytes: u64,
    /// Write with direct I/O where the volume does that: offsets, lengths and memory of writes are
    /// then best 4 KiB-aligned (others go through the page cache, correctly).
    pub direct: bool,
}

/// One read of a batch.
pub struct ReadRequest {
    /// File to read.
    pub file: Arc<dyn VolumeFile>,
    /// Offset in bytes, any alignment.
    pub offset: u64,
    /// Length in bytes, any alignment.
    pub length: usize,
    /// The answer: exactly `length` bytes, or fewer where the file ends before.
    pub result: Option<Result<Bytes>>,
}

impl ReadRequest {
    /// A read still to be done.
    #[must_use]
    pub fn new(file: Arc<dyn VolumeFile>, offset: u64, length: usize) -> Self {
        ReadRequest {
            file,
            offset,
            length,
            result: None,
        }
    }

    /// What the read gave.
    ///
    /// # Errors
    /// Those of the read. `Io` if the read was not done.
    pub fn answer(self) -> Result<Bytes> {
        self.result.unwrap_or_else(|| {
            let what = "a batch of reads came back without an answer";
            Err(Error::new(ErrorKind::Io, what))
        })
    }
}

/// Reads what these requests ask for in one batch, and returns an answer for each, in their order.
/// A request that could not be made keeps its error.
pub fn read_each(
    volume: &dyn Volume,
    wanted: impl IntoIterator<Item = Result<ReadRequest>>,
) -> Vec<Result<Bytes>> {
    let mut requests = Vec::new();
    let mut add = |request: ReadRequest| requests.push(request);
    let made: Vec<Result<()>> = wanted
        .into_iter()
        .map(|wanted| wanted.map(&mut add))
        .collect();
    if !requests.is_empty() {
        volume.read_batch(&mut requests);
    }
    let mut requests = requests.into_iter();
    let mut answer = |()| match requests.next() {
        Some(request) => request.answer(),
        None => unreachable!("there is a request for each one that was made"),
    };
    made.into_iter()
        .map(|made| made.and_then(&mut answer))
        .collect()
}

/// Reads that go on while the caller of [`Volume::begin_batch`] does something else. A drop waits
/// for those that are in flight.
pub struct BegunBatch(Box<dyn FnOnce() -> Vec<ReadRequest> + Send>);

impl BegunBatch {
    pub(crate) fn new(wait: impl FnOnce() -> Vec<ReadRequest> + Send + 'static) -> Self {
        BegunBatch(Box::new(wait))
    }

    /// One that was read already.
    #[must_use]
    pub fn done(requests: Vec<ReadRequest>) -> Self {
        BegunBatch(Box::new(move || requests))
    }

    /// Waits until every request has a result, and gives them back in the order they came.
    #[must_use]
    pub fn wait(self) -> Vec<ReadRequest> {
        (self.0)()
    }
}

/// A medium. See the module's page for what it promises.
pub trait Volume: Send + Sync {
    /// Creates a file that must not exist. Its name is durable only after
    /// [`sync_directory`](Self::sync_directory).
    ///
    /// # Errors
    /// - `AlreadyExists`.
    /// - `NoSpace`, `Unavailable`: nothing has happened, and a later call may succeed.
    /// - I/O errors.
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>>;

    /// [`create`](Self::create), of a file that was [recycled](Self::recycle) where there is one.
    /// It may be as long as `options.reserve_bytes` from the beginning then, and hold anything
    /// until it is written.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn create_recycled(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.create(id, options)
    }

    /// Opens an existing file for reading (directly, where the volume does that) and, in recovery,
    /// writing.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`, I/O errors.
    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>>;

    /// Removes a file's name. Handles in use stay good.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`: the name is still there; I/O errors.
    fn delete(&self, id: FileId) -> Result<()>;

    /// Removes a file's name, and may keep its blocks for
    /// [`create_recycled`](Self::create_recycled): writing to those needs no new ones, and the
    /// device has none to erase. A file that somebody has open, or that has another name (see
    /// [`link`](Self::link)), is deleted; so is what comes after the volume has kept enough. What
    /// is kept counts as free.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    fn recycle(&self, id: FileId) -> Result<()> {
        self.delete(id)
    }

    /// Deletes what [`recycle`](Self::recycle) has kept.
    fn delete_recycled(&self) {}

    /// Every file of ours, in order. Other names are left alone.
    ///
    /// # Errors
    /// I/O errors.
    fn list(&self) -> Result<Vec<FileId>>;

    /// Makes names durable: everything created and deleted before.
    ///
    /// # Errors
    /// I/O errors. `Poisoned` after one, until the volume is opened again: the names of that time
    /// may be gone although a later sync says OK.
    fn sync_directory(&self) -> Result<()>;

    /// Reads many ranges with as many in flight as the medium can serve (as it is written here,
    /// one); returns when all have a result.
    fn read_batch(&self, requests: &mut [ReadRequest]) {
        for request in requests {
            request.result = Some(request.file.read_at(request.offset, request.length));
        }
    }

    /// Begins to read many ranges; they are read while the caller does something else, until it
    /// waits for them. Where that cannot be, or too many are under way already, they are read at
    /// once.
    ///
    /// ```
    /// # use glintdb_core::{FileId, FileKind};
    /// # use glintdb_flash::{CreateOptions, ReadRequest, DataClass, Volume};
    /// # use glintdb_simdisk::MemVolume;
    /// # let volume = MemVolume::new();
    /// # let options = CreateOptions { class: DataClass::Log, reserve_bytes: 0, direct: false };
    /// # let file = volume.create(FileId::new(FileKind::Log, 1), options)?;
    /// # file.write_at(0, b"0123456789")?;
    /// let begun = volume.begin_batch(vec![ReadRequest::new(file, 2, 3)]);
    /// // … something else …
    /// let read = begun.wait();
    /// # assert_eq!(&read[0].result.as_ref().unwrap().as_ref().unwrap()[..], b"234");
    /// # Ok::<(), glintdb_core::Error>(())
    /// ```
    fn begin_batch(&self, mut requests: Vec<ReadRequest>) -> BegunBatch {
        self.read_batch(&mut requests);
        BegunBatch::done(requests)
    }

    /// The log's ring: memory backed by a file that is overwritten again and again. Where the
    /// volume holds a ring, the result is that one with its contents and *its own* size
    /// ([`Ring::len`]), because recovery must read what the last process left in it. Else a ring of
    /// `bytes` (a multiple of 4 KiB, at least that) is created and made durable; it reads as zeros
    /// and takes no space. Either can be written only as far as [`Ring::grow`] was called for.
    /// Falls back to plain memory where mapping is refused ([`Ring::survives_kill`] is false then).
    /// At most one at a time.
    ///
    /// To change the size: recover what the old ring holds, make that durable elsewhere, drop the
    /// ring, [`remove_ring`](Self::remove_ring), call this again.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors; `Corruption` where the ring's file has a size that no ring has.
    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>>;

    /// Size of the ring that [`ring`](Self::ring) would find; `None`: it would create one (always
    /// so where rings do not last).
    ///
    /// # Errors
    /// As [`ring`](Self::ring).
    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Removes the ring and what it holds, durably; nothing happens where there is none.
    ///
    /// # Errors
    /// I/O errors.
    fn remove_ring(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes free for new files, where the medium can tell.
    fn free_bytes(&self) -> Option<u64>;

    /// Hard-links `id` into the directory `target`, which
    /// [`make_directory`](Self::make_directory) made, under the same name. Only for files that are
    /// synced and never written again. The new name is durable once the volume of `target` is
    /// synced.
    ///
    /// Returns false if the file system refuses the link, for example because `target` is on
    /// another one. Nothing has changed then, and the caller may copy the file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`; `InvalidArgument` where the volume has no directories.
    fn link(&self, id: FileId, target: &Path) -> Result<bool>;

    /// Makes the directory `path`, durably, for a copy of this volume's files, and opens it as a
    /// volume. It bypasses the page cache if this volume does and the file system accepts it.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` where the volume has no directories; I/O errors.
    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
        Err(glintdb_core::Error::invalid(format!(
            "{}: this volume has no directories",
            path.display()
        )))
    }

    /// Counters since open.
    fn stats(&self) -> VolumeStats;

    /// Counters of each of the units that work in parallel. Empty if the volume has one.
    fn units(&self) -> Vec<UnitStats> {
        Vec::new()
    }

    /// Counters of each class of data that was read or written. Empty if the volume has one unit.
    fn classes(&self) -> Vec<ClassStats> {
        Vec::new()
    }

    /// Counters of a modelled device. `None` if it is none.
    fn device(&self) -> Option<DeviceStats> {
        None
    }

    /// How reads are done, with the reason why anything better was refused; for `stats()` and the
    /// log.
    fn describe(&self) -> String;
}

/// Returns `file`, or the first of the files that it passes its calls on to, that is a `T`.
pub(crate) fn find_file<T: VolumeFile>(file: &dyn VolumeFile) -> Option<&T> {
    let mut file = file;
    loop {
        if let Some(found) = (file as &dyn Any).downcast_ref() {
            return Some(found);
        }
        file = file.medium_file()?;
    }
}

/// Replaces the files of requests by those that `inner` finds for them. Returns the replaced ones,
/// for [`put_files_back`].
pub(crate) fn replace_files(
    requests: &mut [ReadRequest],
    inner: impl Fn(&dyn VolumeFile) -> Option<Arc<dyn VolumeFile>>,
) -> Vec<Arc<dyn VolumeFile>> {
    let replace = |request: &mut ReadRequest| {
        let inner = inner(&*request.file).unwrap_or_else(|| Arc::clone(&request.file));
        std::mem::replace(&mut request.file, inner)
    };
    requests.iter_mut().map(replace).collect()
}

/// Gives requests the files back that [`replace_files`] has taken.
pub(crate) fn put_files_back(requests: &mut [ReadRequest], files: Vec<Arc<dyn VolumeFile>>) {
    for (request, file) in requests.iter_mut().zip(files) {
        request.file = file;
    }
}

/// A file in use. Thread-safe; closed when the last handle goes. The volume may close it between
/// operations and open it again for the next one, which fails with `Unavailable`, and does nothing,
/// if the system does not let it. (`Any`, so that a volume recognises its own files in a batch.)
pub trait VolumeFile: Any + Send + Sync {
    /// Its name.
    fn id(&self) -> FileId;
    /// For a file that only passes on what is asked of another one: that other one, which volume
    /// and ring may use in its place.
    fn medium_file(&self) -> Option<&dyn VolumeFile> {
        None
    }
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// `Unavailable`: nothing was written. `NoSpace`, I/O errors: what of the range was written is
    /// unknown.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Reads `length` bytes at `offset`, fewer where the file ends.
    ///
    /// # Errors
    /// `Unavailable`, I/O errors.
    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes>;
    /// Makes everything written so far durable (data and length). That needs no descriptor which
    /// the system could refuse: a file is not closed between a write and its sync.
    ///
    /// # Errors
    /// I/O errors: what was written since the last sync may be lost for good, even if a later sync
    /// says OK. `Unavailable`, if this handle has written nothing: a later sync may succeed.
    fn sync(&self) -> Result<()>;
    /// Length in bytes.
    ///
    /// # Errors
    /// I/O errors.
    fn len(&self) -> Result<u64>;
    /// Whether nothing was written.
    ///
    /// # Errors
    /// I/O errors.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) the file to `length`, and gives back space reserved beyond it.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn set_len(&self, length: u64) -> Result<()>;
    /// Keeps the file open from now on, or no longer. Syncs of a file that is kept open are never
    /// `Unavailable`, and neither are its writes, but for those of parts of 4 KiB blocks if it was
    /// created with `direct`. For the few files whose writes must not wait for a descriptor.
    ///
    /// # Errors
    /// `Unavailable`, I/O errors: the file could not be opened, and is not kept open.
    fn keep_open(&self, _keep: bool) -> Result<()> {
        Ok(())
    }
}

/// The log's ring: memory of a fixed size, 8-byte words, that survives the process where it is a
/// mapped file. It takes space on the medium as far as it has [grown](Self::grow), from its
/// beginning on, and only that part can be written.
///
/// Words are written and read with relaxed atomics, so a reader that races with reuse sees a
/// mixture, never undefined behaviour; the log checks afterwards whether the place was reused
/// meanwhile. Offsets and lengths of `write` are multiples of 8.
pub trait Ring: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> usize;
    /// Never.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether what was written is there after the process is killed at any instruction.
    fn survives_kill(&self) -> bool;
    /// Allocates space for the first `bytes` (a multiple of 64 KiB, or all): they can be written
    /// from then on, and no write needs new space. What they hold stays; what was not allocated
    /// before holds zeros.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors: the ring is as large as it was then.
    fn grow(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }
    /// Gives back the space of all but the first `bytes` (a multiple of 64 KiB, or all). The rest
    /// then reads as zeros and cannot be written. Other threads may read it meanwhile, and get old
    /// bytes or zeros. A file system that cannot give space back keeps it.
    ///
    /// # Errors
    /// I/O errors: what the rest holds is not known then.
    fn shrink(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }
    /// Copies `bytes` (a multiple of 8 long) to `offset` (a multiple of 8); must not go past what
    /// the ring has grown to. Disjoint writes may come from many threads.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Makes the `length` bytes at `offset` (both multiples of 4 KiB, not past what the ring has
    /// grown to) ready to be written, so that a copy to them waits for no page fault. Their
    /// contents stay. Does nothing where that is not possible.
    fn populate(&self, _offset: usize, _length: usize) {}
    /// Copies from `offset` (any) into `out`; must not go past the end.
    fn read(&self, offset: usize, out: &mut [u8]);
    /// Writes `length` bytes at ring `offset` (both multiples of 4 KiB, not past the end) to `file`
    /// at `file_offset` without copying where possible (direct I/O from the mapping).
    ///
    /// # Errors
    /// As [`VolumeFile::write_at`].
    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()>;
    /// Makes what was written so far durable against power loss; `false`: this ring cannot (plain
    /// memory).
    ///
    /// # Errors
    /// As [`VolumeFile::sync`].
    fn sync(&self) -> Result<bool>;
}

/// Counters of a volume since open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeStats {
    /// Read operations that reached the operating system.
    pub reads: u64,
    /// Bytes they gave.
    pub read_bytes: u64,
    /// Batches submitted.
    pub read_batches: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written, the ring's copies not counted.
    pub written_bytes: u64,
    /// Syncs of files, the ring and the directory.
    pub syncs: u64,
    /// Time that threads have waited for reads, in microseconds. Threads that wait at the same time
    /// count apart, here and below. A volume in memory takes no time.
    pub read_us: u64,
    /// Time that threads have waited for writes, in microseconds.
    pub write_us: u64,
    /// Time that threads have waited for syncs, in microseconds.
    pub sync_us: u64,
    /// Files that were made of others that nobody needed any more.
    pub recycled_files: u64,
    /// Memory of read buffers that are kept for the next reads, in bytes, now.
    pub idle_buffer_bytes: u64,
    /// The most of it so far, which is what it comes back to.
    pub idle_buffer_bytes_most: u64,
}

/// Counters of a unit of a volume since open: a directory, or a unit of a modelled device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnitStats {
    /// Path of the directory, or number of the unit.
    pub name: String,
    /// Number of reads.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Files that it was given because the units of their class had no room.
    pub overflow_files: u64,
    /// Bytes free for new files, where that is known.
    pub free_bytes: Option<u64>,
}

/// Counters of a modelled device since open.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceStats {
    /// Bytes that the host has written, in whole sectors.
    pub host_bytes: u64,
    /// Bytes that were programmed.
    pub programmed_bytes: u64,
    /// Bytes of rows that were filled up because of a sync.
    pub padding_bytes: u64,
    /// Bytes that the collector has moved.
    pub moved_bytes: u64,
    /// Fewest and most erases of a free block.
    pub wear: (u32, u32),
    /// Changes of the placement of new files.
    pub changes: Vec<PlacementChange>,
}

/// Counters of a class of data since open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassStats {
    /// Name of the class.
    pub name: String,
    /// Number of reads.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}
