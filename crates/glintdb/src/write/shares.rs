//! How much of the active generation each keyspace has taken.
//!
//! Memtables, the log to be replayed and the ring are bounded for all keyspaces together, so a
//! keyspace that is written to faster than background work goes could take all of them. A commit is
//! *within its share* if each keyspace that it names has, with this commit, taken at most half of
//! what an equal division among the keyspaces with commits in the generation would give it:
//!
//! ```text
//! 2 × keyspaces × bytes of the keyspace ≤ bytes of all keyspaces
//! ```
//!
//! Such a commit does not sleep for debts that all keyspaces share. While other commits wait for
//! room, it may take what is kept for it: the last part of the ring and of the log that may be
//! replayed ([`unkept`]), and memory beyond the size at which memtables are sealed
//! ([`memtable_bytes_max`]). Half, so that keyspaces that are written to equally all pay.
//!
//! Thread safety: under the sequencer's lock.
//!
//! [`memtable_bytes_max`]: crate::options::Options::memtable_bytes_max

use crate::write::operations::{Named, Operations};
use glintdb_core::KeyspaceId;

/// One in so many bytes of the ring, and of the log that may be replayed, is kept for commits
/// within their share.
const KEPT_PART: u64 = 16;

/// Bytes of `all` that every commit may take.
pub(super) fn unkept(all: u64) -> u64 {
    all - all / KEPT_PART
}

/// What a commit needs room in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// The memtables.
    Memory,
    /// The log: its ring, its segments, and what may be replayed of it.
    Log,
}

/// Bytes of commits.
#[derive(Clone, Copy, Default)]
struct Taken {
    log_bytes: u64,
    index_bytes: u64,
}

impl Taken {
    fn add(&mut self, named: &Named) {
        self.log_bytes += named.log_bytes;
        self.index_bytes += named.index_bytes;
    }

    fn of(&self, room: Room) -> u64 {
        match room {
            Room::Memory => self.index_bytes,
            Room::Log => self.log_bytes,
        }
    }
}

/// What each keyspace has taken of the active generation.
#[derive(Default)]
pub(super) struct Shares {
    /// By the keyspace's id.
    taken: Vec<Taken>,
    all: Taken,
    /// Number of keyspaces that have taken something.
    keyspaces: u64,
}

impl Shares {
    /// Counts a commit.
    pub(super) fn add(&mut self, batch: &Operations) {
        for named in &batch.keyspaces {
            let slot = named.state.id.0 as usize;
            if self.taken.len() <= slot {
                self.taken.resize_with(slot + 1, Taken::default);
            }
            if let Some(taken) = self.taken.get_mut(slot) {
                self.keyspaces += u64::from(taken.log_bytes == 0);
                taken.add(named);
            }
            self.all.add(named);
        }
    }

    /// Returns whether a commit is within its share.
    pub(super) fn is_within_share(&self, batch: &Operations, room: Room) -> bool {
        let (mut all, mut keyspaces) = (self.all, self.keyspaces);
        for named in &batch.keyspaces {
            all.add(named);
            keyspaces += u64::from(self.of(named.state.id).log_bytes == 0);
        }
        batch.keyspaces.iter().all(|named| {
            let mut taken = self.of(named.state.id);
            taken.add(named);
            2 * keyspaces * taken.of(room) <= all.of(room)
        })
    }

    fn of(&self, keyspace: KeyspaceId) -> Taken {
        let taken = self.taken.get(keyspace.0 as usize);
        taken.copied().unwrap_or_default()
    }

    /// Begins another generation.
    pub(super) fn clear(&mut self) {
        self.taken.clear();
        self.all = Taken::default();
        self.keyspaces = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Db, Keyspace, KeyspaceOptions};

    fn batch(puts: &[(&Keyspace, usize)]) -> Operations {
        let mut batch = Operations::default();
        for (keyspace, bytes) in puts {
            batch.put(&keyspace.state, b"key", &vec![7; *bytes]);
        }
        batch
    }

    #[test]
    fn a_commit_is_within_its_share_up_to_half_of_an_equal_division() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(directory.path()).unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| {
            db.create_keyspace(name, KeyspaceOptions::default())
                .unwrap()
        });
        let mut shares = Shares::default();
        let within = |shares: &Shares, puts: &[(&Keyspace, usize)]| {
            let rooms = [Room::Memory, Room::Log];
            rooms.map(|room| shares.is_within_share(&batch(puts), room))
        };
        // The only one that writes has no share to keep to.
        assert_eq!(within(&shares, &[(&one, 100)]), [false; 2]);
        for _ in 0..100 {
            shares.add(&batch(&[(&one, 100)]));
        }
        assert_eq!(within(&shares, &[(&one, 1)]), [false; 2]);
        // A quarter of what both have: about a third of what the other has.
        assert_eq!(within(&shares, &[(&two, 400)]), [true; 2]);
        assert_eq!(within(&shares, &[(&two, 400), (&one, 1)]), [false; 2]);
        // A separated value takes log, and hardly any memory.
        assert_eq!(within(&shares, &[(&two, 40_000)]), [true, false]);
        for n in 0..100 {
            let expected = [n < 33; 2];
            assert_eq!(within(&shares, &[(&two, 100)]), expected, "{n}");
            shares.add(&batch(&[(&two, 100)]));
        }
        // Of three equal ones none is within its share.
        assert_eq!(within(&shares, &[(&three, 100)]), [true; 2]);
        for _ in 0..100 {
            shares.add(&batch(&[(&three, 100)]));
        }
        for keyspace in [&one, &two, &three] {
            assert_eq!(within(&shares, &[(keyspace, 1)]), [false; 2]);
        }
        shares.clear();
        assert_eq!(within(&shares, &[(&one, 100)]), [false; 2]);
    }
}
