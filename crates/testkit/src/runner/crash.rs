//! Crashes: now, or at some later operation of the volume, which may be in the middle of anything; then again in the middle of recovery; then what is left is judged.

use super::read::read_all;
use super::{Done, Planned, Runner, Stop, ensure};
use crate::operation::{Change, Key, Space, Value, Write};
use glintdb::Durability;

/// A planned crash comes within so many operations of the volume.
const PLANNED_WITHIN: u64 = 60;
/// A second crash comes within so many operations of recovery.
const RECOVERY_WITHIN: u64 = 80;

impl Runner {
    pub(super) fn plan_crash(&mut self, power_cut: bool, seed: u64) -> Done {
        if !self.place.crashes() {
            return self.reopen();
        }
        if let Some(planned) = self.planned.take() {
            return self.crash(planned.power_cut, planned.seed);
        }
        if seed.is_multiple_of(3) {
            return self.crash(power_cut, seed);
        }
        let at_operation = self
            .place
            .power_off_after((seed >> 8 & 0xff) % PLANNED_WITHIN);
        self.planned = Some(Planned {
            power_cut,
            seed,
            at_operation,
        });
        Ok(())
    }

    /// The crash, one or two crashes more while recovering, and all checks.
    pub(super) fn crash(&mut self, power_cut: bool, seed: u64) -> Done {
        let after = self.place.crashed(power_cut, seed);
        self.snapshots = Default::default();
        self.db = None;
        self.place = after;
        if power_cut {
            self.history.power_is_cut();
        }
        let mut crashes = (seed >> 16) % 3;
        while crashes > 0 {
            crashes -= 1;
            self.place
                .power_off_after((seed >> (20 + crashes * 8)) % RECOVERY_WITHIN);
            let opened = self.open();
            let after = self
                .place
                .crashed(power_cut, seed.rotate_left(7 + crashes as u32));
            drop(opened);
            self.place = after;
        }
        self.place.observe(self.observer.clone());
        let opened = self.open();
        let db =
            opened.map_err(|error| Stop::Wrong(format!("does not open after a crash: {error}")))?;
        let found = read_all(&db)?;
        self.history
            .recover(power_cut, &found)
            .map_err(Stop::Wrong)?;
        let report = db.verify()?;
        ensure!(
            report.errors.is_empty(),
            "verify after a crash: {:?}",
            report.errors
        );
        db.close()?;
        self.db = Some(self.open()?);
        self.compare_all(self.db())?;
        self.leaks()?;
        let write = Write {
            space: Space::DEFAULT,
            change: Change::Put(
                Key(9),
                Value {
                    length: 10,
                    seed: seed as u8,
                },
            ),
        };
        self.write(&write, Durability::Sync)
    }
}
