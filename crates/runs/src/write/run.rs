//! Writes a sorted run, of a flush or a relocation, into tables that are cut by size.
//!
//! Thread-safe, apart from the run itself.

use crate::env::RunEnv;
use crate::keys::tombstones::TombstoneSet;
use crate::liveness::Liveness;
use crate::table::TableMeta;
use crate::write::outputs::{OutputConfig, Outputs, Written};
use bytes::Bytes;
use glintdb_core::index::{LivenessDelta, SortedRun};
use glintdb_core::{EntryRef, RangeTombstone, Result, SeqNum, planted};
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
    let ranges = run.range_tombstones().iter().cloned();
    let mut writer = RunWriter::new(env, config, run.entries_hint(), ranges);
    while let Some((key, seqno, value)) = run.next()? {
        let added = writer.add(key, seqno, value)?;
        assert!(added, "a run's keys ascend, each once");
    }
    let (written, liveness) = writer.finish()?;
    let tables = written.commit();
    let seqno_max = tables.iter().map(|meta| meta.seqno_max).max();
    Ok(WrittenRun {
        tables,
        liveness,
        seqno_max: seqno_max.unwrap_or(SeqNum::ZERO),
    })
}

/// Writes a sorted run whose entries come one by one.
pub struct RunWriter {
    env: Arc<RunEnv>,
    outputs: Outputs,
    liveness: Liveness,
    entries: u64,
}

impl RunWriter {
    /// Begins a run of about `entries_hint` entries with these range tombstones.
    pub fn new(
        env: &Arc<RunEnv>,
        config: OutputConfig,
        entries_hint: usize,
        range_tombstones: impl Iterator<Item = RangeTombstone>,
    ) -> RunWriter {
        let carry = TombstoneSet::new(range_tombstones);
        RunWriter {
            env: Arc::clone(env),
            outputs: Outputs::new(env, config, entries_hint, carry, Bytes::new()),
            liveness: Liveness::default(),
            entries: 0,
        }
    }

    /// Appends an entry. `false`: its key is not greater than the one before it, and nothing was
    /// appended.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<bool> {
        let added = self.outputs.add(key, seqno, value)?;
        if added {
            self.entries += 1;
            if let EntryRef::Pointer(pointer) = value {
                self.liveness.live(pointer);
            }
        }
        Ok(added)
    }

    /// Syncs the tables and their directory. Returns the tables, which are removed unless they are
    /// [committed](Written::commit), and the bytes of values that they point to.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub fn finish(self) -> Result<(Written, Vec<LivenessDelta>)> {
        let written = self.outputs.finish(None)?;
        if !written.is_empty() {
            planted!(
                "lsm: the name of a flushed table is not made durable",
                self.env.index().volume.sync_directory()?,
                ()
            );
        }
        let liveness = self.liveness.deltas();
        assert_whole(written.tables(), self.entries, &liveness);
        Ok((written, liveness))
    }
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
