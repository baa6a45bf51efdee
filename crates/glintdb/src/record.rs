//! What the cache has of a separated value: before the value whose it is, so that who found it by something weaker than its pointer can tell.
//!
//! Layout: keyspace (u32), length of the key (u8), key, zeros up to a multiple of 8 bytes; the value. Where nobody knew the key, or it is longer than 255 bytes, the keyspace is `u32::MAX`, which none has, and the key is empty. What
//! was too large for the cache stands without all this, so whoever has the pointer takes its `length` from the end.

use bytes::{Buf, Bytes};
use glintdb_core::{KeyspaceId, ValuePointer};

/// Keyspace and length of the key.
const HEAD_BYTES: usize = 5;
const NOBODY: Owner<'_> = Owner {
    keyspace: KeyspaceId(u32::MAX),
    key: &[],
};

/// Whose a value is.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    keyspace: KeyspaceId,
    key: &'a [u8],
}

impl<'a> Owner<'a> {
    pub(crate) fn new(keyspace: KeyspaceId, key: &'a [u8]) -> Self {
        match key.len() {
            0..=255 => Owner { keyspace, key },
            _ => NOBODY,
        }
    }

    /// Of a value whose key is not at hand.
    pub(crate) fn unknown() -> Self {
        NOBODY
    }

    /// Whether records say that they are its.
    pub(crate) fn is_known(&self) -> bool {
        self.keyspace != NOBODY.keyspace
    }

    /// Calls `with` with the parts of a record of `value`.
    pub(crate) fn record<T>(&self, value: &[u8], with: impl FnOnce(&[&[u8]]) -> T) -> T {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&self.keyspace.0.to_le_bytes());
        head[4] = u8::try_from(self.key.len()).unwrap_or(0);
        let zeros = self.bytes_before() - HEAD_BYTES - self.key.len();
        with(&[&head, self.key, &[0; 8][..zeros], value])
    }

    /// Bytes before the value.
    fn bytes_before(&self) -> usize {
        (HEAD_BYTES + self.key.len()).next_multiple_of(8)
    }

    /// Whether `record` is its.
    #[inline]
    pub(crate) fn has(&self, record: &[u8]) -> bool {
        let Some((head, rest)) = record.split_at_checked(HEAD_BYTES) else {
            return false;
        };
        let its = head[..4] == self.keyspace.0.to_le_bytes()
            && usize::from(head[4]) == self.key.len()
            && rest.starts_with(self.key);
        its && self.is_known()
    }

    /// The value of a record that it [has](Self::has).
    #[inline]
    pub(crate) fn value_in(&self, mut record: Bytes) -> Bytes {
        record.advance(self.bytes_before().min(record.len()));
        record
    }
}

/// The value that `pointer` points to, of its record.
#[inline]
pub(crate) fn value_at(pointer: &ValuePointer, mut record: Bytes) -> Bytes {
    let before = record.len().saturating_sub(pointer.length as usize);
    record.advance(before);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::SegmentId;

    fn record(of: &Owner<'_>, value: &[u8]) -> Bytes {
        of.record(value, |parts| parts.concat()).into()
    }

    #[test]
    fn a_record_is_its_owners_alone_and_gives_the_value_back() {
        let keys: Vec<Vec<u8>> = (0..=300).map(|length| vec![7; length]).collect();
        for key in &keys {
            for value in [&b""[..], b"v", &[9; 1000]] {
                let of = Owner::new(KeyspaceId(3), key);
                let it = record(&of, value);
                let known = key.len() < 256;
                assert_eq!(of.has(&it), known);
                if known {
                    assert_eq!(of.value_in(it.clone()), value);
                }
                for other in &keys {
                    let its = Owner::new(KeyspaceId(3), other).has(&it);
                    assert_eq!(its, known && other == key);
                }
                assert!(!Owner::new(KeyspaceId(4), key).has(&it));
                let pointer = ValuePointer {
                    segment: SegmentId(1),
                    offset: 0,
                    length: u32::try_from(value.len()).unwrap(),
                    checksum: 0,
                };
                assert_eq!(value_at(&pointer, it), value);
                assert_eq!(value_at(&pointer, Bytes::copy_from_slice(value)), value);
            }
        }
    }

    #[test]
    fn nobody_has_what_nobody_knew_the_key_of() {
        let it = record(&Owner::unknown(), b"value");
        assert!(!Owner::unknown().has(&it) && !Owner::new(KeyspaceId(0), b"").has(&it));
        assert!(!Owner::new(KeyspaceId(0), b"").has(b"abc"));
    }
}
