//! Sequences of operations from fixed seeds, against the model: in memory, in a directory, with crashes.

use super::lanes::Steps;
use super::shapes::Sequences;
use crate::collecting;
use crate::operation::{Mix, Operation};
use crate::options::{self, Lane, OptionSet};
use crate::place::Place;
use crate::runner::Runner;
use glintdb::{Batch, Durability, ErrorKind, IndexKind};
use glintdb_core::FileKind;
use glintdb_simdisk::{CrashMode, MemOptions, MemVolume, Moment, Observer, OperationKind};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Sequences a lane runs, each under every option set.
const MODEL_SEQUENCES: u64 = 40;
const DIRECTORY_SEQUENCES: u64 = 5;
const CRASH_SEQUENCES: u64 = 60;

/// Applies a sequence, counting its operations.
pub(super) fn apply(set: &OptionSet, place: Place, operations: &[Operation]) -> Result<(), String> {
    let failed = |at: &str, message| format!("options `{}`, {at}: {message}", set.name);
    let mut runner = Runner::new(set.clone(), place)?;
    for (index, operation) in operations.iter().enumerate() {
        Steps::count();
        runner
            .step(operation)
            .map_err(|message| failed(&format!("operation {index}"), message))?;
    }
    runner
        .finish()
        .map_err(|message| failed("at the end", message))
}

/// Those that reproduce a run exactly, and those at the edge.
fn sets() -> Vec<OptionSet> {
    let mut sets = options::deterministic();
    sets.extend(options::of(Lane::Edge));
    sets
}

/// A snapshot of values that everybody else has long overwritten, flushed and compacted away; nobody has read them before.
fn old_snapshot(set: OptionSet) -> Result<(), String> {
    const KEYS: u8 = 20;
    const VALUE_BYTES: usize = 4000;
    let failed = |error: glintdb::Error| format!("an old snapshot: {error}");
    let db = Place::memory().open(set.options).map_err(failed)?;
    let space = (db.create_keyspace("space", set.keyspace)).map_err(failed)?;
    let mut snapshot = None;
    for round in 0..5_u8 {
        for key in 0..KEYS {
            Steps::count();
            space.put([key], [round; VALUE_BYTES]).map_err(failed)?;
        }
        if round == 0 {
            db.flush().map_err(failed)?;
            snapshot = Some(db.snapshot());
        }
        db.flush().and_then(|()| db.compact()).map_err(failed)?;
    }
    let Some(snapshot) = snapshot else {
        return Ok(());
    };
    for key in 0..KEYS {
        let found = snapshot.get(&space, [key]).map_err(failed)?;
        if found.as_deref() != Some(&[0; VALUE_BYTES][..]) {
            return Err(format!("an old snapshot: another value of key {key}"));
        }
    }
    Ok(())
}

/// A scan that began before everything it reads was overwritten and compacted away: its tables are there until it ends.
fn old_scan(set: OptionSet) -> Result<(), String> {
    let failed = |error: glintdb::Error| format!("an old scan: {error}");
    let place = Place::memory();
    let db = place.open(set.options).map_err(failed)?;
    let space = (db.create_keyspace("space", set.keyspace)).map_err(failed)?;
    let fill = |round: u8| {
        for key in 0..20_u8 {
            Steps::count();
            space.put([key], [round; 100])?;
        }
        space.compact()
    };
    fill(0).map_err(failed)?;
    let before = place.count(FileKind::Table).map_err(failed)?;
    let mut scan = space.iter();
    scan.next();
    fill(1).map_err(failed)?;
    let beside = place.count(FileKind::Table).map_err(failed)?;
    match beside > before {
        true => Ok(()),
        false => Err(format!(
            "an old scan: {beside} tables where it began with {before} and as many were made since"
        )),
    }
}

/// A transaction reads a key. Then the key is deleted, alone or in a range, and compacted to the
/// bottom. When the transaction writes the key, it must still see the deletion.
fn old_transaction(set: &OptionSet, by_range: bool) -> Result<(), String> {
    let failed = |error: glintdb::Error| format!("an old transaction: {error}");
    let db = Place::memory().open(set.options.clone()).map_err(failed)?;
    let space = (db.create_keyspace("space", set.keyspace.clone())).map_err(failed)?;
    let run = || {
        for key in 0..20_u8 {
            Steps::count();
            space.put([key], [0; 100])?;
        }
        space.compact()?;
        let mut transaction = db.transaction();
        transaction.get(&space, [7])?;
        match by_range {
            true => space.delete_range([7]..[8])?,
            false => space.delete([7])?,
        }
        space.compact()?;
        transaction.put(&space, [7], "it was not deleted")?;
        Ok(transaction.commit())
    };
    match run().map_err(failed)? {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(_) => {
            Err("an old transaction: committed over a deletion that it had not seen".to_owned())
        }
    }
}

pub(super) fn model() -> Result<(), String> {
    for set in options::of(Lane::Edge) {
        old_snapshot(set.clone())?;
        old_scan(set.clone())?;
        old_transaction(&set, false)?;
        old_transaction(&set, true)?;
    }
    for reads in collecting::READS {
        collecting::alone(reads, &Steps::count)?;
    }
    let mut sequences = Sequences::new(1, Mix::default(), 200);
    for _ in 0..MODEL_SEQUENCES {
        let operations = sequences.next();
        for set in sets() {
            apply(&set, Place::memory(), &operations)?;
        }
    }
    Ok(())
}

pub(super) fn directory(dir: &Path) -> Result<(), String> {
    let mut sequences = Sequences::new(2, Mix::default(), 200);
    for number in 0..DIRECTORY_SEQUENCES {
        let operations = sequences.next();
        for (set, options) in options::of(Lane::Model).iter().enumerate() {
            let place = dir.join(format!("{number}-{set}"));
            apply(options, Place::Directory(place.clone()), &operations)?;
            std::fs::remove_dir_all(place).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Frames all of one length that divides the ring, more than a round of it, then a kill: the frames of the last round stand where new ones would.
fn uniform() -> Result<(), String> {
    const FRAME_BYTES: usize = 128;
    const VALUE: [u8; 72] = [7; 72];
    let Some(set) = options::of(Lane::Edge).into_iter().next() else {
        return Ok(());
    };
    let failed = |error: glintdb::Error| format!("frames of one length: {error}");
    let frames = set.options.log_ring_bytes / FRAME_BYTES * 3 / 2;
    let mut place = Place::memory();
    let db = place.open(set.options.clone()).map_err(failed)?;
    for number in 0..frames {
        Steps::count();
        db.put(format!("{number:08}"), VALUE).map_err(failed)?;
    }
    place = place.crashed(false, 0);
    drop(db);
    let db = place.open(set.options).map_err(failed)?;
    match db.default_keyspace().iter().count() {
        found if found == frames => db.close().map_err(failed),
        found => Err(format!("frames of one length: {found} records of {frames}")),
    }
}

/// What a kill would leave before each write of the ring.
#[derive(Default)]
struct AtRingWrites(Mutex<Vec<Arc<MemVolume>>>);

impl Observer for AtRingWrites {
    fn before(&self, moment: &Moment<'_>) {
        if matches!(moment.kind(), OperationKind::RingWrite { .. }) {
            self.0.lock().push(moment.kill());
        }
    }
}

/// Frames of which the last is partly in its segment, then a group that takes all the rest of the ring before anything more is written, and a kill at each write of the ring.
fn nearly_round() -> Result<(), String> {
    const RECORDS: usize = 12;
    const VALUE: [u8; 3000] = [7; 3000];
    let Some(mut set) = options::of(Lane::Edge).into_iter().next() else {
        return Ok(());
    };
    set.options.log_segment_bytes = 1 << 20;
    let failed = |error: glintdb::Error| format!("nearly once round the ring: {error}");
    let place = Place::memory();
    let db = place.open(set.options.clone()).map_err(failed)?;
    for number in 0..RECORDS {
        Steps::count();
        db.put(format!("{number:08}"), VALUE).map_err(failed)?;
    }
    let images = Arc::new(AtRingWrites::default());
    place.observe(Some(Arc::clone(&images) as Arc<dyn Observer>));
    let space = db.default_keyspace();
    let batches = (0..set.options.log_ring_bytes / 1000).map(|number| {
        let mut batch = Batch::new();
        batch.put(&space, format!("of the group {number}"), [8; 900]);
        batch
    });
    db.write_group(batches.collect(), Durability::Os)
        .map_err(failed)?;
    place.observe(None);
    for image in images.0.lock().drain(..) {
        Steps::count();
        let db = Place::Memory(image)
            .open(set.options.clone())
            .map_err(failed)?;
        for number in 0..RECORDS {
            let found = db.get(format!("{number:08}")).map_err(failed)?;
            if found.as_deref() != Some(&VALUE[..]) {
                return Err(format!(
                    "nearly once round the ring: record {number} is lost"
                ));
            }
        }
    }
    Ok(())
}

/// Segments that get full one after the other, of commits of which none asks for a sync, and a power cut after each.
fn full_segments() -> Result<(), String> {
    const COMMITS: u64 = 400;
    let failed = |error: glintdb::Error| format!("full segments: {error}");
    let mut set = collecting::eager(Lane::Sim, IndexKind::Lsm, collecting::READS[0]);
    set.options.experiments.value_gc = false;
    let options = set
        .options
        // Or each flush would have synced what is full.
        .replay_bytes_max(4 << 20);
    let volume = MemVolume::new();
    let place = Place::Memory(Arc::clone(&volume));
    let db = place.open(options.clone()).map_err(failed)?;
    for number in 0..COMMITS {
        Steps::count();
        db.put(number.to_be_bytes(), [7; 1500]).map_err(failed)?;
        let cut = volume.crash(CrashMode::Random { seed: number });
        let after = Place::Memory(cut).open(options.clone()).map_err(failed)?;
        let found = after.default_keyspace().iter().keys();
        let found: Vec<_> = found.collect::<glintdb::Result<_>>().map_err(failed)?;
        if !(0..)
            .zip(&found)
            .all(|(n, key)| *key == u64::to_be_bytes(n)[..])
        {
            return Err("full segments: what is there is no prefix".to_owned());
        }
    }
    Ok(())
}

pub(super) fn crash() -> Result<(), String> {
    uniform()?;
    nearly_round()?;
    full_segments()?;
    for reads in collecting::READS {
        collecting::power(reads, &Steps::count)?;
    }
    let mut sequences = Sequences::new(3, Mix { crashes: true }, 120);
    for number in 0..CRASH_SEQUENCES {
        let operations = sequences.next();
        for set in sets() {
            // A ring in plain memory, which is what a file system without shared mappings gives.
            let volume = MemVolume::with_options(MemOptions {
                ring_survives_kill: number % 4 != 3,
                on_units: set.volume.on_units,
                ..MemOptions::default()
            });
            apply(&set, Place::Memory(volume), &operations)?;
        }
    }
    Ok(())
}
