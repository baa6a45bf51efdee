//! Operations on a database, small enough to be printed when a test has shrunk them, and the strategies that generate them.
//!
//! Keys and values are numbers that stand for bytes: few keys, so that operations meet; shapes that are awkward (empty, long, with a common prefix, all `0xff`).

use glintdb::Durability;
use proptest::prelude::*;
use proptest::strategy::Union;
use std::ops::Bound;

/// Keys that operations use: `Key(0)` to `Key(KEYS - 1)`.
pub const KEYS: u8 = 96;
/// Keyspaces that operations use.
pub const SPACES: u8 = 3;
/// Snapshots that may be open at the same time.
pub const SNAPSHOTS: u8 = 3;

/// A keyspace: 0 is `default`, the others may be there or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space(pub u8);

impl Space {
    /// The one that is always there.
    pub const DEFAULT: Space = Space(0);

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self.0 {
            0 => "default".into(),
            1 => "other".into(),
            n => format!("space-\u{e4}-{n}"),
        }
    }

    /// The keyspace of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Space> {
        (0..SPACES).map(Space).find(|space| space.name() == name)
    }
}

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub u8);

impl Key {
    /// The bytes it stands for.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self.0 {
            0 => Vec::new(),
            1 => vec![0],
            2 => vec![0xff],
            3 => vec![0xff; 20],
            4 => vec![b'x'; 5000],
            5 => [vec![b'x'; 5000], vec![0]].concat(),
            n @ 6..16 => [b"prefix/that/many/share/".as_slice(), &[n], &[0xff; 3]].concat(),
            n @ 16..28 => format!("{n}").into_bytes(),
            // Blocks hold several of these, because keys of more than half a block do not count.
            n @ 28..32 => [vec![b'x'; 2100], vec![n]].concat(),
            n => format!("user:{:08}", u32::from(n) * 7).into_bytes(),
        }
    }
}

/// A value: bytes from a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// Length in bytes.
    pub length: u32,
    /// Tells values of one length apart.
    pub seed: u8,
}

impl Value {
    /// The bytes it stands for.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = crate::rng::Rng::of(&[u64::from(self.seed), u64::from(self.length)])
            .bytes(self.length as usize);
        // Half of it compresses.
        let half = bytes.len() / 2;
        bytes[half..].fill(self.seed);
        bytes
    }
}

/// A range of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Range {
    /// Every key.
    All,
    /// Keys that begin like this one.
    Prefix(Key),
    /// Bounds; may be empty or the wrong way round (then nothing lies in it).
    Between(Bound<Key>, Bound<Key>),
}

impl Range {
    /// The bounds in bytes; for prefixes, what [`Range::contains`] says counts.
    #[must_use]
    pub fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        match self {
            Range::All => (Bound::Unbounded, Bound::Unbounded),
            Range::Prefix(key) => {
                let end = glintdb_core::key::prefix_end(&key.bytes());
                let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
                (Bound::Included(key.bytes()), end)
            }
            Range::Between(lower, upper) => (lower.map(Key::bytes), upper.map(Key::bytes)),
        }
    }

    /// Whether a key lies in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        if let Range::Prefix(prefix) = self {
            return key.starts_with(&prefix.bytes());
        }
        let (lower, upper) = self.bounds();
        (match lower {
            Bound::Included(bound) => key >= &bound[..],
            Bound::Excluded(bound) => key > &bound[..],
            Bound::Unbounded => true,
        }) && (match upper {
            Bound::Included(bound) => key <= &bound[..],
            Bound::Excluded(bound) => key < &bound[..],
            Bound::Unbounded => true,
        })
    }

    /// Just this key.
    #[must_use]
    pub fn of(key: Key) -> Range {
        Range::Between(Bound::Included(key), Bound::Included(key))
    }
}

/// A change to a keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Put.
    Put(Key, Value),
    /// Delete.
    Delete(Key),
    /// Delete every key of a range.
    DeleteRange(Range),
}

impl Change {
    /// The keys it may touch.
    #[must_use]
    pub fn range(&self) -> Range {
        match self {
            Change::Put(key, _) | Change::Delete(key) => Range::of(*key),
            Change::DeleteRange(range) => range.clone(),
        }
    }

    /// A deletion of a range in which no key can lie: the engine leaves it out, and a commit of nothing else is none.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Change::DeleteRange(range) = self else {
            return false;
        };
        let (lower, upper) = range.bounds();
        let (start, end) = glintdb_core::key::half_open(
            lower.as_ref().map(Vec::as_slice),
            upper.as_ref().map(Vec::as_slice),
        );
        end.is_some_and(|end| end <= start)
    }
}

/// A change and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The keyspace.
    pub space: Space,
    /// The change.
    pub change: Change,
}

/// A step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Read a key.
    Get(Space, Key),
    /// Read a range.
    Scan(Space, Range),
    /// Write.
    Write(Write),
}

/// How an iterator is driven: bit i of `backwards` says from which end record i comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    /// What it iterates over.
    pub range: Range,
    /// Ends, by bits; repeated after 32 records.
    pub backwards: u32,
    /// Records taken before it is dropped.
    pub records_max: u8,
    /// Only keys.
    pub keys_only: bool,
}

/// Something done to a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// One write by itself, through the keyspace.
    Write(Write, Durability),
    /// Several writes as one commit.
    Batch(Vec<Write>, Durability),
    /// Several commits at once.
    Group(Vec<Vec<Write>>, Durability),
    /// A transaction; `interfering` commits after `before` and ahead of `after`.
    Transaction {
        /// Serializable, instead of snapshot isolation.
        serializable: bool,
        /// First steps.
        before: Vec<Step>,
        /// A commit of someone else.
        interfering: Vec<Write>,
        /// More steps.
        after: Vec<Step>,
        /// Commit, instead of rolling back.
        commit: bool,
    },
    /// Read keys one by one and together.
    Read(Space, Vec<Key>),
    /// Iterate; `meanwhile` commits in the middle and must not be seen.
    Iterate(Space, Walk, Vec<Write>),
    /// Take a snapshot and keep it in a slot.
    Snapshot(u8),
    /// Read through the snapshot of a slot.
    ReadSnapshot(u8, Space, Vec<Key>, Walk),
    /// Drop the snapshot of a slot.
    DropSnapshot(u8),
    /// Memtables to indexes.
    Flush,
    /// Raise everything committed to a level.
    FlushLog(Durability),
    /// Compact a keyspace, or all.
    Compact(Option<Space>),
    /// Put the values of a keyspace in key order.
    CompactValues(Space),
    /// Copy to a new directory, open the copy and compare.
    Checkpoint,
    /// Close and open.
    Reopen,
    /// Create a keyspace, or see that it is refused.
    Create(Space),
    /// Drop a keyspace, or see that it is refused.
    Drop(Space),
    /// Give a keyspace other options; the number stands for them.
    SetOptions(Space, u8),
    /// Give a keyspace an index of the other kind; the number stands for its options.
    Convert(Space, u8),
    /// Read and verify every byte.
    Verify,
    /// Lose the process, or the power; `seed` decides what of the un-synced writes survives. Where the place cannot crash: close and open.
    Crash {
        /// Un-synced writes may be lost as well.
        power_cut: bool,
        /// Chooses survivors.
        seed: u64,
    },
}

fn space() -> impl Strategy<Value = Space> {
    prop_oneof![5 => Just(0_u8), 2 => Just(1), 1 => Just(2)].prop_map(Space)
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![1 => 0..KEYS, 3 => 32..KEYS].prop_map(Key)
}

fn value() -> impl Strategy<Value = Value> {
    let length = prop_oneof![
        1 => Just(0_u32),
        8 => 1_u32..64,
        4 => 64_u32..600,
        2 => 600_u32..5_000,
        1 => 5_000_u32..40_000,
    ];
    (length, any::<u8>()).prop_map(|(length, seed)| Value { length, seed })
}

fn range() -> impl Strategy<Value = Range> {
    let bound = || {
        prop_oneof![
            3 => key().prop_map(Bound::Included),
            3 => key().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    prop_oneof![
        1 => Just(Range::All),
        1 => key().prop_map(Range::Prefix),
        6 => (bound(), bound()).prop_map(|(lower, upper)| Range::Between(lower, upper)),
    ]
}

/// A narrow range, so that range deletions leave something.
fn narrow_range() -> impl Strategy<Value = Range> {
    prop_oneof![
        12 => (0..KEYS, 0_u8..6).prop_map(|(start, length)| {
            let end = start.saturating_add(length).min(KEYS - 1);
            Range::Between(Bound::Included(Key(start)), Bound::Excluded(Key(end)))
        }),
        1 => range(),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| Change::Put(key, value)),
        3 => key().prop_map(Change::Delete),
        2 => narrow_range().prop_map(Change::DeleteRange),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    (space(), change()).prop_map(|(space, change)| Write { space, change })
}

fn writes(max: usize) -> impl Strategy<Value = Vec<Write>> {
    prop::collection::vec(write(), 0..=max)
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![
        2 => Just(Durability::Buffered),
        4 => Just(Durability::Os),
        2 => Just(Durability::Sync),
    ]
}

fn walk() -> impl Strategy<Value = Walk> {
    let backwards = prop_oneof![Just(0_u32), Just(u32::MAX), any::<u32>()];
    (range(), backwards, any::<u8>(), any::<bool>()).prop_map(
        |(range, backwards, records_max, keys_only)| Walk {
            range,
            backwards,
            records_max,
            keys_only,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (space(), key()).prop_map(|(space, key)| Step::Get(space, key)),
        1 => (space(), range()).prop_map(|(space, range)| Step::Scan(space, range)),
        4 => write().prop_map(Step::Write),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..5)
}

/// Which kinds of operations a sequence has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mix {
    /// Kills and power cuts.
    pub crashes: bool,
}

/// One operation.
pub fn operation(mix: Mix) -> impl Strategy<Value = Operation> {
    let keys = || prop::collection::vec(key(), 1..8);
    let mut kinds: Vec<(u32, BoxedStrategy<Operation>)> = vec![
        (
            30,
            (write(), durability())
                .prop_map(|(w, d)| Operation::Write(w, d))
                .boxed(),
        ),
        (
            12,
            (writes(12), durability())
                .prop_map(|(w, d)| Operation::Batch(w, d))
                .boxed(),
        ),
        (
            4,
            (prop::collection::vec(writes(4), 0..4), durability())
                .prop_map(|(w, d)| Operation::Group(w, d))
                .boxed(),
        ),
        (
            8,
            (
                any::<bool>(),
                steps(),
                writes(3),
                steps(),
                prop::bool::weighted(0.85),
            )
                .prop_map(|(serializable, before, interfering, after, commit)| {
                    Operation::Transaction {
                        serializable,
                        before,
                        interfering,
                        after,
                        commit,
                    }
                })
                .boxed(),
        ),
        (
            8,
            (space(), keys())
                .prop_map(|(s, k)| Operation::Read(s, k))
                .boxed(),
        ),
        (
            8,
            (space(), walk(), writes(3))
                .prop_map(|(s, w, m)| Operation::Iterate(s, w, m))
                .boxed(),
        ),
        (4, (0..SNAPSHOTS).prop_map(Operation::Snapshot).boxed()),
        (
            5,
            (0..SNAPSHOTS, space(), keys(), walk())
                .prop_map(|(slot, s, k, w)| Operation::ReadSnapshot(slot, s, k, w))
                .boxed(),
        ),
        (2, (0..SNAPSHOTS).prop_map(Operation::DropSnapshot).boxed()),
        (4, Just(Operation::Flush).boxed()),
        (2, durability().prop_map(Operation::FlushLog).boxed()),
        (
            2,
            prop::option::of(space())
                .prop_map(Operation::Compact)
                .boxed(),
        ),
        (1, space().prop_map(Operation::CompactValues).boxed()),
        (1, Just(Operation::Checkpoint).boxed()),
        (2, Just(Operation::Reopen).boxed()),
        (3, space().prop_map(Operation::Create).boxed()),
        (1, space().prop_map(Operation::Drop).boxed()),
        (
            1,
            (space(), any::<u8>())
                .prop_map(|(space, options)| Operation::SetOptions(space, options))
                .boxed(),
        ),
        (1, Just(Operation::Verify).boxed()),
        (
            2,
            (space(), any::<u8>())
                .prop_map(|(space, options)| Operation::Convert(space, options))
                .boxed(),
        ),
    ];
    if mix.crashes {
        let crash = (any::<bool>(), any::<u64>())
            .prop_map(|(power_cut, seed)| Operation::Crash { power_cut, seed });
        kinds.push((8, crash.boxed()));
    }
    Union::new_weighted(kinds)
}

/// Sequences of at most `max` operations. The first ones create the keyspaces, so that most operations find one.
pub fn operations(max: usize, mix: Mix) -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(mix), 1..max).prop_map(|mut operations| {
        let creations = (1..SPACES).map(|space| Operation::Create(Space(space)));
        operations.splice(0..0, creations);
        operations
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_names_lead_back() {
        let mut keys: Vec<_> = (0..KEYS).map(|n| Key(n).bytes()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), usize::from(KEYS));
        for space in (0..SPACES).map(Space) {
            assert_eq!(Space::named(&space.name()), Some(space));
        }
    }

    #[test]
    fn a_range_the_wrong_way_round_is_empty() {
        let range = Range::Between(Bound::Included(Key(50)), Bound::Excluded(Key(40)));
        assert!((0..KEYS).all(|n| !range.contains(&Key(n).bytes())));
        assert!(Range::Prefix(Key(0)).contains(b"anything"));
    }
}
