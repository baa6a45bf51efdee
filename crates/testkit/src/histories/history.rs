//! From what clients did to one history a register, and the check of all of them.
//!
//! Thread safety: none is needed; the check takes threads of its own.

use super::graph::Txn;
pub use super::linear::UNKNOWN;
use super::linear::{self, ABSENT, Epoch, Kind, Op, Value, Violation};
use super::registers::{Done, REGISTERS, Record, Register};
use super::shrink;
use super::stage::{Crash, Floor, Moment};
use glintdb::Durability;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The histories of all registers, epoch by epoch.
#[derive(Default)]
pub struct History {
    epochs: Vec<Vec<Epoch>>,
}

/// What a check went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// Histories, one a register that was used.
    pub histories: u64,
    /// Calls in them.
    pub operations: u64,
}

impl History {
    /// Adds an epoch: what its clients did, and how it ended.
    pub fn add(
        &mut self,
        clients: &[Done],
        floors: &[Floor],
        crash: Crash,
        moment: Option<Moment>,
    ) {
        let moment = moment.unwrap_or(Moment {
            begin: UNKNOWN,
            end: UNKNOWN,
        });
        let mut epochs = vec![Epoch::default(); REGISTERS];
        for Record { register, op } in clients.iter().flat_map(|done| &done.records) {
            if let Some(op) = cut(*op, moment) {
                epochs[usize::from(register.0)].ops.push(op);
            }
        }
        let mut all = floors.to_vec();
        all.extend(clients.iter().flat_map(|done| &done.notes.floors));
        let floor = floor(&all, crash, Some(moment));
        for epoch in &mut epochs {
            epoch.floor = floor;
        }
        self.epochs.push(epochs);
    }

    /// Recovery leaves a prefix of the commit order: what was found after the crash that ended the last epoch raises its floor to the call of the newest write that survived.
    pub fn survivors(&mut self, found: &Done) {
        let Some(last) = self.epochs.last_mut() else {
            return;
        };
        let mut newest = 0;
        for Record { register, op } in &found.records {
            let (Kind::Read(value), true) = (op.kind, op.kind != Kind::Read(ABSENT)) else {
                continue;
            };
            let ops = last[usize::from(register.0)].ops.iter();
            let wrote = ops.filter(|op| writes(op.kind) == Some(value));
            newest = wrote.map(|op| op.call).fold(newest, u64::max);
        }
        for epoch in last {
            if epoch.floor != UNKNOWN {
                epoch.floor = epoch.floor.max(newest);
            }
        }
    }

    /// The history of one register.
    #[must_use]
    pub fn of(&self, register: Register) -> Vec<Epoch> {
        let number = usize::from(register.0);
        self.epochs
            .iter()
            .map(|epochs| epochs[number].clone())
            .collect()
    }

    /// Checks all of them, on `threads` threads.
    ///
    /// # Errors
    /// The registers whose histories cannot be explained, and why.
    pub fn check(&self, threads: usize) -> (Checked, Vec<(Register, Violation)>) {
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut checked, mut violations) = (Checked::default(), Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= REGISTERS {
                    return (checked, violations);
                }
                let register = Register(number as u16);
                let epochs = self.of(register);
                let operations: usize = epochs.iter().map(|epoch| epoch.ops.len()).sum();
                checked.histories += u64::from(operations > 0);
                checked.operations += operations as u64;
                if let Err(violation) = linear::check(ABSENT, &epochs) {
                    violations.push((register, violation));
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            let (mut checked, mut violations) = (Checked::default(), Vec::new());
            for worker in workers {
                let (of_worker, mut found) = worker.join().expect("the check does not panic");
                checked.histories += of_worker.histories;
                checked.operations += of_worker.operations;
                violations.append(&mut found);
            }
            (checked, violations)
        })
    }

    /// What is wrong with a register, for people: the smallest history that shows it.
    #[must_use]
    pub fn tell(&self, register: Register, violation: &Violation) -> String {
        let name = History::name(register, violation);
        if violation.given_up {
            return name;
        }
        let possible: Vec<String> = violation
            .possible
            .iter()
            .map(|value| super::value::name(*value))
            .collect();
        let small = shrink::shrink(ABSENT, &self.of(register));
        format!(
            "{name}where the value may have been {}. The smallest part that cannot be explained:\n{}",
            possible.join(", "),
            shrink::tell(&small)
        )
    }

    /// Which register, and at which call it was noticed.
    #[must_use]
    pub fn name(register: Register, violation: &Violation) -> String {
        let key = String::from_utf8_lossy(&register.key()).into_owned();
        let place = format!(
            "keyspace {}, key {key}, epoch {}",
            register.space(),
            violation.epoch
        );
        let what = match violation.given_up {
            true => "too many overlapping writes to decide at",
            false => "nothing explains",
        };
        format!("{place}: {what}\n  {}\n", shrink::line(&violation.op))
    }
}

fn writes(kind: Kind) -> Option<Value> {
    match kind {
        Kind::Write(value) | Kind::Exchange(_, value) => Some(value),
        Kind::Read(_) => None,
    }
}

/// A call as it was at the crash: what had not returned is unknown, what was not called never was.
fn cut(op: Op, moment: Moment) -> Option<Op> {
    if op.ret == UNKNOWN || op.ret <= moment.begin {
        return Some(op);
    }
    if op.call > moment.end || matches!(op.kind, Kind::Read(_)) {
        return None;
    }
    Some(Op { ret: UNKNOWN, ..op })
}

/// From when on what had returned may be lost in a crash: the newest call of something durable that had returned before it.
#[must_use]
pub fn floor(floors: &[Floor], crash: Crash, moment: Option<Moment>) -> u64 {
    let safe = match crash {
        Crash::None => return UNKNOWN - 1,
        Crash::Kill => Durability::Os,
        Crash::PowerCut | Crash::TornPowerCut => Durability::Sync,
    };
    let begin = moment.map_or(UNKNOWN, |moment| moment.begin);
    let reached = floors
        .iter()
        .filter(|floor| floor.level >= safe && floor.ret <= begin);
    reached.map(|floor| floor.call).max().unwrap_or(0)
}

/// Transactions as they were at the crash: reads that had not come back are gone, and what was not acknowledged is unknown.
#[must_use]
pub fn cut_txns(txns: Vec<Txn>, moment: Option<Moment>) -> Vec<Txn> {
    let Some(moment) = moment else { return txns };
    let cut = |txn: Txn| {
        let (call, ret) = match txn.writes.is_empty() {
            true => txn.begin,
            false => txn.commit,
        };
        if ret <= moment.begin || ret == UNKNOWN {
            return Some(txn);
        }
        if txn.writes.is_empty() || call > moment.end {
            return None;
        }
        let commit = (call, UNKNOWN);
        Some(Txn { commit, ..txn })
    };
    txns.into_iter().filter_map(cut).collect()
}
