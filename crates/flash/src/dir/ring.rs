//! The log's ring as a shared mapping of the file `ring`.
//!
//! The file is made under another name, written in full, synced and only then renamed: a file called `ring` is always whole. Every block of it is allocated and
//! written, so stores into the mapping need no new space (no `SIGBUS` on a full disk), and its pages are resident from the start. A device that cannot read the
//! ring back is found before it is mapped.

use super::file::DirFile;
use super::{Shared, probe};
use crate::buffer::AlignedBuffer;
use crate::process::ProcessToken;
use crate::ring::{HeapRing, Words, assert_aligned, check_ring_bytes};
use crate::volume::{Ring, VolumeFile};
use glintdb_core::{Error, ErrorKind, Result};
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
/// Piece in which a ring is written and read whole.
const PIECE_BYTES: usize = 1 << 20;

/// Size of the ring in `directory`, `None` where there is none.
pub(super) fn existing_bytes(directory: &Path) -> Result<Option<usize>> {
    match fs::metadata(directory.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look for the ring", error)),
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

/// Removes the ring; whether there was one.
pub(super) fn remove(directory: &Path) -> Result<bool> {
    match fs::remove_file(directory.join(NAME)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("remove the ring", error)),
    }
}

/// The ring, and where it is in plain memory the reason why.
pub(super) fn open_or_create(
    shared: &Arc<Shared>,
    directory: &File,
    bytes: usize,
) -> Result<(Arc<dyn Ring>, Option<String>)> {
    check_ring_bytes(bytes)?;
    let in_memory = |reason: String| -> Result<(Arc<dyn Ring>, Option<String>)> {
        Ok((Arc::new(HeapRing::new(bytes)?), Some(reason)))
    };
    let existing = existing_bytes(&shared.path)?;
    if existing.is_none() {
        // Nothing is lost by a fall-back as long as there is no ring, so ask before making one.
        if let Err(reason) = probe::overwrites_in_place(directory) {
            return in_memory(reason);
        }
        create(&shared.path, directory, bytes)?;
    }
    let mapped_bytes = existing.unwrap_or(bytes);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(shared.path.join(NAME))
        .map_err(|error| Error::io("open the ring", error))?;
    read_through(&file, mapped_bytes)?;
    match Mapping::new(&file, mapped_bytes) {
        Ok(mapping) => {
            let ring = MappedRing {
                // SAFETY: the mapping is page-aligned, `mapped_bytes` long, lives beside the words, and nobody else is given its address.
                words: unsafe { Words::new(mapping.pointer, mapped_bytes) },
                _mapping: mapping,
                file,
                shared: Arc::clone(shared),
                sync_failed: AtomicBool::new(false),
            };
            Ok((Arc::new(ring), None))
        }
        // What an existing ring holds must not be passed over.
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
        let zeros = AlignedBuffer::zeroed(bytes.min(PIECE_BYTES)).map_err(io::Error::other)?;
        let mut at = 0;
        while at < bytes {
            let piece = &zeros.as_slice()[..zeros.as_slice().len().min(bytes - at)];
            file.write_all_at(piece, at as u64)?;
            at += piece.len();
        }
        file.sync_all()?;
        fs::rename(&new, path.join(NAME))?;
        directory.sync_all()
    };
    make().map_err(|error| {
        // Gives the space back; a leftover would be overwritten next time.
        fs::remove_file(&new).ok();
        Error::io(format!("create a ring of {bytes} bytes"), error)
    })
}

/// Reads the whole file, so that an unreadable sector is an error here and not a `SIGBUS` later.
fn read_through(file: &File, bytes: usize) -> Result<()> {
    let mut buffer = AlignedBuffer::zeroed(bytes.min(PIECE_BYTES))?;
    let mut at = 0;
    while at < bytes {
        let piece = buffer.as_mut_slice();
        let length = piece.len().min(bytes - at);
        file.read_exact_at(&mut piece[..length], at as u64)
            .map_err(|error| Error::io(format!("read the ring at {at}"), error))?;
        at += length;
    }
    Ok(())
}

/// A shared mapping of a whole file. Forked children do not inherit it: a child that wrote to it
/// would overwrite its parent's commits.
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
    fn new(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open during the call and is not needed after it.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                match glintdb_core::seeded::bug("flash: the ring is a private mapping") {
                    true => libc::MAP_PRIVATE | libc::MAP_POPULATE,
                    false => libc::MAP_SHARED | libc::MAP_POPULATE,
                },
                file.as_raw_fd(),
                0,
            )
        };
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
        // SAFETY: the mapping just made; the call changes no byte of it.
        if unsafe { libc::madvise(address, bytes, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The address range belongs to whatever the child has mapped there.
            return;
        }
        // SAFETY: mapped in `new` with this length, unmapped once; the words beside it are not used any more. It can only fail for a wrong range.
        unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.bytes) };
    }
}

/// See the module's page. Thread-safe.
struct MappedRing {
    words: Words,
    _mapping: Mapping,
    file: File,
    shared: Arc<Shared>,
    /// A later sync would say OK with the data gone.
    sync_failed: AtomicBool,
}

impl MappedRing {
    /// Whole pages of the mapping.
    fn assert_within(&self, offset: usize, length: usize) {
        assert_aligned("ring offset", offset);
        assert_aligned("length", length);
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "past the ring's end"
        );
    }
}

impl Ring for MappedRing {
    fn len(&self) -> usize {
        self.words.bytes()
    }

    fn survives_kill(&self) -> bool {
        true
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.words.write(offset, bytes);
    }

    fn populate(&self, offset: usize, length: usize) {
        self.assert_within(offset, length);
        // SAFETY: the range lies in the mapping, which lives as long as `self`, and begins at a page. The call changes no byte: it does what the first store to each page would have the kernel do. Where the
        // kernel does not know it (before 5.14) or cannot, stores fault as they would have.
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
            // SAFETY: `offset + length` lies in the mapping, which lives as long as `self`; the mapping is page-aligned and so is `offset`.
            Some(file) => unsafe {
                file.write_from_mapping(file_offset, self.words.address(offset), length)?
            },
            None => 0,
        };
        if done < length {
            self.words.write_copy_to(
                offset + done,
                length - done,
                file,
                file_offset + done as u64,
            )?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<bool> {
        self.shared.process.check()?;
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
