//! Fuzz targets: functions of any bytes that hold a decoder, or the whole engine, to what it promises, and panic where it breaks it.
//!
//! `fuzz/` runs them under `cargo fuzz`; the program `glint-fuzz` (`cargo xtask fuzz --builtin`) with a mutator of its own; the tests of this crate replay `fuzz/corpus` and
//! `fuzz/regressions`. What each asserts stands at the head of its file; `docs/reliability/fuzzing.md` lists them.
//!
//! Inputs are *structure-aware*: most are not a file but a list of steps that make one (see [`input`]), whose checksums are computed when it is made; so what a fuzzer
//! changes is behind the checksums.
//!
//! Thread safety: targets may run in parallel; what is measured by a [`Meter`] is the whole process.

pub mod campaign;
mod codec;
mod database;
mod golden;
#[cfg(feature = "import")]
mod import;
mod input;
mod log_frame;
mod log_image;
mod log_model;
mod log_recovery;
mod log_segment;
mod manifest;
mod mutate;
mod operations;
mod resp_request;
mod resp_session;
mod table;
mod table_image;
mod tree;
mod tree_image;

use glintdb::{Error, ErrorKind};
use peak_alloc::PeakAlloc;

/// Asserts that an error, which hostile files gave, is of one of these kinds, and that corruption
/// names its place.
fn check_error(error: &Error, kinds: &[ErrorKind]) {
    assert!(kinds.contains(&error.kind()), "{error}");
    assert!(
        error.kind() != ErrorKind::Corruption || error.place().is_some(),
        "no place: {error}"
    );
}

/// A function to be fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of the binary under `fuzz/`, of the directories of its corpus and regressions.
    pub name: &'static str,
    /// Panics where something that is promised does not hold.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Longest input that is worth trying, in bytes.
    pub length_max: usize,
    /// Memory it may need in bytes, whatever the input: what a volume, a ring or a window of a file take.
    pub memory_base: usize,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "codec",
        run: codec::run,
        seeds: codec::seeds,
        length_max: 512,
        memory_base: 64 << 10,
    },
    Target {
        name: "log_frame",
        run: log_frame::run,
        seeds: log_frame::seeds,
        length_max: 1024,
        memory_base: 64 << 10,
    },
    Target {
        name: "log_segment",
        run: log_segment::run,
        seeds: log_image::seeds,
        length_max: 2048,
        memory_base: 2048 << 10,
    },
    Target {
        name: "log_recovery",
        run: log_recovery::run,
        seeds: log_image::seeds,
        length_max: 2048,
        memory_base: 8192 << 10,
    },
    Target {
        name: "table",
        run: table::run,
        seeds: table_image::seeds,
        length_max: 2048,
        memory_base: 16384 << 10,
    },
    Target {
        name: "tree",
        run: tree::run,
        seeds: tree::seeds,
        length_max: 1024,
        memory_base: 16384 << 10,
    },
    Target {
        name: "manifest",
        run: manifest::run,
        seeds: manifest::seeds,
        length_max: 2048,
        memory_base: 1024 << 10,
    },
    Target {
        name: "database",
        run: database::run,
        seeds: database::seeds,
        length_max: 1024,
        memory_base: 65536 << 10,
    },
    Target {
        name: "operations",
        run: operations::run,
        seeds: operations::seeds,
        length_max: 2048,
        memory_base: 131072 << 10,
    },
    Target {
        name: "resp_request",
        run: resp_request::run,
        seeds: resp_request::seeds,
        length_max: 4096,
        memory_base: 256 << 10,
    },
    Target {
        name: "resp_session",
        run: resp_session::run,
        seeds: resp_session::seeds,
        length_max: 2048,
        memory_base: 65536 << 10,
    },
    #[cfg(feature = "import")]
    Target {
        name: "import",
        run: import::run,
        seeds: import::seeds,
        length_max: 4096,
        memory_base: 2048 << 10,
    },
];

/// Memory allowed for each byte of an input, beside [`Target::memory_base`].
const MEMORY_PER_BYTE: usize = 64;

/// Measures the memory of the process; programs that fuzz have an allocator that can.
#[derive(Clone, Copy)]
pub struct Meter {
    /// Bytes in use now.
    pub current: fn() -> usize,
    /// Forgets the peak.
    pub reset: fn(),
    /// Most bytes in use since [`reset`](Self::reset).
    pub peak: fn() -> usize,
}

impl Meter {
    /// Of a program whose global allocator is [`PeakAlloc`].
    pub const PEAK: Meter = Meter {
        current: || PeakAlloc.current_usage(),
        reset: || PeakAlloc.reset_peak_usage(),
        peak: || PeakAlloc.peak_usage(),
    };
}

impl Target {
    /// The target of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Target> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }

    /// Runs it once, and holds it to its memory.
    ///
    /// # Panics
    /// Where something that is promised does not hold.
    pub fn check(&self, data: &[u8], meter: Meter) {
        let before = (meter.current)();
        (meter.reset)();
        (self.run)(data);
        let used = (meter.peak)().saturating_sub(before);
        let allowed = self.memory_base + MEMORY_PER_BYTE * data.len();
        assert!(
            used <= allowed,
            "{} bytes of input took {used} bytes of memory, {allowed} are allowed",
            data.len()
        );
    }
}
