//! What a volume does before, while and after it is closed.

use glintdb_core::{ErrorKind, FileId, FileKind, Result};
use glintdb_flash::{
    ClosableVolume, CreateOptions, DataClass, DirOptions, DirVolume, ReadRequest, Volume,
    VolumeFile,
};
use glintdb_simdisk::{HookedVolume, Hooks, MemVolume};
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn id(number: u64) -> FileId {
    FileId::new(FileKind::Log, number)
}

fn options() -> CreateOptions {
    CreateOptions {
        class: DataClass::Log,
        reserve_bytes: 0,
        direct: false,
    }
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// A file of two blocks.
fn written(volume: &dyn Volume, number: u64) -> Arc<dyn VolumeFile> {
    let file = volume.create(id(number), options()).unwrap();
    file.write_at(0, &[7; 8192]).unwrap();
    file.sync().unwrap();
    file
}

#[test]
fn a_closed_volume_reads_and_changes_nothing_while_the_next_opener_of_the_directory_does() {
    let directory = tempfile::tempdir().unwrap();
    let inner = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let volume = ClosableVolume::new(Arc::clone(&inner) as Arc<dyn Volume>);
    let file = written(&*volume, 1);
    let ring = volume.ring(8192).unwrap();
    ring.grow(8192).unwrap();
    ring.write(0, &[1; 8]);
    let begun = volume.begin_batch(vec![ReadRequest::new(Arc::clone(&file), 0, 4096)]);
    let locked = DirVolume::open(directory.path(), DirOptions::default());
    assert_eq!(kind(locked), Some(ErrorKind::Locked));

    volume.close();
    inner.release();
    let next = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    next.open(id(1)).unwrap().write_at(0, &[8; 8192]).unwrap();
    let closed = Some(ErrorKind::Closed);
    assert_eq!(kind(file.write_at(0, &[9; 10])), closed);
    assert_eq!(kind(file.set_len(0)), closed);
    assert_eq!(kind(file.sync()), closed);
    assert_eq!(kind(file.read_at(0, 10)), closed);
    assert_eq!(kind(file.len()), closed);
    assert_eq!(kind(ring.write_to(0, 4096, &*file, 0)), closed);
    assert_eq!(kind(ring.sync()), closed);
    assert_eq!(kind(ring.grow(8192)), closed);
    assert_eq!(kind(ring.shrink(8192)), closed);
    assert_eq!(kind(volume.create(id(2), options())), closed);
    assert_eq!(kind(volume.create_recycled(id(2), options())), closed);
    assert_eq!(kind(volume.open(id(1))), closed);
    assert_eq!(kind(volume.delete(id(1))), closed);
    assert_eq!(kind(volume.recycle(id(1))), closed);
    assert_eq!(kind(volume.list()), closed);
    assert_eq!(kind(volume.sync_directory()), closed);
    assert_eq!(kind(volume.ring(8192)), closed);
    assert_eq!(kind(volume.existing_ring_bytes()), closed);
    assert_eq!(kind(volume.remove_ring()), closed);
    assert_eq!(kind(volume.link(id(1), directory.path())), closed);
    let beside = directory.path().join("beside");
    assert_eq!(kind(volume.make_directory(&beside)), closed);
    let mut batch = vec![ReadRequest::new(Arc::clone(&file), 0, 10)];
    volume.read_batch(&mut batch);
    let later = volume.begin_batch(vec![ReadRequest::new(file, 0, 10)]);
    for request in batch.into_iter().chain(begun.wait()).chain(later.wait()) {
        assert_eq!(kind(request.result.unwrap()), closed);
    }
    assert_eq!(next.list().unwrap(), [id(1)]);
    assert_eq!(
        next.open(id(1)).unwrap().read_at(0, 8192).unwrap(),
        vec![8; 8192]
    );
}

#[test]
fn spares_of_the_next_opener_stay_when_a_released_volume_goes() {
    let directory = tempfile::tempdir().unwrap();
    let spare = directory.path().join("spare-0.glint");
    let recycled = |volume: &DirVolume| {
        drop(written(volume, 1));
        volume.recycle(id(1)).unwrap();
        spare.exists()
    };
    let released = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    if !recycled(&released) {
        return;
    }
    released.release();
    assert!(!spare.exists());
    let next = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    assert!(recycled(&next));
    drop(released);
    assert!(spare.exists());
    drop(next);
    assert!(!spare.exists());
}

/// A sync that waits until it is let go, and a read in whose middle the volume is closed.
#[derive(Default)]
struct Between {
    sync_begun: Mutex<Option<mpsc::Sender<()>>>,
    sync_goes_on: Mutex<Option<mpsc::Receiver<()>>>,
    closes: Mutex<Option<Arc<ClosableVolume>>>,
}

impl Hooks for Between {
    fn before_sync(&self) {
        if let Some(begun) = self.sync_begun.lock().take() {
            begun.send(()).unwrap();
            let goes_on = self.sync_goes_on.lock().take().unwrap();
            goes_on.recv().unwrap();
        }
    }

    fn before_read(&self) {
        if let Some(volume) = self.closes.lock().take() {
            volume.close();
        }
    }
}

fn hooked() -> (Arc<ClosableVolume>, Arc<Between>) {
    let hooks = Arc::new(Between::default());
    let inner = HookedVolume::new(MemVolume::new(), Arc::clone(&hooks) as Arc<dyn Hooks>);
    (ClosableVolume::new(inner), hooks)
}

#[test]
fn close_waits_for_a_sync_that_is_under_way() {
    let (volume, hooks) = hooked();
    let file = written(&*volume, 1);
    let (begun, sync_begun) = mpsc::channel();
    let (goes_on, held) = mpsc::channel();
    *hooks.sync_begun.lock() = Some(begun);
    *hooks.sync_goes_on.lock() = Some(held);
    let (closed, is_closed) = mpsc::channel();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync());
        sync_begun.recv().unwrap();
        scope.spawn(|| {
            volume.close();
            closed.send(()).unwrap();
        });
        let early = is_closed.recv_timeout(Duration::from_millis(100));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
        // What comes now is refused, though the close has not ended.
        assert_eq!(kind(file.write_at(0, b"late")), Some(ErrorKind::Closed));
        goes_on.send(()).unwrap();
        sync.join().unwrap().unwrap();
        is_closed.recv().unwrap();
    });
}

#[test]
fn a_read_that_ends_after_the_close_gives_no_bytes() {
    for batch in [false, true] {
        let (volume, hooks) = hooked();
        let file = written(&*volume, 1);
        *hooks.closes.lock() = Some(Arc::clone(&volume));
        let read = match batch {
            false => file.read_at(0, 10),
            true => {
                let mut requests = [ReadRequest::new(file, 0, 10)];
                volume.read_batch(&mut requests);
                requests[0].result.take().unwrap()
            }
        };
        assert_eq!(kind(read), Some(ErrorKind::Closed));
    }
}

#[test]
fn neighbours_of_a_batch_are_read_together_as_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let inner = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let volume = ClosableVolume::new(Arc::clone(&inner) as Arc<dyn Volume>);
    let file = written(&*volume, 1);
    let before = inner.stats().reads;
    let block = |offset| ReadRequest::new(Arc::clone(&file), offset, 4096);
    let mut requests = [block(0), block(4096)];
    volume.read_batch(&mut requests);
    for request in requests {
        assert_eq!(request.result.unwrap().unwrap(), vec![7; 4096]);
    }
    assert_eq!(inner.stats().reads - before, 1);
}
