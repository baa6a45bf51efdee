//! `serve`: the Redis-protocol server, until SIGTERM, SIGINT or a client's SHUTDOWN.

use crate::args::{Limits, Serve};
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;
use glintdb_server::{ServerConfig, ServerError, ServerEvent, Shutdown};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

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
    limit(&mut config, &arguments.limits);
    // Before a directory is made, too; the server binds it for itself.
    let address = SocketAddr::new(arguments.bind, arguments.port);
    drop(TcpListener::bind(address).map_err(|source| ServerError::Listen { address, source })?);
    glintdb_flash::give_back_freed_memory();
    let db = open::database(&arguments.place, arguments.durability, Missing::Create)?;
    glintdb_server::run(db, config, &Shutdown::new())?;
    Ok(())
}

fn limit(config: &mut ServerConfig, limits: &Limits) {
    let mib = |number: u32| (number as usize) << 20;
    let seconds = |number: u32| Duration::from_secs(number.into());
    config.clients_max = limits.maxclients;
    config.clients_bytes_max = mib(limits.maxmemory_clients);
    config.query_bytes_max = mib(limits.client_query_buffer_limit);
    if let [hard, soft, stall] = limits.client_output_buffer_limit[..] {
        config.output_bytes_hard_max = mib(hard);
        config.output_bytes_max = mib(soft);
        config.output_stall_max = seconds(stall);
    }
    config.idle_timeout = seconds(limits.timeout);
    config.auth_timeout = seconds(limits.auth_timeout);
    config.keepalive = seconds(limits.tcp_keepalive);
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
        ServerEvent::Released => glintdb_flash::trim_freed_memory(),
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
