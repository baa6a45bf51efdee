//! Power cuts and I/O errors at every operation of flushes and compactions: a change that is not in
//! the manifest leaves no effect, its files can be told from those that are named, and an error
//! leaves nothing behind.

use crate::{Harness, Kind, Random, env};
use glintdb_core::index::{Index, IndexJob, JobStep};
use glintdb_core::{FileId, Result};
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, Fault, FaultKind};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Two runs over a compacted base: enough for a compaction with several outputs.
fn prepared<K: Kind>(options: &K::Options) -> (Harness<K>, Random) {
    let mut harness = Harness::new(options.clone());
    let mut random = Random(11);
    for _ in 0..3 {
        harness.flush(&mut random, 150, true);
    }
    harness.settle();
    for _ in 0..2 {
        harness.flush(&mut random, 150, true);
    }
    (harness, random)
}

/// Opens the files that a power cut left, removes those that the manifest does not name, as the
/// engine does, and checks everything.
fn check_after_cut<K: Kind>(harness: &Harness<K>, mode: CrashMode, random: &mut Random) {
    let volume = harness.volume.crash(mode);
    let env = glintdb_runs::IndexEnv {
        tombstone_floor: Arc::clone(&harness.env.tombstone_floor),
        reads: None,
        ..env(&volume)
    };
    let index = K::open(env.clone(), harness.options.clone(), &harness.edits).unwrap();
    let named: BTreeSet<FileId> = index.files().into_iter().collect();
    for file in volume.list().unwrap() {
        if !named.contains(&file) {
            volume.delete(file).unwrap();
        }
    }
    let after: Harness<K> = Harness {
        volume,
        env,
        options: harness.options.clone(),
        index,
        model: harness.model.clone(),
        seqno: harness.seqno,
        edits: harness.edits.clone(),
        liveness: harness.liveness.clone(),
        keys: harness.keys,
        deletes: true,
        checks: true,
    };
    after.check_shape();
    after.check_no_orphans();
    after.check(random);
}

/// The job that compacts everything.
pub fn full_compaction(index: &dyn Index) -> Option<Box<dyn IndexJob>> {
    index.pick_full_compaction(Bound::Unbounded, Bound::Unbounded)
}

/// A power cut between any two steps of the job that `pick` chooses: what is not in the manifest
/// has no effect.
pub fn power_cut_before_the_manifest_leaves_no_effect<K: Kind>(
    options: &K::Options,
    pick: impl FnOnce(&dyn Index) -> Option<Box<dyn IndexJob>>,
) {
    let (mut harness, mut random) = prepared::<K>(options);
    let (mut run, after) = harness.random_run(&mut random, 150);
    let flushed = harness.index.write_run(&mut run).unwrap();
    let mut job = pick(&*harness.index);
    let mut step = 0u64;
    let compacted = loop {
        for mode in [
            CrashMode::LoseUnsynced,
            CrashMode::KeepUnsynced,
            CrashMode::Random { seed: step },
        ] {
            check_after_cut(&harness, mode, &mut random);
        }
        step += 1;
        match job.as_mut().unwrap().step().unwrap() {
            JobStep::More => {}
            JobStep::Done(change) if change.edit.is_empty() => {
                job = harness.index.pick_job();
            }
            JobStep::Done(change) => break change,
        }
    };
    // The manifest holds the compaction, and loses the flush.
    harness.apply(&compacted);
    check_after_cut(&harness, CrashMode::LoseUnsynced, &mut random);
    // And then the flush.
    harness.apply(&flushed);
    harness.model = after;
    check_after_cut(&harness, CrashMode::LoseUnsynced, &mut random);
}

/// What the engine does between two looks at the world; gives up at the first error.
fn work<K: Kind>(harness: &mut Harness<K>, random: &mut Random) -> Result<()> {
    let (mut run, after) = harness.random_run(random, 150);
    let change = harness.index.write_run(&mut run)?;
    harness.apply(&change);
    harness.model = after;
    while let Some(mut job) = harness.index.pick_job() {
        loop {
            match job.step()? {
                JobStep::More => {}
                JobStep::Done(change) => {
                    harness.apply(&change);
                    break;
                }
            }
        }
    }
    Ok(())
}

/// An error of each operation of a flush and of the compactions behind it.
pub fn error_at_every_operation_leaves_nothing_behind<K: Kind>(options: &K::Options) {
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::SyncLosesData] {
        let mut hit = 0;
        for at in 0.. {
            let (mut harness, mut random) = prepared::<K>(options);
            // Only what is done from here on; checks between are not to be hit.
            let done = harness.volume.operation_count();
            let fault = Fault {
                at_operation: done + at,
                kind,
                sticky: false,
            };
            harness.checks = false;
            harness.volume.fail(fault);
            let result = work(&mut harness, &mut random);
            let ran = harness.volume.operation_count() - done;
            harness.volume.clear_faults();
            harness.checks = true;
            harness.check_shape();
            harness.check(&mut random);
            // A file whose removal was what failed stays until the next open removes it.
            if result.is_err() {
                hit += 1;
                assert!(!harness.index.busy());
                harness.check_no_orphans();
            }
            check_after_cut(&harness, CrashMode::LoseUnsynced, &mut random);
            // After a failed sync of the directory nothing is durable until the next open.
            if harness.volume.sync_directory().is_ok() {
                harness.settle();
                harness.check(&mut random);
            }
            if at >= ran {
                break;
            }
        }
        assert!(hit > 3, "{kind:?} hit {hit} times");
    }
}
