//! How runs and levels are read: lookups, cursors that merge them, samples and checks.
//!
//! Sources are sorted sequences of tables, given newest data first. For each key, an upper source
//! has nothing older than a lower source has.

pub(crate) mod concat;
pub(crate) mod cursor;
pub(crate) mod lookup;
pub(crate) mod lookup_counts;
mod newest;
mod sample;
pub(crate) mod tournament;
mod verify;

pub use cursor::MergeCursor;
pub use lookup::{Found, find, find_batch, get, get_batch, resolve};
pub use newest::Newest;
pub(crate) use sample::deleting_part;
pub use sample::{count_entries, sample_end, sample_keys};
pub use verify::{live_pointers, verify_tables};
