//! The flush: writes the oldest sealed memtables to the indexes.
//!
//! Thread safety: one flush at a time, under `flush_lock`.
//!
//! Invariant: no reader sees the tables of a flush before its change is committed
//! ([`crate::background::install`]), and the log is synced up to the flush point before that.

use crate::background::Background;
use crate::background::flush_progress::PROGRESS_ENTRIES;
use crate::background::install::{Flushed, Pending, abandon};
use crate::background::queue::{Job, Progress};
use crate::durable::manifest::FlushPoint;
use crate::space::survey::Sample;
use crate::state::version::{Generation, KeyspaceMem, KeyspaceState};
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::{JobPriority, SortedRun};
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{EntryRef, RangeTombstone, SeqNum, TombstoneWalk, planted};
use glintdb_memtable::MemCursor;
use std::ops::Bound;
use std::sync::Arc;

/// The memtable of one keyspace as a sorted run, without the entries that its range tombstones
/// hide.
pub(crate) struct MemtableRun<'a> {
    cursor: MemCursor,
    /// Disjoint, in key order.
    ranges: Vec<RangeTombstone>,
    walk: TombstoneWalk,
    entries: usize,
    sample: Sample,
    /// Number of entries until the next one of the sample.
    until_sample: usize,
    /// Called with the number of entries after every [`PROGRESS_ENTRIES`].
    progress: &'a mut dyn FnMut(usize),
    taken: usize,
}

/// Most keys of a flush that are looked up, to estimate how much it overwrites, beside one of each
/// keyspace.
const SAMPLE_KEYS: usize = 1024;
/// Most bytes of these keys, about.
const SAMPLE_BYTES: usize = 1 << 20;

/// Returns how many entries each key of a sample represents, if `entries` are in memtables of
/// `bytes`.
fn sample_step(entries: usize, bytes: usize) -> usize {
    let by_bytes = bytes.div_ceil(SAMPLE_BYTES);
    entries.div_ceil(SAMPLE_KEYS).max(by_bytes).max(1)
}

impl<'a> MemtableRun<'a> {
    fn new(
        keyspace: &Arc<KeyspaceState>,
        mem: &KeyspaceMem,
        sample_step: usize,
        progress: &'a mut dyn FnMut(usize),
    ) -> MemtableRun<'a> {
        let (all, forward) = (Bound::Unbounded, glintdb_core::Direction::Forward);
        let entries = mem.map.len();
        MemtableRun {
            cursor: mem.map.cursor(all, all, forward, SeqNum::MAX),
            ranges: mem.ranges.fragments(),
            walk: TombstoneWalk::default(),
            entries,
            sample: Sample {
                keyspace: Arc::clone(keyspace),
                keys: Vec::new(),
                step: sample_step,
            },
            until_sample: 0,
            progress,
            taken: 0,
        }
    }

    /// Returns whether a range tombstone hides the cursor's entry.
    fn hidden(&mut self) -> bool {
        self.walk.seqno_at(&self.ranges, self.cursor.key()) > self.cursor.seqno()
    }
}

impl SortedRun for MemtableRun<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        loop {
            if !self.cursor.advance() {
                return Ok(None);
            }
            if self.ranges.is_empty() || !self.hidden() {
                break;
            }
        }
        if self.until_sample == 0 {
            self.until_sample = self.sample.step;
            self.sample.keys.push(self.cursor.key().to_vec());
        }
        self.until_sample -= 1;
        self.taken += 1;
        if self.taken == PROGRESS_ENTRIES {
            (self.progress)(self.taken);
            self.taken = 0;
        }
        Ok(Some((
            self.cursor.key(),
            self.cursor.seqno(),
            self.cursor.value(),
        )))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        planted!(
            "glintdb: a flush forgets range deletions",
            &self.ranges,
            &[]
        )
    }

    fn entries_hint(&self) -> usize {
        self.entries
    }
}

/// Writes the memtables of a generation to the indexes, where no reader sees them yet. Also returns
/// a sample of the keys. Calls `progress` after every [`PROGRESS_ENTRIES`] entries.
pub(crate) fn write_generation(
    generation: &Generation,
    keyspaces: impl Iterator<Item = Arc<KeyspaceState>>,
    progress: &mut dyn FnMut(usize),
) -> Result<(Vec<Pending>, Vec<Sample>)> {
    let (mut pending, mut samples) = (Vec::new(), Vec::new());
    let sample_step = sample_step(generation.entries(), generation.filled_bytes());
    for keyspace in keyspaces {
        // A keyspace that is being dropped is written as well, as the drop may fail. Its change is
        // abandoned under the manifest's lock.
        let mem = generation.keyspace(keyspace.id);
        let has_entries = |mem: &&KeyspaceMem| {
            planted!(
                "glintdb: a flush writes one keyspace and no more",
                !mem.is_empty(),
                !mem.is_empty() && pending.is_empty()
            )
        };
        let Some(mem) = mem.filter(has_entries) else {
            continue;
        };
        let mut run = MemtableRun::new(&keyspace, mem, sample_step, progress);
        match keyspace.index().write_run(&mut run) {
            Ok(change) => {
                keyspace.counters.flushes.fetch_add(1, Ordering::Relaxed);
                keyspace
                    .counters
                    .flushed_entries
                    .fetch_add(run.entries as u64, Ordering::Relaxed);
                samples.push(run.sample);
                pending.push(Pending { keyspace, change });
            }
            Err(error) => {
                abandon(pending);
                return Err(error);
            }
        }
    }
    Ok((pending, samples))
}

impl Background {
    /// Writes all memtables to the indexes.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_all()?;
        self.shared.background_recovered();
        self.shared.schedule();
        self.shared.run_inline();
        Ok(())
    }

    /// Writes all memtables to the indexes, and leaves background errors and the job queue alone.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.sequencer.seal_active();
        while self.flush_oldest()? {
            self.shared.check_open()?;
        }
        Ok(())
    }

    /// Writes the oldest sealed generation to the indexes, with the reserve's space if there is no
    /// other. Returns false if no generation is sealed.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let _one_at_a_time = self.flush_lock.lock();
        let flushed = match self.space.with_reserve(|| self.flush_oldest_once()) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                let _borrowed = self.shared.reserve.borrow()?;
                self.space.give_way(error, || self.flush_oldest_once())
            }
            flushed => flushed,
        }?;
        if flushed
            && self.shared.reserve.is_lent()
            && let Err(error) = self.space.refill_reserve(0)
        {
            self.shared.note_background_error(&error);
        }
        if flushed {
            self.shared.enforce_pin_limit();
        }
        Ok(flushed)
    }

    fn flush_oldest_once(&self) -> Result<bool> {
        let version = self.shared.version.load_full();
        let Some(oldest) = version.sealed.last().cloned() else {
            return Ok(false);
        };
        let after = match version.sealed.len() {
            0 | 1 => &version.active,
            count => &version.sealed[count - 2],
        };
        let point = FlushPoint {
            lsn: after.start_lsn,
            seqno: SeqNum(after.first_seqno.0 - 1),
        };
        let log_position = after.log_position;
        self.shared.pipeline.wait_visible(point.seqno)?;
        let keyspaces: Vec<_> = (version.live_keyspaces())
            .map(|keyspace| Arc::clone(&keyspace.state))
            .collect();
        planted!(
            "glintdb: the manifest runs ahead of the log",
            self.shared.sync_log_to(point.lsn)?,
            ()
        );
        // The version would keep segments that die during the flush.
        drop(version);
        self.space.collect_garbage_if_waiting();
        let progress = self.flush_progress(oldest.entries(), oldest.index_bytes());
        let (pending, samples) =
            write_generation(&oldest, keyspaces.into_iter(), &mut |entries| {
                progress.add(entries);
            })?;
        self.space.sample_overwritten(&samples);
        let flushed = Flushed {
            generation: &oldest,
            log_position,
            point: planted!(
                "glintdb: the flush point lies a commit too far",
                point,
                FlushPoint {
                    seqno: point.seqno.next(),
                    ..point
                }
            ),
        };
        self.commit_flush(pending, flushed)?;
        progress.through();
        Ok(true)
    }
}

/// Writes sealed memtables to the indexes until there is none.
pub(crate) struct FlushJob;

impl Job<Background> for FlushJob {
    fn step(&mut self, background: &Background) -> Result<Progress> {
        background.flush_oldest()?;
        background.shared.background_recovered();
        let more = || background.shared.version.load().has_sealed();
        if more() {
            return Ok(Progress::More);
        }
        background
            .shared
            .flush_queued
            .store(false, Ordering::SeqCst);
        // A commit that sealed a memtable just before the flag fell queued nothing.
        if more() && !background.shared.flush_queued.swap(true, Ordering::SeqCst) {
            return Ok(Progress::More);
        }
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "flush".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Flush
    }

    fn abandon(self: Box<Self>, background: &Background, error: Option<&Error>) {
        background
            .shared
            .flush_queued
            .store(false, Ordering::SeqCst);
        if let Some(error) = error {
            background.shared.note_background_error(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_bounded_by_number_and_by_bytes() {
        assert_eq!((sample_step(0, 0), sample_step(1000, 64 << 10)), (1, 1));
        // 128 MiB of short records.
        let step = sample_step(1 << 20, 128 << 20);
        assert_eq!((1 << 20) / step, SAMPLE_KEYS);
        // 128 MiB of keys of 64 KiB.
        let step = sample_step(2048, 128 << 20);
        assert_eq!(2048 / step * (64 << 10), SAMPLE_BYTES);
    }
}
