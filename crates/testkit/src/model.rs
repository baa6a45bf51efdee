//! The reference: what a database holds is a map of keyspaces, each an ordered map; a commit makes a new [`State`] from the one before.
//!
//! Invariants: a state never changes once it is in a [`History`]; states share the keyspaces that a commit did not touch. A state's hash is the sum of the hashes of its
//! keyspaces' names and of its records, so a database can be compared with it without a copy of either.

use crate::ledger::Ledger;
use crate::operation::{Change, Range, Space, Write};
use glintdb::Durability;
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Records of a keyspace.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything a database holds at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    spaces: BTreeMap<Space, Arc<Records>>,
    hash: u64,
}

impl Default for State {
    fn default() -> Self {
        let mut state = State {
            spaces: BTreeMap::new(),
            hash: 0,
        };
        state.create(Space::DEFAULT);
        state
    }
}

/// What a keyspace adds to the hash of its state, beside its records.
#[must_use]
pub fn hash_of_space(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

/// What a record adds to the hash of its state.
#[must_use]
pub fn hash_of_record(space: u64, key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, space))
}

fn hash_of_records(space: u64, records: &Records) -> u64 {
    records.iter().fold(0, |sum, (key, value)| {
        sum.wrapping_add(hash_of_record(space, key, value))
    })
}

impl State {
    /// The keyspaces there are.
    pub fn spaces(&self) -> impl Iterator<Item = Space> + '_ {
        self.spaces.keys().copied()
    }

    /// The records of a keyspace, if there is such a keyspace.
    #[must_use]
    pub fn records(&self, space: Space) -> Option<&Arc<Records>> {
        self.spaces.get(&space)
    }

    /// The value of a key; `None` also where there is no such keyspace.
    #[must_use]
    pub fn get(&self, space: Space, key: &[u8]) -> Option<&[u8]> {
        self.spaces.get(&space)?.get(key).map(Vec::as_slice)
    }

    /// The records in a range, in order.
    #[must_use]
    pub fn range(&self, space: Space, range: &Range) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some(records) = self.spaces.get(&space) else {
            return Vec::new();
        };
        records
            .iter()
            .filter(|(key, _)| range.contains(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// The sum of the hashes of everything in it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Applies the writes of one commit, in order. Keyspaces must be there.
    pub fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            let space = hash_of_space(&write.space.name());
            let records = self.spaces.get_mut(&write.space);
            let records = Arc::make_mut(records.expect("a write to a keyspace that is there"));
            let mut hash = self.hash;
            match &write.change {
                Change::Put(key, value) => {
                    let (key, value) = (key.bytes(), value.bytes());
                    hash = hash.wrapping_add(hash_of_record(space, &key, &value));
                    if let Some(old) = records.insert(key.clone(), value) {
                        hash = hash.wrapping_sub(hash_of_record(space, &key, &old));
                    }
                }
                Change::Delete(key) => {
                    let key = key.bytes();
                    if let Some(old) = records.remove(&key) {
                        hash = hash.wrapping_sub(hash_of_record(space, &key, &old));
                    }
                }
                Change::DeleteRange(range) => records.retain(|key, value| {
                    let gone = range.contains(key);
                    if gone {
                        hash = hash.wrapping_sub(hash_of_record(space, key, value));
                    }
                    !gone
                }),
            }
            self.hash = hash;
        }
    }

    /// Sets the records of a keyspace, whether or not it was there.
    pub fn insert(&mut self, space: Space, records: Arc<Records>) {
        self.drop_space(space);
        let name = hash_of_space(&space.name());
        self.hash = self
            .hash
            .wrapping_add(name)
            .wrapping_add(hash_of_records(name, &records));
        self.spaces.insert(space, records);
    }

    /// Makes an empty keyspace.
    pub fn create(&mut self, space: Space) {
        self.insert(space, Arc::new(Records::new()));
    }

    /// Drops a keyspace.
    pub fn drop_space(&mut self, space: Space) {
        if let Some(records) = self.spaces.remove(&space) {
            let name = hash_of_space(&space.name());
            self.hash = self
                .hash
                .wrapping_sub(name)
                .wrapping_sub(hash_of_records(name, &records));
        }
    }

    /// Whether the value of any key in `range` differs from what it is in `other`.
    #[must_use]
    pub fn differs_in(&self, other: &State, space: Space, range: &Range) -> bool {
        self.range(space, range) != other.range(space, range)
    }

    /// Says where two states differ first.
    #[must_use]
    pub fn difference(&self, other: &State) -> Option<String> {
        let names = |state: &State| state.spaces.keys().copied().collect::<Vec<_>>();
        if names(self) != names(other) {
            return Some(format!(
                "keyspaces {:?} against {:?}",
                names(self),
                names(other)
            ));
        }
        for (space, records) in &self.spaces {
            let others = &other.spaces[space];
            let keys = records.keys().chain(others.keys());
            for key in keys {
                let (one, two) = (records.get(key), others.get(key));
                if one != two {
                    let length = |value: Option<&Vec<u8>>| value.map(Vec::len);
                    return Some(format!(
                        "{space:?} key {}: value of {:?} bytes against {:?} bytes",
                        key.escape_ascii(),
                        length(one),
                        length(two)
                    ));
                }
            }
        }
        None
    }
}

/// The states since the last crash, in commit order, and how far they are durable.
#[derive(Clone, Debug)]
pub struct History {
    /// `states[0]` is where it began; one more a commit.
    states: Vec<State>,
    /// Index of the last state that survives a kill of the process.
    kept_at_kill: usize,
    /// Index of the last state that survives a power cut.
    kept_at_power_cut: usize,
    /// Index of the newest state that is known to be what the database shows.
    confirmed: usize,
    /// States dropped from the beginning of `states`.
    forgotten: u64,
    /// What the newest confirmed state becomes if a commit took effect whose outcome is unknown.
    doubtful: Vec<State>,
    /// Told of every change, where someone watches.
    ledger: Option<Arc<Ledger>>,
}

/// A mark in a [`History`].
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    at_kill: usize,
    at_power_cut: usize,
}

impl Default for History {
    fn default() -> Self {
        History::starting(State::default())
    }
}

impl History {
    /// A history that begins with a state that is durable.
    #[must_use]
    pub fn starting(state: State) -> History {
        History {
            states: vec![state],
            kept_at_kill: 0,
            kept_at_power_cut: 0,
            confirmed: 0,
            forgotten: 0,
            doubtful: Vec::new(),
            ledger: None,
        }
    }

    /// What a crash may leave, kept up to date for whoever looks on while a commit is under way. Clones of this history write to the same one.
    pub fn ledger(&mut self) -> Arc<Ledger> {
        let ledger = Arc::clone(self.ledger.get_or_insert_default());
        self.tell();
        ledger
    }

    fn tell(&self) {
        if let Some(ledger) = &self.ledger {
            ledger.set(
                &self.states,
                &self.doubtful,
                self.forgotten,
                [self.kept_at_kill, self.kept_at_power_cut],
            );
        }
    }

    /// A checkpoint of the newest state is acknowledged.
    pub fn copied(&self, path: &std::path::Path) {
        if let Some(ledger) = &self.ledger {
            ledger.copied(path.to_path_buf(), self.now().clone());
        }
    }

    /// The power is cut: what a kill would have kept may be gone.
    pub fn power_is_cut(&mut self) {
        self.kept_at_kill = self.kept_at_power_cut;
        self.tell();
    }

    /// What the database holds now.
    #[must_use]
    pub fn now(&self) -> &State {
        self.states.last().expect("never empty")
    }

    /// A commit is under way: until [`raise`](Self::raise) it may be kept or lost.
    pub fn begin(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.now().clone();
        change(&mut state);
        self.states.push(state);
        self.tell();
    }

    /// How far everything is acknowledged, for [`unacknowledge`](Self::unacknowledge).
    #[must_use]
    pub fn acknowledged(&self) -> Acknowledged {
        Acknowledged {
            at_kill: self.kept_at_kill,
            at_power_cut: self.kept_at_power_cut,
        }
    }

    /// Goes back to an earlier mark: what was acknowledged since was acknowledged by nobody, for the machine was off.
    pub fn unacknowledge(&mut self, mark: Acknowledged) {
        self.kept_at_kill = mark.at_kill;
        self.kept_at_power_cut = mark.at_power_cut;
        self.tell();
    }

    /// The newest commit was refused: it never was.
    pub fn refuse(&mut self) {
        assert!(self.states.len() > 1, "there is a commit to refuse");
        self.states.pop();
        self.tell();
    }

    /// Everything so far was acknowledged at this level: a level covers all commits before.
    pub fn raise(&mut self, durability: Durability) {
        let last = self.states.len() - 1;
        self.confirmed = last;
        // A commit that went through after them shows that they did not.
        self.doubtful.clear();
        if durability != Durability::Buffered {
            self.kept_at_kill = last;
        }
        if durability == Durability::Sync {
            self.kept_at_power_cut = last;
        }
        self.tell();
    }

    /// The commits begun since the last answer were answered with an error, and the database now shows a state of hash `shown`: the one before them, or of several commits
    /// at once one after the first few. What is not shown may still be there after the next opening, or not.
    ///
    /// # Errors
    /// A sentence, where the database shows anything else.
    pub fn doubt(&mut self, shown: u64, several: bool) -> Result<(), String> {
        let candidates = &self.states[self.confirmed..];
        let index = match candidates.iter().rposition(|state| state.hash() == shown) {
            Some(0) => 0,
            Some(index) if several || candidates[0].hash() == shown => index,
            Some(_) => return Err("a commit that was answered with an error is seen".into()),
            None => return Err("something half-applied is seen".into()),
        };
        self.confirmed += index;
        self.doubt_all();
        Ok(())
    }

    /// As [`doubt`](Self::doubt), where nobody can tell what the database shows.
    pub fn doubt_all(&mut self) {
        self.doubtful
            .extend(self.states.drain(self.confirmed + 1..));
        self.tell();
    }

    /// After a crash the database holds `found`, which must be one of the states that may be left; the history goes on from there. What a killed process left
    /// may still be lost in a power cut.
    ///
    /// # Errors
    /// A sentence, where it is none of them.
    pub fn recover(&mut self, power_cut: bool, found: &State) -> Result<(), String> {
        let first = if power_cut {
            self.kept_at_power_cut
        } else {
            self.kept_at_kill
        };
        if let Some(index) = self.states.iter().rposition(|state| state == found) {
            if index < first {
                return Err(format!(
                    "recovered state {index} of {}, but {first} was acknowledged: commits are lost",
                    self.states.len() - 1
                ));
            }
            self.states.truncate(index + 1);
            self.kept_at_kill = index;
            self.confirmed = index;
            self.doubtful.clear();
            if power_cut {
                self.kept_at_power_cut = index;
            }
            self.forget();
            return Ok(());
        }
        let difference = found.difference(self.now()).unwrap_or_default();
        Err(format!(
            "recovered a state that never was: no prefix of the commits; against the newest: {difference}"
        ))
    }

    /// Drops the states that no crash can bring back; earlier marks are void.
    pub fn forget(&mut self) {
        let unreachable = self.kept_at_power_cut.min(self.kept_at_kill);
        self.states.drain(..unreachable);
        self.kept_at_kill -= unreachable;
        self.kept_at_power_cut -= unreachable;
        self.confirmed -= unreachable;
        self.forgotten += unreachable as u64;
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Key, Value};

    fn put(history: &mut History, key: u8, durability: Durability) {
        let write = Write {
            space: Space::DEFAULT,
            change: Change::Put(
                Key(key),
                Value {
                    length: 3,
                    seed: key,
                },
            ),
        };
        history.begin(|state| state.apply(&[write]));
        history.raise(durability);
    }

    #[test]
    fn recovery_accepts_prefixes_with_everything_acknowledged_and_nothing_else() {
        let mut history = History::default();
        put(&mut history, 1, Durability::Sync);
        put(&mut history, 2, Durability::Os);
        put(&mut history, 3, Durability::Buffered);
        let states = history.states.clone();
        let recovers =
            |power_cut, index: usize| history.clone().recover(power_cut, &states[index]).is_ok();
        assert_eq!(
            [0, 1, 2, 3].map(|index| recovers(false, index)),
            [false, false, true, true]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|index| recovers(true, index)),
            [false, true, true, true]
        );
        let mut hole = states[1].clone();
        hole.apply(&[Write {
            space: Space::DEFAULT,
            change: Change::Put(Key(3), Value { length: 3, seed: 3 }),
        }]);
        assert!(
            history.clone().recover(true, &hole).is_err(),
            "a hole in the commit order"
        );
    }

    #[test]
    fn what_a_kill_left_may_still_be_lost_in_a_power_cut() {
        let mut history = History::default();
        put(&mut history, 1, Durability::Os);
        put(&mut history, 2, Durability::Os);
        let states = history.states.clone();
        history.recover(false, &states[2]).unwrap();
        assert!(history.clone().recover(true, &states[1]).is_ok());
        assert!(history.clone().recover(false, &states[1]).is_err());
        history.raise(Durability::Sync);
        assert!(history.recover(true, &states[1]).is_err());
    }
}
