//! Makes a change of the indexes durable, and then visible: the change of a flush, a compaction, or
//! a round of value GC.
//!
//! Thread safety: any thread. Changes are committed one at a time, under the manifest's lock.
//!
//! Invariants (the order of durability):
//! 1. The log is synced up to a change's newest sequence number before the manifest edit that
//!    records the change is written.
//! 2. An index edit, the liveness that it changes and, for a flush, the flush point are one
//!    manifest edit.
//! 3. A segment's file is removed only when, in the synced manifest, it holds no live value and is
//!    below the flush point or no part of the stream, and no version names it any more.

use crate::background::Background;
use crate::durable::manifest::{FlushPoint, Item, Manifest};
use crate::shared::Shared;
use crate::state::version::{Generation, KeyspaceState, KeyspaceVersion, Version};
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::IndexChange;
use glintdb_core::{SegmentId, planted};
use glintdb_log::NewValues;
use std::sync::Arc;

/// A change of one keyspace's index that waits for the manifest.
pub(crate) struct Pending {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) change: IndexChange,
}

/// The generation that a flush has written, and the flush point behind it.
pub(crate) struct Flushed<'a> {
    pub(crate) generation: &'a Arc<Generation>,
    pub(crate) point: FlushPoint,
    /// Position of the log behind the newest commit in the generation.
    pub(crate) log_position: u64,
}

/// Values in their new segments, with the segments that they were in.
pub(crate) struct Relocated {
    pub(crate) values: NewValues,
    /// The segments whose live values have all moved.
    pub(crate) victims: Vec<SegmentId>,
}

/// The cause of a change.
enum Cause<'a> {
    Flush(Flushed<'a>),
    Compaction,
    Relocation(Relocated),
}

/// Gives up changes that did not reach the manifest.
pub(crate) fn abandon(pending: Vec<Pending>) {
    for Pending { keyspace, change } in pending {
        keyspace.index().abandon(change);
    }
}

/// Checks that the changes fit the indexes. A manifest with an edit that does not fit could not be
/// opened any more.
pub(crate) fn check(pending: &[Pending]) -> Result<()> {
    let mut pending = pending.iter();
    pending.try_for_each(|one| one.keyspace.index().check(&one.change))
}

/// Makes the indexes' changes visible in their views.
fn apply(pending: &[Pending]) -> Result<()> {
    let mut pending = pending.iter();
    pending.try_for_each(|one| one.keyspace.index().apply(&one.change))
}

/// Returns the items that record changes.
pub(crate) fn items_of(pending: &[Pending], flush_point: Option<FlushPoint>) -> Vec<Item> {
    let mut items = Vec::new();
    for Pending { keyspace, change } in pending {
        if !change.edit.is_empty() {
            items.push(Item::IndexEdit {
                keyspace: keyspace.id,
                edit: change.edit.clone(),
            });
        }
        let counts = |bytes: i64| {
            planted!(
                "glintdb: values that die are not counted",
                bytes != 0,
                bytes > 0
            )
        };
        for delta in change.liveness.iter().filter(|delta| counts(delta.bytes)) {
            items.push(Item::Liveness {
                keyspace: keyspace.id,
                segment: delta.segment,
                bytes: delta.bytes,
            });
        }
    }
    items.extend(flush_point.map(Item::FlushPoint));
    items
}

impl Cause<'_> {
    /// Returns the items that record changes with this cause.
    fn items(&self, manifest: &Manifest, pending: &[Pending]) -> Vec<Item> {
        let point = match self {
            Cause::Flush(flushed) => Some(flushed.point),
            Cause::Compaction | Cause::Relocation(_) => None,
        };
        let mut items = items_of(pending, point);
        if let Cause::Relocation(relocated) = self {
            planted!(
                "glintdb: values that move are not counted",
                (),
                items.retain(|item| !matches!(item, Item::Liveness { .. }))
            );
            // A victim may have lost its last live value meanwhile, or its keyspace.
            let victims = relocated.victims.iter().copied();
            let live = victims.filter(|victim| manifest.state().is_live(*victim));
            items.extend(live.map(Item::SegmentRetired));
        }
        items
    }
}

/// Exists while a change is made. If that panics, it is unknown what the manifest says of the
/// change, and which part of it is in memory.
pub(super) struct HalfMade<'a>(pub(super) &'a Shared);

impl Drop for HalfMade<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .poison("there was a panic in a change of the indexes");
        }
    }
}

impl Background {
    /// Commits the changes of a flush, and removes its generation from memory.
    ///
    /// # Errors
    /// Those of the manifest. After `NoSpace` nothing has changed. `Corruption` of a change that
    /// does not fit its index: before it is recorded, the change is given up and its inputs are
    /// free again; afterwards the database is poisoned.
    pub(crate) fn commit_flush(&self, pending: Vec<Pending>, flushed: Flushed<'_>) -> Result<()> {
        self.commit_changes(pending, Cause::Flush(flushed))
    }

    /// Commits the change of a compaction.
    ///
    /// # Errors
    /// The same as [`commit_flush`](Self::commit_flush).
    pub(crate) fn commit_compaction(&self, pending: Pending) -> Result<()> {
        self.commit_changes(vec![pending], Cause::Compaction)
    }

    /// Commits the changes of values that moved, and retires the segments that a round of value GC
    /// has emptied.
    ///
    /// # Errors
    /// The same as [`commit_flush`](Self::commit_flush).
    pub(crate) fn commit_relocation(
        &self,
        pending: Vec<Pending>,
        relocated: Relocated,
    ) -> Result<()> {
        self.commit_changes(pending, Cause::Relocation(relocated))
    }

    fn commit_changes(&self, pending: Vec<Pending>, cause: Cause<'_>) -> Result<()> {
        // Declared first, so that it is dropped after the lock.
        let _half_made = HalfMade(&self.shared);
        let mut manifest = self.shared.manifest.lock();
        // The changes of keyspaces that were dropped meanwhile are given up.
        let (pending, dropped): (Vec<_>, Vec<_>) = (pending.into_iter())
            .partition(|one| manifest.state().keyspaces.contains_key(&one.keyspace.id));
        abandon(dropped);
        self.assert_ready(&manifest, &pending, &cause);
        let items = cause.items(&manifest, &pending);
        let checked = check(&pending);
        planted!(
            "glintdb: tables go before the manifest says so",
            (),
            apply(&pending)?
        );
        if let Err(error) = checked.and_then(|()| self.record(&mut manifest, items)) {
            let files = self.give_up(&manifest, pending, cause, &error);
            // Files are removed outside of the lock, because the file system may take long.
            drop(manifest);
            drop(files);
            return Err(error);
        }
        let flushed = manifest.state().flush_point.seqno;
        let replaced = match self.show(&manifest, &pending, cause) {
            Ok(replaced) => replaced,
            Err(error) => {
                // Memory is not what the manifest says, and inputs may stay reserved for good. No
                // later edit may follow, and nothing may wait for these inputs.
                manifest.fail(&error);
                drop(manifest);
                self.shared
                    .poison("a change is recorded, but does not fit its index");
                return Err(error);
            }
        };
        self.shared.version.load().assert_begins_behind(flushed);
        if manifest.wants_roll() {
            let snapshots = self.shared.index_snapshots();
            // The change is done. If there is no space or no descriptor, the file goes on growing.
            // Any other error poisons the manifest, and the next edit returns it.
            if let Err(error) = manifest.roll(snapshots)
                && !error.kind().passes()
            {
                self.shared.note_background_error(&error);
            }
        }
        drop(manifest);
        let changed = pending.iter().map(|one| &*one.keyspace);
        self.shared.update_compaction_debts(changed);
        // The version may be the last to hold the merged tables. They are removed outside of the
        // lock, and before segments that only this version named are looked for.
        drop(replaced);
        self.space.collect_garbage();
        self.space.update_space();
        if let Err(error) = self.space.refill_reserve(0) {
            self.shared.note_background_error(&error);
        }
        Ok(())
    }

    /// Checks what must hold before the manifest records a change.
    fn assert_ready(&self, manifest: &Manifest, pending: &[Pending], cause: &Cause<'_>) {
        let mut deltas = (pending.iter())
            .flat_map(|one| &one.change.liveness)
            .map(|delta| delta.bytes);
        match cause {
            Cause::Flush(flushed) => {
                let (point, before) = (flushed.point, manifest.state().flush_point);
                assert!(
                    point.seqno >= before.seqno && point.lsn >= before.lsn,
                    "the flush point never moves back: from {before:?} to {point:?}"
                );
                let durable = self.shared.log.durable_position();
                assert!(
                    flushed.log_position <= durable,
                    "the log is durable up to the flush point before the manifest names it: \
                     commits before it end at {}, and the log is durable to {durable}",
                    flushed.log_position
                );
                let newest = pending.iter().map(|one| one.change.seqno_max).max();
                assert!(
                    newest <= Some(point.seqno),
                    "a flush writes no commit behind the flush point: {newest:?}, {point:?}"
                );
                assert!(
                    deltas.all(|bytes| bytes >= 0),
                    "a flush adds pointers and drops none"
                );
            }
            Cause::Compaction => assert!(
                deltas.all(|bytes| bytes <= 0),
                "a compaction drops pointers and adds none"
            ),
            Cause::Relocation(relocated) => {
                let pointers = relocated.values.pointers().iter();
                let moved: i64 = pointers.map(|pointer| i64::from(pointer.length)).sum();
                let added: i64 = deltas.sum();
                assert!(
                    (0..=moved).contains(&added),
                    "a relocation adds the values that it has moved: {added} of {moved} bytes"
                );
            }
        }
    }

    /// Makes the items durable in the manifest, in one edit.
    pub(super) fn record(&self, manifest: &mut Manifest, mut items: Vec<Item>) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        items.push(Item::LogDurable(self.shared.log.durable()));
        let recorded = manifest.commit(&items);
        planted!(
            "glintdb: a change that found no space takes effect",
            recorded,
            recorded.or_else(|error| match error.kind() {
                ErrorKind::NoSpace => Ok(()),
                _ => Err(error),
            })
        )
    }

    /// Gives up changes that the manifest did not take. Returns new values whose files are removed
    /// when they are dropped.
    fn give_up(
        &self,
        manifest: &Manifest,
        pending: Vec<Pending>,
        cause: Cause<'_>,
        error: &Error,
    ) -> Option<NewValues> {
        let values = match cause {
            Cause::Relocation(relocated) => Some(relocated.values),
            Cause::Flush(_) | Cause::Compaction => None,
        };
        // A manifest that still takes edits has not begun to write this one, or has removed it
        // again. Otherwise it is unknown whether the edit is durable, and its files stay until the
        // next open decides.
        let in_doubt = planted!(
            "glintdb: the files of an edit in doubt are removed",
            manifest.check().is_err(),
            false
        );
        if !in_doubt {
            abandon(pending);
            return values;
        }
        values.into_iter().for_each(NewValues::leave);
        self.shared.note_background_error(error);
        None
    }

    /// Makes durable changes visible. Returns the replaced version, to be dropped outside of locks.
    fn show(
        &self,
        manifest: &Manifest,
        pending: &[Pending],
        cause: Cause<'_>,
    ) -> Result<Arc<Version>> {
        let mut written = None;
        let is_compaction = matches!(cause, Cause::Compaction);
        match cause {
            Cause::Flush(flushed) => written = Some(flushed.generation),
            Cause::Compaction => {}
            Cause::Relocation(relocated) => {
                // The manifest names the new segments now, so they stay even after an error.
                self.shared.log.publish_values(relocated.values);
                let mut victims = relocated.victims.iter();
                assert!(
                    !victims.any(|victim| manifest.state().is_live(*victim)),
                    "a segment whose values have moved is not live"
                );
                if !relocated.victims.is_empty() {
                    self.space.gc().published();
                }
            }
        }
        planted!(
            "glintdb: tables go before the manifest says so",
            apply(pending)?,
            ()
        );
        if let Some(generation) = written {
            self.sequencer.flushed(generation.index_bytes());
            self.space.gc().flushed();
        }
        if is_compaction {
            let retired = &manifest.state().retired;
            let deltas = pending.iter().flat_map(|one| &one.change.liveness);
            let dropped =
                deltas.filter(|delta| delta.bytes < 0 && !retired.contains(&delta.segment));
            self.space
                .gc()
                .dropped(dropped.map(|delta| (delta.segment, delta.bytes.unsigned_abs())));
        }
        Ok(self.shared.install(|version| {
            let mut next = version.clone();
            for Pending { keyspace, .. } in pending {
                next = next.with_keyspace(KeyspaceVersion {
                    state: Arc::clone(keyspace),
                    view: keyspace.index().view(),
                });
            }
            if let Some(generation) = written {
                let oldest = next.sealed.pop();
                assert!(
                    oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, generation)),
                    "a flush writes the oldest generation"
                );
            }
            next
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::{Cause, Pending};
    use crate::{Db, Env, ErrorKind, Keyspace, KeyspaceOptions, Options};
    use glintdb_core::DbId;
    use glintdb_core::index::{IndexChange, JobStep};
    use glintdb_flash::SystemClock;
    use glintdb_simdisk::MemVolume;
    use std::ops::Bound;
    use std::sync::Arc;

    fn open(volume: &Arc<MemVolume>) -> Db {
        let env = Env::new(Arc::new(SystemClock::new()), DbId([9; 16]));
        let options = Options::default().background_threads(0);
        options.open_volume(volume.clone(), env).unwrap()
    }

    /// Writes two runs that overlap, and returns the change of their merge. Its inputs stay
    /// reserved.
    fn merged(db: &Db, keyspace: &Keyspace) -> Pending {
        for round in 0..2 {
            for key in ["a", "b"] {
                keyspace.put(key, format!("{key}{round}")).unwrap();
            }
            db.flush().unwrap();
        }
        let index = keyspace.state.index();
        let mut job = index
            .pick_full_compaction(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        let change = loop {
            if let JobStep::Done(change) = job.step().unwrap() {
                break change;
            }
        };
        assert!(index.busy());
        Pending {
            keyspace: Arc::clone(&keyspace.state),
            change,
        }
    }

    #[test]
    fn inputs_of_a_compaction_whose_edit_was_refused_are_free_again() {
        let volume = MemVolume::new();
        let db = open(&volume);
        let keyspace = db.default_keyspace();
        let mut pending = merged(&db, &keyspace);
        // The edit removes and adds all of its tables twice.
        let again = pending.change.edit[1..].to_vec();
        pending.change.edit.extend(again);
        let refused = db.handle.engine.background.commit_compaction(pending);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corruption);
        assert!(!keyspace.state.index().busy());
        keyspace.compact().unwrap();
        drop((keyspace, db));
        assert_eq!(open(&volume).get("a").unwrap().as_deref(), Some(&b"a1"[..]));
    }

    /// Otherwise `compact` would wait for inputs that stay reserved.
    #[test]
    fn a_recorded_change_that_does_not_fit_its_index_poisons_the_database() {
        let volume = MemVolume::new();
        let db = open(&volume);
        let keyspace = db.default_keyspace();
        let waiting = merged(&db, &keyspace);
        let other = db
            .create_keyspace("other", KeyspaceOptions::default())
            .unwrap();
        let once = merged(&db, &other);
        let twice = Pending {
            keyspace: Arc::clone(&once.keyspace),
            change: once.change.clone(),
        };
        // Each change fits by itself. The second of the other keyspace does not fit after the
        // first one, so the third is never applied.
        let background = &db.handle.engine.background;
        let changed = background.commit_changes(vec![once, twice, waiting], Cause::Compaction);
        assert_eq!(changed.unwrap_err().kind(), ErrorKind::Corruption);
        assert!(keyspace.state.index().busy());
        let refused = keyspace.put("c", "1");
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned);
        let refused = keyspace.compact();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"a1"[..]));
    }

    #[test]
    fn a_change_that_does_not_fit_its_index_is_refused_before_the_manifest_records_it() {
        let volume = MemVolume::new();
        let env = || Env::new(Arc::new(SystemClock::new()), DbId([9; 16]));
        let options = || Options::default().background_threads(0);
        let db = options().open_volume(volume.clone(), env()).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put("a", "1").unwrap();
        let unknown_version = IndexChange {
            edit: vec![250],
            ..IndexChange::default()
        };
        let pending = Pending {
            keyspace: Arc::clone(&keyspace.state),
            change: unknown_version,
        };
        let refused = db.handle.engine.background.commit_compaction(pending);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnsupportedFormat);
        keyspace.put("b", "2").unwrap();
        keyspace.compact().unwrap();
        drop((keyspace, db));
        let db = options().open_volume(volume, env()).unwrap();
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}
