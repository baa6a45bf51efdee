//! fjall 3.1.
//!
//! Settings: a quarter of the memory as memtables (two, as RocksDB: one fills while one is flushed), the rest
//! cache; 4 workers; no compression; default filters (10 bits a key), pinning and 4 KiB blocks. `Os` hands the
//! journal to the kernel at each commit (its default), `Sync` calls `fdatasync` too, `Buffered` neither.
//! `-blob` separates values from 512 B.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
};
use glintdb_bench::{Durability, Handle, Result, Store};

use super::Setup;

/// Values from this size on are separated in `-blob`.
const BLOB_MIN_BYTES: u32 = 512;

pub(crate) struct Fjall {
    db: Database,
    keyspace: Keyspace,
    dir: PathBuf,
    blob: bool,
    durability: Durability,
}

impl Fjall {
    pub(crate) fn open(dir: &Path, setup: Setup, blob: bool) -> Result<Self> {
        let memtables = setup.memory_bytes / 4;
        // The journal is handed over below where fjall would not do it as asked.
        let manual = setup.durability != Durability::Os;
        let db = Database::builder(dir)
            .cache_size(setup.memory_bytes - memtables)
            .worker_threads(4)
            .manual_journal_persist(manual)
            .journal_compression(CompressionType::None)
            .open()?;
        let keyspace = db.keyspace("bench", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtables / 2)
                .manual_journal_persist(manual)
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
                .with_kv_separation(blob.then(|| {
                    KvSeparationOptions::default()
                        .separation_threshold(BLOB_MIN_BYTES)
                        .compression(CompressionType::None)
                }))
        })?;
        Ok(Self {
            db,
            keyspace,
            dir: dir.to_owned(),
            blob,
            durability: setup.durability,
        })
    }
}

impl Store for Fjall {
    fn engine(&self) -> &str {
        if self.blob { "fjall-blob" } else { "fjall" }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(FjallHandle(self)))
    }

    fn compact(&self) -> Result<()> {
        Ok(self.keyspace.major_compact()?)
    }

    fn settle(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        // fjall tells running and finished compactions, not waiting ones: settled is when none ran, began or ended
        // for a while.
        let mut quiet = 0;
        let mut completed = self.db.compactions_completed();
        while quiet < 5 {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.db.compactions_completed();
            let idle = self.db.active_compactions() == 0
                && self.db.outstanding_flushes() == 0
                && now == completed;
            quiet = if idle { quiet + 1 } else { 0 };
            completed = now;
        }
        Ok(())
    }
}

struct FjallHandle<'a>(&'a Fjall);

impl FjallHandle<'_> {
    fn sync(&self) -> Result<()> {
        if self.0.durability == Durability::Sync {
            self.0.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Handle for FjallHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.keyspace.insert(key, value)?;
        self.sync()
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = self.0.db.batch();
        for (key, value) in records {
            batch.insert(&self.0.keyspace, *key, *value);
        }
        batch.commit()?;
        self.sync()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.keyspace.remove(key)?;
        self.sync()
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.keyspace.get(key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut found = 0;
        for item in self.0.keyspace.range(from..).take(limit) {
            let (key, value) = item.into_inner()?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }
}
