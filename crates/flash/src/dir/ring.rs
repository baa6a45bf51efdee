//! The log's ring as a shared mapping of the file `ring`.
//!
//! The file has its full length from the beginning, and the file system allocates blocks for it
//! from the front, as the ring grows. Only the allocated front of the file is mapped. The addresses
//! behind it are anonymous memory that reads as zeros and cannot be written. So a store into the
//! ring never needs a new block (no `SIGBUS` on a full disk), and a thread that reads a part while
//! its blocks are given back touches no hole of the file. Opening reads the whole file before it
//! maps it: a device that cannot read the ring back gives an error.

use super::file::DirFile;
use super::writes::cut_off;
use super::{Shared, blocks, probe};
use crate::buffer::AlignedBuffer;
use crate::process::ProcessToken;
use crate::ring::{HeapRing, Words, assert_aligned, check_ring_bytes};
use crate::volume::{Ring, VolumeFile};
use glintdb_core::{Error, ErrorKind, Result, planted};
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the ring.
pub(super) const NAME: &str = "ring";
/// Name of a ring that is not whole yet.
pub(super) const NAME_NEW: &str = "ring.new";
/// Piece in which a ring is read whole.
const PIECE_BYTES: usize = 1 << 20;
/// The mapping changes in multiples of this: the largest page size of the systems that we know.
const GRANULE_BYTES: usize = 64 << 10;

/// Size of the ring in `directory`, `None` where there is none.
pub(super) fn existing_bytes(directory: &Path) -> Result<Option<usize>> {
    match fs::metadata(directory.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::access("look for the ring", error)),
        Ok(metadata) => match usize::try_from(metadata.len()) {
            Ok(bytes) if check_ring_bytes(bytes).is_ok() => Ok(Some(bytes)),
            _ => Err(Error::corruption(
                NAME,
                0,
                format!(
                    "a ring's length is a positive multiple of 4096, found {}",
                    metadata.len()
                ),
            )),
        },
    }
}

/// Removes the ring. Returns whether there was one.
pub(super) fn remove(directory: &Path) -> Result<bool> {
    match fs::remove_file(directory.join(NAME)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::access("remove the ring", error)),
    }
}

/// Opens the ring, or makes one. If it is in plain memory, returns the reason too.
pub(super) fn open_or_create(
    shared: &Arc<Shared>,
    bytes: usize,
) -> Result<(Arc<dyn Ring>, Option<String>)> {
    check_ring_bytes(bytes)?;
    let in_memory = |reason: String| -> Result<(Arc<dyn Ring>, Option<String>)> {
        Ok((Arc::new(HeapRing::new(bytes)?), Some(reason)))
    };
    let existing = existing_bytes(&shared.path)?;
    if existing.is_none() {
        shared.check_changes()?;
        // Plain memory loses nothing as long as there is no ring, so this is asked first.
        if let Err(reason) = probe::overwrites_in_place(&shared.directory) {
            return in_memory(reason);
        }
        create(&shared.path, &shared.directory, bytes)?;
    }
    let mapped_bytes = existing.unwrap_or(bytes);
    let file = OpenOptions::new()
        .read(true)
        .write(!shared.read_only)
        .open(shared.path.join(NAME))
        .map_err(|error| Error::access("open the ring", error))?;
    let held = read_through(&file, mapped_bytes)?;
    assert_granules(held, mapped_bytes);
    let mapped = Mapping::new(mapped_bytes).and_then(|mapping| {
        if shared.read_only {
            mapping.map_copy(&file, held)?;
            return Ok(mapping);
        }
        // Allocates nothing, unless the file was copied without its blocks of zeros.
        if held > 0 && !blocks::reserve(&file, held as u64, None)? {
            write_again(&file, held)?;
        }
        mapping.map_file(&file, (0, held), libc::MAP_POPULATE)?;
        Ok(mapping)
    });
    match mapped {
        Ok(mapping) => {
            let ring = MappedRing {
                // SAFETY: the mapping is page-aligned, `mapped_bytes` long and lives beside the
                // words, and nothing else has its address.
                words: unsafe { Words::new(mapping.pointer, mapped_bytes) },
                mapping,
                mapped: Mutex::new(held),
                file,
                shared: Arc::clone(shared),
                sync_failed: AtomicBool::new(false),
            };
            Ok((Arc::new(ring), None))
        }
        // Commits may be in an existing ring alone.
        Err(error) if existing.is_some() => Err(Error::io("map the ring", error)),
        Err(error) => {
            remove(&shared.path)?;
            in_memory(error.to_string())
        }
    }
}

fn create(path: &Path, directory: &File, bytes: usize) -> Result<()> {
    let new = path.join(NAME_NEW);
    let make = || -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)?;
        file.set_len(bytes as u64)?;
        file.sync_all()?;
        fs::rename(&new, path.join(NAME))?;
        directory.sync_all()
    };
    make().map_err(|error| {
        // Gives the space back. If the file stays, the next attempt overwrites it.
        fs::remove_file(&new).ok();
        Error::access(format!("create a ring of {bytes} bytes"), error)
    })
}

/// Reads the whole file, so that an unreadable sector is an error here and not a `SIGBUS` later.
/// Returns where the zeros at its end begin: a multiple of [`GRANULE_BYTES`], or its length.
fn read_through(file: &File, bytes: usize) -> Result<usize> {
    let mut buffer = AlignedBuffer::zeroed(bytes.min(PIECE_BYTES))?;
    let (mut at, mut held) = (0, 0);
    while at < bytes {
        let length = PIECE_BYTES.min(bytes - at);
        let piece = &mut buffer.as_mut_slice()[..length];
        file.read_exact_at(piece, at as u64)
            .map_err(|error| Error::io(format!("read the ring at {at}"), error))?;
        for (index, granule) in piece.chunks(GRANULE_BYTES).enumerate() {
            if granule.iter().any(|&byte| byte != 0) {
                held = at + index * GRANULE_BYTES + granule.len();
            }
        }
        at += length;
    }
    Ok(held)
}

/// Writes the first `bytes` of the file over themselves, so that all their blocks are allocated.
fn write_again(file: &File, bytes: usize) -> io::Result<()> {
    let mut buffer = AlignedBuffer::zeroed(PIECE_BYTES).map_err(io::Error::other)?;
    for at in (0..bytes).step_by(PIECE_BYTES) {
        let piece = &mut buffer.as_mut_slice()[..PIECE_BYTES.min(bytes - at)];
        file.read_exact_at(piece, at as u64)?;
        file.write_all_at(piece, at as u64)?;
    }
    file.sync_data()
}

/// Addresses of a whole ring: a shared mapping of the file in front, memory that reads as zeros
/// behind. Forked children do not inherit it: a child that wrote to it would overwrite its parent's
/// commits.
struct Mapping {
    pointer: NonNull<u8>,
    bytes: usize,
    process: ProcessToken,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; access goes through `Words`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a mapping that reads as zeros.
    fn new(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pointer =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        let mapping = Mapping {
            pointer,
            bytes,
            process: ProcessToken::current(),
        };
        mapping.keep_from_children(0, bytes)?;
        Ok(mapping)
    }

    /// Maps a range of the file, all of whose blocks are allocated.
    fn map_file(&self, file: &File, range: (usize, usize), flags: libc::c_int) -> io::Result<()> {
        let shared = planted!(
            "flash: the ring is a private mapping",
            libc::MAP_SHARED,
            libc::MAP_PRIVATE
        );
        self.replace(
            range,
            libc::PROT_READ | libc::PROT_WRITE,
            shared | flags,
            file.as_raw_fd(),
        )
    }

    /// Maps the first `bytes` of the file to be read, and never written.
    fn map_copy(&self, file: &File, bytes: usize) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_POPULATE;
        self.replace((0, bytes), libc::PROT_READ, flags, file.as_raw_fd())
    }

    /// Replaces everything from `from` on by memory that reads as zeros.
    fn map_zeros(&self, from: usize) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.replace((from, self.bytes), libc::PROT_READ, flags, -1)
    }

    fn replace(
        &self,
        (from, to): (usize, usize),
        protection: libc::c_int,
        flags: libc::c_int,
        descriptor: libc::c_int,
    ) -> io::Result<()> {
        assert!(from.is_multiple_of(GRANULE_BYTES) && from <= to && to <= self.bytes);
        if from == to {
            return Ok(());
        }
        let offset = libc::off_t::try_from(from)
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        // SAFETY: the addresses are those of `new`, which are ours until `drop`; references to them
        // are to atomics, whose values may change at any time; the descriptor is open during the
        // call and is not needed after it. The call replaces what was mapped there in one step.
        let address = unsafe {
            libc::mmap(
                self.pointer.as_ptr().add(from).cast(),
                to - from,
                protection,
                flags | libc::MAP_FIXED,
                descriptor,
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.keep_from_children(from, to)
    }

    fn keep_from_children(&self, from: usize, to: usize) -> io::Result<()> {
        // SAFETY: the range is of the mapping; the call changes no byte of it.
        let answer = unsafe {
            let address = self.pointer.as_ptr().add(from);
            libc::madvise(address.cast(), to - from, libc::MADV_DONTFORK)
        };
        match answer {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The address range belongs to whatever the child has mapped there.
            return;
        }
        // SAFETY: mapped in `new` with this length, unmapped once; the words beside it are not used
        // any more. The call can only fail for a wrong range.
        unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.bytes) };
    }
}

fn assert_granules(bytes: usize, length: usize) {
    let whole = bytes == length || bytes.is_multiple_of(GRANULE_BYTES);
    assert!(
        whole && bytes <= length,
        "{bytes} bytes of a ring of {length}"
    );
}

/// The log's ring in a mapped file. Thread-safe.
struct MappedRing {
    words: Words,
    mapping: Mapping,
    /// Bytes of the file that are mapped, from its front on. The lock is held while they change.
    mapped: Mutex<usize>,
    file: File,
    shared: Arc<Shared>,
    /// Set by a failed sync: a later one would succeed although the data is gone.
    sync_failed: AtomicBool,
}

impl MappedRing {
    /// Asserts that a range is of whole pages of the mapping.
    fn assert_within(&self, offset: usize, length: usize) {
        assert_aligned("ring offset", offset);
        assert_aligned("length", length);
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "past the ring's end"
        );
    }

    /// Allocates blocks for the first `bytes`. Where the file system has no call for that, writes
    /// zeros behind `mapped` and syncs them: some file systems allocate a block only when they
    /// write it back.
    fn allocate(&self, mapped: usize, bytes: usize) -> Result<()> {
        let what = || format!("grow the ring to {bytes} bytes");
        let reserve = || {
            let metadata = self.file.metadata()?;
            let free = blocks::free_bytes(&self.file);
            let free = free.map(|free| free.saturating_add(blocks::taken(&metadata)));
            blocks::reserve(&self.file, bytes as u64, free)
        };
        if reserve().map_err(|error| Error::access(what(), error))? {
            return Ok(());
        }
        let write = || {
            self.write_zeros(mapped, bytes)?;
            self.file.sync_data()
        };
        write().map_err(|error| Error::io(what(), error))
    }

    fn write_zeros(&self, from: usize, to: usize) -> io::Result<()> {
        let zeros = AlignedBuffer::zeroed(GRANULE_BYTES).map_err(io::Error::other)?;
        for at in (from..to).step_by(GRANULE_BYTES) {
            let piece = &zeros.as_slice()[..GRANULE_BYTES.min(to - at)];
            self.file.write_all_at(piece, at as u64)?;
        }
        Ok(())
    }
}

impl Ring for MappedRing {
    fn len(&self) -> usize {
        self.words.bytes()
    }

    fn survives_kill(&self) -> bool {
        true
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        // In a forked child the addresses belong to something else.
        self.shared.check_changes()?;
        assert_granules(bytes, self.len());
        let mut mapped = self.mapped.lock();
        self.shared.with_space(|| self.allocate(*mapped, bytes))?;
        if *mapped < bytes {
            // `populate` makes the pages resident, shortly before they are written.
            let map = self.mapping.map_file(&self.file, (*mapped, bytes), 0);
            map.map_err(|error| Error::access(format!("map {bytes} bytes of the ring"), error))?;
            *mapped = bytes;
        }
        Ok(())
    }

    fn shrink(&self, bytes: usize) -> Result<()> {
        self.shared.check_changes()?;
        assert_granules(bytes, self.len());
        let mut mapped = self.mapped.lock();
        let failed = |error| Error::io(format!("shrink the ring to {bytes} bytes"), error);
        let before = *mapped;
        if bytes < before {
            // An error may leave some of the part unmapped: `grow` maps it again.
            *mapped = bytes;
            self.mapping.map_zeros(bytes).map_err(failed)?;
        }
        if !blocks::give_back(&self.file, bytes as u64).map_err(failed)? {
            self.write_zeros(bytes, before).map_err(failed)?;
        }
        Ok(())
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // Behind the mapped front this is a SIGSEGV: a mistake of the caller ends the process.
        self.words.write(offset, bytes);
    }

    fn populate(&self, offset: usize, length: usize) {
        self.assert_within(offset, length);
        // SAFETY: the range is in the mapping, which lives as long as `self`, and begins at a page.
        // The call changes no byte: the kernel does what it would do at the first store to each
        // page. If it does not know the call (before 5.14) or cannot do so, stores fault as they
        // would have.
        unsafe {
            libc::madvise(
                self.words.address(offset).cast_mut().cast(),
                length,
                libc::MADV_POPULATE_WRITE,
            )
        };
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        self.words.read(offset, out);
    }

    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        self.assert_within(offset, length);
        let done = match DirFile::of(file) {
            // SAFETY: `offset + length` is in the mapping, which lives as long as `self`; the
            // mapping is page-aligned and so is `offset`.
            Some(file) => unsafe {
                file.write_from_mapping(file_offset, self.words.address(offset), length)?
            },
            None => 0,
        };
        assert!(
            done <= length,
            "a write of {length} bytes has written {done}"
        );
        if done < length {
            let (from, to) = (offset + done, file_offset + done as u64);
            let rest = self.words.write_copy_to(from, length - done, file, to);
            rest.map_err(|error| cut_off(error, done > 0))?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<bool> {
        self.shared.check_changes()?;
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "a sync of the ring failed before",
            ));
        }
        let sync = || {
            let synced = self.file.sync_data();
            synced.map_err(|error| Error::io("sync the ring", error))
        };
        self.shared
            .sync_with(sync)
            .map(|()| true)
            .inspect_err(|_| self.sync_failed.store(true, Ordering::Release))
    }
}
