//! Tests of the whole table: writer against reader, damage, the golden file.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]

mod block_files;
mod damage;
mod golden;
mod long_keys;
mod round_trip;
mod tombstones;
mod volume;

use super::*;
use bytes::Bytes;
use glintdb_cache::Cache;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{
    DbId, EntryRef, EntryValue, FileId, FileKind, RangeTombstone, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::DataClass;
use std::collections::BTreeMap;
use std::sync::Arc;
use volume::TestVolume;

pub(crate) type Model = BTreeMap<Vec<u8>, (SeqNum, EntryValue)>;

pub(crate) const DB: DbId = DbId(*b"0123456789abcdef");

pub(crate) fn table_id(number: u64) -> FileId {
    FileId::new(FileKind::Table, number)
}

pub(crate) fn env() -> (Arc<TestVolume>, Arc<TableEnv>) {
    let volume = Arc::new(TestVolume::default());
    let env = env_of(&volume, DB);
    (volume, env)
}

/// An environment with a cache of its own.
pub(crate) fn env_of(volume: &Arc<TestVolume>, db: DbId) -> Arc<TableEnv> {
    Arc::new(TableEnv {
        volume: Arc::clone(volume) as _,
        cache: Arc::new(Cache::new(16 << 20)),
        memory: Arc::new(MemoryBudget::new(64 << 20)),
        db,
        reads: None,
        remaps: false,
    })
}

pub(crate) fn inline(bytes: &[u8]) -> EntryValue {
    EntryValue::Inline(Bytes::copy_from_slice(bytes))
}

pub(crate) fn pointer(n: u32) -> ValuePointer {
    ValuePointer {
        segment: SegmentId(u64::from(n) << 20),
        offset: n,
        length: n % 5000,
        checksum: n.wrapping_mul(77),
    }
}

pub(crate) fn tombstone(start: &[u8], end: Option<&[u8]>, seqno: u64) -> RangeTombstone {
    RangeTombstone {
        start: Bytes::copy_from_slice(start),
        end: end.map(Bytes::copy_from_slice),
        seqno: SeqNum(seqno),
    }
}

pub(crate) fn write(
    env: &Arc<TableEnv>,
    number: u64,
    config: &TableConfig,
    model: &Model,
    tombstones: &[RangeTombstone],
) -> TableMeta {
    let id = table_id(number);
    let mut writer = TableWriter::create(env, id, DataClass::Flush, config, model.len()).unwrap();
    for (key, (seqno, value)) in model {
        writer.add(key, *seqno, value.as_ref()).unwrap();
    }
    for tombstone in tombstones {
        writer.add_range_tombstone(tombstone.clone()).unwrap();
    }
    writer.finish().unwrap()
}

/// Keys that share prefixes, some long, with values of every kind.
pub(crate) fn sample(entries: u32) -> Model {
    let entry = |n: u32| {
        let key = format!("user/{:04}/{:06}", n / 7, n * 3).into_bytes();
        let value = match n % 5 {
            0 => EntryValue::Tombstone,
            1 => EntryValue::Pointer(pointer(n)),
            2 => inline(b""),
            _ => inline(format!("value {n} {}", "x".repeat(n as usize % 90)).as_bytes()),
        };
        (key, (SeqNum(1000 + u64::from(n * 7919 % 10007)), value))
    };
    (0..entries).map(entry).collect()
}

pub(crate) fn verify(table: &Table) -> (Vec<glintdb_core::Error>, u64) {
    let mut errors = Vec::new();
    let mut pointed = 0;
    table.verify(&mut |error| errors.push(error), &mut |_, pointer| {
        pointed += u64::from(pointer.length);
    });
    (errors, pointed)
}

pub(crate) fn value_ref(entry: &(SeqNum, EntryValue)) -> (SeqNum, EntryRef<'_>) {
    (entry.0, entry.1.as_ref())
}
