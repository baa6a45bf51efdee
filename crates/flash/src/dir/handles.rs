//! Which files are open, so that none is written again under another name while somebody may read it.
//!
//! Thread-safe. Invariant: a file is open only between the making and the dropping of a [`Handle`] of it.

use super::Shared;
use glintdb_core::FileId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How often each file is open.
#[derive(Default)]
pub(super) struct Handles(Mutex<HashMap<FileId, usize>>);

impl Handles {
    /// Does `act` while the file `id` is not open and nobody can open it; `None` where it is open.
    pub(super) fn unless_open<T>(&self, id: FileId, act: impl FnOnce() -> T) -> Option<T> {
        let open = self.0.lock();
        (!open.contains_key(&id)).then(act)
    }
}

/// Stands for one that is about to be opened or is open.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) id: FileId,
}

impl Handle {
    pub(super) fn new(shared: &Arc<Shared>, id: FileId) -> Self {
        *shared.handles.0.lock().entry(id).or_default() += 1;
        Handle {
            shared: Arc::clone(shared),
            id,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // Another thread may have held the lock during the fork.
            return;
        }
        let mut open = self.shared.handles.0.lock();
        if let Some(count) = open.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.id);
            }
        }
    }
}
