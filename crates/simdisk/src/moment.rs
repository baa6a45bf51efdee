//! A look at a simulated volume just before an operation: what a crash here, or in the middle of the operation, would leave.
//!
//! Images share their blocks with the volume, so taking one costs microseconds. Thread safety: the volume's lock is held as long as a moment lives; an observer must not
//! use the volume itself.

use super::fault::OperationKind;
use super::random::Random;
use super::state::State;
use super::{CrashMode, MemVolume};
use std::sync::Arc;

/// Is shown every operation of a volume before it is done; see [`MemVolume::observe`].
pub trait Observer: Send + Sync {
    /// An operation is about to be done. Not called once the power is off.
    fn before(&self, moment: &Moment<'_>);
    /// What a read is about to answer.
    fn answer(&self, bytes: &[u8]) {
        let _ = bytes;
    }
}

/// The volume just before an operation.
pub struct Moment<'a> {
    pub(super) state: &'a State,
    pub(super) directory: usize,
    pub(super) kind: OperationKind,
    pub(super) bytes: &'a [u8],
}

impl Moment<'_> {
    /// The operation's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.state.faults.count
    }

    /// What is about to be done.
    #[must_use]
    pub fn kind(&self) -> OperationKind {
        self.kind
    }

    /// What is about to be written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Whether a power cut here would take nothing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.state.is_synced()
    }

    /// Numbers of the operations since which something is un-synced: from the first one on, where a prefix makes a difference.
    #[must_use]
    pub fn unsynced_since(&self) -> Option<u64> {
        self.state.unsynced_since()
    }

    /// What a power cut here leaves.
    #[must_use]
    pub fn power_cut(&self, mode: CrashMode) -> Arc<MemVolume> {
        MemVolume::of_state(self.state.after_power_cut(mode))
    }

    /// What `kill -9` here leaves.
    #[must_use]
    pub fn kill(&self) -> Arc<MemVolume> {
        MemVolume::of_state(self.state.after_kill())
    }

    /// What `kill -9` in the middle of the operation leaves: a part, by `seed`, of the bytes is written (into the ring: of the words). `None`: the operation has no middle.
    #[must_use]
    pub fn kill_midway(&self, seed: u64) -> Option<Arc<MemVolume>> {
        self.midway(seed).map(MemVolume::of_state)
    }

    /// What a power cut in the middle of the operation leaves; see [`kill_midway`](Self::kill_midway).
    #[must_use]
    pub fn power_cut_midway(&self, mode: CrashMode, seed: u64) -> Option<Arc<MemVolume>> {
        let midway = self.midway(seed)?;
        Some(MemVolume::of_state(midway.after_power_cut(mode)))
    }

    fn midway(&self, seed: u64) -> Option<State> {
        let mut after = self.state.after_kill();
        let directory = after.directories.get(self.directory)?;
        let (image, offset, unit) = match self.kind {
            OperationKind::Write { file, offset, .. } => {
                let inode = *directory.names().get(&file)?;
                let offset = usize::try_from(offset).ok()?;
                (&mut after.inode_mut(inode).image, offset, 1)
            }
            OperationKind::RingWrite { offset, .. } => {
                let directory = after.directories.get_mut(self.directory)?;
                (&mut directory.ring.as_mut()?.image, offset, 8)
            }
            _ => return None,
        };
        // At least one unit done, and one not.
        let units = self.bytes.len() / unit;
        let done = 1 + Random::new(seed).below(units.checked_sub(1).filter(|&n| n > 0)?);
        image.write(offset, &self.bytes[..done * unit], self.state.faults.count);
        Some(after)
    }
}
