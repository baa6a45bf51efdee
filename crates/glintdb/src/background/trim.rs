//! Gives space back after an explicit flush or compaction: garbage in the log's active segment, and
//! space that the log, the reserve and recycled files have preallocated for more data than there
//! is.
//!
//! Thread safety: any thread that holds no lock. Other threads commit meanwhile.
//!
//! Invariant: the flush point moves only to the place where everything in memory begins, and no
//! further than the log is durable.

use crate::Result;
use crate::background::Background;
use crate::durable::manifest::{FlushPoint, Item, Manifest};
use crate::options::Options;
use crate::state::version::Version;
use glintdb_core::SeqNum;
use glintdb_core::sync::Mutex;
use glintdb_log::Space;

/// The log continues in a new segment if that gives back this many bytes.
const SURPLUS_BYTES: u64 = 4 << 20;

/// Returns the live bytes of indexes, and of the values in the log that they point to.
pub(crate) fn data_bytes(manifest: &Mutex<Manifest>, version: &Version) -> u64 {
    let values = {
        let manifest = manifest.lock();
        let state = manifest.state();
        let live = state.live_segments();
        live.iter().map(|&id| state.live_bytes(id)).sum::<u64>()
    };
    values + version.index_live_bytes()
}

impl Options {
    /// The surplus at which the log continues in a new segment: [`SURPLUS_BYTES`], or half a
    /// segment if that is less, as with the small files of tests.
    fn surplus_bytes(&self) -> u64 {
        SURPLUS_BYTES.min(self.log_segment_bytes / 2)
    }
}

impl Background {
    /// Gives back space that the database does not need, if that is worth a new segment.
    pub(crate) fn trim(&self) -> Result<()> {
        let data = data_bytes(&self.shared.manifest, &self.shared.version.load_full());
        self.shared.log.set_data_bytes(data);
        let surplus = self.shared.log.surplus_bytes(data) + self.active_garbage_bytes();
        if surplus > self.shared.options.surplus_bytes() {
            match self.begin_small_segment(data) {
                // The present segment can be used further.
                Err(error) if error.kind().passes() => {}
                begun => begun?,
            }
        }
        let indexes = self.shared.version.load_full().index_needs();
        let unflushed = || self.sequencer.unflushed_bytes();
        let numbers = &*self.shared.numbers;
        self.shared.reserve.trim(numbers, indexes, unflushed)
    }

    /// Returns the bytes of the active segment that are flushed and not live.
    fn active_garbage_bytes(&self) -> u64 {
        let active = self.shared.log.next_lsn().segment;
        let manifest = self.shared.manifest.lock();
        let state = manifest.state();
        let flushed = state.flush_point.lsn;
        match flushed.segment == active {
            true => u64::from(flushed.offset).saturating_sub(state.live_bytes(active)),
            false => 0,
        }
    }

    /// Ends the active segment, continues in a small one, and removes space that only the former
    /// needed.
    fn begin_small_segment(&self, data_bytes: u64) -> Result<()> {
        self.writer.seal_segment(Space::Reserve)?;
        self.shared.log.shrink_ring(data_bytes)?;
        self.shared.log.trim_reserve()?;
        // Flushes the commits of other threads since then.
        self.flush_all()?;
        self.move_flush_point()?;
        self.space.collect_garbage();
        self.shared.volume.delete_recycled();
        self.space.update_space();
        Ok(())
    }

    /// If nothing is in memory, moves the flush point to the place of the next commit, so that no
    /// earlier segment is replayed.
    fn move_flush_point(&self) -> Result<()> {
        let _no_flush = self.flush_lock.lock();
        if !self.sequencer.begin_empty_generation() {
            return Ok(());
        }
        let version = self.shared.version.load_full();
        if version.has_sealed() {
            return Ok(());
        }
        let point = FlushPoint {
            lsn: version.active.start_lsn,
            seqno: SeqNum(version.active.first_seqno.0 - 1),
        };
        let log_position = version.active.log_position;
        drop(version);
        self.shared.pipeline.wait_visible(point.seqno)?;
        self.shared.sync_log_to(point.lsn)?;
        let durable = Item::LogDurable(self.shared.log.durable());
        assert!(
            log_position <= self.shared.log.durable_position(),
            "the log is durable up to the flush point before the manifest names it"
        );
        let mut manifest = self.shared.manifest.lock();
        let before = manifest.state().flush_point;
        assert_eq!(
            point.seqno, before.seqno,
            "the flush point passes no commit while all commits are in the indexes"
        );
        if before.lsn < point.lsn {
            manifest.commit(&[Item::FlushPoint(point), durable])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
