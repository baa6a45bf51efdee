//! `log_recovery`: see `crates/testkit/src/fuzz/log_recovery.rs`.
#![no_main]

glintdb_fuzz::target!("log_recovery");
