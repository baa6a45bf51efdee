//! Option sets of the kill test: each life of the database takes another, so that what one leaves is recovered by the next.

use glintdb::{DirectIo, Options, ReadEngine};

/// Options for one life.
#[derive(Clone)]
pub struct Set {
    /// For messages.
    pub name: &'static str,
    /// The database's.
    pub options: Options,
    /// Every commit at `Sync`, where commits otherwise choose for themselves.
    pub sync: bool,
}

/// Small memtables and segments, so that flushes, compactions and new segments happen all the time.
fn small() -> Options {
    Options {
        background_threads: 2,
        memory_budget_bytes: 8 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 1 << 20,
        replay_bytes_max: 4 << 20,
        separate_min_bytes: 256,
        ..Options::default()
    }
}

/// Every set; the child is told its number.
#[must_use]
pub fn all() -> Vec<Set> {
    let set = |name, sync, options| Set {
        name,
        options,
        sync,
    };
    vec![
        set("small", false, small()),
        set(
            "a ring and segments of 64 KiB, values from 64 bytes separated",
            false,
            Options {
                log_ring_bytes: 64 << 10,
                log_segment_bytes: 64 << 10,
                replay_bytes_max: 1 << 20,
                separate_min_bytes: 64,
                ..small()
            },
        ),
        set("every commit at Sync", true, small()),
        set(
            "buffered and synchronous I/O, one background thread, every value inline",
            false,
            Options {
                background_threads: 1,
                separate_min_bytes: usize::MAX,
                direct_io: DirectIo::Off,
                read_engine: ReadEngine::Sync,
                ..small()
            },
        ),
        set(
            "jobs on callers' threads, every value separated, a ring of 256 KiB",
            false,
            Options {
                background_threads: 0,
                separate_min_bytes: 1,
                log_ring_bytes: 256 << 10,
                ..small()
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_set_opens_and_takes_what_the_one_before_left() {
        let directory = tempfile::tempdir().unwrap();
        for (number, set) in super::all().into_iter().enumerate() {
            let db = set.options.open(directory.path()).unwrap();
            for before in 0..number {
                let key = before.to_string();
                assert_eq!(db.get(&key).unwrap().as_deref(), Some(key.as_bytes()));
            }
            let key = number.to_string();
            db.put(&key, &key).unwrap();
        }
    }
}
