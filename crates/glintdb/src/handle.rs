//! The handle that keeps a database open: every public handle has a reference to one [`Handle`].
//!
//! Thread safety: any thread.

use crate::durable::open;
use crate::engine::Engine;
use crate::env::Env;
use crate::handles::{self, Directories};
use crate::options::Options;
use crate::{Error, Result};
use glintdb_core::sync::Mutex;
use glintdb_core::sync::thread::{self, JoinHandle};
use glintdb_flash::{ClosableVolume, DirVolume, SystemClock, Volume};
use std::io;
use std::sync::Arc;

/// Keeps a database open: the engine, its threads and its files. [`Db::close`](crate::Db::close) or
/// the drop of the last reference closes it.
///
/// Every scan counts a reference, so the struct has cache lines of its own.
#[repr(align(128))]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// The volume of the engine.
    volume: Arc<ClosableVolume>,
    /// The directories of the database, if it was opened by their paths.
    directories: Vec<Arc<DirVolume>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The result of closing, once it has ended.
    closed: Mutex<Option<Result<()>>>,
}

impl Handle {
    /// Opens the database in these directories.
    pub(crate) fn open_directories(
        directories: &Directories,
        options: Options,
    ) -> Result<Arc<Handle>> {
        let options = options.resolve()?;
        let opened =
            handles::open_directories(directories, &options.placement, options.directory())?;
        let env = Env::new(Arc::new(SystemClock::new()), random_id()?);
        let handle = Handle::open_resolved(opened.volume, opened.directories, env, options)?;
        for directory in &handle.directories {
            handles::register(directory.path(), &handle, &handle.engine);
        }
        Ok(handle)
    }

    /// Opens the database on `volume`. If `directories` are given, `volume` is over them, and
    /// closing gives them to the next opener.
    pub(crate) fn open_resolved(
        volume: Arc<dyn Volume>,
        directories: Vec<Arc<DirVolume>>,
        env: Env,
        options: Options,
    ) -> Result<Arc<Handle>> {
        let threads = options.background_threads;
        let volume = ClosableVolume::new(volume);
        let engine = open::open(Arc::clone(&volume) as Arc<dyn Volume>, env, options)?;
        // From here on the handle ends the threads that were started, also if a later one cannot be
        // started.
        let handle = Arc::new(Handle {
            engine: Arc::new(engine),
            volume,
            directories,
            threads: Mutex::default(),
            closed: Mutex::default(),
        });
        for number in 0..threads {
            let thread = start_thread(number, &handle.engine)
                .map_err(|error| Error::io("start a background thread", error))?;
            handle.threads.lock().push(thread);
        }
        handle.engine.shared.schedule();
        handle.engine.shared.ask_for_look();
        Ok(handle)
    }

    /// Leaks the engine's memory, in a forked child: dropping it would take locks that are never
    /// free there, and touch files that belong to the parent.
    fn leak(&mut self) {
        std::mem::forget(Arc::clone(&self.engine));
        let unused = Mutex::new(Vec::new());
        std::mem::forget(std::mem::replace(&mut self.threads, unused));
    }

    /// Closes the database, even if other handles exist: ends the background threads, makes the log
    /// durable, and gives the directory to the next opener. A later call returns the result of the
    /// first. In a forked child it does nothing and returns `Closed`.
    pub(crate) fn close(&self) -> Result<()> {
        self.engine.shared.process.check()?;
        let mut closed = self.closed.lock();
        if let Some(closed) = &*closed {
            return closed.clone();
        }
        self.engine.durable.begin_close();
        for thread in self.threads.lock().drain(..) {
            // Never this thread: background threads hold no handle.
            if thread.join().is_err() {
                self.engine
                    .shared
                    .note_background_error(&Error::invalid("a background thread panicked"));
            }
        }
        let ended = self.engine.durable.finish_close();
        // Before the directory is unlocked. `Durable::finish_close` says which operations may still
        // be running.
        self.volume.close();
        // After the volume is closed. A reader that cannot use the ring would read the segment's
        // file, which lacks the bytes if the log has failed, and report it as damaged.
        self.engine.shared.log.leave_ring();
        for directory in &self.directories {
            directory.release();
        }
        handles::forget(&self.engine);
        closed.insert(ended).clone()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.shared.is_forked() {
            return self.leak();
        }
        // `Db::close` returns the error; a drop cannot.
        self.close().ok();
    }
}

/// Starts a background thread, which lives until the queue is stopped.
fn start_thread(number: usize, engine: &Arc<Engine>) -> io::Result<JoinHandle<()>> {
    #[cfg(test)]
    if number >= tests::THREADS_MAX.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let background = Arc::clone(&engine.background);
    thread::Builder::new()
        .name(format!("glintdb-{number}"))
        .spawn(move || background.work())
}

/// A random database identity, from the operating system.
fn random_id() -> Result<glintdb_core::DbId> {
    glintdb_flash::random_bytes().map(glintdb_core::DbId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    std::thread_local! {
        /// Number of background threads that this thread can start.
        pub(super) static THREADS_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// If a background thread cannot be started, those that were started end, so that the next
    /// opening does not fail with `Locked`.
    #[test]
    fn started_threads_end_if_another_cannot_be_started() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default()
            .memory_budget_bytes(8 << 20)
            .log_segment_bytes(64 << 10)
            .background_threads(3);
        for most in 0..3 {
            THREADS_MAX.set(most);
            let error = options.clone().open(directory.path()).map(drop);
            let error = error.unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Io, "{error}");
        }
        THREADS_MAX.set(3);
        let db = options.open(directory.path()).unwrap();
        db.put("key", "value").unwrap();
    }
}
