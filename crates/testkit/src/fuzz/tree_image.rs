//! A B+tree index on a volume in memory: its files and the edit that names them, damaged as an
//! input says.
//!
//! Thread safety: what is made once a process is immutable.

use super::golden::{Checksums, DB};
use super::input::{Input, Output};
use bytes::Bytes;
use glintdb::{BTreeExperiments, BTreeOptions};
use glintdb_btree::BTree;
use glintdb_cache::Cache;
use glintdb_core::index::{Index, IndexChange, JobStep, SortedRun};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{
    EntryRef, EntryValue, FileId, FileKind, FileNumbers, RangeTombstone, Result, SegmentId, SeqNum,
    ValuePointer,
};
use glintdb_flash::Volume;
use glintdb_runs::IndexEnv;
use glintdb_simdisk::{Contents, MemOptions, MemVolume};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The edit, among the files: it is damaged like them. It has no checksum of its own.
const EDIT: FileId = FileId {
    kind: FileKind::Reserve,
    number: 1,
};
const BLOCK: usize = 4096;

pub(super) type Entries = BTreeMap<Vec<u8>, (SeqNum, EntryValue)>;

struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A run in memory.
#[derive(Default)]
pub(super) struct MemRun {
    pub(super) entries: Vec<(Vec<u8>, SeqNum, EntryValue)>,
    pub(super) ranges: Vec<RangeTombstone>,
    given: usize,
}

impl SortedRun for MemRun {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let entry = self.entries.get(self.given);
        self.given += 1;
        Ok(entry.map(|(key, seqno, value)| (&key[..], *seqno, value.as_ref())))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.ranges
    }

    fn entries_hint(&self) -> usize {
        self.entries.len()
    }
}

/// Options with which a settling of two runs takes several slices.
pub(super) fn options() -> BTreeOptions {
    let mut options = BTreeOptions::default();
    options.experiments = BTreeExperiments::default()
        .shelf_runs_settle(2)
        .slice_bytes(16 << 10)
        .leaf_batch(3);
    options
}

/// What an index on this volume is given. New files get numbers from `number_next` on.
pub(super) fn env(volume: &Arc<MemVolume>, number_next: u64) -> IndexEnv {
    IndexEnv {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        cache: Arc::new(Cache::new(64 << 10)),
        memory: Arc::new(MemoryBudget::new(1 << 20)),
        db: DB,
        numbers: Arc::new(Numbers(number_next.into())),
        run_bytes: 16 << 10,
        tombstone_floor: Arc::new(AtomicU64::new(u64::MAX)),
        reads: None,
    }
}

/// An index as it is before any damage.
pub(super) struct Whole {
    files: BTreeMap<FileId, Vec<u8>>,
    checksums: Checksums,
    /// What it has, without what is deleted.
    pub(super) entries: Entries,
    /// Every key that was ever put.
    pub(super) keys: Vec<Vec<u8>>,
}

pub(super) const WHOLES: usize = 4;

/// Fewer than [`WHOLES`]: 0 and 1 have everything in their trees, 2 has two levels of branches, 3
/// has runs on the shelf and is in the middle of a settling.
pub(super) fn whole(number: usize) -> &'static Whole {
    static ALL: LazyLock<Vec<Whole>> = LazyLock::new(|| (0..WHOLES).map(make).collect());
    &ALL[number % WHOLES]
}

fn make(number: usize) -> Whole {
    let volume = MemVolume::new();
    let index = BTree::create(env(&volume, 1), options()).expect("sound options");
    let apply = |change: IndexChange| index.apply(&change).expect("it fits");
    let slice = || {
        let mut job = index.pick_job().or_else(|| {
            let all = std::ops::Bound::Unbounded;
            index.pick_full_compaction(all, all)
        })?;
        loop {
            if let JobStep::Done(change) = job.step().expect("memory takes it") {
                return Some(change);
            }
        }
    };
    let mut entries = Entries::new();
    let mut seqno = 0;
    let mut keys = Vec::new();
    let (runs, records) = [(2, 240), (4, 300), (2, 900), (4, 900)][number];
    for round in 0..runs {
        let mut run = MemRun::default();
        for n in (0..records).filter(|n| n % (round + 1) == 0) {
            seqno += 1;
            // Separators are as short as they can be: long keys that differ at their ends alone
            // make branches of few children.
            let prefix = if number == 2 { 280 } else { 3 };
            let key = [&vec![b'k'; prefix][..], format!("{n:05}").as_bytes()].concat();
            let value = match (n + round) % 7 {
                0 => EntryValue::Tombstone,
                1 => EntryValue::Pointer(ValuePointer {
                    segment: SegmentId(1),
                    offset: 4096 + n,
                    length: 100 + n,
                    checksum: n,
                }),
                _ => EntryValue::Inline(Bytes::from(vec![b'a' + (n % 26) as u8; 90])),
            };
            entries.insert(key.clone(), (SeqNum(seqno), value.clone()));
            run.entries.push((key, SeqNum(seqno), value));
        }
        if round == 1 {
            let (start, end) = (run.entries[10].0.clone(), run.entries[20].0.clone());
            run.ranges.push(RangeTombstone {
                start: start.clone().into(),
                end: Some(end.clone().into()),
                // Beneath the entries of its own run.
                seqno: SeqNum(seqno - u64::from(records)),
            });
            let hidden = |key: &[u8], at: SeqNum| {
                key >= &start[..] && key < &end[..] && at < SeqNum(seqno - u64::from(records))
            };
            entries.retain(|key, (at, _)| !hidden(key, *at));
        }
        apply(index.write_run(&mut run).expect("memory takes it"));
        let slices = if number % 2 == 1 && round == runs - 1 {
            1
        } else {
            100
        };
        let settles = number.is_multiple_of(2) || round % 2 == 1;
        for _ in 0..if settles { slices } else { 0 } {
            match slice() {
                Some(change) => apply(change),
                None => break,
            }
        }
    }
    keys.extend(entries.keys().cloned());
    entries.retain(|_, (_, value)| *value != EntryValue::Tombstone);
    let mut files = BTreeMap::new();
    for (id, bytes) in volume.contents().files {
        files.insert(id, bytes.to_vec());
    }
    files.insert(EDIT, index.snapshot_edit());
    Whole {
        checksums: Checksums::of(&files),
        files,
        entries,
        keys,
    }
}

/// A damaged index.
pub(super) struct Image {
    pub(super) whole: &'static Whole,
    pub(super) volume: Arc<MemVolume>,
    pub(super) edit: Vec<u8>,
    pub(super) bytes: usize,
    /// Whether anything is damaged.
    pub(super) changed: bool,
    /// Whether damage has right checksums. The edit has none here.
    pub(super) forged: bool,
}

impl Image {
    /// The index of the input's first byte, changed by the others.
    pub(super) fn build(data: &[u8]) -> Image {
        let mut input = Input::new(data);
        let mode = input.u8();
        let whole = whole(usize::from(mode & 3));
        let fixed = mode & 4 != 0;
        let mut files = whole.files.clone();
        while !input.is_empty() {
            step(&mut files, &mut input);
        }
        let changed = files != whole.files;
        if fixed {
            whole.checksums.fix(&mut files);
        }
        let edit = files.remove(&EDIT).unwrap_or_default();
        let forged = changed && (fixed || edit != whole.files[&EDIT]);
        let files = files.into_iter().map(|(id, bytes)| (id, bytes.into()));
        let contents = Contents {
            files: files.collect(),
            ring: None,
        };
        let volume = MemVolume::of_contents(&contents, MemOptions::default());
        Image {
            whole,
            volume: volume.expect("memory takes it"),
            bytes: contents.bytes() as usize,
            edit,
            changed,
            forged,
        }
    }
}

/// One damage. Every third one hits the edit, which is small.
fn step(files: &mut BTreeMap<FileId, Vec<u8>>, input: &mut Input<'_>) {
    let (kind, file) = (input.u8(), usize::from(input.u8()));
    let (wish, with) = (usize::from(input.u16()), input.bytes());
    let ids: Vec<FileId> = files.keys().copied().collect();
    let id = match file % 3 {
        0 => EDIT,
        _ => ids[file / 3 % ids.len()],
    };
    let other = ids[wish % ids.len()];
    let of_other = files.get(&other).cloned().unwrap_or_default();
    let bytes = files.entry(id).or_default();
    // Most of a file is zeros.
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let at = used.get(wish % used.len().max(1)).copied().unwrap_or(0);
    match kind % 8 {
        0..=2 => put(bytes, at, with),
        3 => {
            for (byte, mask) in bytes.iter_mut().skip(at).zip(with) {
                *byte ^= mask;
            }
        }
        4 => bytes.truncate(at),
        5 => bytes.extend_from_slice(with),
        // A block of any file, where another one is.
        6 if id != EDIT => {
            let from = BLOCK * (usize::from(kind) / 8 % (of_other.len() / BLOCK).max(1));
            let block = of_other.get(from..from + BLOCK).unwrap_or_default();
            put(bytes, at / BLOCK * BLOCK, block);
        }
        6 => drop(bytes.splice(at..at, with.iter().copied())),
        _ if id != EDIT => drop(files.remove(&id)),
        _ => {
            let end = (at + 1 + usize::from(kind) / 8).min(bytes.len());
            drop(bytes.drain(at..end));
        }
    }
}

fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// Inputs to begin with: each index as it is, and each kind of damage, with checksums right and
/// wrong, to the edit and to files.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..WHOLES as u8).map(|number| vec![number]).collect();
    for kind in 0..24_u8 {
        for file in 0..3 {
            let mut out = Output::default();
            out.raw(&[
                4 * (kind & 1) + kind / 2 % 4,
                kind,
                kind * 7 % 80 * 3 + file,
            ]);
            out.raw(&(u16::from(kind) * 397).to_le_bytes());
            out.bytes(&[0xff, kind]);
            seeds.push(out.0);
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trees_have_leaves_branches_and_a_settling_under_way() {
        for number in 0..WHOLES {
            let whole = whole(number);
            let kinds = |kind| whole.files.keys().filter(|id| id.kind == kind).count();
            assert!(kinds(FileKind::Table) > 0 && kinds(FileKind::Tree) > 0);
            let mut fixed = whole.files.clone();
            whole.checksums.fix(&mut fixed);
            assert!(fixed == whole.files, "{number}");
            let image = Image::build(&[number as u8]);
            let edits = [image.edit.clone()];
            let index = BTree::open(env(&image.volume, 1000), options(), &edits).unwrap();
            let stats = index.view().stats();
            assert_eq!(stats.levels[0].parts > 0, number == 3, "{stats:?}");
            // Runs, and a leaf.
            let runs = if number == 3 { 2 } else { 0 };
            assert_eq!(stats.lookup_reads_max, runs + 1, "{stats:?}");
            // Several levels of branches, or one.
            assert_eq!(stats.levels[1].parts > 1, number == 2, "{stats:?}");
        }
    }
}
