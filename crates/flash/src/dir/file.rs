//! A file of a directory volume. Aligned reads and writes are direct, others are buffered, and both
//! see the same bytes.

use super::Shared;
use super::blocks;
use super::handles::{Access, Descriptor, Handles, InUse};
use super::hint;
use super::writes::cut_off;
use crate::buffer::{DIRECT_ALIGNMENT, POOLED_BYTES_MAX};
use crate::volume::{CreateOptions, VolumeFile, find_file};
use bytes::Bytes;
use glintdb_core::{Error, FileId, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A file of a directory volume that is in use. Thread-safe.
pub(crate) struct DirFile {
    pub(super) in_use: InUse,
}

/// The bytes to read for a range: the range itself, or the aligned blocks around it that direct I/O
/// needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) length: usize,
    pub(crate) direct: bool,
}

/// Opens a file of a volume. Unless it is direct or the volume's options allow it, the kernel reads
/// nothing ahead.
pub(super) fn open_with(
    options: &mut OpenOptions,
    path: &Path,
    direct: bool,
    shared: &Shared,
) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let file = options
        .read(true)
        .write(!shared.read_only)
        .custom_flags(flags)
        .open(path)?;
    if !direct && !shared.kernel_read_ahead {
        advise_random(&file);
    }
    Ok(file)
}

impl DirFile {
    /// Returns `file`, or the file that it passes its calls on to, as a `DirFile` if it is one.
    pub(crate) fn of(file: &dyn VolumeFile) -> Option<&DirFile> {
        find_file(file)
    }

    pub(super) fn create(shared: &Arc<Shared>, id: FileId, options: CreateOptions) -> Result<Self> {
        let in_use = Handles::use_file(shared, id);
        let path = shared.file_path(id);
        let direct = options.direct && shared.direct;
        shared.make_room();
        let file = shared.with_descriptors(|| {
            open_with(OpenOptions::new().create_new(true), &path, direct, shared)
                .map_err(|error| create_error(id, error))
        })?;
        hint::set(&file, options.class);
        if options.reserve_bytes > 0
            && let Err(error) =
                blocks::reserve(&file, options.reserve_bytes, blocks::free_bytes(&file))
        {
            // The name is new and its file is empty. If the removal fails too, recovery finds an
            // empty file.
            std::fs::remove_file(&path).ok();
            return Err(Error::access(
                format!("reserve {} bytes for {id}", options.reserve_bytes),
                error,
            ));
        }
        Ok(Self::new(in_use, file, direct))
    }

    /// Opens the file `id`, which was another one, as [`create`](Self::create) would have made it.
    /// But it still has its old bytes.
    pub(super) fn recycle(
        shared: &Arc<Shared>,
        id: FileId,
        options: CreateOptions,
    ) -> Result<Self> {
        let in_use = Handles::use_file(shared, id);
        let failed = |error| Error::access(format!("create {id}"), error);
        let path = shared.file_path(id);
        let direct = options.direct && shared.direct;
        shared.make_room();
        let file = shared.with_descriptors(|| {
            open_with(&mut OpenOptions::new(), &path, direct, shared).map_err(failed)
        })?;
        hint::set(&file, options.class);
        let mut metadata = file.metadata().map_err(failed)?;
        let wanted = options.reserve_bytes;
        // Blocks behind the file's length may be reserved: only a cut gives them back.
        let allowed = wanted.saturating_add(blocks::TAKEN_BESIDE_MAX);
        if metadata.len() > wanted || blocks::taken(&metadata) > allowed {
            file.set_len(metadata.len().min(wanted)).map_err(failed)?;
            metadata = file.metadata().map_err(failed)?;
        }
        if wanted > 0 {
            // Only the file system knows which blocks are missing: the file may have holes, and
            // takes blocks beside its own.
            let free = blocks::free_bytes(&file);
            let free = free.map(|free| free.saturating_add(blocks::taken(&metadata)));
            blocks::reserve(&file, wanted, free).map_err(|error| {
                Error::access(format!("reserve {wanted} bytes for {id}"), error)
            })?;
        }
        Ok(Self::new(in_use, file, direct))
    }

    pub(super) fn open(shared: &Arc<Shared>, id: FileId) -> Result<Self> {
        let in_use = Handles::use_found(shared, id);
        in_use
            .handle
            .direct_writes
            .store(shared.direct, Ordering::Relaxed);
        // Opened now, so that a file that is not there is noticed.
        shared.descriptor(&in_use.handle, shared.plain_access())?;
        Ok(DirFile { in_use })
    }

    /// A file that was just opened.
    fn new(in_use: InUse, file: File, direct: bool) -> Self {
        let access = Access::of(direct);
        in_use.handle.direct_writes.store(direct, Ordering::Relaxed);
        in_use.shared.add(&in_use.handle, access, file);
        DirFile { in_use }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.in_use.shared
    }

    /// Whether the file belongs to a directory of the database that `shared` is a directory of.
    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared().common, &shared.common)
    }

    /// The access that reads an extent.
    fn access(&self, direct: bool) -> Access {
        Access::of(direct && self.shared().direct)
    }

    /// The descriptor that reads an extent. Waits for one if operations use all that there are.
    ///
    /// # Errors
    /// `Unavailable`, I/O errors.
    pub(crate) fn descriptor(&self, extent: Extent) -> Result<Arc<Descriptor>> {
        let access = self.access(extent.direct);
        self.shared().descriptor(&self.in_use.handle, access)
    }

    /// The descriptor that reads an extent; `None` if operations use all that there are.
    ///
    /// # Errors
    /// As [`descriptor`](Self::descriptor).
    pub(crate) fn descriptor_at_once(&self, extent: Extent) -> Result<Option<Arc<Descriptor>>> {
        let access = self.access(extent.direct);
        self.shared()
            .descriptor_at_once(&self.in_use.handle, access)
    }

    /// Returns what to read to have `length` bytes at `offset`, `None` if the range is empty.
    pub(crate) fn extent(&self, offset: u64, length: usize) -> Result<Option<Extent>> {
        self.shared().process.check()?;
        let mut end = match offset.checked_add(length as u64) {
            Some(end) if end <= i64::MAX as u64 - DIRECT_ALIGNMENT as u64 => end,
            _ => self.len()?,
        };
        // A length that came from the medium may be wrong: never allocate more than the file has.
        if length > POOLED_BYTES_MAX {
            end = end.min(self.len()?);
        }
        if end <= offset {
            return Ok(None);
        }
        let unsynced = self.in_use.handle.unsynced.load(Ordering::Acquire);
        let direct = self.shared().direct && !unsynced;
        let (start, end) = if direct {
            let align = DIRECT_ALIGNMENT as u64;
            (offset / align * align, end.next_multiple_of(align))
        } else {
            (offset, end)
        };
        let length = usize::try_from(end - start)
            .map_err(|_| Error::invalid(format!("read {length} bytes of {}", self.id())))?;
        Ok(Some(Extent {
            start,
            length,
            direct,
        }))
    }

    /// Fills `buffer` from the extent's start with one read after the other. Returns how many bytes
    /// the file had.
    pub(crate) fn read_extent(&self, extent: Extent, buffer: &mut [u8]) -> Result<usize> {
        self.read_extent_from(extent, buffer, 0)
    }

    /// Does what [`read_extent`](Self::read_extent) does, for a buffer whose first `filled` bytes
    /// are read already.
    pub(crate) fn read_extent_from(
        &self,
        mut extent: Extent,
        buffer: &mut [u8],
        mut filled: usize,
    ) -> Result<usize> {
        assert!(
            buffer.len() == extent.length && filled <= extent.length,
            "a read fills a buffer of its own length: {filled} of {} bytes in a buffer of {}",
            extent.length,
            buffer.len()
        );
        let mut descriptor = self.descriptor(extent)?;
        while let Some(rest) = buffer.get_mut(filled..)
            && !rest.is_empty()
        {
            let at = extent.start + filled as u64;
            match descriptor.file().read_at(rest, at) {
                Ok(0) => break,
                Ok(count) => {
                    self.shared().counters.count_read(count);
                    filled += count;
                    // A direct read ends in the middle of a block only at the end of the file.
                    if extent.direct && !filled.is_multiple_of(DIRECT_ALIGNMENT) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some files refuse direct reads although the probe succeeded: compressed files,
                // for example.
                Err(error) if extent.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                    extent.direct = false;
                    descriptor = self.descriptor(extent)?;
                }
                Err(error) => return Err(self.read_error(at, rest.len(), error)),
            }
        }
        Ok(filled)
    }

    pub(crate) fn read_error(&self, offset: u64, length: usize, error: io::Error) -> Error {
        Error::io(
            format!("read {length} bytes at {offset} of {}", self.id()),
            error,
        )
    }
}

impl VolumeFile for DirFile {
    fn id(&self) -> FileId {
        self.in_use.handle.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.in_use.handle.check_writable(self.shared())?;
        let mut tried = false;
        let write = || {
            let begun = std::mem::replace(&mut tried, true);
            let written = self.write_pieces(offset, bytes);
            written.map_err(|error| cut_off(error, begun))
        };
        let shared = self.shared();
        shared.timed(&shared.counters.write_ns, || shared.with_space(write))
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let Some(extent) = self.extent(offset, length)? else {
            return Ok(Bytes::new());
        };
        let mut buffer = self.shared().common.pool.take(extent.length)?;
        let read = || self.read_extent(extent, buffer.as_mut_slice());
        let filled = (self.shared()).timed(&self.shared().counters.read_ns, read)?;
        buffer.truncate(filled);
        Ok(slice_of(&buffer.into_bytes(), extent.start, offset, length))
    }

    fn sync(&self) -> Result<()> {
        self.in_use.handle.sync(self.shared())
    }

    fn len(&self) -> Result<u64> {
        self.shared().process.check()?;
        let metadata = match self.in_use.handle.any() {
            Some(descriptor) => descriptor.file().metadata(),
            None => std::fs::metadata(self.shared().file_path(self.id())),
        };
        metadata
            .map(|metadata| metadata.len())
            .map_err(|error| Error::access(format!("length of {}", self.id()), error))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let handle = &self.in_use.handle;
        handle.check_writable(self.shared())?;
        let access = self.access(handle.direct_writes.load(Ordering::Relaxed));
        let descriptor = self.writing(access)?;
        descriptor
            .file()
            .set_len(length)
            .map_err(|error| Error::io(format!("set length of {} to {length}", self.id()), error))
    }

    fn keep_open(&self, keep: bool) -> Result<()> {
        self.shared().process.check()?;
        self.shared().keep_open(&self.in_use.handle, keep)
    }
}

/// Returns `length` bytes at the file's offset `offset`, fewer if `data` ends before. `data` is
/// what the file has from `start` on, with `start <= offset`.
pub(crate) fn slice_of(data: &Bytes, start: u64, offset: u64, length: usize) -> Bytes {
    assert!(
        start <= offset,
        "a read begins at or before what it is for: {start}, {offset}"
    );
    let from = usize::try_from(offset - start)
        .unwrap_or(usize::MAX)
        .min(data.len());
    let to = from.saturating_add(length).min(data.len());
    data.slice(from..to)
}

/// The error of a file `id` that could not be made.
fn create_error(id: FileId, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::exists(format!("create {id}")),
        _ => Error::access(format!("create {id}"), error),
    }
}

/// Switches the kernel's read-ahead off. The engine reads ahead itself, and a read-ahead of 8 MiB
/// makes every point read a large one.
fn advise_random(file: &File) {
    // SAFETY: the descriptor is open; the call touches no memory. It is only advice, so its result
    // does not matter.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}
