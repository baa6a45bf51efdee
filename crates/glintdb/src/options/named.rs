//! Options by name, for command lines, configuration files and other languages. The names are those
//! of `docs/options.md`. Thread-safe: plain values.

use super::{Experiments, GcReads, IndexKind, KeyspaceOptions, Options};
use crate::index_kinds;
use crate::index_kinds::btree::BTreeExperiments;
use crate::index_kinds::lsm::{LsmExperiments, LsmOptions};
use crate::{Error, Result};
use glintdb_flash::{DirectIo, ReadEngine};
use glintdb_runs::Compression;
use std::str::FromStr;

const SWITCH: [(&str, bool); 4] = [
    ("on", true),
    ("true", true),
    ("off", false),
    ("false", false),
];

/// The value of `index` that also sets `reshape`.
const RESHAPED: &str = "btree-reshaped";

fn switch_name(value: bool) -> String {
    let name = match value {
        true => "on",
        false => "off",
    };
    name.to_owned()
}

impl Experiments {
    /// Names of the options, in the order of the fields. [`Options::set`] accepts them.
    pub const NAMES: [&'static str; 19] = [
        "read_engine",
        "read_depth",
        "sort_reads",
        "merge_reads",
        "overlap_reads",
        "kernel_read_ahead",
        "value_batch",
        "read_batch_max",
        "help",
        "hot_keys",
        "cache_written_min_bytes",
        "range_cache",
        "compact_for_scans",
        "seek_after_deleted",
        "order_for_scans",
        "value_gc",
        "value_gc_reads",
        "pace_writers",
        "recycle_files",
    ];
}

impl Options {
    /// Names of the options, in the order of the fields, without `progress`, which is a function.
    /// Options for experiments are left out, though [`set`](Self::set) accepts them.
    pub const NAMES: [&'static str; 15] = [
        "create_if_missing",
        "error_if_exists",
        "accept_missing_ring",
        "durability",
        "memory_budget_bytes",
        "background_threads",
        "separate_min_bytes",
        "log_segment_bytes",
        "log_ring_bytes",
        "replay_bytes_max",
        "snapshot_pin_bytes_max",
        "direct_io",
        "placement",
        "space_amp_max",
        "garbage_bytes_min",
    ];

    /// Returns whether [`set`](Self::set) accepts an option of this name.
    #[must_use]
    pub fn has(name: &str) -> bool {
        is_one_of(name, &[&Self::NAMES, &Experiments::NAMES])
    }

    /// Sets the option `name` to `value`, for command lines and configuration files. In names, `-`
    /// and `_` are equivalent. Sizes accept the units `K`, `M`, `G` and `T`, which are powers of
    /// 1,024. Opening the database checks the limits.
    ///
    /// ```
    /// let mut options = glintdb::Options::default();
    /// options.set("memory-budget-bytes", "64M")?;
    /// options.set("durability", "sync")?;
    /// assert_eq!(options.memory_budget_bytes, 64 << 20);
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such option, or the value cannot be parsed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let experiments = &mut self.experiments;
        let set = match underscored(name).as_str() {
            "create_if_missing" => put(&mut self.create_if_missing, parsed(value)),
            "error_if_exists" => put(&mut self.error_if_exists, parsed(value)),
            "accept_missing_ring" => put(&mut self.accept_missing_ring, parsed(value)),
            "durability" => put(
                &mut self.durability,
                value.parse().map_err(|error| format!("{error}")),
            ),
            "memory_budget_bytes" => put(&mut self.memory_budget_bytes, size(value)),
            "background_threads" => put(&mut self.background_threads, parsed(value)),
            "separate_min_bytes" => put(&mut self.separate_min_bytes, size(value)),
            "log_segment_bytes" => put(&mut self.log_segment_bytes, size(value)),
            "log_ring_bytes" => put(&mut self.log_ring_bytes, size(value)),
            "replay_bytes_max" => put(&mut self.replay_bytes_max, size(value)),
            "snapshot_pin_bytes_max" => put(&mut self.snapshot_pin_bytes_max, size(value)),
            "direct_io" => {
                let words = [
                    ("auto", DirectIo::Auto),
                    ("on", DirectIo::On),
                    ("off", DirectIo::Off),
                ];
                put(&mut self.direct_io, word(value, &words))
            }
            "placement" => put(
                &mut self.placement,
                value.parse().map_err(|error| format!("{error}")),
            ),
            "space_amp_max" => put(&mut self.space_amp_max, parsed(value)),
            "garbage_bytes_min" => put(&mut self.garbage_bytes_min, size(value)),
            "read_engine" => {
                let words = [
                    ("auto", ReadEngine::Auto),
                    ("io_uring", ReadEngine::IoUring),
                    ("libaio", ReadEngine::Libaio),
                    ("threads", ReadEngine::Threads),
                    ("sync", ReadEngine::Sync),
                ];
                put(&mut experiments.read_engine, word(value, &words))
            }
            "read_depth" => put(&mut experiments.read_depth, parsed(value)),
            "sort_reads" => put(&mut experiments.sort_reads, word(value, &SWITCH)),
            "merge_reads" => put(&mut experiments.merge_reads, word(value, &SWITCH)),
            "overlap_reads" => put(&mut experiments.overlap_reads, word(value, &SWITCH)),
            "kernel_read_ahead" => put(&mut experiments.kernel_read_ahead, word(value, &SWITCH)),
            "value_batch" => put(&mut experiments.value_batch, parsed(value)),
            "read_batch_max" => put(&mut experiments.read_batch_max, parsed(value)),
            "help" => put(&mut experiments.help, word(value, &SWITCH)),
            "hot_keys" => put(&mut experiments.hot_keys, word(value, &SWITCH)),
            "cache_written_min_bytes" => put(&mut experiments.cache_written_min_bytes, size(value)),
            "range_cache" => put(&mut experiments.range_cache, word(value, &SWITCH)),
            "compact_for_scans" => put(&mut experiments.compact_for_scans, word(value, &SWITCH)),
            "seek_after_deleted" => put(&mut experiments.seek_after_deleted, parsed(value)),
            "order_for_scans" => put(&mut experiments.order_for_scans, word(value, &SWITCH)),
            "value_gc" => put(&mut experiments.value_gc, word(value, &SWITCH)),
            "value_gc_reads" => {
                let words = [
                    ("auto", GcReads::Auto),
                    ("segments", GcReads::Segments),
                    ("index", GcReads::Index),
                ];
                put(&mut experiments.value_gc_reads, word(value, &words))
            }
            "pace_writers" => put(&mut experiments.pace_writers, word(value, &SWITCH)),
            "recycle_files" => put(&mut experiments.recycle_files, word(value, &SWITCH)),
            _ => Err(unknown(&Self::NAMES)),
        };
        named(name, set)
    }
}

impl KeyspaceOptions {
    /// Names of the options: `index`, those of an LSM tree, which are also those of a B+tree as far
    /// as it has them, and those that only a B+tree has. Options for experiments are left out,
    /// though [`set`](Self::set) accepts them.
    pub const NAMES: [&'static str; 10] = {
        let mut names = ["index"; 10];
        let mut at = 0;
        while at < LsmOptions::NAMES.len() {
            names[at + 1] = LsmOptions::NAMES[at];
            at += 1;
        }
        (names[8], names[9]) = ("reshape", "reshape_share");
        names
    };

    /// Returns whether [`set`](Self::set) accepts an option of this name.
    #[must_use]
    pub fn has(name: &str) -> bool {
        let experiments: [&[&str]; 2] = [&LsmExperiments::NAMES, &BTreeExperiments::NAMES];
        is_one_of(name, &[&Self::NAMES]) || is_one_of(name, &experiments)
    }

    /// Sets the option `name` to `value`, with the syntax of [`Options::set`]. The limits are
    /// checked when a keyspace is created with the options or receives them.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such option, or the value cannot be parsed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let (lsm, btree) = (&mut self.lsm, &mut self.btree);
        let (experiments, of_btree) = (&mut lsm.experiments, &mut btree.experiments);
        let set = match underscored(name).as_str() {
            "index" => {
                let words = [
                    (IndexKind::Lsm.name(), (IndexKind::Lsm, false)),
                    (IndexKind::BTree.name(), (IndexKind::BTree, btree.reshape)),
                    (RESHAPED, (IndexKind::BTree, true)),
                ];
                let parsed = word(value, &words);
                parsed.map(|(kind, reshape)| (self.index, btree.reshape) = (kind, reshape))
            }
            "size_ratio" => put(&mut lsm.size_ratio, parsed(value)),
            "levels_max" => put(&mut lsm.levels_max, parsed(value)),
            "pinned_levels" => put(
                &mut lsm.pinned_levels,
                value.parse().map_err(|error| format!("{error}")),
            ),
            "filter_bits_per_key" => put_both(
                &mut lsm.filter_bits_per_key,
                &mut btree.filter_bits_per_key,
                parsed(value),
            ),
            "compression" => {
                let words = [
                    ("none", Compression::None),
                    ("lz4", Compression::Lz4),
                    ("zstd", Compression::Zstd),
                ];
                let parsed = word(value, &words);
                put_both(&mut lsm.compression, &mut btree.compression, parsed)
            }
            "block_bytes" => put_both(&mut lsm.block_bytes, &mut btree.block_bytes, size(value)),
            "table_bytes_target" => put_both(
                &mut lsm.table_bytes_target,
                &mut btree.table_bytes_target,
                size(value),
            ),
            "reshape" => put(&mut btree.reshape, word(value, &SWITCH)),
            "reshape_share" => put(&mut btree.reshape_share, parsed(value)),
            "level0_runs_compact" => put(&mut experiments.level0_runs_compact, parsed(value)),
            "level0_runs_slow" => put(&mut experiments.level0_runs_slow, parsed(value)),
            "level0_runs_stop" => put(&mut experiments.level0_runs_stop, parsed(value)),
            "base_level_bytes" => put(&mut experiments.base_level_bytes, size(value)),
            "shelf_runs_settle" => put(&mut of_btree.shelf_runs_settle, parsed(value)),
            "shelf_runs_slow" => put(&mut of_btree.shelf_runs_slow, parsed(value)),
            "shelf_runs_stop" => put(&mut of_btree.shelf_runs_stop, parsed(value)),
            "slice_bytes" => put(&mut of_btree.slice_bytes, size(value)),
            "leaf_batch" => put(&mut of_btree.leaf_batch, parsed(value)),
            "reshape_fan" => put(&mut of_btree.reshape_fan, parsed(value)),
            "reshape_filter_bits" => put(&mut of_btree.reshape_filter_bits, parsed(value)),
            "reshape_bits" => put(&mut of_btree.reshape_bits, parsed(value)),
            _ => Err(unknown(&Self::NAMES)),
        };
        named(name, set)
    }

    /// Returns the value of `index` that gives an index like this one: `lsm`, `btree` or
    /// `btree-reshaped`.
    #[must_use]
    pub fn index_name(&self) -> &'static str {
        match self.index == IndexKind::BTree && self.btree.reshape {
            true => RESHAPED,
            false => self.index.name(),
        }
    }

    /// Returns each option of the keyspace's kind of index with its value in the syntax of
    /// [`set`](Self::set): those of [`NAMES`](Self::NAMES), then those for experiments. Sizes are
    /// in bytes.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let values = match self.index {
            IndexKind::Lsm => self.lsm_values(),
            IndexKind::BTree => self.btree_values(),
        };
        let index = ("index", self.index.name().to_owned());
        let names = index_kinds::option_names(self.index);
        let of_kind = names.into_iter().zip(values);
        std::iter::once(index).chain(of_kind).collect()
    }

    /// Returns those of [`entries`](Self::entries) that are not the default of the kind of index,
    /// and `index` if the kind is not the default.
    ///
    /// ```
    /// use glintdb::{IndexKind, KeyspaceOptions};
    /// let options = KeyspaceOptions::default().index(IndexKind::BTree);
    /// assert_eq!(options.changed(), [("index", "btree".to_owned())]);
    /// ```
    #[must_use]
    pub fn changed(&self) -> Vec<(&'static str, String)> {
        let defaults = KeyspaceOptions::default().index(self.index).entries();
        let is_changed =
            |((name, value), (_, default)): &((&str, String), (&str, String))| match *name {
                "index" => self.index != IndexKind::default(),
                _ => value != default,
            };
        let entries = self.entries().into_iter().zip(defaults);
        entries.filter(is_changed).map(|(entry, _)| entry).collect()
    }

    fn lsm_values(&self) -> Vec<String> {
        let lsm = &self.lsm;
        let experiments = &lsm.experiments;
        vec![
            lsm.size_ratio.to_string(),
            lsm.levels_max.to_string(),
            lsm.pinned_levels.to_string(),
            lsm.filter_bits_per_key.to_string(),
            lsm.compression.name().to_owned(),
            lsm.block_bytes.to_string(),
            lsm.table_bytes_target.to_string(),
            experiments.level0_runs_compact.to_string(),
            experiments.level0_runs_slow.to_string(),
            experiments.level0_runs_stop.to_string(),
            experiments.base_level_bytes.to_string(),
        ]
    }

    fn btree_values(&self) -> Vec<String> {
        let btree = &self.btree;
        let experiments = &btree.experiments;
        vec![
            btree.filter_bits_per_key.to_string(),
            btree.compression.name().to_owned(),
            btree.block_bytes.to_string(),
            btree.table_bytes_target.to_string(),
            switch_name(btree.reshape),
            btree.reshape_share.to_string(),
            experiments.shelf_runs_settle.to_string(),
            experiments.shelf_runs_slow.to_string(),
            experiments.shelf_runs_stop.to_string(),
            experiments.slice_bytes.to_string(),
            experiments.leaf_batch.to_string(),
            experiments.reshape_fan.to_string(),
            experiments.reshape_filter_bits.to_string(),
            experiments.reshape_bits.to_string(),
        ]
    }

    /// Returns a phrase for each option that has a value other than the default here and another
    /// value in `found`.
    pub(crate) fn unmet_by(&self, found: &KeyspaceOptions) -> Vec<String> {
        let asked = self.changed();
        if !asked.is_empty() && self.index != found.index {
            let (found, asked) = (found.index.name(), self.index.name());
            return vec![format!("index is {found}, not {asked}")];
        }
        let found = found.entries();
        let unmet = |(name, asked): (&str, String)| {
            let (_, found) = found.iter().find(|(other, _)| *other == name)?;
            (*found != asked).then(|| format!("{name} is {found}, not {asked}"))
        };
        asked.into_iter().filter_map(unmet).collect()
    }
}

/// Parses a number of bytes: `4096`, `64K`, `1.5G`. The units `K`, `M`, `G` and `T` are powers of
/// 1,024.
///
/// ```
/// assert_eq!(glintdb::parse_bytes("1.5K")?, 1536);
/// # Ok::<(), glintdb::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument`: `text` is not a number of bytes, or is 2^63 or more.
pub fn parse_bytes(text: &str) -> Result<u64> {
    size(text.trim()).map_err(Error::invalid)
}

type Parsed<T = ()> = std::result::Result<T, String>;

/// Sets an option that both kinds of index have.
fn put_both<T: Clone>(lsm: &mut T, btree: &mut T, parsed: Parsed<T>) -> Parsed {
    let parsed = parsed?;
    lsm.clone_from(&parsed);
    *btree = parsed;
    Ok(())
}

fn underscored(name: &str) -> String {
    name.trim().replace('-', "_")
}

fn is_one_of(name: &str, lists: &[&[&str]]) -> bool {
    let name = underscored(name);
    lists.iter().any(|names| names.contains(&name.as_str()))
}

fn named(name: &str, set: Parsed) -> Result<()> {
    set.map_err(|reason| Error::invalid(format!("option {}: {reason}", underscored(name))))
}

fn unknown(names: &[&str]) -> String {
    format!(
        "there is no option of this name; the names are {}",
        names.join(" ")
    )
}

fn put<T>(place: &mut T, value: Parsed<T>) -> Parsed {
    *place = value?;
    Ok(())
}

fn parsed<T: FromStr>(text: &str) -> Parsed<T> {
    let wanted = match std::any::type_name::<T>() {
        "bool" => "neither true nor false",
        _ => "not a number, or is too large",
    };
    text.parse().map_err(|_| format!("`{text}` is {wanted}"))
}

fn size<T: TryFrom<u64>>(text: &str) -> Parsed<T> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let bytes = match digits.split_once('.') {
        None => parsed::<u64>(digits)?.checked_mul(1 << shift),
        Some(_) => whole(parsed::<f64>(digits)? * (1_u64 << shift) as f64),
    };
    bytes
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is too large"))
}

/// Rounds to whole bytes. Returns `None` above 2^53, where a double is not exact.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: it is between 0 and 2^53"
)]
fn whole(bytes: f64) -> Option<u64> {
    let exact = 0.0..9_007_199_254_740_992.0;
    exact.contains(&bytes).then_some(bytes.round() as u64)
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Parsed<T> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is not one of {}", all.join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_kinds::btree::BTreeOptions;

    /// Each option of a database, without those for experiments, with its value.
    fn public(options: &Options) -> Vec<(&'static str, String)> {
        macro_rules! fields {
            ($($name:ident),*) => {{
                // No `..`: a new option must be named here, and so in `NAMES`.
                let Options { $($name,)* progress: _, experiments: _ } = options.clone();
                vec![$((stringify!($name), format!("{:?}", $name))),*]
            }};
        }
        fields![
            create_if_missing,
            error_if_exists,
            accept_missing_ring,
            durability,
            memory_budget_bytes,
            background_threads,
            separate_min_bytes,
            log_segment_bytes,
            log_ring_bytes,
            replay_bytes_max,
            snapshot_pin_bytes_max,
            direct_io,
            placement,
            space_amp_max,
            garbage_bytes_min
        ]
    }

    /// Each option of a database for experiments, with its value.
    fn hidden(options: &Options) -> Vec<(&'static str, String)> {
        macro_rules! fields {
            ($($name:ident),*) => {{
                // No `..`: a new option must be named here, and so in `NAMES`.
                let Experiments { $($name),* } = options.experiments.clone();
                vec![$((stringify!($name), format!("{:?}", $name))),*]
            }};
        }
        fields![
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
            recycle_files
        ]
    }

    #[test]
    fn every_option_has_a_name() {
        let names = |fields: Vec<(&'static str, String)>| {
            let names = fields.into_iter().map(|(name, _)| name);
            names.collect::<Vec<_>>()
        };
        let options = Options::default();
        assert_eq!(names(public(&options)), Options::NAMES);
        assert_eq!(names(hidden(&options)), Experiments::NAMES);
        // No `..`: a new option of another kind of index needs names.
        let KeyspaceOptions {
            index: _,
            lsm: _,
            btree: _,
        } = KeyspaceOptions::default();
    }

    #[test]
    fn every_option_name_is_documented_and_can_be_set() {
        let page = include_str!("../../../../docs/options.md");
        let of_databases = || Options::NAMES.into_iter().chain(Experiments::NAMES);
        let of_keyspaces = || {
            KeyspaceOptions::NAMES
                .into_iter()
                .chain(LsmExperiments::NAMES)
        };
        for name in of_databases().chain(of_keyspaces()) {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        let all = |options: &Options| [public(options), hidden(options)].concat();
        for name in of_databases() {
            let value = match name {
                "create_if_missing" => "false",
                "compact_for_scans" | "value_gc" | "help" | "hot_keys" | "range_cache"
                | "pace_writers" | "recycle_files" | "order_for_scans" | "sort_reads"
                | "merge_reads" | "overlap_reads" => "off",
                "error_if_exists" | "accept_missing_ring" | "kernel_read_ahead" => "true",
                "durability" | "read_engine" => "sync",
                "direct_io" => "off",
                "placement" => "isolation:1:1",
                "value_gc_reads" => "index",
                _ => "63",
            };
            assert!(Options::has(name) && !KeyspaceOptions::has(name), "{name}");
            let mut options = Options::default();
            options.set(name, value).unwrap();
            let before = all(&Options::default());
            let changed = all(&options).into_iter().zip(before);
            let changed = changed.filter(|(after, before)| after != before);
            let changed: Vec<_> = changed.map(|((name, _), _)| name).collect();
            assert_eq!(changed, [name]);
        }
        for name in of_keyspaces() {
            let value = match name {
                "index" => "btree",
                "compression" => "lz4",
                "reshape" => "on",
                _ => "3",
            };
            assert!(KeyspaceOptions::has(name) && !Options::has(name), "{name}");
            let kind = match name.starts_with("reshape") {
                true => IndexKind::BTree,
                false => IndexKind::Lsm,
            };
            let default = KeyspaceOptions::default().index(kind);
            let mut options = default.clone();
            options.set(name, value).unwrap();
            let changed = options.entries().into_iter().zip(default.entries());
            let changed = changed.filter(|(after, before)| after != before);
            let changed: Vec<_> = changed.map(|((name, _), _)| name).collect();
            // Another kind has other options.
            assert!(changed == [name] || name == "index", "{name}: {changed:?}");
            let mut again = KeyspaceOptions::default();
            for (name, value) in options.entries() {
                again.set(name, &value).unwrap();
            }
            assert_eq!(again, options);
        }
        let mut reshaped = KeyspaceOptions::default();
        reshaped.set("index", RESHAPED).unwrap();
        let btree = BTreeOptions::default().reshape(true);
        let expected = KeyspaceOptions::default()
            .index(IndexKind::BTree)
            .btree(btree);
        assert_eq!(reshaped, expected);
        for name in ["lsm", "btree", RESHAPED] {
            let mut options = KeyspaceOptions::default();
            options.set("index", name).unwrap();
            assert_eq!(options.index_name(), name);
        }
    }

    #[test]
    fn messages_that_list_names_leave_out_experiments() {
        let error = Options::default().set("hot_key", "on").unwrap_err();
        let of_keyspace = KeyspaceOptions::default().set("level0", "4").unwrap_err();
        for (error, listed, left_out) in [
            (error, "space_amp_max", "hot_keys"),
            (of_keyspace, "size_ratio", "level0_runs_compact"),
        ] {
            let error = error.to_string();
            assert!(
                error.contains(listed) && !error.contains(left_out),
                "{error}"
            );
        }
    }

    #[test]
    fn sizes_may_have_fractions_and_units() {
        for (text, bytes) in [("0", 0), ("7", 7), ("1.5k", 1536), (" 2T ", 2 << 40)] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in [
            "", "K", "1.5.5", "-1", "-1.5K", "nan", "1e400.0", "1.0e30", "9000000T",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hyphens_and_units_are_understood() {
        let mut options = Options::default();
        options.set("log-segment-bytes", "4m").unwrap();
        options.set(" direct-io", "off").unwrap();
        assert_eq!(options.log_segment_bytes, 4 << 20);
        assert_eq!(options.direct_io, DirectIo::Off);
        let mut options = KeyspaceOptions::default();
        options.set("block_bytes", "8K").unwrap();
        options.set("pinned-levels", "auto").unwrap();
        assert_eq!(options.lsm.block_bytes, 8192);
    }

    #[test]
    fn invalid_names_and_values_are_refused_with_a_reason() {
        for (name, value, words) in [
            ("log_segment_byte", "4", "there is no option of this name"),
            ("background_threads", "four", "`four` is not a number"),
            ("create_if_missing", "1", "neither true nor false"),
            ("log_segment_bytes", "99999999999G", "too large"),
            ("memory_budget_bytes", "", "not a number"),
            (
                "read_engine",
                "uring",
                "not one of auto io_uring libaio threads sync",
            ),
            ("durability", "disk", "buffered, os or sync"),
        ] {
            let error = Options::default().set(name, value).unwrap_err();
            assert!(error.to_string().contains(words), "{name}: {error}");
            assert!(error.to_string().contains(name), "{name}: {error}");
        }
        for (name, value, words) in [
            ("size_ration", "4", "there is no option of this name"),
            ("block_bytes", "8G", "too large"),
            ("pinned_levels", "all", "auto or a number"),
        ] {
            let error = KeyspaceOptions::default().set(name, value).unwrap_err();
            assert!(error.to_string().contains(words), "{name}: {error}");
        }
    }
}
