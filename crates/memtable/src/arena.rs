//! The arena: bump allocation of records and nodes that live until the arena is dropped.
//!
//! Memory comes in [chunks](crate::chunk). A chunk is cut into *slabs*, and each thread bumps the slab of its own shard with one
//! `fetch_add`. So chunks can be huge pages while many threads leave little unused behind: at most a slab each.
//!
//! Thread safety: any number of threads allocate at once; a mutex is taken only to cut a slab.
//!
//! Invariants:
//! 1. Memory handed out is not handed out again, moved or freed before the arena is dropped.
//! 2. `allocated_bytes` is the sum of the sizes of all chunks of the arena, and `filled_bytes` of
//!    the slabs cut from them, so it is not greater. Both include what the arena's owner keeps
//!    elsewhere and has noted.

use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::chunk::{CHUNK_ALIGN, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Chunk, ChunkPool};
use glintdb_core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use glintdb_core::sync::{Mutex, processors, thread_number};

/// Lies at the start of the slab it bumps.
#[repr(C, align(64))]
struct Slab {
    used: AtomicUsize,
    bytes: usize,
}

const SLAB_HEADER_BYTES: usize = size_of::<Slab>();
/// A quarter of the first chunk: one for nodes, one for records, two more threads.
const SLAB_BYTES_MIN: usize = 16 << 10;
/// Some 1,800 records of 144 B between two visits to the mutex.
const SLAB_BYTES_MAX: usize = 256 << 10;

#[repr(align(64))]
struct Shard {
    /// The slab this shard bumps; null before its first allocation.
    current: AtomicPtr<Slab>,
    /// Held while a new slab is hung in.
    refill: Mutex<()>,
}

#[derive(Default)]
struct Chunks {
    all: Vec<Chunk>,
    /// What is not cut yet of the last chunk that is cut into slabs.
    uncut: Option<NonNull<u8>>,
    uncut_bytes: usize,
}

/// Memory of one generation of memtables. Freed as a whole when the last memtable, cursor or holder of the `Arc` is gone.
pub struct Arena {
    pool: Arc<ChunkPool>,
    shards: Box<[Shard]>,
    chunks: Mutex<Chunks>,
    allocated_bytes: AtomicUsize,
    cut_bytes: AtomicUsize,
    beside_bytes: AtomicUsize,
}

// SAFETY: `current` and `uncut` point into chunks owned by `chunks`; a `Slab` is only touched through atomics or read after it was
// published by the store to `current`; `uncut` is guarded by the mutex; all else is `Send + Sync` by itself.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena without memory. It takes its first chunk (64 KiB) for its first record.
    #[must_use]
    pub fn new(pool: Arc<ChunkPool>) -> Arc<Self> {
        // Twice the processors, so that threads seldom meet; one shard more, the first, for nodes.
        let shards = (2 * processors()).next_power_of_two().min(64) + 1;
        let shard = || Shard {
            current: AtomicPtr::new(std::ptr::null_mut()),
            refill: Mutex::new(()),
        };
        Arc::new(Self {
            pool,
            shards: (0..shards).map(|_| shard()).collect(),
            chunks: Mutex::default(),
            allocated_bytes: AtomicUsize::new(0),
            cut_bytes: AtomicUsize::new(0),
            beside_bytes: AtomicUsize::new(0),
        })
    }

    /// Returns the bytes of all chunks of the arena, filled or not, and the bytes noted with
    /// [`Arena::note_bytes_beside`].
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed) + self.beside_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many bytes records and nodes have taken, rounded up to a slab for each thread,
    /// and the bytes noted with [`Arena::note_bytes_beside`]. The rest of the last chunk does not
    /// count.
    #[must_use]
    pub fn filled_bytes(&self) -> usize {
        self.cut_bytes.load(Ordering::Relaxed) + self.beside_bytes.load(Ordering::Relaxed)
    }

    /// Notes memory in bytes that the arena's owner has allocated elsewhere and frees with the
    /// arena.
    pub fn note_bytes_beside(&self, bytes: usize) {
        self.beside_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` of uninitialised memory for a record, 8-aligned.
    pub(crate) fn allocate_record(&self, bytes: usize) -> NonNull<u8> {
        let shard = 1 + thread_number() % (self.shards.len() - 1);
        self.allocate(&self.shards[shard], bytes.next_multiple_of(8))
    }

    /// `bytes` of uninitialised memory for a node, cache-line-aligned. Nodes have slabs of their own: they stay dense, so that few TLB
    /// entries cover them.
    pub(crate) fn allocate_node(&self, bytes: usize) -> NonNull<u8> {
        self.allocate(&self.shards[0], bytes.next_multiple_of(CHUNK_ALIGN))
    }

    fn allocate(&self, shard: &Shard, bytes: usize) -> NonNull<u8> {
        loop {
            let current = shard.current.load(Ordering::Acquire);
            if let Some(found) = bump(current, bytes) {
                return found;
            }
            if let Some(found) = self.refill(shard, current, bytes) {
                return found;
            }
        }
    }

    /// Hangs a new slab into `shard` unless another thread has done so since `seen` was read (then `None`: try again).
    #[cold]
    fn refill(&self, shard: &Shard, seen: *mut Slab, bytes: usize) -> Option<NonNull<u8>> {
        let slab_bytes = (self.allocated_bytes() / 16)
            .next_power_of_two()
            .clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
        if bytes > slab_bytes / 4 {
            // Past the slabs, so that at most a quarter of any slab's end is wasted.
            return Some(self.cut(bytes.next_multiple_of(CHUNK_ALIGN)));
        }
        let _guard = shard.refill.lock();
        if shard.current.load(Ordering::Acquire) != seen {
            return None;
        }
        let slab = self.cut(slab_bytes).as_ptr().cast::<Slab>();
        // SAFETY: the piece is ours alone until it is published, larger than a `Slab`, and cache-line-aligned like it.
        unsafe {
            slab.write(Slab {
                used: AtomicUsize::new(SLAB_HEADER_BYTES),
                bytes: slab_bytes,
            })
        };
        let found = bump(slab, bytes);
        shard.current.store(slab, Ordering::Release);
        found
    }

    /// `bytes` (whole cache lines) of a chunk, for one owner.
    fn cut(&self, bytes: usize) -> NonNull<u8> {
        let mut chunks = self.chunks.lock();
        // Chunks double with the arena, so a small database stays small.
        let chunk_bytes = self
            .allocated_bytes()
            .next_power_of_two()
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        self.cut_bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes > chunk_bytes / 4 {
            return self.hang_in(&mut chunks, bytes.next_multiple_of(4096));
        }
        let start = match chunks.uncut {
            Some(start) if chunks.uncut_bytes >= bytes => start,
            _ => {
                chunks.uncut_bytes = chunk_bytes;
                self.hang_in(&mut chunks, chunk_bytes)
            }
        };
        chunks.uncut_bytes -= bytes;
        // SAFETY: at least `bytes` of the chunk that `start` points into were not cut yet.
        chunks.uncut = Some(unsafe { start.add(bytes) });
        start
    }

    fn hang_in(&self, chunks: &mut Chunks, bytes: usize) -> NonNull<u8> {
        let chunk = self.pool.take(bytes);
        let base = chunk.base();
        self.allocated_bytes.fetch_add(bytes, Ordering::Relaxed);
        chunks.all.push(chunk);
        base
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().all.drain(..) {
            self.pool.give_back(chunk);
        }
    }
}

fn bump(at: *mut Slab, bytes: usize) -> Option<NonNull<u8>> {
    if at.is_null() {
        return None;
    }
    // SAFETY: a non-null `at` was initialised by `refill` before it was published, and its chunk lives as long as the arena.
    let (slab, base) = unsafe { (&*at, at.cast::<u8>()) };
    if bytes > slab.bytes / 4 {
        // It would end this slab before its time; `refill` decides.
        return None;
    }
    // Failed attempts push `used` past the end, by at most a quarter slab each, and a thread that failed waits in `refill`: no overflow.
    let offset = slab.used.fetch_add(bytes, Ordering::Relaxed);
    if offset + bytes > slab.bytes {
        return None;
    }
    // SAFETY: `offset + bytes <= slab.bytes`, the size of the slab, and no other caller gets this range.
    NonNull::new(unsafe { base.add(offset) })
}
