//! Chooses between striping and isolation by the device's work of late, for [`Placement::Dynamic`].
//!
//! It counts where the volume has its lock anyway, and decides when a file is created, because only
//! new files are placed. There is no timer and no thread.
//!
//! Not thread-safe: belongs to the volume's state.
//!
//! Source: the DapDB paper, section V, whose profiler counts puts and gets. This one counts what
//! they cost the device: programs of each group of classes, reads of each, and their waits for
//! programs.
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
/// How much further than its limit a figure must be to change the placement.
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
    /// Small reads, by the group of the class that they read.
    reads: Vec<u64>,
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
            reads: vec![0; groups.len()],
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

    /// Counts a small read of a group's classes, and how long it waited for programs and erases.
    pub(super) fn note_read(&mut self, group: usize, ns: Ns, write_wait_ns: Ns) {
        self.reads[group] += 1;
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
        let meetings = self.meetings();
        let is_other_better = match self.is_isolated {
            true => busy > BUSY_MAX * HYSTERESIS || meetings > HYSTERESIS,
            false => busy < BUSY_MAX / HYSTERESIS && wait > WAIT_MIN && meetings < 1.0 / HYSTERESIS,
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
                meetings,
            });
        }
        self.since = now;
        self.sectors.fill(0);
        self.reads.fill(0);
        (self.read_ns, self.write_wait_ns) = (0, 0);
    }

    /// How often a read would meet a program if files were isolated, divided by how often it would
    /// if they were striped: a read meets programs on a unit in proportion to what is written to
    /// it. Isolation loses if most reads and most writes are of one group on few units.
    fn meetings(&self) -> f64 {
        let sum = |all: &[u64]| all.iter().sum::<u64>() as f64;
        let (reads, sectors, units) = (sum(&self.reads), sum(&self.sectors), sum(&self.units));
        if reads == 0.0 || sectors == 0.0 {
            return 1.0;
        }
        let groups = self.reads.iter().zip(&self.sectors).zip(&self.units);
        let isolated =
            groups.map(|((reads, sectors), units)| *reads as f64 * *sectors as f64 / *units as f64);
        isolated.sum::<f64>() / reads / (sectors / units)
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
    /// reads of the first one waited for this percentage of theirs. Returns the choice at its end.
    fn interval(profiler: &mut Profiler, now: &mut Ns, busy: u64, wait: u64) -> bool {
        *now += INTERVAL_NS;
        profiler.note_write(1, busy * INTERVAL_NS * 28 / 200_000 / 100);
        profiler.note_read(0, 1_000_000, wait * 10_000);
        profiler.decide(*now)
    }

    /// As much is written to both groups for each unit, and three quarters of the reads are of the
    /// first group: isolation brings nothing. With less written there, it does.
    #[test]
    fn isolation_is_for_reads_that_it_keeps_apart_from_writes() {
        let run = |first: u64, second: u64, reads: [u64; 2]| {
            let mut profiler = Profiler::new(&[0..64, 64..128], SECTOR_NS);
            for now in 1..=2 {
                profiler.note_write(0, first);
                profiler.note_write(1, second);
                for (group, count) in reads.iter().enumerate() {
                    for _ in 0..*count {
                        profiler.note_read(group, 1000, 500);
                    }
                }
                profiler.decide(now * INTERVAL_NS);
            }
            let meetings = profiler.changes.first().map(|change| change.meetings);
            (profiler.is_isolated, meetings)
        };
        assert_eq!(run(1000, 1000, [30, 10]), (false, None));
        assert_eq!(run(1500, 500, [30, 10]), (false, None));
        // A quarter of the writes and three quarters of the reads, and the other way round.
        let expected = (0.75 * 0.25 + 0.25 * 0.75) * 2.0;
        assert_eq!(run(500, 1500, [30, 10]), (true, Some(expected)));
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
            profiler.note_read(0, 10, 10);
            assert!(!profiler.decide(now * (INTERVAL_NS / 1000)));
        }
        assert_eq!(profiler.for_other, 0);
    }
}
