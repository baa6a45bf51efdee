//! The engines by name, and how each is opened and what memory it gets.
//!
//! `glintdb` takes options in its name, as `glintdb:size_ratio=4:read_engine=sync`: each such variant is an engine of
//! its own, with data sets of its own, and runs in turn with the others.
//!
//! Each adapter's settings stand beside its code with the reason. They are the documented best
//! practice of each engine for the memory it is given: a peer measured below its best proves nothing.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

use std::path::Path;

use glintdb_bench::{Durability, GlintOptions, GlintStore, Reshaped, Result, Store};

/// How a store is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Memory for memtables and caches together, bytes.
    pub(crate) memory_bytes: u64,
    /// Bytes of the keys and values that the workload is about, for engines that reserve space beforehand.
    pub(crate) data_bytes: u64,
    /// What each commit survives.
    pub(crate) durability: Durability,
}

/// Separates GlintDB's name and each of its options.
const SEPARATOR: char = ':';

/// The part of a memory limit that is left to the page cache, stacks and the allocator by an engine that reads round
/// the page cache: 1 in so many. With a full cache of records of 1 KiB jemalloc was seen to take up to a quarter more than
/// it was asked for (640 MiB of 512), which makes fifteen sixteenths of the limit.
const REST_OF_LIMIT: u64 = 4;

/// What is compared unless told otherwise: the engines of this build without their variants.
pub(crate) fn default_names() -> impl Iterator<Item = String> {
    NAMES
        .iter()
        .filter(|name| !name.contains('-'))
        .map(|&name| name.to_owned())
}

/// Names of the engines in this build.
pub(crate) const NAMES: &[&str] = &[
    "glintdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb-direct",
    #[cfg(feature = "rocksdb")]
    "rocksdb-blob",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "fjall")]
    "fjall-blob",
    #[cfg(feature = "lmdb")]
    "lmdb",
    #[cfg(feature = "lmdb")]
    "lmdb-wmap",
    #[cfg(feature = "redb")]
    "redb",
    #[cfg(feature = "wiredtiger")]
    "wiredtiger",
    #[cfg(feature = "wiredtiger")]
    "wiredtiger-reshaped",
];

/// The options in the name of a GlintDB; `None` for another engine.
fn glint(name: &str) -> Option<impl Iterator<Item = &str>> {
    let mut parts = name.split(SEPARATOR);
    (parts.next() == Some("glintdb")).then_some(parts)
}

/// Checks the name of an engine, and the options in it.
///
/// # Errors
/// In words, where there is no such engine in this build, or no such option.
pub(crate) fn check(name: &str) -> std::result::Result<(), String> {
    match glint(name) {
        Some(assignments) => GlintOptions::default()
            .set_all(assignments)
            .map_err(|error| error.to_string()),
        None if NAMES.contains(&name) => Ok(()),
        None => Err(unknown(name)),
    }
}

/// The name of a GlintDB with `assignments` before its own, which win; another engine's as it is.
pub(crate) fn with_options(name: &str, assignments: &[String]) -> String {
    let Some(own) = glint(name) else {
        return name.to_owned();
    };
    let parts = std::iter::once("glintdb")
        .chain(assignments.iter().map(String::as_str))
        .chain(own);
    parts.collect::<Vec<_>>().join(&SEPARATOR.to_string())
}

/// The memory for memtables and caches of engine `name`.
///
/// All engines have the same memory in total. Without a limit that is `memory`, and the page cache is everybody's.
/// With one it is the limit, page cache included: who reads through the page cache takes `memory` himself and leaves
/// the rest to it; who reads round it takes the rest too, for it is of no other use to him.
pub(crate) fn budget_bytes(name: &str, memory: u64, limit: Option<u64>) -> u64 {
    match limit {
        Some(limit) if reads_directly(name) => memory.max(limit - limit / REST_OF_LIMIT),
        _ => memory,
    }
}

fn reads_directly(name: &str) -> bool {
    match glint(name) {
        Some(assignments) => {
            let mut options = GlintOptions::default();
            options.set_all(assignments).is_ok() && options.reads_directly()
        }
        None => name == "rocksdb-direct",
    }
}

fn unknown(name: &str) -> String {
    format!(
        "no engine `{name}` in this build: one of {}, and glintdb with options such as glintdb:size_ratio=4",
        NAMES.join(" ")
    )
}

/// Opens or creates the store of engine `name` in directory `dir`.
///
/// # Errors
/// If there is no such engine in this build, or it fails.
pub(crate) fn open(name: &str, dir: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    if let Some(assignments) = glint(name) {
        // Its defaults: one number of memory, nothing else to tune. No compression, as the others.
        let mut options = GlintOptions::default();
        options.set_memory_bytes(setup.memory_bytes);
        options.set_all(assignments)?;
        let store = GlintStore::open(name, dir, setup.durability, options)?;
        return Ok(Box::new(store));
    }
    match name {
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Ok(Box::new(rocksdb::Rocks::open(
            dir,
            setup,
            rocksdb::Variant::Buffered,
        )?)),
        #[cfg(feature = "rocksdb")]
        "rocksdb-direct" => Ok(Box::new(rocksdb::Rocks::open(
            dir,
            setup,
            rocksdb::Variant::Direct,
        )?)),
        #[cfg(feature = "rocksdb")]
        "rocksdb-blob" => Ok(Box::new(rocksdb::Rocks::open(
            dir,
            setup,
            rocksdb::Variant::Blob,
        )?)),
        #[cfg(feature = "fjall")]
        "fjall" => Ok(Box::new(fjall::Fjall::open(dir, setup, false)?)),
        #[cfg(feature = "fjall")]
        "fjall-blob" => Ok(Box::new(fjall::Fjall::open(dir, setup, true)?)),
        #[cfg(feature = "lmdb")]
        "lmdb" => Ok(Box::new(lmdb::Lmdb::open(dir, setup, false)?)),
        #[cfg(feature = "lmdb")]
        "lmdb-wmap" => Ok(Box::new(lmdb::Lmdb::open(dir, setup, true)?)),
        #[cfg(feature = "redb")]
        "redb" => Ok(Box::new(redb::Redb::open(dir, setup)?)),
        #[cfg(feature = "wiredtiger")]
        "wiredtiger" => Ok(Box::new(wiredtiger::WiredTiger::open(dir, setup)?)),
        // The paper changed WiredTiger in this way.
        #[cfg(feature = "wiredtiger")]
        "wiredtiger-reshaped" => {
            let store = Box::new(wiredtiger::WiredTiger::open(dir, setup)?);
            Ok(Box::new(Reshaped::new(name, store, setup.durability)?))
        }
        _ => Err(unknown(name).into()),
    }
}

#[cfg(test)]
mod tests {
    use glintdb_bench::{Config, Contents, Runner, Workload};

    use super::*;

    #[test]
    fn options_in_a_name_reach_the_engine_or_are_refused() {
        check("glintdb:size-ratio=4:read_engine=sync").unwrap();
        for (name, words) in [
            ("glintdb:size_ration=4", "no option of this name"),
            ("glintdb:", "not NAME=VALUE"),
            ("rocksdb:size_ratio=4", "no engine"),
        ] {
            let error = check(name).unwrap_err();
            assert!(error.contains(words), "{name}: {error}");
        }
        let all = ["a=1".to_owned(), "b=2".to_owned()];
        assert_eq!(with_options("glintdb", &all), "glintdb:a=1:b=2");
        assert_eq!(with_options("glintdb:a=3", &all), "glintdb:a=1:b=2:a=3");
        assert_eq!(with_options("redb", &all), "redb");

        let dir = std::env::temp_dir().join(format!("bench-peers-glint-{}", std::process::id()));
        let setup = Setup {
            memory_bytes: 32 << 20,
            data_bytes: 0,
            durability: Durability::Os,
        };
        let name = "glintdb:read_engine=sync:log_segment_bytes=1M";
        let store = open(name, &dir, setup).unwrap();
        assert_eq!(store.engine(), name);
        assert!(store.describe().unwrap().contains("sync"));
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn memory_is_the_same_in_total() {
        let limit = Some(1200 << 20);
        for name in ["glintdb", "glintdb:size_ratio=4", "rocksdb-direct"] {
            assert_eq!(budget_bytes(name, 384 << 20, limit), 900 << 20);
            assert_eq!(budget_bytes(name, 384 << 20, None), 384 << 20);
        }
        for name in ["glintdb:direct_io=off", "rocksdb", "fjall", "redb"] {
            assert_eq!(budget_bytes(name, 384 << 20, limit), 384 << 20);
        }
    }

    #[test]
    fn every_engine_answers_every_workload_rightly() {
        let root = std::env::temp_dir().join(format!("bench-peers-engines-{}", std::process::id()));
        let config = Config {
            num: 2000,
            value_size: 700,
            threads: 3,
            batch_size: 7,
            ops: Some(1000),
            ..Config::default()
        };
        for name in NAMES {
            let setup = Setup {
                memory_bytes: 32 << 20,
                data_bytes: 2 << 20,
                durability: Durability::Os,
            };
            let store = open(name, &root.join(name), setup).unwrap();
            assert_eq!(store.engine(), *name);
            let mut runner = Runner::new(store.as_ref(), config.clone(), Contents::default());
            for workload in Workload::ALL {
                // What deletes everything comes last.
                if workload != Workload::DeleteRandom {
                    let report = runner.run(workload).unwrap();
                    assert!(report.is_correct(), "{name} {workload}: {report:?}");
                }
            }
            let report = runner.run(Workload::DeleteRandom).unwrap();
            assert!(report.is_correct(), "{name}: {report:?}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
