//! Power cuts and I/O errors at every operation of flushes and compactions: a change not in the manifest leaves no effect, what it wrote can be told from what is named,
//! and an error leaves nothing behind.

use super::harness::{Harness, Random, env, small_options};
use crate::Lsm;
use glintdb_core::index::{Index, JobStep};
use glintdb_core::{FileId, Result};
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, Fault, FaultKind};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Two runs over a compacted base: enough for a compaction with several outputs.
fn prepared() -> (Harness, Random) {
    let mut harness = Harness::new(small_options());
    let mut random = Random(11);
    for _ in 0..3 {
        harness.flush(&mut random, 150, true);
    }
    harness.settle();
    harness.flush(&mut random, 150, true);
    (harness, random)
}

/// Opens what a power cut left, removes what the manifest does not name, as the engine does, and checks everything.
fn check_after_cut(harness: &Harness, mode: CrashMode, random: &mut Random) {
    let volume = harness.volume.crash(mode);
    let env = glintdb_runs::IndexEnv {
        tombstone_floor: Arc::clone(&harness.env.tombstone_floor),
        reads: None,
        ..env(&volume)
    };
    let lsm = Lsm::open(env.clone(), harness.options.clone(), &harness.edits).unwrap();
    let named: BTreeSet<FileId> = lsm.files().into_iter().collect();
    for file in volume.list().unwrap() {
        if !named.contains(&file) {
            volume.delete(file).unwrap();
        }
    }
    let after = Harness {
        volume,
        env,
        options: harness.options.clone(),
        lsm,
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

#[test]
fn power_cut_before_the_manifest_leaves_no_effect() {
    let (mut harness, mut random) = prepared();
    let (mut run, after) = harness.random_run(&mut random, 150);
    let flushed = harness.lsm.write_run(&mut run).unwrap();
    let mut job = harness
        .lsm
        .pick_full_compaction(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
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
                job = harness.lsm.pick_job();
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
fn work(harness: &mut Harness, random: &mut Random) -> Result<()> {
    let (mut run, after) = harness.random_run(random, 150);
    let change = harness.lsm.write_run(&mut run)?;
    harness.apply(&change);
    harness.model = after;
    while let Some(mut job) = harness.lsm.pick_job() {
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

#[test]
fn error_at_every_operation_leaves_nothing_behind() {
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::SyncLosesData] {
        let mut hit = 0;
        for at in 0.. {
            let (mut harness, mut random) = prepared();
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
                assert!(!harness.lsm.busy());
                harness.check_no_orphans();
            }
            check_after_cut(&harness, CrashMode::LoseUnsynced, &mut random);
            // Where a sync of the directory was what failed, nothing more is durable until the next open.
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
