//! A gate that holds up the syncs or the reads of a volume, so that a test can look at the engine while one is under way.

use glintdb_simdisk::Hooks;
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    closed_to_reads: bool,
    waiting: usize,
    reads: usize,
}

impl Gate {
    /// Syncs of files that begin from now on wait.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Reads of files that begin from now on wait.
    pub(crate) fn close_to_reads(&self) {
        self.state.lock().closed_to_reads = true;
    }

    pub(crate) fn open(&self) {
        let mut state = self.state.lock();
        (state.closed, state.closed_to_reads) = (false, false);
        drop(state);
        self.moved.notify_all();
    }

    /// Reads of files so far.
    pub(crate) fn reads(&self) -> usize {
        self.state.lock().reads
    }

    /// Waits until a sync or a read waits.
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

    fn before_read(&self) {
        let mut state = self.state.lock();
        state.reads += 1;
        state.waiting += 1;
        self.moved.notify_all();
        while state.closed_to_reads {
            self.moved.wait(&mut state);
        }
        state.waiting -= 1;
    }
}
