//! Memory of a cache: cells of equal size in slabs, for all threads, so that what the cache holds is what the process has.
//!
//! An allocator rounds sizes up, keeps what was freed by the thread that freed it, and tells nobody how much that is. Here an entry takes a cell that is hardly larger
//! than it ([`sizes`]), a slab that was full until now is filled up first, and one that is empty goes back to the kernel. Where the sizes of entries change, slabs of the old
//! size stay half empty: the emptiest is then given up ([`Slabs::give_up_one`]), and what is in it moves to cells that are free elsewhere.
//!
//! What is larger than any cell, and everything while [`Slabs::hold`] is told so, comes from the allocator (*alone*), counted all the same.
//!
//! Thread-safe. Locks: a class's, for moments; inside it none. The chunks', inside none. Dropping a [`Held`] takes a class's lock.
//!
//! Invariants:
//! 1. A cell is free, or has one owner that fills it, or is shared: its count is 0 but for the last. Its slot, length and bytes are written before the count is, and never after.
//! 2. A slab is in its class's list just while it has a free cell and is not given up. Header and free cells are looked at under the lock of its class alone.
//! 3. A slab with a cell in use keeps the memory of all: what is handed out outlives the cache.

mod chunks;
mod sizes;
#[cfg(test)]
mod tests;

use crate::cache::Slot;
use chunks::Chunks;
use glintdb_flash::ProcessToken;
use parking_lot::Mutex;
use sizes::{CLASSES, HEADER_BYTES};
pub(crate) use sizes::{LINE_BYTES, SLAB_BYTES};
use std::alloc::Layout;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// The count of references stands so far before the bytes.
pub(crate) const COUNT_BEFORE_BYTES: usize = size_of::<Cell>();
/// What an allocator takes beside what it was asked for, about.
const ALONE_OVERHEAD_BYTES: usize = 16;
/// Slabs that are looked at for the emptiest one: each is a wait for memory.
const LOOKED_AT_MAX: usize = 64;
/// Bit of [`Cell::length`] of what is alone.
const ALONE: u32 = 1 << 31;
/// No cell.
const NONE: u32 = u32::MAX;

/// What stands before the bytes of an entry.
#[repr(C)]
struct Cell {
    count: AtomicU32,
    /// Of the bytes, with [`ALONE`]; of a free cell, the next free one.
    length: u32,
    slot: Slot,
    /// Of a value, the second hash of its key.
    whose: u64,
}

/// The start of a slab.
#[repr(C)]
struct Slab {
    /// One reference: the memory of all slabs.
    shared: *const Shared,
    class: u32,
    /// Cells that are not free.
    used: u32,
    /// The first free one; [`NONE`]: none.
    free: u32,
    /// From here on no cell was used yet.
    fresh: u32,
    /// Place in the list of its class; [`NONE`]: it is not in there.
    place: u32,
    given_up: bool,
}

const _: () = assert!(size_of::<Slab>() <= HEADER_BYTES && align_of::<Cell>() <= 8);

/// Before the cell of what is alone.
#[repr(C)]
struct Alone {
    shared: Arc<Shared>,
    cell: Cell,
}

/// See the module's page.
pub(crate) struct Slabs(Arc<Shared>);

struct Shared {
    /// The process that made it: a lock that another thread held during a fork is never free in the
    /// child, so the child gives no cell back.
    process: ProcessToken,
    classes: [Class; CLASSES],
    /// Slabs and what is alone.
    taken_bytes: AtomicUsize,
    chunks: Chunks,
}

/// Slabs of one size of cells, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Class {
    /// Slabs with free cells. Cells are taken from the last one, which was full until not long ago, so that the emptiest get emptier.
    open: Mutex<Vec<NonNull<Slab>>>,
    /// Free cells of the slabs in the list; changed under its lock.
    free_cells: AtomicUsize,
}

// SAFETY: slabs are looked at under the lock of their class (invariant 2).
unsafe impl Send for Class {}
// SAFETY: as above.
unsafe impl Sync for Class {}

/// Bytes that the cache keeps, with what they are kept for; a counted reference.
pub(crate) struct Held(NonNull<Cell>);

// SAFETY: what is shared is never written again (invariant 1), and the count is atomic.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Slabs {
    pub(crate) fn new() -> Slabs {
        Slabs(Arc::new(Shared {
            process: ProcessToken::current(),
            classes: std::array::from_fn(|_| Class::default()),
            taken_bytes: AtomicUsize::new(0),
            chunks: Chunks::default(),
        }))
    }

    /// Bytes of slabs and of what is alone.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.0.taken_bytes.load(Ordering::Relaxed)
    }

    /// Cells that are free now, and of these those that stay so where slabs are given up: of a size, less than a slab.
    pub(crate) fn free_bytes(&self) -> (usize, usize) {
        let classes = self.0.classes.iter().enumerate();
        classes.fold((0, 0), |(free, stuck), (class, slabs)| {
            let bytes = slabs.free_bytes(class);
            (free + bytes, stuck + bytes.min(SLAB_BYTES))
        })
    }

    /// What `length` bytes take.
    pub(crate) fn bytes_of(length: usize, alone: bool) -> usize {
        let bytes = size_of::<Cell>() + length;
        match sizes::class_of(bytes) {
            // With its share of what a slab's cells leave over.
            Some(class) if !alone => sizes::share_bytes(class),
            _ => size_of::<Arc<Shared>>() + bytes + ALONE_OVERHEAD_BYTES,
        }
    }

    /// A copy of `parts`, one behind the other, for `slot`. `grows`: asked whether there may be so many bytes more, where a slab is needed, or more than a cell. `None`: there is no memory for it.
    pub(crate) fn hold(
        &self,
        slot: Slot,
        whose: u64,
        parts: &[&[u8]],
        alone: bool,
        grows: impl Fn(usize) -> bool,
    ) -> Option<Held> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let class = sizes::class_of(size_of::<Cell>() + length).filter(|_| !alone);
        let length = u32::try_from(length).ok().filter(|&it| it < ALONE)?;
        let (cell, flag) = match class {
            None if !grows(Slabs::bytes_of(length as usize, true)) => return None,
            None => (self.allocate_alone(length)?, ALONE),
            Some(class) => {
                let free = self.0.classes[class].take();
                let cell = match free {
                    None if !grows(SLAB_BYTES) => None,
                    None => self.add_slab(class),
                    free => free,
                };
                (cell?, 0)
            }
        };
        // SAFETY: the cell is ours alone (invariant 1), and long enough. References are to its count alone: what lies behind it is not part of a `Cell`.
        unsafe {
            let fields = cell.as_ptr();
            (&raw mut (*fields).length).write(length | flag);
            (&raw mut (*fields).slot).write(slot);
            (&raw mut (*fields).whose).write(whose);
            let mut to = fields.cast::<u8>().add(size_of::<Cell>());
            for part in parts {
                to.copy_from_nonoverlapping(part.as_ptr(), part.len());
                to = to.add(part.len());
            }
            (*fields).count.store(1, Ordering::Release);
        }
        Some(Held(cell))
    }

    /// Another slab; one cell of it is taken.
    fn add_slab(&self, class: usize) -> Option<NonNull<Cell>> {
        let memory = self.0.chunks.take()?;
        self.0.taken_bytes.fetch_add(SLAB_BYTES, Ordering::Relaxed);
        let slab = memory.cast::<Slab>();
        // SAFETY: memory of a slab that is ours until it is in the list of its class.
        unsafe {
            slab.write(Slab {
                shared: Arc::into_raw(Arc::clone(&self.0)),
                class: u32::try_from(class).unwrap_or(NONE),
                used: 1,
                free: NONE,
                fresh: 1,
                place: NONE,
                given_up: false,
            });
        }
        let slabs = &self.0.classes[class];
        let mut open = slabs.open.lock();
        // SAFETY: nobody else knows the slab, and we hold the lock of its class.
        unsafe { slabs.list(&mut open, slab) };
        Some(cell_at(slab, class, 0))
    }

    fn allocate_alone(&self, length: u32) -> Option<NonNull<Cell>> {
        let layout = layout_alone(length)?;
        // SAFETY: the layout is of more than no bytes.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) })?.cast::<Alone>();
        let taken = layout.size() + ALONE_OVERHEAD_BYTES;
        self.0.taken_bytes.fetch_add(taken, Ordering::Relaxed);
        // SAFETY: the memory is ours, and as long and aligned as an `Alone`.
        unsafe {
            let fields = memory.as_ptr();
            (&raw mut (*fields).shared).write(Arc::clone(&self.0));
            (&raw mut (*fields).cell.count).write(AtomicU32::new(0));
            NonNull::new(&raw mut (*fields).cell)
        }
    }

    /// Takes the emptiest slab of those of whose size most is free, or of some of them, off its list, and calls `move_away` with each entry in it; then the slab is gone if nobody refers to
    /// anything in it any more, and else in the list again. Whether it is gone; `None`: no slab has a free cell.
    pub(crate) fn give_up_one(&self, move_away: impl FnMut(Held)) -> Option<bool> {
        let classes = self.0.classes.iter().enumerate();
        let (free, class) = classes
            .map(|(class, slabs)| (slabs.free_bytes(class), class))
            .max()?;
        if free == 0 {
            return None;
        }
        let slabs = &self.0.classes[class];
        let mut open = slabs.open.lock();
        // SAFETY: slabs of the list of this class, whose lock we hold.
        let slab = open
            .iter()
            .step_by(open.len().div_ceil(LOOKED_AT_MAX).max(1))
            .copied()
            .min_by_key(|slab| unsafe { (*slab.as_ptr()).used })?;
        let fields = slab.as_ptr();
        // SAFETY: as above. Cells below `fresh` have been cells before, so their counts may be looked at; one that is being filled has none yet.
        let entries: Vec<Held> = unsafe {
            slabs.delist(&mut open, slab);
            (*fields).given_up = true;
            // Ours, so that it stays.
            (*fields).used += 1;
            let cells = (0..(*fields).fresh).map(|index| cell_at(slab, class, index));
            cells.filter_map(|cell| Held::of_shared(cell)).collect()
        };
        drop(open);
        entries.into_iter().for_each(move_away);
        let mut open = slabs.open.lock();
        // SAFETY: a slab that is there because of us, and the lock of its class is held again.
        let gone = unsafe {
            (*fields).given_up = false;
            (*fields).used -= 1;
            let gone = (*fields).used == 0;
            if !gone {
                slabs.list(&mut open, slab);
            }
            gone
        };
        drop(open);
        if gone {
            // SAFETY: it has no cell in use, and is in no list.
            unsafe { let_go(slab) };
        }
        Some(gone)
    }
}

/// Gives the memory of a slab back.
///
/// # Safety
/// The slab is in no list, and none of its cells is in use.
unsafe fn let_go(slab: NonNull<Slab>) {
    // SAFETY: the caller's: nobody else knows the slab, and the reference is its own.
    unsafe {
        let shared = Arc::from_raw((*slab.as_ptr()).shared);
        shared.chunks.give_back(slab.cast());
        shared.taken_bytes.fetch_sub(SLAB_BYTES, Ordering::Relaxed);
    }
}

impl Class {
    fn free_bytes(&self, class: usize) -> usize {
        self.free_cells.load(Ordering::Relaxed) * sizes::share_bytes(class)
    }

    /// A free cell of a slab in the list.
    fn take(&self) -> Option<NonNull<Cell>> {
        let mut open = self.open.lock();
        let slab = *open.last()?;
        // SAFETY: a slab of the list, and we hold the lock; a slab in the list has a free cell (invariant 2).
        unsafe {
            let fields = slab.as_ptr();
            let class = (*fields).class as usize;
            let index = match (*fields).free {
                NONE => {
                    (*fields).fresh += 1;
                    (*fields).fresh - 1
                }
                index => {
                    (*fields).free = (*cell_at(slab, class, index).as_ptr()).length;
                    index
                }
            };
            (*fields).used += 1;
            self.free_cells.fetch_sub(1, Ordering::Relaxed);
            if (*fields).used == sizes::cells(class) {
                self.delist(&mut open, slab);
            }
            Some(cell_at(slab, class, index))
        }
    }

    /// Puts a slab into the list, if it has a free cell.
    ///
    /// # Safety
    /// `open` is of the slab's class, and it is not in there.
    unsafe fn list(&self, open: &mut Vec<NonNull<Slab>>, slab: NonNull<Slab>) {
        let fields = slab.as_ptr();
        // SAFETY: the caller's: the lock is held.
        unsafe {
            let free = sizes::cells((*fields).class as usize) - (*fields).used;
            if free > 0 {
                (*fields).place = u32::try_from(open.len()).unwrap_or(NONE);
                self.free_cells.fetch_add(free as usize, Ordering::Relaxed);
                open.push(slab);
            }
        }
    }

    /// Takes a slab off the list.
    ///
    /// # Safety
    /// `open` is of the slab's class, and it is in there.
    unsafe fn delist(&self, open: &mut Vec<NonNull<Slab>>, slab: NonNull<Slab>) {
        let fields = slab.as_ptr();
        // SAFETY: the caller's: the lock is held, and what is in the list are slabs of this class.
        unsafe {
            let free = sizes::cells((*fields).class as usize) - (*fields).used;
            self.free_cells.fetch_sub(free as usize, Ordering::Relaxed);
            let place = std::mem::replace(&mut (*fields).place, NONE) as usize;
            open.swap_remove(place);
            if let Some(moved) = open.get(place) {
                (*moved.as_ptr()).place = u32::try_from(place).unwrap_or(NONE);
            }
        }
    }
}

/// A cell of a slab.
fn cell_at(slab: NonNull<Slab>, class: usize, index: u32) -> NonNull<Cell> {
    let offset = HEADER_BYTES + index as usize * sizes::cell_bytes(class);
    debug_assert!(index < sizes::cells(class));
    // SAFETY: a slab is made of its header and so many cells.
    unsafe { slab.byte_add(offset).cast() }
}

/// The slab in which a cell is, and the cell's number.
fn slab_of(cell: NonNull<Cell>) -> (NonNull<Slab>, usize) {
    let offset = cell.as_ptr().addr() & (SLAB_BYTES - 1);
    // SAFETY: slabs begin at multiples of their size, so this is the start of the one that the cell is in.
    (unsafe { cell.byte_sub(offset).cast() }, offset)
}

fn layout_alone(length: u32) -> Option<Layout> {
    let bytes = size_of::<Alone>() + length as usize;
    Layout::from_size_align(bytes, align_of::<Alone>()).ok()
}

impl Held {
    /// Another reference of what may be shared no more.
    ///
    /// # Safety
    /// `cell` is or was a cell of a slab whose class's lock is held.
    unsafe fn of_shared(cell: NonNull<Cell>) -> Option<Held> {
        // SAFETY: the caller's: cells lie in mapped memory, and a count is only ever looked at as an atomic.
        let count = unsafe { &(*cell.as_ptr()).count };
        let more = |count| (count > 0).then_some(count + 1);
        count
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more)
            .ok()
            .map(|_| Held(cell))
    }

    fn count(&self) -> &AtomicU32 {
        // SAFETY: a cell lives while it is referred to.
        unsafe { &(*self.0.as_ptr()).count }
    }

    fn length_and_flag(&self) -> u32 {
        // SAFETY: as in `count`; it was written before the cell was shared (invariant 1).
        unsafe { (&raw const (*self.0.as_ptr()).length).read() }
    }

    /// What it is kept for.
    pub(crate) fn slot(&self) -> Slot {
        // SAFETY: as in `length_and_flag`.
        unsafe { (&raw const (*self.0.as_ptr()).slot).read() }
    }

    /// Of a value, the second hash of its key.
    #[inline]
    pub(crate) fn whose(&self) -> u64 {
        // SAFETY: as in `length_and_flag`.
        unsafe { (&raw const (*self.0.as_ptr()).whose).read() }
    }

    /// Whether both are the same cell.
    pub(crate) fn is(&self, other: &Held) -> bool {
        self.0 == other.0
    }

    /// Bytes that it takes of what [`Slabs::taken_bytes`] tells, a slab's rest with it.
    pub(crate) fn bytes(&self) -> usize {
        Slabs::bytes_of(self.len(), self.length_and_flag() & ALONE != 0)
    }

    /// The last reference is gone.
    #[cold]
    fn free_alone(&mut self) {
        let memory = self
            .0
            .as_ptr()
            .wrapping_byte_sub(std::mem::offset_of!(Alone, cell));
        let memory = memory.cast::<Alone>();
        let Some(layout) = layout_alone(self.length_and_flag() & !ALONE) else {
            return;
        };
        // SAFETY: it was allocated by `allocate_alone` with this layout, and nobody refers to it any more.
        let shared = unsafe {
            let shared = (&raw const (*memory).shared).read();
            std::alloc::dealloc(memory.cast(), layout);
            shared
        };
        let taken = layout.size() + ALONE_OVERHEAD_BYTES;
        shared.taken_bytes.fetch_sub(taken, Ordering::Relaxed);
    }

    /// The last reference is gone.
    fn free_cell(&mut self) {
        let (slab, offset) = slab_of(self.0);
        let fields = slab.as_ptr();
        // SAFETY: a slab with a cell in use is there, and its first two fields never change.
        let (class, shared) = unsafe { ((*fields).class as usize, (*fields).shared) };
        let index = (offset - HEADER_BYTES) / sizes::cell_bytes(class);
        // SAFETY: the slab holds a reference until it is empty.
        let shared = unsafe { &*shared };
        if !shared.process.is_current() {
            return;
        }
        let slabs = &shared.classes[class];
        let mut open = slabs.open.lock();
        // SAFETY: the lock of its class is held; the cell is nobody's.
        let empty = unsafe {
            (&raw mut (*self.0.as_ptr()).length).write((*fields).free);
            (*fields).free = u32::try_from(index).unwrap_or(NONE);
            (*fields).used -= 1;
            let listed = (*fields).place != NONE;
            if listed {
                slabs.free_cells.fetch_add(1, Ordering::Relaxed);
            }
            let empty = (*fields).used == 0;
            if empty && listed {
                slabs.delist(&mut open, slab);
            } else if !empty && !listed && !(*fields).given_up {
                slabs.list(&mut open, slab);
            }
            empty
        };
        drop(open);
        if empty {
            // SAFETY: it has no cell in use, and is in no list.
            unsafe { let_go(slab) };
        }
    }
}

impl Clone for Held {
    #[inline]
    fn clone(&self) -> Held {
        // As `Arc` does: who has a reference can give another one, and nobody has as many as overflow.
        if self.count().fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
        Held(self.0)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        match self.length_and_flag() & ALONE {
            0 => self.free_cell(),
            _ => self.free_alone(),
        }
    }
}

impl Deref for Held {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let length = (self.length_and_flag() & !ALONE) as usize;
        // SAFETY: so many bytes were written behind the cell before it was shared, and never change (invariant 1).
        unsafe {
            let bytes = self.0.as_ptr().cast::<u8>().add(size_of::<Cell>());
            std::slice::from_raw_parts(bytes, length)
        }
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
