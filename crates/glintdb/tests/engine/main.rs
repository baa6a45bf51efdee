//! Tests of the engine through its public API: what a user does, and the protocols one by one
//! (`docs/protocol-tests.md`).
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]
#![allow(missing_docs, reason = "tests")]

mod advise;
mod basics;
mod check;
mod checkpoints;
mod closing;
mod convert;
mod damage;
mod deletes;
mod descriptors;
mod directories;
mod docs;
mod drops;
mod faults;
mod footprint;
mod fork;
mod full_disk;
mod gate;
mod idle;
mod keyspace_options;
mod memory;
mod missing_files;
mod openings;
mod order;
mod power;
mod reading;
mod salvage;
mod snapshots;
mod support;
mod threads;
mod transactions;
mod unavailable;
mod units;
mod visibility;
