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
    while let Some((key, seqno, value)) = run.next()? {
        if let EntryRef::Pointer(pointer) = value {
            liveness.live(pointer);
        }
        let added = outputs.add(key, seqno, value)?;
        assert!(added, "a run's keys ascend, each once");
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
    let tables = written.commit();
    let seqno_max = tables.iter().map(|meta| meta.seqno_max).max();
    Ok(WrittenRun {
        tables,
        liveness: liveness.deltas(),
        seqno_max: seqno_max.unwrap_or(SeqNum::ZERO),
    })
}
