//! Looks at a volume before every operation, takes the images that a crash here or in the middle of it would leave, and has them checked.
//!
//! Thread safety: is called with the volume's lock held, one operation at a time.

use super::oracle::{Cut, Oracle};
use crate::rng::Rng;
use glintdb_simdisk::{CrashMode, MemVolume, Moment, Observer, OperationKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// See the module's page.
pub(super) struct Watcher {
    oracle: Arc<Oracle>,
    cut: Cut,
    failure: Mutex<Option<String>>,
    /// Looks away.
    pub(super) asleep: AtomicBool,
}

impl Watcher {
    /// `cut`: what led to the volume that is watched, with the depth of the crashes that are to come.
    pub(super) fn new(oracle: Arc<Oracle>, cut: Cut) -> Watcher {
        Watcher {
            oracle,
            cut,
            failure: Mutex::default(),
            asleep: AtomicBool::new(false),
        }
    }

    /// What was wrong with the first image that was not as it must be.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap().clone()
    }

    fn check(&self, moment: &Moment<'_>, what: &str, image: Option<Arc<MemVolume>>, cut: Cut) {
        let Some(image) = image else { return };
        if self.failure.lock().unwrap().is_some() {
            return;
        }
        if let Err(message) = self.oracle.check(image, cut) {
            let message = format!(
                "{what} before operation {} of the volume, {:?}: {message}",
                moment.number(),
                moment.kind()
            );
            self.failure.lock().unwrap().get_or_insert(message);
        }
    }

    fn kills(&self, moment: &Moment<'_>, rng: &mut Rng) {
        let cut = |rng: &mut Rng| Cut {
            seed: rng.number(),
            ..self.cut
        };
        let seed = rng.number();
        self.check(moment, "kill", Some(moment.kill()), cut(rng));
        let midway = moment.kill_midway(seed);
        self.check(moment, "kill in the middle, not", midway, cut(rng));
    }

    fn power_cuts(&self, moment: &Moment<'_>, rng: &mut Rng) {
        let cut = |rng: &mut Rng| Cut {
            power: true,
            seed: rng.number(),
            ..self.cut
        };
        let mut modes = vec![CrashMode::LoseUnsynced];
        if let Some(since) = moment.unsynced_since() {
            modes.push(CrashMode::KeepUnsynced);
            modes.push(CrashMode::Prefix {
                operations: since + 1 + rng.below(moment.number().saturating_sub(since).max(1)),
            });
            for _ in 0..self.oracle.budget.random_survivors {
                modes.push(CrashMode::Random { seed: rng.number() });
            }
            modes.push(CrashMode::Garbage { seed: rng.number() });
        }
        for mode in modes {
            let what = format!("power cut ({mode:?})");
            self.check(moment, &what, Some(moment.power_cut(mode)), cut(rng));
        }
        let seed = rng.number();
        let mode = CrashMode::Random { seed };
        let midway = moment.power_cut_midway(mode, seed);
        self.check(moment, "power cut in the middle, not", midway, cut(rng));
    }
}

impl Observer for Watcher {
    fn before(&self, moment: &Moment<'_>) {
        let unchanged = matches!(
            moment.kind(),
            OperationKind::Read { .. } | OperationKind::Open(_) | OperationKind::List
        );
        if unchanged
            || self.asleep.load(Ordering::Relaxed)
            || self.failure.lock().unwrap().is_some()
            || self.oracle.budget.is_over()
        {
            return;
        }
        self.oracle.count(|counts| counts.steps += 1);
        let mut rng = Rng::of(&[self.cut.seed, moment.number()]);
        self.kills(moment, &mut rng);
        self.power_cuts(moment, &mut rng);
    }
}
