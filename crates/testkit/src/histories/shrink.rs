//! The smallest part of a history of one register that still cannot be explained, for people.
//!
//! Every step makes the history weaker, so what is left over is a violation by itself: a read is left out, an exchange becomes a write, a write that nobody saw is left out.
//!
//! Thread safety: functions of their arguments.

use super::linear::{self, ABSENT, Epoch, Kind, Op, UNKNOWN, Value};
use super::value::name;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Checks at most, and no new one after so long: a history may be long, and where many writes overlap one check takes seconds.
const CHECKS_MAX: u32 = 4_000;
const TIME_MAX: Duration = Duration::from_secs(60);

/// A smaller history that is not linearizable either.
#[must_use]
#[allow(
    clippy::disallowed_methods,
    reason = "real time is what people wait for"
)]
pub fn shrink(initial: Value, epochs: &[Epoch]) -> Vec<Epoch> {
    let mut epochs = epochs.to_vec();
    let Err(violation) = linear::check(initial, &epochs) else {
        return epochs;
    };
    // What was called after it was seen has no part in it, but for the outcome of exchanges and what was seen of writes in flight.
    epochs.truncate(violation.epoch + 1);
    let (mut checks, start) = (0, Instant::now());
    let mut wrong = |epochs: &[Epoch]| {
        checks += 1;
        checks < CHECKS_MAX
            && start.elapsed() < TIME_MAX
            && linear::check(initial, epochs).is_err_and(|violation| !violation.given_up)
    };
    loop {
        let before = size(&epochs);
        for weaken in [without_reads, exchanges_as_writes, without_unseen_writes] {
            let places: usize = epochs.iter().map(|epoch| epoch.ops.len()).sum();
            let mut chunk = places.max(1);
            while chunk > 0 {
                let mut start = 0;
                while start < epochs.iter().map(|epoch| epoch.ops.len()).sum() {
                    let smaller = weaken(&epochs, start, start + chunk);
                    if smaller != epochs && wrong(&smaller) {
                        epochs = smaller;
                    } else {
                        start += chunk;
                    }
                }
                chunk /= 2;
            }
        }
        if size(&epochs) == before {
            return epochs;
        }
    }
}

/// Calls, and exchanges among them once more.
fn size(epochs: &[Epoch]) -> usize {
    let ops = epochs.iter().flat_map(|epoch| &epoch.ops);
    ops.map(|op| 1 + usize::from(matches!(op.kind, Kind::Exchange(..))))
        .sum()
}

/// Changes the calls `start..end`, counted through all epochs; `None` leaves one out.
fn change(
    epochs: &[Epoch],
    start: usize,
    end: usize,
    mut how: impl FnMut(Op) -> Option<Op>,
) -> Vec<Epoch> {
    let mut number = 0;
    let of = |epoch: &Epoch| Epoch {
        ops: epoch
            .ops
            .iter()
            .filter_map(|op| {
                number += 1;
                if (start..end).contains(&(number - 1)) {
                    how(*op)
                } else {
                    Some(*op)
                }
            })
            .collect(),
        floor: epoch.floor,
    };
    epochs.iter().map(of).collect()
}

fn without_reads(epochs: &[Epoch], start: usize, end: usize) -> Vec<Epoch> {
    change(epochs, start, end, |op| {
        (!matches!(op.kind, Kind::Read(_))).then_some(op)
    })
}

fn exchanges_as_writes(epochs: &[Epoch], start: usize, end: usize) -> Vec<Epoch> {
    change(epochs, start, end, |op| {
        Some(Op {
            kind: match op.kind {
                Kind::Exchange(_, new) => Kind::Write(new),
                kind => kind,
            },
            ..op
        })
    })
}

fn without_unseen_writes(epochs: &[Epoch], start: usize, end: usize) -> Vec<Epoch> {
    let ops = epochs.iter().flat_map(|epoch| &epoch.ops);
    let seen: HashSet<Value> = ops
        .filter_map(|op| match op.kind {
            Kind::Read(value) | Kind::Exchange(value, _) => Some(value),
            Kind::Write(_) => None,
        })
        .collect();
    change(epochs, start, end, |op| match op.kind {
        Kind::Write(value) => seen.contains(&value).then_some(op),
        _ => Some(op),
    })
}

/// One call in a line.
#[must_use]
pub fn line(op: &Op) -> String {
    let what = match op.kind {
        Kind::Read(value) => format!("sees     {}", name(value)),
        Kind::Write(ABSENT) => "deletes".into(),
        Kind::Write(value) => format!("writes   {}", name(value)),
        Kind::Exchange(old, new) => format!("replaces {} by {}", name(old), name(new)),
    };
    let ret = match op.ret {
        UNKNOWN => "?".into(),
        ret => ret.to_string(),
    };
    format!(
        "{:>10} … {ret:<10} client {:<3} {what}   ({})",
        op.call, op.client, op.via
    )
}

/// A history for people, in the order of the calls.
#[must_use]
pub fn tell(epochs: &[Epoch]) -> String {
    let mut text = String::new();
    for (number, epoch) in epochs.iter().enumerate() {
        if number > 0 {
            let floor = match epochs[number - 1].floor {
                floor if floor >= UNKNOWN - 1 => "nothing that returned may be lost".into(),
                floor => format!("what had returned before {floor} may not be lost"),
            };
            text += &format!("  --- the end of an epoch: {floor}\n");
        }
        let mut ops = epoch.ops.clone();
        ops.sort_unstable_by_key(|op| op.call);
        for op in ops {
            text += &format!("  {}\n", line(&op));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn a_long_history_with_one_stale_read_becomes_three_lines() {
        let mut rng = Rng::new(3);
        let mut ops = Vec::new();
        let mut time = 0;
        let mut push = |ops: &mut Vec<Op>, kind| {
            time += 2;
            ops.push(Op {
                call: time,
                ret: time + 1,
                kind,
                client: 0,
                via: "test",
            });
        };
        for value in 1..=1000 {
            push(&mut ops, Kind::Write(value));
            for _ in 0..rng.below(3) {
                push(&mut ops, Kind::Read(value));
            }
        }
        push(&mut ops, Kind::Read(999));
        let epochs = [Epoch {
            ops,
            floor: UNKNOWN,
        }];
        let small = shrink(ABSENT, &epochs);
        assert!(linear::check(ABSENT, &small).is_err());
        let text = tell(&small);
        assert_eq!(small[0].ops.len(), 3, "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
