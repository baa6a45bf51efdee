//! Value GC beside everything else, with every read checked.

use glintdb::IndexKind;
use glintdb_testkit::collecting::{READS, alone, bounded, eager, power, race};
use glintdb_testkit::options::Lane;
use glintdb_testkit::place::Place;

#[test]
fn what_is_collected_alone_is_as_it_was() {
    for reads in READS {
        let counts = alone(reads, &|| ()).unwrap();
        assert!(counts.rounds > 50 && counts.moved > 500, "{counts:?}");
    }
}

#[test]
fn files_stay_within_their_bound_however_fast_writers_are() {
    let counts = bounded(&|| ()).unwrap();
    assert!(counts.rounds > 20 && counts.moved > 500, "{counts:?}");
}

#[test]
fn rounds_around_which_the_power_goes_lose_nothing() {
    for reads in READS {
        let counts = power(reads, &|| ()).unwrap();
        assert!(counts.rounds > 20 && counts.moved > 50, "{counts:?}");
    }
}

#[test]
fn overwrites_deletes_snapshots_collecting_and_compaction_race() {
    for (at, threads) in [1, 1, 2, 2, 4, 4].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let index = [IndexKind::Lsm, IndexKind::BTree][at % 2];
        let mut set = eager(Lane::Histories, index, READS[at / 2 % 2]);
        set.options.background_threads = threads;
        for place in [Place::memory(), Place::Directory(dir.path().join("db"))] {
            let counts = race(&place, set.clone(), 4000, threads as u64).unwrap();
            assert!(counts.rounds > 10 && counts.moved > 100, "{counts:?}");
        }
    }
}
