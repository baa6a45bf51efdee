//! Commits: the model's state is begun before the engine is asked, so that a crash in the middle may find it or not.

use super::{Done, Runner, ensure};
use crate::operation::{Change, Write};
use glintdb::{Batch, Durability};

impl Runner {
    /// One write through its keyspace, at the default durability where that is the one asked for.
    pub(super) fn write(&mut self, write: &Write, durability: Durability) -> Done {
        let Some(keyspace) = self.keyspace(write.space)? else {
            return Ok(());
        };
        let key = match &write.change {
            Change::Put(key, _) | Change::Delete(key) => Some(key.bytes()),
            Change::DeleteRange(_) => None,
        };
        let version = key
            .as_ref()
            .map(|key| keyspace.version_of(key))
            .transpose()?;
        self.history
            .begin(|state| state.apply(std::slice::from_ref(write)));
        let default = durability == self.set.options.durability;
        match &write.change {
            Change::Put(key, value) if default => keyspace.put(key.bytes(), value.bytes())?,
            Change::Put(key, value) => keyspace.put_with(key.bytes(), value.bytes(), durability)?,
            Change::Delete(key) if default => keyspace.delete(key.bytes())?,
            Change::DeleteRange(range) if default => keyspace.delete_range(range.bounds())?,
            Change::Delete(_) | Change::DeleteRange(_) => {
                let batch = self.encode(std::slice::from_ref(write))?;
                self.db().write_with(batch, durability)?;
            }
        }
        if is_commit(std::slice::from_ref(write)) {
            self.history.raise(durability);
        }
        if let (Some(key), Some(before)) = (key, version) {
            let after = keyspace.version_of(key)?;
            ensure!(
                after > before,
                "version_of is {after} after a write, {before} before"
            );
        }
        Ok(())
    }

    /// The writes whose keyspaces are there.
    fn possible(&self, writes: &[Write]) -> Vec<Write> {
        let there = |write: &&Write| self.history.now().records(write.space).is_some();
        writes.iter().filter(there).cloned().collect()
    }

    fn encode(&self, writes: &[Write]) -> Done<Batch> {
        let mut batch = Batch::new();
        for write in writes {
            let keyspace = self.db().keyspace(&write.space.name())?;
            match &write.change {
                Change::Put(key, value) => batch.put(&keyspace, key.bytes(), value.bytes()),
                Change::Delete(key) => batch.delete(&keyspace, key.bytes()),
                Change::DeleteRange(range) => batch.delete_range(&keyspace, range.bounds()),
            };
        }
        let wanted = writes
            .iter()
            .filter(|write| !write.change.is_nothing())
            .count();
        ensure!(
            batch.len() == wanted,
            "a batch counts {} of {wanted}",
            batch.len()
        );
        ensure!(batch.is_empty() == (wanted == 0), "is_empty of a batch");
        Ok(batch)
    }

    pub(super) fn batch(&mut self, writes: &[Write], durability: Durability) -> Done {
        let writes = self.possible(writes);
        let batch = self.encode(&writes)?;
        self.history.begin(|state| state.apply(&writes));
        if durability == self.set.options.durability {
            self.db().write(batch)?;
        } else {
            self.db().write_with(batch, durability)?;
        }
        // An empty batch is no commit, so nothing is raised by it.
        if is_commit(&writes) {
            self.history.raise(durability);
        }
        Ok(())
    }

    pub(super) fn group(&mut self, batches: &[Vec<Write>], durability: Durability) -> Done {
        let batches: Vec<_> = batches.iter().map(|writes| self.possible(writes)).collect();
        let encoded = batches
            .iter()
            .map(|writes| self.encode(writes))
            .collect::<Done<Vec<_>>>()?;
        for writes in &batches {
            self.history.begin(|state| state.apply(writes));
        }
        self.db().write_group(encoded, durability)?;
        if batches.iter().any(|writes| is_commit(writes)) {
            self.history.raise(durability);
        }
        Ok(())
    }

    /// Someone else's commit in the middle of an operation, at the default durability.
    pub(super) fn meanwhile(&mut self, writes: &[Write]) -> Done {
        let durability = self.set.options.durability;
        self.batch(writes, durability)
    }

    /// The writes of `writes` that a commit of them would have applied.
    pub(super) fn applied(&self, writes: &[Write]) -> Vec<Write> {
        self.possible(writes)
    }
}

/// Whether there is anything to commit.
pub(super) fn is_commit(writes: &[Write]) -> bool {
    writes.iter().any(|write| !write.change.is_nothing())
}
