//! Range tombstones cut into disjoint fragments: for each key the newest deletion.
//!
//! Fragments are in chunks, and a lookup searches the chunks, then one chunk, both by *heads*: the
//! first eight bytes behind the prefix that all starts share. So it touches few cache lines, and
//! compares few keys.
//!
//! Thread safety: changed under the lock of its owner. Readers share chunks, and a chunk that one
//! of them has is copied before it is changed.
//!
//! Invariants:
//! 1. Fragments ascend, are not empty and do not overlap. No chunk is empty.
//! 2. The sequence number of a key's fragment is the greatest of all tombstones that were added and
//!    cover the key.
//! 3. `prefix` is a prefix of all starts, every chunk has it too, and all heads are those behind
//!    it. The head of an end that has another prefix, and so comes behind all keys that have this
//!    one, is the greatest.

use bytes::Bytes;
use glintdb_core::key::{before_end, key_head, shared_prefix};
use glintdb_core::{RangeTombstone, SeqNum};
use std::cmp::Ordering;
use std::sync::Arc;

/// Most fragments of a chunk. A full one is divided into two.
const CHUNK_FRAGMENTS: usize = 128;
/// Memory of one fragment in bytes, without its keys. Chunks are three quarters full on the
/// average.
const FRAGMENT_BYTES: usize = (size_of::<RangeTombstone>() + 2 * size_of::<u64>()) * 4 / 3;

/// Neighbouring fragments.
#[derive(Clone, Default)]
struct Chunk {
    prefix: Bytes,
    /// Those of each fragment.
    heads: Vec<Heads>,
    fragments: Vec<RangeTombstone>,
}

/// The heads of a fragment's start and end.
#[derive(Clone, Copy)]
struct Heads {
    start: u64,
    end: u64,
}

/// A key that is looked for.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    key: &'a [u8],
    /// Its head; or where it is, seen from all keys that have the prefix.
    head: Result<u64, Ordering>,
}

impl<'a> Wanted<'a> {
    fn new(key: &'a [u8], prefix: &[u8]) -> Self {
        let bytes = prefix.len();
        let head = match key.get(..bytes).unwrap_or(key).cmp(prefix) {
            Ordering::Equal => Ok(key_head(key, bytes)),
            other => Err(other),
        };
        Wanted { key, head }
    }
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
    chunks: Vec<Arc<Chunk>>,
    /// The head of the first start of each chunk.
    first_heads: Vec<u64>,
    /// What all starts begin with.
    prefix: Bytes,
    len: usize,
}

/// Returns how many of the sorted `heads`, whose keys `key_at` returns, are those of keys up to the
/// one that is wanted.
fn count_up_to<'a, T>(
    heads: &[T],
    head_of: impl Fn(&T) -> u64,
    key_at: impl Fn(usize) -> &'a [u8],
    wanted: Wanted<'_>,
) -> usize {
    let head = match wanted.head {
        Ok(head) => head,
        Err(Ordering::Less) => return 0,
        Err(_) => return heads.len(),
    };
    let mut to = heads.partition_point(|other| head_of(other) <= head);
    // Most keys have a head of their own.
    if to == 0 || head_of(&heads[to - 1]) < head {
        return to;
    }
    let mut from = heads.partition_point(|other| head_of(other) < head);
    while from < to {
        let middle = from + (to - from) / 2;
        match key_at(middle) <= wanted.key {
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

    fn first_head(&self) -> u64 {
        self.heads.first().map_or(0, |heads| heads.start)
    }

    /// Returns the number of fragments that begin at or before the key.
    fn count_up_to(&self, wanted: Wanted<'_>) -> usize {
        let start = |at: usize| -> &[u8] { &self.fragments[at].start };
        count_up_to(&self.heads, |heads| heads.start, start, wanted)
    }

    /// Returns `guess`, or the number beside it, if that many fragments begin at or before the key,
    /// and there are fragments on both sides of it.
    fn count_near(&self, wanted: Wanted<'_>, guess: usize) -> Option<usize> {
        let head = wanted.head.ok()?;
        let begins = |at: usize| match self.heads.get(at)?.start.cmp(&head) {
            Ordering::Less => Some(true),
            Ordering::Equal => Some(&*self.fragments[at].start <= wanted.key),
            Ordering::Greater => Some(false),
        };
        let is_count = |count: usize| {
            let last = count.checked_sub(1)?;
            (begins(last)? && !begins(count)?).then_some(count)
        };
        is_count(guess)
            .or_else(|| is_count(guess + 1))
            .or_else(|| is_count(guess.checked_sub(1)?))
    }

    /// Returns the sequence number of the deletion of the key, where `up_to` fragments begin at or
    /// before it. Zero: no fragment covers it.
    fn seqno_at(&self, wanted: Wanted<'_>, up_to: usize) -> SeqNum {
        let Some(at) = up_to.checked_sub(1) else {
            return SeqNum::ZERO;
        };
        // Most ends are known by their heads.
        let by_head = match wanted.head {
            Ok(head) => head.cmp(&self.heads[at].end),
            Err(_) => Ordering::Equal,
        };
        let is_covered = match by_head {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => before_end(wanted.key, &self.fragments[at].end),
        };
        match is_covered {
            true => self.fragments[at].seqno,
            false => SeqNum::ZERO,
        }
    }

    /// Replaces the fragments in `range` by `new`.
    fn splice(&mut self, range: std::ops::Range<usize>, new: Vec<RangeTombstone>) {
        let heads = new.iter().map(|new| Heads {
            start: key_head(&new.start, self.prefix.len()),
            end: end_head(&new.end, &self.prefix),
        });
        self.heads.splice(range.clone(), heads);
        self.fragments.splice(range, new);
    }

    /// Returns the fragments behind the first `at`, with their heads.
    fn split_off(&mut self, at: usize) -> Chunk {
        Chunk {
            prefix: self.prefix.clone(),
            heads: self.heads.split_off(at),
            fragments: self.fragments.split_off(at),
        }
    }
}

/// A chunk for readers, as it was when they took it, with the keys that no other chunk had.
pub(super) struct Stretch {
    chunk: Arc<Chunk>,
    /// Whether keys before its first fragment are in it.
    is_first: bool,
    /// The first key of the next chunk.
    end: Option<Bytes>,
}

impl Stretch {
    /// Returns the number of its fragments that begin at or before `key`, and the sequence number
    /// of the one that covers it (zero: there is none). `guess` is the first number for a key close
    /// by. `None`: the key is in another stretch.
    pub(super) fn find(&self, key: &[u8], guess: usize) -> Option<(usize, SeqNum)> {
        let wanted = Wanted::new(key, &self.chunk.prefix);
        let is_here = || before_end(key, &self.end) && (self.is_first || self.chunk.first() <= key);
        let up_to = match self.chunk.count_near(wanted, guess) {
            Some(count) => count,
            None if is_here() => self.chunk.count_up_to(wanted),
            None => return None,
        };
        Some((up_to, self.chunk.seqno_at(wanted, up_to)))
    }

    /// Returns the last of its first `up_to` fragments.
    pub(super) fn last_of(&self, up_to: usize) -> Option<&RangeTombstone> {
        self.chunk.fragments.get(up_to.checked_sub(1)?)
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
        let Some(Place { chunk, at }) = first.or_else(|| self.end()) else {
            let mut only = Chunk {
                prefix: self.prefix.clone(),
                ..Chunk::default()
            };
            only.splice(0..0, pieces);
            self.first_heads.push(only.first_head());
            self.chunks.push(Arc::new(only));
            return;
        };
        // Of the first chunk, what is covered there is replaced. Of those behind, it is removed.
        let here = covered.min(self.chunks[chunk].fragments.len() - at);
        Arc::make_mut(&mut self.chunks[chunk]).splice(at..at + here, pieces);
        let (mut left, mut whole) = (covered - here, 0);
        for other in &self.chunks[chunk + 1..] {
            if left < other.fragments.len() {
                break;
            }
            left -= other.fragments.len();
            whole += 1;
        }
        self.chunks.drain(chunk + 1..chunk + 1 + whole);
        self.first_heads.drain(chunk + 1..chunk + 1 + whole);
        if left > 0 {
            Arc::make_mut(&mut self.chunks[chunk + 1]).splice(0..left, Vec::new());
        }
        self.settle(chunk);
    }

    /// Divides or removes a chunk that was changed, and notes the first heads.
    fn settle(&mut self, chunk: usize) {
        let changed = Arc::make_mut(&mut self.chunks[chunk]);
        if changed.fragments.is_empty() {
            self.chunks.remove(chunk);
            self.first_heads.remove(chunk);
        } else if changed.fragments.len() > CHUNK_FRAGMENTS {
            let behind = changed.split_off(changed.fragments.len() / 2);
            self.first_heads.insert(chunk + 1, behind.first_head());
            self.chunks.insert(chunk + 1, Arc::new(behind));
        }
        for at in [chunk, chunk + 1] {
            if let Some(chunk) = self.chunks.get(at) {
                self.first_heads[at] = chunk.first_head();
            }
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
            let chunk = Arc::make_mut(chunk);
            let all = std::mem::take(chunk).fragments;
            chunk.prefix = self.prefix.clone();
            chunk.splice(0..0, all);
        }
        self.first_heads = self.chunks.iter().map(|chunk| chunk.first_head()).collect();
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

    /// Returns the last fragment that begins at or before `key`.
    fn last_up_to(&self, key: &[u8]) -> Option<Place> {
        let wanted = Wanted::new(key, &self.prefix);
        let chunk = self.chunk_of(wanted)?;
        let at = self.chunks[chunk].count_up_to(wanted).checked_sub(1)?;
        Some(Place { chunk, at })
    }

    /// Returns the last chunk that begins at or before the key.
    fn chunk_of(&self, wanted: Wanted<'_>) -> Option<usize> {
        let first = |chunk: usize| self.chunks[chunk].first();
        count_up_to(&self.first_heads, |head| *head, first, wanted).checked_sub(1)
    }

    /// Returns the fragment of `key`, or the range between two fragments that has it, with sequence
    /// number zero.
    pub(super) fn range_at(&self, key: &[u8]) -> RangeTombstone {
        let last = self.last_up_to(key);
        let behind = match last {
            Some(place) => self.behind(place),
            None => self.place_from(0),
        };
        match last.map(|place| self.fragment(place)) {
            Some(last) if before_end(key, &last.end) => last.clone(),
            last => RangeTombstone {
                start: last.and_then(|last| last.end.clone()).unwrap_or_default(),
                end: behind.map(|place| self.fragment(place).start.clone()),
                seqno: SeqNum::ZERO,
            },
        }
    }

    /// Returns the stretch that has `key`. `None`: there are no fragments.
    pub(super) fn stretch_at(&self, key: &[u8]) -> Option<Stretch> {
        let wanted = Wanted::new(key, &self.prefix);
        let chunk = self.chunk_of(wanted).unwrap_or(0);
        let next = self.chunks.get(chunk + 1);
        Some(Stretch {
            chunk: Arc::clone(self.chunks.get(chunk)?),
            is_first: chunk == 0,
            end: next.and_then(|next| Some(next.fragments.first()?.start.clone())),
        })
    }

    /// Returns the sequence number of the newest deletion of `key`. Zero: there is none.
    pub(super) fn seqno_at(&self, key: &[u8]) -> SeqNum {
        let wanted = Wanted::new(key, &self.prefix);
        let chunk = self.chunk_of(wanted).map(|chunk| &self.chunks[chunk]);
        chunk.map_or(SeqNum::ZERO, |chunk| {
            chunk.seqno_at(wanted, chunk.count_up_to(wanted))
        })
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
        (self.chunks.iter()).flat_map(|chunk| &chunk.fragments)
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
