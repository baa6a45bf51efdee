//! The queue of input for compactions: ranges of files, each of which is read once, ahead of its
//! use.
//!
//! A compaction *offers* the next pieces of its inputs, and *takes* them one by one as it merges.
//! In between any thread may [`begin`](ReadQueue::begin) to read the oldest ones: the compaction,
//! which then merges while the medium works, or a thread that waits for something else. The thread
//! that begins a batch does not wait for it: the first taker of one of its pieces does. A piece
//! that no thread has begun is read by its taker.
//!
//! ```text
//!   offer ──► Pending ──begin──► Reading ──the batch is waited for──► Ready ──take──► gone
//!                └──take: read at once, with the next ones──┘   (drop in any state: withdrawn)
//! ```
//!
//! Thread safety: any thread. The lock is never held across I/O.
//!
//! Invariants:
//! 1. A piece is read once: the thread that will read it takes it out of `pending` under the lock.
//! 2. `bytes` is the sum of the pieces that are being read or are ready. No piece is begun ahead
//!    that would take it beyond `bytes_max`. A piece that its taker needs now is read all the same,
//!    so a full queue stops no compaction.
//! 3. Every change that a taker may wait for is followed by a notification of `moved`.
//! 4. The result of a read goes to the piece that it is for, and so does an error.

use crate::volume::{BegunBatch, ReadRequest, Volume, VolumeFile};
use bytes::Bytes;
use glintdb_core::clock::Clock;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::sync::{Condvar, Mutex, MutexGuard};
use glintdb_core::{Result, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most batches on their way. Each uses a queue of the volume, and other readers want queues
/// too.
const BATCHES_MAX: usize = 6;

/// The kind of thread that begins to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// A job that will take what it reads.
    Owner,
    /// A thread that waits for something else.
    Helper,
}

/// Reads the pieces that compactions offer, ahead of their use. Thread-safe.
pub struct ReadQueue {
    volume: Arc<dyn Volume>,
    memory: Arc<MemoryBudget>,
    clock: Arc<dyn Clock>,
    batch_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
    moved: Condvar,
    counters: Counters,
}

#[derive(Default)]
struct State {
    /// Every piece that was offered and neither taken nor withdrawn. Numbers ascend in the order of
    /// offers.
    pieces: BTreeMap<u64, Stage>,
    /// The pieces that no thread has begun to read.
    pending: BTreeSet<u64>,
    batches: BTreeMap<u64, Batch>,
    next: u64,
    bytes: usize,
}

/// How far a piece is.
enum Stage {
    Pending(ReadRequest),
    Reading { batch: u64 },
    Ready(Result<Bytes>),
}

/// Pieces that are read together.
struct Batch {
    /// `None` while a thread begins it or waits for it.
    begun: Option<BegunBatch>,
    /// Numbers and lengths of its pieces.
    pieces: Vec<(u64, usize)>,
    /// How many of them were not withdrawn.
    wanted: usize,
}

#[derive(Default)]
struct Counters {
    owner_bytes: AtomicU64,
    helper_bytes: AtomicU64,
    batches: AtomicU64,
    hits: AtomicU64,
    hit_wait_us: AtomicU64,
    misses: AtomicU64,
    miss_wait_us: AtomicU64,
    withdrawn_bytes: AtomicU64,
}

/// Figures of a [`ReadQueue`] since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadQueueStats {
    /// Bytes that were begun by the jobs that want them.
    pub owner_bytes: u64,
    /// Bytes that were begun by threads that waited for something else.
    pub helper_bytes: u64,
    /// Number of batches begun.
    pub batches: u64,
    /// Number of pieces whose read began before their taker came.
    pub hits: u64,
    /// Time that their takers waited all the same, in microseconds.
    pub hit_wait_us: u64,
    /// Number of pieces that their taker had to read.
    pub misses: u64,
    /// Time that these reads took, in microseconds.
    pub miss_wait_us: u64,
    /// Bytes that were read for jobs that were given up.
    pub withdrawn_bytes: u64,
    /// Number of pieces that no thread has begun to read.
    pub pending: u64,
}

/// A range of a file that was offered. [`take`](Self::take) returns its bytes; a drop withdraws it.
/// Thread-safe.
pub struct Piece {
    queue: Arc<ReadQueue>,
    number: u64,
    length: usize,
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl ReadQueue {
    /// Makes a queue for files of `volume`. It reads up to `batch_max` pieces together, and holds
    /// up to `bytes_max` bytes that are read ahead, which it charges to `memory`.
    ///
    /// # Panics
    /// If `batch_max` is 0.
    #[must_use]
    pub fn new(
        volume: Arc<dyn Volume>,
        memory: Arc<MemoryBudget>,
        clock: Arc<dyn Clock>,
        batch_max: usize,
        bytes_max: usize,
    ) -> Arc<ReadQueue> {
        assert!(batch_max > 0, "a batch reads something");
        Arc::new(ReadQueue {
            volume,
            memory,
            clock,
            batch_max,
            bytes_max,
            state: Mutex::default(),
            moved: Condvar::new(),
            counters: Counters::default(),
        })
    }

    /// The most pieces that are read together.
    #[must_use]
    pub fn batch_max(&self) -> usize {
        self.batch_max
    }

    /// Adds a range that its taker will want after those that were offered before.
    #[must_use = "dropped, it is withdrawn"]
    pub fn offer(
        self: &Arc<Self>,
        file: &Arc<dyn VolumeFile>,
        offset: u64,
        length: usize,
    ) -> Piece {
        let request = ReadRequest::new(Arc::clone(file), offset, length);
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.pieces.insert(number, Stage::Pending(request));
        state.pending.insert(number);
        Piece {
            queue: Arc::clone(self),
            number,
            length,
        }
    }

    /// Whether an owner whose next piece is `next` should begin a batch now: that piece is pending,
    /// or the pending pieces fill a batch.
    #[must_use]
    pub fn is_due(&self, next: Option<&Piece>) -> bool {
        let state = self.state.lock();
        let waits = |next: &Piece| state.pending.contains(&next.number);
        state.pending.len() >= self.batch_max || next.is_some_and(waits)
    }

    /// Begins to read the oldest pending pieces, one batch at most, and does not wait for them.
    /// Returns the number of bytes, 0 if there is nothing to begin or no room.
    pub fn begin(&self, reader: Reader) -> usize {
        let (batch, requests, bytes) = {
            let mut state = self.state.lock();
            if state.batches.len() >= BATCHES_MAX {
                return 0;
            }
            let chosen = state.choose(self.batch_max, self.bytes_max);
            if chosen.is_empty() {
                return 0;
            }
            state.claim(&chosen)
        };
        self.count_begun(reader, bytes);
        let begun = self.volume.begin_batch(requests);
        let mut state = self.state.lock();
        let unwanted = match state.batches.get_mut(&batch) {
            Some(begins) if begins.wanted > 0 => {
                begins.begun = Some(begun);
                None
            }
            _ => Some(begun),
        };
        if unwanted.is_some() {
            self.forget(&mut state, batch);
        }
        drop(state);
        // This waits for the medium.
        drop(unwanted);
        self.moved.notify_all();
        bytes
    }

    /// Returns the figures of this queue.
    #[must_use]
    pub fn stats(&self) -> ReadQueueStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        ReadQueueStats {
            owner_bytes: get(&counters.owner_bytes),
            helper_bytes: get(&counters.helper_bytes),
            batches: get(&counters.batches),
            hits: get(&counters.hits),
            hit_wait_us: get(&counters.hit_wait_us),
            misses: get(&counters.misses),
            miss_wait_us: get(&counters.miss_wait_us),
            withdrawn_bytes: get(&counters.withdrawn_bytes),
            pending: self.state.lock().pending.len() as u64,
        }
    }

    fn count_begun(&self, reader: Reader, bytes: usize) {
        self.memory.add(MemoryPart::Prefetch, bytes);
        count(&self.counters.batches, 1);
        let counter = match reader {
            Reader::Owner => &self.counters.owner_bytes,
            Reader::Helper => &self.counters.helper_bytes,
        };
        count(counter, bytes as u64);
    }

    fn take(&self, number: u64, length: usize) -> Result<Bytes> {
        let start = self.clock.monotonic();
        let mut missed = false;
        let mut state = self.state.lock();
        let answer = loop {
            match state.pieces.get(&number) {
                Some(Stage::Pending(_)) => {
                    missed = true;
                    // The next pieces are read with it, as far as there is room.
                    let bytes_max = self.bytes_max;
                    let mut chosen = vec![number];
                    state.pending.remove(&number);
                    chosen.extend(state.choose(self.batch_max - 1, bytes_max));
                    let (batch, requests, bytes) = state.claim(&chosen);
                    drop(state);
                    self.count_begun(Reader::Owner, bytes);
                    let begun = self.volume.begin_batch(requests);
                    state = self.wait_for(batch, begun);
                }
                Some(Stage::Reading { batch }) => {
                    let batch = *batch;
                    let begun = state.batches.get_mut(&batch).and_then(|b| b.begun.take());
                    match begun {
                        Some(begun) => {
                            drop(state);
                            state = self.wait_for(batch, begun);
                        }
                        // Another thread begins it or waits for it, and notifies.
                        None => self.moved.wait(&mut state),
                    }
                }
                Some(Stage::Ready(_)) | None => {
                    let Some(Stage::Ready(answer)) = state.pieces.remove(&number) else {
                        unreachable!("a piece is taken or withdrawn once, by its owner");
                    };
                    self.free(&mut state, length);
                    break answer;
                }
            }
        };
        drop(state);
        let time = self.clock.monotonic().saturating_sub(start);
        self.count_taken(missed, time);
        answer
    }

    fn count_taken(&self, missed: bool, time: Duration) {
        let (pieces, time_us) = match missed {
            true => (&self.counters.misses, &self.counters.miss_wait_us),
            false => (&self.counters.hits, &self.counters.hit_wait_us),
        };
        count(pieces, 1);
        count(time_us, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Waits for a batch, and gives the results to its pieces.
    fn wait_for(&self, batch: u64, begun: BegunBatch) -> MutexGuard<'_, State> {
        // The handles of files are dropped here, before the lock: the last one of a file may give
        // its blocks back.
        let answers: Vec<_> = (begun.wait().into_iter())
            .map(ReadRequest::answer)
            .collect();
        let mut state = self.state.lock();
        let pieces = state.batches.remove(&batch).map(|batch| batch.pieces);
        let pieces = pieces.unwrap_or_default();
        assert!(
            pieces.len() == answers.len() || pieces.is_empty(),
            "a batch has one answer for each piece: {} answers, {} pieces",
            answers.len(),
            pieces.len()
        );
        let pieces: Vec<_> = planted!(
            "flash: a piece read ahead is given to its neighbour",
            pieces,
            pieces.into_iter().rev().collect()
        );
        for ((number, length), answer) in pieces.into_iter().zip(answers) {
            match state.pieces.get_mut(&number) {
                Some(stage) => *stage = Stage::Ready(answer),
                None => self.free(&mut state, length),
            }
        }
        self.moved.notify_all();
        state
    }

    /// Subtracts bytes that the queue no longer holds.
    fn free(&self, state: &mut State, bytes: usize) {
        assert!(
            bytes <= state.bytes,
            "the queue gives up only bytes that it holds: {bytes} of {}",
            state.bytes
        );
        state.bytes -= bytes;
        self.memory.sub(MemoryPart::Prefetch, bytes);
    }

    /// Removes a batch all of whose pieces were withdrawn.
    fn forget(&self, state: &mut State, batch: u64) -> Option<BegunBatch> {
        let batch = state.batches.remove(&batch)?;
        let bytes = batch.pieces.iter().map(|(_, length)| length).sum();
        self.free(state, bytes);
        batch.begun
    }

    /// Withdraws a piece, unless it was taken.
    fn withdraw(&self, number: u64, length: usize) {
        let mut state = self.state.lock();
        let mut begun = None;
        let withdrawn = state.pieces.remove(&number);
        match &withdrawn {
            Some(Stage::Pending(_)) => {
                state.pending.remove(&number);
            }
            Some(Stage::Reading { batch }) => {
                count(&self.counters.withdrawn_bytes, length as u64);
                let left = state.batches.get_mut(batch).map(|reading| {
                    assert!(
                        reading.wanted > 0,
                        "each piece of a batch is withdrawn once"
                    );
                    reading.wanted -= 1;
                    (reading.wanted, reading.begun.is_some())
                });
                // A thread that begins it or waits for it finds the piece gone.
                if left == Some((0, true)) {
                    begun = self.forget(&mut state, *batch);
                }
            }
            Some(Stage::Ready(_)) => {
                count(&self.counters.withdrawn_bytes, length as u64);
                self.free(&mut state, length);
            }
            None => {}
        }
        drop(state);
        // This waits for the medium.
        drop(begun);
    }
}

impl State {
    /// Takes the oldest pending pieces that there is room for out of `pending`, up to `count`.
    fn choose(&mut self, count: usize, bytes_max: usize) -> Vec<u64> {
        let mut room = bytes_max.saturating_sub(self.bytes);
        let mut chosen = Vec::new();
        while chosen.len() < count
            && let Some(&number) = self.pending.first()
            && let Some(Stage::Pending(request)) = self.pieces.get(&number)
            && let Some(left) = room.checked_sub(request.length)
        {
            room = left;
            self.pending.pop_first();
            chosen.push(number);
        }
        chosen
    }

    /// Makes a batch of pieces that were taken out of `pending`. Returns its number, its requests
    /// and its bytes.
    fn claim(&mut self, chosen: &[u64]) -> (u64, Vec<ReadRequest>, usize) {
        let batch = self.next;
        self.next += 1;
        let (mut requests, mut pieces) = (Vec::new(), Vec::new());
        for number in chosen {
            let Some(stage) = self.pieces.get_mut(number) else {
                continue;
            };
            if let Stage::Pending(request) = std::mem::replace(stage, Stage::Reading { batch }) {
                pieces.push((*number, request.length));
                requests.push(request);
            }
        }
        let bytes = pieces.iter().map(|(_, length)| length).sum();
        self.bytes += bytes;
        self.batches.insert(
            batch,
            Batch {
                begun: None,
                wanted: pieces.len(),
                pieces,
            },
        );
        (batch, requests, bytes)
    }
}

impl Piece {
    /// Returns the bytes of the range, fewer if the file ends before. Waits for them, or reads them
    /// if no thread has begun to.
    ///
    /// # Errors
    /// The error of the read.
    pub fn take(self) -> Result<Bytes> {
        self.queue.take(self.number, self.length)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.queue.withdraw(self.number, self.length);
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod scripted;
#[cfg(all(test, not(loom)))]
mod tests;
