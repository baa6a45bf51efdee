//! Offers what the log holds: first everything behind the flush point, then, for keys that may be lost, older puts as well.
//!
//! Segments of relocated values do not say of which commit a value is: their records count as older than anything, and so only for keys of which nothing else is found.

use super::Work;
use super::candidates::{Candidates, What, When};
use super::tables::Evidence;
use crate::{Error, Result};
use bytes::Bytes;
use glintdb_core::{FileId, FileKind, KeyspaceId, RangeTombstone, SegmentId, SeqNum};
use glintdb_flash::Ring;
use glintdb_log::format::frame::FrameKind;
use glintdb_log::format::segment::SegmentKind;
use glintdb_log::{LogOp, LogValue, SalvageFrame, SalvageItem, SegmentSalvage};
use std::collections::BTreeSet;

/// Which frames a pass over the log takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Those behind the flush point, or all where nobody knows it.
    Replay,
    /// Those before it, for keys that may be lost.
    Older,
}

/// No frame at a place.
struct Hole {
    segment: SegmentId,
    offset: u64,
    bytes: u64,
    position: u64,
    zero: bool,
    reason: &'static str,
}

#[derive(Default)]
struct Seen {
    holes: Vec<Hole>,
    /// What frames say was durable.
    durable: u64,
    /// What the last frame is.
    last: Option<FrameKind>,
    /// Commits behind the flush point, and the newest.
    commits: u64,
    newest: u64,
    /// Keyspaces whose creation the manifest has lost.
    forgotten: BTreeSet<KeyspaceId>,
    /// Records of relocated values; what was moved later is not older.
    relocated: u32,
}

pub(super) fn gather(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    evidence: &mut Evidence,
) -> Result<()> {
    let ring = match work.volume.existing_ring_bytes() {
        Ok(Some(bytes)) => work
            .volume
            .ring(bytes)
            .ok()
            .filter(|ring| ring.survives_kill()),
        _ => None,
    };
    let mut all = |work: &mut Work<'_>, candidates: &mut Candidates, pass: Pass| {
        let mut seen = Seen::default();
        for segment in work.source.segments.clone() {
            let how = (ring.as_deref(), pass);
            one(work, candidates, evidence, segment, how, &mut seen)?;
        }
        Ok::<Seen, Error>(seen)
    };
    let seen = all(work, candidates, Pass::Replay)?;
    tell(work, &seen);
    work.report.closed = seen.last == Some(FrameKind::Mark);
    if !work.report.closed {
        work.report.notes.push("the database was not closed: whether anything is missing behind the last commit found cannot be known".into());
        if ring.is_none() {
            let what =
                "there is no ring to read: commits that only it had are lost, if there were any";
            let file = work
                .source
                .segments
                .last()
                .map_or(FileId::new(FileKind::Log, 0), |id| id.file());
            work.report.damage(file, Error::corruption("ring", 0, what));
        }
    }
    candidates.settle();
    if work.source.whole && candidates.any_suspect() {
        all(work, candidates, Pass::Older)?;
    }
    candidates.settle();
    Ok(())
}

fn one(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    evidence: &mut Evidence,
    segment: SegmentId,
    (ring, pass): (Option<&dyn Ring>, Pass),
    seen: &mut Seen,
) -> Result<()> {
    let file = segment.file();
    let opened = SegmentSalvage::open(&**work.volume, work.source.db, segment, ring);
    let mut scan = match opened {
        Ok(scan) => scan,
        Err(error) => {
            work.report.damage(file, error);
            return Ok(());
        }
    };
    let mut records = 0;
    let mut frames = 0u64;
    loop {
        let item = match scan.next_item() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(error) => {
                // The medium does not give the rest.
                work.report.damage(file, error);
                break;
            }
        };
        match item {
            SalvageItem::Frame(frame) if frame.header().kind == FrameKind::Relocation => {
                frames += 1;
                records += relocated(work, candidates, &mut scan, &frame, pass, seen)?;
            }
            SalvageItem::Frame(frame) => {
                frames += 1;
                seen.last = Some(frame.header().kind);
                seen.durable = seen.durable.max(frame.header().durable_position);
                if let Some(next) = frame.next_segment()
                    && pass == Pass::Replay
                    && segment >= work.source.flush_point.lsn.segment
                    && !work.source.segments.contains(&next)
                {
                    let missing = Error::corruption(
                        next.file(),
                        0,
                        "expected the segment that a seal names, found no such file",
                    );
                    work.report.damage(next.file(), missing);
                }
                records += entries(work, candidates, evidence, &mut scan, &frame, pass, seen)?;
            }
            SalvageItem::Hole {
                offset,
                reason,
                zero,
                ..
            } if scan.kind() == Some(SegmentKind::Values) => {
                // One that a crash left may end anywhere.
                let whole = match work.source.whole {
                    true => work.source.live.contains(&segment),
                    false => !zero,
                };
                if whole && pass == Pass::Replay {
                    let what = format!("expected relocated values, found {reason}");
                    let error = Error::corruption(file, offset, what);
                    work.report.damage(file, error);
                }
            }
            SalvageItem::Hole {
                offset,
                bytes,
                reason,
                zero,
            } => seen.holes.push(Hole {
                segment,
                offset,
                bytes,
                position: scan.position(offset),
                zero,
                reason,
            }),
            _ => {}
        }
    }
    if pass == Pass::Replay {
        // A file without frames and header is one that was made ahead; one of relocated values that are not live, one that a crash left.
        let left = scan.kind() == Some(SegmentKind::Values)
            && work.source.whole
            && !work.source.live.contains(&segment);
        if let Some(error) = scan.header_error().filter(|_| frames > 0 && !left) {
            work.report.damage(file, error.clone());
        }
        work.done(file, records);
    }
    Ok(())
}

/// Offers the records of a frame of relocated values, where they may be wanted; how many there are.
fn relocated(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    scan: &mut SegmentSalvage<'_>,
    frame: &SalvageFrame,
    pass: Pass,
    seen: &mut Seen,
) -> Result<u64> {
    let suspects_only = work.source.whole;
    if suspects_only && pass == Pass::Replay {
        return Ok(frame.header().entry_count.into());
    }
    for entry in frame.entries() {
        let LogOp::Put {
            key,
            value: LogValue::Pointer(pointer),
        } = entry.op
        else {
            continue;
        };
        if !work.source.wants(entry.keyspace) {
            continue;
        }
        let space = candidates.space(entry.keyspace)?;
        if suspects_only && !space.is_suspect(key)? {
            continue;
        }
        seen.relocated = seen.relocated.saturating_add(1);
        let when = When {
            seqno: SeqNum::ZERO,
            order: seen.relocated,
        };
        // What cannot be read here is found damaged by its pointer.
        if scan.value(frame, &pointer).ok().flatten().is_some() {
            space.offer(key, when, &What::Pointer(pointer))?;
        }
    }
    Ok(frame.header().entry_count.into())
}

/// Offers the operations of a frame; how many.
fn entries(
    work: &mut Work<'_>,
    candidates: &mut Candidates,
    evidence: &mut Evidence,
    scan: &mut SegmentSalvage<'_>,
    frame: &SalvageFrame,
    pass: Pass,
    seen: &mut Seen,
) -> Result<u64> {
    let header = frame.header();
    let seqno = header.seqno;
    let older = work.source.whole && seqno <= work.source.flush_point.seqno;
    if header.entry_count == 0 || older != (pass == Pass::Older) {
        return Ok(0);
    }
    if !older && seqno.0 > seen.newest {
        seen.newest = seqno.0;
        seen.commits += 1;
    }
    let mut records = 0;
    for (order, entry) in (0u32..).zip(frame.entries()) {
        if !work.source.wants(entry.keyspace) {
            continue;
        }
        if work.source.has_forgotten(entry.keyspace) && seen.forgotten.insert(entry.keyspace) {
            let file = frame.segment().file();
            let what = format!(
                "this commit is of keyspace {}, which the manifest does not know: it has lost records",
                entry.keyspace.0
            );
            let damage = Error::corruption(file, frame.offset().into(), what);
            work.report.damage(file, damage);
        }
        let when = When { seqno, order };
        let space = candidates.space(entry.keyspace)?;
        records += 1;
        match entry.op {
            LogOp::DeleteRange { start, end } => {
                let tombstone = RangeTombstone {
                    start: Bytes::copy_from_slice(start),
                    end: end.map(Bytes::copy_from_slice),
                    seqno,
                };
                space.delete_range(&tombstone, when);
            }
            LogOp::Delete { key } => {
                evidence.see(seqno, key, entry.keyspace);
                if !older || space.is_suspect(key)? {
                    space.offer(key, when, &What::Deleted)?;
                }
            }
            LogOp::Put { key, value } => {
                evidence.see(seqno, key, entry.keyspace);
                if older && !space.is_suspect(key)? {
                    continue;
                }
                let what = match value {
                    LogValue::Inline(value) => Some(What::Value(Bytes::copy_from_slice(value))),
                    LogValue::Pointer(pointer) => {
                        // What cannot be read is lost; what only the ring has is not where the pointer says.
                        let found = scan.value(frame, &pointer).ok().flatten();
                        found.map(|value| match frame.in_ring() {
                            true => What::Value(value),
                            false => What::Pointer(pointer),
                        })
                    }
                };
                match what {
                    Some(what) => space.offer(key, when, &what)?,
                    None if older => {}
                    None => {
                        let file = frame.segment().file();
                        let what = "a value of this frame is damaged";
                        let damage = Error::corruption(file, frame.offset().into(), what);
                        work.report.damage(file, damage);
                        space.suspect(key, when)?;
                    }
                }
            }
        }
    }
    Ok(records)
}

/// Holes that are damage, and commits that are missing.
fn tell(work: &mut Work<'_>, seen: &Seen) {
    let flush = work.source.flush_point;
    for hole in &seen.holes {
        let replayed = work.source.whole
            && (hole.segment > flush.lsn.segment
                || (hole.segment == flush.lsn.segment && hole.offset >= flush.lsn.offset.into()));
        // Zeros are space never written, unless frames must have been there; anything else that was durable is damage, and what was not is a torn tail.
        if hole.position < seen.durable && (!hole.zero || replayed) {
            let what = format!("{} bytes hold no frame: {}", hole.bytes, hole.reason);
            let error = Error::corruption(hole.segment.file(), hole.offset, what);
            work.report.damage(hole.segment.file(), error);
        }
    }
    if work.source.whole {
        let expected = seen.newest.saturating_sub(flush.seqno.0);
        work.report.commits_lost = expected.saturating_sub(seen.commits);
        let there: BTreeSet<&SegmentId> = work.source.segments.iter().collect();
        if !there.contains(&flush.lsn.segment) {
            let file = flush.lsn.segment.file();
            let missing = Error::corruption(
                file,
                0,
                "expected the segment in which replay begins, found no such file",
            );
            work.report.damage(file, missing);
        }
    }
}
