//! One thread of a workload: carries out its operations, measures and checks them.
//!
//! The clock is read once after each call, so a call's latency includes the harness's own work for it
//! (choosing the operation and making the key, some 20 to 30 ns, and the clock itself, 23 ns).
//! One value in [`CHECK_EVERY`] is compared with what was stored; of the others length and both ends are read.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::keys::KeySet;
use crate::plan::{Op, Thread};
use crate::report::Latencies;
use crate::store::{Handle, Result, Store};
use crate::values::ValuePool;

/// One value in so many is compared whole.
const CHECK_EVERY: u64 = 16;

/// What all threads of a phase share.
pub(crate) struct Shared<'a> {
    pub store: &'a dyn Store,
    /// Number of keyspaces over which records are spread. `None`: they are in the store's own.
    pub keyspaces: Option<usize>,
    pub keys: &'a KeySet,
    pub values: &'a ValuePool,
    pub batch_size: usize,
    /// Keys per request; 1 asks with `get`.
    pub multiget_size: usize,
    pub duration: Option<Duration>,
    /// Records may be missing because they were deleted before.
    pub missing_is_fine: bool,
    /// Ends all threads: one failed, or the readers are done.
    pub stop: AtomicBool,
}

impl<'a> Shared<'a> {
    /// A handle for the calling thread.
    fn handle(&self) -> Result<Box<dyn Handle + 'a>> {
        match self.keyspaces {
            Some(keyspaces) => self.store.spread(keyspaces),
            None => self.store.handle(),
        }
    }
}

/// What one thread did.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub reads: Latencies,
    pub writes: Latencies,
    pub ops: u64,
    pub elapsed: Duration,
    pub timeline: Timeline,
    pub tally: Tally,
}

/// Bytes moved and what checking found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub checked: u64,
    pub missing: u64,
    pub wrong: u64,
    seen: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.checked += other.checked;
        self.missing += other.missing;
        self.wrong += other.wrong;
    }

    #[inline]
    fn value(&mut self, shared: &Shared<'_>, index: u64, value: &[u8]) {
        self.read_bytes += (shared.keys.key_size() + value.len()) as u64;
        self.seen += 1;
        if self.seen.is_multiple_of(CHECK_EVERY) {
            self.checked += 1;
            self.wrong += u64::from(!shared.values.matches(index, value));
        } else {
            self.wrong += u64::from(value.len() != shared.values.value_size());
            black_box((value.first(), value.last()));
        }
    }

    #[inline]
    fn not_found(&mut self, shared: &Shared<'_>, index: u64) {
        // An inserted record may be under way in another thread; those are looked up afterwards.
        if !shared.missing_is_fine && index < shared.keys.num() {
            self.missing += 1;
        }
    }
}

/// When operations finished: how many in each second, and in which milliseconds any did; the gaps are stalls.
#[derive(Debug, Default, Clone)]
pub(crate) struct Timeline {
    bits: Vec<u64>,
    last: Option<u64>,
    by_second: Vec<u64>,
}

impl Timeline {
    #[inline]
    fn mark(&mut self, since_start: Duration, count: u64) {
        let ms = since_start.as_millis() as u64;
        self.mark_count(since_start, count);
        if self.last != Some(ms) {
            self.last = Some(ms);
            let word = (ms / 64) as usize;
            if word >= self.bits.len() {
                self.bits.resize(word + 64, 0);
            }
            self.bits[word] |= 1 << (ms % 64);
        }
    }

    #[inline]
    fn mark_count(&mut self, since_start: Duration, count: u64) {
        let second = since_start.as_secs() as usize;
        if second >= self.by_second.len() {
            self.by_second.resize(second + 1, 0);
        }
        self.by_second[second] += count;
    }

    /// Appends the timeline of what began `since_start` of this one.
    pub(crate) fn append(&mut self, other: &Self, since_start: Duration) {
        let ms = |at: usize| Duration::from_millis(at as u64);
        for (word, bits) in other.bits.iter().enumerate() {
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                self.mark(since_start + ms(word * 64 + bit), 0);
            }
        }
        for (second, count) in other.by_second.iter().enumerate() {
            self.mark_count(since_start + ms(second * 1000), *count);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.bits.len() < other.bits.len() {
            self.bits.resize(other.bits.len(), 0);
        }
        for (mine, theirs) in self.bits.iter_mut().zip(&other.bits) {
            *mine |= theirs;
        }
        self.last = self.last.max(other.last);
        if self.by_second.len() < other.by_second.len() {
            self.by_second.resize(other.by_second.len(), 0);
        }
        for (mine, theirs) in self.by_second.iter_mut().zip(&other.by_second) {
            *mine += theirs;
        }
    }

    /// Operations that finished in each second.
    pub(crate) fn by_second(&self) -> &[u64] {
        &self.by_second
    }

    /// Longest run of whole milliseconds between start and last mark without one.
    pub(crate) fn longest_gap_ms(&self) -> u64 {
        let (mut longest, mut current) = (0, 0);
        for ms in 0..=self.last.unwrap_or(0) {
            if self
                .bits
                .get((ms / 64) as usize)
                .is_some_and(|word| word >> (ms % 64) & 1 == 1)
            {
                current = 0;
            } else {
                current += 1;
                longest = longest.max(current);
            }
        }
        longest
    }
}

/// Runs `thread`'s operations against the store from `start` on.
pub(crate) struct Worker<'a> {
    shared: &'a Shared<'a>,
    handle: Box<dyn Handle + 'a>,
    key: Vec<u8>,
    keys: Vec<u8>,
    ops: Vec<(u64, u64)>,
    outcome: Outcome,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>) -> Result<Self> {
        let key_size = shared.keys.key_size();
        Ok(Self {
            shared,
            handle: shared.handle()?,
            key: vec![0; key_size],
            keys: vec![0; key_size * shared.batch_size.max(shared.multiget_size)],
            ops: Vec::new(),
            outcome: Outcome::default(),
        })
    }

    /// The operations of the workload, until they or the time are used up.
    pub(crate) fn run(mut self, mut thread: Thread<'_>, start: Instant) -> Result<Outcome> {
        self.repeat(start, || thread.next_op())?;
        Ok(self.outcome)
    }

    /// Overwrites until the readers are done.
    pub(crate) fn run_writer(mut self, mut thread: Thread<'_>, start: Instant) -> Result<Outcome> {
        self.repeat(start, || Some(thread.overwrite()))?;
        Ok(self.outcome)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a benchmark measures wall-clock time"
    )]
    fn repeat(&mut self, start: Instant, mut next: impl FnMut() -> Option<Op>) -> Result<()> {
        let duration = self.shared.duration.unwrap_or(Duration::MAX);
        let mut last = Instant::now();
        let mut elapsed = last.duration_since(start);
        while elapsed < duration && !self.shared.stop.load(Ordering::Relaxed) {
            let Some(op) = next() else { break };
            let (count, is_write) = match op {
                Op::Put { .. } if self.shared.batch_size > 1 => {
                    (self.put_batch(op, &mut next)?, true)
                }
                Op::Get { .. } if self.shared.multiget_size > 1 => {
                    (self.multi_get(op, &mut next)?, false)
                }
                _ => (1, self.single(op)?),
            };
            let now = Instant::now();
            let latency = now.duration_since(last);
            last = now;
            elapsed = now.duration_since(start);
            if is_write {
                self.outcome.writes.record(latency);
            } else {
                self.outcome.reads.record(latency);
            }
            self.outcome.ops += count;
            self.outcome.timeline.mark(elapsed, count);
        }
        self.outcome.elapsed = elapsed;
        Ok(())
    }

    /// Carries out one operation; `true` if it wrote.
    #[inline]
    fn single(&mut self, op: Op) -> Result<bool> {
        let shared = self.shared;
        let tally = &mut self.outcome.tally;
        match op {
            Op::Put { index, generation } => {
                shared.keys.write(index, &mut self.key);
                let value = shared.values.get(index, generation);
                tally.written_bytes += (self.key.len() + value.len()) as u64;
                self.handle.put(&self.key, value)?;
                return Ok(true);
            }
            Op::Get { index } => {
                shared.keys.write(index, &mut self.key);
                let found = self
                    .handle
                    .get(&self.key, &mut |value| tally.value(shared, index, value))?;
                if !found {
                    tally.not_found(shared, index);
                }
            }
            Op::GetMissing { index } => {
                shared.keys.write_missing(index, &mut self.key);
                let found = self.handle.get(&self.key, &mut |_| {})?;
                tally.wrong += u64::from(found);
            }
            Op::Scan { index, limit } => self.scan(index, limit)?,
            Op::Delete { index } => {
                shared.keys.write(index, &mut self.key);
                tally.written_bytes += self.key.len() as u64;
                self.handle.delete(&self.key)?;
                return Ok(true);
            }
            Op::DeleteRange { index, records } => {
                shared.keys.write(index, &mut self.key);
                let last = (index + records).min(shared.keys.num() - 1);
                let end = self.keys.get_mut(..self.key.len());
                let end = end.ok_or("no room for a key")?;
                shared.keys.write(last, end);
                tally.written_bytes += 2 * self.key.len() as u64;
                self.handle.delete_range(&self.key, end)?;
                return Ok(true);
            }
            Op::PutAndTakeFirst { index } => {
                self.single(Op::Put {
                    index,
                    generation: 0,
                })?;
                self.key.clear();
                let first = &mut self.key;
                self.handle
                    .scan(&[0], 1, &mut |key, _| first.extend_from_slice(key))?;
                if self.key.is_empty() {
                    self.outcome.tally.missing += 1;
                }
                self.handle.delete(&self.key)?;
                self.key.resize(shared.keys.key_size(), 0);
                return Ok(true);
            }
            Op::PutAndDelete { index, deleted } => {
                self.single(Op::Put {
                    index,
                    generation: 0,
                })?;
                self.single(Op::Delete { index: deleted })?;
                return Ok(true);
            }
            Op::ReadModifyWrite { index, generation } => {
                shared.keys.write(index, &mut self.key);
                let found = self
                    .handle
                    .get(&self.key, &mut |value| tally.value(shared, index, value))?;
                if !found {
                    tally.not_found(shared, index);
                }
                let value = shared.values.get(index, generation);
                tally.written_bytes += (self.key.len() + value.len()) as u64;
                self.handle.put(&self.key, value)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scan(&mut self, index: u64, limit: usize) -> Result<()> {
        let shared = self.shared;
        let tally = &mut self.outcome.tally;
        shared.keys.write(index, &mut self.key);
        let from = self.key.as_slice();
        let mut previous = [0u8; 16];
        let mut first = true;
        let mut starts_at_from = false;
        let found = self.handle.scan(from, limit, &mut |key, value| {
            if first {
                first = false;
                starts_at_from = key == from;
                if starts_at_from {
                    tally.value(shared, index, value);
                } else {
                    tally.read_bytes += (key.len() + value.len()) as u64;
                }
                tally.wrong += u64::from(key < from);
            } else {
                tally.read_bytes += (key.len() + value.len()) as u64;
                let head = shared.keys.head(key);
                tally.wrong += u64::from(Some(head) <= previous.get(..head.len()));
                tally.wrong += u64::from(value.len() != shared.values.value_size());
                black_box((value.first(), value.last()));
            }
            let head = shared.keys.head(key);
            previous[..head.len()].copy_from_slice(head);
        })?;
        if !shared.missing_is_fine {
            let behind = shared.keys.num() - index.min(shared.keys.num());
            tally.missing += u64::from(!starts_at_from);
            tally.missing += (limit as u64).min(behind).saturating_sub(found as u64);
        }
        Ok(())
    }

    /// Collects puts from `first` on and commits them together; returns how many.
    fn put_batch(&mut self, first: Op, next: &mut impl FnMut() -> Option<Op>) -> Result<u64> {
        let shared = self.shared;
        self.ops.clear();
        let mut op = Some(first);
        while let Some(Op::Put { index, generation }) = op {
            self.ops.push((index, generation));
            op = if self.ops.len() < shared.batch_size {
                next()
            } else {
                None
            };
        }
        let key_size = shared.keys.key_size();
        for (key, (index, _)) in self.keys.chunks_exact_mut(key_size).zip(&self.ops) {
            shared.keys.write(*index, key);
        }
        let records: Vec<(&[u8], &[u8])> = self
            .keys
            .chunks_exact(key_size)
            .zip(&self.ops)
            .map(|(key, (index, generation))| (key, shared.values.get(*index, *generation)))
            .collect();
        self.handle.put_batch(&records)?;
        let bytes = (key_size + shared.values.value_size()) * records.len();
        self.outcome.tally.written_bytes += bytes as u64;
        assert!(
            op.is_none(),
            "batches are for workloads of puts alone, not {op:?}"
        );
        Ok(self.ops.len() as u64)
    }

    /// Collects gets from `first` on and asks for them together; returns how many.
    fn multi_get(&mut self, first: Op, next: &mut impl FnMut() -> Option<Op>) -> Result<u64> {
        let shared = self.shared;
        self.ops.clear();
        let mut op = Some(first);
        while let Some(Op::Get { index }) = op {
            self.ops.push((index, 0));
            op = if self.ops.len() < shared.multiget_size {
                next()
            } else {
                None
            };
        }
        let key_size = shared.keys.key_size();
        for (key, (index, _)) in self.keys.chunks_exact_mut(key_size).zip(&self.ops) {
            shared.keys.write(*index, key);
        }
        assert!(
            op.is_none(),
            "requests of many keys are for workloads of gets alone, not {op:?}"
        );
        let keys: Vec<&[u8]> = self
            .keys
            .chunks_exact(key_size)
            .take(self.ops.len())
            .collect();
        let (ops, tally) = (&self.ops, &mut self.outcome.tally);
        let mut answers = 0;
        self.handle.multi_get(&keys, &mut |at, value| {
            answers += 1;
            let index = ops[at].0;
            match value {
                Some(value) => tally.value(shared, index, value),
                None => tally.not_found(shared, index),
            }
        })?;
        tally.wrong += (ops.len() as u64).abs_diff(answers);
        Ok(ops.len() as u64)
    }
}

/// Looks the given records up one by one, checks them whole, and reports what it found.
pub(crate) fn check_records(
    shared: &Shared<'_>,
    indices: impl Iterator<Item = u64>,
    expect_found: bool,
) -> Result<Tally> {
    let mut handle = shared.handle()?;
    let mut key = vec![0; shared.keys.key_size()];
    let mut tally = Tally::default();
    for index in indices {
        shared.keys.write(index, &mut key);
        let mut right = false;
        let found = handle.get(&key, &mut |value| {
            right = shared.values.matches(index, value)
        })?;
        tally.checked += 1;
        match (expect_found, found) {
            (true, false) => tally.missing += 1,
            (true, true) => tally.wrong += u64::from(!right),
            (false, true) => tally.wrong += 1,
            (false, false) => {}
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_all_threads_together_are_stalls() {
        let ms = Duration::from_millis;
        let (mut a, mut b) = (Timeline::default(), Timeline::default());
        for t in [0, 1, 2, 70, 71, 5000] {
            a.mark(ms(t), 1);
        }
        assert_eq!(a.longest_gap_ms(), 4928);
        for t in [40, 1000, 3000, 4990] {
            b.mark(ms(t), 10);
        }
        a.add(&b);
        assert_eq!(a.longest_gap_ms(), 1999);
        assert_eq!(a.by_second(), [5 + 10, 10, 0, 10, 10, 1]);
        assert_eq!(Timeline::default().longest_gap_ms(), 1);
        let mut later = Timeline::default();
        later.mark(ms(10), 2);
        a.append(&later, ms(6000));
        assert_eq!((a.by_second()[6], a.last), (2, Some(6010)));
    }
}
