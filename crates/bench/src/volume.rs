//! `--volume` and `--placement`: a database over several directories, or on the modelled flash
//! device.

use glintdb::{Db, Env, Options};
use glintdb_core::DbId;
use glintdb_flash::emulator::nand::Profile;
use glintdb_flash::emulator::{Emulated, EmulatedStats};
use glintdb_flash::{
    DirOptions, DirVolume, Placement, SystemClock, Volume, directories_of, random_bytes,
};
use glintdb_simdisk::MemVolume;
use hdrhistogram::Histogram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The end of a wait in which a thread spins, because the kernel wakes sleepers that late.
const SPIN: Duration = Duration::from_micros(60);

/// A volume that `--volume` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeName {
    /// `dirs:PATH,PATH`: several directories. The text itself, which the engine takes for a path.
    Directories(PathBuf),
    /// `emulator:PROFILE` has its bytes in memory, `emulator:PROFILE:DIR` in a directory.
    Emulator {
        /// Name of the profile, or its file.
        profile: String,
        /// Directory of the bytes.
        dir: Option<PathBuf>,
    },
}

impl std::str::FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match directories_of(Path::new(text)) {
            Ok(Some(_)) => return Ok(VolumeName::Directories(text.into())),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
        let Some(rest) = text
            .strip_prefix("emulator:")
            .filter(|rest| !rest.is_empty())
        else {
            return Err(format!(
                "`{text}` is not `dirs:PATH,PATH`, `emulator:PROFILE` or `emulator:PROFILE:DIR`; \
                 `glintdb flash-bench --list-profiles` lists the profiles"
            ));
        };
        let (profile, dir) = match rest.split_once(':') {
            Some((_, "")) => {
                return Err(format!("`{text}` names no directory after the second `:`"));
            }
            Some((profile, dir)) => (profile, Some(dir.into())),
            None => (rest, None),
        };
        Ok(VolumeName::Emulator {
            profile: profile.into(),
            dir,
        })
    }
}

impl VolumeName {
    /// The path of the database's files, if they are in directories.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            VolumeName::Directories(path) => Some(path),
            VolumeName::Emulator { dir, .. } => dir.as_deref(),
        }
    }

    /// Opens the modelled device, if it is one.
    ///
    /// # Errors
    /// As [`OnDevice::open`].
    pub fn device(&self, placement: &Placement) -> glintdb::Result<Option<OnDevice>> {
        match self {
            VolumeName::Directories(_) => Ok(None),
            VolumeName::Emulator { profile, dir } => {
                OnDevice::open(profile, dir.as_deref(), placement.clone()).map(Some)
            }
        }
    }
}

/// An open volume on the modelled device, in real time, and what an engine needs beside it.
#[derive(Clone)]
pub struct OnDevice {
    volume: Emulated,
    clock: Arc<SystemClock>,
}

impl OnDevice {
    /// Opens the volume.
    ///
    /// # Errors
    /// There is no such profile or directory; the placement does not fit the device.
    pub fn open(
        profile: &str,
        dir: Option<&Path>,
        placement: Placement,
    ) -> glintdb::Result<OnDevice> {
        let profile = Profile::find(profile)?;
        let inner: Arc<dyn Volume> = match dir {
            None => MemVolume::new(),
            Some(dir) => {
                let options = DirOptions {
                    create: true,
                    recycle: false,
                    ..DirOptions::default()
                };
                DirVolume::open(dir, options)?
            }
        };
        let clock = Arc::new(SystemClock::new());
        let volume = Emulated::new(inner, profile, placement, clock.clone())?.spin(SPIN);
        Ok(OnDevice { volume, clock })
    }

    /// Opens the database there, or creates it.
    ///
    /// # Errors
    /// Those of the engine. The system gives no random bytes for the database's identity.
    pub fn database(&self, options: Options) -> glintdb::Result<Db> {
        let env = Env::new(self.clock.clone(), DbId(random_bytes()?));
        options.open_volume(Arc::new(self.volume.clone()), env)
    }

    /// What the device did.
    #[must_use]
    pub fn stats(&self) -> EmulatedStats {
        self.volume.device_stats()
    }

    /// [`stats`](Self::stats) in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        let stats = self.stats();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let sum = |of: fn(&glintdb_flash::emulator::nand::UnitStats) -> u64| -> u64 {
            stats.units.iter().map(of).sum()
        };
        let us =
            |waits: &Histogram<u32>, quantile| waits.value_at_quantile(quantile) as f64 / 1000.0;
        let (computed, taken) = (&stats.waits.computed, &stats.waits.taken);
        format!(
            "device: {:.1} MiB written by the host, {:.1} programmed ({:.3} times), {:.1} padding, {:.1} moved; {} \
             reads, {} erases, wear {} to {}; {} waits, of which the model has p50 {:.0} us and p99 {:.0}, and which \
             took {:.0} and {:.0}",
            mib(stats.space.host_bytes),
            mib(stats.space.programmed_bytes),
            stats.write_amp_device,
            mib(stats.space.padding_bytes),
            mib(stats.space.moved_bytes),
            sum(|unit| unit.reads),
            sum(|unit| unit.erases),
            stats.wear.0,
            stats.wear.1,
            computed.len(),
            us(computed, 0.5),
            us(computed, 0.99),
            us(taken, 0.5),
            us(taken, 0.99),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes_are_read() {
        let emulator = |profile: &str, dir: Option<&str>| VolumeName::Emulator {
            profile: profile.to_owned(),
            dir: dir.map(PathBuf::from),
        };
        for (text, name) in [
            ("emulator:mqsim-mlc", emulator("mqsim-mlc", None)),
            (
                "emulator:./my.toml:/data/x",
                emulator("./my.toml", Some("/data/x")),
            ),
            ("dirs:/a,b", VolumeName::Directories("dirs:/a,b".into())),
        ] {
            assert_eq!(text.parse::<VolumeName>().unwrap(), name);
        }
        for (text, part) in [
            ("emulator:z-nand:", "no directory"),
            ("dirs:", "`dirs:PATH,PATH`"),
            ("dirs:a,,b", "`dirs:PATH,PATH`"),
            ("", "is not `dirs:PATH,PATH`"),
            ("emulator", "is not `dirs:PATH,PATH`"),
            ("emulator:", "is not `dirs:PATH,PATH`"),
            ("dir:/x", "is not `dirs:PATH,PATH`"),
            ("mqsim-mlc", "is not `dirs:PATH,PATH`"),
        ] {
            let error = text.parse::<VolumeName>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn unknown_profiles_and_placements_that_do_not_fit_are_refused() {
        let open = |profile: &str, placement: &str| {
            let opened = OnDevice::open(profile, None, placement.parse().unwrap());
            opened.err().unwrap().to_string()
        };
        assert!(open("nand", "striping").contains("no profile \"nand\""));
        assert!(open("z-nand", "isolation:900:1:1").contains("do not each get one"));
    }
}
