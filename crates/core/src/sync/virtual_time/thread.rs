//! Threads of a run, with `std`'s interface as far as the engine uses it.
//!
//! A thread that is started by a thread of a run belongs to it. It waits for its turn before it
//! runs anything.

use super::{CURRENT, Current, Parker, current};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// As `std::thread::Builder`.
#[derive(Default)]
pub struct Builder {
    name: Option<String>,
}

/// Whether a thread has ended, and which ones wait for that.
#[derive(Default)]
struct Ending {
    has_ended: bool,
    waiting: Vec<Current>,
}

/// As `std::thread::JoinHandle`.
pub struct JoinHandle<T> {
    thread: std::thread::JoinHandle<T>,
    ending: Arc<Mutex<Ending>>,
}

/// Says that a thread has ended, and gives the run away, also after a panic.
struct Ends {
    current: Current,
    ending: Arc<Mutex<Ending>>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let mut ending = self.ending.lock();
        ending.has_ended = true;
        for thread in ending.waiting.drain(..) {
            thread.wake();
        }
        drop(ending);
        CURRENT.with(|current| current.borrow_mut().take());
        self.current.end();
    }
}

impl Builder {
    /// As the original.
    #[must_use]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// As the original.
    #[must_use]
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// As the original.
    ///
    /// # Errors
    /// The operating system starts no thread.
    pub fn spawn<T: Send + 'static>(
        self,
        main: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let name = self.name.unwrap_or_else(|| "unnamed".into());
        let builder = std::thread::Builder::new().name(name.clone());
        let ending = Arc::<Mutex<Ending>>::default();
        let Some(current) = current() else {
            let thread = builder.spawn(main)?;
            return Ok(JoinHandle { thread, ending });
        };
        let run = current.run;
        let parker = Arc::<Parker>::default();
        let number = {
            let mut state = run.0.state.lock();
            state.add_thread(name, Arc::clone(&parker))
        };
        let started = Current {
            run,
            number,
            parker,
        };
        let of_thread = (started.clone(), Arc::clone(&ending));
        let thread = builder.spawn(move || {
            let (started, ending) = of_thread;
            started.parker.park();
            CURRENT.with(|current| *current.borrow_mut() = Some(started.clone()));
            let _ends = Ends {
                current: started,
                ending,
            };
            main()
        })?;
        started.wake();
        Ok(JoinHandle { thread, ending })
    }
}

impl<T> JoinHandle<T> {
    /// As the original.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        if let Some(current) = current() {
            loop {
                let mut ending = self.ending.lock();
                if ending.has_ended {
                    break;
                }
                ending.waiting.push(current.clone());
                drop(ending);
                current.wait(None, "the end of a thread");
            }
        }
        self.thread.join()
    }
}

/// As `std::thread::spawn`.
///
/// # Panics
/// If the operating system starts no thread.
pub fn spawn<T: Send + 'static>(main: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match Builder::new().spawn(main) {
        Ok(handle) => handle,
        Err(error) => unreachable!("a thread could not be started: {error}"),
    }
}

/// As `std::thread::yield_now`.
pub fn yield_now() {
    match current() {
        Some(current) => current.yield_now(),
        None => std::thread::yield_now(),
    }
}
