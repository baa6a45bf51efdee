//! Waiting threads begin the reads of compactions.
//!
//! A writer that is slowed or stopped, a writer whose memtable is full and a commit that another
//! thread syncs would sleep. Instead each begins reads that compactions offered to the
//! [`ReadQueue`]. It does not wait for them: the compaction that merges a piece does. A thread
//! returns to its own wait when no read is left to begin, or when the wait is over
//! (`docs/decisions/011-helping.md`).
//!
//! Thread safety: any thread that holds no lock and no numbered commit that is not visible.

use crate::shared::Shared;
use glintdb_flash::{ReadQueue, Reader};

impl Shared {
    /// Begins reads of compactions until `over` returns true or none is left to begin.
    pub(crate) fn help_while(&self, over: impl Fn() -> bool) {
        while !over() && self.help_reading() {}
    }

    /// Begins one batch of reads that compactions will need. Returns false if there is none.
    pub(crate) fn help_reading(&self) -> bool {
        let begins = |reads: &ReadQueue| reads.begin(Reader::Helper) > 0;
        self.helps && self.reads.as_deref().is_some_and(begins)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
