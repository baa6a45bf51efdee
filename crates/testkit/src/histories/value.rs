//! Values of histories: each has a number that no other has, and bytes that follow from the number, so that whoever reads one knows who wrote it, and that all of it is right.
//!
//! Thread safety: functions of their arguments.

use super::linear::{ABSENT, Value};
use crate::rng::Rng;

/// Most bytes of a value: more than the ring of the small option sets, so that some commits go round it.
pub const BYTES_MAX: usize = 80 << 10;

/// The number of value `count` of a client; clients count from 1.
#[must_use]
pub fn number(client: u16, count: u64) -> Value {
    (u64::from(client) + 1) << 40 | count
}

/// A value for people: who wrote it, and as which.
#[must_use]
pub fn name(value: Value) -> String {
    match value {
        ABSENT => "-".into(),
        value => match (value >> 40).checked_sub(1) {
            Some(client) => format!("c{client}.{}", value & ((1 << 40) - 1)),
            None => value.to_string(),
        },
    }
}

/// Bytes of a value: mostly small ones, some that are separated, few that are large.
fn length(value: Value) -> usize {
    let mut rng = Rng::of(&[value]);
    let bytes = match rng.below(2_000) {
        0 => 66_000 + rng.below(14_000),
        1..=20 => 2_000 + rng.below(6_000),
        21..=300 => 200 + rng.below(800),
        _ => 16 + rng.below(60),
    };
    bytes as usize
}

/// Its bytes.
#[must_use]
pub fn bytes(value: Value) -> Vec<u8> {
    let length = length(value);
    let mut bytes = Vec::with_capacity(length + 8);
    let mut word = value;
    while bytes.len() < length {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
    bytes.truncate(length);
    bytes
}

/// The number of the value with these bytes.
///
/// # Errors
/// A sentence, where no value has them.
pub fn number_of(found: &[u8]) -> Result<Value, String> {
    let head = found.first_chunk::<8>();
    let value = head.map_or(ABSENT, |head| u64::from_le_bytes(*head));
    if value != ABSENT && bytes(value) == found {
        Ok(value)
    } else {
        Err(format!(
            "{} bytes that nobody wrote: {}…",
            found.len(),
            found[..found.len().min(24)].escape_ascii()
        ))
    }
}

/// The number of what a read found.
///
/// # Errors
/// As [`number_of`].
pub fn seen(found: Option<&[u8]>) -> Result<Value, String> {
    found.map_or(Ok(ABSENT), number_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_the_number_and_a_wrong_byte_is_seen() {
        let mut longest = 0;
        for count in 1..5_000 {
            let value = number(3, count);
            let mut found = bytes(value);
            assert_eq!(number_of(&found), Ok(value));
            longest = longest.max(found.len());
            let last = found.len() - 1;
            found[last] ^= 1;
            assert!(number_of(&found).is_err());
        }
        assert!((66_000..=BYTES_MAX).contains(&longest));
        assert_eq!(seen(None), Ok(ABSENT));
        assert!(number_of(b"").is_err());
    }
}
