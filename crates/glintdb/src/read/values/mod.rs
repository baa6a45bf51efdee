//! Tables in memory that find a value without the index, and what is cached as it is written.
//!
//! - `hot_keys`: key to place, of keys that were read or written lately.
//! - `value_runs`: which values were read together in key order, and are cached together.
//! - `key_hash`: the hash that all of them share.
//! - `packed_place`: a place in one word.
//! - `cache_on_write`: which written values go to the cache.

pub(crate) mod cache_on_write;
pub(crate) mod hot_keys;
pub(crate) mod key_hash;
pub(crate) mod packed_place;
pub(crate) mod value_runs;
