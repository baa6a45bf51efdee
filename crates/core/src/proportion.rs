//! Estimates by proportion: of something that is spread evenly over a whole.

/// Returns `bytes * part / whole`, rounded down; 0 for a `whole` of 0 with a `part` of 0. Does not
/// overflow on the way; a result above `u64::MAX` is `u64::MAX`.
///
/// ```
/// assert_eq!(glintdb_core::proportion(4096, 3, 4), 3072);
/// ```
#[must_use]
pub fn proportion(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
