//! Takes out of a segment whatever is intact, for a database that cannot be opened any more.
//!
//! Unlike recovery it goes on behind damage, takes a frame whose values are rotten for what its entries say, and needs no segment header. It stops at the seal, or the end of relocated values: what stands
//! behind it was given up by an earlier recovery.

use crate::format::frame::FrameHeader;
use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET, block_up};
use crate::recover::scan::{Frame, Probe, SegmentScan};
use crate::{EntryReader, LogEntry};
use bytes::Bytes;
use glintdb_core::{DbId, Error, Result, SegmentId, ValuePointer};
use glintdb_flash::{Ring, Volume};
use std::sync::Arc;

/// One thing in a damaged segment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SalvageItem {
    /// A frame whose header and entries are right; its values may not be.
    Frame(SalvageFrame),
    /// Bytes that are no frame, up to the next one or the end.
    Hole {
        /// Where it begins in the file.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// What is wrong.
        reason: &'static str,
        /// Whether all of it is zero in the file: space never written, or emptied. Where no frame follows, only the block in which it begins is looked at.
        zero: bool,
    },
}

/// A frame of a [`SegmentSalvage`].
#[derive(Clone, Debug)]
pub struct SalvageFrame {
    segment: SegmentId,
    frame: Frame,
}

impl SalvageFrame {
    /// The segment it belongs to.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Where it begins in the segment's file.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.frame.offset
    }

    /// Its header.
    #[must_use]
    pub fn header(&self) -> &FrameHeader {
        &self.frame.header
    }

    /// Whether only the ring holds it.
    #[must_use]
    pub fn in_ring(&self) -> bool {
        self.frame.in_ring
    }

    /// Its operations (none in a seal or mark). In a frame of relocated values, puts whose commit the frame does not know.
    pub fn entries(&self) -> impl Iterator<Item = LogEntry<'_>> {
        let some = self.frame.header.kind.has_entries();
        let entries = || -> EntryReader<'_> { self.frame.entries(self.segment) };
        some.then(entries).into_iter().flatten()
    }

    /// For a seal: the segment it names.
    #[must_use]
    pub fn next_segment(&self) -> Option<SegmentId> {
        self.frame.next_segment()
    }
}

/// The frames and holes of a segment, in order.
pub struct SegmentSalvage<'a> {
    scan: SegmentScan<'a>,
    offset: u64,
    ended: bool,
    header_error: Option<Error>,
}

impl<'a> SegmentSalvage<'a> {
    /// Opens a segment of the database `db`; frames that are not in its file are looked for in the ring.
    ///
    /// # Errors
    /// `NotFound`, I/O errors. A damaged header is none: see [`header_error`](Self::header_error).
    pub fn open(
        volume: &dyn Volume,
        db: DbId,
        segment: SegmentId,
        ring: Option<&'a dyn Ring>,
    ) -> Result<Self> {
        let file = volume.open(segment.file())?;
        let length = file.len()?;
        let block = file.read_at(0, BLOCK_BYTES as usize);
        let header = block.as_ref().map_err(Clone::clone).and_then(|block| {
            let header = SegmentHeader::decode(segment, block)?;
            match header.db == db {
                true => Ok(header),
                false => Err(Error::corruption(
                    segment.file(),
                    16,
                    "a segment of another database",
                )),
            }
        });
        let (header, ring, header_error) = match header {
            Ok(header) => (
                header,
                ring.filter(|_| header.kind == SegmentKind::Stream),
                None,
            ),
            Err(error) => {
                // Frames are bound to the database, the file's number and their offset, which are known. Only where they stand in the ring is not.
                let mut header = SegmentHeader {
                    kind: SegmentKind::Stream,
                    db,
                    id: segment,
                    base: 0,
                    capacity: length.next_multiple_of(BLOCK_BYTES),
                };
                // The file was written over an older one, and the header did not reach the medium.
                if block.is_ok_and(|block| SegmentHeader::is_of_older(segment, db, &block))
                    && let Some(kind) =
                        SegmentScan::headless(segment, db, Arc::clone(&file))?.own_kind()?
                {
                    header.kind = kind;
                }
                (header, None, Some(error))
            }
        };
        Ok(SegmentSalvage {
            scan: SegmentScan::new(header, file, ring)?,
            offset: u64::from(FIRST_FRAME_OFFSET),
            ended: false,
            header_error,
        })
    }

    /// What is wrong with the segment's header.
    #[must_use]
    pub fn header_error(&self) -> Option<&Error> {
        self.header_error.as_ref()
    }

    /// What the segment is for; `None` where its header is damaged. Relocated values are known by their frames too, where the header is an older segment's that the file was before.
    #[must_use]
    pub fn kind(&self) -> Option<SegmentKind> {
        let known = self.header_error.is_none() || self.scan.header.kind == SegmentKind::Values;
        known.then_some(self.scan.header.kind)
    }

    /// Stream position of an offset; means nothing where the header is damaged, or in a values segment.
    #[must_use]
    pub fn position(&self, offset: u64) -> u64 {
        self.scan.header.base + offset
    }

    /// The next frame or hole; `None` behind the last.
    ///
    /// # Errors
    /// I/O errors.
    pub fn next_item(&mut self) -> Result<Option<SalvageItem>> {
        let end = match self.scan.has_ring() {
            true => self.scan.header.capacity,
            false => self.scan.file_bytes(),
        };
        if self.ended || self.offset >= end {
            return Ok(None);
        }
        match self.scan.probe_entries(self.offset as u32)? {
            Probe::Frame(frame) => {
                self.offset = u64::from(frame.end());
                self.ended = frame.header.ends_segment();
                Ok(Some(SalvageItem::Frame(SalvageFrame {
                    segment: self.scan.header.id,
                    frame,
                })))
            }
            Probe::Hole(reason) => {
                let start = self.offset;
                let in_file = self.scan.next_header(start + 8)?;
                let in_ring = self.scan.next_header_in_ring(start + 8)?;
                let next = in_file.into_iter().chain(in_ring).map(|(at, _)| at).min();
                self.offset = next.map_or(end, u64::from);
                let written = self.scan.file_bytes().min(self.offset).max(start);
                // What is behind the last block was perhaps in the file before it was this one.
                let written = match next {
                    Some(_) => written,
                    None => written.min(block_up(start)),
                };
                Ok(Some(SalvageItem::Hole {
                    offset: start,
                    bytes: self.offset - start,
                    reason,
                    zero: self.scan.is_zero(start, written)?,
                }))
            }
        }
    }

    /// The bytes of a separated value of `frame`, which its entries name; `None` where they are not what the checksum says.
    ///
    /// # Errors
    /// I/O errors.
    pub fn value(&mut self, frame: &SalvageFrame, pointer: &ValuePointer) -> Result<Option<Bytes>> {
        self.scan.value(&frame.frame, pointer)
    }
}
