//! `codec`: see `crates/testkit/src/fuzz/codec.rs`.
#![no_main]

glintdb_fuzz::target!("codec");
