//! What the operating system is asked for beside files: the size of memory, random bytes, that freed memory is given back.

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

/// From here on, memory that this process frees goes back to the system: at once where it is 128 KiB and more, and of smaller pieces so much that little is left between them.
/// Left alone, glibc raises that limit to 32 MiB as large buffers come and go, and spreads allocations over eight heaps a core, each of which keeps what it had at its busiest:
/// a server under attack held three times what it used. For the start of a program, before it has threads; does nothing where the C library is another one.
pub fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const BYTES: libc::c_int = 128 << 10;
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        // SAFETY: mallopt takes no pointer and may be called at any time; where it refuses, everything stays as it was.
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

/// Gives pages that hold nothing any more back to the system, small pieces between larger ones included: for after a busy time. Takes some milliseconds a gigabyte, and
/// other threads that allocate meanwhile may wait for it; does nothing where the C library is another one.
pub fn trim_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes no pointer, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
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
        // SAFETY: the pointer and length are those of `rest`, which is exclusively borrowed and outlives the call.
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
    fn memory_is_known_and_random_bytes_differ() {
        assert!(physical_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    }
}
