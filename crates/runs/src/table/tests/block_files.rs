//! Files of blocks whose places are known from elsewhere: floors, walks and damage.

use super::{DB, env, env_of};
use crate::table::{BlockCursor, BlockFile, BlockFileWriter, WrittenBlock};
use glintdb_core::{Direction, EntryRef, ErrorKind, FileId, FileKind};
use glintdb_flash::{DataClass, Volume};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn tree_id() -> FileId {
    FileId::new(FileKind::Tree, 1)
}

/// Writes a block of these keys, each with itself as its value.
fn write(writer: &mut BlockFileWriter, keys: &BTreeSet<Vec<u8>>) -> WrittenBlock {
    for key in keys {
        assert!(writer.add(key, EntryRef::Inline(key)));
    }
    writer.end_block().unwrap()
}

fn keys() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
    let key = proptest::collection::vec(
        prop_oneof![Just(0u8), Just(1), Just(b'a'), any::<u8>()],
        0..6,
    );
    proptest::collection::btree_set(key, 1..60)
}

proptest! {
    #[test]
    fn prop_floors_are_those_of_a_sorted_set(keys in keys(), probes in keys()) {
        let (_volume, env) = env();
        let class = DataClass::Level { rank: 1, of: 2 };
        let mut writer = BlockFileWriter::create(&env, tree_id(), class, 4096, 8).unwrap();
        let block = write(&mut writer, &keys);
        writer.finish().unwrap();
        let file = BlockFile::new(&env, tree_id());
        let block = file.read(block.handle).unwrap();
        let sorted: Vec<&Vec<u8>> = keys.iter().collect();
        for probe in probes.iter().chain(&keys) {
            let behind = sorted.partition_point(|key| *key <= probe);
            let at = behind.saturating_sub(1);
            prop_assert_eq!(file.floor(&block, probe).unwrap(), EntryRef::Inline(sorted[at]));
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut cursor = BlockCursor::new(direction);
                cursor.enter(file.id(), block.clone()).unwrap();
                prop_assert!(cursor.seek_floor(probe).unwrap());
                prop_assert_eq!(cursor.key(), &**sorted[at]);
                let next = match direction {
                    Direction::Forward => sorted.get(at + 1),
                    Direction::Reverse => at.checked_sub(1).and_then(|at| sorted.get(at)),
                };
                prop_assert_eq!(cursor.advance().unwrap(), next.is_some());
                if let Some(next) = next {
                    prop_assert_eq!(cursor.key(), &***next);
                }
            }
        }
    }
}

#[test]
fn every_damaged_bit_of_a_block_file_is_reported() {
    let (volume, env) = env();
    let class = DataClass::Level { rank: 1, of: 2 };
    let mut writer = BlockFileWriter::create(&env, tree_id(), class, 4096, 8).unwrap();
    let keys = |n: u32| {
        (0..50u32)
            .map(|k| [n, k].map(u32::to_be_bytes).concat())
            .collect()
    };
    for n in 0..3 {
        write(&mut writer, &keys(n));
    }
    // A block of several pages.
    writer.begin_block(6 * 4096, 16);
    let long = (0..3u8).map(|n| vec![n; 3000]).collect();
    write(&mut writer, &long);
    let bytes = writer.finish().unwrap();
    let damage = |offset: Option<u64>| {
        let file = volume.open(tree_id()).unwrap();
        let byte = offset.map(|offset| file.read_at(offset, 1).unwrap()[0]);
        if let (Some(offset), Some(byte)) = (offset, byte) {
            file.write_at(offset, &[byte ^ 4]).unwrap();
        }
        let mut errors = Vec::new();
        let fresh = env_of(&volume, DB);
        BlockFile::new(&fresh, tree_id()).verify(bytes, &mut |error| errors.push(error));
        if let (Some(offset), Some(byte)) = (offset, byte) {
            file.write_at(offset, &[byte]).unwrap();
        }
        errors
    };
    assert!(damage(None).is_empty());
    for offset in (0..bytes).step_by(97) {
        let errors = damage(Some(offset));
        assert!(!errors.is_empty(), "{offset}");
        assert!(
            errors
                .iter()
                .all(|error| error.kind() == ErrorKind::Corruption)
        );
    }
}
