//! `--volume` and `--placement` of `bench`: a database on the modelled flash device.

use crate::store::Result;
use glintdb::Env;
use glintdb_core::DbId;
use glintdb_flash::emulator::nand::Profile;
use glintdb_flash::emulator::{Emulated, EmulatedStats, Placement};
use glintdb_flash::{DirOptions, DirVolume, SystemClock, Volume, random_bytes};
use glintdb_simdisk::MemVolume;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The end of a wait in which a thread spins, because the kernel wakes sleepers that late.
const SPIN: Duration = Duration::from_micros(60);

/// A volume that `--volume` names: `emulator:PROFILE` has its bytes in memory,
/// `emulator:PROFILE:DIR` in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeName {
    /// Name of the profile, or its file.
    pub profile: String,
    /// Directory of the bytes.
    pub dir: Option<PathBuf>,
}

impl std::str::FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let Some(rest) = text
            .strip_prefix("emulator:")
            .filter(|rest| !rest.is_empty())
        else {
            return Err(format!(
                "`{text}` is not `emulator:PROFILE` or `emulator:PROFILE:DIR`; `glintdb flash-bench \
                 --list-profiles` lists the profiles"
            ));
        };
        let (profile, dir) = match rest.split_once(':') {
            Some((_, "")) => {
                return Err(format!("`{text}` names no directory after the second `:`"));
            }
            Some((profile, dir)) => (profile, Some(dir.into())),
            None => (rest, None),
        };
        Ok(VolumeName {
            profile: profile.into(),
            dir,
        })
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
    /// There is no such profile or directory; the placement is none, or does not fit the device.
    pub fn open(name: &VolumeName, placement: &str) -> Result<OnDevice> {
        let profile = Profile::find(&name.profile)?;
        let placement = Placement::parse(placement)?;
        let inner: Arc<dyn Volume> = match &name.dir {
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

    /// The volume, and an environment with its clock.
    ///
    /// # Errors
    /// The system gives no random bytes for the database's identity.
    pub(crate) fn parts(&self) -> Result<(Arc<dyn Volume>, Env)> {
        let env = Env::new(self.clock.clone(), DbId(random_bytes()?));
        Ok((Arc::new(self.volume.clone()), env))
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
        let late = stats.late;
        format!(
            "device: {:.1} MiB written by the host, {:.1} programmed ({:.3} times), {:.1} padding, {:.1} moved; {} \
             reads, {} erases, wear {} to {}; {} waits, late by {:.0} us in the mean, {:.0} at most",
            mib(stats.space.host_bytes),
            mib(stats.space.programmed_bytes),
            stats.write_amp_device,
            mib(stats.space.padding_bytes),
            mib(stats.space.moved_bytes),
            sum(|unit| unit.reads),
            sum(|unit| unit.erases),
            stats.wear.0,
            stats.wear.1,
            late.waits,
            late.mean_us(),
            late.most_ns as f64 / 1000.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes_are_read() {
        let name: VolumeName = "emulator:mqsim-mlc".parse().unwrap();
        assert_eq!((&*name.profile, name.dir), ("mqsim-mlc", None));
        let name: VolumeName = "emulator:./my.toml:/data/x".parse().unwrap();
        assert_eq!(&*name.profile, "./my.toml");
        assert_eq!(name.dir, Some(PathBuf::from("/data/x")));
        let error = "emulator:z-nand:".parse::<VolumeName>().unwrap_err();
        assert!(error.contains("no directory"), "{error}");
        for text in ["", "emulator", "emulator:", "dir:/x", "mqsim-mlc"] {
            let error = text.parse::<VolumeName>().unwrap_err();
            assert!(error.contains("is not `emulator:PROFILE`"), "{error}");
        }
    }

    #[test]
    fn unknown_profiles_and_placements_are_refused() {
        let open = |name: &str, placement| {
            let opened = OnDevice::open(&name.parse().unwrap(), placement);
            opened.err().unwrap().to_string()
        };
        assert!(open("emulator:nand", "striping").contains("no profile \"nand\""));
        assert!(open("emulator:z-nand", "spread").contains("it is `striping`"));
        assert!(open("emulator:z-nand", "isolation:900:1:1").contains("do not each get one"));
    }
}
