//! The B+tree index as a kind under test.

use crate::directory::Directory;
use crate::edit::Edit;
use crate::node::Child;
use crate::picture::Picture;
use crate::{BTree, BTreeExperiments, BTreeOptions};
use glintdb_core::index::{IndexStats, IndexView};
use glintdb_core::{FileId, Result, ValuePointer};
use glintdb_indextest::{Kind, Random};
use glintdb_runs::{Compression, IndexEnv};
use proptest::prelude::*;
use std::sync::Arc;

/// The B+tree index.
pub(super) struct BTreeKind;

/// A B+tree index beside a model of it.
pub(super) type Harness = glintdb_indextest::Harness<BTreeKind>;

/// Options with which a few hundred entries fill a few leaves, and a settling takes a few slices.
pub(super) fn small_options() -> BTreeOptions {
    BTreeOptions {
        table_bytes_target: 16 << 10,
        experiments: BTreeExperiments {
            shelf_runs_settle: 2,
            shelf_runs_slow: 4,
            shelf_runs_stop: 8,
            slice_bytes: 16 << 10,
            leaf_batch: 3,
            ..BTreeExperiments::default()
        },
        ..BTreeOptions::default()
    }
}

fn random_options(random: &mut Random) -> BTreeOptions {
    let settle = 1 + random.below(4) as u32;
    BTreeOptions {
        table_bytes_target: (4 + random.below(36)) << 10,
        filter_bits_per_key: 10 * random.below(2) as u32,
        compression: match random.below(2) {
            0 => Compression::None,
            _ => Compression::Lz4,
        },
        block_bytes: 4096 * (1 + random.below(2) as u32),
        experiments: BTreeExperiments {
            shelf_runs_settle: settle,
            shelf_runs_slow: settle + 2,
            shelf_runs_stop: settle + 4,
            slice_bytes: 4096 << random.below(6),
            leaf_batch: 1 + random.below(8) as u32,
            reshape_fan: 2 + random.below(3) as u32,
            reshape_filter_bits: 10 * random.below(2) as u32,
            reshape_bits: 4 + random.below(3) as u32,
        },
        reshape: random.below(2) == 0,
        reshape_share: 1,
    }
}

/// Random options of a new index.
pub(super) fn options() -> impl Strategy<Value = BTreeOptions> {
    any::<u64>().prop_map(|seed| random_options(&mut Random(seed)))
}

impl Kind for BTreeKind {
    type Index = BTree;
    type Options = BTreeOptions;

    fn create(env: IndexEnv, options: BTreeOptions) -> Result<Arc<BTree>> {
        BTree::create(env, options)
    }

    fn open(env: IndexEnv, options: BTreeOptions, edits: &[Vec<u8>]) -> Result<Arc<BTree>> {
        BTree::open(env, options, edits)
    }

    fn encode(options: &BTreeOptions) -> Vec<u8> {
        let mut encoded = Vec::new();
        options.encode(&mut encoded);
        encoded
    }

    fn new_files(edit: &[u8]) -> Vec<FileId> {
        BTree::file_changes(edit).unwrap();
        Edit::decode(edit).unwrap().new_files().collect()
    }

    fn small_options() -> BTreeOptions {
        small_options()
    }

    fn other_options(random: &mut Random) -> BTreeOptions {
        random_options(random)
    }

    /// No file has nothing that the tree needs, except for range tombstones.
    fn check_idle(index: &BTree) {
        let view = index.view_for_tests();
        for file in view.picture.files.values() {
            let tombstones = file.file.leaves().map(|slot| slot.meta().range_tombstones);
            assert!(file.live.nodes > 0 || tombstones > Some(0));
        }
    }

    /// Everything is in the tree, which has no garbage.
    fn check_compacted(stats: &IndexStats) {
        assert_eq!(stats.levels[0].parts, 0);
        assert_eq!(stats.live_bytes, stats.bytes);
    }

    fn check_shape(index: &BTree, pointed: &mut dyn FnMut(ValuePointer)) {
        let view = index.view_for_tests();
        let runs = &view.picture.runs;
        assert!(runs.is_sorted_by(|newer, older| newer.id > older.id));
        view.verify(
            &mut |error| panic!("{error}"),
            &mut |pointer| pointed(pointer),
            &mut |_, _| {},
            &mut |_| {},
        );
        check_directory(&view.picture);
    }
}

/// The directory that slices have handed on is the one that a reader of the files gets.
fn check_directory(picture: &Picture) {
    let (kept, loaded) = (picture.directory().unwrap(), Directory::load(picture));
    let loaded = loaded.unwrap();
    let order = |node: &Child| (node.number, node.offset);
    let upper = |directory: &Directory| {
        let mut upper = directory.upper.clone();
        upper.sort_by_key(order);
        upper
    };
    assert_eq!(upper(kept), upper(&loaded));
    assert_eq!(kept.branches().len(), loaded.branches().len());
    for at in 0..kept.branches().len() {
        assert_eq!(kept.branches()[at].node, loaded.branches()[at].node);
        assert_eq!(kept.lower_of(at), loaded.lower_of(at));
        let children = |directory: &Directory| directory.separated(at, picture).unwrap();
        assert_eq!(children(kept), children(&loaded));
    }
}
