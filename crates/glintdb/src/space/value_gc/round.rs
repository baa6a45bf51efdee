//! One round of value GC: it writes the live records of a few log segments, the *victims*, to new
//! segments and retires the victims.
//!
//! A round works in steps of a millisecond or two:
//! 1. *Scan* the victims.
//! 2. *Verify* each record, in key order, against the view of the index.
//! 3. Write the live *values* into new segments, in key order.
//! 4. Write a *run* of level 0 for each keyspace.
//! 5. *Install* everything by one record of the manifest.
//!
//! If values are large, the index is small beside them. Then the round *walks* the index instead of
//! steps 1 and 2, and reads only the live values of the victims
//! (`docs/decisions/010-relocation.md`).
//!
//! Thread safety: a round belongs to the job that runs it. Between steps it holds no lock.
//!
//! Invariants:
//! 1. A record is live if and only if the view's entry of its key has its pointer. Memtables do not
//!    count: after a power cut, a record that an unsynced commit replaced is the newest one again.
//! 2. The places in the indexes, the view of the log and the choice of victims are taken together,
//!    while no flush runs.
//! 3. A victim is retired only if the round found in it all values that indexes point to, and read
//!    and verified each live one (or found it in the cache). A walk finds all of them by itself.
//! 4. A round that is given up leaves nothing but what value GC learnt from it.

use super::ValueGc;
use super::records::{MovedRun, Records};
use super::units::{Scan, Scanned, Walk, verify};
use crate::background::install::{Pending, Relocated, abandon};
use crate::space::gc::Outcome;
use crate::state::version::KeyspaceState;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::index::{IndexView, Relocation};
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{KeyspaceId, SegmentId, SeqNum, ValuePointer, planted};
use glintdb_log::{BegunValues, Log, LogView, NewValues, Space, ValuesWriter};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Keys that are looked up together.
const VERIFY_KEYS: usize = 512;
/// Values read and written in a step: number and bytes.
const WRITE_RECORDS: usize = 512;
const WRITE_BYTES: usize = 1 << 20;

/// The part of one keyspace in the round.
struct Part {
    state: Arc<KeyspaceState>,
    view: Arc<dyn IndexView>,
    /// The place of its run in the index, until the run is written.
    relocation: Option<Box<dyn Relocation>>,
}

enum State {
    /// The scan at the front of the queue is under way.
    Scan(VecDeque<Scan>, Vec<Scan>),
    /// The records before this place in the order are verified.
    Verify(usize),
    /// The walk at the front of the queue is under way.
    Walk(VecDeque<Walk>, Vec<Walk>),
    Values {
        /// The values that are written next; their reads have begun.
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

/// Records whose values are written in one step.
///
/// `range` is their place in the order. `reads` has the values that are neither cached nor kept
/// since the scan.
struct Chunk {
    range: Range<usize>,
    /// Bytes of their values.
    bytes: usize,
    cached: Vec<Option<Bytes>>,
    reads: Option<BegunValues>,
}

/// The next kind of step of a round.
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

/// A round of value GC under way.
pub(crate) struct Round {
    /// Segments that the round empties.
    victims: Vec<SegmentId>,
    /// Bytes of values in the victims that files of indexes point to.
    held: BTreeMap<SegmentId, BTreeMap<KeyspaceId, u64>>,
    /// Victims that turned out to be damaged. They are reported and stay.
    left_alone: BTreeSet<SegmentId>,
    parts: BTreeMap<KeyspaceId, Part>,
    /// View of the log, until the values are read.
    log: Option<LogView>,
    records: Records,
    /// Records in the order of keyspace and key; once they are verified, the live ones.
    order: Vec<u32>,
    written: Vec<u32>,
    /// Number of records in damaged victims, which are not written.
    passed_over: usize,
    state: State,
    outcome: Outcome,
}

/// Does a step of the first unit that waits, and moves the unit to `over` if it was the last one.
/// Returns false if none waits.
fn step_first<U>(
    waiting: &mut VecDeque<U>,
    over: &mut Vec<U>,
    step: impl FnOnce(&mut U) -> bool,
) -> bool {
    let Some(unit) = waiting.front_mut() else {
        return false;
    };
    if step(unit) {
        over.extend(waiting.pop_front());
    }
    true
}

/// How a round finds the live records.
pub(crate) enum Scans {
    /// It scans the victims, and keeps the values it finds or reads the live ones again.
    New { keeps_values: bool },
    /// It walks the indexes.
    None,
}

impl Round {
    /// Begins a round over segments that `choose` names. `None`: a flush is under way, or an index
    /// is about to be replaced.
    pub(crate) fn begin(
        gc: &ValueGc,
        choose: impl FnOnce(&crate::durable::manifest::State) -> Vec<SegmentId>,
        scans: Scans,
    ) -> Result<Option<Round>> {
        let Some(_no_flush) = gc.background.try_no_flush() else {
            return Ok(None);
        };
        let manifest = gc.shared.manifest.lock();
        manifest.check()?;
        let state = manifest.state();
        let victims: Vec<(SegmentId, BTreeMap<KeyspaceId, u64>)> = (choose(state).into_iter())
            .map(|id| (id, state.liveness.get(&id).cloned().unwrap_or_default()))
            .collect();
        let version = gc.shared.version.load_full();
        let concerned: BTreeSet<KeyspaceId> = (victims.iter())
            .flat_map(|(_, held)| held.keys().copied())
            .collect();
        let concerned =
            || (version.live_keyspaces()).filter(|keyspace| concerned.contains(&keyspace.state.id));
        if concerned().any(|keyspace| keyspace.state.switching.load(Ordering::Acquire)) {
            return Ok(None);
        }
        let parts: BTreeMap<KeyspaceId, Part> = concerned()
            .map(|keyspace| {
                let relocation = keyspace.state.index().begin_relocation();
                let part = Part {
                    state: Arc::clone(&keyspace.state),
                    view: relocation.view(),
                    relocation: Some(relocation),
                };
                (keyspace.state.id, part)
            })
            .collect();
        let log = Some(gc.shared.log.view());
        // Dropped under the manifest's lock, so that it is not the last one to hold files.
        drop(version);
        drop(manifest);
        let held = victims.iter().flat_map(|(_, held)| held.values());
        let outcome = Outcome {
            held_bytes: held.sum(),
            hidden_bytes: gc.space.gc.hidden_in(victims.iter().map(|(id, _)| *id)),
            ..Outcome::default()
        };
        let ids: Vec<SegmentId> = victims.iter().map(|(id, _)| *id).collect();
        let state = match scans {
            Scans::New { keeps_values } => {
                let scan = |id: &SegmentId| Scan::new(gc, *id, keeps_values);
                State::Scan(ids.iter().map(scan).collect(), Vec::new())
            }
            Scans::None => {
                let victims: BTreeSet<SegmentId> = planted!(
                    "glintdb: value GC looks for one of its victims alone",
                    ids.iter().copied().collect(),
                    ids.iter().copied().max().into_iter().collect()
                );
                let victims = Arc::new(victims);
                let walk = |(id, part): (&KeyspaceId, &Part)| {
                    Walk::new(gc, *id, Arc::clone(&part.view), Arc::clone(&victims))
                };
                State::Walk(parts.iter().map(walk).collect(), Vec::new())
            }
        };
        Ok(Some(Round {
            victims: ids,
            held: victims.into_iter().collect(),
            left_alone: BTreeSet::new(),
            parts,
            log,
            records: Records::new(&gc.shared.memory),
            order: Vec::new(),
            written: Vec::new(),
            passed_over: 0,
            state,
            outcome,
        }))
    }

    /// Returns the next kind of step.
    pub(crate) fn place(&self) -> Place {
        match &self.state {
            State::Scan(..) => Place::Scan,
            State::Verify(_) => Place::Verify,
            State::Walk(..) => Place::Walk,
            State::Values { .. } => Place::Values,
            State::Runs { .. } => Place::Runs,
            State::Install { .. } => Place::Install,
            State::Over => Place::Over,
        }
    }

    /// Returns the bytes of its new files, until they are in the manifest.
    pub(crate) fn file_bytes(&self) -> u64 {
        match &self.state {
            State::Values { writer, .. } => writer.file_bytes(),
            State::Runs { values } | State::Install { values, .. } => values.file_bytes(),
            State::Scan(..) | State::Verify(_) | State::Walk(..) | State::Over => 0,
        }
    }

    /// Returns the segments that are being emptied.
    pub(crate) fn victims(&self) -> impl ExactSizeIterator<Item = SegmentId> + '_ {
        self.victims.iter().copied()
    }

    /// Does a bounded piece of work. Returns the result if the round is over. After an error the
    /// round must be [given up](Self::give_up).
    pub(crate) fn step(&mut self, gc: &ValueGc) -> Result<Option<Outcome>> {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Scan(mut waiting, mut over) => {
                match step_first(&mut waiting, &mut over, |scan| scan.step(gc)) {
                    true => State::Scan(waiting, over),
                    false => self.scanned(gc, over)?,
                }
            }
            State::Verify(at) => self.verify(gc, at)?,
            State::Walk(mut waiting, mut over) => {
                match step_first(&mut waiting, &mut over, Walk::step) {
                    true => State::Walk(waiting, over),
                    false => self.walked(gc, over)?,
                }
            }
            State::Values { chunk, writer } => self.values(gc, chunk, writer)?,
            State::Runs { values } => self.runs(values)?,
            State::Install { values, pending } => {
                self.install(gc, values, pending)?;
                State::Over
            }
            State::Over => State::Over,
        };
        Ok((self.place() == Place::Over).then_some(self.outcome))
    }

    /// Gives up changes that are not in the manifest.
    pub(crate) fn give_up(self) {
        if let State::Install { pending, .. } = self.state {
            abandon(pending);
        }
    }

    /// Excludes a damaged victim: it stays, and no more of its values are moved.
    fn leave_alone(&mut self, gc: &ValueGc, id: SegmentId, error: &Error) {
        gc.space.gc.leave_alone(id, error);
        self.left_alone.insert(id);
        self.victims.retain(|victim| *victim != id);
    }

    /// Checks that a scan found all values that indexes point to.
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

    /// Collects the records of all scans, in key order, and begins to verify them.
    fn scanned(&mut self, gc: &ValueGc, scans: Vec<Scan>) -> Result<State> {
        let mut records = Records::new(&gc.shared.memory);
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
                    self.leave_alone(gc, scan.id, &error);
                }
                Err(error) => return Err(error),
            }
        }
        // Only segments that were read whole are retired.
        self.victims.retain(|victim| whole.contains(victim));
        records.charge();
        if self.victims.is_empty() {
            return Ok(State::Over);
        }
        self.outcome.records = records.all.len() as u64;
        (self.order, self.records) = (records.in_order(), records);
        Ok(State::Verify(0))
    }

    /// Verifies some more records, of one keyspace. After the last ones, those that are live stay
    /// in `order`.
    fn verify(&mut self, gc: &ValueGc, at: usize) -> Result<State> {
        let rest = self.order.get(at..).unwrap_or_default();
        let Some(&first) = rest.first() else {
            let live = |index: &u32| {
                planted!(
                    "glintdb: value GC believes commits that are not durable",
                    self.records.seqno(*index) != SeqNum::MAX,
                    self.records.seqno(*index) != SeqNum::MAX
                        && (gc.shared.version.load().generations())
                            .filter_map(|one| {
                                one.keyspace(self.records.all[*index as usize].keyspace)
                            })
                            .all(|mem| mem.get(self.records.key(*index), SeqNum::MAX).is_none())
                )
            };
            self.order = self.order.iter().copied().filter(live).collect();
            return self.found_live(gc);
        };
        let keyspace = self.records.all[first as usize].keyspace;
        let of_keyspace = |index: &&u32| self.records.all[**index as usize].keyspace == keyspace;
        let count = (rest.iter().take(VERIFY_KEYS))
            .take_while(of_keyspace)
            .count();
        if let Some(part) = self.parts.get(&keyspace) {
            verify(&mut self.records, &rest[..count], &*part.view)?;
        }
        Ok(State::Verify(at + count))
    }

    /// Collects the entries of all walks. All of them are live.
    fn walked(&mut self, gc: &ValueGc, walks: Vec<Walk>) -> Result<State> {
        let mut records = Records::new(&gc.shared.memory);
        for walk in walks {
            walk.result?;
            records.append(walk.records);
        }
        records.charge();
        self.outcome.records = records.all.len() as u64;
        self.order = (0u32..).take(records.all.len()).collect();
        self.records = records;
        self.found_live(gc)
    }

    /// Begins to write the live values, whose records are in `order`.
    fn found_live(&mut self, gc: &ValueGc) -> Result<State> {
        let records = &self.records;
        for &index in &self.order {
            let value = u64::from(records.pointer(index).length);
            let key = records.key(index).len() as u64;
            self.outcome.live_bytes += value;
            self.outcome.live_key_bytes += key;
            self.outcome.live_record_bytes += records.stored_bytes(index);
        }
        self.outcome.live_records = self.order.len() as u64;
        let bytes = self.outcome.live_record_bytes;
        Ok(State::Values {
            chunk: self.begin_chunk(gc, 0),
            writer: Box::new(gc.shared.log.values_writer(Space::Reserve, bytes)?),
        })
    }

    /// Chooses the next records that are written together, and begins the reads of their values.
    /// Returns an empty chunk if there are no more.
    fn begin_chunk(&mut self, gc: &ValueGc, at: usize) -> Chunk {
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
            let value = gc
                .shared
                .values
                .get_large(record.keyspace, key, &record.pointer);
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
            .map(|view| gc.shared.log.begin_read_batch_in(view, missing));
        Chunk {
            range: at..at + length,
            bytes,
            cached,
            reads,
        }
    }

    fn values(
        &mut self,
        gc: &ValueGc,
        chunk: Chunk,
        mut writer: Box<ValuesWriter>,
    ) -> Result<State> {
        if chunk.range.is_empty() {
            if self.written.len() + self.passed_over != self.order.len() {
                return Err(Error::invalid("a round has lost a value"));
            }
            self.log = None;
            self.records.forget_values();
            return Ok(State::Runs {
                values: writer.finish(&gc.shared.log)?,
            });
        }
        let mut read = (chunk.reads.map_or_else(Vec::new, BegunValues::wait)).into_iter();
        // The next chunk is read while this one is written, unless this one is one large value,
        // because two of those take much memory.
        let end = chunk.range.end;
        let ahead = (chunk.bytes <= 2 * WRITE_BYTES).then(|| self.begin_chunk(gc, end));
        gc.shared.values.update_room();
        for (at, cached) in chunk.range.zip(chunk.cached) {
            let index = self.order[at];
            let record = &self.records.all[index as usize];
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
                    self.leave_alone(gc, segment, &error);
                    self.passed_over += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (keyspace, key) = (record.keyspace, self.records.key(index));
            writer.put(
                &gc.shared.log,
                keyspace,
                key,
                &value,
                record.pointer.checksum,
            )?;
            if !was_cached {
                gc.shared
                    .values
                    .offer_moving((keyspace, key), &record.pointer, &value);
            }
            self.written.push(index);
        }
        Ok(State::Values {
            chunk: ahead.unwrap_or_else(|| self.begin_chunk(gc, end)),
            writer,
        })
    }

    /// Writes the runs and syncs them. No reader sees them yet.
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
                let moved = self.written.get(from..to).unwrap_or_default();
                let pointers = values.pointers().get(from..to).unwrap_or_default();
                let mut run = MovedRun::new(&self.records, moved, pointers);
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

    fn install(&mut self, gc: &ValueGc, values: NewValues, pending: Vec<Pending>) -> Result<()> {
        let victims: Vec<SegmentId> = self.victims().collect();
        planted!(
            "glintdb: a victim goes before its values' new places are in the manifest",
            (),
            (victims.iter()).try_for_each(|&victim| gc.shared.log.delete(victim))?
        );
        self.outcome.victims = victims.len() as u64;
        // Frees the places in indexes to which no run was written. Those of the runs are freed when
        // the runs are applied.
        self.parts.clear();
        let hidden = self.outcome.hidden_bytes;
        gc.space.gc.born(values.pointers(), &victims, hidden);
        let records = &self.records;
        let from = self.written.iter().map(|&index| {
            let keyspace = records.all[index as usize].keyspace;
            (keyspace, records.key(index), *records.pointer(index))
        });
        gc.commit_moved(pending, Relocated { values, victims }, from)
    }
}
