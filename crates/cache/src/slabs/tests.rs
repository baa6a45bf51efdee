//! Tests of the cache's memory, also under Miri.

use super::*;
use proptest::prelude::*;
use std::sync::mpsc;

fn slot(n: u32) -> Slot {
    Slot(1, u64::from(n))
}

/// `length` bytes of a kind.
fn bytes(n: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![n.to_le_bytes()[0]; length];
    let number = n.to_le_bytes();
    let head = length.min(number.len());
    bytes[..head].copy_from_slice(&number[..head]);
    bytes
}

fn hold(slabs: &Slabs, n: u32, length: usize) -> Held {
    let bytes = bytes(n, length);
    let (one, other) = bytes.split_at(length / 3);
    let held = slabs
        .hold(slot(n), n.into(), &[one, other], false, |_| true)
        .unwrap();
    assert!(held.as_ref() == bytes && held.slot() == slot(n) && held.whose() == u64::from(n));
    held
}

fn check(held: &Held, n: u32) {
    assert!(
        held.as_ref() == bytes(n, held.len())
            && held.slot() == slot(n)
            && held.whose() == u64::from(n)
    );
}

#[test]
fn what_is_held_is_what_was_copied_and_its_memory_goes_with_the_last_reference() {
    let slabs = Slabs::new();
    let lengths = [
        0, 1, 31, 32, 33, 100, 1000, 4096, 16_384, 18_000, 20_000, 70_000,
    ];
    let held: Vec<Held> = (0..)
        .zip(lengths)
        .map(|(n, l)| hold(&slabs, n, l))
        .collect();
    let taken = slabs.taken_bytes();
    let copies = held.clone();
    drop(held);
    assert_eq!(slabs.taken_bytes(), taken, "somebody refers to them");
    (0..).zip(&copies).for_each(|(n, held)| check(held, n));
    let one = copies.into_iter().nth(6).unwrap();
    assert_eq!((slabs.taken_bytes(), one.len()), (SLAB_BYTES, 1000));
    drop(one);
    assert_eq!((slabs.taken_bytes(), slabs.free_bytes().0), (0, 0));
}

#[test]
fn what_is_alone_is_counted_too() {
    let slabs = Slabs::new();
    let held = slabs.hold(slot(1), 1, &[b"alone"], true, |_| true).unwrap();
    assert_eq!((held.as_ref(), held.slot()), (&b"alone"[..], slot(1)));
    assert_eq!(slabs.taken_bytes(), Slabs::bytes_of(5, true));
    assert_eq!(held.bytes(), slabs.taken_bytes());
    drop(held);
    assert_eq!(slabs.taken_bytes(), 0);
}

#[test]
fn cells_of_a_slab_fill_it_and_freed_ones_are_taken_again() {
    let slabs = Slabs::new();
    let class = sizes::class_of(size_of::<Cell>() + 1000).unwrap();
    let cells = sizes::cells(class);
    let mut held: Vec<Held> = (0..cells).map(|n| hold(&slabs, n, 1000)).collect();
    assert_eq!((slabs.taken_bytes(), slabs.free_bytes().0), (SLAB_BYTES, 0));
    assert!(held[0].bytes() * cells as usize >= SLAB_BYTES);
    let none = slabs.hold(slot(0), 0, &[&[0; 1000]], false, |_| false);
    assert!(none.is_none(), "it is full, and there must be no other");
    for n in (0..cells).filter(|n| n % 3 == 0) {
        held[n as usize] = hold(&slabs, n, 10);
    }
    let free = slabs.free_bytes().0;
    for n in (0..cells).filter(|n| n % 3 == 0) {
        held[n as usize] = hold(&slabs, n, 1000);
    }
    assert!(free > slabs.free_bytes().0 && slabs.taken_bytes() == SLAB_BYTES);
    (0..).zip(&held).for_each(|(n, held)| check(held, n));
}

#[test]
fn the_emptiest_slab_is_given_up_and_gone_with_what_is_in_it() {
    let slabs = Slabs::new();
    let class = sizes::class_of(size_of::<Cell>() + 1000).unwrap();
    let cells = sizes::cells(class);
    let mut held: Vec<Held> = (0..cells * 3).map(|n| hold(&slabs, n, 1000)).collect();
    assert_eq!(slabs.give_up_one(drop), None, "all are full");
    // Of the second a quarter stays, of the third half.
    let mut n = 0;
    held.retain(|_| {
        n += 1;
        match (n - 1) / cells {
            0 => true,
            1 => n % 4 == 0,
            _ => n % 2 == 0,
        }
    });
    let (mut moved, mut second) = (Vec::new(), 0);
    let gone = slabs.give_up_one(|old| {
        let n = number(&old);
        second += u32::from(n / cells == 1);
        held.retain(|held| !held.is(&old));
        let new = slabs
            .hold(old.slot(), old.whose(), &[&old], false, |_| false)
            .unwrap();
        assert!(!new.is(&old));
        check(&new, n);
        moved.push(new);
    });
    assert_eq!((gone, second), (Some(true), cells / 4));
    assert_eq!(
        (moved.len(), slabs.taken_bytes()),
        (cells as usize / 4, 2 * SLAB_BYTES)
    );
    // Of one that somebody refers to the cells are taken again.
    assert_eq!(slabs.give_up_one(drop), Some(false));
    let free = slabs.free_bytes().0 / held[0].bytes();
    assert!(free >= cells as usize / 5);
    held.extend((0..u32::try_from(free).unwrap()).map(|n| hold(&slabs, n, 1000)));
    assert_eq!(
        (slabs.free_bytes().0, slabs.taken_bytes()),
        (0, 2 * SLAB_BYTES)
    );
    drop((held, moved));
    assert_eq!((slabs.taken_bytes(), slabs.free_bytes().0), (0, 0));
}

#[test]
fn what_is_held_outlives_the_slabs() {
    let slabs = Slabs::new();
    let held = [hold(&slabs, 1, 1000), hold(&slabs, 2, 70_000)];
    drop(slabs);
    check(&held[0], 1);
    check(&held[1], 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]

    /// Whatever is held, dropped and moved in whatever order.
    #[test]
    fn nothing_lies_upon_anything_else(steps in prop::collection::vec((0..8u32, any::<u32>(), 0..3000usize), 1..if cfg!(miri) { 40 } else { 600 })) {
        let slabs = Slabs::new();
        let mut held: Vec<(u32, Held)> = Vec::new();
        for (step, n, length) in steps {
            match step {
                0..4 => held.push((n, hold(&slabs, n, if step < 2 { 1000 } else { length }))),
                4 if !held.is_empty() => {
                    let (n, other) = &held[n as usize % held.len()];
                    held.push((*n, other.clone()));
                }
                5 | 6 if !held.is_empty() => drop(held.swap_remove(n as usize % held.len())),
                7 => {
                    slabs.give_up_one(|old| {
                        for (_, held) in held.iter_mut().filter(|(_, held)| held.is(&old)) {
                            *held = slabs.hold(old.slot(), old.whose(), &[&old], false, |_| true).unwrap();
                        }
                    });
                }
                _ => {}
            }
            held.iter().for_each(|(n, held)| check(held, *n));
        }
        drop(held);
        prop_assert_eq!((slabs.taken_bytes(), slabs.free_bytes().0), (0, 0));
    }
}

/// Threads hold, hand over to each other, drop, and give slabs up, all at once.
#[test]
fn threads_hold_drop_and_give_up_at_once() {
    const THREADS: u32 = 4;
    let rounds = if cfg!(miri) { 60 } else { 60_000 };
    let slabs = Slabs::new();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::sync_channel::<Held>(64)).unzip();
    std::thread::scope(|scope| {
        for (thread, from) in (0..THREADS).zip(receivers) {
            let to = senders[((thread + 1) % THREADS) as usize].clone();
            let slabs = &slabs;
            scope.spawn(move || {
                let mut kept: Vec<Held> = Vec::new();
                for round in 0..rounds {
                    let n = round * THREADS + thread;
                    let length = if n.is_multiple_of(7) { 5000 } else { 1000 };
                    kept.push(hold(slabs, n, length));
                    if n.is_multiple_of(3) {
                        let _full = to.try_send(kept[n as usize % kept.len()].clone());
                    }
                    from.try_iter().for_each(|held| check(&held, number(&held)));
                    if kept.len() > 200 || cfg!(miri) && kept.len() > 10 {
                        let at = n as usize % kept.len();
                        check(&kept[at], number(&kept[at]));
                        kept.swap_remove(at);
                    }
                    if n.is_multiple_of(97) {
                        slabs.give_up_one(|old| check(&old, number(&old)));
                    }
                }
            });
        }
        drop(senders);
    });
    assert_eq!((slabs.taken_bytes(), slabs.free_bytes().0), (0, 0));
}

fn number(held: &Held) -> u32 {
    u32::try_from(held.slot().1).unwrap()
}
