//! How the server stores a value: as it is, or behind a header that holds the expiry.
//!
//! A value without an expiry is stored as it is. So the server serves what `glintdb import` or a
//! program has written, and a program can read what clients set. Only a value with an expiry, or
//! one that begins like a header, has a header:
//!
//! | OFFSET | SIZE | FIELD |
//! |---|---|---|
//! | 0 | 7 | magic `ff 47 4c 49 4e 54 56` (`\xffGLINTV`) |
//! | 7 | 1 | version, 1 |
//! | 8 | 8 | expiry: milliseconds since 1970 UTC, little-endian; 0 = none |
//! | 16 | | the value |
//!
//! The engine's checksums cover both. A header of an unknown version, or one cut short, is an
//! error, never a value.
//!
//! This module alone knows the header, and [`store::records`](crate::store::records) says which
//! keyspaces have it.

use bytes::Bytes;
use glintdb::{Error, ErrorKind, Result};

const MAGIC: [u8; 7] = *b"\xffGLINTV";
const VERSION: u8 = 1;

/// Length of the header, in bytes.
pub(crate) const HEADER_BYTES: usize = 16;

/// A value and its expiry, as the server stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The value, without a header.
    pub value: Bytes,
    /// The expiry in the header, in milliseconds since 1970 UTC. `None`: the value has no header.
    /// `Some(0)`: it has one, because it begins like one, and never expires.
    pub expires_ms: Option<u64>,
}

impl StoredValue {
    /// A value without a header.
    #[must_use]
    pub fn plain(value: Bytes) -> StoredValue {
        StoredValue {
            value,
            expires_ms: None,
        }
    }

    /// Splits a stored value of a keyspace of the server into header and value.
    ///
    /// # Errors
    /// `UnsupportedFormat` for a header of another version, `Corruption` for one that is cut short.
    pub fn decode(stored: Bytes) -> Result<StoredValue> {
        if !stored.starts_with(&MAGIC) {
            return Ok(StoredValue::plain(stored));
        }
        let mut expiry = [0; 8];
        match stored.get(MAGIC.len()..HEADER_BYTES) {
            Some([VERSION, bytes @ ..]) => expiry.copy_from_slice(bytes),
            Some([version, ..]) => {
                return Err(Error::new(
                    ErrorKind::UnsupportedFormat,
                    format!("value header of version {version}, this server knows {VERSION}"),
                ));
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Corruption,
                    format!(
                        "value header of {HEADER_BYTES} bytes expected, value has {}",
                        stored.len()
                    ),
                ));
            }
        }
        Ok(StoredValue {
            value: stored.slice(HEADER_BYTES..),
            expires_ms: Some(u64::from_le_bytes(expiry)),
        })
    }

    /// Whether the value has expired at `now_ms`, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn expired(&self, now_ms: u64) -> bool {
        let expires_ms = self.expires_ms.unwrap_or(0);
        expires_ms != 0 && expires_ms <= now_ms
    }
}

/// Whether `value` is stored with a header.
pub(crate) fn needs_header(value: &[u8], expires_ms: u64) -> bool {
    expires_ms != 0 || value.starts_with(&MAGIC)
}

/// Calls `store` with the bytes to be stored for `value`. Copies the value only where it needs a
/// header.
pub(crate) fn encode<T>(value: &[u8], expires_ms: u64, store: impl FnOnce(&[u8]) -> T) -> T {
    if !needs_header(value, expires_ms) {
        return store(value);
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + value.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(&expires_ms.to_le_bytes());
    bytes.extend_from_slice(value);
    store(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_is_laid_out_as_documented() {
        let stored = encode(b"v", 0x0102, <[u8]>::to_vec);
        assert_eq!(stored, b"\xffGLINTV\x01\x02\x01\0\0\0\0\0\0v");
        assert_eq!(encode(b"plain", 0, <[u8]>::to_vec), b"plain");
    }

    #[test]
    fn strange_headers_are_errors() {
        let kind = |bytes: &'static [u8]| {
            StoredValue::decode(Bytes::from_static(bytes))
                .unwrap_err()
                .kind()
        };
        assert_eq!(kind(b"\xffGLINTV"), ErrorKind::Corruption);
        assert_eq!(kind(b"\xffGLINTV\x01\0\0"), ErrorKind::Corruption);
        assert_eq!(
            kind(b"\xffGLINTV\x02\0\0\0\0\0\0\0\0"),
            ErrorKind::UnsupportedFormat
        );
    }

    proptest! {
        #[test]
        fn prop_values_come_back(headed: bool, rest in prop::collection::vec(any::<u8>(), 0..40), expires_ms: u64) {
            let mut value = if headed { MAGIC.to_vec() } else { Vec::new() };
            value.extend_from_slice(&rest);
            let stored = Bytes::from(encode(&value, expires_ms, <[u8]>::to_vec));
            let decoded = StoredValue::decode(stored).unwrap();
            prop_assert_eq!(&decoded.value[..], &value[..]);
            prop_assert_eq!(decoded.expires_ms.is_some(), needs_header(&value, expires_ms));
            prop_assert_eq!(decoded.expires_ms.unwrap_or(0), expires_ms);
        }
    }
}
