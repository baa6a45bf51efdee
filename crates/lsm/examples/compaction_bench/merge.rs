//! The merge against a plain one: a binary heap of keys over the same cursors, into the same table writer.

use super::{Timer, Values, compact, create_on, flush_run, keys};
use glintdb_cache::Cache;
use glintdb_core::index::Index;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{DbId, Direction, FileId, FileKind};
use glintdb_flash::{DataClass, DirOptions, DirVolume, Volume};
use glintdb_lsm::LsmOptions;
use glintdb_runs::table::{Purpose, Table, TableConfig, TableCursor, TableEnv, TableWriter};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;

const ROUNDS: usize = 3;

/// How the keys of several runs lie to each other.
#[derive(Clone, Copy)]
enum Shape {
    /// Equal runs of keys at random.
    Even(usize),
    /// One small run for so many large ones.
    OneTo(usize),
    /// Two runs that take turns after so many keys.
    Stretches(usize),
    /// Four runs over one that is so many times larger than each.
    FourOver(usize),
}

impl Shape {
    fn name(self) -> String {
        match self {
            Shape::Even(runs) => format!("{runs} equal runs"),
            Shape::OneTo(times) => format!("2 runs, 1:{times}"),
            Shape::Stretches(keys) => format!("2 runs, in turns of {keys}"),
            Shape::FourOver(times) => format!("4 runs over one of {times}"),
        }
    }

    /// Oldest first.
    fn runs(self, entries: usize) -> Vec<Vec<[u8; 16]>> {
        let sizes = match self {
            Shape::Even(runs) => vec![entries / runs; runs],
            Shape::OneTo(times) => vec![entries * times / (times + 1), entries / (times + 1)],
            Shape::Stretches(stretch) => return in_turns(entries, stretch),
            Shape::FourOver(times) => {
                let small = entries / (times + 4);
                vec![small * times, small, small, small, small]
            }
        };
        let seeds = 1..;
        (sizes.iter().zip(seeds))
            .map(|(&count, seed)| keys(count, seed, None))
            .collect()
    }
}

fn in_turns(entries: usize, stretch: usize) -> Vec<Vec<[u8; 16]>> {
    let all = keys(entries, 1, None);
    let mut runs = vec![Vec::new(); 2];
    for (at, part) in all.chunks(stretch).enumerate() {
        runs[at % 2].extend_from_slice(part);
    }
    runs
}

/// Merges the tables of `volume`, a run each, the newest with the greatest number; gives how many entries it wrote.
fn heap_merge(volume: &Arc<dyn Volume>, runs: u64) -> u64 {
    let env = Arc::new(TableEnv {
        volume: Arc::clone(volume),
        cache: Arc::new(Cache::new(0)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db: DbId([1; 16]),
        reads: None,
        remaps: false,
    });
    let id = |number| FileId::new(FileKind::Table, number);
    let mut sources: Vec<TableCursor> = (1..=runs)
        .rev()
        .map(|number| {
            let table = Table::open_file(&env, id(number)).unwrap();
            table.cursor(
                Unbounded,
                Unbounded,
                Direction::Forward,
                Purpose::Compaction,
            )
        })
        .collect();
    let hint = 1 << 20;
    let begin = |number| {
        let config = TableConfig::default();
        TableWriter::create(&env, id(number), DataClass::Flush, &config, hint).unwrap()
    };
    let mut heap = BinaryHeap::new();
    for (at, source) in sources.iter_mut().enumerate() {
        if source.advance().unwrap() {
            heap.push(Reverse((source.key().to_vec(), at)));
        }
    }
    let mut written = 0;
    let mut number = 1000;
    let mut writer = begin(number);
    let mut files = vec![id(number)];
    let mut last: Vec<u8> = Vec::new();
    let table_bytes = LsmOptions::default().table_bytes_target;
    while let Some(mut first) = heap.peek_mut() {
        let Reverse((key, at)) = &mut *first;
        let source = &mut sources[*at];
        if written == 0 || *key != last {
            if writer.estimated_bytes() >= table_bytes {
                number += 1;
                files.push(id(number));
                std::mem::replace(&mut writer, begin(number))
                    .finish()
                    .unwrap();
            }
            writer.add(key, source.seqno(), source.value()).unwrap();
            written += 1;
            last.clone_from(key);
        }
        if source.advance().unwrap() {
            key.clear();
            key.extend_from_slice(source.key());
        } else {
            PeekMut::pop(first);
        }
    }
    writer.finish().unwrap();
    drop(sources);
    for file in files {
        volume.delete(file).unwrap();
    }
    written
}

/// Nanoseconds of CPU an entry: of the plain merge, and of the engine's.
fn measure(runs: &[Vec<[u8; 16]>], values: Values, root: &Path) -> [f64; 2] {
    let total: usize = runs.iter().map(Vec::len).sum();
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let directory = tempfile::tempdir_in(root).unwrap();
        let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
        let volume = volume as Arc<dyn Volume>;
        let lsm = create_on(Arc::clone(&volume), None);
        for (number, keys) in (1..).zip(runs) {
            flush_run(&lsm, number, keys.clone(), values);
        }
        let tables: u32 = lsm
            .view()
            .stats()
            .levels
            .iter()
            .map(|level| level.parts)
            .sum();
        assert_eq!(tables as usize, runs.len(), "a run is a table");
        let timer = Timer::start();
        let written = heap_merge(&volume, runs.len() as u64);
        let plain = timer.seconds().1;
        let ((_, engine), _) = compact(&lsm);
        let entries: u64 = lsm
            .view()
            .stats()
            .levels
            .iter()
            .map(|level| level.entries)
            .sum();
        assert_eq!(entries, written, "both merge the same");
        for (times, seconds) in rounds.iter_mut().zip([plain, engine]) {
            times.push(seconds * 1e9 / total as f64);
        }
    }
    rounds.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    })
}

/// Those shapes whose names contain `only`.
pub(super) fn measure_all(entries: usize, root: &Path, only: &str) {
    let shapes = [
        Shape::Stretches(1000),
        Shape::Stretches(30),
        Shape::Even(2),
        Shape::OneTo(10),
        Shape::Even(4),
        Shape::FourOver(10),
        Shape::Even(16),
    ];
    println!(
        "ns of CPU an entry, millions of entries a second; {entries} entries of 16-byte keys\n{:<22} {:>28} {:>28}",
        "", "pointers: plain, engine", "100 B: plain, engine"
    );
    for shape in shapes
        .into_iter()
        .filter(|shape| shape.name().contains(only))
    {
        print!("{:<22}", shape.name());
        for (values, entries) in [
            (Values::Pointers, entries),
            (Values::Inline(100), entries / 3),
        ] {
            let [plain, engine] = measure(&shape.runs(entries), values, root);
            print!(
                " {plain:>7.0} {engine:>5.0} ({:>4.1} {:>4.1})",
                1e3 / plain,
                1e3 / engine
            );
        }
        println!();
    }
}
