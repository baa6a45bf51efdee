//! Where an epoch of a history happens: an open database, what its clients share, the thread that disturbs them, and the crash at its end.
//!
//! Thread safety: a [`Stage`] is shared by all clients of an epoch.

use super::stamps::Stamps;
use crate::options::OptionSet;
use crate::place::{self, Place};
use crate::rng::Rng;
use glintdb::{Db, Durability, Env, Error, ErrorKind, Keyspace, KeyspaceOptions, Options, Result};
use glintdb_core::DbId;
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Keyspaces of a history.
pub const SPACES: usize = 3;
const NAMES: [&str; SPACES] = ["default", "second", "third"];

/// No machine is so busy that no thread of a process returns from a call for so long.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// Within which the figures of a database that hangs come, if they do.
const STATS_WITHIN: Duration = Duration::from_secs(10);

/// Calls and returns while the image of a crash is taken, at most, and images that are taken for it.
const WITHIN_IMAGE_MAX: u64 = 32;
const IMAGES_MAX: usize = 1000;

/// Opens a place with a clock that goes by itself, for the sake of the real threads.
///
/// # Errors
/// Whatever the engine reports.
pub fn open(place: &Place, options: &Options) -> Result<Db> {
    match place {
        Place::Directory(dir) => options.clone().open(dir),
        Place::Memory(volume) => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let volume = place::medium(volume, &clock, &options.placement)?;
            let env = Env::new(clock, DbId(*b"a history's own."));
            options.clone().open_volume(volume, env)
        }
    }
}

/// The crash that ends an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// None: the clients have done what they were asked to, and the database is closed.
    None,
    /// The process is killed: what had reached the kernel stays.
    Kill,
    /// The power goes between two operations of the volume.
    PowerCut,
    /// The power goes in the middle of an operation of the volume.
    TornPowerCut,
}

/// What an epoch is told.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Calls at most, of all clients together; at the last one the crash comes.
    pub calls: u64,
    /// How it ends.
    pub crash: Crash,
    /// Chooses what survives a power cut.
    pub seed: u64,
}

/// How far something had become durable: everything that had returned before `call` was safe once it had returned.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// When it was called.
    pub call: u64,
    /// When it returned.
    pub ret: u64,
    /// Safe from what.
    pub level: Durability,
}

/// See the module's page.
pub struct Stage<'a> {
    /// The database.
    pub db: Db,
    /// Its keyspaces.
    pub spaces: [Keyspace; SPACES],
    /// The clock.
    pub stamps: &'a Stamps,
    /// Where checkpoints may be made.
    pub scratch: Option<PathBuf>,
    place: &'a Place,
    plan: Plan,
    calls: AtomicU64,
    stop: AtomicBool,
    over: AtomicBool,
    /// The operation of the volume in which the power goes.
    power_off_at: Option<u64>,
}

/// When the crash was: nothing later than `begin` was acknowledged, nothing called after `end` happened.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Before the image was taken.
    pub begin: u64,
    /// After it.
    pub end: u64,
}

impl<'a> Stage<'a> {
    /// Opens the database.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn open(place: &'a Place, set: &OptionSet, stamps: &'a Stamps, plan: Plan) -> Result<Self> {
        let db = open(place, &set.options)?;
        let space = |index: usize| match NAMES[index] {
            // Has the options that it was created with, whatever the set says.
            glintdb::DEFAULT_KEYSPACE => Ok(db.default_keyspace()),
            name => db.keyspace_or_create(name, set.keyspace.clone()),
        };
        let spaces = [space(0)?, space(1)?, space(2)?];
        let scratch = match place {
            Place::Directory(dir) => Some(dir.with_extension("checkpoint")),
            Place::Memory(_) => None,
        };
        Ok(Stage {
            db,
            spaces,
            stamps,
            scratch,
            place,
            plan,
            calls: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
            power_off_at: None,
        })
    }

    /// Whether a client is to make another call; counts it.
    pub fn another_call(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
            && (self.calls.fetch_add(1, Ordering::Relaxed) < self.plan.calls
                || self.plan.crash != Crash::None)
    }

    /// Calls so far, about.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Nobody goes on.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the clients go on.
    pub fn going_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
            && (self.calls() < self.plan.calls || self.plan.crash != Crash::None)
    }

    /// Whether what returned just now was still acknowledged: the power was on.
    pub fn powered(&self) -> bool {
        let on = self
            .power_off_at
            .is_none_or(|at| self.place.operations() <= at);
        if !on {
            self.stop();
        }
        on
    }

    /// Whether an error is one that a client must expect.
    pub fn expected(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Conflict | ErrorKind::SnapshotTooOld => true,
            _ => !self.powered(),
        }
    }

    /// Runs the clients, and something that flushes, compacts, syncs and creates keyspaces beside them; then the crash. Gives the clients' results, the floors that the disturber
    /// reached, the moment of the crash and the place that is left.
    ///
    /// # Errors
    /// What a client or the disturber found wrong.
    pub fn run<T: Send>(
        mut self,
        clients: u16,
        client: impl Fn(&Stage<'_>, u16) -> std::result::Result<T, String> + Sync,
    ) -> std::result::Result<Run<T>, String> {
        if self.plan.crash == Crash::TornPowerCut {
            // About one operation of the volume a call; the exact number does not matter.
            self.power_off_at = Some(self.place.power_off_after(self.plan.calls));
        }
        let stage = &self;
        let (results, floors, crashed) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..clients)
                .map(|number| {
                    let client = &client;
                    scope.spawn(move || {
                        let result = client(stage, number);
                        if result.is_err() {
                            stage.stop();
                        }
                        result
                    })
                })
                .collect();
            let disturber = scope.spawn(|| stage.disturb());
            scope.spawn(|| stage.watch());
            let crashed = stage.crash();
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            stage.stop();
            let disturbed = disturber.join();
            stage.over.store(true, Ordering::Relaxed);
            (results, disturbed, crashed)
        });
        let mut given = Vec::new();
        for result in results {
            given.push(result.map_err(|_| "a client panicked".to_string())??);
        }
        let floors = floors.map_err(|_| "the disturbing thread panicked".to_string())??;
        let torn = self.plan.crash == Crash::TornPowerCut;
        let after = match torn {
            // The power is off: whatever the threads did since then has changed nothing.
            true => Some((
                self.place.crashed(true, self.plan.seed),
                Moment {
                    begin: u64::MAX,
                    end: u64::MAX,
                },
            )),
            false => crashed,
        };
        let stats = self.db.stats();
        if let Some(error) = stats.background_error.filter(|_| after.is_none()) {
            return Err(format!("a background job failed: {error}"));
        }
        Ok(Run {
            results: given,
            floors,
            after,
        })
    }

    /// Waits for the moment, and takes the image that the crash leaves while the clients go on.
    fn crash(&self) -> Option<(Place, Moment)> {
        let power_cut = match self.plan.crash {
            Crash::None | Crash::TornPowerCut => return None,
            Crash::Kill => false,
            Crash::PowerCut => true,
        };
        while self.calls() < self.plan.calls && self.going_on() {
            std::thread::sleep(Duration::from_micros(100));
        }
        // Whoever was called and returned while the image was taken may be in it or not. On a busy machine this thread may sleep in between for so long that the order of all those cannot
        // be decided any more: then another image is taken, later.
        let image = || {
            self.stamps
                .around(|| self.place.crashed(power_cut, self.plan.seed))
        };
        let (mut begin, mut place, mut end) = image();
        for _ in 1..IMAGES_MAX {
            if end - begin <= WITHIN_IMAGE_MAX {
                break;
            }
            (begin, place, end) = image();
        }
        self.stop();
        Some((place, Moment { begin, end }))
    }

    /// Ends the process, with what everybody waits for, where no call has returned for a long time: threads that hang cannot be joined.
    #[allow(
        clippy::print_stderr,
        clippy::disallowed_methods,
        reason = "the last words of a test program, and a thread that may hang like all others"
    )]
    fn watch(&self) {
        let (mut seen, mut quiet) = (0, Duration::ZERO);
        const LOOK: Duration = Duration::from_millis(20);
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let now = self.stamps.taken();
            quiet = if now == seen {
                quiet + LOOK
            } else {
                Duration::ZERO
            };
            seen = now;
            if quiet > HANGS_AFTER {
                eprintln!("glint-histories: no call has returned for {HANGS_AFTER:?}");
                let (tell, told) = mpsc::channel();
                let db = self.db.clone();
                std::thread::spawn(move || tell.send(db.stats()).ok());
                match told.recv_timeout(STATS_WITHIN) {
                    Ok(stats) => {
                        let waits: Vec<_> =
                            stats.waits.iter().filter(|wait| wait.waiting > 0).collect();
                        eprintln!(
                            "waits {waits:?}; writers stopped {}; jobs waiting {:?}, running {}; value GC {:?}; log {:?}; background error {:?}",
                            stats.writes_stopped,
                            stats.jobs_waiting,
                            stats.jobs_running,
                            stats.value_gc,
                            stats.log,
                            stats.background_error
                        );
                    }
                    Err(_) => eprintln!("and the figures do not come either"),
                }
                std::process::exit(3);
            }
        }
    }

    fn disturb(&self) -> std::result::Result<Vec<Floor>, String> {
        let mut floors = Vec::new();
        let mut rng = Rng::of(&[self.plan.seed, 77]);
        while self.going_on() {
            std::thread::sleep(Duration::from_micros(200 + rng.below(8_000)));
            let kind = rng.below(9);
            let (call, done, ret) = self.stamps.around(|| match kind {
                0 => self.db.compact(),
                1 => self.spaces[1].compact_range("0010".."0030"),
                2..=3 => self.db.flush_log(Durability::Sync),
                4 => self.come_and_go(),
                5 => self.spaces[0].compact_values(),
                _ => self.db.flush(),
            });
            match done {
                // Compaction and flush write out all that was committed before; so does the log's own flush.
                Ok(()) if self.powered() => floors.push(Floor {
                    call,
                    ret,
                    level: Durability::Sync,
                }),
                Err(error) if !self.expected(&error) => {
                    self.stop();
                    return Err(format!("disturbance {kind}: {error}"));
                }
                _ => {}
            }
        }
        Ok(floors)
    }

    /// A keyspace that comes and goes; its creation seals the memtables of all.
    fn come_and_go(&self) -> Result<()> {
        let space = self
            .db
            .keyspace_or_create("guest", KeyspaceOptions::default())?;
        space.put("key", "value")?;
        self.db.flush_log(Durability::Sync)?;
        drop(space);
        self.db.drop_keyspace("guest")
    }
}

/// What an epoch gave.
pub struct Run<T> {
    /// The clients' results.
    pub results: Vec<T>,
    /// What became durable on the way.
    pub floors: Vec<Floor>,
    /// After a crash: the place that it left, and when it was.
    pub after: Option<(Place, Moment)>,
}
