//! Random histories of an index with random options, against a model.

use super::harness::{LsmKind, options};
use glintdb_indextest::{op, run_history};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn prop_index_answers_as_the_model_does(
        options in options(),
        ops in proptest::collection::vec(op(), 1..60),
        seed: u64,
    ) {
        run_history::<LsmKind>(options, &ops, seed);
    }
}
