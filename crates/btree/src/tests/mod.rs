//! The whole index against a model: random runs, slices, views, reopenings, crashes and
//! relocations.
#![allow(
    clippy::cast_possible_truncation,
    reason = "random numbers are cut to what is needed"
)]

mod batches;
mod golden;
mod harness;
mod limits;
mod reshape;

use glintdb_indextest::{Kind, full_compaction, op, run_history};
use harness::{BTreeKind, options};
use proptest::prelude::*;

#[test]
fn power_cut_before_the_manifest_leaves_no_effect() {
    let options = BTreeKind::small_options();
    glintdb_indextest::power_cut_before_the_manifest_leaves_no_effect::<BTreeKind>(
        &options,
        full_compaction,
    );
}

#[test]
fn power_cut_in_a_cleaning_leaves_no_effect() {
    let options = reshape::options();
    glintdb_indextest::power_cut_before_the_manifest_leaves_no_effect::<BTreeKind>(
        &options,
        |index| {
            let cleaning = index.pick_job().unwrap();
            assert!(
                cleaning.name().starts_with("cleaning"),
                "{}",
                cleaning.name()
            );
            Some(cleaning)
        },
    );
}

#[test]
fn error_at_every_operation_leaves_nothing_behind() {
    let options = BTreeKind::small_options();
    glintdb_indextest::error_at_every_operation_leaves_nothing_behind::<BTreeKind>(&options);
}

#[test]
fn error_at_every_operation_of_a_cleaning_leaves_nothing_behind() {
    let options = reshape::options();
    glintdb_indextest::error_at_every_operation_leaves_nothing_behind::<BTreeKind>(&options);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn prop_index_answers_as_the_model_does(
        options in options(),
        ops in proptest::collection::vec(op(), 1..60),
        seed: u64,
    ) {
        run_history::<BTreeKind>(options, &ops, seed);
    }
}
