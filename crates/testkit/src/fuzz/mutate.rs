//! A mutator for where there is no libFuzzer: blind, but seeded, so that a case is a number.
//!
//! Thread safety: none is needed.

use crate::rng::Rng;

/// Numbers at which decoders go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 63,
    u64::MAX,
];

/// Changes `data` in one to eight places; parts may come from `other`.
pub(super) fn mutate(rng: &mut Rng, data: &mut Vec<u8>, other: &[u8], length_max: usize) {
    for _ in 0..=rng.below(8).min(rng.below(8)) {
        once(rng, data, other);
    }
    data.truncate(length_max);
}

fn below(rng: &mut Rng, end: usize) -> usize {
    rng.below(end.max(1) as u64) as usize
}

fn once(rng: &mut Rng, data: &mut Vec<u8>, other: &[u8]) {
    let length = data.len();
    let at = below(rng, length);
    match rng.below(10) {
        0 | 1 if length > 0 => data[at] ^= 1 << rng.below(8),
        2 if length > 0 => data[at] = rng.number() as u8,
        3 if length > 0 => {
            let change = rng.below(35) as u8;
            data[at] = data[at].wrapping_add(change).wrapping_sub(17);
        }
        4 => {
            let number = NUMBERS[below(rng, NUMBERS.len())].to_le_bytes();
            let bytes = &number[..1 << rng.below(4)];
            let end = (at + bytes.len()).min(length);
            data.splice(at..end, bytes.iter().copied());
        }
        5 => {
            let count = 1 + below(rng, 8);
            let bytes = rng.bytes(count);
            data.splice(at..at, bytes);
        }
        6 if length > 0 => drop(data.drain(at..(at + 1 + below(rng, 16)).min(length))),
        7 if length > 0 => {
            // A piece once more, somewhere else.
            let piece = data[at..(at + 1 + below(rng, 64)).min(length)].to_vec();
            let to = below(rng, length);
            data.splice(to..to, piece);
        }
        8 if !other.is_empty() => {
            let from = below(rng, other.len());
            let piece = &other[from..(from + 1 + below(rng, 64)).min(other.len())];
            data.splice(at..at, piece.iter().copied());
        }
        9 if !other.is_empty() => {
            data.truncate(at);
            data.extend_from_slice(&other[below(rng, other.len())..]);
        }
        _ => data.push(rng.number() as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_mutation_and_the_length_is_kept() {
        for seed in 0..2000 {
            let make = || {
                let mut data = b"something to begin with".to_vec();
                mutate(&mut Rng::new(seed), &mut data, b"other", 24);
                data
            };
            assert_eq!(make(), make());
            assert!(make().len() <= 24);
        }
    }
}
