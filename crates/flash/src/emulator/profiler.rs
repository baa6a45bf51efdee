//! Chooses between striping and isolation by the device's work of late, for [`Placement::Dynamic`].
//!
//! It counts where the volume has its lock anyway, and decides when a file is created, because only
//! new files are placed. There is no timer and no thread.
//!
//! Not thread-safe: belongs to the volume's state.
//!
//! Source: the DapDB paper, section V, whose profiler counts puts and gets. This one counts what
//! they cost the device: programs of each group of classes, and waits of reads for programs.
//!
//! [`Placement::Dynamic`]: super::Placement::Dynamic

use super::nand::Ns;
use crate::placement::PlacementChange;
use std::ops::Range;

/// Shortest time between two looks, in nanoseconds.
const INTERVAL_NS: Ns = 50_000_000;
/// Looks in a row that must agree before the placement changes.
const LOOKS: u32 = 2;
/// Part of the time in which the units of a group may program, above which isolation would slow
/// writers down.
const BUSY_MAX: f64 = 0.8;
/// Part of the time of reads that they wait for programs, from which isolation is worth it.
const WAIT_MIN: f64 = 0.1;
/// How much further a figure must be to change the placement back.
const HYSTERESIS: f64 = 1.1;

/// Counts of the interval, and the choice so far.
pub(super) struct Profiler {
    /// Number of units of each group.
    units: Vec<u64>,
    /// Time that a unit needs for a sector.
    sector_ns: f64,
    since: Ns,
    /// Sectors that were written, by the group of their class.
    sectors: Vec<u64>,
    read_ns: Ns,
    write_wait_ns: Ns,
    /// Looks in a row that were for the other placement.
    for_other: u32,
    is_isolated: bool,
    changes: Vec<PlacementChange>,
}

impl Profiler {
    /// A profiler for groups with these units. A unit needs `sector_ns` for a sector. Files are
    /// striped at first.
    pub(super) fn new(groups: &[Range<u32>], sector_ns: f64) -> Profiler {
        Profiler {
            units: groups.iter().map(|units| units.len() as u64).collect(),
            sector_ns,
            since: 0,
            sectors: vec![0; groups.len()],
            read_ns: 0,
            write_wait_ns: 0,
            for_other: 0,
            is_isolated: false,
            changes: Vec::new(),
        }
    }

    /// Counts sectors of a group's classes that are written.
    pub(super) fn note_write(&mut self, group: usize, sectors: u64) {
        self.sectors[group] += sectors;
    }

    /// Counts a small read, and how long it waited for programs and erases.
    pub(super) fn note_read(&mut self, ns: Ns, write_wait_ns: Ns) {
        self.read_ns += ns;
        self.write_wait_ns += write_wait_ns;
    }

    /// Whether a file that is created now is isolated.
    pub(super) fn decide(&mut self, now: Ns) -> bool {
        let time = now.saturating_sub(self.since);
        if time >= INTERVAL_NS {
            self.look(now, time as f64);
        }
        self.is_isolated
    }

    fn look(&mut self, now: Ns, time: f64) {
        let busy = |(sectors, units): (&u64, &u64)| {
            *sectors as f64 * self.sector_ns / (time * *units as f64)
        };
        let busy = (self.sectors.iter().zip(&self.units)).map(busy);
        let busy = busy.fold(0.0, f64::max);
        let wait = self.write_wait_ns as f64 / self.read_ns.max(1) as f64;
        let is_other_better = match self.is_isolated {
            true => busy > BUSY_MAX * HYSTERESIS,
            false => busy < BUSY_MAX / HYSTERESIS && wait > WAIT_MIN,
        };
        self.for_other = if is_other_better {
            self.for_other + 1
        } else {
            0
        };
        if self.for_other == LOOKS {
            self.for_other = 0;
            self.is_isolated = !self.is_isolated;
            self.changes.push(PlacementChange {
                at_ns: now,
                is_isolated: self.is_isolated,
                busy,
                wait,
            });
        }
        self.since = now;
        self.sectors.fill(0);
        (self.read_ns, self.write_wait_ns) = (0, 0);
    }

    /// The changes so far.
    pub(super) fn changes(&self) -> &[PlacementChange] {
        &self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR_NS: f64 = 200_000.0;

    /// A profiler of a group of 100 units and one of 28.
    fn profiler() -> Profiler {
        Profiler::new(&[0..100, 100..128], SECTOR_NS)
    }

    /// An interval in which the second group would be busy for this percentage of the time, and
    /// reads waited for this percentage of theirs. Returns the choice at its end.
    fn interval(profiler: &mut Profiler, now: &mut Ns, busy: u64, wait: u64) -> bool {
        *now += INTERVAL_NS;
        profiler.note_write(1, busy * INTERVAL_NS * 28 / 200_000 / 100);
        profiler.note_read(1_000_000, wait * 10_000);
        profiler.decide(*now)
    }

    #[test]
    fn isolation_begins_after_two_intervals_in_which_reads_wait() {
        let (mut profiler, mut now) = (profiler(), 0);
        assert!(!interval(&mut profiler, &mut now, 20, 50));
        assert!(interval(&mut profiler, &mut now, 20, 50));
        let change = profiler.changes()[0];
        assert_eq!((change.at_ns, change.is_isolated), (now, true));
        assert!((change.busy - 0.2).abs() < 0.01 && (change.wait - 0.5).abs() < 0.01);
    }

    #[test]
    fn an_interval_that_disagrees_begins_the_count_anew() {
        let (mut profiler, mut now) = (profiler(), 0);
        for _ in 0..5 {
            assert!(!interval(&mut profiler, &mut now, 20, 50));
            assert!(!interval(&mut profiler, &mut now, 20, 0));
        }
        assert!(profiler.changes().is_empty());
    }

    #[test]
    fn striping_comes_back_when_a_group_would_be_too_busy() {
        let (mut profiler, mut now) = (profiler(), 0);
        for _ in 0..2 {
            interval(&mut profiler, &mut now, 20, 50);
        }
        // Within the hysteresis it stays.
        for _ in 0..5 {
            assert!(interval(&mut profiler, &mut now, 84, 0));
        }
        assert!(interval(&mut profiler, &mut now, 150, 0));
        assert!(!interval(&mut profiler, &mut now, 150, 0));
        assert_eq!(profiler.changes().len(), 2);
    }

    #[test]
    fn looks_come_an_interval_apart() {
        let mut profiler = profiler();
        for now in 1..1000 {
            profiler.note_read(10, 10);
            assert!(!profiler.decide(now * (INTERVAL_NS / 1000)));
        }
        assert_eq!(profiler.for_other, 0);
    }
}
