//! Records as the server stores them, for programs that open the database while no server runs:
//! `glintdb get`, `scan`, `put`, `export` and `import`.
//!
//! Invariant: a header is decoded in exactly those keyspaces into which the server writes headers,
//! and only once it has written one. Everywhere else a value is what is stored, even if it begins
//! like a header.

use bytes::Bytes;
use glintdb::{Batch, Error, Keyspace, KeyspaceOptions, Result};

use super::database_of;
use super::expiry::{self, EXPIRING_KEY_BYTES_MAX, index_key, is_any_due};
use crate::value::{StoredValue, encode, needs_header};

/// Name of the keyspace in which the server keeps the expiries of its keys, ordered by time. A
/// database has it from the first value on that is stored with a header.
pub const EXPIRY_KEYSPACE: &str = expiry::KEYSPACE;

/// Reads and writes the records of one keyspace: with their expiry where it is a keyspace of the
/// server, as they are stored where it is not.
///
/// A keyspace has values with headers if both hold: its name is that of a database of the server
/// (`default`, `redis-db1` to `redis-db1023`), and the database has the keyspace
/// [`EXPIRY_KEYSPACE`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use glintdb_server::{RecordCodec, StoredValue};
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// let mut codec = RecordCodec::new(db.default_keyspace())?;
/// let mut batch = glintdb::Batch::new();
/// let session = StoredValue { value: "ann".into(), expires_ms: Some(1_900_000_000_000) };
/// codec.put(&mut batch, b"session", &session)?;
/// db.write(batch)?;
/// let stored = db.get("session")?.expect("it was written");
/// assert_eq!(codec.decode(stored)?, session);
/// # Ok::<(), glintdb::Error>(())
/// ```
pub struct RecordCodec {
    keyspace: Keyspace,
    /// The database of the server whose keyspace this is.
    database: Option<u32>,
    /// The keyspace of expiries, if values may have headers.
    expiries: Option<Keyspace>,
}

impl RecordCodec {
    /// The codec for `keyspace`.
    ///
    /// # Errors
    /// The engine's, where the keyspace of expiries cannot be opened.
    pub fn new(keyspace: Keyspace) -> Result<RecordCodec> {
        let db = keyspace.db();
        let database = database_of(keyspace.name());
        let served =
            database.is_some() && db.keyspaces().iter().any(|name| name == EXPIRY_KEYSPACE);
        let expiries = match served {
            true => Some(db.keyspace(EXPIRY_KEYSPACE)?),
            false => None,
        };
        Ok(RecordCodec {
            keyspace,
            database,
            expiries,
        })
    }

    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The value and the expiry of what the keyspace holds under a key.
    ///
    /// # Errors
    /// As [`StoredValue::decode`].
    pub fn decode(&self, stored: Bytes) -> Result<StoredValue> {
        match self.expiries {
            Some(_) => StoredValue::decode(stored),
            None => Ok(StoredValue::plain(stored)),
        }
    }

    /// Whether the keyspace may hold a key that has expired at `now_ms` (milliseconds since 1970
    /// UTC) and is not removed yet. Where it holds none, keys can be listed without reading their
    /// values.
    ///
    /// # Errors
    /// The engine's, where the expiries cannot be read.
    pub fn may_hold_expired(&self, now_ms: u64) -> Result<bool> {
        match &self.expiries {
            Some(expiries) => is_any_due(expiries, now_ms),
            None => Ok(false),
        }
    }

    /// Adds a put of the record to `batch`, with a header where it needs one. Creates
    /// [`EXPIRY_KEYSPACE`] before the first header of the database.
    ///
    /// A record with `expires_ms` `None` is stored as the server would store it where the database
    /// has headers already, and as it is where it has none.
    ///
    /// # Errors
    /// `InvalidArgument` for a record with an expiry where the keyspace is none of the server's, or
    /// the key is longer than keys with an expiry can be; those of
    /// [`Db::create_keyspace`](glintdb::Db::create_keyspace).
    pub fn put(&mut self, batch: &mut Batch, key: &[u8], record: &StoredValue) -> Result<()> {
        let plain = self.expiries.is_none() && record.expires_ms.is_none();
        let expires_ms = record.expires_ms.unwrap_or(0);
        if plain || !needs_header(&record.value, expires_ms) {
            batch.put(&self.keyspace, key, &record.value);
            return Ok(());
        }
        let (database, expiries) = self.expiries_or_create()?;
        if expires_ms != 0 {
            if key.len() > EXPIRING_KEY_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "the key has {} bytes; one with an expiry has at most {EXPIRING_KEY_BYTES_MAX}",
                    key.len()
                )));
            }
            batch.put(expiries, index_key(database, key, expires_ms), []);
        }
        encode(&record.value, expires_ms, |stored| {
            batch.put(&self.keyspace, key, stored);
        });
        Ok(())
    }

    fn expiries_or_create(&mut self) -> Result<(u32, &Keyspace)> {
        let database = self.database.ok_or_else(|| {
            Error::invalid(format!(
                "keyspace {:?} takes no records with an expiry: only the server's keyspaces do, `default` and \
                 `redis-db1` to `redis-db1023`",
                self.keyspace.name()
            ))
        })?;
        let expiries = match self.expiries.take() {
            Some(expiries) => expiries,
            None => {
                let options = KeyspaceOptions::default();
                let db = self.keyspace.db();
                db.keyspace_or_create(EXPIRY_KEYSPACE, options)?
            }
        };
        Ok((database, self.expiries.insert(expiries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb::{Db, ErrorKind, Options};

    const LOOKALIKE: &[u8] = b"\xffGLINTV\x01\x02\0\0\0\0\0\0\0value";

    fn open() -> (tempfile::TempDir, Db) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().memory_budget_bytes(8 << 20);
        let db = options.open(dir.path().join("db")).unwrap();
        (dir, db)
    }

    fn record(value: &'static [u8], expires_ms: Option<u64>) -> StoredValue {
        StoredValue {
            value: Bytes::from_static(value),
            expires_ms,
        }
    }

    fn put(codec: &mut RecordCodec, key: &[u8], record: &StoredValue) -> Result<()> {
        let mut batch = Batch::new();
        codec.put(&mut batch, key, record)?;
        codec.keyspace().db().write(batch)
    }

    fn get(codec: &RecordCodec, key: &[u8]) -> StoredValue {
        let stored = codec.keyspace().get(key).unwrap().unwrap();
        codec.decode(stored).unwrap()
    }

    #[test]
    fn values_that_look_like_the_servers_are_plain_where_no_server_wrote() {
        let (_dir, db) = open();
        db.put("key", LOOKALIKE).unwrap();
        let mut codec = RecordCodec::new(db.default_keyspace()).unwrap();
        assert_eq!(get(&codec, b"key"), record(LOOKALIKE, None));
        put(&mut codec, b"copy", &record(LOOKALIKE, None)).unwrap();
        assert_eq!(db.get("copy").unwrap().as_deref(), Some(LOOKALIKE));
        assert_eq!(db.keyspaces(), ["default"]);
    }

    #[test]
    fn keyspaces_that_are_not_the_servers_stay_plain_beside_it() {
        let (_dir, db) = open();
        let mut served = RecordCodec::new(db.default_keyspace()).unwrap();
        put(&mut served, b"key", &record(b"value", Some(1000))).unwrap();
        let logs = db.create_keyspace("logs", KeyspaceOptions::default());
        let mut logs = RecordCodec::new(logs.unwrap()).unwrap();
        put(&mut logs, b"key", &record(LOOKALIKE, None)).unwrap();
        assert_eq!(get(&logs, b"key"), record(LOOKALIKE, None));
        assert!(!logs.may_hold_expired(2000).unwrap());
        let error = put(&mut logs, b"key", &record(b"value", Some(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("\"logs\""), "{error}");
    }

    #[test]
    fn records_of_the_server_keep_value_and_expiry() {
        let (_dir, db) = open();
        let mut codec = RecordCodec::new(db.default_keyspace()).unwrap();
        let records = [
            (&b"plain"[..], record(b"value", None)),
            (b"session", record(b"value", Some(90_000))),
            (b"odd", record(LOOKALIKE, Some(0))),
            (b"odd session", record(LOOKALIKE, Some(91_000))),
        ];
        for (key, record) in &records {
            put(&mut codec, key, record).unwrap();
        }
        let reopened = RecordCodec::new(db.default_keyspace()).unwrap();
        for (key, record) in &records {
            assert_eq!(get(&reopened, key), *record);
        }
        assert_eq!(db.get("plain").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(!reopened.may_hold_expired(89_999).unwrap());
        assert!(reopened.may_hold_expired(90_000).unwrap());
        // Without a header it would be taken for a value with an expiry.
        put(&mut codec, b"odd", &record(LOOKALIKE, None)).unwrap();
        assert_eq!(get(&codec, b"odd"), record(LOOKALIKE, Some(0)));
    }

    #[test]
    fn a_key_too_long_for_the_index_of_expiries_is_refused() {
        let (_dir, db) = open();
        let mut codec = RecordCodec::new(db.default_keyspace()).unwrap();
        let key = vec![b'k'; EXPIRING_KEY_BYTES_MAX + 1];
        let error = put(&mut codec, &key, &record(b"value", Some(1000))).unwrap_err();
        assert!(error.to_string().contains("at most 65524"), "{error}");
        put(&mut codec, &key, &record(b"value", None)).unwrap();
    }
}
