//! Checkpoints: copies of the database that share its files.
//!
//! The active segment is sealed first, so that every linked file is one that is never written
//! again. The copy holds every commit up to that seal.

use crate::Result;
use crate::durable::Durable;
use crate::durable::manifest::Manifest;
use crate::write::seal::Sealed;
use glintdb_core::{FileId, SegmentId, planted};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use glintdb_log::format::FIRST_FRAME_OFFSET;
use glintdb_log::{Lsn, Space};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a segment's header block (`docs/format/log.md`).
const SEGMENT_HEADER_BYTES: usize = 4096;

impl Durable {
    /// Makes a checkpoint in the new directory `target`.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<()> {
        let volume = self.shared.volume.make_directory(target)?;
        self.checkpoint_into(target, &volume).inspect_err(|_| {
            // The files that were linked so far are no database. Files that cannot be removed do no
            // harm.
            for file in volume.list().unwrap_or_default() {
                volume.delete(file).ok();
            }
        })
    }

    fn checkpoint_into(&self, target: &Path, copy: &Arc<dyn Volume>) -> Result<()> {
        self.background.flush()?;
        // Prevents a flush between the seal and the lock below, which would put pointers into later
        // segments, which the copy lacks, into the manifest.
        let _no_flush = self.background.no_flush();
        let Sealed { segment, next } = self.writer.seal_segment(Space::Normal)?;
        let sealed = match segment {
            Some(segment) => segment,
            // Nothing was written since the last seal.
            None => {
                let ids = self.shared.log.segment_ids().into_iter();
                ids.filter(|&id| id < next).max().unwrap_or(SegmentId(0))
            }
        };
        // Locked until the links are made, so that no flush, compaction or drop changes the files
        // that the manifest names.
        let manifest = self.shared.manifest.lock();
        let mut state = manifest.state().clone();
        // Commits behind the seal are not in the copy.
        let copied = Lsn::new(next, FIRST_FRAME_OFFSET);
        assert!(
            state.flush_point.lsn <= copied,
            "a checkpoint has the log up to its flush point: {copied} is before {}",
            state.flush_point.lsn
        );
        state.log_durable = state.log_durable.min(copied);
        // The copy's segments hold every commit, and it has no ring.
        state.ring_bytes = Some(0);
        let snapshots = self.shared.index_snapshots();
        let version = self.shared.version.load_full();
        let mut files: BTreeSet<FileId> = version
            .live_keyspaces()
            .flat_map(|keyspace| keyspace.state.index.files())
            .collect();
        let replayed = state.flush_point.lsn.segment;
        let segments = self
            .shared
            .log
            .segment_ids()
            .into_iter()
            // Values that were moved may be behind the seal, in segments that are no part of the
            // stream.
            .filter(|&id| state.is_live(id) || (replayed..=sealed).contains(&id))
            .filter(|&id| {
                planted!(
                    "glintdb: a checkpoint leaves out segments of values",
                    true,
                    id >= replayed
                )
            });
        files.extend(segments.map(SegmentId::file));
        for file in files {
            self.shared.volume.link(file, target)?;
        }
        // The seal names the next segment, which must exist. Its header alone makes it an empty
        // one.
        let header = self
            .shared
            .volume
            .open(next.file())?
            .read_at(0, SEGMENT_HEADER_BYTES)?;
        let empty = copy.create(
            next.file(),
            CreateOptions {
                class: DataClass::Log,
                reserve_bytes: 0,
                direct: false,
            },
        )?;
        empty.write_at(0, &header)?;
        empty.sync()?;
        copy.sync_directory()?;
        drop(Manifest::create(
            Arc::clone(copy),
            self.shared.db,
            manifest.number(),
            state,
            snapshots,
        )?);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Batch, Durability, Options};
    use glintdb_log::Space;

    /// A checkpoint shows no commit that readers of the database do not see yet (found by `cargo
    /// xtask histories`, seed 68743978, round 0).
    #[test]
    fn commits_before_a_seal_are_visible() {
        let directory = tempfile::tempdir().unwrap();
        let db = Options::default().open(directory.path()).unwrap();
        let mut batch = Batch::new();
        batch.put(&db.default_keyspace(), "key", "value");
        // The first commit of a group, which settles at its end.
        let (engine, mut outstanding) = (&db.handle.engine, None);
        engine
            .writer
            .commit_one(
                &mut batch.operations,
                Durability::Os,
                None,
                &mut outstanding,
            )
            .unwrap();
        assert_eq!(db.get("key").unwrap(), None, "not visible yet");
        engine.writer.seal_segment(Space::Normal).unwrap();
        let seen = db.get("key").unwrap();
        engine
            .writer
            .settle(&mut outstanding, Durability::Os)
            .unwrap();
        assert_eq!(seen.as_deref(), Some(&b"value"[..]));
    }
}
