//! Random histories: flushes, relocations, compactions stepped beside each other, dropped and
//! abandoned ones, reopenings, views that live on.

use crate::relocation::{Moved, Relocating};
use crate::{Harness, Kind, Model, Random};
use glintdb_core::index::{Index, IndexChange, IndexJob, IndexView, JobStep, MemoryShare};
use proptest::prelude::*;
use std::ops::Bound;
use std::sync::Arc;

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Op {
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
    SetOptions { seed: u64 },
}

/// Any step.
pub fn op() -> impl Strategy<Value = Op> {
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
        1 => any::<u64>().prop_map(|seed| Op::SetOptions { seed }),
    ]
}

/// Jobs in flight, changes that wait, views that live on.
struct World<K: Kind> {
    harness: Harness<K>,
    jobs: Vec<Box<dyn IndexJob>>,
    /// Each with what it moves, where a relocation wrote it.
    changes: Vec<(IndexChange, Option<Moved>)>,
    relocations: Vec<Relocating>,
    begun: u64,
    views: Vec<(Arc<dyn IndexView>, Model, u64)>,
}

impl<K: Kind> World<K> {
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
                relocations.push(Relocating::begin(&*harness.index, *begun));
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
            Op::PickJob => jobs.extend(harness.index.pick_job()),
            Op::PickFull { seed } => {
                let mut random = Random(seed);
                let lower = harness.random_key(&mut random);
                let job = harness
                    .index
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
                    harness.index.abandon(change);
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
                views.push((harness.index.view(), harness.model.clone(), floor));
            }
            Op::SharePins { auto_kib, more_kib } => {
                let pins_auto_bytes = u64::from(auto_kib) << 10;
                let pins_max_bytes = pins_auto_bytes + (u64::from(more_kib) << 10);
                harness.index.set_memory_share(MemoryShare {
                    pins_auto_bytes,
                    pins_max_bytes,
                    remap_max_bytes: pins_auto_bytes,
                });
            }
            Op::SetOptions { seed } => harness.set_options(&K::other_options(&mut Random(seed))),
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
        while self.harness.index.busy() {
            match self.harness.index.pick_job() {
                Some(job) => self.harness.finish(job),
                None => panic!("busy, and nothing to do"),
            }
        }
        K::check_idle(&self.harness.index);
    }

    /// After a full compaction below the floor there is nothing but live entries, at one level.
    fn check_compacted(&self) {
        let stats = self.harness.index.view().stats();
        let floor = self
            .harness
            .env
            .tombstone_floor
            .load(std::sync::atomic::Ordering::Acquire);
        K::check_compacted(&stats);
        if floor > self.harness.seqno {
            assert_eq!(stats.entries, self.harness.model.live().len() as u64);
            assert_eq!(stats.tombstones, 0);
        }
    }
}

/// Applies a change; what it moved is where it is now.
fn resolve<K: Kind>(harness: &mut Harness<K>, change: &IndexChange, moved: Option<Moved>) {
    harness.apply(change);
    if let Some(moved) = moved {
        moved.note(&mut harness.model);
    }
}

/// Runs a history, and checks the index against a model.
pub fn run_history<K: Kind>(options: K::Options, ops: &[Op], seed: u64) {
    let mut world: World<K> = World {
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
