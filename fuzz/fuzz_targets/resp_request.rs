//! `resp_request`: see `crates/testkit/src/fuzz/resp_request.rs`.
#![no_main]

glintdb_fuzz::target!("resp_request");
