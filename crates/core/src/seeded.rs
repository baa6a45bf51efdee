//! Planted mistakes in the engine, behind the feature `seeded-bugs`: they show that the tests would
//! notice such mistakes.
//!
//! [`planted!`](crate::planted) has a right and a wrong expression. Without the feature it is the
//! right one, and the compiler leaves nothing of the other. With the feature, [`activate`] switches
//! on one mistake at a time, for the whole process. Thread-safe.
//!
//! ```
//! # struct File; impl File { fn sync(&self) -> Result<(), ()> { Ok(()) } }
//! # fn commit(file: &File) -> Result<(), ()> {
//! glintdb_core::planted!("log: sync is skipped", file.sync()?, ());
//! # Ok(()) }
//! # commit(&File).unwrap();
//! ```

/// An expression with a planted mistake: `planted!("crate: what goes wrong", right, wrong)`.
///
/// It is `right`, unless the mistake of this name is switched on: then it is `wrong`.
#[macro_export]
macro_rules! planted {
    ($name:literal, $right:expr, $wrong:expr $(,)?) => {
        if $crate::seeded::bug($name) {
            $wrong
        } else {
            $right
        }
    };
}

#[cfg(feature = "seeded-bugs")]
mod switch {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, RwLock};

    static ACTIVE: RwLock<Option<&'static str>> = RwLock::new(None);
    static HITS: AtomicU64 = AtomicU64::new(0);
    static FROM_ENVIRONMENT: OnceLock<Option<&'static str>> = OnceLock::new();

    /// Whether the bug of this name is switched on, by [`activate`] or the environment variable `GLINTDB_SEEDED_BUG`.
    #[must_use]
    pub fn bug(name: &str) -> bool {
        let from_environment = *FROM_ENVIRONMENT.get_or_init(|| {
            let name = std::env::var("GLINTDB_SEEDED_BUG").ok()?;
            Some(Box::leak(name.into_boxed_str()))
        });
        let active = ACTIVE.read().map_or(None, |active| *active);
        let hit = active.or(from_environment) == Some(name);
        if hit {
            HITS.fetch_add(1, Ordering::Relaxed);
        }
        hit
    }

    /// Switches one bug on, or all off, and forgets the hits.
    pub fn activate(name: Option<&'static str>) {
        if let Ok(mut active) = ACTIVE.write() {
            *active = name;
        }
        HITS.store(0, Ordering::Relaxed);
    }

    /// How often the place of the active bug was reached.
    #[must_use]
    pub fn hits() -> u64 {
        HITS.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "seeded-bugs")]
pub use switch::{activate, bug, hits};

/// Whether the bug of this name is switched on: never, without the feature `seeded-bugs`.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
#[must_use]
pub const fn bug(_name: &str) -> bool {
    false
}
