//! Profiles of devices: geometry, times and rules, by name or from a TOML file.
//!
//! Thread-safe: immutable once made.

use super::timeline::Ns;
use glintdb_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

macro_rules! built_in {
    ($name:literal) => {
        ($name, include_str!(concat!("profiles/", $name, ".toml")))
    };
}
/// The built-in profiles, by name.
const BUILT_IN: [(&str, &str); 18] = [
    built_in!("westlake-mlc"),
    built_in!("ocssd2-tlc"),
    built_in!("lsm-kvd-board"),
    built_in!("970pro-like"),
    built_in!("zn540-like"),
    built_in!("zns-prototype"),
    built_in!("femu-default"),
    built_in!("femu-ocssd"),
    built_in!("femu-tlc"),
    built_in!("femu-slc"),
    built_in!("femu-zns"),
    built_in!("mqsim-mlc"),
    built_in!("simplessd-mlc"),
    built_in!("z-nand"),
    built_in!("samsung-tlc-48l"),
    built_in!("samsung-tlc-64l"),
    built_in!("samsung-tlc-9xl"),
    built_in!("tlc-2021"),
];

/// Names of the built-in profiles.
pub const PROFILE_NAMES: [&str; BUILT_IN.len()] = {
    let mut names = [""; BUILT_IN.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = BUILT_IN[at].0;
        at += 1;
    }
    names
};

/// Size and structure of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Number of channels: 1 to 256.
    pub channels: u32,
    /// LUNs (dies) on each channel: 1 to 256.
    pub luns: u32,
    /// Planes of each LUN: 1 to 16.
    pub planes: u32,
    /// Blocks of each plane: 1 to 1,048,576.
    pub blocks: u32,
    /// Pages of each block: 1 to 65,536, a multiple of `pages_of_program`.
    pub pages: u32,
    /// Bytes of a page: 512 to 1,048,576, a multiple of `sector_bytes`.
    pub page_bytes: u32,
    /// Bytes of a sector, the smallest unit of a read: 512 to 65,536. Default: 4096.
    #[serde(default = "sector_bytes")]
    pub sector_bytes: u32,
    /// Pages of a block that are programmed together (one-shot programming): 1 to 16. Default: 1.
    #[serde(default = "one")]
    pub pages_of_program: u32,
}

impl Geometry {
    /// Number of LUNs of the device.
    #[must_use]
    pub fn luns_in_all(&self) -> u32 {
        self.channels * self.luns
    }

    /// Rows of a chunk.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.pages / self.pages_of_program
    }

    /// Bytes of a row, which one program fills.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.pages_of_program) * u64::from(self.page_bytes)
    }

    /// Bytes of a chunk, which one erase erases.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.rows()) * self.row_bytes()
    }

    /// Bytes of the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.luns_in_all()) * u64::from(self.blocks) * self.chunk_bytes()
    }
}

/// How long operations take, in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Read of a page into the LUN's register. With several times, pages have them in turn: lower
    /// and upper pages of cells of two bits, for instance. 1 to 4 times.
    pub read_us: Vec<f64>,
    /// Program of a row, in turn like `read_us`. 1 to 4 times.
    pub program_us: Vec<f64>,
    /// Erase of a chunk.
    pub erase_us: f64,
    /// Firmware's time for a read, beside the medium's. Default: 0.
    #[serde(default)]
    pub read_firmware_us: f64,
    /// Firmware's time for a write. Default: 0.
    #[serde(default)]
    pub write_firmware_us: f64,
    /// Rate of a channel's bus in 10^6 bytes per second. Default: transfers take no time.
    #[serde(default)]
    pub bus_mb_s: Option<f64>,
}

/// The host's link to the device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate of reads in 10^6 bytes per second. Default: no limit.
    pub read_mb_s: Option<f64>,
    /// Rate of writes in 10^6 bytes per second. Default: no limit.
    pub write_mb_s: Option<f64>,
}

/// The device's write cache.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Its size. 0, the default: a write is acknowledged when it is programmed.
    #[serde(default)]
    pub bytes: u64,
    /// Whether what it holds survives a power cut, so that a flush need not wait. Default: no.
    #[serde(default)]
    pub power_loss_protection: bool,
}

/// What the medium and its firmware allow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Sectors that one command may address, at least 1. Default: 64.
    pub sectors_of_command_max: u32,
    /// Rows at the end of an open chunk that are not readable yet. Default: 0.
    pub rows_unreadable: u32,
    /// Open chunks of the device. 0, the default: no limit.
    pub open_chunks_max: u32,
    /// Open chunks of a LUN. 0, the default: no limit.
    pub open_chunks_of_lun_max: u32,
    /// Whether a free chunk may be erased again. Default: yes.
    pub erases_free: bool,
    /// Whether an open chunk may be erased. Default: yes.
    pub erases_open: bool,
    /// Whether planes of a LUN read pages independently of each other. Default: no.
    pub planes_read_alone: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            sectors_of_command_max: 64,
            rows_unreadable: 0,
            open_chunks_max: 0,
            open_chunks_of_lun_max: 0,
            erases_free: true,
            erases_open: true,
            planes_read_alone: false,
        }
    }
}

/// What a read costs that interrupts a program or an erase, in microseconds. Without these, reads
/// wait.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// Time until a program is suspended.
    pub program_us: Option<f64>,
    /// Time until an erase is suspended.
    pub erase_us: Option<f64>,
}

/// How often the medium fails, in failures per million operations. All 0 by default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Seed of the failures.
    pub seed: u64,
    /// Chunks that are bad from the factory.
    pub factory_bad_ppm: u32,
    /// Reads that cannot be corrected.
    pub read_ppm: u32,
    /// Programs that fail. The chunk is bad from then on.
    pub program_ppm: u32,
    /// Erases that fail. The chunk is bad from then on.
    pub erase_ppm: u32,
    /// Erases of a chunk before it is worn out, and fails to be erased. 0: never.
    pub endurance: u32,
}

/// All properties of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// What device it is, in a sentence.
    pub about: String,
    /// Where its values come from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Names of the values that no source gives, such as `times.erase_us`.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Size and structure.
    pub geometry: Geometry,
    /// How long operations take.
    pub times: Times,
    /// The host's link.
    #[serde(default)]
    pub link: Link,
    /// The write cache.
    #[serde(default)]
    pub cache: Cache,
    /// Limits of the medium and its firmware.
    #[serde(default)]
    pub rules: Rules,
    /// What an interrupted program or erase costs.
    #[serde(default)]
    pub suspend: Suspend,
    /// How often the medium fails.
    #[serde(default)]
    pub faults: Faults,
}

fn sector_bytes() -> u32 {
    4096
}

fn one() -> u32 {
    1
}

/// Longest time of an operation: a minute.
const TIME_US_MAX: f64 = 60e6;
/// Most chunks of a device; the model has 12 bytes of each.
const CHUNKS_MAX: u64 = 1 << 24;

impl Profile {
    /// A built-in profile.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no profile of that name.
    pub fn named(name: &str) -> Result<Profile> {
        let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) else {
            return Err(Error::invalid(format!(
                "no profile {name:?}; there are: {}",
                PROFILE_NAMES.join(", ")
            )));
        };
        Profile::parse(text, name)
    }

    /// Reads a profile from a TOML file, whose form is that of the built-in ones
    /// (`docs/flash.md`).
    ///
    /// # Errors
    /// `NotFound`, I/O errors. `InvalidArgument`, with the line, for a file that is no profile, an
    /// unknown key or a value out of its limits.
    pub fn read(path: &Path) -> Result<Profile> {
        let at = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Error::access(&at, error))?;
        Profile::parse(&text, &at)
    }

    /// A profile by its name; or from a TOML file, if `name` has a `/` or ends in `.toml`.
    ///
    /// # Errors
    /// As [`named`](Self::named) and [`read`](Self::read).
    pub fn find(name: &str) -> Result<Profile> {
        match name.contains('/') || name.ends_with(".toml") {
            true => Profile::read(Path::new(name)),
            false => Profile::named(name),
        }
    }

    /// Reads a profile from TOML text. `at` names it in errors.
    ///
    /// # Errors
    /// `InvalidArgument`, as [`read`](Self::read).
    pub fn parse(text: &str, at: &str) -> Result<Profile> {
        let profile: Profile = toml::from_str(text).map_err(|error| {
            Error::invalid(format!("profile {at}: {}", error.to_string().trim()))
        })?;
        profile
            .check()
            .map_err(|what| Error::invalid(format!("profile {at}: {what}")))?;
        Ok(profile)
    }

    /// The profile as TOML text, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Says which value is out of its limits.
    pub(super) fn check(&self) -> Result<(), String> {
        let Geometry {
            channels,
            luns,
            planes,
            blocks,
            pages,
            page_bytes,
            sector_bytes,
            pages_of_program,
        } = self.geometry;
        let sizes = [
            ("geometry.channels", channels, 1, 256),
            ("geometry.luns", luns, 1, 256),
            ("geometry.planes", planes, 1, 16),
            ("geometry.blocks", blocks, 1, 1 << 20),
            ("geometry.pages", pages, 1, 1 << 16),
            ("geometry.page_bytes", page_bytes, 512, 1 << 20),
            ("geometry.sector_bytes", sector_bytes, 512, 1 << 16),
            ("geometry.pages_of_program", pages_of_program, 1, 16),
            (
                "rules.sectors_of_command_max",
                self.rules.sectors_of_command_max,
                1,
                1 << 20,
            ),
        ];
        for (name, value, least, most) in sizes {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} is {value}; it must be {least} to {most}"));
            }
        }
        let faults = &self.faults;
        for (name, rate) in [
            ("faults.factory_bad_ppm", faults.factory_bad_ppm),
            ("faults.read_ppm", faults.read_ppm),
            ("faults.program_ppm", faults.program_ppm),
            ("faults.erase_ppm", faults.erase_ppm),
        ] {
            if rate > 1_000_000 {
                return Err(format!("{name} is {rate}; it must be 0 to 1000000"));
            }
        }
        if !pages.is_multiple_of(pages_of_program) {
            return Err(format!(
                "geometry.pages is {pages}, not a multiple of pages_of_program ({pages_of_program})"
            ));
        }
        if !page_bytes.is_multiple_of(sector_bytes) {
            return Err(format!(
                "geometry.page_bytes is {page_bytes}, not a multiple of sector_bytes ({sector_bytes})"
            ));
        }
        let chunks = u64::from(self.geometry.luns_in_all()) * u64::from(blocks);
        if chunks > CHUNKS_MAX {
            return Err(format!(
                "{chunks} blocks in all LUNs; the model has up to {CHUNKS_MAX}"
            ));
        }
        self.check_times()
    }

    fn check_times(&self) -> Result<(), String> {
        let times = &self.times;
        for (name, list) in [
            ("times.read_us", &times.read_us),
            ("times.program_us", &times.program_us),
        ] {
            if !(1..=4).contains(&list.len()) {
                return Err(format!(
                    "{name} has {} times; it must have 1 to 4",
                    list.len()
                ));
            }
        }
        let all = (times.read_us.iter().map(|time| ("times.read_us", *time)))
            .chain(
                times
                    .program_us
                    .iter()
                    .map(|time| ("times.program_us", *time)),
            )
            .chain([
                ("times.erase_us", times.erase_us),
                ("times.read_firmware_us", times.read_firmware_us),
                ("times.write_firmware_us", times.write_firmware_us),
            ])
            .chain(
                self.suspend
                    .program_us
                    .map(|time| ("suspend.program_us", time)),
            )
            .chain(self.suspend.erase_us.map(|time| ("suspend.erase_us", time)));
        for (name, time) in all {
            if !(0.0..=TIME_US_MAX).contains(&time) {
                return Err(format!("{name} is {time}; it must be 0 to {TIME_US_MAX}"));
            }
        }
        let rates = [
            ("times.bus_mb_s", times.bus_mb_s),
            ("link.read_mb_s", self.link.read_mb_s),
            ("link.write_mb_s", self.link.write_mb_s),
        ];
        for (name, rate) in rates {
            if let Some(rate) = rate
                && !(0.001..=1e6).contains(&rate)
            {
                return Err(format!("{name} is {rate}; it must be 0.001 to 1000000"));
            }
        }
        Ok(())
    }

    /// Time to read `page` of a block.
    pub(super) fn read_ns(&self, page: u32) -> Ns {
        in_turn(&self.times.read_us, page)
    }

    /// Time to program `row` of a chunk.
    pub(in crate::emulator) fn program_ns(&self, row: u32) -> Ns {
        in_turn(&self.times.program_us, row)
    }
}

fn in_turn(times: &[f64], at: u32) -> Ns {
    to_ns(times[at as usize % times.len()])
}

/// Nanoseconds of a checked time in microseconds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are checked to be 0 to a minute"
)]
pub(super) fn to_ns(time_us: f64) -> Ns {
    (time_us * 1000.0).round() as Ns
}

/// Time that `bytes` take at a rate in 10^6 bytes per second.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are checked to be 1,000 bytes a second at least"
)]
pub(super) fn transfer_ns(bytes: u64, mb_s: Option<f64>) -> Ns {
    mb_s.map_or(0, |rate| (bytes as f64 * 1000.0 / rate).round() as Ns)
}
