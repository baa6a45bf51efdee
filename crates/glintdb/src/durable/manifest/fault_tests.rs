//! What a manifest is when its writing goes wrong: regression tests, each for a way in which an edit was once lost or came back.

use super::tests::{live, new_manifest};
use super::*;
use glintdb_core::{FileId, FileKind};
use glintdb_flash::{CreateOptions, DataClass};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemVolume};

fn pair() -> (Arc<MemVolume>, Manifest) {
    let volume = MemVolume::new();
    let manifest = new_manifest(&(Arc::clone(&volume) as Arc<dyn Volume>));
    (volume, manifest)
}

/// What was written of a second manifest.
fn second(volume: &MemVolume, bytes: &[u8]) {
    let options = CreateOptions {
        class: DataClass::Manifest,
        reserve_bytes: 0,
        direct: false,
    };
    let id = FileId::new(FileKind::Manifest, 2);
    let file = volume.create(id, options).unwrap();
    file.write_at(0, bytes).unwrap();
}

fn fail_after(volume: &MemVolume, operations: u64, kind: FaultKind) {
    volume.fail(Fault {
        at_operation: volume.operation_count() + operations,
        kind,
        sticky: false,
    });
}

/// The power went while the second manifest was written: of its sectors the first was lost and a later one kept. It was taken for a damaged manifest.
#[test]
fn a_new_manifest_without_its_first_sector_gives_way_to_the_old_one() {
    let (volume, mut manifest) = pair();
    let many: Vec<_> = (1..100).map(|segment| live(segment, 1000)).collect();
    manifest.commit(&many).unwrap();
    let mut bytes = read_whole(&*volume, FileId::new(FileKind::Manifest, 1))
        .unwrap()
        .to_vec();
    assert!(bytes.len() > 512);
    bytes[..512].fill(0);
    second(&volume, &bytes);
    let found = read_newest(&*volume).unwrap();
    assert_eq!(found.loaded.unwrap().number, 1);
    assert_eq!(found.number_next, 3, "the torn file's number is taken");
}

/// The power went while the second manifest was in flight, and its first sector held what a deleted file had left there. It was taken for a damaged manifest, and the
/// database did not open. A header that rotted is still told: its first record stands.
#[test]
fn a_new_manifest_whose_first_sector_is_garbage_gives_way_to_the_old_one() {
    let (volume, manifest) = pair();
    let whole = read_whole(&*volume, FileId::new(FileKind::Manifest, 1)).unwrap();
    for from in [0, 8, 20, 39, 60] {
        for noise in [0xff, 0x5a] {
            let volume = volume.kill();
            let mut bytes = super::file::header(manifest.db, 2).to_vec();
            bytes.extend_from_slice(&whole[bytes.len()..]);
            bytes[from..].fill(noise);
            second(&volume, &bytes);
            let found = read_newest(&*volume).unwrap();
            assert_eq!(found.loaded.unwrap().number, 1, "from {from}");
        }
    }
    let first = FileId::new(FileKind::Manifest, 1);
    for byte in 0..40 {
        let volume = volume.kill();
        volume.flip_bits(first, byte, 1).unwrap();
        let error = read_newest(&*volume).err().unwrap();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Corruption | ErrorKind::UnsupportedFormat
            ),
            "byte {byte}: {error}"
        );
    }
}

/// A full disk took half of an edit, which stayed in the file behind the last whole record.
#[test]
fn an_edit_that_found_no_space_is_gone_for_good() {
    let (volume, mut manifest) = pair();
    let before = manifest.state().clone();
    let many: Vec<_> = (1..100).map(|segment| live(segment, 1000)).collect();
    fail_after(&volume, 0, FaultKind::NoSpace);
    assert_eq!(
        manifest.commit(&many).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    for mode in [CrashMode::LoseUnsynced, CrashMode::KeepUnsynced] {
        let after = volume.crash(mode);
        let loaded = read_newest(&*after).unwrap().loaded.unwrap();
        let file = FileId::new(FileKind::Manifest, loaded.number);
        let length = after.open(file).unwrap().len().unwrap();
        assert_eq!((loaded.end, &loaded.state), (length, &before), "{mode:?}");
    }
    manifest.commit(&[live(1, 10)]).unwrap();
    let loaded = read_newest(&*volume.crash(CrashMode::LoseUnsynced))
        .unwrap()
        .loaded
        .unwrap();
    assert_eq!(&loaded.state, manifest.state());
}

/// A new manifest was whole but its name not durable when the roll failed; the name was removed, but not durably, so that a power cut could bring the file back, and
/// with it the state from before the edits made since.
#[test]
fn a_roll_that_failed_never_hides_later_edits() {
    for failing in 0..6 {
        let (volume, mut manifest) = pair();
        fail_after(&volume, failing, FaultKind::Io);
        manifest.roll(Vec::new()).ok();
        let Ok(()) = manifest.commit(&[live(1, 10)]) else {
            continue;
        };
        for seed in 0..20 {
            let after = volume.crash(CrashMode::Random { seed });
            let loaded = read_newest(&*after).unwrap().loaded.unwrap();
            assert_eq!(
                &loaded.state,
                manifest.state(),
                "operation {failing}, seed {seed}"
            );
        }
    }
}

/// A process without descriptors, or without permission, cannot make a new file, nor remove one.
/// The manifest took no more edits then.
#[test]
fn an_edit_or_a_roll_that_was_refused_may_be_tried_again() {
    for kind in [FaultKind::NoDescriptor, FaultKind::NoPermission] {
        for pause in 0..8 {
            let (volume, mut manifest) = pair();
            let refuse = || {
                volume.fail(Fault {
                    at_operation: volume.operation_count() + pause,
                    kind,
                    sticky: true,
                });
            };
            for segment in 1..6 {
                refuse();
                let edit = [live(segment, 10)];
                for done in [manifest.roll(Vec::new()), manifest.commit(&edit)] {
                    let passes = done
                        .as_ref()
                        .err()
                        .is_none_or(|error| error.kind().passes());
                    assert!(passes, "{kind:?}, pause {pause}: {done:?}");
                }
                volume.clear_faults();
                manifest.check().unwrap();
                manifest.commit(&[live(100 + segment, 10)]).unwrap();
                manifest.roll(Vec::new()).unwrap();
            }
            let after = volume.crash(CrashMode::LoseUnsynced);
            let loaded = read_newest(&*after).unwrap().loaded.unwrap();
            assert_eq!(&loaded.state, manifest.state(), "{kind:?}, pause {pause}");
        }
    }
}
