//! The blocks of a file: reserved before they are written, counted, and given back.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Bytes that a file's blocks may take beside its own, because some file systems keep track of them
/// in further blocks.
pub(super) const TAKEN_BESIDE_MAX: u64 = 64 << 10;

/// Bytes that a file's blocks take.
pub(super) fn taken(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

/// Bytes that the file system of `file` has for new files.
pub(super) fn free_bytes(file: &File) -> Option<u64> {
    // SAFETY: `statvfs` is a plain struct of integers, for which zeros are a value.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as `file` lives, and the kernel writes one `statvfs`
    // to where it is told.
    let result = unsafe { libc::fstatvfs(file.as_raw_fd(), &mut answer) };
    (result == 0).then(|| answer.f_bavail.saturating_mul(answer.f_frsize))
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
