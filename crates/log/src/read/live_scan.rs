//! Reads the records of a segment that is done: every put with a separated value, in the order of the file. For value GC, which asks an index about each.
//!
//! Metadata is verified as it is read, values when somebody asks for them: those of dead records cost nothing but the sequential read, and rot in them harms nobody.
//!
//! Memory: what one batch holds, at most some windows of 1 MiB; values longer than that are read when they are asked for. Thread safety: a scan belongs to one thread at a time; batches may go anywhere.

use crate::format::FIRST_FRAME_OFFSET;
use crate::format::entry::{EntryReader, LogOp};
use crate::format::segment::SegmentKind;
use crate::log::Log;
use crate::read::verify;
use crate::recover::scan::{Frame, Probe, SegmentScan, WINDOW_BYTES};
use crate::segment::{Segment, open_segment};
use crate::write::builder::pointer_of;
use bytes::Bytes;
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{DbId, Error, ErrorKind, KeyspaceId, Result, SegmentId, ValuePointer};
use glintdb_flash::{Volume, VolumeFile};
use std::ops::Range;
use std::sync::Arc;

/// A batch ends with the record that brings it here, in bytes of keys and values.
const BATCH_BYTES: usize = WINDOW_BYTES;

/// The records of one segment, batch by batch. As long as it lives the segment's file is not removed.
///
/// ```
/// # use glintdb_core::{DbId, FileNumbers, KeyspaceId, Result, checksum::crc32c};
/// # use glintdb_simdisk::MemVolume;
/// # use glintdb_log::{Log, LogOptions, LogSetup, Space};
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU64, Ordering};
/// # struct Numbers(AtomicU64);
/// # impl FileNumbers for Numbers {
/// #     fn next(&self) -> Result<u64> { Ok(self.0.fetch_add(1, Ordering::Relaxed)) }
/// # }
/// # let setup = LogSetup {
/// #     volume: MemVolume::new(),
/// #     db: DbId([1; 16]),
/// #     clock: Arc::new(glintdb_flash::SystemClock::new()),
/// #     numbers: Arc::new(Numbers(AtomicU64::new(1))),
/// #     options: LogOptions { segment_bytes: 64 << 10, ring_bytes: 64 << 10, reserve_segments: 0 },
/// # };
/// # let log = Log::create(setup)?;
/// # let mut writer = log.values_writer(Space::Normal, 64)?;
/// # writer.put(&log, KeyspaceId(3), b"apple", b"a value", crc32c(b"a value"))?;
/// # let moved = writer.finish(&log)?;
/// # let victim = moved.segments().next().expect("one record needs one segment");
/// # log.publish_values(moved);
/// # let is_live = |_: &glintdb_log::Record<'_>| true;
/// let mut writer = log.values_writer(Space::Reserve, 64)?;
/// let mut scan = log.live_scan(victim)?;
/// while let Some(batch) = scan.next_batch()? {
///     for record in batch.records() {
///         // The index holds exactly this pointer under this key, or the record is dead.
///         if is_live(&record) {
///             let value = record.value()?;
///             writer.put(&log, record.keyspace, record.key, &value, record.pointer.checksum)?;
///         }
///     }
/// }
/// # assert_eq!(writer.records(), 1);
/// # Ok::<(), glintdb_core::Error>(())
/// ```
pub struct LiveScan {
    /// Keeps the file.
    _segment: Option<Arc<Segment>>,
    file: Arc<dyn VolumeFile>,
    scan: SegmentScan<'static>,
    offset: u32,
    /// Where the segment ends, if that is known; else at the frame that says so.
    end: Option<u32>,
    /// A frame that is begun, and how much of its metadata is done.
    begun: Option<Begun>,
    done: bool,
}

struct Begun {
    frame: Frame,
    /// Bytes of metadata done.
    at: usize,
    /// Offset of the next value.
    values: u32,
}

/// Some records of a segment, in the order of the file.
pub struct RecordBatch {
    file: Arc<dyn VolumeFile>,
    /// Metadata sections, which have the keys.
    sections: Vec<Bytes>,
    found: Vec<Found>,
    bytes: usize,
}

struct Found {
    keyspace: KeyspaceId,
    section: u32,
    key: Range<u32>,
    pointer: ValuePointer,
    /// Not yet verified; `None`: longer than a batch.
    value: Option<Bytes>,
}

/// A record as its segment has it. Whether it is live only an index knows: it is if the index's entry of the key has this pointer.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Whose it is.
    pub keyspace: KeyspaceId,
    /// Its key.
    pub key: &'a [u8],
    /// Where its value lies.
    pub pointer: ValuePointer,
    value: Option<&'a Bytes>,
    file: &'a Arc<dyn VolumeFile>,
}

impl Log {
    /// Reads the records of a segment that takes no more frames and is wholly in its file: one before the flush point, or one of relocated values.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` for a segment that can still grow or is still in the ring; `Corruption` of its header; I/O errors.
    pub fn live_scan(&self, segment: SegmentId) -> Result<LiveScan> {
        let table = self.table.load();
        let found = table.get(segment).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("log segment {segment} is not there"),
            )
        })?;
        let mut end = None;
        if let Some(stream) = &found.stream {
            end = stream.end_offset();
            let spilled = self.spilled.load(Ordering::Acquire);
            if stream.end_position().is_none_or(|end| end > spilled) {
                return Err(Error::invalid(format!(
                    "log segment {segment} is still being written"
                )));
            }
        }
        let mut scan = LiveScan::open(&*self.setup.volume, self.setup.db, segment)?;
        scan.end = end;
        scan._segment = Some(Arc::clone(found));
        scan.scan.read_ahead(Arc::clone(&self.setup.volume));
        Ok(scan)
    }
}

impl LiveScan {
    /// [`Log::live_scan`] in a database that is not open.
    ///
    /// # Errors
    /// `Corruption` of the header, or of there being no such file; I/O errors.
    pub fn open(volume: &dyn Volume, db: DbId, segment: SegmentId) -> Result<LiveScan> {
        let (file, header) = open_segment(volume, db, segment)?;
        Ok(LiveScan {
            _segment: None,
            scan: SegmentScan::new(header, Arc::clone(&file), None)?,
            file,
            offset: FIRST_FRAME_OFFSET,
            end: None,
            begun: None,
            done: false,
        })
    }

    /// What the segment is for.
    #[must_use]
    pub fn kind(&self) -> SegmentKind {
        self.scan.header.kind
    }

    /// The next records, about 1 MiB of them; `None` behind the last.
    ///
    /// # Errors
    /// `Corruption` where frames are damaged or the end is missing: whatever stands behind that place is not known, so nobody may take the segment for read. I/O errors.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut batch = RecordBatch {
            file: Arc::clone(&self.file),
            sections: Vec::new(),
            found: Vec::new(),
            bytes: 0,
        };
        let read_before = self.scan.read_bytes();
        loop {
            let begun = match self.begun.take() {
                Some(begun) => Some(begun),
                None if self.done => break,
                None => self.next_frame()?,
            };
            if let Some(begun) = begun {
                self.begun = self.take(begun, &mut batch, read_before)?;
            }
            if batch.is_full(self.scan.read_bytes() - read_before) {
                break;
            }
        }
        Ok((!batch.found.is_empty()).then_some(batch))
    }

    /// The next frame with records; `None`: there was another one, or none.
    fn next_frame(&mut self) -> Result<Option<Begun>> {
        if self.end == Some(self.offset) {
            self.done = true;
            return Ok(None);
        }
        let frame = match self.scan.probe_unread(self.offset)? {
            Probe::Frame(frame) => frame,
            Probe::Hole(reason) => {
                self.check_end(reason)?;
                self.done = true;
                return Ok(None);
            }
        };
        if let Some(error) = self.scan.misplaced(&frame) {
            return Err(error);
        }
        self.offset = frame.end();
        self.done = frame.header.ends_segment();
        let values = frame.values_start();
        let some = frame.header.kind.has_entries() && frame.header.entry_count > 0;
        Ok(some.then_some(Begun {
            frame,
            at: 0,
            values,
        }))
    }

    /// Whether a segment may end here without a frame that says so: one of the stream of an earlier process.
    fn check_end(&mut self, reason: &'static str) -> Result<()> {
        let offset = u64::from(self.offset);
        let may_end = self.end.is_none() && self.kind() != SegmentKind::Values;
        if may_end && self.scan.may_end(offset)? {
            return Ok(());
        }
        Err(Error::corruption(
            self.scan.header.id.file(),
            offset,
            format!("expected a frame, found {reason}"),
        ))
    }

    /// Takes records of a frame until the batch is full; gives back what is left of the frame.
    fn take(
        &mut self,
        begun: Begun,
        batch: &mut RecordBatch,
        read_before: u64,
    ) -> Result<Option<Begun>> {
        let Begun { frame, at, values } = begun;
        let section = batch.sections.len() as u32;
        let rest = frame.meta.slice(at..);
        let start = ValuePointer {
            segment: self.scan.header.id,
            offset: values,
            length: 0,
            checksum: 0,
        };
        let mut reader = EntryReader::new(&rest, start);
        let mut left = None;
        while let Some(entry) = reader.next() {
            let LogOp::Put { key, .. } = entry.op else {
                continue;
            };
            let Some(pointer) = pointer_of(&entry) else {
                continue;
            };
            let length = pointer.length as usize;
            let value = match length <= BATCH_BYTES {
                true => Some(self.scan.bytes(pointer.offset.into(), length)?),
                false => None,
            };
            let start = key.as_ptr().addr() - rest.as_ptr().addr();
            // The section is kept only where a record is.
            if batch.sections.len() as u32 == section {
                batch.sections.push(rest.clone());
            }
            batch.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            batch.found.push(Found {
                keyspace: entry.keyspace,
                section,
                key: start as u32..(start + key.len()) as u32,
                pointer,
                value,
            });
            if batch.is_full(self.scan.read_bytes() - read_before) {
                left = Some((frame.meta.len() - reader.rest_bytes(), reader.values_end()));
                break;
            }
        }
        let whole = frame.meta.len();
        Ok(left
            .filter(|&(at, _)| at < whole)
            .map(|(at, values)| Begun { frame, at, values }))
    }
}

impl RecordBatch {
    /// Whether it is enough: records, or windows of the file that they keep in memory, of which one was read for the batch before.
    fn is_full(&self, read_bytes: u64) -> bool {
        !self.found.is_empty() && (self.bytes >= BATCH_BYTES || read_bytes > WINDOW_BYTES as u64)
    }

    /// The records, in the order of the file.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        self.found.iter().map(|found| Record {
            keyspace: found.keyspace,
            key: self.key(found),
            pointer: found.pointer,
            value: found.value.as_ref(),
            file: &self.file,
        })
    }

    fn key(&self, found: &Found) -> &[u8] {
        let section = self.sections.get(found.section as usize);
        let key = section
            .and_then(|section| section.get(found.key.start as usize..found.key.end as usize));
        key.unwrap_or_default()
    }
}

impl Record<'_> {
    /// The value, verified. Of a value longer than 1 MiB this is a read.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; I/O errors.
    pub fn value(&self) -> Result<Bytes> {
        let bytes = match self.value {
            Some(bytes) => bytes.clone(),
            None => {
                let (offset, length) = (self.pointer.offset, self.pointer.length);
                self.file.read_at(offset.into(), length as usize)?
            }
        };
        verify(&self.pointer, bytes)
    }

    /// The value as the segment has it, not yet verified ([`ValuePointer`]s know its checksum: [`Log::verified`]); `None`: longer than 1 MiB, and not read.
    #[must_use]
    pub fn unverified_value(&self) -> Option<Bytes> {
        self.value.cloned()
    }
}

impl std::fmt::Debug for LiveScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.scan.header.id;
        write!(f, "LiveScan({} in segment {id})", self.offset)
    }
}

impl std::fmt::Debug for RecordBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let records = self.found.len();
        write!(f, "RecordBatch({records} records, {} bytes)", self.bytes)
    }
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("keyspace", &self.keyspace)
            .field("key", &self.key)
            .field("pointer", &self.pointer)
            .finish_non_exhaustive()
    }
}
