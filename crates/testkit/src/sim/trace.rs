//! A hash over every operation of the volume with its bytes, every answer of a read, and every answer of the database: two runs with the same hash did the same.
//!
//! Thread-safe (one mutex).

use super::watcher::Watcher;
use glintdb_simdisk::{Moment, Observer};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::Xxh3Default;

/// See the module's page.
#[derive(Default)]
pub(super) struct Trace {
    hash: Mutex<Xxh3Default>,
}

impl Trace {
    /// The database answered, at last.
    pub(super) fn answer(&self, answer: &Result<(), String>) {
        self.take(format!("{answer:?}").as_bytes());
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.lock().unwrap().digest()
    }

    fn take(&self, bytes: &[u8]) {
        let mut hash = self.hash.lock().unwrap();
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
}

impl Observer for Trace {
    fn before(&self, moment: &Moment<'_>) {
        let mut what = String::new();
        write!(what, "{} {:?}", moment.number(), moment.kind()).unwrap();
        self.take(what.as_bytes());
        self.take(moment.bytes());
    }

    fn answer(&self, bytes: &[u8]) {
        self.take(bytes);
    }
}

/// The trace and the watcher together.
pub(super) struct Both(pub(super) Arc<Trace>, pub(super) Arc<Watcher>);

impl Observer for Both {
    fn before(&self, moment: &Moment<'_>) {
        self.0.before(moment);
        self.1.before(moment);
    }

    fn answer(&self, bytes: &[u8]) {
        Observer::answer(&*self.0, bytes);
    }
}
