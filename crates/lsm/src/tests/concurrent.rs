//! Threads: readers with views of all ages, two threads that take jobs, one that flushes.

use super::harness::{Harness, Random, small_options};
use crate::{Lsm, LsmOptions};
use glintdb_core::index::{Index, IndexView, JobStep};
use glintdb_indextest::Model;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Views with the model of what they must answer.
type Views = Mutex<Vec<(Arc<dyn IndexView>, Model)>>;

#[test]
fn readers_keep_their_views_while_everything_moves() {
    let mut harness = Harness::new(LsmOptions {
        table_bytes_target: 16 << 10,
        ..small_options()
    });
    let mut random = Random(21);
    harness.flush(&mut random, 200, true);
    // A reader checks against a harness of its own that shares the volume and the floor.
    let views: Views = Mutex::new(vec![(harness.index.view(), harness.model.clone())]);
    let stop = AtomicBool::new(false);
    // The engine commits one change at a time.
    let commits = Mutex::new(());
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (views, stop) = (&views, &stop);
            let reader = Harness::sharing(&harness);
            scope.spawn(move || {
                let mut random = Random(100 + seed);
                while !stop.load(Ordering::Acquire) {
                    let (view, model) = {
                        let views = views.lock();
                        let at = random.below(views.len() as u64) as usize;
                        (Arc::clone(&views[at].0), views[at].1.clone())
                    };
                    reader.check_view(view.as_ref(), &model, &mut random);
                }
            });
        }
        for seed in 0..2 {
            let (lsm, stop, commits): (&Lsm, _, _) = (&harness.index, &stop, &commits);
            scope.spawn(move || {
                let mut random = Random(200 + seed);
                while !stop.load(Ordering::Acquire) {
                    let Some(mut job) = lsm.pick_job() else {
                        std::thread::yield_now();
                        continue;
                    };
                    let give_up = random.one_in(8);
                    loop {
                        match job.step().unwrap() {
                            JobStep::More if give_up && random.one_in(2) => break,
                            JobStep::More => {}
                            JobStep::Done(change) if give_up => {
                                lsm.abandon(change);
                                break;
                            }
                            JobStep::Done(change) => {
                                let _one = commits.lock();
                                lsm.apply(&change).unwrap();
                                break;
                            }
                        }
                    }
                }
            });
        }
        let mut model = harness.model.clone();
        let mut writer = Harness::sharing(&harness);
        for n in 0..60 {
            writer.model = model;
            let (mut run, after) = writer.random_run(&mut random, 60);
            let change = harness.index.write_run(&mut run).unwrap();
            let one = commits.lock();
            harness.index.apply(&change).unwrap();
            let view = harness.index.view();
            drop(one);
            model = after;
            let mut views = views.lock();
            if views.len() > 5 {
                views.remove(n % 5);
            }
            views.push((view, model.clone()));
        }
        stop.store(true, Ordering::Release);
        writer.model = model;
        harness_after(&writer, &mut random);
    });
}

/// A task that ended while another thread looked through those that are begun had its last handle there, and its end wants the lock that was held by then: that thread waited for itself, and
/// soon everybody for it.
#[allow(
    clippy::disallowed_methods,
    reason = "threads that hang cannot be joined"
)]
#[test]
fn who_picks_a_job_does_not_end_another_task_under_the_lock() {
    const THREADS: usize = 4;
    const TURNS: usize = 20_000;
    let mut harness = Harness::new(LsmOptions {
        table_bytes_target: 16 << 10,
        ..small_options()
    });
    for _ in 0..3 {
        harness.flush(&mut Random(22), 600, true);
    }
    let (tell, told) = mpsc::channel();
    for _ in 0..THREADS {
        let (lsm, tell) = (Arc::clone(&harness.index), tell.clone());
        std::thread::spawn(move || {
            // Each is given up at once, and with it the task that it is a piece of.
            let given_out = (0..TURNS).filter_map(|_| lsm.pick_job()).count();
            tell.send(given_out).unwrap();
        });
    }
    let given_out: usize = (0..THREADS)
        .map(|_| {
            told.recv_timeout(Duration::from_secs(60))
                .expect("a thread hangs")
        })
        .sum();
    assert!(given_out > THREADS, "{given_out}");
    assert!(!harness.index.busy());
    harness.settle();
    harness.check(&mut Random(1));
}

/// The last state is the model's.
fn harness_after(writer: &Harness, random: &mut Random) {
    let view = writer.index.view();
    writer.check_view(view.as_ref(), &writer.model, random);
}
