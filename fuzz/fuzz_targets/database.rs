//! `database`: see `crates/testkit/src/fuzz/database.rs`.
#![no_main]

glintdb_fuzz::target!("database");
