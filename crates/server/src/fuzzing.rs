//! Ways for fuzz targets to the parser and to a session without a socket. No part of the API.

use crate::config::{ServerConfig, ServerError};
use crate::protocol::Args;
use crate::protocol::output::Output;
use crate::protocol::parser::{BUFFER_BYTES_MAX, Parser, ParserLimits, ProtocolError};
use crate::server::{Client, Server, Shutdown};
use crate::session::{Next, Session};
use glintdb::Db;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Commands, each a list of arguments.
pub type Commands = Vec<Vec<Vec<u8>>>;

/// What a client with a password may send.
pub(crate) const LIMITS: ParserLimits = ParserLimits {
    bulk_bytes_max: 512 << 20,
    elements_max: 1 << 20,
    buffer_bytes_max: BUFFER_BYTES_MAX,
    authenticated: true,
};

/// A command as its client sends it.
#[must_use]
pub fn encode<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The commands in `pieces` that arrive one after another, taken `commands_max` at a time, and the error at their end.
#[must_use]
pub fn commands(
    pieces: &[&[u8]],
    commands_max: usize,
    authenticated: bool,
) -> (Commands, Option<String>) {
    let limits = match authenticated {
        true => &LIMITS,
        false => &ParserLimits::UNAUTHENTICATED,
    };
    let (commands, error) = feed(pieces, limits, commands_max);
    (commands, error.map(|error| error.to_string()))
}

/// The same within any limits.
pub(crate) fn feed(
    pieces: &[&[u8]],
    limits: &ParserLimits,
    commands_max: usize,
) -> (Commands, Option<ProtocolError>) {
    let mut parser = Parser::new();
    let mut buffer = Vec::new();
    let mut commands = Commands::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let result = parser.parse(&mut buffer, limits, commands_max);
            let found = parser.commands().len();
            commands.extend(parser.commands().map(|spans| {
                let args = Args::new(&buffer, spans);
                args.iter().map(<[u8]>::to_vec).collect()
            }));
            // What a command misses is a hint, and the buffer is never grown by more than there is.
            parser.missing_bytes(&buffer);
            parser.consume(&mut buffer);
            if let Err(error) = result {
                return (commands, Some(error));
            }
            if found < commands_max {
                break;
            }
        }
    }
    (commands, None)
}

/// One client and its server, without a socket between them.
pub struct Conversation {
    server: Server,
    client: Arc<Client>,
    session: Session,
    parser: Parser,
    input: Vec<u8>,
    output: Output,
    closed: bool,
}

impl Conversation {
    /// A first client of `db`.
    ///
    /// # Errors
    /// As [`run`](crate::run) gives them.
    pub fn new(db: Db, config: ServerConfig) -> Result<Conversation, ServerError> {
        let output = Output::new(config.output_bytes_hard_max);
        let server = Server::open(db, config, Shutdown::new())?;
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 6380));
        let Some(client) = server.register(here, here) else {
            return Err(ServerError::InvalidConfig("no clients are admitted".into()));
        };
        Ok(Conversation {
            session: Session::new(&server, Arc::clone(&client)),
            server,
            client,
            parser: Parser::new(),
            input: Vec::new(),
            output,
            closed: false,
        })
    }

    /// Sends bytes, and takes what is answered.
    pub fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        self.input.extend_from_slice(bytes);
        while !self.closed && !self.client.is_killed() {
            let next = self.session.process(
                &self.server,
                &mut self.parser,
                &mut self.input,
                &mut self.output,
                1 << 20,
            );
            let taken = self
                .output
                .take_from(self.output.position() - self.output.pending_bytes() as u64);
            answers.extend_from_slice(&taken);
            self.closed |= self.output.is_overflown();
            match next {
                Next::Input => break,
                Next::Output | Next::Turn => {}
                Next::Close => self.closed = true,
            }
        }
        answers
    }

    /// Whether the server would have closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed || self.client.is_killed()
    }

    /// Ends the session.
    pub fn end(mut self) {
        self.session.end(&self.server);
    }
}
