//! What a server is told: [`ServerConfig`], and what it tells: [`ServerEvent`] and [`ServerError`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use glintdb::{Durability, KeyspaceOptions};
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;

use crate::protocol::parser::BUFFER_BYTES_MAX;
use crate::store::DATABASES_MAX;

/// Settings of a server. `ServerConfig::default()` is right for one machine: loopback, port 6380, no password.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Address to listen on. Default 127.0.0.1. Anything but a loopback address needs a password.
    pub bind: IpAddr,
    /// TCP port. Default 6380; 0 = one that is free, told by [`ServerEvent::Listening`].
    pub port: u16,
    /// What AUTH must show. Default none.
    pub password: Option<String>,
    /// How many databases SELECT can choose from, 1 to 1024. Default 16.
    pub databases: u32,
    /// How safe a change is when it is answered. Default `Os`.
    pub durability: Durability,
    /// Options of the keyspaces that the server creates. Default `KeyspaceOptions::default()`.
    pub keyspace_options: KeyspaceOptions,
    /// Most connections at once; further ones get an error. Default 10,000, or what the process may have open.
    pub clients_max: u32,
    /// Most memory of all connections together: requests that are not whole, commands queued by MULTI, watched keys, answers not yet taken. Above it the connection
    /// that holds most is closed. Default 1 GiB; 0 = no limit. (Redis: `maxmemory-clients`.)
    pub clients_bytes_max: usize,
    /// Largest request, in bytes, 1 MiB to 1 GiB. Default 1 GiB. (Redis: `client-query-buffer-limit`.)
    pub query_bytes_max: usize,
    /// A connection with so many bytes of answers not yet taken is not read from until it takes them. Default 64 MiB. (An eighth of it is all
    /// that each gets while all connections together hold more than four times as much.)
    pub output_bytes_max: usize,
    /// A connection is closed when the answers it has not taken would exceed this: one command can have a large answer. Default 1 GiB.
    pub output_bytes_hard_max: usize,
    /// A connection that has answers waiting, and takes nothing of them for so long, is closed. Default 60 s; zero = never.
    pub output_stall_max: Duration,
    /// A connection from which nothing came, and to which nothing went, for so long is closed. Default zero = never. (Redis: `timeout`.)
    pub idle_timeout: Duration,
    /// A connection that has not shown the password so long after it was made is closed. Default 60 s; zero = never.
    pub auth_timeout: Duration,
    /// The system probes a silent peer after so long, three times within as long again, and then the connection is dead. Default 300 s; zero = never. (Redis:
    /// `tcp-keepalive`.)
    pub keepalive: Duration,
    /// Threads that serve connections. Default: twice the cores, at least 4, so that one in a slow read or sync leaves others to serve.
    pub threads: usize,
    /// How long a stop waits for answers to be taken. Default 5 s.
    pub stop_grace: Duration,
    /// Stop on SIGTERM and SIGINT. Default true.
    pub signals: bool,
    /// The time of day, for expiry. Default [`SystemClock`].
    pub clock: Arc<dyn Clock>,
    /// Called with what happens, from any of the server's threads; must be quick. Default: nothing.
    pub observer: Arc<dyn Fn(&ServerEvent) + Send + Sync>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 6380,
            password: None,
            databases: 16,
            durability: Durability::Os,
            keyspace_options: KeyspaceOptions::default(),
            clients_max: 10_000,
            clients_bytes_max: 1 << 30,
            query_bytes_max: BUFFER_BYTES_MAX,
            output_bytes_max: 64 << 20,
            output_bytes_hard_max: 1 << 30,
            output_stall_max: Duration::from_secs(60),
            idle_timeout: Duration::ZERO,
            auth_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(300),
            threads: std::thread::available_parallelism()
                .map_or(4, |cores| cores.get() * 2)
                .max(4),
            stop_grace: Duration::from_secs(5),
            signals: true,
            clock: Arc::new(SystemClock::new()),
            observer: Arc::new(|_| {}),
        }
    }
}

/// Something a person may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// Connections are taken at this address from now on.
    Listening(SocketAddr),
    /// A stop has begun, for this reason.
    Stopping(&'static str),
    /// Something went wrong that the server lives with.
    Warning(String),
    /// Connections hold less than half of what they held at most (32 MiB at least) since the last event of this kind: a time to give freed memory back to the system.
    Released,
}

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A listener beyond this machine would let anyone in.
    #[error(
        "refusing to listen on {0} without a password: every host that reaches it could read and change everything. Set a password, or bind to 127.0.0.1"
    )]
    PasswordNeeded(IpAddr),
    /// A setting is out of its range.
    #[error("{0}")]
    InvalidConfig(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system refused something the server cannot do without.
    #[error("{what}: {source}")]
    Io {
        /// What it was.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The database could not be read, or not be closed cleanly.
    #[error(transparent)]
    Database(#[from] glintdb::Error),
}

impl ServerConfig {
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        if !self.bind.is_loopback() && self.password.as_deref().is_none_or(str::is_empty) {
            return Err(ServerError::PasswordNeeded(self.bind));
        }
        if !(1..=DATABASES_MAX).contains(&self.databases) {
            return Err(ServerError::InvalidConfig(format!(
                "the number of databases must be 1 to {DATABASES_MAX}, not {}",
                self.databases
            )));
        }
        if !(1 << 20..=BUFFER_BYTES_MAX).contains(&self.query_bytes_max) {
            return Err(ServerError::InvalidConfig(format!(
                "the limit on one request must be 1 MiB to 1 GiB, not {} bytes",
                self.query_bytes_max
            )));
        }
        if self.output_bytes_hard_max < self.output_bytes_max {
            return Err(ServerError::InvalidConfig(format!(
                "the hard limit on replies not yet taken ({} bytes) is below the soft limit ({} bytes)",
                self.output_bytes_hard_max, self.output_bytes_max
            )));
        }
        if self.clients_max == 0 || self.threads == 0 {
            return Err(ServerError::InvalidConfig(
                "a server needs at least one connection and one thread".to_owned(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_beyond_this_machine_needs_a_password() {
        let mut config = ServerConfig {
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ..ServerConfig::default()
        };
        assert!(matches!(
            config.check(),
            Err(ServerError::PasswordNeeded(_))
        ));
        config.password = Some(String::new());
        assert!(config.check().is_err());
        config.password = Some("secret".to_owned());
        assert!(config.check().is_ok());
        config.databases = 0;
        assert!(matches!(config.check(), Err(ServerError::InvalidConfig(_))));
        let invalid = |set: fn(&mut ServerConfig)| {
            let mut config = ServerConfig::default();
            set(&mut config);
            matches!(config.check(), Err(ServerError::InvalidConfig(_)))
        };
        assert!(!invalid(|_| {}));
        assert!(invalid(|config| config.query_bytes_max = 1000));
        assert!(invalid(|config| config.query_bytes_max = usize::MAX));
        assert!(invalid(|config| config.output_bytes_hard_max = 1 << 20));
    }

    #[test]
    fn defaults_are_as_documented() {
        let config = ServerConfig::default();
        assert!(config.bind.is_loopback());
        assert_eq!((config.port, config.databases), (6380, 16));
        assert_eq!(config.durability, Durability::Os);
        assert_eq!(config.clients_max, 10_000);
        assert_eq!(config.output_bytes_max, 64 << 20);
        assert_eq!(config.output_bytes_hard_max, 1 << 30);
        assert_eq!(config.clients_bytes_max, 1 << 30);
        assert_eq!(config.query_bytes_max, 1 << 30);
        assert_eq!(config.output_stall_max, Duration::from_secs(60));
        assert_eq!(config.auth_timeout, Duration::from_secs(60));
        assert_eq!(config.keepalive, Duration::from_secs(300));
        assert!(config.idle_timeout.is_zero());
        assert!(config.threads >= 4 && config.password.is_none() && config.signals);
    }
}
