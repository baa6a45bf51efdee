//! GlintDB's options by name, so that a technique can be turned off or up from the command line of a measurement.
//!
//! Names are those of `docs/options.md`, with `-` or `_`; sizes take `K`, `M` and `G` (powers of 1,024), as that page.
//! What concerns the measurement itself is no option here: durability, and whether the database exists.

use std::fmt::Debug;
use std::str::FromStr;

use glintdb::{Compression, DirectIo, KeyspaceOptions, Options, ReadEngine};

use crate::store::Result;

/// Options of a database and of the keyspace that is measured, with a note of which were set.
#[derive(Clone, Debug, Default)]
pub struct GlintOptions {
    pub(crate) database: Options,
    /// `None` while every option of a keyspace has its default.
    pub(crate) keyspace: Option<KeyspaceOptions>,
}

/// Names of the options of a database.
const DATABASE: [&str; 9] = [
    "memory_budget_bytes",
    "background_threads",
    "separate_min_bytes",
    "log_segment_bytes",
    "log_ring_bytes",
    "replay_bytes_max",
    "snapshot_pin_bytes_max",
    "direct_io",
    "read_engine",
];

/// Names of the options of a keyspace.
const KEYSPACE: [&str; 10] = [
    "size_ratio",
    "level0_runs_compact",
    "level0_runs_slow",
    "level0_runs_stop",
    "table_bytes_target",
    "block_bytes",
    "filter_bits_per_key",
    "compression",
    "base_level_bytes",
    "pinned_levels",
];

impl GlintOptions {
    /// Every name that [`set`](Self::set) knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DATABASE.into_iter().chain(KEYSPACE)
    }

    /// Sets the options in `NAME=VALUE`s.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_all<'a>(&mut self, assignments: impl IntoIterator<Item = &'a str>) -> Result<()> {
        assignments
            .into_iter()
            .try_for_each(|assignment| self.set(assignment))
    }

    /// Sets the option in `NAME=VALUE`. Limits are checked when the database is opened.
    ///
    /// # Errors
    /// Where there is no such option, or the value is of another kind.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| format!("`{assignment}` is not NAME=VALUE"))?;
        let name = name.trim().replace('-', "_");
        let value = value.trim();
        let parsed = if KEYSPACE.contains(&name.as_str()) {
            set_keyspace(self.keyspace.get_or_insert_default(), &name, value)
        } else {
            set_database(&mut self.database, &name, value)
        };
        parsed.map_err(|error| format!("option {name}: {error}").into())
    }

    /// Sets `memory_budget_bytes`.
    pub fn set_memory_bytes(&mut self, bytes: u64) {
        self.database.memory_budget_bytes = bytes as usize;
    }

    /// Whether reads go round the page cache, so that memory which the engine does not hold is of no use to it.
    #[must_use]
    pub fn reads_directly(&self) -> bool {
        self.database.direct_io != DirectIo::Off
    }
}

fn set_database(options: &mut Options, name: &str, value: &str) -> Parsed {
    match name {
        "memory_budget_bytes" => put(&mut options.memory_budget_bytes, size(value)?),
        "background_threads" => put(&mut options.background_threads, number(value)?),
        "separate_min_bytes" => put(&mut options.separate_min_bytes, size(value)?),
        "log_segment_bytes" => put(&mut options.log_segment_bytes, size(value)?),
        "log_ring_bytes" => put(&mut options.log_ring_bytes, size(value)?),
        "replay_bytes_max" => put(&mut options.replay_bytes_max, size(value)?),
        "snapshot_pin_bytes_max" => put(&mut options.snapshot_pin_bytes_max, size(value)?),
        "direct_io" => {
            let words = [
                ("auto", DirectIo::Auto),
                ("on", DirectIo::On),
                ("off", DirectIo::Off),
            ];
            put(&mut options.direct_io, word(value, &words)?)
        }
        "read_engine" => {
            let words = [
                ("auto", ReadEngine::Auto),
                ("io_uring", ReadEngine::IoUring),
                ("sync", ReadEngine::Sync),
            ];
            put(&mut options.read_engine, word(value, &words)?)
        }
        _ => Err(format!(
            "there is none of this name; there are {}",
            GlintOptions::names().collect::<Vec<_>>().join(" ")
        )),
    }
}

fn set_keyspace(options: &mut KeyspaceOptions, name: &str, value: &str) -> Parsed {
    let lsm = &mut options.lsm;
    match name {
        "pinned_levels" => put(
            &mut lsm.pinned_levels,
            value.parse().map_err(|error| format!("{error}"))?,
        ),
        "size_ratio" => put(&mut lsm.size_ratio, number(value)?),
        "level0_runs_compact" => put(&mut lsm.level0_runs_compact, number(value)?),
        "level0_runs_slow" => put(&mut lsm.level0_runs_slow, number(value)?),
        "level0_runs_stop" => put(&mut lsm.level0_runs_stop, number(value)?),
        "table_bytes_target" => put(&mut lsm.table_bytes_target, size(value)?),
        "block_bytes" => put(&mut lsm.block_bytes, size(value)?),
        "filter_bits_per_key" => put(&mut lsm.filter_bits_per_key, number(value)?),
        "compression" => {
            let words = [
                ("none", Compression::None),
                ("lz4", Compression::Lz4),
                ("zstd", Compression::Zstd),
            ];
            put(&mut lsm.compression, word(value, &words)?)
        }
        "base_level_bytes" => put(&mut lsm.base_level_bytes, size(value)?),
        other => unreachable!("{other} is in the table of names and has no arm"),
    }
}

type Parsed<T = ()> = std::result::Result<T, String>;

fn put<T>(place: &mut T, value: T) -> Parsed {
    *place = value;
    Ok(())
}

fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn size<T: TryFrom<u64>>(text: &str) -> Parsed<T> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count: u64 = number(digits)?;
    count
        .checked_mul(1 << shift)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is too large"))
}

fn word<T: Copy + Debug>(text: &str, words: &[(&str, T)]) -> Parsed<T> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is none of {}", all.join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_on_the_page_of_options_and_can_be_set() {
        let page = include_str!("../../../docs/options.md");
        for name in GlintOptions::names() {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
            let value = match name {
                "direct_io" => "off",
                "read_engine" => "sync",
                "compression" => "lz4",
                _ => "3",
            };
            let mut options = GlintOptions::default();
            let before = format!("{:?} {:?}", all(&options), options.keyspace);
            options.set(&format!("{name}={value}")).unwrap();
            let after = format!("{:?} {:?}", all(&options), options.keyspace);
            assert_ne!(before, after, "{name} changes nothing");
        }
    }

    /// `Debug` of `Options` leaves some out.
    fn all(options: &GlintOptions) -> impl Debug + use<> {
        let o = &options.database;
        (
            (o.memory_budget_bytes, o.background_threads),
            (o.separate_min_bytes, o.log_segment_bytes, o.log_ring_bytes),
            (o.replay_bytes_max, o.snapshot_pin_bytes_max),
            (o.direct_io, o.read_engine),
        )
    }

    #[test]
    fn hyphens_and_units_are_understood() {
        let mut options = GlintOptions::default();
        assert!(options.reads_directly());
        let assignments = "log-segment-bytes=4m size-ratio=4 block_bytes=8K direct-io=off";
        options.set_all(assignments.split(' ')).unwrap();
        assert_eq!(options.database.log_segment_bytes, 4 << 20);
        let lsm = options.keyspace.as_ref().unwrap().lsm.clone();
        assert_eq!((lsm.size_ratio, lsm.block_bytes), (4, 8192));
        assert!(!options.reads_directly());
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (assignment, words) in [
            ("size_ratio", "not NAME=VALUE"),
            ("size_ration=4", "there is none of this name"),
            ("durability=sync", "there is none of this name"),
            ("size_ratio=four", "`four` is no number"),
            ("block_bytes=8G", "too large"),
            ("log_segment_bytes=99999999999G", "too large"),
            ("read_engine=uring", "none of auto io_uring sync"),
        ] {
            let error = GlintOptions::default().set(assignment).unwrap_err();
            assert!(error.to_string().contains(words), "{assignment}: {error}");
        }
    }
}
