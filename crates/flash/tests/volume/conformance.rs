//! What every [`Volume`] promises. One suite, run on a directory in all its ways of reading and writing, and on memory.

use glintdb_core::{ErrorKind, FileId, FileKind};
use glintdb_flash::{
    ClosableVolume, CreateOptions, DataClass, DirOptions, DirVolume, DirectIo, ReadEngine,
    ReadRequest, Ring, Volume, VolumeFile,
};
use glintdb_simdisk::MemVolume;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) fn id(number: u64) -> FileId {
    FileId::new(FileKind::Table, number)
}

pub(crate) fn options(direct: bool) -> CreateOptions {
    CreateOptions {
        class: DataClass::Flush,
        reserve_bytes: 0,
        direct,
    }
}

pub(crate) const READ_ENGINES: [ReadEngine; 5] = [
    ReadEngine::Auto,
    ReadEngine::IoUring,
    ReadEngine::Libaio,
    ReadEngine::Threads,
    ReadEngine::Sync,
];

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub(crate) fn run(volume: &dyn Volume) {
    names_come_and_go(volume);
    for direct in [true, false] {
        writes_and_reads_at_any_place(volume, direct);
        lengths_change(volume, direct);
    }
    reads_end_where_the_file_ends(volume);
    nonsense_ranges_cost_nothing(volume);
    batches_answer_every_request(volume);
    begun_batches_are_read_whenever_and_wherever_they_are_waited_for(volume);
    deleted_files_stay_readable_through_their_handles(volume);
    recycled_files_are_new_ones(volume);
    a_file_that_is_open_is_not_written_again(volume);
    ring_grows_and_shrinks(volume);
    ring_keeps_what_is_written(volume);
    concurrent_readers_and_a_writer_agree(volume);
    for id in volume.list().unwrap() {
        volume.delete(id).unwrap();
    }
    assert!(volume.stats().syncs > 0 && volume.stats().written_bytes > 0);
    assert!(!volume.describe().is_empty());
}

fn names_come_and_go(volume: &dyn Volume) {
    assert_eq!(volume.list().unwrap(), []);
    let ids = [
        FileId::new(FileKind::Log, 9),
        FileId::new(FileKind::Table, 3),
        FileId::new(FileKind::Table, u64::MAX),
        FileId::new(FileKind::Manifest, 1),
    ];
    for id in ids.iter().rev() {
        let file = volume.create(*id, options(false)).unwrap();
        assert_eq!((file.id(), file.len().unwrap()), (*id, 0));
        assert!(file.is_empty().unwrap());
    }
    assert_eq!(volume.list().unwrap(), ids);
    volume.sync_directory().unwrap();
    let twice = volume
        .create(ids[0], options(true))
        .map(|_| ())
        .unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::AlreadyExists, "{twice}");
    for id in ids {
        volume.delete(id).unwrap();
        assert_eq!(volume.delete(id).unwrap_err().kind(), ErrorKind::NotFound);
        let missing = volume.open(id).map(|_| ()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    }
    assert_eq!(volume.list().unwrap(), []);
}

/// Whatever the volume does with what is recycled: a name goes, and a file that is made of another one is as long as what is reserved for it at most, and holds what is written.
fn recycled_files_are_new_ones(volume: &dyn Volume) {
    let options = |reserve_bytes| CreateOptions {
        reserve_bytes,
        ..options(true)
    };
    let missing = volume.recycle(id(1)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let lengths = [20_000, 100_000, 8192, 300, 60_000_u64];
    for (round, length) in lengths.into_iter().enumerate() {
        let (old, new) = (2 * round as u64, 2 * round as u64 + 1);
        let file = volume.create_recycled(id(old), options(length)).unwrap();
        assert!(file.len().unwrap() <= length);
        let bytes = pattern(old, length as usize);
        file.write_at(0, &bytes).unwrap();
        file.sync().unwrap();
        assert_eq!(file.read_at(0, 1 << 20).unwrap(), bytes);
        let twice = volume.create_recycled(id(old), options(length));
        assert_eq!(
            twice.map(drop).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        drop(file);
        volume.recycle(id(old)).unwrap();
        let gone = volume.open(id(old)).map(drop).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        assert_eq!(volume.list().unwrap(), []);
        volume.sync_directory().unwrap();

        // Shorter: what the other one was longer has gone.
        let file = volume
            .create_recycled(id(new), options(length / 2))
            .unwrap();
        assert!(file.len().unwrap() <= length / 2);
        file.write_at(100, b"new").unwrap();
        file.sync().unwrap();
        assert_eq!(
            volume.open(id(new)).unwrap().read_at(100, 3).unwrap(),
            b"new"[..]
        );
        file.set_len(0).unwrap();
        file.set_len(length).unwrap();
        assert!(
            file.read_at(0, 1 << 20)
                .unwrap()
                .iter()
                .all(|&byte| byte == 0)
        );
        drop(file);
        volume.delete(id(new)).unwrap();
    }
}

/// Nobody's bytes change under a handle: a file that is recycled while it is open is deleted.
fn a_file_that_is_open_is_not_written_again(volume: &dyn Volume) {
    let options = CreateOptions {
        reserve_bytes: 50_000,
        ..options(true)
    };
    let file = volume.create(id(1), options).unwrap();
    file.write_at(0, &pattern(1, 50_000)).unwrap();
    file.sync().unwrap();
    volume.sync_directory().unwrap();
    // Another handle than the one that made it.
    let reader = volume.open(id(1)).unwrap();
    drop(file);
    volume.recycle(id(1)).unwrap();
    assert_eq!(volume.list().unwrap(), []);
    volume.sync_directory().unwrap();
    let recycled = volume.stats().recycled_files;
    for number in 2..5 {
        let file = volume.create_recycled(id(number), options).unwrap();
        file.write_at(0, &pattern(number, 50_000)).unwrap();
        file.sync().unwrap();
        assert_eq!(reader.read_at(0, 1 << 20).unwrap(), pattern(1, 50_000));
    }
    assert_eq!(volume.stats().recycled_files, recycled);
    for number in 2..5 {
        volume.delete(id(number)).unwrap();
    }
}

fn writes_and_reads_at_any_place(volume: &dyn Volume, direct: bool) {
    let reserve_bytes = 1 << 20;
    let file = volume
        .create(
            id(1),
            CreateOptions {
                reserve_bytes,
                ..options(direct)
            },
        )
        .unwrap();
    assert_eq!(file.len().unwrap(), 0, "reserved space is not length");
    // Aligned, unaligned, across blocks, over what is there, behind the end: direct and buffered parts of one file mixed in every way.
    let writes = [
        (0, 4096),
        (4096, 65536),
        (69632, 100),
        (69732, 3996),
        (1000, 10),
        (4090, 8200),
        (8192, 8192),
        (100_000, 1),
        (200_704, 3 << 20),
        (200_705, 5 << 10),
    ];
    let mut model = Vec::new();
    for (seed, (offset, length)) in writes.into_iter().enumerate() {
        let bytes = pattern(seed as u64, length);
        file.write_at(offset as u64, &bytes).unwrap();
        model.resize(model.len().max(offset + length), 0);
        model[offset..offset + length].copy_from_slice(&bytes);
        assert_eq!(file.len().unwrap(), model.len() as u64);
        assert_eq!(file.read_at(0, model.len()).unwrap(), model, "write {seed}");
        if seed % 3 == 0 {
            file.sync().unwrap();
        }
    }
    file.sync().unwrap();
    let again = volume.open(id(1)).unwrap();
    for (offset, length) in [
        (0, 1),
        (4095, 2),
        (4096, 4096),
        (5000, 123_456),
        (1, 3 << 20),
        (69_700, 64),
    ] {
        let expected = &model[offset..offset + length];
        assert_eq!(file.read_at(offset as u64, length).unwrap(), expected);
        assert_eq!(again.read_at(offset as u64, length).unwrap(), expected);
    }
    // A write through a second handle is seen by the first one, also before it is synced.
    again.write_at(50, b"second handle").unwrap();
    assert_eq!(&file.read_at(50, 13).unwrap()[..], b"second handle");
    volume.delete(id(1)).unwrap();
}

fn lengths_change(volume: &dyn Volume, direct: bool) {
    let file = volume.create(id(2), options(direct)).unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(file.len().unwrap(), 5000);
    assert_eq!(file.read_at(4990, 100).unwrap(), vec![7; 10]);
    file.set_len(9000).unwrap();
    let bytes = file.read_at(0, 20_000).unwrap();
    assert_eq!(bytes.len(), 9000);
    assert!(
        bytes[..5000].iter().all(|&byte| byte == 7) && bytes[5000..].iter().all(|&byte| byte == 0)
    );
    file.sync().unwrap();
    volume.delete(id(2)).unwrap();
}

fn reads_end_where_the_file_ends(volume: &dyn Volume) {
    let file = volume.create(id(3), options(true)).unwrap();
    assert_eq!(file.read_at(0, 10).unwrap().len(), 0);
    for length in [1, 4095, 4096, 4097, 8192, 70_000] {
        let bytes = pattern(length as u64, length);
        file.set_len(0).unwrap();
        file.write_at(0, &bytes).unwrap();
        for synced in [false, true] {
            if synced {
                file.sync().unwrap();
            }
            assert_eq!(file.read_at(0, length + 1).unwrap(), bytes);
            assert_eq!(file.read_at(0, 1 << 20).unwrap(), bytes);
            assert_eq!(
                file.read_at(length as u64 - 1, 4096).unwrap(),
                bytes[length - 1..]
            );
            assert_eq!(file.read_at(length as u64, 1).unwrap().len(), 0);
            assert_eq!(file.read_at(length as u64 + 1_000_000, 1).unwrap().len(), 0);
        }
        assert_eq!(file.read_at(0, 0).unwrap().len(), 0);
    }
    volume.delete(id(3)).unwrap();
}

fn nonsense_ranges_cost_nothing(volume: &dyn Volume) {
    // As a damaged pointer would ask for: neither an error nor gigabytes of buffer.
    let file = volume.create(id(4), options(true)).unwrap();
    file.write_at(0, &[1; 5000]).unwrap();
    file.sync().unwrap();
    assert_eq!(file.read_at(100, usize::MAX).unwrap().len(), 4900);
    assert_eq!(file.read_at(u64::MAX, 100).unwrap().len(), 0);
    assert_eq!(file.read_at(u64::MAX - 10, usize::MAX).unwrap().len(), 0);
    assert_eq!(file.read_at(4096, 1 << 40).unwrap().len(), 904);
    volume.delete(id(4)).unwrap();
}

fn batches_answer_every_request(volume: &dyn Volume) {
    volume.read_batch(&mut []);
    let files: Vec<(Arc<dyn VolumeFile>, Vec<u8>)> = (0..3)
        .map(|number| {
            let bytes = pattern(number, 300_000 + number as usize * 1000);
            let file = volume.create(id(10 + number), options(true)).unwrap();
            file.write_at(0, &bytes).unwrap();
            // One of them stays un-synced: it is read through the page cache.
            if number != 1 {
                file.sync().unwrap();
            }
            (file, bytes)
        })
        .collect();
    // More than one ring's depth; random places, neighbours, overlaps, the same twice, the end and beyond.
    let places = pattern(99, 4000);
    for count in [1, 2, 3, 64, 500, 1000] {
        let mut requests: Vec<ReadRequest> = (0..count)
            .map(|index| {
                let word = u32::from_le_bytes(*places[index * 4..].first_chunk().unwrap()) as usize;
                let (file, bytes) = &files[word % 3];
                let (offset, length) = match index % 7 {
                    0 => (index * 4096 % 290_000, 4096),
                    1 => (word % bytes.len(), 1),
                    2 => (bytes.len() - word % 100, 200),
                    3 => (bytes.len() + word % 10_000, 50),
                    4 => (word % 100_000, 150_000),
                    5 => (4096 * (word % 60), 0),
                    _ => (word % 290_000, word % 9000),
                };
                ReadRequest::new(Arc::clone(file), offset as u64, length)
            })
            .collect();
        volume.read_batch(&mut requests);
        for request in &requests {
            let (_, bytes) = files
                .iter()
                .find(|(file, _)| file.id() == request.file.id())
                .unwrap();
            let from = (request.offset as usize).min(bytes.len());
            let to = (from + request.length).min(bytes.len());
            let result = request.result.as_ref().unwrap().as_ref().unwrap();
            assert_eq!(
                result,
                &bytes[from..to],
                "{} {}",
                request.offset,
                request.length
            );
        }
    }
    for number in 0..3 {
        volume.delete(id(10 + number)).unwrap();
    }
}

fn begun_batches_are_read_whenever_and_wherever_they_are_waited_for(volume: &dyn Volume) {
    let bytes = pattern(7, 600_000);
    let file = volume.create(id(15), options(true)).unwrap();
    file.write_at(0, &bytes).unwrap();
    file.sync().unwrap();
    let begin = |seed: usize| {
        let requests = (0..40).map(|index| {
            let offset = (index * 37 + seed * 11) % 140 * 4096 + index % 3;
            ReadRequest::new(Arc::clone(&file), offset as u64, 3000)
        });
        volume.begin_batch(requests.collect())
    };
    let check = |begun: glintdb_flash::BegunBatch| {
        let read = begun.wait();
        assert_eq!(read.len(), 40);
        for request in read {
            let from = request.offset as usize;
            assert_eq!(request.result.unwrap().unwrap(), &bytes[from..from + 3000]);
        }
    };
    for round in 0..4 {
        // More than may be under way at once; some are given up, others read in between, the last one first.
        let mut begun: Vec<_> = (0..12).map(|number| begin(round * 12 + number)).collect();
        drop(begun.remove(3));
        drop(begun.swap_remove(5));
        check(begin(99));
        assert_eq!(
            file.read_at(500, 9000).unwrap(),
            &bytes[500..9500],
            "a single read beside them"
        );
        let elsewhere = begun.split_off(6);
        std::thread::scope(|scope| {
            scope.spawn(|| elsewhere.into_iter().rev().for_each(check));
            begun.into_iter().rev().for_each(check);
        });
    }
    // Whoever began it is gone.
    let orphan = std::thread::scope(|scope| scope.spawn(|| begin(5)).join().unwrap());
    check(orphan);
    assert!(volume.begin_batch(Vec::new()).wait().is_empty());
    volume.delete(id(15)).unwrap();
}

fn deleted_files_stay_readable_through_their_handles(volume: &dyn Volume) {
    let file = volume.create(id(20), options(true)).unwrap();
    file.write_at(0, b"unaligned, so buffered").unwrap();
    file.sync().unwrap();
    let reader = volume.open(id(20)).unwrap();
    volume.delete(id(20)).unwrap();
    volume.sync_directory().unwrap();
    assert_eq!(&reader.read_at(11, 100).unwrap()[..], b"so buffered");
    // The handle's first buffered access comes after the name is gone.
    reader.write_at(3, b"x").unwrap();
    assert_eq!(&file.read_at(0, 5).unwrap()[..], b"unaxi");
    let mut requests =
        [(0, 5), (3, 1)].map(|(at, length)| ReadRequest::new(Arc::clone(&reader), at, length));
    volume.read_batch(&mut requests);
    assert_eq!(requests[1].result.take().unwrap().unwrap(), "x");
}

fn ring_keeps_what_is_written(volume: &dyn Volume) {
    const BYTES: usize = 256 << 10;
    assert_eq!(volume.existing_ring_bytes().unwrap(), None);
    for bytes in [0, 100, 4097] {
        let refused = volume.ring(bytes).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
    let ring = volume.ring(BYTES).unwrap();
    assert_eq!(ring.len(), BYTES);
    let mut out = vec![1; BYTES];
    ring.read(0, &mut out);
    assert!(out.iter().all(|&byte| byte == 0));
    ring.grow(BYTES).unwrap();
    let model = pattern(5, BYTES);
    for (offset, length) in [
        (0, 4096),
        (4096, 8),
        (4104, 100_000),
        (104_104, BYTES - 104_104),
    ] {
        ring.write(offset, &model[offset..offset + length]);
        // Changes nothing of what is there.
        ring.populate(0, BYTES);
        ring.populate(BYTES, 0);
    }
    for (offset, length) in [
        (0, BYTES),
        (1, 1),
        (4095, 18),
        (13, 4096),
        (BYTES - 1, 1),
        (BYTES, 0),
    ] {
        let mut out = vec![0; length];
        ring.read(offset, &mut out);
        assert_eq!(out, model[offset..offset + length]);
    }
    ring.sync().unwrap();
    for direct in [true, false] {
        let file = volume.create(id(30), options(direct)).unwrap();
        ring.write_to(8192, 65536, &*file, 0).unwrap();
        ring.write_to(0, 4096, &*file, 65536).unwrap();
        // Behind something unaligned, where direct I/O cannot go.
        ring.write_to(4096, 8192, &*file, 70_001).unwrap();
        file.sync().unwrap();
        assert_eq!(file.read_at(0, 65536).unwrap(), model[8192..8192 + 65536]);
        assert_eq!(file.read_at(65536, 4096).unwrap(), model[..4096]);
        assert_eq!(file.read_at(70_001, 8192).unwrap(), model[4096..12288]);
        volume.delete(id(30)).unwrap();
    }
    // What is there is given back as it is, whatever size is asked for, until it is removed.
    if ring.survives_kill() {
        drop(ring);
        assert_eq!(volume.existing_ring_bytes().unwrap(), Some(BYTES));
        let ring = volume.ring(2 * BYTES).unwrap();
        let mut out = vec![0; BYTES];
        ring.read(0, &mut out);
        assert!(ring.len() == BYTES && out == model);
        drop(ring);
        volume.remove_ring().unwrap();
        volume.remove_ring().unwrap();
        assert_eq!(volume.existing_ring_bytes().unwrap(), None);
        let ring = volume.ring(2 * BYTES).unwrap();
        ring.read(0, &mut out);
        assert!(ring.len() == 2 * BYTES && out.iter().all(|&byte| byte == 0));
    }
}

/// What the ring has grown to can be written and stays; what it is shrunk by is zeros; and its size
/// is what it was.
fn ring_grows_and_shrinks(volume: &dyn Volume) {
    const BYTES: usize = 300 << 10;
    const UNIT: usize = 64 << 10;
    let ring = volume.ring(BYTES).unwrap();
    let model = pattern(6, BYTES);
    let written = |ring: &dyn Ring, bytes: usize| {
        let mut out = vec![1; BYTES];
        ring.read(0, &mut out);
        assert_eq!(out[..bytes], model[..bytes]);
        assert!(out[bytes..].iter().all(|&byte| byte == 0), "{bytes}");
        assert_eq!(ring.len(), BYTES);
    };
    let mut end = 0;
    // The last one is not a whole number of units.
    for bytes in [UNIT, UNIT, 3 * UNIT, UNIT, BYTES] {
        ring.grow(bytes).unwrap();
        written(&*ring, end);
        let grown = bytes.max(end);
        ring.write(end, &model[end..grown]);
        end = grown;
        written(&*ring, end);
    }
    if !ring.survives_kill() {
        return;
    }
    for bytes in [BYTES, 4 * UNIT, UNIT, 2 * UNIT] {
        ring.shrink(bytes).unwrap();
        written(&*ring, bytes.min(end));
        end = bytes.min(end);
    }
    drop(ring);
    let ring = volume.ring(BYTES).unwrap();
    written(&*ring, UNIT);
    // A ring that was just opened can be shrunk before it grows.
    ring.grow(3 * UNIT).unwrap();
    ring.write(2 * UNIT, &[1; UNIT]);
    drop(ring);
    let ring = volume.ring(BYTES).unwrap();
    ring.shrink(UNIT).unwrap();
    written(&*ring, UNIT);
    ring.grow(3 * UNIT).unwrap();
    written(&*ring, UNIT);
    drop(ring);
    volume.remove_ring().unwrap();
}

fn concurrent_readers_and_a_writer_agree(volume: &dyn Volume) {
    // A log's tail: appended buffered and direct by turns while others read what was written before.
    let file = volume.create(id(40), options(true)).unwrap();
    let model = pattern(8, 400_000);
    let written = AtomicUsize::new(0);
    let finished = AtomicBool::new(false);
    let failure = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !finished.load(Ordering::Acquire) {
                    let end = written.load(Ordering::Acquire);
                    let from = end.saturating_sub(30_000);
                    let bytes = file.read_at(from as u64, end - from).unwrap();
                    let differs = bytes
                        .iter()
                        .zip(&model[from..end])
                        .position(|(a, b)| a != b);
                    assert_eq!(
                        (bytes.len(), differs),
                        (end - from, None),
                        "{from} to {end}"
                    );
                }
            });
        }
        let mut at = 0;
        let mut failure = None;
        for length in [4096, 100, 3996, 8192, 1, 4095, 16384].iter().cycle() {
            if at + length > model.len() {
                break;
            }
            failure = file.write_at(at as u64, &model[at..at + length]).err();
            if failure.is_some() {
                break;
            }
            at += length;
            written.store(at, Ordering::Release);
        }
        finished.store(true, Ordering::Release);
        failure
    });
    assert!(failure.is_none(), "{failure:?}");
    file.sync().unwrap();
    assert_eq!(
        file.read_at(0, file.len().unwrap() as usize).unwrap(),
        model[..written.load(Ordering::Acquire)]
    );
    volume.delete(id(40)).unwrap();
}

#[test]
fn memory_volume_conforms() {
    run(&*MemVolume::new());
}

#[test]
fn closable_volumes_conform_until_they_are_closed() {
    run(&*ClosableVolume::new(MemVolume::new()));
    let directory = tempfile::tempdir().unwrap();
    let inner = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    run(&*ClosableVolume::new(inner));
}

#[test]
fn directory_volume_conforms_in_every_mode() {
    for direct in [DirectIo::Auto, DirectIo::Off] {
        for read_engine in READ_ENGINES {
            for read_depth in [1, 5, 128] {
                let directory = tempfile::tempdir().unwrap();
                let options = DirOptions {
                    direct,
                    read_engine,
                    read_depth,
                    ..DirOptions::default()
                };
                match DirVolume::open(directory.path(), options) {
                    Ok(volume) => run(&*volume),
                    // The system has none: said so when it is asked for.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
                }
            }
        }
    }
}

#[test]
fn directory_volume_conforms_with_every_switch_of_reads() {
    for direct in [DirectIo::Auto, DirectIo::Off] {
        for read_engine in READ_ENGINES {
            let directory = tempfile::tempdir().unwrap();
            let options = DirOptions {
                direct,
                read_engine,
                begun_batches_max: 0,
                sort_reads: false,
                merge_reads: false,
                kernel_read_ahead: true,
                ..DirOptions::default()
            };
            match DirVolume::open(directory.path(), options) {
                Ok(volume) => run(&*volume),
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
            }
        }
    }
}

#[test]
fn directory_volume_conforms_on_tmpfs() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    run(&*DirVolume::open(directory.path(), DirOptions::default()).unwrap());
}
