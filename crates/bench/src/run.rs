//! Runs workloads one after the other on one store and reports each.
//!
//! Thread safety: a [`Runner`] is driven by one thread and starts the workload's threads itself.
//!
//! Invariants:
//! 1. Bytes, CPU and memory of a report include settling when the workload writes; rate and latencies do not.
//! 2. After a workload that writes, a sample of what it wrote is looked up again before the report is given out.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::keys::KeySet;
use crate::machine::{self, DiskUse, Sample, Usage};
use crate::plan::{Plan, PlanConfig, delete_order};
use crate::report::Report;
use crate::rng::{Rng, mix64};
use crate::store::{Durability, Result, Store};
use crate::values::ValuePool;
use crate::worker::{Outcome, Shared, Worker, check_records};
use crate::workload::Workload;
use crate::zipf::Zipfian;

/// Records looked up again after a workload that writes.
const RECHECKED: u64 = 1000;

/// How workloads are run. [`Default`] is what the command line defaults to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Records of the database, 1 to 2^48.
    pub num: u64,
    /// Bytes of a key, at least 8.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Threads of the main operation.
    pub threads: usize,
    /// Records per commit in fills, `overwrite`, and the writer of `readwhilewriting`.
    pub batch_size: usize,
    /// Share of gets in `readrandomwriterandom`, 0 to 100.
    pub read_percent: u64,
    /// Keys per request in `multireadrandom`.
    pub multiget_size: usize,
    /// Records per scan in `seekrandom`.
    pub scan_length: usize,
    /// Operations of all threads in workloads other than fills; `None` is `num`, a tenth of it for scans, or
    /// no limit where there is a duration.
    pub ops: Option<u64>,
    /// Time limit of workloads other than fills, `warmup` and `deleterandom`.
    pub duration: Option<Duration>,
    /// Time for which such a workload runs before it is measured.
    pub warmup: Option<Duration>,
    /// Operations that such a workload runs before it is measured. With `warmup` as well, the
    /// warm-up ends at whichever comes first.
    #[serde(default)]
    pub warmup_ops: Option<u64>,
    /// What the store was opened with; reported, not enforced here.
    pub durability: Durability,
    /// Chooses keys, values and operations.
    pub seed: u64,
    /// Keyspaces over which `manykeyspaces` spreads its records.
    #[serde(default = "default_keyspaces")]
    pub keyspaces: usize,
}

/// As many as broke an engine's limits of descriptors and memory.
fn default_keyspaces() -> usize {
    300
}

impl Default for Config {
    fn default() -> Self {
        Self {
            num: 1_000_000,
            key_size: 16,
            value_size: 100,
            threads: 1,
            batch_size: 1,
            read_percent: 90,
            multiget_size: 64,
            scan_length: 50,
            ops: None,
            duration: None,
            warmup: None,
            warmup_ops: None,
            durability: Durability::default(),
            seed: 1,
            keyspaces: default_keyspaces(),
        }
    }
}

/// What is known about the records in the store, to be kept when a later process goes on with the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Records inserted by YCSB D and E beyond `num`.
    pub inserted: u64,
    /// Records deleted by `deleterandom`; 0 again after a fill.
    pub deleted: u64,
    /// Some of the deleted records may have come back.
    pub inexact: bool,
}

/// Runs workloads on a store.
pub struct Runner<'a> {
    store: &'a dyn Store,
    config: Config,
    keys: KeySet,
    /// The keys of `longkeys`.
    long_keys: KeySet,
    values: ValuePool,
    zipf: Zipfian,
    inserted: AtomicU64,
    contents: Contents,
    phase: u64,
}

impl<'a> Runner<'a> {
    /// A runner for a store with these contents (the default for an empty one, or a full one of `num` records).
    ///
    /// # Panics
    /// If `config` is outside its documented limits.
    #[must_use]
    pub fn new(store: &'a dyn Store, config: Config, contents: Contents) -> Self {
        assert!(config.threads > 0, "no threads");
        assert!(
            config.batch_size > 0 && config.multiget_size > 0,
            "empty requests"
        );
        assert!(config.read_percent <= 100, "read_percent above 100");
        assert!(config.keyspaces > 0, "no keyspaces");
        let keys = KeySet::new(config.num, config.key_size, config.seed);
        Self {
            store,
            long_keys: keys.clone().sharing(),
            keys,
            values: ValuePool::new(config.value_size, config.seed),
            zipf: Zipfian::new(config.num),
            inserted: AtomicU64::new(contents.inserted),
            contents,
            phase: contents.inserted,
            config,
        }
    }

    /// What the store holds now.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents {
            inserted: self.inserted.load(Ordering::Relaxed),
            ..self.contents
        }
    }

    /// The keys of a workload's records.
    fn keys(&self, workload: Workload) -> &KeySet {
        match workload {
            Workload::LongKeys => &self.long_keys,
            _ => &self.keys,
        }
    }

    /// Over how many keyspaces a workload spreads its records.
    fn keyspaces(&self, workload: Workload) -> Option<usize> {
        (workload == Workload::ManyKeyspaces).then_some(self.config.keyspaces)
    }

    /// Runs one workload.
    ///
    /// # Errors
    /// If the engine or reading the directory's disk use fails. Wrong answers are no error: the report has them.
    pub fn run(&mut self, workload: Workload) -> Result<Report> {
        let once = workload.is_compaction() || workload.is_apart() || workload.goes_through_once();
        let timed = !workload.is_fill() && !once;
        let (warmup, warmup_ops) = (self.config.warmup, self.config.warmup_ops);
        if timed && (warmup.is_some() || warmup_ops.is_some()) {
            self.drive(workload, 0..warmup_ops.unwrap_or(u64::MAX), warmup)?;
        }
        let (limit, duration) = self.limits(workload, timed);

        machine::reset_rss_peak();
        let disk_use = DiskUse::watch(self.store.dir())?;
        let written_before = self.store.written_bytes();
        let io_before = self.store.io();
        let before = Sample::now();
        let (main, writer) = match workload {
            Workload::Compact => (self.compact(|store| store.compact())?, None),
            Workload::CompactValues => (self.compact(|store| store.compact_values())?, None),
            // No record is read before all are put.
            _ if workload.is_apart() => {
                let num = self.config.num;
                let (mut both, _) = self.drive(workload, 0..num, None)?;
                let (mut reads, _) = self.drive(workload, num..limit, duration)?;
                let timeline = std::mem::take(&mut reads.timeline);
                both.timeline.append(&timeline, both.elapsed);
                both.elapsed += reads.elapsed;
                (merge(both, &reads), None)
            }
            _ => self.drive(workload, 0..limit, duration)?,
        };
        let running = before.until(&Sample::now());
        let io = self.store.io();
        if workload.writes() {
            self.store.settle()?;
        }
        let whole = before.until(&Sample::now());
        let rss_peak_bytes = machine::rss_peak_bytes();
        let most_on_disk = disk_use.most();
        let written_after = self.store.written_bytes();
        self.note_contents(workload, main.ops);

        let mut report = self.report(workload, &main, writer.as_ref(), running, whole)?;
        report.rss_peak_bytes = rss_peak_bytes;
        report.note_disk_use_max(most_on_disk);
        report.io = io.zip(io_before).map(|(io, before)| io.since(&before));
        report.written_by_engine_bytes = written_after
            .zip(written_before)
            .map(|(after, before)| after - before);
        if workload.writes() {
            self.recheck(workload, &main, &mut report)?;
        }
        // From now on there are more records than those that others count.
        self.contents.inexact |= workload.is_apart();
        Ok(report)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a benchmark measures wall-clock time"
    )]
    fn compact(&self, compact: impl Fn(&dyn Store) -> Result<()>) -> Result<Outcome> {
        let start = Instant::now();
        compact(self.store)?;
        let contents = self.contents();
        Ok(Outcome {
            ops: self.config.num + contents.inserted - contents.deleted,
            elapsed: start.elapsed(),
            ..Outcome::default()
        })
    }

    fn limits(&self, workload: Workload, timed: bool) -> (u64, Option<Duration>) {
        let num = self.config.num;
        if !timed {
            let limit = match workload {
                Workload::DeleteRandom | Workload::Queue | Workload::Window => {
                    self.config.ops.unwrap_or(num).min(num)
                }
                Workload::Warmup => num + self.contents().inserted,
                _ if workload.is_apart() => num + self.config.ops.unwrap_or(num),
                _ => num,
            };
            return (limit, None);
        }
        let limit = match (self.config.ops, self.config.duration) {
            (Some(ops), _) => ops,
            (None, Some(_)) => u64::MAX,
            (None, None) if matches!(workload, Workload::SeekRandom | Workload::E) => {
                num.div_ceil(10)
            }
            (None, None) => num,
        };
        (limit, self.config.duration)
    }

    /// Runs the threads of one phase, whose operations are those in `places`. The second outcome is
    /// that of the writer beside readers.
    #[allow(
        clippy::disallowed_methods,
        reason = "a benchmark measures wall-clock time with threads of its own"
    )]
    fn drive(
        &mut self,
        workload: Workload,
        places: Range<u64>,
        duration: Option<Duration>,
    ) -> Result<(Outcome, Option<Outcome>)> {
        self.phase += 1;
        let config = &self.config;
        let plan_config = PlanConfig {
            workload,
            num: config.num,
            threads: config.threads as u64,
            read_percent: config.read_percent,
            scan_length: config.scan_length,
            seed: config.seed,
            phase: self.phase,
        };
        let plan = Plan::new(plan_config, &self.zipf, &self.inserted);
        let puts_alone = workload.is_fill()
            || matches!(workload, Workload::Overwrite | Workload::ReadWhileWriting);
        let shared = Shared {
            store: self.store,
            keyspaces: self.keyspaces(workload),
            keys: self.keys(workload),
            values: &self.values,
            batch_size: if puts_alone { config.batch_size } else { 1 },
            multiget_size: if workload == Workload::MultiReadRandom {
                config.multiget_size
            } else {
                1
            },
            duration,
            missing_is_fine: (self.contents.deleted > 0 && !workload.is_apart())
                || workload.deletes(),
            stop: AtomicBool::new(false),
        };
        let has_writer = workload == Workload::ReadWhileWriting;
        let compacts = workload == Workload::AWhileCompacting;
        // One start for all: a thread that is scheduled late makes the phase longer, not shorter.
        let start = OnceLock::new();
        let barrier = Barrier::new(config.threads + usize::from(has_writer || compacts));
        let guarded = |is_writer: bool, thread: u64| -> Result<Outcome> {
            let worker = Worker::new(&shared);
            barrier.wait();
            let start = *start.get_or_init(Instant::now);
            let outcome = worker.and_then(|worker| {
                if is_writer {
                    worker.run_writer(plan.writer(), start)
                } else {
                    worker.run(plan.thread(thread, places.clone()), start)
                }
            });
            if outcome.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            outcome
        };
        std::thread::scope(|scope| {
            let writer = has_writer.then(|| scope.spawn(|| guarded(true, 0)));
            let store = self.store;
            let compaction = compacts.then(|| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    store.compact_values()
                })
            });
            let threads: Vec<_> = (0..plan_config.threads)
                .map(|thread| {
                    let guarded = &guarded;
                    scope.spawn(move || guarded(false, thread))
                })
                .collect();
            // All readers end before the writer is told to, whether they returned or panicked.
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            shared.stop.store(true, Ordering::Relaxed);
            let mut main = Outcome::default();
            let mut failed = None;
            for outcome in ended.into_iter().map(unwind) {
                match outcome {
                    Ok(outcome) => main = merge(main, &outcome),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            let writer = writer.map(|writer| unwind(writer.join())).transpose()?;
            if let Some(compaction) = compaction {
                unwind(compaction.join())?;
            }
            failed.map_or(Ok((main, writer)), Err)
        })
    }

    fn note_contents(&mut self, workload: Workload, ops: u64) {
        match workload {
            workload if workload.is_fill() => {
                self.contents.deleted = 0;
                self.contents.inexact = false;
            }
            Workload::DeleteRandom => {
                self.contents.inexact |= self.contents.deleted > 0 && self.contents.deleted != ops;
                self.contents.deleted = self.contents.deleted.max(ops);
            }
            workload if workload.deletes() => {
                // Inserted records may be among those that were deleted.
                self.inserted.store(0, Ordering::Relaxed);
                self.contents.inexact = true;
                self.contents.deleted = self.contents.deleted.max(1);
            }
            workload if workload.writes() && self.contents.deleted > 0 => {
                self.contents.inexact = true;
            }
            _ => {}
        }
    }

    fn report(
        &self,
        workload: Workload,
        main: &Outcome,
        writer: Option<&Outcome>,
        running: Usage,
        whole: Usage,
    ) -> Result<Report> {
        let config = &self.config;
        let elapsed_s = main.elapsed.as_secs_f64().max(1e-9);
        let mut tally = main.tally;
        let mut writes = main.writes.clone();
        if let Some(writer) = writer {
            tally.add(&writer.tally);
            writes.add(&writer.writes);
        }
        let writes = writes.summary();
        let reads = main.reads.summary();
        let all_ops = main.ops + writer.map_or(0, |writer| writer.ops);
        let writes_beside_reads = reads
            .and(writes)
            .map(|writes| writer.map_or(writes.calls, |writer| writer.ops) as f64 / elapsed_s);
        let record_bytes = (config.key_size + config.value_size) as u64;
        let contents = self.contents();
        let live_bytes = (config.num + contents.inserted - contents.deleted) * record_bytes;
        let disk_use_bytes = machine::disk_use_bytes(self.store.dir())?;
        let cpu_s = whole.cpu_s;
        Ok(Report {
            engine: self.store.engine().to_owned(),
            workload: workload.name().to_owned(),
            num: config.num,
            key_size: config.key_size,
            value_size: config.value_size,
            threads: config.threads,
            batch_size: config.batch_size,
            durability: config.durability,
            ops: main.ops,
            elapsed_s,
            ops_per_s: main.ops as f64 / elapsed_s,
            mb_per_s: (tally.read_bytes + tally.written_bytes) as f64 / 1e6 / elapsed_s,
            latency: reads.or(writes).unwrap_or_default(),
            write_latency: reads.and(writes),
            writes_per_s: writes_beside_reads,
            cpu_s,
            cpu_us_per_op: cpu_s * 1e6 / all_ops.max(1) as f64,
            rss_peak_bytes: 0,
            disk_written_bytes: whole.written_bytes,
            disk_read_bytes: whole.read_bytes,
            settle_s: whole.elapsed_s - running.elapsed_s,
            write_amp_host: (tally.written_bytes > 0)
                .then(|| whole.written_bytes as f64 / tally.written_bytes as f64),
            written_by_engine_bytes: None,
            io: None,
            written_user_bytes: tally.written_bytes,
            disk_use_bytes,
            disk_use_max_bytes: disk_use_bytes,
            ops_by_second: main.timeline.by_second().to_vec(),
            space_amp_max: None,
            space_amp: (live_bytes > 0 && !contents.inexact)
                .then(|| disk_use_bytes as f64 / live_bytes as f64),
            longest_stall_ms: if config.threads == 1 {
                reads
                    .or(writes)
                    .map_or(0.0, |latency| latency.max_us / 1000.0)
            } else {
                main.timeline.longest_gap_ms() as f64
            },
            others_cpu_share: running.others_share,
            values_checked: tally.checked,
            records_missing: tally.missing,
            records_wrong: tally.wrong,
        })
    }

    /// Looks up a sample of what a workload wrote or deleted, and of what was inserted.
    fn recheck(&self, workload: Workload, main: &Outcome, report: &mut Report) -> Result<()> {
        let config = &self.config;
        let shared = Shared {
            store: self.store,
            keyspaces: self.keyspaces(workload),
            keys: self.keys(workload),
            values: &self.values,
            batch_size: 1,
            multiget_size: 1,
            duration: None,
            missing_is_fine: false,
            stop: AtomicBool::new(false),
        };
        let mut rng = Rng::new(config.seed ^ mix64(self.phase), u64::MAX);
        let mut found = Vec::new();
        if workload == Workload::DeleteRandom {
            let order = delete_order(config.num, config.seed);
            let deleted = (0..RECHECKED.min(main.ops)).map(|_| order.at(rng.below(main.ops)));
            found.push(check_records(&shared, deleted, false)?);
        } else if self.contents.deleted == 0 || workload.is_apart() {
            let loaded = (0..RECHECKED.min(config.num)).map(|_| rng.below(config.num));
            found.push(check_records(&shared, loaded, true)?);
        }
        let inserted = self.contents().inserted;
        if inserted > 0 && !workload.is_apart() {
            let fresh = (0..RECHECKED.min(inserted)).map(|_| config.num + rng.below(inserted));
            found.push(check_records(&shared, fresh, true)?);
        }
        for tally in found {
            report.values_checked += tally.checked;
            report.records_missing += tally.missing;
            report.records_wrong += tally.wrong;
        }
        Ok(())
    }
}

fn unwind<T>(ended: std::thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn merge(mut all: Outcome, one: &Outcome) -> Outcome {
    all.reads.add(&one.reads);
    all.writes.add(&one.writes);
    all.ops += one.ops;
    all.elapsed = all.elapsed.max(one.elapsed);
    all.timeline.add(&one.timeline);
    all.tally.add(&one.tally);
    all
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
