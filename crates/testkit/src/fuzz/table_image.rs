//! A table made from an input: entries that the engine's own writer takes, then edits of any part of the file, then right checksums.
//!
//! Thread safety: none is needed.

use super::input::{Input, Output};
use glintdb_cache::Cache;
use glintdb_core::checksum::FileSeed;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{
    DbId, EntryRef, FileId, FileKind, RangeTombstone, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::DataClass;
use glintdb_runs::table::{Compression, Table, TableConfig, TableEnv, TableWriter};
use glintdb_simdisk::{Contents, MemOptions, MemVolume};
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: usize = 4096;
const FOOTER: usize = 96;
const ENTRIES_MAX: u16 = 2000;

pub(crate) const ID: FileId = FileId {
    kind: FileKind::Table,
    number: 42,
};

/// What an entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Inline(Vec<u8>),
    Pointer(ValuePointer),
    Tombstone,
}

/// A table's file, and what its writer was given.
pub(crate) struct TableImage {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: BTreeMap<Vec<u8>, (u64, Value)>,
    pub(crate) tombstones: Vec<RangeTombstone>,
    /// Whether anything was changed behind the writer's back.
    pub(crate) edited: bool,
    /// Whether checksums were made right behind an edit: what is read may then be something else than was written.
    pub(crate) forged: bool,
    db: DbId,
}

/// Tables of database `db` on a volume that holds `bytes` as the table `id`.
pub(crate) fn env(db: DbId, id: FileId, bytes: &[u8]) -> Arc<TableEnv> {
    let mut contents = Contents::default();
    if !bytes.is_empty() {
        contents.files.insert(id, bytes.to_vec().into());
    }
    Arc::new(TableEnv {
        volume: MemVolume::of_contents(&contents, MemOptions::default()).expect("memory takes it"),
        cache: Arc::new(Cache::new(256 << 10)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db,
        reads: None,
        remaps: false,
    })
}

fn entries(input: &mut Input<'_>) -> BTreeMap<Vec<u8>, (u64, Value)> {
    let mut entries = BTreeMap::new();
    let groups = input.u8() % 8;
    for _ in 0..groups {
        let key = input.bytes().to_vec();
        let kind = input.u8();
        let seqno = u64::from(input.u16()) + 1;
        let value = match kind % 3 {
            0 => Value::Inline(input.bytes().to_vec()),
            1 => Value::Pointer(ValuePointer {
                segment: SegmentId(seqno),
                offset: input.u32(),
                length: input.u32() >> 8,
                checksum: seqno as u32,
            }),
            _ => Value::Tombstone,
        };
        // One of the input becomes many, so that there are several blocks and restart points.
        let copies = if kind & 0x80 != 0 {
            input.u16() % ENTRIES_MAX
        } else {
            0
        };
        for copy in 0..copies {
            let copied = [&key[..], &copy.to_be_bytes()].concat();
            entries.insert(copied, (seqno + u64::from(copy % 7), value.clone()));
        }
        entries.insert(key, (seqno, value));
    }
    if entries.is_empty() {
        entries.insert(b"k".to_vec(), (1, Value::Tombstone));
    }
    entries
}

impl TableImage {
    pub(crate) fn build(input: &mut Input<'_>) -> TableImage {
        let db = DbId(*b"0123456789abcdef");
        let setup = input.u8();
        let config = TableConfig {
            block_bytes: 4096,
            restart_interval: [8, 1, 2, 16][usize::from(setup & 3)],
            filter_bits_per_key: if setup & 4 != 0 { 0.0 } else { 10.0 },
            compression: match setup & 8 {
                0 => Compression::None,
                _ => Compression::Lz4,
            },
        };
        let entries = entries(input);
        let mut tombstones = Vec::new();
        let env = env(db, ID, &[]);
        let mut writer = TableWriter::create(&env, ID, DataClass::Flush, &config, 0)
            .expect("a new file on a new volume");
        for (key, (seqno, value)) in &entries {
            let value = match value {
                Value::Inline(value) => EntryRef::Inline(value),
                Value::Pointer(pointer) => EntryRef::Pointer(*pointer),
                Value::Tombstone => EntryRef::Tombstone,
            };
            writer.add(key, SeqNum(*seqno), value).expect("keys ascend");
        }
        if setup & 16 != 0 {
            let (start, length) = (input.bytes().to_vec(), input.u8());
            let end = [&start[..], &[length]].concat();
            tombstones.push(RangeTombstone {
                start: start.into(),
                end: (length > 0).then(|| end.into()),
                seqno: SeqNum(u64::from(length) + 1),
            });
        }
        for tombstone in &tombstones {
            writer
                .add_range_tombstone(tombstone.clone())
                .expect("a range");
        }
        writer.finish().expect("memory takes it");
        let file = env.volume.open(ID).expect("it was written");
        let length = file.len().expect("memory") as usize;
        let mut image = TableImage {
            bytes: file.read_at(0, length).expect("memory").to_vec(),
            entries,
            tombstones,
            edited: false,
            forged: false,
            db,
        };
        image.edit(input);
        image
    }

    pub(crate) fn open_env(&self) -> Arc<TableEnv> {
        env(self.db, ID, &self.bytes)
    }

    fn span(&self, index: usize) -> (usize, usize) {
        let at = self.bytes.len() - FOOTER + index * 16;
        let number = |at: usize| {
            let bytes = self.bytes[at..at + 8].first_chunk::<8>();
            u64::from_le_bytes(*bytes.expect("eight bytes")) as usize
        };
        (number(at), number(at + 8))
    }

    /// Edits, a step each, then the checksums.
    fn edit(&mut self, input: &mut Input<'_>) {
        if input.is_empty() {
            return;
        }
        let env = self.open_env();
        let table = Table::open_file(&env, ID).expect("what the writer wrote");
        let blocks: Vec<(usize, usize)> = table
            .fences()
            .expect("what the writer wrote")
            .map(|fence| (fence.handle.offset as usize, fence.handle.length as usize))
            .collect();
        let tail_at = table.meta().tail_offset as usize;
        let mut tail: Vec<Vec<u8>> = (0..4)
            .map(|index| {
                let (at, length) = self.span(index);
                self.bytes[at..at + length].to_vec()
            })
            .collect();
        let mut footer_edits = Vec::new();
        let mut damage = Vec::new();
        while !input.is_empty() {
            self.edited = true;
            let step = input.u8();
            self.forged |= step % 8 < 7;
            let (place, bytes) = (usize::from(input.u16()), input.bytes());
            match step % 8 {
                0..=2 => {
                    // In a block, behind its checksum: the header, the restart points, the entries.
                    let (at, length) = blocks[usize::from(step >> 3) % blocks.len()];
                    overwrite(&mut self.bytes, at + 4 + place % (length - 4), bytes);
                }
                3 | 4 => {
                    let section = &mut tail[usize::from(step >> 3) % 4];
                    if !section.is_empty() {
                        let at = 4 + place % (section.len() - 3).max(1);
                        overwrite(section, at, bytes);
                    }
                }
                5 => {
                    // Some bytes of a section become others, more or fewer.
                    let section = &mut tail[usize::from(step >> 3) % 4];
                    if section.len() > 4 {
                        let at = 4 + place % (section.len() - 4);
                        let gone = usize::from(step >> 5).min(section.len() - at);
                        section.splice(at..at + gone, bytes.iter().copied());
                    }
                }
                6 => footer_edits.push((place % 84, bytes)),
                _ => damage.push((usize::from(step >> 3) * 512 + place, bytes)),
            }
        }
        self.assemble(&blocks, tail_at, &mut tail, &footer_edits);
        for (at, bytes) in damage {
            let at = at % self.bytes.len();
            overwrite(&mut self.bytes, at, bytes);
        }
    }

    /// The file with its parts as they are now, and every checksum right.
    fn assemble(
        &mut self,
        blocks: &[(usize, usize)],
        tail_at: usize,
        tail: &mut [Vec<u8>],
        footer_edits: &[(usize, &[u8])],
    ) {
        let seed = FileSeed::new(self.db, ID);
        for &(at, length) in blocks {
            fix(seed, at, &mut self.bytes[at..at + length]);
        }
        let mut footer = vec![0; FOOTER];
        self.bytes.truncate(tail_at);
        for (index, section) in tail.iter_mut().enumerate() {
            if section.is_empty() {
                continue;
            }
            let at = self.bytes.len();
            fix(seed, at, section);
            self.bytes.extend_from_slice(section);
            footer[index * 16..index * 16 + 8].copy_from_slice(&(at as u64).to_le_bytes());
            footer[index * 16 + 8..index * 16 + 16]
                .copy_from_slice(&(section.len() as u64).to_le_bytes());
        }
        footer[80] = 1;
        footer[88..].copy_from_slice(b"GLNTTEND");
        let length = (self.bytes.len() + FOOTER).next_multiple_of(PAGE);
        self.bytes.resize(length - FOOTER, 0);
        for (at, bytes) in footer_edits {
            overwrite(&mut footer[..84], *at, bytes);
        }
        let checksum = seed.checksum((length - FOOTER) as u64, &footer[..84]);
        footer[84..88].copy_from_slice(&checksum.to_le_bytes());
        self.bytes.extend_from_slice(&footer);
    }
}

/// The first four bytes become the checksum of the others.
fn fix(seed: FileSeed, at: usize, part: &mut [u8]) {
    if let Some((checksum, covered)) = part.split_first_chunk_mut::<4>() {
        *checksum = seed.checksum(at as u64, covered).to_le_bytes();
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// Inputs to begin with: small tables, whole and with each part edited.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let plain = |setup: u8| {
        let mut out = Output::default();
        out.raw(&[setup, 3]);
        out.bytes(b"apple").raw(&[0, 7, 0]).bytes(b"red");
        out.bytes(b"pear")
            .raw(&[0x81, 9, 0, 0, 16, 0, 0, 0, 4, 0, 0, 200, 1]);
        out.bytes(b"plum").raw(&[2, 3, 0]);
        if setup & 16 != 0 {
            out.bytes(b"q").raw(&[1]);
        }
        out
    };
    let mut seeds: Vec<Vec<u8>> = [0, 8, 16 + 1, 4 + 2].map(|setup| plain(setup).0).into();
    for (step, place) in [
        (0_u8, 4_u16),
        (0, 24),
        (8, 200),
        (3, 0),
        (11, 5),
        (19, 2),
        (27, 9),
        (5, 1),
        (45, 6),
        (6, 0),
        (7, 4100),
    ] {
        let mut out = plain(if step == 19 { 16 } else { 0 });
        out.raw(&[step]).raw(&place.to_le_bytes()).bytes(&[0xff, 3]);
        seeds.push(out.0);
    }
    seeds
}
