//! The device: the process that serves it, FUSE mount, loop device, and a mounted file system; taken down in the other order.
//!
//! Thread-safe.
//!
//! Invariant: whatever becomes of the process, nothing of a disk is left. A child process, the guardian, waits for the end of a pipe that only this process holds, and then
//! takes down what is still there; where that is killed too, the next disk of any process does it.

use crate::connection::Connection;
use crate::fault::Fault;
use crate::image::Image;
use crate::leftovers::{self, PREFIX, TAKE_DOWN};
use crate::server::FILE;
use crate::tape::Tape;
use crate::wire::{Request, Wire};
use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use crate::server::Operations;

/// A file system that is in use is tried again so often, a hundredth of a second apart: the kernel lets go of closed io_uring files a little later.
const UNMOUNT_TRIES: u32 = 500;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// What this machine lacks for a disk, if anything.
///
/// # Errors
/// The reason.
pub fn missing() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("not root".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(device)
            .map_err(|error| format!("{device}: {error}"))?;
    }
    tool("losetup", &["--version"])?;
    tool("blockdev", &["--version"])?;
    Disk::new(1 << 20).map(drop)
}

/// Whether a program runs.
fn tool(name: &str, arguments: &[&str]) -> Result<(), String> {
    run(Command::new(name).args(arguments)).map(drop)
}

/// Runs a program; its standard output, or a sentence with what it said.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{name}: {}: {}", output.status, said.trim()))
    }
}

/// A block device in user space.
///
/// # Panics
/// Whatever asks the process that serves it: where that is gone, or does not answer.
pub struct Disk {
    dir: PathBuf,
    bytes: usize,
    device: Option<String>,
    connection: Option<Connection>,
    guardian: Option<Child>,
    mounted: Mutex<bool>,
}

impl Disk {
    /// A disk of zeros.
    ///
    /// # Errors
    /// A sentence: what the machine lacks.
    pub fn new(bytes: usize) -> Result<Disk, String> {
        leftovers::remove();
        let bytes = Image::zeroed(bytes).bytes();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = leftovers::place().join(format!("{PREFIX}{}-{number}", std::process::id()));
        let mut disk = Disk {
            dir,
            bytes,
            device: None,
            connection: None,
            guardian: None,
            mounted: Mutex::new(false),
        };
        // From here on `drop` takes down what is there.
        disk.set_up()?;
        Ok(disk)
    }

    fn set_up(&mut self) -> Result<(), String> {
        let fuse = self.dir.join("fuse");
        for dir in [&fuse, &self.mount_point()] {
            std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        self.guardian = Some(guard(&self.dir)?);
        self.connection = Some(Connection::new(&fuse, self.bytes)?);
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]);
        self.device = Some(run(losetup.arg(fuse.join(FILE)))?);
        Ok(())
    }

    /// The block device, as `/dev/loop0`.
    ///
    /// # Panics
    /// Never: a disk has one.
    #[must_use]
    pub fn device(&self) -> &str {
        self.device.as_deref().expect("set up by `new`")
    }

    /// Where [`mount`](Self::mount) mounts.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// Runs a program that makes a file system: the device's name is its last argument.
    ///
    /// # Errors
    /// A sentence.
    pub fn format(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        run(Command::new(program).args(arguments).arg(self.device())).map(drop)
    }

    /// Mounts the file system that is on it.
    ///
    /// # Errors
    /// A sentence.
    pub fn mount(&self, kind: &str, options: &str) -> Result<(), String> {
        let options = std::ffi::CString::new(options).map_err(|error| error.to_string())?;
        let mut mounted = self.mounted.lock();
        rustix::mount::mount(
            self.device(),
            self.mount_point(),
            kind,
            MountFlags::NOATIME,
            &*options,
        )
        .map_err(|error| format!("mount {kind}: {error}"))?;
        *mounted = true;
        Ok(())
    }

    /// Unmounts it; waits a little where it is in use.
    ///
    /// # Errors
    /// A sentence.
    pub fn unmount(&self) -> Result<(), String> {
        let mut mounted = self.mounted.lock();
        for _ in 0..UNMOUNT_TRIES {
            match rustix::mount::unmount(self.mount_point(), UnmountFlags::empty()) {
                Ok(()) => {
                    *mounted = false;
                    return Ok(());
                }
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(format!("unmount: {error}")),
            }
        }
        Err("unmount: in use for five seconds".into())
    }

    fn ask<T: Wire>(&self, request: &Request) -> T {
        let connection = self.connection.as_ref().expect("set up by `new`");
        let answer = connection.ask(request);
        answer.unwrap_or_else(|error| panic!("the process that serves the disk: {error}"))
    }

    /// The bytes as they are.
    #[must_use]
    pub fn image(&self) -> Image {
        self.ask(&Request::Image)
    }

    /// Other bytes, of the same size. Only while nothing is mounted: the kernel is made to forget what it knows of the old ones. It would by itself when the last
    /// user of the device is gone, but any program that lists loop devices may be one for a moment.
    ///
    /// # Errors
    /// A sentence, where the kernel does not forget.
    ///
    /// # Panics
    /// Where the size is another, or something is mounted.
    pub fn insert(&self, image: Image) -> Result<(), String> {
        assert!(!*self.mounted.lock(), "unmount first");
        assert_eq!(image.bytes(), self.bytes);
        tool("blockdev", &["--flushbufs", self.device()])?;
        self.ask::<()>(&Request::Insert(image));
        Ok(())
    }

    /// From now on everything is recorded.
    pub fn record(&self) {
        self.ask(&Request::Record)
    }

    /// How many writes and flushes are on the tape; 0 where nothing is recorded. What was acknowledged by the file system before this call is in front of that place.
    #[must_use]
    pub fn position(&self) -> usize {
        self.ask(&Request::Position)
    }

    /// Ends the recording.
    #[must_use]
    pub fn tape(&self) -> Option<Tape> {
        self.ask(&Request::Tape)
    }

    /// Plans a fault. One that loses what was written since the last flush counts from now.
    pub fn fail(&self, fault: Fault) {
        self.ask(&Request::Fail(fault))
    }

    /// Forgets all faults: the disk is sound again.
    pub fn repair(&self) {
        self.ask(&Request::Repair)
    }

    /// What it was asked to do so far.
    #[must_use]
    pub fn operations(&self) -> Operations {
        self.ask(&Request::Operations)
    }

    /// The process that serves it.
    #[must_use]
    pub fn server(&self) -> Option<u32> {
        self.connection.as_ref().map(Connection::server)
    }
}

/// A process that outlives this one, whatever ends it, by the time that taking down takes.
fn guard(dir: &Path) -> Result<Child, String> {
    let script = format!("cat >/dev/null; {TAKE_DOWN}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(dir);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // A group of its own: Ctrl-C does not reach it.
    command.process_group(0);
    command.spawn().map_err(|error| format!("sh: {error}"))
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.ask::<()>(&Request::Repair).ok();
        }
        if *self.mounted.get_mut() && self.unmount().is_err() {
            // Detached: it goes when its last user does.
            rustix::mount::unmount(self.mount_point(), UnmountFlags::DETACH).ok();
        }
        if let Some(device) = &self.device {
            run(Command::new("losetup").args(["--detach", device])).ok();
        }
        rustix::mount::unmount(self.dir.join("fuse"), UnmountFlags::DETACH).ok();
        // The process that serves it ends when the connection does.
        drop(self.connection.take());
        if let Some(mut guardian) = self.guardian.take() {
            // Its standard input ends, and it looks for what is left.
            if let Some(mut pipe) = guardian.stdin.take() {
                pipe.flush().ok();
            }
            guardian.wait().ok();
        }
    }
}
