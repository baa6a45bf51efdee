//! GlintDB as a [`Store`], and the whole of `glintdb bench`.

use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use glintdb::{Batch, Db, Keyspace, KeyspaceOptions};

use crate::args::{BenchArgs, run_on};
use crate::options::GlintOptions;
use crate::reshaped::Reshaped;
use crate::spread::keyspace_of;
use crate::store::{Durability, Handle, Io, Result, Store};
use crate::volume::{OnDevice, VolumeName};
use glintdb_flash::directories_of;

/// Time between looks at the job queue while settling.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Looks at an empty job queue that mean there is nothing left to do.
const QUIET_LOOKS: u32 = 3;

/// Keyspace that is measured where one of its options is not the default.
const KEYSPACE: &str = "bench";

/// A GlintDB database under measurement: one keyspace, or many for what is spread, at the
/// durability it was opened with.
pub struct GlintStore {
    name: String,
    db: Db,
    keyspace: Keyspace,
    keyspace_options: KeyspaceOptions,
    dir: PathBuf,
    device: Option<OnDevice>,
}

impl GlintStore {
    /// Opens or creates the database in `dir`; it calls itself `name` in reports.
    ///
    /// # Errors
    /// Those of the engine. The keyspace is there with other options.
    pub fn open(
        name: &str,
        dir: &Path,
        durability: Durability,
        options: GlintOptions,
    ) -> Result<Self> {
        Self::open_on(name, dir, durability, options, None)
    }

    /// As [`open`](Self::open); but if there is a device, opens the database there, and `dir` is
    /// only where the harness measures files.
    fn open_on(
        name: &str,
        dir: &Path,
        durability: Durability,
        options: GlintOptions,
        device: Option<&OnDevice>,
    ) -> Result<Self> {
        let database = options.database.durability(match durability {
            Durability::Buffered => glintdb::Durability::Buffered,
            Durability::Os => glintdb::Durability::Os,
            Durability::Sync => glintdb::Durability::Sync,
        });
        let db = match device {
            None => database.open(dir)?,
            Some(device) => device.database(database)?,
        };
        let keyspace_options = options.keyspace.clone().unwrap_or_default();
        let keyspace = match options.keyspace {
            None => db.default_keyspace(),
            Some(options) => {
                let keyspace = db.keyspace_or_create(KEYSPACE, options.clone())?;
                if keyspace.options() != options {
                    return Err(format!(
                        "{} holds records of a keyspace with other options",
                        dir.display()
                    )
                    .into());
                }
                keyspace
            }
        };
        Ok(Self {
            name: name.to_owned(),
            keyspace,
            keyspace_options,
            db,
            dir: dir.to_owned(),
            device: device.cloned(),
        })
    }
}

impl Store for GlintStore {
    fn engine(&self) -> &str {
        &self.name
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

    fn spread(&self, keyspaces: usize) -> Result<Box<dyn Handle + '_>> {
        let open = |number| {
            let name = format!("{KEYSPACE}-{number:05}");
            let options = self.keyspace_options.clone();
            Ok(GlintHandle {
                db: &self.db,
                keyspace: self.db.keyspace_or_create(&name, options)?,
            })
        };
        let handles: Result<Vec<_>> = (0..keyspaces).map(open).collect();
        Ok(Box::new(GlintSpread {
            db: &self.db,
            handles: handles?,
        }))
    }

    fn compact(&self) -> Result<()> {
        Ok(self.db.compact()?)
    }

    fn compact_values(&self) -> Result<()> {
        Ok(self.db.compact_values()?)
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

    fn written_bytes(&self) -> Option<u64> {
        Some(self.db.stats().volume.written_bytes)
    }

    fn io(&self) -> Option<Io> {
        let volume = self.db.stats().volume;
        Some(Io {
            reads: volume.reads,
            read_bytes: volume.read_bytes,
            read_batches: volume.read_batches,
            writes: volume.writes,
            written_bytes: volume.written_bytes,
            syncs: volume.syncs,
            read_us: volume.read_us,
            write_us: volume.write_us,
            sync_us: volume.sync_us,
        })
    }

    fn units(&self) -> Option<serde_json::Value> {
        let volume = self.db.stats().volume;
        let unit = |unit: &glintdb::UnitFigures| {
            serde_json::json!({
                "name": unit.name,
                "reads": unit.reads,
                "read_bytes": unit.read_bytes,
                "writes": unit.writes,
                "written_bytes": unit.written_bytes,
                "overflow_files": unit.overflow_files,
                "free_bytes": unit.free_bytes,
            })
        };
        let class = |class: &glintdb::ClassFigures| {
            serde_json::json!({
                "name": class.name,
                "reads": class.reads,
                "read_bytes": class.read_bytes,
                "writes": class.writes,
                "written_bytes": class.written_bytes,
            })
        };
        let units: Vec<_> = volume.units.iter().map(unit).collect();
        let classes: Vec<_> = volume.classes.iter().map(class).collect();
        (!units.is_empty()).then(|| serde_json::json!({ "units": units, "classes": classes }))
    }

    fn describe(&self) -> Option<String> {
        let mut text = format!("{:#?}", self.db.stats());
        if let Some(device) = &self.device {
            text.push('\n');
            text.push_str(&device.summary());
        }
        Some(text)
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

    fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        Ok(self.keyspace.delete_range(start..end)?)
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
        let mut records = self.keyspace.range::<&[u8]>(range).limit_hint(limit);
        while found < limit
            && let Some((key, value)) = records.next_ref()?
        {
            visit(key, value);
            found += 1;
        }
        Ok(found)
    }
}

/// A handle that spreads records over keyspaces.
struct GlintSpread<'a> {
    db: &'a Db,
    handles: Vec<GlintHandle<'a>>,
}

impl<'a> GlintSpread<'a> {
    fn of(&mut self, key: &[u8]) -> &mut GlintHandle<'a> {
        let at = keyspace_of(key, self.handles.len());
        &mut self.handles[at]
    }
}

impl Handle for GlintSpread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.of(key).put(key, value)
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = Batch::new();
        for (key, value) in records {
            batch.put(&self.of(key).keyspace, key, value);
        }
        Ok(self.db.write(batch)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.of(key).delete(key)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.of(key).get(key, visit)
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        self.of(from).scan(from, limit, visit)
    }
}

/// Runs `glintdb bench`: opens the database that `args` name, runs the workloads, and writes the results to `out`.
/// Returns whether every answer of the engine was right.
///
/// # Errors
/// If the directory holds something else, or the engine or writing to `out` fails.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool> {
    let on_directory = args.volume.as_ref().and_then(VolumeName::path);
    let (dir, temporary) = match args.dir.as_deref().or(on_directory) {
        Some(dir) => (dir.to_owned(), None),
        None => {
            let dir = PathBuf::from(format!("glintdb-bench-{}", std::process::id()));
            (dir.clone(), Some(RemoveOnDrop(dir)))
        }
    };
    let is_occupied = |dir: &PathBuf| {
        let entries = dir.read_dir();
        entries.is_ok_and(|mut entries| entries.next().is_some())
    };
    let directories = directories_of(&dir)?.unwrap_or_else(|| vec![dir.clone()]);
    let occupied = directories.iter().find(|dir| is_occupied(dir));
    if let Some(dir) = occupied.filter(|_| !args.use_existing) {
        return Err(format!(
            "{} is not empty: choose another directory, or go on with what an earlier run left there with --use-existing",
            dir.display()
        )
        .into());
    }
    let mut options = GlintOptions::default();
    if let Some(mb) = args.memory_mb {
        options.set_memory_bytes(mb << 20);
    }
    if let Some(kind) = &args.index {
        options.set(&format!("index={kind}"))?;
    }
    options.set_all(args.option.iter().map(String::as_str))?;
    options.database.placement = args.placement.clone();
    let device = args
        .volume
        .as_ref()
        .map(|volume| volume.device(&args.placement));
    let device = device.transpose()?.flatten();
    if device.is_some() {
        std::fs::create_dir_all(&dir)?;
    }
    let store = GlintStore::open_on("glintdb", &dir, args.durability, options, device.as_ref())?;
    let mut store: Box<dyn Store> = Box::new(store);
    if args.reshape_model {
        store = Box::new(Reshaped::new("reshape-model", store, args.durability)?);
    }
    let correct = run_on(store.as_ref(), args, out)?;
    drop(store);
    if let Some(device) = device.filter(|_| !args.json) {
        writeln!(out, "{}", device.summary())?;
    }
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
