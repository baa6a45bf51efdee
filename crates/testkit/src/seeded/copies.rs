//! A checkpoint that copies files while everything in them is overwritten: the copy is whole, and
//! shows the moment at which it was begun.

use super::lanes::Steps;
use crate::options::Lane;
use glintdb::{Db, Env, Options};
use glintdb_core::DbId;
use glintdb_flash::{SystemClock, Volume};
use glintdb_simdisk::{HookedVolume, Hooks, MemOptions, MemVolume};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

const KEYS: u32 = 400;
const ROUNDS: u32 = 5;
/// Longest time that a copy is held up.
const HELD_UP_MAX: Duration = Duration::from_secs(60);

/// Tells when the copy begins, and holds it up until it is told to go on.
struct HeldUp {
    begins: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
    once: OnceLock<()>,
}

impl Hooks for HeldUp {
    fn before_link(&self) {
        self.once.get_or_init(|| {
            self.begins.send(()).ok();
            let goes_on = self.goes_on.lock().expect("no panic");
            goes_on.recv_timeout(HELD_UP_MAX).ok();
        });
    }
}

pub(super) fn run() -> Result<(), String> {
    let medium = MemVolume::with_options(MemOptions {
        refuses_links: true,
        ..MemOptions::default()
    });
    let ((begins, has_begun), (go_on, goes_on)) = (channel(), channel());
    let hooks = HeldUp {
        begins,
        goes_on: Mutex::new(goes_on),
        once: OnceLock::new(),
    };
    let failed = |error: glintdb::Error| format!("a checkpoint that is held up: {error}");
    let mut options = Lane::Histories.base().options;
    options.separate_min_bytes = 1;
    let db = open(&options, HookedVolume::new(medium.clone(), Arc::new(hooks))).map_err(failed)?;
    fill(&db, 0).map_err(failed)?;
    let path = Path::new("/copy");
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| db.checkpoint(path));
        // An error of the checkpoint ends the wait too.
        has_begun.recv_timeout(HELD_UP_MAX).ok();
        let written = (1..=ROUNDS)
            .try_for_each(|round| fill(&db, round))
            .and_then(|()| db.compact())
            .and_then(|()| fill(&db, ROUNDS + 1))
            .and_then(|()| db.flush());
        go_on.send(()).ok();
        let copied = copying.join().map_err(|_| "a checkpoint panicked")?;
        written.and(copied).map_err(failed)
    })?;
    db.close().map_err(failed)?;
    let copy = (medium.open_directory(path)).ok_or("a checkpoint that is acknowledged is gone")?;
    let copy = open(&options.create_if_missing(false), copy).map_err(failed)?;
    for n in 0..KEYS {
        let found = copy.get(n.to_be_bytes()).map_err(failed)?;
        if found.as_deref() != Some(&value(n, 0)[..]) {
            return Err(format!("a checkpoint shows another value of key {n}"));
        }
    }
    match copy.verify().map_err(failed)?.errors.first() {
        Some(error) => Err(format!("verify of a checkpoint: {error}")),
        None => Ok(()),
    }
}

fn open(options: &Options, volume: Arc<dyn Volume>) -> glintdb::Result<Db> {
    let env = Env::new(Arc::new(SystemClock::new()), DbId(*b"of a held-up one"));
    options.clone().open_volume(volume, env)
}

fn value(n: u32, round: u32) -> Vec<u8> {
    [n, round].map(u32::to_be_bytes).concat().repeat(100)
}

fn fill(db: &Db, round: u32) -> glintdb::Result<()> {
    for n in 0..KEYS {
        Steps::count();
        db.put(n.to_be_bytes(), value(n, round))?;
    }
    Ok(())
}
