//! Locks format version 1: the bytes written today are the bytes in `testdata/`, and those are read as `docs/format/log.md` says.
//!
//! To look at a deliberate change: `GLINTDB_BLESS=1 cargo test -p glintdb-log golden`, and a new version in the format page.

use crate::support::*;
use glintdb_core::{FileId, FileKind, SeqNum};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use glintdb_log::format::frame::FrameKind;
use glintdb_log::{DumpItem, FrameBuilder, Log, LogOp, LogValue, Space, dump};
use glintdb_simdisk::MemVolume;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn testdata(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn golden(name: &str, found: &[u8]) {
    let path = testdata(name);
    if std::env::var_os("GLINTDB_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read(&path).unwrap();
    assert!(expected == found, "{} differs", path.display());
}

/// The segment of the format page's worked example: three commits, a mark, a seal.
fn example() -> Arc<MemVolume> {
    let volume = MemVolume::new();
    let numbers = Arc::new(Numbers(AtomicU64::new(1)));
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let batches = [
        Batch {
            seqno: 1,
            ops: vec![
                Op::Put(b"apple".to_vec(), b"red".to_vec()),
                Op::Separated(b"pear".to_vec(), b"a separated value".to_vec()),
            ],
        },
        Batch {
            seqno: 2,
            ops: vec![
                Op::Delete(b"apple".to_vec()),
                Op::DeleteRange(b"b".to_vec(), Some(b"d".to_vec())),
                Op::DeleteRange(b"x".to_vec(), None),
            ],
        },
    ];
    for batch in &batches {
        commit(&log, batch);
    }
    log.close().unwrap();
    seal(&log);
    commit(&log, &Batch::put(3, 1));
    log.sync_all().unwrap();
    volume
}

/// The values segment of the page's other worked example: two records, the end.
fn values_example() -> Arc<MemVolume> {
    let volume = MemVolume::new();
    let numbers = Arc::new(Numbers(AtomicU64::new(1)));
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let mut writer = log.values_writer(Space::Normal, u64::MAX).unwrap();
    for (key, value) in [
        (&b"apple"[..], &b"a relocated value"[..]),
        (b"pear", b"its neighbour"),
    ] {
        let checksum = glintdb_core::checksum::crc32c(value);
        writer.put(&log, KEYSPACE, key, value, checksum).unwrap();
    }
    writer.finish(&log).unwrap().leave();
    volume
}

fn segment_bytes(volume: &MemVolume, number: u64) -> Vec<u8> {
    let file = volume.open(FileId::new(FileKind::Log, number)).unwrap();
    let length = file.len().unwrap();
    file.read_at(0, length as usize).unwrap().to_vec()
}

/// A dump as text.
fn text(volume: &dyn Volume, number: u64) -> String {
    let mut out = String::new();
    let dump = dump(volume, glintdb_core::SegmentId(number)).unwrap();
    let header = *dump.header();
    writeln!(
        out,
        "segment {} kind {:?} db {} base {} capacity {}",
        header.id, header.kind, header.db, header.base, header.capacity
    )
    .unwrap();
    for item in dump {
        match item.unwrap() {
            DumpItem::Frame(frame) => {
                let header = frame.header();
                writeln!(
                    out,
                    "{} {:?} seqno {} durable {} meta {} values {} next {:?}",
                    frame.lsn(),
                    header.kind,
                    header.seqno,
                    header.durable_position,
                    header.meta_bytes,
                    header.values_bytes,
                    frame.next_segment().map(|id| id.0),
                )
                .unwrap();
                for entry in frame.entries() {
                    let keyspace = entry.keyspace.0;
                    let line = match entry.op {
                        LogOp::Put {
                            key,
                            value: LogValue::Inline(value),
                        } => format!("put {} = {}", show(key), show(value)),
                        LogOp::Put {
                            key,
                            value: LogValue::Pointer(p),
                        } => format!(
                            "put {} at {} length {} checksum {:08x}",
                            show(key),
                            p.offset,
                            p.length,
                            p.checksum
                        ),
                        LogOp::Delete { key } => format!("delete {}", show(key)),
                        LogOp::DeleteRange { start, end } => {
                            format!("delete_range {} {:?}", show(start), end.map(show))
                        }
                    };
                    writeln!(out, "  keyspace {keyspace} {line}").unwrap();
                }
            }
            DumpItem::Hole {
                lsn,
                bytes,
                reason,
                zero,
            } => writeln!(out, "{lsn} hole of {bytes}, zero {zero}: {reason}").unwrap(),
            _ => unreachable!(),
        }
    }
    out
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn golden_segment_is_what_is_written() {
    let volume = example();
    golden("segment-v1.bin", &segment_bytes(&volume, 1));
    golden("segment-v1.txt", text(&*volume, 1).as_bytes());
}

#[test]
fn golden_values_segment_is_what_is_written() {
    let volume = values_example();
    golden("values-v1.bin", &segment_bytes(&volume, 2));
    golden("values-v1.txt", text(&*volume, 2).as_bytes());
}

#[test]
fn golden_segments_are_read_on_an_empty_volume() {
    read_alone("segment-v1", 1);
    read_alone("values-v1", 2);
}

fn read_alone(name: &str, number: u64) {
    let volume = MemVolume::new();
    let options = CreateOptions {
        class: DataClass::Log,
        reserve_bytes: 0,
        direct: false,
    };
    let file = volume
        .create(FileId::new(FileKind::Log, number), options)
        .unwrap();
    let bytes = std::fs::read(testdata(&format!("{name}.bin"))).unwrap();
    file.write_at(0, &bytes).unwrap();
    let expected = std::fs::read_to_string(testdata(&format!("{name}.txt"))).unwrap();
    assert_eq!(text(&*volume, number), expected);
}

#[test]
fn a_frame_is_what_the_format_page_says_it_costs() {
    // 40 of header; kind, keyspace, key length, value length at a byte each; padded to 8.
    let mut frame = FrameBuilder::new();
    frame.put(KEYSPACE, &[0; 16], &[0; 100]);
    frame.finish();
    assert_eq!(frame.frame_bytes(), 40 + 120);
    assert_eq!(FrameKind::Commit.code(), 1);
    let (volume, numbers) = (MemVolume::new(), numbers());
    let log = Log::create(setup(&volume, &numbers, small())).unwrap();
    let reservation = log.reserve(frame.frame_bytes(), Space::Normal).unwrap();
    log.copy(&reservation, &mut frame, SeqNum(1));
    log.complete(&reservation);
    assert_eq!(reservation.end().offset - reservation.lsn().offset, 160);
}
