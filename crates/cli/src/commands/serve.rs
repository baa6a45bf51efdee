//! `serve`: the Redis-protocol server, until SIGTERM, SIGINT or a client's SHUTDOWN.

use crate::args::Serve;
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;
use glintdb_server::{ServerConfig, ServerError, ServerEvent, Shutdown};
use std::sync::Arc;

pub(super) fn run(arguments: &Serve) -> Result<(), Failure> {
    if !arguments.bind.is_loopback() && arguments.password.is_none() {
        // Before a directory is made.
        return Err(ServerError::PasswordNeeded(arguments.bind).into());
    }
    let mut config = ServerConfig::default();
    config.bind = arguments.bind;
    config.port = arguments.port;
    config.password.clone_from(&arguments.password);
    config.durability = arguments.durability;
    config.observer = Arc::new(tell);
    let db = open::database(&arguments.place, arguments.durability, Missing::Create)?;
    glintdb_server::run(db, config, &Shutdown::new())?;
    Ok(())
}

/// The address goes to standard output, for whoever started the server and waits; the rest to standard error.
fn tell(event: &ServerEvent) {
    match event {
        // Nobody may be reading; the server goes on all the same.
        ServerEvent::Listening(address) => {
            output::line(&format!("listening on {address}")).unwrap_or(())
        }
        ServerEvent::Stopping(reason) => output::note(&format!("stopping: {reason}")),
        ServerEvent::Warning(text) => output::complain(text),
        _ => {}
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Database(error) => Failure::Engine(error),
            ServerError::Listen { address, source } => {
                Failure::Io(format!("cannot listen on {address}"), source)
            }
            ServerError::Io { what, source } => Failure::Io(what.into(), source),
            other => Failure::Usage(other.to_string()),
        }
    }
}
