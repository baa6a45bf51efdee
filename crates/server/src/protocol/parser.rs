//! The request parser: takes commands out of a connection's read buffer as bytes arrive.
//!
//! Not shared between threads: one a connection. Invariants:
//! 1. No byte is looked at twice, however the bytes are split over reads: state, arguments found and the place searched up to are kept.
//! 2. Nothing is allocated for a length that was announced, only for bytes and arguments that arrived. 8 bytes an argument are kept beside the
//!    buffer; an argument takes at least 6 bytes of it.
//! 3. Arguments are spans of the buffer; nothing is copied.
//! 4. After an error the parser is not used again: the connection is closed.

use std::fmt;

use super::{Span, inline};

/// Most that a read buffer may be allowed to grow to, in bytes: 1 GiB, the default of Redis' `client-query-buffer-limit`.
pub(crate) const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Longest line: an inline command or a length, in bytes (Redis: `PROTO_INLINE_MAX_SIZE`).
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// An idle connection keeps so many places for arguments, and for commands.
const KEPT_SPANS_MAX: usize = 64;

/// What a request may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParserLimits {
    /// Largest argument, in bytes.
    pub(crate) bulk_bytes_max: usize,
    /// Most bytes of a command that is not whole yet.
    pub(crate) buffer_bytes_max: usize,
    /// Most arguments of a command.
    pub(crate) elements_max: usize,
    /// Before a client has shown its password less is taken, and refused in other words.
    pub(crate) authenticated: bool,
}

impl ParserLimits {
    /// What a client may send before it has authenticated, as in Redis: 10 arguments of 16 KiB, 1 MiB in all.
    pub(crate) const UNAUTHENTICATED: ParserLimits = ParserLimits {
        bulk_bytes_max: 16 << 10,
        buffer_bytes_max: 1 << 20,
        elements_max: 10,
        authenticated: false,
    };
}

/// A request that is not RESP, or beyond the limits. Displayed in Redis' words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProtocolError {
    MultibulkLength,
    UnauthenticatedMultibulkLength,
    BulkLength,
    UnauthenticatedBulkLength,
    ExpectedDollar(u8),
    MultibulkLineTooLong,
    BulkLineTooLong,
    InlineTooLong,
    UnbalancedQuotes,
    LineEnd,
    CommandTooLong,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            ProtocolError::MultibulkLength => f.write_str("invalid multibulk length"),
            ProtocolError::UnauthenticatedMultibulkLength => {
                f.write_str("unauthenticated multibulk length")
            }
            ProtocolError::BulkLength => f.write_str("invalid bulk length"),
            ProtocolError::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
            // An error is one line.
            ProtocolError::ExpectedDollar(b'\r' | b'\n') => f.write_str("expected '$', got ' '"),
            ProtocolError::ExpectedDollar(found) => {
                write!(f, "expected '$', got '{}'", found.escape_ascii())
            }
            ProtocolError::MultibulkLineTooLong => f.write_str("too big mbulk count string"),
            ProtocolError::BulkLineTooLong => f.write_str("too big bulk count string"),
            ProtocolError::InlineTooLong => f.write_str("too big inline request"),
            ProtocolError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::LineEnd => f.write_str("expected a line end"),
            ProtocolError::CommandTooLong => f.write_str("too big request"),
        }
    }
}

/// A complete command: `spans[first..first + count]`.
#[derive(Clone, Copy, Debug)]
struct Command {
    first: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between commands.
    Start,
    /// In an array, before the next argument's `$` line; so many are missing.
    BulkHeader(usize),
    /// In an argument of so many bytes; so many arguments, this one included, are missing.
    Bulk(usize, usize),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Parser {
    state: State,
    /// First byte that is not taken yet.
    position: usize,
    /// Up to here no line end was found.
    searched: usize,
    /// End of the last complete command.
    done: usize,
    spans: Vec<Span>,
    commands: Vec<Command>,
    /// First span of the command that is being read.
    first: usize,
    /// So many of `commands` have been executed.
    executed: usize,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Parser {
            state: State::Start,
            position: 0,
            searched: 0,
            done: 0,
            spans: Vec::new(),
            commands: Vec::new(),
            first: 0,
            executed: 0,
        }
    }

    /// Takes complete commands out of `buffer` until there are `commands_max` of them or the bytes are used up. What was complete before an error
    /// stays to be executed.
    pub(crate) fn parse(
        &mut self,
        buffer: &mut [u8],
        limits: &ParserLimits,
        commands_max: usize,
    ) -> Result<(), ProtocolError> {
        while self.commands.len() < commands_max && self.position < buffer.len() {
            let more = match self.state {
                State::Start => match buffer.get(self.position) {
                    Some(b'*') => self.array_header(buffer, limits)?,
                    _ => self.inline(buffer)?,
                },
                State::BulkHeader(missing) => self.bulk_header(buffer, limits, missing)?,
                State::Bulk(missing, length) => self.bulk(buffer, missing, length)?,
            };
            if !more {
                if buffer.len() - self.done >= limits.buffer_bytes_max {
                    return Err(ProtocolError::CommandTooLong);
                }
                break;
            }
        }
        Ok(())
    }

    /// Complete commands that were not executed yet, oldest first: the spans of each.
    pub(crate) fn commands(&self) -> impl ExactSizeIterator<Item = &[Span]> {
        self.commands[self.executed..].iter().map(|command| {
            let first = command.first as usize;
            &self.spans[first..first + command.count as usize]
        })
    }

    /// Notes that the next `count` commands were executed.
    pub(crate) fn executed(&mut self, count: usize) {
        self.executed += count;
        assert!(self.executed <= self.commands.len());
    }

    /// Forgets all complete commands and takes their bytes out of `buffer`.
    pub(crate) fn consume(&mut self, buffer: &mut Vec<u8>) {
        self.commands.clear();
        self.executed = 0;
        if self.done == 0 {
            return;
        }
        self.spans.drain(..self.first);
        self.first = 0;
        // A command that is half there starts at `done`, so its spans do not lie below it.
        let shift = offset(self.done);
        for span in &mut self.spans {
            span.start -= shift;
        }
        buffer.drain(..self.done);
        self.position -= self.done;
        self.searched = self.searched.saturating_sub(self.done);
        self.done = 0;
        if self.spans.capacity() > 4096 && self.spans.len() < 1024 {
            self.spans.shrink_to(1024);
        }
    }

    /// Bytes that the argument being read still misses: a hint for growing the buffer, never to be trusted beyond doubling.
    pub(crate) fn missing_bytes(&self, buffer: &[u8]) -> usize {
        match self.state {
            State::Bulk(_, length) => (self.position + length + 2).saturating_sub(buffer.len()),
            State::Start | State::BulkHeader(_) => 0,
        }
    }

    /// Gives an idle connection's memory back.
    pub(crate) fn release(&mut self) {
        if self.spans.is_empty() && self.spans.capacity() > KEPT_SPANS_MAX {
            self.spans = Vec::new();
        }
        if self.commands.is_empty() && self.commands.capacity() > KEPT_SPANS_MAX {
            self.commands = Vec::new();
        }
    }

    /// Memory held beside the buffer, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.commands.capacity() * size_of::<Command>()
    }

    /// The line from `position` on, if it has arrived: the position of its `\r` (or `\n`, when `bare`), with `position` left alone.
    fn line_end(&mut self, buffer: &[u8], end: u8) -> Option<usize> {
        let from = self.searched.max(self.position);
        let found = buffer
            .get(from..)
            .and_then(|rest| memchr::memchr(end, rest))
            .map(|at| from + at);
        self.searched = found.unwrap_or(buffer.len());
        found
    }

    /// A `*3` or `$5` line: the number in it, with `position` moved behind the line. `None`: it has not arrived whole.
    fn length_line(
        &mut self,
        buffer: &[u8],
        too_long: ProtocolError,
        invalid: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let Some(end) = self.line_end(buffer, b'\r') else {
            return if buffer.len() - self.position > LINE_BYTES_MAX {
                Err(too_long)
            } else {
                Ok(None)
            };
        };
        match buffer.get(end + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(ProtocolError::LineEnd),
        }
        let number = super::number::parse_i64(&buffer[self.position + 1..end]).ok_or(invalid)?;
        self.position = end + 2;
        Ok(Some(number))
    }

    fn array_header(
        &mut self,
        buffer: &[u8],
        limits: &ParserLimits,
    ) -> Result<bool, ProtocolError> {
        let Some(count) = self.length_line(
            buffer,
            ProtocolError::MultibulkLineTooLong,
            ProtocolError::MultibulkLength,
        )?
        else {
            return Ok(false);
        };
        if count <= 0 {
            // An empty command is no command, and has no answer.
            self.done = self.position;
            return Ok(true);
        }
        let count = usize::try_from(count).map_err(|_| ProtocolError::MultibulkLength)?;
        if count > limits.elements_max {
            return Err(if limits.authenticated {
                ProtocolError::MultibulkLength
            } else {
                ProtocolError::UnauthenticatedMultibulkLength
            });
        }
        self.state = State::BulkHeader(count);
        Ok(true)
    }

    fn bulk_header(
        &mut self,
        buffer: &[u8],
        limits: &ParserLimits,
        missing: usize,
    ) -> Result<bool, ProtocolError> {
        if buffer[self.position] != b'$' {
            return Err(ProtocolError::ExpectedDollar(buffer[self.position]));
        }
        let Some(length) = self.length_line(
            buffer,
            ProtocolError::BulkLineTooLong,
            ProtocolError::BulkLength,
        )?
        else {
            return Ok(false);
        };
        let length = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
        if length > limits.bulk_bytes_max {
            return Err(if limits.authenticated {
                ProtocolError::BulkLength
            } else {
                ProtocolError::UnauthenticatedBulkLength
            });
        }
        // Known to be too long before it is here: nothing of it needs to be kept.
        if self.position - self.done + length > limits.buffer_bytes_max {
            return Err(ProtocolError::CommandTooLong);
        }
        self.state = State::Bulk(missing, length);
        // An empty argument at the end of the bytes read so far: its line end is still to come.
        Ok(true)
    }

    fn bulk(
        &mut self,
        buffer: &[u8],
        missing: usize,
        length: usize,
    ) -> Result<bool, ProtocolError> {
        let end = self.position + length;
        let Some(line_end) = buffer.get(end..end + 2) else {
            return Ok(false);
        };
        if line_end != b"\r\n" {
            return Err(ProtocolError::LineEnd);
        }
        self.spans.push(Span {
            start: offset(self.position),
            len: offset(length),
        });
        self.position = end + 2;
        if missing == 1 {
            self.complete();
        } else {
            self.state = State::BulkHeader(missing - 1);
        }
        Ok(true)
    }

    fn inline(&mut self, buffer: &mut [u8]) -> Result<bool, ProtocolError> {
        let Some(newline) = self.line_end(buffer, b'\n') else {
            return if buffer.len() - self.position > LINE_BYTES_MAX {
                Err(ProtocolError::InlineTooLong)
            } else {
                Ok(false)
            };
        };
        if newline - self.position > LINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooLong);
        }
        let start = self.position;
        let end = match buffer[start..newline].last() {
            Some(b'\r') => newline - 1,
            _ => newline,
        };
        if !inline::split(buffer, start, end, &mut self.spans) {
            self.spans.truncate(self.first);
            return Err(ProtocolError::UnbalancedQuotes);
        }
        self.position = newline + 1;
        if self.spans.len() > self.first {
            self.complete();
        } else {
            self.done = self.position;
        }
        Ok(true)
    }

    fn complete(&mut self) {
        self.commands.push(Command {
            first: offset(self.first),
            count: offset(self.spans.len() - self.first),
        });
        self.first = self.spans.len();
        self.done = self.position;
        self.state = State::Start;
    }
}

/// An offset in a read buffer as 32 bits.
///
/// # Panics
/// Beyond 4 GiB, four times what a buffer may hold.
pub(crate) fn offset(value: usize) -> u32 {
    u32::try_from(value).expect("read buffers are kept below 4 GiB")
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
