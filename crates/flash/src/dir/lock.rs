//! The lock of a directory: either one volume of one process has it open, or any number for reading
//! only. It is a `flock` on the file `LOCK`, which the kernel drops when the process ends, in
//! whatever way.

use crate::process::ProcessToken;
use glintdb_core::{Error, ErrorKind, Result, planted};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Name of the lock file.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// Holds the lock as long as it lives. The descriptor is close-on-exec, so a child program does not
/// keep the lock.
pub(crate) struct DirLock {
    file: File,
    process: ProcessToken,
}

impl Drop for DirLock {
    /// Unlocks explicitly: closing the descriptor alone would leave the lock to a forked child that
    /// has a copy of it. A child leaves the lock to its parent.
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the descriptor is open; `flock` touches no memory. If it fails, the close
        // unlocks.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

impl DirLock {
    /// Takes the lock of `directory`, alone.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(LOCK_NAME))
            .map_err(|error| failed("open", directory, error))?;
        lock(&mut file, directory, libc::LOCK_EX)?;
        // The number of the process is for people only, so a full disk does not keep the directory
        // from being opened.
        let note = || -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        let mut note = note;
        note().ok();
        Ok(DirLock {
            file,
            process: ProcessToken::current(),
        })
    }

    /// Takes the lock of `directory` together with others who only read. `None`: there is no lock
    /// file, so no process has the directory open, and this one may not be allowed to make it.
    pub(crate) fn share(directory: &Path) -> Result<Option<Self>> {
        let opened = OpenOptions::new()
            .read(true)
            .open(directory.join(LOCK_NAME));
        let mut file = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| failed("open", directory, error))?,
        };
        lock(&mut file, directory, libc::LOCK_SH)?;
        Ok(Some(DirLock {
            file,
            process: ProcessToken::current(),
        }))
    }
}

fn failed(what: &str, directory: &Path, error: std::io::Error) -> Error {
    let path = directory.join(LOCK_NAME);
    Error::access(format!("{what} {}", path.display()), error)
}

/// Locks the file, alone (`LOCK_EX`) or together with others (`LOCK_SH`).
fn lock(file: &mut File, directory: &Path, how: libc::c_int) -> Result<()> {
    loop {
        // SAFETY: the descriptor is open; `flock` touches no memory.
        let locked = unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0;
        if planted!("flash: a second opener is let in", locked, true) {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.kind() {
            std::io::ErrorKind::Interrupted => {}
            std::io::ErrorKind::WouldBlock => {
                return Err(Error::new(
                    ErrorKind::Locked,
                    format!("{} is open {}", directory.display(), holder(file)),
                ));
            }
            _ => return Err(failed("lock", directory, error)),
        }
    }
}

/// Where the directory is open, for the error message.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let number = file
        .take(32)
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| text.trim().parse::<u32>().ok());
    match number {
        Some(number) if number == std::process::id() => "already in this process".to_owned(),
        Some(number) => format!("in process {number}"),
        None => "elsewhere".to_owned(),
    }
}
