//! What every fuzz target here is made of: the function of `glintdb_testkit::fuzz` of its name, and an allocator that knows its peak.

pub use libfuzzer_sys;

use glintdb_testkit::fuzz::{Meter, Target};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Runs a target once.
pub fn check(target: &Target, data: &[u8]) {
    target.check(
        data,
        Meter {
            current: || ALLOCATOR.current_usage(),
            reset: || ALLOCATOR.reset_peak_usage(),
            peak: || ALLOCATOR.peak_usage(),
        },
    );
}

/// The target of the name given, under libFuzzer.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        static TARGET: std::sync::LazyLock<glintdb_testkit::fuzz::Target> =
            std::sync::LazyLock::new(|| glintdb_testkit::fuzz::Target::named($name).expect("a target of this name"));

        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::check(&TARGET, data));
    };
}
