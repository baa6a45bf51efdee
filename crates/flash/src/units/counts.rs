//! Counters of reads and writes by unit and class of data. Thread-safe: relaxed atomics.

use crate::volume::{ClassStats, DataClass, UnitStats};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of levels that have counters of their own. Deeper levels count with the last of these.
const LEVELS: usize = 8;
/// Classes with counters of their own: the levels, then those of [`row_of`].
pub(crate) const ROWS: usize = LEVELS + 6;

/// The row of a class.
pub(crate) fn row_of(class: DataClass) -> usize {
    match class {
        // Of an earlier process: nothing says which level.
        DataClass::Level { rank: u8::MAX, .. } => LEVELS,
        DataClass::Level { rank, .. } => usize::from(rank).saturating_sub(1).min(LEVELS - 1),
        DataClass::Log => LEVELS + 1,
        DataClass::Flush => LEVELS + 2,
        DataClass::Relocated => LEVELS + 3,
        DataClass::Manifest => LEVELS + 4,
        DataClass::Reserve => LEVELS + 5,
    }
}

fn name_of(row: usize) -> String {
    let others = [
        "older tables",
        "log",
        "flush",
        "relocated",
        "manifest",
        "reserve",
    ];
    match row.checked_sub(LEVELS).and_then(|row| others.get(row)) {
        Some(name) => (*name).to_owned(),
        None => format!("level {}", row + 1),
    }
}

/// Counters of one unit for one class.
#[derive(Default)]
struct Count {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Count {
    /// Reads, bytes of them, writes, bytes of them.
    fn get(&self) -> [u64; 4] {
        let all = [
            &self.reads,
            &self.read_bytes,
            &self.writes,
            &self.written_bytes,
        ];
        all.map(|counter| counter.load(Ordering::Relaxed))
    }
}

/// The counters of a volume.
pub(crate) struct Counts(Vec<[Count; ROWS]>);

impl Counts {
    pub(crate) fn new(units: usize) -> Counts {
        let unit = |_| std::array::from_fn(|_| Count::default());
        Counts((0..units).map(unit).collect())
    }

    pub(crate) fn count_read(&self, unit: usize, class: DataClass, bytes: u64) {
        let count = &self.0[unit][row_of(class)];
        count.reads.fetch_add(1, Ordering::Relaxed);
        count.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self, unit: usize, class: DataClass, bytes: u64) {
        let count = &self.0[unit][row_of(class)];
        count.writes.fetch_add(1, Ordering::Relaxed);
        count.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counters of a unit over all classes.
    pub(crate) fn unit(&self, unit: usize) -> UnitStats {
        let [reads, read_bytes, writes, written_bytes] = sum(self.0[unit].iter());
        UnitStats {
            reads,
            read_bytes,
            writes,
            written_bytes,
            ..UnitStats::default()
        }
    }

    /// Counters of each class that was read or written, over all units.
    pub(crate) fn classes(&self) -> Vec<ClassStats> {
        let of_row = |row: usize| {
            let [reads, read_bytes, writes, written_bytes] =
                sum(self.0.iter().map(|unit| &unit[row]));
            ClassStats {
                name: name_of(row),
                reads,
                read_bytes,
                writes,
                written_bytes,
            }
        };
        let is_used = |class: &ClassStats| class.reads + class.writes > 0;
        (0..ROWS).map(of_row).filter(is_used).collect()
    }
}

fn sum<'a>(counts: impl Iterator<Item = &'a Count>) -> [u64; 4] {
    counts.fold([0; 4], |mut sum, count| {
        for (sum, more) in sum.iter_mut().zip(count.get()) {
            *sum += more;
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn classes_have_rows_of_their_own() {
        let mut classes = vec![
            DataClass::Log,
            DataClass::Flush,
            DataClass::Relocated,
            DataClass::Manifest,
            DataClass::Reserve,
        ];
        let levels = (1..=8).chain([u8::MAX]);
        classes.extend(levels.map(|rank| DataClass::Level { rank, of: 8 }));
        let rows: BTreeSet<usize> = classes.iter().map(|class| row_of(*class)).collect();
        assert_eq!(rows, (0..ROWS).collect());
        let names: BTreeSet<String> = rows.into_iter().map(name_of).collect();
        assert_eq!(names.len(), ROWS);
        assert_eq!(row_of(DataClass::Level { rank: 9, of: 9 }), LEVELS - 1);
        assert_eq!(
            name_of(row_of(DataClass::Level { rank: 2, of: 3 })),
            "level 2"
        );
    }
}
