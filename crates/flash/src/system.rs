//! What the operating system is asked for beside files: the size of memory, the number of
//! descriptors, random bytes, and to take freed memory back.

use glintdb_core::{Error, Result};
use std::io;

/// Size of physical memory in bytes, where the system tells.
#[must_use]
pub fn physical_memory_bytes() -> Option<usize> {
    // SAFETY: sysconf takes no pointer and has no precondition.
    let (pages, page_bytes) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let pages = usize::try_from(pages).ok().filter(|&pages| pages > 0)?;
    pages.checked_mul(usize::try_from(page_bytes).ok()?)
}

/// From here on, memory that this process frees goes back to the system: at once where it is 128
/// KiB and more, and of smaller pieces so much that little is left between them. Left alone, glibc
/// raises that limit to 32 MiB as large buffers come and go, and spreads allocations over eight
/// heaps a core, each of which keeps what it had at its busiest: a server under attack held three
/// times what it used. For the start of a program, before it has threads; does nothing where the C
/// library is another one.
pub fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const BYTES: libc::c_int = 128 << 10;
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        // SAFETY: mallopt takes no pointer and may be called at any time; where it refuses,
        // everything stays as it was.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, BYTES);
            libc::mallopt(
                libc::M_ARENA_MAX,
                libc::c_int::try_from(cores).unwrap_or(BYTES),
            );
        }
    }
}

/// Gives pages that hold nothing any more back to the system, small pieces between larger ones
/// included: for after a busy time. Takes some milliseconds a gigabyte, and other threads that
/// allocate meanwhile may wait for it; does nothing where the C library is another one.
pub fn trim_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes no pointer, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The most file descriptors that this process may have: the soft limit `RLIMIT_NOFILE`.
#[must_use]
pub fn descriptor_limit() -> u64 {
    // A system that does not tell refuses nothing either.
    limits().map_or(u64::MAX, |limits| limits.rlim_cur)
}

/// Raises the soft limit `RLIMIT_NOFILE` to the hard one, for a program that serves nothing but a
/// database. Returns the limit from then on.
pub fn raise_descriptor_limit() -> u64 {
    if let Some(mut limits) = limits() {
        limits.rlim_cur = limits.rlim_max;
        // SAFETY: the kernel reads one struct, which lives until after the call. If it refuses, the
        // limit stays.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
    }
    descriptor_limit()
}

fn limits() -> Option<libc::rlimit> {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one struct to where it is told.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (result == 0).then_some(limits)
}

/// Random bytes from the operating system.
///
/// # Errors
/// Where it has none to give.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut out = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut out[filled..];
        // SAFETY: the pointer and length are those of `rest`, which is exclusively borrowed and
        // outlives the call.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(Error::io("get random bytes", error));
                }
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_limit_is_known_and_raising_it_lowers_nothing() {
        let before = descriptor_limit();
        assert!(before > 2);
        let raised = raise_descriptor_limit();
        assert!(raised >= before && raised == descriptor_limit());
    }

    #[test]
    fn memory_is_known_and_random_bytes_differ() {
        assert!(physical_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    }
}
