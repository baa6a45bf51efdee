//! Flush as a job: what is in memory goes into the indexes.
//!
//! Thread safety: one flush at a time (its lock).
//!
//! Invariant: what a flush writes is seen by nobody before its change is committed
//! ([`crate::background::install`]), and the log is synced up to the flush point before.

use crate::background::install::{Flushed, Pending, abandon};
use crate::background::queue::{Job, Progress};
use crate::durable::manifest::{FlushPoint, Item};
use crate::engine::Engine;
use crate::read::merge::{Merge, Source};
use crate::state::resident::{Resident, Residents};
use crate::state::version::{Generation, KeyspaceMem, KeyspaceState, Version};
use crate::write::backpressure::flush_debt::LOOK_ENTRIES;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::{JobPriority, SortedRun};
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{EntryRef, RangeTombstone, SeqNum};
use glintdb_log::Lsn;
use glintdb_memtable::MemCursor;
use std::ops::Bound;
use std::sync::Arc;

/// What a flush writes of one keyspace, as a sorted run: a memtable, and the resident runs beneath it. What range tombstones hide is left out.
pub(crate) struct MemtableRun<'a> {
    source: FlushSource,
    /// All of them.
    ranges: Vec<RangeTombstone>,
    /// Those of the memtable, newer than what lies beneath it.
    hiding: Vec<RangeTombstone>,
    entries: usize,
    sample: Sample,
    /// Entries until the next one that is part of the sample.
    until_sample: usize,
    /// Told of each so many entries that were taken.
    progress: &'a mut dyn FnMut(usize),
    taken: usize,
}

/// Where entries come from, newest first where keys are equal.
enum FlushSource {
    Memtable(MemCursor),
    Merged(Merge),
}

impl FlushSource {
    fn advance(&mut self) -> Result<bool> {
        match self {
            FlushSource::Memtable(cursor) => Ok(cursor.advance()),
            FlushSource::Merged(merge) => merge.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            FlushSource::Memtable(cursor) => cursor.key(),
            FlushSource::Merged(merge) => merge.key(),
        }
    }

    fn seqno(&self) -> SeqNum {
        match self {
            FlushSource::Memtable(cursor) => cursor.seqno(),
            FlushSource::Merged(merge) => merge.seqno(),
        }
    }

    fn value(&self) -> EntryRef<'_> {
        match self {
            FlushSource::Memtable(cursor) => cursor.value(),
            FlushSource::Merged(merge) => merge.value(),
        }
    }
}

/// Keys of a flush that are looked up, at most, to know how much it overwrites.
const SAMPLE_KEYS: usize = 1024;

/// Keys of a memtable, evenly spread.
pub(crate) struct Sample {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) keys: Vec<Vec<u8>>,
    /// Each stands for so many.
    pub(crate) step: usize,
}

impl<'a> MemtableRun<'a> {
    /// Of `keyspace`: `mem` and what is `resident`, at least one of them.
    pub(crate) fn new(
        keyspace: &Arc<KeyspaceState>,
        mem: Option<&KeyspaceMem>,
        resident: Option<&Resident>,
        progress: &'a mut dyn FnMut(usize),
    ) -> Result<MemtableRun<'a>> {
        let (all, forward) = (Bound::Unbounded, glintdb_core::Direction::Forward);
        let cursor = mem.map(|mem| mem.map.cursor(all, all, forward, SeqNum::MAX));
        let hiding = mem.map_or_else(Vec::new, |mem| mem.ranges.at(SeqNum::MAX));
        let mut ranges = hiding.clone();
        let mut entries = mem.map_or(0, |mem| mem.map.len());
        let source = match (cursor, resident) {
            (Some(cursor), None) => FlushSource::Memtable(cursor),
            (cursor, resident) => {
                let mut sources: Vec<Source> = cursor.map(Source::Memtable).into_iter().collect();
                if let Some(resident) = resident {
                    let beneath = resident.view.cursor(all, all, forward)?;
                    sources.push(Source::Index(beneath));
                    entries += usize::try_from(resident.entries()).unwrap_or(usize::MAX / 2);
                    if !glintdb_core::seeded::bug(
                        "glintdb: range deletions of resident runs are not persisted",
                    ) {
                        ranges.extend_from_slice(&resident.ranges);
                    }
                }
                FlushSource::Merged(Merge::new(sources, Vec::new(), forward).keep_deleted())
            }
        };
        Ok(MemtableRun {
            source,
            ranges,
            hiding,
            entries,
            sample: Sample {
                keyspace: Arc::clone(keyspace),
                keys: Vec::new(),
                step: entries.div_ceil(SAMPLE_KEYS).max(1),
            },
            until_sample: 0,
            progress,
            taken: 0,
        })
    }

    fn hidden(&self) -> bool {
        let (key, seqno) = (self.source.key(), self.source.seqno());
        self.hiding
            .iter()
            .any(|range| range.seqno > seqno && range.covers(key))
    }
}

impl SortedRun for MemtableRun<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        loop {
            if !self.source.advance()? {
                return Ok(None);
            }
            if self.hiding.is_empty() || !self.hidden() {
                break;
            }
        }
        if self.until_sample == 0 {
            self.until_sample = self.sample.step;
            self.sample.keys.push(self.source.key().to_vec());
        }
        self.until_sample -= 1;
        self.taken += 1;
        if self.taken == LOOK_ENTRIES {
            (self.progress)(self.taken);
            self.taken = 0;
        }
        Ok(Some((
            self.source.key(),
            self.source.seqno(),
            self.source.value(),
        )))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        if glintdb_core::seeded::bug("glintdb: a flush forgets range deletions") {
            return &[];
        }
        &self.ranges
    }

    fn entries_hint(&self) -> usize {
        self.entries
    }
}

/// Writes what a generation, and the resident runs of a version, hold of each keyspace to its index; nothing is visible yet. With a sample of its keys. `progress` is told of every so many entries.
pub(crate) fn write_generation(
    generation: Option<&Generation>,
    residents: &Residents,
    keyspaces: impl Iterator<Item = Arc<KeyspaceState>>,
    progress: &mut dyn FnMut(usize),
) -> Result<(Vec<Pending>, Vec<Sample>)> {
    let (mut pending, mut samples) = (Vec::new(), Vec::new());
    for keyspace in keyspaces {
        let mem = generation.and_then(|generation| generation.keyspace(keyspace.id));
        let mem = mem.filter(|mem| !mem.is_empty());
        let mut resident = residents.get(&keyspace.id);
        if mem.is_none()
            && glintdb_core::seeded::bug(
                "glintdb: resident runs of a keyspace that has nothing newer are not persisted",
            )
        {
            resident = None;
        }
        // Not left out where it is being dropped: the drop may fail yet. What nobody wants is given up under the manifest's lock.
        if mem.is_none() && resident.is_none() {
            continue;
        }
        if !pending.is_empty()
            && glintdb_core::seeded::bug("glintdb: a flush writes one keyspace and no more")
        {
            break;
        }
        let written = MemtableRun::new(&keyspace, mem, resident, progress)
            .and_then(|mut run| Ok((keyspace.index.write_run(&mut run)?, run)));
        match written {
            Ok((change, run)) => {
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

impl Engine {
    /// Takes the oldest sealed generation out of the memtables: it is written to the indexes, with the reserve's space where there is no other, and with it what is resident; or, where runs may be and nobody
    /// asks to have it `written`, it becomes a resident run. `Ok(false)`: there is nothing to do.
    pub(crate) fn flush_oldest(&self, written: bool) -> Result<bool> {
        let _one_at_a_time = self.flush_lock.lock();
        let flushed = match self.with_reserve(|| self.flush_oldest_once(written)) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                let _borrowed = self.reserve.borrow()?;
                self.give_way(error, || self.flush_oldest_once(true))
            }
            flushed => flushed,
        }?;
        if flushed
            && self.reserve.is_lent()
            && let Err(error) = self.refill_reserve(0)
        {
            self.note_background_error(&error);
        }
        if flushed {
            self.enforce_pin_limit();
        }
        Ok(flushed)
    }

    fn flush_oldest_once(&self, written: bool) -> Result<bool> {
        let version = self.version.load_full();
        let oldest = version.sealed.last().cloned();
        if oldest.is_none() && (version.held.runs == 0 || !(written || self.wants_persist())) {
            return Ok(false);
        }
        let after = match version.sealed.len() {
            0 | 1 => &version.active,
            count => &version.sealed[count - 2],
        };
        let point = FlushPoint {
            lsn: after.start_lsn,
            seqno: SeqNum(after.first_seqno.0 - 1),
        };
        self.pipeline.wait_visible(point.seqno)?;
        let keyspaces: Vec<_> = (version.live_keyspaces())
            .map(|keyspace| Arc::clone(&keyspace.state))
            .collect();
        if let Some(oldest) = oldest.as_ref().filter(|_| !written)
            && self.may_hold(&version, oldest)
        {
            drop(version);
            let pace = self.begin_drain(oldest.entries(), oldest.index_bytes());
            self.hold(oldest, keyspaces.into_iter(), &mut |entries| {
                pace.progress(entries);
            })?;
            if glintdb_core::seeded::bug("glintdb: the flush point passes a run that is only held")
            {
                let items = [
                    Item::FlushPoint(point),
                    Item::LogDurable(self.log.durable()),
                ];
                self.manifest.lock().commit(&items)?;
            }
            pace.through();
            return Ok(true);
        }
        if !glintdb_core::seeded::bug("glintdb: the manifest runs ahead of the log") {
            self.sync_log_to(point.lsn)?;
        }
        let (entries, bytes) = oldest
            .as_ref()
            .map_or((0, 0), |one| (one.entries(), one.index_bytes()));
        // No more of the version than that: it would keep segments that die meanwhile.
        let residents = version.residents();
        let of_residents: u64 = residents.values().map(Resident::entries).sum();
        let entries = entries + usize::try_from(of_residents).unwrap_or(usize::MAX / 2);
        let bytes = bytes + version.held.index_bytes;
        drop(version);
        self.collect_garbage_if_waiting();
        let pace = self.begin_drain(entries, bytes);
        let (pending, samples) = write_generation(
            oldest.as_deref(),
            &residents,
            keyspaces.into_iter(),
            &mut |entries| pace.progress(entries),
        )?;
        self.sample_overwritten(&samples);
        let mut point = point;
        if glintdb_core::seeded::bug("glintdb: the flush point lies a commit too far") {
            point.seqno = point.seqno.next();
        }
        let flushed = Flushed {
            generation: oldest.as_ref(),
            point,
        };
        self.commit_changes(pending, Some(flushed), None)?;
        pace.through();
        Ok(true)
    }

    /// The end of the log that must be durable before `lsn` may be a flush point.
    pub(crate) fn sync_log_to(&self, lsn: Lsn) -> Result<()> {
        self.log
            .sync(lsn)
            .inspect_err(|error| self.pipeline.fail(error))
    }
}

/// Writes sealed memtables to the indexes until there is none.
pub(crate) struct FlushJob;

impl Job for FlushJob {
    fn step(&mut self, engine: &Engine) -> Result<Progress> {
        engine.flush_oldest(false)?;
        // To hold a run in memory shows nothing of the medium.
        if engine.version.load().held.runs == 0 {
            engine.background_recovered();
        }
        let more = || engine.version.load().has_sealed() || engine.wants_persist();
        if more() {
            return Ok(Progress::More);
        }
        engine.flush_queued.store(false, Ordering::SeqCst);
        // A memtable sealed just before the flag fell queued nothing.
        if more() && !engine.flush_queued.swap(true, Ordering::SeqCst) {
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

    fn abandon(self: Box<Self>, engine: &Engine, error: Option<&Error>) {
        engine.flush_queued.store(false, Ordering::SeqCst);
        if let Some(error) = error {
            engine.note_background_error(error);
        }
    }
}

impl Version {
    /// Whether anything waits to be flushed.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }
}
