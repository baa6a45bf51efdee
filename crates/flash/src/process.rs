//! Tells a process from the children that it forks.
//!
//! A forked child has a copy of its parent's memory but none of its threads, and it shares the
//! parent's open files, shared mappings and locks. Whatever owns such a thing keeps a
//! [`ProcessToken`] and asks it before it touches the thing.
//!
//! Thread-safe. Invariants:
//! 1. A token is current in the process that made it and in no other, however the other came to be.
//! 2. `is_current` makes no system call where the kernel knows `MADV_WIPEONFORK` (Linux 4.14).

use glintdb_core::{Error, ErrorKind, Result};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that made the token.
///
/// ```
/// let token = glintdb_flash::ProcessToken::current();
/// assert!(token.is_current(), "false in a forked child");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessToken(u64);

impl ProcessToken {
    /// The token of the running process.
    #[must_use]
    pub fn current() -> ProcessToken {
        let Some(word) = wiped_word() else {
            return ProcessToken(u64::from(std::process::id()));
        };
        // A child inherits the count, so its first token is one that no ancestor has.
        static TOKENS: AtomicU64 = AtomicU64::new(0);
        let found = word.load(Ordering::Relaxed);
        if found != 0 {
            return ProcessToken(found);
        }
        let new = TOKENS.fetch_add(1, Ordering::Relaxed) + 1;
        match word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => ProcessToken(new),
            Err(found) => ProcessToken(found),
        }
    }

    /// Whether the running process is the one that made the token.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        match wiped_word() {
            Some(word) => word.load(Ordering::Relaxed) == self.0,
            None => u64::from(std::process::id()) == self.0,
        }
    }

    /// Refuses to go on in a forked child.
    ///
    /// # Errors
    /// `Closed` where [`is_current`](Self::is_current) is false.
    #[inline]
    pub fn check(self) -> Result<()> {
        match self.is_current() {
            true => Ok(()),
            false => Err(forked()),
        }
    }
}

#[cold]
fn forked() -> Error {
    Error::new(
        ErrorKind::Closed,
        "this process was forked from the one that opened the database: \
         a child cannot use its parent's handles, and must exec before it opens a database",
    )
}

/// Runs `child` in a forked child of this process, waits for it, and returns its wait status: 0
/// where `child` returned, 256 where it panicked. For tests.
#[doc(hidden)]
pub fn in_forked_child(child: impl FnOnce()) -> i32 {
    // SAFETY: glibc's allocator can be used in the child. It runs `child` on its only thread and
    // ends without unwinding into its copy of the caller.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "fork: {}", std::io::Error::last_os_error());
    if id == 0 {
        // A child that waits for a lock of its parent's threads is ended by a signal.
        // SAFETY: takes no pointer; changes this process alone.
        unsafe { libc::alarm(60) };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process and unwinds nothing.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made, and writes to an integer that is there.
    let waited = unsafe { libc::waitpid(id, &raw mut status, 0) };
    assert_eq!(waited, id, "waitpid: {}", std::io::Error::last_os_error());
    status
}

/// A word that reads as 0 in every forked child until the child writes it; `None` where the kernel
/// cannot do this.
#[inline]
fn wiped_word() -> Option<&'static AtomicU64> {
    static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *WORD.get_or_init(map_wiped_word)
}

#[cfg(not(miri))]
fn map_wiped_word() -> Option<&'static AtomicU64> {
    const BYTES: usize = 4096;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own, at an address that the kernel chooses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping just made.
    if unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above; nothing refers to it.
        unsafe { libc::munmap(page, BYTES) };
        return None;
    }
    let word = NonNull::new(page.cast::<AtomicU64>())?;
    // SAFETY: page-aligned, zeroed, never unmapped, and accessed as an atomic only.
    Some(unsafe { word.as_ref() })
}

#[cfg(miri)]
fn map_wiped_word() -> Option<&'static AtomicU64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_token() {
        let token = ProcessToken::current();
        assert_eq!(token, ProcessToken::current());
        token.check().unwrap();
        let other = ProcessToken(token.0 + 1);
        assert_eq!(other.check().unwrap_err().kind(), ErrorKind::Closed);
    }
}
