//! Tests of runs in virtual time.

#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "a test ends at the first error")]

use super::locks::{Condvar, Mutex, RwLock};
use super::{Costs, Ns, Run, thread};
use crate::clock::Clock;
use crate::sync::{Work, charge};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Runs `main` in a run of `processors`; returns the time at its end.
fn run(processors: usize, main: impl FnOnce(Arc<dyn Clock>)) -> Ns {
    let run = Run::new(Costs {
        processors,
        ..Costs::default()
    });
    run.enter(|| main(run.clock()));
    run.now()
}

#[test]
fn threads_sleep_beside_each_other() {
    let time = run(1, |clock| {
        let threads: Vec<_> = (1..=100)
            .map(|number| {
                let clock = Arc::clone(&clock);
                thread::spawn(move || clock.sleep(number * MS))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(time, 100_000_000);
}

#[test]
fn a_lock_that_is_held_during_a_sleep_is_given_to_waiting_threads_in_turn() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let time = run(1, move |clock| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (clock, order) = (Arc::clone(&clock), Arc::clone(&order));
                thread::spawn(move || {
                    let mut order = order.lock();
                    clock.sleep(10 * MS);
                    order.push(number);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(*seen.lock(), [0, 1, 2, 3]);
    assert_eq!(time, 40_000_000);
}

#[test]
fn waits_for_a_condition_end_when_notified_or_at_their_limit() {
    let time = run(1, |clock| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let of_thread = (Arc::clone(&shared), Arc::clone(&clock));
        let thread = thread::spawn(move || {
            let (shared, clock) = of_thread;
            clock.sleep(5 * MS);
            *shared.0.lock() = true;
            shared.1.notify_one();
        });
        let mut is_set = shared.0.lock();
        shared.1.wait_for(&mut is_set, 2 * MS);
        assert_eq!((*is_set, clock.monotonic()), (false, 2 * MS));
        shared.1.wait_for(&mut is_set, 60 * MS);
        assert_eq!((*is_set, clock.monotonic()), (true, 5 * MS));
        drop(is_set);
        thread.join().unwrap();
        // The limit of the second wait no longer counts.
        clock.sleep(MS);
    });
    assert_eq!(time, 6_000_000);
}

#[test]
fn a_writer_waits_for_readers() {
    let time = run(1, |clock| {
        let lock = Arc::new(RwLock::new(0));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (lock, clock) = (Arc::clone(&lock), Arc::clone(&clock));
                thread::spawn(move || {
                    let value = lock.read();
                    clock.sleep(7 * MS);
                    assert_eq!(*value, 0);
                })
            })
            .collect();
        clock.sleep(MS);
        *lock.write() = 1;
        assert_eq!(clock.monotonic(), 7 * MS);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(time, 7_000_000);
}

#[test]
fn work_takes_turns_on_the_processors() {
    let of = |processors| {
        run(processors, |_| {
            let threads: Vec<_> = (0..6)
                .map(|_| thread::spawn(|| charge(Work::Get, 1000)))
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
        })
    };
    assert_eq!((of(1), of(2), of(6)), (6_000_000, 3_000_000, 1_000_000));
}

#[test]
fn a_thread_that_yields_sees_what_a_sleeping_one_does() {
    let time = run(1, |clock| {
        let is_done = Arc::new(AtomicBool::new(false));
        let of_thread = (Arc::clone(&is_done), Arc::clone(&clock));
        let sleeper = thread::spawn(move || {
            of_thread.1.sleep(MS / 10);
            of_thread.0.store(true, Ordering::Relaxed);
        });
        let yielders: Vec<_> = (0..2)
            .map(|_| {
                let is_done = Arc::clone(&is_done);
                thread::spawn(move || {
                    while !is_done.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for thread in yielders.into_iter().chain([sleeper]) {
            thread.join().unwrap();
        }
    });
    assert!((100_000..110_000).contains(&time), "{time}");
}

#[test]
fn a_panic_of_a_thread_is_returned_to_the_one_that_joins_it() {
    run(1, |_| {
        let thread = thread::spawn(|| panic!("on purpose"));
        assert!(thread.join().is_err());
    });
}

/// Threads that sleep, lock and work by numbers of a generator.
fn mixed_run(seed: u64) -> (u64, Ns) {
    let run = Run::new(Costs::default());
    let clock = run.clock();
    run.enter(|| {
        let shared = Arc::new((Mutex::new(seed), Condvar::new()));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (shared, clock) = (Arc::clone(&shared), Arc::clone(&clock));
                thread::spawn(move || {
                    for _ in 0..200 {
                        let mut number = shared.0.lock();
                        *number = number
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let time = Duration::from_nanos(*number >> 50);
                        match *number >> 62 {
                            0 => clock.sleep(time),
                            1 => shared.1.wait_for(&mut number, time),
                            2 => shared.1.notify_one(),
                            _ => {
                                drop(number);
                                charge(Work::Put, 3);
                            }
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    (run.trace_hash(), run.now())
}

#[test]
fn equal_runs_have_equal_traces() {
    let first = mixed_run(1);
    for _ in 0..20 {
        assert_eq!(mixed_run(1), first);
    }
    assert_ne!(mixed_run(2).0, first.0);
}
