//! A volume over several units: directories, and volumes in memory.

use glintdb_core::{ErrorKind, FileId, FileKind};
use glintdb_flash::{
    CreateOptions, DataClass, DirOptions, Placement, ReadRequest, Root, Units, Volume, VolumeFile,
    read_each,
};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemOptions, MemVolume};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn id(number: u64) -> FileId {
    FileId::new(FileKind::Table, number)
}

fn options(class: DataClass, reserve_bytes: u64) -> CreateOptions {
    CreateOptions {
        class,
        reserve_bytes,
        direct: true,
    }
}

fn over(volumes: &[Arc<MemVolume>], placement: &str) -> Arc<Units> {
    let root = |(medium, volume): (u64, &Arc<MemVolume>)| Root {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        name: format!("unit {medium}"),
        medium,
    };
    let roots = (0..).zip(volumes).map(root).collect();
    Units::new(roots, Placement::parse(placement).unwrap()).unwrap()
}

fn memory(capacities: &[u64]) -> Vec<Arc<MemVolume>> {
    let volume = |capacity: &u64| {
        MemVolume::with_options(MemOptions {
            capacity_bytes: Some(*capacity),
            ..MemOptions::default()
        })
    };
    capacities.iter().map(volume).collect()
}

fn counts(volumes: &[Arc<MemVolume>]) -> Vec<usize> {
    volumes
        .iter()
        .map(|volume| volume.list().unwrap().len())
        .collect()
}

fn open(paths: &[PathBuf], placement: &str) -> Arc<Units> {
    let options = DirOptions {
        create: true,
        ..DirOptions::default()
    };
    Units::open(paths, Placement::parse(placement).unwrap(), options).unwrap()
}

fn two(directory: &Path) -> [PathBuf; 2] {
    ["one", "two"].map(|name| directory.join(name))
}

/// Each class takes turns by itself: otherwise logs and tables that are made in turn would each
/// have a unit of their own.
#[test]
fn striping_gives_each_unit_as_many_files_of_each_class() {
    let volumes = memory(&[1 << 40, 1 << 40]);
    let units = over(&volumes, "striping");
    for pair in 0..6 {
        for (number, class) in [(0, DataClass::Log), (1, DataClass::Flush)] {
            let file = units
                .create(id(2 * pair + number), options(class, 0))
                .unwrap();
            file.write_at(0, &[1; 4096]).unwrap();
        }
    }
    for volume in &volumes {
        let names = volume.list().unwrap();
        let tables = names.iter().filter(|id| id.number % 2 == 1).count();
        assert_eq!((names.len(), tables), (6, 3));
    }
    let written = |unit: &glintdb_flash::UnitStats| (unit.writes, unit.written_bytes);
    let stats = units.units();
    assert_eq!(
        stats.iter().map(written).collect::<Vec<_>>(),
        [(6, 24576); 2]
    );
}

#[test]
fn isolated_classes_have_units_of_their_own_and_are_counted() {
    let volumes = memory(&[1 << 40; 8]);
    let units = over(&volumes, "isolation:3:3:2");
    let classes = [
        (DataClass::Log, 0..3, "log"),
        (DataClass::Flush, 3..6, "flush"),
        (DataClass::Level { rank: 2, of: 3 }, 6..8, "level 2"),
        (DataClass::Relocated, 6..8, "relocated"),
    ];
    let mut number = 0;
    for (class, own, name) in classes {
        let before = counts(&volumes);
        for _ in 0..6 {
            number += 1;
            let file = units.create(id(number), options(class, 0)).unwrap();
            file.write_at(0, &[1; 1000]).unwrap();
            assert_eq!(file.read_at(0, 500).unwrap().len(), 500);
        }
        for (unit, (after, before)) in counts(&volumes).iter().zip(&before).enumerate() {
            let each = 6 / own.len();
            assert_eq!(after - before, if own.contains(&unit) { each } else { 0 });
        }
        let stats = units.classes();
        let stats = stats.iter().find(|stats| stats.name == name).unwrap();
        assert_eq!((stats.writes, stats.written_bytes), (6, 6000), "{name}");
        assert_eq!((stats.reads, stats.read_bytes), (6, 3000), "{name}");
    }
    assert_eq!(
        units
            .units()
            .iter()
            .map(|unit| unit.overflow_files)
            .sum::<u64>(),
        0
    );
    // A class is known also when the file is opened again.
    let file = units.open(id(number)).unwrap();
    file.read_at(0, 10).unwrap();
    let stats = units.classes();
    assert!(
        stats
            .iter()
            .any(|stats| stats.name == "relocated" && stats.reads == 7)
    );
}

#[test]
fn manifests_and_the_reserve_are_in_the_first_unit() {
    let volumes = memory(&[1 << 40, 1 << 41]);
    let units = over(&volumes, "striping");
    for (number, class) in [(1, DataClass::Manifest), (2, DataClass::Reserve)] {
        units.create(id(number), options(class, 0)).unwrap();
        units.create(id(number + 10), options(class, 0)).unwrap();
    }
    assert_eq!(counts(&volumes), [4, 0]);
}

#[test]
fn files_that_do_not_fit_their_units_go_to_others_and_are_counted() {
    let volumes = memory(&[600 * MIB, 2000 * MIB]);
    let units = over(&volumes, "isolation:1:1");
    let mut number = 0;
    let mut create = |class, bytes| {
        number += 1;
        units.create(id(number), options(class, bytes)).map(drop)
    };
    create(DataClass::Log, 300 * MIB).unwrap();
    assert_eq!(counts(&volumes), [1, 0]);
    // 300 MiB are free in the unit of the log: too little for this file and some room.
    create(DataClass::Log, 100 * MIB).unwrap();
    assert_eq!(counts(&volumes), [1, 1]);
    assert_eq!(units.units()[1].overflow_files, 1);
    // Where no unit has room, the emptiest takes it.
    create(DataClass::Log, 1700 * MIB).unwrap();
    assert_eq!(counts(&volumes), [1, 2]);
    create(DataClass::Flush, 250 * MIB).unwrap();
    assert_eq!(counts(&volumes), [2, 2]);
    assert_eq!(units.units()[0].overflow_files, 1);
    assert_eq!(units.free_bytes(), Some(250 * MIB));
    let error = create(DataClass::Flush, 250 * MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(counts(&volumes), [2, 2]);
}

#[test]
fn units_on_one_medium_share_its_free_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let units = open(&two(directory.path()), "striping");
    let one = units.directories()[0].free_bytes().unwrap();
    let both = units.free_bytes().unwrap();
    assert!(both < one + one / 2, "{both} of {one}");
}

#[test]
fn a_name_in_two_units_is_corruption() {
    let volumes = memory(&[1 << 40, 1 << 40]);
    let units = over(&volumes, "striping");
    units.create(id(1), options(DataClass::Log, 0)).unwrap();
    let error = units
        .create(id(1), options(DataClass::Log, 0))
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    volumes[1]
        .create(id(1), options(DataClass::Log, 0))
        .unwrap();
    let error = units.list().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(
        error.to_string().contains("in unit 0 and in unit 1"),
        "{error}"
    );
}

/// A power cut after a sync takes no name, also of one that an earlier process has left.
#[test]
fn syncs_make_the_names_of_every_unit_durable() {
    let volumes = memory(&[1 << 40, 1 << 40]);
    volumes[1]
        .create(id(9), options(DataClass::Log, 0))
        .unwrap();
    let units = over(&volumes, "striping");
    for number in 1..=4 {
        units
            .create(id(number), options(DataClass::Log, 0))
            .unwrap();
    }
    units.sync_directory().unwrap();
    let left = |volume: &MemVolume| volume.crash(CrashMode::LoseUnsynced).list().unwrap();
    assert_eq!(left(&volumes[0]), [id(1), id(3)]);
    assert_eq!(left(&volumes[1]), [id(2), id(4), id(9)]);
    // Only what has changed is synced.
    let syncs = |volume: &MemVolume| volume.stats().syncs;
    let before = [syncs(&volumes[0]), syncs(&volumes[1])];
    units.delete(id(2)).unwrap();
    units.sync_directory().unwrap();
    units.sync_directory().unwrap();
    assert_eq!(
        [syncs(&volumes[0]), syncs(&volumes[1])],
        [before[0], before[1] + 1]
    );
    assert_eq!(left(&volumes[1]), [id(4), id(9)]);
}

/// The device of the second unit fails once, and would say OK later.
#[test]
fn a_failed_sync_in_one_unit_poisons_all() {
    for of_names in [false, true] {
        let volumes = memory(&[1 << 40, 1 << 40]);
        let units = over(&volumes, "striping");
        let files = [1, 2].map(|number| {
            let file = units
                .create(id(number), options(DataClass::Log, 0))
                .unwrap();
            file.write_at(0, &[1; 4096]).unwrap();
            file
        });
        volumes[1].fail(Fault {
            at_operation: volumes[1].operation_count(),
            kind: FaultKind::SyncLosesData,
            sticky: false,
        });
        let failed = match of_names {
            true => units.sync_directory(),
            false => files[1].sync(),
        };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
        let poisoned = |result: glintdb_core::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Poisoned);
        };
        poisoned(files[0].sync());
        poisoned(files[1].sync());
        poisoned(units.sync_directory());
        let ring = units.ring(64 << 10).unwrap();
        poisoned(ring.sync().map(drop));
        assert_eq!(files[0].read_at(0, 10).unwrap().len(), 10);
    }
}

/// One plan for the files of all directories: reads of both are merged as in one, and none goes by
/// itself.
#[test]
fn a_batch_reads_all_directories_together() {
    let directory = tempfile::tempdir().unwrap();
    let units = open(&two(directory.path()), "striping");
    let files: Vec<Arc<dyn VolumeFile>> = [1, 2]
        .map(|number| {
            let file = units
                .create(id(number), options(DataClass::Flush, 0))
                .unwrap();
            let bytes: Vec<u8> = (0..16_u8)
                .flat_map(|page| vec![page + 16 * number as u8; 4096])
                .collect();
            file.write_at(0, &bytes).unwrap();
            file.sync().unwrap();
            file
        })
        .into();
    let requests = || {
        let request = |page: u64| {
            let file = Arc::clone(&files[page as usize % 2]);
            ReadRequest::new(file, page / 2 * 4096, 4096)
        };
        (0..32).map(request).collect::<Vec<_>>()
    };
    let check = |read: Vec<glintdb_core::Result<bytes::Bytes>>| {
        for (page, bytes) in (0_u8..).zip(read) {
            let expected = page / 2 + 16 * (1 + page % 2);
            assert_eq!(&bytes.unwrap()[..], &[expected; 4096][..]);
        }
    };
    let before = units.stats();
    check(read_each(&*units, requests().into_iter().map(Ok)));
    let after = units.stats();
    // Sixteen neighbours of each file are one read.
    assert_eq!(
        (
            after.reads - before.reads,
            after.read_batches - before.read_batches
        ),
        (2, 1)
    );
    let begun = units.begin_batch(requests()).wait();
    check(begun.into_iter().map(ReadRequest::answer).collect());
    assert_eq!(units.stats().reads - after.reads, 2);
    let stats = units.units();
    assert!(
        stats
            .iter()
            .all(|unit| unit.reads == 32 && unit.read_bytes == 32 * 4096)
    );
}

#[test]
fn files_are_found_again_and_a_spare_stays_in_its_unit() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = two(directory.path());
    let units = open(&[one.clone(), two.clone()], "striping");
    for number in 1..=4 {
        let file = units
            .create(id(number), options(DataClass::Log, MIB))
            .unwrap();
        file.write_at(0, &[number as u8; 4096]).unwrap();
        file.sync().unwrap();
    }
    units.recycle(id(2)).unwrap();
    units.sync_directory().unwrap();
    drop(units);
    let units = open(&[two.clone(), one], "striping");
    assert_eq!(units.list().unwrap(), [id(1), id(3), id(4)]);
    for number in [1, 3, 4] {
        let bytes = units.open(id(number)).unwrap().read_at(0, 4096).unwrap();
        assert_eq!(&bytes[..], &[number as u8; 4096][..]);
    }
    let error = units.open(id(2)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // The checkpoint is one directory.
    let copy = directory.path().join("copy");
    let volume = units.make_directory(&copy).unwrap();
    for number in [1, 3, 4] {
        assert!(units.link(id(number), &copy).unwrap());
    }
    assert_eq!(volume.list().unwrap(), [id(1), id(3), id(4)]);
    assert!(!copy.join("unit").exists());
    drop((volume, units));
    let units = open(&[copy.parent().unwrap().join("one"), two], "striping");
    // The link is another name: the file can be no spare.
    std::fs::remove_dir_all(&copy).unwrap();
    let place = units
        .directories()
        .iter()
        .find(|one| one.list().unwrap().contains(&id(4)));
    let spare = place.unwrap().path().join("spare-0.glint");
    units.recycle(id(4)).unwrap();
    assert!(spare.exists());
    units.delete_recycled();
    assert!(!spare.exists());
}

#[derive(Clone, Debug)]
enum Step {
    Create(u64, u8, u64),
    Write(u64, u64, u64, u8),
    Cut(u64, u64),
    Read(u64, u64, u64),
    Batch(u64, u64),
    Sync(u64),
    Delete(u64),
    Recycle(u64),
    Names,
    Again,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0_u64..8;
    prop_oneof![
        3 => (number.clone(), 0..4_u8, prop_oneof![Just(0_u64), 1..300_000_u64])
            .prop_map(|(n, class, reserve)| Step::Create(n, class, reserve)),
        6 => (number.clone(), 0..200_000_u64, 1..60_000_u64, any::<u8>())
            .prop_map(|(n, at, length, fill)| Step::Write(n, at, length, fill)),
        1 => (number.clone(), 0..200_000_u64).prop_map(|(n, length)| Step::Cut(n, length)),
        3 => (number.clone(), 0..250_000_u64, 1..60_000_u64)
            .prop_map(|(n, at, length)| Step::Read(n, at, length)),
        2 => (0..200_000_u64, 1..60_000_u64).prop_map(|(at, length)| Step::Batch(at, length)),
        1 => number.clone().prop_map(Step::Sync),
        1 => number.clone().prop_map(Step::Delete),
        1 => number.prop_map(Step::Recycle),
        1 => Just(Step::Names),
        1 => Just(Step::Again),
    ]
}

fn class_of(number: u8) -> DataClass {
    [
        DataClass::Log,
        DataClass::Flush,
        DataClass::Relocated,
        DataClass::Manifest,
    ][usize::from(number)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Names and contents are those of a volume in memory, whatever the placement, and also after
    /// the directories were opened again in another order.
    #[test]
    fn prop_names_and_contents_are_those_of_one_volume(
        steps in proptest::collection::vec(step(), 1..60),
        isolated in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut paths: Vec<PathBuf> = ["a", "b", "c"].map(|name| directory.path().join(name)).into();
        let placement = if isolated { "isolation:1:1:1" } else { "striping" };
        let mut units = open(&paths, placement);
        let plain = MemVolume::new();
        let mut files: BTreeMap<u64, [Arc<dyn VolumeFile>; 2]> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Create(n, class, reserve) => {
                    let options = options(class_of(class), reserve);
                    let made = units.create(id(n), options);
                    match plain.create(id(n), options) {
                        Ok(other) => { files.insert(n, [made.unwrap(), other]); }
                        Err(error) => prop_assert_eq!(made.err().unwrap().kind(), error.kind()),
                    }
                }
                Step::Write(n, at, length, fill) => if let Some(both) = files.get(&n) {
                    for file in both {
                        file.write_at(at, &vec![fill; length as usize]).unwrap();
                    }
                },
                Step::Cut(n, length) => if let Some(both) = files.get(&n) {
                    for file in both {
                        file.set_len(length).unwrap();
                    }
                },
                Step::Read(n, at, length) => if let Some([file, other]) = files.get(&n) {
                    let read = |file: &Arc<dyn VolumeFile>| file.read_at(at, length as usize).unwrap();
                    prop_assert_eq!(read(file), read(other));
                },
                Step::Batch(at, length) => {
                    let read = |which: usize| -> Vec<bytes::Bytes> {
                        let volume: &dyn Volume = if which == 0 { &*units } else { &*plain };
                        let request = |both: &[Arc<dyn VolumeFile>; 2]| {
                            Ok(ReadRequest::new(Arc::clone(&both[which]), at, length as usize))
                        };
                        let read = read_each(volume, files.values().map(request));
                        read.into_iter().map(Result::unwrap).collect()
                    };
                    prop_assert_eq!(read(0), read(1));
                }
                Step::Sync(n) => if let Some([file, _]) = files.get(&n) {
                    file.sync().unwrap();
                },
                Step::Delete(n) | Step::Recycle(n) => {
                    files.remove(&n);
                    let removed = match step {
                        Step::Delete(_) => units.delete(id(n)),
                        _ => units.recycle(id(n)),
                    };
                    let expected = plain.delete(id(n));
                    prop_assert_eq!(removed.map_err(|e| e.kind()), expected.map_err(|e| e.kind()));
                }
                Step::Names => units.sync_directory().unwrap(),
                Step::Again => {
                    let numbers: Vec<u64> = files.keys().copied().collect();
                    files.clear();
                    drop(units);
                    paths.rotate_left(1);
                    units = open(&paths, placement);
                    for n in numbers {
                        let both = [units.open(id(n)).unwrap(), plain.open(id(n)).unwrap()];
                        files.insert(n, both);
                    }
                }
            }
            prop_assert_eq!(units.list().unwrap(), plain.list().unwrap());
        }
    }
}
