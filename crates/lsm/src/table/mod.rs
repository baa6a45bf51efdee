//! The table: one immutable file that holds one sorted run fragment. Format: `docs/format/table.md`.

mod types;

pub use types::*;
