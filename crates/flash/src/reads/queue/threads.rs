//! Threads that read, one read each at a time: for systems that refuse io_uring and files that are read through the page cache.
//!
//! Thread-safe. They are started with the first queue and end, joined, with the volume.

use super::{Queue, Read};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
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
    reads: VecDeque<(Read, Arc<Answers>)>,
    stop: bool,
}

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
            let (read, answers) = loop {
                if let Some(next) = waiting.reads.pop_front() {
                    break next;
                }
                if waiting.stop {
                    return;
                }
                self.more.wait(&mut waiting);
            };
            drop(waiting);
            let answer = (read.number, answer_to(&read));
            answers.ready.lock().push_back(answer);
            answers.more.notify_one();
        }
    }
}

/// Bytes read, or a negative error number.
fn answer_to(read: &Read) -> i32 {
    let offset = read.offset.cast_signed();
    // SAFETY: the promise of `Queue::push`: the buffer is ours, the descriptor open, until we answer.
    let result = unsafe { libc::pread(read.fd, read.to.cast(), read.length, offset) };
    match i32::try_from(result) {
        Ok(count) if count >= 0 => count,
        _ => -io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    }
}

/// One batch's share of the threads.
pub(super) struct Threads {
    work: Arc<Work>,
    depth: usize,
    pushed: Vec<Read>,
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
        self.pushed.push(read);
        Ok(())
    }

    fn submit_and_wait(&mut self, want: usize) -> io::Result<usize> {
        let taken = self.pushed.len();
        if taken > 0 {
            let mut waiting = self.work.waiting.lock();
            let reads = self.pushed.drain(..);
            waiting
                .reads
                .extend(reads.map(|read| (read, Arc::clone(&self.answers))));
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
