//! One round of value GC: the live records of a few segments of the log get other places, and the segments are retired.
//!
//! In steps of a millisecond or two: *scan* the victims; *verify* each record, in key order, against the view of the index; write the *values* that are live into segments of
//! their own, in that order; write a *run* of level 0 for each keyspace; *install* everything by one record of the manifest (`docs/decisions/010-relocation.md`). Where values are large, so that the index
//! is small beside them, it is *walked* instead of scanning and verifying: it names what is live, and nothing else of the victims is read.
//!
//! Thread safety: a round belongs to the job that runs it; between steps it holds no lock. Scanning, verifying and walking are divided ([`super::pieces`]): others may be in them.
//!
//! Invariants:
//! 1. A record is live if, and only if, the view's entry of its key has its pointer. Memtables are not asked: what an unsynced commit has overwritten is the newest again after a power cut.
//! 2. Places in the indexes, view of the log and choice of the victims belong together: they are taken while no flush is under way.
//! 3. A victim is retired only if everything was found in it that indexes point to (which is so by itself where they are walked), and every live value of it was read, or found in the cache, and verified.
//! 4. Given up at any place, a round leaves nothing but what it has learnt.

use super::pieces::{Invitation, Pieces, Unit};
use super::records::{MovedRun, Records};
use super::units::{Ahead, Scan, Scanned, Verify, Walk};
use crate::background::install::{Pending, Relocated, abandon};
use crate::engine::Engine;
use crate::state::version::KeyspaceState;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::index::{IndexView, Relocation};
use glintdb_core::{KeyspaceId, SegmentId, SeqNum, ValuePointer};
use glintdb_log::{BegunValues, Log, LogView, NewValues, Space, ValuesWriter};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Keys looked up together, and stretches of them that a round has where they are enough for it.
const VERIFY_KEYS: std::ops::RangeInclusive<usize> = 32..=512;
const VERIFY_STRETCHES: usize = 8;
/// Values read and written in a step, in records and in bytes.
const WRITE_RECORDS: usize = 512;
const WRITE_BYTES: usize = 1 << 20;

/// A keyspace's part in the round.
struct Part {
    state: Arc<KeyspaceState>,
    view: Arc<dyn IndexView>,
    /// The place for its run, until that is written.
    relocation: Option<Box<dyn Relocation>>,
}

enum State {
    Scan(Arc<Pieces<Scan>>),
    Verify(Arc<Pieces<Verify>>),
    Walk(Arc<Pieces<Walk>>),
    Values {
        /// What comes next, being read.
        chunk: Chunk,
        writer: Box<ValuesWriter>,
    },
    Runs {
        values: NewValues,
    },
    Install {
        values: NewValues,
        pending: Vec<Pending>,
    },
    Over,
}

/// Records whose values are written in a step: where they stand in the order, which of them are cached, and the reads of those that are not at hand.
struct Chunk {
    range: Range<usize>,
    /// Of their values.
    bytes: usize,
    cached: Vec<Option<Bytes>>,
    reads: Option<BegunValues>,
}

/// What comes next in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Scan,
    Verify,
    Walk,
    Values,
    Runs,
    Install,
    Over,
}

/// What a round came to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    /// Segments retired.
    pub(crate) victims: u64,
    /// Records in the victims, and those that were live.
    pub(crate) records: u64,
    pub(crate) live_records: u64,
    /// Bytes of values in the victims that indexes pointed to, and of those that were live.
    pub(crate) held_bytes: u64,
    /// Of these, bytes that were known to be shadowed or hidden when the round began.
    pub(crate) hidden_bytes: f64,
    pub(crate) live_bytes: u64,
    /// Of these, values that were cached and taken from there, and their bytes.
    pub(crate) cached_records: u64,
    pub(crate) cached_bytes: u64,
    /// Bytes of their keys.
    pub(crate) live_key_bytes: u64,
    /// What the live ones take in a segment.
    pub(crate) live_record_bytes: u64,
}

/// See the module's page.
pub(crate) struct Round {
    /// Segments that are to be emptied.
    victims: Vec<SegmentId>,
    /// Bytes of values in them that indexes' files point to.
    held: BTreeMap<SegmentId, BTreeMap<KeyspaceId, u64>>,
    /// Victims that are not to be retired: what was found wrong with them has been told.
    left_alone: BTreeSet<SegmentId>,
    parts: BTreeMap<KeyspaceId, Part>,
    /// Until the values are read.
    log: Option<LogView>,
    records: Arc<Records>,
    /// Records to be looked at, in the order of keyspace and key; then those that are live.
    order: Arc<Vec<u32>>,
    written: Vec<u32>,
    /// Records of victims that are left alone, which are not written.
    passed_over: usize,
    state: State,
    outcome: Outcome,
}

/// Work that others are invited to, to all but so many units of it.
fn divided<U: Unit + 'static>(
    engine: &Engine,
    units: impl Iterator<Item = U>,
    but: usize,
) -> Arc<Pieces<U>> {
    let pieces = Pieces::new(units);
    for _ in 0..(engine.helping.guests()).min(pieces.waiting().saturating_sub(but)) {
        engine
            .jobs
            .push(engine, Box::new(Invitation(Arc::clone(&pieces))));
    }
    pieces
}

/// A step of what is left to be taken; all units, where nothing is.
fn step<U: Unit>(pieces: &Pieces<U>, engine: &Engine) -> Option<Vec<U>> {
    match pieces.take(engine) {
        true => None,
        false => pieces.end(),
    }
}

/// Where a round's scans come from.
pub(crate) enum Scans {
    /// Everything is read by the round, and values are kept or read again.
    New { keeps_values: bool },
    /// Others have begun.
    Begun(Arc<Pieces<Scan>>),
    /// There are none: the indexes are walked.
    None,
}

/// Begins to scan what the next round will want, while nobody reads for this one.
pub(super) fn scan_ahead(engine: &Engine, ids: Vec<SegmentId>) -> Ahead {
    let scan = |id: &SegmentId| Scan::new(engine, *id, true);
    let scans = Some(divided(engine, ids.iter().map(scan), 0));
    Ahead { ids, scans }
}

impl Round {
    /// Begins a round over segments that `choose` names. `None`: a flush is under way.
    pub(crate) fn begin(
        engine: &Engine,
        choose: impl FnOnce(&crate::durable::manifest::State) -> Vec<SegmentId>,
        scans: Scans,
    ) -> Result<Option<Round>> {
        let Some(_no_flush) = engine.flush_lock.try_lock() else {
            return Ok(None);
        };
        let manifest = engine.manifest.lock();
        manifest.check()?;
        let state = manifest.state();
        let victims: Vec<(SegmentId, BTreeMap<KeyspaceId, u64>)> = (choose(state).into_iter())
            .map(|id| (id, state.liveness.get(&id).cloned().unwrap_or_default()))
            .collect();
        let version = engine.version.load_full();
        let concerned: BTreeSet<KeyspaceId> = (victims.iter())
            .flat_map(|(_, held)| held.keys().copied())
            .collect();
        let parts: BTreeMap<KeyspaceId, Part> = (version.live_keyspaces())
            .filter(|keyspace| concerned.contains(&keyspace.state.id))
            .map(|keyspace| {
                let relocation = keyspace.state.index.begin_relocation();
                let part = Part {
                    state: Arc::clone(&keyspace.state),
                    view: relocation.view(),
                    relocation: Some(relocation),
                };
                (keyspace.state.id, part)
            })
            .collect();
        let log = Some(engine.log.view());
        // While the manifest's lock keeps it from being the last one to hold files.
        drop(version);
        drop(manifest);
        let held = victims.iter().flat_map(|(_, held)| held.values());
        let outcome = Outcome {
            held_bytes: held.sum(),
            hidden_bytes: engine.gc.hidden_in(victims.iter().map(|(id, _)| *id)),
            ..Outcome::default()
        };
        let ids: Vec<SegmentId> = victims.iter().map(|(id, _)| *id).collect();
        let state = match scans {
            Scans::Begun(scans) => State::Scan(scans),
            Scans::New { keeps_values } => {
                let scan = |id: &SegmentId| Scan::new(engine, *id, keeps_values);
                State::Scan(divided(engine, ids.iter().map(scan), 1))
            }
            Scans::None => {
                let mut victims: BTreeSet<SegmentId> = ids.iter().copied().collect();
                while victims.len() > 1
                    && glintdb_core::seeded::bug(
                        "glintdb: value GC looks for one of its victims alone",
                    )
                {
                    victims.pop_first();
                }
                let victims = Arc::new(victims);
                let walk = |(id, part): (&KeyspaceId, &Part)| {
                    Walk::new(engine, *id, Arc::clone(&part.view), Arc::clone(&victims))
                };
                State::Walk(divided(engine, parts.iter().map(walk), 1))
            }
        };
        Ok(Some(Round {
            victims: ids,
            held: victims.into_iter().collect(),
            left_alone: BTreeSet::new(),
            parts,
            log,
            records: Arc::new(Records::new(&engine.memory)),
            order: Arc::default(),
            written: Vec::new(),
            passed_over: 0,
            state,
            outcome,
        }))
    }

    /// What comes next.
    pub(crate) fn place(&self) -> Place {
        match &self.state {
            State::Scan(_) => Place::Scan,
            State::Verify(_) => Place::Verify,
            State::Walk(_) => Place::Walk,
            State::Values { .. } => Place::Values,
            State::Runs { .. } => Place::Runs,
            State::Install { .. } => Place::Install,
            State::Over => Place::Over,
        }
    }

    /// What its new files take, until they are in the manifest.
    pub(crate) fn file_bytes(&self) -> u64 {
        match &self.state {
            State::Values { writer, .. } => writer.file_bytes(),
            State::Runs { values } | State::Install { values, .. } => values.file_bytes(),
            State::Scan(_) | State::Verify(_) | State::Walk(_) | State::Over => 0,
        }
    }

    /// The segments that are being emptied.
    pub(crate) fn victims(&self) -> impl ExactSizeIterator<Item = SegmentId> + '_ {
        self.victims.iter().copied()
    }

    /// A bounded piece of work. `Some`: the round is over. After an error nothing but [`give_up`](Self::give_up) is left.
    pub(crate) fn step(&mut self, engine: &Engine) -> Result<Option<Outcome>> {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Scan(scans) => match step(&*scans, engine) {
                Some(scans) => self.scanned(engine, scans)?,
                None => State::Scan(scans),
            },
            State::Verify(chunks) => match step(&*chunks, engine) {
                Some(chunks) => self.verified(engine, chunks)?,
                None => State::Verify(chunks),
            },
            State::Walk(walks) => match step(&*walks, engine) {
                Some(walks) => self.walked(engine, walks)?,
                None => State::Walk(walks),
            },
            State::Values { chunk, writer } => self.values(engine, chunk, writer)?,
            State::Runs { values } => self.runs(values)?,
            State::Install { values, pending } => {
                self.install(engine, values, pending)?;
                State::Over
            }
            State::Over => State::Over,
        };
        Ok((self.place() == Place::Over).then_some(self.outcome))
    }

    /// Takes back what is not in the manifest.
    pub(crate) fn give_up(self) {
        match self.state {
            State::Scan(scans) => scans.give_up(),
            State::Verify(chunks) => chunks.give_up(),
            State::Walk(walks) => walks.give_up(),
            State::Install { pending, .. } => abandon(pending),
            State::Values { .. } | State::Runs { .. } | State::Over => {}
        }
    }

    /// A victim is damaged: it stays, and nothing of it is moved that has not been.
    fn leave_alone(&mut self, engine: &Engine, id: SegmentId, error: &Error) {
        engine.gc.leave_alone(id, error);
        self.left_alone.insert(id);
        self.victims.retain(|victim| *victim != id);
    }

    /// Whether everything was found that indexes point to.
    fn check_found(&self, id: SegmentId, seen: &BTreeMap<KeyspaceId, u64>) -> Result<()> {
        let held = self.held.get(&id).into_iter().flatten();
        let of_parts = held.filter(|(id, _)| self.parts.contains_key(*id));
        let seen = |id| seen.get(id).copied().unwrap_or(0);
        let mut missing = of_parts.map(|(id, held)| held.saturating_sub(seen(id)));
        let Some(missing) = missing.find(|missing| *missing > 0) else {
            return Ok(());
        };
        let message =
            format!("expected values that indexes point to, of {missing} bytes found no record");
        Err(Error::corruption(id.file(), 0, message))
    }

    /// Everything is read: what comes next, in key order.
    fn scanned(&mut self, engine: &Engine, scans: Vec<Scan>) -> Result<State> {
        let mut records = Records::new(&engine.memory);
        let mut whole = BTreeSet::new();
        for scan in scans {
            if !self.victims.contains(&scan.id) {
                continue;
            }
            let scanned = match scan.scanned {
                Some(Scanned::Whole) => self.check_found(scan.id, &scan.seen),
                Some(Scanned::Failed(error)) => Err(error),
                Some(Scanned::NotNow) | None => continue,
            };
            match scanned {
                Ok(()) => {
                    whole.insert(scan.id);
                    records.append(scan.records);
                }
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.leave_alone(engine, scan.id, &error);
                }
                Err(error) => return Err(error),
            }
        }
        // Nothing is retired that was not read.
        self.victims.retain(|victim| whole.contains(victim));
        records.charge();
        if self.victims.is_empty() {
            return Ok(State::Over);
        }
        self.outcome.records = records.all.len() as u64;
        let order = Arc::new(records.in_order());
        let records = Arc::new(records);
        let keys = (order.len() / VERIFY_STRETCHES).clamp(*VERIFY_KEYS.start(), *VERIFY_KEYS.end());
        let mut chunks = Vec::new();
        let mut at = 0;
        while let Some(&first) = order.get(at) {
            let keyspace = records.all[first as usize].keyspace;
            let of_keyspace = |index: &&u32| records.all[**index as usize].keyspace == keyspace;
            let rest = order.get(at..).unwrap_or_default().iter();
            let range = at..at + rest.take(keys).take_while(of_keyspace).count();
            at = range.end;
            if let Some(part) = self.parts.get(&keyspace) {
                chunks.push(Verify {
                    records: Arc::clone(&records),
                    order: Arc::clone(&order),
                    range,
                    keyspace,
                    view: Arc::clone(&part.view),
                    result: Ok(()),
                });
            }
        }
        (self.records, self.order) = (records, order);
        Ok(State::Verify(divided(engine, chunks.into_iter(), 1)))
    }

    /// All of them are verified: what is live stays in `order`.
    fn verified(&mut self, engine: &Engine, chunks: Vec<Verify>) -> Result<State> {
        for chunk in chunks {
            chunk.result?;
        }
        let records = &*self.records;
        let live = |index: &u32| records.seqno(*index) != SeqNum::MAX;
        self.order = Arc::new(self.order.iter().copied().filter(live).collect());
        self.found_live(engine)
    }

    /// The indexes are walked: everything that they have of the victims is live.
    fn walked(&mut self, engine: &Engine, walks: Vec<Walk>) -> Result<State> {
        let mut records = Records::new(&engine.memory);
        for walk in walks {
            walk.result?;
            records.append(walk.records);
        }
        records.charge();
        self.outcome.records = records.all.len() as u64;
        self.order = Arc::new((0u32..).take(records.all.len()).collect());
        self.records = Arc::new(records);
        self.found_live(engine)
    }

    /// What is live stands in `order`, and is to be written anew.
    fn found_live(&mut self, engine: &Engine) -> Result<State> {
        let records = &*self.records;
        for &index in &*self.order {
            let value = u64::from(records.pointer(index).length);
            let key = records.key(index).len() as u64;
            self.outcome.live_bytes += value;
            self.outcome.live_key_bytes += key;
            self.outcome.live_record_bytes += records.stored_bytes(index);
        }
        self.outcome.live_records = self.order.len() as u64;
        let bytes = self.outcome.live_record_bytes;
        Ok(State::Values {
            chunk: self.begin_chunk(engine, 0),
            writer: Box::new(engine.log.values_writer(Space::Reserve, bytes)?),
        })
    }

    /// The next records that are written together, with the reads of their values begun; empty: there are no more.
    fn begin_chunk(&mut self, engine: &Engine, at: usize) -> Chunk {
        let (mut length, mut bytes) = (0, 0);
        let rest = self.order.get(at..).unwrap_or_default();
        for &index in rest.iter().take(WRITE_RECORDS) {
            if bytes >= WRITE_BYTES {
                break;
            }
            length += 1;
            bytes += self.records.pointer(index).length as usize;
        }
        let mut cached = Vec::with_capacity(length);
        let mut missing: Vec<ValuePointer> = Vec::new();
        for &index in &rest[..length] {
            let record = &self.records.all[index as usize];
            let key = self.records.key(index);
            let value = engine.cached_written(record.keyspace, key, &record.pointer);
            if value.is_some() {
                self.outcome.cached_records += 1;
                self.outcome.cached_bytes += u64::from(record.pointer.length);
            } else if record.value.is_none() {
                missing.push(record.pointer);
            }
            cached.push(value);
        }
        let reads = (self.log.as_ref())
            .filter(|_| !missing.is_empty())
            .map(|view| engine.log.begin_read_batch_in(view, missing));
        Chunk {
            range: at..at + length,
            bytes,
            cached,
            reads,
        }
    }

    fn values(
        &mut self,
        engine: &Engine,
        chunk: Chunk,
        mut writer: Box<ValuesWriter>,
    ) -> Result<State> {
        if chunk.range.is_empty() {
            if self.written.len() + self.passed_over != self.order.len() {
                return Err(Error::invalid("a round has lost a value"));
            }
            self.log = None;
            if let Some(records) = Arc::get_mut(&mut self.records) {
                records.forget_values();
            }
            return Ok(State::Runs {
                values: writer.finish(&engine.log)?,
            });
        }
        let mut read = (chunk.reads.map_or_else(Vec::new, BegunValues::wait)).into_iter();
        // While this one is written, unless it is one large value: two of those would be a lot of memory.
        let end = chunk.range.end;
        let ahead = (chunk.bytes <= 2 * WRITE_BYTES).then(|| self.begin_chunk(engine, end));
        let records = Arc::clone(&self.records);
        let order = Arc::clone(&self.order);
        engine.update_room_if_asked();
        let chunk_order = order.get(chunk.range).unwrap_or_default();
        for (&index, cached) in chunk_order.iter().zip(chunk.cached) {
            let record = &records.all[index as usize];
            let was_cached = cached.is_some();
            let value = match (cached, &record.value) {
                (Some(value), _) => Ok(value),
                (None, Some(value)) => Log::verified(&record.pointer, value.clone()),
                (None, None) => read
                    .next()
                    .unwrap_or_else(|| Err(Error::invalid("a value was not read"))),
            };
            let segment = record.pointer.segment;
            if self.left_alone.contains(&segment) {
                self.passed_over += 1;
                continue;
            }
            let value = match value {
                Ok(value) => value,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.leave_alone(engine, segment, &error);
                    self.passed_over += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (keyspace, key) = (record.keyspace, records.key(index));
            writer.put(&engine.log, keyspace, key, &value, record.pointer.checksum)?;
            if !was_cached {
                engine.offer_moving((keyspace, key), &record.pointer, &value);
            }
            self.written.push(index);
        }
        Ok(State::Values {
            chunk: ahead.unwrap_or_else(|| self.begin_chunk(engine, end)),
            writer,
        })
    }

    /// Writes the runs: synced, and seen by nobody yet.
    fn runs(&mut self, values: NewValues) -> Result<State> {
        let mut pending: Vec<Pending> = Vec::new();
        let mut from = 0;
        while let Some(&first) = self.written.get(from) {
            let keyspace = self.records.all[first as usize].keyspace;
            let rest = self.written.get(from..).unwrap_or_default();
            let of_keyspace =
                |index: &&u32| self.records.all[**index as usize].keyspace == keyspace;
            let to = from + rest.iter().take_while(of_keyspace).count();
            let relocation =
                (self.parts.get_mut(&keyspace)).and_then(|part| part.relocation.take());
            let state = self
                .parts
                .get(&keyspace)
                .map(|part| Arc::clone(&part.state));
            if let (Some(relocation), Some(keyspace)) = (relocation, state) {
                let mut run = MovedRun {
                    records: &self.records,
                    moved: self.written.get(from..to).unwrap_or_default(),
                    pointers: values.pointers().get(from..to).unwrap_or_default(),
                    at: 0,
                };
                match relocation.write(&mut run) {
                    Ok(change) => pending.push(Pending { keyspace, change }),
                    Err(error) => {
                        abandon(pending);
                        return Err(error);
                    }
                }
            }
            from = to;
        }
        Ok(State::Install { values, pending })
    }

    fn install(&mut self, engine: &Engine, values: NewValues, pending: Vec<Pending>) -> Result<()> {
        let victims: Vec<SegmentId> = self.victims().collect();
        if glintdb_core::seeded::bug(
            "glintdb: a victim goes before its values' new places are in the manifest",
        ) {
            for &victim in &victims {
                engine.log.delete(victim)?;
            }
        }
        self.outcome.victims = victims.len() as u64;
        // The places that no run was written to are free; those of the runs, when these are applied.
        self.parts.clear();
        let hidden = self.outcome.hidden_bytes;
        engine.gc.born(values.pointers(), &victims, hidden);
        let records = &self.records;
        let from = self.written.iter().map(|&index| {
            let keyspace = records.all[index as usize].keyspace;
            (keyspace, records.key(index), *records.pointer(index))
        });
        engine.commit_moved(pending, Relocated { values, victims }, from)
    }
}
