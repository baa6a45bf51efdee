//! A tournament tree over sources. It finds the source with the smallest key (backwards: the
//! greatest), and of equal keys the newest source.
//!
//! Of each source's key the tree keeps a *head*: 8 bytes of the key, big-endian, behind the prefix
//! that all keys share. Nearly every match is one comparison of two integers in one cache line.
//! Keys themselves are compared only if their heads are equal.
//!
//! Not thread-safe: belongs to one merge.
//!
//! Invariants:
//! 1. `tree[0]` is the winner, `tree[1..]` are the losers of the inner matches. The heads are up to
//!    date except while [`replay`](Tournament::replay) runs.
//! 2. Sources are given newest first. Equal keys come out in that order.

use glintdb_core::key::key_head;
use glintdb_core::{Direction, planted};

/// A source of a tournament.
pub(crate) trait MergeSource {
    /// The current key. `None`: the source is at its end.
    fn current(&self) -> Option<&[u8]>;
}

/// A tournament tree over sources.
pub(crate) struct Tournament {
    tree: Vec<u32>,
    heads: Vec<u64>,
    /// Length of the prefix that heads leave out.
    prefix_bytes: usize,
    reverse: bool,
}

impl Tournament {
    /// A tournament among `sources`, each already at its first key. All keys to come must share
    /// their first `prefix_bytes` bytes (0 is always right).
    pub(crate) fn new<S: MergeSource>(
        sources: &[S],
        prefix_bytes: usize,
        direction: Direction,
    ) -> Tournament {
        let mut this = Tournament {
            tree: Vec::new(),
            heads: Vec::new(),
            prefix_bytes,
            reverse: direction == Direction::Reverse,
        };
        this.rebuild(sources);
        this
    }

    /// Starts again after the sources were moved.
    pub(crate) fn rebuild<S: MergeSource>(&mut self, sources: &[S]) {
        let count = sources.len();
        self.heads = sources.iter().map(|s| self.head(s.current())).collect();
        // Leaf i is at count + i. Play from the leaves up.
        let mut winners = vec![0u32; 2 * count];
        for at in 0..count {
            winners[count + at] = to_u32(at);
        }
        self.tree = vec![0; count.max(1)];
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if self.first(sources, b, a) {
                (b, a)
            } else {
                (a, b)
            };
            winners[node] = winner;
            self.tree[node] = loser;
        }
        self.tree[0] = if count > 1 { winners[1] } else { 0 };
    }

    /// The source with the next key. `None`: all sources are at their end.
    #[inline]
    pub(crate) fn winner<S: MergeSource>(&self, sources: &[S]) -> Option<usize> {
        let at = self.tree[0] as usize;
        if self.heads.get(at).copied()? == u64::MAX && sources.get(at)?.current().is_none() {
            return None;
        }
        Some(at)
    }

    /// The head of the current key of source `at`.
    #[inline]
    pub(crate) fn head_of(&self, at: usize) -> u64 {
        self.heads[at]
    }

    /// The smallest head of the sources other than `at`. Without other sources `u64::MAX`.
    #[inline]
    pub(crate) fn rival_head(&self, at: usize) -> u64 {
        let (before, behind) = self.heads.split_at(at);
        let others = before.iter().chain(behind.iter().skip(1));
        others.copied().min().unwrap_or(u64::MAX)
    }

    /// Whether the current key of another source has the same head as that of `at`. If not, no
    /// other source is at the same key.
    #[inline]
    pub(crate) fn is_tied(&self, at: usize) -> bool {
        let head = self.heads[at];
        self.heads.iter().filter(|other| **other == head).count() > 1
    }

    /// Finds the next winner, after the winner was moved.
    #[inline]
    pub(crate) fn replay<S: MergeSource>(&mut self, sources: &[S]) {
        let count = self.heads.len();
        let mut winner = self.tree[0];
        let mut head = self.head(sources[winner as usize].current());
        self.heads[winner as usize] = head;
        let mut node = (winner as usize + count) / 2;
        // No branch may depend on the winner of a match: mispredicted, it would cost more than the
        // match itself.
        while node > 0 {
            let rival = self.tree[node];
            let rival_head = self.heads[rival as usize];
            let rival_wins = if rival_head == head {
                self.first_by_key(sources, rival, winner)
            } else {
                rival_head < head
            };
            self.tree[node] = if rival_wins { winner } else { rival };
            winner = if rival_wins { rival } else { winner };
            head = head.min(rival_head);
            node /= 2;
        }
        self.tree[0] = winner;
    }

    /// The source that would win without the winner: the best of those that lost to it.
    pub(crate) fn runner_up<S: MergeSource>(&self, sources: &[S]) -> Option<usize> {
        let count = self.heads.len();
        let mut node = (self.tree[0] as usize + count) / 2;
        let mut best: Option<u32> = None;
        while node > 0 {
            let rival = self.tree[node];
            if best.is_none_or(|best| self.first(sources, rival, best)) {
                best = Some(rival);
            }
            node /= 2;
        }
        best.map(|at| at as usize)
            .filter(|&at| sources[at].current().is_some())
    }

    /// Whether `a` comes before `b`.
    #[inline]
    fn first<S: MergeSource>(&self, sources: &[S], a: u32, b: u32) -> bool {
        let (head_a, head_b) = (self.heads[a as usize], self.heads[b as usize]);
        if head_a != head_b {
            return head_a < head_b;
        }
        self.first_by_key(sources, a, b)
    }

    #[cold]
    #[inline(never)]
    fn first_by_key<S: MergeSource>(&self, sources: &[S], a: u32, b: u32) -> bool {
        match (sources[a as usize].current(), sources[b as usize].current()) {
            (Some(key_a), Some(key_b)) => {
                let order = if self.reverse {
                    key_b.cmp(key_a)
                } else {
                    key_a.cmp(key_b)
                };
                let newer = planted!(
                    "lsm: of two runs with a key the older one wins",
                    a.cmp(&b),
                    b.cmp(&a)
                );
                order.then(newer).is_lt()
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a < b,
        }
    }

    /// The head of a key. Without a key `u64::MAX`.
    #[inline]
    pub(crate) fn head(&self, key: Option<&[u8]>) -> u64 {
        let Some(key) = key else { return u64::MAX };
        let head = key_head(key, self.prefix_bytes);
        if self.reverse { !head } else { head }
    }
}

fn to_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct List {
        keys: Vec<Vec<u8>>,
        at: usize,
    }

    impl MergeSource for List {
        fn current(&self) -> Option<&[u8]> {
            self.keys.get(self.at).map(Vec::as_slice)
        }
    }

    proptest! {
        #[test]
        fn prop_keys_come_out_in_order_newest_source_first(
            lists in proptest::collection::vec(proptest::collection::btree_set(
                prop_oneof![proptest::collection::vec(prop_oneof![Just(0u8), Just(255u8), any::<u8>()], 0..11), Just(vec![255; 8]), Just(vec![255; 9])], 0..20), 0..9),
            reverse: bool,
        ) {
            let direction = if reverse { Direction::Reverse } else { Direction::Forward };
            let mut expected: Vec<(Vec<u8>, usize)> = lists.iter().enumerate()
                .flat_map(|(at, list)| list.iter().map(move |key| (key.clone(), at))).collect();
            expected.sort_by(|a, b| {
                let order = a.0.cmp(&b.0);
                (if reverse { order.reverse() } else { order }).then(a.1.cmp(&b.1))
            });
            let mut sources: Vec<List> = lists.into_iter().map(|list| {
                let mut keys: Vec<_> = list.into_iter().collect();
                if reverse { keys.reverse(); }
                List { keys, at: 0 }
            }).collect();
            let mut tournament = Tournament::new(&sources, 0, direction);
            for (at, (key, source)) in expected.iter().enumerate() {
                let winner = tournament.winner(&sources);
                prop_assert_eq!(winner, Some(*source));
                prop_assert_eq!(sources[*source].current(), Some(key.as_slice()));
                let following = expected[at + 1..].iter().find(|(_, other)| other != source).map(|(_, other)| *other);
                prop_assert_eq!(tournament.runner_up(&sources), following);
                sources[*source].at += 1;
                tournament.replay(&sources);
            }
            if !sources.is_empty() {
                prop_assert_eq!(tournament.winner(&sources), None);
            }
        }
    }
}
