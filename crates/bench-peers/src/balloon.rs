//! Limits the memory of an engine and its page cache together by locking away the rest of the machine's.
//!
//! Not a cgroup, because version 1 throttles dirty pages badly at its limit. The balloon looks every 50 ms at what
//! the engine and the page cache could have (free memory, page cache, reclaimable slabs and the engine's own
//! anonymous memory, without what the kernel keeps for itself) and grows or shrinks until that is the limit, so it gives
//! way when other processes grow.
//!
//! Thread safety: one thread owns the memory; [`Balloon`] only talks to it.

use std::fs;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use glintdb_bench::Result;

const CHUNK_BYTES: usize = 32 << 20;
const PAGE_BYTES: u64 = 4096;
const PERIOD: Duration = Duration::from_millis(50);

/// Most chunks taken in one period: growing must leave the kernel time to write back.
const GROW_CHUNKS_MAX: u64 = 32;

/// Time in which the balloon has to reach its size at first.
const FILL_TIMEOUT: Duration = Duration::from_secs(180);

/// Memory locked away until this is dropped.
pub(crate) struct Balloon {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    reached: AtomicBool,
    failed: AtomicBool,
    engine_pid: AtomicU32,
}

impl Balloon {
    /// Locks memory until `limit_bytes` are left for an engine and its page cache.
    ///
    /// # Errors
    /// If memory cannot be locked (raise `ulimit -l` or be root), or the limit is not reached in 3 minutes.
    pub(crate) fn inflate(limit_bytes: u64) -> Result<Self> {
        // If memory does run out, the engine goes, not the balloon that holds the limit. Best effort.
        drop(fs::write("/proc/self/oom_score_adj", "-900"));
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            engine_pid: AtomicU32::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("balloon".to_owned())
            .spawn(move || hold(limit_bytes, &of_thread))?;
        let balloon = Self {
            shared,
            thread: Some(thread),
        };
        balloon.wait()?;
        Ok(balloon)
    }

    /// Names the process whose anonymous memory belongs to the limit; 0 for none.
    pub(crate) fn set_engine(&self, pid: u32) {
        self.shared.engine_pid.store(pid, Ordering::Relaxed);
    }

    /// Waits until the limit holds.
    pub(crate) fn wait(&self) -> Result<()> {
        self.shared.reached.store(false, Ordering::Relaxed);
        let start = Instant::now();
        while !self.shared.reached.load(Ordering::Relaxed) {
            if self.shared.failed.load(Ordering::Relaxed) {
                return Err("memory cannot be locked: raise `ulimit -l` or run as root".into());
            }
            if start.elapsed() > FILL_TIMEOUT {
                return Err("the memory limit was not reached in 3 minutes".into());
            }
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }
}

impl Drop for Balloon {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the balloon's thread has been printed; there is nobody else to tell.
            drop(thread.join());
        }
    }
}

fn hold(limit_bytes: u64, shared: &Shared) {
    let mut chunks: Vec<Chunk> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let pool = pool_bytes(shared.engine_pid.load(Ordering::Relaxed));
        let chunk = CHUNK_BYTES as u64;
        if pool >= limit_bytes + chunk {
            for _ in 0..((pool - limit_bytes) / chunk).min(GROW_CHUNKS_MAX) {
                match Chunk::lock() {
                    Ok(chunk) => chunks.push(chunk),
                    Err(_) => shared.failed.store(chunks.is_empty(), Ordering::Relaxed),
                }
            }
        } else {
            let excess = limit_bytes.saturating_sub(pool).div_ceil(chunk) as usize;
            chunks.truncate(chunks.len().saturating_sub(excess));
            shared.reached.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(PERIOD);
    }
}

/// What an engine and its page cache have or could have.
fn pool_bytes(engine_pid: u32) -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name| kib(&meminfo, name) << 10;
    let engine = match engine_pid {
        0 => 0,
        pid => {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            kib(&status, "RssAnon:") << 10
        }
    };
    let zones = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    // Files in memory count as page cache but cannot be reclaimed.
    let pool = field("MemFree:")
        + field("Cached:").saturating_sub(field("Shmem:"))
        + field("Buffers:")
        + field("SReclaimable:")
        + engine;
    pool.saturating_sub(kept_pages(&zones) * PAGE_BYTES)
}

/// Pages that are free, and that no process gets: of each zone those below its high watermark, and those that it keeps
/// for allocations that can come from nowhere else.
fn kept_pages(zoneinfo: &str) -> u64 {
    let number = |word: &str| word.parse::<u64>().unwrap_or(0);
    let (mut all, mut high, mut managed) = (0, 0, 0);
    for line in zoneinfo.lines().map(str::trim) {
        if let Some(pages) = line.strip_prefix("high ") {
            high = number(pages.trim());
        } else if let Some(pages) = line.strip_prefix("managed ") {
            managed = number(pages.trim());
        } else if let Some(pages) = line.strip_prefix("protection: ") {
            let protection = pages.trim_matches(['(', ')']).split(", ").map(number);
            all += (high + protection.max().unwrap_or(0)).min(managed);
        }
    }
    all
}

fn kib(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

/// Locked anonymous memory. Invariant: `start` is a mapping of [`CHUNK_BYTES`] that nobody else knows.
struct Chunk {
    start: NonNull<libc::c_void>,
}

#[allow(unsafe_code, reason = "locking memory has no safe interface in std")]
impl Chunk {
    fn lock() -> io::Result<Self> {
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                CHUNK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let chunk = Self {
            start: NonNull::new(start).ok_or_else(|| io::Error::other("mapping at address 0"))?,
        };
        // SAFETY: both calls concern exactly the mapping that `chunk` owns. Huge pages are a wish: its failure changes
        // nothing but speed.
        let code = unsafe {
            libc::madvise(start, CHUNK_BYTES, libc::MADV_HUGEPAGE);
            libc::mlock(start, CHUNK_BYTES)
        };
        if code == 0 {
            Ok(chunk)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[allow(unsafe_code, reason = "see above")]
impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping is this chunk's alone and nothing points into it.
        unsafe { libc::munmap(self.start.as_ptr(), CHUNK_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_keeps_of_each_zone_is_no_processs() {
        let zones = "Node 0, zone      DMA\n        min      10\n        high     16\n        managed  3840\n        \
            protection: (0, 3019, 24090)\nNode 0, zone    DMA32\n        high     3660\n        managed  772917\n        \
            protection: (0, 0, 21071)\n  pagesets\n              high:  0\nNode 0, zone   Normal\n        \
            high     25557\n        managed  5394266\n        protection: (0, 0, 0)\n";
        assert_eq!(kept_pages(zones), 3840 + 24_731 + 25_557);
        assert_eq!(kept_pages(""), 0);
    }
}
