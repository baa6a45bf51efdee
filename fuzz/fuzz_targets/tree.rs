//! `tree`: see `crates/testkit/src/fuzz/tree.rs`.
#![no_main]

glintdb_fuzz::target!("tree");
