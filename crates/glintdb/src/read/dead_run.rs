//! Deleted entries in a row, as a merge passes them.
//!
//! Thread safety: belongs to the merge's thread.

use crate::state::gaps::Stretch;
use bytes::Bytes;
use glintdb_core::{Direction, RangeTombstone, key};

/// The deleted entries since the last entry that a merge yielded, or since it passed a gap.
pub(crate) struct DeadRun {
    direction: Direction,
    /// Where the bounds of the merge end, in its direction: a start, or an end.
    limit: Option<Bytes>,
    /// Number of entries from which on a run is long.
    long: usize,
    /// Whether there is a run. Otherwise the two edges are left from an earlier one.
    has_begun: bool,
    /// Number of entries.
    entries: usize,
    /// Where the stretch without entries begins, in the merge's direction.
    from: Edge,
    /// How far the stretch is known to be empty, in the merge's direction.
    to: Edge,
    /// Long runs that have ended.
    found: Vec<Stretch>,
    /// Number of entries of all runs.
    total: u64,
}

/// One end of a stretch.
enum Edge {
    /// This deleted key, which is in the stretch.
    Key(Vec<u8>),
    /// A start, which is in the stretch, or an end, which is not. `None`: the stretch has no end.
    Bound(Option<Bytes>),
}

impl Edge {
    /// Takes a deleted key. Reuses the memory of the last one.
    fn set_key(&mut self, key: &[u8]) {
        match self {
            Edge::Key(buffer) => {
                buffer.clear();
                buffer.extend_from_slice(key);
            }
            Edge::Bound(_) => *self = Edge::Key(key.to_vec()),
        }
    }

    /// Returns the start of a stretch of which this is the lower end.
    fn start(&self) -> Option<Bytes> {
        match self {
            Edge::Key(key) => Some(Bytes::copy_from_slice(key)),
            Edge::Bound(bound) => bound.clone(),
        }
    }

    /// Returns the end of a stretch of which this is the upper end.
    fn end(&self) -> Option<Bytes> {
        match self {
            Edge::Key(key) => Some(key::successor(key)),
            Edge::Bound(bound) => bound.clone(),
        }
    }
}

impl DeadRun {
    /// Creates an empty run of a merge that ends at `limit`: a start if it goes backwards, else an
    /// end. From `long` entries on, runs are found.
    pub(crate) fn new(direction: Direction, limit: Option<Bytes>, long: usize) -> Self {
        DeadRun {
            direction,
            limit,
            long,
            has_begun: false,
            entries: 0,
            from: Edge::Bound(None),
            to: Edge::Bound(None),
            found: Vec::new(),
            total: 0,
        }
    }

    /// Notes a deleted entry. Returns how many there are in a row.
    pub(crate) fn note(&mut self, key: &[u8]) -> usize {
        if !self.has_begun {
            self.has_begun = true;
            self.from.set_key(key);
        }
        self.to.set_key(key);
        self.entries += 1;
        self.total += 1;
        self.entries
    }

    /// Notes that the merge passes `range`, or the part of it before the next entry that it comes
    /// to. With `many`, this took so long that the run counts as long.
    pub(crate) fn pass_range(&mut self, range: &RangeTombstone, many: bool) {
        self.to = Edge::Bound(match self.direction {
            Direction::Forward => range.end.clone(),
            Direction::Reverse => Some(range.start.clone()),
        });
        if many {
            self.entries = self.entries.max(self.long);
        }
    }

    /// Notes that the merge passes the gap `[start, end)`, and begins a run behind it.
    pub(crate) fn pass_gap(&mut self, start: &Bytes, end: Option<&Bytes>) {
        self.has_begun = true;
        self.entries = 0;
        self.from = Edge::Bound(match self.direction {
            Direction::Forward => end.cloned(),
            Direction::Reverse => Some(start.clone()),
        });
    }

    /// Ends the run at the entry that is `there`, or at the end of the merge.
    #[inline]
    pub(crate) fn end(&mut self, there: Option<&[u8]>) {
        if self.has_begun {
            self.end_run(there);
        }
    }

    fn end_run(&mut self, there: Option<&[u8]>) {
        self.has_begun = false;
        let entries = std::mem::take(&mut self.entries);
        if entries < self.long {
            return;
        }
        let stretch = match self.direction {
            Direction::Forward => {
                let limit = match there {
                    Some(key) => Some(Bytes::copy_from_slice(key)),
                    None => self.limit.clone(),
                };
                let end = match (self.to.end(), limit) {
                    (Some(end), Some(limit)) => Some(end.min(limit)),
                    (end, limit) => end.or(limit),
                };
                self.from.start().map(|start| (start, end))
            }
            Direction::Reverse => {
                let limit = match there {
                    Some(key) => Some(key::successor(key)),
                    None => self.limit.clone(),
                };
                let start = self.to.start().max(limit).unwrap_or_default();
                Some((start, self.from.end()))
            }
        };
        if let Some((start, end)) = stretch {
            self.found.push(Stretch {
                start,
                end,
                entries,
            });
        }
    }

    /// Returns the number of deleted entries in a row.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Takes the long runs that have ended.
    pub(crate) fn take_found(&mut self) -> Vec<Stretch> {
        std::mem::take(&mut self.found)
    }

    /// Takes the number of deleted entries that were noted.
    pub(crate) fn take_total(&mut self) -> u64 {
        std::mem::take(&mut self.total)
    }
}
