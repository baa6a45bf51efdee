//! How every change of the indexes, a flush's, a compaction's or that of a round of value GC, becomes durable, then visible.
//!
//! Thread safety: any thread; changes are committed one at a time, under the manifest's lock.
//!
//! Invariants (order of durability, DESIGN "Data log"):
//! 1. The log is synced up to a change's newest sequence number before the manifest edit that records the change is written.
//! 2. An index edit, the liveness it changes and, for a flush, the flush point are one manifest edit.
//! 3. A segment's file goes only when, in the synced manifest, it holds no live value and lies below the flush point or is no part of the stream, and no version names it any more.

use crate::background::queue::Host;
use crate::durable::manifest::{FlushPoint, Item};
use crate::engine::Engine;
use crate::state::version::{Generation, KeyspaceState, KeyspaceVersion};
use crate::{ErrorKind, Result};
use glintdb_core::SegmentId;
use glintdb_core::index::IndexChange;
use glintdb_log::NewValues;
use std::sync::Arc;

/// A change of one keyspace's index that waits for the manifest.
pub(crate) struct Pending {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) change: IndexChange,
}

/// What a flush takes away from memory when its change is durable.
pub(crate) struct Flushed<'a> {
    pub(crate) generation: &'a Arc<Generation>,
    pub(crate) point: FlushPoint,
}

/// Values in their new segments, with the segments that they were in.
pub(crate) struct Relocated {
    pub(crate) values: NewValues,
    /// Whatever is live in them has moved.
    pub(crate) victims: Vec<SegmentId>,
}

/// Gives up changes that did not reach the manifest.
pub(crate) fn abandon(pending: Vec<Pending>) {
    for Pending { keyspace, change } in pending {
        keyspace.index.abandon(change);
    }
}

/// The items that record changes.
pub(crate) fn items_of(pending: &[Pending], flush_point: Option<FlushPoint>) -> Vec<Item> {
    let mut items = Vec::new();
    for Pending { keyspace, change } in pending {
        if !change.edit.is_empty() {
            items.push(Item::IndexEdit {
                keyspace: keyspace.id,
                edit: change.edit.clone(),
            });
        }
        for delta in change.liveness.iter().filter(|delta| delta.bytes != 0) {
            if delta.bytes < 0
                && glintdb_core::seeded::bug("glintdb: values that die are not counted")
            {
                continue;
            }
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

/// While a change is made. Where that panics, nobody knows what the manifest says of it, or which part of it is in memory.
struct HalfMade<'a>(&'a Engine);

impl Drop for HalfMade<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.after_panic("a change of the indexes");
        }
    }
}

impl Engine {
    /// Commits changes in one manifest edit, applies them and installs the new version; a flush also takes away the generation it has written,
    /// a round of value GC the segments it has emptied.
    pub(crate) fn commit_changes(
        &self,
        pending: Vec<Pending>,
        flushed: Option<Flushed<'_>>,
        relocated: Option<Relocated>,
    ) -> Result<()> {
        // On a caller's thread too. Before the lock: it goes behind it.
        let _half_made = HalfMade(self);
        let mut manifest = self.manifest.lock();
        // Keyspaces dropped meanwhile: what was written for them is nobody's.
        let (pending, dropped): (Vec<_>, Vec<_>) = pending.into_iter().partition(|pending| {
            manifest
                .state()
                .keyspaces
                .contains_key(&pending.keyspace.id)
        });
        abandon(dropped);
        let mut items = items_of(&pending, flushed.as_ref().map(|flushed| flushed.point));
        let (mut values, victims) = relocated
            .map(|relocated| (relocated.values, relocated.victims))
            .unzip();
        // A victim may have died by itself meanwhile, or with a keyspace.
        let moved = values.is_some();
        let of_round = victims.as_ref().is_some_and(|victims| !victims.is_empty());
        let victims = victims.into_iter().flatten();
        items.extend(
            victims
                .filter(|victim| manifest.state().is_live(*victim))
                .map(Item::SegmentRetired),
        );
        if glintdb_core::seeded::bug("glintdb: values that move are not counted")
            && values.is_some()
        {
            items.retain(|item| !matches!(item, Item::Liveness { .. }));
        }
        if !items.is_empty() {
            items.push(Item::LogDurable(self.log.durable()));
        }
        let early = glintdb_core::seeded::bug("glintdb: tables go before the manifest says so");
        for Pending { keyspace, change } in pending.iter().filter(|_| early) {
            keyspace.index.apply(change)?;
        }
        let committed = match items.is_empty() {
            true => Ok(()),
            false => manifest.commit(&items),
        };
        let committed = match committed {
            Err(error)
                if error.kind() == ErrorKind::NoSpace
                    && glintdb_core::seeded::bug(
                        "glintdb: a change that found no space takes effect",
                    ) =>
            {
                Ok(())
            }
            committed => committed,
        };
        if let Err(error) = committed {
            // A manifest that still takes edits has not begun to write this one, or has taken it back.
            let sure = manifest.check().is_ok();
            if sure
                || glintdb_core::seeded::bug("glintdb: the files of an edit in doubt are removed")
            {
                abandon(pending);
            } else {
                // Whether the edit is durable is unknown, so its files stay until the next open decides.
                values.take().into_iter().for_each(NewValues::leave);
                self.note_background_error(&error);
            }
            // Then their files go, which takes as long as the file system likes.
            drop(manifest);
            drop(values);
            return Err(error);
        }
        // The manifest names them: they stay whatever comes.
        values
            .into_iter()
            .for_each(|values| self.log.publish_values(values));
        if of_round {
            self.gc.published();
        }
        for Pending { keyspace, change } in pending.iter().filter(|_| !early) {
            keyspace.index.apply(change)?;
        }
        if let Some(flushed) = &flushed {
            let bytes = flushed.generation.index_bytes();
            self.sequencer.lock().flushed(bytes);
            self.gc.flushed();
        } else if !moved {
            let state = manifest.state();
            let deltas = (pending.iter()).flat_map(|pending| &pending.change.liveness);
            let dropped =
                deltas.filter(|delta| delta.bytes < 0 && !state.retired.contains(&delta.segment));
            self.gc
                .dropped(dropped.map(|delta| (delta.segment, delta.bytes.unsigned_abs())));
        }
        let replaced = self.install(|version| {
            let mut next = version.clone();
            for Pending { keyspace, .. } in &pending {
                next = next.with_keyspace(KeyspaceVersion {
                    state: Arc::clone(keyspace),
                    view: keyspace.index.view(),
                });
            }
            if let Some(flushed) = &flushed {
                next.sealed
                    .retain(|sealed| !Arc::ptr_eq(sealed, flushed.generation));
            }
            next
        });
        if manifest.wants_roll() {
            let snapshots = self.index_snapshots();
            // The change is done. A full disk only means that the file goes on growing; anything else poisons the manifest, and the next edit tells.
            if let Err(error) = manifest.roll(snapshots)
                && error.kind() != ErrorKind::NoSpace
            {
                self.note_background_error(&error);
            }
        }
        drop(manifest);
        self.update_compaction_debt();
        // The tables that were merged go with it, unless somebody still reads: not under a lock that writers and flushes wait for, and before segments are looked at that nobody reads any more.
        drop(replaced);
        self.collect_garbage();
        self.update_space();
        if let Err(error) = self.refill_reserve(0) {
            self.note_background_error(&error);
        }
        Ok(())
    }
}
