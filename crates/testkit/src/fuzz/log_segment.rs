//! Target `log_segment`: one segment's file shown by `glintdb_log::dump`.
//!
//! Asserts: the items cover the file from the first frame's place to its end without gap or overlap; a place is shown as a frame exactly where a reader that was written
//! from the format's page finds a valid one, with the same entries; what is wrong with the header is an error that names file and place.

use super::input::Input;
use super::log_image::{LogImage, SegmentImage};
use super::{log_frame, log_model};
use glintdb_core::ErrorKind;
use glintdb_log::{DumpItem, dump};

pub(super) fn run(data: &[u8]) {
    let image = LogImage::build(Input::new(data));
    let volume = image.volume();
    for segment in &image.segments {
        match dump(&*volume, segment.id) {
            Ok(items) => {
                assert!(log_model::header_is_sound(segment));
                walk(&image, segment, items);
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
