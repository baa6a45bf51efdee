//! The places of separated values: tables that find a value without the index, behind one
//! interface.
//!
//! - `directory`: the interface. Other modules call only it, and pass on `Look`, `Wanted` and
//!   `Values`.
//! - `hot_keys`: the place of the newest value of keys that were read or written lately.
//! - `value_runs`: values that scans read together and the cache holds together.
//! - `cache_on_write`: which values are cached when they are written.
//! - `key_hash`: the hash that all of them share, and a value that a read looks for.
//! - `packed_place`: a place in one word.

mod cache_on_write;
pub(crate) mod directory;
pub(crate) mod hot_keys;
pub(crate) mod key_hash;
mod packed_place;
pub(crate) mod value_runs;
