//! Compares pages with the code: `docs/options.md` lists every option with its default and limits,
//! and the program in the README is the compiled example.

use glintdb::{
    BATCH_BYTES_MAX, BTreeExperiments, BTreeOptions, Compression, DirectIo, Durability, ErrorKind,
    Experiments, GcReads, IndexKind, Isolation, KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX,
    KeyspaceOptions, LOG_RING_BYTES, LOG_SEGMENT_BYTES, LsmExperiments, LsmOptions,
    MEMORY_BUDGET_BYTES_MIN, Options, READ_DEPTH_MAX, REPLAY_BYTES_MAX, ReadEngine,
    SEPARATE_MIN_BYTES, TransactionOptions, VALUE_BYTES_MAX,
};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../../docs/options.md");

/// The rows of all tables below `heading` whose first column is headed `column`: the name in the
/// first cell, with the other cells.
fn rows(heading: &str, column: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let (_, section) = PAGE.split_once(heading).unwrap();
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let lines: Vec<_> = section.lines().collect();
    let mut rows = BTreeMap::new();
    let mut wanted = false;
    for (at, line) in lines.iter().enumerate() {
        if !line.starts_with("| ") {
            continue;
        }
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next().unwrap().trim_matches('`');
        let rule = lines.get(at + 1);
        if rule.is_some_and(|rule| rule.starts_with("|---")) {
            wanted = name == column;
        } else if wanted {
            let twice = rows.insert(name, cells.collect());
            assert!(twice.is_none(), "{name} is in {heading} twice");
        }
    }
    rows
}

/// Bytes as the page writes them.
fn bytes(value: u64) -> String {
    match value {
        0 => "0".to_owned(),
        _ if value.is_multiple_of(1 << 30) => format!("{}G", value >> 30),
        _ if value.is_multiple_of(1 << 20) => format!("{}M", value >> 20),
        _ if value.is_multiple_of(1 << 10) => format!("{}K", value >> 10),
        _ => value.to_string(),
    }
}

fn word(debug: impl std::fmt::Debug) -> String {
    format!("{debug:?}").to_lowercase()
}

/// Asserts that the option tables below `heading` have exactly the expected names, each with its
/// default and limits.
fn hold(heading: &str, expected: &[(&str, String, String)]) {
    let mut rows = rows(heading, "option");
    for (name, default, limits) in expected {
        let cells = rows
            .remove(name)
            .unwrap_or_else(|| panic!("`{name}` is not in {heading}"));
        assert_eq!((cells[0], cells[1]), (&**default, &**limits), "{name}");
    }
    assert!(rows.is_empty(), "{heading} has unknown options: {rows:?}");
}

#[test]
fn options_page_lists_every_database_option() {
    let Options {
        create_if_missing,
        error_if_exists,
        accept_missing_ring,
        durability,
        memory_budget_bytes: _,
        background_threads: _,
        separate_min_bytes,
        log_segment_bytes,
        log_ring_bytes,
        replay_bytes_max,
        snapshot_pin_bytes_max,
        direct_io,
        placement,
        space_amp_max,
        garbage_bytes_min,
        progress,
        ..
    } = Options::default();
    assert!(progress.is_none());
    assert_eq!(
        (log_ring_bytes, snapshot_pin_bytes_max, garbage_bytes_min),
        (0, 0, 0),
        "0 selects a value that follows from other options"
    );
    assert_eq!(
        (separate_min_bytes, log_segment_bytes, replay_bytes_max),
        (SEPARATE_MIN_BYTES, LOG_SEGMENT_BYTES, REPLAY_BYTES_MAX)
    );
    assert_eq!(direct_io, DirectIo::Auto);
    let row = |name, default: &str, limits: &str| (name, default.to_owned(), limits.to_owned());
    hold(
        "## `Options`",
        &[
            row("create_if_missing", &word(create_if_missing), ""),
            row("error_if_exists", &word(error_if_exists), ""),
            row("accept_missing_ring", &word(accept_missing_ring), ""),
            row("durability", &durability.to_string(), "buffered, os, sync"),
            row(
                "memory_budget_bytes",
                "a quarter of RAM, at most 1G",
                &format!("from {}", bytes(MEMORY_BUDGET_BYTES_MIN as u64)),
            ),
            row("background_threads", "cores, at most 4", "0 to 64"),
            row(
                "separate_min_bytes",
                &separate_min_bytes.to_string(),
                "from 1",
            ),
            row("log_segment_bytes", &bytes(log_segment_bytes), "64K to 1G"),
            row(
                "log_ring_bytes",
                &format!(
                    "0: a sixteenth of the budget, at most {}",
                    bytes(LOG_RING_BYTES as u64)
                ),
                "64K to 1G, a multiple of 4096, at most a quarter of the budget",
            ),
            row(
                "replay_bytes_max",
                &bytes(replay_bytes_max),
                "at least `log_segment_bytes`",
            ),
            row("snapshot_pin_bytes_max", "0: a quarter of the budget", ""),
            row("direct_io", &word(direct_io), "auto, on, off"),
            row(
                "placement",
                &placement.to_string(),
                "striping, isolation:1:1, isolation:3:3:2, with any weights",
            ),
            row("space_amp_max", &space_amp_max.to_string(), "1.1 to 100"),
            row("garbage_bytes_min", "0: four log segments", ""),
            row("progress", "none", ""),
        ],
    );
}

#[test]
fn options_page_lists_every_option_for_experiments() {
    let Experiments {
        read_engine,
        read_depth,
        sort_reads,
        merge_reads,
        overlap_reads,
        kernel_read_ahead,
        value_batch,
        read_batch_max,
        help,
        hot_keys,
        cache_written_min_bytes,
        range_cache,
        compact_for_scans,
        seek_after_deleted,
        order_for_scans,
        value_gc,
        value_gc_reads,
        pace_writers,
        recycle_files,
        ..
    } = Experiments::default();
    assert_eq!(
        (read_engine, value_gc_reads),
        (ReadEngine::Auto, GcReads::Auto)
    );
    let LsmExperiments {
        level0_runs_compact,
        level0_runs_slow,
        level0_runs_stop,
        base_level_bytes,
        ..
    } = LsmExperiments::default();
    assert_eq!(base_level_bytes, 0);
    let BTreeExperiments {
        shelf_runs_settle,
        shelf_runs_slow,
        shelf_runs_stop,
        slice_bytes,
        leaf_batch,
        reshape_fan,
        reshape_filter_bits,
        reshape_bits,
        ..
    } = BTreeExperiments::default();
    let row = |name, default: &str, limits: &str| (name, default.to_owned(), limits.to_owned());
    let switch = |name, default: bool| row(name, &word(default), "true, false");
    hold(
        "## Experiments",
        &[
            row(
                "read_engine",
                &word(read_engine),
                "auto, io_uring, libaio, threads, sync",
            ),
            row(
                "read_depth",
                &read_depth.to_string(),
                &format!("1 to {READ_DEPTH_MAX}"),
            ),
            switch("sort_reads", sort_reads),
            switch("merge_reads", merge_reads),
            switch("overlap_reads", overlap_reads),
            switch("kernel_read_ahead", kernel_read_ahead),
            row(
                "value_batch",
                &value_batch.to_string(),
                &format!("1 to {READ_DEPTH_MAX}"),
            ),
            row(
                "read_batch_max",
                &read_batch_max.to_string(),
                &format!("0 to {READ_DEPTH_MAX}"),
            ),
            switch("help", help),
            switch("hot_keys", hot_keys),
            row(
                "cache_written_min_bytes",
                &bytes(cache_written_min_bytes as u64),
                "",
            ),
            switch("range_cache", range_cache),
            switch("compact_for_scans", compact_for_scans),
            row("seek_after_deleted", &seek_after_deleted.to_string(), ""),
            switch("order_for_scans", order_for_scans),
            switch("value_gc", value_gc),
            row(
                "value_gc_reads",
                &word(value_gc_reads),
                "auto, segments, index",
            ),
            switch("pace_writers", pace_writers),
            switch("recycle_files", recycle_files),
            row(
                "level0_runs_compact",
                &level0_runs_compact.to_string(),
                "1 to 1000",
            ),
            row(
                "level0_runs_slow",
                &level0_runs_slow.to_string(),
                "above `level0_runs_compact`, to 10000",
            ),
            row(
                "level0_runs_stop",
                &level0_runs_stop.to_string(),
                "above `level0_runs_slow`, to 10000",
            ),
            row(
                "base_level_bytes",
                "0: four times what `level0_runs_compact` flushes bring",
                "4K to 1024G",
            ),
            row(
                "shelf_runs_settle",
                &shelf_runs_settle.to_string(),
                "1 to 1000",
            ),
            row(
                "shelf_runs_slow",
                &shelf_runs_slow.to_string(),
                "above `shelf_runs_settle`, to 10000",
            ),
            row(
                "shelf_runs_stop",
                &shelf_runs_stop.to_string(),
                "above `shelf_runs_slow`, to 10000",
            ),
            row("slice_bytes", &bytes(slice_bytes), "4K to 4G"),
            row("leaf_batch", &leaf_batch.to_string(), "1 to 1024"),
            row("reshape_fan", &reshape_fan.to_string(), "2 to 64"),
            row(
                "reshape_filter_bits",
                &reshape_filter_bits.to_string(),
                "0 to 64",
            ),
            row("reshape_bits", &reshape_bits.to_string(), "4 to 56"),
        ],
    );
}

#[test]
fn machine_dependent_defaults_are_within_documented_limits() {
    let options = Options::default();
    assert!((MEMORY_BUDGET_BYTES_MIN..=1 << 30).contains(&options.memory_budget_bytes));
    assert!((1..=4).contains(&options.background_threads));
}

#[test]
fn values_beyond_documented_limits_are_refused_by_name() {
    let experiment = |experiments| Options::default().experiments(experiments);
    let beyond: [(&str, Options); 17] = [
        ("space_amp_max", Options::default().space_amp_max(1.0)),
        ("space_amp_max", Options::default().space_amp_max(f64::NAN)),
        (
            "memory_budget_bytes",
            Options::default().memory_budget_bytes((8 << 20) - 1),
        ),
        (
            "background_threads",
            Options::default().background_threads(65),
        ),
        (
            "separate_min_bytes",
            Options::default().separate_min_bytes(0),
        ),
        (
            "log_segment_bytes",
            Options::default().log_segment_bytes((64 << 10) - 1),
        ),
        (
            "log_segment_bytes",
            Options::default().log_segment_bytes((1 << 30) + 1),
        ),
        (
            "log_ring_bytes",
            Options::default().log_ring_bytes(60 << 10),
        ),
        (
            "log_ring_bytes",
            Options::default().log_ring_bytes((64 << 10) + 1),
        ),
        (
            "log_ring_bytes",
            Options::default().log_ring_bytes((1 << 30) + 4096),
        ),
        (
            "log_ring_bytes",
            Options::default()
                .memory_budget_bytes(8 << 20)
                .log_ring_bytes((2 << 20) + 4096),
        ),
        (
            "replay_bytes_max",
            Options::default().replay_bytes_max(LOG_SEGMENT_BYTES - 1),
        ),
        (
            "read_depth",
            experiment(Experiments::default().read_depth(0)),
        ),
        (
            "read_depth",
            experiment(Experiments::default().read_depth(READ_DEPTH_MAX + 1)),
        ),
        (
            "value_batch",
            experiment(Experiments::default().value_batch(0)),
        ),
        (
            "value_batch",
            experiment(Experiments::default().value_batch(READ_DEPTH_MAX + 1)),
        ),
        (
            "read_batch_max",
            experiment(Experiments::default().read_batch_max(READ_DEPTH_MAX + 1)),
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in beyond {
        let path = directory.path().join("never made");
        let error = options.open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(!path.exists(), "{name}");
    }
}

#[test]
fn options_page_lists_every_keyspace_option() {
    let KeyspaceOptions { index, lsm, .. } = KeyspaceOptions::default();
    assert_eq!(index, IndexKind::Lsm);
    let LsmOptions {
        size_ratio,
        table_bytes_target,
        block_bytes,
        filter_bits_per_key,
        compression,
        pinned_levels,
        levels_max,
        ..
    } = lsm;
    assert_eq!(compression, Compression::None);
    let BTreeOptions {
        reshape,
        reshape_share,
        ..
    } = BTreeOptions::default();
    assert!(!reshape);
    let row = |name, default: String, limits: &str| (name, default, limits.to_owned());
    hold(
        "## `KeyspaceOptions`",
        &[
            row("index", word(index), "lsm, btree, btree-reshaped"),
            row("reshape", "off".to_owned(), "on, off"),
            row("reshape_share", reshape_share.to_string(), "1 to 50"),
            row("size_ratio", size_ratio.to_string(), "2 to 100"),
            row("pinned_levels", pinned_levels.to_string(), "auto, 0 to 7"),
            row("levels_max", levels_max.to_string(), "1 to 6"),
            row("table_bytes_target", bytes(table_bytes_target), "4K to 4G"),
            row(
                "block_bytes",
                bytes(block_bytes.into()),
                "4K to 64K, without compression a multiple of 4096",
            ),
            row(
                "filter_bits_per_key",
                filter_bits_per_key.to_string(),
                "0 to 64",
            ),
            row("compression", word(compression), "none, lz4, zstd"),
        ],
    );
}

#[test]
fn keyspace_limits_are_as_documented() {
    type Change = fn(&mut LsmOptions);
    let within: [Change; 15] = [
        |o| o.experiments.base_level_bytes = 0,
        |o| o.size_ratio = 2,
        |o| o.size_ratio = 100,
        |o| o.experiments.level0_runs_compact = 1,
        |o| {
            (
                o.experiments.level0_runs_compact,
                o.experiments.level0_runs_slow,
                o.experiments.level0_runs_stop,
            ) = (1000, 1001, 1002)
        },
        |o| {
            (
                o.experiments.level0_runs_slow,
                o.experiments.level0_runs_stop,
            ) = (9999, 10_000)
        },
        |o| o.table_bytes_target = 4 << 10,
        |o| o.table_bytes_target = 4 << 30,
        |o| o.block_bytes = 64 << 10,
        |o| {
            o.block_bytes = 5000;
            o.compression = Compression::Lz4;
        },
        |o| o.filter_bits_per_key = 0,
        |o| o.filter_bits_per_key = 64,
        |o| o.experiments.base_level_bytes = 4 << 10,
        |o| o.experiments.base_level_bytes = 1024 << 30,
        |o| o.compression = Compression::Lz4,
    ];
    for change in within {
        let mut options = LsmOptions::default();
        change(&mut options);
        options
            .validate()
            .unwrap_or_else(|error| panic!("{options:?}: {error}"));
    }
    let beyond: [(&str, Change); 14] = [
        ("size_ratio", |o| o.size_ratio = 1),
        ("size_ratio", |o| o.size_ratio = 101),
        ("level0_runs_compact", |o| {
            o.experiments.level0_runs_compact = 0
        }),
        ("level0_runs_compact", |o| {
            o.experiments.level0_runs_compact = 1001
        }),
        ("level0_runs_slow", |o| o.experiments.level0_runs_slow = 4),
        ("level0_runs_stop", |o| o.experiments.level0_runs_stop = 8),
        ("level0_runs_stop", |o| {
            o.experiments.level0_runs_stop = 10_001
        }),
        ("table_bytes_target", |o| {
            o.table_bytes_target = (4 << 10) - 1
        }),
        ("table_bytes_target", |o| {
            o.table_bytes_target = (4 << 30) + 1
        }),
        ("block_bytes", |o| o.block_bytes = 5000),
        ("block_bytes", |o| o.block_bytes = (64 << 10) + 4096),
        ("filter_bits_per_key", |o| o.filter_bits_per_key = 65),
        ("base_level_bytes", |o| {
            o.experiments.base_level_bytes = (4 << 10) - 1
        }),
        ("base_level_bytes", |o| {
            o.experiments.base_level_bytes = (1024 << 30) + 1
        }),
    ];
    for (name, change) in beyond {
        let mut options = LsmOptions::default();
        change(&mut options);
        let error = options.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn options_page_lists_transaction_options_and_fixed_limits() {
    let TransactionOptions {
        isolation,
        durability,
        ..
    } = TransactionOptions::default();
    assert_eq!((isolation, durability), (Isolation::Snapshot, None));
    hold(
        "## `TransactionOptions`",
        &[
            (
                "isolation",
                word(isolation),
                "snapshot, serializable".to_owned(),
            ),
            (
                "durability",
                "the database's".to_owned(),
                [Durability::Buffered, Durability::Os, Durability::Sync]
                    .map(|durability| durability.to_string())
                    .join(", "),
            ),
        ],
    );
    let limits = rows("## Limits that are not options", "limit");
    for (name, value) in [
        ("key", KEY_BYTES_MAX),
        ("value", VALUE_BYTES_MAX),
        ("keys and values of one batch", BATCH_BYTES_MAX),
        ("name of a keyspace", KEYSPACE_NAME_BYTES_MAX),
    ] {
        assert_eq!(limits[name], [bytes(value as u64)], "{name}");
    }
    assert_eq!(limits.len(), 4);
}

#[test]
fn moved_values_in_the_space_table_follow_the_formula_above_it() {
    let rows = rows("## `Options`", "space_amp_max");
    assert_eq!(rows.len(), 4);
    for (bound, cells) in rows {
        let bound: f64 = bound.parse().unwrap();
        let live = (0..1000).fold(0.0_f64, |live, _| (-bound * (1.0 - live)).exp());
        let moved = live / (1.0 - live);
        let digits = cells[0].split_once('.').unwrap().1.len();
        assert_eq!(cells, [format!("{moved:.digits$}")], "{bound}");
    }
}

#[test]
fn readme_program_is_the_quickstart_example() {
    let readme = include_str!("../../../../README.md");
    let example = include_str!("../../examples/quickstart.rs");
    let (_, program) = example.split_once("// README: from here\n").unwrap();
    let (program, _) = program.split_once("// README: to here").unwrap();
    let (_, quoted) = readme.split_once("```rust\n").unwrap();
    let (quoted, _) = quoted.split_once("```").unwrap();
    assert_eq!(quoted, program);
}
