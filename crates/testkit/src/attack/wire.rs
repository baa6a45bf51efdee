//! The protocol as a client speaks it, honest or not. Not the server's code: written from the protocol's page.
//!
//! Thread safety: one thread a peer.

pub(super) use glintdb_server::fuzzing::encode;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    /// `None`: null.
    Bulk(Option<Vec<u8>>),
    /// `None`: null.
    Array(Option<Vec<Reply>>),
}

/// A connection.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

impl Peer {
    /// Connects; whoever waits for an answer waits for `patience`.
    pub(super) fn connect(address: SocketAddr, patience: Duration) -> Result<Peer, String> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, patience)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: std::io::Error| format!("connect: {error}"))?;
        Ok(Peer {
            stream,
            buffer: Vec::new(),
            start: 0,
        })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|error| format!("send: {error}"))
    }

    pub(super) fn ask<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, String> {
        self.send(&encode(command))?;
        self.receive()
    }

    /// The next answer.
    pub(super) fn receive(&mut self) -> Result<Reply, String> {
        let line = self.line()?;
        let (kind, text) = line.split_at_checked(1).ok_or("an empty line")?;
        let number = || {
            text.parse::<i64>()
                .map_err(|_| format!("no number in {line:?}"))
        };
        Ok(match kind {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut bytes = self.bytes(length + 2)?;
                    bytes.truncate(length);
                    Reply::Bulk(Some(bytes))
                }
                Err(_) => Reply::Bulk(None),
            },
            "*" => match usize::try_from(number()?) {
                Ok(length) => {
                    let items = (0..length).map(|_| self.receive());
                    Reply::Array(Some(items.collect::<Result<_, _>>()?))
                }
                Err(_) => Reply::Array(None),
            },
            _ => return Err(format!("what is {line:?}?")),
        })
    }

    /// Everything that comes until the other end closes, or nothing comes for the connection's patience: then `None`.
    pub(super) fn rest(&mut self) -> Option<Vec<u8>> {
        let mut all = self.buffer.split_off(self.start.min(self.buffer.len()));
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Some(all),
                Ok(count) => all.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return None;
                }
                // Reset: closed while something of ours was on its way.
                Err(_) => return Some(all),
            }
        }
    }

    fn line(&mut self) -> Result<String, String> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.start += end + 2;
                return Ok(line);
            }
            self.fill()?;
        }
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() - self.start < count {
            self.fill()?;
        }
        let bytes = self.buffer[self.start..self.start + count].to_vec();
        self.start += count;
        Ok(bytes)
    }

    fn fill(&mut self) -> Result<(), String> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error) => Err(format!("receive: {error}")),
        }
    }
}
