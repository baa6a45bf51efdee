//! A forked child of a process that has a directory open: it changes nothing there and leaves the
//! lock to its parent.

use glintdb_core::{Error, ErrorKind, FileId, FileKind};
use glintdb_flash::{
    CreateOptions, DataClass, DirOptions, DirVolume, ProcessToken, ReadRequest, Volume,
    in_forked_child,
};
use std::sync::Arc;

fn in_fork(child: impl FnOnce()) {
    assert_eq!(in_forked_child(child), 0, "the child has failed");
}

fn closed<T>(result: Result<T, Error>) {
    assert_eq!(result.map(drop).unwrap_err().kind(), ErrorKind::Closed);
}

const OPTIONS: CreateOptions = CreateOptions {
    class: DataClass::Log,
    reserve_bytes: 0,
    direct: true,
};

fn file(number: u64) -> FileId {
    FileId::new(FileKind::Table, number)
}

#[test]
fn a_token_is_current_in_its_own_process_only() {
    let parent = ProcessToken::current();
    in_fork(|| {
        closed(parent.check());
        let child = ProcessToken::current();
        assert_ne!(child, parent);
        in_fork(|| {
            assert!(!parent.is_current() && !child.is_current());
            assert!(ProcessToken::current().is_current());
        });
        assert!(child.is_current());
    });
    assert!(parent.is_current());
}

#[test]
fn a_forked_child_reads_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let written = volume.create(file(1), OPTIONS).unwrap();
    written.write_at(0, &[7; 8192]).unwrap();
    written.sync().unwrap();
    let ring = volume.ring(64 << 10).unwrap();
    ring.grow(64 << 10).unwrap();
    // The child empties its copy, and its parent goes on with the other.
    let mut handles = Some((volume, written, ring));
    in_fork(|| {
        let (volume, written, ring) = handles.as_ref().unwrap();
        closed(written.write_at(0, b"child"));
        closed(written.read_at(0, 5));
        closed(written.sync());
        closed(written.set_len(0));
        closed(volume.create(file(2), OPTIONS));
        closed(volume.create_recycled(file(2), OPTIONS));
        closed(volume.open(file(1)));
        closed(volume.delete(file(1)));
        closed(volume.recycle(file(1)));
        closed(volume.list());
        closed(volume.sync_directory());
        closed(volume.existing_ring_bytes());
        closed(volume.remove_ring());
        closed(volume.ring(64 << 10));
        closed(volume.link(file(1), directory.path()));
        closed(ring.sync());
        closed(ring.grow(64 << 10));
        closed(ring.shrink(64 << 10));
        let request = |offset| ReadRequest::new(Arc::clone(written), offset, 4096);
        let mut requests = [request(0), request(4096)];
        volume.read_batch(&mut requests);
        let mut begun = volume.begin_batch(vec![request(0), request(4096)]).wait();
        for request in requests.iter_mut().chain(&mut begun) {
            closed(request.result.take().unwrap());
        }
        drop((Vec::from(requests), begun));
        drop(handles.take());
    });
    let (volume, written, ring) = handles.unwrap();
    ring.write(0, &[9; 8]);
    assert_eq!(written.read_at(8190, 9).unwrap()[..], [7; 2]);
    assert_eq!(volume.list().unwrap(), [file(1)]);
    drop((ring, written));
    volume.recycle(file(1)).unwrap();
}

#[test]
fn a_forked_child_leaves_the_lock_to_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let open = || DirVolume::open(directory.path(), DirOptions::default());
    let mut volume = Some(open().unwrap());
    let refused = || assert_eq!(open().map(drop).unwrap_err().kind(), ErrorKind::Locked);
    in_fork(|| {
        refused();
        drop(volume.take());
        refused();
    });
    refused();
    drop(volume);
    in_fork(|| drop(open().unwrap()));
}
