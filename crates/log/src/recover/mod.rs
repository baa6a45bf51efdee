//! Opening the log after any end of the process or the machine.
//!
//! The walk follows frames and seals from a given place. Where no valid frame stands, neither in the segment nor in the ring, is a *hole*. A hole is the tail, unless a
//! frame further on (in this segment, in later ones, in the ring) says by its durable position that what is missing here was durable: then it is corruption, and nothing is changed.
//!
//! After the walk, in this order, each step harmless if the next one never comes: files that no seal names are removed; frames that only the ring has are copied to their
//! segments, and frames that no later one calls durable are written again as they are; the blocks in which seals end are filled up with zeros; the last segment is cut behind its last frame; every segment of the walk is synced; a new segment is made durable; a seal that names it is written and synced.

pub(crate) mod scan;

use crate::format::entry::EntryReader;
use crate::format::frame::{FRAME_HEADER_BYTES, FRAME_MAGIC, FrameKind, SEAL_FRAME_BYTES};
use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{ALIGN, FIRST_FRAME_OFFSET, block_down, block_up};
use crate::log::{Log, LogSetup};
use crate::lsn::Lsn;
use crate::recover::scan::{Frame, Probe, SegmentScan, read_ring};
use crate::segment::{Segment, SegmentTable, open_segment};
use crate::write::append::seal_frame;
use crate::write::prepare::PrepareState;
use crate::write::ring_space::RingSpace;
use glintdb_core::checksum::FileSeed;
use glintdb_core::{DbId, Error, ErrorKind, FileKind, Result, SegmentId, SeqNum, planted};
use glintdb_flash::{ReadRequest, Ring, Volume, VolumeFile};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Pieces of a segment that are read while one is written again.
const PIECES_AHEAD: usize = 2;

/// One committed batch, as recovery shows it; every byte of it is verified.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    frame: &'a Frame,
    segment: SegmentId,
}

impl<'a> FrameView<'a> {
    /// Sequence number of the batch.
    #[must_use]
    pub fn seqno(&self) -> SeqNum {
        self.frame.header.seqno
    }

    /// Where the frame begins.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.segment, self.frame.offset)
    }

    /// Where it ends: the flush point behind it.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn::new(self.segment, self.frame.end())
    }

    /// Number of operations.
    #[must_use]
    pub fn entry_count(&self) -> u32 {
        self.frame.header.entry_count
    }

    /// Its operations, in order; separated values as pointers.
    #[must_use]
    pub fn entries(&self) -> EntryReader<'a> {
        self.frame.entries(self.segment)
    }
}

/// How far recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryProgress {
    /// Bytes of segments read.
    pub replayed_bytes: u64,
    /// Bytes of segments that will have to be read, about: those behind the one that is read just
    /// now are taken to be as large as it may become.
    pub total_bytes: u64,
}

/// What recovery found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Where the log ended: behind the last frame that is kept.
    pub end: Lsn,
    /// Where it goes on: the first frame of a new segment.
    pub next: Lsn,
    /// Segments of the stream that were walked.
    pub segments: u64,
    /// Commit frames shown.
    pub frames: u64,
    /// Newest sequence number shown; 0: none.
    pub seqno_max: SeqNum,
    /// Bytes of the frames that were only in the ring.
    pub ring_bytes: u64,
    /// Files of the log that nothing names, removed.
    pub files_removed: u64,
}

/// What the walk over the stream found.
pub(crate) struct Walk {
    /// Segments of the stream from the starting place on.
    segments: Vec<(Arc<dyn VolumeFile>, SegmentHeader)>,
    /// Where the walk entered each of them, and where it left.
    walked: Vec<(u32, u32)>,
    /// Everything before it was synced, the frames say.
    durable_position: u64,
    /// Ranges (index of the segment, offset, end) that only the ring holds.
    only_in_ring: Vec<(usize, u32, u32)>,
    /// Padding of frames that is not zero: index of the segment, offset, end.
    noise: Vec<(usize, u64, u64)>,
    /// Where the last segment ends.
    end: u32,
    frames: u64,
    seqno_max: SeqNum,
    /// Where each segment but the last ends: behind its seal.
    seals: Vec<u32>,
}

impl Log {
    /// Opens the log with the ring that is there, of whatever size (see
    /// [`resize_ring`](Self::resize_ring)), showing every commit from `from` on to `visit`, in
    /// order. Everything before `durable` was durable once, as somebody remembers. `live` are the
    /// segments that still hold live values, those of relocated values included; what is neither
    /// one of them nor in the stream from `from` on is removed.
    ///
    /// # Errors
    /// `Corruption` (a durable frame is damaged, a segment is missing or foreign: nothing was
    /// changed then), `UnsupportedFormat`, `NoSpace`, I/O errors, and what `visit` answers. After
    /// an error nothing is lost: recovery can be tried again.
    pub fn recover(
        setup: LogSetup,
        from: Lsn,
        durable: Lsn,
        live: &[SegmentId],
        visit: &mut dyn FnMut(FrameView<'_>) -> Result<()>,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<(Log, Recovered)> {
        let options = setup.options.rounded();
        let setup = LogSetup { options, ..setup };
        let files: BTreeSet<SegmentId> = setup
            .volume
            .list()?
            .into_iter()
            .filter(|file| file.kind == FileKind::Log)
            .map(|file| SegmentId(file.number))
            .collect();
        if let Some(missing) = live.iter().find(|id| !files.contains(id)) {
            return Err(Error::corruption(
                missing.file(),
                0,
                "expected a segment with live values, found no such file",
            ));
        }
        let ring = setup.volume.ring(options.ring_bytes)?;
        let readable = ring.survives_kill().then_some(&*ring);
        let walk = walk(&setup, from, durable, readable, &files, visit, progress)?;
        let (log, recovered) = finish(setup, ring, &walk, live, &files)?;
        Ok((log, recovered))
    }
}

pub(crate) fn walk(
    setup: &LogSetup,
    from: Lsn,
    durable: Lsn,
    ring: Option<&dyn Ring>,
    files: &BTreeSet<SegmentId>,
    visit: &mut dyn FnMut(FrameView<'_>) -> Result<()>,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Walk> {
    let mut walk = Walk {
        segments: Vec::new(),
        walked: Vec::new(),
        durable_position: 0,
        only_in_ring: Vec::new(),
        noise: Vec::new(),
        end: 0,
        frames: 0,
        seqno_max: SeqNum::ZERO,
        seals: Vec::new(),
    };
    let mut at = Lsn::new(from.segment, from.offset.max(FIRST_FRAME_OFFSET));
    let mut replayed_bytes = 0;
    loop {
        let (file, header) = open_segment(&*setup.volume, setup.db, at.segment)?;
        if header.kind == SegmentKind::Values {
            return Err(Error::corruption(
                at.segment.file(),
                12,
                "expected a segment of the stream, found one of relocated values",
            ));
        }
        let mut scan = SegmentScan::new(header, Arc::clone(&file), ring)?;
        scan.read_ahead(Arc::clone(&setup.volume));
        walk.segments.push((file, header));
        let later = files.range(SegmentId(at.segment.0 + 1)..).count() as u64;
        let total_bytes = replayed_bytes + scan.file_bytes() + later * header.capacity;
        let mut offset = at.offset;
        let next = loop {
            let next = walk.segment(&mut scan, offset, visit, &mut |offset| {
                progress(RecoveryProgress {
                    replayed_bytes: replayed_bytes + u64::from(offset),
                    total_bytes: total_bytes.max(replayed_bytes + u64::from(offset)),
                });
            })?;
            if next.is_some() {
                break next;
            }
            let tail = planted!(
                "log: damage ahead of whole frames is taken for the tail",
                check_tail(setup, &mut scan, walk.end, durable, ring, files)?,
                Tail::End
            );
            if tail == Tail::End {
                break next;
            }
            offset = walk.end;
        };
        walk.walked.push((at.offset, walk.end));
        replayed_bytes += u64::from(walk.end);
        match next {
            Some(next) if next <= at.segment => {
                return Err(Error::corruption(
                    at.segment.file(),
                    u64::from(walk.end),
                    format!(
                        "next segment: expected an id above {}, found {next}",
                        at.segment
                    ),
                ));
            }
            Some(next) => {
                walk.seals.push(walk.end);
                at = Lsn::new(next, FIRST_FRAME_OFFSET);
            }
            None => {
                progress(RecoveryProgress {
                    replayed_bytes,
                    total_bytes: replayed_bytes,
                });
                return Ok(walk);
            }
        }
    }
}

impl Walk {
    /// Every segment of the stream, and where it ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&SegmentHeader, u32)> {
        let ends = self.seals.iter().copied().chain([self.end]);
        let segments = self.segments.iter().map(|(_, header)| header);
        segments.zip(ends)
    }

    /// Whether some frame says that all of a segment before `end` was durable.
    pub(crate) fn is_durable(&self, header: &SegmentHeader, end: u32) -> bool {
        u64::from(end) <= self.durable_to(header)
    }

    /// Offset in a segment up to which some frame says that it was durable.
    pub(crate) fn durable_to(&self, header: &SegmentHeader) -> u64 {
        self.durable_position.saturating_sub(header.base)
    }

    /// Walks one segment from `offset` to its seal (answers what it names) or to a hole.
    fn segment(
        &mut self,
        scan: &mut SegmentScan<'_>,
        offset: u32,
        visit: &mut dyn FnMut(FrameView<'_>) -> Result<()>,
        progress: &mut dyn FnMut(u32),
    ) -> Result<Option<SegmentId>> {
        const PROGRESS_BYTES: u32 = 4 << 20;
        self.end = offset;
        let mut reported = 0;
        loop {
            let Probe::Frame(frame) = scan.probe(self.end)? else {
                return Ok(None);
            };
            if let Some(error) = scan.misplaced(&frame) {
                return Err(error);
            }
            if frame.header.kind == FrameKind::Commit {
                visit(FrameView {
                    frame: &frame,
                    segment: scan.header.id,
                })?;
                self.frames += 1;
                self.seqno_max = self.seqno_max.max(frame.header.seqno);
            }
            if frame.in_ring {
                self.note_only_in_ring(&frame);
            }
            self.note_noise(scan, &frame)?;
            self.durable_position = self.durable_position.max(frame.header.durable_position);
            self.end = frame.end();
            if let Some(next) = frame.next_segment() {
                return Ok(Some(next));
            }
            if self.end - reported >= PROGRESS_BYTES {
                reported = self.end;
                progress(self.end);
            }
        }
    }

    /// Notes padding of a frame that has something else than zeros: a power cut has left noise in
    /// the file, or a kill what the ring had there before.
    fn note_noise(&mut self, scan: &mut SegmentScan<'_>, frame: &Frame) -> Result<()> {
        let index = self.segments.len() - 1;
        for (start, end) in frame.padding() {
            if start < end && !scan.has_zeros(frame, start, end)? {
                self.noise.push((index, start, end));
            }
        }
        Ok(())
    }

    fn note_only_in_ring(&mut self, frame: &Frame) {
        let index = self.segments.len() - 1;
        match self.only_in_ring.last_mut() {
            Some((last, _, end)) if *last == index && *end == frame.offset => *end = frame.end(),
            _ => self.only_in_ring.push((index, frame.offset, frame.end())),
        }
    }
}

/// What a hole at the end of the stream turns out to be, where it is not corruption.
#[derive(PartialEq, Eq)]
enum Tail {
    /// The log ends here.
    End,
    /// A frame, now that it is read again: what was read first was damaged on its way.
    Mended,
}

/// Decides whether the hole at `hole` is the tail; an error if it is corruption.
fn check_tail(
    setup: &LogSetup,
    scan: &mut SegmentScan<'_>,
    hole: u32,
    durable: Lsn,
    ring: Option<&dyn Ring>,
    files: &BTreeSet<SegmentId>,
) -> Result<Tail> {
    let hole_position = scan.position(hole);
    let hole_segment = scan.header.id;
    let reason = match scan.probe(hole)? {
        Probe::Hole(reason) => reason,
        Probe::Frame(_) => return Ok(Tail::Mended),
    };
    if Lsn::new(hole_segment, hole) < durable {
        return Err(Error::corruption(
            hole_segment.file(),
            u64::from(hole),
            format!(
                "expected a frame, found {reason}; the manifest says that the log was durable up to {durable}"
            ),
        ));
    }
    let corruption = |claimant: Lsn, durable: u64| {
        Err(Error::corruption(
            hole_segment.file(),
            u64::from(hole),
            format!(
                "expected a frame, found {reason}; the frame at {claimant} says that the log was durable up to position {durable}, and this is position {hole_position}"
            ),
        ))
    };
    let mut offset = u64::from(hole) + ALIGN as u64;
    while let Some((found, header)) = scan.next_header(offset)? {
        if header.durable_position > hole_position {
            return corruption(Lsn::new(hole_segment, found), header.durable_position);
        }
        offset = u64::from(found) + ALIGN as u64;
    }
    let mut later = Vec::new();
    for &id in files.range(SegmentId(hole_segment.0 + 1)..) {
        let (mut scan, whole) = scan_anyhow(&*setup.volume, setup.db, id, None)?;
        scan.read_ahead(Arc::clone(&setup.volume));
        if scan.header.kind == SegmentKind::Values {
            // No part of the stream. Where its header is damaged its frames are looked at, and claim nothing.
            continue;
        }
        let mut offset = u64::from(FIRST_FRAME_OFFSET);
        while let Some((found, header)) = scan.next_header(offset)? {
            if header.durable_position > hole_position {
                return corruption(Lsn::new(id, found), header.durable_position);
            }
            offset = u64::from(found) + ALIGN as u64;
        }
        if whole {
            later.push(scan);
        }
    }
    let Some(ring) = ring else {
        return Ok(Tail::End);
    };
    let claim = ring_claim(ring, hole_position, |at, bytes| {
        let here = scan
            .header_in_ring(at, ring.len() as u64, bytes, hole)
            .map(|(offset, header)| (Lsn::new(hole_segment, offset), header));
        here.or_else(|| {
            later.iter().find_map(|scan| {
                let (offset, header) =
                    scan.header_in_ring(at, ring.len() as u64, bytes, FIRST_FRAME_OFFSET)?;
                Some((Lsn::new(scan.header.id, offset), header))
            })
        })
    });
    match claim {
        Some((claimant, durable)) => corruption(claimant, durable),
        None => Ok(Tail::End),
    }
}

/// A segment for a look at what frames its file holds, and whether its header is whole. A file without one never took a frame (reserve, or made and not finished), unless the
/// header is damaged: frames are known by the database, the file and their place, so they can be looked for all the same, though not in the ring. A file that cannot be read is an error: what
/// it holds may be what tells corruption from a tail.
fn scan_anyhow<'a>(
    volume: &dyn Volume,
    db: DbId,
    id: SegmentId,
    ring: Option<&'a dyn Ring>,
) -> Result<(SegmentScan<'a>, bool)> {
    match open_segment(volume, db, id) {
        Ok((file, header)) => Ok((SegmentScan::new(header, file, ring)?, true)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Corruption | ErrorKind::UnsupportedFormat
            ) =>
        {
            let file = volume.open(id.file())?;
            Ok((SegmentScan::headless(id, db, file)?, false))
        }
        Err(error) => Err(error),
    }
}

/// A frame of database `db` in the files or the ring of a volume whose manifest says that nothing was ever committed; `None`: there is none.
///
/// # Errors
/// I/O errors.
pub fn first_frame(volume: &dyn Volume, db: DbId) -> Result<Option<Lsn>> {
    let ring = volume
        .existing_ring_bytes()?
        .map(|bytes| volume.ring(bytes))
        .transpose()?;
    let first = u64::from(FIRST_FRAME_OFFSET);
    for file in volume.list()? {
        if file.kind != FileKind::Log {
            continue;
        }
        let id = SegmentId(file.number);
        let (mut scan, _) = scan_anyhow(volume, db, id, ring.as_deref())?;
        let mut found = scan.next_header(first)?;
        if found.is_none() {
            found = scan.next_header_in_ring(first)?;
        }
        if let Some((offset, _)) = found {
            return Ok(Some(Lsn::new(id, offset)));
        }
    }
    Ok(None)
}

/// Looks at every place of the ring where a frame could begin for one that says `hole_position` was durable.
fn ring_claim(
    ring: &dyn Ring,
    hole_position: u64,
    mut decode: impl FnMut(u64, &[u8]) -> Option<(Lsn, crate::format::frame::FrameHeader)>,
) -> Option<(Lsn, u64)> {
    const CHUNK: usize = 256 << 10;
    let mut window = vec![0; CHUNK + FRAME_HEADER_BYTES];
    for start in (0..ring.len()).step_by(CHUNK) {
        let places = CHUNK.min(ring.len() - start);
        let bytes = window.get_mut(..places + FRAME_HEADER_BYTES)?;
        read_ring(ring, start as u64, bytes);
        for at in (0..places).step_by(ALIGN) {
            let bytes = bytes.get(at..).unwrap_or_default();
            if !bytes.starts_with(&FRAME_MAGIC) {
                continue;
            }
            if let Some((lsn, header)) = decode((start + at) as u64, bytes)
                && header.durable_position > hole_position
            {
                return Some((lsn, header.durable_position));
            }
        }
    }
    None
}

/// Makes the walk's frames whole and durable, ends the stream behind them, begins a new segment.
fn finish(
    setup: LogSetup,
    ring: Arc<dyn Ring>,
    walk: &Walk,
    live: &[SegmentId],
    files: &BTreeSet<SegmentId>,
) -> Result<(Log, Recovered)> {
    let Some((last_file, last)) = walk.segments.last() else {
        unreachable!("the walk begins in a segment")
    };
    assert!(
        walk.segments.len() == walk.walked.len() && walk.segments.len() == walk.seals.len() + 1,
        "every segment of the stream but the last one ends with a seal"
    );
    let kept: BTreeSet<SegmentId> = walk
        .segments
        .iter()
        .map(|(_, header)| header.id)
        .chain(live.iter().copied())
        .collect();
    let mut files_removed = 0;
    for id in files.difference(&kept) {
        setup.volume.delete(id.file())?;
        files_removed += 1;
    }
    write_again(&*setup.volume, walk)?;
    let ring_bytes = planted!(
        "log: recovery does not copy what only the ring has",
        copy_survivors(&*ring, walk)?,
        0
    );
    if u64::from(walk.end) + SEAL_FRAME_BYTES as u64 > last.capacity {
        return Err(Error::corruption(
            last.id.file(),
            u64::from(walk.end),
            "expected room for a seal, found the end of the segment",
        ));
    }
    clear_noise(walk)?;
    fill_up_sealed(walk)?;
    last_file.set_len(u64::from(walk.end))?;
    for (file, header) in &walk.segments {
        let synced = planted!(
            "log: recovery does not sync what it keeps",
            file.sync(),
            Ok(())
        );
        synced.map_err(|error| error.context(format!("sync log segment {}", header.id)))?;
    }
    let base = (last.base + last.capacity).next_multiple_of(setup.options.ring_bytes as u64);
    let mut prepare = PrepareState::new(base, &*ring);
    let first = prepare.create_first(&setup)?;
    if first.id <= last.id {
        // The number is of the manifest: an older one than the log has brings this about. The new
        // file goes at the next opening.
        return Err(Error::corruption(
            last.id.file(),
            u64::from(walk.end),
            format!(
                "next segment: expected a file number above {}, found {}",
                last.id, first.id
            ),
        ));
    }
    let seed = FileSeed::new(setup.db, last.id.file());
    let end_position = last.base + u64::from(walk.end);
    assert!(
        end_position + SEAL_FRAME_BYTES as u64 <= base
            && base % setup.options.ring_bytes as u64 == 0,
        "the log goes on behind what was recovered, at the ring's front: recovered up to {end_position}, goes on at {base}"
    );
    let seal = seal_frame(seed, walk.end, end_position, first.id);
    last_file.write_at(u64::from(walk.end), &seal)?;
    planted!(
        "log: recovery does not sync the seal",
        last_file.sync()?,
        ()
    );

    let recovered = Recovered {
        end: Lsn::new(last.id, walk.end),
        next: Lsn::new(first.id, FIRST_FRAME_OFFSET),
        segments: walk.segments.len() as u64,
        frames: walk.frames,
        seqno_max: walk.seqno_max,
        ring_bytes,
        files_removed,
    };
    let older = kept
        .into_iter()
        .map(|id| Arc::new(Segment::found(id)))
        .collect();
    let space = RingSpace::begin(&*ring)?;
    let older = SegmentTable::new(older);
    let log = Log::start(setup, (ring, space), prepare, first, older)?;
    Ok((log, recovered))
}

/// Writes what stands in the segments' files and may never have reached the medium, as it is, so that the sync that follows makes it durable.
///
/// The process before this one may have met a sync that failed: the system then takes the pages for clean, so they can be read as long as it runs, no later sync writes
/// them, and a power cut takes them (`media.md`, F5). Frames before the durable position that some frame names were synced for certain.
fn write_again(volume: &dyn Volume, walk: &Walk) -> Result<()> {
    for (index, ((file, header), &(start, end))) in
        walk.segments.iter().zip(&walk.walked).enumerate()
    {
        let durable = walk.durable_to(header);
        // From a whole block on, so that it is written directly.
        let mut at = block_down(durable.max(start.into()));
        let only_in_ring = walk.only_in_ring.iter().filter(|range| range.0 == index);
        let gaps = only_in_ring.map(|&(_, from, to)| (u64::from(from), u64::from(to)));
        for (from, to) in gaps.chain([(u64::from(end), u64::from(end))]) {
            rewrite(volume, file, at, from)?;
            at = at.max(to);
        }
    }
    Ok(())
}

/// Writes zeros where a crash has left something else in the padding of a frame, so that a check of
/// the file finds what the format wants. Frames that were durable stay as they are.
fn clear_noise(walk: &Walk) -> Result<()> {
    for &(index, start, end) in &walk.noise {
        let Some((file, header)) = walk.segments.get(index) else {
            unreachable!("noise is in a segment of the walk")
        };
        if end > walk.durable_to(header) {
            let zeros = vec![0; usize::try_from(end - start).unwrap_or(0)];
            file.write_at(start, &zeros)?;
        }
    }
    Ok(())
}

/// Fills the blocks in which seals end up with zeros. What stands there is what the file held before it was this segment, where the seal was only in the ring, or where a power cut took the rest of its
/// block. Where some frame says that the seal was durable, the rest was written with it: files that a checkpoint links stay as they are.
fn fill_up_sealed(walk: &Walk) -> Result<()> {
    for ((file, header), &seal_end) in walk.segments.iter().zip(&walk.seals) {
        let end = u64::from(seal_end);
        let rest = file.read_at(end, (block_up(end) - end) as usize)?;
        // Zeros, too, may be in the system's memory alone: see `write_again`.
        let written = !walk.is_durable(header, seal_end) || rest.iter().any(|&byte| byte != 0);
        if written && !rest.is_empty() {
            file.write_at(end, &vec![0; rest.len()])?;
        }
    }
    Ok(())
}

/// Reads the bytes from `at` to `end` and writes them back, each piece while the next ones are read.
fn rewrite(volume: &dyn Volume, file: &Arc<dyn VolumeFile>, at: u64, end: u64) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut places = (at..end).step_by(PIECE_BYTES).map(|at| {
        let bytes = (end - at).min(PIECE_BYTES as u64);
        let request = ReadRequest::new(Arc::clone(file), at, bytes as usize);
        (at, bytes, volume.begin_batch(vec![request]))
    });
    let mut begun: VecDeque<_> = places.by_ref().take(PIECES_AHEAD).collect();
    while let Some((at, length, batch)) = begun.pop_front() {
        let read = batch.wait().pop().and_then(|request| request.result);
        let bytes = read.transpose()?.unwrap_or_default();
        if bytes.len() as u64 != length {
            return Err(Error::corruption(
                file.id(),
                at + bytes.len() as u64,
                "expected the frames just read, found the end of the file",
            ));
        }
        file.write_at(at, &bytes)?;
        begun.extend(places.next());
    }
    Ok(())
}

/// Copies frames that only the ring holds to their segments' files.
fn copy_survivors(ring: &dyn Ring, walk: &Walk) -> Result<u64> {
    const CHUNK: u32 = 1 << 20;
    let mut copied = 0;
    for &(index, start, end) in &walk.only_in_ring {
        let Some((file, header)) = walk.segments.get(index) else {
            unreachable!("ranges name segments of the walk")
        };
        assert!(
            FIRST_FRAME_OFFSET <= start && start < end && u64::from(end) <= header.capacity,
            "a frame is wholly within its segment: {start} to {end} of {} bytes",
            header.capacity
        );
        let mut at = start;
        while at < end {
            // To a whole block, so that the next piece is written directly.
            let mut bytes = vec![0; (end - at).min(CHUNK - at % CHUNK) as usize];
            read_ring(ring, header.base + u64::from(at), &mut bytes);
            file.write_at(u64::from(at), &bytes)?;
            at += bytes.len() as u32;
        }
        copied += u64::from(end - start);
    }
    Ok(copied)
}
