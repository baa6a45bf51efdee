//! Is the history of one register linearizable? Reads, writes and exchanges (compare-and-set that succeeded) of unique values, by many clients, across crashes.
//!
//! The search takes the calls and returns in the order of time and keeps every *configuration* that explains what was seen so far: the register's value, and which of the calls that
//! have not returned have taken effect. A call takes effect only when something has to be explained by it (its own return at the latest); a configuration set that runs empty is a
//! violation. This is linear in the length of the history where few writes overlap; `docs/decisions/009-histories.md` says why it is not a crate.
//!
//! Two observations keep the set small, and both lose nothing:
//! - A read whose value is there takes effect at once: it changes nothing, and later it could only fail.
//! - A plain write whose value nobody ever saw takes effect just before another plain write, if there is one: it is as if it had not been.
//!
//! A history is cut into *epochs* by crashes. A call that has not returned at the crash took effect before it, or never. What had returned before the epoch's *floor* is
//! still there afterwards; what came later may be lost, from the end.
//!
//! Thread safety: functions of their arguments.

use std::collections::{HashMap, HashSet};

/// What a register holds: the number of a value; [`ABSENT`] stands for none.
pub type Value = u64;
/// No value.
pub const ABSENT: Value = 0;
/// The return of a call whose outcome nobody knows.
pub const UNKNOWN: u64 = u64::MAX;
/// Configurations at most; where there are more the search gives up, which is a failure of the workload: too many overlapping writes of one key.
const CONFIGURATIONS_MAX: usize = 1 << 18;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// This value was seen.
    Read(Value),
    /// This value was written. A deletion writes [`ABSENT`].
    Write(Value),
    /// The first was there and was replaced by the second.
    Exchange(Value, Value),
}

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// When it was called.
    pub call: u64,
    /// When it returned, or [`UNKNOWN`].
    pub ret: u64,
    /// What it did.
    pub kind: Kind,
    /// Who called, for people.
    pub client: u16,
    /// Through what, for people.
    pub via: &'static str,
}

/// What happened between two crashes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Epoch {
    /// The calls, in any order.
    pub ops: Vec<Op>,
    /// At the crash that ends it, what had returned before this is safe. [`UNKNOWN`]: everything that returned.
    pub floor: u64,
}

/// Why a history is not linearizable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// In which epoch.
    pub epoch: usize,
    /// The call at whose return nothing was left that explains it.
    pub op: Op,
    /// The values that the register may have had until then.
    pub possible: Vec<Value>,
    /// The search was given up; nothing is known.
    pub given_up: bool,
}

/// Checks a register that holds `initial` at first.
///
/// # Errors
/// Where the history cannot be explained.
pub fn check(initial: Value, epochs: &[Epoch]) -> Result<(), Violation> {
    let observed = observed(epochs);
    let mut values = vec![initial];
    for (number, epoch) in epochs.iter().enumerate() {
        let search = Search::new(&observed, epoch, number);
        values = search.run(&values)?;
    }
    Ok(())
}

/// Values that someone saw.
fn observed(epochs: &[Epoch]) -> HashSet<Value> {
    let ops = epochs.iter().flat_map(|epoch| &epoch.ops);
    ops.filter_map(|op| match op.kind {
        Kind::Read(value) | Kind::Exchange(value, _) => Some(value),
        Kind::Write(_) => None,
    })
    .collect()
}

/// The register's value and the pending calls that have taken effect, a bit each.
type Configuration = (Value, u128);

struct Search<'a> {
    observed: &'a HashSet<Value>,
    epoch: &'a Epoch,
    number: usize,
    /// Pending calls by slot.
    slots: Vec<Option<Kind>>,
    /// Pending calls whose value nobody saw.
    unseen: u128,
    slot_of: HashMap<usize, usize>,
    configurations: HashSet<Configuration>,
    /// Values the register may have had since the floor.
    since_floor: Option<HashSet<Value>>,
}

impl<'a> Search<'a> {
    fn new(observed: &'a HashSet<Value>, epoch: &'a Epoch, number: usize) -> Self {
        Search {
            observed,
            epoch,
            number,
            slots: Vec::new(),
            unseen: 0,
            slot_of: HashMap::new(),
            configurations: HashSet::new(),
            since_floor: None,
        }
    }

    /// From these values; gives those that may be there after the crash that follows.
    fn run(mut self, values: &[Value]) -> Result<Vec<Value>, Violation> {
        self.configurations = values.iter().map(|value| (*value, 0)).collect();
        let ops = &self.epoch.ops;
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(ops.len() * 2);
        for (index, op) in ops.iter().enumerate() {
            assert!(op.call < op.ret, "a call returns after it was called");
            events.push((op.call, false, index));
            if op.ret != UNKNOWN {
                events.push((op.ret, true, index));
            }
        }
        events.sort_unstable();
        for (time, is_return, index) in events {
            if time > self.epoch.floor && self.since_floor.is_none() {
                self.start_floor();
            }
            if is_return {
                self.returned(index)?;
            } else {
                self.called(index);
            }
        }
        if self.since_floor.is_none() {
            self.start_floor();
        }
        // Whatever is pending may have taken effect before the crash.
        let all: Vec<Configuration> = self.configurations.iter().copied().collect();
        let last = ops.last().copied();
        self.explore(all, None)
            .ok_or_else(|| self.violation(last, true))?;
        Ok(self.since_floor.into_iter().flatten().collect())
    }

    fn start_floor(&mut self) {
        self.since_floor = Some(
            self.configurations
                .iter()
                .map(|(value, _)| *value)
                .collect(),
        );
    }

    fn called(&mut self, index: usize) {
        let kind = self.epoch.ops[index].kind;
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        assert!(slot < 128, "more than 128 calls at once");
        self.slots[slot] = Some(kind);
        self.slot_of.insert(index, slot);
        match kind {
            Kind::Read(value) => {
                self.configurations = self
                    .configurations
                    .iter()
                    .map(|(now, done)| (*now, done | u128::from(*now == value) << slot))
                    .collect();
            }
            Kind::Write(value) if !self.observed.contains(&value) => self.unseen |= 1 << slot,
            _ => {}
        }
    }

    fn returned(&mut self, index: usize) -> Result<(), Violation> {
        let op = self.epoch.ops[index];
        let Some(slot) = self.slot_of.remove(&index) else {
            return Ok(());
        };
        let bit = 1 << slot;
        let (done, open): (Vec<_>, Vec<_>) = self
            .configurations
            .iter()
            .copied()
            .partition(|(_, done)| done & bit != 0);
        let Some(mut explained) = self.explore(open, Some(slot)) else {
            return Err(self.violation(Some(op), true));
        };
        explained.extend(done);
        if explained.is_empty() {
            return Err(self.violation(Some(op), false));
        }
        self.configurations = explained
            .into_iter()
            .map(|(value, done)| (value, done & !bit))
            .collect();
        self.slots[slot] = None;
        self.unseen &= !bit;
        Ok(())
    }

    /// Lets pending calls take effect in every order until `wanted` has, everywhere; all of them where none is wanted. `None`: there are too many ways.
    fn explore(
        &mut self,
        mut open: Vec<Configuration>,
        wanted: Option<usize>,
    ) -> Option<Vec<Configuration>> {
        let mut seen: HashSet<Configuration> = open.iter().copied().collect();
        let mut explained = Vec::new();
        while let Some((value, done)) = open.pop() {
            for (slot, kind) in self.slots.iter().enumerate() {
                let bit = 1_u128 << slot;
                if done & bit != 0 || (self.unseen & bit != 0 && wanted != Some(slot)) {
                    continue;
                }
                let next = match kind {
                    Some(Kind::Write(new)) => self.at_once(*new, done | bit | self.unseen),
                    Some(Kind::Exchange(old, new)) if *old == value => {
                        self.at_once(*new, done | bit)
                    }
                    _ => continue,
                };
                if let Some(values) = &mut self.since_floor {
                    values.insert(next.0);
                }
                if seen.insert(next) {
                    match wanted {
                        Some(wanted) if next.1 >> wanted & 1 == 1 => explained.push(next),
                        _ => open.push(next),
                    }
                }
            }
            if seen.len() > CONFIGURATIONS_MAX {
                return None;
            }
        }
        Some(explained)
    }

    /// Lets every pending read that sees its value take effect.
    fn at_once(&self, value: Value, mut done: u128) -> Configuration {
        for (slot, kind) in self.slots.iter().enumerate() {
            if *kind == Some(Kind::Read(value)) {
                done |= 1 << slot;
            }
        }
        (value, done)
    }

    fn violation(&self, op: Option<Op>, given_up: bool) -> Violation {
        let nobody = Op {
            call: 0,
            ret: UNKNOWN,
            kind: Kind::Read(ABSENT),
            client: 0,
            via: "the crash",
        };
        let mut possible: Vec<Value> = self
            .configurations
            .iter()
            .map(|(value, _)| *value)
            .collect();
        possible.sort_unstable();
        possible.dedup();
        Violation {
            epoch: self.number,
            op: op.unwrap_or(nobody),
            possible,
            given_up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn op(call: u64, ret: u64, kind: Kind) -> Op {
        Op {
            call,
            ret,
            kind,
            client: 0,
            via: "test",
        }
    }

    fn whole(ops: &[Op]) -> Vec<Epoch> {
        vec![Epoch {
            ops: ops.to_vec(),
            floor: UNKNOWN,
        }]
    }

    /// Every order of the calls that time allows, one after the other: what linearizable means, word for word.
    fn explained_by_trying_all_orders(value: Value, left: &[Op]) -> bool {
        let first_return = left.iter().map(|op| op.ret).min().unwrap_or(UNKNOWN);
        left.iter().all(|op| op.ret == UNKNOWN)
            || left.iter().enumerate().any(|(index, op)| {
                let next = match op.kind {
                    Kind::Read(seen) if seen == value => value,
                    Kind::Write(new) => new,
                    Kind::Exchange(old, new) if old == value => new,
                    _ => return false,
                };
                let mut rest = left.to_vec();
                rest.remove(index);
                op.call < first_return && explained_by_trying_all_orders(next, &rest)
            })
    }

    /// Random small histories, a fifth of them linearizable: the search agrees with trying all orders on each.
    #[test]
    fn the_search_agrees_with_trying_all_orders() {
        let mut rng = Rng::new(1);
        let mut linearizable = 0;
        const CASES: u32 = 6_000;
        for case in 0..CASES {
            let mut ops = Vec::new();
            let count = 2 + rng.below(6);
            for number in 1..=count {
                let call = 1 + rng.below(20);
                let ret = match rng.below(8) {
                    0 => UNKNOWN,
                    _ => 100 * (call + 1 + rng.below(8)) + number,
                };
                let some = |rng: &mut Rng| rng.below(4);
                let kind = match rng.below(8) {
                    0..=3 => Kind::Read(some(&mut rng)),
                    4 => Kind::Exchange(some(&mut rng), number),
                    5 => Kind::Write(ABSENT),
                    _ => Kind::Write(number),
                };
                // An unknown outcome tells no reader anything.
                if ret != UNKNOWN || !matches!(kind, Kind::Read(_)) {
                    ops.push(op(100 * call + number, ret, kind));
                }
            }
            let wanted = explained_by_trying_all_orders(ABSENT, &ops);
            linearizable += u32::from(wanted);
            let found = check(ABSENT, &whole(&ops)).is_ok();
            assert_eq!(found, wanted, "case {case}: {ops:#?}");
        }
        assert!(
            (CASES / 8..CASES * 4 / 5).contains(&linearizable),
            "{linearizable} of {CASES} are linearizable"
        );
    }

    #[test]
    fn a_stale_read_is_found_and_an_overlapping_one_is_not() {
        let stale = [
            op(1, 2, Kind::Write(7)),
            op(3, 4, Kind::Write(8)),
            op(5, 6, Kind::Read(7)),
        ];
        let violation = check(ABSENT, &whole(&stale)).unwrap_err();
        assert_eq!((violation.op, violation.possible), (stale[2], vec![8]));
        let overlapping = [
            op(1, 2, Kind::Write(7)),
            op(3, 9, Kind::Write(8)),
            op(5, 6, Kind::Read(7)),
        ];
        assert_eq!(check(ABSENT, &whole(&overlapping)), Ok(()));
    }

    #[test]
    fn of_two_exchanges_of_one_value_one_is_a_lost_update() {
        let ops = [
            op(1, 2, Kind::Write(7)),
            op(3, 6, Kind::Exchange(7, 8)),
            op(4, 5, Kind::Exchange(7, 9)),
        ];
        assert!(check(ABSENT, &whole(&ops)).is_err());
    }

    #[test]
    fn after_a_crash_the_safe_is_there_and_the_rest_is_lost_from_the_end() {
        let before = vec![
            op(1, 2, Kind::Write(1)),
            op(3, 4, Kind::Write(2)),
            op(5, 6, Kind::Write(3)),
            op(7, UNKNOWN, Kind::Write(4)),
        ];
        let with = |floor, found| {
            let after = vec![op(1, 2, Kind::Read(found))];
            let epochs = [
                Epoch {
                    ops: before.clone(),
                    floor,
                },
                Epoch {
                    ops: after,
                    floor: UNKNOWN,
                },
            ];
            check(ABSENT, &epochs).is_ok()
        };
        // Everything that returned is safe: the last of them, or the one in flight.
        assert_eq!(
            [0, 1, 2, 3, 4].map(|found| with(UNKNOWN, found)),
            [false, false, false, true, true]
        );
        // Safe is what had returned when the third was called.
        assert_eq!(
            [0, 1, 2, 3, 4].map(|found| with(5, found)),
            [false, false, true, true, true]
        );
        assert_eq!([0, 1].map(|found| with(0, found)), [true, true]);
    }

    #[test]
    fn what_was_in_flight_at_a_crash_does_not_come_back_later() {
        let epoch = |ops: &[Op]| Epoch {
            ops: ops.to_vec(),
            floor: UNKNOWN,
        };
        let epochs = [
            epoch(&[op(1, UNKNOWN, Kind::Write(1))]),
            epoch(&[op(1, 2, Kind::Read(ABSENT)), op(3, 4, Kind::Read(1))]),
        ];
        assert_eq!(check(ABSENT, &epochs).unwrap_err().epoch, 1);
    }
}
