//! `log_frame`: see `crates/testkit/src/fuzz/log_frame.rs`.
#![no_main]

glintdb_fuzz::target!("log_frame");
