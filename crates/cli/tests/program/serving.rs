//! `serve`: what it prints, where it listens, and a server for the other tests.

use crate::{fails, ok};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// `glintdb serve` on a free port.
pub(crate) struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// The line on standard error that describes it.
    pub(crate) ready: String,
    address: String,
}

impl Server {
    /// Starts it in `dir` and waits until it takes connections.
    pub(crate) fn start(dir: &Path, words: &[&str]) -> Server {
        Server::start_as(Command::new(env!("CARGO_BIN_EXE_glintdb")), dir, words)
    }

    /// [`start`](Self::start) of a command that runs the program with the words it gets.
    fn start_as(mut program: Command, dir: &Path, words: &[&str]) -> Server {
        let mut child = program
            .current_dir(dir)
            .args(["serve", "--port", "0"])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut ready = String::new();
        stderr.read_line(&mut ready).unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        let address = address.unwrap_or_else(|| panic!("{ready}")).to_owned();
        Server {
            child,
            stderr,
            ready,
            address,
        }
    }

    /// Sends commands on a connection of their own; all the answers.
    pub(crate) fn say(&self, commands: &[u8]) -> Vec<u8> {
        let mut client = TcpStream::connect(&self.address).unwrap();
        client.write_all(commands).unwrap();
        client.write_all(b"QUIT\r\n").unwrap();
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).unwrap();
        answers.strip_suffix(b"+OK\r\n").unwrap().to_vec()
    }

    /// Stops it; the rest of its standard error.
    pub(crate) fn stop(mut self) -> String {
        let killed = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(killed.unwrap().success() && self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Server {
    /// A test that fails leaves no server behind.
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn serve_describes_itself_when_it_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let words = ["--memory-mb", "64", "--durability", "sync"];
    let server = Server::start(&dir, &words);
    let head = format!(
        "glintdb {} serves {}: memory budget 64.00 MiB, durability sync, opened in ",
        env!("CARGO_PKG_VERSION"),
        dir.join("data").display()
    );
    let seconds = server.ready.trim().strip_prefix(&head);
    let seconds = seconds.and_then(|rest| rest.strip_suffix(" s"));
    let seconds: f64 = seconds
        .unwrap_or_else(|| panic!("{}", server.ready))
        .parse()
        .unwrap();
    assert!((0.0..60.0).contains(&seconds), "{}", server.ready);
    assert_eq!(server.stop(), "stopping: SIGTERM\n");
}

#[test]
fn a_server_can_be_bound_to_a_host_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let server = Server::start(dir, &["--bind", "localhost"]);
    assert!(
        server.address.starts_with("127.0.0.1:"),
        "{}",
        server.address
    );
    assert_eq!(server.say(b"SET key value\r\n"), b"+OK\r\n");
    server.stop();
    assert_eq!(ok(dir, &["get", "key"]), "value\n");
    // No name below `.invalid` has an address (RFC 2606).
    let unknown = ["serve", "--dir", "new", "--bind", "nowhere.invalid"];
    let (code, stderr) = fails(dir, &unknown);
    assert_eq!((code, stderr.lines().count()), (5, 1), "{stderr}");
    assert!(
        stderr.starts_with(
            "glintdb: `--bind nowhere.invalid` is neither an address nor a known host name: "
        ),
        "{stderr}"
    );
    assert!(!dir.join("new").exists());
}

/// A connection takes a descriptor, and so does a file of the database.
#[test]
fn serve_raises_the_limit_of_open_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 30; exec \"$0\" \"$@\""]);
    limited.arg(env!("CARGO_BIN_EXE_glintdb"));
    let server = Server::start_as(limited, dir.path(), &[]);
    let limits = format!("/proc/{}/limits", server.child.id());
    let limits = std::fs::read_to_string(limits).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = files.unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "soft and hard limit: {files:?}");
    assert_eq!(server.say(b"PING\r\n"), b"+PONG\r\n");
    server.stop();
}
