//! A `glintdb serve` of our own on a free port, and Redis' own programs against it.

use super::wait_until;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

pub(super) struct Server {
    child: Child,
    port: String,
}

impl Server {
    /// Starts `serve` (a command with its `--dir`) and waits until it answers.
    pub(super) fn start(mut command: Command) -> Result<Server, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free
            .map_err(|error| format!("no free port: {error}"))?
            .port()
            .to_string();
        let child = command
            .args(["--port", &port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("glintdb serve: {error}"))?;
        let server = Server { child, port };
        if wait_until(|| {
            server
                .cli(&["PING"])
                .is_ok_and(|answer| answer == b"PONG\n")
        }) {
            Ok(server)
        } else {
            Err("glintdb serve does not answer PING within ten seconds".into())
        }
    }

    /// What `redis-cli` prints for one command.
    pub(super) fn cli(&self, words: &[&str]) -> Result<Vec<u8>, String> {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port, "--raw"])
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("redis-cli: {error}"))?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(format!(
                "redis-cli: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))
        }
    }

    /// Starts `redis-benchmark` as the issue of this demonstration asks for it.
    pub(super) fn benchmark(&self) -> Result<Child, String> {
        Command::new("redis-benchmark")
            .args([
                "-p",
                &self.port,
                "-t",
                "set,get,incr,mset",
                "-P",
                "16",
                "-n",
                "500000",
                "-q",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("redis-benchmark: {error}"))
    }

    /// SIGTERM: it must end by itself, and well.
    pub(super) fn stop(mut self) -> Result<(), String> {
        let asked = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        asked.map_err(|error| format!("kill: {error}"))?;
        let mut status = None;
        wait_until(|| {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("glintdb serve ended with {status} after SIGTERM")),
            None => Err("glintdb serve does not end after SIGTERM".into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
