//! Finds frames in a segment's file and in the ring, trusting nothing.
//!
//! Memory: a window of the file, and the next two where it reads ahead (1 MiB each, or one frame's metadata where that is longer and the file really holds it), a window of the ring. Separated values are verified
//! in passing and never kept.

use crate::format::entry::EntryReader;
use crate::format::frame::{FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, FrameKind};
use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{ALIGN, FIRST_FRAME_OFFSET, block_down, block_up};
use bytes::Bytes;
use glintdb_core::checksum::{FileSeed, crc32c, crc32c_append};
use glintdb_core::codec::Reader;
use glintdb_core::{DbId, Error, Result, SegmentId, ValuePointer, planted};
use glintdb_flash::{BegunBatch, ReadRequest, Ring, Volume, VolumeFile};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a file read at once.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;
/// Windows that are read while one is looked at: one alone leaves the device idle between two.
const WINDOWS_AHEAD: usize = 2;

/// A frame whose every byte was verified.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    pub(crate) offset: u32,
    pub(crate) meta: Bytes,
    pub(crate) in_ring: bool,
}

impl Frame {
    pub(crate) fn end(&self) -> u32 {
        (u64::from(self.offset) + self.header.frame_bytes()) as u32
    }

    /// Offset in the file of its first separated value.
    pub(crate) fn values_start(&self) -> u32 {
        (u64::from(self.offset) + self.header.values_offset()) as u32
    }

    /// Ranges of the file that fill up its sections.
    pub(crate) fn padding(&self) -> [(u64, u64); 2] {
        let start = u64::from(self.offset);
        let meta_end = start + (FRAME_HEADER_BYTES as u64) + u64::from(self.header.meta_bytes);
        let values = start + self.header.values_offset();
        let values_end = values + u64::from(self.header.values_bytes);
        [(meta_end, values), (values_end, u64::from(self.end()))]
    }

    pub(crate) fn entries(&self, segment: SegmentId) -> EntryReader<'_> {
        entry_reader(&self.header, self.offset, &self.meta, segment)
    }

    /// The segment that a seal names.
    pub(crate) fn next_segment(&self) -> Option<SegmentId> {
        (self.header.kind == FrameKind::Seal)
            .then(|| Reader::new(&self.meta).u64())
            .flatten()
            .map(SegmentId)
    }
}

fn entry_reader<'a>(
    header: &FrameHeader,
    offset: u32,
    meta: &'a [u8],
    segment: SegmentId,
) -> EntryReader<'a> {
    let values = ValuePointer {
        segment,
        offset: (u64::from(offset) + header.values_offset()) as u32,
        length: 0,
        checksum: 0,
    };
    EntryReader::new(meta, values)
}

/// What stands at a place.
pub(crate) enum Probe {
    Frame(Frame),
    /// No valid frame, and what is wrong with it.
    Hole(&'static str),
}

/// Bytes of one segment, wherever they are.
trait Source {
    /// `length` bytes at `offset` of the segment, fewer where there are no more.
    fn read(&mut self, offset: u64, length: usize) -> Result<Bytes>;
    /// First offset that cannot be read.
    fn end(&self) -> u64;
}

struct FileSource {
    file: Arc<dyn VolumeFile>,
    file_bytes: u64,
    window: Bytes,
    window_offset: u64,
    /// By all windows so far.
    read_bytes: u64,
    /// Where the next windows are read while this one is looked at: for whoever reads from end to end.
    volume: Option<Arc<dyn Volume>>,
    ahead: VecDeque<Ahead>,
}

/// A window that is being read.
struct Ahead {
    offset: u64,
    length: u64,
    batch: BegunBatch,
}

impl FileSource {
    /// The bytes, if the window has them.
    fn in_window(&self, offset: u64, length: usize) -> Option<Bytes> {
        let start = usize::try_from(offset.checked_sub(self.window_offset)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.window.len()).then(|| self.window.slice(start..end))
    }

    /// A few bytes that may lie before the window or behind it, which stays where it is.
    fn read_aside(&self, offset: u64, length: usize) -> Result<Bytes> {
        match self.in_window(offset, length) {
            Some(bytes) => Ok(bytes),
            None => self.file.read_at(offset, length),
        }
    }

    /// Takes over the window that was read ahead, if it is the one behind this; answers `length` bytes from `offset` on, which begin in this one or there.
    fn go_on(&mut self, offset: u64, length: usize) -> Result<Option<Bytes>> {
        let window_end = self.window_offset + self.window.len() as u64;
        let here = offset >= self.window_offset && offset <= window_end;
        let next = self.ahead.pop_front();
        let Some(ahead) = next.filter(|next| here && next.offset == window_end) else {
            self.ahead.clear();
            return Ok(None);
        };
        let Some(read) = ahead.batch.wait().pop().and_then(|request| request.result) else {
            return Ok(None);
        };
        let next = read?;
        self.read_bytes += next.len() as u64;
        let before = usize::try_from(window_end - offset).unwrap_or(usize::MAX);
        let behind = length.saturating_sub(before);
        let bytes = (behind <= next.len()).then(|| match before {
            0 => next.slice(..behind),
            _ => {
                let tail = self
                    .window
                    .slice(self.window.len().saturating_sub(before)..);
                [&tail[..], &next[..behind]].concat().into()
            }
        });
        (self.window, self.window_offset) = (next, window_end);
        self.read_ahead();
        Ok(bytes)
    }

    /// Begins to read what stands behind the window.
    fn read_ahead(&mut self) {
        let Some(volume) = self.volume.as_ref() else {
            return;
        };
        while self.ahead.len() < WINDOWS_AHEAD {
            let offset = match self.ahead.back() {
                Some(last) => last.offset + last.length,
                None => self.window_offset + self.window.len() as u64,
            };
            let rest = self.file_bytes.saturating_sub(offset);
            let length = rest.min(WINDOW_BYTES as u64);
            if length == 0 {
                return;
            }
            let request = ReadRequest::new(Arc::clone(&self.file), offset, length as usize);
            let batch = volume.begin_batch(vec![request]);
            self.ahead.push_back(Ahead {
                offset,
                length,
                batch,
            });
        }
    }
}

impl Source for FileSource {
    fn read(&mut self, offset: u64, length: usize) -> Result<Bytes> {
        if let Some(bytes) = self.in_window(offset, length) {
            return Ok(bytes);
        }
        if let Some(bytes) = self.go_on(offset, length)? {
            return Ok(bytes);
        }
        // From a whole block on: a direct read of just the window's size then, into memory that is recycled.
        let start = block_down(offset);
        let needed = (offset - start) + length as u64;
        let wanted = needed.max(WINDOW_BYTES as u64);
        let wanted = wanted.min(self.file_bytes.saturating_sub(start));
        self.window = self.file.read_at(start, wanted as usize)?;
        self.window_offset = start;
        self.read_bytes += self.window.len() as u64;
        self.read_ahead();
        let behind = ((offset - start) as usize).min(self.window.len());
        let bytes = self.in_window(offset, length);
        Ok(bytes.unwrap_or_else(|| self.window.slice(behind..)))
    }

    fn end(&self) -> u64 {
        self.file_bytes
    }
}

/// The bytes of one segment that may be in the ring.
struct RingSource<'a> {
    ring: &'a dyn Ring,
    base: u64,
    capacity: u64,
}

impl Source for RingSource<'_> {
    fn read(&mut self, offset: u64, length: usize) -> Result<Bytes> {
        let length = length.min(self.ring.len());
        let mut out = vec![0; length];
        read_ring(self.ring, self.base + offset, &mut out);
        Ok(out.into())
    }

    fn end(&self) -> u64 {
        self.capacity
    }
}

/// Copies from the ring at a stream position, round its end.
pub(crate) fn read_ring(ring: &dyn Ring, position: u64, out: &mut [u8]) {
    let at = (position % ring.len() as u64) as usize;
    let (first, rest) = out.split_at_mut(out.len().min(ring.len() - at));
    ring.read(at, first);
    if !rest.is_empty() {
        ring.read(0, rest);
    }
}

/// Reads the frames of one segment, from its file or else from the ring.
pub(crate) struct SegmentScan<'a> {
    pub(crate) header: SegmentHeader,
    seed: FileSeed,
    file: FileSource,
    ring: Option<RingSource<'a>>,
}

impl<'a> SegmentScan<'a> {
    pub(crate) fn new(
        header: SegmentHeader,
        file: Arc<dyn VolumeFile>,
        ring: Option<&'a dyn Ring>,
    ) -> Result<Self> {
        let file_bytes = file.len()?.min(header.capacity);
        Ok(SegmentScan {
            header,
            seed: FileSeed::new(header.db, header.id.file()),
            file: FileSource {
                file,
                file_bytes,
                window: Bytes::new(),
                window_offset: 0,
                read_bytes: 0,
                volume: None,
                ahead: VecDeque::new(),
            },
            ring: ring.map(|ring| RingSource {
                ring,
                base: header.base,
                capacity: header.capacity,
            }),
        })
    }

    /// Of a file without a header that can be read. Frames are known by the database, the file and their place all the same.
    pub(crate) fn headless(id: SegmentId, db: DbId, file: Arc<dyn VolumeFile>) -> Result<Self> {
        let header = SegmentHeader {
            kind: SegmentKind::Stream,
            db,
            id,
            base: 0,
            capacity: file.len()?.min(u32::MAX.into()),
        };
        Self::new(header, file, None)
    }

    /// Reads ahead from now on.
    pub(crate) fn read_ahead(&mut self, volume: Arc<dyn Volume>) {
        self.file.volume = Some(volume);
    }

    /// What is wrong with a valid frame that stands in a segment where none of its kind belongs.
    pub(crate) fn misplaced(&self, frame: &Frame) -> Option<Error> {
        let (kind, segment) = (frame.header.kind, self.header.kind);
        (!kind.belongs_in(segment)).then(|| {
            Error::corruption(
                self.header.id.file(),
                u64::from(frame.offset),
                format!(
                    "a {kind:?} frame in a {segment:?} segment: expected relocated values in values segments, and nowhere else"
                ),
            )
        })
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.file_bytes
    }

    pub(crate) fn position(&self, offset: u32) -> u64 {
        self.header.base + u64::from(offset)
    }

    /// The frame at `offset`.
    pub(crate) fn probe(&mut self, offset: u32) -> Result<Probe> {
        self.probe_as(offset, true)
    }

    /// [`probe`](Self::probe), also of a frame whose values are rotten: what its header and entries say is true all the same.
    pub(crate) fn probe_entries(&mut self, offset: u32) -> Result<Probe> {
        match self.probe(offset)? {
            Probe::Hole(_) => self.probe_as(offset, false),
            frame => Ok(frame),
        }
    }

    /// [`probe`](Self::probe) that does not look at values.
    pub(crate) fn probe_unread(&mut self, offset: u32) -> Result<Probe> {
        self.probe_as(offset, false)
    }

    /// Bytes of the file, fewer where it ends.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize) -> Result<Bytes> {
        self.file.read(offset, length)
    }

    /// Bytes of the file that were read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.file.read_bytes
    }

    /// The bytes of a separated value of `frame`; `None` where they are not what its checksum says.
    pub(crate) fn value(&mut self, frame: &Frame, pointer: &ValuePointer) -> Result<Option<Bytes>> {
        let length = pointer.length as usize;
        let (start, file) = (u64::from(pointer.offset), &mut self.file);
        let whole = |bytes: &Bytes| bytes.len() == length && crc32c(bytes) == pointer.checksum;
        if !frame.in_ring {
            let bytes = file.file.read_at(start, length)?;
            if whole(&bytes) {
                return Ok(Some(bytes));
            }
        }
        let ring = self.ring.as_mut();
        let bytes = ring.map(|ring| ring.read(start, length)).transpose()?;
        Ok(bytes.filter(whole))
    }

    /// The first valid frame header at or behind `offset` that stands in the ring.
    pub(crate) fn next_header_in_ring(
        &mut self,
        offset: u64,
    ) -> Result<Option<(u32, FrameHeader)>> {
        let (seed, end) = (self.seed, self.header.capacity);
        let Some(ring) = &mut self.ring else {
            return Ok(None);
        };
        let mut offset = offset.next_multiple_of(ALIGN as u64);
        while offset + FRAME_HEADER_BYTES as u64 <= end {
            let window = ring.read(offset, (end - offset).min(WINDOW_BYTES as u64) as usize)?;
            for at in (0..=window.len().saturating_sub(FRAME_HEADER_BYTES)).step_by(ALIGN) {
                let bytes = window.get(at..).unwrap_or_default();
                let found = (offset + at as u64) as u32;
                if bytes.starts_with(&FRAME_MAGIC)
                    && let Some(header) = FrameHeader::decode(seed, found, bytes)
                {
                    return Ok(Some((found, header)));
                }
            }
            let step = window.len().saturating_sub(FRAME_HEADER_BYTES) + ALIGN;
            offset += (step / ALIGN * ALIGN) as u64;
        }
        Ok(None)
    }

    fn probe_as(&mut self, offset: u32, values: bool) -> Result<Probe> {
        let in_file = probe(
            &mut self.file,
            self.seed,
            self.header.id,
            offset,
            (false, values),
        )?;
        let ring = planted!("log: recovery forgets the ring", self.ring.as_mut(), None);
        match (&in_file, ring) {
            (Probe::Hole(_), Some(ring)) => {
                let in_ring = probe(ring, self.seed, self.header.id, offset, (true, values))?;
                Ok(match in_ring {
                    Probe::Frame(_) => in_ring,
                    Probe::Hole(_) => in_file,
                })
            }
            _ => Ok(in_file),
        }
    }

    /// The first valid frame header in the file at or behind `offset`.
    pub(crate) fn next_header(&mut self, offset: u64) -> Result<Option<(u32, FrameHeader)>> {
        let mut offset = offset.next_multiple_of(ALIGN as u64);
        while offset + FRAME_HEADER_BYTES as u64 <= self.file.file_bytes {
            let left = (self.file.file_bytes - offset).min(WINDOW_BYTES as u64);
            let window = self.file.read(offset, left as usize)?;
            if window.len() < FRAME_HEADER_BYTES {
                return Ok(None);
            }
            for at in (0..=window.len() - FRAME_HEADER_BYTES).step_by(ALIGN) {
                let bytes = window.get(at..).unwrap_or_default();
                if !bytes.starts_with(&FRAME_MAGIC) {
                    continue;
                }
                let found = (offset + at as u64) as u32;
                if let Some(header) = FrameHeader::decode(self.seed, found, bytes) {
                    return Ok(Some((found, header)));
                }
            }
            let step = window.len() - FRAME_HEADER_BYTES + ALIGN;
            offset += (step / ALIGN * ALIGN) as u64;
        }
        Ok(None)
    }

    /// What the segment is for, by the first frame header of its own in its file, where its header does not say it; `None`: there is none.
    pub(crate) fn own_kind(&mut self) -> Result<Option<SegmentKind>> {
        let first = self.next_header(u64::from(FIRST_FRAME_OFFSET))?;
        Ok(first.map(|(_, frame)| match frame.kind {
            FrameKind::Relocation => SegmentKind::Values,
            FrameKind::Commit | FrameKind::Seal | FrameKind::Mark => SegmentKind::Stream,
        }))
    }

    /// Whether the bytes from `start` to `end` are all zero where `frame` was found: in the ring or
    /// in the file.
    pub(crate) fn has_zeros(&mut self, frame: &Frame, start: u64, end: u64) -> Result<bool> {
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        let bytes = match self.ring.as_mut().filter(|_| frame.in_ring) {
            None => self.file.read_aside(start, length)?,
            Some(ring) => ring.read(start, length)?,
        };
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Whether the file's bytes from `start` to `end` are all zero.
    pub(crate) fn is_zero(&mut self, start: u64, end: u64) -> Result<bool> {
        let mut at = start;
        while at < end {
            let bytes = self
                .file
                .read(at, (end - at).min(WINDOW_BYTES as u64) as usize)?;
            if bytes.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            if bytes.is_empty() {
                break;
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Whether the segment may end at the hole at `offset` without a seal, which its process had only in the ring when it was killed (`docs/format/log.md`, "Tail or corruption"): the rest of the block is
    /// zero, and no frame of the segment follows. What else follows was in the file before it was this one.
    pub(crate) fn may_end(&mut self, offset: u64) -> Result<bool> {
        Ok(
            self.is_zero(offset, block_up(offset).min(self.file_bytes()))?
                && self.next_header(offset)?.is_none(),
        )
    }

    /// Valid header of this segment in the ring at ring offset `at`, if `bytes` stand there: the place it claims lies behind `offset_min`.
    pub(crate) fn header_in_ring(
        &self,
        at: u64,
        ring_bytes: u64,
        bytes: &[u8],
        offset_min: u32,
    ) -> Option<(u32, FrameHeader)> {
        let first = self.position(offset_min);
        let end = self.header.base + self.header.capacity;
        let mut position = first - first % ring_bytes + at;
        if position < first {
            position += ring_bytes;
        }
        while position < end {
            let offset = (position - self.header.base) as u32;
            if let Some(header) = FrameHeader::decode(self.seed, offset, bytes) {
                return Some((offset, header));
            }
            position += ring_bytes;
        }
        None
    }
}

fn probe(
    source: &mut dyn Source,
    seed: FileSeed,
    segment: SegmentId,
    offset: u32,
    (in_ring, with_values): (bool, bool),
) -> Result<Probe> {
    if offset < FIRST_FRAME_OFFSET || !(offset as usize).is_multiple_of(ALIGN) {
        return Ok(Probe::Hole("a place where no frame can begin"));
    }
    let start = u64::from(offset);
    if start + FRAME_HEADER_BYTES as u64 > source.end() {
        return Ok(Probe::Hole("the end"));
    }
    let bytes = source.read(start, FRAME_HEADER_BYTES)?;
    let Some(header) = FrameHeader::decode(seed, offset, &bytes) else {
        return Ok(Probe::Hole("no valid frame header"));
    };
    if start + header.frame_bytes() > source.end() {
        return Ok(Probe::Hole("a frame that is longer than what is there"));
    }
    let meta = source.read(
        start + FRAME_HEADER_BYTES as u64,
        header.meta_bytes as usize,
    )?;
    let meta_checksum = planted!(
        "log: the checksum of a frame's entries is not checked",
        crc32c(&meta),
        header.meta_checksum
    );
    if meta.len() != header.meta_bytes as usize || meta_checksum != header.meta_checksum {
        return Ok(Probe::Hole("a frame with another metadata checksum"));
    }
    let counted = count(entry_reader(&header, offset, &meta, segment));
    let values_end = start + header.values_offset() + u64::from(header.values_bytes);
    let as_counted = counted.sound
        && counted.entries == header.entry_count
        && u64::from(counted.values_end) == values_end;
    let sound = match header.kind {
        FrameKind::Seal => header.meta_bytes == 8 && header.values_bytes == 0,
        FrameKind::Mark => header.meta_bytes == 0 && header.values_bytes == 0,
        FrameKind::Commit => as_counted,
        FrameKind::Relocation => {
            as_counted
                && counted.separated == counted.entries
                && (header.seqno.0, header.durable_position) == (0, 0)
        }
    };
    if !sound {
        return Ok(Probe::Hole(
            "a frame with other entries than its header says",
        ));
    }
    let with_values = planted!(
        "log: recovery does not look at separated values",
        with_values,
        false
    );
    if header.kind.has_entries() && header.values_bytes > 0 && with_values {
        for entry in entry_reader(&header, offset, &meta, segment) {
            let Some(pointer) = crate::write::builder::pointer_of(&entry) else {
                continue;
            };
            if value_checksum(source, &pointer)? != Some(pointer.checksum) {
                return Ok(Probe::Hole("a frame with another value checksum"));
            }
        }
    }
    Ok(Probe::Frame(Frame {
        header,
        offset,
        meta,
        in_ring,
    }))
}

/// What a metadata section holds.
struct Counted {
    entries: u32,
    /// Those with separated values.
    separated: u32,
    /// Where their values end.
    values_end: u32,
    /// Whether it is nothing but entries.
    sound: bool,
}

fn count(mut reader: EntryReader<'_>) -> Counted {
    let (mut entries, mut separated) = (0u32, 0u32);
    for entry in reader.by_ref() {
        entries = entries.saturating_add(1);
        if crate::write::builder::pointer_of(&entry).is_some() {
            separated = separated.saturating_add(1);
        }
    }
    Counted {
        entries,
        separated,
        values_end: reader.values_end(),
        sound: !reader.failed(),
    }
}

/// Checksum of a value, read piece by piece; `None` where it is not all there.
fn value_checksum(source: &mut dyn Source, pointer: &ValuePointer) -> Result<Option<u32>> {
    let mut checksum = 0;
    let mut done = 0;
    while done < pointer.length as usize {
        let piece = (pointer.length as usize - done).min(WINDOW_BYTES);
        let bytes = source.read(u64::from(pointer.offset) + done as u64, piece)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        checksum = crc32c_append(checksum, &bytes);
        done += bytes.len();
    }
    Ok(Some(checksum))
}
