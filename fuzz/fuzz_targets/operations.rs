//! `operations`: see `crates/testkit/src/fuzz/operations.rs`.
#![no_main]

glintdb_fuzz::target!("operations");
