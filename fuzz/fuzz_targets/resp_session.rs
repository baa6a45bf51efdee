//! `resp_session`: see `crates/testkit/src/fuzz/resp_session.rs`.
#![no_main]

glintdb_fuzz::target!("resp_session");
