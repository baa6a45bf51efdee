//! Options of an LSM index, their limits and their encoded form, which the manifest stores with the
//! keyspace.
//!
//! Thread-safe: plain values.

use crate::edit::LEVELS;
use glintdb_core::codec::{Reader, put_varint};
use glintdb_core::index::PinnedLevels;
use glintdb_core::{Error, Result};
use glintdb_runs::table::{Compression, TableConfig};

/// Options of an LSM index: its shape and the form of its tables. Each option is a public field
/// with a method of the same name. `docs/decisions/004-lsm-shape.md` gives the reasons for the
/// defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LsmOptions {
    /// How many times larger a level is than the one above it, at most: 2 to 100. Default: 10.
    pub size_ratio: u32,
    /// Maximum number of levels below level 0: 1 to 6. Fewer levels mean fewer reads of a lookup
    /// and more compaction writes. A tree with more levels loses them when it is compacted as a
    /// whole. Default: 6.
    pub levels_max: u32,
    /// Number of levels, from level 0 on, whose key blocks stay in memory: 0 to 7, or as many as
    /// fit. Default: [`PinnedLevels::Auto`].
    pub pinned_levels: PinnedLevels,
    /// Bits of a table's filter for each key: 0 to 64. 0 makes no filters. Default: 10.
    pub filter_bits_per_key: u32,
    /// Compression of key blocks. Default: [`Compression::None`].
    pub compression: Compression,
    /// Size of a key block before compression in bytes: 4,096 to 65,536, and a multiple of 4,096
    /// without compression. Default: 4,096, one flash page.
    pub block_bytes: u32,
    /// Size of a table in bytes: 4 KiB to 4 GiB. Tables of the first level below level 0 have a
    /// quarter of it. Default: 64 MiB.
    pub table_bytes_target: u64,
    /// Options that only experiments change.
    #[doc(hidden)]
    pub experiments: LsmExperiments,
}

/// Options of an LSM index that only experiments change: when level 0 is compacted, and the size of
/// the first level below it. They are stored with the other options.
#[doc(hidden)]
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LsmExperiments {
    /// Number of runs at level 0 that starts a compaction: 1 to 1,000. Default: 4.
    pub level0_runs_compact: u32,
    /// Number of runs at level 0 from which writers to the keyspace are slowed: more than
    /// `level0_runs_compact`, at most 10,000. Default: 8.
    pub level0_runs_slow: u32,
    /// Number of runs at level 0 from which writers to the keyspace wait: more than
    /// `level0_runs_slow`, at most 10,000. Default: 20.
    pub level0_runs_stop: u32,
    /// Size in bytes of the first level below level 0, beyond which the tree gains a level: 4 KiB
    /// to 1 TiB. Each further level is exactly `size_ratio` times larger. With 0, the default, the
    /// size follows the flushes: it is four times what `level0_runs_compact` flushes bring, and the
    /// other levels are spread evenly, with at most `size_ratio` between two.
    pub base_level_bytes: u64,
}

impl Default for LsmOptions {
    fn default() -> Self {
        LsmOptions {
            size_ratio: 10,
            levels_max: LEVELS_BELOW_0_MAX,
            pinned_levels: PinnedLevels::Auto,
            filter_bits_per_key: 10,
            compression: Compression::None,
            block_bytes: 4096,
            table_bytes_target: 64 << 20,
            experiments: LsmExperiments::default(),
        }
    }
}

impl Default for LsmExperiments {
    fn default() -> Self {
        LsmExperiments {
            level0_runs_compact: 4,
            level0_runs_slow: 8,
            level0_runs_stop: 20,
            base_level_bytes: 0,
        }
    }
}

impl LsmExperiments {
    /// Names of the options, in the order of the fields.
    pub const NAMES: [&'static str; 4] = [
        "level0_runs_compact",
        "level0_runs_slow",
        "level0_runs_stop",
        "base_level_bytes",
    ];

    glintdb_core::setters! {
        level0_runs_compact: u32, level0_runs_slow: u32, level0_runs_stop: u32,
        base_level_bytes: u64,
    }

    fn validate(&self) -> Result<()> {
        within(
            "level0_runs_compact",
            self.level0_runs_compact.into(),
            1,
            1000,
        )?;
        within(
            "level0_runs_slow",
            self.level0_runs_slow.into(),
            u64::from(self.level0_runs_compact) + 1,
            10_000,
        )?;
        within(
            "level0_runs_stop",
            self.level0_runs_stop.into(),
            u64::from(self.level0_runs_slow) + 1,
            10_000,
        )?;
        if self.base_level_bytes != 0 {
            within("base_level_bytes", self.base_level_bytes, 4 << 10, 1 << 40)?;
        }
        Ok(())
    }
}

#[doc(hidden)]
impl LsmOptions {
    glintdb_core::setters! { experiments: LsmExperiments }
}

impl LsmOptions {
    /// Names of the options, in the order of the fields. Options for experiments are left out.
    pub const NAMES: [&'static str; 7] = [
        "size_ratio",
        "levels_max",
        "pinned_levels",
        "filter_bits_per_key",
        "compression",
        "block_bytes",
        "table_bytes_target",
    ];

    glintdb_core::setters! {
        size_ratio: u32, levels_max: u32, pinned_levels: PinnedLevels, filter_bits_per_key: u32,
        compression: Compression, block_bytes: u32, table_bytes_target: u64,
    }

    /// Checks the limits of all options.
    ///
    /// # Errors
    /// `InvalidArgument`: an option is beyond its limits. The message names the option, its limits
    /// and the value.
    pub fn validate(&self) -> Result<()> {
        within("size_ratio", self.size_ratio.into(), 2, 100)?;
        self.experiments.validate()?;
        within(
            "table_bytes_target",
            self.table_bytes_target,
            4 << 10,
            4 << 30,
        )?;
        within("block_bytes", self.block_bytes.into(), 4 << 10, 64 << 10)?;
        if self.compression == Compression::None && !self.block_bytes.is_multiple_of(4 << 10) {
            return Err(Error::invalid(format!(
                "block_bytes: {} is not a multiple of 4096, as it must be without compression",
                self.block_bytes
            )));
        }
        within(
            "filter_bits_per_key",
            self.filter_bits_per_key.into(),
            0,
            64,
        )?;
        if let PinnedLevels::Levels(levels) = self.pinned_levels {
            within("pinned_levels", levels.into(), 0, LEVELS as u64)?;
        }
        within(
            "levels_max",
            self.levels_max.into(),
            1,
            LEVELS_BELOW_0_MAX.into(),
        )?;
        if !self.compression.is_available() {
            return Err(Error::invalid(
                "compression: this build has no zstd (feature `zstd`)",
            ));
        }
        Ok(())
    }

    /// Appends the encoded form: a version byte, then each field as a varint, in the order of
    /// `docs/format/manifest.md`. The lowest version that can hold the options is written: version
    /// 1 has no `pinned_levels` and version 2 no `levels_max`, so these have their defaults there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let pinned_levels = match self.pinned_levels {
            PinnedLevels::Auto => 0,
            PinnedLevels::Levels(levels) => u64::from(levels) + 1,
        };
        let (version, later): (u8, &[u64]) = match (self.levels_max, pinned_levels) {
            (LEVELS_BELOW_0_MAX, 0) => (1, &[]),
            (LEVELS_BELOW_0_MAX, pinned) => (2, &[pinned]),
            (levels_max, pinned) => (VERSION, &[pinned, levels_max.into()]),
        };
        out.push(version);
        let experiments = &self.experiments;
        let fields = [
            self.size_ratio.into(),
            experiments.level0_runs_compact.into(),
            experiments.level0_runs_slow.into(),
            experiments.level0_runs_stop.into(),
            self.table_bytes_target,
            self.block_bytes.into(),
            self.filter_bits_per_key.into(),
            self.compression.code().into(),
            experiments.base_level_bytes,
        ];
        for field in fields.iter().chain(later) {
            put_varint(out, *field);
        }
    }

    /// Reads the encoded form from the front of `reader`. Returns `None` if it is cut off, of an
    /// unknown version, or has an option beyond its limits.
    #[must_use]
    pub fn decode(reader: &mut Reader<'_>) -> Option<LsmOptions> {
        let version = reader.u8()?;
        if !(1..=VERSION).contains(&version) {
            return None;
        }
        let size_ratio = reader.varint32()?;
        let level0_runs_compact = reader.varint32()?;
        let level0_runs_slow = reader.varint32()?;
        let level0_runs_stop = reader.varint32()?;
        let table_bytes_target = reader.varint()?;
        let block_bytes = reader.varint32()?;
        let filter_bits_per_key = reader.varint32()?;
        let compression = Compression::from_code(reader.varint()?)?;
        let base_level_bytes = reader.varint()?;
        let pinned_levels = match version {
            1 => PinnedLevels::Auto,
            _ => match reader.varint()?.checked_sub(1) {
                None => PinnedLevels::Auto,
                Some(levels) => PinnedLevels::Levels(u8::try_from(levels).ok()?),
            },
        };
        let levels_max = match version {
            1 | 2 => LEVELS_BELOW_0_MAX,
            _ => reader.varint32()?,
        };
        let options = LsmOptions {
            size_ratio,
            levels_max,
            pinned_levels,
            filter_bits_per_key,
            compression,
            block_bytes,
            table_bytes_target,
            experiments: LsmExperiments {
                level0_runs_compact,
                level0_runs_slow,
                level0_runs_stop,
                base_level_bytes,
            },
        };
        options.validate().is_ok().then_some(options)
    }

    /// How tables of this index are written.
    pub(crate) fn table_config(&self) -> TableConfig {
        TableConfig {
            block_bytes: self.block_bytes as usize,
            // At most 64, so exact.
            filter_bits_per_key: f32::from(u8::try_from(self.filter_bits_per_key).unwrap_or(64)),
            compression: self.compression,
            ..TableConfig::default()
        }
    }
}

const VERSION: u8 = 3;

/// Greatest [`LsmOptions::levels_max`]: 6.
pub const LEVELS_BELOW_0_MAX: u32 = {
    assert!(LEVELS == 7);
    6
};

fn within(field: &str, value: u64, min: u64, max: u64) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{field}: {value} is not within {min} to {max}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::ErrorKind;

    #[test]
    fn defaults_are_valid_and_as_documented() {
        let options = LsmOptions::default();
        options.validate().unwrap();
        assert_eq!(
            (options.size_ratio, options.table_bytes_target),
            (10, 64 << 20)
        );
        let experiments = options.experiments;
        assert_eq!(
            (
                experiments.level0_runs_compact,
                experiments.level0_runs_slow,
                experiments.level0_runs_stop,
                experiments.base_level_bytes
            ),
            (4, 8, 20, 0)
        );
        assert_eq!(
            (options.block_bytes, options.filter_bits_per_key),
            (4096, 10)
        );
        assert_eq!(options.compression, Compression::None);
    }

    #[test]
    fn every_limit_names_its_field() {
        type Spoil = fn(&mut LsmOptions);
        let bad: [(&str, Spoil); 11] = [
            ("size_ratio", |o| o.size_ratio = 1),
            ("level0_runs_compact", |o| {
                o.experiments.level0_runs_compact = 0
            }),
            ("level0_runs_slow", |o| o.experiments.level0_runs_slow = 4),
            ("level0_runs_stop", |o| o.experiments.level0_runs_stop = 8),
            ("table_bytes_target", |o| o.table_bytes_target = 100),
            ("block_bytes", |o| o.block_bytes = 5000),
            ("filter_bits_per_key", |o| o.filter_bits_per_key = 65),
            ("base_level_bytes", |o| {
                o.experiments.base_level_bytes = 4095
            }),
            ("pinned_levels", |o| {
                o.pinned_levels = PinnedLevels::Levels(8)
            }),
            ("levels_max", |o| o.levels_max = 0),
            ("levels_max", |o| o.levels_max = 7),
        ];
        for (field, spoil) in bad {
            let mut options = LsmOptions::default();
            spoil(&mut options);
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(field), "{error}");
            let mut encoded = Vec::new();
            options.encode(&mut encoded);
            assert_eq!(LsmOptions::decode(&mut Reader::new(&encoded)), None);
        }
    }

    #[test]
    fn every_option_has_a_name() {
        macro_rules! fields {
            ($options:ident; $($name:ident),*; $($hidden:ident)?) => {{
                // No `..`: a new option must be named here, and so in `NAMES`.
                let $options { $($name: _,)* $($hidden: _)? } = $options::default();
                [$(stringify!($name)),*]
            }};
        }
        let fields = fields![
            LsmOptions;
            size_ratio,
            levels_max,
            pinned_levels,
            filter_bits_per_key,
            compression,
            block_bytes,
            table_bytes_target;
            experiments
        ];
        assert_eq!(fields, LsmOptions::NAMES);
        let fields = fields![
            LsmExperiments;
            level0_runs_compact,
            level0_runs_slow,
            level0_runs_stop,
            base_level_bytes;
        ];
        assert_eq!(fields, LsmExperiments::NAMES);
    }

    #[test]
    fn options_round_trip_and_cut_ones_are_refused() {
        let options = LsmOptions {
            size_ratio: 4,
            compression: Compression::Lz4,
            pinned_levels: PinnedLevels::Levels(3),
            levels_max: 2,
            ..LsmOptions::default()
        };
        let mut encoded = Vec::new();
        options.encode(&mut encoded);
        assert_eq!(encoded[0], 3);
        assert_eq!(
            LsmOptions::decode(&mut Reader::new(&encoded)),
            Some(options)
        );
        for cut in 0..encoded.len() {
            assert_eq!(LsmOptions::decode(&mut Reader::new(&encoded[..cut])), None);
        }
    }

    #[test]
    fn defaults_are_version_1_and_may_be_any() {
        let mut encoded = Vec::new();
        LsmOptions::default().encode(&mut encoded);
        assert_eq!(encoded[0], 1);
        let read = |encoded: &[u8]| LsmOptions::decode(&mut Reader::new(encoded));
        assert_eq!(read(&encoded), Some(LsmOptions::default()));
        encoded[0] = 2;
        assert_eq!(read(&encoded), None, "cut off");
        encoded.push(0);
        assert_eq!(read(&encoded), Some(LsmOptions::default()));
        encoded[0] = 3;
        assert_eq!(read(&encoded), None, "cut off");
        encoded.push(6);
        assert_eq!(read(&encoded), Some(LsmOptions::default()));
        encoded[0] = 4;
        assert_eq!(read(&encoded), None);
    }
}
