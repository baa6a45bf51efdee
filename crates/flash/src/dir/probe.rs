//! Finds out by trying what a directory's file system takes.

use crate::buffer::{AlignedBuffer, DIRECT_ALIGNMENT};
use glintdb_core::FileId;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Name of the file used for trying; removed at once.
pub(super) const NAME: &str = "probe.tmp";

/// Opens, writes and reads an aligned block with `O_DIRECT`.
pub(super) fn direct_io(directory: &Path) -> io::Result<()> {
    let path = directory.join(NAME);
    let answer = attempt(&path);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => answer,
    }
}

/// Opens a file of the database with `O_DIRECT`, and reads a block of it. Changes nothing.
pub(super) fn direct_reads(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name.to_str().and_then(FileId::parse).is_some() {
            let mut options = OpenOptions::new();
            let file = options.read(true).custom_flags(libc::O_DIRECT);
            let mut block = AlignedBuffer::zeroed(DIRECT_ALIGNMENT).map_err(io::Error::other)?;
            let read = file.open(directory.join(name))?;
            return read.read_at(block.as_mut_slice(), 0).map(drop);
        }
    }
    // There is nothing to read.
    Ok(())
}

fn attempt(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)?;
    let mut block = AlignedBuffer::zeroed(DIRECT_ALIGNMENT).map_err(io::Error::other)?;
    block.as_mut_slice().fill(0x5a);
    match file.write_all_at(block.as_slice(), 0) {
        Ok(()) => {}
        // A full disk must still open. The open was not refused, and each operation falls back by
        // itself.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    block.as_mut_slice().fill(0);
    file.read_exact_at(block.as_mut_slice(), 0)?;
    if block.as_slice().iter().any(|&byte| byte != 0x5a) {
        return Err(io::Error::other(
            "a block read back differs from what was written",
        ));
    }
    Ok(())
}

/// Whether the file system is known to overwrite blocks in place: a fully written, shared, writable
/// mapping then never needs new space when it is written to (elsewhere that may end in `SIGBUS`),
/// and neither does a file that is kept to be written again.
pub(super) fn overwrites_in_place(file: &fs::File) -> Result<(), String> {
    use std::os::fd::AsRawFd;
    // SAFETY: `statfs` is a plain struct of integers, for which zeros are a value.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as `file` lives, and the kernel writes one `statfs` to
    // where it is told.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const TMPFS: i64 = 0x0102_1994;
    match answer.f_type {
        EXT | XFS | TMPFS => Ok(()),
        other => Err(format!(
            "file system type {other:#x} is not known to overwrite in place"
        )),
    }
}
