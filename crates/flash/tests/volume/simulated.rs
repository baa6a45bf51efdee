//! What only the simulated volume does: lose, tear and fail, always in the same way for the same seed.

use crate::conformance::{id, options, pattern};
use glintdb_core::ErrorKind;
use glintdb_flash::{CreateOptions, Ring, Volume, VolumeFile};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemOptions, MemVolume, OperationKind};
use std::collections::BTreeSet;
use std::sync::Arc;

fn contents(volume: &MemVolume) -> Vec<(u64, Vec<u8>)> {
    volume
        .list()
        .unwrap()
        .into_iter()
        .map(|id| {
            (
                id.number,
                volume
                    .open(id)
                    .unwrap()
                    .read_at(0, 1 << 20)
                    .unwrap()
                    .to_vec(),
            )
        })
        .collect()
}

/// Three files: one synced with its name, one synced without its name, one deleted without the directory synced.
fn half_synced() -> Arc<MemVolume> {
    let volume = MemVolume::new();
    for number in [1, 3] {
        let file = volume.create(id(number), options(true)).unwrap();
        file.write_at(0, &pattern(number, 3000)).unwrap();
        file.sync().unwrap();
    }
    volume.sync_directory().unwrap();
    let file = volume.create(id(2), options(true)).unwrap();
    file.write_at(0, &pattern(2, 3000)).unwrap();
    file.sync().unwrap();
    volume.delete(id(3)).unwrap();
    volume
        .open(id(1))
        .unwrap()
        .write_at(1000, &[0; 1500])
        .unwrap();
    volume
}

#[test]
fn power_cut_takes_what_was_not_synced_names_and_bytes_apart() {
    let volume = half_synced();
    let lost = contents(&volume.crash(CrashMode::LoseUnsynced));
    assert_eq!(lost, [(1, pattern(1, 3000)), (3, pattern(3, 3000))]);
    let kept = volume.crash(CrashMode::KeepUnsynced);
    assert_eq!(contents(&kept), contents(&volume));
    assert!(kept.is_synced() && !volume.is_synced());
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let mode = CrashMode::Random { seed };
        let after = contents(&volume.crash(mode));
        assert_eq!(
            after,
            contents(&volume.crash(mode)),
            "same seed, same survivors"
        );
        for (number, bytes) in &after {
            if *number != 1 {
                assert_eq!(bytes, &pattern(*number, 3000));
            }
        }
        outcomes.insert(after);
    }
    assert!(outcomes.len() > 20, "{}", outcomes.len());
}

#[test]
fn kill_keeps_everything_but_makes_nothing_durable() {
    let volume = half_synced();
    let ring = volume.ring(4096).unwrap();
    ring.grow(4096).unwrap();
    ring.write(8, &[7; 16]);
    let after = volume.kill();
    assert_eq!(contents(&after), contents(&volume));
    let mut out = [0; 16];
    after.ring(4096).unwrap().read(8, &mut out);
    assert_eq!(out, [7; 16]);
    let lost = contents(&after.crash(CrashMode::LoseUnsynced));
    assert_eq!(lost, [(1, pattern(1, 3000)), (3, pattern(3, 3000))]);
    after
        .crash(CrashMode::LoseUnsynced)
        .ring(4096)
        .unwrap()
        .read(8, &mut out);
    assert_eq!(out, [0; 16]);
    ring.sync().unwrap();
    volume
        .crash(CrashMode::LoseUnsynced)
        .ring(4096)
        .unwrap()
        .read(8, &mut out);
    assert_eq!(out, [7; 16]);
}

#[test]
fn ring_in_plain_memory_goes_with_the_process() {
    let volume = MemVolume::with_options(MemOptions {
        ring_survives_kill: false,
        ..MemOptions::default()
    });
    let ring = volume.ring(4096).unwrap();
    ring.grow(4096).unwrap();
    ring.write(0, &[1; 8]);
    assert!(!ring.survives_kill() && !ring.sync().unwrap());
    assert_eq!(volume.kill().existing_ring_bytes().unwrap(), None);
    assert_eq!(
        volume
            .crash(CrashMode::KeepUnsynced)
            .existing_ring_bytes()
            .unwrap(),
        None
    );
}

#[test]
fn fault_hits_the_operation_it_was_planned_for_once_or_for_ever() {
    for sticky in [false, true] {
        let volume = MemVolume::with_options(MemOptions {
            log_operations: true,
            ..MemOptions::default()
        });
        let file = volume.create(id(1), options(true)).unwrap();
        let at_operation = volume.operation_count() + 1;
        volume.fail(Fault {
            at_operation,
            kind: FaultKind::Io,
            sticky,
        });
        file.write_at(0, b"a").unwrap();
        let refused = file.write_at(1, b"b").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Io);
        assert_eq!(file.write_at(1, b"c").is_err(), sticky);
        assert_eq!(file.read_at(0, 9).is_err(), sticky);
        let log = volume.operations();
        assert_eq!(log[2].number, 2);
        assert_eq!(
            log[2].kind,
            OperationKind::Write {
                file: id(1),
                offset: 1,
                length: 1
            }
        );
        assert_eq!(log[2].fault, Some(FaultKind::Io));
        assert_eq!(log.len(), 5);
        volume.clear_faults();
        assert_eq!(
            &file.read_at(0, 9).unwrap()[..],
            if sticky { &b"a"[..] } else { &b"ac"[..] }
        );
    }
}

#[test]
fn sync_that_failed_once_says_ok_later_with_the_data_gone() {
    let volume = MemVolume::new();
    let file = volume.create(id(1), options(true)).unwrap();
    volume.sync_directory().unwrap();
    file.write_at(0, b"one").unwrap();
    file.sync().unwrap();
    file.write_at(0, b"two").unwrap();
    volume.fail(Fault {
        at_operation: 0,
        kind: FaultKind::SyncLosesData,
        sticky: false,
    });
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
    file.sync().unwrap();
    assert_eq!(&file.read_at(0, 3).unwrap()[..], b"two");
    let after = volume.crash(CrashMode::KeepUnsynced);
    assert_eq!(
        &after.open(id(1)).unwrap().read_at(0, 3).unwrap()[..],
        b"one"
    );
}

/// As a real directory does it: what was created in the time of the failure may be gone, so no later sync of the names may be believed until the next process.
#[test]
fn after_a_failed_sync_of_the_directory_none_is_believed() {
    for kind in [FaultKind::Io, FaultKind::SyncLosesData] {
        let volume = MemVolume::new();
        volume.create(id(1), options(true)).unwrap();
        volume.fail(Fault {
            at_operation: 0,
            kind,
            sticky: false,
        });
        let failed = [volume.sync_directory(), volume.sync_directory()];
        let kinds = failed.map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::Io, ErrorKind::Poisoned]);
        assert_eq!(volume.crash(CrashMode::LoseUnsynced).list().unwrap(), []);
        let after = volume.kill();
        after.sync_directory().unwrap();
        let names = after.crash(CrashMode::LoseUnsynced).list().unwrap();
        assert_eq!(names, [id(1)]);
    }
}

#[test]
fn power_off_stops_everything_in_the_middle_of_an_operation() {
    let volume = MemVolume::with_options(MemOptions {
        seed: 3,
        ..MemOptions::default()
    });
    let ring = volume.ring(4096).unwrap();
    ring.grow(4096).unwrap();
    let file = volume.create(id(1), options(true)).unwrap();
    volume.fail(Fault {
        at_operation: volume.operation_count(),
        kind: FaultKind::PowerOff,
        sticky: false,
    });
    ring.write(0, &[1; 4096]);
    ring.write(0, &[2; 4096]);
    assert!(file.write_at(0, b"x").is_err() && file.len().is_err() && volume.list().is_err());
    assert!(ring.sync().is_err() && volume.sync_directory().is_err());
    let mut out = [0; 4096];
    volume.kill().ring(4096).unwrap().read(0, &mut out);
    let copied = out.iter().filter(|&&byte| byte == 1).count();
    assert!(
        copied % 8 == 0 && (1..4096).contains(&copied),
        "torn in the middle: {copied}"
    );
    assert!(
        out[..copied].iter().all(|&byte| byte == 1) && out[copied..].iter().all(|&byte| byte == 0)
    );
}

/// What was given back may be back after a power cut, as any write that is not synced; so may space
/// that was given.
#[test]
fn a_power_cut_may_undo_what_a_ring_has_grown_and_shrunk_by() {
    const BYTES: usize = 1 << 20;
    const UNIT: usize = 256 << 10;
    let volume = MemVolume::with_options(MemOptions {
        capacity_bytes: Some(BYTES as u64),
        ..MemOptions::default()
    });
    let ring = volume.ring(BYTES).unwrap();
    let free = |volume: &MemVolume| volume.free_bytes().unwrap() as usize;
    assert_eq!(free(&volume), BYTES, "a new ring takes no space");
    ring.grow(UNIT).unwrap();
    ring.write(0, &[1; UNIT]);
    ring.sync().unwrap();
    ring.grow(2 * UNIT).unwrap();
    ring.write(UNIT, &[2; UNIT]);
    assert_eq!(free(&volume), BYTES - 2 * UNIT);
    let cut = |mode| {
        let after = volume.crash(mode);
        let mut out = vec![0; 2 * UNIT];
        after.ring(BYTES).unwrap().read(0, &mut out);
        (free(&after), [out[UNIT / 2], out[UNIT]])
    };
    assert_eq!(cut(CrashMode::LoseUnsynced), (BYTES - UNIT, [1, 0]));
    assert_eq!(cut(CrashMode::KeepUnsynced), (BYTES - 2 * UNIT, [1, 2]));
    ring.shrink(UNIT / 2).unwrap();
    assert_eq!(free(&volume), BYTES - UNIT / 2);
    assert_eq!(cut(CrashMode::LoseUnsynced), (BYTES - UNIT, [1, 0]));
    assert_eq!(cut(CrashMode::KeepUnsynced), (BYTES - UNIT / 2, [0, 0]));
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (free, bytes) = cut(CrashMode::Random { seed });
        seen.insert((free, bytes[0]));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");

    volume.set_capacity_bytes(Some(2 * UNIT as u64));
    ring.grow(2 * UNIT).unwrap();
    let error = ring.grow(3 * UNIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    ring.write(0, &[3; 2 * UNIT]);
}

#[test]
fn full_volume_says_no_space_and_takes_more_after_a_delete() {
    let volume = MemVolume::with_options(MemOptions {
        capacity_bytes: Some(100_000),
        ..MemOptions::default()
    });
    let reserved = CreateOptions {
        reserve_bytes: 50_000,
        ..options(true)
    };
    let first = volume.create(id(1), reserved).unwrap();
    let second = volume.create(id(2), options(true)).unwrap();
    assert_eq!(volume.free_bytes(), Some(50_000));
    assert_eq!(
        second.write_at(0, &[1; 60_000]).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!(
        volume
            .create(id(3), reserved)
            .map(|_| ())
            .unwrap_err()
            .kind(),
        ErrorKind::NoSpace
    );
    first.write_at(0, &[1; 50_000]).unwrap();
    assert_eq!(
        first.write_at(50_000, &[1]).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    volume.delete(id(2)).unwrap();
    assert_eq!(volume.free_bytes(), Some(0), "a handle keeps its space");
    drop(second);
    assert_eq!(volume.free_bytes(), Some(50_000));
    volume.create(id(3), reserved).unwrap();
}

#[test]
fn rot_flips_what_is_read_and_what_survives() {
    let volume = half_synced();
    volume.flip_bits(id(1), 5, 0x80).unwrap();
    let mut expected = pattern(1, 3000);
    expected[5] ^= 0x80;
    assert_eq!(
        contents(&volume.crash(CrashMode::LoseUnsynced))[0].1,
        expected
    );
    assert_eq!(
        volume.flip_bits(id(9), 0, 1).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn file_handles_and_rings_are_trait_objects_like_any_other() {
    fn takes(_: &dyn VolumeFile, _: &dyn Ring) {}
    let volume = MemVolume::new();
    takes(
        &*volume.create(id(1), options(true)).unwrap(),
        &*volume.ring(4096).unwrap(),
    );
    assert!(volume.link(id(1), "/nowhere".as_ref()).is_err());
}

/// The old name may come back as long as the directory was not synced without it, and must come back with the old bytes.
#[test]
fn no_power_cut_brings_a_recycled_files_name_back_with_other_bytes() {
    let reserving = CreateOptions {
        reserve_bytes: 3000,
        ..options(true)
    };
    for synced in [false, true] {
        let volume = MemVolume::new();
        let file = volume.create(id(1), options(true)).unwrap();
        file.write_at(0, &pattern(1, 3000)).unwrap();
        file.sync().unwrap();
        drop(file);
        volume.sync_directory().unwrap();
        volume.recycle(id(1)).unwrap();
        if synced {
            volume.sync_directory().unwrap();
        }
        let file = volume.create_recycled(id(2), reserving).unwrap();
        assert_eq!(volume.stats().recycled_files, u64::from(synced));
        let before = if synced { pattern(1, 3000) } else { Vec::new() };
        assert_eq!(file.read_at(0, 3000).unwrap(), before);
        file.write_at(0, &pattern(2, 3000)).unwrap();
        file.sync().unwrap();
        let mut outcomes = BTreeSet::new();
        for seed in 0..50 {
            for (number, bytes) in contents(&volume.crash(CrashMode::Random { seed })) {
                assert_eq!(bytes, pattern(number, 3000));
                outcomes.insert(number);
            }
        }
        let expected = if synced { vec![2] } else { vec![1, 2] };
        assert!(outcomes.into_iter().eq(expected));
    }
}
