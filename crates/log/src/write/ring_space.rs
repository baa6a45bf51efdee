//! How much of the ring has space on the medium.
//!
//! The file of the ring has its full length from the beginning, but no space. The log has space
//! allocated from the front of the ring on, ahead of the commits that come there for the first
//! time, and writes only to that part. So the log must begin at the ring's front: at an opening,
//! behind a large frame, and where the ring shrinks, the base of the next segment is a multiple of
//! the ring's length.
//!
//! Thread safety: a lock is held while the ring grows or shrinks; it is taken before the
//! sequencer's. `grown` gets smaller only under the sequencer's lock, so a place that was reserved
//! keeps its space.

use crate::format::block_up;
use crate::format::frame::TRAILER_BYTES;
use crate::log::Log;
use crate::write::append::WaitReason;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{Error, ErrorKind, Result};
use glintdb_flash::Ring;

/// A ring grows and shrinks by multiples of this (see [`Ring::grow`]).
const UNIT_BYTES: u64 = 64 << 10;
/// What a ring has at least, in bytes: a quarter of it, but no more than this.
const FIRST_BYTES_MAX: u64 = 1 << 20;
/// Above that, the ring takes at most this part of the medium's free space, its own space included:
/// on a small file system the data needs the rest.
const FREE_PART: u64 = 8;
/// [`Log::shrink_ring`] keeps this part of the size of the data.
const DATA_PART: u64 = 16;

/// Which part of the ring has space.
pub(crate) struct RingSpace {
    /// Bytes from the front on that have space.
    grown: AtomicU64,
    /// Bytes from the front on that a commit needed and did not find.
    wanted: AtomicU64,
    /// Held while the ring grows or shrinks.
    changes: Mutex<()>,
}

impl RingSpace {
    /// Gives a ring that holds nothing its smallest space, durably, so that the next opening finds
    /// it on a full disk; gives the rest back.
    pub(crate) fn begin(ring: &dyn Ring) -> Result<RingSpace> {
        let grown = match ring.survives_kill() {
            true => first_bytes(ring.len() as u64),
            // Plain memory.
            false => ring.len() as u64,
        };
        ring.shrink(grown as usize)?;
        ring.grow(grown as usize)?;
        ring.sync()?;
        Ok(RingSpace {
            grown: AtomicU64::new(grown),
            wanted: AtomicU64::new(0),
            changes: Mutex::new(()),
        })
    }

    pub(crate) fn grown(&self) -> u64 {
        self.grown.load(Ordering::Acquire)
    }
}

/// The smallest space of a ring of `ring_bytes`.
fn first_bytes(ring_bytes: u64) -> u64 {
    let bytes = (ring_bytes / 4).min(FIRST_BYTES_MAX);
    bytes.next_multiple_of(UNIT_BYTES).min(ring_bytes)
}

impl Log {
    /// Refuses a place that has no space in the ring yet, and remembers that a commit needs it.
    /// Under the sequencer's lock.
    pub(crate) fn check_ring_space(&self, start: u64, end: u64) -> Result<(), WaitReason> {
        if self.has_ring_space(start, end) {
            return Ok(());
        }
        let needed = self.ring_space_needed(start, end);
        self.ring_space.wanted.fetch_max(needed, Ordering::Relaxed);
        Err(WaitReason::Ring)
    }

    /// Whether the place from `start` to `end` has space in the ring.
    pub(crate) fn has_ring_space(&self, start: u64, end: u64) -> bool {
        let grown = self.ring_space.grown();
        // The whole ring has space once the log has gone round it.
        grown == self.ring_bytes || self.ring_space_needed(start, end) <= grown
    }

    /// Bytes from the ring's front on that hold the place from `start` to `end`.
    fn ring_space_needed(&self, start: u64, end: u64) -> u64 {
        (start % self.ring_bytes + (end - start)).min(self.ring_bytes)
    }

    /// Called under the sequencer's lock where the next frame goes to the ring's front: places that
    /// were refused before are not asked for again.
    pub(crate) fn forget_wanted_ring_space(&self) {
        self.ring_space.wanted.store(0, Ordering::Relaxed);
    }

    /// The position where the ring's space ahead of `position` ends.
    pub(crate) fn ring_space_end(&self, position: u64) -> u64 {
        let grown = self.ring_space.grown();
        match grown == self.ring_bytes {
            true => u64::MAX,
            false => position - position % self.ring_bytes + grown,
        }
    }

    /// Gives the ring the space that a commit was refused for; `false`: no commit was.
    pub(crate) fn grow_ring_as_wanted(&self) -> Result<bool> {
        let wanted = self.ring_space.wanted.load(Ordering::Relaxed);
        if wanted <= self.ring_space.grown() {
            return Ok(false);
        }
        let grown = self.grow_ring(wanted);
        if grown.is_err() {
            // The next thread that waits may have been refused for another reason.
            self.ring_space.wanted.store(0, Ordering::Relaxed);
        }
        grown.map(|()| true)
    }

    /// Doubles the ring's space once commits have used half of it. Ignores errors: the commit that
    /// reaches the end of the space tries again and reports them.
    pub fn grow_ring_ahead(&self) {
        let grown = self.ring_space.grown();
        let completed = self.completed.load(Ordering::Acquire);
        // Behind a gap that no commit has passed yet, `reclaimed` is ahead.
        let place = completed.max(self.reclaimed.load(Ordering::Acquire)) % self.ring_bytes;
        if grown < self.ring_bytes && place > grown / 2 {
            self.grow_ring(grown + 1).ok();
        }
    }

    fn grow_ring(&self, needed: u64) -> Result<()> {
        let _one_at_a_time = self.ring_space.changes.lock();
        let grown = self.ring_space.grown();
        if needed <= grown {
            return Ok(());
        }
        let free = self.setup.volume.free_bytes();
        let most = free.map_or(u64::MAX, |free| free.saturating_add(grown) / FREE_PART);
        if needed > most {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!("the log's ring needs {needed} bytes, and may have {most}"),
            ));
        }
        let bytes = (2 * grown).min(most).max(needed);
        let bytes = bytes.next_multiple_of(UNIT_BYTES).min(self.ring_bytes);
        self.ring.grow(bytes as usize)?;
        self.ring_space.grown.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Bytes that [`shrink_ring`](Self::shrink_ring) gives back where the ring is empty.
    pub(crate) fn ring_surplus_bytes(&self, data_bytes: u64) -> u64 {
        let kept = self.ring_kept_bytes(data_bytes);
        match self.survives_kill {
            true => self.ring_space.grown().saturating_sub(kept),
            false => 0,
        }
    }

    fn ring_kept_bytes(&self, data_bytes: u64) -> u64 {
        let kept = (data_bytes / DATA_PART).next_multiple_of(UNIT_BYTES);
        kept.clamp(first_bytes(self.ring_bytes), self.ring_bytes)
    }

    /// Gives back the ring's space but for a 16th of `data_bytes`, if the log is at the ring's
    /// front: just behind [`reserve_seal`](Self::reserve_seal), once everything is in
    /// segments.
    ///
    /// # Errors
    /// I/O errors.
    pub fn shrink_ring(&self, data_bytes: u64) -> Result<()> {
        let kept = self.ring_kept_bytes(data_bytes);
        let _one_at_a_time = self.ring_space.changes.lock();
        if self.ring_space.grown() <= kept || !self.survives_kill {
            return Ok(());
        }
        {
            let mut sequencer = self.sequencer.lock();
            if sequencer.active.is_none() && self.begin_prepared(&mut sequencer).is_err() {
                return Ok(());
            }
            let Some((segment, offset)) = &sequencer.active else {
                return Ok(());
            };
            let head = segment.stream().position(*offset);
            let beginning = head - head % self.ring_bytes;
            let held = block_up(head + TRAILER_BYTES as u64) - beginning;
            // Readers of positions before `reclaimed` go to the segments.
            if self.reclaimed.load(Ordering::Acquire) < beginning || held > kept {
                return Ok(());
            }
            self.ring_space.grown.store(kept, Ordering::Release);
            self.ring_space.wanted.store(0, Ordering::Relaxed);
        }
        self.ring.shrink(kept as usize)
    }

    /// Gives back the ring's space after a [`close`](Self::close), if everything is durable in
    /// segments. The log takes no frames any more. Only while no other thread writes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn release_ring(&self) -> Result<()> {
        let _one_at_a_time = self.ring_space.changes.lock();
        let completed = self.completed.load(Ordering::Acquire);
        if !self.survives_kill || self.poisoned() || self.durable_position() < completed {
            return Ok(());
        }
        let closed = Error::new(ErrorKind::Closed, "the database is closed");
        self.poison(closed);
        // Readers go to the segments.
        self.reclaimed.fetch_max(completed, Ordering::AcqRel);
        let kept = first_bytes(self.ring_bytes);
        self.ring_space.grown.store(kept, Ordering::Release);
        self.ring.shrink(kept as usize)
    }
}
