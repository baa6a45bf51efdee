//! The sizes that levels should have. Pure: looks at levels, touches nothing.
//!
//! A byte that comes to level 0 is written `B/b` times more when level 0, of `b` bytes, is merged into a base level of `B`, and about [`OVERLAP`]`·C/B` times more for each step from a level of `B` to one of `C`.
//! With the deepest level's size given, the sum is least where all these terms are equal; and a further level pays where they come to more than [`MEETS_MAX`] each (`docs/decisions/016-level-sizes.md`).

use crate::edit::LEVELS;
use crate::levels::Levels;
use crate::options::LsmOptions;

/// The deepest level.
pub(crate) const BOTTOM: u8 = {
    assert!(LEVELS == 7);
    6
};

/// Share of the ratio of two levels that moving down a byte rewrites: less than all, for the tables that meet least are taken first.
const OVERLAP: f64 = 0.6;
/// Level 0 is merged into a level of at most this many times what it brings before another level is put above it.
pub(crate) const MEETS_MAX: u64 = 4;

/// What decides the sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// A level is at most so many times as large as the one above it.
    pub(crate) ratio: u64,
    /// Size to which the base level grows before another is put above it.
    pub(crate) base_bytes_max: u64,
    /// No level is put above this one.
    pub(crate) top: u8,
    /// What a compaction of level 0 brings, where sizes are spread evenly between that and the deepest level; `None`: each is `ratio` times the one above.
    pub(crate) batch_bytes: Option<u64>,
}

impl Shape {
    /// By the options, for flushes that bring `run_bytes` each.
    pub(crate) fn new(options: &LsmOptions, run_bytes: u64) -> Shape {
        let ratio = u64::from(options.size_ratio);
        // 1 to 6 of them.
        let levels_max = u8::try_from(options.levels_max).unwrap_or(BOTTOM);
        let top = (BOTTOM + 1).saturating_sub(levels_max).clamp(1, BOTTOM);
        if options.experiments.base_level_bytes != 0 {
            return Shape {
                ratio,
                top,
                base_bytes_max: options.experiments.base_level_bytes,
                batch_bytes: None,
            };
        }
        let batch = run_bytes
            .max(1)
            .saturating_mul(options.experiments.level0_runs_compact.into());
        Shape {
            ratio,
            top,
            base_bytes_max: batch.saturating_mul(MEETS_MAX),
            batch_bytes: Some(batch),
        }
    }
}

/// Sizes that levels should have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Targets {
    /// The level that level 0 is compacted to.
    pub(crate) base: u8,
    /// Bytes a level may hold; 0 for levels above the base, level 0 and the bottom.
    pub(crate) bytes: [u64; LEVELS],
}

/// Computes the targets.
pub(crate) fn targets(levels: &Levels, shape: &Shape) -> Targets {
    let Some(first) = levels.first_level() else {
        return Targets {
            base: BOTTOM,
            bytes: [0; LEVELS],
        };
    };
    let largest = levels.below0().map(|(_, tables)| tables.bytes()).max();
    sizes(first, largest.unwrap_or(0), shape)
}

/// Of a tree whose first level that holds anything is `first`.
fn sizes(first: u8, largest: u64, shape: &Shape) -> Targets {
    match shape.batch_bytes {
        Some(batch) => spread(first, largest, batch, shape),
        None => by_ratio(first, largest, shape),
    }
}

/// Bytes of the levels below level 0, from the one that level 0 is compacted to, of an index that was written by flushes of `run_bytes` until the deepest level had `deepest_bytes`.
#[must_use]
pub fn level_bytes(options: &LsmOptions, run_bytes: u64, deepest_bytes: u64) -> Vec<u64> {
    let targets = sizes(BOTTOM, deepest_bytes, &Shape::new(options, run_bytes));
    let mut bytes = targets.bytes[usize::from(targets.base)..usize::from(BOTTOM)].to_vec();
    bytes.push(deepest_bytes);
    bytes
}

/// Each level is `ratio` times the one above it, upwards from the deepest one.
fn by_ratio(first: u8, largest: u64, shape: &Shape) -> Targets {
    let mut size = largest;
    for _ in first..BOTTOM {
        size /= shape.ratio;
    }
    let mut base = first;
    while base > shape.top && size > shape.base_bytes_max {
        base -= 1;
        size /= shape.ratio;
    }
    let mut bytes = [0; LEVELS];
    let mut size = size.max(shape.base_bytes_max / shape.ratio);
    for level in base..BOTTOM {
        bytes[usize::from(level)] = size;
        size = size.saturating_mul(shape.ratio);
    }
    Targets { base, bytes }
}

/// As few levels as keep every step within its limit, with equal steps.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes to aim at: no digit beyond the third matters, and none is negative"
)]
fn spread(first: u8, largest: u64, batch: u64, shape: &Shape) -> Targets {
    let parts = largest as f64 / batch as f64;
    // What one step meets, with `levels` levels: `parts = meets · (meets / OVERLAP)^(levels - 1)`.
    let meets = |levels: i32| (parts * OVERLAP.powi(levels - 1)).powf(1.0 / f64::from(levels));
    let meets_max = (MEETS_MAX as f64).min(shape.ratio as f64 * OVERLAP);
    let mut base = first;
    while base > shape.top && meets(i32::from(BOTTOM + 1 - base)) > meets_max {
        base -= 1;
    }
    let meets = meets(i32::from(BOTTOM + 1 - base));
    let mut bytes = [0; LEVELS];
    let mut size = batch as f64 * meets;
    for level in base..BOTTOM {
        // Less than half of what comes at once is not worth aiming at.
        bytes[usize::from(level)] = (size as u64).max(batch / 2);
        size *= meets / OVERLAP;
    }
    Targets { base, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LsmExperiments;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_size_that_is_given_keeps_the_ratio_between_all_levels() {
        let options = LsmOptions {
            experiments: LsmExperiments {
                base_level_bytes: 512 * MIB,
                ..LsmExperiments::default()
            },
            ..LsmOptions::default()
        };
        let shape = Shape::new(&options, 7);
        let one = by_ratio(6, 512 * MIB, &shape);
        assert_eq!((one.base, one.bytes), (6, [0; LEVELS]));
        let three = by_ratio(6, 50_000 * MIB, &shape);
        assert_eq!(three.base, 4);
        assert_eq!(three.bytes, [0, 0, 0, 0, 500 * MIB, 5000 * MIB, 0]);
    }

    #[test]
    fn a_level_is_added_where_level_0_would_rewrite_four_times_what_it_brings() {
        let shape = Shape::new(&LsmOptions::default(), 4 * MIB);
        let batch = 16 * MIB;
        assert_eq!(shape.batch_bytes, Some(batch));
        assert_eq!(shape.base_bytes_max, 4 * batch);
        let base = |parts: u64| spread(6, parts * batch, batch, &shape).base;
        assert_eq!((base(0), base(4), base(5)), (6, 6, 5));
        // 4 · (4 / 0.6) = 26.7 and 4 · (4 / 0.6)² = 177.8 batches.
        assert_eq!((base(26), base(27), base(177), base(178)), (5, 4, 4, 3));
        // A level that has something stays.
        assert_eq!(spread(4, batch, batch, &shape).base, 4);
    }

    #[test]
    fn there_are_as_many_levels_as_may_be_and_their_steps_grow_instead() {
        let bytes = |levels_max, base_level_bytes| {
            let options = LsmOptions {
                levels_max,
                experiments: LsmExperiments {
                    base_level_bytes,
                    ..LsmExperiments::default()
                },
                ..LsmOptions::default()
            };
            level_bytes(&options, 4 * MIB, 64_000 * MIB)
        };
        let high = bytes(6, 0);
        assert_eq!(high.len(), 5);
        for levels_max in 1..6 {
            let levels = bytes(levels_max, 0);
            assert_eq!(levels.len(), levels_max as usize);
            assert!(levels[0] >= high[0] && levels.last() == high.last());
            assert_eq!(bytes(levels_max, 64 * MIB).len(), levels.len().min(4));
        }
        // The square root of 4,000 batches, and of the share that a step down rewrites.
        let two = bytes(2, 0);
        assert_eq!(two[0] / (16 * MIB), 48);
    }

    #[test]
    fn runs_of_next_to_nothing_do_not_make_a_tree_of_many_levels() {
        let volume = glintdb_simdisk::MemVolume::new();
        let env = glintdb_runs::IndexEnv {
            run_bytes: MIB,
            ..crate::tests::harness::env(&volume)
        };
        let common = crate::common::Common::new(env, LsmOptions::default());
        let batch = || {
            let shape = common.shape(&common.options());
            shape.batch_bytes.unwrap()
        };
        assert_eq!(batch(), 4 * MIB);
        for _ in 0..4 {
            common.note_run(2 * MIB);
        }
        assert!((6 * MIB..8 * MIB).contains(&batch()), "{}", batch());
        for _ in 0..100 {
            common.note_run(100);
        }
        assert_eq!(batch(), 4 * MIB / 16);
    }

    proptest! {
        #[test]
        fn prop_levels_grow_downwards_by_at_most_the_ratio(
            largest in 0u64..1 << 50,
            batch in 1u64 << 10..1 << 34,
            ratio in 2u64..=100,
            first in 1u8..=6,
        ) {
            let shape = Shape { ratio, top: 1, base_bytes_max: 0, batch_bytes: Some(batch) };
            let targets = spread(first, largest, batch, &shape);
            prop_assert!((1..=first).contains(&targets.base));
            let mut sizes: Vec<u64> = targets.bytes[usize::from(targets.base)..usize::from(BOTTOM)].to_vec();
            prop_assert!(sizes.iter().all(|size| *size >= batch / 2));
            prop_assert!(sizes.is_sorted());
            sizes.push(largest);
            if targets.base > 1 {
                for pair in sizes.windows(2) {
                    // A little more, for the rounding.
                    prop_assert!(pair[1] as f64 <= pair[0] as f64 * ratio as f64 * 1.01 + 1.0, "{sizes:?}");
                }
                prop_assert!(sizes[0] <= batch * MEETS_MAX || sizes.len() == 1);
            }
        }
    }
}
