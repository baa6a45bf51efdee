//! Shows and verifies segment files.

use crate::LogEntry;
use crate::format::frame::FrameHeader;
use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET};
use crate::log::Log;
use crate::lsn::Lsn;
use crate::recover::scan::{Frame, Probe, SegmentScan};
use crate::segment::open_segment;
use glintdb_core::{Error, ErrorKind, Result, SegmentId};
use glintdb_flash::Volume;
use std::sync::atomic::Ordering;

/// One thing in a segment's file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DumpItem {
    /// A valid frame.
    Frame(DumpFrame),
    /// Bytes that are no valid frame, up to the next valid header or the end of the file.
    Hole {
        /// Where it begins.
        lsn: Lsn,
        /// How long it is.
        bytes: u64,
        /// What is wrong.
        reason: &'static str,
        /// Whether all of it is zero: space never written.
        zero: bool,
    },
}

/// A frame of a dump.
#[derive(Clone, Debug)]
pub struct DumpFrame {
    segment: SegmentId,
    frame: Frame,
}

impl DumpFrame {
    /// Where it begins.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.segment, self.frame.offset)
    }

    /// Its header.
    #[must_use]
    pub fn header(&self) -> &FrameHeader {
        &self.frame.header
    }

    /// Its operations (none in a seal or mark).
    pub fn entries(&self) -> impl Iterator<Item = LogEntry<'_>> {
        let kind = self.frame.header.kind;
        kind.has_entries()
            .then(|| self.frame.entries(self.segment))
            .into_iter()
            .flatten()
    }

    /// For a seal: the segment it names.
    #[must_use]
    pub fn next_segment(&self) -> Option<SegmentId> {
        self.frame.next_segment()
    }
}

/// The frames and holes of a segment's file, in order. What only the ring holds is not shown.
pub struct Dump {
    scan: SegmentScan<'static>,
    offset: u64,
    failed: bool,
}

/// Opens a segment for dumping; the database it belongs to is taken from its header.
///
/// # Errors
/// `Corruption` of the header, `UnsupportedFormat`, I/O errors.
pub fn dump(volume: &dyn Volume, segment: SegmentId) -> Result<Dump> {
    let file = volume.open(segment.file())?;
    let header = SegmentHeader::decode(segment, &file.read_at(0, BLOCK_BYTES as usize)?)?;
    Ok(Dump {
        scan: SegmentScan::new(header, file, None)?,
        offset: u64::from(FIRST_FRAME_OFFSET),
        failed: false,
    })
}

impl Dump {
    /// The segment's header.
    #[must_use]
    pub fn header(&self) -> &SegmentHeader {
        &self.scan.header
    }

    fn item(&mut self) -> Result<DumpItem> {
        let segment = self.scan.header.id;
        let lsn = Lsn::new(segment, self.offset as u32);
        match self.scan.probe(lsn.offset)? {
            Probe::Frame(frame) => {
                self.offset = u64::from(frame.end());
                Ok(DumpItem::Frame(DumpFrame { segment, frame }))
            }
            Probe::Hole(reason) => {
                let start = self.offset;
                let next = self.scan.next_header(start + 8)?;
                self.offset = next.map_or(self.scan.file_bytes(), |(offset, _)| u64::from(offset));
                Ok(DumpItem::Hole {
                    lsn,
                    bytes: self.offset - start,
                    reason,
                    zero: self.scan.is_zero(start, self.offset)?,
                })
            }
        }
    }
}

impl Iterator for Dump {
    type Item = Result<DumpItem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.offset >= self.scan.file_bytes() {
            return None;
        }
        let item = self.item();
        self.failed = item.is_err();
        Some(item)
    }
}

/// What [`Log::verify`] saw in one segment.
#[derive(Clone, Debug, Default)]
pub struct SegmentReport {
    /// Frames that are whole.
    pub frames: u64,
    /// Operations in them.
    pub entries: u64,
    /// Separated values among those.
    pub values: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is damaged (at most 64 places are told).
    pub errors: Vec<Error>,
}

impl SegmentReport {
    fn note(&mut self, error: Error) {
        const ERRORS_MAX: usize = 64;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }
}

impl Log {
    /// Reads every byte of a segment and verifies it. Beside commits: what is completed when it begins is verified.
    ///
    /// # Errors
    /// `NotFound`: the segment was removed; I/O errors. Damage is no error but in the report.
    pub fn verify(&self, segment: SegmentId) -> Result<SegmentReport> {
        let completed = self.completed.load(Ordering::Acquire);
        self.write_out_to(completed)?;
        // Held to the end: what is in it keeps its file until then.
        let table = self.table.load_full();
        let Some(found) = table.get(segment) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("log segment {segment} is not there"),
            ));
        };
        let stream = found.stream.as_ref();
        // A segment of an earlier process ends with its seal, or without it where that was still in the ring when the process was killed and the flush point lay behind it
        // already, so that nobody needed it again; one of this process where it ended a moment ago. A values segment always has its end.
        let end = stream.map(|stream| match stream.end_offset() {
            Some(end) if stream.position(end) <= completed => u64::from(end),
            _ => u64::from(FIRST_FRAME_OFFSET).max(completed.saturating_sub(stream.base)),
        });
        let mut report = SegmentReport::default();
        let (file, header) = match open_segment(&*self.setup.volume, self.setup.db, segment) {
            Ok(opened) => opened,
            Err(error) if error.place().is_some() => {
                report.errors.push(error);
                return Ok(report);
            }
            Err(error) => return Err(error),
        };
        let mut scan = SegmentScan::new(header, file, None)?;
        let mut offset = u64::from(FIRST_FRAME_OFFSET);
        while end.is_none_or(|end| offset < end) {
            match scan.probe(offset as u32)? {
                Probe::Frame(frame) => {
                    report.frames += 1;
                    if let Some(error) = scan.misplaced(&frame) {
                        report.note(error);
                    } else if frame.header.kind.has_entries() {
                        let entries = frame.entries(segment);
                        report.entries += u64::from(frame.header.entry_count);
                        let separated = entries.filter(|entry| entry.op.is_separated());
                        report.values += separated.count() as u64;
                    }
                    offset = u64::from(frame.end());
                    if frame.header.ends_segment() {
                        break;
                    }
                }
                Probe::Hole(reason) => {
                    let next = scan.next_header(offset + 8)?;
                    let may_end = end.is_none() && scan.header.kind != SegmentKind::Values;
                    if may_end && scan.may_end(offset)? {
                        break;
                    }
                    report.note(Error::corruption(
                        segment.file(),
                        offset,
                        format!("expected a frame, found {reason}"),
                    ));
                    match next {
                        Some((found, _)) => offset = u64::from(found),
                        None => break,
                    }
                }
            }
        }
        report.bytes = offset;
        Ok(report)
    }
}
