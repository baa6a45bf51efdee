//! GlintDB as a [`Store`], and the whole of `glintdb bench`.

use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use glintdb::{Batch, Db, Keyspace, Options};

use crate::args::{BenchArgs, run_on};
use crate::store::{Durability, Handle, Result, Store};

/// Time between looks at the job queue while settling.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Looks at an empty job queue that mean there is nothing left to do.
const QUIET_LOOKS: u32 = 3;

/// A GlintDB database under measurement: its default keyspace, at the durability it was opened with.
pub struct GlintStore {
    db: Db,
    keyspace: Keyspace,
    dir: PathBuf,
}

impl GlintStore {
    /// Opens or creates the database in `dir`. Without a memory budget it has the engine's default.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn open(
        dir: &Path,
        durability: Durability,
        memory_budget_bytes: Option<usize>,
    ) -> Result<Self> {
        let mut options = Options::default().durability(match durability {
            Durability::Buffered => glintdb::Durability::Buffered,
            Durability::Os => glintdb::Durability::Os,
            Durability::Sync => glintdb::Durability::Sync,
        });
        if let Some(bytes) = memory_budget_bytes {
            options = options.memory_budget_bytes(bytes);
        }
        let db = options.open(dir)?;
        Ok(Self {
            keyspace: db.default_keyspace(),
            db,
            dir: dir.to_owned(),
        })
    }
}

impl Store for GlintStore {
    fn engine(&self) -> &str {
        "glintdb"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(GlintHandle {
            db: &self.db,
            keyspace: self.keyspace.clone(),
        }))
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        // A finished job may put the next one into the queue a moment later: quiet is quiet several times.
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            std::thread::sleep(LOOK_PERIOD);
            let stats = self.db.stats();
            if let Some(error) = stats.background_error {
                return Err(error.into());
            }
            let idle = stats.jobs_running == 0 && stats.jobs_waiting.is_empty();
            quiet = if idle { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some(format!("{:#?}", self.db.stats()))
    }
}

struct GlintHandle<'a> {
    db: &'a Db,
    keyspace: Keyspace,
}

impl Handle for GlintHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.put(key, value)?)
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = Batch::new();
        for (key, value) in records {
            batch.put(&self.keyspace, key, value);
        }
        Ok(self.db.write(batch)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.keyspace.delete(key)?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
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
        for (i, value) in self.keyspace.multi_get(keys).into_iter().enumerate() {
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
        let mut found = 0;
        let range = (Bound::Included(from), Bound::Unbounded);
        for record in self.keyspace.range::<&[u8]>(range).take(limit) {
            let (key, value) = record?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }
}

/// Runs `glintdb bench`: opens the database that `args` name, runs the workloads, and writes the results to `out`.
/// Returns whether every answer of the engine was right.
///
/// # Errors
/// If the directory holds something else, or the engine or writing to `out` fails.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool> {
    let (dir, temporary) = match &args.dir {
        Some(dir) => (dir.clone(), None),
        None => {
            let dir = PathBuf::from(format!("glintdb-bench-{}", std::process::id()));
            (dir.clone(), Some(RemoveOnDrop(dir)))
        }
    };
    let occupied = dir
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !args.use_existing {
        return Err(format!(
            "{} is not empty: choose another directory, or go on with what an earlier run left there with --use-existing",
            dir.display()
        )
        .into());
    }
    let memory = args.memory_mb.map(|mb| (mb as usize) << 20);
    let store = GlintStore::open(&dir, args.durability, memory)?;
    let correct = run_on(&store, args, out)?;
    drop(store);
    drop(temporary);
    Ok(correct)
}

/// Removes a temporary database, also when the run failed.
struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // What cannot be removed is in the current directory for all to see.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
