//! Reads under way, so that threads that want the same thing read it once.
//!
//! Whoever misses the cache claims what it wants. Of several that want the same, one gets the claim and reads; the others sleep until it has read, and are given what
//! it found, whether or not the cache keeps that. Where the reader fails, each of the others reads for itself and meets its own error.
//!
//! Thread-safe. Locks: a shard's and a bed's, for moments, the bed's inside none; no lock is held across a read.
//!
//! Invariants:
//! 1. Nobody waits while it holds a claim: a batch claims without waiting, reads what it got, gives all its claims up, and only then waits for others. So two batches that
//!    want what the other reads both go on.
//! 2. A claim ends with its holder, whatever becomes of it, a panic too.

use crate::cache::{CacheKey, KeyHash, Mixer, ValuePlace};
use bytes::Bytes;
use glintdb_core::Result;
use glintdb_core::sync::{Condvar, Mutex};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A power of two.
const SHARDS: usize = 16;

/// What is read now, each with the bed of those who wait for it, if there are any.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<CacheKey, Option<Arc<Bed>>, Mixer>>);

/// Where those sleep who wait for a read of another thread.
struct Bed {
    /// `None`: not over yet. `Some(None)`: it has failed.
    outcome: Mutex<Option<Option<Bytes>>>,
    over: Condvar,
}

/// Claims of one cache.
#[derive(Default)]
pub(crate) struct Claims {
    /// Everybody reads for itself.
    off: bool,
    shards: [Shard; SHARDS],
    saved: AtomicU64,
    waiting: AtomicU64,
}

/// The answer to who wants to read something.
enum Claimed<'a> {
    Mine(Claim<'a>),
    Theirs(Arc<Bed>),
}

/// The right to read something, while it lives.
struct Claim<'a> {
    shard: &'a Shard,
    key: CacheKey,
    found: Option<Bytes>,
}

impl Claims {
    /// `wanted`: else everybody reads for itself.
    pub(crate) fn new(wanted: bool) -> Self {
        Claims {
            off: !wanted,
            ..Claims::default()
        }
    }

    /// Reads that were spared because another thread was reading the same.
    pub(crate) fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Threads that wait for another's read now.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// What `read` gives, or what another thread reads at this moment. `look`: what came to be known since the caller found that it has to read.
    pub(crate) fn read(
        &self,
        key: CacheKey,
        look: impl FnOnce(&CacheKey) -> Option<Bytes>,
        read: impl FnOnce() -> Result<Bytes>,
    ) -> Result<Bytes> {
        if self.off {
            return read();
        }
        match self.claim(key) {
            Claimed::Mine(mut claim) => {
                let bytes = match look(&key) {
                    Some(bytes) => bytes,
                    None => read()?,
                };
                claim.found = Some(bytes.clone());
                Ok(bytes)
            }
            Claimed::Theirs(bed) => self.wait(&bed).map_or_else(read, Ok),
        }
    }

    /// [`read`](Self::read) of many: `read` gets the indices of those that are to be read, and gives as many answers. It must claim nothing itself.
    pub(crate) fn read_each(
        &self,
        keys: &[CacheKey],
        look: impl Fn(&CacheKey) -> Option<Bytes>,
        mut read: impl FnMut(&[usize]) -> Vec<Result<Bytes>>,
    ) -> Vec<Result<Bytes>> {
        if self.off {
            return read(&Vec::from_iter(0..keys.len()));
        }
        let mut answers: Vec<Option<Result<Bytes>>> = keys.iter().map(|_| None).collect();
        let (mut mine, mut wanted, mut theirs): (Vec<Claim<'_>>, _, _) =
            (Vec::new(), Vec::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            match self.claim(*key) {
                Claimed::Theirs(bed) => theirs.push((at, bed)),
                Claimed::Mine(mut claim) => match look(key) {
                    Some(bytes) => {
                        claim.found = Some(bytes.clone());
                        answers[at] = Some(Ok(bytes));
                    }
                    None => {
                        mine.push(claim);
                        wanted.push(at);
                    }
                },
            }
        }
        let mut read_all = |wanted: &[usize], answers: &mut [Option<Result<Bytes>>]| {
            if wanted.is_empty() {
                return;
            }
            let found = read(wanted);
            assert!(found.len() == wanted.len(), "every read has an answer");
            for (&at, bytes) in wanted.iter().zip(found) {
                answers[at] = Some(bytes);
            }
        };
        read_all(&wanted, &mut answers);
        for (claim, &at) in mine.iter_mut().zip(&wanted) {
            if let Some(Ok(bytes)) = &answers[at] {
                claim.found = Some(bytes.clone());
            }
        }
        drop(mine);
        // All claims are given up; now others may be waited for.
        let mut failed = Vec::new();
        for (at, bed) in theirs {
            match self.wait(&bed) {
                Some(bytes) => answers[at] = Some(Ok(bytes)),
                None => failed.push(at),
            }
        }
        read_all(&failed, &mut answers);
        let answer = |answer: Option<Result<Bytes>>| answer.expect("mine or theirs");
        answers.into_iter().map(answer).collect()
    }

    fn shard(&self, key: &CacheKey) -> &Shard {
        let shard = Mixer.hash_one(key) % SHARDS as u64;
        &self.shards[usize::try_from(shard).unwrap_or(0)]
    }

    fn claim(&self, mut key: CacheKey) -> Claimed<'_> {
        if let CacheKey::Value(hash, ValuePlace(_, offset)) = &mut key {
            // Where it stands says enough: a scan does not know the second hash, and wants the same.
            hash.1 = KeyHash::UNKNOWN;
            if glintdb_core::seeded::bug("flash: who waits for a value is given another one") {
                (*hash, *offset) = (KeyHash(0, 0), *offset & !0xfff);
            }
        }
        let shard = self.shard(&key);
        let mut reading = shard.0.lock();
        match reading.get_mut(&key) {
            None => {
                reading.insert(key, None);
                let found = None;
                Claimed::Mine(Claim { shard, key, found })
            }
            Some(bed) => {
                let bed = bed.get_or_insert_with(|| {
                    Arc::new(Bed {
                        outcome: Mutex::new(None),
                        over: Condvar::new(),
                    })
                });
                Claimed::Theirs(Arc::clone(bed))
            }
        }
    }

    /// What the other thread has read; `None` where it could not.
    fn wait(&self, bed: &Bed) -> Option<Bytes> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut outcome = bed.outcome.lock();
        while outcome.is_none() {
            bed.over.wait(&mut outcome);
        }
        let found = outcome.clone().flatten();
        drop(outcome);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if found.is_some() {
            self.saved.fetch_add(1, Ordering::Relaxed);
        }
        found
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let bed = self.shard.0.lock().remove(&self.key).flatten();
        if let Some(bed) = bed
            && !glintdb_core::seeded::bug("flash: who waits for another's read is not woken")
        {
            // What was read may be part of something larger, and nobody should hold that for it.
            let found = self.found.take();
            *bed.outcome.lock() = Some(found.map(|found| Bytes::copy_from_slice(&found)));
            bed.over.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use glintdb_core::{Error, SegmentId};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    fn key(offset: u32) -> CacheKey {
        CacheKey::Value(
            KeyHash(offset.into(), KeyHash::UNKNOWN),
            ValuePlace(SegmentId(1), offset),
        )
    }

    fn not_here(_: &CacheKey) -> Option<Bytes> {
        None
    }

    fn value(n: u32) -> Bytes {
        Bytes::copy_from_slice(&n.to_le_bytes())
    }

    impl Claims {
        /// Threads that wait for `key`.
        fn waiting_for(&self, key: CacheKey) -> usize {
            let reading = self.shard(&key).0.lock();
            match reading.get(&key) {
                // One is the table's.
                Some(Some(bed)) => Arc::strong_count(bed) - 1,
                _ => 0,
            }
        }

        fn reading(&self) -> usize {
            self.shards.iter().map(|shard| shard.0.lock().len()).sum()
        }

        fn until_waiting(&self, key: CacheKey, threads: usize) {
            while self.waiting_for(key) < threads {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_scan_and_a_get_that_want_the_same_read_it_once() {
        let claims = Claims::default();
        let CacheKey::Value(hash, place) = key(1) else {
            unreachable!()
        };
        let of_get = CacheKey::Value(KeyHash(hash.0, 7), place);
        let claimed = claims.claim(of_get);
        assert!(matches!(claimed, Claimed::Mine(_)));
        assert!(matches!(claims.claim(key(1)), Claimed::Theirs(_)));
        assert!(matches!(claims.claim(key(2)), Claimed::Mine(_)));
    }

    #[test]
    fn several_who_want_the_same_read_it_once() {
        let (claims, reads) = (Claims::default(), AtomicUsize::new(0));
        let read = || {
            claims.until_waiting(key(4096), 2);
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(value(1))
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert_eq!(claims.read(key(4096), not_here, read).unwrap(), value(1));
                });
            }
        });
        assert_eq!(
            (reads.into_inner(), claims.saved(), claims.reading()),
            (1, 2, 0)
        );
    }

    #[test]
    fn where_the_reader_fails_or_panics_the_others_read_for_themselves() {
        for panics in [false, true] {
            let claims = Claims::default();
            let first = || {
                claims.until_waiting(key(8), 1);
                assert!(!panics, "this reader panics");
                Err(Error::invalid("this reader fails"))
            };
            thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let read =
                        catch_unwind(AssertUnwindSafe(|| claims.read(key(8), not_here, first)));
                    assert!(read.map_or(panics, |read| read.is_err()));
                });
                while claims.reading() == 0 {
                    thread::yield_now();
                }
                let own = claims.read_each(&[key(7), key(8)], not_here, |wanted| {
                    wanted
                        .iter()
                        .map(|&at| Ok(value(u32::try_from(at).unwrap())))
                        .collect()
                });
                assert_eq!(
                    own.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
                    [value(0), value(1)]
                );
                reader.join().unwrap();
            });
            assert_eq!((claims.saved(), claims.reading()), (0, 0));
        }
    }

    /// Each batch has what the other wants: who waited with claims in hand would wait for ever.
    #[test]
    fn batches_that_want_what_the_other_reads_both_go_on() {
        let (claims, begun) = (Claims::default(), Barrier::new(2));
        let run = |keys: [u32; 2]| {
            let first = AtomicUsize::new(0);
            let look = |_: &CacheKey| {
                // Claimed, and nothing read yet.
                if first.fetch_add(1, Ordering::Relaxed) == 0 {
                    begun.wait();
                }
                None
            };
            let read = claims.read_each(&keys.map(key), look, |wanted| {
                wanted.iter().map(|&at| Ok(value(keys[at]))).collect()
            });
            assert_eq!(
                read.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
                keys.map(value)
            );
        };
        thread::scope(|scope| {
            scope.spawn(|| run([1, 2]));
            scope.spawn(|| run([2, 1]));
        });
        assert_eq!(claims.reading(), 0);
    }

    #[test]
    fn a_batch_that_wants_something_twice_reads_it_once_and_looks_first() {
        let claims = Claims::default();
        let look = |wanted: &CacheKey| (*wanted == key(1)).then(|| value(1));
        let mut reads = Vec::new();
        let read = claims.read_each(&[key(1), key(2), key(2)], look, |wanted| {
            reads.extend_from_slice(wanted);
            wanted.iter().map(|_| Ok(value(2))).collect()
        });
        let read: Vec<Bytes> = read.into_iter().map(Result::unwrap).collect();
        assert_eq!((read, reads), (vec![value(1), value(2), value(2)], vec![1]));
    }
}
