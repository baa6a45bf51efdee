//! `manifest`: see `crates/testkit/src/fuzz/manifest.rs`.
#![no_main]

glintdb_fuzz::target!("manifest");
