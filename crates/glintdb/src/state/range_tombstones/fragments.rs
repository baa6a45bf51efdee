//! Range tombstones cut into disjoint fragments: for each key the newest deletion.
//!
//! Fragments are in chunks, and a lookup searches the chunks, then one chunk, both by *heads*: the
//! first eight bytes behind the prefix that all starts share. So it touches few cache lines, and
//! compares few keys.
//!
//! Thread safety: changed under the lock of its owner.
//!
//! Invariants:
//! 1. Fragments ascend, are not empty and do not overlap. No chunk is empty.
//! 2. The sequence number of a key's fragment is the greatest of all tombstones that were added and
//!    cover the key.
//! 3. `prefix` is a prefix of all starts, and all heads are those behind it. The head of an end
//!    that has another prefix, and so comes behind all keys that have this one, is the greatest.

use bytes::Bytes;
use glintdb_core::key::{before_end, key_head, shared_prefix};
use glintdb_core::{Direction, RangeTombstone, SeqNum};
use std::cmp::Ordering;

/// Most fragments of a chunk. A full one is divided into two.
const CHUNK_FRAGMENTS: usize = 128;
/// Memory of one fragment in bytes, without its keys. Chunks are three quarters full on the
/// average.
const FRAGMENT_BYTES: usize = (size_of::<RangeTombstone>() + 2 * size_of::<u64>()) * 4 / 3;

/// Neighbouring fragments.
#[derive(Clone, Default)]
struct Chunk {
    /// The head of each start.
    heads: Vec<u64>,
    /// The head of each end.
    end_heads: Vec<u64>,
    fragments: Vec<RangeTombstone>,
}

/// The place of a fragment: its chunk, and its number in the chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    chunk: usize,
    at: usize,
}

/// Disjoint fragments of range tombstones, in key order.
#[derive(Clone, Default)]
pub(super) struct Fragments {
    chunks: Vec<Chunk>,
    /// The head of the first start of each chunk.
    first_heads: Vec<u64>,
    /// What all starts begin with.
    prefix: Bytes,
    len: usize,
}

/// Returns how many of the sorted `heads`, whose keys `key_at` returns, are those of keys up to
/// `key`.
fn count_up_to<'a>(
    heads: &[u64],
    key_at: impl Fn(usize) -> &'a [u8],
    (head, key): (u64, &[u8]),
) -> usize {
    let mut from = heads.partition_point(|&other| other < head);
    let mut to = heads.partition_point(|&other| other <= head);
    // Most keys have a head of their own.
    while from < to {
        let middle = from + (to - from) / 2;
        match key_at(middle) <= key {
            true => from = middle + 1,
            false => to = middle,
        }
    }
    from
}

/// Returns the head of the end of a fragment behind `prefix`.
fn end_head(end: &Option<Bytes>, prefix: &[u8]) -> u64 {
    match end {
        Some(end) if end.starts_with(prefix) => key_head(end, prefix.len()),
        _ => u64::MAX,
    }
}

impl Chunk {
    fn first(&self) -> &[u8] {
        self.fragments.first().map_or(&[], |first| &first.start)
    }

    /// Replaces the fragments in `range` by `new`.
    fn splice(&mut self, range: std::ops::Range<usize>, new: Vec<RangeTombstone>, prefix: &[u8]) {
        let heads = new.iter().map(|new| key_head(&new.start, prefix.len()));
        self.heads.splice(range.clone(), heads);
        let end_heads = new.iter().map(|new| end_head(&new.end, prefix));
        self.end_heads.splice(range.clone(), end_heads);
        self.fragments.splice(range, new);
    }

    /// Returns the fragments behind the first `at`, with their heads.
    fn split_off(&mut self, at: usize) -> Chunk {
        Chunk {
            heads: self.heads.split_off(at),
            end_heads: self.end_heads.split_off(at),
            fragments: self.fragments.split_off(at),
        }
    }
}

impl Fragments {
    /// Adds a tombstone. Takes O(log n) on the average for tombstones that are newer than all
    /// before, however many fragments they replace: each is replaced once.
    pub(super) fn add(&mut self, tombstone: &RangeTombstone) {
        let RangeTombstone { start, end, seqno } = tombstone;
        if !before_end(start, end) {
            return;
        }
        let first = match self.last_up_to(start) {
            Some(place) if before_end(start, &self.fragment(place).end) => Some(place),
            Some(place) => self.behind(place),
            None => self.place_from(0),
        };
        let mut covered = 0;
        let mut pieces = Vec::with_capacity(3);
        // The part of the tombstone that begins at `from` is not among the pieces yet.
        let mut from = Some(start.clone());
        let mut tail = None;
        let mut next = first;
        while let Some(place) = next
            && before_end(&self.fragment(place).start, end)
        {
            let mut old = self.fragment(place).clone();
            (next, covered) = (self.behind(place), covered + 1);
            if old.start < *start {
                let end = Some(start.clone());
                let before = RangeTombstone { end, ..old.clone() };
                pieces.push(before);
                old.start = start.clone();
            }
            if let Some(end) = end
                && old.end.as_ref().is_none_or(|old_end| old_end > end)
            {
                tail = Some(RangeTombstone {
                    start: end.clone(),
                    ..old.clone()
                });
                old.end = Some(end.clone());
            }
            if old.seqno < *seqno {
                continue;
            }
            // An older tombstone was added late. It has only what newer ones leave.
            if let Some(from) = from.take().filter(|from| *from < old.start) {
                let end = Some(old.start.clone());
                pieces.push(piece(from, end, *seqno));
            }
            from = old.end.clone();
            pieces.push(old);
        }
        if let Some(from) = from.filter(|from| before_end(from, end)) {
            pieces.push(piece(from, end.clone(), *seqno));
        }
        pieces.extend(tail);
        self.replace(first, covered, pieces);
    }

    /// Replaces `covered` fragments from `first` on (`None`: behind the last one) by `pieces`.
    fn replace(&mut self, first: Option<Place>, covered: usize, pieces: Vec<RangeTombstone>) {
        self.len = self.len + pieces.len() - covered;
        self.share_prefix(&pieces);
        let prefix = &*self.prefix;
        let Some(Place { chunk, at }) = first.or_else(|| self.end()) else {
            self.chunks.push(Chunk::default());
            self.chunks[0].splice(0..0, pieces, prefix);
            return self.settle(0);
        };
        // Of the first chunk, what is covered there is replaced. Of those behind, it is removed.
        let here = covered.min(self.chunks[chunk].fragments.len() - at);
        self.chunks[chunk].splice(at..at + here, pieces, prefix);
        let (mut left, mut whole) = (covered - here, 0);
        for other in &self.chunks[chunk + 1..] {
            if left < other.fragments.len() {
                break;
            }
            left -= other.fragments.len();
            whole += 1;
        }
        self.chunks.drain(chunk + 1..chunk + 1 + whole);
        if left > 0 {
            self.chunks[chunk + 1].splice(0..left, Vec::new(), prefix);
        }
        self.settle(chunk);
    }

    /// Divides or removes a chunk that was changed, and notes the first heads.
    fn settle(&mut self, chunk: usize) {
        let changed = &mut self.chunks[chunk];
        if changed.fragments.is_empty() {
            self.chunks.remove(chunk);
        } else if changed.fragments.len() > CHUNK_FRAGMENTS {
            let half = changed.fragments.len() / 2;
            let behind = changed.split_off(half);
            self.chunks.insert(chunk + 1, behind);
        }
        let first_head = |chunk: &Chunk| chunk.heads.first().copied().unwrap_or_default();
        if self.first_heads.len() == self.chunks.len() {
            for at in [chunk, chunk + 1] {
                if let Some(chunk) = self.chunks.get(at) {
                    self.first_heads[at] = first_head(chunk);
                }
            }
        } else {
            self.first_heads = self.chunks.iter().map(first_head).collect();
        }
    }

    /// Makes `prefix` a prefix of these starts too.
    fn share_prefix(&mut self, pieces: &[RangeTombstone]) {
        let mut shared = self.prefix.len();
        for piece in pieces {
            if self.chunks.is_empty() && self.prefix.is_empty() {
                self.prefix = piece.start.clone();
                shared = self.prefix.len();
            }
            shared = shared.min(shared_prefix(&self.prefix, &piece.start));
        }
        if shared == self.prefix.len() {
            return;
        }
        // A prefix gets shorter at most once for each of its bytes.
        self.prefix.truncate(shared);
        for chunk in &mut self.chunks {
            let all = std::mem::take(chunk).fragments;
            chunk.splice(0..0, all, &self.prefix);
        }
        self.first_heads.clear();
    }

    fn fragment(&self, Place { chunk, at }: Place) -> &RangeTombstone {
        &self.chunks[chunk].fragments[at]
    }

    /// Returns the first place of a chunk, if there is such a chunk.
    fn place_from(&self, chunk: usize) -> Option<Place> {
        (chunk < self.chunks.len()).then_some(Place { chunk, at: 0 })
    }

    /// Returns the place behind the last fragment, in the last chunk.
    fn end(&self) -> Option<Place> {
        let last = self.chunks.last()?;
        Some(Place {
            chunk: self.chunks.len() - 1,
            at: last.fragments.len(),
        })
    }

    /// Returns the place of the next fragment.
    fn behind(&self, Place { chunk, at }: Place) -> Option<Place> {
        match at + 1 < self.chunks[chunk].fragments.len() {
            true => Some(Place { chunk, at: at + 1 }),
            false => self.place_from(chunk + 1),
        }
    }

    /// Returns the place of the fragment before.
    fn before(&self, Place { chunk, at }: Place) -> Option<Place> {
        match at.checked_sub(1) {
            Some(at) => Some(Place { chunk, at }),
            None => {
                let chunk = chunk.checked_sub(1)?;
                let at = self.chunks[chunk].fragments.len() - 1;
                Some(Place { chunk, at })
            }
        }
    }

    /// Returns the last fragment that begins at or before `key`.
    fn last_up_to(&self, key: &[u8]) -> Option<Place> {
        let prefix = self.prefix.len();
        match key.get(..prefix).unwrap_or(key).cmp(&self.prefix) {
            Ordering::Less => return None,
            Ordering::Greater => {
                let Place { chunk, at } = self.end()?;
                return Some(Place { chunk, at: at - 1 });
            }
            Ordering::Equal => {}
        }
        let wanted = (key_head(key, prefix), key);
        let first = |chunk: usize| self.chunks[chunk].first();
        let chunk = count_up_to(&self.first_heads, first, wanted).checked_sub(1)?;
        let Chunk {
            heads, fragments, ..
        } = &self.chunks[chunk];
        let start = |at: usize| -> &[u8] { &fragments[at].start };
        let at = count_up_to(heads, start, wanted).checked_sub(1)?;
        Some(Place { chunk, at })
    }

    /// Returns the fragment that has `key`.
    fn covering(&self, key: &[u8]) -> Option<Place> {
        let place = self.last_up_to(key)?;
        // Most ends are known by their heads.
        let has_prefix = key.starts_with(&self.prefix);
        let end_head = self.chunks[place.chunk].end_heads[place.at];
        let by_head = match has_prefix {
            true => key_head(key, self.prefix.len()).cmp(&end_head),
            false => Ordering::Equal,
        };
        let is_before_end = match by_head {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => before_end(key, &self.fragment(place).end),
        };
        is_before_end.then_some(place)
    }

    /// Calls `take` with the ranges from that of `key` on, in key order or the other way round,
    /// until it returns false: each fragment, and each range between two, with sequence number
    /// zero.
    pub(super) fn ranges_from(
        &self,
        key: &[u8],
        direction: Direction,
        mut take: impl FnMut(RangeTombstone) -> bool,
    ) {
        let last = self.last_up_to(key);
        let is_covered = last.is_some_and(|place| before_end(key, &self.fragment(place).end));
        // Fragments before and behind the next range, which is between them.
        let mut before = last;
        let mut behind = match last {
            Some(place) => self.behind(place),
            None => self.place_from(0),
        };
        if is_covered {
            let own = last.map(|place| self.fragment(place));
            if !own.cloned().is_some_and(&mut take) {
                return;
            }
            match direction {
                Direction::Forward => {}
                Direction::Reverse => {
                    (before, behind) = (last.and_then(|own| self.before(own)), last)
                }
            }
        }
        loop {
            let start = match before {
                Some(place) => self.fragment(place).end.clone(),
                None => Some(Bytes::new()),
            };
            let end = behind.map(|place| self.fragment(place).start.clone());
            if let Some(start) = start
                && before_end(&start, &end)
                && !take(piece(start, end, SeqNum::ZERO))
            {
                return;
            }
            let next = match direction {
                Direction::Forward => behind,
                Direction::Reverse => before,
            };
            let Some(place) = next else { return };
            if !take(self.fragment(place).clone()) {
                return;
            }
            (before, behind) = match direction {
                Direction::Forward => (next, self.behind(place)),
                Direction::Reverse => (self.before(place), next),
            };
        }
    }

    /// Returns the sequence number of the newest deletion of `key`. Zero: there is none.
    pub(super) fn seqno_at(&self, key: &[u8]) -> SeqNum {
        let covering = self.covering(key);
        covering.map_or(SeqNum::ZERO, |place| self.fragment(place).seqno)
    }

    /// Returns the sequence number of a fragment in `[start, end)` that is newer than `since`, if
    /// there is one.
    pub(super) fn newer_in(
        &self,
        start: &Bytes,
        end: &Option<Bytes>,
        since: SeqNum,
    ) -> Option<SeqNum> {
        if !before_end(start, end) {
            return None;
        }
        let mut next = match self.last_up_to(start) {
            Some(place) if before_end(start, &self.fragment(place).end) => Some(place),
            Some(place) => self.behind(place),
            None => self.place_from(0),
        };
        while let Some(place) = next {
            let fragment = self.fragment(place);
            if !before_end(&fragment.start, end) {
                return None;
            }
            if fragment.seqno > since {
                return Some(fragment.seqno);
            }
            next = self.behind(place);
        }
        None
    }

    /// Returns the fragments in key order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.chunks.iter().flat_map(|chunk| &chunk.fragments)
    }

    /// Returns the number of fragments.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns about how many bytes of memory `fragments` fragments take, without their keys.
    pub(super) fn memory_bytes(fragments: usize) -> usize {
        fragments * FRAGMENT_BYTES
    }
}

fn piece(start: Bytes, end: Option<Bytes>, seqno: SeqNum) -> RangeTombstone {
    RangeTombstone { start, end, seqno }
}
