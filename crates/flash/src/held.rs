//! Bytes that are held for long and looked at rarely: in one allocation with the count of their references.
//!
//! `Bytes::copy_from_slice` keeps the count apart from the bytes, in an allocation of its own once it is shared. Whoever takes a reference of something that has left the
//! processor's caches then waits for two places in memory, one after the other, as counting is atomic; here both are one.

use bytes::Bytes;

/// So far before the bytes stands the count of their references: behind it the function that drops them, and their length. Only a guess is lost where that is wrong.
pub(crate) const COUNT_BEFORE_BYTES: usize = 24;

struct Held<const N: usize> {
    length: usize,
    bytes: [u8; N],
}

impl<const N: usize> AsRef<[u8]> for Held<N> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&self.bytes)
    }
}

fn hold<const N: usize>(parts: &[&[u8]]) -> Bytes {
    let (mut length, mut bytes) = (0, [0; N]);
    for part in parts {
        bytes[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    Bytes::from_owner(Held { length, bytes })
}

/// Both functions of one list of sizes, ascending.
macro_rules! sizes {
    ($($size:literal)*) => {
        /// A copy of `parts`, one behind the other, of its own memory.
        pub(crate) fn copy(parts: &[&[u8]]) -> Bytes {
            match parts.iter().map(|part| part.len()).sum() {
                $(..=$size => hold::<$size>(parts),)*
                _ => parts.concat().into(),
            }
        }

        /// Memory that a copy of `length` bytes takes for them.
        pub(crate) fn memory_bytes(length: usize) -> usize {
            match length {
                $(..=$size => $size,)*
                _ => length,
            }
        }
    };
}

// Steps of 32 bytes, then an eighth of the size at most, and one for 1,024 bytes of value with a key: that takes no more of the allocator than 1,024 do.
sizes! {
    32 64 96 128 160 192 224 256 288 320 352 384 416 448 480 512 576 640 704 768 832 896 960 1024 1088 1152 1280 1408 1536 1664 1792 1920 2048 2304 2560 2816 3072 3328 3584 3840 4096
    4608 5120 5632 6144 6656 7168 7680 8192 9216 10240 11264 12288 13312 14336 15360 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_are_equal_and_stay_when_shared() {
        let from: Vec<u8> = (0..5000u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
        for length in 0..from.len() {
            let (one, other) = from[..length].split_at(length / 3);
            let held = copy(&[one, other]);
            let other = held.clone();
            drop(held);
            assert_eq!(other, from[..length]);
            assert!(memory_bytes(length) >= length);
            assert!(memory_bytes(length) <= length + 32.max(length / 8));
        }
    }
}
