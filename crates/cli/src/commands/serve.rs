//! `serve`: the Redis-protocol server, until SIGTERM, SIGINT or a client's SHUTDOWN.

use crate::args::{Limits, Serve};
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;
use glintdb::{Db, Options};
use glintdb_bench::{OnDevice, VolumeName};
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;
use glintdb_server::{ServerConfig, ServerError, ServerEvent, Shutdown};
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn run(arguments: &Serve) -> Result<(), Failure> {
    // All of this is refused before a directory is made.
    let options = open::options(&arguments.place, &arguments.engine)?;
    let mut options = options.durability(arguments.durability);
    if let Some(placement) = &arguments.placement {
        options.placement = placement.clone();
    }
    let bind = resolve(&arguments.bind)?;
    if !bind.is_loopback() && arguments.password.is_none() {
        return Err(ServerError::PasswordNeeded(bind).into());
    }
    let mut config = ServerConfig::default();
    config.bind = bind;
    config.port = arguments.port;
    config.password.clone_from(&arguments.password);
    config.durability = arguments.durability;
    config.keyspace_options = open::of_created(&arguments.created)?;
    limit(&mut config, &arguments.limits);
    // The server binds the address again, for itself.
    let address = SocketAddr::new(bind, arguments.port);
    drop(TcpListener::bind(address).map_err(|source| ServerError::Listen { address, source })?);
    glintdb_flash::give_back_freed_memory();
    // Before the database is opened, which needs some. The server does so again.
    glintdb_flash::raise_descriptor_limit();
    let budget = options.memory_budget_bytes as u64;
    let clock = SystemClock::new();
    let (db, place) = database(arguments, options)?;
    open::of_asked_kind(&db.default_keyspace(), &arguments.created)?;
    let opened = clock.monotonic();
    let ready = format!(
        "glintdb {} serves {place}: memory budget {}, durability {}, opened in {:.3} s",
        env!("CARGO_PKG_VERSION"),
        output::size_text(budget),
        arguments.durability,
        opened.as_secs_f64(),
    );
    config.observer = Arc::new(move |event| tell(event, &ready));
    glintdb_server::run(db, config, &Shutdown::new())?;
    Ok(())
}

/// The database, and what it is called in messages.
fn database(arguments: &Serve, options: Options) -> Result<(Db, String), Failure> {
    let dir = match &arguments.volume {
        None => arguments.place.dir.clone(),
        Some(VolumeName::Directories(path)) => path.clone(),
        Some(VolumeName::Emulator { profile, dir }) => {
            let device = OnDevice::open(profile, dir.as_deref(), options.placement.clone())?;
            let db = device.database(options)?;
            return Ok((db, format!("the modelled device {profile}")));
        }
    };
    let db = open::database(&dir, options, Missing::Create)?;
    let place = dir.canonicalize().unwrap_or(dir);
    Ok((db, place.display().to_string()))
}

/// The address that `--bind` names. Of several that a host name stands for, the first IPv4 address,
/// which is what clients try first or next.
fn resolve(host: &str) -> Result<IpAddr, Failure> {
    let addresses = (host, 0).to_socket_addrs().map_err(|error| {
        let what = format!("`--bind {host}` is neither an address nor a known host name");
        Failure::Io(what, error)
    })?;
    let addresses: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
    let first = addresses.iter().find(|address| address.is_ipv4());
    first
        .or(addresses.first())
        .copied()
        .ok_or_else(|| Failure::Usage(format!("the host name `{host}` has no address")))
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

/// Prints an event: the address on standard output, where a program that started the server waits
/// for it, all else on standard error. `ready` describes the server.
fn tell(event: &ServerEvent, ready: &str) {
    match event {
        ServerEvent::Listening(address) => {
            output::note(ready);
            // Where standard output is closed, the server goes on all the same.
            output::line(&format!("listening on {address}")).unwrap_or(());
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
