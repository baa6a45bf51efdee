//! What each thread of a workload does next: an endless or finite sequence of [`Op`]s.
//!
//! Invariants:
//! 1. The sequence depends on the seed, the phase, the thread and the numbers of records and threads, never on
//!    time or on the engine; inserted record numbers alone are shared out among threads as they come.
//! 2. A fill, a warm-up and `deleterandom` visit each record once over all threads; the warm-up also those that were
//!    inserted since. `longkeys` and `manykeyspaces` begin with a fill.
//! 3. Threads take the places of a sequence in turn, so that its order is about that of time with any number of
//!    threads. Records have places too: those of the load in the order of `fillrandom` and `load`, then those
//!    inserted since. YCSB D's latest record is the one in the last place.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keys::Permutation;
use crate::rng::{Rng, mix64};
use crate::workload::{QUEUE_RECORDS, RANGE_RECORDS_MAX, Workload};
use crate::zipf::Zipfian;

/// Longest scan of YCSB E; lengths are uniform from 1.
const YCSB_SCAN_MAX: u64 = 100;

/// One operation on records by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Put {
        index: u64,
        generation: u64,
    },
    Get {
        index: u64,
    },
    GetMissing {
        index: u64,
    },
    Scan {
        index: u64,
        limit: usize,
    },
    Delete {
        index: u64,
    },
    DeleteRange {
        index: u64,
        records: u64,
    },
    /// Puts a record, and takes the first one that is there.
    PutAndTakeFirst {
        index: u64,
    },
    /// Puts a record, and deletes another one.
    PutAndDelete {
        index: u64,
        deleted: u64,
    },
    ReadModifyWrite {
        index: u64,
        generation: u64,
    },
}

/// What the threads of one phase share.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    workload: Workload,
    num: u64,
    threads: u64,
    read_percent: u64,
    scan_length: usize,
    seed: u64,
    zipf: &'a Zipfian,
    scramble: Permutation,
    fill_order: Permutation,
    delete_order: Permutation,
    inserted: &'a AtomicU64,
}

/// The parts of the configuration that choose operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanConfig {
    pub workload: Workload,
    pub num: u64,
    pub threads: u64,
    pub read_percent: u64,
    pub scan_length: usize,
    pub seed: u64,
    pub phase: u64,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(config: PlanConfig, zipf: &'a Zipfian, inserted: &'a AtomicU64) -> Self {
        Self {
            workload: config.workload,
            num: config.num,
            threads: config.threads,
            read_percent: config.read_percent,
            scan_length: config.scan_length,
            seed: config.seed ^ mix64(config.phase),
            zipf,
            scramble: Permutation::new(config.num, config.seed ^ 0x7A69_7066),
            fill_order: Permutation::new(config.num, config.seed),
            delete_order: delete_order(config.num, config.seed),
            inserted,
        }
    }

    /// The sequence of one thread, `thread` in `0..threads`, of the operations that all do in
    /// `places`.
    pub(crate) fn thread(&'a self, thread: u64, places: Range<u64>) -> Thread<'a> {
        Thread {
            plan: self,
            rng: Rng::new(self.seed, thread),
            next: places.start + thread,
            step: self.threads,
            end: places.end,
        }
    }

    /// The sequence of the writer beside the readers of `readwhilewriting`: endless overwrites.
    pub(crate) fn writer(&'a self) -> Thread<'a> {
        Thread {
            plan: self,
            rng: Rng::new(self.seed, self.threads),
            next: 0,
            step: 1,
            end: u64::MAX,
        }
    }

    /// The record in a place, as invariant 3 has them.
    #[inline]
    fn record(&self, place: u64) -> u64 {
        if place < self.num {
            self.fill_order.at(place)
        } else {
            place
        }
    }
}

/// The order in which `deleterandom` deletes.
pub(crate) fn delete_order(num: u64, seed: u64) -> Permutation {
    Permutation::new(num, seed ^ 0x6465_6C65)
}

/// One thread's position in its sequence.
#[derive(Debug)]
pub(crate) struct Thread<'a> {
    plan: &'a Plan<'a>,
    rng: Rng,
    next: u64,
    step: u64,
    end: u64,
}

impl Thread<'_> {
    /// The next operation of the workload, or `None` after the thread's share.
    #[inline]
    pub(crate) fn next_op(&mut self) -> Option<Op> {
        if self.next >= self.end {
            return None;
        }
        let place = self.next;
        self.next += self.step;
        let plan = self.plan;
        Some(match plan.workload {
            Workload::FillSeq => put(place, 0),
            Workload::FillRandom | Workload::Load => put(plan.record(place), 0),
            Workload::Overwrite => self.overwrite(),
            Workload::ReadRandom | Workload::MultiReadRandom | Workload::ReadWhileWriting => {
                Op::Get {
                    index: self.uniform(),
                }
            }
            Workload::ReadMissing => Op::GetMissing {
                index: self.uniform(),
            },
            Workload::SeekRandom => Op::Scan {
                index: self.uniform(),
                limit: plan.scan_length,
            },
            Workload::ReadRandomWriteRandom => {
                if self.rng.below(100) < plan.read_percent {
                    Op::Get {
                        index: self.uniform(),
                    }
                } else {
                    self.overwrite()
                }
            }
            Workload::DeleteRandom => Op::Delete {
                index: plan.delete_order.at(place),
            },
            Workload::Queue if place < QUEUE_RECORDS => put(place, 0),
            Workload::Queue => Op::PutAndTakeFirst { index: place },
            Workload::Window => match place.checked_sub(plan.num.div_ceil(4)) {
                Some(deleted) => Op::PutAndDelete {
                    index: place,
                    deleted,
                },
                None => put(place, 0),
            },
            Workload::RangeDelete if self.rng.below(2) == 0 => Op::Get {
                index: self.uniform(),
            },
            Workload::RangeDelete => Op::DeleteRange {
                index: self.uniform(),
                records: 1 + self.rng.below(RANGE_RECORDS_MAX),
            },
            // Made of no operations.
            Workload::Compact | Workload::CompactValues => return None,
            Workload::Warmup => Op::Get {
                index: plan.record(place),
            },
            Workload::LongKeys | Workload::ManyKeyspaces if place < plan.num => {
                put(plan.record(place), 0)
            }
            Workload::LongKeys if self.rng.below(10) == 0 => Op::Scan {
                index: self.uniform(),
                limit: plan.scan_length,
            },
            Workload::LongKeys | Workload::ManyKeyspaces => Op::Get {
                index: self.uniform(),
            },
            Workload::A | Workload::AWhileCompacting => self.read_or(50, Self::update),
            Workload::B => self.read_or(95, Self::update),
            Workload::C => Op::Get {
                index: self.zipfian(),
            },
            Workload::D => {
                if self.rng.below(100) < 95 {
                    Op::Get {
                        index: self.latest(),
                    }
                } else {
                    self.insert()
                }
            }
            Workload::E => {
                if self.rng.below(100) < 95 {
                    Op::Scan {
                        index: self.zipfian(),
                        limit: 1 + self.rng.below(YCSB_SCAN_MAX) as usize,
                    }
                } else {
                    self.insert()
                }
            }
            Workload::F => self.read_or(50, |thread| Op::ReadModifyWrite {
                index: thread.zipfian(),
                generation: thread.rng.next_u64(),
            }),
        })
    }

    /// An overwrite of a uniformly chosen record.
    #[inline]
    pub(crate) fn overwrite(&mut self) -> Op {
        put(self.uniform(), self.rng.next_u64())
    }

    #[inline]
    fn update(&mut self) -> Op {
        put(self.zipfian(), self.rng.next_u64())
    }

    #[inline]
    fn read_or(&mut self, read_percent: u64, other: impl Fn(&mut Self) -> Op) -> Op {
        if self.rng.below(100) < read_percent {
            Op::Get {
                index: self.zipfian(),
            }
        } else {
            other(self)
        }
    }

    #[inline]
    fn insert(&mut self) -> Op {
        // Relaxed: only uniqueness matters; readers of `latest` bear with records under way.
        put(
            self.plan.num + self.plan.inserted.fetch_add(1, Ordering::Relaxed),
            0,
        )
    }

    #[inline]
    fn uniform(&mut self) -> u64 {
        self.rng.below(self.plan.num)
    }

    #[inline]
    fn zipfian(&mut self) -> u64 {
        self.plan.scramble.at(self.plan.zipf.rank(&mut self.rng))
    }

    #[inline]
    fn latest(&mut self) -> u64 {
        let newest = self.plan.num + self.plan.inserted.load(Ordering::Relaxed) - 1;
        let distance = self.plan.zipf.rank(&mut self.rng);
        self.plan.record(newest - distance)
    }
}

fn put(index: u64, generation: u64) -> Op {
    Op::Put { index, generation }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const NUM: u64 = 1000;

    fn config(workload: Workload, threads: u64) -> PlanConfig {
        PlanConfig {
            workload,
            num: NUM,
            threads,
            read_percent: 90,
            scan_length: 50,
            seed: 1,
            phase: 0,
        }
    }

    /// Records put, in order.
    fn puts(ops: Vec<Op>) -> Vec<u64> {
        let puts = ops.into_iter().map(|op| match op {
            Op::Put { index, .. } => index,
            other => panic!("{other:?}"),
        });
        puts.collect()
    }

    /// What all threads do, in turn, as threads of one speed would.
    fn ops(workload: Workload, threads: u64, limit: u64) -> Vec<Op> {
        let zipf = Zipfian::new(NUM);
        let inserted = AtomicU64::new(0);
        let plan = Plan::new(config(workload, threads), &zipf, &inserted);
        let mut all: Vec<_> = (0..threads).map(|t| plan.thread(t, 0..limit)).collect();
        let mut ops = Vec::new();
        loop {
            let before = ops.len();
            ops.extend(all.iter_mut().filter_map(Thread::next_op));
            if ops.len() == before {
                return ops;
            }
        }
    }

    #[test]
    fn whole_passes_visit_each_record_once_over_all_threads() {
        for workload in [
            Workload::FillSeq,
            Workload::FillRandom,
            Workload::Load,
            Workload::DeleteRandom,
            Workload::Warmup,
        ] {
            for threads in [1, 3, 8] {
                let mut seen: Vec<u64> = ops(workload, threads, NUM)
                    .into_iter()
                    .map(|op| match op {
                        Op::Put { index, .. } | Op::Get { index } | Op::Delete { index } => index,
                        other => panic!("{other:?}"),
                    })
                    .collect();
                if workload == Workload::FillSeq {
                    assert!(seen.is_sorted());
                } else {
                    assert!(!seen.is_sorted());
                }
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..NUM), "{workload} {threads}");
            }
        }
    }

    #[test]
    fn a_window_has_a_quarter_of_the_records() {
        let mut there = std::collections::VecDeque::new();
        for op in ops(Workload::Window, 1, NUM) {
            match op {
                Op::Put { index, .. } => there.push_back(index),
                Op::PutAndDelete { index, deleted } => {
                    there.push_back(index);
                    assert_eq!(there.pop_front(), Some(deleted));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(there.into_iter().eq(NUM - NUM / 4..NUM));
    }

    #[test]
    fn a_warm_up_visits_what_was_inserted_too() {
        let all = ops(Workload::Warmup, 3, NUM + 200);
        let mut seen: Vec<u64> = all
            .into_iter()
            .map(|op| match op {
                Op::Get { index } => index,
                other => panic!("{other:?}"),
            })
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..NUM + 200));
    }

    #[test]
    fn every_workload_is_repeatable_and_takes_its_share() {
        for workload in Workload::ALL {
            let a = ops(workload, 2, 1000);
            // A compaction is made of no operations.
            let share = if workload.is_compaction() { 0 } else { 1000 };
            assert_eq!(a.len(), share, "{workload}");
            assert_eq!(a, ops(workload, 2, 1000), "{workload}");
        }
    }

    #[test]
    fn mixes_are_as_ycsb_defines_them() {
        let share = |workload, pick: fn(&Op) -> bool| {
            let all = ops(workload, 1, 20_000);
            all.iter().filter(|op| pick(op)).count() as f64 / 20_000.0
        };
        let gets: fn(&Op) -> bool = |op| matches!(op, Op::Get { .. });
        let near = |got: f64, want: f64| assert!((got - want).abs() < 0.02, "{got} for {want}");
        near(share(Workload::A, gets), 0.5);
        near(share(Workload::B, gets), 0.95);
        near(share(Workload::C, gets), 1.0);
        near(share(Workload::D, gets), 0.95);
        near(share(Workload::E, |op| matches!(op, Op::Scan { .. })), 0.95);
        near(share(Workload::F, gets), 0.5);
        near(
            share(Workload::F, |op| matches!(op, Op::ReadModifyWrite { .. })),
            0.5,
        );
        near(share(Workload::ReadRandomWriteRandom, gets), 0.9);
    }

    #[test]
    fn zipfian_is_scrambled() {
        let mut counts = HashMap::new();
        for op in ops(Workload::C, 1, 50_000) {
            if let Op::Get { index } = op {
                *counts.entry(index).or_insert(0u32) += 1;
            }
        }
        let mut popular: Vec<_> = counts.into_iter().map(|(index, n)| (n, index)).collect();
        popular.sort_unstable_by(|a, b| b.cmp(a));
        // Rank 0 of 1,000 has 1 / zeta(1000) = 13 %.
        assert!(popular[0].0.abs_diff(6600) < 700, "{:?}", popular[0]);
        let near = popular[..10]
            .windows(2)
            .filter(|w| w[0].1.abs_diff(w[1].1) < 5)
            .count();
        assert!(near < 3, "{:?}", &popular[..10]);
    }

    #[test]
    fn threads_of_a_fill_write_in_the_order_of_one() {
        for workload in [Workload::FillSeq, Workload::FillRandom, Workload::Load] {
            let alone = ops(workload, 1, NUM);
            for threads in [2, 3, 8] {
                assert_eq!(ops(workload, threads, NUM), alone, "{workload} {threads}");
            }
        }
        assert_eq!(
            ops(Workload::Load, 1, NUM),
            ops(Workload::FillRandom, 1, NUM)
        );
    }

    #[test]
    fn what_d_reads_most_was_loaded_last() {
        for threads in [1, 4] {
            let loaded = puts(ops(Workload::Load, threads, NUM));
            let zipf = Zipfian::new(NUM);
            let inserted = AtomicU64::new(0);
            let plan = Plan::new(config(Workload::D, threads), &zipf, &inserted);
            let mut thread = plan.thread(threads - 1, 0..NUM);
            let mut counts = HashMap::new();
            for _ in 0..100_000 {
                *counts.entry(thread.latest()).or_insert(0u32) += 1;
            }
            let mut popular: Vec<_> = counts.into_iter().map(|(index, n)| (n, index)).collect();
            popular.sort_unstable_by(|a, b| b.cmp(a));
            let most_read = popular[..5].iter().map(|&(_, index)| index);
            assert!(most_read.eq(loaded.into_iter().rev().take(5)), "{threads}");
        }
    }

    #[test]
    fn what_d_inserts_is_the_newest_from_then_on() {
        for threads in [1, 4] {
            let mut written = puts(ops(Workload::Load, threads, NUM));
            let mut by_distance = vec![0u32; NUM as usize];
            for op in ops(Workload::D, threads, 40_000) {
                match op {
                    Op::Put { index, .. } => {
                        assert_eq!(index, written.len() as u64);
                        written.push(index);
                    }
                    Op::Get { index } => {
                        let distance = written.iter().rev().position(|&other| other == index);
                        by_distance[distance.unwrap()] += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let inserts = written.len() as u64 - NUM;
            assert!(inserts.abs_diff(2000) < 200, "{inserts}");
            // Of 38,000 reads the newest has 1 / zeta(1000) = 13 %, the ten newest have 39 %.
            assert!(by_distance[0].abs_diff(5060) < 500, "{}", by_distance[0]);
            let ten: u32 = by_distance[..10].iter().sum();
            assert!(ten.abs_diff(14_900) < 1000, "{ten}");
        }
    }
}
