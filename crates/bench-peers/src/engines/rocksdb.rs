//! RocksDB 11.8.1 through crate `rocksdb` 0.25.
//!
//! Settings, all from its tuning guide:
//! - a quarter of the memory as two write buffers, the rest a HyperClockCache that also holds index and filter
//!   blocks, at high priority and all pinned;
//! - Bloom filters of 10 bits a key, 4 KiB blocks, format 6, no compression (as the other engines here);
//! - dynamic level sizes, 4 background jobs, `bytes_per_sync` 1 MiB so that write-back does not come in bursts;
//! - log on: `Os` does not sync it, `Sync` does, `Buffered` leaves it in RocksDB's own buffer;
//! - MultiGet batched, with asynchronous I/O (io_uring is compiled in); iterators with asynchronous prefetch.
//!
//! `-direct` reads, flushes and compacts with O_DIRECT. `-blob` separates values from 512 B and collects garbage.

use std::path::{Path, PathBuf};

use glintdb_bench::{Durability, Handle, Result, Store};
use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, BottommostLevelCompaction, Cache,
    CompactOptions, DB, DBCompressionType, Options, ReadOptions, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};

use super::Setup;

const MIB: u64 = 1 << 20;
const COLUMN_FAMILY: &str = "default";

/// Values from this size on are separated in `-blob`.
const BLOB_MIN_BYTES: u64 = 512;

/// Which RocksDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Through the page cache: the default.
    Buffered,
    /// O_DIRECT.
    Direct,
    /// BlobDB.
    Blob,
}

pub(crate) struct Rocks {
    db: DB,
    dir: PathBuf,
    variant: Variant,
    durability: Durability,
}

impl Rocks {
    pub(crate) fn open(dir: &Path, setup: Setup, variant: Variant) -> Result<Self> {
        let write_buffers = setup.memory_bytes / 4;
        let cache = Cache::new_hyper_clock_cache((setup.memory_bytes - write_buffers) as usize, 0);

        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(4 << 10);
        table.set_format_version(6);
        table.set_bloom_filter(10.0, false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);

        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size((write_buffers / 2).max(MIB) as usize);
        options.set_max_write_buffer_number(2);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_background_jobs(4);
        options.set_bytes_per_sync(MIB);
        options.set_manual_wal_flush(setup.durability == Durability::Buffered);
        match variant {
            Variant::Buffered => {}
            Variant::Direct => {
                options.set_use_direct_reads(true);
                options.set_use_direct_io_for_flush_and_compaction(true);
            }
            Variant::Blob => {
                options.set_enable_blob_files(true);
                options.set_min_blob_size(BLOB_MIN_BYTES);
                options.set_enable_blob_gc(true);
                options.set_blob_cache(&cache);
            }
        }
        let families = [(COLUMN_FAMILY, options.clone())];
        let db = DB::open_cf_with_opts(&options, dir, families)?;
        Ok(Self {
            db,
            dir: dir.to_owned(),
            variant,
            durability: setup.durability,
        })
    }
}

impl Store for Rocks {
    fn engine(&self) -> &str {
        match self.variant {
            Variant::Buffered => "rocksdb",
            Variant::Direct => "rocksdb-direct",
            Variant::Blob => "rocksdb-blob",
        }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        let mut write = WriteOptions::default();
        write.set_sync(self.durability == Durability::Sync);
        let mut read = ReadOptions::default();
        read.set_async_io(true);
        Ok(Box::new(RocksHandle {
            db: &self.db,
            write,
            read,
        }))
    }

    fn compact(&self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(true);
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db
            .compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }

    fn describe(&self) -> Option<String> {
        self.db.property_value("rocksdb.stats").ok().flatten()
    }
}

struct RocksHandle<'a> {
    db: &'a DB,
    write: WriteOptions,
    read: ReadOptions,
}

impl Handle for RocksHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in records {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        let records = self.db.cf_handle("default").ok_or("no column family")?;
        let write = &self.write;
        Ok(self.db.delete_range_cf_opt(records, start, end, write)?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_opt(key, &self.read)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let family = self
            .db
            .cf_handle(COLUMN_FAMILY)
            .ok_or("no default column family")?;
        let values =
            self.db
                .batched_multi_get_cf_opt(family, keys.iter().copied(), false, &self.read);
        for (i, value) in values.into_iter().enumerate() {
            visit(i, value?.as_deref());
        }
        Ok(())
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut options = ReadOptions::default();
        options.set_async_io(true);
        let mut iterator = self.db.raw_iterator_opt(options);
        iterator.seek(from);
        let mut found = 0;
        while found < limit {
            let Some((key, value)) = iterator.item() else {
                break;
            };
            visit(key, value);
            found += 1;
            iterator.next();
        }
        iterator.status()?;
        Ok(found)
    }
}
