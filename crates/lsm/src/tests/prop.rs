//! Random histories: flushes, relocations, compactions stepped beside each other, dropped and abandoned ones, reopenings, views that live on.

use super::harness::{Harness, Random, small_options};
use super::model::Model;
use super::relocation::{Moved, Relocating};
use crate::{LsmExperiments, LsmOptions, PinnedLevels};
use glintdb_core::index::{Index, IndexChange, IndexJob, IndexView, JobStep, MemoryShare};
use glintdb_runs::Compression;
use proptest::prelude::*;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Flush { seed: u64, ops: u8, apply: bool },
    BeginRelocation,
    WriteRelocation { which: u8, seed: u64 },
    DropRelocation { which: u8 },
    PickJob,
    PickFull { seed: u64 },
    Step { job: u8, steps: u8 },
    DropJob { job: u8 },
    Resolve { change: u8, apply: bool },
    RaiseFloor { back: u8 },
    KeepView,
    DropView { view: u8 },
    Check { seed: u64 },
    Settle,
    Compact,
    Reopen { snapshot: bool },
    SharePins { auto_kib: u16, more_kib: u16 },
    SetOptions { options: Box<LsmOptions> },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<u64>(), 1u8..120, prop::bool::weighted(0.9)).prop_map(|(seed, ops, apply)| Op::Flush { seed, ops, apply }),
        3 => Just(Op::BeginRelocation),
        3 => (any::<u8>(), any::<u64>()).prop_map(|(which, seed)| Op::WriteRelocation { which, seed }),
        1 => any::<u8>().prop_map(|which| Op::DropRelocation { which }),
        6 => Just(Op::PickJob),
        2 => any::<u64>().prop_map(|seed| Op::PickFull { seed }),
        8 => (any::<u8>(), 1u8..6).prop_map(|(job, steps)| Op::Step { job, steps }),
        1 => any::<u8>().prop_map(|job| Op::DropJob { job }),
        4 => (any::<u8>(), prop::bool::weighted(0.9)).prop_map(|(change, apply)| Op::Resolve { change, apply }),
        2 => any::<u8>().prop_map(|back| Op::RaiseFloor { back }),
        1 => Just(Op::KeepView),
        1 => any::<u8>().prop_map(|view| Op::DropView { view }),
        3 => any::<u64>().prop_map(|seed| Op::Check { seed }),
        1 => Just(Op::Settle),
        1 => Just(Op::Compact),
        1 => any::<bool>().prop_map(|snapshot| Op::Reopen { snapshot }),
        2 => (0u16..200, 0u16..100).prop_map(|(auto_kib, more_kib)| Op::SharePins { auto_kib, more_kib }),
        1 => other_options().prop_map(|options| Op::SetOptions { options: Box::new(options) }),
    ]
}

fn options() -> impl Strategy<Value = LsmOptions> {
    (2u32..5, 1u32..4, 0u32..2, 4u64..40, 4u64..60, 1u32..=6).prop_map(
        |(ratio, runs, filter, table, base, levels_max)| LsmOptions {
            levels_max,
            size_ratio: ratio,
            table_bytes_target: table << 10,
            filter_bits_per_key: filter * 10,
            experiments: LsmExperiments {
                level0_runs_compact: runs,
                level0_runs_slow: runs + 2,
                level0_runs_stop: runs + 4,
                base_level_bytes: base << 10,
            },
            ..small_options()
        },
    )
}

/// [`options`], and what is only written into tables.
fn other_options() -> impl Strategy<Value = LsmOptions> {
    (options(), any::<bool>(), 1u32..4, 0u8..5).prop_map(|(options, lz4, pages, pinned)| {
        LsmOptions {
            compression: if lz4 {
                Compression::Lz4
            } else {
                Compression::None
            },
            block_bytes: pages << 12,
            pinned_levels: pinned
                .checked_sub(1)
                .map_or(PinnedLevels::Auto, PinnedLevels::Levels),
            ..options
        }
    })
}

/// Jobs in flight, changes that wait, views that live on.
struct World {
    harness: Harness,
    jobs: Vec<Box<dyn IndexJob>>,
    /// Each with what it moves, where a relocation wrote it.
    changes: Vec<(IndexChange, Option<Moved>)>,
    relocations: Vec<Relocating>,
    begun: u64,
    views: Vec<(Arc<dyn IndexView>, Model, u64)>,
}

impl World {
    fn run(&mut self, op: &Op) {
        let World {
            harness,
            jobs,
            changes,
            relocations,
            begun,
            views,
        } = self;
        match *op {
            Op::Flush { seed, ops, apply } => {
                harness.flush(&mut Random(seed), ops.into(), apply);
            }
            Op::BeginRelocation => {
                *begun += 1;
                relocations.push(Relocating::begin(&harness.lsm, *begun));
            }
            Op::WriteRelocation { which, seed } if !relocations.is_empty() => {
                let at = usize::from(which) % relocations.len();
                let (change, moved) = relocations.swap_remove(at).write(&mut Random(seed));
                changes.push((change, Some(moved)));
            }
            Op::DropRelocation { which } if !relocations.is_empty() => {
                let at = usize::from(which) % relocations.len();
                drop(relocations.swap_remove(at));
            }
            Op::PickJob => jobs.extend(harness.lsm.pick_job()),
            Op::PickFull { seed } => {
                let mut random = Random(seed);
                let lower = harness.random_key(&mut random);
                let job = harness
                    .lsm
                    .pick_full_compaction(Bound::Included(&lower), Bound::Unbounded);
                jobs.extend(job);
            }
            Op::Step { job, steps } => {
                if jobs.is_empty() {
                    return;
                }
                let at = usize::from(job) % jobs.len();
                for _ in 0..steps {
                    if let JobStep::Done(change) = jobs[at].step().unwrap() {
                        changes.push((change, None));
                        drop(jobs.swap_remove(at));
                        break;
                    }
                }
            }
            Op::DropJob { job } if !jobs.is_empty() => {
                let at = usize::from(job) % jobs.len();
                drop(jobs.swap_remove(at));
            }
            Op::Resolve { change, apply } if !changes.is_empty() => {
                let at = usize::from(change) % changes.len();
                let (change, moved) = changes.swap_remove(at);
                if apply {
                    resolve(harness, &change, moved);
                } else {
                    harness.lsm.abandon(change);
                }
            }
            Op::RaiseFloor { back } => {
                harness.set_floor(harness.seqno.saturating_sub(back.into()));
            }
            Op::KeepView => {
                let floor = harness
                    .env
                    .tombstone_floor
                    .load(std::sync::atomic::Ordering::Acquire);
                views.push((harness.lsm.view(), harness.model.clone(), floor));
            }
            Op::SharePins { auto_kib, more_kib } => {
                let pins_auto_bytes = u64::from(auto_kib) << 10;
                let pins_max_bytes = pins_auto_bytes + (u64::from(more_kib) << 10);
                harness.lsm.set_memory_share(MemoryShare {
                    pins_auto_bytes,
                    pins_max_bytes,
                });
            }
            Op::SetOptions { ref options } => harness.set_options(options),
            Op::DropView { view } if !views.is_empty() => {
                let at = usize::from(view) % views.len();
                drop(views.swap_remove(at));
            }
            Op::Check { seed } => {
                let mut random = Random(seed);
                harness.check(&mut random);
                for (view, model, _) in views.iter() {
                    harness.check_view(view.as_ref(), model, &mut random);
                }
            }
            Op::Settle | Op::Compact | Op::Reopen { .. } => {
                self.finish_all();
                match *op {
                    Op::Settle => self.harness.settle(),
                    Op::Compact => {
                        self.harness.compact(Bound::Unbounded, Bound::Unbounded);
                        self.check_compacted();
                    }
                    Op::Reopen { snapshot } => {
                        self.views.clear();
                        self.harness.reopen(snapshot);
                        self.harness.check_no_orphans();
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Ends jobs one way or the other.
    fn finish_all(&mut self) {
        for (at, job) in std::mem::take(&mut self.jobs).into_iter().enumerate() {
            if at % 2 == 0 {
                self.harness.finish(job);
            }
        }
        for (at, relocation) in std::mem::take(&mut self.relocations)
            .into_iter()
            .enumerate()
        {
            if at % 2 == 0 {
                let (change, moved) = relocation.write(&mut Random(at as u64));
                self.changes.push((change, Some(moved)));
            }
        }
        for (change, moved) in std::mem::take(&mut self.changes) {
            resolve(&mut self.harness, &change, moved);
        }
        // Pieces not begun of a compaction that has begun.
        while self.harness.lsm.busy() {
            match self.harness.lsm.pick_job() {
                Some(job) => self.harness.finish(job),
                None => panic!("busy, and nothing to do"),
            }
        }
        self.check_pins();
    }

    /// With nothing under way, pinned is what the plan says, and no more than may be.
    fn check_pins(&self) {
        let view = self.harness.lsm.view_for_tests();
        let (pins, memory) = (&view.common.pins, view.common.env.pin_memory());
        let pinned = |slot: &glintdb_runs::Slot| slot.table.is_pinned();
        assert!(
            view.levels
                .slots()
                .all(|(place, slot)| !pinned(slot) || pins.covers(place.level))
        );
        assert!(memory.used_bytes() <= memory.limit_bytes());
    }

    /// After a full compaction below the floor there is nothing but live entries, at one level.
    fn check_compacted(&self) {
        let stats = self.harness.lsm.view().stats();
        let floor = self
            .harness
            .env
            .tombstone_floor
            .load(std::sync::atomic::Ordering::Acquire);
        let used = stats.levels.iter().filter(|level| level.parts > 0).count();
        assert!(used <= 1);
        if floor > self.harness.seqno {
            assert_eq!(stats.entries, self.harness.model.live().len() as u64);
            assert_eq!(stats.tombstones, 0);
        }
    }
}

/// Applies a change; what it moved is where it is now.
fn resolve(harness: &mut Harness, change: &IndexChange, moved: Option<Moved>) {
    harness.apply(change);
    if let Some(moved) = moved {
        moved.note(&mut harness.model);
    }
}

fn run(options: LsmOptions, ops: &[Op], seed: u64) {
    let mut world = World {
        harness: Harness::new(options),
        jobs: Vec::new(),
        changes: Vec::new(),
        relocations: Vec::new(),
        begun: 0,
        views: Vec::new(),
    };
    for op in ops {
        world.run(op);
    }
    world.harness.check(&mut Random(seed));
    world.finish_all();
    world.views.clear();
    world.harness.check_no_orphans();
    world.harness.check(&mut Random(seed));
    world.harness.set_floor(world.harness.seqno + 1);
    world.harness.compact(Bound::Unbounded, Bound::Unbounded);
    world.check_compacted();
    world.harness.check(&mut Random(seed));
    world.harness.check_no_orphans();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn prop_index_answers_as_the_model_does(
        options in options(),
        ops in proptest::collection::vec(op(), 1..60),
        seed: u64,
    ) {
        run(options, &ops, seed);
    }
}
