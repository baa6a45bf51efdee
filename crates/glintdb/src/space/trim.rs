//! Gives space back after an explicit flush or compaction: the log's garbage in the segment that is
//! in use, and what the log, the reserve and recycled files have preallocated for more data than
//! there is.
//!
//! Thread safety: any thread that holds no lock. Other threads commit meanwhile.
//!
//! Invariant: the flush point moves only to the place where everything in memory begins, and no
//! further than the log is durable.

use crate::durable::manifest::{FlushPoint, Item, Manifest};
use crate::engine::Engine;
use crate::options::Options;
use crate::state::version::Version;
use crate::{ErrorKind, Result};
use glintdb_core::SeqNum;
use glintdb_core::sync::Mutex;
use glintdb_log::Space;

/// The log goes on in a new segment where that gives this much back.
const SURPLUS_BYTES: u64 = 4 << 20;

/// Bytes of tables, and of values in the log that they point to.
pub(crate) fn data_bytes(manifest: &Mutex<Manifest>, version: &Version) -> u64 {
    let values = {
        let manifest = manifest.lock();
        let state = manifest.state();
        let live = state.live_segments();
        live.iter().map(|&id| state.live_bytes(id)).sum::<u64>()
    };
    values + table_bytes(version)
}

/// Bytes of tables.
pub(crate) fn table_bytes(version: &Version) -> u64 {
    let tables = version.live_keyspaces();
    tables.map(|keyspace| keyspace.view.stats().bytes).sum()
}

impl Options {
    /// Half a segment, where that is less: so tests with small files come here.
    fn surplus_bytes(&self) -> u64 {
        SURPLUS_BYTES.min(self.log_segment_bytes / 2)
    }
}

impl Engine {
    /// Gives back what the database does not need, as far as that is worth a new segment.
    pub(crate) fn trim(&self) -> Result<()> {
        let data = data_bytes(&self.manifest, &self.version.load_full());
        self.log.set_data_bytes(data);
        let surplus = self.log.surplus_bytes(data) + self.active_garbage_bytes();
        if surplus > self.options.surplus_bytes() {
            match self.begin_small_segment(data) {
                // What there is serves, too.
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                begun => begun?,
            }
        }
        let tables = table_bytes(&self.version.load_full());
        let unflushed = || self.sequencer.lock().unflushed_bytes();
        self.reserve.trim(tables, unflushed)
    }

    /// Bytes of the segment in use that are flushed and not live.
    fn active_garbage_bytes(&self) -> u64 {
        let active = self.log.next_lsn().segment;
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let flushed = state.flush_point.lsn;
        match flushed.segment == active {
            true => u64::from(flushed.offset).saturating_sub(state.live_bytes(active)),
            false => 0,
        }
    }

    /// Ends the segment in use, goes on in a small one, and removes what was needed only for the
    /// former.
    fn begin_small_segment(&self, data_bytes: u64) -> Result<()> {
        self.seal_segment(Space::Reserve)?;
        self.log.shrink_ring(data_bytes)?;
        self.log.trim_reserve()?;
        // Of what other threads have committed meanwhile.
        self.flush_all()?;
        self.move_flush_point()?;
        self.collect_garbage();
        self.volume.delete_recycled();
        self.update_space();
        Ok(())
    }

    /// Where nothing is in memory, moves the flush point to the place where the next commit goes:
    /// so no earlier segment is replayed.
    fn move_flush_point(&self) -> Result<()> {
        let _no_flush = self.flush_lock.lock();
        {
            // Goes after the lock.
            let _replaced;
            let mut sequencer = self.sequencer.lock();
            if !sequencer.nothing_is_active() {
                return Ok(());
            }
            let start = self.log.next_lsn();
            _replaced = self.rotate_locked(&mut sequencer, start, Version::clone);
        }
        let version = self.version.load_full();
        if version.has_sealed() {
            return Ok(());
        }
        let point = FlushPoint {
            lsn: version.active.start_lsn,
            seqno: SeqNum(version.active.first_seqno.0 - 1),
        };
        drop(version);
        self.pipeline.wait_visible(point.seqno)?;
        self.sync_log_to(point.lsn)?;
        let durable = Item::LogDurable(self.log.durable());
        let mut manifest = self.manifest.lock();
        if manifest.state().flush_point.lsn < point.lsn {
            manifest.commit(&[Item::FlushPoint(point), durable])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
