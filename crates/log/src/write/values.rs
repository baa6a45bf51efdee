//! Writes segments of values that value GC moves (`docs/format/log.md`, "Values segments").
//!
//! Such a segment is no part of the stream. One thread writes and syncs it as a whole, beside the
//! commits and without their locks. It becomes readable when the manifest names it. Recovery never
//! replays it, and removes it if the manifest does not name it.
//!
//! Value GC keeps this **order**:
//!
//! 1. [`Log::values_writer`], [`ValuesWriter::put`] for each record, [`ValuesWriter::finish`].
//! 2. Writes the index entries with the new pointers, and syncs them.
//! 3. One manifest record with these files and the liveness of the new segments.
//! 4. [`Log::publish_values`]. Only then may a reader meet the new pointers.
//!
//! Thread safety: a writer belongs to one thread at a time.
//!
//! **Invariants:**
//! 1. A drop of a writer or of a [`NewValues`] removes its files.
//! 2. A write or sync that fails here does not poison the log: nothing depends on it yet.

use crate::format::frame::{FrameHeader, VALUES_END_BYTES};
use crate::format::segment::SegmentHeader;
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET, block_up};
use crate::log::Log;
use crate::lsn::Lsn;
use crate::segment::Segment;
use crate::write::append::Space;
use crate::write::builder::FrameBuilder;
use glintdb_core::checksum::FileSeed;
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{Error, KeyspaceId, Result, SegmentId, ValuePointer, planted};
use glintdb_flash::{AlignedBuffer, Volume, VolumeFile};
use std::sync::Arc;

/// The most bytes of a frame with several records. A longer record is a frame of its own.
const FRAME_BYTES_MAX: u64 = 256 << 10;
/// Bytes that a record takes in a segment beside its key and value, approximately.
pub const VALUES_RECORD_BYTES: u64 = 18;
/// Headers and padding of frames take at most this part of the bytes of records that are not small.
const FRAMES_PART: u64 = 256;
/// Bytes that a record takes at most beside its key and value: kind, keyspace, two lengths and
/// checksum (18), and the padding of both sections (14).
const RECORD_BYTES_MAX: usize = 32;
/// The most bytes of one write.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes values to as many segments as they need. Callers [`put`](Self::put) them in key order,
/// the order in which readers will want them together.
///
/// After an error the only use of a writer is its drop, which removes what it wrote.
///
/// ```
/// # use glintdb_core::checksum::crc32c;
/// # use glintdb_core::{DbId, FileNumbers, KeyspaceId, Result};
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
/// #     options: LogOptions {
/// #         segment_bytes: 64 << 10,
/// #         ring_bytes: 64 << 10,
/// #         reserve_segments: 0,
/// #     },
/// # };
/// # let log = Log::create(setup)?;
/// # let records = [(b"apple", b"a value"), (b"peach", b"another")];
/// # let records = records.map(|(key, value)| (key, value, crc32c(value)));
/// let mut writer = log.values_writer(Space::Reserve, 64)?;
/// for (key, value, checksum) in records {
///     writer.put(&log, KeyspaceId(3), key, value, checksum)?;
/// }
/// let moved = writer.finish(&log)?;
/// let pointers = moved.pointers().to_vec();
/// // … the index and the manifest take the pointers …
/// log.publish_values(moved);
/// assert_eq!(log.read(&pointers[1])?, b"another"[..]);
/// # Ok::<(), glintdb_core::Error>(())
/// ```
pub struct ValuesWriter {
    space: Space,
    /// Bytes that its next files will have to take, approximately.
    expected: u64,
    frame: FrameBuilder,
    open: Option<Open>,
    /// The segments so far, the open one included.
    made: NewValues,
    failed: bool,
}

/// The segment that is being written.
struct Open {
    header: SegmentHeader,
    seed: FileSeed,
    file: Arc<dyn VolumeFile>,
    chunk: AlignedBuffer,
    filled: usize,
    /// Offset in the file of the chunk's first byte.
    chunk_offset: u64,
}

/// Segments of values that are whole and durable, and that the manifest does not name yet.
///
/// A drop removes their files. To keep them, give this to [`Log::publish_values`], or
/// [`leave`](Self::leave) it.
#[must_use]
pub struct NewValues {
    volume: Arc<dyn Volume>,
    segments: Vec<Arc<Segment>>,
    pointers: Vec<ValuePointer>,
    /// Bytes that the files of ended segments take.
    file_bytes: u64,
}

impl Log {
    /// Returns a writer of relocated values, for records that take about `bytes` together: keys,
    /// values, and [`VALUES_RECORD_BYTES`] each. It makes its files as large as that needs, and no
    /// larger than the next segment of the stream, unless one record is. It makes no file before
    /// the first frame is full.
    ///
    /// # Errors
    /// `Poisoned` if the log takes no more writes.
    pub fn values_writer(&self, space: Space, bytes: u64) -> Result<ValuesWriter> {
        self.check()?;
        Ok(ValuesWriter {
            space,
            expected: bytes.saturating_add(bytes / FRAMES_PART + BLOCK_BYTES),
            frame: FrameBuilder::new(),
            open: None,
            made: NewValues {
                volume: Arc::clone(&self.setup.volume),
                segments: Vec::new(),
                pointers: Vec::new(),
                file_bytes: 0,
            },
            failed: false,
        })
    }

    /// Makes the values readable by their pointers.
    ///
    /// The caller does so when the manifest record that names the segments is durable and before
    /// any reader can meet one of the pointers. It holds the lock under which dead segments are
    /// looked for, because a segment in the log's table without live values counts as dead.
    ///
    /// Does not wait for a thread that prepares a segment: that thread may wait for a file number,
    /// which the same lock guards.
    pub fn publish_values(&self, mut values: NewValues) {
        for segment in values.segments.drain(..) {
            self.add_to_table(&segment);
        }
    }
}

impl ValuesWriter {
    /// Adds a record. `checksum` is the value's, from the pointer by which the value was read. It
    /// is not computed again, so that it covers the value from its first commit on.
    ///
    /// # Errors
    /// `NoSpace`, `Poisoned`, I/O errors.
    pub fn put(
        &mut self,
        log: &Log,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
        checksum: u32,
    ) -> Result<()> {
        debug_assert_eq!(glintdb_core::checksum::crc32c(value), checksum);
        let grown = self.frame.bytes() + key.len() + value.len() + RECORD_BYTES_MAX;
        if !self.frame.is_empty() && grown as u64 > self.room(log) {
            self.end_frame(log)?;
        }
        self.frame.put_known(keyspace, key, value, checksum);
        Ok(())
    }

    /// Number of records so far.
    #[must_use]
    pub fn records(&self) -> usize {
        self.made.pointers.len() + self.frame.entry_count() as usize
    }

    /// Bytes written to the files so far. Preallocated space does not count.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| open.chunk_offset);
        self.made.file_bytes + open
    }

    /// Ends the last segment, and makes everything durable, names of files included.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn finish(mut self, log: &Log) -> Result<NewValues> {
        if !self.frame.is_empty() {
            self.end_frame(log)?;
        }
        self.end_segment(log)?;
        if !self.made.segments.is_empty() {
            log.setup.volume.sync_directory()?;
        }
        Ok(self.made)
    }

    /// The most bytes that the frame may become.
    fn room(&self, log: &Log) -> u64 {
        let room = match &self.open {
            Some(open) => open.header.capacity - open.offset(),
            None => log.segment_bytes() - u64::from(FIRST_FRAME_OFFSET),
        };
        (room - VALUES_END_BYTES as u64).min(FRAME_BYTES_MAX)
    }

    /// Writes the frame to the open segment, or to a new one if it does not fit.
    fn end_frame(&mut self, log: &Log) -> Result<()> {
        assert!(
            !std::mem::replace(&mut self.failed, true),
            "a writer that failed is dropped"
        );
        self.frame.finish();
        let bytes = self.frame.frame_bytes() + VALUES_END_BYTES as u64;
        if (self.open.as_ref()).is_some_and(|open| open.offset() + bytes > open.header.capacity) {
            self.end_segment(log)?;
        }
        if self.open.is_none() {
            let header = u64::from(FIRST_FRAME_OFFSET);
            // There is more than the caller expected, and it is not known how much.
            let expected = match self.expected >= bytes {
                true => self
                    .expected
                    .saturating_add(header)
                    .min(log.segment_bytes()),
                false => log.segment_bytes(),
            };
            self.begin_segment(log, block_up(expected.max(header + bytes)))?;
        }
        assert!(
            self.frame.frame_bytes() <= FRAME_BYTES_MAX || self.frame.entry_count() == 1,
            "a frame of {} records is at most {FRAME_BYTES_MAX} bytes long: it has {}",
            self.frame.entry_count(),
            self.frame.frame_bytes()
        );
        if let Some(open) = &mut self.open {
            assert!(
                open.offset() + bytes <= open.header.capacity,
                "a frame and the segment's end fit the segment: {bytes} at {} of {} bytes",
                open.offset(),
                open.header.capacity
            );
            let lsn = Lsn::new(open.header.id, open.offset() as u32);
            self.frame.seal_relocation(open.seed, lsn.offset);
            self.made.pointers.extend(self.frame.pointers_at(lsn));
            open.append(log, &self.frame.meta)?;
            open.append(log, &self.frame.values)?;
        }
        self.frame.clear();
        self.failed = false;
        Ok(())
    }

    /// Makes a file of `capacity` bytes and opens it.
    fn begin_segment(&mut self, log: &Log, capacity: u64) -> Result<()> {
        if u32::try_from(capacity).is_err() {
            return Err(Error::invalid(format!(
                "a values segment of {capacity} bytes: the limit is 4 GiB"
            )));
        }
        let chunk = AlignedBuffer::zeroed(CHUNK_BYTES)?;
        let mut prepare = log.prepare.lock();
        log.check()?;
        let created = prepare.create_values(&log.setup, capacity, self.space)?;
        drop(prepare);
        let (header, file, from_reserve) = created;
        if from_reserve {
            log.prepare_wanted.store(true, Ordering::Release);
        }
        let segment = Segment::values(&header, Arc::clone(&file));
        self.made.segments.push(Arc::new(segment));
        let mut open = Open {
            seed: FileSeed::new(header.db, header.id.file()),
            header,
            file,
            chunk,
            filled: 0,
            chunk_offset: 0,
        };
        open.append(log, &header.encode())?;
        self.open = Some(open);
        Ok(())
    }

    /// Ends the open segment, if there is one, and syncs it.
    fn end_segment(&mut self, log: &Log) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        let end = FrameHeader::VALUES_END.encode(open.seed, open.offset() as u32);
        open.append(log, &end)?;
        open.finish(log)
            .map_err(|error| error.context(format!("write values segment {}", open.header.id)))?;
        self.made.file_bytes += open.chunk_offset;
        let frames = open.chunk_offset - u64::from(FIRST_FRAME_OFFSET);
        self.expected = self.expected.saturating_sub(frames);
        Ok(())
    }
}

impl std::fmt::Debug for ValuesWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let segments = self.made.segments.len();
        write!(
            f,
            "ValuesWriter({} records, {segments} segments)",
            self.records()
        )
    }
}

impl Open {
    /// Offset where the next frame begins.
    fn offset(&self) -> u64 {
        self.chunk_offset + self.filled as u64
    }

    /// Adds `bytes` to the file, in writes of whole chunks.
    fn append(&mut self, log: &Log, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self
                .chunk
                .as_mut_slice()
                .get_mut(self.filled..)
                .unwrap_or_default();
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            if let Some(room) = room.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            self.filled += now.len();
            bytes = later;
            if self.filled == CHUNK_BYTES {
                self.write(log)?;
            }
        }
        Ok(())
    }

    /// Writes the chunk. Zeros fill up its last block.
    fn write(&mut self, log: &Log) -> Result<()> {
        let whole = block_up(self.filled as u64) as usize;
        let chunk = self.chunk.as_mut_slice();
        chunk[self.filled..whole].fill(0);
        self.file.write_at(self.chunk_offset, &chunk[..whole])?;
        log.counters
            .relocated_bytes
            .fetch_add(whole as u64, Ordering::Relaxed);
        self.chunk_offset += whole as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes the rest of the chunk, cuts the file behind it, and syncs the file.
    fn finish(&mut self, log: &Log) -> Result<()> {
        if self.filled > 0 {
            self.write(log)?;
        }
        assert!(
            self.chunk_offset.is_multiple_of(BLOCK_BYTES)
                && self.chunk_offset <= self.header.capacity,
            "a values segment is of whole blocks within its capacity: {} of {} bytes",
            self.chunk_offset,
            self.header.capacity
        );
        if self.chunk_offset < self.header.capacity {
            self.file.set_len(self.chunk_offset)?;
        }
        planted!(
            "log: a relocated value's segment is not synced",
            self.file.sync(),
            Ok(())
        )
    }
}

impl NewValues {
    /// Pointers to the records, in the order of the calls of [`put`](ValuesWriter::put).
    #[must_use]
    pub fn pointers(&self) -> &[ValuePointer] {
        &self.pointers
    }

    /// Ids of the segments, in the order in which they were filled.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = SegmentId> + '_ {
        self.segments.iter().map(|segment| segment.id)
    }

    /// Bytes that the files take.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Forgets the segments and leaves their files, for a caller that does not know whether the
    /// manifest record that names them is durable. The next opening keeps or removes them.
    pub fn leave(mut self) {
        self.segments.clear();
    }
}

impl std::fmt::Debug for NewValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewValues")
            .field("segments", &self.segments().collect::<Vec<_>>())
            .field("records", &self.pointers.len())
            .finish()
    }
}

impl Drop for NewValues {
    fn drop(&mut self) {
        // Perhaps in the middle of writing the manifest record that names them: the next opening
        // decides.
        if std::thread::panicking() {
            return;
        }
        for segment in self.segments.drain(..) {
            let file = segment.id.file();
            // Not in use when it is removed: the volume would have to keep it open for that.
            drop(segment);
            // If this fails, recovery finds a file that the manifest does not name and removes it.
            drop(self.volume.delete(file));
        }
    }
}
