//! An index over a volume in memory, beside a model of it, with the small part of an engine that
//! tests need: sequence numbers, a manifest, liveness.

use crate::model::Model;
use bytes::Bytes;
use glintdb_cache::Cache;
use glintdb_core::index::{
    Index, IndexChange, IndexJob, IndexStats, IndexView, JobStep, SortedRun,
};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{
    DbId, Direction, EntryRef, EntryValue, FileId, FileNumbers, RangeTombstone, Result, SegmentId,
    SeqNum, ValuePointer,
};
use glintdb_flash::{ManualClock, ReadQueue, Volume};
use glintdb_runs::IndexEnv;
use glintdb_simdisk::MemVolume;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// File numbers that only a test database gets.
#[derive(Default)]
pub struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A small pseudo-random generator (splitmix64): a seed gives the same test for ever.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A run in memory.
#[derive(Clone, Default, Debug)]
pub struct VecRun {
    pub entries: Vec<(Bytes, SeqNum, EntryValue)>,
    pub ranges: Vec<RangeTombstone>,
    pub at: usize,
}

impl SortedRun for VecRun {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let entry = self.entries.get(self.at);
        self.at += 1;
        Ok(entry.map(|(key, seqno, value)| (key.as_ref(), *seqno, value.as_ref())))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.ranges
    }

    fn entries_hint(&self) -> usize {
        self.entries.len()
    }
}

/// A kind of index under test.
pub trait Kind: Sized {
    /// The index.
    type Index: Index;
    /// Its options.
    type Options: Clone;

    /// An empty index.
    fn create(env: IndexEnv, options: Self::Options) -> Result<Arc<Self::Index>>;
    /// The index that results from edits.
    fn open(env: IndexEnv, options: Self::Options, edits: &[Vec<u8>]) -> Result<Arc<Self::Index>>;
    /// The encoded options.
    fn encode(options: &Self::Options) -> Vec<u8>;
    /// Files that an edit brings.
    fn new_files(edit: &[u8]) -> Vec<FileId>;
    /// Options with which a few hundred entries fill the index.
    fn small_options() -> Self::Options;
    /// Options that an index may get while it is used.
    fn other_options(random: &mut Random) -> Self::Options;
    /// Checks an index in which nothing is under way.
    fn check_idle(index: &Self::Index);
    /// Checks the figures of an index that was compacted as a whole.
    fn check_compacted(stats: &IndexStats);
    /// Checks what only this kind promises. `pointed` adds each pointer that the index holds.
    fn check_shape(index: &Self::Index, pointed: &mut dyn FnMut(ValuePointer));
}

/// See the module's page.
pub struct Harness<K: Kind> {
    pub volume: Arc<MemVolume>,
    pub env: IndexEnv,
    pub options: K::Options,
    pub index: Arc<K::Index>,
    pub model: Model,
    pub seqno: u64,
    /// The manifest.
    pub edits: Vec<Vec<u8>>,
    pub liveness: BTreeMap<SegmentId, i64>,
    pub keys: u64,
    /// Whether random runs delete keys and ranges. Without that the tree keeps its size.
    pub deletes: bool,
    /// Whether applying a change checks the shape afterwards (which reads everything).
    pub checks: bool,
}

pub fn env(volume: &Arc<MemVolume>) -> IndexEnv {
    let memory = Arc::new(MemoryBudget::new(64 << 20));
    IndexEnv {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        cache: Arc::new(Cache::new(64 << 10)),
        memory: Arc::clone(&memory),
        db: DbId([7; 16]),
        numbers: Arc::new(Numbers::default()),
        run_bytes: 16 << 10,
        tombstone_floor: Arc::new(AtomicU64::new(0)),
        reads: Some(ReadQueue::new(
            Arc::clone(volume) as Arc<dyn Volume>,
            Arc::clone(&memory),
            Arc::new(ManualClock::default()),
            2,
            64 << 10,
        )),
    }
}

impl<K: Kind> Harness<K> {
    pub fn set_options(&mut self, options: &K::Options) {
        self.index.set_options(&K::encode(options)).unwrap();
        self.options = options.clone();
    }

    pub fn new(options: K::Options) -> Harness<K> {
        let volume = MemVolume::new();
        let env = env(&volume);
        let index = K::create(env.clone(), options.clone()).unwrap();
        Harness {
            volume,
            env,
            options,
            index,
            model: Model::default(),
            seqno: 0,
            edits: Vec::new(),
            liveness: BTreeMap::new(),
            keys: 300,
            deletes: true,
            checks: true,
        }
    }

    /// Another harness of the same index, with a model of its own.
    pub fn sharing(other: &Harness<K>) -> Harness<K> {
        Harness {
            volume: Arc::clone(&other.volume),
            env: other.env.clone(),
            options: other.options.clone(),
            index: Arc::clone(&other.index),
            model: other.model.clone(),
            seqno: other.seqno,
            edits: Vec::new(),
            liveness: BTreeMap::new(),
            keys: other.keys,
            deletes: other.deletes,
            checks: false,
        }
    }

    pub fn key(&self, n: u64) -> Bytes {
        match n {
            0 => Bytes::new(),
            n if n % 17 == 0 => Bytes::from(format!("key{n:04}{}", "x".repeat((n % 60) as usize))),
            n => Bytes::from(format!("key{n:04}")),
        }
    }

    pub fn random_key(&self, random: &mut Random) -> Bytes {
        self.key(random.below(self.keys))
    }

    pub fn random_value(&self, random: &mut Random) -> EntryValue {
        match random.below(10) {
            0 | 1 if self.deletes => EntryValue::Tombstone,
            0..=5 => {
                let bytes = random.below(600) as usize;
                EntryValue::Inline(Bytes::from(vec![random.next() as u8; bytes]))
            }
            _ => EntryValue::Pointer(ValuePointer {
                segment: SegmentId(1 + random.below(4)),
                offset: random.next() as u32,
                length: 1 + random.below(100_000) as u32,
                checksum: random.next() as u32,
            }),
        }
    }

    /// Random operations as the memtable would hand them over, and the model after them.
    pub fn random_run(&mut self, random: &mut Random, ops: u64) -> (VecRun, Model) {
        let mut after = self.model.clone();
        let mut own = Model::default();
        let narrow = random.one_in(3).then(|| random.below(self.keys));
        for op in 0..ops {
            // Now and then two operations of one batch, with one number.
            if !random.one_in(4) || op == 0 {
                self.seqno += 1;
            }
            let seqno = SeqNum(self.seqno);
            if random.one_in(40) && self.deletes {
                let start = self.random_key(random);
                let end = (!random.one_in(8)).then(|| {
                    let end = self.random_key(random);
                    if random.one_in(2) {
                        end
                    } else {
                        start.clone().max(end)
                    }
                });
                if end.as_ref().is_some_and(|end| *end <= start) {
                    continue;
                }
                let range = RangeTombstone { start, end, seqno };
                // Within a batch the later operation wins: what it put before is gone.
                for model in [&mut own, &mut after] {
                    let gone = |key: &Bytes, at: SeqNum| range.covers(key) && at == seqno;
                    model.points.retain(|key, (at, _)| !gone(key, *at));
                    model.ranges.push(range.clone());
                }
                continue;
            }
            let key = match narrow {
                Some(from) => self.key((from + random.below(20)) % self.keys),
                None => self.random_key(random),
            };
            let value = self.random_value(random);
            own.put(key.clone(), seqno, value.clone());
            after.put(key, seqno, value);
        }
        let entries = own
            .points
            .iter()
            .filter(|(key, (seqno, _))| *seqno >= own.deleted(key))
            .map(|(key, (seqno, value))| (key.clone(), *seqno, value.clone()))
            .collect();
        let run = VecRun {
            entries,
            ranges: own.ranges.clone(),
            at: 0,
        };
        (run, after)
    }

    /// A random run, flushed; the change is applied, or given up.
    pub fn flush(&mut self, random: &mut Random, ops: u64, apply: bool) {
        let (mut run, after) = self.random_run(random, ops);
        let change = self.index.write_run(&mut run).unwrap();
        let newest = run.entries.iter().map(|(_, seqno, _)| *seqno);
        let newest = newest.chain(run.ranges.iter().map(|t| t.seqno)).max();
        assert_eq!(change.seqno_max, newest.unwrap_or(SeqNum::ZERO));
        if apply {
            self.apply(&change);
            self.model = after;
        } else {
            self.index.abandon(change);
        }
    }

    /// What the engine does with a change.
    pub fn apply(&mut self, change: &IndexChange) {
        if self.checks {
            assert!(self.volume_has(change));
        }
        for delta in &change.liveness {
            assert_ne!(delta.bytes, 0);
            *self.liveness.entry(delta.segment).or_default() += delta.bytes;
        }
        if !change.edit.is_empty() {
            self.index.check(change).unwrap();
            self.edits.push(change.edit.clone());
        }
        self.index.apply(change).unwrap();
        if self.checks {
            self.check_shape();
        }
    }

    /// A change's files must survive a power cut that loses everything not synced.
    fn volume_has(&self, change: &IndexChange) -> bool {
        let after = self.volume.crash(glintdb_simdisk::CrashMode::LoseUnsynced);
        let there: BTreeSet<FileId> = after.list().unwrap().into_iter().collect();
        (K::new_files(&change.edit).iter()).all(|file| there.contains(file))
    }

    /// Runs a job to its end and applies what it gives.
    pub fn finish(&mut self, mut job: Box<dyn IndexJob>) {
        loop {
            match job.step().unwrap() {
                JobStep::More => {}
                JobStep::Done(change) => return self.apply(&change),
            }
        }
    }

    /// Runs compactions until none is due.
    pub fn settle(&mut self) {
        while let Some(job) = self.index.pick_job() {
            self.finish(job);
        }
        assert!(!self.index.busy());
    }

    /// As `compact()` does.
    pub fn compact(&mut self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        while let Some(job) = self.index.pick_full_compaction(lower, upper) {
            self.finish(job);
        }
        assert!(!self.index.busy());
    }

    pub fn set_floor(&self, floor: u64) {
        self.env.tombstone_floor.fetch_max(floor, Ordering::AcqRel);
    }

    /// A new index from the manifest.
    pub fn reopen(&mut self, snapshot: bool) {
        if snapshot {
            self.edits = vec![self.index.snapshot_edit()];
        }
        self.index = K::open(self.env.clone(), self.options.clone(), &self.edits).unwrap();
        assert!(!self.index.busy());
        self.check_shape();
    }

    /// What the kind promises, and the invariants of files and liveness.
    pub fn check_shape(&self) {
        let mut pointed: BTreeMap<SegmentId, i64> = BTreeMap::new();
        K::check_shape(&self.index, &mut |pointer| {
            *pointed.entry(pointer.segment).or_default() += i64::from(pointer.length);
        });
        let liveness = self.liveness.iter().filter(|(_, bytes)| **bytes != 0);
        assert_eq!(
            liveness.map(|(s, b)| (*s, *b)).collect::<BTreeMap<_, _>>(),
            pointed
        );
        let named: BTreeSet<FileId> = self.index.files().into_iter().collect();
        let there: BTreeSet<FileId> = self.volume.list().unwrap().into_iter().collect();
        assert!(named.is_subset(&there));
    }

    /// Nothing is on the volume but what the index names.
    pub fn check_no_orphans(&self) {
        let named: BTreeSet<FileId> = self.index.files().into_iter().collect();
        let there: BTreeSet<FileId> = self.volume.list().unwrap().into_iter().collect();
        assert_eq!(named, there);
    }

    /// Everything a view can be asked, against a model.
    pub fn check_view(&self, view: &dyn IndexView, model: &Model, random: &mut Random) {
        let floor = SeqNum(self.env.tombstone_floor.load(Ordering::Acquire));
        let keys: Vec<Bytes> = (0..self.keys)
            .map(|n| self.key(n))
            .chain([Bytes::from_static(b"key0007x"), Bytes::from_static(b"zzz")])
            .collect();
        let refs: Vec<&[u8]> = keys.iter().map(Bytes::as_ref).collect();
        let batch = view.get_batch(&refs);
        for (key, answer) in keys.iter().zip(batch) {
            let answer = answer.unwrap();
            assert_eq!(answer, view.get(key).unwrap());
            let answer = answer.map(|entry| (entry.seqno, entry.value));
            match model.newest(key) {
                Some((seqno, EntryValue::Tombstone)) if seqno < floor => {
                    if let Some((found, value)) = answer {
                        assert!(value == EntryValue::Tombstone && found <= seqno, "{key:?}");
                    }
                }
                expected => assert_eq!(answer, expected, "{key:?}"),
            }
        }
        for _ in 0..4 {
            self.check_cursor(view, model, floor, random);
        }
        let newest = model
            .ranges
            .iter()
            .map(|t| t.seqno)
            .max()
            .filter(|seqno| *seqno >= floor);
        if newest.is_some() {
            let found = view
                .range_tombstone_seqno(Bound::Unbounded, Bound::Unbounded)
                .unwrap();
            assert_eq!(found, newest);
        }
    }

    fn random_bound(&self, random: &mut Random) -> Bound<Bytes> {
        match random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.random_key(random)),
            _ => Bound::Excluded(self.random_key(random)),
        }
    }

    fn check_cursor(
        &self,
        view: &dyn IndexView,
        model: &Model,
        floor: SeqNum,
        random: &mut Random,
    ) {
        let (lower, upper) = (self.random_bound(random), self.random_bound(random));
        let lower = lower.as_ref().map(Bytes::as_ref);
        let upper = upper.as_ref().map(Bytes::as_ref);
        let direction = if random.one_in(2) {
            Direction::Forward
        } else {
            Direction::Reverse
        };
        // Live entries must come, and tombstones at or above the floor that no range tombstone
        // hides. Other tombstones may come.
        let within = |key: &[u8]| {
            glintdb_core::key::at_or_after(key, lower)
                && glintdb_core::key::at_or_before(key, upper)
        };
        let mut expected: Vec<(Bytes, SeqNum, EntryValue)> = model
            .points
            .iter()
            .filter(|(key, (seqno, _))| within(key) && *seqno >= model.deleted(key))
            .map(|(key, (seqno, value))| (key.clone(), *seqno, value.clone()))
            .collect();
        if direction == Direction::Reverse {
            expected.reverse();
        }
        let mut found = Vec::new();
        let mut cursor = view.cursor(lower, upper, direction).unwrap();
        while cursor.advance().unwrap() {
            let key = Bytes::copy_from_slice(cursor.key());
            found.push((key, cursor.seqno(), cursor.value().to_owned()));
        }
        assert!(!cursor.advance().unwrap());
        let came: BTreeSet<&Bytes> = found.iter().map(|(key, ..)| key).collect();
        expected.retain(|(key, seqno, value)| {
            came.contains(key) || *value != EntryValue::Tombstone || *seqno >= floor
        });
        assert_eq!(found, expected);

        // With seeks in between: from where it is, never back.
        let mut cursor = view.cursor(lower, upper, direction).unwrap();
        let mut at: Option<usize> = None;
        for _ in 0..20 {
            let (moved, next) = if random.one_in(2) {
                let target = self.random_key(random);
                let from = at.unwrap_or(0);
                let next = (from..found.len()).find(|&i| match direction {
                    Direction::Forward => found[i].0 >= target,
                    Direction::Reverse => found[i].0 <= target,
                });
                (cursor.seek(&target).unwrap(), next)
            } else {
                let next = at.map_or(0, |at| at + 1);
                (
                    cursor.advance().unwrap(),
                    Some(next).filter(|&at| at < found.len()),
                )
            };
            assert_eq!(moved, next.is_some());
            let Some(next) = next else { break };
            assert_eq!(cursor.key(), found[next].0);
            assert_eq!(cursor.seqno(), found[next].1);
            assert_eq!(cursor.value().to_owned(), found[next].2);
            at = Some(next);
        }
    }

    /// The current view against the current model, and `verify`.
    pub fn check(&self, random: &mut Random) {
        let view = self.index.view();
        self.check_view(view.as_ref(), &self.model, random);
        let mut pointers = BTreeMap::new();
        view.verify(
            &mut |error| panic!("{error}"),
            &mut |_| {},
            &mut |key, pointer| {
                pointers.insert(Bytes::copy_from_slice(key), pointer);
            },
            &mut |_| {},
        );
        let live = self.model.live().into_iter();
        let expected: BTreeMap<Bytes, ValuePointer> = live
            .filter_map(|(key, (_, value))| match value {
                EntryValue::Pointer(pointer) => Some((key, pointer)),
                _ => None,
            })
            .collect();
        assert_eq!(pointers, expected);
    }
}
