//! Checkpoints beside everything else, and checkpoints that are cut off, with hard links and with
//! copies.

use crate::support::*;
use glintdb::{Db, ErrorKind, KeyspaceOptions, Options};
use glintdb_core::FileKind;
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, FaultKind, HookedVolume, Hooks, MemOptions, MemVolume};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest time that a checkpoint is held up: only a test that fails takes as long.
const HELD_UP_MAX: Duration = Duration::from_secs(60);

fn volume(refuses_links: bool) -> Arc<MemVolume> {
    MemVolume::with_options(MemOptions {
        refuses_links,
        ..MemOptions::default()
    })
}

fn copied() -> &'static Path {
    Path::new("/copy")
}

/// Every value is separated, so that segments of the log die.
fn separated() -> Options {
    options().separate_min_bytes(1)
}

/// Holds up the first link, which is the beginning of the copy, until it is released.
#[derive(Default)]
struct HeldUp {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    #[default]
    NotYet,
    Copying,
    Released,
    TooLong,
}

impl HeldUp {
    fn wait_for_copy(&self) {
        let mut state = self.state.lock();
        while *state == State::NotYet {
            self.moved.wait(&mut state);
        }
    }

    fn release(&self) {
        let mut state = self.state.lock();
        assert_eq!(
            *state,
            State::Copying,
            "something waited until the copy went on"
        );
        *state = State::Released;
        self.moved.notify_all();
    }
}

impl Hooks for HeldUp {
    fn before_link(&self) {
        let mut state = self.state.lock();
        if *state == State::NotYet {
            *state = State::Copying;
            self.moved.notify_all();
            while *state == State::Copying {
                if self.moved.wait_for(&mut state, HELD_UP_MAX).timed_out() {
                    *state = State::TooLong;
                }
            }
        }
    }
}

fn fill(db: &Db, from: u32) {
    for n in from..from + 400 {
        db.put(format!("{:03}", n % 400), pattern(n.into(), 1000))
            .unwrap();
    }
}

fn newest(db: &Db, from: u32) {
    for n in from..from + 400 {
        let value = db.get(format!("{:03}", n % 400)).unwrap().unwrap();
        assert_eq!(value, pattern(n.into(), 1000), "{n}");
    }
}

/// Commits, flushes, compactions, value GC, new keyspaces and drops wait for no copy, and what they
/// remove stays until it is copied.
#[test]
fn everything_goes_on_while_a_checkpoint_copies() {
    for refuses_links in [false, true] {
        let medium = volume(refuses_links);
        let held_up = Arc::new(HeldUp::default());
        let hooked = HookedVolume::new(medium.clone(), held_up.clone());
        let db = separated().open_volume(hooked, env()).unwrap();
        fill(&db, 0);
        let dropped = db
            .create_keyspace("dropped", KeyspaceOptions::default())
            .unwrap();
        dropped.put("key", "value").unwrap();
        let segments = || {
            let files = medium.list().unwrap();
            let logs = files.iter().filter(|file| file.kind == FileKind::Log);
            logs.count()
        };
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| db.checkpoint(copied()));
            held_up.wait_for_copy();
            let before = medium.list().unwrap();
            for round in 1..=10 {
                fill(&db, round * 400);
            }
            db.flush().unwrap();
            db.compact().unwrap();
            db.drop_keyspace("dropped").unwrap();
            let made = db
                .create_keyspace("made", KeyspaceOptions::default())
                .unwrap();
            made.put("key", "value").unwrap();
            let kept = medium.list().unwrap();
            let is_kept = |file| kept.contains(file) || matches!(file.kind, FileKind::Manifest);
            // Except the reserve and the segment that was active.
            let gone = before.iter().filter(|file| !is_kept(file));
            assert!(gone.count() <= 2, "{before:?}, {kept:?}");
            // Segments that came and went since then are not kept, and those that are kept slow no
            // writer as garbage.
            let (kept, figures) = (segments(), db.stats().value_gc);
            assert!((12..25).contains(&kept), "{kept}");
            assert!(figures.garbage_bytes < 300_000, "{figures:?}");
            held_up.release();
            checkpoint.join().unwrap().unwrap();
            assert!(segments() + 4 < kept, "{} of {kept}", segments());
        });
        newest(&db, 4000);
        let report = db.verify().unwrap();
        assert!(
            report.is_clean() && report.leftovers.is_empty(),
            "{report:?}"
        );
        assert_eq!(db.stats().pins, 0);
        let copy = medium.open_directory(copied()).unwrap();
        let copy = open_with(&copy, separated().create_if_missing(false)).unwrap();
        newest(&copy, 0);
        let dropped = copy.keyspace("dropped").unwrap();
        assert_eq!(dropped.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(
            copy.keyspace("made").unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let report = copy.verify().unwrap();
        assert!(
            report.is_clean() && report.leftovers.is_empty(),
            "{report:?}"
        );
    }
}

/// A checkpoint that a power cut or an error cuts off is whole, or it does not open as a database.
#[test]
fn a_checkpoint_that_is_cut_off_is_whole_or_does_not_open() {
    for refuses_links in [false, true] {
        let first = volume(refuses_links);
        let db = open_with(&first, separated()).unwrap();
        fill(&db, 0);
        db.flush().unwrap();
        fill(&db, 400);
        db.close().unwrap();
        let life = |at: u64, kind| {
            let volume = first.kill();
            let db = open_with(&volume, separated()).unwrap();
            let before = volume.operation_count();
            fail_at(&volume, before + at, kind, false);
            let made = db.checkpoint(copied());
            (made, volume.operation_count() - before, volume)
        };
        let (made, count, volume) = life(u64::MAX / 2, FaultKind::PowerOff);
        made.unwrap();
        let files = |volume: &MemVolume| volume.list().unwrap();
        let all_files = files(&volume.open_directory(copied()).unwrap());
        assert!(count > 50, "{count} operations");
        let (mut whole, mut refused) = (0, 0);
        let mut check = |volume: &MemVolume, context: &str| {
            let Some(copy) = volume.open_directory(copied()) else {
                refused += 1;
                return;
            };
            match open_with(&copy, separated().create_if_missing(false)) {
                Ok(db) => {
                    newest(&db, 400);
                    assert!(db.verify().unwrap().is_clean(), "{context}");
                    whole += 1;
                }
                Err(error) => {
                    // Without a manifest, files of a log or an index are damage.
                    let kinds = [ErrorKind::NotFound, ErrorKind::Corruption];
                    assert!(kinds.contains(&error.kind()), "{context}: {error}");
                    let found = files(&copy);
                    assert!(
                        found.iter().all(|file| file.kind != FileKind::Manifest)
                            || found.len() == all_files.len(),
                        "{context}: the manifest comes last: {found:?}"
                    );
                    refused += 1;
                }
            }
        };
        for at in 0..count {
            let (_, _, volume) = life(at, FaultKind::PowerOff);
            let modes = [
                CrashMode::LoseUnsynced,
                CrashMode::KeepUnsynced,
                CrashMode::Random { seed: at },
            ];
            for mode in modes {
                check(&volume.crash(mode), &format!("power cut at {at}, {mode:?}"));
            }
            for kind in [FaultKind::Io, FaultKind::NoSpace] {
                let (made, _, volume) = life(at, kind);
                let context = format!("{kind:?} at {at}: {made:?}");
                if made.is_err()
                    && let Some(copy) = volume.open_directory(copied())
                {
                    assert_eq!(copy.list().unwrap(), [], "{context}");
                }
                check(&volume.kill(), &context);
            }
        }
        assert!(
            whole > 0 && refused > count,
            "{whole} whole, {refused} refused"
        );
    }
}

#[test]
fn a_checkpoint_on_another_file_system_is_a_copy() {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    let directory = tempfile::tempdir().unwrap();
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    if device(directory.path()) == device(other.path()) {
        return;
    }
    let db = separated().open(directory.path().join("db")).unwrap();
    fill(&db, 0);
    let copy = other.path().join("copy");
    db.checkpoint(&copy).unwrap();
    fill(&db, 400);
    db.close().unwrap();
    let db = separated().create_if_missing(false).open(&copy).unwrap();
    newest(&db, 0);
    assert!(db.verify().unwrap().is_clean());
}
