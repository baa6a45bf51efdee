//! The device under a real file system. Where the machine has no FUSE or no loop device, the reason is printed and nothing is tested.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests of a device, with real files"
)]

use glintdb_faultdisk::{Disk, Effect, Entry, Fault, Kept, On};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

/// A disk with a fresh ext4 on it.
fn formatted() -> Option<Disk> {
    if let Err(reason) = glintdb_faultdisk::missing() {
        eprintln!("not run: {reason}");
        return None;
    }
    let disk = Disk::new(32 << 20).unwrap();
    let arguments = [
        "-q",
        "-F",
        "-E",
        "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
    ];
    if let Err(reason) = disk.format("mkfs.ext4", &arguments) {
        eprintln!("not run: {reason}");
        return None;
    }
    Some(disk)
}

#[test]
fn a_synced_file_survives_the_cut_behind_its_sync_and_not_the_one_before_it() {
    let Some(disk) = formatted() else { return };
    disk.mount("ext4", "").unwrap();
    let path = disk.mount_point().join("file");
    disk.record();
    let mut file = File::create(&path).unwrap();
    file.write_all(b"first").unwrap();
    let before = disk.position();
    file.sync_all().unwrap();
    let after = disk.position();
    assert!(before < after);
    drop(file);
    disk.unmount().unwrap();
    let tape = disk.tape().unwrap();
    assert!(
        tape.entries[before..after]
            .iter()
            .any(|entry| matches!(entry, Entry::Flush))
    );
    for (cut, expected) in [(before, None), (after, Some("first"))] {
        disk.insert(tape.replay().cut(cut, &mut |_| Kept::Nothing))
            .unwrap();
        disk.mount("ext4", "").unwrap();
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), expected);
        disk.unmount().unwrap();
    }
}

#[test]
fn errors_come_through_and_a_failed_flush_may_lose_what_was_written() {
    let Some(disk) = formatted() else { return };
    let image = disk.image();
    for (on, effect) in [
        (On::Write, Effect::Error),
        (On::Flush, Effect::Error),
        (On::Flush, Effect::ErrorAndLoss),
    ] {
        disk.insert(image.clone()).unwrap();
        disk.mount("ext4", "").unwrap();
        let path = disk.mount_point().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&[1; 4096]).unwrap();
        disk.fail(Fault {
            effect,
            ..Fault::once(on, 0)
        });
        assert!(file.sync_all().is_err(), "{on:?} {effect:?}");
        drop(file);
        disk.repair();
        disk.unmount().unwrap();
        assert!(disk.operations().struck > 0);
    }
    disk.insert(image).unwrap();
    disk.mount("ext4", "").unwrap();
    let path = disk.mount_point().join("file");
    fs::write(&path, [7; 65536]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    disk.unmount().unwrap();
    disk.mount("ext4", "").unwrap();
    let mut file = File::open(&path).unwrap();
    disk.fail(Fault::sticky(On::Read, 0));
    assert!(file.read_to_end(&mut Vec::new()).is_err());
    disk.repair();
    assert_eq!(fs::read(&path).unwrap(), [7; 65536]);
}

/// In the process that uses the file system a page fault may wait for the disk with the memory map locked, which allocating wants.
#[test]
fn the_disk_is_served_by_a_process_of_its_own_which_ends_with_the_disk() {
    let Some(disk) = formatted() else { return };
    let server = PathBuf::from("/proc").join(disk.server().unwrap().to_string());
    let name = fs::read_to_string(server.join("comm")).unwrap();
    assert_eq!(name.trim(), "glint-disk");
    assert_ne!(disk.server(), Some(std::process::id()));
    disk.mount("ext4", "").unwrap();
    fs::write(disk.mount_point().join("file"), [7; 65536]).unwrap();
    let dir = disk.mount_point().parent().unwrap().to_owned();
    drop(disk);
    assert!(!server.exists());
    assert!(!dir.exists());
}

/// Nothing is unmounted first: whoever waits for the disk then must not do so for ever.
#[test]
fn a_disk_whose_process_is_killed_fails_and_nothing_of_it_is_left() {
    let Some(disk) = formatted() else { return };
    disk.mount("ext4", "").unwrap();
    let path = disk.mount_point().join("file");
    fs::write(&path, [7; 65536]).unwrap();
    let server = disk.server().unwrap().to_string();
    let killed = Command::new("kill").args(["-KILL", &server]).status();
    assert!(killed.unwrap().success());
    assert!(File::open(&path).and_then(|file| file.sync_all()).is_err());
    let dir = disk.mount_point().parent().unwrap().to_owned();
    drop(disk);
    assert!(!dir.exists());
}
