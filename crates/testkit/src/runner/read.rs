//! Reads: everything that can be asked, compared with the model.

use super::{Done, Runner, Stop, ensure};
use crate::model::State;
use crate::operation::{Key, Range, Space, Walk, Write};
use crate::place::Place;
use glintdb::{Bytes, Db, Error, Iter, Keyspace, Snapshot, Transaction};
use std::collections::VecDeque;
use std::sync::Arc;

/// Something to read from.
pub(super) enum Source<'a> {
    Newest(&'a Keyspace),
    Snapshot(&'a Snapshot, &'a Keyspace),
    Transaction(&'a mut Transaction, &'a Keyspace),
}

impl Source<'_> {
    pub(super) fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self {
            Source::Newest(keyspace) => keyspace.get(key),
            Source::Snapshot(snapshot, keyspace) => snapshot.get(keyspace, key),
            Source::Transaction(transaction, keyspace) => transaction.get(keyspace, key),
        }
    }

    fn contains(&mut self, key: &[u8]) -> Result<bool, Error> {
        match self {
            Source::Newest(keyspace) => keyspace.contains(key),
            Source::Snapshot(snapshot, keyspace) => snapshot.contains(keyspace, key),
            Source::Transaction(transaction, keyspace) => transaction.contains(keyspace, key),
        }
    }

    pub(super) fn iterate(&mut self, range: &Range) -> Iter {
        match (self, range) {
            (Source::Newest(keyspace), Range::All) => keyspace.iter(),
            (Source::Newest(keyspace), Range::Prefix(key)) => keyspace.prefix(key.bytes()),
            (Source::Newest(keyspace), range) => keyspace.range(range.bounds()),
            (Source::Snapshot(snapshot, keyspace), Range::All) => snapshot.iter(keyspace),
            (Source::Snapshot(snapshot, keyspace), Range::Prefix(key)) => {
                snapshot.prefix(keyspace, key.bytes())
            }
            (Source::Snapshot(snapshot, keyspace), range) => {
                snapshot.range(keyspace, range.bounds())
            }
            (Source::Transaction(transaction, keyspace), Range::All) => transaction.iter(keyspace),
            (Source::Transaction(transaction, keyspace), Range::Prefix(key)) => {
                transaction.prefix(keyspace, key.bytes())
            }
            (Source::Transaction(transaction, keyspace), range) => {
                transaction.range(keyspace, range.bounds())
            }
        }
    }
}

/// Compares the value of a key.
pub(super) fn check_get(source: &mut Source<'_>, state: &State, space: Space, key: Key) -> Done {
    let wanted = state.get(space, &key.bytes());
    let found = source.get(&key.bytes())?;
    ensure!(
        found.as_deref() == wanted,
        "get of {key:?} in {space:?}: value of {:?} bytes, {:?} expected",
        found.map(|value| value.len()),
        wanted.map(<[u8]>::len)
    );
    let found = source.contains(&key.bytes())?;
    ensure!(
        found == wanted.is_some(),
        "contains of {key:?} in {space:?}: {found}"
    );
    Ok(())
}

/// Compares what `multi_get` answers.
fn check_many(
    found: Vec<glintdb::Result<Option<Bytes>>>,
    state: &State,
    space: Space,
    keys: &[Key],
) -> Done {
    ensure!(
        found.len() == keys.len(),
        "multi_get of {} keys: {} answers",
        keys.len(),
        found.len()
    );
    for (found, key) in found.into_iter().zip(keys) {
        let found = found?;
        let wanted = state.get(space, &key.bytes());
        ensure!(
            found.as_deref() == wanted,
            "multi_get: {key:?} in {space:?} is wrong"
        );
    }
    Ok(())
}

/// An iterator of records or of keys.
enum Either {
    Records(Iter),
    Keys(glintdb::Keys),
}

type Found = Option<Result<(Bytes, Option<Bytes>), Error>>;

impl Either {
    /// The next record; forwards it may be `lent`, which is another way through an iterator than owning it.
    fn take(&mut self, backwards: bool, lent: bool) -> Found {
        match self {
            Either::Records(iter) => {
                let copied =
                    |(key, value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                let record = if backwards {
                    iter.next_back()
                } else if lent {
                    iter.next_ref().map(|record| record.map(copied)).transpose()
                } else {
                    iter.next()
                };
                record.map(|record| record.map(|(key, value)| (key, Some(value))))
            }
            Either::Keys(iter) => {
                let key = if backwards {
                    iter.next_back()
                } else {
                    iter.next()
                };
                key.map(|key| key.map(|key| (key, None)))
            }
        }
    }
}

/// Walks an iterator and the model's records together; `middle` runs once, after half of the records.
pub(super) fn check_walk(
    iter: Iter,
    records: Vec<(Vec<u8>, Vec<u8>)>,
    walk: &Walk,
    mut middle: impl FnMut() -> Done,
) -> Done {
    let mut iter = if walk.keys_only {
        Either::Keys(iter.keys())
    } else {
        Either::Records(iter)
    };
    let mut records: VecDeque<_> = records.into();
    let middle_at = (usize::from(walk.records_max).min(records.len()) / 2) as u32;
    for index in 0..=u32::from(walk.records_max) {
        if index == middle_at {
            middle()?;
        }
        let backwards = walk.backwards >> (index % 32) & 1 == 1;
        let wanted = if backwards {
            records.pop_back()
        } else {
            records.pop_front()
        };
        let found = iter.take(backwards, index % 3 < 2).transpose()?;
        let side = if backwards { "back" } else { "front" };
        match (found, wanted) {
            (None, None) => {
                ensure!(
                    iter.take(!backwards, false).is_none(),
                    "an exhausted iterator goes on"
                );
                return Ok(());
            }
            (Some((key, value)), Some((wanted_key, wanted_value))) => {
                ensure!(
                    key == wanted_key,
                    "record {index} from the {side}: key {}, {} expected",
                    key.escape_ascii(),
                    wanted_key.escape_ascii()
                );
                let same = value.as_ref().is_none_or(|value| *value == wanted_value);
                ensure!(
                    same,
                    "record {index} from the {side}, key {}: another value",
                    key.escape_ascii()
                );
            }
            (found, wanted) => {
                let shown = |key: &[u8]| key.escape_ascii().to_string();
                return Err(Stop::Wrong(format!(
                    "record {index} from the {side}: found {:?}, expected {:?}",
                    found.map(|(key, _)| shown(&key)),
                    wanted.map(|(key, _)| shown(&key))
                )));
            }
        }
    }
    Ok(())
}

/// Everything a database holds, through its iterators.
pub(crate) fn read_all(db: &Db) -> Done<State> {
    let mut state = State::default();
    for name in db.keyspaces() {
        let Some(space) = Space::named(&name) else {
            return Err(Stop::Wrong(format!("a keyspace `{name}` that nobody made")));
        };
        let records = db
            .keyspace(&name)?
            .iter()
            .collect::<Result<Vec<_>, Error>>()?;
        let count = records.len();
        let records: crate::model::Records = records
            .into_iter()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect();
        ensure!(records.len() == count, "{space:?}: a key comes twice");
        state.insert(space, Arc::new(records));
    }
    Ok(state)
}

impl Runner {
    pub(super) fn read(&mut self, space: Space, keys: &[Key]) -> Done {
        let Some(keyspace) = self.keyspace(space)? else {
            return Ok(());
        };
        let state = self.history.now();
        for key in keys {
            check_get(&mut Source::Newest(&keyspace), state, space, *key)?;
        }
        let bytes: Vec<_> = keys.iter().map(|key| key.bytes()).collect();
        check_many(keyspace.multi_get(&bytes), state, space, keys)
    }

    pub(super) fn iterate(&mut self, space: Space, walk: &Walk, meanwhile: &[Write]) -> Done {
        let Some(keyspace) = self.keyspace(space)? else {
            return Ok(());
        };
        let iter = Source::Newest(&keyspace).iterate(&walk.range);
        let records = self.history.now().range(space, &walk.range);
        check_walk(iter, records, walk, || self.meanwhile(meanwhile))
    }

    pub(super) fn read_snapshot(
        &mut self,
        slot: u8,
        space: Space,
        keys: &[Key],
        walk: &Walk,
    ) -> Done {
        let Some(taken) = &self.snapshots[usize::from(slot)] else {
            return Ok(());
        };
        // A keyspace dropped, or made, since then is not the one that the snapshot saw.
        let same = taken.epochs.get(&space) == self.epochs.get(&space);
        let Some(keyspace) = self.keyspace(space)?.filter(|_| same) else {
            return Ok(());
        };
        let snapshot = &taken.snapshot;
        let mut source = Source::Snapshot(snapshot, &keyspace);
        for key in keys {
            check_get(&mut source, &taken.state, space, *key)?;
        }
        let bytes: Vec<_> = keys.iter().map(|key| key.bytes()).collect();
        check_many(
            snapshot.multi_get(&keyspace, &bytes),
            &taken.state,
            space,
            keys,
        )?;
        let records = taken.state.range(space, &walk.range);
        check_walk(source.iterate(&walk.range), records, walk, || Ok(()))
    }

    /// Compares everything, forwards and backwards.
    pub(crate) fn compare_all(&self, db: &Db) -> Done {
        let found = read_all(db)?;
        if let Some(difference) = found.difference(self.history.now()) {
            return Err(Stop::Wrong(format!(
                "the database and the model differ: {difference}"
            )));
        }
        for space in found.spaces() {
            let backwards = db.keyspace(&space.name())?.iter().rev();
            let backwards = backwards.collect::<Result<Vec<_>, Error>>()?;
            let mut records = self.history.now().range(space, &Range::All);
            records.reverse();
            let same = backwards.iter().map(|(key, value)| (&key[..], &value[..]));
            ensure!(
                same.eq(records.iter().map(|(key, value)| (&key[..], &value[..]))),
                "{space:?} backwards is not the reverse of forwards"
            );
        }
        Ok(())
    }

    /// Copies the database into a directory, opens the copy and compares.
    pub(super) fn checkpoint(&mut self) -> Done {
        self.checkpoints += 1;
        let dir = match &self.place {
            Place::Directory(dir) => dir,
            Place::Memory(_) => return self.checkpoint_in_memory(),
        };
        let target = dir.with_extension(format!("checkpoint-{}", self.checkpoints));
        self.db().checkpoint(&target)?;
        let copy = self.set.options.clone().open(&target)?;
        self.compare_all(&copy)?;
        let report = copy.verify()?;
        ensure!(
            report.errors.is_empty(),
            "verify of a checkpoint: {:?}",
            report.errors
        );
        copy.put("written into the copy", "and not into the database")?;
        copy.close()?;
        std::fs::remove_dir_all(&target)
            .map_err(|error| Stop::Wrong(format!("remove a checkpoint: {error}")))?;
        self.compare_all(self.db())
    }

    /// The same in a volume in memory. The copy that is opened is one of the volume as a kill would leave it: the checkpoint itself stays for crashes to come.
    fn checkpoint_in_memory(&mut self) -> Done {
        let target = std::path::PathBuf::from(format!("/checkpoint-{}", self.checkpoints));
        self.db().checkpoint(&target)?;
        self.history.copied(&target);
        let Place::Memory(volume) = &self.place else {
            return Ok(());
        };
        let Some(copy) = volume.kill().open_directory(&target) else {
            // The power is off.
            ensure!(self.planned.is_some(), "the checkpoint is not there");
            return Ok(());
        };
        let copy = Place::Memory(copy).open_in_order(self.set.options.clone(), self.job_order)?;
        self.compare_all(&copy)?;
        // As an error of the engine: where a write went astray it is the right answer.
        if let Some(error) = copy.verify()?.errors.into_iter().next() {
            return Err(error.context("verify of a checkpoint").into());
        }
        copy.put("written into the copy", "and not into the database")?;
        copy.close()?;
        self.compare_all(self.db())
    }
}
