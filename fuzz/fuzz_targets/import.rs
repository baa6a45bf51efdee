//! `import`: see `crates/testkit/src/fuzz/import.rs`.
#![no_main]

glintdb_fuzz::target!("import");
