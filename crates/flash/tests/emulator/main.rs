//! The emulated volume: contents are those of the volume below, times and space those of the
//! modelled device.
#![cfg(feature = "emulator")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use glintdb_core::clock::Clock;
use glintdb_core::{ErrorKind, FileId, FileKind};
use glintdb_flash::emulator::nand::Profile;
use glintdb_flash::emulator::{Emulated, Placement};
use glintdb_flash::{
    CreateOptions, DataClass, ManualClock, ReadRequest, Volume, VolumeFile, read_each,
};
use glintdb_simdisk::MemVolume;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const KIB: u64 = 1024;

/// Two channels of two LUNs of 16 chunks of 64 KiB: 4 MiB. A row is 8 KiB, a program takes 500 us,
/// a read 50 us, an erase 3,000 us, and 4 KiB over the bus 8 us.
fn small() -> Profile {
    let text = "
        name = 'small'
        about = 'for tests'
        [geometry]
        channels = 2
        luns = 2
        planes = 2
        blocks = 16
        pages = 8
        page_bytes = 4096
        [times]
        read_us = [50]
        program_us = [500]
        erase_us = 3000
        bus_mb_s = 512
    ";
    Profile::parse(text, "small").unwrap()
}

/// A volume in memory on a small device, and its clock.
fn on(profile: Profile, placement: &str) -> (Emulated, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let placement = Placement::parse(placement).unwrap();
    let shared: Arc<dyn Clock> = clock.clone();
    let volume = Emulated::new(MemVolume::new(), profile, placement, shared).unwrap();
    (volume, clock)
}

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

fn create(volume: &Emulated, number: u64, class: DataClass) -> Arc<dyn VolumeFile> {
    volume.create(id(number), options(class, 0)).unwrap()
}

fn now_us(clock: &ManualClock) -> u128 {
    clock.monotonic().as_micros()
}

fn pages(count: usize, fill: u8) -> Vec<u8> {
    vec![fill; count * 4096]
}

#[test]
fn writes_syncs_and_reads_take_the_time_of_the_device() {
    let (volume, clock) = on(small(), "striping");
    let file = create(&volume, 1, DataClass::Flush);
    // A row is not full: nothing is programmed.
    file.write_at(0, &pages(1, 1)).unwrap();
    assert_eq!(now_us(&clock), 0);
    file.sync().unwrap();
    assert_eq!(now_us(&clock), 516);
    assert_eq!(volume.device_stats().space.padding_bytes, 4 * KIB);
    // Four rows on four LUNs, two of each channel.
    file.write_at(4096, &pages(8, 2)).unwrap();
    assert_eq!(now_us(&clock), 516 + 532);
    // A sync has nothing to do.
    file.sync().unwrap();
    assert_eq!(now_us(&clock), 1048);
    // Eight sectors are on four LUNs.
    let bytes = file.read_at(4096, 8 * 4096).unwrap();
    assert_eq!(&bytes[..], &pages(8, 2)[..]);
    assert_eq!(now_us(&clock), 1048 + 50 + 32);
    let stats = volume.device_stats();
    assert_eq!(stats.space.host_bytes, 9 * 4 * KIB);
    assert_eq!(stats.space.programmed_bytes, 5 * 8 * KIB);
    assert!((stats.write_amp_device - 10.0 / 9.0).abs() < 1e-9);
    assert_eq!(stats.units.iter().map(|unit| unit.reads).sum::<u64>(), 4);
    // Names are a sector of their own.
    volume.sync_directory().unwrap();
    assert_eq!(now_us(&clock), 1130 + 516);
    let stats = volume.stats();
    assert_eq!(
        (stats.read_us, stats.write_us, stats.sync_us),
        (82, 532, 516 + 516)
    );
}

#[test]
fn batches_are_read_together() {
    let (volume, clock) = on(small(), "striping");
    let file = create(&volume, 1, DataClass::Flush);
    file.write_at(0, &pages(8, 3)).unwrap();
    let start = now_us(&clock);
    let request = |sector: u64| ReadRequest::new(Arc::clone(&file), sector * 4096, 4096);
    // One on each LUN, two on each channel.
    let wanted = [0, 2, 4, 6].map(|sector| Ok(request(sector)));
    for answer in read_each(&volume, wanted) {
        assert_eq!(&answer.unwrap()[..], &pages(1, 3)[..]);
    }
    assert_eq!(now_us(&clock), start + 50 + 16);
    // What was begun is read meanwhile.
    let begun = volume.begin_batch(vec![request(0), request(2)]);
    clock.advance(std::time::Duration::from_micros(40));
    let requests = begun.wait();
    assert_eq!(
        requests[1].result.as_ref().unwrap().as_ref().unwrap()[..],
        pages(1, 3)[..]
    );
    assert_eq!(now_us(&clock), start + 66 + 58);
}

#[test]
fn a_cache_that_survives_a_power_cut_needs_no_padding() {
    let mut profile = small();
    profile.cache.bytes = 1 << 20;
    profile.cache.power_loss_protection = true;
    let (volume, clock) = on(profile, "striping");
    let file = create(&volume, 1, DataClass::Log);
    file.write_at(0, &pages(5, 1)).unwrap();
    file.sync().unwrap();
    volume.sync_directory().unwrap();
    assert_eq!(now_us(&clock), 0);
    assert_eq!(volume.device_stats().space.padding_bytes, 0);
}

#[test]
fn isolated_classes_have_units_of_their_own() {
    let mut profile = small();
    profile.geometry.luns = 4;
    let (volume, _) = on(profile, "isolation:3:3:2");
    let programs = |of: std::ops::Range<usize>| -> u64 {
        let units = volume.device_stats().units;
        units[of].iter().map(|unit| unit.programs).sum()
    };
    let classes = [
        (DataClass::Log, 0..3),
        (DataClass::Flush, 3..6),
        (DataClass::Level { rank: 2, of: 3 }, 6..8),
        (DataClass::Relocated, 6..8),
    ];
    for (number, (class, units)) in (1..).zip(classes) {
        let before = (programs(0..8), programs(units.clone()));
        let file = create(&volume, number, class);
        file.write_at(0, &pages(20, 1)).unwrap();
        assert_eq!(programs(0..8) - before.0, 10, "{class:?}");
        assert_eq!(programs(units) - before.1, 10, "{class:?}");
    }
}

#[test]
fn a_dynamic_placement_begins_with_striping_and_isolates_files_once_reads_wait() {
    let mut profile = small();
    profile.geometry.luns = 4;
    profile.cache.bytes = 1 << 20;
    let (volume, clock) = on(profile, "dynamic:3:3:2");
    let units = || -> Vec<u64> {
        let units = volume.device_stats().units;
        units.iter().map(|unit| unit.programs).collect()
    };
    let used = |class, number| -> Vec<usize> {
        let before = units();
        let file = create(&volume, number, class);
        file.write_at(0, &pages(32, 1)).unwrap();
        let after = units();
        (0..8).filter(|unit| after[*unit] > before[*unit]).collect()
    };
    assert_eq!(used(DataClass::Flush, 1), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Little is written, and reads come while that is programmed from the cache.
    let file = volume.open(id(1)).unwrap();
    for turn in 0..20 {
        let log = create(&volume, 100 + turn, DataClass::Log);
        log.write_at(0, &pages(32, 1)).unwrap();
        file.read_at(0, 4096).unwrap();
        clock.advance(std::time::Duration::from_millis(20));
    }
    let changes = volume.device_stats().changes;
    assert!(changes.len() == 1 && changes[0].is_isolated, "{changes:?}");
    assert_eq!(used(DataClass::Flush, 2), [3, 4, 5]);
    let device = volume.device().unwrap();
    assert_eq!(device.changes, changes);
    assert!(device.programmed_bytes > 0 && device.programmed_bytes >= device.host_bytes);
}

#[test]
fn virtual_blocks_are_over_all_units_and_erased_at_once() {
    let (volume, clock) = on(small(), "striping");
    let volume = volume.with_virtual_blocks();
    let free = volume.free_bytes().unwrap();
    let file = create(&volume, 1, DataClass::Flush);
    file.write_at(0, &pages(2, 1)).unwrap();
    // A chunk of each of four LUNs, for a row.
    assert_eq!(free - volume.free_bytes().unwrap(), 4 * 64 * KIB);
    drop(file);
    volume.delete(id(1)).unwrap();
    let other = create(&volume, 2, DataClass::Flush);
    clock.advance(std::time::Duration::from_millis(5));
    other.write_at(0, &pages(2, 1)).unwrap();
    let units = volume.device_stats().units;
    assert!(units.iter().all(|unit| unit.erases == 1), "{units:?}");
}

#[test]
fn a_large_file_has_blocks_of_its_own_that_are_erased_with_it() {
    let (volume, clock) = on(small(), "striping");
    let free = volume.free_bytes().unwrap();
    // Eight chunks: two of each LUN.
    let reserved = options(DataClass::Log, 512 * KIB);
    let file = volume.create(id(1), reserved).unwrap();
    for part in 0..32 {
        file.write_at(part * 16 * KIB, &pages(4, 1)).unwrap();
    }
    let stats = volume.device_stats();
    assert_eq!(stats.write_amp_device, 1.0);
    assert!(stats.units.iter().all(|unit| unit.programs == 16));
    assert_eq!(free - volume.free_bytes().unwrap(), 512 * KIB);
    // It can be read as long as it is in use.
    volume.delete(id(1)).unwrap();
    assert_eq!(&file.read_at(0, 4096).unwrap()[..], &pages(1, 1)[..]);
    assert_eq!(free - volume.free_bytes().unwrap(), 512 * KIB);
    drop(file);
    assert_eq!(volume.free_bytes().unwrap(), free);
    // Erases begin when there is something to do, one on each LUN at a time.
    let erases = || -> u64 {
        volume
            .device_stats()
            .units
            .iter()
            .map(|unit| unit.erases)
            .sum()
    };
    let other = create(&volume, 2, DataClass::Log);
    other.write_at(0, &pages(1, 1)).unwrap();
    assert_eq!(erases(), 4);
    other.write_at(4096, &pages(1, 1)).unwrap();
    assert_eq!(erases(), 4, "all LUNs are busy");
    clock.advance(std::time::Duration::from_millis(5));
    other.write_at(8192, &pages(1, 1)).unwrap();
    assert_eq!(erases(), 8);
}

#[test]
fn the_collector_makes_room_where_small_files_are_overwritten() {
    let (volume, clock) = on(small(), "striping");
    let files: Vec<_> = (0..48)
        .map(|number| create(&volume, number, DataClass::Flush))
        .collect();
    // 1.5 MiB live on a device of 4 MiB, of which 3.5 may be used. Sectors are overwritten in an
    // order without a pattern, so those of a superblock die at different times.
    let mut contents = [[0_u8; 8]; 48];
    let mut random = 1_u64;
    for step in 0..4000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (number, sector) = ((random >> 33) % 48, (random >> 40) % 8);
        let fill = (step % 251) as u8;
        files[number as usize]
            .write_at(sector * 4096, &pages(1, fill))
            .unwrap();
        contents[number as usize][sector as usize] = fill;
        // Time for erases.
        clock.advance(std::time::Duration::from_millis(1));
    }
    let stats = volume.device_stats();
    assert_eq!(stats.space.host_bytes, 4000 * 4 * KIB);
    assert!(stats.space.moved_bytes > 0, "{:?}", stats.space);
    assert!(stats.write_amp_device < 2.0, "{}", stats.write_amp_device);
    let (least, most) = stats.wear;
    assert!(least > 0 && most - least < 8, "{:?}", stats.wear);
    for (file, sectors) in files.iter().zip(contents) {
        for (sector, fill) in (0..).zip(sectors) {
            let bytes = file.read_at(sector * 4096, 1).unwrap();
            assert!(bytes.is_empty() || bytes[0] == fill);
        }
    }
    drop(files);
    for number in 0..48 {
        volume.delete(id(number)).unwrap();
    }
    assert_eq!(
        volume
            .device_stats()
            .units
            .iter()
            .filter(|unit| unit.erases == 0)
            .count(),
        0
    );
}

#[test]
fn a_full_device_refuses_and_takes_again_what_was_deleted() {
    let (volume, _) = on(small(), "striping");
    let free = volume.free_bytes().unwrap();
    let error = volume
        .create(id(1), options(DataClass::Log, free + 1))
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(volume.list().unwrap().is_empty());
    // What is reserved is kept for the file, whatever others write.
    let reserved = volume
        .create(id(5000), options(DataClass::Log, 512 * KIB))
        .unwrap();
    assert_eq!(volume.free_bytes().unwrap(), free - 512 * KIB);
    let free = volume.free_bytes().unwrap();
    let mut number = 0;
    let full = loop {
        number += 1;
        let file = match volume.create(id(number), options(DataClass::Flush, 0)) {
            Ok(file) => file,
            Err(error) => break error,
        };
        if let Err(error) = file.write_at(0, &pages(10, 1)) {
            break error;
        }
        assert!(number < 1000);
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    reserved.write_at(0, &pages(128, 4)).unwrap();
    // At least nine tenths of what was said to be free.
    assert!(
        number * 40 * KIB > free * 9 / 10,
        "{number} files of {free}"
    );
    for deleted in 1..=number / 2 {
        volume.delete(id(deleted)).unwrap();
    }
    for again in 1..=number / 3 {
        let file = create(&volume, 1000 + again, DataClass::Flush);
        file.write_at(0, &pages(10, 2)).unwrap();
    }
}

#[test]
fn a_group_that_is_full_uses_units_of_others() {
    let mut profile = small();
    profile.geometry.luns = 4;
    profile.geometry.blocks = 32;
    let (volume, _) = on(profile, "isolation:2:1:1");
    for number in 0..70 {
        let file = create(&volume, number, DataClass::Flush);
        file.write_at(0, &pages(16, 1)).unwrap();
    }
    assert!(volume.device_stats().space.overflows > 0);
}

#[test]
fn a_volume_refuses_devices_that_it_cannot_use() {
    let refuse = |profile: Profile, placement: &str| {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let placement = Placement::parse(placement).unwrap();
        let volume = Emulated::new(MemVolume::new(), profile, placement, clock);
        volume.err().unwrap().to_string()
    };
    let mut failing = small();
    failing.faults.program_ppm = 1;
    assert!(refuse(failing, "striping").contains("failure rates"));
    let mut odd = small();
    odd.geometry.sector_bytes = 512;
    odd.geometry.page_bytes = 512;
    assert!(refuse(odd, "striping").contains("whole sectors of 4096"));
    let error = refuse(small(), "isolation:100:1:1");
    assert!(error.contains("do not each get one of 4 units"), "{error}");
}

#[test]
fn files_that_were_there_are_placed_when_they_are_opened() {
    let inner = MemVolume::new();
    let file = inner.create(id(1), options(DataClass::Flush, 0)).unwrap();
    file.write_at(0, &pages(4, 9)).unwrap();
    let clock = Arc::new(ManualClock::default());
    let shared: Arc<dyn Clock> = clock.clone();
    let volume = Emulated::new(inner, small(), Placement::Striping, shared).unwrap();
    let opened = volume.open(id(1)).unwrap();
    let again = volume.open(id(1)).unwrap();
    assert_eq!(volume.device_stats().space.host_bytes, 16 * KIB);
    assert_eq!(&opened.read_at(0, 4096).unwrap()[..], &pages(1, 9)[..]);
    assert!(now_us(&clock) >= 58);
    drop((opened, again));
    assert_eq!(
        volume.open(id(2)).err().unwrap().kind(),
        ErrorKind::NotFound
    );
}

#[derive(Clone, Debug)]
enum Step {
    Create(u64, u64),
    Write(u64, u64, u64, u8),
    Cut(u64, u64),
    Read(u64, u64, u64),
    Sync(u64),
    Delete(u64),
    Names,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0_u64..6;
    prop_oneof![
        2 => (number.clone(), prop_oneof![Just(0_u64), 1..300_000_u64]).prop_map(|(n, reserve)| Step::Create(n, reserve)),
        6 => (number.clone(), 0..200_000_u64, 1..60_000_u64, any::<u8>())
            .prop_map(|(n, at, length, fill)| Step::Write(n, at, length, fill)),
        1 => (number.clone(), 0..200_000_u64).prop_map(|(n, length)| Step::Cut(n, length)),
        3 => (number.clone(), 0..250_000_u64, 1..60_000_u64).prop_map(|(n, at, length)| Step::Read(n, at, length)),
        1 => number.clone().prop_map(Step::Sync),
        2 => number.prop_map(Step::Delete),
        1 => Just(Step::Names),
    ]
}

proptest! {
    /// Contents are those of a volume in memory; and when all files are gone, all space is free.
    #[test]
    fn prop_contents_are_those_of_the_volume_below(
        steps in proptest::collection::vec(step(), 1..120),
        placement in prop::sample::select(vec!["striping", "isolation", "dynamic"]),
        virtual_blocks in any::<bool>(),
    ) {
        let mut profile = small();
        profile.geometry.luns = 4;
        profile.geometry.blocks = 24;
        let (mut volume, clock) = on(profile, placement);
        if virtual_blocks {
            volume = volume.with_virtual_blocks();
        }
        let plain = MemVolume::new();
        let free = volume.free_bytes().unwrap();
        let mut files: BTreeMap<u64, [Arc<dyn VolumeFile>; 2]> = BTreeMap::new();
        for step in steps {
            let before = now_us(&clock);
            match step {
                Step::Create(n, reserve) if !files.contains_key(&n) => {
                    let class = [DataClass::Log, DataClass::Flush, DataClass::Relocated][n as usize % 3];
                    let options = options(class, reserve);
                    if let Ok(file) = volume.create(id(n), options) {
                        files.insert(n, [file, plain.create(id(n), options).unwrap()]);
                    }
                }
                Step::Create(n, _) => {
                    let kind = volume.create(id(n), options(DataClass::Log, 0)).err().unwrap().kind();
                    prop_assert_eq!(kind, ErrorKind::AlreadyExists);
                }
                Step::Write(n, at, length, fill) => if let Some([file, other]) = files.get(&n) {
                    let bytes = vec![fill; length as usize];
                    // On a full device, the inner volume has the bytes all the same.
                    let written = file.write_at(at, &bytes);
                    prop_assert!(written.is_ok() || written.unwrap_err().kind() == ErrorKind::NoSpace);
                    other.write_at(at, &bytes).unwrap();
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
                Step::Sync(n) => if let Some([file, _]) = files.get(&n) {
                    file.sync().unwrap();
                },
                Step::Delete(n) => if files.remove(&n).is_some() {
                    volume.delete(id(n)).unwrap();
                    plain.delete(id(n)).unwrap();
                },
                Step::Names => volume.sync_directory().unwrap(),
            }
            prop_assert!(now_us(&clock) >= before);
        }
        let list: Vec<u64> = files.keys().copied().collect();
        files.clear();
        for n in list {
            volume.delete(id(n)).unwrap();
        }
        prop_assert_eq!(volume.free_bytes().unwrap(), free);
    }
}
