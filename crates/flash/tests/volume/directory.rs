//! What only a volume over a directory does.

use crate::conformance::{id, options, pattern};
use glintdb_core::ErrorKind;
use glintdb_core::clock::Clock;
use glintdb_flash::{
    CreateOptions, DirOptions, DirVolume, DirectIo, ReadEngine, ReadRequest, SystemClock, Volume,
    make_cold,
};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CREATE: DirOptions = DirOptions {
    direct: DirectIo::Auto,
    read_engine: ReadEngine::Auto,
    read_depth: 128,
    begun_batches_max: 8,
    sort_reads: true,
    merge_reads: true,
    kernel_read_ahead: false,
    recycle: true,
    create: true,
    read_only: false,
    idle_buffer_bytes_max: 8 << 20,
};

#[test]
fn second_open_is_locked_and_names_path_and_process_until_the_last_handle_goes() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let refused = DirVolume::open(directory.path(), CREATE)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked);
    let text = refused.to_string();
    assert!(
        text.contains(directory.path().to_str().unwrap()) && text.contains("this process"),
        "{text}"
    );
    let file = volume.create(id(1), options(false)).unwrap();
    drop(volume);
    assert!(
        DirVolume::open(directory.path(), CREATE).is_err(),
        "a file handle can still write"
    );
    drop(file);
    DirVolume::open(directory.path(), CREATE).unwrap();
}

/// Not a test by itself: the other process of the next one, which starts this binary again with the directory in its environment.
#[test]
fn lock_child() {
    let Ok(path) = std::env::var("GLINTDB_TEST_LOCK_DIRECTORY") else {
        return;
    };
    let refused = DirVolume::open(path, DirOptions::default())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked);
    let parent = std::env::var("GLINTDB_TEST_LOCK_PROCESS").unwrap();
    assert!(
        refused.to_string().contains(&format!("process {parent}")),
        "{refused}"
    );
}

#[test]
fn second_process_is_locked_out() {
    let directory = tempfile::tempdir().unwrap();
    let _volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "directory::lock_child"])
        .env("GLINTDB_TEST_LOCK_DIRECTORY", directory.path())
        .env("GLINTDB_TEST_LOCK_PROCESS", std::process::id().to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
fn open_makes_missing_parents_only_when_told_and_refuses_what_is_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/c");
    let missing = DirVolume::open(&path, DirOptions::default())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!directory.path().join("a").exists());
    assert_eq!(
        DirVolume::open(&path, CREATE).unwrap().path(),
        path.canonicalize().unwrap()
    );
    fs::write(directory.path().join("file"), "x").unwrap();
    let refused = DirVolume::open(directory.path().join("file"), CREATE)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn foreign_files_are_neither_listed_nor_touched() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["notes.txt", "table-xyz.glint", "ring.bak"] {
        fs::write(directory.path().join(name), name).unwrap();
    }
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    volume.create(id(1), options(true)).unwrap();
    volume.ring(4096).unwrap();
    assert_eq!(volume.list().unwrap(), [id(1)]);
    drop(volume);
    for name in ["notes.txt", "table-xyz.glint", "ring.bak"] {
        assert_eq!(
            fs::read_to_string(directory.path().join(name)).unwrap(),
            name
        );
    }
    let mut names: Vec<String> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["notes.txt", "table-xyz.glint", "ring.bak"].contains(&&**name))
        .collect();
    names.sort();
    assert_eq!(names, ["LOCK", "ring", "table-0000000000000001.glint"]);
}

#[test]
fn reserve_takes_space_and_set_len_gives_it_back() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let path = directory.path().join(id(1).to_string());
    let file = volume
        .create(
            id(1),
            CreateOptions {
                reserve_bytes: 8 << 20,
                ..options(true)
            },
        )
        .unwrap();
    file.write_at(0, &[1; 4096]).unwrap();
    file.sync().unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 4096);
    assert!(metadata.blocks() * 512 >= 8 << 20);
    file.set_len(4096).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20);
    assert!(volume.free_bytes().unwrap() > 0);
}

#[test]
fn reserving_more_than_there_is_says_no_space_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let reserve_bytes = volume.free_bytes().unwrap().saturating_mul(4);
    let refused = volume.create(
        id(1),
        CreateOptions {
            reserve_bytes,
            ..options(true)
        },
    );
    assert_eq!(refused.map(|_| ()).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(volume.list().unwrap(), []);
}

/// A directory on another file system than `path`, if the machine has one.
fn another_file_system(path: &std::path::Path) -> Option<tempfile::TempDir> {
    use std::os::unix::fs::MetadataExt;
    let device = |path| fs::metadata(path).unwrap().dev();
    let other = tempfile::tempdir_in("/dev/shm").ok()?;
    (device(other.path()) != device(path)).then_some(other)
}

#[test]
fn link_gives_the_file_a_second_name_unless_the_file_system_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let bytes = pattern(1, 10_000);
    let file = volume.create(id(1), options(true)).unwrap();
    file.write_at(0, &bytes).unwrap();
    file.sync().unwrap();
    let target = tempfile::tempdir().unwrap();
    assert!(volume.link(id(1), target.path()).unwrap());
    assert!(
        volume.link(id(1), target.path()).is_err(),
        "never over something"
    );
    assert_eq!(
        volume.link(id(2), target.path()).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    if let Some(other) = another_file_system(directory.path()) {
        assert!(!volume.link(id(1), other.path()).unwrap());
        let other = DirVolume::open(other.path(), CREATE).unwrap();
        assert_eq!(other.list().unwrap(), []);
    }
    volume.delete(id(1)).unwrap();
    let linked = DirVolume::open(target.path(), CREATE).unwrap();
    assert_eq!(
        linked.open(id(1)).unwrap().read_at(0, 20_000).unwrap(),
        bytes
    );
}

#[test]
fn read_buffers_are_bounded_and_recycled() {
    let directory = tempfile::tempdir().unwrap();
    let options_small = DirOptions {
        idle_buffer_bytes_max: 64 << 10,
        ..CREATE
    };
    let volume = DirVolume::open(directory.path(), options_small).unwrap();
    let file = volume.create(id(1), options(true)).unwrap();
    file.write_at(0, &pattern(1, 1 << 20)).unwrap();
    file.sync().unwrap();
    let reads: Vec<_> = (0..100)
        .map(|block| file.read_at(block * 4096, 4096).unwrap())
        .collect();
    assert_eq!(volume.buffers().used_bytes(), 100 * 4096);
    drop(reads);
    assert_eq!(
        (volume.buffers().used_bytes(), volume.buffers().idle_bytes()),
        (0, 64 << 10)
    );
    assert_eq!(volume.stats().idle_buffer_bytes, 64 << 10);
}

#[test]
fn a_ring_of_impossible_size_is_corruption_and_an_unfinished_one_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    fs::write(directory.path().join("ring.new"), [1; 5000]).unwrap();
    assert_eq!(volume.existing_ring_bytes().unwrap(), None);
    drop(volume.ring(8192).unwrap());
    assert!(!directory.path().join("ring.new").exists());
    fs::write(directory.path().join("ring"), [1; 5000]).unwrap();
    assert_eq!(
        volume.existing_ring_bytes().unwrap_err().kind(),
        ErrorKind::Corruption
    );
    assert_eq!(
        volume.ring(8192).map(|_| ()).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

/// Its length is what it was asked for; its blocks are those that it has grown to, and come back.
#[test]
fn a_ring_takes_the_space_that_it_has_grown_to() {
    const BYTES: usize = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let mut ring = volume.ring(BYTES).unwrap();
    if !ring.survives_kill() {
        return;
    }
    let path = directory.path().join("ring");
    let taken = |wanted: usize| {
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), BYTES as u64);
        let taken = metadata.blocks() * 512;
        // And what the file system takes for itself.
        let expected = wanted as u64..=wanted as u64 + (64 << 10);
        assert!(expected.contains(&taken), "{taken} for {wanted}");
    };
    taken(0);
    ring.grow(1 << 20).unwrap();
    taken(1 << 20);
    ring.grow(4 << 20).unwrap();
    ring.write(0, &[1; 3 << 20]);
    taken(4 << 20);
    ring.shrink(2 << 20).unwrap();
    taken(2 << 20);
    drop(ring);
    ring = volume.ring(BYTES).unwrap();
    let mut out = vec![0; BYTES];
    ring.read(0, &mut out);
    assert!(out.iter().filter(|&&byte| byte == 1).count() == 2 << 20);
    // Reading holes takes nothing.
    taken(2 << 20);
    ring.grow(1 << 20).unwrap();
    taken(2 << 20);
    ring.shrink(1 << 20).unwrap();
    taken(1 << 20);
}

/// Threads that read while the mapping changes get the old bytes or zeros, and no signal.
#[test]
fn a_ring_is_read_while_it_grows_and_shrinks() {
    const BYTES: usize = 1 << 20;
    const UNIT: usize = 64 << 10;
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), CREATE).unwrap();
    let ring = volume.ring(BYTES).unwrap();
    if !ring.survives_kill() {
        return;
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut out = vec![0; BYTES];
                while !done.load(Ordering::Relaxed) {
                    ring.read(0, &mut out);
                    assert!(out.iter().all(|&byte| byte == 0 || byte == 7));
                }
            });
        }
        for _ in 0..50 {
            ring.grow(BYTES).unwrap();
            ring.write(0, &[7; BYTES]);
            ring.shrink(UNIT).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn asked_for_engines_are_used_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let buffered = DirOptions {
        direct: DirectIo::Off,
        read_engine: ReadEngine::Sync,
        ..CREATE
    };
    let text = DirVolume::open(directory.path(), buffered)
        .unwrap()
        .describe();
    assert!(
        text.contains("buffered") && text.contains("synchronous"),
        "{text}"
    );
    // Where this machine refuses one of them, the error says which.
    for asked in [DirOptions {
        direct: DirectIo::On,
        ..CREATE
    }] {
        match DirVolume::open(directory.path(), asked) {
            Ok(volume) => assert!(volume.describe().contains("direct")),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
        }
    }
    for (read_engine, name) in [
        (ReadEngine::IoUring, "io_uring batches of 256"),
        (ReadEngine::Libaio, "libaio batches of 256"),
        (ReadEngine::Threads, "read threads, batches of 256"),
    ] {
        let asked = DirOptions {
            read_engine,
            read_depth: 100_000,
            ..CREATE
        };
        match DirVolume::open(directory.path(), asked) {
            Ok(volume) => assert!(volume.describe().contains(name), "{}", volume.describe()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
        }
    }
}

/// The lock went with the last copy of its descriptor, and a process that another thread forked had one until its `exec`: an open directly after a close was `Locked`.
#[test]
fn lock_is_free_at_once_although_processes_are_being_started() {
    let directory = tempfile::tempdir().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::process::Command::new("true").status().unwrap();
            }
        });
        let locked = (0..400).find_map(|_| DirVolume::open(directory.path(), CREATE).err());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(locked.map(|error| error.to_string()), None);
    });
}

/// Makes a file of a megabyte, and has it recycled.
fn recycle_one(volume: &DirVolume, number: u64) {
    recycle_one_of(volume, number, 1 << 20);
}

fn recycle_one_of(volume: &DirVolume, number: u64, bytes: usize) {
    let file = volume.create(id(number), options(true)).unwrap();
    file.write_at(0, &pattern(number, bytes)).unwrap();
    file.sync().unwrap();
    drop(file);
    volume.recycle(id(number)).unwrap();
}

/// Whether the directory of the tests is on a file system that overwrites in place, where the ring is mapped: elsewhere no file is kept.
fn keeps_files(volume: &DirVolume) -> bool {
    volume.ring(4096).unwrap().survives_kill()
}

fn spares(directory: &std::path::Path) -> usize {
    (0..10)
        .filter(|n| directory.join(format!("spare-{n}.glint")).exists())
        .count()
}

fn reserving(bytes: u64) -> CreateOptions {
    CreateOptions {
        reserve_bytes: bytes,
        ..options(true)
    }
}

#[test]
fn files_are_written_again_once_their_names_have_gone_for_good() {
    // Much against what other programs take and give back meanwhile.
    const BYTES: usize = 32 << 20;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let volume = DirVolume::open(path, CREATE).unwrap();
    if !keeps_files(&volume) {
        return;
    }
    for number in 0..5 {
        recycle_one_of(&volume, number, BYTES);
    }
    assert_eq!(spares(path), 4, "the fifth is deleted");
    assert_eq!(volume.list().unwrap(), []);

    // A power cut could bring the old names back, with what stands in the files.
    volume
        .create_recycled(id(10), reserving(BYTES as u64))
        .unwrap();
    assert_eq!((volume.stats().recycled_files, spares(path)), (0, 4));
    volume.sync_directory().unwrap();
    let file = volume
        .create_recycled(id(11), reserving(BYTES as u64))
        .unwrap();
    assert_eq!((volume.stats().recycled_files, spares(path)), (1, 3));
    assert_eq!(file.len().unwrap(), BYTES as u64);

    // Space that they take is free, to whoever asks and to whoever needs it.
    let free = volume.free_bytes().unwrap();
    let error = volume.create(id(12), reserving(1 << 50)).map(drop);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(spares(path), 0);
    assert!(volume.free_bytes().unwrap() < free + BYTES as u64);

    recycle_one(&volume, 5);
    assert_eq!(spares(path), 1);
    drop((file, volume));
    assert_eq!(spares(path), 0, "none is left at a close");
}

#[test]
fn files_with_other_names_are_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    let volume = DirVolume::open(&path, CREATE).unwrap();
    let file = volume.create(id(1), options(true)).unwrap();
    file.write_at(0, b"linked").unwrap();
    file.sync().unwrap();
    drop(file);
    let copy = directory.path().join("copy");
    volume.make_directory(&copy).unwrap();
    volume.link(id(1), &copy).unwrap();
    volume.recycle(id(1)).unwrap();
    assert_eq!((volume.list().unwrap(), spares(&path)), (vec![], 0));
    volume.sync_directory().unwrap();
    let file = volume.create_recycled(id(2), reserving(4096)).unwrap();
    file.write_at(0, b"others").unwrap();
    assert_eq!(fs::read(copy.join(id(1).to_string())).unwrap(), b"linked");
}

#[test]
fn spares_of_a_killed_process_are_removed_by_who_writes_and_left_alone_by_who_reads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for n in [0, 7] {
        fs::write(path.join(format!("spare-{n}.glint")), vec![7; 8192]).unwrap();
    }
    let linked = path.join("somebody's own");
    fs::hard_link(path.join("spare-7.glint"), &linked).unwrap();

    let reader = DirVolume::open(path, CREATE).unwrap();
    assert_eq!(reader.list().unwrap(), []);
    drop(reader);
    assert_eq!(spares(path), 2);

    let writer = DirVolume::open(path, CREATE).unwrap();
    writer.create_recycled(id(1), reserving(8192)).unwrap();
    assert_eq!(spares(path), 0);
    writer.sync_directory().unwrap();
    writer.create_recycled(id(2), reserving(8192)).unwrap();
    assert_eq!(writer.stats().recycled_files, 0);
    assert_eq!(fs::read(linked).unwrap(), [7; 8192]);
    recycle_one(&writer, 3);
    assert_eq!(spares(path), usize::from(keeps_files(&writer)));
}

/// Who finds no space removes them too.
#[test]
fn spares_of_a_killed_process_make_way_on_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("spare-0.glint"), vec![7; 8192]).unwrap();
    let volume = DirVolume::open(path, CREATE).unwrap();
    let refused = volume.create(id(1), reserving(1 << 50)).map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(spares(path), 0);
}

fn taken(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}

/// What is reserved behind a file's end shows in no length, and what the blocks take says nothing of where they are.
#[test]
fn a_file_that_is_written_again_has_what_is_reserved_for_it_and_no_more() {
    const MIB: u64 = 1 << 20;
    // Reserved, written, and reserved the next time.
    for (reserved, written, wanted) in [
        (9 * MIB, 4096, 8 * MIB),
        (9 * MIB, 9 * MIB, 8 * MIB),
        (MIB, MIB, 64 << 10),
        (MIB, MIB, MIB),
        (MIB, 4096, MIB),
        (5 * MIB, 4096, 8 * MIB),
        (0, MIB + 8192, MIB + 65536),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let volume = DirVolume::open(directory.path(), CREATE).unwrap();
        if !keeps_files(&volume) {
            return;
        }
        let file = volume.create(id(1), reserving(reserved)).unwrap();
        file.write_at(0, &vec![1; written as usize]).unwrap();
        file.sync().unwrap();
        drop(file);
        let before = taken(&directory.path().join(id(1).to_string()));
        volume.recycle(id(1)).unwrap();
        volume.sync_directory().unwrap();
        let file = volume.create_recycled(id(2), reserving(wanted)).unwrap();
        assert_eq!(volume.stats().recycled_files, 1);
        assert_eq!(file.len().unwrap(), wanted.min(written));
        let now = taken(&directory.path().join(id(2).to_string()));
        let context = format!("{reserved}, {written}, {wanted}: {before}, {now}");
        assert!((wanted..=wanted + (64 << 10)).contains(&now), "{context}");
        if reserved == wanted {
            assert!(now <= before, "{context}");
        }
    }
}

/// What would be cut off the device erases, and that takes longer than writing a new file.
#[test]
fn the_file_nearest_in_size_is_written_again_and_none_that_is_much_too_large_or_too_small() {
    const PIECE: u64 = 256 << 10;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let volume = DirVolume::open(path, CREATE).unwrap();
    if !keeps_files(&volume) {
        return;
    }
    let recycle = |number, bytes| {
        drop(volume.create(id(number), reserving(bytes)).unwrap());
        volume.recycle(id(number)).unwrap();
    };
    for n in [16, 6, 5, 18] {
        recycle(n, n * PIECE);
    }
    volume.sync_directory().unwrap();
    let mut made = 100;
    let mut recycled = |wanted| {
        made += 1;
        let before = volume.stats().recycled_files;
        drop(volume.create_recycled(id(made), reserving(wanted)).unwrap());
        volume.delete(id(made)).unwrap();
        volume.stats().recycled_files - before
    };
    assert_eq!((recycled(40 * PIECE), recycled(3 * PIECE)), (0, 0));
    assert_eq!((recycled(18 * PIECE), spares(path)), (1, 3));
    assert_eq!((recycled(6 * PIECE), spares(path)), (1, 2));
    assert_eq!((recycled(18 * PIECE), spares(path)), (1, 1));
    // One larger than all that were wanted is not kept; that of five pieces is in nobody's way until it has not fitted often enough: four times above.
    let smallest = || {
        let spare = |n| path.join(format!("spare-{n}.glint"));
        let taken = (0..8)
            .map(spare)
            .filter(|path| path.exists())
            .map(|path| taken(&path));
        taken.min().unwrap()
    };
    recycle(20, 80 * PIECE);
    assert_eq!((spares(path), smallest()), (1, 5 * PIECE));
    (21..23).for_each(|n| recycle(n, 16 * PIECE));
    (0..3).for_each(|_| assert_eq!(recycled(PIECE), 0));
    recycle(23, 16 * PIECE);
    assert_eq!((spares(path), smallest()), (4, 5 * PIECE));
    assert_eq!(recycled(PIECE), 0);
    recycle(24, 16 * PIECE);
    assert_eq!((spares(path), smallest()), (4, 16 * PIECE));
}

/// Somebody changed the files behind the volume's back. What is kept to be written again is there to be fast, and its errors are nobody's.
#[test]
fn a_spare_that_cannot_be_written_is_no_error_of_whoever_makes_or_deletes_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let spare = path.join("spare-0.glint");
    let volume = DirVolume::open(path, CREATE).unwrap();
    if !keeps_files(&volume) {
        return;
    }
    recycle_one(&volume, 1);
    volume.sync_directory().unwrap();
    fs::remove_file(&spare).unwrap();
    fs::create_dir(&spare).unwrap();
    fs::write(spare.join("somebody's own"), "x").unwrap();
    let file = volume.create_recycled(id(2), reserving(1 << 20)).unwrap();
    file.write_at(0, b"new").unwrap();
    assert_eq!(volume.stats().recycled_files, 0);
    assert!(spare.join("somebody's own").exists());
    drop(file);
    // Its place is taken: others are used.
    for number in [2, 3, 4] {
        if number > 2 {
            volume.create(id(number), options(true)).unwrap();
        }
        volume.recycle(id(number)).unwrap();
    }
    assert_eq!((volume.list().unwrap(), spares(path)), (vec![], 4));

    // One that cannot be removed makes no space, and none that cannot be renamed is kept.
    volume.sync_directory().unwrap();
    for n in 1..4 {
        fs::remove_file(path.join(format!("spare-{n}.glint"))).unwrap();
    }
    let full = volume.create(id(5), reserving(1 << 50)).map(drop);
    assert_eq!(full.unwrap_err().kind(), ErrorKind::NoSpace);
    volume.create_recycled(id(6), reserving(4096)).unwrap();
    assert_eq!(
        volume.recycle(id(7)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// A link to it made after it was kept.
#[test]
fn a_spare_that_has_got_another_name_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let volume = DirVolume::open(path, CREATE).unwrap();
    if !keeps_files(&volume) {
        return;
    }
    recycle_one(&volume, 1);
    volume.sync_directory().unwrap();
    let linked = path.join("somebody's own");
    fs::hard_link(path.join("spare-0.glint"), &linked).unwrap();
    let file = volume.create_recycled(id(2), reserving(1 << 20)).unwrap();
    file.write_at(0, b"new").unwrap();
    assert_eq!(fs::read(linked).unwrap(), pattern(1, 1 << 20));
}

/// The number of its names was looked at before it lost its own, and it may get another one in the middle of that.
#[test]
fn a_file_that_is_linked_while_it_is_given_away_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    let copy = directory.path().join("copy");
    let volume = DirVolume::open(&path, CREATE).unwrap();
    volume.make_directory(&copy).unwrap();
    let (mut linked, mut kept) = (0, 0);
    for number in 0..500 {
        drop(volume.create(id(number), options(true)).unwrap());
        let start = std::sync::Barrier::new(2);
        let is_linked = std::thread::scope(|scope| {
            let link = scope.spawn(|| {
                start.wait();
                volume.link(id(number), &copy).is_ok()
            });
            start.wait();
            volume.recycle(id(number)).unwrap();
            link.join().unwrap()
        });
        linked += u32::from(is_linked);
        kept += spares(&path);
        assert!(
            !is_linked || spares(&path) == 0,
            "after {linked} and {kept}"
        );
        // Whoever finds no space removes it.
        drop(volume.create(id(number), reserving(1 << 50)));
    }
}

/// Microseconds of reads, writes and syncs.
fn times_us(volume: &DirVolume) -> [u64; 3] {
    let stats = volume.stats();
    [stats.read_us, stats.write_us, stats.sync_us]
}

#[test]
fn times_of_reads_writes_and_syncs_count_each_by_itself() {
    const BYTES: usize = 16 << 20;
    for read_engine in [ReadEngine::Auto, ReadEngine::Sync] {
        let directory = tempfile::tempdir().unwrap();
        let asked = DirOptions {
            read_engine,
            ..CREATE
        };
        let volume = DirVolume::open(directory.path(), asked).unwrap();
        let file = volume.create(id(1), options(true)).unwrap();
        let clock = SystemClock::new();
        // What an operation adds to the three times.
        let added = |act: &dyn Fn()| {
            let before = times_us(&volume);
            act();
            let after = times_us(&volume);
            [0, 1, 2].map(|time| after[time] - before[time])
        };
        let bytes = pattern(3, BYTES);
        let write = added(&|| file.write_at(0, &bytes).unwrap());
        assert!(write[1] > 0 && write[0] + write[2] == 0, "{write:?}");
        // One sync takes under a microsecond if the file system has just written the file.
        let sync = added(&|| (0..100).for_each(|_| file.sync().unwrap()));
        assert!(sync[2] > 0 && sync[0] + sync[1] == 0, "{sync:?}");
        let request = || vec![ReadRequest::new(Arc::clone(&file), 0, BYTES)];
        let reads: [&dyn Fn(); 2] = [&|| drop(file.read_at(0, BYTES).unwrap()), &|| {
            volume.read_batch(&mut request())
        }];
        for read in reads {
            let read = added(read);
            assert!(read[0] > 0 && read[1] + read[2] == 0, "{read:?}");
        }
        // Reads that are done before a thread waits for them take no time.
        let begun = added(&|| drop(volume.begin_batch(request()).wait()));
        assert!(begun[1] + begun[2] == 0, "{begun:?}");
        let elapsed = u64::try_from(clock.monotonic().as_micros()).unwrap();
        let sum: u64 = times_us(&volume).iter().sum();
        assert!(sum <= elapsed, "{sum} of {elapsed}");
    }
}

/// Returns how many of the first pages of a file the page cache has.
#[allow(unsafe_code, reason = "the page cache has no safe interface")]
fn cached_pages(file: &fs::File, pages: usize) -> usize {
    let bytes = pages * 4096;
    let mut cached = vec![0_u8; pages];
    // SAFETY: a mapping of its own, of a file that is as long, which is only looked at by its
    // address and then given back; `cached` has a byte for each page.
    unsafe {
        let (protection, fd) = (libc::PROT_READ, file.as_raw_fd());
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_SHARED,
            fd,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, bytes, cached.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(at, bytes), 0);
    }
    cached.iter().filter(|page| **page & 1 == 1).count()
}

/// Whether a directory is on tmpfs, whose page cache is the medium.
#[allow(unsafe_code, reason = "std does not tell the type of a file system")]
fn is_in_memory(directory: &std::path::Path) -> bool {
    let file = fs::OpenOptions::new().read(true).open(directory).unwrap();
    // SAFETY: all zeros are a `statfs`, which the call fills; the descriptor is open.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::fstatfs(file.as_raw_fd(), &raw mut found), 0);
        found.f_type == libc::TMPFS_MAGIC
    }
}

#[test]
fn kernel_reads_ahead_only_if_it_may() {
    const PAGES: usize = 1024;
    for kernel_read_ahead in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let asked = DirOptions {
            direct: DirectIo::Off,
            kernel_read_ahead,
            ..CREATE
        };
        let volume = DirVolume::open(directory.path(), asked).unwrap();
        let file = volume.create(id(1), options(false)).unwrap();
        file.write_at(0, &pattern(4, PAGES * 4096)).unwrap();
        file.sync().unwrap();
        let path = directory.path().join(id(1).to_string());
        let seen = fs::OpenOptions::new().read(true).open(path).unwrap();
        assert_eq!(cached_pages(&seen, PAGES), PAGES);
        assert!(make_cold(directory.path()).unwrap() >= PAGES as u64 * 4096);
        if is_in_memory(directory.path()) {
            return;
        }
        assert_eq!(cached_pages(&seen, PAGES), 0);
        for page in 0..4 {
            file.read_at(page * 4096, 4096).unwrap();
        }
        // Pages that the kernel reads ahead come after the read has returned.
        let tries = if kernel_read_ahead { 500 } else { 10 };
        let came = (0..tries).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            cached_pages(&seen, PAGES) > 4
        });
        assert_eq!(came, kernel_read_ahead);
    }
}
