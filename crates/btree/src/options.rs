//! Options of a B+tree index, their limits and their encoded form, which the manifest stores with
//! the keyspace.
//!
//! Thread-safe: plain values.

use glintdb_core::codec::{Reader, put_varint};
use glintdb_core::{Error, Result};
use glintdb_runs::table::{Compression, TableConfig};

/// Options of a B+tree index. Each option is a public field with a method of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BTreeOptions {
    /// Bits of a run's filter for each key: 0 to 64. 0 makes no filters. Default: 10.
    pub filter_bits_per_key: u32,
    /// Compression of leaves and runs. Default: [`Compression::None`].
    pub compression: Compression,
    /// Size of a node before compression in bytes: 4,096 to 65,536, and a multiple of 4,096 without
    /// compression. Default: 4,096, one flash page.
    pub block_bytes: u32,
    /// Size of a table of a run in bytes: 4 KiB to 4 GiB. Default: 64 MiB.
    pub table_bytes_target: u64,
    /// Whether new entries stay on the shelf, merged with one another, until their filters and
    /// fences take `reshape_share`. Random inserts into a tree beyond memory cost a fraction of the
    /// leaf reads and writes then, and a short scan reads a block more for each run ("key
    /// reshaping", `docs/decisions/041-reshaping.md`). Default: no.
    pub reshape: bool,
    /// With `reshape`: percent of the memory budget that filters and fences of the shelf may take,
    /// 1 to 50. Default: 12.
    pub reshape_share: u32,
    /// Options that only experiments change.
    #[doc(hidden)]
    pub experiments: BTreeExperiments,
}

/// Options of a B+tree index that only experiments change. They are stored with the other options.
#[doc(hidden)]
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BTreeExperiments {
    /// Number of runs on the shelf that starts a settling: 1 to 1,000. With 1, each flush is
    /// applied to the tree at once. Default: 4.
    pub shelf_runs_settle: u32,
    /// Number of runs from which writers to the keyspace are slowed: more than `shelf_runs_settle`,
    /// at most 10,000. Default: 8.
    pub shelf_runs_slow: u32,
    /// Number of runs from which writers to the keyspace wait: more than `shelf_runs_slow`, at most
    /// 10,000. Default: 20.
    pub shelf_runs_stop: u32,
    /// Bytes of leaves after which a settling commits what it has: 4 KiB to 4 GiB. Default: 32 MiB.
    pub slice_bytes: u64,
    /// Number of leaves that a settling reads in one batch: 1 to 1,024. Default: 128.
    pub leaf_batch: u32,
    /// With `reshape`: number of runs of a tier that are merged into a run of the next tier: 2 to
    /// 64. Writers are slowed at 4 times this number of runs, and wait at 6 times. Default: 8.
    pub reshape_fan: u32,
    /// With `reshape`: bits of a run's filter for each key: 0 to 64. Default: 14.
    pub reshape_filter_bits: u32,
    /// Bits of a run's number: 4 to 56. Runs are renumbered before their numbers exceed them.
    /// Default: 56.
    pub reshape_bits: u32,
}

impl Default for BTreeOptions {
    fn default() -> Self {
        BTreeOptions {
            filter_bits_per_key: 10,
            compression: Compression::None,
            block_bytes: 4096,
            table_bytes_target: 64 << 20,
            reshape: false,
            reshape_share: 12,
            experiments: BTreeExperiments::default(),
        }
    }
}

impl Default for BTreeExperiments {
    fn default() -> Self {
        BTreeExperiments {
            shelf_runs_settle: 4,
            shelf_runs_slow: 8,
            shelf_runs_stop: 20,
            slice_bytes: 32 << 20,
            leaf_batch: 128,
            reshape_fan: 8,
            reshape_filter_bits: 14,
            reshape_bits: 56,
        }
    }
}

impl BTreeExperiments {
    /// Names of the options, in the order of the fields.
    pub const NAMES: [&'static str; 8] = [
        "shelf_runs_settle",
        "shelf_runs_slow",
        "shelf_runs_stop",
        "slice_bytes",
        "leaf_batch",
        "reshape_fan",
        "reshape_filter_bits",
        "reshape_bits",
    ];

    glintdb_core::setters! {
        shelf_runs_settle: u32, shelf_runs_slow: u32, shelf_runs_stop: u32,
        slice_bytes: u64, leaf_batch: u32, reshape_fan: u32, reshape_filter_bits: u32,
        reshape_bits: u32,
    }

    fn validate(&self) -> Result<()> {
        let (settle, slow) = (self.shelf_runs_settle.into(), self.shelf_runs_slow.into());
        within("shelf_runs_settle", settle, 1, 1000)?;
        within("shelf_runs_slow", slow, settle + 1, 10_000)?;
        let stop = self.shelf_runs_stop.into();
        within("shelf_runs_stop", stop, slow + 1, 10_000)?;
        within("slice_bytes", self.slice_bytes, 4 << 10, 4 << 30)?;
        within("leaf_batch", self.leaf_batch.into(), 1, 1024)?;
        within("reshape_fan", self.reshape_fan.into(), 2, 64)?;
        let filter_bits = self.reshape_filter_bits.into();
        within("reshape_filter_bits", filter_bits, 0, 64)?;
        within("reshape_bits", self.reshape_bits.into(), 4, 56)
    }
}

impl BTreeOptions {
    /// Names of the options, in the order of the fields.
    pub const NAMES: [&'static str; 6] = [
        "filter_bits_per_key",
        "compression",
        "block_bytes",
        "table_bytes_target",
        "reshape",
        "reshape_share",
    ];

    glintdb_core::setters! {
        filter_bits_per_key: u32, compression: Compression, block_bytes: u32,
        table_bytes_target: u64, reshape: bool, reshape_share: u32,
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// `InvalidArgument`: an option is beyond its limits. The message names it.
    pub fn validate(&self) -> Result<()> {
        self.experiments.validate()?;
        let table_bytes = self.table_bytes_target;
        within("table_bytes_target", table_bytes, 4 << 10, 4 << 30)?;
        within("block_bytes", self.block_bytes.into(), 4 << 10, 64 << 10)?;
        if self.compression == Compression::None && !self.block_bytes.is_multiple_of(4 << 10) {
            return Err(Error::invalid(format!(
                "block_bytes: {} is not a multiple of 4096, as it must be without compression",
                self.block_bytes
            )));
        }
        let filter_bits = self.filter_bits_per_key.into();
        within("filter_bits_per_key", filter_bits, 0, 64)?;
        within("reshape_share", self.reshape_share.into(), 1, 50)?;
        if !self.compression.is_available() {
            return Err(Error::invalid(
                "compression: this build has no zstd (feature `zstd`)",
            ));
        }
        Ok(())
    }

    /// Appends the encoded form: a version byte, then each field as a varint, in the order of
    /// `docs/format/manifest.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let experiments = &self.experiments;
        out.push(VERSION);
        let fields = [
            self.filter_bits_per_key.into(),
            self.compression.code().into(),
            self.block_bytes.into(),
            self.table_bytes_target,
            experiments.shelf_runs_settle.into(),
            experiments.shelf_runs_slow.into(),
            experiments.shelf_runs_stop.into(),
            experiments.slice_bytes,
            experiments.leaf_batch.into(),
            self.reshape.into(),
            self.reshape_share.into(),
            experiments.reshape_fan.into(),
            experiments.reshape_filter_bits.into(),
            experiments.reshape_bits.into(),
        ];
        for field in fields {
            put_varint(out, field);
        }
    }

    /// Reads the encoded form from the front of `reader`. Returns `None` if it is cut off, of an
    /// unknown version, or has an option beyond its limits.
    #[must_use]
    pub fn decode(reader: &mut Reader<'_>) -> Option<BTreeOptions> {
        let version = reader.u8()?;
        let mut options = BTreeOptions {
            filter_bits_per_key: reader.varint32()?,
            compression: Compression::from_code(reader.varint()?)?,
            block_bytes: reader.varint32()?,
            table_bytes_target: reader.varint()?,
            experiments: BTreeExperiments {
                shelf_runs_settle: reader.varint32()?,
                shelf_runs_slow: reader.varint32()?,
                shelf_runs_stop: reader.varint32()?,
                slice_bytes: reader.varint()?,
                leaf_batch: reader.varint32()?,
                ..BTreeExperiments::default()
            },
            ..BTreeOptions::default()
        };
        match version {
            1 => {}
            VERSION => {
                options.reshape = match reader.varint()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                options.reshape_share = reader.varint32()?;
                options.experiments.reshape_fan = reader.varint32()?;
                options.experiments.reshape_filter_bits = reader.varint32()?;
                options.experiments.reshape_bits = reader.varint32()?;
            }
            _ => return None,
        }
        options.validate().is_ok().then_some(options)
    }

    /// How the tables of runs are written.
    pub(crate) fn run_config(&self) -> TableConfig {
        let filter_bits = match self.reshape {
            true => self.experiments.reshape_filter_bits,
            false => self.filter_bits_per_key,
        };
        TableConfig {
            // At most 64, so exact.
            filter_bits_per_key: f32::from(u8::try_from(filter_bits).unwrap_or(64)),
            ..self.leaf_config()
        }
    }

    /// How the tables of leaves are written. Branches lead to leaves, so there is no filter.
    pub(crate) fn leaf_config(&self) -> TableConfig {
        TableConfig {
            block_bytes: self.block_bytes as usize,
            filter_bits_per_key: 0.0,
            compression: self.compression,
            ..TableConfig::default()
        }
    }
}

const VERSION: u8 = 2;

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
    fn every_limit_names_its_field() {
        type Spoil = fn(&mut BTreeOptions);
        let bad: [(&str, Spoil); 12] = [
            ("shelf_runs_settle", |o| o.experiments.shelf_runs_settle = 0),
            ("shelf_runs_slow", |o| o.experiments.shelf_runs_slow = 4),
            ("shelf_runs_stop", |o| o.experiments.shelf_runs_stop = 8),
            ("slice_bytes", |o| o.experiments.slice_bytes = 100),
            ("leaf_batch", |o| o.experiments.leaf_batch = 0),
            ("table_bytes_target", |o| o.table_bytes_target = 100),
            ("block_bytes", |o| o.block_bytes = 5000),
            ("filter_bits_per_key", |o| o.filter_bits_per_key = 65),
            ("reshape_share", |o| o.reshape_share = 51),
            ("reshape_fan", |o| o.experiments.reshape_fan = 1),
            ("reshape_filter_bits", |o| {
                o.experiments.reshape_filter_bits = 65;
            }),
            ("reshape_bits", |o| o.experiments.reshape_bits = 3),
        ];
        BTreeOptions::default().validate().unwrap();
        for (field, spoil) in bad {
            let mut options = BTreeOptions::default();
            spoil(&mut options);
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(field), "{error}");
            let mut encoded = Vec::new();
            options.encode(&mut encoded);
            assert_eq!(BTreeOptions::decode(&mut Reader::new(&encoded)), None);
        }
    }

    #[test]
    fn options_round_trip_and_cut_ones_are_refused() {
        let options = || {
            let mut options = BTreeOptions::default().compression(Compression::Lz4);
            options.experiments.leaf_batch = 7;
            options.reshape(true)
        };
        let mut encoded = Vec::new();
        options().encode(&mut encoded);
        let read = |encoded: &[u8]| BTreeOptions::decode(&mut Reader::new(encoded));
        assert_eq!(read(&encoded), Some(options()));
        for cut in 0..encoded.len() {
            assert_eq!(read(&encoded[..cut]), None);
        }
        let mut unknown = encoded.clone();
        unknown[0] += 1;
        assert_eq!(read(&unknown), None);
        // Version 1 ends before the options of reshaping.
        encoded.truncate(encoded.len() - 5);
        encoded[0] = 1;
        let version_1 = BTreeOptions {
            reshape: false,
            ..options()
        };
        assert_eq!(read(&encoded), Some(version_1));
    }
}
