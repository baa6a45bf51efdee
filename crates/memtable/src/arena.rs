//! The arena: bump allocation of records and nodes that live until the arena is dropped.
//!
//! Thread safety: any number of threads allocate at once. Each thread bumps the chunk of its own shard with one `fetch_add`; a
//! mutex is taken only to hang in a new chunk.
//!
//! Invariants:
//! 1. Memory handed out is not handed out again, moved or freed before the arena is dropped.
//! 2. `allocated_bytes` is the sum of the sizes of all chunks the arena holds.

use std::cell::Cell;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::chunk::{CHUNK_ALIGN, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Chunk, ChunkPool};

/// Lies at the start of the chunk it bumps.
#[repr(C, align(64))]
struct Bump {
    used: AtomicUsize,
    bytes: usize,
}

const HEADER_BYTES: usize = size_of::<Bump>();

#[repr(align(64))]
struct Shard {
    /// The chunk this shard bumps; null before its first allocation.
    current: AtomicPtr<Bump>,
    /// Held while a new chunk is hung in.
    refill: Mutex<()>,
}

/// Memory of one generation of memtables. Freed as a whole when the last memtable, cursor or holder of the `Arc` is gone.
pub struct Arena {
    pool: Arc<ChunkPool>,
    shards: Box<[Shard]>,
    chunks: Mutex<Vec<Chunk>>,
    allocated_bytes: AtomicUsize,
}

// SAFETY: `Shard::current` points into a chunk owned by `chunks`, whose `Bump` is only touched through atomics or read after it
// was published by the store to `current`; all else is `Send + Sync` by itself.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena without any memory yet; it takes its first chunk (64 KiB) at the first insert.
    #[must_use]
    pub fn new(pool: Arc<ChunkPool>) -> Arc<Self> {
        // Twice the processors, so that threads seldom meet; one shard more, the first, for nodes.
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let shards = (2 * threads).next_power_of_two().min(64) + 1;
        Arc::new(Self {
            pool,
            shards: (0..shards)
                .map(|_| Shard {
                    current: AtomicPtr::new(std::ptr::null_mut()),
                    refill: Mutex::new(()),
                })
                .collect(),
            chunks: Mutex::new(Vec::new()),
            allocated_bytes: AtomicUsize::new(0),
        })
    }

    /// Bytes of all chunks this arena holds, whether filled yet or not: what dropping it gives back.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// `bytes` of uninitialised memory for a record, 8-aligned.
    pub(crate) fn allocate_record(&self, bytes: usize) -> NonNull<u8> {
        let shard = 1 + thread_index() % (self.shards.len() - 1);
        self.allocate(&self.shards[shard], bytes.next_multiple_of(8))
    }

    /// `bytes` of uninitialised memory for a node, cache-line-aligned. Nodes have chunks of their own: they stay dense, and with
    /// huge pages a few TLB entries cover them all.
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

    /// Hangs a new chunk into `shard` unless another thread has done so since `seen` was read (then `None`: try again).
    #[cold]
    fn refill(&self, shard: &Shard, seen: *mut Bump, bytes: usize) -> Option<NonNull<u8>> {
        // Chunks double with the arena up to 2 MiB, so a small database stays small.
        let chunk_bytes = self
            .allocated_bytes()
            .next_power_of_two()
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        if bytes > chunk_bytes / 4 {
            // Alone in a chunk, so that at most a quarter of any chunk's tail is wasted.
            let alone = self.hang_in((HEADER_BYTES + bytes).next_multiple_of(4096));
            // SAFETY: the new chunk holds `bytes` behind its header, and nobody else knows of it.
            return NonNull::new(unsafe { alone.cast::<u8>().add(HEADER_BYTES) });
        }
        let _guard = shard.refill.lock().unwrap_or_else(PoisonError::into_inner);
        if shard.current.load(Ordering::Acquire) != seen {
            return None;
        }
        let bump_at = self.hang_in(chunk_bytes);
        let found = bump(bump_at, bytes);
        shard.current.store(bump_at, Ordering::Release);
        found
    }

    fn hang_in(&self, bytes: usize) -> *mut Bump {
        let chunk = self.pool.take(bytes);
        let bump_at = chunk.base().as_ptr().cast::<Bump>();
        // SAFETY: the chunk is ours alone until it is published, larger than a `Bump`, and cache-line-aligned like it.
        unsafe {
            bump_at.write(Bump {
                used: AtomicUsize::new(HEADER_BYTES),
                bytes,
            })
        };
        self.allocated_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.chunks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(chunk);
        bump_at
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let chunks = self
            .chunks
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for chunk in chunks.drain(..) {
            self.pool.give_back(chunk);
        }
    }
}

fn bump(at: *mut Bump, bytes: usize) -> Option<NonNull<u8>> {
    if at.is_null() {
        return None;
    }
    // SAFETY: a non-null `at` was initialised by `hang_in` before it was published, and its chunk lives as long as the arena.
    let (header, base) = unsafe { (&*at, at.cast::<u8>()) };
    if bytes > header.bytes / 4 {
        // It would end this chunk before its time; `refill` decides.
        return None;
    }
    // Failed attempts push `used` past the end, by at most a quarter chunk each, and a thread that failed waits in `refill`: no overflow.
    let offset = header.used.fetch_add(bytes, Ordering::Relaxed);
    if offset + bytes > header.bytes {
        return None;
    }
    // SAFETY: `offset + bytes <= header.bytes`, the size of the chunk, and no other caller gets this range.
    NonNull::new(unsafe { base.add(offset) })
}

pub(crate) fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    INDEX.with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        index.get()
    })
}
