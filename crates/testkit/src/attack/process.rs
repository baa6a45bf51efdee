//! The server under attack: the real program, and what the system says of it.
//!
//! Thread safety: figures may be asked from any thread.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What clients must show.
pub(super) const PASSWORD: &str = "a password that nobody guesses";
/// The engine's memory.
const ENGINE_MIB: u64 = 64;
/// Memory of all connections together.
const CLIENTS_MIB: u64 = 128;
/// What commands read and make while they run (16 MiB of values a group, up to 96 MiB for one command, a dozen at once), what the allocator keeps, the program itself.
const BESIDE_MIB: u64 = 640;
/// What the process may hold at most.
pub(super) const RSS_BYTES_MAX: u64 = (ENGINE_MIB + CLIENTS_MIB + BESIDE_MIB) << 20;
/// What it may hold when everybody has left.
pub(super) const RSS_BYTES_AFTER: u64 = (ENGINE_MIB + 192) << 20;
/// Connections that honest clients have beside the peers.
const SPARE_CLIENTS: usize = 1000;

/// The process; killed when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) rss_bytes: u64,
    pub(super) threads: u64,
    pub(super) sockets: u64,
}

impl Server {
    /// Starts `program` on `dir`, with small limits.
    pub(super) fn start(program: &Path, dir: &Path, peers: usize) -> Result<Server, String> {
        let number = |number: u64| number.to_string();
        let mut child = Command::new(program)
            .args(["serve", "--port", "0", "--dir"])
            .arg(dir)
            .args(["--memory-mb", &number(ENGINE_MIB)])
            .args(["--maxmemory-clients", &number(CLIENTS_MIB)])
            .args(["--client-query-buffer-limit", "32"])
            .args(["--client-output-buffer-limit", "96", "8", "5"])
            .args(["--auth-timeout", "3", "--tcp-keepalive", "10"])
            .args(["--maxclients", &(peers + SPARE_CLIENTS).to_string()])
            .env("GLINTDB_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|address| address.parse().ok());
        match (read, address) {
            (Ok(_), Some(address)) => Ok(Server { child, address }),
            (read, _) => {
                child.kill().ok();
                child.wait().ok();
                Err(format!("the server did not start: {read:?} {line:?}"))
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM; it must end well within `patience`.
    pub(super) fn stop(mut self, patience: Duration) -> Result<(), String> {
        if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("the server ended by itself: {status}"));
        }
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or("no process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| format!("SIGTERM: {error}"))?;
        let start = Instant::now();
        while start.elapsed() < patience {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the server ended with {status}")),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Err(format!("the server did not stop within {patience:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What process `id` holds, as the kernel counts it; `None` once it has ended.
pub(super) fn figures(id: u32) -> Option<Figures> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let sockets = std::fs::read_dir(format!("/proc/{id}/fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count();
    Some(Figures {
        rss_bytes: field("VmRSS:")? << 10,
        threads: field("Threads:")?,
        sockets: sockets as u64,
    })
}

/// Lets this process have as many files open as the system allows; how many.
pub(super) fn raise_file_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => now.maximum.unwrap_or(u64::MAX),
        Err(_) => now.current.unwrap_or(u64::MAX),
    }
}
