//! Puts the owners of an open database together.
//!
//! [`Shared`] is the ground. Each owner above it has private fields, calls only owners below it,
//! and documents its locks:
//!
//! | owner | does | calls |
//! |---|---|---|
//! | [`Sequencer`] | numbers commits, begins and seals generations | |
//! | [`Reader`] | reads values of keys | `Sequencer` |
//! | [`DiskSpace`] | accounts for space, removes dead segments, lends the reserve | `Sequencer` |
//! | [`Writer`] | commits | `Sequencer`, `DiskSpace` |
//! | [`Background`] | flushes, compactions, steps of the log | `Writer` and below |
//! | [`ValueGc`] | moves values | `Background` and below |
//! | [`Durable`] | keyspaces, checkpoints, closing | `Background` and below |
//!
//! Code below [`Background`] queues jobs through the [`Scheduler`] trait, which is implemented
//! here.

use crate::Result;
use crate::background::Background;
use crate::durable::Durable;
use crate::read::Reader;
use crate::shared::{Scheduler, Shared};
use crate::space::DiskSpace;
use crate::space::value_gc::ValueGc;
use crate::write::Writer;
use crate::write::sequencer::Sequencer;
use glintdb_core::{Padded, SeqNum};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// The owners of an open database.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sequencer: Arc<Sequencer>,
    pub(crate) reader: Reader,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) background: Arc<Background>,
    pub(crate) value_gc: Arc<ValueGc>,
    pub(crate) durable: Durable,
    /// Number of [`Db`](crate::Db) handles that exist. Programs may clone one for each request, so
    /// the count has a cache line of its own.
    pub(crate) dbs: Padded<AtomicUsize>,
    /// The scheduler, which [`Shared`] refers to weakly.
    _jobs: Arc<dyn Scheduler>,
}

impl Engine {
    /// Creates the owners above `shared`. `newest` is the newest commit. `job_order` is a seed that
    /// decides the order of jobs.
    pub(crate) fn new(shared: Shared, newest: SeqNum, job_order: Option<u64>) -> Engine {
        let shared = Arc::new(shared);
        let sequencer = Arc::new(Sequencer::new(&shared, newest));
        let space = Arc::new(DiskSpace::new(&shared, &sequencer));
        let writer = Arc::new(Writer::new(&shared, &sequencer, &space));
        let background = Arc::new(Background::new(
            &shared, &sequencer, &space, &writer, job_order,
        ));
        let value_gc = Arc::new(ValueGc::new(&shared, &space, &background));
        let jobs: Arc<dyn Scheduler> = Arc::new(Jobs {
            background: Arc::clone(&background),
            value_gc: Arc::clone(&value_gc),
        });
        shared.set_scheduler(Arc::downgrade(&jobs));
        shared.update_memory();
        let version = shared.version.load_full();
        shared.update_compaction_debts(version.live_keyspaces().map(|keyspace| &*keyspace.state));
        space.limit_first_memtable();
        Engine {
            reader: Reader::new(&shared, &sequencer),
            durable: Durable::new(&shared, &sequencer, &space, &writer, &background),
            shared,
            sequencer,
            space,
            writer,
            background,
            value_gc,
            dbs: Padded(AtomicUsize::new(0)),
            _jobs: jobs,
        }
    }
}

/// Queues jobs of every kind.
struct Jobs {
    background: Arc<Background>,
    value_gc: Arc<ValueGc>,
}

impl Scheduler for Jobs {
    fn schedule(&self) {
        let shared = self.background.shared();
        if shared.closing() {
            return;
        }
        shared.retry_if_due();
        shared.schedule_flush();
        if shared.background_error().is_none() {
            self.value_gc.schedule();
            self.background.schedule_compactions();
        }
    }

    fn push_flush(&self) {
        self.background.push_flush();
    }

    fn push_spill(&self) {
        self.background.push_spill();
    }

    fn run_step(&self) -> bool {
        self.background.run_step()
    }

    fn wait_finished(&self, time: Duration) {
        self.background.wait_finished(time);
    }

    fn give_up_below_flush(&self) -> usize {
        self.background.give_up_below_flush()
    }

    fn flush_all(&self) -> Result<()> {
        self.background.flush_all()
    }

    fn wake(&self) {
        self.background.wake();
    }
}
