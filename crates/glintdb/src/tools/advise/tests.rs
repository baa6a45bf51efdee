//! The predictions are sound, and the recommended index is the best of those predicted.

use super::*;
use crate::index_kinds::btree::BTreeOptions;
use proptest::prelude::*;

fn options(memory: usize) -> Options {
    Options::default().memory_budget_bytes(memory)
}

/// The best LSM tree.
fn lsm(advice: &Advice) -> &Prediction {
    let best = &advice.kinds[0];
    assert_eq!(best.options.index, IndexKind::Lsm);
    best
}

#[test]
fn pins_and_heights_trade_reads_for_writes_and_memory_as_in_the_paper() {
    let workload = Workload::new(500e6, 32.0, 1000.0);
    let advice = advise(&workload, &options(64 << 30), &KeyspaceOptions::default()).unwrap();
    for a in &advice.shapes {
        for b in &advice.shapes {
            if a.levels == b.levels
                && a.level_bytes == b.level_bytes
                && a.pinned_levels < b.pinned_levels
            {
                assert!(a.reads_max > b.reads_max && a.pinned_bytes < b.pinned_bytes);
                assert!(a.writes_of_a_flushed_byte == b.writes_of_a_flushed_byte);
            }
        }
    }
    let least_writes = |levels| {
        let of = advice.shapes.iter().filter(|shape| shape.levels == levels);
        of.map(|shape| shape.writes_of_a_flushed_byte)
            .fold(f64::MAX, f64::min)
    };
    assert!(least_writes(1) > 4.0 * least_writes(2));
    assert!(least_writes(2) > least_writes(3));
    // With all but the last level pinned never more than one read (Table 1).
    let pinned: Vec<_> = advice
        .shapes
        .iter()
        .filter(|shape| shape.fits && shape.pinned_levels == shape.levels)
        .collect();
    assert!(!pinned.is_empty() && pinned.iter().all(|shape| shape.reads_max == 1));
}

#[test]
fn readers_get_pins_and_writers_a_higher_tree() {
    let workload = Workload::new(200e6, 16.0, 100.0);
    let best = |read| {
        let workload = workload.clone().mix(read, 0.0);
        lsm(&advise(&workload, &options(1 << 30), &KeyspaceOptions::default()).unwrap()).clone()
    };
    let (reads, writes) = (best(99.0), best(0.0));
    assert!(
        reads.reads_mean <= writes.reads_mean,
        "{reads:?} {writes:?}"
    );
    assert!(writes.writes_of_a_flushed_byte <= reads.writes_of_a_flushed_byte);
}

/// Long scans take so much of the device that all shapes seem equal.
#[test]
fn of_shapes_that_scan_equally_fast_one_that_writes_little_is_recommended() {
    let mut workload = Workload::new(1e9, 16.0, 1000.0).mix(50.0, 30.0);
    workload.scan_records = 1000.0;
    let advice = advise(&workload, &options(4 << 30), &KeyspaceOptions::default()).unwrap();
    let best = lsm(&advice);
    let as_good = |shape: &&Prediction| {
        shape.fits && shape.reads_max <= best.reads_max && shape.device_us < best.device_us * 1.005
    };
    let written = |shape: &Prediction| shape.write_amplification_index;
    let least = (advice.shapes.iter().filter(as_good).map(written)).fold(f64::MAX, f64::min);
    assert!(written(best) < 1.5 * least, "{best:?}");
}

/// The example of `glintdb advise --help`.
#[test]
fn recommended_shape_of_the_help_example_is_within_one_percent_of_the_fastest() {
    let options = options(16 << 30);
    let workload = Workload::of_capacity(1e12_f64, 16.0, 1000.0, &options).mix(90.0, 5.0);
    let advice = advise(&workload, &options, &KeyspaceOptions::default()).unwrap();
    assert_recommended_is_right(&workload, &options, &advice);
    // The size ratio of the recommended shape is that of its levels, rounded up.
    let step = greatest_step(&lsm(&advice).level_bytes);
    let ratio = f64::from(lsm(&advice).options.lsm.size_ratio);
    assert!(step <= ratio && ratio < step + 2.0, "{step} {ratio}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 48 }))]

    #[test]
    fn prop_recommended_shape_is_within_one_percent_of_the_fastest(
        records in 1e3..1e10_f64,
        key_bytes in 1.0..200.0_f64,
        value_bytes in 0.0..20_000.0_f64,
        memory_mib in 64..65_536_usize,
        read_percent in 0.0..100.0_f64,
        scan_share in 0.0..1.0_f64,
        scan_records in 1.0..2000.0_f64,
    ) {
        let scan_percent = (100.0 - read_percent) * scan_share;
        let workload = Workload {
            scan_records,
            ..Workload::new(records, key_bytes, value_bytes).mix(read_percent, scan_percent)
        };
        let options = options(memory_mib << 20);
        let advice = advise(&workload, &options, &KeyspaceOptions::default());
        if let Ok(advice) = advice && advice.shapes.iter().any(|shape| shape.fits) {
            assert_recommended_is_right(&workload, &options, &advice);
        }
    }
}

fn assert_recommended_is_right(workload: &Workload, options: &Options, advice: &Advice) {
    let best = lsm(advice);
    let fitting = || advice.shapes.iter().filter(|shape| shape.fits);
    let fastest_us = fitting()
        .map(|shape| shape.device_us)
        .fold(f64::MAX, f64::min);
    assert!(
        best.fits && best.device_us <= 1.01 * fastest_us,
        "{} µs is recommended, {fastest_us} µs is possible",
        best.device_us
    );
    // Among the shapes that are as fast, none is cheaper.
    let cost = |shape: &Prediction| (shape.reads_max, shape.write_amplification_index);
    for shape in fitting().filter(|shape| shape.device_us <= 1.01 * fastest_us) {
        assert!(
            cost(shape) >= cost(best),
            "{shape:?} is cheaper than {best:?}"
        );
    }
    // The options of every shape lead to that shape.
    for shape in fitting() {
        let lsm = &shape.options.lsm;
        assert_eq!(lsm.levels_max, shape.levels);
        assert_eq!(
            lsm.pinned_levels.to_string(),
            shape.pinned_levels.to_string()
        );
        assert_eq!(&predict(workload, options, &shape.options).unwrap(), shape);
    }
}

#[test]
fn nonsense_is_refused_in_words() {
    type Spoil = fn(&mut Workload);
    let bad: [(&str, Spoil); 5] = [
        ("records", |w| w.records = 0.0),
        ("key_bytes", |w| w.key_bytes = f64::NAN),
        ("value_bytes", |w| w.value_bytes = -1.0),
        ("read_percent", |w| w.read_percent = 101.0),
        ("together", |w| {
            (w.read_percent, w.scan_percent) = (60.0, 60.0)
        }),
    ];
    for (words, spoil) in bad {
        let mut workload = Workload::new(1e6, 16.0, 100.0);
        spoil(&mut workload);
        let error = advise(&workload, &options(1 << 30), &KeyspaceOptions::default()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = advise(
        &Workload::new(1e12, 16.0, 100.0),
        &options(8 << 20),
        &KeyspaceOptions::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("no index"), "{error}");
}

#[test]
fn each_kind_is_recommended_for_the_workload_that_it_is_for() {
    let advice = |records, memory_mib: usize, read, scan, scan_records| {
        let workload = Workload {
            scan_records,
            ..Workload::new(records, 16.0, 100.0).mix(read, scan)
        };
        let options = options(memory_mib << 20);
        let advice = advise(&workload, &options, &KeyspaceOptions::default()).unwrap();
        let name = advice.best.options.index_name();
        assert!(advice.reason.starts_with(name), "{}", advice.reason);
        assert_eq!(advice.kinds.len(), 3);
        (name, advice.reason)
    };
    // Random writes to far more than fits the memory.
    let (name, reason) = advice(10e6, 1024, 0.0, 0.0, 1.0);
    assert_eq!(name, "btree-reshaped", "{reason}");
    assert!(
        reason.contains("; btree takes") && reason.ends_with("mostly for writes"),
        "{reason}"
    );
    // Scans beyond the memory, with little memory for filters.
    let (name, reason) = advice(10e6, 32, 0.0, 100.0, 50.0);
    assert_eq!(name, "btree", "{reason}");
    assert!(
        reason.contains("lsm takes") && reason.contains("mostly for scans"),
        "{reason}"
    );
    // Two records: whatever holds them.
    let (name, reason) = advice(2.0, 1024, 100.0, 0.0, 1.0);
    assert_eq!(name, "lsm", "{reason}");
    assert!(reason.contains("btree takes 0.0 µs more"), "{reason}");
    // Lookups.
    let (name, reason) = advice(10e6, 1024, 100.0, 0.0, 1.0);
    assert_eq!(name, "lsm", "{reason}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 48 }))]

    /// No figure is negative or endless, and more memory makes lookups in a plain tree no slower.
    /// (A reshaped tree has more runs then, and more of their filters err.)
    #[test]
    fn prop_predictions_of_trees_are_sound(
        records in 1e3..1e10_f64,
        value_bytes in 0.0..20_000.0_f64,
        memory_mib in 64..65_536_usize,
        read_percent in 0.0..100.0_f64,
        reshape: bool,
    ) {
        let workload = Workload::new(records, 16.0, value_bytes).mix(read_percent, 0.0);
        let keyspace = KeyspaceOptions::default().index(IndexKind::BTree);
        let keyspace = keyspace.btree(BTreeOptions::default().reshape(reshape));
        let less = predict(&workload, &options(memory_mib << 20), &keyspace).unwrap();
        let more = predict(&workload, &options(memory_mib << 21), &keyspace).unwrap();
        for figure in [less.device_us, less.lookup_us, less.scan_us, less.write_us, less.reads_mean] {
            prop_assert!(figure.is_finite() && figure >= 0.0, "{less:?}");
        }
        prop_assert!(reshape || more.lookup_us <= less.lookup_us + 1e-9, "{less:?} {more:?}");
        prop_assert!(less.writes_of_a_flushed_byte >= 1.0, "{less:?}");
    }
}
