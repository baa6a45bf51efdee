//! A volume over several units, each a volume of its own: directories on several drives, for
//! example. A file is whole in one unit. The ring and manifests are in the first one.
//!
//! Thread-safe. No lock is held during I/O but that of [`Units::sync_directory`].
//!
//! Invariants:
//! 1. A name is in one unit at most. `names` has the unit of each, from before the name is created
//!    until it is removed. It may also have names whose creation has failed.
//! 2. A unit whose names have changed since its last sync has `changed` set, and so has each unit
//!    whose names this volume has never synced. The flag is set after the change, so that no sync
//!    which began before clears it.
//! 3. After a failed sync in one unit, no later sync of any unit is believed.
//! 4. If each unit has little room, a file goes to the one that has most, whatever its class. So
//!    the engine's reserve for a full disk serves all units from the first one, where it is,
//!    because the manifest and the ring are there: an operation that gives it up finds its space
//!    in the emptiest unit.

pub(crate) mod counts;
mod file;

use crate::dir::{DirOptions, DirVolume, open_units};
use crate::placement::Placement;
use crate::process::ProcessToken;
use crate::volume::{
    BegunBatch, ClassStats, CreateOptions, DataClass, ReadRequest, Ring, UnitStats, Volume,
    VolumeFile, VolumeStats, put_files_back, replace_files,
};
use counts::{Counts, ROWS, row_of};
use file::{UnitFile, UnitRing};
use glintdb_core::{Error, ErrorKind, FileId, Result, planted};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A unit with less free space than this, beside what a file reserves, takes the file only if no
/// unit has more. It is as much as several tables and log segments that are written together.
const ROOM_BYTES: u64 = 256 << 20;

/// A unit.
pub struct Root {
    /// Its files.
    pub volume: Arc<dyn Volume>,
    /// What it is called in statistics.
    pub name: String,
    /// Number of the medium whose space it takes. Units of the same medium share its free bytes.
    pub medium: u64,
}

struct Unit {
    root: Root,
    /// Whether names have changed since the last sync.
    changed: AtomicBool,
    /// Files that it was given because the units of their class had no room.
    overflow_files: AtomicU64,
}

/// Where a file is, and what it holds.
#[derive(Clone, Copy)]
struct Named {
    unit: usize,
    class: DataClass,
}

#[derive(Default)]
struct State {
    names: BTreeMap<FileId, Named>,
    /// Number of files of each class that each unit was given.
    files: Vec<[u64; ROWS]>,
}

struct Shared {
    counts: Counts,
    sync_failed: AtomicBool,
}

impl Shared {
    /// Does `sync`, and believes it only if none has failed so far.
    fn sync_with<T>(&self, sync: impl FnOnce() -> Result<T>) -> Result<T> {
        let synced = sync();
        if let Err(error) = &synced {
            let medium = matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned);
            self.sync_failed.fetch_or(medium, Ordering::SeqCst);
            return synced;
        }
        // Afterwards: one that failed meanwhile may have been told of this one's bytes.
        match self.sync_failed.load(Ordering::SeqCst) {
            false => synced,
            true => Err(Error::new(
                ErrorKind::Poisoned,
                "a sync in a directory of this database failed before; what the devices had taken \
                 since may be gone",
            )),
        }
    }
}

/// [`Volume::create`] or [`Volume::create_recycled`].
type Create = fn(&dyn Volume, FileId, CreateOptions) -> Result<Arc<dyn VolumeFile>>;

/// A volume over several units. Thread-safe.
pub struct Units {
    units: Vec<Unit>,
    placement: Placement,
    /// The units of each group of the placement.
    groups: Vec<Range<usize>>,
    /// The process that opened the units. A forked child takes no lock, which might never be free.
    process: ProcessToken,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// Held during a sync of names, so that a second one waits for the first.
    syncing: Mutex<()>,
    /// The directories that the units are, if they are.
    directories: Vec<Arc<DirVolume>>,
}

impl Units {
    /// Opens a database's directories and locks them. The order in which they are given does not
    /// matter for a database that is there. For a new one, the first directory gets the ring and
    /// the manifest.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    /// use glintdb_core::{FileId, FileKind};
    /// use glintdb_flash::{CreateOptions, DataClass, DirOptions, Placement, Units, Volume};
    /// let options = DirOptions { create: true, ..DirOptions::default() };
    /// let volume = Units::open(&[one.clone(), two.clone()], Placement::Striping, options)?;
    /// for number in 1..=4 {
    ///     let options = CreateOptions { class: DataClass::Flush, reserve_bytes: 0, direct: true };
    ///     volume.create(FileId::new(FileKind::Table, number), options)?;
    /// }
    /// let tables = |path: &std::path::Path| {
    ///     let names = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    ///     names.filter(|name| name.to_str().unwrap().starts_with("table")).count()
    /// };
    /// assert_eq!((tables(&one), tables(&two)), (2, 2));
    /// # Ok::<(), glintdb_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: there are less than 2 or more than 64; one is given twice, is missing
    ///   among those given, belongs to another database or holds other files; a group of
    ///   `placement` has no unit.
    /// - `NotFound`: there is no database, and `create` is false; or a directory is not there.
    /// - `Corruption`: a file `unit` is damaged, or a name is in two directories.
    /// - `Locked`, `Unavailable`, I/O errors.
    pub fn open(
        paths: &[PathBuf],
        placement: Placement,
        options: DirOptions,
    ) -> Result<Arc<Units>> {
        // Before anything is made.
        groups_of(&placement, paths.len())?;
        let directories = open_units(paths, options)?;
        let root = |volume: &Arc<DirVolume>| {
            Ok(Root {
                name: volume.path().display().to_string(),
                medium: volume.device()?,
                volume: Arc::clone(volume) as Arc<dyn Volume>,
            })
        };
        let roots = directories.iter().map(root).collect::<Result<Vec<_>>>()?;
        let mut units = Units::over(roots, placement)?;
        units.directories = directories;
        Ok(Arc::new(units))
    }

    /// A volume over units that are open.
    ///
    /// # Errors
    /// `InvalidArgument`: a group of `placement` has no unit. `Corruption`: a name is in two units.
    /// I/O errors.
    pub fn new(roots: Vec<Root>, placement: Placement) -> Result<Arc<Units>> {
        Units::over(roots, placement).map(Arc::new)
    }

    fn over(roots: Vec<Root>, placement: Placement) -> Result<Units> {
        let groups = groups_of(&placement, roots.len())?;
        let state = State {
            files: vec![[0; ROWS]; roots.len()],
            ..State::default()
        };
        let unit = |root| Unit {
            root,
            // An earlier process may have left names that were not synced.
            changed: AtomicBool::new(true),
            overflow_files: AtomicU64::new(0),
        };
        let units = Units {
            shared: Arc::new(Shared {
                counts: Counts::new(roots.len()),
                sync_failed: AtomicBool::new(false),
            }),
            units: roots.into_iter().map(unit).collect(),
            placement,
            groups,
            process: ProcessToken::current(),
            state: Mutex::new(state),
            syncing: Mutex::default(),
            directories: Vec::new(),
        };
        units.state.lock().names = units.look()?;
        Ok(units)
    }

    /// The directories that the units are, in their order. Empty if they are none.
    #[must_use]
    pub fn directories(&self) -> &[Arc<DirVolume>] {
        &self.directories
    }

    fn first(&self) -> &dyn Volume {
        &*self.units[0].root.volume
    }

    /// Every name, with its unit.
    fn look(&self) -> Result<BTreeMap<FileId, Named>> {
        let mut found: BTreeMap<FileId, Named> = BTreeMap::new();
        for (unit, Unit { root, .. }) in self.units.iter().enumerate() {
            for id in root.volume.list()? {
                let class = DataClass::of_found(id);
                if let Some(other) = found.insert(id, Named { unit, class }) {
                    let (one, two) = (&self.units[other.unit].root.name, &root.name);
                    let what = format!("it is in {one} and in {two}");
                    return Err(Error::corruption(id, 0, what));
                }
            }
        }
        Ok(found)
    }

    /// Where a file is.
    fn find(&self, id: FileId) -> Result<Named> {
        self.process.check()?;
        let state = self.state.lock();
        state.names.get(&id).copied().ok_or_else(|| {
            let what = format!("{id} is in no directory of this database");
            Error::new(ErrorKind::NotFound, what)
        })
    }

    /// The units that may take a new file, the best first.
    fn choose(&self, options: CreateOptions) -> Vec<usize> {
        if is_of_first(options.class) {
            return vec![0];
        }
        let free = |unit: &Unit| unit.root.volume.free_bytes().unwrap_or(u64::MAX);
        let free: Vec<u64> = self.units.iter().map(free).collect();
        let group = &self.groups[self.placement.group_of(options.class)];
        let needed = options.reserve_bytes.saturating_add(ROOM_BYTES);
        let row = row_of(options.class);
        let state = self.state.lock();
        let mut order: Vec<usize> = (0..self.units.len()).collect();
        order.sort_by_key(|&unit| {
            let has_room = free[unit] >= needed;
            let turn = match has_room && group.contains(&unit) {
                true => state.files[unit][row],
                false => u64::MAX,
            };
            (!has_room, turn, Reverse(free[unit]))
        });
        order
    }

    fn make(
        &self,
        id: FileId,
        options: CreateOptions,
        create: Create,
    ) -> Result<Arc<dyn VolumeFile>> {
        self.process.check()?;
        // A name that is taken, or whose creation has failed, is the business of its unit.
        let known = self.state.lock().names.get(&id).copied();
        let order = known.map_or_else(|| self.choose(options), |known| vec![known.unit]);
        let mut made = Err(Error::new(ErrorKind::NoSpace, format!("create {id}")));
        for number in order {
            let unit = &self.units[number];
            // Another thread may have been faster with the same name.
            let named = Named {
                unit: number,
                class: options.class,
            };
            let entered = *self.state.lock().names.entry(id).or_insert(named);
            if entered.unit != number {
                return Err(Error::exists(format!("create {id}")));
            }
            made = create(&*unit.root.volume, id, options);
            unit.changed.store(true, Ordering::SeqCst);
            match &made {
                Ok(_) => return Ok(self.made(named, made?)),
                Err(error) if error.kind() == ErrorKind::NoSpace && known.is_none() => {
                    self.state.lock().names.remove(&id);
                }
                Err(_) => break,
            }
        }
        made
    }

    /// Notes a new file.
    fn made(&self, named: Named, inner: Arc<dyn VolumeFile>) -> Arc<dyn VolumeFile> {
        let Named { unit, class } = named;
        self.state.lock().files[unit][row_of(class)] += 1;
        let group = &self.groups[self.placement.group_of(class)];
        if !is_of_first(class) && !group.contains(&unit) {
            let overflows = &self.units[unit].overflow_files;
            overflows.fetch_add(1, Ordering::Relaxed);
        }
        self.handle(named, inner)
    }

    fn handle(&self, named: Named, inner: Arc<dyn VolumeFile>) -> Arc<dyn VolumeFile> {
        Arc::new(UnitFile {
            inner,
            shared: Arc::clone(&self.shared),
            unit: named.unit,
            class: named.class,
        })
    }

    /// Removes a name.
    fn remove(&self, id: FileId, remove: fn(&dyn Volume, FileId) -> Result<()>) -> Result<()> {
        let unit = &self.units[self.find(id)?.unit];
        let removed = remove(&*unit.root.volume, id);
        unit.changed.store(true, Ordering::SeqCst);
        let is_gone = match &removed {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if is_gone {
            self.state.lock().names.remove(&id);
        }
        removed
    }

    /// Counts what a batch has read.
    fn count_reads(requests: &[ReadRequest]) {
        for request in requests {
            if let (Some(file), Some(Ok(bytes))) = (UnitFile::of(&*request.file), &request.result) {
                file.count_read(bytes.len());
            }
        }
    }
}

/// Whether files of this class are in the first unit, whatever the placement says.
fn is_of_first(class: DataClass) -> bool {
    matches!(class, DataClass::Manifest | DataClass::Reserve)
}

/// The units of each group.
fn groups_of(placement: &Placement, units: usize) -> Result<Vec<Range<usize>>> {
    if matches!(placement, Placement::Dynamic(_)) {
        return Err(Error::invalid(
            "a dynamic placement is for a modelled device: it needs to know what its units do",
        ));
    }
    let ranges = placement.split(u32::try_from(units).unwrap_or(u32::MAX))?;
    let range = |range: &Range<u32>| range.start as usize..range.end as usize;
    Ok(ranges.iter().map(range).collect())
}

/// The directories that `path` names if it is `dirs:PATH,PATH`; `None` if it is the path of one.
///
/// # Errors
/// `InvalidArgument`: one of them is empty.
pub fn directories_of(path: &Path) -> Result<Option<Vec<PathBuf>>> {
    let Some(list) = path.to_str().and_then(|path| path.strip_prefix("dirs:")) else {
        return Ok(None);
    };
    match list.split(',').any(str::is_empty) {
        true => Err(Error::invalid(format!(
            "{}: several directories are given as `dirs:PATH,PATH`",
            path.display()
        ))),
        false => Ok(Some(list.split(',').map(PathBuf::from).collect())),
    }
}

impl Volume for Units {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.make(id, options, |volume, id, options| {
            volume.create(id, options)
        })
    }

    fn create_recycled(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.make(id, options, |volume, id, options| {
            volume.create_recycled(id, options)
        })
    }

    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        let named = self.find(id)?;
        let inner = self.units[named.unit].root.volume.open(id)?;
        Ok(self.handle(named, inner))
    }

    fn delete(&self, id: FileId) -> Result<()> {
        self.remove(id, |volume, id| volume.delete(id))
    }

    /// A file that is kept stays in its unit.
    fn recycle(&self, id: FileId) -> Result<()> {
        self.remove(id, |volume, id| volume.recycle(id))
    }

    fn delete_recycled(&self) {
        for unit in &self.units {
            unit.root.volume.delete_recycled();
        }
    }

    fn list(&self) -> Result<Vec<FileId>> {
        Ok(self.look()?.into_keys().collect())
    }

    /// Syncs the units whose names have changed.
    fn sync_directory(&self) -> Result<()> {
        self.process.check()?;
        let _one = self.syncing.lock();
        self.shared.sync_with(|| {
            for (number, unit) in self.units.iter().enumerate() {
                let forgotten = planted!(
                    "flash: the names of the second unit are not made durable",
                    false,
                    number == 1
                );
                if !forgotten && unit.changed.swap(false, Ordering::SeqCst) {
                    let synced = unit.root.volume.sync_directory();
                    synced.inspect_err(|_| unit.changed.store(true, Ordering::SeqCst))?;
                }
            }
            Ok(())
        })
    }

    /// One plan for all units: the first one's knows the files of directories of one database.
    fn read_batch(&self, requests: &mut [ReadRequest]) {
        let files = replace_files(requests, UnitFile::inner_of);
        self.first().read_batch(requests);
        put_files_back(requests, files);
        Self::count_reads(requests);
    }

    fn begin_batch(&self, mut requests: Vec<ReadRequest>) -> BegunBatch {
        let files = replace_files(&mut requests, UnitFile::inner_of);
        let begun = self.first().begin_batch(requests);
        BegunBatch::new(move || {
            let mut requests = begun.wait();
            put_files_back(&mut requests, files);
            Self::count_reads(&requests);
            requests
        })
    }

    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        Ok(Arc::new(UnitRing {
            inner: self.first().ring(bytes)?,
            shared: Arc::clone(&self.shared),
        }))
    }

    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        self.first().existing_ring_bytes()
    }

    fn remove_ring(&self) -> Result<()> {
        self.first().remove_ring()
    }

    /// Free bytes of all media: a file that does not fit the units of its class goes to others.
    fn free_bytes(&self) -> Option<u64> {
        let mut media: BTreeMap<u64, u64> = BTreeMap::new();
        for unit in &self.units {
            let free = media.entry(unit.root.medium).or_default();
            *free = (*free).max(unit.root.volume.free_bytes()?);
        }
        Some(media.into_values().fold(0, u64::saturating_add))
    }

    fn link(&self, id: FileId, target: &Path) -> Result<bool> {
        let unit = &self.units[self.find(id)?.unit];
        unit.root.volume.link(id, target)
    }

    /// One directory, which holds the copies of all units' files.
    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
        self.first().make_directory(path)
    }

    fn stats(&self) -> VolumeStats {
        let mut units = self.units.iter().map(|unit| unit.root.volume.stats());
        let first = units.next().unwrap_or_default();
        units.fold(first, |sum, unit| VolumeStats {
            reads: sum.reads + unit.reads,
            read_bytes: sum.read_bytes + unit.read_bytes,
            read_batches: sum.read_batches + unit.read_batches,
            writes: sum.writes + unit.writes,
            written_bytes: sum.written_bytes + unit.written_bytes,
            syncs: sum.syncs + unit.syncs,
            read_us: sum.read_us + unit.read_us,
            write_us: sum.write_us + unit.write_us,
            sync_us: sum.sync_us + unit.sync_us,
            recycled_files: sum.recycled_files + unit.recycled_files,
            // Directories of one database share their buffers.
            idle_buffer_bytes: sum.idle_buffer_bytes.max(unit.idle_buffer_bytes),
            idle_buffer_bytes_most: sum.idle_buffer_bytes_most.max(unit.idle_buffer_bytes_most),
        })
    }

    fn units(&self) -> Vec<UnitStats> {
        let stats = |(number, unit): (usize, &Unit)| UnitStats {
            name: unit.root.name.clone(),
            overflow_files: unit.overflow_files.load(Ordering::Relaxed),
            free_bytes: unit.root.volume.free_bytes(),
            ..self.shared.counts.unit(number)
        };
        self.units.iter().enumerate().map(stats).collect()
    }

    fn classes(&self) -> Vec<ClassStats> {
        self.shared.counts.classes()
    }

    fn describe(&self) -> String {
        let (units, placement) = (self.units.len(), &self.placement);
        format!("{units} units, {placement}; {}", self.first().describe())
    }
}
