//! Threads that read, one read each at a time: for systems that refuse io_uring and files that are read through the page cache.
//!
//! Thread-safe. They are started with the first queue and end, joined, with the volume.

use super::{Queue, Read};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Threads of a volume.
const THREADS: usize = 16;

/// The threads of a volume, and what they are to read.
#[derive(Default)]
pub(crate) struct Pool {
    work: Arc<Work>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Work {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    reads: VecDeque<(Order, Arc<Answers>)>,
    stop: bool,
}

/// A [`Read`] on its way to another thread.
struct Order {
    number: usize,
    fd: RawFd,
    offset: u64,
    to: *mut u8,
    length: usize,
}

// SAFETY: whoever pushed the read has promised that nobody else touches the buffer until it is answered.
unsafe impl Send for Order {}

#[derive(Default)]
struct Answers {
    ready: Mutex<VecDeque<(usize, i32)>>,
    more: Condvar,
}

impl Pool {
    fn start(&self) -> io::Result<()> {
        let mut threads = self.threads.lock();
        while threads.len() < THREADS {
            let work = Arc::clone(&self.work);
            let thread = std::thread::Builder::new()
                .name("glint-read".to_owned())
                .spawn(move || work.run());
            match thread {
                Ok(thread) => threads.push(thread),
                // Fewer do as well.
                Err(_) if !threads.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.work.waiting.lock().stop = true;
        self.work.more.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // One that panicked has told so itself.
            thread.join().ok();
        }
    }
}

impl Work {
    fn run(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            let (order, answers) = loop {
                if let Some(read) = waiting.reads.pop_front() {
                    break read;
                }
                if waiting.stop {
                    return;
                }
                self.more.wait(&mut waiting);
            };
            drop(waiting);
            let answer = (order.number, order.read());
            answers.ready.lock().push_back(answer);
            answers.more.notify_one();
        }
    }
}

impl Order {
    fn read(&self) -> i32 {
        let offset = self.offset.cast_signed();
        // SAFETY: the promise of `Queue::push`: the buffer is ours, the descriptor open, until we answer.
        let result = unsafe { libc::pread(self.fd, self.to.cast(), self.length, offset) };
        match i32::try_from(result) {
            Ok(count) if count >= 0 => count,
            _ => -io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        }
    }
}

/// One batch's share of the threads.
pub(super) struct Threads {
    work: Arc<Work>,
    depth: usize,
    pushed: Vec<Order>,
    begun: usize,
    answers: Arc<Answers>,
}

impl Threads {
    pub(super) fn new(pool: &Pool, depth: usize) -> io::Result<Self> {
        pool.start()?;
        Ok(Threads {
            work: Arc::clone(&pool.work),
            depth,
            pushed: Vec::new(),
            begun: 0,
            answers: Arc::default(),
        })
    }

    fn wait(&self, want: usize) {
        let mut ready = self.answers.ready.lock();
        while ready.len() < want.min(self.begun) {
            self.answers.more.wait(&mut ready);
        }
    }
}

impl Queue for Threads {
    unsafe fn push(&mut self, read: Read) -> io::Result<()> {
        if self.pushed.len() + self.begun >= self.depth {
            return Err(io::Error::other("the queue is full"));
        }
        let Read {
            number,
            fd,
            offset,
            to,
            length,
        } = read;
        self.pushed.push(Order {
            number,
            fd,
            offset,
            to,
            length,
        });
        Ok(())
    }

    fn submit_and_wait(&mut self, want: usize) -> io::Result<usize> {
        let taken = self.pushed.len();
        if taken > 0 {
            let mut waiting = self.work.waiting.lock();
            let orders = self.pushed.drain(..);
            waiting
                .reads
                .extend(orders.map(|order| (order, Arc::clone(&self.answers))));
            drop(waiting);
            for _ in 0..taken.min(THREADS) {
                self.work.more.notify_one();
            }
            self.begun += taken;
        }
        self.wait(want);
        Ok(taken)
    }

    fn not_taken(&mut self) -> usize {
        self.pushed.len()
    }

    fn completion(&mut self) -> Option<(usize, i32)> {
        let answer = self.answers.ready.lock().pop_front()?;
        self.begun -= 1;
        Some(answer)
    }

    fn wait_for_one(&mut self) -> io::Result<()> {
        self.wait(1);
        Ok(())
    }
}
