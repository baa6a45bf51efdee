//! Reads the whole log of a database that is not open and reports all damage: where recovery would
//! stop, and what recovery would not read. Changes nothing.
//!
//! Thread safety: the files must not change meanwhile.

use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentKind};
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET, block_up};
use crate::log::{LogOptions, LogSetup};
use crate::lsn::Lsn;
use crate::recover::scan::{Probe, SegmentScan};
use crate::recover::{FrameView, walk};
use crate::segment::open_segment;
use bytes::Bytes;
use glintdb_core::{
    DbId, Error, ErrorKind, FileKind, FileNumbers, Result, SegmentId, ValuePointer,
};
use glintdb_flash::{Ring, Volume, VolumeFile};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The result of a check of the log.
#[derive(Clone, Debug, Default)]
pub struct LogCheck {
    /// Segment files read.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Damage found.
    pub errors: Vec<Error>,
}

/// A check creates no files.
struct NoNumbers;

impl FileNumbers for NoNumbers {
    fn next(&self) -> Result<u64> {
        Err(Error::invalid("a check makes no files"))
    }
}

/// Checks the log of database `db`: every segment, and the stream from `from` on.
///
/// - `durable`: everything before it is known to have been durable.
/// - `live`: the segments with live values, segments of relocated values included.
/// - `visit` gets the commits from `from` on. An error of it ends the walk over the stream and is
///   added to the report.
/// - `checked` gets numbers of bytes as they are read. They add up to [`check_bytes`].
///
/// # Errors
/// I/O errors that keep the check from going on.
pub fn check(
    volume: &Arc<dyn Volume>,
    db: DbId,
    from: Lsn,
    durable: Lsn,
    live: &[SegmentId],
    visit: &mut dyn FnMut(FrameView<'_>) -> Result<()>,
    checked: &mut dyn FnMut(u64),
) -> Result<LogCheck> {
    let files = segment_files(&**volume)?;
    let mut check = LogCheck::default();
    for missing in live.iter().filter(|id| !files.contains(id)) {
        let what = "expected a segment with live values, found no such file";
        check
            .errors
            .push(Error::corruption(missing.file(), 0, what));
    }
    // Only an existing ring: `ring` would create one.
    let ring: Option<Arc<dyn Ring>> = match volume.existing_ring_bytes()? {
        Some(bytes) => Some(volume.ring(bytes)?).filter(|ring| ring.survives_kill()),
        None => None,
    };
    let setup = LogSetup {
        volume: Arc::clone(volume),
        db,
        // A check commits nothing, so the clock is never read.
        clock: Arc::new(glintdb_flash::ManualClock::default()),
        numbers: Arc::new(NoNumbers),
        options: LogOptions::default(),
    };
    let mut walked_bytes = 0;
    let walked = walk(
        &setup,
        from,
        durable,
        ring.as_deref(),
        &files,
        visit,
        &mut |progress| {
            checked(progress.replayed_bytes.saturating_sub(walked_bytes));
            walked_bytes = walked_bytes.max(progress.replayed_bytes);
        },
    );
    // Segments end before their files do.
    let walk_bytes = segment_file_bytes(&**volume, files.range(from.segment..))?;
    checked(walk_bytes.saturating_sub(walked_bytes));
    let mut ends = BTreeMap::new();
    match walked {
        Ok(walk) => ends.extend(walk.ends().map(|(header, end)| {
            let id = header.id;
            // The walk has seen it from the flush point on; in the ring, where that has more of it than the file.
            let start = if id == from.segment {
                from.offset
            } else {
                FIRST_FRAME_OFFSET
            };
            let remembered = match id.cmp(&durable.segment) {
                Ordering::Less => u64::MAX,
                Ordering::Equal => durable.offset.into(),
                Ordering::Greater => 0,
            };
            (id, (start, end, remembered.max(walk.durable_to(header))))
        })),
        Err(error) => check.note(error)?,
    }
    for &id in &files {
        let within = match ends.get(&id) {
            Some(&(start, end, durable_to)) => Within::Walked {
                start,
                end,
                durable_to,
            },
            None if id < from.segment && live.contains(&id) => Within::Live,
            None if live.contains(&id) => Within::LiveBehind,
            None if id < from.segment => Within::Old,
            None => Within::Unused,
        };
        if let Err(error) = segment(volume, db, id, &within, &mut check) {
            check.note(error)?;
        }
        checked(volume.open(id.file())?.len()?);
    }
    Ok(check)
}

/// Bytes that [`check`] reads: each segment once, and once more those from `from` on.
///
/// # Errors
/// I/O errors.
pub fn check_bytes(volume: &dyn Volume, from: Lsn) -> Result<u64> {
    let files = segment_files(volume)?;
    let again = files.range(from.segment..);
    segment_file_bytes(volume, files.iter().chain(again))
}

fn segment_files(volume: &dyn Volume) -> Result<BTreeSet<SegmentId>> {
    let files = volume.list()?.into_iter();
    let segments = files.filter(|file| file.kind == FileKind::Log);
    Ok(segments.map(|file| SegmentId(file.number)).collect())
}

/// The length of these segments' files together.
fn segment_file_bytes<'a>(
    volume: &dyn Volume,
    segments: impl Iterator<Item = &'a SegmentId>,
) -> Result<u64> {
    segments.map(|id| volume.open(id.file())?.len()).sum()
}

/// What is known of a segment.
enum Within {
    /// The stream was walked from `start` to `end`, and is known to have been durable up to
    /// `durable_to`.
    Walked {
        start: u32,
        end: u32,
        durable_to: u64,
    },
    /// Wholly before the flush point, with values that an index points to.
    Live,
    /// With values that an index points to, and of a higher number than the flush point's segment: relocated values, or a segment of the stream that the walk did not reach.
    LiveBehind,
    /// Wholly before the flush point, and of no more use.
    Old,
    /// Behind the end of the stream: made ahead, left by a crash, or not reached.
    Unused,
}

impl LogCheck {
    /// Damage is for the report; what else there is ends the check.
    fn note(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Corruption | ErrorKind::UnsupportedFormat | ErrorKind::NotFound => {
                let told = |known: &Error| known.place() == error.place();
                if error.place().is_none() || !self.errors.iter().any(told) {
                    self.errors.push(error);
                }
                Ok(())
            }
            _ => Err(error),
        }
    }
}

fn segment(
    volume: &Arc<dyn Volume>,
    db: DbId,
    id: SegmentId,
    within: &Within,
    check: &mut LogCheck,
) -> Result<()> {
    check.files += 1;
    let file = volume.open(id.file())?;
    check.bytes += file.len()?;
    let head = file.read_at(0, BLOCK_BYTES as usize)?;
    let blank = head.len() < BLOCK_BYTES as usize || head.iter().all(|&byte| byte == 0);
    let unneeded = matches!(within, Within::Unused | Within::Old);
    if blank && unneeded {
        // Made ahead, and never took a frame: the reserve.
        return Ok(());
    }
    let missing = SegmentHeader::is_of_older(id, db, &head) || SegmentHeader::is_of_none(&head);
    if missing && unneeded {
        // Its own header was not synced yet, unless frames of its own say that it was. Those of relocated values do not: they are synced with their header, and without that the file is one that was not
        // finished.
        let mut scan = SegmentScan::headless(id, db, Arc::clone(&file))?;
        if scan.own_kind()? != Some(SegmentKind::Stream) {
            return Ok(());
        }
    }
    let (file, header) = open_segment(&**volume, db, id)?;
    let mut scan = SegmentScan::new(header, Arc::clone(&file), None)?;
    let first = u64::from(FIRST_FRAME_OFFSET);
    let values = header.kind == SegmentKind::Values;
    // What a crash left, and opening removes: it may end anywhere.
    if matches!(within, Within::Unused) || (matches!(within, Within::Old) && values) {
        return Ok(());
    }
    let rest = head.get(SEGMENT_HEADER_BYTES..).unwrap_or_default();
    zeros(id, SEGMENT_HEADER_BYTES as u64, rest, check)?;
    match within {
        Within::Unused => Ok(()),
        Within::LiveBehind if !values => Ok(()),
        Within::LiveBehind => frames(&mut scan, &*file, first, None, check),
        Within::Live | Within::Old => frames(&mut scan, &*file, first, None, check),
        Within::Walked {
            start,
            end,
            durable_to,
        } => {
            let (start, end) = (u64::from(*start), u64::from(*end));
            frames(&mut scan, &*file, first, Some(start), check)?;
            walked(&mut scan, &*file, start, (end, *durable_to), check)
        }
    }
}

/// Frames before the flush point, or of relocated values. Without an `end` they go on to the seal, or to where no frame follows: the seal of a process that was killed may have been
/// only in the ring, when nobody needed it any more. What an index still points to in there is found by its pointer. A values segment has its end always.
fn frames(
    scan: &mut SegmentScan<'_>,
    file: &dyn VolumeFile,
    start: u64,
    end: Option<u64>,
    check: &mut LogCheck,
) -> Result<()> {
    let id = scan.header.id;
    let mut offset = start;
    while end.is_none_or(|end| offset < end) {
        match scan.probe(offset as u32)? {
            Probe::Frame(frame) => {
                if let Some(error) = scan.misplaced(&frame) {
                    check.note(error)?;
                }
                padding(id, file, &frame, check)?;
                offset = u64::from(frame.end());
                if frame.header.ends_segment() {
                    return behind_last(id, file, offset, check);
                }
            }
            Probe::Hole(reason) => {
                let next = scan.next_header(offset + 8)?;
                let may_end = end.is_none() && scan.header.kind != SegmentKind::Values;
                if may_end && scan.may_end(offset)? {
                    return Ok(());
                }
                let what = format!("expected a frame, found {reason}");
                check.note(Error::corruption(id.file(), offset, what))?;
                match next {
                    Some((found, _)) => offset = u64::from(found),
                    None => return Ok(()),
                }
            }
        }
    }
    Ok(())
}

/// Frames that the walk took from the file or from the ring. Those that are known to be durable
/// have zeros in the file where the format wants them. Of others a power cut may have left noise
/// there, and opening writes them again.
fn walked(
    scan: &mut SegmentScan<'_>,
    file: &dyn VolumeFile,
    start: u64,
    (end, durable_to): (u64, u64),
    check: &mut LogCheck,
) -> Result<()> {
    let id = scan.header.id;
    let mut offset = start;
    while offset < end {
        let Probe::Frame(frame) = scan.probe(offset as u32)? else {
            // The ring has it, and opening puts it into the file.
            return Ok(());
        };
        offset = u64::from(frame.end());
        if offset > durable_to {
            return Ok(());
        }
        padding(id, file, &frame, check)?;
        if frame.header.ends_segment() {
            return behind_last(id, file, offset, check);
        }
    }
    Ok(())
}

fn padding(
    id: SegmentId,
    file: &dyn VolumeFile,
    frame: &crate::recover::scan::Frame,
    check: &mut LogCheck,
) -> Result<()> {
    for (start, end) in frame.padding() {
        if start < end {
            let bytes = file.read_at(start, (end - start) as usize)?;
            zeros(id, start, &bytes, check)?;
        }
    }
    Ok(())
}

/// The block that the last frame ends in is filled up with zeros.
fn behind_last(
    id: SegmentId,
    file: &dyn VolumeFile,
    offset: u64,
    check: &mut LogCheck,
) -> Result<()> {
    let rest = file.read_at(offset, (block_up(offset) - offset) as usize)?;
    zeros(id, offset, &rest, check)
}

fn zeros(id: SegmentId, offset: u64, bytes: &[u8], check: &mut LogCheck) -> Result<()> {
    match bytes.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => check.note(Error::corruption(
            id.file(),
            offset + at as u64,
            "expected zeros that fill up a block or frame, found something else",
        )),
    }
}

/// Whether a segment is there, with a header of this database.
///
/// # Errors
/// `Corruption`, `UnsupportedFormat`, I/O errors.
pub fn check_segment(volume: &dyn Volume, db: DbId, segment: SegmentId) -> Result<()> {
    open_segment(volume, db, segment).map(drop)
}

/// The database that a segment belongs to, by its header; `None`: it has none that is whole.
///
/// # Errors
/// I/O errors.
pub fn database_of(volume: &dyn Volume, segment: SegmentId) -> Result<Option<DbId>> {
    let head = volume
        .open(segment.file())?
        .read_at(0, BLOCK_BYTES as usize)?;
    let header = SegmentHeader::decode(segment, &head);
    Ok(header.ok().map(|header| header.db))
}

/// Reads values of a database that is not open, each verified. Answers in the order of the pointers.
pub fn read_values(
    volume: &Arc<dyn Volume>,
    db: DbId,
    pointers: &[ValuePointer],
) -> Vec<Result<Bytes>> {
    let mut files: BTreeMap<SegmentId, Result<Arc<dyn VolumeFile>>> = BTreeMap::new();
    let mut read = |pointer: &ValuePointer| {
        let file = files
            .entry(pointer.segment)
            .or_insert_with(|| open_segment(&**volume, db, pointer.segment).map(|(file, _)| file));
        let bytes = file
            .as_ref()
            .map_err(Clone::clone)?
            .read_at(u64::from(pointer.offset), pointer.length as usize)?;
        crate::read::verify(pointer, bytes)
    };
    pointers.iter().map(&mut read).collect()
}
