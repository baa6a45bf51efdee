//! redb 4.5.
//!
//! Settings: the memory is its cache. `Sync` commits each transaction durably. redb has no level that survives a
//! kill without a sync: `Os` and `Buffered` commit with `Durability::None` and one durable commit each 500 ms,
//! so a kill may lose half a second: weaker than what the other engines promise there, and cheaper.
//!
//! Readers keep their read transaction while nobody writes, and begin a new one after each commit they
//! have not seen: the cheapest use that never reads stale data.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use glintdb_bench::{Durability, Handle, Result, Store};
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::Setup;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

/// Time between durable commits below `Sync`.
const DURABLE_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct Redb {
    db: Database,
    dir: PathBuf,
    durability: Durability,
    commits: AtomicU64,
    last_durable: Mutex<Instant>,
}

impl Redb {
    pub(crate) fn open(dir: &Path, setup: Setup) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let db = Database::builder()
            .set_cache_size(setup.memory_bytes as usize)
            .create(dir.join("data.redb"))?;
        let transaction = db.begin_write()?;
        drop(transaction.open_table(TABLE)?);
        transaction.commit()?;
        Ok(Self {
            db,
            dir: dir.to_owned(),
            durability: setup.durability,
            commits: AtomicU64::new(0),
            last_durable: Mutex::new(Instant::now()),
        })
    }

    fn write(
        &self,
        change: impl FnOnce(&mut Table<'_, &'static [u8], &'static [u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        let durable = self.durability == Durability::Sync || {
            let mut last = self.last_durable.lock().map_err(|_| "a writer panicked")?;
            let due = last.elapsed() >= DURABLE_INTERVAL;
            if due {
                *last = Instant::now();
            }
            due
        };
        transaction.set_durability(if durable {
            redb::Durability::Immediate
        } else {
            redb::Durability::None
        })?;
        change(&mut transaction.open_table(TABLE)?)?;
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl Store for Redb {
    fn engine(&self) -> &str {
        "redb"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(RedbHandle {
            store: self,
            table: None,
            seen: 0,
        }))
    }

    /// redb works in the foreground alone; what is left is a durable commit.
    fn settle(&self) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(redb::Durability::Immediate)?;
        Ok(transaction.commit()?)
    }
}

struct RedbHandle<'a> {
    store: &'a Redb,
    table: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    /// Commits before the read transaction behind `table` began.
    seen: u64,
}

impl RedbHandle<'_> {
    fn table(&mut self) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        let commits = self.store.commits.load(Ordering::Acquire);
        if self.seen != commits {
            self.table = None;
            self.seen = commits;
        }
        if self.table.is_none() {
            self.table = Some(self.store.db.begin_read()?.open_table(TABLE)?);
        }
        self.table.as_ref().ok_or_else(|| "no table".into())
    }
}

impl Handle for RedbHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.write(|table| {
            table.insert(key, value)?;
            Ok(())
        })
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.store.write(|table| {
            for (key, value) in records {
                table.insert(*key, *value)?;
            }
            Ok(())
        })
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.store.write(|table| {
            table.remove(key)?;
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.table()?.get(key)?;
        if let Some(value) = &value {
            visit(value.value());
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
        for item in ReadableTable::range(self.table()?, from..)?.take(limit) {
            let (key, value) = item?;
            visit(key.value(), value.value());
            found += 1;
        }
        Ok(found)
    }
}
