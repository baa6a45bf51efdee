//! Descriptors that come and go beneath files in use.

use super::Access;
use crate::dir::{DirFile, DirOptions, DirVolume};
use crate::volume::{CreateOptions, DataClass, ReadRequest, Volume, VolumeFile};
use glintdb_core::{Error, ErrorKind, FileId, FileKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const FILE_BYTES: usize = 10_000;

fn id(number: u64) -> FileId {
    FileId::new(FileKind::Table, number)
}

fn content(number: u64) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at as u64 * 7 + number) % 251).unwrap();
    (0..FILE_BYTES).map(byte).collect()
}

/// A volume that keeps at most `limit` descriptors of files.
fn volume(path: &Path, limit: usize) -> Arc<DirVolume> {
    let volume = DirVolume::open(path, DirOptions::default()).unwrap();
    volume
        .shared()
        .common
        .descriptors
        .limit
        .store(limit, Ordering::Relaxed);
    volume
}

fn create(volume: &DirVolume, number: u64) -> Arc<dyn VolumeFile> {
    let options = CreateOptions {
        class: DataClass::Flush,
        reserve_bytes: 0,
        direct: true,
    };
    volume.create(id(number), options).unwrap()
}

fn create_synced(volume: &DirVolume, number: u64) -> Arc<dyn VolumeFile> {
    let file = create(volume, number);
    file.write_at(0, &content(number)).unwrap();
    file.sync().unwrap();
    file
}

fn assert_content(file: &dyn VolumeFile) {
    let read = file.read_at(0, FILE_BYTES + 1).unwrap();
    assert!(read[..] == content(file.id().number)[..], "{}", file.id());
    assert_eq!(file.len().unwrap(), FILE_BYTES as u64);
}

fn is_closed(file: &Arc<dyn VolumeFile>) -> bool {
    let file = DirFile::of(&**file).unwrap();
    file.in_use.handle.any().is_none()
}

fn open(volume: &DirVolume) -> usize {
    volume.shared().common.descriptors.open()
}

#[test]
fn files_in_use_outnumber_open_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 4);
    let files: Vec<_> = (1..=40)
        .map(|number| {
            let file = create_synced(&volume, number);
            assert!(open(&volume) <= 4 + 1, "a write may need two at once");
            file
        })
        .collect();
    for _ in 0..2 {
        for file in &files {
            assert_content(&**file);
            assert!(open(&volume) <= 4);
        }
    }
    let mut requests: Vec<_> = (files.iter())
        .map(|file| ReadRequest::new(Arc::clone(file), 100, 5000))
        .collect();
    volume.read_batch(&mut requests);
    let begun = volume.begin_batch(requests);
    for request in begun.wait() {
        let read = request.result.unwrap().unwrap();
        assert!(read[..] == content(request.file.id().number)[100..5100]);
    }
    assert!(open(&volume) <= 4);
    drop(files);
    assert_eq!(open(&volume), 0);
}

/// A closed descriptor takes the news of a failed write-back with it.
#[test]
fn written_bytes_are_synced_before_their_descriptor_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 2);
    let written: Vec<_> = (1..=6)
        .map(|number| {
            let file = create(&volume, number);
            file.write_at(0, &content(number)).unwrap();
            file
        })
        .collect();
    let closed = written.iter().filter(|file| is_closed(file)).count();
    let syncs = volume.stats().syncs;
    assert!(
        closed >= 4 && syncs >= closed as u64,
        "{closed} closed, {syncs} syncs"
    );
    // There is one that can be closed without a sync.
    let synced = create_synced(&volume, 7);
    let before = volume.stats().syncs;
    assert_content(&*synced);
    let first_open = written.iter().find(|file| !is_closed(file));
    if let Some(file) = first_open {
        file.write_at(0, &content(file.id().number)).unwrap();
    }
    assert_content(&*synced);
    assert_eq!(volume.stats().syncs, before);
    written.iter().for_each(|file| assert_content(&**file));
}

/// An earlier process, which was killed, may not have synced it.
#[test]
fn a_log_file_that_was_found_is_synced_before_its_descriptor_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let [log, table] = [FileKind::Log, FileKind::Table].map(|kind| FileId::new(kind, 1));
    for found in [log, table] {
        std::fs::write(directory.path().join(found.to_string()), content(1)).unwrap();
    }
    let volume = volume(directory.path(), 1);
    let syncs_of_a_close = |file: &Arc<dyn VolumeFile>| {
        assert_content(&**file);
        let before = volume.stats().syncs;
        drop(create(&volume, 2));
        volume.delete(id(2)).unwrap();
        assert!(is_closed(file));
        volume.stats().syncs - before
    };
    for (found, first) in [(table, 0), (log, 1)] {
        let file = volume.open(found).unwrap();
        assert_eq!(syncs_of_a_close(&file), first, "{found}");
        assert_eq!(syncs_of_a_close(&file), 0, "{found}");
    }
}

/// The sync says nothing of bytes that come behind it.
#[test]
fn bytes_written_beside_a_sync_are_synced_again_before_their_descriptor_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 2);
    let file = create_synced(&volume, 1);
    let dir_file = DirFile::of(&*file).unwrap();
    let writing = dir_file.writing(Access::Buffered).unwrap();
    file.sync().unwrap();
    writing.file().write_at(b"late", FILE_BYTES as u64).unwrap();
    // A write is under way: its descriptor is not closed, nor are its bytes called synced.
    let others: Vec<_> = (10..14)
        .map(|number| create_synced(&volume, number))
        .collect();
    others.iter().for_each(|file| assert_content(&**file));
    assert!(!is_closed(&file));
    drop((writing, others));
    let syncs = volume.stats().syncs;
    let others: Vec<_> = (2..6)
        .map(|number| create_synced(&volume, number))
        .collect();
    others.iter().for_each(|file| assert_content(&**file));
    assert!(is_closed(&file));
    assert_eq!(volume.stats().syncs, syncs + others.len() as u64 + 1);
}

#[test]
fn the_file_used_longest_ago_is_closed_first() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 8);
    let files: Vec<_> = (1..=8)
        .map(|number| create_synced(&volume, number))
        .collect();
    // After a look at all of them, only one is used.
    let extra = create_synced(&volume, 9);
    assert_content(&*extra);
    for number in 10..14 {
        assert_content(&*files[7]);
        drop(create_synced(&volume, number));
    }
    assert!(!is_closed(&files[7]), "it was in use all the time");
}

#[test]
fn files_that_are_kept_open_stay_open() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 2);
    let kept = create_synced(&volume, 1);
    kept.keep_open(true).unwrap();
    let others: Vec<_> = (2..9)
        .map(|number| create_synced(&volume, number))
        .collect();
    others.iter().for_each(|file| assert_content(&**file));
    assert!(!is_closed(&kept));
    kept.keep_open(false).unwrap();
    others.iter().for_each(|file| assert_content(&**file));
    assert!(is_closed(&kept));
    assert_content(&*kept);
}

#[test]
fn a_removed_file_that_was_closed_is_read_by_its_users() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 1);
    let removed = create_synced(&volume, 1);
    let others: Vec<_> = (2..5)
        .map(|number| create_synced(&volume, number))
        .collect();
    others.iter().for_each(|file| assert_content(&**file));
    volume.delete(id(1)).unwrap();
    for _ in 0..2 {
        others.iter().for_each(|file| assert_content(&**file));
        assert_content(&*removed);
    }
    // A file that cannot be removed is closed as before.
    let [name, aside] =
        [id(2).to_string(), "aside".to_owned()].map(|name| directory.path().join(name));
    std::fs::rename(&name, &aside).unwrap();
    std::fs::create_dir(&name).unwrap();
    assert!(volume.delete(id(2)).is_err());
    std::fs::remove_dir(&name).unwrap();
    std::fs::rename(&aside, &name).unwrap();
    drop(removed);
    others[1..].iter().for_each(|file| assert_content(&**file));
    assert!(open(&volume) <= 1);
}

#[test]
fn a_file_in_use_without_a_descriptor_is_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 1);
    let used = create_synced(&volume, 1);
    let other = create_synced(&volume, 2);
    assert_content(&*other);
    volume.recycle(id(1)).unwrap();
    let options = CreateOptions {
        class: DataClass::Log,
        reserve_bytes: FILE_BYTES as u64,
        direct: true,
    };
    volume.sync_directory().unwrap();
    let new = volume.create_recycled(id(3), options).unwrap();
    new.write_at(0, &[0; 4096]).unwrap();
    assert_content(&*used);
    assert_eq!(volume.stats().recycled_files, 0);
}

/// A thread may be about to open the file, to remove it for example, when its last user drops it.
#[test]
fn a_dropped_file_takes_no_descriptor_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 4);
    let file = create_synced(&volume, 1);
    let handle = Arc::clone(&DirFile::of(&*file).unwrap().in_use.handle);
    drop(file);
    let shared = volume.shared();
    let late = shared.descriptor(&handle, Access::Buffered).unwrap();
    assert!(handle.any().is_none());
    drop(late);
    assert_eq!(open(&volume), 0);
}

#[test]
fn a_removal_that_fails_forgets_no_earlier_file_of_that_name() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(directory.path(), 1);
    let removed = create_synced(&volume, 1);
    volume.delete(id(1)).unwrap();
    std::fs::create_dir(directory.path().join(id(1).to_string())).unwrap();
    assert!(volume.delete(id(1)).is_err());
    let others: Vec<_> = (2..5)
        .map(|number| create_synced(&volume, number))
        .collect();
    others.iter().for_each(|file| assert_content(&**file));
    assert!(!is_closed(&removed));
    assert_content(&*removed);
}

/// `Unavailable` promises that nothing was written.
#[test]
fn only_a_write_that_has_not_begun_is_unavailable() {
    for (kind, begun, expected) in [
        (ErrorKind::Unavailable, false, ErrorKind::Unavailable),
        (ErrorKind::Unavailable, true, ErrorKind::Io),
        (ErrorKind::NoSpace, true, ErrorKind::NoSpace),
    ] {
        let error = crate::dir::cut_off(Error::new(kind, "simulated"), begun);
        assert_eq!(error.kind(), expected);
    }
}
