//! The engines by name, and how each is opened.
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

use std::path::Path;

use glintdb_bench::{Durability, GlintStore, Result, Store};

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
];

/// Opens or creates the store of engine `name` in directory `dir`.
///
/// # Errors
/// If there is no such engine in this build, or it fails.
pub(crate) fn open(name: &str, dir: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    match name {
        // Its defaults: one number of memory, nothing else to tune. No compression, as the others.
        "glintdb" => {
            let memory = setup.memory_bytes as usize;
            Ok(Box::new(GlintStore::open(
                dir,
                setup.durability,
                Some(memory),
            )?))
        }
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
        _ => Err(format!(
            "no engine `{name}` in this build: one of {}",
            NAMES.join(" ")
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use glintdb_bench::{Config, Contents, Runner, Workload};

    use super::*;

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
