//! A file of a directory volume. Aligned reads and writes are direct, others are buffered, and both
//! see the same bytes.

use super::Shared;
use super::handles::Handle;
use crate::buffer::{DIRECT_ALIGNMENT, POOLED_BYTES_MAX};
use crate::volume::{CreateOptions, VolumeFile};
use bytes::Bytes;
use glintdb_core::{Error, ErrorKind, FileId, Result, planted};
use std::any::Any;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// An open file of a directory volume. Thread-safe.
pub(crate) struct DirFile {
    /// Open with `O_DIRECT` if `shared.direct`.
    file: File,
    /// The same file without `O_DIRECT`, opened when it is first needed.
    buffered: OnceLock<File>,
    direct_writes: AtomicBool,
    /// Whether the page cache may have bytes that the medium lacks. Reads go through it then.
    unsynced: AtomicBool,
    sync_failed: AtomicBool,
    /// Declared last, so that it is dropped after the file is closed.
    handle: Handle,
}

/// Bytes that a file's blocks may take beside its own, because some file systems keep track of them
/// in further blocks.
pub(super) const TAKEN_BESIDE_MAX: u64 = 64 << 10;

/// The bytes to read for a range: the range itself, or the aligned blocks around it that direct I/O
/// needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) length: usize,
    pub(crate) direct: bool,
}

impl DirFile {
    /// Returns `file`, or the file that it passes its calls on to, as a `DirFile` if it is one.
    pub(crate) fn of(file: &dyn VolumeFile) -> Option<&DirFile> {
        let file = file.medium_file().unwrap_or(file);
        (file as &dyn Any).downcast_ref()
    }

    pub(super) fn create(shared: &Arc<Shared>, id: FileId, options: CreateOptions) -> Result<Self> {
        let handle = Handle::new(shared, id);
        let path = shared.file_path(id);
        let file = Self::open_with(OpenOptions::new().create_new(true), &path, shared.direct)
            .map_err(|error| create_error(id, error))?;
        if options.reserve_bytes > 0
            && let Err(error) = reserve(&file, options.reserve_bytes, super::free_bytes(&file))
        {
            // The name is new and its file is empty. If the removal fails too, recovery finds an
            // empty file.
            std::fs::remove_file(&path).ok();
            return Err(Error::io(
                format!("reserve {} bytes for {id}", options.reserve_bytes),
                error,
            ));
        }
        Ok(Self::new(handle, file, options.direct))
    }

    /// Opens the file `id`, which was another one, as [`create`](Self::create) would have made it.
    /// But it still has its old bytes.
    pub(super) fn recycle(
        shared: &Arc<Shared>,
        id: FileId,
        options: CreateOptions,
    ) -> Result<Self> {
        let handle = Handle::new(shared, id);
        let failed = |error| Error::io(format!("create {id}"), error);
        let path = shared.file_path(id);
        let file =
            Self::open_with(&mut OpenOptions::new(), &path, shared.direct).map_err(failed)?;
        let mut metadata = file.metadata().map_err(failed)?;
        let wanted = options.reserve_bytes;
        // Blocks behind the file's length may be reserved: only a cut gives them back.
        if metadata.len() > wanted || taken(&metadata) > wanted.saturating_add(TAKEN_BESIDE_MAX) {
            file.set_len(metadata.len().min(wanted)).map_err(failed)?;
            metadata = file.metadata().map_err(failed)?;
        }
        if wanted > 0 {
            // Only the file system knows which blocks are missing: the file may have holes, and
            // takes blocks beside its own.
            let free = super::free_bytes(&file);
            let free = free.map(|free| free.saturating_add(taken(&metadata)));
            reserve(&file, wanted, free)
                .map_err(|error| Error::io(format!("reserve {wanted} bytes for {id}"), error))?;
        }
        Ok(Self::new(handle, file, options.direct))
    }

    pub(super) fn open(shared: &Arc<Shared>, id: FileId) -> Result<Self> {
        let handle = Handle::new(shared, id);
        let file = Self::open_with(
            &mut OpenOptions::new(),
            &shared.file_path(id),
            shared.direct,
        )
        .map_err(|error| Error::io(format!("open {id}"), error))?;
        Ok(Self::new(handle, file, true))
    }

    fn open_with(options: &mut OpenOptions, path: &Path, direct: bool) -> io::Result<File> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let file = options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        if !direct {
            advise_random(&file);
        }
        Ok(file)
    }

    fn new(handle: Handle, file: File, direct_writes: bool) -> Self {
        let direct_writes = AtomicBool::new(direct_writes && handle.shared.direct);
        DirFile {
            file,
            buffered: OnceLock::new(),
            direct_writes,
            unsynced: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            handle,
        }
    }

    /// Whether `shared` is the volume this file belongs to.
    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.handle.shared, shared)
    }

    /// The descriptor that reads an extent.
    pub(crate) fn read_fd(&self, extent: Extent) -> Result<RawFd> {
        Ok(self.handle(extent.direct)?.as_raw_fd())
    }

    /// The open file for direct or for buffered access.
    fn handle(&self, direct: bool) -> Result<&File> {
        if direct || !self.handle.shared.direct {
            return Ok(&self.file);
        }
        if let Some(file) = self.buffered.get() {
            return Ok(file);
        }
        // By its descriptor, because its name may be deleted, or by name if there is no /proc.
        let by_descriptor = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let reopen = |path: &Path| Self::open_with(&mut OpenOptions::new(), path, false);
        let file = reopen(Path::new(&by_descriptor))
            .or_else(|_| reopen(&self.handle.shared.file_path(self.handle.id)))
            .map_err(|error| {
                Error::io(
                    format!("open {} for buffered access", self.handle.id),
                    error,
                )
            })?;
        Ok(self.buffered.get_or_init(|| file))
    }

    /// Returns what to read to have `length` bytes at `offset`, `None` if the range is empty.
    pub(crate) fn extent(&self, offset: u64, length: usize) -> Result<Option<Extent>> {
        self.handle.shared.process.check()?;
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
        let direct = self.handle.shared.direct && !self.unsynced.load(Ordering::Acquire);
        let (start, end) = if direct {
            let align = DIRECT_ALIGNMENT as u64;
            (offset / align * align, end.next_multiple_of(align))
        } else {
            (offset, end)
        };
        let length = usize::try_from(end - start)
            .map_err(|_| Error::invalid(format!("read {length} bytes of {}", self.handle.id)))?;
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
        extent: Extent,
        buffer: &mut [u8],
        mut filled: usize,
    ) -> Result<usize> {
        assert!(
            buffer.len() == extent.length && filled <= extent.length,
            "a read fills a buffer of its own length: {filled} of {} bytes in a buffer of {}",
            extent.length,
            buffer.len()
        );
        let mut direct = extent.direct;
        while let Some(rest) = buffer.get_mut(filled..)
            && !rest.is_empty()
        {
            let at = extent.start + filled as u64;
            match self.handle(direct)?.read_at(rest, at) {
                Ok(0) => break,
                Ok(count) => {
                    self.handle.shared.counters.count_read(count);
                    filled += count;
                    // A direct read ends in the middle of a block only at the end of the file.
                    if direct && !filled.is_multiple_of(DIRECT_ALIGNMENT) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some files refuse direct reads although the probe succeeded: compressed files,
                // for example.
                Err(error) if direct && error.raw_os_error() == Some(libc::EINVAL) => {
                    direct = false
                }
                Err(error) => return Err(self.read_error(at, rest.len(), error)),
            }
        }
        Ok(filled)
    }

    pub(crate) fn read_error(&self, offset: u64, length: usize, error: io::Error) -> Error {
        Error::io(
            format!("read {length} bytes at {offset} of {}", self.handle.id),
            error,
        )
    }

    fn write_error(&self, offset: u64, length: usize, error: io::Error) -> Error {
        Error::io(
            format!("write {length} bytes at {offset} of {}", self.handle.id),
            error,
        )
    }

    fn check_writable(&self) -> Result<()> {
        self.handle.shared.process.check()?;
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!("a sync of {} failed before", self.handle.id),
            ));
        }
        Ok(())
    }

    fn write_buffered(&self, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        let file = self.handle(false)?;
        self.unsynced.store(true, Ordering::Release);
        while !bytes.is_empty() {
            match file.write_at(bytes, offset) {
                Ok(0) => {
                    return Err(self.write_error(
                        offset,
                        bytes.len(),
                        io::ErrorKind::WriteZero.into(),
                    ));
                }
                Ok(count) => {
                    self.handle.shared.counters.count_write(count);
                    bytes = bytes.get(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.write_error(offset, bytes.len(), error)),
            }
        }
        Ok(())
    }

    /// Writes aligned bytes directly. Returns how many, which are all unless the file refuses
    /// direct I/O.
    ///
    /// # Safety
    /// `memory` must be valid for reads of `length` bytes during the call. Other threads may write
    /// to it meanwhile, because the kernel only copies bytes.
    pub(super) unsafe fn write_direct(
        &self,
        offset: u64,
        memory: *const u8,
        length: usize,
    ) -> Result<usize> {
        assert!(
            offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
                && (memory as usize).is_multiple_of(DIRECT_ALIGNMENT)
                && length.is_multiple_of(DIRECT_ALIGNMENT),
            "a direct write is of whole blocks: {length} bytes at {offset}"
        );
        let mut done = 0;
        while done < length && done.is_multiple_of(DIRECT_ALIGNMENT) {
            let at = offset + done as u64;
            let Ok(position) = libc::off_t::try_from(at) else {
                return Err(self.write_error(at, length, io::ErrorKind::FileTooLarge.into()));
            };
            // SAFETY: the caller guarantees the memory; `done < length` keeps the pointer inside;
            // the descriptor is open as long as `self`.
            let count = unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    memory.add(done).cast(),
                    length - done,
                    position,
                )
            };
            match usize::try_from(count) {
                Ok(0) => {
                    return Err(self.write_error(
                        at,
                        length - done,
                        io::ErrorKind::WriteZero.into(),
                    ));
                }
                Ok(count) => {
                    self.handle.shared.counters.count_write(count);
                    done += count;
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error() {
                        Some(libc::EINTR) => {}
                        Some(libc::EINVAL) => {
                            self.direct_writes.store(false, Ordering::Relaxed);
                            break;
                        }
                        _ => return Err(self.write_error(at, length - done, error)),
                    }
                }
            }
        }
        Ok(done)
    }

    /// Whether aligned writes are direct now.
    pub(super) fn writes_direct(&self) -> bool {
        self.direct_writes.load(Ordering::Relaxed)
    }

    /// Writes `bytes`, whose offset and length are aligned, directly. Copies them to aligned memory
    /// if theirs is not.
    fn write_aligned(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let in_place = (bytes.as_ptr() as usize).is_multiple_of(DIRECT_ALIGNMENT);
        let piece = if in_place {
            bytes.len()
        } else {
            POOLED_BYTES_MAX
        };
        let mut at = offset;
        for part in bytes.chunks(piece.max(1)) {
            let done = if !self.writes_direct() {
                0
            } else if in_place {
                // SAFETY: the slice is valid for the call.
                unsafe { self.write_direct(at, part.as_ptr(), part.len())? }
            } else {
                let mut copy = self.handle.shared.pool.take(part.len())?;
                copy.as_mut_slice().copy_from_slice(part);
                // SAFETY: `copy` lives until after the call and is as long as `part`.
                unsafe { self.write_direct(at, copy.as_slice().as_ptr(), part.len())? }
            };
            if let Some(rest) = part.get(done..).filter(|rest| !rest.is_empty()) {
                self.write_buffered(at + done as u64, rest)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes aligned memory of a mapping directly, for [`Ring::write_to`](crate::Ring::write_to).
    /// Returns how many bytes: 0 if writes of this file are not direct.
    ///
    /// # Safety
    /// As [`write_direct`](Self::write_direct); `memory` must be aligned.
    pub(super) unsafe fn write_from_mapping(
        &self,
        offset: u64,
        memory: *const u8,
        length: usize,
    ) -> Result<usize> {
        self.check_writable()?;
        if !self.writes_direct() || !offset.is_multiple_of(DIRECT_ALIGNMENT as u64) {
            return Ok(0);
        }
        // SAFETY: passed on from the caller.
        let write = || unsafe { self.write_direct(offset, memory, length) };
        self.handle.shared.with_space(write)
    }

    /// Writes whole blocks directly, and the bytes before and behind them through the page cache.
    fn write_pieces(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let align = DIRECT_ALIGNMENT as u64;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| {
            self.write_error(offset, bytes.len(), io::ErrorKind::FileTooLarge.into())
        })?;
        let (first, last) = (offset.next_multiple_of(align), end / align * align);
        if !self.writes_direct() || first >= last {
            return self.write_buffered(offset, bytes);
        }
        // `first - offset < 4096` and `last - offset <= bytes.len()`, so both fit.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "not greater than the slice's length"
        )]
        let (head, tail) = ((first - offset) as usize, (last - offset) as usize);
        let (body, tail_bytes) = bytes.split_at(tail);
        let (head_bytes, body) = body.split_at(head);
        assert_eq!(
            head_bytes.len() + body.len() + tail_bytes.len(),
            bytes.len(),
            "the parts of a write are the whole of it"
        );
        if !head_bytes.is_empty() {
            self.write_buffered(offset, head_bytes)?;
        }
        self.write_aligned(first, body)?;
        let tail_bytes: &[u8] = planted!(
            "flash: what is behind the last whole block is not written",
            tail_bytes,
            &[]
        );
        if !tail_bytes.is_empty() {
            self.write_buffered(last, tail_bytes)?;
        }
        Ok(())
    }
}

impl VolumeFile for DirFile {
    fn id(&self) -> FileId {
        self.handle.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.handle
            .shared
            .with_space(|| self.write_pieces(offset, bytes))
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let Some(extent) = self.extent(offset, length)? else {
            return Ok(Bytes::new());
        };
        let mut buffer = self.handle.shared.pool.take(extent.length)?;
        let filled = self.read_extent(extent, buffer.as_mut_slice())?;
        buffer.truncate(filled);
        Ok(slice_of(&buffer.into_bytes(), extent.start, offset, length))
    }

    fn sync(&self) -> Result<()> {
        self.check_writable()?;
        // Cleared first: a write during the sync sets it again.
        let unsynced = self.unsynced.swap(false, Ordering::AcqRel);
        let sync = || {
            let synced = self.file.sync_data();
            synced.map_err(|error| Error::io(format!("sync {}", self.handle.id), error))
        };
        self.handle.shared.sync_with(sync).inspect_err(|_| {
            self.sync_failed.store(true, Ordering::Release);
            self.unsynced.fetch_or(unsynced, Ordering::AcqRel);
        })
    }

    fn len(&self) -> Result<u64> {
        self.file
            .metadata()
            .map(|metadata| metadata.len())
            .map_err(|error| Error::io(format!("length of {}", self.handle.id), error))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.check_writable()?;
        self.file.set_len(length).map_err(|error| {
            Error::io(
                format!("set length of {} to {length}", self.handle.id),
                error,
            )
        })
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
        _ => Error::io(format!("create {id}"), error),
    }
}

/// Bytes that a file's blocks take.
pub(super) fn taken(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

/// Reserves space for the first `bytes` without changing the length. `false`: the file system
/// cannot, and the check of free space is all there is.
pub(super) fn reserve(file: &File, bytes: u64, free_bytes: Option<u64>) -> io::Result<bool> {
    // Checked first: ext4 takes all free blocks before it finds that they do not suffice, and other
    // programs would see a full disk meanwhile.
    if free_bytes.is_some_and(|free| free < bytes) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    fallocate(file, libc::FALLOC_FL_KEEP_SIZE, 0, bytes)
}

/// Gives back the blocks from `offset` to the end of the file, which reads as zeros there then and
/// keeps its length. `false`: the file system cannot, and nothing has happened.
pub(super) fn give_back(file: &File, offset: u64) -> io::Result<bool> {
    let length = file.metadata()?.len();
    if offset >= length {
        return Ok(true);
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    fallocate(file, mode, offset, length - offset)
}

/// Calls `fallocate` until no signal interrupts it. `false`: the file system does not support it.
fn fallocate(file: &File, mode: libc::c_int, offset: u64, bytes: u64) -> io::Result<bool> {
    let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let offset = libc::off_t::try_from(offset).map_err(too_large)?;
    let bytes = libc::off_t::try_from(bytes).map_err(too_large)?;
    loop {
        // SAFETY: the descriptor is open; `fallocate` touches no memory.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EPERM) => return Ok(false),
            _ => return Err(error),
        }
    }
}

/// Switches the kernel's read-ahead off. The engine reads ahead itself, and a read-ahead of 8 MiB
/// makes every point read a large one.
fn advise_random(file: &File) {
    // SAFETY: the descriptor is open; the call touches no memory. It is only advice, so its result
    // does not matter.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}
