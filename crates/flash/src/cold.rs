//! Takes the files of a directory out of the page cache, for measurements. Thread-safe.

use crate::buffer::{AlignedBuffer, DIRECT_ALIGNMENT};
use glintdb_core::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Syncs all files below `directory`, drops them from the page cache, and reads each once past it.
/// Returns the number of bytes read.
///
/// A virtual disk is in the page cache of its host, and a file that the host has dropped is read up
/// to 8 times slower. So measurements begin cold here and warm there. Pages that a process has
/// mapped stay in the page cache. Files may be removed meanwhile.
///
/// # Errors
/// I/O errors. A file system without direct I/O is no error: files are read through the cache there
/// and dropped again.
pub fn make_cold(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in files(directory)? {
        let read = match OpenOptions::new().read(true).open(&path) {
            // It was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            file => file.and_then(|file| drop_and_read(&path, &file)),
        };
        bytes += read.map_err(|error| {
            Error::access(
                format!("drop {} from the page cache", path.display()),
                error,
            )
        })?;
    }
    Ok(bytes)
}

fn drop_and_read(path: &Path, file: &File) -> io::Result<u64> {
    file.sync_all()?;
    drop_cached(file)?;
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path);
    match direct {
        Ok(direct) => read_through(&direct),
        Err(_) => {
            let bytes = read_through(file)?;
            drop_cached(file)?;
            Ok(bytes)
        }
    }
}

fn drop_cached(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call touches no memory.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn read_through(mut file: &File) -> io::Result<u64> {
    let mut buffer = AlignedBuffer::zeroed(READ_BYTES).map_err(io::Error::other)?;
    let mut total = 0;
    loop {
        match file.read(buffer.as_mut_slice()) {
            Ok(0) => return Ok(total),
            Ok(bytes) => {
                total += bytes as u64;
                // A direct read ends in the middle of a block only at the end of the file, and some
                // file systems refuse to go on from there.
                if !bytes.is_multiple_of(DIRECT_ALIGNMENT) {
                    return Ok(total);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// All files below `directory`, in order.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = pending.pop() {
        let failed = |error| Error::access(format!("list {}", directory.display()), error);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_type().map_err(failed)?.is_dir() {
                true => pending.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_below_a_directory_is_read() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("whole"), vec![1; 2 << 20]).unwrap();
        fs::write(directory.path().join("below/tail"), vec![1; 10_001]).unwrap();
        fs::write(directory.path().join("empty"), []).unwrap();
        let bytes = make_cold(directory.path()).unwrap();
        assert_eq!(bytes, (2 << 20) + 10_001);
        assert!(make_cold(&directory.path().join("missing")).is_err());
    }
}
