//! Target `log_frame`: the entries and the header of a frame, from any bytes.
//!
//! Asserts: entries that are decoded encode to the same operations (and, where no varint was longer than it need be, to the same bytes); the reader ends, and ends
//! `failed` or at the end of the bytes; pointers of separated values follow each other; a header that is valid encodes to its bytes and is valid nowhere else.

use super::input::Input;
use glintdb_core::checksum::{FileSeed, crc32c};
use glintdb_core::codec::put_varint;
use glintdb_core::{DbId, SegmentId, SeqNum, ValuePointer};
use glintdb_log::format::entry::EntryReader;
use glintdb_log::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use glintdb_log::{LogEntry, LogOp, LogValue, Lsn};

/// Metadata of entries, written from the format's page (`docs/format/log.md`, "Entries") and not with the log's own encoder.
pub(crate) fn encode<'a>(entries: impl Iterator<Item = LogEntry<'a>>) -> Vec<u8> {
    fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    let mut out = Vec::new();
    for entry in entries {
        let kind = match entry.op {
            LogOp::Put {
                value: LogValue::Inline(_),
                ..
            } => 1,
            LogOp::Put {
                value: LogValue::Pointer(_),
                ..
            } => 2,
            LogOp::Delete { .. } => 3,
            LogOp::DeleteRange { end: Some(_), .. } => 4,
            LogOp::DeleteRange { end: None, .. } => 5,
        };
        out.push(kind);
        put_varint(&mut out, u64::from(entry.keyspace.0));
        match entry.op {
            LogOp::Put { key, value } => {
                bytes(&mut out, key);
                match value {
                    LogValue::Inline(value) => bytes(&mut out, value),
                    LogValue::Pointer(pointer) => {
                        put_varint(&mut out, u64::from(pointer.length));
                        out.extend_from_slice(&pointer.checksum.to_le_bytes());
                    }
                }
            }
            LogOp::Delete { key } => bytes(&mut out, key),
            LogOp::DeleteRange { start, end } => {
                bytes(&mut out, start);
                if let Some(end) = end {
                    bytes(&mut out, end);
                }
            }
        }
    }
    out
}

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let values = ValuePointer {
        segment: SegmentId(input.u64()),
        offset: input.u32(),
        length: 0,
        checksum: 0,
    };
    entries(input.rest(), values);
    header(data);
    places(data);
}

fn entries(meta: &[u8], values: ValuePointer) {
    let mut reader = EntryReader::new(meta, values);
    let mut decoded = Vec::new();
    let mut end = u64::from(values.offset);
    for entry in reader.by_ref() {
        if let LogOp::Put {
            value: LogValue::Pointer(pointer),
            ..
        } = entry.op
        {
            assert_eq!(u64::from(pointer.offset), end, "values follow each other");
            assert_eq!(pointer.segment, values.segment);
            end += u64::from(pointer.length);
        }
        decoded.push(entry);
        // An entry takes at least two bytes.
        assert!(decoded.len() * 2 <= meta.len(), "more entries than bytes");
    }
    assert!(reader.next().is_none(), "the end is the end");
    if !reader.failed() {
        assert_eq!(u64::from(reader.values_end()), end);
    }
    let encoded = encode(decoded.iter().copied());
    assert!(encoded.len() <= meta.len(), "decoded more than there was");
    let again: Vec<_> = EntryReader::new(&encoded, values).collect();
    assert_eq!(again, decoded, "entries change when they are encoded");
}

fn header(data: &[u8]) {
    let mut input = Input::new(data);
    let (seed, offset) = (
        FileSeed::new(DbId([input.u8(); 16]), SegmentId(input.u64()).file()),
        input.u32(),
    );
    assert_eq!(
        FrameHeader::decode(seed, offset, input.rest())
            .map(|header| header.encode(seed, offset).to_vec()),
        FrameHeader::decode(seed, offset, input.rest())
            .map(|_| input.rest()[..FRAME_HEADER_BYTES].to_vec()),
    );
    let kinds = [
        FrameKind::Commit,
        FrameKind::Seal,
        FrameKind::Mark,
        FrameKind::Relocation,
    ];
    let header = FrameHeader {
        kind: kinds[usize::from(input.u8() % 4)],
        seqno: SeqNum(input.u64() & SeqNum::MAX.0),
        durable_position: input.u64(),
        meta_bytes: input.u32(),
        values_bytes: input.u32(),
        entry_count: input.u32(),
        meta_checksum: crc32c(input.rest()),
    };
    let bytes = header.encode(seed, offset);
    assert_eq!(FrameHeader::decode(seed, offset, &bytes), Some(header));
    assert_eq!(
        FrameHeader::decode(seed, offset ^ 8, &bytes),
        None,
        "valid at one place only"
    );
    assert_eq!(
        FrameHeader::decode(seed, offset, &bytes[..FRAME_HEADER_BYTES - 1]),
        None
    );
    assert!(header.frame_bytes() >= header.values_offset() + u64::from(header.values_bytes));
}

/// Encoded places: pointers and LSNs.
fn places(data: &[u8]) {
    let pointer = ValuePointer::decode(data);
    assert_eq!(pointer.is_some(), data.len() == ValuePointer::ENCODED_BYTES);
    assert!(pointer.is_none_or(|pointer| pointer.encode() == data));
    let lsn = Lsn::decode(data);
    assert_eq!(lsn.is_some(), data.len() == Lsn::ENCODED_BYTES);
    assert!(lsn.is_none_or(|lsn| lsn.encode() == data));
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let meta = b"\x01\x03\x05apple\x03red\x02\x03\x04pear\x11\x67\xc6\x8f\xa4\x03\x03\x05apple\x04\x03\x01b\x01d\x05\x03\x01x";
    let place = [1, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x10, 0, 0];
    vec![
        [&place[..], meta].concat(),
        place.to_vec(),
        [&place[..], &[7; 8]].concat(),
    ]
}
