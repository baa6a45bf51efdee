//! Where a test database lives.

use glintdb::{Db, Env, Error, Options, Result};
use glintdb_core::clock::Clock;
use glintdb_core::{DbId, FileId, FileKind};
use glintdb_flash::emulator::Emulated;
use glintdb_flash::emulator::nand::Profile;
use glintdb_flash::{Placement, Root, Units, Volume};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemVolume, Observer};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A place for one database.
pub enum Place {
    /// A directory. Crashes are closes there; the kill test kills real processes.
    Directory(PathBuf),
    /// A volume in memory, which loses what a kill or a power cut may lose.
    Memory(Arc<MemVolume>),
}

/// A clock that moves when someone sleeps, and a microsecond a look.
#[derive(Default)]
pub struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.monotonic()
    }

    fn sleep(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Directory of the second unit.
const SECOND: &str = "/second unit";

/// Whether a database there has two directories. Its checkpoints have one.
fn is_on_units(volume: &MemVolume) -> bool {
    volume.options().on_units && !volume.is_made_directory()
}

/// The directories in which a database has its files.
fn directories(volume: &Arc<MemVolume>) -> Result<Vec<Arc<MemVolume>>> {
    let mut directories = vec![Arc::clone(volume)];
    if is_on_units(volume) {
        let path = Path::new(SECOND);
        if volume.open_directory(path).is_none() {
            volume.make_directory(path)?;
        }
        directories.extend(volume.open_directory(path));
    }
    Ok(directories)
}

/// What a database is opened on: the volume in memory, two directories of it as units, or a
/// modelled device with its bytes.
///
/// # Errors
/// I/O errors, injected ones among them.
pub fn medium(
    volume: &Arc<MemVolume>,
    clock: &Arc<dyn Clock>,
    placement: &Placement,
) -> Result<Arc<dyn Volume>> {
    let inner = Arc::clone(volume) as Arc<dyn Volume>;
    if is_on_units(volume) {
        let root = |(number, volume): (usize, Arc<MemVolume>)| Root {
            volume: volume as Arc<dyn Volume>,
            name: format!("unit {number}"),
            medium: 0,
        };
        let roots = directories(volume)?.into_iter().enumerate().map(root);
        return Ok(Units::new(roots.collect(), placement.clone())?);
    }
    if !volume.options().on_device {
        return Ok(inner);
    }
    static PROFILE: LazyLock<Result<Profile>> =
        LazyLock::new(|| Profile::parse(DEVICE, "of the testkit"));
    let profile = PROFILE.clone()?;
    let emulated = Emulated::new(inner, profile, placement.clone(), Arc::clone(clock))?;
    Ok(Arc::new(emulated))
}

/// A device of 256 MiB with small blocks, so that few files fill and free many of them.
const DEVICE: &str = "
    name = 'small'
    about = 'for tests'
    [geometry]
    channels = 4
    luns = 2
    planes = 2
    blocks = 512
    pages = 8
    page_bytes = 4096
    [times]
    read_us = [5, 6]
    program_us = [20, 30]
    erase_us = 50
    bus_mb_s = 2000
    [suspend]
    program_us = 1
";

impl Place {
    /// An empty volume in memory.
    #[must_use]
    pub fn memory() -> Place {
        Place::Memory(MemVolume::new())
    }

    /// Opens the database there.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn open(&self, options: Options) -> Result<Db> {
        self.open_in_order(options, None)
    }

    /// [`open`](Self::open), with jobs in the order that a seed decides. In a directory the seed has no say.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn open_in_order(&self, options: Options, job_order: Option<u64>) -> Result<Db> {
        match self {
            Place::Directory(dir) => options.open(dir),
            Place::Memory(volume) => {
                let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
                let volume = medium(volume, &clock, &options.placement)?;
                let env = Env::new(clock, DbId(*b"a test's own id.")).job_order(job_order);
                options.open_volume(volume, env)
            }
        }
    }

    /// Shows `observer` every operation of a volume in memory from now on.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        if let Place::Memory(volume) = self {
            volume.observe(observer);
        }
    }

    /// The power goes after so many more operations of the volume; gives the number of the operation that it hits. Nothing happens to a directory.
    pub fn power_off_after(&self, operations: u64) -> u64 {
        let at_operation = self.operations() + operations;
        if let Place::Memory(volume) = self {
            volume.fail(Fault {
                at_operation,
                kind: FaultKind::PowerOff,
                sticky: false,
            });
        }
        at_operation
    }

    /// Operations of the volume so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        match self {
            Place::Directory(_) => 0,
            Place::Memory(volume) => volume.operation_count(),
        }
    }

    /// What a crash now leaves, which the database there does not notice: drop it, then open the place that this returns.
    #[must_use]
    pub fn crashed(&self, power_cut: bool, seed: u64) -> Place {
        match self {
            Place::Directory(dir) => Place::Directory(dir.clone()),
            Place::Memory(volume) if power_cut => Place::Memory(volume.crash(match seed % 4 {
                0 => CrashMode::LoseUnsynced,
                1 => CrashMode::KeepUnsynced,
                _ => CrashMode::Random { seed },
            })),
            Place::Memory(volume) => Place::Memory(volume.kill()),
        }
    }

    /// Files of a kind that are there.
    ///
    /// # Errors
    /// I/O errors.
    pub fn count(&self, kind: FileKind) -> Result<u64> {
        let files = match self {
            Place::Memory(volume) => {
                let lists = directories(volume)?.into_iter().map(|one| one.list());
                lists.collect::<Result<Vec<_>>>()?.concat()
            }
            Place::Directory(dir) => {
                let error = |error| Error::io("list a database", error);
                std::fs::read_dir(dir)
                    .map_err(error)?
                    .filter_map(|entry| FileId::parse(entry.ok()?.file_name().to_str()?))
                    .collect()
            }
        };
        Ok(files.iter().filter(|file| file.kind == kind).count() as u64)
    }

    /// Whether [`crashed`](Self::crashed) loses anything.
    #[must_use]
    pub fn crashes(&self) -> bool {
        matches!(self, Place::Memory(_))
    }
}
