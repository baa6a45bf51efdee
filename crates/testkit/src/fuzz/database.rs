//! Target `database`: a small whole database, damaged, opened by the engine and used.
//!
//! Asserts, where checksums are left wrong: no value that was never written, nothing but the
//! engine's own errors. Where they were made right, so that the engine believes what is there: no
//! panic, and an end. Both: what opens can be walked, read, verified, written to, flushed,
//! compacted and closed, each with success or an error; what is walked is in key order where
//! `verify` found nothing wrong; reserve files mean nothing.

use super::check_error;
use super::golden::{self, DB, Golden, SPACES, golden};
use super::input::{Input, Output};
use glintdb::{Db, Error, ErrorKind};
use glintdb_core::checksum::{FileSeed, crc32c, crc32c_append};
use glintdb_core::{FileId, FileKind, SeqNum};
use glintdb_log::format::frame::{FrameHeader, FrameKind};
use glintdb_simdisk::Contents;
use std::collections::BTreeMap;

struct Damage {
    files: BTreeMap<FileId, Vec<u8>>,
    ring: Option<Vec<u8>>,
    /// Whether the checksums are right.
    fixed: bool,
    changed: bool,
}

/// A place in a file where there is something: most of a file is zeros.
fn place(bytes: &[u8], wish: u16) -> usize {
    let mut things = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
    let count = things.clone().count();
    let nth = usize::from(wish) % count.max(1);
    things.nth(nth).map_or(0, |(at, _)| at)
}

impl Damage {
    fn of(golden: &Golden, input: &mut Input<'_>, fixed: bool) -> Damage {
        let files = golden.contents.files.iter();
        let mut damage = Damage {
            files: files.map(|(id, bytes)| (*id, bytes.to_vec())).collect(),
            ring: golden.contents.ring.as_ref().map(|ring| ring.to_vec()),
            fixed,
            changed: false,
        };
        while !input.is_empty() {
            damage.changed = true;
            damage.step(input);
        }
        if fixed {
            golden.checksums.fix(&mut damage.files);
        }
        damage
    }

    fn pick(&self, wish: u8) -> Option<FileId> {
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        ids.get(usize::from(wish) % ids.len().max(1)).copied()
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (kind, file) = (input.u8() % 16, input.u8());
        let (wish, with) = (input.u16(), input.bytes());
        let Some(id) = self.pick(file) else { return };
        let bytes = self.files.entry(id).or_default();
        let at = place(bytes, wish);
        match kind {
            0..=4 => put(bytes, at, with),
            5 => {
                for (byte, mask) in bytes.iter_mut().skip(at).zip(with) {
                    *byte ^= mask;
                }
            }
            6 => bytes.truncate(at),
            7 => bytes.extend_from_slice(with),
            8 => drop(self.files.remove(&id)),
            9 => {
                let other = self.pick(wish as u8).unwrap_or(id);
                if let Some(others) = self.files.get(&other).cloned()
                    && let Some(bytes) = self.files.insert(id, others)
                {
                    self.files.insert(other, bytes);
                }
            }
            10 => {
                // Under another number; a reserve file, where the kind does not fit.
                let copy = bytes.clone();
                let kinds = [id.kind, FileKind::Reserve, FileKind::Log, FileKind::Table];
                let id = FileId::new(kinds[usize::from(file >> 6)], u64::from(wish));
                self.files.entry(id).or_insert(copy);
            }
            11 => {
                let end = (at + 512).min(bytes.len());
                bytes[at..end].fill(0);
            }
            12 => {
                let Some(ring) = &mut self.ring else { return };
                let at = place(ring, wish);
                put(ring, at, with);
            }
            13 | 14 => self.record(with),
            _ => self.frame(with),
        }
    }

    /// One more record in the newest manifest, its checksum right.
    fn record(&mut self, items: &[u8]) {
        let newest = self
            .files
            .iter_mut()
            .rfind(|(id, _)| id.kind == FileKind::Manifest);
        let Some((id, bytes)) = newest else { return };
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let length = (items.len() as u32).to_le_bytes();
        let seeded = FileSeed::new(DB, *id).checksum(bytes.len() as u64, &length);
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&crc32c_append(seeded, items).to_le_bytes());
        bytes.extend_from_slice(items);
    }

    /// One more commit behind the last frame of a segment, its checksums right.
    fn frame(&mut self, meta: &[u8]) {
        let newest = self.files.iter_mut().rfind(|(id, bytes)| {
            let seed = FileSeed::new(DB, **id);
            id.kind == FileKind::Log
                && FrameHeader::decode(seed, 4096, bytes.get(4096..).unwrap_or(&[])).is_some()
        });
        let Some((id, bytes)) = newest else { return };
        let seed = FileSeed::new(DB, *id);
        let (mut at, mut seqno) = (4096, 0);
        while let Some(header) =
            FrameHeader::decode(seed, at as u32, bytes.get(at..).unwrap_or(&[]))
        {
            if header.kind == FrameKind::Seal {
                break;
            }
            seqno = seqno.max(header.seqno.0);
            at += header.frame_bytes() as usize;
        }
        let entries = glintdb_log::format::entry::EntryReader::new(
            meta,
            glintdb_core::ValuePointer::decode(&[0; 20]).expect("twenty bytes"),
        );
        let header = FrameHeader {
            kind: FrameKind::Commit,
            seqno: SeqNum((seqno + 1) & SeqNum::MAX.0),
            durable_position: 4096,
            meta_bytes: meta.len() as u32,
            values_bytes: 0,
            entry_count: entries.count() as u32,
            meta_checksum: crc32c(meta),
        };
        let end = at + header.frame_bytes() as usize;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        put(bytes, at, &header.encode(seed, at as u32));
        put(bytes, at + 40, meta);
    }

    fn contents(self) -> Contents {
        Contents {
            files: self
                .files
                .into_iter()
                .map(|(id, bytes)| (id, bytes.into()))
                .collect(),
            ring: self.ring.map(Into::into),
        }
    }
}

fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// Errors that hostile files may give; never one that blames the caller.
fn expected(error: &Error) {
    let kinds = [
        ErrorKind::Corruption,
        ErrorKind::UnsupportedFormat,
        ErrorKind::NotFound,
        ErrorKind::NoSpace,
        ErrorKind::Poisoned,
        ErrorKind::Io,
        ErrorKind::Unavailable,
    ];
    check_error(error, &kinds);
}

/// Whatever comes, but a panic or an error that is not the medium's.
fn any<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(expected).ok()
}

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mode = input.u8();
    let golden = golden(usize::from(mode & 3));
    let damage = Damage::of(golden, &mut input, mode & 4 != 0);
    let (fixed, changed) = (damage.fixed, damage.changed);
    let volume = golden::volume(&damage.contents());
    let db = golden::open(&volume);
    assert!(
        changed || db.is_ok(),
        "an undamaged database: {:?}",
        db.err()
    );
    let Some(db) = any(db) else { return };
    let clean = any(db.verify()).is_some_and(|report| {
        report.errors.iter().for_each(expected);
        report.is_clean()
    });
    assert!(changed || clean, "an undamaged database does not verify");
    // Values are compared with what was written as long as every checksum tells the truth, and no
    // frame or record was added that has a right one.
    let comparable = !fixed && !data.is_empty() && !added(data);
    look(&db, golden, clean, comparable, changed);
    use_it(&db);
    if any(db.close()).is_none() {
        return;
    }
    if let Some(db) = any(golden::open(&volume)) {
        look(&db, golden, false, false, true);
        any(db.close());
    }
}

/// Whether a step adds something with a right checksum.
fn added(data: &[u8]) -> bool {
    let mut input = Input::new(&data[1..]);
    while !input.is_empty() {
        let kind = input.u8() % 16;
        let _rest = (input.u8(), input.u16(), input.bytes());
        if kind >= 13 {
            return true;
        }
    }
    false
}

fn look(db: &Db, golden: &Golden, clean: bool, comparable: bool, changed: bool) {
    for (index, name) in SPACES.iter().enumerate() {
        let Some(keyspace) = any(db.keyspace(name)) else {
            continue;
        };
        let mut keys: Vec<Vec<u8>> = golden
            .ever
            .keys()
            .filter(|(space, _)| *space == index)
            .map(|(_, key)| key.clone())
            .collect();
        let mut last: Option<Vec<u8>> = None;
        let mut walked = 0;
        for entry in keyspace.iter() {
            let Some((key, value)) = any(entry) else {
                break;
            };
            let ascends = last.as_ref().is_none_or(|last| last[..] < key[..]);
            assert!(ascends || !clean, "{key:?} behind {last:?}");
            last = Some(key.to_vec());
            if comparable {
                check(golden, index, &key, Some(&value));
            }
            walked += 1;
            assert!(walked < 1_000_000, "a walk that does not end");
        }
        for entry in keyspace.iter().rev().take(1000) {
            let Some((key, value)) = any(entry) else {
                break;
            };
            if comparable {
                check(golden, index, &key, Some(&value));
            }
        }
        keys.push(b"absent".to_vec());
        let many = keyspace.multi_get(&keys);
        for (key, found) in keys.iter().zip(many) {
            let alone = any(keyspace.get(key));
            if let (Some(found), Some(alone)) = (any(found), &alone) {
                assert!(
                    found == *alone || !clean,
                    "multi_get and get differ for {key:?}"
                );
            }
            if let (true, Some(found)) = (comparable, &alone) {
                check(golden, index, key, found.as_deref());
            }
            if !changed {
                let expected = golden.now.get(&(index, key.clone()));
                let found = alone.expect("an undamaged database");
                assert_eq!(found.as_deref(), expected.map(|value| &value[..]));
            }
        }
    }
}

/// No wrong value: whatever damage did, a key has a value that it once had.
fn check(golden: &Golden, space: usize, key: &[u8], found: Option<&[u8]>) {
    let found = found.map(<[u8]>::to_vec);
    let ever = golden.ever.get(&(space, key.to_vec()));
    let known = match ever {
        Some(ever) => ever.contains(&found),
        None => found.is_none(),
    };
    assert!(known, "{key:?} was never {found:?}");
}

/// Writes, flushes, compacts.
fn use_it(db: &Db) {
    for name in SPACES {
        let Some(keyspace) = any(db.keyspace(name)) else {
            continue;
        };
        any(keyspace.put("key03", [7; 100]));
        any(keyspace.delete("key04"));
        any(keyspace.delete_range("key10".."key12"));
    }
    any(db.flush());
    any(db.compact());
    any(db.flush_log(glintdb::Durability::Sync));
}

/// Inputs to begin with: each database as it is, and each kind of damage, with checksums right and
/// wrong.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..6).map(|mode| vec![mode]).collect();
    for kind in 0..16_u8 {
        let mut out = Output::default();
        out.raw(&[4 * (kind & 1) + kind % 3, kind, kind]);
        out.raw(&(u16::from(kind) * 37).to_le_bytes());
        match kind {
            // Liveness of keyspace 0 in segment 1; a flush point.
            13 => out.bytes(&[7, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0]),
            14 => out.bytes(&[8, 1, 0x80, 0x20, 0xac, 0x02]),
            15 => out.bytes(b"\x01\x00\x05key01\x03new"),
            _ => out.bytes(&[0xff, kind]),
        };
        seeds.push(out.0);
    }
    seeds
}
