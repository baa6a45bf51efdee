//! One connection: reads, lets its session run what arrived, writes. One task; polled by one thread at a time.
//!
//! Invariants:
//! 1. It never waits while commands run: a command runs to its end and its answer is queued, then the task may sleep.
//! 2. Backpressure: while more than its share of answers is not taken, nothing is read and nothing run.
//! 3. While it waits for a request it holds no buffers, but the bytes of a request that is not whole, and answers not taken.
//! 4. After [`TURN_COMMANDS`] commands the others of its thread have their turn, however much there is to read.
//! 5. What it holds is in the server's figure, to [`UNCOUNTED_BYTES_MAX`].

use std::cell::RefCell;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use crate::protocol::output::{MayGrow, Output, SLICES_MAX};
use crate::protocol::parser::Parser;
use crate::server::{Client, Misdeed, Server};
use crate::session::{Next, Session};

/// A read asks for so many bytes at first, as Redis does.
const READ_BYTES: usize = 16 << 10;
/// A read that fills its buffer is followed by one twice as large, up to this.
const READ_BYTES_MAX: usize = 256 << 10;
/// A connection has its turn for so many commands: some milliseconds.
const TURN_COMMANDS: u64 = 1024;
/// Memory is counted anew when it has changed by more than this: small requests touch no shared figure.
const UNCOUNTED_BYTES_MAX: usize = 2 << 10;
/// All that a connection which has not shown its password may leave untaken of its answers.
const UNAUTHENTICATED_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The start of a request that is not whole is kept in a buffer of its own where it has no more bytes than this.
const KEPT_INPUT_BYTES_MAX: usize = 1 << 10;
/// Buffers a thread keeps for the next connection that needs one.
const SPARE_BUFFERS_MAX: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A command's answer counts while it is made, not only when it is whole.
fn may_grow(server: &Arc<Server>, client: &Arc<Client>) -> MayGrow {
    let (server, client) = (Arc::clone(server), Arc::clone(client));
    Box::new(move |more| {
        server.note_memory(&client, client.bytes.load(Ordering::Relaxed) + more);
        !client.is_killed()
    })
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
            output: Output::asking(
                server.config.output_bytes_hard_max,
                may_grow(&server, &client),
            ),
            server,
            client,
            stream,
            parser: Parser::new(),
            input: Vec::new(),
            read_bytes: READ_BYTES,
            next: Next::Input,
            pending_counted: 0,
        }
    }

    pub(super) async fn run(mut self) {
        let mut turn_began = 0;
        while let Step::Process = std::future::poll_fn(|cx| self.poll(cx)).await {
            let limit = self.output_bytes_max();
            self.next = self.session.process(
                &self.server,
                &mut self.parser,
                &mut self.input,
                &mut self.output,
                limit,
            );
            self.fit_input();
            self.count();
            if self.output.is_overflown() {
                if !self.client.is_killed() {
                    self.tell_overflow();
                }
                return;
            }
            if self.next == Next::Turn || self.session.executed - turn_began > TURN_COMMANDS {
                turn_began = self.session.executed;
                tokio::task::yield_now().await;
            }
        }
    }

    fn tell_overflow(&self) {
        let stats = &self.server.stats;
        stats.output_closed.fetch_add(1, Ordering::Relaxed);
        self.server.warn_of_peer(Misdeed::Output, || {
            format!(
                "closed {}: its replies would exceed {} bytes",
                self.client.address, self.server.config.output_bytes_hard_max
            )
        });
    }

    /// The share of memory that answers not yet taken may have.
    fn output_bytes_max(&self) -> usize {
        let most = self.server.config.output_bytes_max;
        if !self.session.authenticated {
            return most.min(UNAUTHENTICATED_OUTPUT_BYTES_MAX);
        }
        let all = self.server.stats.pending_bytes.load(Ordering::Relaxed);
        if all > most.saturating_mul(4) {
            most / 8
        } else {
            most
        }
    }

    /// Memory held for this client, its small buffers only as far as they are filled.
    fn bytes(&self) -> usize {
        let input = match self.input.capacity() {
            0..=READ_BYTES_MAX => self.input.len(),
            large => large,
        };
        input
            + self.parser.memory_bytes()
            + self.session.memory_bytes()
            + self.output.pending_bytes()
    }

    fn count(&mut self) {
        let pending = self.output.pending_bytes();
        if pending.abs_diff(self.pending_counted) > UNCOUNTED_BYTES_MAX {
            let total = &self.server.stats.pending_bytes;
            total.fetch_add(pending, Ordering::Relaxed);
            total.fetch_sub(self.pending_counted, Ordering::Relaxed);
            self.pending_counted = pending;
        }
        let bytes = self.bytes();
        let counted = self.client.bytes.load(Ordering::Relaxed);
        if bytes.abs_diff(counted) > UNCOUNTED_BYTES_MAX {
            self.server.note_memory(&self.client, bytes);
        }
        self.client.output_bytes.store(pending, Ordering::Relaxed);
        self.client
            .input_bytes
            .store(self.input.len(), Ordering::Relaxed);
    }

    /// A large request has gone, and a few bytes of the next have come with it: they need no large buffer.
    fn fit_input(&mut self) {
        let large = self.input.capacity() > 2 * READ_BYTES_MAX;
        if large && self.input.len() < self.input.capacity() / 4 {
            self.input.shrink_to(READ_BYTES_MAX);
        }
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
        if matches!(self.next, Next::Output | Next::Turn) {
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
        self.count();
        let stalled = &self.client.stalled_ms;
        if self.output.is_empty() {
            stalled.store(0, Ordering::Relaxed);
        } else if written > 0 || stalled.load(Ordering::Relaxed) == 0 {
            stalled.store(self.server.monotonic_ms(), Ordering::Relaxed);
        }
        if written > 0 {
            self.note_moved();
        }
        result
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.input.capacity() < READ_BYTES {
            let start = std::mem::take(&mut self.input);
            self.input = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
            self.input.extend_from_slice(&start);
        }
        // A large argument that is on its way: as much room again as has come, so that room follows bytes and not promises.
        let missing = self.parser.missing_bytes(&self.input);
        let room = self
            .read_bytes
            .max((missing + READ_BYTES).min(self.input.len()));
        if self.input.capacity() - self.input.len() < READ_BYTES / 2 {
            self.input.reserve_exact(room);
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
                self.note_moved();
                Poll::Ready(Step::Process)
            }
            Poll::Pending => {
                self.give_buffers_back();
                Poll::Pending
            }
        }
    }

    /// Only where somebody asks: reading the clock costs as much as a small command.
    fn note_moved(&self) {
        if !self.server.config.idle_timeout.is_zero() {
            let now_ms = self.server.monotonic_ms();
            self.client.moved_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    fn give_buffers_back(&mut self) {
        if self.output.is_empty() {
            self.output.release();
        }
        self.parser.release();
        if self.input.len() > KEPT_INPUT_BYTES_MAX || self.input.capacity() < READ_BYTES {
            return;
        }
        // Peers by the thousand may be in the middle of a small request.
        let start = self.input.as_slice().to_vec();
        let mut buffer = std::mem::replace(&mut self.input, start);
        if buffer.capacity() <= READ_BYTES_MAX {
            buffer.clear();
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_BUFFERS_MAX {
                    spare.push(buffer);
                }
            });
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // However the task ends, even by a panic or with the runtime.
        let stats = &self.server.stats;
        stats
            .pending_bytes
            .fetch_sub(self.pending_counted, Ordering::Relaxed);
        self.server.note_memory(&self.client, 0);
        self.session.end(&self.server);
    }
}
