//! Segments in memory, and the table of them. Thread-safe; tables are immutable once published.

use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET};
use glintdb_core::checksum::FileSeed;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use glintdb_core::{DbId, Error, ErrorKind, Result, SegmentId};
use glintdb_flash::{Volume, VolumeFile};
use std::sync::Arc;
use std::sync::OnceLock;

/// A segment that this process writes, or wrote, through the stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) base: u64,
    pub(crate) capacity: u32,
    pub(crate) kind: SegmentKind,
    pub(crate) seed: FileSeed,
    /// Offset behind the seal frame; 0 while the segment may still grow.
    end: AtomicU32,
    /// Whether its space came from the reserve for a full disk, which is not filled again yet.
    pub(crate) from_reserve: AtomicBool,
}

impl Stream {
    pub(crate) fn new(header: &SegmentHeader, from_reserve: bool) -> Self {
        Stream {
            base: header.base,
            capacity: header.capacity as u32,
            kind: header.kind,
            seed: FileSeed::new(header.db, header.id.file()),
            end: AtomicU32::new(0),
            from_reserve: AtomicBool::new(from_reserve),
        }
    }

    pub(crate) fn position(&self, offset: u32) -> u64 {
        self.base + u64::from(offset)
    }

    pub(crate) fn first_position(&self) -> u64 {
        self.position(FIRST_FRAME_OFFSET)
    }

    /// Position behind the seal, once there is one.
    pub(crate) fn end_position(&self) -> Option<u64> {
        match self.end.load(Ordering::Acquire) {
            0 => None,
            end => Some(self.position(end)),
        }
    }

    pub(crate) fn end_offset(&self) -> Option<u32> {
        Some(self.end.load(Ordering::Acquire)).filter(|&end| end != 0)
    }

    /// Notes that the segment ends at the offset `end`, behind its seal.
    pub(crate) fn seal(&self, end: u32) {
        assert!(
            FIRST_FRAME_OFFSET < end && end <= self.capacity,
            "a segment has room for its seal: up to {end} of {} bytes",
            self.capacity
        );
        let before = self.end.swap(end, Ordering::AcqRel);
        assert_eq!(before, 0, "a segment is sealed once");
    }
}

/// One segment file.
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    /// The open file, and what its header says it is for.
    file: OnceLock<(Arc<dyn VolumeFile>, SegmentKind)>,
    pub(crate) stream: Option<Stream>,
}

impl Segment {
    /// A segment that this process writes.
    pub(crate) fn written(
        header: &SegmentHeader,
        file: Arc<dyn VolumeFile>,
        from_reserve: bool,
    ) -> Self {
        Segment {
            id: header.id,
            file: OnceLock::from((file, header.kind)),
            stream: Some(Stream::new(header, from_reserve)),
        }
    }

    /// A segment of values that this process makes. It is wholly written before it is in the table.
    pub(crate) fn values(header: &SegmentHeader, file: Arc<dyn VolumeFile>) -> Self {
        Segment {
            id: header.id,
            file: OnceLock::from((file, header.kind)),
            stream: None,
        }
    }

    /// A segment of an earlier process. Its file is opened when it is first read.
    pub(crate) fn found(id: SegmentId) -> Self {
        Segment {
            id,
            file: OnceLock::new(),
            stream: None,
        }
    }

    /// The stream's part of a segment that [`written`](Self::written) made.
    pub(crate) fn stream(&self) -> &Stream {
        match &self.stream {
            Some(stream) => stream,
            None => unreachable!("only written segments enter the stream"),
        }
    }

    pub(crate) fn file(&self, volume: &dyn Volume, db: DbId) -> Result<Arc<dyn VolumeFile>> {
        self.opened(volume, db).map(|(file, _)| Arc::clone(file))
    }

    pub(crate) fn kind(&self, volume: &dyn Volume, db: DbId) -> Result<SegmentKind> {
        self.opened(volume, db).map(|(_, kind)| *kind)
    }

    fn opened(&self, volume: &dyn Volume, db: DbId) -> Result<&(Arc<dyn VolumeFile>, SegmentKind)> {
        if let Some(opened) = self.file.get() {
            return Ok(opened);
        }
        let (file, header) = open_segment(volume, db, self.id)?;
        Ok(self.file.get_or_init(|| (file, header.kind)))
    }

    /// The file of a segment that this process created.
    pub(crate) fn written_file(&self) -> &Arc<dyn VolumeFile> {
        match self.file.get() {
            Some((file, _)) => file,
            None => unreachable!("written segments hold their file"),
        }
    }
}

/// Deleted segments whose files are still there.
#[derive(Default)]
pub(crate) struct Doomed {
    /// Segments that are in use.
    pub(crate) waiting: Vec<Arc<Segment>>,
    /// Segments whose files are being removed.
    removing: Vec<SegmentId>,
}

impl Doomed {
    /// Takes a segment that is not in use any more. The caller removes its file, then calls
    /// [`removed`](Self::removed).
    pub(crate) fn take(&mut self) -> Option<Arc<Segment>> {
        let unused = |segment: &Arc<Segment>| Arc::strong_count(segment) == 1;
        let at = self.waiting.iter().position(unused)?;
        let segment = self.waiting.swap_remove(at);
        self.removing.push(segment.id);
        Some(segment)
    }

    /// Notes whether the file of a segment that was taken is gone. If not, the segment waits again.
    pub(crate) fn removed(&mut self, id: SegmentId, is_gone: bool) {
        self.removing.retain(|&removing| removing != id);
        if !is_gone {
            self.waiting.push(Arc::new(Segment::found(id)));
        }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let waiting = self.waiting.iter().map(|segment| segment.id);
        waiting.chain(self.removing.iter().copied())
    }
}

/// Opens a segment and checks that its header belongs to `db`.
pub(crate) fn open_segment(
    volume: &dyn Volume,
    db: DbId,
    id: SegmentId,
) -> Result<(Arc<dyn VolumeFile>, SegmentHeader)> {
    let file = volume.open(id.file()).map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            Error::corruption(id.file(), 0, "expected a segment, found no such file")
        } else {
            error
        }
    })?;
    let header = SegmentHeader::decode(id, &file.read_at(0, BLOCK_BYTES as usize)?)?;
    if header.db != db {
        return Err(Error::corruption(
            id.file(),
            16,
            format!("database id: expected {db}, found {}", header.db),
        ));
    }
    Ok((file, header))
}

/// Every segment, in order of ids.
#[derive(Default)]
pub(crate) struct SegmentTable {
    segments: Vec<Arc<Segment>>,
}

impl SegmentTable {
    pub(crate) fn new(mut segments: Vec<Arc<Segment>>) -> Self {
        segments.sort_by_key(|segment| segment.id);
        SegmentTable { segments }
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&Arc<Segment>> {
        let at = self
            .segments
            .binary_search_by_key(&id, |segment| segment.id)
            .ok()?;
        self.segments.get(at)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Segment>> {
        self.segments.iter()
    }

    pub(crate) fn with(&self, added: Arc<Segment>) -> Self {
        let mut segments = self.segments.clone();
        segments.push(added);
        SegmentTable::new(segments)
    }

    pub(crate) fn without(&self, id: SegmentId) -> Self {
        let mut segments = self.segments.clone();
        segments.retain(|segment| segment.id != id);
        SegmentTable { segments }
    }
}

/// The segments that the log had at some moment. As long as a view lives, none of them is removed.
/// Cheap to clone.
#[derive(Clone)]
pub struct LogView(pub(crate) Arc<SegmentTable>);

impl std::fmt::Debug for LogView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|segment| segment.id))
            .finish()
    }
}

/// A segment, for lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Its id.
    pub id: SegmentId,
    /// What it is for.
    pub kind: SegmentKind,
    /// Bytes in its file now; more may still be in the ring.
    pub file_bytes: u64,
    /// Of these, what has been written; the rest is preallocated.
    pub written_bytes: u64,
    /// Whether it can still grow (the active one, and the one prepared after it).
    pub active: bool,
}
