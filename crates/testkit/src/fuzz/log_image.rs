//! Segments and a ring made from an input: mostly valid frames, with right checksums in the right places, and everything that could be wrong with them.
//!
//! An input is a list of steps (a byte, then what it needs). Frames go to the end of the last segment, to the ring, or to both, as a crash may leave them.
//!
//! Thread safety: none is needed.

use super::input::{Input, Output};
use glintdb_core::checksum::{FileSeed, crc32c};
use glintdb_core::{DbId, KeyspaceId, SegmentId, SeqNum};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use glintdb_log::FrameBuilder;
use glintdb_log::format::frame::{FrameHeader, FrameKind};
use glintdb_log::format::pad8;
use glintdb_log::format::segment::{SegmentHeader, SegmentKind};
use glintdb_simdisk::MemVolume;
use std::sync::Arc;

pub(crate) const DB: DbId = DbId(*b"a fuzzer's own.\0");
pub(crate) const RING_BYTES: usize = 64 << 10;
pub(crate) const CAPACITY: u64 = 32 << 10;
const HEADER_BYTES: usize = 4096;
/// A file is at most so long, whatever its capacity says.
const FILE_BYTES_MAX: usize = 64 << 10;
const SEGMENTS_MAX: usize = 4;

/// A segment's file.
pub(crate) struct SegmentImage {
    pub(crate) id: SegmentId,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: Vec<u8>,
}

impl SegmentImage {
    fn new(id: u64, base: u64) -> SegmentImage {
        let header = SegmentHeader {
            kind: SegmentKind::Stream,
            db: DB,
            id: SegmentId(id),
            base,
            capacity: CAPACITY,
        };
        SegmentImage {
            id: SegmentId(id),
            header,
            bytes: header.encode(),
        }
    }

    pub(crate) fn seed(&self) -> FileSeed {
        FileSeed::new(self.header.db, self.id.file())
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).min(FILE_BYTES_MAX);
        if at >= end {
            return;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(&bytes[..end - at]);
    }
}

/// What the medium holds.
pub(crate) struct LogImage {
    pub(crate) segments: Vec<SegmentImage>,
    pub(crate) ring: Vec<u8>,
    /// Where the next frame goes.
    at: usize,
    seqno: u64,
    durable: u64,
    to_file: bool,
    to_ring: bool,
}

impl LogImage {
    /// What the steps of `input` make.
    pub(crate) fn build(mut input: Input<'_>) -> LogImage {
        let mut image = LogImage {
            segments: vec![SegmentImage::new(1, 0)],
            ring: vec![0; RING_BYTES],
            at: HEADER_BYTES,
            seqno: 0,
            durable: HEADER_BYTES as u64,
            to_file: true,
            to_ring: false,
        };
        while !input.is_empty() {
            image.step(&mut input);
        }
        image
    }

    fn last(&mut self) -> &mut SegmentImage {
        self.segments
            .last_mut()
            .expect("there is always the first one")
    }

    fn position(&mut self) -> u64 {
        let at = self.at as u64;
        self.last().header.base.saturating_add(at)
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 14 {
            0 | 1 => self.commit(input),
            2 => self.frame_of_anything(input),
            3 => {
                let next = self.last().id.0 + 1;
                self.seal(next);
                if self.segments.len() < SEGMENTS_MAX {
                    let header = self.last().header;
                    let base = header.base.saturating_add(header.capacity);
                    self.segments.push(SegmentImage::new(next, base));
                    self.at = HEADER_BYTES;
                }
            }
            4 => {
                let next = input.u64();
                self.seal(next);
            }
            5 => self.frame(FrameKind::Mark, 0, &[], &[], 0),
            6 => self.at = (self.at + 8 * usize::from(input.u8())).min(FILE_BYTES_MAX),
            7 => {
                let bytes = input.bytes().to_vec();
                self.put(&bytes);
                self.at = (self.at + pad8(bytes.len())).min(FILE_BYTES_MAX);
            }
            8 => {
                let places = input.u8();
                (self.to_file, self.to_ring) = (places & 1 != 0, places & 2 != 0);
            }
            9 => {
                // Damage: bytes a little before the end.
                let back = usize::from(input.u16()) % self.at;
                let bytes = input.bytes().to_vec();
                let at = self.at - back;
                self.last().put(at, &bytes);
            }
            10 => {
                let (base, capacity, kind) = (input.u64(), input.u64(), input.u8());
                let kinds = [SegmentKind::Stream, SegmentKind::Large, SegmentKind::Values];
                let last = self.last();
                last.header.base = base;
                last.header.capacity = capacity;
                last.header.kind = kinds[usize::from(kind) % kinds.len()];
                let encoded = last.header.encode();
                last.put(0, &encoded);
            }
            11 => {
                let length = self.at.saturating_sub(usize::from(input.u16()));
                self.last().bytes.truncate(length);
            }
            12 => self.durable = self.position(),
            _ => self.seqno = input.u64() & SeqNum::MAX.0,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = self.at;
        if self.to_file {
            self.last().put(at, bytes);
        }
        if self.to_ring && at + bytes.len() <= FILE_BYTES_MAX {
            let position = self.position();
            for (index, byte) in bytes.iter().enumerate() {
                let place = position.wrapping_add(index as u64) % RING_BYTES as u64;
                self.ring[place as usize] = *byte;
            }
        }
    }

    /// A whole frame; header fields are what the arguments are.
    fn frame(&mut self, kind: FrameKind, seqno: u64, meta: &[u8], values: &[u8], entries: u32) {
        let header = FrameHeader {
            kind,
            seqno: SeqNum(seqno),
            durable_position: self.durable,
            meta_bytes: meta.len() as u32,
            values_bytes: values.len() as u32,
            entry_count: entries,
            meta_checksum: crc32c(meta),
        };
        self.write_frame(&header, meta, values);
    }

    fn write_frame(&mut self, header: &FrameHeader, meta: &[u8], values: &[u8]) {
        let at = self.at;
        let mut bytes = header.encode(self.last().seed(), at as u32).to_vec();
        for section in [meta, values] {
            bytes.extend_from_slice(section);
            bytes.resize(pad8(bytes.len()), 0);
        }
        self.put(&bytes);
        self.at = (self.at + bytes.len()).min(FILE_BYTES_MAX);
    }

    fn seal(&mut self, next: u64) {
        self.frame(FrameKind::Seal, 0, &next.to_le_bytes(), &[], 0);
    }

    /// A frame of relocated values as a writer makes it; one without any ends its segment.
    fn relocation(&mut self, input: &mut Input<'_>) {
        let mut frame = FrameBuilder::new();
        let mut values = Vec::new();
        for _ in 0..input.u8() % 4 {
            let (key, value) = (input.bytes(), input.bytes());
            frame.put_separated(KeyspaceId(u32::from(input.u8())), key, value);
            values.extend_from_slice(value);
        }
        let entries = frame.entry_count();
        let meta = super::log_frame::encode(frame.entries());
        let durable = std::mem::replace(&mut self.durable, 0);
        self.frame(FrameKind::Relocation, 0, &meta, &values, entries);
        self.durable = durable;
    }

    /// A commit as a writer makes it.
    fn commit(&mut self, input: &mut Input<'_>) {
        let mut frame = FrameBuilder::new();
        let mut values = Vec::new();
        for _ in 0..=input.u8() % 4 {
            let kind = input.u8();
            let keyspace = KeyspaceId(u32::from(kind >> 4));
            let key = input.bytes();
            match kind % 5 {
                0 => frame.put(keyspace, key, input.bytes()),
                1 => {
                    let value = input.bytes();
                    frame.put_separated(keyspace, key, value);
                    values.extend_from_slice(value);
                }
                2 => frame.delete(keyspace, key),
                3 => frame.delete_range(keyspace, key, Some(input.bytes())),
                _ => frame.delete_range(keyspace, key, None),
            }
        }
        let entries = frame.entry_count();
        let meta = super::log_frame::encode(frame.entries());
        self.seqno = (self.seqno + 1) & SeqNum::MAX.0;
        let seqno = self.seqno;
        self.frame(FrameKind::Commit, seqno, &meta, &values, entries);
    }

    /// A frame whose header and sections are what the input says; only its checksums are right (or not, where the input says so). Or one of relocated values.
    fn frame_of_anything(&mut self, input: &mut Input<'_>) {
        let kinds = [
            FrameKind::Commit,
            FrameKind::Seal,
            FrameKind::Mark,
            FrameKind::Relocation,
        ];
        let flags = input.u8();
        if flags & 128 != 0 {
            return self.relocation(input);
        }
        let kind = kinds[usize::from(flags & 3)];
        let meta = input.bytes();
        let values = input.bytes();
        let mut header = FrameHeader {
            kind,
            seqno: SeqNum(self.seqno),
            durable_position: self.durable,
            meta_bytes: meta.len() as u32,
            values_bytes: values.len() as u32,
            entry_count: u32::from(input.u8()),
            meta_checksum: crc32c(meta),
        };
        if flags & 4 != 0 {
            header.meta_bytes = input.u32();
        }
        if flags & 8 != 0 {
            header.values_bytes = input.u32();
        }
        if flags & 16 != 0 {
            header.entry_count = input.u32();
        }
        if flags & 32 != 0 {
            header.durable_position = input.u64();
        }
        if flags & 64 != 0 {
            header.meta_checksum = input.u32();
        }
        self.write_frame(&header, meta, values);
    }

    /// The image on a volume, all of it synced.
    pub(crate) fn volume(&self) -> Arc<MemVolume> {
        let volume = MemVolume::new();
        for segment in &self.segments {
            let options = CreateOptions {
                class: DataClass::Log,
                reserve_bytes: 0,
                direct: false,
            };
            let file = volume
                .create(segment.id.file(), options)
                .expect("a new file on a new volume");
            file.write_at(0, &segment.bytes).expect("memory takes it");
            file.sync().expect("memory syncs");
        }
        let ring = volume.ring(RING_BYTES).expect("a new ring");
        ring.grow(RING_BYTES).expect("memory has space");
        if self.ring.iter().any(|byte| *byte != 0) {
            ring.write(0, &self.ring);
        }
        ring.sync().expect("memory syncs");
        volume.sync_directory().expect("memory syncs");
        volume
    }
}

/// Inputs to begin with: a log over two segments, with a ring that has the newest frames, and a seal.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut plain = Output::default();
    plain.raw(&[0, 2, 0x00]).bytes(b"apple").bytes(b"red");
    plain.raw(&[0x11]).bytes(b"pear").bytes(&[b'v'; 100]);
    plain.raw(&[0x02]).bytes(b"plum");
    plain.raw(&[12, 0, 1, 0x13]).bytes(b"a").bytes(b"c");
    plain.raw(&[0x04]).bytes(b"x");
    plain.raw(&[5, 3]);
    plain.raw(&[0, 0, 0x00]).bytes(b"second").bytes(b"segment");
    let mut ring = Output(plain.0.clone());
    ring.raw(&[8, 2, 0, 1, 0x11])
        .bytes(b"only")
        .bytes(&[b'r'; 60]);
    ring.raw(&[0x01]).bytes(b"in the").bytes(b"ring");
    ring.raw(&[8, 3, 12, 0, 0, 0x02]).bytes(b"both");
    let mut lies = Output(plain.0.clone());
    lies.raw(&[2, 0x3c]).bytes(b"\x01\x00\x01k\x01v").bytes(b"");
    lies.raw(&[1])
        .raw(&[6, 0, 0, 0])
        .raw(&[0; 4])
        .raw(&[1, 0, 0, 0])
        .raw(&[0; 8]);
    lies.raw(&[6, 3, 12, 0, 0, 0x02]).bytes(b"behind a hole");
    let mut damage = Output(plain.0.clone());
    damage.raw(&[9, 20, 0]).bytes(b"??").raw(&[12, 5]);
    // A segment of values: its header, two frames, the end.
    let mut values = Output(plain.0.clone());
    values
        .raw(&[3, 10])
        .raw(&[0; 8])
        .raw(&[0, 0x80])
        .raw(&[0; 6]);
    values.raw(&[2, 2, 0x80, 2]);
    values.bytes(b"apple").bytes(&[b'v'; 100]).raw(&[3]);
    values.bytes(b"pear").bytes(&[b'w'; 60]).raw(&[0]);
    values
        .raw(&[2, 0x80, 1])
        .bytes(b"plum")
        .bytes(b"")
        .raw(&[7]);
    values.raw(&[2, 0x80, 0]);
    let mut misplaced = Output(plain.0.clone());
    misplaced
        .raw(&[2, 0x80, 1])
        .bytes(b"k")
        .bytes(b"v")
        .raw(&[0]);
    vec![plain.0, ring.0, lies.0, damage.0, values.0, misplaced.0]
}
