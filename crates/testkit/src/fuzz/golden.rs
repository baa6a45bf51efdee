//! A small database as it lies on the medium, with what it holds: to be damaged. Made once a process, the same every time.
//!
//! Thread safety: immutable once made.

use crate::place::{Place, TestClock};
use crate::rng::Rng;
use glintdb::{
    Compression, Db, Durability, Env, IndexKind, KeyspaceOptions, LsmExperiments, LsmOptions,
    Options,
};
use glintdb_core::checksum::{FileSeed, crc32c, crc32c_append};
use glintdb_core::{DbId, FileId, FileKind};
use glintdb_flash::Volume;
use glintdb_log::format::frame::FrameHeader;
use glintdb_runs::table::Table;
use glintdb_simdisk::{Contents, MemOptions, MemVolume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

pub(crate) const DB: DbId = DbId(*b"a test's own id.");

/// Keyspaces that the database has.
pub(crate) const SPACES: [&str; 2] = ["default", "other"];

/// Everything a key was ever set to; `None`: it was deleted, or not yet there.
type Ever = BTreeMap<(usize, Vec<u8>), BTreeSet<Option<Vec<u8>>>>;

pub(crate) struct Golden {
    pub(crate) contents: Contents,
    /// What it holds now.
    pub(crate) now: BTreeMap<(usize, Vec<u8>), Vec<u8>>,
    pub(crate) ever: Ever,
    pub(crate) checksums: Checksums,
}

/// The checksums of some files, in an order in which they can be computed anew.
#[derive(Default)]
pub(crate) struct Checksums {
    pub(crate) parts: BTreeMap<FileId, Vec<Part>>,
    mentions: Vec<Mention>,
}

/// Where a branch of a B+tree, or the manifest, has the checksum of a node too.
struct Mention {
    /// The node.
    file: FileId,
    at: usize,
    /// Where its checksum is as well.
    other: FileId,
    place: usize,
}

/// Something in a file that has a checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// A key block or section of a table, or a branch: its first four bytes are the checksum of the
    /// rest.
    Section { at: usize, length: usize },
    /// A table's last 96 bytes.
    Footer { at: usize },
    /// A frame of the log; its metadata, then its header.
    Frame { at: usize },
    /// A record of a manifest.
    Record { at: usize },
    /// The header of a segment (checksum at 60) or of a manifest (at 36).
    Header,
}

/// Small everything: a memory that is soon full, segments that are soon sealed.
pub(crate) fn options() -> Options {
    Options::default()
        .background_threads(0)
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .log_ring_bytes(64 << 10)
        .replay_bytes_max(256 << 10)
        .separate_min_bytes(64)
}

pub(crate) fn keyspace_options() -> KeyspaceOptions {
    let experiments = LsmExperiments::default()
        .base_level_bytes(64 << 10)
        .level0_runs_compact(2);
    let lsm = LsmOptions::default()
        .compression(Compression::Lz4)
        .table_bytes_target(32 << 10)
        .experiments(experiments);
    KeyspaceOptions::default().lsm(lsm)
}

/// Opens a database on a volume with the options above.
pub(crate) fn open(volume: &Arc<MemVolume>) -> glintdb::Result<Db> {
    let env = Env::new(Arc::new(TestClock::default()), DB);
    options().open_volume(Arc::clone(volume) as Arc<dyn Volume>, env)
}

/// Fewer than [`DATABASES`]: 0 was closed, 1 was killed with commits in the ring only, 2 lost
/// its power, 3 has a B+tree.
pub(crate) fn golden(index: usize) -> &'static Golden {
    static ALL: LazyLock<Vec<Golden>> = LazyLock::new(|| (0..DATABASES).map(make).collect());
    &ALL[index % DATABASES]
}

pub(crate) const DATABASES: usize = 4;

fn make(index: usize) -> Golden {
    let volume = MemVolume::new();
    let db = open(&volume).expect("a new database");
    let options = match index {
        3 => KeyspaceOptions::default().index(IndexKind::BTree),
        _ => keyspace_options(),
    };
    db.create_keyspace(SPACES[1], options)
        .expect("a new keyspace");
    let mut golden = Golden {
        contents: Contents::default(),
        now: BTreeMap::new(),
        ever: Ever::new(),
        checksums: Checksums::default(),
    };
    let mut rng = Rng::new(index as u64 + 1);
    for round in 0..3 {
        for number in 0..24 {
            let space = number % 2;
            let key = format!("key{:02}", rng.below(24)).into_bytes();
            let keyspace = db.keyspace(SPACES[space]).expect("it was made");
            let ever = golden.ever.entry((space, key.clone())).or_default();
            ever.insert(None);
            if rng.one_in(5) {
                keyspace.delete(&key).expect("memory takes it");
                golden.now.remove(&(space, key));
            } else {
                let value = rng.bytes([20, 100, 3][number % 3]);
                ever.insert(Some(value.clone()));
                keyspace.put(&key, &value).expect("memory takes it");
                golden.now.insert((space, key), value);
            }
        }
        if round == 0 {
            keyspace_range_deleted(&db, &mut golden);
        }
        if round < 2 {
            db.flush().expect("memory takes it");
        }
    }
    if index == 3 {
        grow_tree(&db, &mut golden);
    }
    let place = match index {
        0 | 3 => {
            db.close().expect("memory takes it");
            Place::Memory(volume)
        }
        1 => Place::Memory(volume).crashed(false, 1),
        _ => {
            db.flush_log(Durability::Sync).expect("memory takes it");
            Place::Memory(volume).crashed(true, 1)
        }
    };
    if let Place::Memory(volume) = place {
        golden.contents = volume.contents();
    }
    let files = golden.contents.files.iter();
    let files = files.map(|(id, bytes)| (*id, bytes.to_vec()));
    golden.checksums = Checksums::of(&files.collect());
    golden
}

/// More than a leaf has, so that there are branches.
fn grow_tree(db: &Db, golden: &mut Golden) {
    let keyspace = db.keyspace(SPACES[1]).expect("it was made");
    for number in 0..120 {
        let key = format!("leaf{number:03}").into_bytes();
        let value = vec![b'a' + number % 26; 50];
        let ever = golden.ever.entry((1, key.clone())).or_default();
        ever.extend([None, Some(value.clone())]);
        keyspace.put(&key, &value).expect("memory takes it");
        golden.now.insert((1, key), value);
    }
    db.flush().expect("memory takes it");
    db.compact().expect("memory takes it");
}

fn keyspace_range_deleted(db: &Db, golden: &mut Golden) {
    let keyspace = db.keyspace(SPACES[0]).expect("it is there");
    keyspace
        .delete_range("key05".."key09")
        .expect("memory takes it");
    golden.now.retain(|(space, key), _| {
        *space != 0 || !(&b"key05"[..]..&b"key09"[..]).contains(&&key[..])
    });
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let four = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    four.map_or(0, |four| u32::from_le_bytes(*four) as usize)
}

/// Where the checksums of a file that is whole are.
fn parts(id: FileId, bytes: &[u8]) -> Vec<Part> {
    let seed = FileSeed::new(DB, id);
    let mut parts = Vec::new();
    match id.kind {
        FileKind::Log => {
            for at in (4096..bytes.len()).step_by(8) {
                if FrameHeader::decode(seed, at as u32, &bytes[at..]).is_some() {
                    parts.push(Part::Frame { at });
                }
            }
            parts.push(Part::Header);
        }
        FileKind::Table => {
            let footer = bytes.len() - 96;
            let env = super::table_image::env(DB, id, bytes);
            let table = Table::open_file(&env, id).expect("a whole table");
            for fence in table.fences().expect("a whole table") {
                parts.push(Part::Section {
                    at: fence.handle.offset as usize,
                    length: fence.handle.length as usize,
                });
            }
            for index in 0..4 {
                let span = footer + index * 16;
                let (at, length) = (u32_at(bytes, span), u32_at(bytes, span + 8));
                if length > 0 {
                    parts.push(Part::Section { at, length });
                }
            }
            parts.push(Part::Footer { at: footer });
        }
        FileKind::Manifest => {
            let mut at = 40;
            while u32_at(bytes, at) > 0 {
                parts.push(Part::Record { at });
                at = (at + 8 + u32_at(bytes, at)).next_multiple_of(8);
            }
            parts.push(Part::Header);
        }
        FileKind::Tree => {
            let mut at = 4096;
            while at < bytes.len() {
                let length = u32_at(bytes, at + 16).next_multiple_of(4096);
                parts.push(Part::Section { at, length });
                at += length;
            }
        }
        FileKind::Reserve => {}
    }
    parts
}

impl Checksums {
    /// Of files that are whole.
    pub(crate) fn of(files: &BTreeMap<FileId, Vec<u8>>) -> Checksums {
        let mut checksums = Checksums::default();
        for (id, bytes) in files {
            let parts = parts(*id, bytes);
            for part in &parts {
                if let Part::Section { at, .. } = *part {
                    checksums.note_mentions(files, *id, at);
                }
            }
            checksums.parts.insert(*id, parts);
        }
        checksums
    }

    /// Notes where branches and manifests have the checksum of a node.
    fn note_mentions(&mut self, files: &BTreeMap<FileId, Vec<u8>>, file: FileId, at: usize) {
        let wanted = &files[&file][at..at + 4];
        let naming = |id: &FileId| !matches!(id.kind, FileKind::Log | FileKind::Table);
        for (&other, bytes) in files.iter().filter(|(id, _)| naming(id)) {
            let places = bytes.windows(4).enumerate();
            let places =
                places.filter(|(place, found)| *found == wanted && (other, *place) != (file, at));
            let mentions = places.map(|(place, _)| Mention {
                file,
                at,
                other,
                place,
            });
            self.mentions.extend(mentions);
        }
    }

    /// Makes every checksum right again, as far as the parts are still in the files. The order of
    /// files is tables, branches, manifests, and branches follow their children.
    pub(crate) fn fix(&self, files: &mut BTreeMap<FileId, Vec<u8>>) {
        for (&file, parts) in &self.parts {
            let seed = FileSeed::new(DB, file);
            for &part in parts {
                if let Some(bytes) = files.get_mut(&file) {
                    fix_part(seed, file, part, bytes);
                }
                if let Part::Section { at, .. } = part {
                    self.fix_mentions(files, file, at);
                }
            }
        }
    }

    fn fix_mentions(&self, files: &mut BTreeMap<FileId, Vec<u8>>, file: FileId, at: usize) {
        let checksum = files.get(&file).and_then(|bytes| bytes.get(at..at + 4));
        let Some(checksum) = checksum.map(<[u8]>::to_vec) else {
            return;
        };
        let of_node = |mention: &&Mention| (mention.file, mention.at) == (file, at);
        for mention in self.mentions.iter().filter(of_node) {
            let there = files.get_mut(&mention.other);
            if let Some(there) =
                there.and_then(|bytes| bytes.get_mut(mention.place..mention.place + 4))
            {
                there.copy_from_slice(&checksum);
            }
        }
    }
}

/// The checksum of what lies from `at` on, where all of it is there.
fn fix_part(seed: FileSeed, id: FileId, part: Part, bytes: &mut [u8]) -> Option<()> {
    let (place, checksum) = match part {
        Part::Section { at, length } => {
            let covered = bytes.get(at + 4..at + length)?;
            (at, seed.checksum(at as u64, covered))
        }
        Part::Footer { at } => (at + 84, seed.checksum(at as u64, bytes.get(at..at + 84)?)),
        Part::Frame { at } => {
            let length = u32_at(bytes, at + 24);
            if let Some(meta) = bytes.get(at + 40..).and_then(|rest| rest.get(..length)) {
                let checksum = crc32c(meta);
                bytes[at + 36..at + 40].copy_from_slice(&checksum.to_le_bytes());
            }
            (
                at + 4,
                seed.checksum(at as u64, bytes.get(at + 8..at + 40)?),
            )
        }
        Part::Record { at } => {
            let length = u32_at(bytes, at);
            let seeded = seed.checksum(at as u64, bytes.get(at..at + 4)?);
            let items = bytes.get(at + 8..)?.get(..length)?;
            (at + 4, crc32c_append(seeded, items))
        }
        Part::Header if id.kind == FileKind::Manifest => (36, crc32c(bytes.get(..36)?)),
        Part::Header => (60, seed.checksum(0, bytes.get(..60)?)),
    };
    bytes
        .get_mut(place..place + 4)?
        .copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

/// A volume that holds `contents`, and not much more than that.
pub(crate) fn volume(contents: &Contents) -> Arc<MemVolume> {
    let options = MemOptions {
        capacity_bytes: Some(contents.bytes() + (4 << 20)),
        ..MemOptions::default()
    };
    MemVolume::of_contents(contents, options).expect("there is room for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixing_a_whole_database_changes_nothing_and_it_holds_what_it_should() {
        for index in 0..DATABASES {
            let golden = golden(index);
            let parts = &golden.checksums.parts;
            assert!(parts.keys().any(|id| id.kind == FileKind::Table));
            let has_branches = parts.keys().any(|id| id.kind == FileKind::Tree);
            let mentions = golden.checksums.mentions.len();
            assert_eq!((has_branches, mentions > 2), (index == 3, index == 3));
            let files = golden.contents.files.iter();
            let files: BTreeMap<_, _> = files.map(|(id, bytes)| (*id, bytes.to_vec())).collect();
            let mut fixed = files.clone();
            golden.checksums.fix(&mut fixed);
            for (id, bytes) in &files {
                assert!(fixed[id] == *bytes, "{id}: {:?}", parts[id]);
                if id.kind == FileKind::Table {
                    assert!(parts[id].len() >= 3, "{id}: {:?}", parts[id]);
                }
            }
            let db = open(&volume(&golden.contents)).unwrap();
            for ((space, key), value) in &golden.now {
                let keyspace = db.keyspace(SPACES[*space]).unwrap();
                assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
            }
        }
    }
}
