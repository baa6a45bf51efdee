//! What the engine asks of the machine beside locks and threads: work of processors, which takes
//! time in a run in virtual time; the number of processors; and the number of a thread.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Work of a processor. The engine says when it has done some; in virtual time it then takes the
/// time that [`Costs`](super::virtual_time::Costs) has for it. Other builds ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Commits of operations.
    Put,
    /// Gets.
    Get,
    /// Entries that a flush or a job of an index writes.
    Merge,
    /// Reads of a volume.
    Read,
    /// Bytes that are copied, with their checksum: those of puts, and those of tables.
    Bytes,
}

/// Says that this thread has done this work `count` times. In virtual time it holds one processor of
/// the run for as long as that takes, and other threads run: it may hold locks of this module
/// meanwhile, and no others.
#[inline]
#[cfg_attr(
    not(virtual_time),
    expect(unused_variables, reason = "only virtual time charges")
)]
pub fn charge(work: Work, count: u64) {
    #[cfg(virtual_time)]
    super::virtual_time::charge(work, count);
}

/// Number of processors; asked for once, for the answer comes from files. In virtual time there
/// are 8 on each machine.
#[must_use]
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    if cfg!(virtual_time) {
        return 8;
    }
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(2, usize::from))
}

/// Number of the calling thread. Threads get numbers in turn, from 0, when they first ask; those of
/// a run in virtual time have numbers of that run. For parts of what all threads write to.
#[inline]
#[must_use]
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    #[cfg(virtual_time)]
    if let Some(number) = super::virtual_time::thread_number() {
        return number;
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
