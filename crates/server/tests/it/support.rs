//! A server on a free port, and a client that reads answers with `resp-rs`, not with our own code.

pub(crate) use glintdb_server::fuzzing::encode;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use glintdb_server::{ServerConfig, ServerError, ServerEvent, Shutdown, run};
use resp_rs::resp3::{self, Frame};

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

impl TestServer {
    /// With the defaults, in a directory of its own that `dir` is told.
    pub(crate) fn start(dir: &Path) -> Self {
        TestServer::start_with(dir, |_| {})
    }

    pub(crate) fn start_with(dir: &Path, set: impl FnOnce(&mut ServerConfig)) -> Self {
        TestServer::serve(glintdb::Db::open(dir).unwrap(), set)
    }

    pub(crate) fn serve(db: glintdb::Db, set: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::default();
        config.port = 0;
        config.signals = false;
        let (told, address) = mpsc::channel();
        config.observer = Arc::new(move |event| {
            if let ServerEvent::Listening(address) = event {
                told.send(*address).unwrap();
            }
        });
        set(&mut config);
        let shutdown = Shutdown::new();
        let handle = shutdown.clone();
        let thread = std::thread::Builder::new()
            .spawn(move || run(db, config, &handle))
            .unwrap();
        TestServer {
            address: address.recv_timeout(Duration::from_secs(10)).unwrap(),
            shutdown,
            thread: Some(thread),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Stops the server and waits for it.
    pub(crate) fn stop(mut self) -> Result<(), ServerError> {
        self.shutdown.trigger();
        self.thread.take().unwrap().join().unwrap()
    }

    /// Waits for a server that was told to stop in another way.
    pub(crate) fn wait(mut self) -> Result<(), ServerError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    rest: Bytes,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            rest: Bytes::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next answer; `None` if the connection ends instead.
    pub(crate) fn try_receive(&mut self) -> Option<Frame> {
        loop {
            if let Ok((frame, rest)) = resp3::parse_frame(self.rest.clone()) {
                self.rest = rest;
                return Some(frame);
            }
            let mut buffer = vec![0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => {
                    let mut all = self.rest.to_vec();
                    all.extend_from_slice(&buffer[..count]);
                    self.rest = all.into();
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    pub(crate) fn receive(&mut self) -> Frame {
        self.try_receive().expect("the connection was closed")
    }

    pub(crate) fn frame<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Frame {
        self.send(&encode(command));
        self.receive()
    }

    /// Sends a command and shows its answer.
    pub(crate) fn run<A: AsRef<[u8]>>(&mut self, command: &[A]) -> String {
        show(&self.frame(command))
    }
}

/// An answer as text, in about the way redis-cli shows it.
pub(crate) fn show(frame: &Frame) -> String {
    let list = |items: &[Frame]| items.iter().map(show).collect::<Vec<_>>().join(", ");
    match frame {
        Frame::SimpleString(text) => String::from_utf8_lossy(text).into_owned(),
        Frame::Error(text) => format!("(error) {}", String::from_utf8_lossy(text)),
        Frame::Integer(number) => format!("(integer) {number}"),
        Frame::BulkString(Some(bytes)) => format!("\"{}\"", bytes.escape_ascii()),
        Frame::BulkString(None) | Frame::Array(None) => "(nil)".to_owned(),
        Frame::Null => "(null)".to_owned(),
        Frame::Array(Some(items)) => format!("[{}]", list(items)),
        Frame::Set(items) => format!("~[{}]", list(items)),
        Frame::Map(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| format!("{}: {}", show(key), show(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Frame::VerbatimString { payload } => format!("={}", payload.escape_ascii()),
        other => panic!("no server sends {other:?}"),
    }
}
