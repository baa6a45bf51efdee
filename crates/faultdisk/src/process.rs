//! The process that serves a disk. It is one of its own because whoever works on the file system may wait for the disk in a page fault, with its memory map locked: what serves
//! the disk must not need that lock to go on.
//!
//! Threads: fuser's, which serves the disk; the main thread answers what comes through the socket, which is its standard input.
//!
//! Invariants: 1. nothing here touches a file after the mounting. 2. When nobody holds the other end of the socket any more the process ends, and with it the connection to the
//! kernel: what still waits for the disk gets an error.

use crate::leftovers::PREFIX;
use crate::server::{Server, State};
use crate::wire::{Request, Wire};
use fuser::{BackgroundSession, Config, MountOption};
use parking_lot::Mutex;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// The program: serves a disk of so many bytes (second argument) in a directory (first), until the socket ends.
#[must_use]
pub fn serve() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, bytes] = &arguments[..] else {
        return ExitCode::from(2);
    };
    match serve_in(Path::new(dir), bytes) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn serve_in(dir: &Path, bytes: &str) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    std::env::set_current_dir("/")?;
    // To get memory it should not wait for a file system either, which may be the one on its disk. Threads inherit that; not every root may ask for it.
    rustix::process::configure_io_flusher_behavior(true).ok();
    let state = State::new(bytes.parse().map_err(io::Error::other)?);
    let state = Arc::new(Mutex::new(state));
    let mounted = mount(&state, dir).map_err(|error| format!("mount FUSE: {error}"));
    let mut to = BufWriter::new(&socket);
    mounted.as_ref().err().cloned().put(&mut to)?;
    to.flush()?;
    // Who has made the disk unmounts it, or the guardian: that may wait for others.
    let _session = std::mem::ManuallyDrop::new(mounted);
    answer(&state, &mut BufReader::new(&socket), &mut to)
}

fn mount(state: &Arc<Mutex<State>>, dir: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName(PREFIX.trim_end_matches('-').into())];
    let bytes = state.lock().image.bytes();
    let state = Arc::clone(state);
    fuser::spawn_mount(Server { state, bytes }, dir, &config)
}

/// Answers until the socket ends.
fn answer(state: &Mutex<State>, from: &mut impl io::Read, to: &mut impl Write) -> io::Result<()> {
    loop {
        match Request::get(from)? {
            Request::Image => tell(state, to, |state| state.image.clone()),
            Request::Insert(image) => change(state, to, |state| state.insert(image)),
            Request::Record => change(state, to, State::record),
            Request::Position => tell(state, to, |state| state.position()),
            Request::Tape => tell(state, to, |state| state.tape.take()),
            Request::Fail(fault) => change(state, to, |state| state.fail(fault)),
            Request::Repair => change(state, to, |state| state.faults.clear()),
            Request::Operations => tell(state, to, |state| state.operations),
        }?;
        to.flush()?;
    }
}

/// Sends something of the state, which is not locked meanwhile.
fn tell<T: Wire>(
    state: &Mutex<State>,
    to: &mut impl Write,
    get: impl FnOnce(&mut State) -> T,
) -> io::Result<()> {
    let value = get(&mut state.lock());
    value.put(to)
}

/// Changes the state, and says that it was done.
fn change(
    state: &Mutex<State>,
    to: &mut impl Write,
    change: impl FnOnce(&mut State),
) -> io::Result<()> {
    change(&mut state.lock());
    ().put(to)
}
