//! Constants and fixed parts of the table format. Normative: `docs/format/table.md`.
//!
//! Decoders here take hostile bytes: they answer `None` or an error, never panic, and allocate nothing.

use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::Reader;
use glintdb_core::{DbId, FileId, FileKind};

/// First eight bytes of the file.
pub(super) const MAGIC_HEADER: [u8; 8] = *b"GLNTTABL";
/// First eight bytes of a file of a tree.
pub(super) const MAGIC_TREE: [u8; 8] = *b"GLNTTREE";
/// Last eight bytes of the file.
pub(super) const MAGIC_FOOTER: [u8; 8] = *b"GLNTTEND";
/// Version of the format this code writes, and the only one it reads.
pub(super) const VERSION: u32 = 1;
/// Flash page: the unit of alignment of blocks and sections.
pub(super) const PAGE_BYTES: usize = 4 << 10;
/// Header of a key block.
pub(super) const BLOCK_HEADER_BYTES: usize = 28;
/// Bytes a restart point takes behind a key block's header: head (u32) and offset (u16).
pub(super) const RESTART_BYTES: usize = 6;
/// Header at the front of the file, in a page of its own.
pub(super) const HEADER_BYTES: usize = 48;
/// Footer at the end of the file.
pub(super) const FOOTER_BYTES: usize = 96;
/// Header of the filter section.
pub(super) const FILTER_HEADER_BYTES: usize = 16;
/// Line of the filter.
pub(super) const FILTER_LINE_BYTES: usize = 64;
/// A decompressed block is at most this many times as large as what is stored (LZ4 cannot do better; a block that would is stored as it is).
pub(super) const EXPANSION_MAX: usize = 255;

/// Rounds up to whole pages.
pub(super) fn page_align(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES as u64)
}

/// The file's first page.
pub(super) fn encode_header(db: DbId, id: FileId) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    let magic = match id.kind {
        FileKind::Tree => MAGIC_TREE,
        _ => MAGIC_HEADER,
    };
    out[0..8].copy_from_slice(&magic);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&db.0);
    out[32..40].copy_from_slice(&id.number.to_le_bytes());
    let checksum = FileSeed::new(db, id).checksum(0, &out[..HEADER_BYTES - 4]);
    out[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// A part of the file: offset and length in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The file's last bytes: where everything behind the key blocks lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Footer {
    pub(super) filter: Span,
    pub(super) fences: Span,
    pub(super) tombstones: Span,
    pub(super) properties: Span,
}

const _: () = assert!(4 + 4 + 2 + 2 + 2 + 2 + 4 + 8 == BLOCK_HEADER_BYTES);
const _: () = assert!(4 + 2 == RESTART_BYTES);
const _: () = assert!(4 + 4 + 8 == FILTER_HEADER_BYTES);
const _: () = assert!(8 + 4 + 4 + 16 + 8 + 4 + 4 == HEADER_BYTES);
const _: () = assert!(4 * 16 + 16 + 4 + 4 + 8 == FOOTER_BYTES);

impl Footer {
    /// The footer as it stands at `offset` of the file.
    pub(super) fn encode(&self, seed: FileSeed, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        let spans = [self.filter, self.fences, self.tombstones, self.properties];
        for (slot, span) in out.chunks_exact_mut(16).zip(spans) {
            slot[..8].copy_from_slice(&span.offset.to_le_bytes());
            slot[8..].copy_from_slice(&span.bytes.to_le_bytes());
        }
        out[80..84].copy_from_slice(&VERSION.to_le_bytes());
        out[88..].copy_from_slice(&MAGIC_FOOTER);
        let checksum = seed.checksum(offset, &out[..84]);
        out[84..88].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the footer at `offset`, and the version of the format it names; the error says what is wrong.
    pub(super) fn decode(
        seed: FileSeed,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(u32, Footer), String> {
        let bytes: &[u8; FOOTER_BYTES] = bytes
            .try_into()
            .map_err(|_| format!("footer of {} bytes", bytes.len()))?;
        let (body, rest) = bytes.split_at(84);
        let mut reader = Reader::new(rest);
        let stored = reader.u32().unwrap_or(0);
        if reader.rest() != MAGIC_FOOTER {
            return Err("no table footer".into());
        }
        let computed = seed.checksum(offset, body);
        if computed != stored {
            return Err(format!(
                "footer checksum {stored:#010x}, computed {computed:#010x}"
            ));
        }
        let mut reader = Reader::new(body);
        let mut span = || {
            Some(Span {
                offset: reader.u64()?,
                bytes: reader.u64()?,
            })
        };
        let spans = (span(), span(), span(), span());
        let (Some(filter), Some(fences), Some(tombstones), Some(properties)) = spans else {
            return Err("short footer".into());
        };
        reader.take(16);
        let version = reader.u32().unwrap_or(0);
        Ok((
            version,
            Footer {
                filter,
                fences,
                tombstones,
                properties,
            },
        ))
    }

    /// Whether the sections that are there stand one behind the other from `start` on, so that no byte is left out.
    pub(super) fn is_gapless(&self, start: u64) -> bool {
        let mut position = start;
        for span in [self.filter, self.fences, self.tombstones, self.properties] {
            if span.bytes > 0 {
                if span.offset != position {
                    return false;
                }
                position = position.saturating_add(span.bytes);
            } else if span.offset != 0 {
                return false;
            }
        }
        true
    }
}
