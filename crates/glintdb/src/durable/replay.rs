//! The replay of the log into memtables, from the flush point on.
//!
//! Thread safety: one thread opens a database.
//!
//! Invariants:
//! 1. The memory budget holds: full memtables are written to index files meanwhile. These become
//!    visible only when the log that they came from is known to be durable and whole.
//! 2. A replayed sequence number follows the one before it. Keyspace ids that are neither known nor
//!    recorded as dropped are corruption.

use crate::background::flush::write_generation;
use crate::background::install::{Pending, abandon, check, items_of};
use crate::durable::manifest::{FlushPoint, Item, Loaded, Manifest};
use crate::options::Options;
use crate::space::reserve::Reserve;
use crate::state::version::{Generation, KeyspaceState};
use crate::write::operations::{hide_covered, insert_entries};
use crate::{Error, Result};
use glintdb_core::sync::Mutex;
use glintdb_core::{KeyspaceId, SeqNum, planted};
use glintdb_log::{FrameView, LogOp, Lsn};
use glintdb_memtable::{Arena, ChunkPool};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The memtables after a replay, and the newest commit.
pub(super) struct Replayed {
    pub(super) generation: Generation,
    pub(super) newest: SeqNum,
}

/// A full generation that was written to index files, which no manifest names yet: the changes, its
/// newest commit and the place behind it.
type Written = (Vec<Pending>, SeqNum, Lsn);

fn give_up(written: impl IntoIterator<Item = Written>) {
    for (pending, _, _) in written {
        abandon(pending);
    }
}

/// A replay of the log into memtables.
pub(super) struct Replay<'a> {
    options: &'a Options,
    chunks: &'a Arc<ChunkPool>,
    reserve: &'a Reserve,
    keyspaces: &'a BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    loaded: &'a Loaded,
    generation: Generation,
    newest: SeqNum,
    /// Generations that were written to index files, oldest first.
    written: Vec<Written>,
    /// Bytes of log that were replayed.
    bytes: u64,
}

impl<'a> Replay<'a> {
    /// Begins at the flush point of `loaded`.
    pub(super) fn new(
        options: &'a Options,
        chunks: &'a Arc<ChunkPool>,
        reserve: &'a Reserve,
        keyspaces: &'a BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
        loaded: &'a Loaded,
    ) -> Self {
        let FlushPoint { lsn, seqno } = loaded.state.flush_point;
        let arena = Arena::new(Arc::clone(chunks));
        Replay {
            options,
            chunks,
            reserve,
            keyspaces,
            loaded,
            generation: Generation::new(seqno.next(), lsn, arena, keyspaces.keys().copied()),
            newest: seqno,
            written: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the bytes of log that were replayed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Inserts the operations of a frame.
    pub(super) fn frame(&mut self, frame: &FrameView<'_>) -> Result<()> {
        if frame.seqno() <= self.loaded.state.flush_point.seqno {
            return Ok(());
        }
        let wrong = |message: String| {
            Error::corruption(
                frame.lsn().segment.file(),
                u64::from(frame.lsn().offset),
                message,
            )
        };
        if frame.seqno() != self.newest.next() {
            return Err(wrong(format!(
                "expected commit {}, found commit {}",
                self.newest.next(),
                frame.seqno()
            )));
        }
        if self.generation.filled_bytes() >= self.options.memtable_seal_bytes() {
            self.write_out(frame.lsn())?;
        }
        let mut has_ranges = false;
        for entry in frame.entries() {
            has_ranges |= matches!(entry.op, LogOp::DeleteRange { .. });
            if self.generation.keyspace(entry.keyspace).is_none()
                && !self.loaded.state.dropped.contains_key(&entry.keyspace)
            {
                return Err(self.loaded.lacks(entry.keyspace, frame));
            }
        }
        let (generation, seqno) = (&self.generation, frame.seqno());
        planted!(
            "glintdb: replay leaves out the frame at the flush point",
            planted!(
                "glintdb: replay leaves out the end of a batch",
                insert_entries(generation, seqno, frame.entries()),
                insert_entries(
                    generation,
                    seqno,
                    frame.entries().take(frame.entries().count().div_ceil(2))
                )
            ),
            if self.newest > self.loaded.state.flush_point.seqno {
                insert_entries(generation, seqno, frame.entries());
            }
        );
        if has_ranges {
            hide_covered(generation, seqno, frame.entries());
        }
        self.newest = seqno;
        self.bytes += u64::from(frame.end().offset - frame.lsn().offset);
        Ok(())
    }

    /// Writes the full generation to index files, and continues with an empty one that begins at
    /// `next`.
    fn write_out(&mut self, next: Lsn) -> Result<()> {
        let arena = Arena::new(Arc::clone(self.chunks));
        let ids = self.keyspaces.keys().copied();
        let empty = Generation::new(self.newest.next(), next, arena, ids);
        let full = std::mem::replace(&mut self.generation, empty);
        assert!(
            full.first_seqno <= self.newest,
            "a full generation has a commit: it begins with {}, and the newest is {}",
            full.first_seqno,
            self.newest
        );
        let reserve = self.reserve;
        let keyspaces = || self.keyspaces.values().cloned();
        let written = reserve.lending(|| write_generation(&full, keyspaces(), &mut |_| {}));
        let (pending, _) = written?;
        self.written.push((pending, self.newest, next));
        Ok(())
    }

    /// Gives up the index files that were written.
    pub(super) fn give_up(self) {
        give_up(self.written);
    }

    /// Adds the index files that were written to the database, oldest first. The log is durable and
    /// whole now.
    pub(super) fn finish(self, manifest: &Arc<Mutex<Manifest>>, log_end: Lsn) -> Result<Replayed> {
        let mut manifest = manifest.lock();
        let mut written = self.written.into_iter();
        while let Some((pending, newest, next)) = written.next() {
            let point = FlushPoint {
                lsn: next,
                seqno: newest,
            };
            let items = items_of(&pending, Some(point));
            let committed =
                check(&pending).and_then(|()| self.reserve.lending(|| manifest.commit(&items)));
            if let Err(error) = committed {
                // If it is unclear whether this edit reached the disk, the next open decides. Later
                // edits were never written.
                if manifest.check().is_ok() {
                    abandon(pending);
                }
                give_up(written);
                return Err(error);
            }
            for Pending { keyspace, change } in &pending {
                keyspace.index().apply(change)?;
            }
        }
        // From here on a hole before this place is damage. On a full disk this is not recorded.
        let mut items = vec![Item::LogDurable(log_end)];
        let nothing_in_memory = self.generation.first_seqno == self.newest.next();
        if nothing_in_memory {
            // No later open walks the segments so far.
            items.push(Item::FlushPoint(FlushPoint {
                lsn: log_end,
                seqno: self.newest,
            }));
        }
        match manifest.commit(&items) {
            Err(error) if !error.kind().passes() => return Err(error),
            _ => {}
        }
        // Everything that the manifest names was found, so the old one is not needed.
        manifest.remove_older()?;
        let mut generation = self.generation;
        if nothing_in_memory {
            // Replay would begin behind all commits.
            generation.start_lsn = log_end;
        }
        Ok(Replayed {
            generation,
            newest: planted!(
                "glintdb: sequence numbers are given again after recovery",
                self.newest,
                self.loaded.state.flush_point.seqno
            ),
        })
    }
}
