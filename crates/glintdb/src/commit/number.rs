//! A number for a commit: the sequencer's lock, what is looked at under it, and what keeps a commit from its number.
//!
//! Thread safety: as [the commit path's](super).
//!
//! Invariants:
//! 1. One try holds the sequencer's lock and a version; every wait is after it, with neither held: the space that is waited for may be held by that version.
//! 2. No count of users that commits share is written: a version is held by the thread's own debt, keyspaces are borrowed.

use super::Outstanding;
use crate::batch::Operations;
use crate::engine::Engine;
use crate::options::Durability;
use crate::pipeline::SLOTS;
use crate::transaction::Checks;
use crate::version::{Generation, KeyspaceState, Version};
use crate::{Error, ErrorKind, Result};
use glintdb_core::SeqNum;
use glintdb_log::{LargeFrame, Reservation, Space, WaitReason};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A numbered commit with its place.
pub(super) struct Numbered<'a, V> {
    pub(super) seqno: SeqNum,
    pub(super) place: Reservation,
    /// The frame goes round the ring, into a segment of its own.
    pub(super) large: Option<LargeFrame<'a>>,
    pub(super) generation: Held<V>,
}

/// The generation that was active when a commit was numbered: by the version that was loaded before, which costs no count of users, or by itself where it was sealed in between.
pub(super) struct Held<V> {
    version: V,
    newer: Option<Arc<Generation>>,
}

impl<V: Deref<Target = Arc<Version>>> Deref for Held<V> {
    type Target = Generation;
    fn deref(&self) -> &Generation {
        self.newer.as_ref().unwrap_or(&self.version.active)
    }
}

/// What keeps a commit from its number for now.
enum Obstacle {
    /// As many commits are in flight as may be; this one must be visible first.
    Slots(SeqNum),
    /// The space that its flush will need.
    Space,
    /// The active generation is full, and the one before is not flushed.
    Memtable,
    /// Something was committed since the transaction was checked.
    Unchecked,
    Log(WaitReason),
}

impl Engine {
    /// Takes the next number and a place in the log.
    pub(super) fn number<'a>(
        &'a self,
        operations: &Operations,
        keyspaces: &[Arc<KeyspaceState>],
        durability: Durability,
        checks: Option<&Checks>,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<Numbered<'a, impl Deref<Target = Arc<Version>> + use<'a>>> {
        let frame_bytes = operations.frame.frame_bytes();
        let space = if operations.only_deletes() {
            Space::Reserve
        } else {
            Space::Normal
        };
        // For a transaction: everything up to here was checked against what it read and writes.
        let mut checked_to = SeqNum::ZERO;
        if let Some(checks) = checks {
            checked_to = self.check_transaction(checks)?;
        }
        // Holds a lock of the log that flushes need too, so it is given up before any wait but the log's own.
        let mut large = None;
        loop {
            if self.log.is_large(frame_bytes) && large.is_none() {
                self.settle(outstanding, durability)?;
                if space == Space::Normal {
                    self.cover(operations.index_bytes())?;
                }
                large = Some(self.prepare_large(operations, space)?);
            }
            let checked = checks.map(|checks| (checks, checked_to));
            let obstacle =
                match self.try_number(operations, keyspaces, space, checked, &mut large)? {
                    Ok(numbered) => return Ok(numbered),
                    Err(obstacle) => obstacle,
                };
            if !matches!(obstacle, Obstacle::Log(_)) {
                drop(large.take());
            }
            self.settle(outstanding, durability)?;
            match (obstacle, checks) {
                (Obstacle::Slots(seqno), _) => self.pipeline.wait_visible(seqno)?,
                (Obstacle::Space, _) => self.cover(operations.index_bytes())?,
                (Obstacle::Memtable, _) => self.wait_for_memtable()?,
                (Obstacle::Log(reason), _) => self.wait_for_log(reason, space)?,
                (Obstacle::Unchecked, Some(checks)) => {
                    checked_to = self.check_transaction(checks)?;
                }
                (Obstacle::Unchecked, None) => {}
            }
        }
    }

    /// One try, which waits for nothing but commits on their way to their memtables. What it holds of the version is given back before the caller waits: space may come free by that.
    fn try_number<'a>(
        &'a self,
        operations: &Operations,
        keyspaces: &[Arc<KeyspaceState>],
        space: Space,
        checked: Option<(&Checks, SeqNum)>,
        large: &mut Option<LargeFrame<'a>>,
    ) -> Result<
        std::result::Result<Numbered<'a, impl Deref<Target = Arc<Version>> + use<'a>>, Obstacle>,
    > {
        let frame_bytes = operations.frame.frame_bytes();
        let index_bytes = operations.index_bytes();
        let version = self.version.load();
        check_keyspaces(&version, keyspaces)?;
        let mut sequencer = self.sequencer.lock();
        self.pipeline.check()?;
        let dropped = |keyspace: &&Arc<KeyspaceState>| keyspace.dropped.load(Ordering::Acquire);
        if let Some(keyspace) = keyspaces.iter().find(dropped) {
            return Err(gone(keyspace));
        }
        let seqno = sequencer.next;
        if seqno.0 - self.pipeline.visible().0 >= SLOTS {
            return Ok(Err(Obstacle::Slots(SeqNum(seqno.0 - SLOTS / 2))));
        }
        if space == Space::Normal && !self.is_covered(&sequencer, index_bytes) {
            return Ok(Err(Obstacle::Space));
        }
        let seal = sequencer.active.bytes() >= self.options.memtable_seal_bytes()
            || (sequencer.log_bytes + frame_bytes > self.options.replay_bytes_max / 2
                && sequencer.log_bytes > 0);
        if seal && !self.may_seal() {
            return Ok(Err(Obstacle::Memtable));
        }
        if let Some((checks, checked_to)) = checked {
            // Every earlier commit in its memtable: a matter of microseconds, for nobody can be numbered meanwhile and none of them waits for us.
            self.pipeline.wait_completed(sequencer.newest())?;
            if !checks.check_last(&self.version.load(), checked_to)? {
                return Ok(Err(Obstacle::Unchecked));
            }
        }
        let reserved = match large {
            Some(large) => self.log.reserve_large(large),
            None => self.log.reserve(frame_bytes, space),
        };
        let place = match reserved {
            Ok(place) => place,
            Err(reason) => return Ok(Err(Obstacle::Log(reason))),
        };
        let late = glintdb_core::seeded::bug(
            "glintdb: a memtable is sealed after the commit that finds it full",
        );
        if seal && !late {
            self.seal(&mut sequencer, place.lsn());
        }
        sequencer.next = seqno.next();
        if seal && late {
            self.seal(&mut sequencer, place.lsn());
        }
        sequencer.log_bytes += frame_bytes;
        sequencer.index_bytes += index_bytes;
        sequencer.unflushed_bytes += index_bytes;
        sequencer.counts.add(operations);
        let newer = (!Arc::ptr_eq(&version.active, &sequencer.active))
            .then(|| Arc::clone(&sequencer.active));
        Ok(Ok(Numbered {
            seqno,
            place,
            large: large.take(),
            generation: Held { version, newer },
        }))
    }

    fn check_transaction(&self, checks: &Checks) -> Result<SeqNum> {
        let point = self.read_point();
        checks.check_all(self, &point.version)?;
        Ok(point.at)
    }
}

fn check_keyspaces(version: &Version, keyspaces: &[Arc<KeyspaceState>]) -> Result<()> {
    for keyspace in keyspaces {
        let known = version
            .keyspace(keyspace.id)
            .is_some_and(|known| Arc::ptr_eq(&known.state, keyspace));
        if !known {
            return Err(gone(keyspace));
        }
    }
    Ok(())
}

fn gone(keyspace: &KeyspaceState) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "keyspace {:?} was dropped, or belongs to another database",
            keyspace.name
        ),
    )
}
