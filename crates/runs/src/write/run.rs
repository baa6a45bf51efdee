//! Writes a sorted run, of a flush or a relocation, into tables that are cut by size.
//!
//! Thread-safe, apart from the run itself.

use crate::env::RunEnv;
use crate::keys::tombstones::TombstoneSet;
use crate::liveness::Liveness;
use crate::table::TableMeta;
use crate::write::outputs::{OutputConfig, Outputs};
use bytes::Bytes;
use glintdb_core::index::{LivenessDelta, SortedRun};
use glintdb_core::{EntryRef, Result, SeqNum, planted};
use std::sync::Arc;

/// A run whose files are durable. No reader sees it yet.
#[derive(Default)]
pub struct WrittenRun {
    /// Its tables, ascending. None where the run was empty.
    pub tables: Vec<TableMeta>,
    /// Bytes of values that become live with it.
    pub liveness: Vec<LivenessDelta>,
    /// Its newest sequence number.
    pub seqno_max: SeqNum,
}

/// Writes `run`. The tables and their directory are synced when it returns.
///
/// # Errors
/// `NoSpace`, I/O errors, and what the run returns. Nothing is left behind then.
///
/// # Panics
/// If the keys of the run do not ascend.
pub fn write_run(
    env: &Arc<RunEnv>,
    config: OutputConfig,
    run: &mut dyn SortedRun,
) -> Result<WrittenRun> {
    let carry = TombstoneSet::new(run.range_tombstones().iter().cloned());
    let mut outputs = Outputs::new(env, config, run.entries_hint(), carry, Bytes::new());
    let mut liveness = Liveness::default();
    let mut entries = 0;
    while let Some((key, seqno, value)) = run.next()? {
        if let EntryRef::Pointer(pointer) = value {
            liveness.live(pointer);
        }
        let added = outputs.add(key, seqno, value)?;
        assert!(added, "a run's keys ascend, each once");
        entries += 1;
    }
    let written = outputs.finish(None)?;
    if written.is_empty() {
        return Ok(WrittenRun::default());
    }
    planted!(
        "lsm: the name of a flushed table is not made durable",
        env.index().volume.sync_directory()?,
        ()
    );
    let liveness = liveness.deltas();
    assert_whole(written.tables(), entries, &liveness);
    let tables = written.commit();
    let seqno_max = tables.iter().map(|meta| meta.seqno_max).max();
    Ok(WrittenRun {
        tables,
        liveness,
        seqno_max: seqno_max.unwrap_or(SeqNum::ZERO),
    })
}

/// Asserts that the tables hold all entries of the run, and that the deltas count all of their
/// pointers, before the change is handed out. O(tables + segments).
fn assert_whole(tables: &[TableMeta], entries: u64, liveness: &[LivenessDelta]) {
    let written: u64 = tables.iter().map(|meta| meta.entries).sum();
    assert!(
        written == entries,
        "{written} of {entries} entries were written"
    );
    let pointed: u64 = tables.iter().map(|meta| meta.pointed_bytes).sum();
    let live: i64 = liveness.iter().map(|delta| delta.bytes).sum();
    assert!(
        i128::from(pointed) == i128::from(live) && liveness.iter().all(|delta| delta.bytes > 0),
        "{pointed} bytes are pointed to, {live} become live"
    );
}
