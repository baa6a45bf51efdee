//! Encodes a frame, outside any lock.

use crate::format::entry::{
    EntryReader, LogEntry, LogOp, LogValue, encode_delete, encode_delete_range, encode_put_inline,
    encode_put_separated,
};
use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::format::{ALIGN, FIRST_FRAME_OFFSET, pad8};
use crate::lsn::Lsn;
use crate::write::append::Reservation;
use glintdb_core::checksum::{FileSeed, crc32c};
use glintdb_core::{KeyspaceId, SegmentId, SeqNum, ValuePointer, planted};

/// Encodes the entries of one batch.
///
/// Order of calls: puts and deletes, [`finish`](Self::finish),
/// [`Log::reserve`](crate::Log::reserve) of [`frame_bytes`](Self::frame_bytes),
/// [`pointers`](Self::pointers), [`Log::copy`](crate::Log::copy). A builder can be used again:
/// [`clear`](Self::clear) keeps the memory, up to 1 MiB a section.
///
/// Keys and values must be within the limits of `glintdb_core::key`; the engine checks them.
#[derive(Debug)]
pub struct FrameBuilder {
    /// Room for the header, then the metadata section, padded by `finish`.
    pub(crate) meta: Vec<u8>,
    /// The values section, padded by `finish`.
    pub(crate) values: Vec<u8>,
    separated: Vec<(u64, u32, u32)>,
    entry_count: u32,
    meta_bytes: usize,
    values_bytes: usize,
    meta_checksum: u32,
    finished: bool,
}

const KEPT_BYTES_MAX: usize = 1 << 20;

impl Default for FrameBuilder {
    fn default() -> Self {
        FrameBuilder::new()
    }
}

impl FrameBuilder {
    /// An empty frame.
    #[must_use]
    pub fn new() -> Self {
        FrameBuilder {
            meta: vec![0; FRAME_HEADER_BYTES],
            values: Vec::new(),
            separated: Vec::new(),
            entry_count: 0,
            meta_bytes: 0,
            values_bytes: 0,
            meta_checksum: 0,
            finished: false,
        }
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        for section in [&mut self.meta, &mut self.values] {
            section.clear();
            section.shrink_to(KEPT_BYTES_MAX);
        }
        self.meta.resize(FRAME_HEADER_BYTES, 0);
        self.separated.clear();
        self.separated.shrink_to(KEPT_BYTES_MAX / 16);
        self.entry_count = 0;
        self.finished = false;
    }

    /// Adds a put of `key` whose value is inline, in the entry.
    pub fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        self.add();
        encode_put_inline(&mut self.meta, keyspace, key, value);
    }

    /// Adds a put of `key` whose value is separated. [`pointers`](Self::pointers) tells where the
    /// value is.
    pub fn put_separated(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        self.put_known(keyspace, key, value, crc32c(value));
    }

    /// Adds a put like [`put_separated`](Self::put_separated), of a value whose checksum the caller
    /// knows.
    pub(crate) fn put_known(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
        checksum: u32,
    ) {
        self.add();
        let length = value.len() as u32;
        encode_put_separated(&mut self.meta, keyspace, key, length, checksum);
        self.separated
            .push((self.values.len() as u64, length, checksum));
        self.values.extend_from_slice(value);
    }

    /// Adds a delete of `key`.
    pub fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) {
        self.add();
        encode_delete(&mut self.meta, keyspace, key);
    }

    /// Adds a delete of every key in `[start, end)`, to the end of the keyspace if `end` is `None`.
    pub fn delete_range(&mut self, keyspace: KeyspaceId, start: &[u8], end: Option<&[u8]>) {
        self.add();
        encode_delete_range(&mut self.meta, keyspace, start, end);
    }

    fn add(&mut self) {
        assert!(
            !self.finished,
            "a finished frame takes no entries; clear it"
        );
        self.entry_count += 1;
    }

    /// Whether some separated value has at least `bytes_min` bytes.
    #[must_use]
    pub fn has_value_of(&self, bytes_min: usize) -> bool {
        let long = |&(_, length, _): &(u64, u32, u32)| length as usize >= bytes_min;
        self.values.len() >= bytes_min && self.separated.iter().any(long)
    }

    /// Number of operations so far.
    #[must_use]
    pub fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Computes checksums and padding. The caller does so once, outside any lock.
    pub fn finish(&mut self) {
        assert!(!self.finished, "finish is called once");
        self.meta_bytes = self.meta.len() - FRAME_HEADER_BYTES;
        self.values_bytes = self.values.len();
        self.meta_checksum = crc32c(&self.meta[FRAME_HEADER_BYTES..]);
        for section in [&mut self.meta, &mut self.values] {
            let padded = pad8(section.len());
            section.resize(padded, 0);
        }
        const { assert!(FRAME_HEADER_BYTES.is_multiple_of(ALIGN)) };
        self.finished = true;
    }

    /// Bytes of the header, the entries and the values so far, without padding.
    pub(crate) fn bytes(&self) -> usize {
        self.meta.len() + self.values.len()
    }

    /// Bytes that the finished frame takes in the log.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        assert!(self.finished, "finish first");
        (self.meta.len() + self.values.len()) as u64
    }

    /// Pointers to the separated values, in the order of the calls of
    /// [`put_separated`](Self::put_separated), for a frame with the place `reservation`.
    pub fn pointers(
        &self,
        reservation: &Reservation,
    ) -> impl ExactSizeIterator<Item = ValuePointer> + '_ {
        self.pointers_at(reservation.lsn())
    }

    /// Pointers to the separated values of a frame that begins at `lsn`.
    pub(crate) fn pointers_at(&self, lsn: Lsn) -> impl ExactSizeIterator<Item = ValuePointer> + '_ {
        assert!(self.finished, "finish first");
        let segment = lsn.segment;
        let values = u64::from(lsn.offset) + self.meta.len() as u64;
        let values = planted!(
            "log: a pointer to a value is eight bytes off",
            values,
            values + 8
        );
        self.separated
            .iter()
            .map(move |&(offset, length, checksum)| ValuePointer {
                segment,
                offset: (values + offset) as u32,
                length,
                checksum,
            })
    }

    /// The encoded operations, in order. Pointers in them only serve [`value_of`](Self::value_of);
    /// the real ones are those of [`pointers`](Self::pointers).
    pub fn entries(&self) -> impl Iterator<Item = LogEntry<'_>> {
        let end = if self.finished {
            FRAME_HEADER_BYTES + self.meta_bytes
        } else {
            self.meta.len()
        };
        let nowhere = ValuePointer {
            segment: SegmentId(0),
            offset: 0,
            length: 0,
            checksum: 0,
        };
        EntryReader::new(&self.meta[FRAME_HEADER_BYTES..end], nowhere)
    }

    /// The separated value of an entry that [`entries`](Self::entries) gave the pointer `pointer`.
    #[must_use]
    pub fn value_of(&self, pointer: ValuePointer) -> &[u8] {
        let start = pointer.offset as usize;
        &self.values[start..start + pointer.length as usize]
    }

    /// Writes the header of a commit, whose place is known now.
    pub(crate) fn seal_header(
        &mut self,
        seed: FileSeed,
        offset: u32,
        seqno: SeqNum,
        durable_position: u64,
    ) {
        self.write_header(FrameKind::Commit, seed, offset, seqno, durable_position);
    }

    /// Writes the header of a frame of relocated values.
    pub(crate) fn seal_relocation(&mut self, seed: FileSeed, offset: u32) {
        self.write_header(FrameKind::Relocation, seed, offset, SeqNum::ZERO, 0);
    }

    fn write_header(
        &mut self,
        kind: FrameKind,
        seed: FileSeed,
        offset: u32,
        seqno: SeqNum,
        durable_position: u64,
    ) {
        assert!(self.finished, "finish first");
        assert!(
            seqno <= SeqNum::MAX
                && FIRST_FRAME_OFFSET <= offset
                && (offset as usize).is_multiple_of(ALIGN),
            "a frame begins at a multiple of {ALIGN} behind the header, with a number of seven bytes: offset {offset}, number {seqno}"
        );
        let header = FrameHeader {
            kind,
            seqno,
            durable_position,
            meta_bytes: self.meta_bytes as u32,
            values_bytes: self.values_bytes as u32,
            entry_count: self.entry_count,
            meta_checksum: self.meta_checksum,
        };
        self.meta[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(seed, offset));
    }
}

/// The pointer to the separated value of an entry, if it has one.
pub(crate) fn pointer_of(entry: &LogEntry<'_>) -> Option<ValuePointer> {
    match entry.op {
        LogOp::Put {
            value: LogValue::Pointer(pointer),
            ..
        } => Some(pointer),
        _ => None,
    }
}
