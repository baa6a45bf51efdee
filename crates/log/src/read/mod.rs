//! Reads separated values: from the ring until their place there is taken, else from the segments, many at once.
//!
//! A reader takes no lock. It copies from the ring and looks afterwards whether the place was taken for others meanwhile (`reclaimed` passed it); then it reads the file,
//! which holds the value since before that. So what was written last is read without the medium, as long as the ring is.

pub(crate) mod live_scan;

use crate::format::FIRST_FRAME_OFFSET;
use crate::format::segment::SegmentKind;
use crate::log::Log;
use crate::recover::scan::read_ring;
use crate::segment::{LogView, Segment, SegmentTable};
use bytes::Bytes;
use glintdb_core::checksum::crc32c;
use glintdb_core::sync::atomic::{Ordering, fence};
use glintdb_core::{Error, Result, ValuePointer, planted};
use glintdb_flash::{BegunBatch, ReadRequest, VolumeFile};
use std::sync::Arc;

impl Log {
    /// The value at `pointer`, its checksum verified.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; I/O errors.
    pub fn read(&self, pointer: &ValuePointer) -> Result<Bytes> {
        let table = self.table.load();
        self.read_from(&table, pointer)
    }

    /// [`read`](Self::read) of a value that may lie in a segment deleted since `view` was taken.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_in(&self, view: &LogView, pointer: &ValuePointer) -> Result<Bytes> {
        match view.0.get(pointer.segment) {
            Some(_) => self.read_from(&view.0, pointer),
            None => self.read(pointer),
        }
    }

    /// Many values at once, as many reads in flight as the volume can serve. Answers in the order of the pointers.
    pub fn read_batch(&self, pointers: &[ValuePointer]) -> Vec<Result<Bytes>> {
        self.read_batch_from(&[&self.table.load()], pointers)
    }

    /// [`read_batch`](Self::read_batch) of values that may lie in segments deleted since `view` was taken.
    pub fn read_batch_in(&self, view: &LogView, pointers: &[ValuePointer]) -> Vec<Result<Bytes>> {
        self.read_batch_from(&[&view.0, &self.table.load()], pointers)
    }

    /// `bytes`, if they are the value that `pointer` names.
    ///
    /// # Errors
    /// `Corruption` naming file and offset.
    pub fn verified(pointer: &ValuePointer, bytes: Bytes) -> Result<Bytes> {
        verify(pointer, bytes)
    }

    fn read_from(&self, table: &SegmentTable, pointer: &ValuePointer) -> Result<Bytes> {
        let segment = table.get(pointer.segment).ok_or_else(|| gone(pointer))?;
        if let Some(result) = self.read_ring(segment, pointer) {
            return result;
        }
        let file = segment.file(&*self.setup.volume, self.setup.db)?;
        verify(
            pointer,
            file.read_at(u64::from(pointer.offset), pointer.length as usize)?,
        )
    }

    /// Begins [`read_batch`](Self::read_batch) of values in segments that `view` has, or that were
    /// made since: they are read while the caller does something else.
    #[must_use]
    pub fn begin_read_batch_in(&self, view: &LogView, pointers: Vec<ValuePointer>) -> BegunValues {
        let (results, requests) = self.plan_batch(&[&view.0, &self.table.load()], &pointers);
        BegunValues {
            pointers,
            results,
            batch: self.setup.volume.begin_batch(requests),
        }
    }

    fn read_batch_from(
        &self,
        tables: &[&SegmentTable],
        pointers: &[ValuePointer],
    ) -> Vec<Result<Bytes>> {
        let (results, mut requests) = self.plan_batch(tables, pointers);
        if !requests.is_empty() {
            self.setup.volume.read_batch(&mut requests);
        }
        answers(pointers, results, requests)
    }

    /// Values that need no read, or cannot be read, each at its place, and the reads that the others need, in their order.
    fn plan_batch(
        &self,
        tables: &[&SegmentTable],
        pointers: &[ValuePointer],
    ) -> (Vec<Option<Result<Bytes>>>, Vec<ReadRequest>) {
        let mut results: Vec<Option<Result<Bytes>>> = Vec::with_capacity(pointers.len());
        let mut requests = Vec::new();
        let mut files: Option<(u64, Arc<dyn VolumeFile>)> = None;
        for pointer in pointers {
            let segment = tables.iter().find_map(|table| table.get(pointer.segment));
            let Some(segment) = segment else {
                results.push(Some(Err(gone(pointer))));
                continue;
            };
            if let Some(result) = self.read_ring(segment, pointer) {
                results.push(Some(result));
                continue;
            }
            let file = match &files {
                Some((id, file)) if *id == segment.id.0 => Ok(Arc::clone(file)),
                _ => segment.file(&*self.setup.volume, self.setup.db),
            };
            results.push(match file {
                Ok(file) => {
                    files = Some((segment.id.0, Arc::clone(&file)));
                    let (offset, length) = (u64::from(pointer.offset), pointer.length as usize);
                    requests.push(ReadRequest::new(file, offset, length));
                    None
                }
                Err(error) => Some(Err(error)),
            });
        }
        (results, requests)
    }

    /// The value from the ring; `None`: it is not there (any more).
    fn read_ring(&self, segment: &Segment, pointer: &ValuePointer) -> Option<Result<Bytes>> {
        let stream = segment.stream.as_ref()?;
        if stream.kind != SegmentKind::Stream || pointer.offset < FIRST_FRAME_OFFSET {
            return None;
        }
        let position = stream.position(pointer.offset);
        if position < self.reclaimed.load(Ordering::Acquire) {
            return None;
        }
        let end = position + u64::from(pointer.length);
        if end > self.completed.load(Ordering::Acquire) {
            return Some(Err(Error::corruption(
                pointer.segment.file(),
                u64::from(pointer.offset),
                format!(
                    "value of {} bytes: expected within the log, found its end behind the log's",
                    pointer.length
                ),
            )));
        }
        let mut out = vec![0; pointer.length as usize];
        self.ring_read(position, &mut out);
        // Pairs with the fence in `copy`.
        fence(Ordering::Acquire);
        (position >= self.reclaimed.load(Ordering::Acquire))
            .then(|| verify(pointer, Bytes::from(out)))
    }

    /// Copies from `position`, round the ring's end.
    pub(crate) fn ring_read(&self, position: u64, out: &mut [u8]) {
        read_ring(&*self.ring, position, out);
    }
}

/// Values that are being read. A drop waits for the reads under way.
/// [`Log::begin_read_batch_in`] returns it.
pub struct BegunValues {
    pointers: Vec<ValuePointer>,
    results: Vec<Option<Result<Bytes>>>,
    batch: BegunBatch,
}

impl BegunValues {
    /// Waits for all of them. Answers in the order of the pointers.
    #[must_use]
    pub fn wait(self) -> Vec<Result<Bytes>> {
        answers(&self.pointers, self.results, self.batch.wait())
    }
}

/// What reads gave put where there was nothing, verified.
fn answers(
    pointers: &[ValuePointer],
    results: Vec<Option<Result<Bytes>>>,
    requests: Vec<ReadRequest>,
) -> Vec<Result<Bytes>> {
    let mut read = requests.into_iter();
    let mut answer = |pointer: &ValuePointer| {
        let bytes = read.next().and_then(|request| request.result);
        verify(pointer, bytes.unwrap_or_else(|| Ok(Bytes::new()))?)
    };
    let answers = (pointers.iter().zip(results))
        .map(|(pointer, result)| result.unwrap_or_else(|| answer(pointer)))
        .collect();
    assert!(read.next().is_none(), "each read is for one pointer");
    answers
}

fn gone(pointer: &ValuePointer) -> Error {
    Error::corruption(
        pointer.segment.file(),
        u64::from(pointer.offset),
        "a value: expected in this segment, found no such segment",
    )
}

pub(crate) fn verify(pointer: &ValuePointer, bytes: Bytes) -> Result<Bytes> {
    let (file, offset) = (pointer.segment.file(), u64::from(pointer.offset));
    if bytes.len() != pointer.length as usize {
        return Err(Error::corruption(
            file,
            offset,
            format!(
                "value: expected {} bytes, found {}",
                pointer.length,
                bytes.len()
            ),
        ));
    }
    let found = planted!(
        "log: a value's checksum is not checked",
        crc32c(&bytes),
        pointer.checksum
    );
    if found != pointer.checksum {
        return Err(Error::corruption(
            file,
            offset,
            format!(
                "value checksum: expected {:#010x}, found {found:#010x}",
                pointer.checksum
            ),
        ));
    }
    Ok(bytes)
}
