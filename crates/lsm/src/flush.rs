//! A flush or a relocation: one sorted run becomes one run of level 0.
//!
//! Thread-safe. The engine runs one flush of an index at a time.

use crate::common::Common;
use crate::edit::{Edit, EditOp, Place};
use crate::levels::Levels;
use glintdb_core::Result;
use glintdb_core::index::{IndexChange, SortedRun};
use glintdb_flash::DataClass;
use glintdb_runs::write::{Grandparents, OutputConfig, write_run};

/// Writes `run` as run `id` of level 0, in tables of this class. The tables and their directory are
/// synced when it returns. `levels` are those of now, with which the run will be merged.
pub(crate) fn write_to_level0(
    common: &Common,
    levels: &Levels,
    run: &mut dyn SortedRun,
    id: u64,
    class: DataClass,
) -> Result<IndexChange> {
    let options = common.options();
    let runs = levels.runs.iter().map(|run| &run.tables);
    let sources = runs.chain(levels.first_level().map(|level| levels.level(level)));
    let mut beneath: Vec<_> = sources
        .flat_map(|tables| tables.slots().iter().cloned())
        .collect();
    beneath.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    let config = OutputConfig {
        class,
        tables: options.table_config(),
        table_bytes: options.table_bytes_target,
        pin: common.pins.covers(0),
        grandparents: Grandparents {
            tables: beneath,
            overlap_bytes_max: u64::MAX,
        },
    };
    let written = write_run(&common.env, config, run)?;
    if written.tables.is_empty() {
        return Ok(IndexChange::default());
    }
    common.note_run(written.tables.iter().map(|meta| meta.bytes).sum());
    let tables = written.tables.into_iter();
    let ops = tables.map(|meta| EditOp::Add(Place::run(id), meta));
    Ok(IndexChange {
        edit: Edit { ops: ops.collect() }.encode(),
        liveness: written.liveness,
        seqno_max: written.seqno_max,
    })
}
