//! One round of value GC: the live records of a few segments of the log get other places, and the segments are retired.
//!
//! In steps of a millisecond or two: *scan* the victims; *verify* each record, in key order, against the view of the index; write the *values* that are live into segments of
//! their own, in that order; write a *run* of level 0 for each keyspace; *install* everything by one record of the manifest (`docs/decisions/010-relocation.md`).
//!
//! Thread safety: a round belongs to the job that runs it; between steps it holds no lock.
//!
//! Invariants:
//! 1. A record is live if, and only if, the view's entry of its key has its pointer. Memtables are not asked: what an unsynced commit has overwritten is the newest again after a power cut.
//! 2. Places in the indexes, view of the log and choice of the victims belong together: they are taken while no flush is under way.
//! 3. A victim is retired only if everything was found in it that indexes point to, and every live value of it was read and verified.
//! 4. Given up at any place, a round leaves nothing but what it has learnt.

use super::records::{MovedRun, Records};
use crate::engine::Engine;
use crate::flush::{Pending, Relocated, abandon};
use crate::version::KeyspaceState;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::index::{IndexView, Relocation};
use glintdb_core::{EntryValue, KeyspaceId, SegmentId, SeqNum, ValuePointer};
use glintdb_log::{LiveScan, Log, LogView, NewValues, Space, ValuesWriter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Keys looked up together.
const VERIFY_KEYS: usize = 512;
/// Values read and written in a step, in records and in bytes.
const WRITE_RECORDS: usize = 512;
const WRITE_BYTES: usize = 1 << 20;
/// What a record takes in a segment beside key and value, about.
const RECORD_BYTES: u64 = 18;

/// A segment that is to be emptied.
struct Victim {
    id: SegmentId,
    /// Bytes of values in it that indexes' files point to, and how many the scan has found.
    held: BTreeMap<KeyspaceId, u64>,
    seen: BTreeMap<KeyspaceId, u64>,
}

/// A keyspace's part in the round.
struct Part {
    state: Arc<KeyspaceState>,
    view: Arc<dyn IndexView>,
    /// The place for its run, until that is written.
    relocation: Option<Box<dyn Relocation>>,
}

enum State {
    Scan {
        at: usize,
        scan: Option<LiveScan>,
    },
    Verify {
        at: usize,
    },
    Values {
        at: usize,
        writer: ValuesWriter,
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

/// What comes next in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Scan,
    Verify,
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
    /// Bytes of their keys.
    pub(crate) live_key_bytes: u64,
    /// What the live ones take in a segment.
    pub(crate) live_record_bytes: u64,
}

/// See the module's page.
pub(crate) struct Round {
    victims: Vec<Victim>,
    /// Victims that are not to be retired: what was found wrong with them has been told.
    left_alone: BTreeSet<SegmentId>,
    parts: BTreeMap<KeyspaceId, Part>,
    /// Until the values are read.
    log: Option<LogView>,
    /// Whether the values fit into the round's share of memory.
    keeps_values: bool,
    records: Records,
    /// Records to be looked at, in the order of keyspace and key; then those that are live; then those that were written.
    order: Vec<u32>,
    written: Vec<u32>,
    state: State,
    outcome: Outcome,
}

impl Round {
    /// Begins a round over segments that `choose` names. `None`: a flush is under way.
    pub(crate) fn begin(
        engine: &Engine,
        choose: impl FnOnce(&crate::manifest::State) -> Vec<SegmentId>,
        keeps_values: bool,
    ) -> Result<Option<Round>> {
        let Some(_no_flush) = engine.flush_lock.try_lock() else {
            return Ok(None);
        };
        let manifest = engine.manifest.lock();
        manifest.check()?;
        let state = manifest.state();
        let victims: Vec<Victim> = (choose(state).into_iter())
            .map(|id| Victim {
                id,
                held: state.liveness.get(&id).cloned().unwrap_or_default(),
                seen: BTreeMap::new(),
            })
            .collect();
        let version = engine.version.load_full();
        let concerned: BTreeSet<KeyspaceId> = (victims.iter())
            .flat_map(|victim| victim.held.keys().copied())
            .collect();
        let parts = (version.live_keyspaces())
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
        drop(manifest);
        let held = victims.iter().flat_map(|victim| victim.held.values());
        let outcome = Outcome {
            held_bytes: held.sum(),
            hidden_bytes: engine.gc.hidden_in(victims.iter().map(|victim| victim.id)),
            ..Outcome::default()
        };
        Ok(Some(Round {
            victims,
            left_alone: BTreeSet::new(),
            parts,
            log,
            keeps_values,
            records: Records::new(&engine.memory),
            order: Vec::new(),
            written: Vec::new(),
            state: State::Scan { at: 0, scan: None },
            outcome,
        }))
    }

    /// What comes next.
    pub(crate) fn place(&self) -> Place {
        match &self.state {
            State::Scan { .. } => Place::Scan,
            State::Verify { .. } => Place::Verify,
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
            State::Scan { .. } | State::Verify { .. } | State::Over => 0,
        }
    }

    /// The segments that are being emptied.
    pub(crate) fn victims(&self) -> impl ExactSizeIterator<Item = SegmentId> + '_ {
        self.victims.iter().map(|victim| victim.id)
    }

    /// A bounded piece of work. `Some`: the round is over. After an error nothing but [`give_up`](Self::give_up) is left.
    pub(crate) fn step(&mut self, engine: &Engine) -> Result<Option<Outcome>> {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Scan { at, scan } => self.scan(engine, at, scan)?,
            State::Verify { at } => self.verify(engine, at)?,
            State::Values { at, writer } => self.values(engine, at, writer)?,
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
        if let State::Install { pending, .. } = self.state {
            abandon(pending);
        }
    }

    /// A victim is damaged: it stays, and nothing of it is moved that has not been.
    fn leave_alone(&mut self, engine: &Engine, id: SegmentId, error: &Error) {
        engine.gc.leave_alone(id, error);
        self.left_alone.insert(id);
        self.victims.retain(|victim| victim.id != id);
    }

    fn scan(&mut self, engine: &Engine, at: usize, scan: Option<LiveScan>) -> Result<State> {
        let Some(id) = self.victims.get(at).map(|victim| victim.id) else {
            return Ok(self.sorted());
        };
        let begun = match scan {
            Some(scan) => Ok(scan),
            None => engine.log.live_scan(id),
        };
        let mut scan = match begun {
            Ok(scan) => scan,
            // Dead by now, or its end is still in the ring: not this time.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::InvalidArgument
                ) =>
            {
                self.victims.remove(at);
                return Ok(State::Scan { at, scan: None });
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.leave_alone(engine, id, &error);
                return Ok(State::Scan { at, scan: None });
            }
            Err(error) => return Err(error),
        };
        match scan.next_batch() {
            Ok(Some(batch)) => {
                for record in batch.records() {
                    if !self.parts.contains_key(&record.keyspace) {
                        continue;
                    }
                    if let Some(victim) = self.victims.get_mut(at) {
                        *victim.seen.entry(record.keyspace).or_default() +=
                            u64::from(record.pointer.length);
                    }
                    self.records.add(&record, self.keeps_values);
                }
                self.records.charge();
                Ok(State::Scan {
                    at,
                    scan: Some(scan),
                })
            }
            Ok(None) => {
                let parts = &self.parts;
                let missing = self.victims.get(at).and_then(|victim| {
                    let of_parts = victim.held.iter().filter(|(id, _)| parts.contains_key(*id));
                    let seen = |id| victim.seen.get(id).copied().unwrap_or(0);
                    of_parts
                        .map(|(id, held)| held.saturating_sub(seen(id)))
                        .find(|missing| *missing > 0)
                });
                if let Some(missing) = missing {
                    let message = format!(
                        "expected values that indexes point to, of {missing} bytes found no record"
                    );
                    let error = Error::corruption(id.file(), 0, message);
                    self.leave_alone(engine, id, &error);
                    return Ok(State::Scan { at, scan: None });
                }
                Ok(State::Scan {
                    at: at + 1,
                    scan: None,
                })
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.leave_alone(engine, id, &error);
                Ok(State::Scan { at, scan: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Everything is read: what comes next, in key order.
    fn sorted(&mut self) -> State {
        if self.victims.is_empty() {
            return State::Over;
        }
        self.outcome.records = self.records.all.len() as u64;
        self.order = self.records.in_order();
        State::Verify { at: 0 }
    }

    fn verify(&mut self, engine: &Engine, at: usize) -> Result<State> {
        let chunk = self.order.get(at..).unwrap_or_default();
        let Some(&first) = chunk.first() else {
            return self.verified(engine);
        };
        let keyspace = self.records.all[first as usize].keyspace;
        let of_keyspace = |index: &&u32| self.records.all[**index as usize].keyspace == keyspace;
        let chunk: Vec<u32> = (chunk.iter().take(VERIFY_KEYS).take_while(of_keyspace))
            .copied()
            .collect();
        let Some(part) = self.parts.get(&keyspace) else {
            return Ok(State::Verify {
                at: at + chunk.len(),
            });
        };
        let keys: Vec<&[u8]> = chunk.iter().map(|&index| self.records.key(index)).collect();
        let entries = part.view.get_batch(&keys);
        let overwritten = |key: &[u8]| {
            // Where somebody believes commits that are not durable yet.
            glintdb_core::seeded::bug("glintdb: value GC believes commits that are not durable")
                && (engine.version.load_full().generations()).any(|one| {
                    one.keyspace(keyspace)
                        .is_some_and(|mem| mem.get(key, SeqNum::MAX).is_some())
                })
        };
        let skipped: Vec<bool> = keys.iter().map(|key| overwritten(key)).collect();
        for ((&index, entry), skipped) in chunk.iter().zip(entries).zip(skipped) {
            let record = &mut self.records.all[index as usize];
            let found = entry?;
            let live = match &found {
                Some(entry) => match &entry.value {
                    EntryValue::Pointer(pointer) => *pointer == record.pointer && !skipped,
                    EntryValue::Tombstone => {
                        glintdb_core::seeded::bug("glintdb: value GC brings back what was deleted")
                    }
                    EntryValue::Inline(_) => false,
                },
                None => false,
            };
            if let Some(entry) = found.filter(|_| live) {
                record.seqno = entry.seqno;
            } else {
                record.value = None;
                record.seqno = SeqNum::MAX;
            }
        }
        Ok(State::Verify {
            at: at + chunk.len(),
        })
    }

    /// All of them are verified: what is live stays in `order`.
    fn verified(&mut self, engine: &Engine) -> Result<State> {
        let all = &self.records.all;
        self.order
            .retain(|&index| all[index as usize].seqno != SeqNum::MAX);
        for &index in &self.order {
            let record = &all[index as usize];
            let value = u64::from(record.pointer.length);
            self.outcome.live_bytes += value;
            self.outcome.live_key_bytes += record.key.len() as u64;
            self.outcome.live_record_bytes += value + record.key.len() as u64 + RECORD_BYTES;
        }
        self.outcome.live_records = self.order.len() as u64;
        Ok(State::Values {
            at: 0,
            writer: engine.log.values_writer(Space::Reserve)?,
        })
    }

    fn values(&mut self, engine: &Engine, at: usize, mut writer: ValuesWriter) -> Result<State> {
        let mut bytes = 0;
        let chunk: Vec<u32> = (self.order.get(at..).unwrap_or_default().iter().copied())
            .take(WRITE_RECORDS)
            .take_while(|&index| {
                let fits = bytes < WRITE_BYTES;
                bytes += self.records.all[index as usize].pointer.length as usize;
                fits
            })
            .collect();
        if chunk.is_empty() {
            self.log = None;
            return Ok(State::Runs {
                values: writer.finish(&engine.log)?,
            });
        }
        let mut values: Vec<(u32, Result<Bytes>)> = Vec::with_capacity(chunk.len());
        let (mut missing, mut pointers) = (Vec::new(), Vec::new());
        let view = self.log.clone();
        let read = |pointers: &[ValuePointer]| match &view {
            Some(view) => engine.log.read_batch_in(view, pointers),
            None => engine.log.read_batch(pointers),
        };
        for &index in &chunk {
            let record = &mut self.records.all[index as usize];
            let value = match record.value.take() {
                Some(value) => Log::verified(&record.pointer, value),
                None => {
                    missing.push(values.len());
                    pointers.push(record.pointer);
                    Ok(Bytes::new())
                }
            };
            values.push((index, value));
        }
        for (at, value) in missing.into_iter().zip(read(&pointers)) {
            values[at].1 = value;
        }
        for (index, value) in values {
            let record = &self.records.all[index as usize];
            let segment = record.pointer.segment;
            if self.left_alone.contains(&segment) {
                continue;
            }
            let value = match value {
                Ok(value) => value,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.leave_alone(engine, segment, &error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (keyspace, checksum) = (record.keyspace, record.pointer.checksum);
            writer.put(
                &engine.log,
                keyspace,
                self.records.key(index),
                &value,
                checksum,
            )?;
            self.written.push(index);
        }
        Ok(State::Values {
            at: at + chunk.len(),
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
        let from = (self.written.iter()).map(|&index| self.records.pointer(index));
        engine.commit_moved(pending, Relocated { values, victims }, from)
    }
}
