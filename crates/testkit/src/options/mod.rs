//! Option sets: whatever they are, the same operations give the same answers. [`sets`] is the one table of them all, from which every lane of the reliability campaign takes its own:
//! a new technique, index or way in which a volume behaves joins them by one line there.

mod sets;

use glintdb::{
    Compression, Db, Durability, ErrorKind, IndexKind, Keyspace, KeyspaceOptions, LsmExperiments,
    LsmOptions, Options, PinnedLevels, Result,
};
use glintdb_simdisk::MemOptions;

/// Options for a database, for the keyspaces that are created in it, and for the volume in memory below it, where there is one.
#[derive(Clone)]
pub struct OptionSet {
    /// For messages.
    pub name: &'static str,
    /// The database's.
    pub options: Options,
    /// New keyspaces'.
    pub keyspace: KeyspaceOptions,
    /// How a simulated volume behaves.
    pub volume: MemOptions,
}

/// Who takes a set: what a change is made to has the sizes that suit the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Operations against the model: property tests, the fuzz target `operations`, most of `seeded`.
    Model,
    /// The same at the edge of what is allowed: a tree of many small levels.
    Edge,
    /// Killed processes, and the real kernel: each life of a database takes another set, so that what one leaves is recovered by the next.
    Kill,
    /// Deterministic simulation.
    Sim,
    /// The corruption sweep: a database for each.
    Sweep,
    /// Histories of real threads.
    Histories,
    /// Shuttle; what a case draws itself comes on top.
    Schedules,
}

impl Lane {
    /// Every lane: for sets that are for all of them.
    pub const ALL: [Lane; 7] = [
        Lane::Model,
        Lane::Edge,
        Lane::Kill,
        Lane::Sim,
        Lane::Sweep,
        Lane::Histories,
        Lane::Schedules,
    ];

    /// What the sets of this lane are changes of. Without background threads but where threads are the point.
    #[must_use]
    pub fn base(self) -> OptionSet {
        let (threads, options, keyspace) = match self {
            Lane::Model => (0, sizes(256, 128, 1024), tables(3, 32, 64)),
            Lane::Edge => (0, sizes(256, 128, 1024), tables(2, 4, 4)),
            Lane::Kill => (2, sizes(1024, 1024, 4096), KeyspaceOptions::default()),
            // A few dozen operations wrap the ring, fill segments, flush and compact, and an image opens in a fraction of a millisecond.
            Lane::Sim => (0, sizes(64, 64, 64), tables(2, 8, 8)),
            Lane::Sweep => (0, sizes(64, 64, 1024), tables(2, 4, 4)),
            // Nothing ever rests: generations are sealed every 32 KiB of log, the ring wraps every few hundred commits.
            Lane::Histories => (2, sizes(64, 64, 64), tables(3, 16, 32)),
            Lane::Schedules => (0, sizes(64, 64, 64), tables(3, 32, 64)),
        };
        let mut set = OptionSet {
            name: "",
            options: options.background_threads(threads),
            keyspace,
            volume: MemOptions::default(),
        };
        // Every deleted entry is passed by a seek if it can be.
        set.options.experiments.seek_after_deleted = 1;
        match self {
            Lane::Kill => {
                set.options.separate_min_bytes = 256;
                set.options.snapshot_pin_bytes_max = Options::default().snapshot_pin_bytes_max;
            }
            Lane::Sim => stop(&mut set, 4, 8),
            _ => {}
        }
        set
    }
}

/// The kind of index to which one of this kind is converted.
#[must_use]
pub fn other_kind(kind: IndexKind) -> IndexKind {
    match kind {
        IndexKind::Lsm => IndexKind::BTree,
        _ => IndexKind::Lsm,
    }
}

impl OptionSet {
    /// Every commit is at `Sync`, where commits otherwise choose for themselves.
    #[must_use]
    pub fn syncs(&self) -> bool {
        self.options.durability == Durability::Sync
    }

    /// Other options for a keyspace of this set with an index of this kind. Each number gives
    /// others.
    #[must_use]
    pub fn other_options(&self, index: IndexKind, number: u8) -> KeyspaceOptions {
        let mut options = match index == self.keyspace.index {
            true => self.keyspace.clone(),
            // Small, so that few entries make several tables and slices.
            false => {
                let mut small = tables(4, 32, 64).index(index);
                if index == IndexKind::BTree {
                    small.lsm = LsmOptions::default();
                    small.btree.table_bytes_target = 32 << 10;
                    small.btree.experiments.slice_bytes = 32 << 10;
                }
                small
            }
        };
        if options.index == IndexKind::BTree {
            let btree = &mut options.btree;
            let shelf = &mut btree.experiments;
            shelf.shelf_runs_settle = 1 + u32::from(number % 4);
            shelf.shelf_runs_slow = shelf.shelf_runs_slow.max(shelf.shelf_runs_settle + 1);
            shelf.shelf_runs_stop = shelf.shelf_runs_stop.max(shelf.shelf_runs_slow + 1);
            shelf.leaf_batch = 1 + u32::from(number / 4 % 8);
            shelf.reshape_fan = 2 + u32::from(number % 3);
            shelf.reshape_bits = 4 + u32::from(number % 8);
            btree.reshape = number % 2 == 1;
            btree.block_bytes = 4096 << (number / 32 % 2);
            if number / 64 % 2 == 1 {
                btree.compression = Compression::Lz4;
            }
            return options;
        }
        let lsm = &mut options.lsm;
        lsm.size_ratio = 2 + u32::from(number % 4);
        let level0 = &mut lsm.experiments;
        level0.level0_runs_compact = 1 + u32::from(number / 4 % 4);
        level0.level0_runs_slow = level0.level0_runs_slow.max(level0.level0_runs_compact + 1);
        level0.level0_runs_stop = level0.level0_runs_stop.max(level0.level0_runs_slow + 1);
        lsm.block_bytes = 4096 << (number / 16 % 2);
        if number / 32 % 2 == 1 {
            lsm.compression = Compression::Lz4;
        }
        lsm.levels_max = 1 + u32::from(number / 4 % 6);
        lsm.pinned_levels = match number / 64 {
            0 => PinnedLevels::Auto,
            levels => PinnedLevels::Levels(levels - 1),
        };
        options
    }

    /// Keyspaces of these names, made where they are missing. Those that exist may have the options
    /// of another set.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn keyspaces(&self, db: &Db, names: [&str; 2]) -> Result<[Keyspace; 2]> {
        let [first, second] = names.map(|name| match db.keyspace(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                db.create_keyspace(name, self.keyspace.clone())
            }
            found => found,
        });
        Ok([first?, second?])
    }
}

/// A log so small that a few hundred operations fill segments, wrap the ring and flush.
fn sizes(segment_kib: u64, ring_kib: usize, replay_kib: u64) -> Options {
    Options::default()
        .memory_budget_bytes(glintdb::MEMORY_BUDGET_BYTES_MIN)
        .log_segment_bytes(segment_kib << 10)
        .log_ring_bytes(ring_kib << 10)
        .replay_bytes_max(replay_kib << 10)
        // Snapshots are held across everything; that one may be given up is a set of its own.
        .snapshot_pin_bytes_max(1 << 30)
}

/// A tree so small that every few flushes are compacted.
fn tables(size_ratio: u32, table_kib: u64, base_level_kib: u64) -> KeyspaceOptions {
    let experiments = LsmExperiments::default()
        .level0_runs_compact(2)
        .base_level_bytes(base_level_kib << 10);
    let lsm = LsmOptions::default()
        .size_ratio(size_ratio)
        .table_bytes_target(table_kib << 10)
        .experiments(experiments)
        // Pinned blocks serve some reads and the medium serves most. Other sets pin all or nothing.
        .pinned_levels(PinnedLevels::Levels(1));
    KeyspaceOptions::default().lsm(lsm)
}

/// So many runs at level 0 slow writers down, and so many stop them.
fn stop(set: &mut OptionSet, level0_runs_slow: u32, level0_runs_stop: u32) {
    set.keyspace.lsm.experiments.level0_runs_slow = level0_runs_slow;
    set.keyspace.lsm.experiments.level0_runs_stop = level0_runs_stop;
}

/// The sets of a lane, in the order of the table. Which of them a seed chooses depends on how many there are.
#[must_use]
pub fn of(lane: Lane) -> Vec<OptionSet> {
    let lines = sets::SETS.iter().filter(|line| line.lanes.contains(&lane));
    lines
        .map(|line| {
            let mut set = lane.base();
            set.name = line.name;
            (line.change)(&mut set);
            set
        })
        .collect()
}

/// The sets for operations against the model whose jobs run in a fixed order, on the caller's thread: a sequence and a seed reproduce a run exactly.
#[must_use]
pub fn deterministic() -> Vec<OptionSet> {
    let mut sets = of(Lane::Model);
    sets.retain(|set| set.options.background_threads == 0);
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_opens_and_takes_what_the_one_before_left() {
        let directory = tempfile::tempdir().unwrap();
        let sets = Lane::ALL.into_iter().flat_map(of);
        for (number, set) in sets.enumerate() {
            let db = set.options.open(directory.path()).unwrap();
            for before in 0..number {
                let key = before.to_string();
                assert_eq!(db.get(&key).unwrap().as_deref(), Some(key.as_bytes()));
            }
            let key = number.to_string();
            let own = db.create_keyspace(&key, set.keyspace).unwrap();
            own.put(&key, &key).unwrap();
            db.put(&key, &key).unwrap();
        }
    }
}
