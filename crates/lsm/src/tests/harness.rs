//! An index over a volume in memory beside a model of it, with the small part of an engine that tests need: sequence numbers, a manifest, liveness.

use super::model::Model;
use crate::edit::Edit;
use crate::{Lsm, LsmExperiments, LsmOptions};
use bytes::Bytes;
use glintdb_cache::Cache;
use glintdb_core::index::{Index, IndexChange, IndexJob, IndexView, JobStep, SortedRun};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{
    DbId, Direction, EntryRef, EntryValue, FileId, FileNumbers, RangeTombstone, Result, SegmentId,
    SeqNum, ValuePointer,
};
use glintdb_flash::{ManualClock, ReadQueue, Volume};
use glintdb_runs::IndexEnv;
use glintdb_runs::table::Purpose;
use glintdb_simdisk::MemVolume;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// File numbers that only a test database gets.
#[derive(Default)]
pub(crate) struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A small pseudo-random generator (splitmix64): a seed gives the same test for ever.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A run in memory.
#[derive(Clone, Default, Debug)]
pub(crate) struct VecRun {
    pub(crate) entries: Vec<(Bytes, SeqNum, EntryValue)>,
    pub(crate) ranges: Vec<RangeTombstone>,
    pub(crate) at: usize,
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

/// Options with which a few hundred entries fill several levels.
pub(crate) fn small_options() -> LsmOptions {
    LsmOptions {
        size_ratio: 2,
        table_bytes_target: 16 << 10,
        experiments: LsmExperiments {
            level0_runs_compact: 2,
            level0_runs_slow: 4,
            level0_runs_stop: 8,
            base_level_bytes: 24 << 10,
        },
        ..LsmOptions::default()
    }
}

/// See the module's page.
pub(crate) struct Harness {
    pub(crate) volume: Arc<MemVolume>,
    pub(crate) env: IndexEnv,
    pub(crate) options: LsmOptions,
    pub(crate) lsm: Arc<Lsm>,
    pub(crate) model: Model,
    pub(crate) seqno: u64,
    /// The manifest.
    pub(crate) edits: Vec<Vec<u8>>,
    pub(crate) liveness: BTreeMap<SegmentId, i64>,
    pub(crate) keys: u64,
    /// Whether random runs delete keys and ranges. Without that the tree keeps its size.
    pub(crate) deletes: bool,
    /// Whether applying a change checks the shape afterwards (which reads everything).
    pub(crate) checks: bool,
}

pub(crate) fn env(volume: &Arc<MemVolume>) -> IndexEnv {
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

impl Harness {
    pub(crate) fn set_options(&mut self, options: &LsmOptions) {
        let mut encoded = Vec::new();
        options.encode(&mut encoded);
        self.lsm.set_options(&encoded).unwrap();
        self.options = options.clone();
    }

    pub(crate) fn new(options: LsmOptions) -> Harness {
        let volume = MemVolume::new();
        let env = env(&volume);
        let lsm = Lsm::create(env.clone(), options.clone()).unwrap();
        Harness {
            volume,
            env,
            options,
            lsm,
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
    pub(crate) fn sharing(other: &Harness) -> Harness {
        Harness {
            volume: Arc::clone(&other.volume),
            env: other.env.clone(),
            options: other.options.clone(),
            lsm: Arc::clone(&other.lsm),
            model: other.model.clone(),
            seqno: other.seqno,
            edits: Vec::new(),
            liveness: BTreeMap::new(),
            keys: other.keys,
            deletes: other.deletes,
            checks: false,
        }
    }

    pub(crate) fn key(&self, n: u64) -> Bytes {
        match n {
            0 => Bytes::new(),
            n if n % 17 == 0 => Bytes::from(format!("key{n:04}{}", "x".repeat((n % 60) as usize))),
            n => Bytes::from(format!("key{n:04}")),
        }
    }

    pub(crate) fn random_key(&self, random: &mut Random) -> Bytes {
        self.key(random.below(self.keys))
    }

    pub(crate) fn random_value(&self, random: &mut Random) -> EntryValue {
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
    pub(crate) fn random_run(&mut self, random: &mut Random, ops: u64) -> (VecRun, Model) {
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
    pub(crate) fn flush(&mut self, random: &mut Random, ops: u64, apply: bool) {
        let (mut run, after) = self.random_run(random, ops);
        let change = self.lsm.write_run(&mut run).unwrap();
        let newest = run.entries.iter().map(|(_, seqno, _)| *seqno);
        let newest = newest.chain(run.ranges.iter().map(|t| t.seqno)).max();
        assert_eq!(change.seqno_max, newest.unwrap_or(SeqNum::ZERO));
        if apply {
            self.apply(&change);
            self.model = after;
        } else {
            self.lsm.abandon(change);
        }
    }

    /// What the engine does with a change.
    pub(crate) fn apply(&mut self, change: &IndexChange) {
        if self.checks {
            assert!(self.volume_has(change));
        }
        for delta in &change.liveness {
            assert_ne!(delta.bytes, 0);
            *self.liveness.entry(delta.segment).or_default() += delta.bytes;
        }
        if !change.edit.is_empty() {
            Lsm::table_changes(&change.edit).unwrap();
            self.edits.push(change.edit.clone());
        }
        self.lsm.apply(change).unwrap();
        if self.checks {
            self.check_shape();
        }
    }

    /// A change's files must survive a power cut that loses everything not synced.
    fn volume_has(&self, change: &IndexChange) -> bool {
        let after = self.volume.crash(glintdb_simdisk::CrashMode::LoseUnsynced);
        let there: BTreeSet<FileId> = after.list().unwrap().into_iter().collect();
        let edit = Edit::decode(&change.edit).unwrap();
        edit.new_files().all(|file| there.contains(&file))
    }

    /// Runs a job to its end and applies what it gives.
    pub(crate) fn finish(&mut self, mut job: Box<dyn IndexJob>) {
        loop {
            match job.step().unwrap() {
                JobStep::More => {}
                JobStep::Done(change) => return self.apply(&change),
            }
        }
    }

    /// Runs compactions until none is due.
    pub(crate) fn settle(&mut self) {
        while let Some(job) = self.lsm.pick_job() {
            self.finish(job);
        }
        assert!(!self.lsm.busy());
    }

    /// As `compact()` does.
    pub(crate) fn compact(&mut self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        while let Some(job) = self.lsm.pick_full_compaction(lower, upper) {
            self.finish(job);
        }
        assert!(!self.lsm.busy());
    }

    pub(crate) fn set_floor(&self, floor: u64) {
        self.env.tombstone_floor.fetch_max(floor, Ordering::AcqRel);
    }

    /// A new index from the manifest.
    pub(crate) fn reopen(&mut self, snapshot: bool) {
        if snapshot {
            self.edits = vec![self.lsm.snapshot_edit()];
        }
        self.lsm = Lsm::open(self.env.clone(), self.options.clone(), &self.edits).unwrap();
        assert!(!self.lsm.busy());
        self.check_shape();
    }

    /// Invariants of the levels, files and liveness.
    pub(crate) fn check_shape(&self) {
        let view = self.lsm.view_for_tests();
        let mut pointed: BTreeMap<SegmentId, i64> = BTreeMap::new();
        for pair in view.levels.runs.windows(2) {
            assert!(pair[0].id > pair[1].id);
        }
        for (_, tables) in view.levels.sources() {
            for pair in tables.slots().windows(2) {
                assert!(!pair[0].range.overlaps(&pair[1].range));
            }
            for slot in tables.slots() {
                let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
                let mut cursor = slot
                    .table
                    .cursor(lower, upper, Direction::Forward, Purpose::Read);
                while cursor.advance().unwrap() {
                    assert!(slot.range.contains(cursor.key()));
                    if let EntryRef::Pointer(pointer) = cursor.value() {
                        *pointed.entry(pointer.segment).or_default() += i64::from(pointer.length);
                    }
                }
            }
        }
        let liveness = self.liveness.iter().filter(|(_, bytes)| **bytes != 0);
        assert_eq!(
            liveness.map(|(s, b)| (*s, *b)).collect::<BTreeMap<_, _>>(),
            pointed
        );
        let named: BTreeSet<FileId> = self.lsm.files().into_iter().collect();
        let there: BTreeSet<FileId> = self.volume.list().unwrap().into_iter().collect();
        assert!(named.is_subset(&there));
    }

    /// Nothing is on the volume but what the index names.
    pub(crate) fn check_no_orphans(&self) {
        let named: BTreeSet<FileId> = self.lsm.files().into_iter().collect();
        let there: BTreeSet<FileId> = self.volume.list().unwrap().into_iter().collect();
        assert_eq!(named, there);
    }

    /// Everything a view can be asked, against a model.
    pub(crate) fn check_view(&self, view: &dyn IndexView, model: &Model, random: &mut Random) {
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
        // Live entries must come, and tombstones at or above the floor that no range tombstone hides; other tombstones may.
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
    pub(crate) fn check(&self, random: &mut Random) {
        let view = self.lsm.view();
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
