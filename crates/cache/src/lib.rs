//! The cache of a database: key blocks of tables by their place, and values of the log by their
//! keys.
//!
//! It has memory of its own, in slabs of cells of equal size, so that what it holds is what the
//! process has.
//!
//! **Architecture invariant:** this crate reads no file. Callers read blocks and values, verify
//! them, and put them here.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]
#![allow(
    unsafe_code,
    reason = "memory of the cache's own, and prefetches; each block says who guarantees what"
)]

mod cache;
mod prefetch;
mod slabs;

pub use cache::{Cache, CacheKey, CacheStats, KeyHash, STRIPES, ValuePlace, stripe_of_thread};
pub use prefetch::prefetch_line;
