//! File numbers: each is given out once, also across crashes.
//!
//! Thread safety: any thread that does not hold the manifest's lock, which is taken when a block of
//! numbers is used up.

use crate::durable::manifest::{Item, Manifest};
use crate::{Error, Result};
use glintdb_core::FileNumbers;
use glintdb_core::sync::Mutex;
use std::sync::Arc;

/// Numbers that are made durable at a time: one manifest edit for 256 files.
const BLOCK: u64 = 256;

pub(crate) struct Numbers {
    manifest: Arc<Mutex<Manifest>>,
    /// The next number, and the first one that is not reserved.
    range: Mutex<(u64, u64)>,
}

impl Numbers {
    /// Creates numbers from `next` on, the manifest's high-water mark.
    pub(crate) fn new(manifest: Arc<Mutex<Manifest>>, next: u64) -> Self {
        Numbers {
            manifest,
            range: Mutex::new((next, next)),
        }
    }
}

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        let mut range = self.range.lock();
        if range.0 == range.1 {
            let up_to = range.1 + BLOCK;
            let mut manifest = self.manifest.lock();
            manifest.commit(&[Item::NumbersReserved(up_to)])?;
            assert!(
                manifest.state().numbers_reserved >= up_to,
                "the manifest reserves a block of numbers before one of them is given out"
            );
            range.1 = up_to;
        }
        assert!(
            range.0 < range.1,
            "file number {} is reserved before it is given out, up to {}",
            range.0,
            range.1
        );
        range.0 += 1;
        Ok(range.0 - 1)
    }
}

/// File numbers while a database is opened: none are available before the manifest exists.
#[derive(Default)]
pub(crate) struct DeferredNumbers {
    numbers: Mutex<Option<Numbers>>,
}

impl DeferredNumbers {
    /// Sets the numbers, once the manifest exists.
    pub(crate) fn set(&self, numbers: Numbers) {
        *self.numbers.lock() = Some(numbers);
    }
}

impl FileNumbers for DeferredNumbers {
    fn next(&self) -> Result<u64> {
        match &*self.numbers.lock() {
            Some(numbers) => numbers.next(),
            None => Err(Error::invalid("no file is created before the manifest is")),
        }
    }
}
