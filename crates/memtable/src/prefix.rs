//! Normalised key prefixes: eight bytes of a key as an integer that compares like the bytes.

/// The eight bytes of `key` from `skip` on, big-endian, padded with zeros. For keys that share their first `skip` bytes, a smaller
/// prefix means a smaller key; equal prefixes mean nothing (the padding cannot be told from zero bytes).
#[inline]
pub(crate) fn prefix_at(key: &[u8], skip: usize) -> u64 {
    if let Some(&bytes) = key.get(skip..).and_then(<[u8]>::first_chunk::<8>) {
        return u64::from_be_bytes(bytes);
    }
    if skip >= key.len() {
        return 0;
    }
    // 1..=7 bytes are left.
    let left = key.len() - skip;
    if let Some(&bytes) = key.last_chunk::<8>() {
        return u64::from_be_bytes(bytes) << (8 * (8 - left));
    }
    let mut bytes = [0; 8];
    bytes[..left].copy_from_slice(&key[skip..]);
    u64::from_be_bytes(bytes)
}

/// How many leading bytes two keys share.
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    let mut words = 0;
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        if a != b {
            break;
        }
        words += 8;
    }
    words
        + a[words..]
            .iter()
            .zip(&b[words..])
            .take_while(|(a, b)| a == b)
            .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_orders_like_the_bytes_and_pads_with_zeros() {
        assert_eq!(prefix_at(b"", 0), 0);
        assert_eq!(prefix_at(b"abc", 3), 0);
        assert_eq!(prefix_at(b"abc", 9), 0);
        assert_eq!(prefix_at(b"a", 0), 0x61 << 56);
        assert_eq!(prefix_at(b"a", 0), prefix_at(b"a\0", 0));
        assert_eq!(
            prefix_at(b"12345678abc", 8),
            u64::from_be_bytes(*b"abc\0\0\0\0\0")
        );
        assert_eq!(
            prefix_at(b"12345678abc", 2),
            u64::from_be_bytes(*b"345678ab")
        );
        assert!(prefix_at(b"ab", 0) < prefix_at(b"b", 0));
    }

    #[test]
    fn common_len_counts_shared_bytes() {
        assert_eq!(common_len(b"", b"a"), 0);
        assert_eq!(common_len(b"abcdefgh12345678x", b"abcdefgh12345678"), 16);
        assert_eq!(common_len(b"abcdefgh1234", b"abcdefgh12x4"), 10);
    }
}
