//! Measured costs differ from the predictions of `advise` by three tenths at most.

use glintdb::advise::{Workload, predict};
use glintdb::{BTreeOptions, Db, IndexKind, KeyspaceOptions, Options, PinnedLevels};
use glintdb_flash::Volume;
use glintdb_simdisk::MemVolume;
use std::sync::Arc;

const RECORDS: u64 = 120_000;

/// Jobs run on the caller's thread, so every run writes the same.
fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(4 << 20)
        .replay_bytes_max(64 << 20)
        .background_threads(0)
}

fn open(options: Options) -> Db {
    let volume: Arc<dyn Volume> = MemVolume::new();
    options.open_volume(volume, crate::support::env()).unwrap()
}

/// Keys that look random, in a random order.
fn key(number: u64) -> [u8; 16] {
    let bytes = crate::support::pattern(number % RECORDS + 1, 16);
    bytes.try_into().unwrap()
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    *state >> 33
}

#[track_caller]
fn assert_near(what: &str, predicted: f64, measured: f64) {
    let ratio = (predicted + 0.02) / (measured + 0.02);
    assert!(
        (0.7..1.43).contains(&ratio),
        "{what}: {predicted:.3} predicted, {measured:.3} measured"
    );
}

/// Overwrites everything `times` times at random, and compares the prediction with what is
/// measured.
fn compare(keyspace: &KeyspaceOptions, value_bytes: usize, times: u64) {
    let workload = Workload::new(RECORDS as f64, 16.0, value_bytes as f64);
    let predicted = predict(&workload, &options(), keyspace).unwrap();
    let db = open(options());
    let own = db.create_keyspace("own", keyspace.clone()).unwrap();
    let stats = || {
        let stats = db.stats().keyspaces;
        stats
            .into_iter()
            .find(|keyspace| keyspace.name == "own")
            .unwrap()
    };
    let value = vec![b'v'; value_bytes];
    let mut state = 7;
    for number in 0..RECORDS {
        own.put(key(number), &value).unwrap();
    }
    db.flush().unwrap();
    let then = stats();
    for _ in 0..RECORDS * times {
        own.put(key(random(&mut state)), &value).unwrap();
    }
    let now = stats();
    let entry = now.index_bytes as f64 / now.index_entries as f64;
    let flushed = (now.flushed_entries - then.flushed_entries) as f64 * entry;
    let compacted = (now.compaction_written_bytes - then.compaction_written_bytes) as f64;
    let what = |what| format!("{what} of {keyspace:?} and {value_bytes} bytes");
    assert_near(
        &what("bytes written a byte flushed"),
        predicted.writes_of_a_flushed_byte,
        1.0 + compacted / flushed,
    );
    let record = (16 + value_bytes) as f64;
    let index = (flushed + compacted) / (RECORDS * times) as f64 / record;
    assert_near(
        &what("write amplification of the index"),
        predicted.write_amplification_index,
        index,
    );
    if keyspace.index == IndexKind::Lsm {
        let levels = now.levels.iter().filter(|level| level.level > 0);
        let levels = levels.filter(|level| level.tables > 0).count();
        assert!(
            levels.abs_diff(predicted.levels as usize) <= 1,
            "{levels} levels, {} predicted",
            predicted.levels
        );
    }

    // Reads of keys that are there, with the cache in its stride and nothing in memtables.
    db.flush().unwrap();
    let looks = || -> (u64, u64) {
        let by_reads = stats().lookups_by_reads;
        (0..)
            .zip(by_reads)
            .fold((0, 0), |(all, reads), (n, count)| {
                (all + count, reads + n * count)
            })
    };
    let mut read = || {
        let number = random(&mut state);
        assert!(own.get(key(number)).unwrap().is_some());
    };
    (0..20_000).for_each(|_| read());
    let (looks_before, reads_before) = looks();
    (0..20_000).for_each(|_| read());
    let (looks, reads) = looks();
    let only_reads = workload.mix(100.0, 0.0);
    let predicted = predict(&only_reads, &options(), keyspace).unwrap();
    assert_near(
        &what("index reads"),
        predicted.reads_mean,
        (reads - reads_before) as f64 / (looks - looks_before) as f64,
    );
    let now = stats();
    assert!(now.lookup_reads_max <= predicted.reads_max, "{predicted:?}");
    assert!(
        now.pinned_levels == predicted.pinned_levels,
        "{predicted:?}"
    );
    // Upper levels are now full, now almost empty.
    let pinned = now.pinned_index_bytes as f64;
    assert!(pinned <= predicted.pinned_bytes * 1.43, "{predicted:?}");
    drop(own);
    db.close().unwrap();
}

fn shape(size_ratio: u32, levels_max: u32, pinned: u8) -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default().pinned_levels(PinnedLevels::Levels(pinned));
    options.lsm.size_ratio = size_ratio;
    options.lsm.levels_max = levels_max;
    options.lsm.experiments.level0_runs_compact = 2;
    options
}

#[test]
fn writes_and_reads_are_as_predicted() {
    for (ratio, levels, pinned) in [(10, 6, 0), (4, 6, 2), (10, 1, 1)] {
        compare(&shape(ratio, levels, pinned), 50, 2);
    }
}

#[test]
fn writes_and_reads_of_trees_are_as_predicted() {
    for reshape in [false, true] {
        let btree = BTreeOptions::default().reshape(reshape);
        let keyspace = KeyspaceOptions::default().index(IndexKind::BTree);
        compare(&keyspace.btree(btree), 50, 4);
    }
}

/// What value GC moves under random overwrites, at several bounds of space.
#[test]
fn what_value_gc_writes_is_predicted() {
    const RECORDS: u64 = 24_000;
    const OVERWRITES: u64 = 4 * RECORDS;
    for bound in [1.6, 2.0] {
        let options = options().garbage_bytes_min(1 << 20).space_amp_max(bound);
        let workload = Workload::new(RECORDS as f64, 16.0, 1000.0).mix(0.0, 0.0);
        let predicted = predict(&workload, &options, &KeyspaceOptions::default()).unwrap();
        let db = open(options);
        let (value, mut state) = (vec![b'v'; 1000], 11);
        let mut overwrite = |times: u64| {
            for _ in 0..times {
                let number = random(&mut state) % RECORDS;
                db.put(key(number), &value).unwrap();
            }
            db.stats().log.relocated_bytes
        };
        let before = overwrite(4 * RECORDS);
        let moved = overwrite(OVERWRITES) - before;
        assert_near(
            &format!("values moved at {bound}"),
            predicted.write_amplification_gc,
            moved as f64 / (OVERWRITES * 1016) as f64,
        );
    }
}
