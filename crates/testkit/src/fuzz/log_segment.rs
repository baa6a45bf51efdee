//! Target `log_segment`: one segment's file shown by `glintdb_log::dump`.
//!
//! Asserts: the items cover the file from the first frame's place to its end without gap or overlap; a place is shown as a frame exactly where a reader that was written
//! from the format's page finds a valid one, with the same entries; what is wrong with the header is an error that names file and place. A scan for the segment's records gives those of the
//! frames up to the first place without a valid one, whose values it may refuse, and is refused itself unless the segment ends there.

use super::input::Input;
use super::log_image::{DB, LogImage, SegmentImage};
use super::{log_frame, log_model};
use glintdb_core::checksum::crc32c;
use glintdb_core::{ErrorKind, ValuePointer};
use glintdb_flash::Volume;
use glintdb_log::format::segment::SegmentKind;
use glintdb_log::{DumpItem, EntryReader, LiveScan, LogOp, LogValue, dump};

pub(super) fn run(data: &[u8]) {
    let image = LogImage::build(Input::new(data));
    let volume = image.volume();
    for segment in &image.segments {
        match dump(&*volume, segment.id) {
            Ok(items) => {
                assert!(log_model::header_is_sound(segment));
                walk(&image, segment, items);
                scan(&image, segment, &*volume);
            }
            Err(error) => {
                assert!(!log_model::header_is_sound(segment), "{error}");
                let places = error.place().is_some();
                assert!(
                    places || error.kind() == ErrorKind::UnsupportedFormat,
                    "{error}"
                );
            }
        }
    }
}

/// What a scan of the segment's records gives, against the model's frames.
fn scan(image: &LogImage, segment: &SegmentImage, volume: &dyn Volume) {
    let mut scan = LiveScan::open(volume, DB, segment.id).expect("the header is right");
    let mut found = Vec::new();
    let whole = loop {
        match scan.next_batch() {
            Ok(Some(batch)) => {
                for record in batch.records() {
                    if let Ok(value) = record.value() {
                        assert_eq!(crc32c(&value), record.pointer.checksum);
                    }
                    found.push((record.pointer.offset, record.key.to_vec()));
                }
            }
            Ok(None) => break true,
            Err(error) => {
                assert!(error.place().is_some(), "{error}");
                break false;
            }
        }
    };
    let mut expected = Vec::new();
    let (mut at, mut ended) = (4096, false);
    let values_segment = segment.header.kind == SegmentKind::Values;
    // Frames with rotten values are scanned too: the model's frames are a part of what is found, from the front on.
    while !ended && let Some(frame) = log_model::frame_in_file(image, segment, at) {
        if (frame.kind == 4) != values_segment {
            break;
        }
        let values = ValuePointer {
            segment: segment.id,
            offset: (at + 40 + frame.meta.len().next_multiple_of(8) as u64) as u32,
            length: 0,
            checksum: 0,
        };
        let entries = EntryReader::new(&frame.meta, values);
        ended = frame.kind == 2 || (frame.kind == 4 && frame.meta.is_empty());
        let records = entries.filter_map(|entry| match entry.op {
            LogOp::Put {
                key,
                value: LogValue::Pointer(pointer),
            } if matches!(frame.kind, 1 | 4) => Some((pointer.offset, key.to_vec())),
            _ => None,
        });
        expected.extend(records);
        at = frame.end;
    }
    // A scan that is refused may hold back the records of its last batch.
    let shorter = found.len().min(expected.len());
    assert_eq!(found[..shorter], expected[..shorter]);
    assert!(!whole || shorter == expected.len(), "records are missing");
    if ended {
        assert!(whole, "the segment is whole up to its last frame");
        assert_eq!(found, expected);
    }
    let more = found.len() > expected.len();
    assert!(!whole || ended || more || !values_segment, "no end");
}

fn walk(image: &LogImage, segment: &SegmentImage, items: glintdb_log::Dump) {
    let end = (segment.bytes.len() as u64).min(segment.header.capacity);
    let mut at = 4096;
    for item in items {
        let expected = log_model::frame_in_file(image, segment, at);
        match item.expect("memory does not fail") {
            DumpItem::Frame(frame) => {
                let expected = expected.unwrap_or_else(|| panic!("a frame at {at} that is none"));
                assert_eq!(u64::from(frame.lsn().offset), at);
                assert_eq!(frame.header().seqno.0, expected.seqno);
                if matches!(expected.kind, 1 | 4) {
                    let again = log_frame::encode(frame.entries());
                    assert_eq!(frame.entries().count() as u32, frame.header().entry_count);
                    assert!(again.len() <= expected.meta.len());
                }
                at = expected.end;
            }
            DumpItem::Hole {
                lsn, bytes, zero, ..
            } => {
                assert_eq!(expected, None, "a frame at {at} is not shown");
                assert_eq!(u64::from(lsn.offset), at);
                assert!(bytes > 0, "no progress at {at}");
                let hole = &segment.bytes[at as usize..(at + bytes) as usize];
                assert_eq!(zero, hole.iter().all(|byte| *byte == 0));
                at += bytes;
            }
            other => panic!("an item that is neither frame nor hole: {other:?}"),
        }
    }
    assert!(at >= end, "the dump ends at {at} of {end}");
}
