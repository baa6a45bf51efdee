//! Transactions. Whether one must conflict follows from what was written meanwhile; where the contract leaves it open (a deletion that deleted nothing,
//! a range that only borders), both answers are taken.

use super::read::{Source, check_get, check_walk};
use super::write::is_commit;
use super::{Done, Runner, Stop};
use crate::model::State;
use crate::operation::{Change, Operation, Range, Space, Step, Walk, Write};
use glintdb::{Error, ErrorKind, Isolation, Transaction, TransactionOptions};
use std::ops::Bound;

/// What the commit must answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Commits,
    Conflicts,
    Either,
}

/// What a transaction has read and written.
#[derive(Default)]
struct Touched {
    reads: Vec<(Space, Range)>,
    writes: Vec<Write>,
}

impl Runner {
    pub(super) fn transaction(
        &mut self,
        serializable: bool,
        before: &[Step],
        interfering: &[Write],
        after: &[Step],
        commit: bool,
    ) -> Done {
        let isolation = match serializable {
            true => Isolation::Serializable,
            false => Isolation::Snapshot,
        };
        let options = TransactionOptions::default().isolation(isolation);
        let mut transaction = self.db().transaction_with(options);
        let snapshot = self.history.now().clone();
        // What the transaction sees: the snapshot and its own writes.
        let mut view = snapshot.clone();
        let mut touched = Touched::default();
        for step in before {
            self.transaction_step(&mut transaction, step, &mut view, &mut touched)?;
        }
        let interfering = self.applied(interfering);
        self.meanwhile(&interfering)?;
        if interfering.len() == 2 {
            // What the transaction must conflict with is in the index then, and tombstones that nobody else needs are gone.
            self.apply(&Operation::Flush)?;
            self.apply(&Operation::Compact(None))?;
            if serializable && let Some(write) = interfering.first() {
                // An index of another kind has it too.
                self.apply(&Operation::Convert(write.space, 0))?;
            }
        }
        for step in after {
            self.transaction_step(&mut transaction, step, &mut view, &mut touched)?;
        }
        if !commit {
            transaction.rollback();
            return Ok(());
        }
        let verdict = verdict(
            serializable,
            &touched,
            &interfering,
            &snapshot,
            self.history.now(),
        );
        self.history.begin(|state| state.apply(&touched.writes));
        match transaction.commit() {
            Ok(()) if verdict == Verdict::Conflicts => Err(Stop::Wrong(
                "a transaction committed over a change that it had not seen".into(),
            )),
            Ok(()) => {
                if is_commit(&touched.writes) {
                    self.history.raise(self.set.options.durability);
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.history.refuse();
                if verdict == Verdict::Commits {
                    return Err(Stop::Wrong(format!(
                        "a transaction without a rival was refused: {error}"
                    )));
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn transaction_step(
        &self,
        transaction: &mut Transaction,
        step: &Step,
        view: &mut State,
        touched: &mut Touched,
    ) -> Done {
        let space = match step {
            Step::Get(space, _) | Step::Scan(space, _) => *space,
            Step::Write(write) => write.space,
        };
        let Some(keyspace) = self.keyspace(space)? else {
            return Ok(());
        };
        match step {
            Step::Get(_, key) => {
                touched.reads.push((space, Range::of(*key)));
                check_get(
                    &mut Source::Transaction(transaction, &keyspace),
                    view,
                    space,
                    *key,
                )
            }
            Step::Scan(_, range) => {
                touched.reads.push((space, range.clone()));
                let iter = Source::Transaction(transaction, &keyspace).iterate(range);
                let walk = Walk {
                    range: range.clone(),
                    backwards: 0x5555_3333,
                    records_max: u8::MAX,
                    keys_only: false,
                };
                check_walk(iter, view.range(space, range), &walk, || Ok(()))
            }
            Step::Write(write) => {
                let written: Result<(), Error> = match &write.change {
                    Change::Put(key, value) => {
                        transaction.put(&keyspace, key.bytes(), value.bytes())
                    }
                    Change::Delete(key) => transaction.delete(&keyspace, key.bytes()),
                    Change::DeleteRange(range) => {
                        transaction.delete_range(&keyspace, range.bounds())
                    }
                };
                written?;
                view.apply(std::slice::from_ref(write));
                touched.writes.push(write.clone());
                Ok(())
            }
        }
    }
}

/// Judges by what the interfering commit changed between `then`, the transaction's snapshot, and `now`.
fn verdict(
    serializable: bool,
    touched: &Touched,
    interfering: &[Write],
    then: &State,
    now: &State,
) -> Verdict {
    let writes = is_commit(&touched.writes);
    if !writes && !serializable {
        return Verdict::Commits;
    }
    let mut ranges: Vec<(Space, Range)> = touched
        .writes
        .iter()
        .map(|write| (write.space, write.change.range()))
        .collect();
    // First committer wins on the keys that are put or deleted; what a range deletion covers is its own affair.
    let mut must = touched
        .writes
        .iter()
        .filter(|write| !matches!(write.change, Change::DeleteRange(_)))
        .any(|write| now.differs_in(then, write.space, &write.change.range()));
    if serializable {
        let changed = touched
            .reads
            .iter()
            .any(|(space, range)| now.differs_in(then, *space, range));
        // A transaction that only reads is serializable where its snapshot stands.
        must |= changed && writes;
        ranges.extend(touched.reads.iter().cloned());
    }
    if must {
        return Verdict::Conflicts;
    }
    let meets = |write: &Write, space: Space, range: &Range| {
        write.space == space && may_meet(&write.change.range(), range)
    };
    let near = interfering.iter().any(|write| {
        ranges
            .iter()
            .any(|(space, range)| meets(write, *space, range))
    });
    if near {
        Verdict::Either
    } else {
        Verdict::Commits
    }
}

/// Whether any key lies in both, one that operations never write among them: the first one of either does then.
fn may_meet(one: &Range, two: &Range) -> bool {
    let first = |range: &Range| match range.bounds().0 {
        Bound::Included(key) => key,
        Bound::Excluded(key) => [&key[..], &[0]].concat(),
        Bound::Unbounded => Vec::new(),
    };
    [first(one), first(two)]
        .iter()
        .any(|key| one.contains(key) && two.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Key;

    /// A deletion of a prefix was said not to meet a scan between that key and the next, as no key of the operations' lies there: the transaction was refused, rightly.
    #[test]
    fn ranges_meet_between_the_keys_of_operations() {
        let (one, two, three) = (Key(61), Key(62), Key(63));
        let behind = Range::Between(Bound::Excluded(one), Bound::Excluded(two));
        assert!(may_meet(&Range::Prefix(one), &behind));
        assert!(may_meet(&behind, &Range::All));
        assert!(!may_meet(&behind, &Range::of(one)));
        assert!(!may_meet(&behind, &Range::of(two)));
        let next = Range::Between(Bound::Included(two), Bound::Excluded(three));
        assert!(!may_meet(&behind, &next) && !may_meet(&next, &behind));
        assert!(may_meet(&next, &Range::of(two)));
    }
}
