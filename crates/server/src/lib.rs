//! GlintDB's server: the Redis protocol (RESP2 and RESP3) over an open database.
//!
//! ```no_run
//! let db = glintdb::Db::open("data")?;
//! let mut config = glintdb_server::ServerConfig::default();
//! config.port = 6380;
//! glintdb_server::run(db, config, &glintdb_server::Shutdown::new())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the bytes up: `protocol` (RESP; knows no commands), `store` (databases, expiry, locks; knows no RESP), `command` (one file a family, and the table of them),
//! `session` (one client's state; decides which commands run together), `net` (sockets and threads).
//!
//! [`RecordCodec`] reads and writes records as the server stores them, for programs that open the
//! database while no server runs.
//!
//! **Architecture invariants** (absences): no other crate knows the Redis protocol; `protocol` knows no database and `store` no protocol; no command waits for
//! a client, and nothing is awaited while a lock is held.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")
)]

mod command;
mod config;
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod net;
mod pace;
mod protocol;
mod server;
mod session;
mod store;
mod value;

/// Compiles the examples of the server's page as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/server.md")]
struct Page;

pub use config::{ServerConfig, ServerError, ServerEvent};
pub use net::run;
pub use server::Shutdown;
pub use store::records::{EXPIRY_KEYSPACE, RecordCodec};
pub use value::StoredValue;
