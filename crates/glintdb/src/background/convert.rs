//! Replaces the index of a keyspace by one of another kind, while readers and writers go on
//! ([why so](docs/decisions/040-convert.md)).
//!
//! Thread safety: any thread that holds no lock. One conversion of a keyspace runs at a time.
//!
//! Invariants:
//! 1. The old index is paused from the beginning on, so no job of it is under way when the new one
//!    takes over. Flushes go on until the flush lock is taken, and relocations until no more may
//!    begin.
//! 2. One manifest edit voids the edits of the old index and has the whole state of the new one. It
//!    is written under the flush lock and the manifest's lock, while the old index has no job and
//!    no pending relocation.
//! 3. The old index gives up its files only after that edit is durable.

use crate::background::Background;
use crate::background::install::HalfMade;
use crate::durable::manifest::Item;
use crate::index_kinds::{self, AnyIndex, Conversion};
use crate::options::KeyspaceOptions;
use crate::space::priority::Begun;
use crate::state::version::{KeyspaceState, KeyspaceVersion};
use crate::{Error, Result};
use glintdb_core::index::STEP_BUDGET;
use glintdb_core::planted;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Sets a flag of a keyspace while it lives.
struct Flag<'a>(&'a AtomicBool);

impl<'a> Flag<'a> {
    /// `None`: the flag is set already.
    fn set(flag: &'a AtomicBool) -> Option<Self> {
        (!flag.swap(true, Ordering::AcqRel)).then_some(Flag(flag))
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Pauses an index while it lives.
struct Paused(Arc<AnyIndex>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.resume();
    }
}

impl Background {
    /// Gives a keyspace an index of another kind, durably.
    pub(crate) fn convert(
        &self,
        keyspace: &Arc<KeyspaceState>,
        options: KeyspaceOptions,
    ) -> Result<()> {
        index_kinds::validate(&options)?;
        let name = &keyspace.name;
        let Some(converting) = Flag::set(&keyspace.converting) else {
            let what = format!("the index of keyspace {name:?} is being converted already");
            return Err(Error::invalid(what));
        };
        if keyspace.options.lock().index == options.index {
            let what = format!(
                "the index of keyspace {name:?} is of kind {} already",
                options.index.name()
            );
            return Err(Error::invalid(what));
        }
        let converted = self.convert_to(keyspace, options);
        drop(converting);
        self.shared.update_memory();
        (self.shared).update_compaction_debts(std::iter::once(&**keyspace));
        self.shared.schedule();
        self.shared.run_inline();
        converted
    }

    fn convert_to(&self, keyspace: &Arc<KeyspaceState>, options: KeyspaceOptions) -> Result<()> {
        let old = keyspace.index();
        old.pause();
        let _paused = Paused(Arc::clone(&old));
        let conversion = loop {
            match self.shared.indexes.convert(&old, &options)? {
                Some(conversion) => break conversion,
                None => self.end_begun(keyspace, &old)?,
            }
        };
        let running =
            (self.space).begin_writing("conversion", conversion.space_bytes(), Begun::Called)?;
        // Declared after `running`, so that its files are removed before it counts as ended.
        let mut conversion = conversion;
        loop {
            self.space.may_compact()?;
            if !conversion.step(STEP_BUDGET)? {
                break;
            }
            self.check_goes_on(keyspace)?;
        }
        let _switching = Flag::set(&keyspace.switching);
        while !self.take_over(keyspace, &old, &mut conversion, &options)? {
            self.end_begun(keyspace, &old)?;
        }
        drop(running);
        Ok(())
    }

    /// Puts the new index in the place of the old one. Returns false if a job or a relocation of
    /// the old one must end first.
    fn take_over(
        &self,
        keyspace: &Arc<KeyspaceState>,
        old: &AnyIndex,
        conversion: &mut Conversion,
        options: &KeyspaceOptions,
    ) -> Result<bool> {
        // Declared first, so that it is dropped after the locks.
        let _half_made = HalfMade(&self.shared);
        let no_flush = self.no_flush();
        let mut manifest = self.shared.manifest.lock();
        manifest.check()?;
        self.check_goes_on(keyspace)?;
        let is_busy = planted!(
            "glintdb: a conversion does not wait for value GC",
            old.busy(),
            false
        );
        if is_busy {
            return Ok(false);
        }
        let new = conversion.index()?;
        let item = Item::KeyspaceIndex {
            id: keyspace.id,
            options: options.clone(),
            edit: new.snapshot_edit(),
        };
        let record = || self.record(&mut manifest, vec![item.clone()]);
        let recorded = planted!(
            "glintdb: a conversion is not recorded",
            self.shared.reserve.lending(record),
            Ok(())
        );
        if let Err(error) = recorded {
            if manifest.check().is_err() {
                // It is unknown whether the edit is durable. The next open decides.
                conversion.keep();
                self.shared.note_background_error(&error);
            }
            return Err(error);
        }
        conversion.keep();
        let view = new.view();
        keyspace.set_index(new);
        *keyspace.options.lock() = options.clone();
        let replaced = self.shared.install(|version| {
            let state = Arc::clone(keyspace);
            (version.clone()).with_keyspace(KeyspaceVersion { state, view })
        });
        drop((manifest, no_flush));
        old.release();
        // The version may be the last to hold files, which are removed outside of the locks.
        drop(replaced);
        self.space.collect_garbage();
        self.space.update_space();
        Ok(true)
    }

    fn check_goes_on(&self, keyspace: &KeyspaceState) -> Result<()> {
        self.shared.check_open()?;
        keyspace.check_there()
    }

    /// Runs a job that the old index has begun, or waits for running ones.
    fn end_begun(&self, keyspace: &Arc<KeyspaceState>, old: &AnyIndex) -> Result<()> {
        self.check_goes_on(keyspace)?;
        match old.pick_job() {
            Some(job) => self.run_called(keyspace, job),
            None => self.wait_for_jobs(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use crate::{Db, Env, ErrorKind, IndexKind, KeyspaceOptions, Options};
    use glintdb_core::DbId;
    use glintdb_core::sync::atomic::Ordering;
    use glintdb_flash::SystemClock;
    use glintdb_simdisk::MemVolume;
    use std::sync::Arc;
    use std::time::Duration;

    fn open() -> Db {
        let env = Env::new(Arc::new(SystemClock::new()), DbId([9; 16]));
        let options = Options::default().background_threads(1);
        options.open_volume(MemVolume::new(), env).unwrap()
    }

    #[test]
    fn a_conversion_waits_for_relocations_lets_no_new_one_begin_and_runs_alone() {
        for kind in [IndexKind::Lsm, IndexKind::BTree] {
            let db = open();
            let options = KeyspaceOptions::default().index(kind);
            let to = match kind {
                IndexKind::Lsm => IndexKind::BTree,
                IndexKind::BTree => IndexKind::Lsm,
            };
            let keyspace = db.create_keyspace("one", options).unwrap();
            keyspace.put("a", vec![1; 2000]).unwrap();
            db.flush().unwrap();
            let place = keyspace.state.index().begin_relocation();
            std::thread::scope(|scope| {
                let converting = scope.spawn(|| keyspace.convert(keyspace.options().of_kind(to)));
                while !keyspace.state.switching.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let error = keyspace
                    .convert(keyspace.options().of_kind(to))
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert!(error.to_string().contains("being converted"), "{error}");
                // A pass over values waits too.
                let moving = scope.spawn(|| keyspace.compact_values());
                std::thread::sleep(Duration::from_millis(100));
                assert!(!converting.is_finished() && !moving.is_finished());
                keyspace.put("b", "2").unwrap();
                db.flush().unwrap();
                assert_eq!(keyspace.options().index, kind);
                drop(place);
                converting.join().unwrap().unwrap();
                moving.join().unwrap().unwrap();
            });
            assert_eq!(keyspace.options().index, to);
            assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&[1; 2000][..]));
            assert_eq!(keyspace.get("b").unwrap().as_deref(), Some(&b"2"[..]));
            assert!(db.verify().unwrap().is_clean());
        }
    }

    #[test]
    fn a_drop_ends_a_conversion() {
        let db = open();
        let keyspace = db
            .create_keyspace("one", KeyspaceOptions::default())
            .unwrap();
        keyspace.put("a", "1").unwrap();
        let place = keyspace.state.index().begin_relocation();
        std::thread::scope(|scope| {
            let options = keyspace.options().of_kind(IndexKind::BTree);
            let converting = scope.spawn(|| keyspace.convert(options));
            while !keyspace.state.switching.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            db.drop_keyspace("one").unwrap();
            let error = converting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        });
        drop(place);
        assert!(db.verify().unwrap().is_clean());
    }

    #[test]
    fn levels_that_were_pinned_take_no_memory_after_a_conversion() {
        let db = open();
        let keyspace = db
            .create_keyspace("one", KeyspaceOptions::default())
            .unwrap();
        for n in 0..5000_u32 {
            keyspace.put(n.to_be_bytes(), [0; 100]).unwrap();
        }
        keyspace.compact().unwrap();
        let pinned = || {
            let stats = db.stats();
            let one = stats.keyspaces.iter().find(|one| one.name == "one");
            one.unwrap().pinned_index_bytes
        };
        while pinned() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let snapshot = db.snapshot();
        keyspace
            .convert(keyspace.options().of_kind(IndexKind::BTree))
            .unwrap();
        let memory = &db.handle.engine.shared.memory;
        let used = memory.used_bytes(glintdb_core::memory::MemoryPart::Pinned);
        assert_eq!((pinned(), used), (0, 0));
        assert_eq!(snapshot.iter(&keyspace).count(), 5000);
    }
}
