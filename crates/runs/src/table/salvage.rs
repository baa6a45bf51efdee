//! Takes out of a table whatever is intact, for a database that cannot be opened any more.
//!
//! Where the fences are whole every block is looked for at its place, and a lost one is known by the range of its keys. Where they are not, blocks are found by what they
//! look like and their checksums, which are bound to file and place.

use super::block::{Block, BlockHandle};
use super::block_iter::BlockIter;
use super::compress;
use super::fences::Fences;
use super::format::{BLOCK_HEADER_BYTES, FOOTER_BYTES, Footer, PAGE_BYTES, Span};
use super::meta::TableMeta;
use super::reader::{check_section, decode_footer, decode_properties};
use super::tombstones;
use bytes::Bytes;
use glintdb_core::checksum::{FileSeed, crc32c_append};
use glintdb_core::{DbId, Direction, EntryRef, Error, FileId, RangeTombstone, Result, SeqNum};
use glintdb_flash::{Volume, VolumeFile};
use std::sync::Arc;

/// No block that is searched for is longer: a key, and a value that is not separated.
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Keys from the first on, up to the second; `None`: to the end.
pub type KeyRange = (Bytes, Option<Bytes>);

/// Is shown the entries of a table: key, sequence number, value.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], SeqNum, EntryRef<'_>) -> Result<()>;

/// A part of a table that is lost.
#[derive(Clone, Debug)]
pub struct TableDamage {
    /// What is wrong and where.
    pub error: Error,
    /// Keys that may have been there.
    pub range: KeyRange,
}

/// What a table gave.
#[derive(Clone, Debug, Default)]
pub struct TableSalvage {
    /// Entries shown, tombstones included.
    pub entries: u64,
    /// Its range tombstones.
    pub tombstones: Vec<RangeTombstone>,
    /// What is lost of it.
    pub damage: Vec<TableDamage>,
}

/// Shows every intact entry of table `id` to `visit`, in key order where the table is whole. `known` is what the manifest says of it.
///
/// # Errors
/// `NotFound`, and what `visit` answers. Damage, read errors included, is in the answer.
pub fn salvage(
    volume: &dyn Volume,
    db: DbId,
    id: FileId,
    known: Option<&TableMeta>,
    visit: Visit<'_>,
) -> Result<TableSalvage> {
    let file = volume.open(id)?;
    let everything = || (Bytes::new(), None);
    let mut salvage = Salvage {
        length: file.len()?,
        file,
        id,
        seed: FileSeed::new(db, id),
        range: known.map_or_else(everything, |meta| meta.range.clone()),
        found: TableSalvage::default(),
    };
    let fences = salvage.tail(known);
    match fences {
        Some(fences) => salvage.by_fences(&fences, visit)?,
        None => salvage.by_looks(visit)?,
    }
    Ok(salvage.found)
}

struct Salvage {
    file: Arc<dyn VolumeFile>,
    length: u64,
    id: FileId,
    seed: FileSeed,
    /// What a loss without a place in key order may concern.
    range: KeyRange,
    found: TableSalvage,
}

impl Salvage {
    fn lost(&mut self, error: Error) {
        let range = self.range.clone();
        self.found.damage.push(TableDamage { error, range });
    }

    fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::corruption(self.id, offset, what)
    }

    fn section(&self, span: Span, name: &str) -> Result<Bytes> {
        let length = usize::try_from(span.bytes).ok();
        let length = length.filter(|_| {
            let end = span.offset.checked_add(span.bytes);
            end.is_some_and(|end| end <= self.length)
        });
        let length =
            length.ok_or_else(|| self.corrupt(span.offset, "a section lies outside the file"))?;
        let bytes = self.file.read_at(span.offset, length)?;
        check_section(self.id, self.seed, span.offset, &bytes, name)?;
        Ok(bytes)
    }

    /// Reads what stands behind the blocks, as far as it is intact; gives the fences.
    fn tail(&mut self, known: Option<&TableMeta>) -> Option<Fences> {
        let whole = known.map_or(self.length, |meta| meta.bytes);
        let footer_at = whole.saturating_sub(FOOTER_BYTES as u64);
        let footer = self
            .file
            .read_at(footer_at, FOOTER_BYTES)
            .and_then(|bytes| decode_footer(self.id, self.seed, footer_at, &bytes));
        let footer: Footer = match footer {
            Ok(footer) => footer,
            Err(error) => {
                self.lost(error);
                return None;
            }
        };
        let properties = self
            .section(footer.properties, "properties")
            .and_then(|bytes| {
                decode_properties(self.id, self.seed, footer.properties.offset, &bytes)
            });
        let meta = match properties {
            Ok(meta) if meta.id == self.id => Some(meta),
            Ok(_) => {
                self.lost(self.corrupt(footer.properties.offset, "properties of another table"));
                None
            }
            Err(error) => {
                // The manifest says the same: nothing is lost then.
                if known.is_none() {
                    self.lost(error);
                } else {
                    let nothing = (Bytes::new(), Some(Bytes::new()));
                    let damage = TableDamage {
                        error,
                        range: nothing,
                    };
                    self.found.damage.push(damage);
                }
                None
            }
        };
        let meta = meta.or_else(|| known.cloned())?;
        self.range = meta.range.clone();
        if meta.range_tombstones > 0 {
            let decoded = self
                .section(footer.tombstones, "range tombstones")
                .and_then(|bytes| {
                    tombstones::decode(&bytes, meta.range_tombstones).ok_or_else(|| {
                        self.corrupt(footer.tombstones.offset, "range tombstones malformed")
                    })
                });
            match decoded {
                Ok(tombstones) => self.found.tombstones = tombstones,
                Err(error) => self.lost(error),
            }
        }
        let fences = self.section(footer.fences, "fences").and_then(|bytes| {
            let place = (PAGE_BYTES as u64, meta.tail_offset);
            Fences::decode(&bytes, meta.blocks, place, &meta.smallest)
                .ok_or_else(|| self.corrupt(footer.fences.offset, "fences malformed"))
        });
        match fences {
            Ok(fences) => Some(fences),
            Err(error) => {
                self.lost(error);
                None
            }
        }
    }

    fn by_fences(&mut self, fences: &Fences, visit: Visit<'_>) -> Result<()> {
        for index in 0..fences.len() {
            let handle = fences.handle(index);
            let block = self
                .file
                .read_at(handle.offset, handle.length as usize)
                .and_then(|stored| compress::open(self.seed, self.id, handle, stored));
            let error = match block {
                Ok(stored) => match self.show(stored.block(), visit)? {
                    true => continue,
                    false => self.corrupt(handle.offset, "key block malformed"),
                },
                Err(error) => error,
            };
            let end = match index + 1 < fences.len() {
                true => Some(Bytes::from(fences.key(index + 1))),
                false => self.range.1.clone(),
            };
            let range = (Bytes::from(fences.key(index)), end);
            self.found.damage.push(TableDamage { error, range });
        }
        Ok(())
    }

    /// Shows the entries of a block; `false` where it makes no sense from some entry on.
    fn show(&mut self, block: &Block, visit: Visit<'_>) -> Result<bool> {
        let mut iter = BlockIter::new(Direction::Forward);
        if iter.reset(block.clone()).is_err() {
            return Ok(false);
        }
        loop {
            match iter.step() {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(_) => return Ok(false),
            }
            let Ok(value) = iter.value() else {
                return Ok(false);
            };
            visit(iter.key(), iter.seqno(), value)?;
            self.found.entries += 1;
        }
    }

    /// Blocks by their looks: at every page, and once a compressed one was found at every byte.
    fn by_looks(&mut self, visit: Visit<'_>) -> Result<()> {
        let mut position = PAGE_BYTES as u64;
        let mut packed = false;
        let mut window = (0, Bytes::new());
        while position + BLOCK_HEADER_BYTES as u64 <= self.length {
            // A window holds the longest block from any place in its first half on.
            let mut at = usize::try_from(position - window.0).unwrap_or(usize::MAX);
            if window.1.is_empty() || at > BLOCK_BYTES_MAX {
                match self.file.read_at(position, 2 * BLOCK_BYTES_MAX) {
                    Ok(bytes) => (window, at) = ((position, bytes), 0),
                    Err(error) => {
                        self.lost(error);
                        return Ok(());
                    }
                }
            }
            let found = self.block_at(position, window.1.slice(at.min(window.1.len())..));
            match found {
                Some((block, length, compressed)) if self.show(&block, visit)? => {
                    packed |= compressed;
                    position += length as u64;
                }
                _ if packed => position += 1,
                _ => position = (position + 1).next_multiple_of(PAGE_BYTES as u64),
            }
        }
        Ok(())
    }

    /// The block that begins with `bytes`, its length, and whether it is compressed.
    fn block_at(&self, offset: u64, bytes: Bytes) -> Option<(Block, usize, bool)> {
        let header: &[u8; BLOCK_HEADER_BYTES] = bytes.first_chunk()?;
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let (codec, interval, entries, restarts) =
            (header[4], usize::from(header[6]), u16_at(8), u16_at(10));
        let used = u32::from_le_bytes([header[16], header[17], header[18], header[19]]) as usize;
        let looks = codec <= 2
            && header[5] <= 8
            && interval > 0
            && header[7] == 0
            && entries > 0
            && restarts == entries.div_ceil(interval)
            && header[14..16] == [0, 0]
            && (BLOCK_HEADER_BYTES..=BLOCK_BYTES_MAX).contains(&used);
        if !looks {
            return None;
        }
        let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let length = match codec {
            0 => [used.next_multiple_of(PAGE_BYTES), used]
                .into_iter()
                .find(|&length| {
                    bytes
                        .get(4..length)
                        .is_some_and(|rest| self.seed.checksum(offset, rest) == stored)
                })?,
            _ => {
                // How long it is stands nowhere: the checksum says where it ends. It is never longer than what it expands to.
                let mut checksum = self.seed.checksum(offset, &header[4..]);
                let rest = bytes.get(BLOCK_HEADER_BYTES..)?;
                let end = rest.iter().take(used).position(|byte| {
                    checksum = crc32c_append(checksum, &[*byte]);
                    checksum == stored
                })?;
                BLOCK_HEADER_BYTES + end + 1
            }
        };
        let handle = BlockHandle {
            index: 0,
            offset,
            length: u32::try_from(length).ok()?,
        };
        let opened = compress::open(self.seed, self.id, handle, bytes.slice(..length)).ok()?;
        Some((opened.block().clone(), length, codec != 0))
    }
}

/// What a table says of itself in its first page: database and file number are right.
#[must_use]
pub fn database_of(volume: &dyn Volume, id: FileId) -> Option<DbId> {
    let page = volume.open(id).ok()?.read_at(0, PAGE_BYTES).ok()?;
    let db = DbId(page.get(16..32)?.try_into().ok()?);
    let header = super::format::encode_header(db, id);
    page.starts_with(&header).then_some(db)
}
