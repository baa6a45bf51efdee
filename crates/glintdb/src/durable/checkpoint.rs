//! Checkpoints: copies of the database in another directory, which share its files, or have copies
//! of them where the file system refuses hard links.
//!
//! A checkpoint first ends the log's active segment, so that it takes only files that are never
//! written again. It holds every commit up to that seal.
//!
//! Thread safety: any thread that holds no lock. Other threads commit, flush, compact, and create
//! and drop keyspaces meanwhile.
//!
//! Invariants:
//! 1. Locks are held for the look at the manifest and the versions, not for work on files, except
//!    that no flush begins while the segment is ended.
//! 2. A [`Source`] keeps the files that it names, as a snapshot does: compactions, value GC and
//!    drops go on, and files that die stay until it is dropped.
//! 3. The manifest of the copy is written last, after all its files and names are durable. Without
//!    a manifest the copy does not open.

use crate::durable::Durable;
use crate::durable::manifest::{Manifest, State};
use crate::options::Durability;
use crate::read::pins::Registered;
use crate::state::version::ReadPoint;
use crate::write::seal::Sealed;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::{FileId, KeyspaceId, SegmentId, planted};
use glintdb_flash::{CreateOptions, DataClass, Volume, VolumeFile};
use glintdb_log::format::FIRST_FRAME_OFFSET;
use glintdb_log::{Lsn, Space};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a segment's header block (`docs/format/log.md`).
const SEGMENT_HEADER_BYTES: usize = 4096;
/// Bytes that are copied in one step. Closing waits for no more than that.
const STEP_BYTES: usize = 1 << 20;
/// A copy is synced whenever this many bytes of it are not, so that the system never has much of it
/// to write at once.
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// The database at the moment of a seal, and its files, which stay as long as this lives.
struct Source<'a> {
    durable: &'a Durable,
    /// The manifest's state, as the copy will have it.
    state: State,
    manifest_number: u64,
    /// The whole state of each index.
    indexes: Vec<(KeyspaceId, Vec<u8>)>,
    files: BTreeSet<FileId>,
    /// The segment behind the seal, of which the copy has the header alone.
    next: SegmentId,
    next_header: Bytes,
    /// Keeps the files.
    pin: Registered,
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        if self.durable.shared.pins.remove(&self.pin) {
            self.durable.space.collect_garbage_if_waiting();
        }
    }
}

impl Durable {
    /// Makes a checkpoint in the new directory `target`.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<()> {
        let copy = self.shared.volume.make_directory(target)?;
        let source = self.checkpoint_source();
        let made = source.and_then(|source| source.copy_to(target, &copy));
        made.inspect_err(|_| {
            // The files so far are no database. Files that cannot be removed do no harm.
            for file in copy.list().unwrap_or_default() {
                copy.delete(file).ok();
            }
        })
    }

    /// Ends the active segment, and collects what a copy of the database at that moment consists
    /// of.
    fn checkpoint_source(&self) -> Result<Source<'_>> {
        self.background.flush()?;
        // Empties the ring while commits go on. The next commit after the seal waits until the rest
        // has left it too.
        self.writer.flush_log(Durability::Sync)?;
        // Prevents a flush between the seal and the lock below, which would put pointers into later
        // segments, which the copy lacks, into the manifest.
        let no_flush = self.background.no_flush();
        let Sealed { segment, next } = self.writer.seal_segment(Space::Normal)?;
        let sealed = match segment {
            Some(segment) => segment,
            // Nothing was written since the last seal.
            None => {
                let ids = self.shared.log.segment_ids().into_iter();
                ids.filter(|&id| id < next).max().unwrap_or(SegmentId(0))
            }
        };
        // The segment is there as long as no flush can pass it.
        let next_header = self
            .shared
            .volume
            .open(next.file())?
            .read_at(0, SEGMENT_HEADER_BYTES)?;
        // Locked while the files are named and pinned, so that the manifest's state, the indexes
        // and the version belong together.
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
        let segments = self.shared.log.segment_ids();
        let newest = segments.iter().max().copied().unwrap_or(next);
        let version = self.shared.files_version(newest);
        let mut files: BTreeSet<FileId> = version
            .live_keyspaces()
            .flat_map(|keyspace| keyspace.view.files())
            .collect();
        let replayed = state.flush_point.lsn.segment;
        // Segments of moved values are no part of the stream. Those that are not live may be gone
        // already.
        let in_stream = |id| (replayed..=sealed).contains(&id) && !self.space.holds_moved(id);
        // Live segments of moved values may have ids behind the seal.
        let segments = (segments.into_iter())
            .filter(|&id| state.is_live(id) || in_stream(id))
            .filter(|&id| {
                planted!(
                    "glintdb: a checkpoint leaves out segments of values",
                    true,
                    id >= replayed
                )
            });
        files.extend(segments.map(SegmentId::file));
        let at = state.flush_point.seqno;
        let source = Source {
            durable: self,
            manifest_number: manifest.number(),
            indexes: self.shared.index_snapshots(),
            state,
            files,
            next,
            next_header,
            pin: (self.shared.pins).register(|| ReadPoint { version, at }, false, false),
        };
        drop(manifest);
        drop(no_flush);
        Ok(source)
    }
}

impl Source<'_> {
    /// Makes the copy in the directory `target`, whose volume is `copy`.
    fn copy_to(self, target: &Path, copy: &Arc<dyn Volume>) -> Result<()> {
        let shared = &self.durable.shared;
        for &file in &self.files {
            shared.check_open()?;
            if !shared.volume.link(file, target)? {
                self.copy_file(file, &**copy)?;
            }
        }
        // The seal names the next segment, which must exist. Its header alone makes it an empty
        // one.
        let empty = create(self.next.file(), 0, &**copy)?;
        empty.write_at(0, &self.next_header)?;
        empty.sync()?;
        copy.sync_directory()?;
        drop(Manifest::create(
            Arc::clone(copy),
            shared.db,
            self.manifest_number,
            self.state.clone(),
            self.indexes.clone(),
        )?);
        Ok(())
    }

    /// Copies a file, durably but for its name.
    fn copy_file(&self, file: FileId, copy: &dyn Volume) -> Result<()> {
        match self.copy_bytes(file, copy) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // Recycled files count as free space, and may be on the same file system.
                self.durable.shared.volume.delete_recycled();
                copy.delete(file).ok();
                self.copy_bytes(file, copy)
            }
            copied => copied,
        }
    }

    fn copy_bytes(&self, file: FileId, copy: &dyn Volume) -> Result<()> {
        let shared = &self.durable.shared;
        let from = shared.volume.open(file)?;
        let bytes = from.len()?;
        let to = create(file, bytes, copy)?;
        let (mut copied, mut unsynced) = (0, 0);
        while copied < bytes {
            shared.check_open()?;
            let piece = from.read_at(copied, STEP_BYTES)?;
            if piece.is_empty() {
                let message = format!("expected {bytes} bytes, found the end of the file");
                return Err(Error::corruption(file, copied, message));
            }
            to.write_at(copied, &piece)?;
            copied += piece.len() as u64;
            unsynced += piece.len() as u64;
            if unsynced >= UNSYNCED_BYTES_MAX {
                to.sync()?;
                unsynced = 0;
            }
        }
        to.sync()
    }
}

/// Makes a file of a copy.
fn create(file: FileId, reserve_bytes: u64, copy: &dyn Volume) -> Result<Arc<dyn VolumeFile>> {
    let options = CreateOptions {
        // A copy is not written to before it is opened as a database, so its files live long.
        class: DataClass::Relocated,
        reserve_bytes,
        direct: true,
    };
    copy.create(file, options)
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
