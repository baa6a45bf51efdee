//! A gate that holds up the syncs of a volume, so that a test can look at the engine while one is under way.

use glintdb_flash::Hooks;
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    waiting: usize,
}

impl Gate {
    /// Syncs of files that begin from now on wait.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().closed = false;
        self.moved.notify_all();
    }

    /// Waits until a sync waits.
    pub(crate) fn wait_for_one(&self) {
        let mut state = self.state.lock();
        while state.waiting == 0 {
            self.moved.wait(&mut state);
        }
    }
}

impl Hooks for Gate {
    fn before_sync(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.moved.notify_all();
        while state.closed {
            self.moved.wait(&mut state);
        }
        state.waiting -= 1;
    }
}
