//! The manifest: the list of atomic edits that says which files are the database
//! (`docs/format/manifest.md`).
//!
//! Thread safety: [`Manifest`] is used under the engine's manifest lock.
//!
//! Invariants:
//! 1. An edit is one record; it is there wholly or not at all.
//! 2. A record is synced before the next one is written, so only the last record of a file can be
//!    torn; a bad record with a valid one behind it is corruption.
//! 3. A manifest file begins with a snapshot record. Opening always writes a new file, so nothing
//!    is ever appended behind a torn tail.
//! 4. An old manifest is deleted only after its successor and the successor's name are durable. The
//!    newest file whose snapshot record is whole is the manifest.

mod edit;
mod file;

pub(crate) use edit::{Item, encode_items};
pub(crate) use file::{
    Found, RecordReader, check_database, read_newest, read_whole, salvage_records, unfinished_from,
};

use crate::options::KeyspaceOptions;
use crate::{Error, ErrorKind, Result};
use file::ManifestFile;
use glintdb_core::{DbId, FileId, FileKind, KeyspaceId, SegmentId, SeqNum, planted};
use glintdb_flash::{Volume, VolumeFile};
use glintdb_log::{FrameView, Lsn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// No file gets this number, and none is given beyond it: whatever is added to a number below it
/// still fits.
const NUMBERS_END: u64 = 1 << 63;
/// The same for commits.
const SEQNOS_END: SeqNum = SeqNum(1 << 55);

/// Everything up to here is in the indexes; replay begins here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlushPoint {
    /// First log position that must be replayed.
    pub(crate) lsn: Lsn,
    /// Newest commit that need not be.
    pub(crate) seqno: SeqNum,
}

/// What the manifest knows of a keyspace, beside its index.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeyspaceRecord {
    pub(crate) name: String,
    pub(crate) options: KeyspaceOptions,
}

/// The state that the edits add up to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct State {
    /// No file number at or above it was ever given out.
    pub(crate) numbers_reserved: u64,
    pub(crate) keyspace_next: KeyspaceId,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    /// Dropped keyspaces that the log may still mention, with the newest commit at the drop.
    pub(crate) dropped: BTreeMap<KeyspaceId, SeqNum>,
    /// Live value bytes that the persisted indexes point at, by segment and keyspace; no zeros.
    pub(crate) liveness: BTreeMap<SegmentId, BTreeMap<KeyspaceId, u64>>,
    /// Segments that only shadowed and hidden entries point into; each is in `liveness` too.
    pub(crate) retired: BTreeSet<SegmentId>,
    pub(crate) flush_point: FlushPoint,
    /// Everything of the log before it is durable, as far as the manifest was told.
    pub(crate) log_durable: Lsn,
    /// Size in bytes of the ring where commits may be that no segment has; 0: no commit is only
    /// there. `None`: the manifest does not say.
    pub(crate) ring_bytes: Option<u64>,
}

impl State {
    /// The state of an empty database.
    pub(crate) fn empty() -> Self {
        State {
            numbers_reserved: 1,
            keyspace_next: KeyspaceId(0),
            keyspaces: BTreeMap::new(),
            dropped: BTreeMap::new(),
            liveness: BTreeMap::new(),
            retired: BTreeSet::new(),
            flush_point: FlushPoint {
                lsn: Lsn::ZERO,
                seqno: SeqNum::ZERO,
            },
            log_durable: Lsn::ZERO,
            ring_bytes: None,
        }
    }

    /// Applies one item. `Err` says what does not fit.
    pub(crate) fn apply(&mut self, item: &Item) -> Result<(), String> {
        match item {
            Item::Snapshot { .. } | Item::IndexEdit { .. } => {}
            Item::NumbersReserved(up_to) => {
                if *up_to >= NUMBERS_END {
                    return Err(format!("no file has number {up_to}"));
                }
                self.numbers_reserved = self.numbers_reserved.max(*up_to)
            }
            Item::KeyspaceCreated { id, name, options } => {
                let next = next_keyspace(*id)?;
                if id.0 < self.keyspace_next.0
                    || self.keyspaces.values().any(|record| record.name == *name)
                {
                    return Err(format!("keyspace {} {name:?} is created twice", id.0));
                }
                self.keyspace_next = next;
                self.keyspaces.insert(
                    *id,
                    KeyspaceRecord {
                        name: name.clone(),
                        options: options.clone(),
                    },
                );
            }
            Item::KeyspaceDropped { id, seqno } => {
                let next = next_keyspace(*id)?;
                check_seqno(*seqno)?;
                self.keyspace_next = KeyspaceId(next.0.max(self.keyspace_next.0));
                self.keyspaces.remove(id);
                self.dropped.insert(*id, *seqno);
                self.liveness.retain(|_, by_keyspace| {
                    by_keyspace.remove(id);
                    !by_keyspace.is_empty()
                });
                let liveness = &self.liveness;
                self.retired.retain(|id| liveness.contains_key(id));
            }
            Item::KeyspaceNext(next) => {
                self.keyspace_next = KeyspaceId(next.0.max(self.keyspace_next.0))
            }
            Item::KeyspaceOptions { id, options } | Item::KeyspaceIndex { id, options, .. } => {
                match self.keyspaces.get_mut(id) {
                    Some(record) => record.options = options.clone(),
                    None => {
                        return Err(format!(
                            "keyspace {}, which is not there, gets options",
                            id.0
                        ));
                    }
                }
            }
            Item::Liveness {
                keyspace,
                segment,
                bytes,
            } => self.add_live(*keyspace, *segment, *bytes)?,
            Item::FlushPoint(point) => {
                check_seqno(point.seqno)?;
                if point.seqno < self.flush_point.seqno || point.lsn < self.flush_point.lsn {
                    return Err(format!(
                        "the flush point goes back from {:?} to {point:?}",
                        self.flush_point
                    ));
                }
                self.flush_point = *point;
                self.dropped.retain(|_, seqno| *seqno > point.seqno);
            }
            Item::LogDurable(lsn) => self.log_durable = self.log_durable.max(*lsn),
            Item::Ring(bytes) => self.ring_bytes = Some(*bytes),
            Item::SegmentRetired(segment) => {
                if !self.liveness.contains_key(segment) {
                    return Err(format!(
                        "segment {segment} is retired, and no index points into it"
                    ));
                }
                if !self.retired.insert(*segment) {
                    return Err(format!("segment {segment} is retired twice"));
                }
            }
        }
        Ok(())
    }

    fn add_live(
        &mut self,
        keyspace: KeyspaceId,
        segment: SegmentId,
        bytes: i64,
    ) -> Result<(), String> {
        if bytes > 0 && self.retired.contains(&segment) {
            return Err(format!(
                "segment {segment} is retired, and {bytes} live bytes are added"
            ));
        }
        let by_keyspace = self.liveness.entry(segment).or_default();
        let live = by_keyspace.entry(keyspace).or_default();
        // A sum must fit the field that holds it when the state is written whole.
        let sum = live.checked_add_signed(bytes);
        *live = sum
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or_else(|| {
                format!(
                    "keyspace {} has {live} live bytes in segment {segment}, and {bytes} are added",
                    keyspace.0
                )
            })?;
        if *live == 0 {
            by_keyspace.remove(&keyspace);
            if by_keyspace.is_empty() {
                self.liveness.remove(&segment);
                self.retired.remove(&segment);
            }
        }
        Ok(())
    }

    /// Whether the segment holds values that anybody may ask the indexes for.
    pub(crate) fn is_live(&self, segment: SegmentId) -> bool {
        self.liveness.contains_key(&segment) && !self.retired.contains(&segment)
    }

    /// All segments that [are live](Self::is_live).
    pub(crate) fn live_segments(&self) -> Vec<SegmentId> {
        let held = self.liveness.keys().copied();
        held.filter(|segment| self.is_live(*segment)).collect()
    }

    /// Bytes of values in a segment that the indexes' files point to.
    pub(crate) fn live_bytes(&self, segment: SegmentId) -> u64 {
        self.liveness.get(&segment).map_or(0, |by_keyspace| {
            by_keyspace
                .values()
                .fold(0, |sum: u64, live| sum.saturating_add(*live))
        })
    }

    /// The state as items, without the index edits.
    pub(crate) fn to_items(&self) -> Vec<Item> {
        let mut items = vec![Item::NumbersReserved(self.numbers_reserved)];
        for (id, record) in &self.keyspaces {
            items.push(Item::KeyspaceCreated {
                id: *id,
                name: record.name.clone(),
                options: record.options.clone(),
            });
        }
        items.push(Item::KeyspaceNext(self.keyspace_next));
        items.push(Item::FlushPoint(self.flush_point));
        if self.log_durable > Lsn::ZERO {
            items.push(Item::LogDurable(self.log_durable));
        }
        items.extend(self.ring_bytes.map(Item::Ring));
        // After the flush point, which forgets drops that lie below it.
        let dropped = self
            .dropped
            .iter()
            .map(|(id, seqno)| Item::KeyspaceDropped {
                id: *id,
                seqno: *seqno,
            });
        planted!(
            "glintdb: a new manifest forgets dropped keyspaces",
            items.extend(dropped),
            drop(dropped)
        );
        for (segment, by_keyspace) in &self.liveness {
            for (keyspace, bytes) in by_keyspace {
                let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
                items.push(Item::Liveness {
                    keyspace: *keyspace,
                    segment: *segment,
                    bytes,
                });
            }
        }
        items.extend(self.retired.iter().copied().map(Item::SegmentRetired));
        items
    }
}

/// The id behind `id`, for the next keyspace.
fn next_keyspace(id: KeyspaceId) -> Result<KeyspaceId, String> {
    let next = id.0.checked_add(1).map(KeyspaceId);
    next.ok_or_else(|| format!("keyspace {} has an id that leaves none for the next", id.0))
}

fn check_seqno(seqno: SeqNum) -> Result<(), String> {
    match seqno < SEQNOS_END {
        true => Ok(()),
        false => Err(format!("no commit has number {seqno}")),
    }
}

/// What was read from the manifest at open.
pub(crate) struct Loaded {
    pub(crate) db: DbId,
    pub(crate) number: u64,
    pub(crate) state: State,
    /// Index edits by keyspace, oldest first.
    pub(crate) edits: BTreeMap<KeyspaceId, Vec<Vec<u8>>>,
    /// Where the records end: what is behind it is a torn last record.
    pub(crate) end: u64,
}

impl Loaded {
    /// Checks that nothing was ever stored in a database of which the manifest records no place
    /// where the log begins. A creation that was cut off leaves segments without a frame. If a
    /// segment has one, the manifest's record was lost.
    ///
    /// # Errors
    /// `Corruption` of the manifest, I/O errors.
    pub(crate) fn check_not_begun(&self, volume: &dyn Volume) -> Result<()> {
        let files = volume.list()?;
        let held = match files.iter().find(|file| file.kind.is_index()) {
            Some(table) => table.to_string(),
            None => match glintdb_log::first_frame(volume, self.db)? {
                Some(frame) => format!("a commit at {frame}"),
                None => return Ok(()),
            },
        };
        Err(Error::corruption(
            FileId::new(FileKind::Manifest, self.number),
            self.end,
            format!(
                "expected a record of where the log begins, for there is {held}, found the end of the records"
            ),
        ))
    }

    /// Refuses a ring that is missing or has another size, where acknowledged commits may be only
    /// in it.
    ///
    /// # Errors
    /// `Corruption` of the ring, I/O errors.
    pub(crate) fn check_ring(&self, volume: &dyn Volume) -> Result<()> {
        let expected = self.state.ring_bytes.unwrap_or(0);
        if expected == 0 {
            return Ok(());
        }
        let (end, found) = match volume.existing_ring_bytes()? {
            Some(bytes) if bytes as u64 == expected => return Ok(()),
            Some(bytes) => (bytes as u64, format!("one of {bytes} bytes")),
            None => (0, "none".to_owned()),
        };
        Err(Error::corruption(
            "ring",
            end.min(expected),
            format!(
                "expected the log's ring of {expected} bytes, found {found}; the database was not \
                 closed, so its newest commits may be in that file alone: put the file back, or \
                 open without these commits (option accept_missing_ring, or `glintdb salvage`)"
            ),
        ))
    }

    /// Whether its log has a place to begin.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.flush_point.lsn != glintdb_log::Lsn::ZERO
    }

    /// The error of a commit to a keyspace that no record names. The frame's checksums are right,
    /// so the record was lost here.
    pub(crate) fn lacks(&self, keyspace: KeyspaceId, frame: &FrameView<'_>) -> Error {
        Error::corruption(
            FileId::new(FileKind::Manifest, self.number),
            self.end,
            format!(
                "expected a record of keyspace {}, to which commit {} at {} writes, found the end of the records",
                keyspace.0,
                frame.seqno(),
                frame.lsn()
            ),
        )
    }
}

/// The manifest, open for edits.
pub(crate) struct Manifest {
    volume: Arc<dyn Volume>,
    db: DbId,
    file: ManifestFile,
    state: State,
    snapshot_bytes: u64,
    poisoned: Option<Error>,
}

/// A new manifest is begun when the file is this large and four times its snapshot.
const ROLL_BYTES_MIN: u64 = 1 << 20;

impl Manifest {
    /// Writes manifest file `number` with `state` and the indexes' own snapshots, durable with its
    /// name. Older files stay until [`remove_older`](Self::remove_older), but for those between the
    /// oldest and this one, which openings that were refused have made: the oldest is what the last
    /// process wrote.
    pub(crate) fn create(
        volume: Arc<dyn Volume>,
        db: DbId,
        number: u64,
        state: State,
        index_edits: Vec<(KeyspaceId, Vec<u8>)>,
    ) -> Result<Self> {
        let file = file::create(&*volume, number)?;
        let (file, snapshot_bytes) = Self::write_file(&volume, db, file, &state, index_edits)?;
        let manifest = Manifest {
            volume,
            db,
            file,
            state,
            snapshot_bytes,
            poisoned: None,
        };
        manifest.remove_files(|id, oldest| id > oldest)?;
        Ok(manifest)
    }

    fn write_file(
        volume: &Arc<dyn Volume>,
        db: DbId,
        file: Arc<dyn VolumeFile>,
        state: &State,
        index_edits: Vec<(KeyspaceId, Vec<u8>)>,
    ) -> Result<(ManifestFile, u64)> {
        let mut items = vec![Item::Snapshot { db }];
        items.extend(state.to_items());
        items.extend(
            index_edits
                .into_iter()
                .map(|(keyspace, edit)| Item::IndexEdit { keyspace, edit }),
        );
        let mut file = ManifestFile::begin(file, db)?;
        file.append(&encode_items(&items))?;
        file.sync()?;
        planted!(
            "glintdb: a manifest's name is not made durable",
            volume.sync_directory()?,
            ()
        );
        let snapshot_bytes = file.bytes();
        Ok((file, snapshot_bytes))
    }

    /// Removes what this file replaced: once what it names is known to be readable.
    pub(crate) fn remove_older(&self) -> Result<()> {
        self.remove_files(|_, _| true)
    }

    fn remove_files(&self, unwanted: impl Fn(u64, u64) -> bool) -> Result<()> {
        let files = self.volume.list()?.into_iter();
        let older: Vec<_> = files
            .filter(|id| {
                id.kind == glintdb_core::FileKind::Manifest && id.number < self.file.number()
            })
            .collect();
        let Some(oldest) = older.first().map(|id| id.number) else {
            return Ok(());
        };
        for id in older {
            if unwanted(id.number, oldest) {
                self.volume.delete(id)?;
            }
        }
        self.volume.sync_directory()
    }

    /// The state all edits add up to.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Size of the current file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Number of the current file.
    pub(crate) fn number(&self) -> u64 {
        self.file.number()
    }

    /// The error that every edit gets since one failed: whether that one is durable, the next open
    /// will tell.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.poisoned {
            None => Ok(()),
            Some(error) if error.kind() == ErrorKind::Closed => Err(error.clone()),
            Some(error) => Err(Error::new(
                ErrorKind::Poisoned,
                format!("the manifest failed before: {error}"),
            )),
        }
    }

    /// From now on every edit gets an error: what is in memory may be half changed.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.poisoned.get_or_insert_with(|| error.clone());
    }

    /// Makes one atomic edit durable and applies it.
    ///
    /// # Errors
    /// `NoSpace`, `Unavailable`: nothing happened, and it may be tried again. Anything else poisons
    /// the manifest: whether the edit is durable is unknown until the next open.
    pub(crate) fn commit(&mut self, items: &[Item]) -> Result<()> {
        self.check()?;
        let mut state = self.state.clone();
        for item in items {
            state
                .apply(item)
                .map_err(|what| Error::corruption(self.file.id(), self.file.bytes(), what))?;
        }
        if let Err(error) = self.file.append(&encode_items(items)) {
            // The caller removes the edit's files after this, so a later open must not find the
            // edit.
            let taken_back = match error.kind() {
                ErrorKind::Unavailable => true,
                ErrorKind::NoSpace => self.file.take_back_unsynced().is_ok(),
                _ => false,
            };
            if !taken_back {
                self.poisoned = Some(error.clone());
            }
            return Err(error);
        }
        let synced = planted!(
            "glintdb: a manifest edit is not synced",
            self.file.sync(),
            Ok(())
        );
        if let Err(error) = synced {
            self.poisoned = Some(error.clone());
            // Also if a file system finds out only now that it is full: the record may be on the
            // medium.
            return Err(match error.kind().passes() {
                true => Error::new(
                    ErrorKind::Io,
                    format!("a manifest edit may or may not be durable: {error}"),
                ),
                false => error,
            });
        }
        self.state = state;
        Ok(())
    }

    /// Whether the file has grown so far beyond its snapshot that a new one should be begun.
    pub(crate) fn wants_roll(&self) -> bool {
        self.file.bytes() >= ROLL_BYTES_MIN && self.file.bytes() >= 4 * self.snapshot_bytes
    }

    /// Begins a new file. Every edit committed so far must have been applied to the indexes that
    /// `index_edits` come from.
    pub(crate) fn roll(&mut self, index_edits: Vec<(KeyspaceId, Vec<u8>)>) -> Result<()> {
        let number = file::number_after(self.file.id())?;
        let created = match file::create(&*self.volume, number) {
            // There is no new file, and a process that may not create one could not remove it.
            Err(error) if error.kind().passes() => return Err(error),
            created => created,
        };
        let write = |file| Self::write_file(&self.volume, self.db, file, &self.state, index_edits);
        let (file, snapshot_bytes) = match created.and_then(write) {
            Ok(written) => written,
            Err(error) => {
                // A whole new file would win over later edits to this one, so it must be gone
                // for good.
                let id = FileId::new(FileKind::Manifest, number);
                let removed = match self.volume.delete(id) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => self.volume.sync_directory(),
                };
                if removed.is_err() {
                    self.poisoned = Some(error.clone());
                }
                return Err(error);
            }
        };
        self.file = file;
        self.snapshot_bytes = snapshot_bytes;
        self.remove_older()
    }
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
