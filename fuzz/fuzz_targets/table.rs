//! `table`: see `crates/testkit/src/fuzz/table.rs`.
#![no_main]

glintdb_fuzz::target!("table");
