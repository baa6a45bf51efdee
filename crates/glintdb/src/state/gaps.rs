//! Gaps of a keyspace: stretches of keys in which scans found nothing but deletions. Later scans
//! pass them by a seek.
//!
//! Thread safety: any thread. Commits pay one relaxed load if there are no gaps.
//!
//! Invariants:
//! 1. A gap is empty for every read point from its commit on, as long as it is here.
//! 2. A commit removes the gaps that it puts keys into before it is complete, and so before any
//!    read point shows it.
//! 3. So a gap that a scan at commit `at` found is entered only while every commit after `at` has
//!    put no key into it, or will see it: see [`Gaps::add`].

use bytes::Bytes;
use glintdb_core::key::{before_end, successor};
use glintdb_core::sync::RwLock;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use glintdb_core::{SeqNum, planted};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A stretch is kept as a gap if it has this many times the deleted entries after which scans seek.
pub(crate) const GAP_SEEKS_MIN: usize = 8;
/// Fewest entries of the parts of a gap.
const PART_ENTRIES_MIN: usize = 4;
/// Most gaps of a keyspace.
const GAPS_MAX: usize = 64;
/// Longest key at an end of a gap, in bytes. So the gaps of a keyspace take at most 128 KiB.
const KEY_BYTES_MAX: usize = 1 << 10;

/// A stretch of keys, without its start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gap {
    /// The first key behind it. `None`: there is none.
    end: Option<Bytes>,
    /// The commit from which on it is empty.
    since: SeqNum,
    /// Deleted entries that a scan passed in it, about.
    entries: usize,
}

/// A stretch of keys `[start, end)` in which a scan found nothing but deletions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) start: Bytes,
    /// `None`: the stretch has all keys from `start` on.
    pub(crate) end: Option<Bytes>,
    /// Number of deleted entries.
    pub(crate) entries: usize,
}

/// The gaps of a keyspace.
#[derive(Default)]
pub(crate) struct Gaps {
    /// Whether there are gaps, or one is being added.
    any: AtomicBool,
    by_start: RwLock<BTreeMap<Bytes, Gap>>,
}

impl Gaps {
    /// Returns whether a commit must look for gaps. The commit has its number already.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Adds a stretch that a scan at commit `at` found. `untouched` returns whether no commit after
    /// `at` that got its number before the call has put a key into the stretch. It takes the
    /// sequencer's lock, so that commits that get their number later see that there are gaps.
    pub(crate) fn add(
        &self,
        stretch: &Stretch,
        at: SeqNum,
        untouched: impl FnOnce() -> bool,
    ) -> bool {
        let ends = [Some(&stretch.start), stretch.end.as_ref()];
        let is_long = ends
            .into_iter()
            .flatten()
            .any(|key| key.len() > KEY_BYTES_MAX);
        if is_long || !before_end(&stretch.start, &stretch.end) {
            return false;
        }
        let mut gaps = self.by_start.write();
        self.any.store(true, Ordering::Relaxed);
        let enters = planted!(
            "glintdb: a gap is entered beside a commit",
            untouched(),
            true
        );
        if enters {
            insert(&mut gaps, stretch, at);
        }
        self.any.store(!gaps.is_empty(), Ordering::Relaxed);
        enters
    }

    /// Returns the ends of the gap that has `key`, for a reader of commit `at`.
    pub(crate) fn around(&self, key: &[u8], at: SeqNum) -> Option<(Bytes, Option<Bytes>)> {
        if !self.any() {
            return None;
        }
        let gaps = self.by_start.read();
        let (start, gap) = covering(&gaps, key)?;
        let is_visible = planted!(
            "glintdb: a snapshot passes over a gap that is younger",
            gap.since <= at,
            true
        );
        is_visible.then(|| (start.clone(), gap.end.clone()))
    }

    /// Removes `key`, which a commit puts, from the gap that has it.
    pub(crate) fn close(&self, key: &[u8]) {
        let is_in_gap = covering(&self.by_start.read(), key).is_some();
        if !is_in_gap {
            return;
        }
        let mut gaps = self.by_start.write();
        let Some(start) = covering(&gaps, key).map(|(start, _)| start.clone()) else {
            return;
        };
        let Some(gap) = gaps.remove(&start) else {
            return;
        };
        // It is not known on which side of the key the entries are.
        let (end, entries) = (Some(Bytes::copy_from_slice(key)), gap.entries / 2);
        let next = successor(key);
        let before = Gap {
            end,
            entries,
            ..gap
        };
        let behind = Gap { entries, ..gap };
        for (start, part) in [(start, before), (next, behind)] {
            if entries >= PART_ENTRIES_MIN && before_end(&start, &part.end) && gaps.len() < GAPS_MAX
            {
                gaps.insert(start, part);
            }
        }
        self.any.store(!gaps.is_empty(), Ordering::Relaxed);
    }
}

/// Returns the gap that has `key`, with its start.
fn covering<'a>(gaps: &'a BTreeMap<Bytes, Gap>, key: &[u8]) -> Option<(&'a Bytes, &'a Gap)> {
    let mut up_to = gaps.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
    up_to
        .next_back()
        .filter(|(_, gap)| before_end(key, &gap.end))
}

/// Inserts a stretch, joined with the gaps that it touches or overlaps. If there are too many gaps,
/// the one with the fewest entries goes.
fn insert(gaps: &mut BTreeMap<Bytes, Gap>, stretch: &Stretch, at: SeqNum) {
    let mut start = stretch.start.clone();
    let mut joined = Gap {
        end: stretch.end.clone(),
        since: at,
        entries: stretch.entries,
    };
    loop {
        let upper = joined
            .end
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Included);
        let mut up_to_end = gaps.range::<Bytes, _>((Bound::Unbounded, upper));
        let reaches = |gap: &Gap| gap.end.as_ref().is_none_or(|end| *end >= start);
        let touching = up_to_end.next_back().filter(|(_, gap)| reaches(gap));
        let Some(other) = touching.map(|(start, _)| start.clone()) else {
            break;
        };
        if let Some(gap) = gaps.remove(&other) {
            start = start.min(other);
            joined.end = joined.end.zip(gap.end).map(|(a, b)| a.max(b));
            joined.since = joined.since.max(gap.since);
            joined.entries += gap.entries;
        }
    }
    gaps.insert(start, joined);
    if gaps.len() > GAPS_MAX {
        let fewest = gaps.iter().min_by_key(|(_, gap)| gap.entries);
        if let Some(start) = fewest.map(|(start, _)| start.clone()) {
            gaps.remove(&start);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn stretch(start: &'static [u8], end: &'static [u8], entries: usize) -> Stretch {
        Stretch {
            start: Bytes::from_static(start),
            end: Some(Bytes::from_static(end)),
            entries,
        }
    }

    fn around(gaps: &Gaps, key: &[u8], at: u64) -> Option<(Bytes, Option<Bytes>)> {
        gaps.around(key, SeqNum(at))
    }

    fn ends(start: &'static [u8], end: &'static [u8]) -> Option<(Bytes, Option<Bytes>)> {
        Some((Bytes::from_static(start), Some(Bytes::from_static(end))))
    }

    #[test]
    fn gaps_that_touch_are_joined_from_the_later_commit_on() {
        let gaps = Gaps::default();
        assert!(!gaps.any());
        assert!(gaps.add(&stretch(b"b", b"d", 100), SeqNum(5), || true));
        assert!(gaps.add(&stretch(b"d", b"f", 100), SeqNum(7), || true));
        assert_eq!(around(&gaps, b"c", 7), ends(b"b", b"f"));
        assert_eq!(around(&gaps, b"c", 6), None);
        assert_eq!(around(&gaps, b"f", 9), None);
        assert_eq!(around(&gaps, b"a", 9), None);
    }

    #[test]
    fn a_gap_may_have_no_end() {
        let gaps = Gaps::default();
        gaps.add(&stretch(b"b", b"d", 100), SeqNum(5), || true);
        let all = Stretch {
            end: None,
            ..stretch(b"c", b"", 100)
        };
        assert!(gaps.add(&all, SeqNum(5), || true));
        let from_b = Bytes::from_static(b"b");
        assert_eq!(around(&gaps, b"z", 5), Some((from_b, None)));
        gaps.close(b"m");
        assert_eq!(around(&gaps, b"c", 5), ends(b"b", b"m"));
        assert_eq!(
            around(&gaps, b"z", 5),
            Some((Bytes::from_static(b"m\0"), None))
        );
    }

    #[test]
    fn a_stretch_that_commits_touched_is_not_added() {
        let gaps = Gaps::default();
        assert!(!gaps.add(&stretch(b"b", b"d", 100), SeqNum(5), || false));
        assert!(!gaps.any());
        assert_eq!(around(&gaps, b"c", 9), None);
    }

    #[test]
    fn a_put_divides_a_gap_until_its_parts_are_small() {
        let gaps = Gaps::default();
        gaps.add(
            &stretch(b"b", b"h", 2 * PART_ENTRIES_MIN),
            SeqNum(5),
            || true,
        );
        gaps.close(b"a");
        assert_eq!(around(&gaps, b"c", 5), ends(b"b", b"h"));
        gaps.close(b"d");
        assert_eq!(around(&gaps, b"c", 5), ends(b"b", b"d"));
        assert_eq!(around(&gaps, b"d", 5), None);
        assert_eq!(around(&gaps, b"d\0", 5), ends(b"d\0", b"h"));
        gaps.close(b"b");
        assert_eq!(around(&gaps, b"c", 5), None);
        gaps.close(b"e");
        assert!(!gaps.any());
    }

    #[test]
    fn the_gap_with_the_fewest_entries_goes_first() {
        let gaps = Gaps::default();
        for n in 0..=GAPS_MAX {
            let key = |digit| Bytes::from(vec![u8::try_from(n).unwrap(), digit]);
            let stretch = Stretch {
                start: key(0),
                end: Some(key(1)),
                entries: if n == 3 { 64 } else { 100 + n },
            };
            assert!(gaps.add(&stretch, SeqNum(1), || true));
        }
        assert_eq!(gaps.by_start.read().len(), GAPS_MAX);
        assert_eq!(around(&gaps, &[3, 0], 1), None);
        assert!(around(&gaps, &[4, 0], 1).is_some());
    }
}

#[cfg(all(test, loom))]
mod models;
