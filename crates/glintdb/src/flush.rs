//! Flush as a job, and how every change of an index, a compaction's and a round's too, becomes durable, then visible.
//!
//! Thread safety: one flush at a time (its lock); changes are committed under the manifest lock.
//!
//! Invariants (order of durability, DESIGN "Data log"):
//! 1. The log is synced up to a change's newest sequence number before the manifest edit that records the change is written.
//! 2. An index edit, the liveness it changes and, for a flush, the flush point are one manifest edit.
//! 3. A segment's file goes only when, in the synced manifest, it holds no live value and lies below the flush point or is no part of the stream, and no version names it any more.

use crate::drain::LOOK_ENTRIES;
use crate::engine::Engine;
use crate::jobs::{Host, Job, Progress};
use crate::manifest::{FlushPoint, Item};
use crate::merge::{Merge, Source};
use crate::resident::{Resident, Residents};
use crate::version::{Generation, KeyspaceMem, KeyspaceState, KeyspaceVersion, Version};
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::{IndexChange, JobPriority, SortedRun};
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{EntryRef, RangeTombstone, SegmentId, SeqNum};
use glintdb_log::{Lsn, NewValues};
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

/// A change of one keyspace's index that waits for the manifest.
pub(crate) struct Pending {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) change: IndexChange,
}

/// What a flush takes away from memory when its change is durable, the resident runs beside it.
pub(crate) struct Flushed<'a> {
    pub(crate) generation: Option<&'a Arc<Generation>>,
    pub(crate) point: FlushPoint,
}

/// Values in their new segments, with the segments that they were in.
pub(crate) struct Relocated {
    pub(crate) values: NewValues,
    /// Whatever is live in them has moved.
    pub(crate) victims: Vec<SegmentId>,
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

/// Gives up changes that did not reach the manifest.
pub(crate) fn abandon(pending: Vec<Pending>) {
    for Pending { keyspace, change } in pending {
        keyspace.index.abandon(change);
    }
}

/// The items that record changes.
pub(crate) fn items_of(pending: &[Pending], flush_point: Option<FlushPoint>) -> Vec<Item> {
    let mut items = Vec::new();
    for Pending { keyspace, change } in pending {
        if !change.edit.is_empty() {
            items.push(Item::IndexEdit {
                keyspace: keyspace.id,
                edit: change.edit.clone(),
            });
        }
        for delta in change.liveness.iter().filter(|delta| delta.bytes != 0) {
            if delta.bytes < 0
                && glintdb_core::seeded::bug("glintdb: values that die are not counted")
            {
                continue;
            }
            items.push(Item::Liveness {
                keyspace: keyspace.id,
                segment: delta.segment,
                bytes: delta.bytes,
            });
        }
    }
    items.extend(flush_point.map(Item::FlushPoint));
    items
}

/// While a change is made. Where that panics, nobody knows what the manifest says of it, or which part of it is in memory.
struct HalfMade<'a>(&'a Engine);

impl Drop for HalfMade<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.after_panic("a change of the indexes");
        }
    }
}

impl Engine {
    /// Commits changes in one manifest edit, applies them and installs the new version; a flush also takes away the generation it has written,
    /// a round of value GC the segments it has emptied.
    pub(crate) fn commit_changes(
        &self,
        pending: Vec<Pending>,
        flushed: Option<Flushed<'_>>,
        relocated: Option<Relocated>,
    ) -> Result<()> {
        // On a caller's thread too. Before the lock: it goes behind it.
        let _half_made = HalfMade(self);
        let mut manifest = self.manifest.lock();
        // Keyspaces dropped meanwhile: what was written for them is nobody's.
        let (pending, dropped): (Vec<_>, Vec<_>) = pending.into_iter().partition(|pending| {
            manifest
                .state()
                .keyspaces
                .contains_key(&pending.keyspace.id)
        });
        abandon(dropped);
        let mut items = items_of(&pending, flushed.as_ref().map(|flushed| flushed.point));
        let (mut values, victims) = relocated
            .map(|relocated| (relocated.values, relocated.victims))
            .unzip();
        // A victim may have died by itself meanwhile, or with a keyspace.
        let moved = values.is_some();
        let of_round = victims.as_ref().is_some_and(|victims| !victims.is_empty());
        let victims = victims.into_iter().flatten();
        items.extend(
            victims
                .filter(|victim| manifest.state().is_live(*victim))
                .map(Item::SegmentRetired),
        );
        if glintdb_core::seeded::bug("glintdb: values that move are not counted")
            && values.is_some()
        {
            items.retain(|item| !matches!(item, Item::Liveness { .. }));
        }
        if !items.is_empty() {
            items.push(Item::LogDurable(self.log.durable()));
        }
        let early = glintdb_core::seeded::bug("glintdb: tables go before the manifest says so");
        for Pending { keyspace, change } in pending.iter().filter(|_| early) {
            keyspace.index.apply(change)?;
        }
        let committed = match items.is_empty() {
            true => Ok(()),
            false => manifest.commit(&items),
        };
        let committed = match committed {
            Err(error)
                if error.kind() == ErrorKind::NoSpace
                    && glintdb_core::seeded::bug(
                        "glintdb: a change that found no space takes effect",
                    ) =>
            {
                Ok(())
            }
            committed => committed,
        };
        if let Err(error) = committed {
            // A manifest that still takes edits has not begun to write this one, or has taken it back.
            let sure = manifest.check().is_ok();
            if sure
                || glintdb_core::seeded::bug("glintdb: the files of an edit in doubt are removed")
            {
                abandon(pending);
            } else {
                // Whether the edit is durable is unknown, so its files stay until the next open decides.
                values.take().into_iter().for_each(NewValues::leave);
                self.note_background_error(&error);
            }
            // Then their files go, which takes as long as the file system likes.
            drop(manifest);
            drop(values);
            return Err(error);
        }
        // The manifest names them: they stay whatever comes.
        values
            .into_iter()
            .for_each(|values| self.log.publish_values(values));
        if of_round {
            self.gc.published();
        }
        for Pending { keyspace, change } in pending.iter().filter(|_| !early) {
            keyspace.index.apply(change)?;
        }
        if let Some(flushed) = &flushed {
            let held = self.version.load().held.index_bytes;
            let generation = flushed.generation.map_or(0, |one| one.index_bytes());
            self.sequencer.lock().flushed(held + generation);
            self.gc.flushed();
        } else if !moved {
            let state = manifest.state();
            let deltas = (pending.iter()).flat_map(|pending| &pending.change.liveness);
            let dropped =
                deltas.filter(|delta| delta.bytes < 0 && !state.retired.contains(&delta.segment));
            self.gc
                .dropped(dropped.map(|delta| (delta.segment, delta.bytes.unsigned_abs())));
        }
        let replaced = self.install(|version| {
            let mut next = version.clone();
            for Pending { keyspace, .. } in &pending {
                let resident = next.resident(keyspace.id).cloned();
                next = next.with_keyspace(KeyspaceVersion {
                    state: Arc::clone(keyspace),
                    view: keyspace.index.view(),
                    resident,
                });
            }
            if let Some(flushed) = &flushed {
                next.sealed.retain(|sealed| {
                    !flushed
                        .generation
                        .is_some_and(|one| Arc::ptr_eq(sealed, one))
                });
                next.held = Default::default();
                for keyspace in next.keyspaces.iter_mut().flatten() {
                    keyspace.resident = None;
                }
            }
            next
        });
        if manifest.wants_roll() {
            let snapshots = self.index_snapshots();
            // The change is done. A full disk only means that the file goes on growing; anything else poisons the manifest, and the next edit tells.
            if let Err(error) = manifest.roll(snapshots)
                && error.kind() != ErrorKind::NoSpace
            {
                self.note_background_error(&error);
            }
        }
        drop(manifest);
        self.update_throttle();
        // The tables that were merged go with it, unless somebody still reads: not under a lock that writers and flushes wait for, and before segments are looked at that nobody reads any more.
        drop(replaced);
        self.collect_garbage();
        self.update_space();
        if let Err(error) = self.refill_reserve(0) {
            self.note_background_error(&error);
        }
        Ok(())
    }

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
    fn sync_log_to(&self, lsn: Lsn) -> Result<()> {
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

/// Moves the log's ring to its segments, and prepares the next segment.
pub(crate) struct SpillJob;

impl Job for SpillJob {
    fn step(&mut self, engine: &Engine) -> Result<Progress> {
        engine.log_step()?;
        if engine.log_due() {
            return Ok(Progress::More);
        }
        engine.spill_queued.store(false, Ordering::SeqCst);
        // A commit that saw the flag just before it fell queued nothing.
        if engine.log_due() && !engine.spill_queued.swap(true, Ordering::SeqCst) {
            return Ok(Progress::More);
        }
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "log spill".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Spill
    }

    fn abandon(self: Box<Self>, engine: &Engine, _error: Option<&Error>) {
        engine.spill_queued.store(false, Ordering::SeqCst);
    }
}

impl Version {
    /// Whether anything waits to be flushed.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }
}
