//! Writes to a file of a directory: whole blocks directly, and the bytes before and behind them
//! through the page cache.
//!
//! Thread safety: any thread; writes of the same bytes are for the caller to order.
//!
//! Invariant: an error `Unavailable` means that nothing was written. So a write has its descriptors
//! before it writes the first byte.

use super::file::DirFile;
use super::handles::{Access, Descriptor, Writing};
use crate::buffer::{DIRECT_ALIGNMENT, POOLED_BYTES_MAX};
use crate::volume::VolumeFile;
use glintdb_core::{Error, ErrorKind, Result, planted};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// Returns the error of a write of which some bytes may have been written before, if `begun`:
/// `Unavailable` would say that none was.
pub(crate) fn cut_off(error: Error, begun: bool) -> Error {
    match begun && error.kind() == ErrorKind::Unavailable {
        true => Error::new(ErrorKind::Io, format!("a write was cut off: {error}")),
        false => error,
    }
}

impl DirFile {
    fn write_error(&self, offset: u64, length: usize, error: io::Error) -> Error {
        Error::io(
            format!("write {length} bytes at {offset} of {}", self.id()),
            error,
        )
    }

    /// A descriptor to write with.
    pub(super) fn writing(&self, access: Access) -> Result<Writing<'_>> {
        let handle = &self.in_use.handle;
        let descriptor = self.shared().descriptor(handle, access)?;
        Ok(Writing::new(handle, descriptor))
    }

    fn write_buffered(&self, to: &Descriptor, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        self.in_use.handle.unsynced.store(true, Ordering::Release);
        while !bytes.is_empty() {
            match to.file().write_at(bytes, offset) {
                Ok(0) => {
                    return Err(self.write_error(
                        offset,
                        bytes.len(),
                        io::ErrorKind::WriteZero.into(),
                    ));
                }
                Ok(count) => {
                    self.shared().counters.count_write(count);
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
    unsafe fn write_direct(
        &self,
        to: &Descriptor,
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
            // the descriptor is open as long as `to` is borrowed.
            let count = unsafe {
                libc::pwrite(
                    to.as_raw_fd(),
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
                    self.shared().counters.count_write(count);
                    done += count;
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error() {
                        Some(libc::EINTR) => {}
                        Some(libc::EINVAL) => {
                            let direct_writes = &self.in_use.handle.direct_writes;
                            direct_writes.store(false, Ordering::Relaxed);
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
    fn writes_direct(&self) -> bool {
        self.in_use.handle.direct_writes.load(Ordering::Relaxed)
    }

    /// Writes `bytes`, whose offset and length are aligned, directly. Copies them to aligned memory
    /// if theirs is not. `begun`: other bytes of the same write were written before.
    fn write_aligned(
        &self,
        to: &Descriptor,
        offset: u64,
        bytes: &[u8],
        mut begun: bool,
    ) -> Result<()> {
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
                unsafe { self.write_direct(to, at, part.as_ptr(), part.len())? }
            } else {
                let mut copy = self.shared().common.pool.take(part.len())?;
                copy.as_mut_slice().copy_from_slice(part);
                // SAFETY: `copy` lives until after the call and is as long as `part`.
                unsafe { self.write_direct(to, at, copy.as_slice().as_ptr(), part.len())? }
            };
            begun |= done > 0;
            if let Some(rest) = part.get(done..).filter(|rest| !rest.is_empty()) {
                // The file refuses direct writes.
                let buffered = self.writing(Access::Buffered);
                let buffered = buffered.map_err(|error| cut_off(error, begun))?;
                self.write_buffered(&buffered, at + done as u64, rest)?;
                begun = true;
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
        self.in_use.handle.check_writable(self.shared())?;
        if !self.writes_direct() || !offset.is_multiple_of(DIRECT_ALIGNMENT as u64) {
            return Ok(0);
        }
        let to = self.writing(Access::Direct)?;
        // SAFETY: passed on from the caller.
        let write = || unsafe { self.write_direct(&to, offset, memory, length) };
        let shared = self.shared();
        shared.timed(&shared.counters.write_ns, || shared.with_space(write))
    }

    /// Writes whole blocks directly, and the bytes before and behind them through the page cache.
    pub(super) fn write_pieces(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let align = DIRECT_ALIGNMENT as u64;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| {
            self.write_error(offset, bytes.len(), io::ErrorKind::FileTooLarge.into())
        })?;
        let (first, last) = (offset.next_multiple_of(align), end / align * align);
        if !self.writes_direct() || first >= last {
            let buffered = self.writing(Access::Buffered)?;
            return self.write_buffered(&buffered, offset, bytes);
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
        let tail_bytes: &[u8] = planted!(
            "flash: the bytes behind the last whole block are not written",
            tail_bytes,
            &[]
        );
        let direct = self.writing(Access::Direct)?;
        let buffered = match head_bytes.is_empty() && tail_bytes.is_empty() {
            true => None,
            false => Some(self.writing(Access::Buffered)?),
        };
        let write_buffered = |offset, bytes: &[u8]| match &buffered {
            Some(buffered) if !bytes.is_empty() => self.write_buffered(buffered, offset, bytes),
            _ => Ok(()),
        };
        write_buffered(offset, head_bytes)?;
        self.write_aligned(&direct, first, body, !head_bytes.is_empty())?;
        write_buffered(last, tail_bytes)
    }
}
