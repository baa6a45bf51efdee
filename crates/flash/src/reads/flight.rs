//! A batch of reads in flight: the part that io_uring, libaio and threads have in common.
//!
//! Thread safety: any thread.
//!
//! Invariants:
//! 1. A buffer that the kernel may still write to is never freed, recycled or looked at. A batch
//!    ends only when every read that the kernel has taken is answered. If even waiting fails, the
//!    buffers are leaked.
//! 2. A queue goes back to the idle queues only when it is empty.
//! 3. A batch that has reads in flight begins no read that would wait for a descriptor: the ends of
//!    its reads free some.

use crate::buffer::AlignedBuffer;
use crate::dir::{BegunReads, Descriptor, Shared, idle_queues_max};
use crate::reads::plan::Plan;
use crate::reads::queue::{Kind, Queue, Read};
use crate::volume::ReadRequest;
use glintdb_core::{Error, planted};
use parking_lot::Mutex;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most queues that are kept for later. A queue of io_uring takes 12 KiB.
const IDLE_QUEUES_MAX: usize = 16;
/// Number of refusals in a row, by a kernel that has no read of the batch, after which the batch is
/// read without a queue.
const REFUSALS_MAX: u32 = 16;
/// The most bytes of a single read. The kernel takes a little less than 2 GiB.
const READ_BYTES_MAX: usize = 1 << 30;

/// The queues of a volume. One thread at a time uses a queue, for one batch of reads.
pub(crate) struct Queues {
    kind: Kind,
    /// The most reads of one batch in flight.
    depth: usize,
    idle: Mutex<Vec<Box<dyn Queue>>>,
    /// Number of batches that go on by themselves.
    begun: AtomicUsize,
    /// The most of them.
    begun_max: usize,
}

/// A read in flight, or about to be.
struct Slot {
    buffer: AlignedBuffer,
    /// Keeps the file open until the read is answered.
    descriptor: Arc<Descriptor>,
    filled: usize,
}

/// Whether a batch waits for a descriptor if operations use all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    Waits,
    /// It does not: the read is begun later.
    Goes,
}

/// One batch on one queue.
struct Flight {
    /// `None` after the queue was given back.
    queue: Option<Box<dyn Queue>>,
    depth: usize,
    /// One for each span. `None` before its read starts and after it is finished.
    slots: Vec<Option<Slot>>,
    /// The first span whose read was not begun.
    next: usize,
    /// Spans whose reads must be begun again.
    again: Vec<usize>,
    /// Number of reads that were pushed and that the kernel has not taken yet.
    pushed: usize,
    /// Number of reads that the kernel has taken and not answered.
    in_kernel: usize,
    /// Number of submissions in a row that the kernel refused while it had no read.
    refusals: u32,
}

impl Queues {
    /// Makes queues of this kind, if the system has them.
    pub(crate) fn probe(kind: Kind, depth: usize, begun_max: usize) -> io::Result<Self> {
        let first = kind.probe(depth)?;
        Ok(Queues {
            kind,
            depth,
            idle: Mutex::new(vec![first]),
            begun: AtomicUsize::new(0),
            begun_max,
        })
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} of {}", self.kind.batches(), self.depth)
    }

    /// Reads every span of `plan`.
    pub(crate) fn read(&self, shared: &Shared, requests: &mut [ReadRequest], plan: &Plan) {
        self.end(self.flight(plan), shared, requests, plan);
    }

    /// Begins to read. Returns its arguments as an error if as many batches as allowed are on their
    /// way.
    pub(crate) fn begin(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        requests: Vec<ReadRequest>,
        plan: Plan,
    ) -> Result<Begun, (Vec<ReadRequest>, Plan)> {
        let Some(descriptors) = shared.common.descriptors.begin(plan.files()) else {
            return Err((requests, plan));
        };
        if self.begun.fetch_add(1, Ordering::Relaxed) >= self.begun_max {
            self.begun.fetch_sub(1, Ordering::Relaxed);
            return Err((requests, plan));
        }
        let mut begun = Begun {
            flight: Some(self.flight(&plan)),
            _descriptors: descriptors,
            requests,
            plan,
            shared: Arc::clone(shared),
            queues: Arc::clone(self),
        };
        begun.start();
        Ok(begun)
    }

    fn flight(&self, plan: &Plan) -> Flight {
        let queue = self.idle.lock().pop();
        Flight {
            // Without a queue if none can be made, for want of descriptors perhaps.
            queue: queue.or_else(|| self.kind.build(self.depth).ok()),
            depth: self.depth,
            slots: (0..plan.spans.len()).map(|_| None).collect(),
            next: 0,
            again: Vec::new(),
            pushed: 0,
            in_kernel: 0,
            refusals: 0,
        }
    }

    /// Does all reads that are not finished yet, and takes the queue back.
    fn end(&self, mut flight: Flight, shared: &Shared, requests: &mut [ReadRequest], plan: &Plan) {
        if flight.queue.is_some() && flight.run(shared, requests, plan).is_ok() {
            assert!(
                flight.pushed + flight.in_kernel == 0 && flight.again.is_empty(),
                "a batch ends when all of its reads are answered: {} pushed, {} in the kernel",
                flight.pushed,
                flight.in_kernel
            );
            let mut idle = self.idle.lock();
            if idle.len() < idle_queues_max(IDLE_QUEUES_MAX) {
                idle.extend(flight.queue.take());
            }
            return;
        }
        // The queue failed as such. Nothing is lost: what has no result yet is read without it.
        drop(flight);
        plan.read_unfinished(shared, requests);
    }
}

/// A batch that goes on by itself. Its drop waits for the reads that the kernel has.
pub(crate) struct Begun {
    /// `None` at the end, and if the queue failed.
    flight: Option<Flight>,
    /// Counts the descriptors that it may use. Dropped after the flight.
    _descriptors: BegunReads,
    requests: Vec<ReadRequest>,
    plan: Plan,
    shared: Arc<Shared>,
    queues: Arc<Queues>,
}

impl Begun {
    fn start(&mut self) {
        let Some(flight) = &mut self.flight else {
            return;
        };
        let begun = flight
            .fill(&self.shared, &mut self.requests, &self.plan, Patience::Goes)
            .and_then(|()| flight.submit_and_wait(0));
        if begun.is_err() {
            // The queue failed as such: what has no result by then is read without it.
            self.flight = None;
        }
    }

    /// Waits for all reads, and returns the requests with their results.
    pub(crate) fn wait(mut self) -> Vec<ReadRequest> {
        match self.flight.take() {
            Some(flight) => {
                self.queues
                    .end(flight, &self.shared, &mut self.requests, &self.plan);
            }
            None => self.plan.read_unfinished(&self.shared, &mut self.requests),
        }
        std::mem::take(&mut self.requests)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        drop(self.flight.take());
        self.queues.begun.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flight {
    /// Does all reads that are not finished yet.
    fn run(
        &mut self,
        shared: &Shared,
        requests: &mut [ReadRequest],
        plan: &Plan,
    ) -> io::Result<()> {
        loop {
            let patience = match self.pushed + self.in_kernel {
                0 => Patience::Waits,
                _ => Patience::Goes,
            };
            self.fill(shared, requests, plan, patience)?;
            let outstanding = self.pushed + self.in_kernel;
            if outstanding == 0 {
                return Ok(());
            }
            // With nothing more to start, one wait for all is the cheapest. Otherwise the medium
            // must stay busy.
            let enough = if self.next == plan.spans.len() {
                outstanding
            } else {
                outstanding / 4 + 1
            };
            self.submit_and_wait(enough)?;
            while let Some((span, result)) = self.completion() {
                if self.complete(shared, requests, plan, span, result) {
                    self.again.push(span);
                }
            }
        }
    }

    /// Pushes reads until as many as the depth are in flight, or there is no descriptor for the
    /// next one.
    fn fill(
        &mut self,
        shared: &Shared,
        requests: &mut [ReadRequest],
        plan: &Plan,
        mut patience: Patience,
    ) -> io::Result<()> {
        while self.pushed + self.in_kernel < self.depth {
            let span = if let Some(span) = self.again.pop() {
                span
            } else if self.next < plan.spans.len() {
                let span = self.next;
                match Self::start(shared, requests, plan, span, patience) {
                    Ok(Some(slot)) => {
                        self.slots[span] = Some(slot);
                        // Its end frees a descriptor.
                        patience = Patience::Goes;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        self.next += 1;
                        plan.finish(requests, span, Err(error));
                        continue;
                    }
                }
                self.next += 1;
                span
            } else {
                break;
            };
            let place = planted!(
                "flash: a read in flight goes to the place before",
                span,
                span.saturating_sub(1)
            );
            self.push(span, plan.spans[place].extent.start)?;
        }
        Ok(())
    }

    fn start(
        shared: &Shared,
        requests: &[ReadRequest],
        plan: &Plan,
        span: usize,
        patience: Patience,
    ) -> Result<Option<Slot>, Error> {
        let extent = plan.spans[span].extent;
        let file = plan.file(requests, span);
        let descriptor = match patience {
            Patience::Waits => Some(file.descriptor(extent)?),
            Patience::Goes => file.descriptor_at_once(extent)?,
        };
        let Some(descriptor) = descriptor else {
            return Ok(None);
        };
        Ok(Some(Slot {
            descriptor,
            buffer: shared.common.pool.take(extent.length)?,
            filled: 0,
        }))
    }

    fn push(&mut self, span: usize, start: u64) -> io::Result<()> {
        let (Some(queue), Some(slot)) = (&mut self.queue, &mut self.slots[span]) else {
            return Err(io::Error::other("no queue or no slot"));
        };
        let rest = &mut slot.buffer.as_mut_slice()[slot.filled..];
        assert!(!rest.is_empty(), "a read that is whole is not begun again");
        let read = Read {
            number: span,
            fd: slot.descriptor.as_raw_fd(),
            offset: start + slot.filled as u64,
            to: rest.as_mut_ptr(),
            length: rest.len().min(READ_BYTES_MAX),
        };
        // SAFETY: the buffer stays in its slot, untouched, until the read is answered (`complete`),
        // and is leaked if that cannot be waited for (`Drop`). So is the descriptor.
        unsafe { queue.push(read) }?;
        self.pushed += 1;
        Ok(())
    }

    fn submit_and_wait(&mut self, want: usize) -> io::Result<()> {
        let Some(queue) = &mut self.queue else {
            return Err(io::Error::other("no queue"));
        };
        let answer = queue.submit_and_wait(want);
        self.submitted(answer)
    }

    /// Notes the kernel's answer to a submission.
    fn submitted(&mut self, answer: io::Result<usize>) -> io::Result<()> {
        match answer {
            Ok(taken) => {
                self.refusals = 0;
                self.pushed -= taken.min(self.pushed);
                self.in_kernel += taken;
                Ok(())
            }
            // A signal came, or the kernel is short of something until completions are taken. It
            // may have taken entries: the queue's length tells.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                self.recount();
                // Without reads in the kernel no completion frees the resource that the kernel
                // lacks. Blocking reads wait for it.
                let helpless = self.in_kernel == 0 && error.raw_os_error() != Some(libc::EINTR);
                self.refusals = if helpless { self.refusals + 1 } else { 0 };
                match self.refusals < REFUSALS_MAX {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            Err(error) => {
                self.recount();
                Err(error)
            }
        }
    }

    /// Asks the queue how many reads the kernel has taken.
    fn recount(&mut self) {
        if let Some(queue) = &mut self.queue {
            let left = queue.not_taken();
            self.in_kernel += self.pushed.saturating_sub(left);
            self.pushed = left;
        }
    }

    /// The kernel's next answer: a span, and the length or the error of its read.
    fn completion(&mut self) -> Option<(usize, i32)> {
        let answer = self.queue.as_mut()?.completion()?;
        assert!(
            self.in_kernel > 0,
            "the kernel answers only reads that it has taken"
        );
        self.in_kernel -= 1;
        Some(answer)
    }

    /// Notes the kernel's answer for `span`. Returns whether the read must be submitted again.
    fn complete(
        &mut self,
        shared: &Shared,
        requests: &mut [ReadRequest],
        plan: &Plan,
        span: usize,
        result: i32,
    ) -> bool {
        let extent = plan.spans[span].extent;
        let Some(slot) = &mut self.slots[span] else {
            return false;
        };
        let answer = match usize::try_from(result) {
            Ok(count) => {
                shared.counters.count_read(count);
                slot.filled += count;
                // 0 is the end of the file. After a direct read, so is the middle of a block.
                let ended = count == 0
                    || (extent.direct
                        && !slot.filled.is_multiple_of(crate::buffer::DIRECT_ALIGNMENT));
                if !ended && slot.filled < extent.length {
                    return true;
                }
                Ok(None)
            }
            Err(_) => match -result {
                libc::EINTR | libc::EAGAIN | libc::ECANCELED => return true,
                libc::EINVAL | libc::EOPNOTSUPP => Ok(Some(())),
                code => Err(plan.file(requests, span).read_error(
                    extent.start + slot.filled as u64,
                    extent.length - slot.filled,
                    io::Error::from_raw_os_error(code),
                )),
            },
        };
        let Some(slot) = self.slots[span].take() else {
            return false;
        };
        let answer = answer.and_then(|refused| match refused {
            // The file refuses this kind of read. The blocking path knows the other kinds.
            Some(()) => plan.read_rest(requests, span, slot.buffer, slot.filled),
            None => {
                let mut buffer = slot.buffer;
                buffer.truncate(slot.filled);
                Ok(buffer.into_bytes())
            }
        });
        plan.finish(requests, span, answer);
        false
    }
}

impl Drop for Flight {
    /// Waits for the reads that the kernel still has after a failure or a panic (invariant 1).
    fn drop(&mut self) {
        while self.in_kernel > 0 {
            let Some(queue) = &mut self.queue else { break };
            let waited = queue.wait_for_one();
            match waited {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    std::mem::forget(std::mem::take(&mut self.slots));
                    return;
                }
            }
            while self.completion().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{CreateOptions, DataClass, Volume};
    use crate::{DirOptions, DirVolume};
    use glintdb_core::{ErrorKind, FileId, FileKind};

    const FILE_BYTES: usize = 100_000;

    fn byte_at(offset: usize) -> u8 {
        u8::try_from(offset / 7 % 251).unwrap()
    }

    /// Calls `test` with a volume and two requests of a synced file that need one read each.
    fn with_requests(test: impl FnOnce(&Arc<Shared>, Vec<ReadRequest>)) {
        let directory = tempfile::tempdir().unwrap();
        let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
        let options = CreateOptions {
            class: DataClass::Log,
            reserve_bytes: 0,
            direct: true,
        };
        let file = volume
            .create(FileId::new(FileKind::Log, 1), options)
            .unwrap();
        let bytes: Vec<u8> = (0..FILE_BYTES).map(byte_at).collect();
        file.write_at(0, &bytes).unwrap();
        file.sync().unwrap();
        let requests = [(4096, 8192), (FILE_BYTES as u64 - 100, 200)]
            .map(|(offset, length)| ReadRequest::new(Arc::clone(&file), offset, length));
        test(volume.shared(), requests.into());
    }

    fn flight(shared: &Shared, requests: &[ReadRequest], plan: &Plan) -> Flight {
        let slots = (0..plan.spans.len())
            .map(|span| Flight::start(shared, requests, plan, span, Patience::Waits).unwrap())
            .collect();
        Flight {
            queue: None,
            depth: 128,
            slots,
            next: 0,
            again: Vec::new(),
            pushed: 0,
            in_kernel: 0,
            refusals: 0,
        }
    }

    #[test]
    fn interrupted_cancelled_and_short_reads_are_submitted_again() {
        with_requests(|shared, mut requests| {
            let plan = Plan::new(shared, &mut requests);
            let mut flight = flight(shared, &requests, &plan);
            for code in [libc::EINTR, libc::EAGAIN, libc::ECANCELED] {
                assert!(flight.complete(shared, &mut requests, &plan, 0, -code));
            }
            assert!(flight.complete(shared, &mut requests, &plan, 0, 4096));
            assert_eq!(flight.slots[0].as_ref().unwrap().filled, 4096);
            assert!(requests[0].result.is_none());
            assert!(!flight.complete(shared, &mut requests, &plan, 0, 4096));
            assert_eq!(requests[0].result.take().unwrap().unwrap().len(), 8192);
        });
    }

    /// Submissions were repeated without an end and without a pause.
    #[test]
    fn submissions_to_a_kernel_that_takes_nothing_end() {
        with_requests(|shared, mut requests| {
            let plan = Plan::new(shared, &mut requests);
            let mut flight = flight(shared, &requests, &plan);
            flight.pushed = 2;
            let asked = |flight: &mut Flight, code| {
                let refused = || Err(io::Error::from_raw_os_error(code));
                (0..1000).position(|_| flight.submitted(refused()).is_err())
            };
            assert_eq!(asked(&mut flight, libc::EINTR), None);
            for code in [libc::EAGAIN, libc::EBUSY] {
                // Answers will come, and free what the kernel is short of.
                flight.in_kernel = 1;
                assert_eq!(asked(&mut flight, code), None);
                flight.in_kernel = 0;
                assert_eq!(asked(&mut flight, code), Some(15));
                flight.submitted(Ok(0)).unwrap();
            }
        });
    }

    #[test]
    fn end_of_file_ends_a_read_and_an_error_goes_to_its_own_request() {
        with_requests(|shared, mut requests| {
            let plan = Plan::new(shared, &mut requests);
            let mut flight = flight(shared, &requests, &plan);
            assert!(!flight.complete(shared, &mut requests, &plan, 1, 0));
            assert_eq!(requests[1].result.take().unwrap().unwrap().len(), 0);
            assert!(!flight.complete(shared, &mut requests, &plan, 0, -libc::EIO));
            let error = requests[0].result.take().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(
                error.to_string().contains("log-0000000000000001"),
                "{error}"
            );
        });
    }

    #[test]
    fn refused_reads_and_a_failed_queue_end_in_blocking_reads() {
        with_requests(|shared, mut requests| {
            let plan = Plan::new(shared, &mut requests);
            let mut flight = flight(shared, &requests, &plan);
            assert!(!flight.complete(shared, &mut requests, &plan, 0, -libc::EINVAL));
            assert!(
                flight.run(shared, &mut requests, &plan).is_err(),
                "there is no queue"
            );
            drop(flight);
            assert!(requests[1].result.is_none());
            plan.read_unfinished(shared, &mut requests);
            for request in &requests {
                let from = usize::try_from(request.offset).unwrap();
                let expected: Vec<u8> = (from..(from + request.length).min(FILE_BYTES))
                    .map(byte_at)
                    .collect();
                assert_eq!(
                    request.result.as_ref().unwrap().as_ref().unwrap(),
                    &expected
                );
            }
        });
    }
}
