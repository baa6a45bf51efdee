//! A volume whose ring does something in the middle of a read: what another thread might do at that very moment.

use crate::support::*;
use glintdb_core::{FileId, Result};
use glintdb_flash::{CreateOptions, MemVolume, ReadRequest, Ring, Volume, VolumeFile, VolumeStats};
use glintdb_log::{Log, LogSetup};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

struct HookVolume {
    inner: Arc<MemVolume>,
    before_ring_read: Arc<Hook>,
}

struct HookRing {
    inner: Arc<dyn Ring>,
    before_read: Arc<Hook>,
}

impl Ring for HookRing {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn survives_kill(&self) -> bool {
        true
    }
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.inner.write(offset, bytes);
    }
    fn read(&self, offset: usize, out: &mut [u8]) {
        let hook = self.before_read.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.inner.read(offset, out);
    }
    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        self.inner.write_to(offset, length, file, file_offset)
    }
    fn sync(&self) -> Result<bool> {
        self.inner.sync()
    }
}

impl Volume for HookVolume {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        self.inner.create(id, options)
    }
    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        self.inner.open(id)
    }
    fn delete(&self, id: FileId) -> Result<()> {
        self.inner.delete(id)
    }
    fn list(&self) -> Result<Vec<FileId>> {
        self.inner.list()
    }
    fn sync_directory(&self) -> Result<()> {
        self.inner.sync_directory()
    }
    fn read_batch(&self, requests: &mut [ReadRequest]) {
        self.inner.read_batch(requests);
    }
    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        Ok(Arc::new(HookRing {
            inner: self.inner.ring(bytes)?,
            before_read: Arc::clone(&self.before_ring_read),
        }))
    }
    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        self.inner.existing_ring_bytes()
    }
    fn remove_ring(&self) -> Result<()> {
        self.inner.remove_ring()
    }
    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }
    fn link(&self, id: FileId, target: &Path) -> Result<()> {
        self.inner.link(id, target)
    }
    fn stats(&self) -> VolumeStats {
        self.inner.stats()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[test]
fn a_value_whose_ring_space_is_reused_while_it_is_copied_is_read_from_its_segment() {
    let (inner, numbers) = (MemVolume::new(), numbers());
    let hook = Arc::new(Hook::default());
    let volume = HookVolume {
        inner: Arc::clone(&inner),
        before_ring_read: Arc::clone(&hook),
    };
    let log = Arc::new(
        Log::create(LogSetup {
            volume: Arc::new(volume),
            ..setup(&inner, &numbers, small())
        })
        .unwrap(),
    );
    let mut seqno = 0;
    for batched in [false, true] {
        seqno += 1;
        let pointer = commit(&log, &Batch::separated(seqno, 1000)).pointers[0];
        let (writer, first) = (Arc::clone(&log), seqno + 1);
        *hook.lock() = Some(Box::new(move || {
            for n in first..first + 100 {
                commit(&writer, &Batch::separated(n, 1000));
            }
        }));
        let value = if batched {
            log.read_batch(&[pointer]).remove(0)
        } else {
            log.read(&pointer)
        };
        assert!(hook.lock().is_none(), "the read went through the ring");
        assert_eq!(value.unwrap(), pattern(seqno, 1000));
        seqno += 100;
    }
}
