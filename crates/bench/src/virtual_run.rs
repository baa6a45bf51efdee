//! A database on the modelled flash device in virtual time: clients that read and write beside the
//! engine's own threads, each as fast as the model allows. Equal setups give equal outcomes.
//!
//! Source: the DapDB paper, section VI, whose workload this is.

use crate::keys::{KeySet, Permutation};
use crate::report::Latencies;
use crate::rng::Rng;
use crate::store::Result;
use glintdb::{Db, Env, Keyspace, Options};
use glintdb_core::DbId;
use glintdb_core::clock::Clock;
use glintdb_core::sync::thread;
use glintdb_core::sync::virtual_time::{Costs, Ns, Run};
use glintdb_flash::emulator::nand::Profile;
use glintdb_flash::emulator::{Emulated, EmulatedStats, Placement};
use glintdb_simdisk::MemVolume;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const KEY_BYTES: usize = 16;
/// Time between looks at the engine's jobs while it comes to rest.
const LOOK: Duration = Duration::from_millis(1);
/// Looks without a job after which it is at rest.
const QUIET_LOOKS: u32 = 5;

/// Operations with one share of reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Number of operations.
    pub operations: u64,
    /// Percent of them that are gets; the others are puts.
    pub read_percent: u64,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The device.
    pub profile: Profile,
    /// How files are placed on its units.
    pub placement: Placement,
    /// Whether each file has [virtual blocks](Emulated::with_virtual_blocks) of its own.
    pub virtual_blocks: bool,
    /// Number of clients. Each waits for its operation before it begins the next one.
    pub clients: u32,
    /// Records that are put, in random order, before the first phase. Gets read one of these.
    pub loaded: u64,
    /// Records that puts choose from.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Whether values stay in the log, or are in the tables.
    pub separated: bool,
    /// The phases, in turn.
    pub phases: Vec<Phase>,
    /// Number of intervals of equal numbers of operations, over all phases, whose throughput is
    /// told.
    pub intervals: u64,
    /// Options of the database, such as its memory.
    pub options: Options,
    /// Seed of the operations.
    pub seed: u64,
    /// What work costs.
    pub costs: Costs,
}

impl Setup {
    /// The paper's workload: 16 KiB values; 100,000 records before, 600,000 to choose from; on all
    /// units. Memory is small beside the data.
    #[must_use]
    pub fn new(profile: Profile) -> Setup {
        Setup {
            profile,
            placement: Placement::Striping,
            virtual_blocks: false,
            clients: 32,
            loaded: 100_000,
            records: 600_000,
            value_bytes: 16 << 10,
            separated: false,
            phases: Vec::new(),
            intervals: 1,
            options: Options::default()
                .memory_budget_bytes(256 << 20)
                .background_threads(8),
            seed: 1,
            costs: Costs {
                processors: 72,
                ..Costs::default()
            },
        }
    }

    fn keys(&self) -> KeySet {
        KeySet::new(self.records, KEY_BYTES, self.seed)
    }
}

/// What came of a phase.
#[derive(Clone, Debug)]
pub struct PhaseOutcome {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Times of gets.
    pub gets: Latencies,
    /// Times of puts.
    pub puts: Latencies,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The phases.
    pub phases: Vec<PhaseOutcome>,
    /// Operations a second in each interval.
    pub intervals: Vec<f64>,
    /// What the device did in all phases.
    pub device: EmulatedStats,
    /// The same before the first phase.
    pub loaded: EmulatedStats,
    /// Hash of the order and times of all threads.
    pub trace_hash: u64,
    /// Virtual time at the start of the first phase, in nanoseconds.
    pub started_ns: Ns,
    /// The same at the end of each phase.
    pub phase_ends_ns: Vec<Ns>,
}

/// What clients share.
struct Shared {
    setup: Setup,
    keyspace: Keyspace,
    clock: Arc<dyn Clock>,
    /// Number of the next operation of the phase.
    next: AtomicU64,
    /// Operations that have ended, of all phases.
    ended: AtomicU64,
    /// Ends of intervals.
    ends: Mutex<Vec<Ns>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a database in virtual time.
///
/// # Errors
/// The database fails, for example because the device is too small.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let run = Run::new(setup.costs);
    let outcome = run.enter(|| run_in(setup, &run))?;
    Ok(Outcome {
        trace_hash: run.trace_hash(),
        ..outcome
    })
}

fn run_in(setup: &Setup, run: &Run) -> Result<Outcome> {
    let clock = run.clock();
    let volume = Emulated::new(
        MemVolume::new(),
        setup.profile.clone(),
        setup.placement.clone(),
        clock.clone(),
    )?;
    let volume = match setup.virtual_blocks {
        true => volume.with_virtual_blocks(),
        false => volume,
    };
    let env = Env::new(clock.clone(), DbId([7; 16]));
    let separate_min_bytes = if setup.separated { 1 } else { usize::MAX };
    let options = (setup.options.clone()).separate_min_bytes(separate_min_bytes);
    let db = options.open_volume(Arc::new(volume.clone()), env)?;
    let keyspace = db.default_keyspace();
    let shared = Arc::new(Shared {
        setup: setup.clone(),
        keyspace,
        clock,
        next: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        ends: Mutex::default(),
    });
    // As fast as the engine takes them.
    work(&shared, &Work::Load)?;
    rest(&db, &shared)?;
    let loaded = volume.device_stats();
    shared.ended.store(0, Ordering::Relaxed);
    lock(&shared.ends).clear();
    let started_ns = run.now();
    let (mut phases, mut phase_ends_ns) = (Vec::new(), Vec::new());
    for (number, phase) in setup.phases.iter().enumerate() {
        phases.push(work(&shared, &Work::Phase(number as u64, *phase))?);
        phase_ends_ns.push(run.now());
    }
    let device = volume.device_stats();
    let all: u64 = setup.phases.iter().map(|phase| phase.operations).sum();
    let mut before = started_ns;
    let mut intervals = Vec::new();
    for end in lock(&shared.ends).iter() {
        intervals.push((all / setup.intervals) as f64 * 1e9 / (end - before).max(1) as f64);
        before = *end;
    }
    db.close()?;
    Ok(Outcome {
        phases,
        intervals,
        device,
        loaded,
        trace_hash: 0,
        started_ns,
        phase_ends_ns,
    })
}

/// Waits until the engine has no job.
fn rest(db: &Db, shared: &Shared) -> Result<()> {
    db.flush()?;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        shared.clock.sleep(LOOK);
        let stats = db.stats();
        if let Some(error) = stats.background_error {
            return Err(error.into());
        }
        let is_idle = stats.jobs_running == 0 && stats.jobs_waiting.is_empty();
        quiet = if is_idle { quiet + 1 } else { 0 };
    }
    Ok(())
}

/// Work of clients.
#[derive(Clone)]
enum Work {
    /// Puts of the records that are there before the first phase.
    Load,
    /// A phase, and its number.
    Phase(u64, Phase),
}

fn work(shared: &Arc<Shared>, work: &Work) -> Result<PhaseOutcome> {
    let start = shared.clock.monotonic();
    shared.next.store(0, Ordering::Relaxed);
    let clients: Vec<_> = (0..shared.setup.clients)
        .map(|number| {
            let (shared, work) = (Arc::clone(shared), work.clone());
            thread::Builder::new()
                .name(format!("client-{number}"))
                .spawn(move || client(&shared, &work).map_err(|error| error.to_string()))
        })
        .collect::<std::io::Result<_>>()?;
    let (mut gets, mut puts) = (Latencies::new(), Latencies::new());
    for client in clients {
        let ended = client.join().map_err(|_| "a client panicked")?;
        let (of_gets, of_puts) = ended?;
        gets.add(&of_gets);
        puts.add(&of_puts);
    }
    let elapsed = (shared.clock.monotonic() - start).as_secs_f64();
    let operations = match work {
        Work::Load => shared.setup.loaded,
        Work::Phase(_, phase) => phase.operations,
    };
    Ok(PhaseOutcome {
        ops_per_s: operations as f64 / elapsed.max(1e-9),
        gets,
        puts,
    })
}

fn client(shared: &Shared, work: &Work) -> Result<(Latencies, Latencies)> {
    let Shared {
        setup,
        keyspace,
        clock,
        ..
    } = shared;
    let keys = setup.keys();
    let order = Permutation::new(setup.records, setup.seed);
    let mut key = vec![0; KEY_BYTES];
    let value = vec![0; setup.value_bytes];
    let (mut gets, mut puts) = (Latencies::new(), Latencies::new());
    let all: u64 = setup.phases.iter().map(|phase| phase.operations).sum();
    let per_interval = (all / setup.intervals.max(1)).max(1);
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let (is_get, record) = match work {
            Work::Load if number >= setup.loaded => break,
            Work::Load => (false, order.at(number)),
            Work::Phase(_, phase) if number >= phase.operations => break,
            Work::Phase(phase_number, phase) => {
                let mut rng = Rng::new(setup.seed + phase_number, number);
                match rng.below(100) < phase.read_percent {
                    true => (true, order.at(rng.below(setup.loaded))),
                    false => (false, rng.below(setup.records)),
                }
            }
        };
        keys.write(record, &mut key);
        let start = clock.monotonic();
        if is_get {
            let found = keyspace.get(&key)?;
            if found.is_none_or(|found| found.len() != setup.value_bytes) {
                return Err(format!("record {record} has another value").into());
            }
            gets.record(clock.monotonic() - start);
        } else {
            keyspace.put(&key, &value)?;
            puts.record(clock.monotonic() - start);
        }
        let ended = shared.ended.fetch_add(1, Ordering::Relaxed) + 1;
        if ended.is_multiple_of(per_interval) {
            let now = u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
            lock(&shared.ends).push(now);
        }
    }
    Ok((gets, puts))
}
