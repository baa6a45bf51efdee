//! One connection: reads, lets its session run what arrived, writes. One task; polled by one thread at a time.
//!
//! Invariants:
//! 1. It never waits while commands run: a command runs to its end and its answer is queued, then the task may sleep.
//! 2. Backpressure: while more than its share of answers is not taken, nothing is read and nothing run.
//! 3. While it waits for a request and owes nothing, it holds no buffers.

use std::cell::RefCell;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use crate::protocol::output::{Output, SLICES_MAX};
use crate::protocol::parser::Parser;
use crate::server::{Client, Server};
use crate::session::{Next, Session};

/// A read asks for so many bytes at first, as Redis does.
const READ_BYTES: usize = 16 << 10;
/// A read that fills its buffer is followed by one twice as large, up to this.
const READ_BYTES_MAX: usize = 256 << 10;
/// Buffers a thread keeps for the next connection that needs one.
const SPARE_BUFFERS_MAX: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// See the module.
pub(super) struct Connection {
    server: Arc<Server>,
    client: Arc<Client>,
    stream: TcpStream,
    session: Session,
    parser: Parser,
    input: Vec<u8>,
    output: Output,
    read_bytes: usize,
    next: Next,
    /// What of `output` is counted in the server's figure.
    pending_counted: usize,
}

enum Step {
    Process,
    End,
}

impl Connection {
    pub(super) fn new(server: Arc<Server>, client: Arc<Client>, stream: TcpStream) -> Self {
        Connection {
            session: Session::new(&server, Arc::clone(&client)),
            server,
            client,
            stream,
            parser: Parser::new(),
            input: Vec::new(),
            output: Output::default(),
            read_bytes: READ_BYTES,
            next: Next::Input,
            pending_counted: 0,
        }
    }

    pub(super) async fn run(mut self) {
        while let Step::Process = std::future::poll_fn(|cx| self.poll(cx)).await {
            let limit = self.output_bytes_max();
            self.next = self.session.process(
                &self.server,
                &mut self.parser,
                &mut self.input,
                &mut self.output,
                limit,
            );
            self.count_pending();
        }
    }

    /// The share of memory that answers not yet taken may have.
    fn output_bytes_max(&self) -> usize {
        let most = self.server.config.output_bytes_max;
        let all = self.server.stats.pending_bytes.load(Ordering::Relaxed);
        if all > most.saturating_mul(4) {
            most / 8
        } else {
            most
        }
    }

    fn count_pending(&mut self) {
        let pending = self.output.pending_bytes();
        let total = &self.server.stats.pending_bytes;
        total.fetch_add(pending, Ordering::Relaxed);
        total.fetch_sub(self.pending_counted, Ordering::Relaxed);
        self.pending_counted = pending;
        self.client.output_bytes.store(pending, Ordering::Relaxed);
        self.client
            .input_bytes
            .store(self.input.len(), Ordering::Relaxed);
    }

    /// Writes and reads what can be; ready when there is something to run, or nothing more to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        self.client.waker.register(cx.waker());
        if self.client.is_killed() {
            return Poll::Ready(Step::End);
        }
        if !self.output.is_empty() {
            match self.poll_write(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Step::End),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        let stopping = self.server.stopping.load(Ordering::Acquire);
        if self.next == Next::Close || stopping {
            return match self.output.is_empty() {
                true => Poll::Ready(Step::End),
                false => Poll::Pending,
            };
        }
        if self.output.pending_bytes() > self.output_bytes_max() {
            return Poll::Pending;
        }
        if self.next == Next::Output {
            return Poll::Ready(Step::Process);
        }
        self.poll_read(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut result = Poll::Ready(Ok(()));
        let mut written = 0;
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.output.slices(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(bytes)) => {
                    self.output.advance(bytes);
                    written += bytes as u64;
                }
                Poll::Ready(Err(error)) => {
                    result = Poll::Ready(Err(error));
                    break;
                }
                Poll::Pending => {
                    result = Poll::Pending;
                    break;
                }
            }
        }
        let total = &self.server.stats.output_bytes;
        total.fetch_add(written, Ordering::Relaxed);
        self.count_pending();
        result
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.input.capacity() == 0 {
            self.input = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        // A large argument that is on its way: as much room again as has come, so that room follows bytes and not promises.
        let missing = self.parser.missing_bytes(&self.input);
        let room = self.read_bytes.max(missing.min(self.input.len()));
        if self.input.capacity() - self.input.len() < room.min(READ_BYTES) {
            self.input.reserve(room);
        }
        let before = self.input.len();
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        match read {
            Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                // The client sends no more; what it is still owed is sent.
                self.next = Next::Close;
                match self.output.is_empty() {
                    true => Poll::Ready(Step::End),
                    false => Poll::Pending,
                }
            }
            Poll::Ready(Ok(bytes)) => {
                let full = self.input.len() == self.input.capacity();
                self.read_bytes = match full {
                    true => (self.read_bytes * 2).min(READ_BYTES_MAX),
                    false if bytes < self.read_bytes / 4 => READ_BYTES,
                    false => self.read_bytes,
                };
                let total = &self.server.stats.input_bytes;
                total.fetch_add((self.input.len() - before) as u64, Ordering::Relaxed);
                Poll::Ready(Step::Process)
            }
            Poll::Pending => {
                self.give_buffers_back();
                Poll::Pending
            }
        }
    }

    fn give_buffers_back(&mut self) {
        if self.output.is_empty() {
            self.output.release();
        }
        if self.input.is_empty() && self.input.capacity() > 0 {
            let buffer = std::mem::take(&mut self.input);
            if buffer.capacity() <= READ_BYTES_MAX {
                SPARE.with_borrow_mut(|spare| {
                    if spare.len() < SPARE_BUFFERS_MAX {
                        spare.push(buffer);
                    }
                });
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // However the task ends, even by a panic or with the runtime.
        self.server
            .stats
            .pending_bytes
            .fetch_sub(self.pending_counted, Ordering::Relaxed);
        self.session.end(&self.server);
    }
}
