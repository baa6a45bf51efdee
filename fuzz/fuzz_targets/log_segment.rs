//! `log_segment`: see `crates/testkit/src/fuzz/log_segment.rs`.
#![no_main]

glintdb_fuzz::target!("log_segment");
