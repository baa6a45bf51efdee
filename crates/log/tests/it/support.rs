//! A model of the log: what was committed, in order, and a driver that commits it.

use glintdb_core::{
    DbId, ErrorKind, FileNumbers, KeyspaceId, Result, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::Volume;
use glintdb_log::{
    FrameBuilder, Log, LogOp, LogOptions, LogSetup, LogValue, Lsn, Recovered, Space, WaitReason,
};
use glintdb_simdisk::MemVolume;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const DB: DbId = DbId([0xd8; 16]);
pub const KEYSPACE: KeyspaceId = KeyspaceId(3);

#[derive(Debug)]
pub struct Numbers(pub AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

pub fn numbers() -> Arc<Numbers> {
    Arc::new(Numbers(AtomicU64::new(1)))
}

pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        ring_bytes: 64 << 10,
        reserve_segments: 0,
    }
}

pub fn setup(volume: &Arc<MemVolume>, numbers: &Arc<Numbers>, options: LogOptions) -> LogSetup {
    LogSetup {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        db: DB,
        clock: Arc::new(glintdb_flash::ManualClock::default()),
        numbers: Arc::clone(numbers) as Arc<dyn FileNumbers>,
        options,
    }
}

/// One batch of the model: its operations as owned text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Put(Vec<u8>, Vec<u8>),
    Separated(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    pub seqno: u64,
    pub ops: Vec<Op>,
}

impl Batch {
    pub fn put(seqno: u64, value_bytes: usize) -> Batch {
        let key = format!("key{seqno:06}").into_bytes();
        Batch {
            seqno,
            ops: vec![Op::Put(key, pattern(seqno, value_bytes))],
        }
    }

    pub fn separated(seqno: u64, value_bytes: usize) -> Batch {
        let key = format!("key{seqno:06}").into_bytes();
        Batch {
            seqno,
            ops: vec![Op::Separated(key, pattern(seqno, value_bytes))],
        }
    }

    pub fn build(&self, frame: &mut FrameBuilder) {
        frame.clear();
        for op in &self.ops {
            match op {
                Op::Put(key, value) => frame.put(KEYSPACE, key, value),
                Op::Separated(key, value) => frame.put_separated(KEYSPACE, key, value),
                Op::Delete(key) => frame.delete(KEYSPACE, key),
                Op::DeleteRange(start, end) => {
                    frame.delete_range(KEYSPACE, start, end.as_deref());
                }
            }
        }
        frame.finish();
    }
}

pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// What a commit got.
#[derive(Clone, Debug)]
pub struct Committed {
    pub lsn: Lsn,
    pub end: Lsn,
    pub pointers: Vec<ValuePointer>,
}

/// Commits at `Os`, waiting as the engine does.
pub fn try_commit(log: &Log, batch: &Batch, space: Space) -> Result<Committed> {
    let mut frame = FrameBuilder::new();
    batch.build(&mut frame);
    let seqno = SeqNum(batch.seqno);
    let in_ring = loop {
        if log.is_large(frame.frame_bytes()) {
            break None;
        }
        match log.reserve(frame.frame_bytes(), space) {
            Ok(reservation) => break Some(reservation),
            Err(WaitReason::Large) => break None,
            Err(reason) => match log.wait(reason, space) {
                Err(error) if error.kind() == ErrorKind::NoSpace && reason == WaitReason::Ring => {
                    break None;
                }
                waited => waited?,
            },
        }
    };
    let reservation = match in_ring {
        Some(reservation) => {
            log.copy(&reservation, &mut frame, seqno);
            reservation
        }
        None => {
            let mut large = log.prepare_large(&frame, space)?;
            let reservation = loop {
                match log.reserve_large(&mut large) {
                    Ok(reservation) => break reservation,
                    Err(reason) => log.wait(reason, space)?,
                }
            };
            log.copy_large(large, &reservation, &mut frame, seqno)?;
            reservation
        }
    };
    log.complete(&reservation);
    log.write_out(&reservation)?;
    Ok(Committed {
        lsn: reservation.lsn(),
        end: reservation.end(),
        pointers: frame.pointers(&reservation).collect(),
    })
}

pub fn commit(log: &Log, batch: &Batch) -> Committed {
    try_commit(log, batch, Space::Normal).unwrap()
}

/// Ends the active segment.
pub fn seal(log: &Log) {
    let mut fresh = log.prepare_fresh(Space::Normal).unwrap();
    if let Some(reservation) = log.reserve_seal(&mut fresh).unwrap() {
        log.copy_control(&reservation);
        log.complete(&reservation);
    }
}

/// Ends the active segment and goes on with a small one at the ring's front, as the engine does
/// where that gives space back.
pub fn begin_small(log: &Log) -> Result<()> {
    let mut fresh = log.prepare_fresh(Space::Reserve)?;
    let sealed = log.reserve_seal(&mut fresh);
    drop(fresh);
    if let Ok(Some(reservation)) = sealed {
        log.copy_control(&reservation);
        log.complete(&reservation);
    }
    while log.spill_step()? {}
    log.sync_all()?;
    log.shrink_ring(0)?;
    log.trim_reserve()
}

/// A log recovered, and the batches it showed, separated values read back through it.
pub struct Replay {
    pub log: Log,
    pub recovered: Recovered,
    pub batches: Vec<Batch>,
    pub ends: Vec<Lsn>,
}

pub fn try_recover(setup: LogSetup, from: Lsn, live: &[SegmentId]) -> Result<Replay> {
    let mut shown: Vec<(Batch, Vec<(usize, ValuePointer)>)> = Vec::new();
    let mut ends = Vec::new();
    let mut progress_last = 0;
    let (log, recovered) = Log::recover(
        setup,
        from,
        from,
        live,
        &mut |frame| {
            let mut ops = Vec::new();
            let mut pointers = Vec::new();
            for entry in frame.entries() {
                assert_eq!(entry.keyspace, KEYSPACE);
                ops.push(match entry.op {
                    LogOp::Put {
                        key,
                        value: LogValue::Inline(value),
                    } => Op::Put(key.to_vec(), value.to_vec()),
                    LogOp::Put {
                        key,
                        value: LogValue::Pointer(pointer),
                    } => {
                        pointers.push((ops.len(), pointer));
                        Op::Separated(key.to_vec(), Vec::new())
                    }
                    LogOp::Delete { key } => Op::Delete(key.to_vec()),
                    LogOp::DeleteRange { start, end } => {
                        Op::DeleteRange(start.to_vec(), end.map(<[u8]>::to_vec))
                    }
                });
            }
            assert_eq!(ops.len(), frame.entry_count() as usize);
            ends.push(frame.end());
            let seqno = frame.seqno().0;
            shown.push((Batch { seqno, ops }, pointers));
            Ok(())
        },
        &mut |progress| {
            assert!(progress.replayed_bytes >= progress_last);
            assert!(progress.replayed_bytes <= progress.total_bytes);
            progress_last = progress.replayed_bytes;
        },
    )?;
    let mut batches = Vec::new();
    for (mut batch, pointers) in shown {
        for (index, pointer) in pointers {
            if let Op::Separated(_, value) = &mut batch.ops[index] {
                *value = log.read(&pointer)?.to_vec();
            }
        }
        batches.push(batch);
    }
    Ok(Replay {
        log,
        recovered,
        batches,
        ends,
    })
}

pub fn recover(setup: LogSetup, from: Lsn) -> Replay {
    try_recover(setup, from, &[]).unwrap()
}

/// What there is on a volume without a limit.
pub fn used_bytes(volume: &MemVolume) -> u64 {
    volume.set_capacity_bytes(Some(1 << 40));
    let free = volume.free_bytes().unwrap();
    (1 << 40) - free
}
