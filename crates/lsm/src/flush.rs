//! A flush: one sorted run becomes one run of level 0, in tables cut by size.
//!
//! Thread-safe; one flush of an index at a time (the engine sees to it).

use crate::common::Common;
use crate::compaction::outputs::{OutputConfig, Outputs};
use crate::edit::{Edit, EditOp, Place};
use crate::liveness::Liveness;
use crate::tombstones::TombstoneSet;
use bytes::Bytes;
use glintdb_core::index::{IndexChange, SortedRun};
use glintdb_core::{EntryRef, Result, SeqNum};
use glintdb_flash::DataClass;
use std::sync::Arc;

/// Writes `run` as run `id` of level 0, in tables of this class. The tables and their directory are
/// synced when it returns.
pub(crate) fn write_run(
    common: &Arc<Common>,
    run: &mut dyn SortedRun,
    id: u64,
    class: DataClass,
) -> Result<IndexChange> {
    let carry = TombstoneSet::new(run.range_tombstones().iter().cloned());
    let config = OutputConfig {
        class,
        table_bytes: common.options().table_bytes_target,
        grandparents: Vec::new(),
        overlap_bytes_max: u64::MAX,
        entries_hint: run.entries_hint(),
        pin: common.pins.covers(0),
    };
    let mut outputs = Outputs::new(common, config, carry, Bytes::new());
    let mut liveness = Liveness::default();
    while let Some((key, seqno, value)) = run.next()? {
        if let EntryRef::Pointer(pointer) = value {
            liveness.live(pointer);
        }
        let added = outputs.add(key, seqno, value)?;
        assert!(added, "a run's keys ascend, each once");
    }
    let written = outputs.finish(None)?;
    if written.tables.is_empty() {
        return Ok(IndexChange::default());
    }
    if !glintdb_core::seeded::bug("lsm: the name of a flushed table is not made durable") {
        common.env.volume.sync_directory()?;
    }
    let tables = written.commit();
    common.note_run(tables.iter().map(|meta| meta.bytes).sum());
    let seqno_max = tables.iter().map(|meta| meta.seqno_max).max();
    let ops = tables
        .into_iter()
        .map(|meta| EditOp::Add(Place::run(id), meta));
    Ok(IndexChange {
        edit: Edit { ops: ops.collect() }.encode(),
        liveness: liveness.deltas(),
        seqno_max: seqno_max.unwrap_or(SeqNum::ZERO),
    })
}
