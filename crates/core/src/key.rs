//! Ranges of keys. Keys are byte strings, ordered as unsigned bytes, a prefix before what it begins.

use bytes::Bytes;
use std::ops::Bound;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// The first key behind `key`: `key` and a zero byte.
#[must_use]
pub fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The first key that does not begin with `prefix` and lies behind all that do; `None`: there is none (the prefix is empty or all `0xff`).
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end.into())
}

/// Whether `key` lies at or behind the lower bound.
#[must_use]
pub fn at_or_after(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
        Bound::Unbounded => true,
    }
}

/// Whether `key` lies at or before the upper bound.
#[must_use]
pub fn at_or_before(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
        Bound::Unbounded => true,
    }
}

/// Returns 8 bytes of `key` from `prefix_bytes` on as a number, big-endian, padded with zeros.
/// Heads of keys with the same prefix are ordered like the keys, except that different keys may
/// have equal heads.
#[inline]
#[must_use]
pub fn key_head(key: &[u8], prefix_bytes: usize) -> u64 {
    let rest = key.get(prefix_bytes..).unwrap_or_default();
    if let Some(head) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(head)
}

/// Returns the length of the prefix that `a`, `b` and all keys between them share.
#[inline]
#[must_use]
pub fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut length = 0;
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            return length + (difference.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let rest = a.iter().skip(length).zip(b.iter().skip(length));
    length + rest.take_while(|(a, b)| a == b).count()
}

/// Returns whether `key` comes before the exclusive end of a range. `None`: the range has no end.
#[must_use]
pub fn before_end(key: &[u8], end: &Option<Bytes>) -> bool {
    end.as_ref().is_none_or(|end| key < end.as_ref())
}

/// Bounds as a half-open range: inclusive start, exclusive end (`None`: to the end).
#[must_use]
pub fn half_open(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> (Bytes, Option<Bytes>) {
    let start = match lower {
        Bound::Included(key) => Bytes::copy_from_slice(key),
        Bound::Excluded(key) => successor(key),
        Bound::Unbounded => Bytes::new(),
    };
    let end = match upper {
        Bound::Included(key) => Some(successor(key)),
        Bound::Excluded(key) => Some(Bytes::copy_from_slice(key)),
        Bound::Unbounded => None,
    };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_carries_over_ff_bytes() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }

    #[test]
    fn half_open_turns_bounds_over() {
        let (start, end) = half_open(Bound::Excluded(b"a"), Bound::Included(b"b"));
        assert_eq!(
            (&start[..], end.as_deref()),
            (&b"a\0"[..], Some(&b"b\0"[..]))
        );
    }
}
