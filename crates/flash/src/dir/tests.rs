//! A directory as a volume: failed syncs, and files that are kept to be written again.

use super::*;
use crate::volume::DataClass;
use glintdb_core::FileKind;

fn create(volume: &DirVolume, number: u64) -> Arc<dyn VolumeFile> {
    let options = CreateOptions {
        class: DataClass::Flush,
        reserve_bytes: 0,
        direct: false,
    };
    let id = FileId::new(FileKind::Table, number);
    volume.create(id, options).unwrap()
}

/// A disk whose flush failed lost what it had taken of every file, and the kernel told one caller
/// of `fsync`: the next sync, of another file, said OK, and a table had no footer when the database
/// was opened again. Seen by the lane `kernel` (`--only errors --fs ext4 --seed
/// 7959392192104943798`).
#[test]
fn once_a_sync_has_failed_no_sync_of_any_file_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let ring = volume.ring(64 << 10).unwrap();
    let [table, other] = [1, 2].map(|number| create(&volume, number));
    other.write_at(0, b"written before").unwrap();
    let fails = |kind| move || Err(Error::new(kind, "simulated"));
    let error = volume.shared.sync_with(fails(ErrorKind::NoSpace));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NoSpace);
    other.sync().unwrap();
    volume.sync_directory().unwrap();

    let error = volume.shared.sync_with(fails(ErrorKind::Io)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let mut later = vec![table.sync(), other.sync(), volume.sync_directory()];
    later.push(create(&volume, 3).sync());
    if ring.survives_kill() {
        later.push(ring.sync().map(drop));
    }
    for sync in later {
        assert_eq!(sync.unwrap_err().kind(), ErrorKind::Poisoned);
    }
    assert_eq!(&other.read_at(0, 100).unwrap()[..], b"written before");

    drop((table, other, ring, volume));
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    create(&volume, 4).sync().unwrap();
    volume.sync_directory().unwrap();
}

/// Only where blocks that are written again are the same ones is there anything to keep, and only
/// where that is wanted.
#[test]
fn on_a_file_system_that_copies_on_write_files_are_deleted() {
    for (in_place, wanted) in [(true, true), (false, true), (true, false)] {
        let directory = tempfile::tempdir().unwrap();
        let options = DirOptions {
            recycle: wanted,
            ..DirOptions::default()
        };
        let mut volume = DirVolume::open(directory.path(), options).unwrap();
        if !in_place {
            let parts = Arc::get_mut(&mut volume).unwrap();
            Arc::get_mut(&mut parts.shared).unwrap().spares = Spares::new(false);
        }
        drop(create(&volume, 1));
        volume.recycle(FileId::new(FileKind::Table, 1)).unwrap();
        assert_eq!(volume.list().unwrap(), []);
        let kept = directory.path().join("spare-0.glint").exists();
        assert_eq!(kept, in_place && wanted);
    }
}

#[test]
fn file_systems_known_to_overwrite_in_place_keep_files() {
    for path in ["/dev/shm", "/tmp"] {
        let Ok(directory) = tempfile::tempdir_in(path) else {
            continue;
        };
        let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
        drop(create(&volume, 1));
        volume.recycle(FileId::new(FileKind::Table, 1)).unwrap();
        let kept = directory.path().join("spare-0.glint").exists();
        let opened = open_directory(directory.path()).unwrap();
        assert_eq!(kept, probe::overwrites_in_place(&opened).is_ok(), "{path}");
    }
}

/// The other thread had removed the kept files, the first found none and said that the disk is
/// full.
#[test]
fn whoever_finds_no_space_tries_again_where_another_has_made_some_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    if !volume.ring(4096).unwrap().survives_kill() {
        return;
    }
    let shared = volume.shared();
    let full = || Error::new(ErrorKind::NoSpace, "simulated");
    let tries = |meanwhile: &dyn Fn()| {
        let mut tries = 0;
        let done = shared.with_space(|| {
            tries += 1;
            if tries == 1 {
                meanwhile();
                return Err(full());
            }
            Ok(())
        });
        (done.is_ok(), tries)
    };
    assert_eq!(tries(&|| ()), (false, 1), "there is nothing to remove");
    drop(create(&volume, 1));
    volume.recycle(FileId::new(FileKind::Table, 1)).unwrap();
    let syncs = volume.stats().syncs;
    assert_eq!(tries(&|| assert_eq!(tries(&|| ()), (true, 2))), (true, 2));
    // So that the file system counts what it has got back.
    assert_eq!(volume.stats().syncs, syncs + 1);
    assert_eq!(tries(&|| ()), (false, 1));
}
