//! Ways of having many reads in flight from one thread: io_uring, the kernel's older asynchronous I/O (libaio), and threads that read.
//!
//! A queue is used by one thread at a time. What a batch does with it, and what becomes of
//! buffers, is in [`flight`](crate::reads::flight).

mod aio;
mod threads;
mod uring;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// One read.
pub(crate) struct Read {
    /// Comes back with the answer.
    pub(crate) number: usize,
    pub(crate) fd: RawFd,
    pub(crate) offset: u64,
    pub(crate) to: *mut u8,
    pub(crate) length: usize,
}

// SAFETY: whoever pushes a read promises that nobody else touches its buffer until it is answered (`Queue::push`).
unsafe impl Send for Read {}

/// See the module's page.
pub(crate) trait Queue: Send {
    /// Puts a read into the queue.
    ///
    /// # Errors
    /// It is full.
    ///
    /// # Safety
    /// `to` has `length` bytes that nobody touches, and `fd` stays open, until the read is answered or was never taken.
    unsafe fn push(&mut self, read: Read) -> io::Result<()>;

    /// Begins what was pushed and waits until `want` reads are answered (no more than are begun); how many reads were taken.
    ///
    /// # Errors
    /// The system's; what it has taken all the same tells [`not_taken`](Self::not_taken).
    fn submit_and_wait(&mut self, want: usize) -> io::Result<usize>;

    /// Reads pushed and not begun.
    fn not_taken(&mut self) -> usize;

    /// The number of a read that was answered, and the bytes read or a negative error number.
    fn completion(&mut self) -> Option<(usize, i32)>;

    /// Waits until a read that was begun is answered; begins none.
    ///
    /// # Errors
    /// The system's: whether it still writes to the buffers is unknown then.
    fn wait_for_one(&mut self) -> io::Result<()>;
}

/// Which queues.
pub(crate) enum Kind {
    Uring,
    Aio,
    Threads(Arc<threads::Pool>),
}

impl Kind {
    /// Threads that read; none is started yet.
    pub(crate) fn threads() -> Self {
        Kind::Threads(Arc::default())
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Uring => "io_uring",
            Kind::Aio => "libaio",
            Kind::Threads(_) => "read threads",
        }
    }

    pub(crate) fn batches(&self) -> &'static str {
        match self {
            Kind::Uring => "io_uring batches",
            Kind::Aio => "libaio batches",
            Kind::Threads(_) => "read threads, batches",
        }
    }

    /// A first queue, where the system has what it needs.
    pub(crate) fn probe(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        match self {
            Kind::Uring => Ok(Box::new(uring::Ring::probe(depth)?)),
            Kind::Aio | Kind::Threads(_) => self.build(depth),
        }
    }

    /// A queue for batches with at most `depth` reads in flight.
    pub(crate) fn build(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(match self {
            Kind::Uring => Box::new(uring::Ring::build(depth)?),
            Kind::Aio => Box::new(aio::Context::new(depth)?),
            Kind::Threads(pool) => Box::new(threads::Threads::new(pool, depth)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    const READS: usize = 300;
    const READ_BYTES: usize = 512;

    /// Reads a file in `READS` pieces, then one with a descriptor that is none: every read is answered once, an error is the read's own.
    fn reads_everything(kind: &Kind, depth: usize) {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..READS * READ_BYTES)
            .map(|at| u8::try_from(at / 3 % 251).unwrap())
            .collect();
        file.write_all_at(&bytes, 0).unwrap();
        let mut queue = kind.build(depth).unwrap();
        let mut buffers = vec![[0_u8; READ_BYTES]; READS + 1];
        let mut answers = vec![None; READS + 1];
        let (mut next, mut in_flight) = (0, 0);
        while next < READS + 1 || in_flight > 0 {
            while next < READS + 1 && in_flight < depth {
                let read = Read {
                    number: next,
                    fd: if next == READS { -1 } else { file.as_raw_fd() },
                    offset: (next * READ_BYTES) as u64,
                    to: buffers[next].as_mut_ptr(),
                    length: READ_BYTES,
                };
                // SAFETY: the buffers live, untouched, until all are answered.
                unsafe { queue.push(read) }.unwrap();
                next += 1;
                in_flight += 1;
            }
            queue.submit_and_wait(in_flight / 2 + 1).unwrap();
            assert_eq!(queue.not_taken(), 0);
            while let Some((number, result)) = queue.completion() {
                assert_eq!(answers[number].replace(result), None, "answered twice");
                in_flight -= 1;
            }
        }
        assert_eq!(answers[READS], Some(-libc::EBADF));
        assert!(
            answers[..READS]
                .iter()
                .all(|answer| *answer == i32::try_from(READ_BYTES).ok())
        );
        assert!(buffers[..READS].as_flattened() == bytes);
    }

    #[test]
    fn every_read_is_answered_once_in_every_way_of_reading() {
        for kind in [Kind::Uring, Kind::Aio, Kind::threads()] {
            for depth in [1, 3, 128, 256] {
                match kind.probe(depth) {
                    Ok(_) => reads_everything(&kind, depth),
                    Err(error) => assert!(matches!(kind, Kind::Uring | Kind::Aio), "{error}"),
                }
            }
        }
    }
}
