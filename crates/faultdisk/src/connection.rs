//! The other end of the process that serves a disk.
//!
//! Thread-safe: one asks after the other.

use crate::wire::{Request, Wire};
use parking_lot::Mutex;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program; it stands beside this one, or beside the directory of tests that this one is in.
const PROGRAM: &str = "glint-disk";
/// Whoever serves a disk reads and answers within this time.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// It is looked so often whether it has ended, a hundredth of a second apart.
const END_LOOKS: u32 = 500;

/// A process that serves a disk, until this is dropped.
pub(crate) struct Connection {
    ends: Mutex<Ends>,
    process: Child,
}

struct Ends {
    from: BufReader<UnixStream>,
    to: BufWriter<UnixStream>,
}

impl Ends {
    fn ask<T: Wire>(&mut self, request: &Request) -> io::Result<T> {
        request.put(&mut self.to)?;
        self.to.flush()?;
        T::get(&mut self.from)
    }
}

fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut beside = own.ancestors().skip(1).take(2).map(|dir| dir.join(PROGRAM));
    let found = beside.find(|path| path.is_file());
    found.ok_or_else(|| format!("{PROGRAM} does not stand beside {}", own.display()))
}

impl Connection {
    /// A disk of so many zeros, served in this directory.
    pub(crate) fn new(dir: &Path, bytes: usize) -> Result<Connection, String> {
        let failed = |error: io::Error| format!("{PROGRAM}: {error}");
        let (socket, other) = UnixStream::pair().map_err(failed)?;
        socket.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        socket.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        let mut command = Command::new(program()?);
        command.arg(dir).arg(bytes.to_string());
        command.stdin(Stdio::from(OwnedFd::from(other)));
        // Nobody waits for what it prints; and Ctrl-C does not reach it: it serves as long as the file system may be used.
        command.stdout(Stdio::null()).process_group(0);
        let process = command.spawn().map_err(failed)?;
        // It has the other end alone, and where it ends too early this one reads that.
        drop(command);
        let to = BufWriter::new(socket.try_clone().map_err(failed)?);
        let from = BufReader::new(socket);
        let ends = Mutex::new(Ends { from, to });
        let connection = Connection { ends, process };
        let refused = Option::get(&mut connection.ends.lock().from);
        match refused.map_err(failed)? {
            None => Ok(connection),
            Some(reason) => Err(reason),
        }
    }

    /// The process.
    pub(crate) fn server(&self) -> u32 {
        self.process.id()
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<T: Wire>(&self, request: &Request) -> io::Result<T> {
        let mut ends = self.ends.lock();
        let answer = ends.ask(request);
        if answer.is_err() {
            // What comes now would be taken for the answer to another question.
            ends.from.get_ref().shutdown(Shutdown::Both).ok();
        }
        answer
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let socket = self.ends.get_mut().from.get_ref();
        socket.shutdown(Shutdown::Both).ok();
        for _ in 0..END_LOOKS {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process.kill().ok();
    }
}
