//! What threads do, and what that amounts to.
//!
//! Every commit of thread *t* writes its number to `count/t`, beside whatever else it does. So a picture of the database says by itself how many commits of each thread it
//! holds, and that decides everything else in it:
//!
//! 1. the counts together are the picture's sequence number: the picture is a prefix of the commit order, without a hole;
//! 2. a thread's own keys, in both keyspaces, are what its first commits left there;
//! 3. both halves of the shared pair were written by one commit, which is in the picture;
//! 4. the shared counter, which only transactions change, is the number of transactions in the picture: no update is lost.
//!
//! Thread safety: plain data.

use crate::rng::Rng;
use glintdb::Durability;
use std::collections::BTreeMap;

/// One thing a thread does.
#[derive(Clone, Debug)]
pub enum Step {
    /// A commit of the count alone, with a value of so many bytes.
    Put {
        /// Beside the head.
        bytes: usize,
        /// Its level.
        durability: Durability,
    },
    /// A batch over both keyspaces.
    Batch {
        /// Own keys put (with a value of so many bytes) and deleted (`None`).
        own: Vec<(u8, Option<usize>)>,
        /// Removes all own keys first.
        clear: bool,
        /// Writes the shared pair too.
        pair: bool,
        /// Its level.
        durability: Durability,
    },
    /// A transaction that adds one to the shared counter, tried until it commits.
    Increment,
    /// Reads what is visible now.
    Get,
    /// Takes a snapshot and holds it to the oracle twice, once from each end.
    Snapshot,
    /// All memtables to the indexes.
    Flush,
    /// To the bottom of the indexes.
    Compact,
    /// Makes everything durable.
    FlushLog,
}

impl Step {
    /// Whether it is a commit.
    #[must_use]
    pub fn commits(&self) -> bool {
        matches!(
            self,
            Step::Put { .. } | Step::Batch { .. } | Step::Increment
        )
    }

    /// What its commit is acknowledged at; increments take the database's default.
    #[must_use]
    pub fn durability(&self) -> Durability {
        match self {
            Step::Put { durability, .. } | Step::Batch { durability, .. } => *durability,
            _ => Durability::Os,
        }
    }
}

/// Steps of one thread.
#[must_use]
pub fn steps(rng: &mut Rng, count: usize) -> Vec<Step> {
    (0..count).map(|_| step(rng)).collect()
}

fn step(rng: &mut Rng) -> Step {
    match rng.below(20) {
        0..=4 => Step::Put {
            bytes: size(rng),
            durability: durability(rng),
        },
        5..=9 => Step::Batch {
            own: (0..rng.below(4))
                .map(|_| (rng.below(4) as u8, (!rng.one_in(3)).then(|| size(rng))))
                .collect(),
            clear: rng.one_in(6),
            pair: rng.one_in(2),
            durability: durability(rng),
        },
        10 | 11 => Step::Increment,
        12 | 13 => Step::Get,
        14..=16 => Step::Snapshot,
        17 => Step::Flush,
        18 => Step::Compact,
        _ => Step::FlushLog,
    }
}

/// Mostly small; some that fill a good part of the memtables' log, and some that go round the ring.
fn size(rng: &mut Rng) -> usize {
    match rng.below(16) {
        0..=9 => rng.below(40) as usize,
        10..=13 => 200 + rng.below(2000) as usize,
        14 => 6000 + rng.below(6000) as usize,
        _ => 17_000 + rng.below(4000) as usize,
    }
}

fn durability(rng: &mut Rng) -> Durability {
    match rng.below(4) {
        0 => Durability::Buffered,
        1 | 2 => Durability::Os,
        _ => Durability::Sync,
    }
}

/// Key of a thread's count.
#[must_use]
pub fn count_key(thread: usize) -> Vec<u8> {
    format!("count/{thread}").into_bytes()
}

/// A thread's own key.
#[must_use]
pub fn own_key(thread: usize, key: u8) -> Vec<u8> {
    format!("own/{thread}/{key}").into_bytes()
}

/// Key of the counter that transactions change.
pub const COUNTER: &[u8] = b"counter";
/// Both halves of the shared pair; the first is in one keyspace, the second in the other.
pub const PAIR: [&[u8]; 2] = [b"pair/a", b"pair/b"];

/// The value that commit `number` of `thread` writes, of at least `bytes` bytes: every value is another.
#[must_use]
pub fn value(thread: usize, number: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{thread} {number} ").into_bytes();
    let head = value.len();
    value.resize(head + bytes, b'a' + thread as u8);
    value
}

/// Thread and commit that wrote a value.
#[must_use]
pub fn writer(value: &[u8]) -> Option<(usize, u64)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split(' ');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A whole picture: both keyspaces.
pub type Picture = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// What one thread's first `commits` commits leave in both keyspaces: its count and its own keys; and how many of them were transactions.
#[must_use]
pub fn after(thread: usize, steps: &[Step], commits: u64) -> (Picture, u64) {
    let mut picture = Picture::default();
    let mut increments = 0;
    let committing = steps.iter().filter(|step| step.commits());
    for (step, number) in committing.zip(1..=commits) {
        let bytes = if let Step::Put { bytes, .. } = step {
            *bytes
        } else {
            0
        };
        picture[0].insert(count_key(thread), value(thread, number, bytes));
        match step {
            Step::Batch { own, clear, .. } => {
                if *clear {
                    picture[1].clear();
                }
                for (key, value_bytes) in own {
                    match value_bytes {
                        Some(bytes) => {
                            picture[1].insert(own_key(thread, *key), value(thread, number, *bytes));
                        }
                        None => {
                            picture[1].remove(&own_key(thread, *key));
                        }
                    }
                }
            }
            Step::Increment => increments += 1,
            _ => {}
        }
    }
    (picture, increments)
}

/// Holds a picture at `seqno` to the oracle; gives how many commits of each thread it holds.
///
/// # Errors
/// What is wrong with it.
pub fn check(threads: &[Vec<Step>], picture: &Picture, seqno: u64) -> Result<Vec<u64>, String> {
    let counts: Vec<u64> = (0..threads.len())
        .map(|thread| match picture[0].get(&count_key(thread)) {
            None => Ok(0),
            Some(value) => match writer(value) {
                Some((by, number)) if by == thread => Ok(number),
                _ => Err(format!("count of thread {thread} holds {value:?}")),
            },
        })
        .collect::<Result<_, _>>()?;
    let together: u64 = counts.iter().sum();
    if together != seqno {
        return Err(format!(
            "a picture at commit {seqno} holds {together} commits: {counts:?}"
        ));
    }
    let mut expected = Picture::default();
    let mut increments = 0;
    for (thread, steps) in threads.iter().enumerate() {
        let (own, of_thread) = after(thread, steps, counts[thread]);
        let [first, second] = own;
        expected[0].extend(first);
        expected[1].extend(second);
        increments += of_thread;
    }
    if increments > 0 {
        expected[0].insert(COUNTER.to_vec(), increments.to_string().into_bytes());
    }
    let pair = [picture[0].get(PAIR[0]), picture[1].get(PAIR[1])];
    if pair[0] != pair[1] {
        return Err(format!("half a batch: {:?} and {:?}", pair[0], pair[1]));
    }
    if let Some(value) = pair[0] {
        let known = writer(value).is_some_and(|(thread, number)| {
            counts.get(thread).is_some_and(|&count| number <= count)
        });
        if !known {
            return Err(format!(
                "the pair is of commit {:?}, the counts are {counts:?}",
                writer(value)
            ));
        }
        expected[0].insert(PAIR[0].to_vec(), value.clone());
        expected[1].insert(PAIR[1].to_vec(), value.clone());
    }
    for (keyspace, (found, expected)) in picture.iter().zip(&expected).enumerate() {
        if let Some(difference) = difference(found, expected) {
            return Err(format!(
                "keyspace {keyspace} at commit {seqno} ({counts:?}): {difference}"
            ));
        }
    }
    Ok(counts)
}

fn difference(
    found: &BTreeMap<Vec<u8>, Vec<u8>>,
    expected: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Option<String> {
    let keys = found.keys().chain(expected.keys());
    keys.filter(|key| found.get(*key) != expected.get(*key))
        .map(|key| {
            let show = |value: Option<&Vec<u8>>| value.map(|value| (writer(value), value.len()));
            format!(
                "{}: found {:?}, expected {:?}",
                String::from_utf8_lossy(key),
                show(found.get(key)),
                show(expected.get(key))
            )
        })
        .next()
}
