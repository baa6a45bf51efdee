//! Offers what tables hold. A table whose keyspace no manifest tells is assigned by the log, where that still has some of its commits.

use super::Work;
use super::candidates::{Candidates, Space, What, When};
use crate::index_kinds::{
    self,
    btree::{self, Salvaged},
};
use crate::tools::check::read_only_env;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::checksum::crc32c;
use glintdb_core::{
    EntryRef, FileId, FileKind, KeyspaceId, RangeTombstone, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::{Volume, VolumeFile};
use glintdb_runs::table::{TableMeta, key_hash, salvage};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Entries of an unassigned table that are looked for in the log: its newest.
const SAMPLES: usize = 128;

/// Which commits wrote what unassigned tables hold, and whose those commits were.
#[derive(Default)]
pub(super) struct Evidence {
    /// Sequence number and hash of a key: the tables that have it.
    samples: HashMap<(SeqNum, u64), Vec<u64>>,
    votes: BTreeMap<u64, BTreeMap<KeyspaceId, u64>>,
}

impl Evidence {
    /// A commit put or deleted this key in this keyspace.
    pub(super) fn see(&mut self, seqno: SeqNum, key: &[u8], keyspace: KeyspaceId) {
        if self.samples.is_empty() {
            return;
        }
        for table in self
            .samples
            .get(&(seqno, key_hash(key)))
            .into_iter()
            .flatten()
        {
            *self
                .votes
                .entry(*table)
                .or_default()
                .entry(keyspace)
                .or_default() += 1;
        }
    }
}

/// Values in segments, verified.
pub(super) struct Values<'v> {
    volume: &'v dyn Volume,
    files: HashMap<SegmentId, Option<Arc<dyn VolumeFile>>>,
}

impl<'v> Values<'v> {
    pub(super) fn new(volume: &'v dyn Volume) -> Self {
        Values {
            volume,
            files: HashMap::new(),
        }
    }

    /// The value, if it is there and what its checksum says.
    pub(super) fn read(&mut self, pointer: &ValuePointer) -> Option<Bytes> {
        let volume = self.volume;
        let opened = self.files.entry(pointer.segment);
        let file = opened.or_insert_with(|| volume.open(pointer.segment.file()).ok());
        let file = file.as_ref()?;
        let end = u64::from(pointer.offset) + u64::from(pointer.length);
        // No memory for a length that the file does not have.
        if file.len().ok()? < end {
            return None;
        }
        let bytes = file
            .read_at(pointer.offset.into(), pointer.length as usize)
            .ok()?;
        (bytes.len() == pointer.length as usize && crc32c(&bytes) == pointer.checksum)
            .then_some(bytes)
    }
}

/// Offers all indexes whose keyspace is known; looks into the others for what the log may know of.
pub(super) fn gather(work: &mut Work<'_>, candidates: &mut Candidates) -> Result<Evidence> {
    let tables = std::mem::take(&mut work.source.tables);
    for (keyspace, meta) in tables.values() {
        one(work, candidates, *keyspace, meta.id, Some(meta))?;
    }
    for (keyspace, edits) in std::mem::take(&mut work.source.trees) {
        tree(work, candidates, keyspace, &edits)?;
    }
    let mut evidence = Evidence::default();
    for id in &work.source.unassigned {
        let mut newest: BTreeMap<(SeqNum, u64), ()> = BTreeMap::new();
        let visit = &mut |key: &[u8], seqno: SeqNum, _: EntryRef<'_>| {
            newest.insert((seqno, key_hash(key)), ());
            if newest.len() > SAMPLES {
                newest.pop_first();
            }
            Ok(())
        };
        // What cannot be read is told when its records are taken.
        if salvage::salvage(&**work.volume, work.source.db, *id, None, visit).is_ok() {
            for sample in newest.into_keys() {
                evidence.samples.entry(sample).or_default().push(id.number);
            }
        }
    }
    Ok(evidence)
}

/// Offers the tables that no manifest assigns, each to the keyspace that most of its commits wrote to.
pub(super) fn gather_unassigned(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    evidence: &Evidence,
) -> Result<()> {
    for id in std::mem::take(&mut work.source.unassigned) {
        let votes = evidence.votes.get(&id.number);
        let most = votes.and_then(|votes| votes.iter().max_by_key(|(_, votes)| **votes));
        let keyspace = match most {
            Some((keyspace, _)) => *keyspace,
            None => {
                let known: Vec<KeyspaceId> = candidates.spaces().map(|(id, _)| id).collect();
                let named = work.source.keyspaces.keys().copied();
                // Every database has the default keyspace, whether or not anything names it.
                let always = std::iter::once(KeyspaceId(0));
                let mut all: Vec<KeyspaceId> = named.chain(known).chain(always).collect();
                all.sort_unstable();
                all.dedup();
                let (keyspace, why) = match all[..] {
                    [only] => (only, "it is the only one known"),
                    _ => (
                        work.source.unassigned_keyspace(id),
                        "nothing tells whose it is",
                    ),
                };
                let name = work.source.name(keyspace);
                work.report.notes.push(format!(
                    "the records of {id} are in keyspace {name:?}: {why}"
                ));
                keyspace
            }
        };
        if !work.source.wants(keyspace) {
            continue;
        }
        one(work, candidates, keyspace, id, None)?;
    }
    Ok(())
}

fn one(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    keyspace: KeyspaceId,
    id: FileId,
    known: Option<&TableMeta>,
) -> Result<()> {
    let space = candidates.space(keyspace)?;
    let mut values = Values::new(&**work.volume);
    let report = &mut *work.report;
    let found = salvage::salvage(
        &**work.volume,
        work.source.db,
        id,
        known,
        &mut |key, seqno, entry| offer(space, &mut values, key, seqno, entry),
    );
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let missing = Error::corruption(id, 0, "expected a table, found no such file");
            report.damage(id, missing);
            if let Some(meta) = known {
                space.suspect_range(meta.range.clone());
            }
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    debug_assert_eq!(id.kind, FileKind::Table);
    delete_ranges(space, &found.tombstones);
    for damage in found.damage {
        space.suspect_range(damage.range);
        report.damage(id, damage.error);
    }
    work.done(id, found.entries);
    Ok(())
}

/// Offers what the tree and the shelf of a B+tree have.
fn tree(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    keyspace: KeyspaceId,
    edits: &[Vec<u8>],
) -> Result<()> {
    let space = candidates.space(keyspace)?;
    let mut values = Values::new(&**work.volume);
    let env = read_only_env(work.volume, work.source.db);
    let found = btree::salvage(env, edits, &mut |_, key, seqno, entry| {
        offer(space, &mut values, key, seqno, entry)
    });
    let found = match found {
        Ok(found) => found,
        Err(error) if is_damage(&error) => {
            return tree_without_root(work, candidates, keyspace, edits, error);
        }
        Err(error) => return Err(error),
    };
    let Salvaged {
        entries,
        tombstones,
        damage,
        lost,
        outdated,
    } = found;
    delete_ranges(space, &tombstones);
    for range in lost {
        space.suspect_range((range.start, range.end));
    }
    if outdated > 0 {
        work.report.notes.push(format!(
            "nodes of the B+tree of keyspace {:?} are lost: {outdated} entries for their keys come \
             from leaves that may be out of date, and records that were deleted may be back",
            work.source.name(keyspace)
        ));
    }
    for (file, error) in damage {
        work.report.damage(file, error);
    }
    for (file, entries) in entries {
        work.done(file, entries);
    }
    Ok(())
}

fn is_damage(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corruption | ErrorKind::UnsupportedFormat
    )
}

/// Offers every table of a B+tree whose edits make no sense.
fn tree_without_root(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    keyspace: KeyspaceId,
    edits: &[Vec<u8>],
    error: Error,
) -> Result<()> {
    let name = work.source.name(keyspace);
    let note = format!("of keyspace {name:?}, records that were deleted may be back: {error}");
    work.report.notes.push(note);
    let everything = (Bytes::new(), None);
    candidates.space(keyspace)?.suspect_range(everything);
    for meta in index_kinds::tables_after(edits) {
        one(work, candidates, keyspace, meta.id, Some(&meta))?;
    }
    Ok(())
}

/// Offers an entry of an index, if its value can be read.
fn offer(
    space: &mut Space,
    values: &mut Values<'_>,
    key: &[u8],
    seqno: SeqNum,
    entry: EntryRef<'_>,
) -> Result<()> {
    let what = match entry {
        EntryRef::Inline(value) => What::Value(Bytes::copy_from_slice(value)),
        EntryRef::Tombstone => What::Deleted,
        EntryRef::Pointer(pointer) if values.read(&pointer).is_some() => What::Pointer(pointer),
        EntryRef::Pointer(_) => return space.suspect(key, When::settled(seqno)),
    };
    space.offer(key, When::settled(seqno), &what)
}

fn delete_ranges(space: &mut Space, tombstones: &[RangeTombstone]) {
    for tombstone in tombstones {
        // An entry of the same commit stands beside the tombstone because it came behind it.
        let when = When {
            seqno: tombstone.seqno,
            order: 0,
        };
        space.delete_range(tombstone, when);
    }
}
