//! The catalog of keyspaces: lookup by name, creation, change of options, and drop.
//!
//! Thread safety: any thread. Creations and drops run one at a time, under the manifest's lock.

use crate::durable::Durable;
use crate::durable::manifest::Item;
use crate::index_kinds;
use crate::options::{Durability, KeyspaceOptions};
use crate::state::version::{KeyspaceState, KeyspaceVersion};
use crate::{Error, ErrorKind, Result};
use glintdb_core::planted;
use glintdb_core::sync::atomic::Ordering;
use std::sync::Arc;

/// Name of the keyspace that every database has: `"default"`.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Longest name of a keyspace, in bytes: 255.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

impl Durable {
    /// Returns the keyspace of a name.
    pub(crate) fn keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        let version = self.shared.version.load();
        version
            .live_keyspaces()
            .find(|keyspace| keyspace.state.name == name)
            .map(|keyspace| Arc::clone(&keyspace.state))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    format!("there is no keyspace {name:?}"),
                )
            })
    }

    /// Creates a keyspace, durably.
    pub(crate) fn create_keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Arc<KeyspaceState>> {
        if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a keyspace's name has 1 to {} bytes, not {}",
                KEYSPACE_NAME_BYTES_MAX,
                name.len()
            )));
        }
        index_kinds::validate(&options)?;
        let index = self.shared.indexes.create(&options)?;
        // The log is synced before the manifest, so that the manifest never runs ahead of the log.
        self.writer.flush_log(Durability::Sync)?;
        let mut manifest = self.shared.manifest.lock();
        if manifest
            .state()
            .keyspaces
            .values()
            .any(|record| record.name == name)
        {
            return Err(Error::exists(format!("keyspace {name:?}")));
        }
        let id = manifest.state().keyspace_next;
        assert!(
            self.shared.version.load().keyspace(id).is_none(),
            "the id of a keyspace is given once: {} is in use",
            id.0
        );
        manifest.commit(&[Item::KeyspaceCreated {
            id,
            name: name.to_owned(),
            options: options.clone(),
        }])?;
        let separate_min_bytes = self.shared.options.separate_min_bytes;
        let name = name.to_owned();
        let state = KeyspaceState::new(id, name, options, separate_min_bytes, index);
        let state = Arc::new(state);
        // Begins a new generation, because the old one has no memtable for the keyspace. No commit
        // can name the keyspace before this returns.
        self.sequencer.rotate_with(|version| {
            let view = state.index().view();
            version.with_keyspace(KeyspaceVersion {
                state: Arc::clone(&state),
                view,
            })
        });
        drop(manifest);
        self.shared.schedule();
        self.shared.run_inline();
        Ok(state)
    }

    /// Changes the options of a keyspace, durably.
    pub(crate) fn set_keyspace_options(
        &self,
        keyspace: &KeyspaceState,
        options: KeyspaceOptions,
    ) -> Result<()> {
        index_kinds::validate(&options)?;
        let mut manifest = self.shared.manifest.lock();
        if options.index != keyspace.options.lock().index {
            return Err(Error::invalid(format!(
                "keyspace {:?} keeps its kind of index; call Keyspace::convert to change it",
                keyspace.name
            )));
        }
        keyspace.check_there()?;
        let items = [Item::KeyspaceOptions {
            id: keyspace.id,
            options: options.clone(),
        }];
        planted!(
            "glintdb: options that change are not recorded",
            self.shared.reserve.lending(|| manifest.commit(&items))?,
            ()
        );
        keyspace.index().set_options(&options.encoded_index())?;
        *keyspace.options.lock() = options;
        drop(manifest);
        self.shared.update_memory();
        (self.shared).update_compaction_debts(std::iter::once(keyspace));
        self.shared.schedule();
        self.shared.run_inline();
        Ok(())
    }

    /// Drops a keyspace, durably.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace cannot be dropped"));
        }
        self.writer.flush_log(Durability::Sync)?;
        let mut manifest = self.shared.manifest.lock();
        // Checked before the keyspace is marked as dropped, so that it can still be read if the
        // manifest takes no more edits.
        manifest.check()?;
        // Looked up under the lock, so that the second of two concurrent drops finds nothing.
        let state = self.keyspace(name)?;
        // Marked under the sequencer's lock, so that no commit that names it is numbered after
        // this.
        let newest = self.sequencer.while_newest(|newest| {
            state.dropped.store(true, Ordering::Release);
            newest
        });
        let flushed = manifest.state().flush_point.seqno;
        assert!(
            newest >= flushed,
            "indexes hold commits that were numbered: up to {flushed}, and the newest is {newest}"
        );
        let dropped = [Item::KeyspaceDropped {
            id: state.id,
            seqno: newest,
        }];
        let committed = self.shared.reserve.lending(|| manifest.commit(&dropped));
        if let Err(error) = committed {
            // A manifest that still takes edits has not begun to write this one, or has removed it
            // again.
            if manifest.check().is_ok() {
                state.dropped.store(false, Ordering::Release);
            }
            return Err(error);
        }
        let replaced = self.shared.install(|version| {
            let mut next = version.clone();
            if let Some(slot) = next.keyspaces.get_mut(state.id.0 as usize) {
                *slot = None;
            }
            next
        });
        drop(manifest);
        state.index().discard();
        // It owes nothing now, so that writers that it stopped go on, and find that it is gone.
        self.shared
            .update_compaction_debts(std::iter::once(&*state));
        drop(replaced);
        self.space.collect_garbage();
        self.shared.ask_for_look();
        Ok(())
    }
}
