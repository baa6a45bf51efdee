//! A reader of the log written from its page alone (`docs/format/log.md`), as slow and plain as can be: what the real one must agree with.
//!
//! Thread safety: none is needed.

use super::log_image::{LogImage, RING_BYTES, SegmentImage};
use glintdb_core::checksum::crc32c;
use glintdb_core::codec::Reader;
use glintdb_log::format::segment::SegmentKind;

const HEADER: u64 = 40;

/// A frame that is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModelFrame {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) kind: u8,
    pub(crate) seqno: u64,
    pub(crate) meta: Vec<u8>,
}

struct Header {
    kind: u8,
    seqno: u64,
    durable: u64,
    meta: u64,
    values: u64,
    entries: u32,
    checksum: u32,
}

fn pad8(n: u64) -> u64 {
    n.next_multiple_of(8)
}

impl Header {
    /// A right header (magic, checksum, kind) at the front of `bytes`, for `offset` of the segment.
    fn read(segment: &SegmentImage, offset: u64, bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader::new(bytes.get(..HEADER as usize)?);
        if reader.take(4)? != b"GLF\x01"
            || reader.u32()? != segment.seed().checksum(offset, &bytes[8..40])
        {
            return None;
        }
        let word = reader.u64()?;
        let header = Header {
            kind: (word >> 56) as u8,
            seqno: word << 8 >> 8,
            durable: reader.u64()?,
            meta: reader.u32()?.into(),
            values: reader.u32()?.into(),
            entries: reader.u32()?,
            checksum: reader.u32()?,
        };
        (1..=4).contains(&header.kind).then_some(header)
    }
}

/// `length` bytes at `offset` of a segment, from its file or from the ring; `None` where they are not all there.
fn bytes(
    image: &LogImage,
    segment: &SegmentImage,
    in_ring: bool,
    offset: u64,
    length: u64,
) -> Option<Vec<u8>> {
    let end = offset.checked_add(length)?;
    if in_ring {
        // What is longer than the ring cannot be in it.
        let there = end <= segment.header.capacity && length <= RING_BYTES as u64;
        return there.then(|| {
            (offset..end)
                .map(|at| image.ring[((segment.header.base + at) % RING_BYTES as u64) as usize])
                .collect()
        });
    }
    let file_end = (segment.bytes.len() as u64).min(segment.header.capacity);
    (end <= file_end).then(|| segment.bytes[offset as usize..end as usize].to_vec())
}

/// The valid frame at `offset`, if it is in the file (or the ring).
fn frame_in(
    image: &LogImage,
    segment: &SegmentImage,
    in_ring: bool,
    offset: u64,
) -> Option<ModelFrame> {
    let get = |offset, length| bytes(image, segment, in_ring, offset, length);
    let header = Header::read(segment, offset, &get(offset, HEADER)?)?;
    let end = offset + HEADER + pad8(header.meta) + pad8(header.values);
    let limit = match in_ring {
        true => segment.header.capacity,
        false => segment.header.capacity.min(segment.bytes.len() as u64),
    };
    if end > limit {
        return None;
    }
    let meta = get(offset + HEADER, header.meta)?;
    if crc32c(&meta) != header.checksum {
        return None;
    }
    match header.kind {
        4 if (header.seqno, header.durable) != (0, 0) => return None,
        1 | 4 => {
            let mut reader = Reader::new(&meta);
            let mut values = offset + HEADER + pad8(header.meta);
            let values_end = values + header.values;
            let mut entries = 0;
            while !reader.is_empty() {
                let kind = reader.u8()?;
                reader.varint32()?;
                reader.bytes()?;
                match kind {
                    kind if kind != 2 && header.kind == 4 => return None,
                    1 | 4 => drop(reader.bytes()?),
                    2 => {
                        let length = u64::from(reader.varint32()?);
                        let checksum = reader.u32()?;
                        if values + length > values_end || crc32c(&get(values, length)?) != checksum
                        {
                            return None;
                        }
                        values += length;
                    }
                    3 | 5 => {}
                    _ => return None,
                }
                entries += 1;
            }
            if values != values_end || entries != header.entries {
                return None;
            }
        }
        2 if header.meta != 8 || header.values != 0 => return None,
        3 if header.meta != 0 || header.values != 0 => return None,
        _ => {}
    }
    Some(ModelFrame {
        segment: segment.id.0,
        offset,
        end,
        kind: header.kind,
        seqno: header.seqno,
        meta,
    })
}

/// The valid frame that the file of `segment` has at `offset`.
pub(crate) fn frame_in_file(
    image: &LogImage,
    segment: &SegmentImage,
    offset: u64,
) -> Option<ModelFrame> {
    frame_in(image, segment, false, offset)
}

/// Whether the segment's header is one that a reader takes, which goes by its fields only: its checksum is always right here.
pub(crate) fn header_is_sound(segment: &SegmentImage) -> bool {
    let header = &segment.header;
    segment.bytes.get(..64) == Some(&header.encode()[..64])
        && header.base.is_multiple_of(4096)
        && header.capacity.is_multiple_of(4096)
        && header.capacity < 1 << 32
        && header.base < 1 << 63
}

/// What reading the log from the first frame of segment 1 gives: commits in order, or that it is refused.
pub(crate) fn read(image: &LogImage) -> Result<Vec<ModelFrame>, &'static str> {
    let find = |id: u64| {
        let segment = image.segments.iter().find(|segment| segment.id.0 == id);
        segment.filter(|segment| {
            header_is_sound(segment) && segment.header.kind != SegmentKind::Values
        })
    };
    let mut commits = Vec::new();
    let mut segment = find(1).ok_or("the first segment is missing, damaged or of values")?;
    let mut offset = 4096;
    loop {
        let frame = frame_in(image, segment, false, offset)
            .or_else(|| frame_in(image, segment, true, offset));
        let Some(frame) = frame else { break };
        offset = frame.end;
        match frame.kind {
            1 => commits.push(frame),
            2 => {
                let next = Reader::new(&frame.meta).u64().unwrap_or(0);
                if next <= segment.id.0 {
                    return Err("the next segment has no greater id");
                }
                segment = find(next).ok_or("the next segment is missing, damaged or of values")?;
                offset = 4096;
            }
            3 => {}
            _ => return Err("relocated values in the stream"),
        }
    }
    let hole = segment.header.base + offset;
    if claims(image, segment, offset, hole) {
        return Err("bytes that were durable are gone");
    }
    if offset + 48 > segment.header.capacity {
        return Err("no room for a seal");
    }
    Ok(commits)
}

/// Whether a right frame header behind the hole says that the hole's position was durable.
fn claims(image: &LogImage, segment: &SegmentImage, offset: u64, hole: u64) -> bool {
    let later = image.segments.iter().filter(|later| later.id > segment.id);
    let places = std::iter::once((segment, offset + 8)).chain(later.map(|later| (later, 4096)));
    for (segment, start) in places {
        // Frames are known by database, file and place, so a file has them whatever its header says; where it stood in the ring only the header knows.
        let sound = header_is_sound(segment);
        if sound && segment.header.kind == SegmentKind::Values {
            continue;
        }
        let mut file_end = segment.bytes.len() as u64;
        if sound {
            file_end = file_end.min(segment.header.capacity);
        }
        for at in (start..file_end).step_by(8) {
            let header = segment.bytes.get(at as usize..);
            if header
                .and_then(|bytes| {
                    Header::read(
                        segment,
                        at,
                        &bytes[..bytes.len().min((file_end - at) as usize)],
                    )
                })
                .is_some_and(|header| header.durable > hole)
            {
                return true;
            }
        }
        if !sound {
            continue;
        }
        // In the ring, at each place where the segment's bytes could stand: capacities here are a few times the ring's length at most, or nothing is there.
        let start = if start == 4096 { 4096 } else { start - 8 };
        for place in (0..RING_BYTES).step_by(8) {
            if !image.ring[place..].starts_with(b"GLF\x01") {
                continue;
            }
            let header: Vec<u8> = (0..HEADER as usize)
                .map(|at| image.ring[(place + at) % RING_BYTES])
                .collect();
            let first = segment.header.base + start;
            let skip =
                (place as u64 + RING_BYTES as u64 - first % RING_BYTES as u64) % RING_BYTES as u64;
            let mut at = start + skip;
            while at < segment.header.capacity {
                if Header::read(segment, at, &header).is_some_and(|header| header.durable > hole) {
                    return true;
                }
                at += RING_BYTES as u64;
            }
        }
    }
    false
}
