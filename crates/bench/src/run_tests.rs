//! The runner against a map in memory, honest and not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::RwLock;
use std::time::Duration;

use super::*;
use crate::store::Handle;

/// How the store under test cheats.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    DropsEverySeventhPut,
    ReturnsAnotherValue,
    IgnoresDeletes,
    Fails,
}

struct MapStore {
    dir: tempfile::TempDir,
    map: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    puts: AtomicU64,
    commits: AtomicU64,
    compactions: AtomicU64,
    fault: Fault,
}

impl MapStore {
    fn new(fault: Fault) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            map: RwLock::default(),
            puts: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            fault,
        }
    }

    fn insert(&self, key: &[u8], value: &[u8]) {
        let n = self.puts.fetch_add(1, Ordering::Relaxed);
        if self.fault != Fault::DropsEverySeventhPut || !n.is_multiple_of(7) {
            self.map
                .write()
                .unwrap()
                .insert(key.to_vec(), value.to_vec());
        }
    }
}

impl Store for MapStore {
    fn engine(&self) -> &str {
        "map"
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(MapHandle(self)))
    }

    fn compact_values(&self) -> Result<()> {
        self.compactions.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Fails => Err("the disk is on fire".into()),
            _ => Ok(()),
        }
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

struct MapHandle<'a>(&'a MapStore);

impl Handle for MapHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.0.fault == Fault::Fails {
            return Err("the disk is on fire".into());
        }
        self.0.commits.fetch_add(1, Ordering::Relaxed);
        self.0.insert(key, value);
        Ok(())
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.0.commits.fetch_add(1, Ordering::Relaxed);
        for (key, value) in records {
            self.0.insert(key, value);
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        if self.0.fault != Fault::IgnoresDeletes {
            self.0.map.write().unwrap().remove(key);
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.0.map.read().unwrap();
        let value = if self.0.fault == Fault::ReturnsAnotherValue {
            map.range(key.to_vec()..).nth(1).map(|(_, value)| value)
        } else {
            map.get(key)
        };
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let map = self.0.map.read().unwrap();
        let mut found = 0;
        for (key, value) in map.range(from.to_vec()..).take(limit) {
            visit(key, value);
            found += 1;
        }
        Ok(found)
    }
}

fn config(threads: usize) -> Config {
    Config {
        num: 2000,
        threads,
        ..Config::default()
    }
}

#[test]
fn an_honest_store_passes_every_workload() {
    for threads in [1, 3] {
        let store = MapStore::new(Fault::None);
        let mut runner = Runner::new(&store, config(threads), Contents::default());
        let fills = [Workload::FillSeq, Workload::FillRandom];
        let shared = Workload::ALL.into_iter().filter(|w| !w.is_apart());
        let (deleting, rest): (Vec<_>, Vec<_>) = shared.partition(|w| w.deletes());
        let mut run = |workload: Workload| {
            let report = runner.run(workload).unwrap();
            assert!(report.is_correct(), "{report:?}");
            assert!(report.ops > 0 && report.ops_per_s > 0.0, "{report:?}");
            assert!(report.row().starts_with(workload.name()));
        };
        fills.into_iter().chain(rest).for_each(&mut run);
        run(Workload::DeleteRandom);
        let contents = runner.contents();
        assert_eq!(contents.deleted, 2000);
        assert!(contents.inserted > 50, "{contents:?}");
        // Deletions leave what D and E inserted.
        assert_eq!(store.map.read().unwrap().len() as u64, contents.inserted);
        for workload in deleting {
            for workload in [Workload::FillRandom, workload] {
                let report = runner.run(workload).unwrap();
                assert!(report.is_correct() && report.ops == 2000, "{report:?}");
            }
        }
    }
}

#[test]
fn workloads_with_records_of_their_own_put_and_read_them() {
    for workload in [Workload::LongKeys, Workload::ManyKeyspaces] {
        let store = MapStore::new(Fault::None);
        let long = Config {
            key_size: 5000,
            ops: Some(1000),
            ..config(3)
        };
        let mut runner = Runner::new(&store, long, Contents::default());
        let report = runner.run(workload).unwrap();
        assert!(report.is_correct(), "{report:?}");
        assert_eq!((report.ops, store.map.read().unwrap().len()), (3000, 2000));
        assert!(report.write_latency.is_some());
        let cheat = MapStore::new(Fault::DropsEverySeventhPut);
        let mut runner = Runner::new(&cheat, config(2), Contents::default());
        assert!(!runner.run(workload).unwrap().is_correct());
    }
}

#[test]
fn fills_leave_the_same_database_in_any_order_and_batch() {
    let seq = MapStore::new(Fault::None);
    Runner::new(&seq, config(1), Contents::default())
        .run(Workload::FillSeq)
        .unwrap();
    let random = MapStore::new(Fault::None);
    let batches = Config {
        batch_size: 100,
        ..config(3)
    };
    let report = Runner::new(&random, batches, Contents::default())
        .run(Workload::FillRandom)
        .unwrap();
    assert_eq!(report.ops, 2000);
    // 667 records a thread make 7 commits.
    assert_eq!(random.commits.load(Ordering::Relaxed), 21);
    assert_eq!(*seq.map.read().unwrap(), *random.map.read().unwrap());
    assert_eq!(seq.map.read().unwrap().len(), 2000);
}

#[test]
fn cheating_stores_are_found_out() {
    let wrong = |fault, workloads: &[Workload]| {
        let store = MapStore::new(fault);
        let mut runner = Runner::new(&store, config(2), Contents::default());
        let reports = workloads.iter().map(|w| runner.run(*w).unwrap());
        let last = reports.last().unwrap();
        assert!(!last.is_correct(), "{last:?}");
        assert!(last.row().contains("WRONG"));
    };
    let fill_then = |workload| [Workload::FillRandom, workload];
    wrong(Fault::DropsEverySeventhPut, &[Workload::FillRandom]);
    wrong(
        Fault::DropsEverySeventhPut,
        &fill_then(Workload::MultiReadRandom),
    );
    wrong(
        Fault::DropsEverySeventhPut,
        &fill_then(Workload::SeekRandom),
    );
    wrong(Fault::DropsEverySeventhPut, &[Workload::Load, Workload::D]);
    wrong(Fault::ReturnsAnotherValue, &fill_then(Workload::ReadRandom));
    wrong(
        Fault::ReturnsAnotherValue,
        &fill_then(Workload::ReadMissing),
    );
    wrong(Fault::IgnoresDeletes, &fill_then(Workload::DeleteRandom));
}

#[test]
fn an_engines_error_ends_the_workload() {
    let store = MapStore::new(Fault::Fails);
    let endless = Config {
        ops: Some(1 << 40),
        ..config(4)
    };
    let mut runner = Runner::new(&store, endless, Contents::default());
    let error = runner.run(Workload::FillRandom).unwrap_err();
    assert_eq!(error.to_string(), "the disk is on fire");
    assert!(runner.run(Workload::ReadWhileWriting).is_err());
}

#[test]
fn time_and_operation_limits_hold() {
    let store = MapStore::new(Fault::None);
    let limited = Config {
        duration: Some(Duration::from_millis(60)),
        warmup: Some(Duration::from_millis(20)),
        ..config(2)
    };
    let mut runner = Runner::new(&store, limited, Contents::default());
    assert_eq!(runner.run(Workload::FillRandom).unwrap().ops, 2000);
    let report = runner.run(Workload::ReadWhileWriting).unwrap();
    assert!(
        report.ops > 0 && (0.06..2.0).contains(&report.elapsed_s),
        "{report:?}"
    );
    assert!(report.writes_per_s.unwrap() > 0.0 && report.write_latency.is_some());

    let counted = Config {
        ops: Some(501),
        ..config(2)
    };
    let mut runner = Runner::new(&store, counted, Contents::default());
    assert_eq!(runner.run(Workload::ReadRandom).unwrap().ops, 501);
    assert_eq!(runner.run(Workload::MultiReadRandom).unwrap().ops, 501);
}

#[test]
fn warmup_operations_are_written_and_not_counted() {
    let store = MapStore::new(Fault::None);
    let warmed = Config {
        batch_size: 1,
        ops: Some(200),
        warmup_ops: Some(300),
        ..config(2)
    };
    let mut runner = Runner::new(&store, warmed.clone(), Contents::default());
    // A fill has no warm-up.
    assert_eq!(runner.run(Workload::FillRandom).unwrap().ops, 2000);
    assert_eq!(store.puts.load(Ordering::Relaxed), 2000);
    assert_eq!(runner.run(Workload::Overwrite).unwrap().ops, 200);
    assert_eq!(store.puts.load(Ordering::Relaxed), 2500);

    // With a time limit as well, whichever comes first ends the warm-up.
    let timed = Config {
        warmup: Some(Duration::ZERO),
        ..warmed
    };
    let mut runner = Runner::new(&store, timed, Contents::default());
    assert_eq!(runner.run(Workload::Overwrite).unwrap().ops, 200);
    assert_eq!(store.puts.load(Ordering::Relaxed), 2700);
}

#[test]
fn reports_survive_json() {
    let store = MapStore::new(Fault::None);
    let mut runner = Runner::new(&store, config(1), Contents::default());
    let report = runner.run(Workload::FillRandom).unwrap();
    let json = serde_json::to_string(&report).unwrap();
    let back: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(back.row(), report.row());
    assert_eq!(back.durability, Durability::Os);
}

#[test]
fn one_thread_compacts_once_while_the_others_read_and_update() {
    let store = MapStore::new(Fault::None);
    let mut runner = Runner::new(&store, config(2), Contents::default());
    runner.run(Workload::FillRandom).unwrap();
    let (puts, report) = (store.puts.load(Ordering::Relaxed), {
        let report = runner.run(Workload::AWhileCompacting);
        report.unwrap()
    });
    assert_eq!(store.compactions.load(Ordering::Relaxed), 1);
    assert!(report.is_correct());
    let updates = store.puts.load(Ordering::Relaxed) - puts;
    assert!(
        (800..1200).contains(&updates),
        "{updates} of {}",
        report.ops
    );
    let store = MapStore::new(Fault::Fails);
    let mut runner = Runner::new(&store, config(1), Contents::default());
    assert!(runner.run(Workload::AWhileCompacting).is_err());
}

#[test]
fn compactions_tell_the_times_of_their_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = crate::GlintOptions::default();
    options.set_memory_bytes(8 << 20);
    let assignments = "background_threads=0 index=btree read_engine=sync log_segment_bytes=1m";
    options.set_all(assignments.split(' ')).unwrap();
    let name = "glintdb";
    let store = crate::GlintStore::open(name, dir.path(), Durability::Os, options).unwrap();
    let config = Config {
        num: 4000,
        value_size: 4096,
        ..Config::default()
    };
    let mut runner = Runner::new(&store, config, Contents::default());
    runner.run(Workload::FillRandom).unwrap();
    assert!(crate::make_cold(dir.path()).unwrap() > 4000 * 4096);
    let report = runner.run(Workload::CompactValues).unwrap();
    let io = report.io.unwrap();
    // Each value is written once, and read once with the blocks around it. Nothing of the fill
    // counts.
    let values = 4000 * 4096;
    assert!((values..4 * values).contains(&io.read_bytes), "{io:?}");
    assert!((values..2 * values).contains(&io.written_bytes), "{io:?}");
    assert!(
        io.read_us > 0 && io.write_us > 0 && io.sync_us > 0,
        "{io:?}"
    );
    let waited = (io.read_us + io.write_us + io.sync_us) as f64 / 1e6;
    assert!(
        waited <= report.elapsed_s,
        "{io:?} in {} s",
        report.elapsed_s
    );
    assert!(report.row().contains("  of "), "{}", report.row());
    assert!(
        !runner
            .run(Workload::ReadRandom)
            .unwrap()
            .row()
            .contains("  of ")
    );
}
