//! The data set between kernel, hypervisor and disk: out of the page cache, into the host's.
//!
//! A virtual disk is the host's page cache, and a file that the host has dropped is read up to 8 times slower. So
//! each data set is dropped from this machine's page cache and then read once with O_DIRECT just before its engine
//! runs: cold here, warm there, for every engine alike.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use glintdb_bench::Result;

const READ_BYTES: usize = 1 << 20;
const ALIGNMENT: usize = 4096;

/// Writes back and drops every file below `dir` from the page cache, then reads each once with O_DIRECT.
/// Returns the bytes read.
///
/// # Errors
/// If a file cannot be read. A file system without O_DIRECT is read through the cache and dropped again.
pub(crate) fn make_cold(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in files(dir)? {
        let file = File::open(&path)?;
        file.sync_all()?;
        drop_cached(&file)?;
        bytes += match OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
        {
            Ok(direct) => read_through(direct)?,
            Err(_) => {
                let bytes = read_through(file.try_clone()?)?;
                drop_cached(&file)?;
                bytes
            }
        };
    }
    Ok(bytes)
}

/// Removes a file, or a directory with all below it, if it is there.
///
/// # Errors
/// If it is there and cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[allow(unsafe_code, reason = "std has no posix_fadvise")]
fn drop_cached(file: &File) -> Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the call touches no memory of ours.
    let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code).into())
    }
}

fn read_through(mut file: File) -> Result<u64> {
    // O_DIRECT wants an aligned buffer: a slice of a larger one is.
    let mut buffer = vec![0u8; READ_BYTES + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let aligned = &mut buffer[start..start + READ_BYTES];
    let mut total = 0;
    loop {
        match file.read(aligned) {
            Ok(0) => return Ok(total),
            Ok(bytes) => total += bytes as u64,
            // The unaligned tail of a file: some file systems refuse the last read.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(total),
            Err(error) => return Err(error.into()),
        }
    }
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else {
                files.push(entry.path());
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
    fn every_byte_is_read() {
        let dir = std::env::temp_dir().join(format!("bench-peers-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        fs::write(dir.join("whole"), vec![1u8; 2 << 20]).unwrap();
        fs::write(dir.join("below/tail"), vec![1u8; 10_001]).unwrap();
        let bytes = make_cold(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(bytes, (2 << 20) + 10_001);
    }
}
