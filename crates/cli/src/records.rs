//! Records as a user sees them: without the server's headers, and without keys that have expired.

use crate::exit::Failure;
use crate::output;
use glintdb::{Bytes, Keyspace};
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;
use glintdb_server::{RecordCodec, StoredValue};

/// The time, in milliseconds since 1970 UTC. A command asks once, so that no key expires while it
/// runs.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemClock::new().wall().as_millis()).unwrap_or(u64::MAX)
}

/// Reads the records of one keyspace as of one moment.
pub(crate) struct Records {
    codec: RecordCodec,
    now_ms: u64,
}

impl Records {
    /// The records of `keyspace` as of `now_ms`, milliseconds since 1970 UTC.
    pub(crate) fn of(keyspace: Keyspace, now_ms: u64) -> Result<Records, Failure> {
        Ok(Records {
            codec: RecordCodec::new(keyspace)?,
            now_ms,
        })
    }

    /// The keyspace.
    pub(crate) fn keyspace(&self) -> &Keyspace {
        self.codec.keyspace()
    }

    /// The value and the expiry of `key`; `None` where it is missing or has expired.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<StoredValue>, Failure> {
        match self.keyspace().get(key)? {
            Some(stored) => self.decode(key, stored),
            None => Ok(None),
        }
    }

    /// The value and the expiry in `stored`, which the keyspace has for `key`; `None` where it has
    /// expired.
    pub(crate) fn decode(&self, key: &[u8], stored: Bytes) -> Result<Option<StoredValue>, Failure> {
        let decoded = self
            .codec
            .decode(stored)
            .map_err(|error| error.context(format!("the value of `{}`", output::printable(key))))?;
        Ok(Some(decoded).filter(|decoded| !decoded.expired(self.now_ms)))
    }

    /// Whether a key may have expired and be in the keyspace all the same.
    pub(crate) fn may_hold_expired(&self) -> Result<bool, Failure> {
        Ok(self.codec.may_hold_expired(self.now_ms)?)
    }
}
