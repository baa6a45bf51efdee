//! The LSM index as a kind under test.

use crate::edit::Edit;
use crate::{Lsm, LsmExperiments, LsmOptions, PinnedLevels};
use glintdb_core::index::IndexStats;
use glintdb_core::{Direction, EntryRef, FileId, Result, ValuePointer};
use glintdb_indextest::Kind;
pub(crate) use glintdb_indextest::{Random, VecRun, env};
use glintdb_runs::table::Purpose;
use glintdb_runs::{Compression, IndexEnv};
use proptest::prelude::*;
use std::ops::Bound;
use std::sync::Arc;

/// The LSM index.
pub(crate) struct LsmKind;

/// An LSM index beside a model of it.
pub(crate) type Harness = glintdb_indextest::Harness<LsmKind>;

impl Kind for LsmKind {
    type Index = Lsm;
    type Options = LsmOptions;

    fn create(env: IndexEnv, options: LsmOptions) -> Result<Arc<Lsm>> {
        Lsm::create(env, options)
    }

    fn open(env: IndexEnv, options: LsmOptions, edits: &[Vec<u8>]) -> Result<Arc<Lsm>> {
        Lsm::open(env, options, edits)
    }

    fn encode(options: &LsmOptions) -> Vec<u8> {
        let mut encoded = Vec::new();
        options.encode(&mut encoded);
        encoded
    }

    fn new_files(edit: &[u8]) -> Vec<FileId> {
        Lsm::table_changes(edit).unwrap();
        Edit::decode(edit).unwrap().new_files().collect()
    }

    fn small_options() -> LsmOptions {
        small_options()
    }

    fn other_options(random: &mut Random) -> LsmOptions {
        let runs = 1 + random.below(3) as u32;
        LsmOptions {
            levels_max: 1 + random.below(6) as u32,
            size_ratio: 2 + random.below(3) as u32,
            table_bytes_target: (4 + random.below(36)) << 10,
            filter_bits_per_key: 10 * random.below(2) as u32,
            compression: match random.below(2) {
                0 => Compression::None,
                _ => Compression::Lz4,
            },
            block_bytes: 4096 * (1 + random.below(3) as u32),
            pinned_levels: match random.below(5) {
                0 => PinnedLevels::Auto,
                levels => PinnedLevels::Levels(levels as u8 - 1),
            },
            experiments: LsmExperiments {
                level0_runs_compact: runs,
                level0_runs_slow: runs + 2,
                level0_runs_stop: runs + 4,
                base_level_bytes: (4 + random.below(56)) << 10,
            },
        }
    }

    /// Pinned is what the plan says, and no more than may be.
    fn check_idle(index: &Lsm) {
        let view = index.view_for_tests();
        let (pins, memory) = (&view.common.pins, view.common.env.pin_memory());
        let pinned = |slot: &glintdb_runs::Slot| slot.table.is_pinned();
        assert!(
            view.levels
                .slots()
                .all(|(place, slot)| !pinned(slot) || pins.covers(place.level))
        );
        assert!(memory.used_bytes() <= memory.limit_bytes());
    }

    /// Everything is at one level.
    fn check_compacted(stats: &IndexStats) {
        let used = stats.levels.iter().filter(|level| level.parts > 0).count();
        assert!(used <= 1);
    }

    fn check_shape(index: &Lsm, pointed: &mut dyn FnMut(ValuePointer)) {
        let view = index.view_for_tests();
        for pair in view.levels.runs.windows(2) {
            assert!(pair[0].id > pair[1].id);
        }
        for (_, tables) in view.levels.sources() {
            for pair in tables.slots().windows(2) {
                assert!(!pair[0].range.overlaps(&pair[1].range));
            }
            for slot in tables.slots() {
                let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
                let mut cursor = slot
                    .table
                    .cursor(lower, upper, Direction::Forward, Purpose::Read);
                while cursor.advance().unwrap() {
                    assert!(slot.range.contains(cursor.key()));
                    if let EntryRef::Pointer(pointer) = cursor.value() {
                        pointed(pointer);
                    }
                }
            }
        }
    }
}

/// Options with which a few hundred entries fill several levels.
pub(crate) fn small_options() -> LsmOptions {
    LsmOptions {
        size_ratio: 2,
        table_bytes_target: 16 << 10,
        experiments: LsmExperiments {
            level0_runs_compact: 2,
            level0_runs_slow: 4,
            level0_runs_stop: 8,
            base_level_bytes: 24 << 10,
        },
        ..LsmOptions::default()
    }
}

/// Random options of a new index.
pub(crate) fn options() -> impl Strategy<Value = LsmOptions> {
    (2u32..5, 1u32..4, 0u32..2, 4u64..40, 4u64..60, 1u32..=6).prop_map(
        |(ratio, runs, filter, table, base, levels_max)| LsmOptions {
            levels_max,
            size_ratio: ratio,
            table_bytes_target: table << 10,
            filter_bits_per_key: filter * 10,
            experiments: LsmExperiments {
                level0_runs_compact: runs,
                level0_runs_slow: runs + 2,
                level0_runs_stop: runs + 4,
                base_level_bytes: base << 10,
            },
            ..small_options()
        },
    )
}
