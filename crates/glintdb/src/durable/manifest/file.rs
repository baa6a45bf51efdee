//! Reading and writing manifest files: a header, then records (`docs/format/manifest.md`). Reading
//! takes hostile bytes.

use super::{Item, Loaded, NUMBERS_END, State};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::checksum::{FileSeed, RangeChecksums, crc32c, crc32c_append};
use glintdb_core::codec::Reader;
use glintdb_core::{DbId, FileId, FileKind, SegmentId, planted};
use glintdb_flash::{CreateOptions, DataClass, Volume, VolumeFile};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// `docs/format/manifest.md`, header.
const MAGIC: [u8; 8] = *b"GLNTMANI";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
/// `docs/format/manifest.md`, record: length u32, checksum u32.
const RECORD_HEADER_BYTES: usize = 8;
/// Longest record accepted, in bytes; a hostile length allocates nothing, for records are read in
/// place.
const RECORD_BYTES_MAX: usize = 1 << 30;

pub(super) fn header(db: DbId, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..28].copy_from_slice(&db.0);
    header[28..36].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32c(&header[0..36]);
    header[36..40].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// A manifest file being written.
pub(super) struct ManifestFile {
    file: Arc<dyn VolumeFile>,
    seed: FileSeed,
    synced_bytes: u64,
    bytes: u64,
}

/// Creates the file of manifest `number`, with nothing in it.
pub(super) fn create(volume: &dyn Volume, number: u64) -> Result<Arc<dyn VolumeFile>> {
    let id = FileId::new(FileKind::Manifest, number);
    let options = CreateOptions {
        class: DataClass::Manifest,
        reserve_bytes: 0,
        direct: false,
    };
    volume.create(id, options)
}

impl ManifestFile {
    /// Writes the header to a file that was just created.
    pub(super) fn begin(file: Arc<dyn VolumeFile>, db: DbId) -> Result<Self> {
        let id = file.id();
        file.write_at(0, &header(db, id.number))?;
        Ok(ManifestFile {
            file,
            seed: FileSeed::new(db, id),
            synced_bytes: 0,
            bytes: HEADER_BYTES as u64,
        })
    }

    pub(super) fn id(&self) -> FileId {
        self.file.id()
    }

    pub(super) fn number(&self) -> u64 {
        self.file.id().number
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes one record; durable after `sync`.
    pub(super) fn append(&mut self, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len())
            .ok()
            .filter(|_| payload.len() <= RECORD_BYTES_MAX);
        let length = length.ok_or_else(|| {
            Error::invalid(format!(
                "a manifest edit of {} bytes is too long",
                payload.len()
            ))
        })?;
        let mut record = Vec::with_capacity(RECORD_HEADER_BYTES + payload.len() + 8);
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(payload);
        let checksum = self.seed.checksum(self.bytes, &record);
        record.splice(4..4, checksum.to_le_bytes());
        record.resize(record.len().next_multiple_of(8), 0);
        self.file.write_at(self.bytes, &record)?;
        self.bytes += record.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync()?;
        self.synced_bytes = self.bytes;
        Ok(())
    }

    /// Takes a record back that was written in part: the file ends behind the last one synced,
    /// durably, so that the record can never be found whole.
    pub(super) fn take_back_unsynced(&mut self) -> Result<()> {
        self.bytes = self.synced_bytes.max(HEADER_BYTES as u64);
        self.file.set_len(self.bytes)?;
        self.file.sync()
    }
}

/// A record that parsed.
pub(crate) struct Record<'a> {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Its items, encoded.
    pub(crate) payload: &'a [u8],
}

/// Walks the records of a manifest file's bytes.
pub(crate) struct RecordReader<'a> {
    id: FileId,
    seed: FileSeed,
    bytes: &'a [u8],
    offset: usize,
    /// Where the last record's items end.
    items_end: usize,
}

impl<'a> RecordReader<'a> {
    /// Checks the header. The database's identity comes from it.
    pub(crate) fn open(id: FileId, bytes: &'a [u8]) -> Result<(DbId, Self)> {
        let wrong = |message: String| Error::corruption(id, 0, message);
        let head = bytes.get(..HEADER_BYTES).ok_or_else(|| {
            wrong(format!(
                "the header has {HEADER_BYTES} bytes, the file {}",
                bytes.len()
            ))
        })?;
        let mut reader = Reader::new(head);
        let fields = (|| {
            Some((
                reader.array::<8>()?,
                reader.u32()?,
                reader.array::<16>()?,
                reader.u64()?,
                reader.u32()?,
            ))
        })();
        let (magic, version, db, number, checksum) =
            fields.ok_or_else(|| wrong("the header does not parse".to_owned()))?;
        if magic != MAGIC {
            return Err(wrong(format!(
                "magic {MAGIC:02x?} expected, {magic:02x?} found"
            )));
        }
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::UnsupportedFormat,
                format!("{id} has format version {version}; this build knows {VERSION}"),
            ));
        }
        let expected = header(DbId(db), id.number);
        if head != expected {
            return Err(wrong(format!(
                "the header names manifest {number} with checksum {checksum:#010x}, which is not what belongs here"
            )));
        }
        let db = DbId(db);
        Ok((
            db,
            RecordReader {
                id,
                seed: FileSeed::new(db, id),
                bytes,
                offset: HEADER_BYTES,
                items_end: HEADER_BYTES,
            },
        ))
    }

    /// Bytes behind the last record read.
    pub(crate) fn rest_bytes(&self) -> u64 {
        (self.bytes.len() - self.offset) as u64
    }

    /// What fills up the last record read, and where it stands.
    pub(crate) fn padding(&self) -> (u64, &'a [u8]) {
        let padding = self.bytes.get(self.items_end..self.offset);
        (self.items_end as u64, padding.unwrap_or_default())
    }

    /// The next record; `None` at the end or at a torn tail.
    ///
    /// # Errors
    /// `Corruption` where a record does not parse but one behind it does.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'a>>> {
        if let Some((payload, end)) = self.parse(self.offset) {
            let offset = self.offset as u64;
            self.items_end = self.offset + RECORD_HEADER_BYTES + payload.len();
            self.offset = end;
            return Ok(Some(Record { offset, payload }));
        }
        let mut later = self.offset + 8;
        if later >= self.bytes.len() {
            return Ok(None);
        }
        let checksums = RangeChecksums::new(self.bytes);
        while later < self.bytes.len() {
            if self.parse_with(later, &checksums).is_some() {
                return Err(Error::corruption(
                    self.id,
                    self.offset as u64,
                    format!("this record does not parse, but one at offset {later} does"),
                ));
            }
            later += 8;
        }
        Ok(None)
    }

    fn parse(&self, offset: usize) -> Option<(&'a [u8], usize)> {
        self.parse_by(offset, |crc, range| {
            Some(crc32c_append(crc, self.bytes.get(range)?))
        })
    }

    /// [`parse`](Self::parse), for a caller that tries every place: in a hostile file each may claim
    /// a record as long as the rest.
    fn parse_with(
        &self,
        offset: usize,
        checksums: &RangeChecksums<'_>,
    ) -> Option<(&'a [u8], usize)> {
        self.parse_by(offset, |crc, range| checksums.append(crc, range))
    }

    fn parse_by(
        &self,
        offset: usize,
        append: impl FnOnce(u32, Range<usize>) -> Option<u32>,
    ) -> Option<(&'a [u8], usize)> {
        let mut reader = Reader::new(self.bytes.get(offset..)?);
        let length = reader.array::<4>()?;
        let checksum = reader.u32()?;
        let length_bytes = usize::try_from(u32::from_le_bytes(length)).ok()?;
        if length_bytes == 0 || length_bytes > RECORD_BYTES_MAX {
            return None;
        }
        let payload = reader.take(length_bytes)?;
        let seeded = self.seed.checksum(offset as u64, &length);
        let from = offset + RECORD_HEADER_BYTES;
        let found = append(seeded, from..from + length_bytes)?;
        let is_sound = planted!(
            "glintdb: a manifest record's checksum is not checked",
            found == checksum,
            true
        );
        if !is_sound {
            return None;
        }
        let end = (offset + RECORD_HEADER_BYTES + length_bytes).next_multiple_of(8);
        Some((payload, end.min(self.bytes.len())))
    }
}

/// Whether the header's checksum is that of its bytes.
fn header_is_sound(bytes: &[u8]) -> bool {
    let (Some(head), Some(checksum)) = (bytes.get(..36), bytes.get(36..HEADER_BYTES)) else {
        return false;
    };
    crc32c(head).to_le_bytes() == checksum
}

/// Whether the first record is whole for the database that the header names, or for the one that
/// the record itself names: the snapshot's tag, then its identity.
fn first_record_stands(id: FileId, bytes: &[u8]) -> bool {
    const NAMED_AT: [usize; 2] = [12, HEADER_BYTES + RECORD_HEADER_BYTES + 1];
    NAMED_AT.iter().any(|&at| {
        let db = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<16>());
        db.is_some_and(|db| {
            let records = RecordReader {
                id,
                seed: FileSeed::new(DbId(*db), id),
                bytes,
                offset: HEADER_BYTES,
                items_end: HEADER_BYTES,
            };
            records.parse(HEADER_BYTES).is_some()
        })
    })
}

/// Every record of a damaged manifest that is whole by itself, in order.
pub(crate) fn salvage_records(id: FileId, db: DbId, bytes: &[u8]) -> Vec<&[u8]> {
    let reader = RecordReader {
        id,
        seed: FileSeed::new(db, id),
        bytes,
        offset: HEADER_BYTES,
        items_end: HEADER_BYTES,
    };
    let checksums = RangeChecksums::new(bytes);
    let mut records = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        match reader.parse_with(offset, &checksums) {
            Some((payload, end)) => {
                records.push(payload);
                offset = end;
            }
            None => offset += 8,
        }
    }
    records
}

/// Reads one manifest file. `None`: its snapshot record is not whole (a crash while it was being
/// written).
fn read_file(id: FileId, bytes: &[u8]) -> Result<Option<Loaded>> {
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    // A header that was in flight when the power went may hold anything; what it heads is then cut
    // short as well. Behind one that rotted stands the first record.
    if !header_is_sound(bytes) && !first_record_stands(id, bytes) {
        return Ok(None);
    }
    let (db, mut records) = RecordReader::open(id, bytes)?;
    let mut loaded = Loaded {
        db,
        number: id.number,
        state: State::empty(),
        edits: BTreeMap::new(),
        end: 0,
    };
    let mut first = true;
    while let Some(record) = records.next_record()? {
        let wrong = |message: String| Error::corruption(id, record.offset, message);
        let mut reader = Reader::new(record.payload);
        while !reader.is_empty() {
            let item = Item::decode(&mut reader)
                .ok_or_else(|| wrong("an item does not parse".to_owned()))??;
            match &item {
                Item::Snapshot { db: named } if first && *named == db => {}
                Item::Snapshot { .. } => {
                    return Err(wrong("a snapshot stands where none belongs".to_owned()));
                }
                _ if first => return Err(wrong("the first record is not a snapshot".to_owned())),
                Item::IndexEdit { keyspace, edit } => {
                    if !loaded.state.keyspaces.contains_key(keyspace) {
                        return Err(wrong(format!(
                            "an index edit names keyspace {}, which does not exist",
                            keyspace.0
                        )));
                    }
                    loaded
                        .edits
                        .entry(*keyspace)
                        .or_default()
                        .push(edit.clone());
                }
                Item::KeyspaceDropped { id, .. } => {
                    loaded.edits.remove(id);
                }
                Item::KeyspaceIndex { id, edit, .. } => {
                    loaded.edits.insert(*id, vec![edit.clone()]);
                }
                _ => {}
            }
            loaded.state.apply(&item).map_err(wrong)?;
            first = false;
        }
    }
    if first {
        return Ok(None);
    }
    loaded.end = bytes.len() as u64 - records.rest_bytes();
    Ok(Some(loaded))
}

/// What opening finds of manifests.
pub(crate) struct Found {
    /// The manifest; `None`: there is no database.
    pub(crate) loaded: Option<Loaded>,
    /// Number for the next manifest: above every file there is, those that a crash left torn
    /// included.
    pub(crate) number_next: u64,
}

/// The number of the manifest file behind `newest`.
pub(super) fn number_after(newest: FileId) -> Result<u64> {
    match newest.number {
        number if number < NUMBERS_END => Ok(number + 1),
        number => Err(Error::corruption(
            newest,
            0,
            format!("expected a manifest number below {NUMBERS_END}, found {number}"),
        )),
    }
}

/// What to do about a database whose manifest is lost.
const ADVICE: &str = "restore the whole directory from a backup, or salvage the records from its files; do not delete them";

/// Finds and reads the manifest.
///
/// # Errors
/// `Corruption` (also where manifest files are there but none is whole), `UnsupportedFormat`, I/O
/// errors.
pub(crate) fn read_newest(volume: &dyn Volume) -> Result<Found> {
    let files = volume.list()?;
    let manifests: Vec<FileId> = files
        .iter()
        .copied()
        .filter(|id| id.kind == FileKind::Manifest)
        .collect();
    let number_next = match manifests.last() {
        Some(&newest) => number_after(newest)?,
        None => 1,
    };
    for &id in manifests.iter().rev() {
        let bytes = read_whole(volume, id)?;
        if let Some(loaded) = read_file(id, &bytes)? {
            check_numbers(&loaded, &files)?;
            return Ok(Found {
                loaded: Some(loaded),
                number_next,
            });
        }
    }
    match (
        manifests.last(),
        files.iter().find(|id| id.kind != FileKind::Manifest),
    ) {
        // A crash while the very first manifest was written: nothing can have been stored.
        (_, None) => Ok(Found {
            loaded: None,
            number_next,
        }),
        (Some(id), Some(_)) => Err(Error::corruption(
            *id,
            0,
            format!("expected an intact manifest, found none: {ADVICE}"),
        )),
        (None, Some(other)) => Err(Error::corruption(
            other,
            0,
            format!("expected a manifest beside this file, found none: {ADVICE}"),
        )),
    }
}

/// The first file number that openings which did not finish have given out; `None`: there was none.
/// The oldest manifest is what the last process wrote that did finish opening, and the numbers of
/// its files are below those that it reserves.
pub(crate) fn unfinished_from(volume: &dyn Volume, loaded: &Loaded) -> Result<Option<u64>> {
    let files = volume.list()?.into_iter();
    let mut manifests = files.filter(|id| id.kind == FileKind::Manifest);
    match manifests.next() {
        Some(oldest) if oldest.number < loaded.number => {
            let last = read_file(oldest, &read_whole(volume, oldest)?);
            // One that is damaged says nothing, and nobody needs it.
            Ok(last.ok().flatten().map(|last| last.state.numbers_reserved))
        }
        _ => Ok(None),
    }
}

/// A file number is made durable before a file has it. A file with a greater one says that the
/// manifest is an old one, or that its last record, which reserved the number, is damaged: going on
/// would give the number out a second time.
fn check_numbers(loaded: &Loaded, files: &[FileId]) -> Result<()> {
    let reserved = loaded.state.numbers_reserved;
    let beyond = |id: &&FileId| id.kind != FileKind::Manifest && id.number >= reserved;
    match files.iter().find(beyond) {
        None => Ok(()),
        Some(file) => Err(Error::corruption(
            FileId::new(FileKind::Manifest, loaded.number),
            loaded.end,
            format!(
                "expected a record that reserves the number of {file}, found numbers below {reserved} reserved: the manifest is an old one, or its last record damaged"
            ),
        )),
    }
}

/// What a manifest of another database gets: it is that one that is wrong where no segment of the
/// log agrees with it.
pub(crate) fn check_database(volume: &dyn Volume, loaded: &Loaded) -> Result<()> {
    let mut others = None;
    for id in volume.list()? {
        if id.kind == FileKind::Log
            && let Some(db) = glintdb_log::database_of(volume, SegmentId(id.number))?
        {
            if db == loaded.db {
                return Ok(());
            }
            others = Some(db);
        }
    }
    match others {
        None => Ok(()),
        Some(db) => Err(Error::corruption(
            FileId::new(FileKind::Manifest, loaded.number),
            12,
            format!(
                "database id: every segment of the log has {db}, found {}",
                loaded.db
            ),
        )),
    }
}

/// Reads a whole file.
pub(crate) fn read_whole(volume: &dyn Volume, id: FileId) -> Result<Bytes> {
    let file = volume.open(id)?;
    let length = usize::try_from(file.len()?)
        .map_err(|_| Error::corruption(id, 0, "the file is too long"))?;
    file.read_at(0, length)
}
