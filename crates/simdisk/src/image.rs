//! The bytes of one simulated file: what is there now, what a power cut cannot take, and what lies between.
//!
//! Invariants: 1. `now` is what reads see. 2. After a power cut each 512-byte sector holds either its synced image or one of the images it had since, chosen
//! independently of every other sector; so writes may be lost, reordered and torn at sector boundaries, but a sector is never a mixture. Only a sector behind the synced
//! length, which was in flight for the first time, may hold anything (`CrashMode::Garbage`). 3. The length is one of those it had since the last sync. 4. A sync makes
//! exactly what was un-synced durable: what a failed sync dropped stays lost however often one syncs afterwards.

use super::blocks::{Blocks, Sector};
use super::random::Random;
use super::{CrashMode, SECTOR_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Un-synced images kept of one sector; when there are more, the second oldest goes (the newest and the oldest are the interesting ones).
const IMAGES_MAX: usize = 6;

/// Something that is so since operation `since`.
#[derive(Clone)]
struct Since<T> {
    since: u64,
    what: T,
}

/// See the module's page.
#[derive(Clone, Default)]
pub(super) struct Image {
    now: Blocks,
    durable: Blocks,
    /// Images of each sector since the last sync, oldest first.
    unsynced: BTreeMap<usize, Vec<Since<Arc<Sector>>>>,
    /// Lengths since the last sync, oldest first.
    lengths: Vec<Since<usize>>,
}

impl Image {
    /// Holds `bytes`, synced.
    pub(super) fn synced(bytes: &[u8]) -> Image {
        let mut now = Blocks::default();
        now.resize(bytes.len());
        now.write(0, bytes);
        Image {
            durable: now.clone(),
            now,
            ..Image::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    pub(super) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        self.now.read(offset, length)
    }

    pub(super) fn read_into(&self, offset: usize, out: &mut [u8]) {
        self.now.read_into(offset, out);
    }

    /// Writes as operation number `operation`.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8], operation: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        let old_length = self.now.len();
        if end > old_length {
            self.now.resize(end);
            self.lengths.push(Since {
                since: operation,
                what: end,
            });
        }
        self.now.write(offset, bytes);
        self.remember(offset.min(old_length), end, operation);
    }

    pub(super) fn set_len(&mut self, length: usize, operation: u64) {
        let old_length = self.now.len();
        if length == old_length {
            return;
        }
        self.now.resize(length);
        self.lengths.push(Since {
            since: operation,
            what: length,
        });
        // What was cut off must read as zeros when the file grows again.
        self.remember(length.min(old_length), length.max(old_length), operation);
    }

    /// Notes the images that the sectors of `from..to` have now.
    fn remember(&mut self, from: usize, to: usize, operation: u64) {
        for index in from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES) {
            let images = self.unsynced.entry(index).or_default();
            if images.len() == IMAGES_MAX {
                images.remove(1);
            }
            images.push(Since {
                since: operation,
                what: Arc::new(self.now.sector(index)),
            });
        }
    }

    pub(super) fn sync(&mut self) {
        // The length is in the file system's journal: a sync that lost data did not lose it for later ones.
        self.durable.resize(self.now.len());
        for (index, images) in std::mem::take(&mut self.unsynced) {
            if let Some(image) = images.last() {
                self.durable.put_sector(index, &image.what);
            }
        }
        self.lengths.clear();
    }

    /// A sync that fails and takes the data with it: the pages count as clean from here on.
    pub(super) fn sync_fails(&mut self) {
        self.unsynced.clear();
        self.lengths.clear();
    }

    /// Whether a power cut could take something.
    pub(super) fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && self.lengths.is_empty()
    }

    /// First operation of which something is un-synced.
    pub(super) fn unsynced_since(&self) -> Option<u64> {
        let sectors = self.unsynced.values().filter_map(|images| images.first());
        let sectors = sectors.map(|image| image.since);
        let lengths = self.lengths.first().map(|length| length.since);
        sectors.chain(lengths).min()
    }

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self, mode: CrashMode, random: &mut Random) -> Image {
        let mut survivor = self.durable.clone();
        if let Some(choice) = choose(mode, random, &self.lengths) {
            survivor.resize(self.lengths[choice].what);
        }
        let first_new = self.durable.len().div_ceil(SECTOR_BYTES);
        for (index, images) in &self.unsynced {
            let newest = images.last().filter(|_| *index >= first_new);
            if let CrashMode::Garbage { .. } = mode
                && let Some(newest) = newest
                && random.below(3) == 0
            {
                survivor.put_sector(*index, &garbage(&newest.what, random));
            } else if let Some(choice) = choose(mode, random, images) {
                survivor.put_sector(*index, &images[choice].what);
            }
        }
        Image {
            now: survivor.clone(),
            durable: survivor,
            ..Image::default()
        }
    }

    /// Rot: changes bytes on the medium and in what is read, behind everybody's back.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) {
        for bytes in [&mut self.now, &mut self.durable] {
            if let Some(&[byte]) = bytes.read(offset, 1).first_chunk::<1>() {
                bytes.write(offset, &[byte ^ mask]);
            }
        }
    }

    /// A write that goes round everything: it is on the medium at once.
    pub(super) fn write_durably(&mut self, offset: usize, bytes: &[u8], operation: u64) {
        self.write(offset, bytes, operation);
        let room = self.durable.len().saturating_sub(offset);
        self.durable.write(
            offset.min(self.durable.len()),
            &bytes[..bytes.len().min(room)],
        );
    }

    /// Hash of what is there now and of what is durable.
    pub(super) fn hashes(&self) -> [u64; 2] {
        let now = self.now.hash();
        let durable = if self.is_synced() {
            now
        } else {
            self.durable.hash()
        };
        [now, durable]
    }
}

/// Which of the states since the last sync survives; `None`: the synced one.
fn choose<T>(mode: CrashMode, random: &mut Random, states: &[Since<T>]) -> Option<usize> {
    match mode {
        CrashMode::LoseUnsynced => None,
        CrashMode::KeepUnsynced => states.len().checked_sub(1),
        CrashMode::Random { .. } | CrashMode::Garbage { .. } => {
            random.below(states.len() + 1).checked_sub(1)
        }
        CrashMode::Prefix { operations } => {
            states.iter().rposition(|state| state.since < operations)
        }
    }
}

/// What may stand in a sector that was being written for the first time: noise (what a deleted file left there), or the beginning of what was meant and then noise.
fn garbage(meant: &Sector, random: &mut Random) -> Sector {
    let mut sector = *meant;
    match random.below(3) {
        0 => sector.fill(0xff),
        kind => {
            let from = if kind == 1 {
                0
            } else {
                random.below(SECTOR_BYTES)
            };
            for bytes in sector[from..].chunks_mut(8) {
                let noise = random.next().to_le_bytes();
                bytes.copy_from_slice(&noise[..bytes.len()]);
            }
        }
    }
    sector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> CrashMode {
        CrashMode::Random { seed }
    }

    fn after(image: &Image, mode: CrashMode, seed: u64) -> Image {
        image.after_power_cut(mode, &mut Random::new(seed))
    }

    #[test]
    fn synced_bytes_survive_every_power_cut_and_unsynced_ones_only_by_chance() {
        let mut image = Image::default();
        image.write(0, &[1; 2000], 0);
        image.sync();
        image.write(512, &[2; 1024], 2);
        let mut torn = false;
        for seed in 0..50 {
            let after = after(&image, random(seed), seed);
            assert_eq!(
                (after.len(), &after.read(0, 512)[..]),
                (2000, &[1; 512][..])
            );
            assert_eq!(after.read(1536, 464), [1; 464]);
            let sectors = [after.read(512, 1)[0], after.read(1024, 1)[0]];
            torn |= sectors[0] != sectors[1];
            for (at, value) in [(512, sectors[0]), (1024, sectors[1])] {
                assert_eq!(after.read(at, 512), [value; 512]);
            }
        }
        assert!(torn);
        let lost = after(&image, CrashMode::LoseUnsynced, 0);
        assert_eq!(lost.read(0, 2000), [1; 2000]);
        let kept = after(&image, CrashMode::KeepUnsynced, 0);
        assert_eq!(kept.read(0, 2000), image.read(0, 2000));
    }

    #[test]
    fn a_prefix_keeps_what_was_done_before_an_operation_and_nothing_later() {
        let mut image = Image::default();
        for operation in 0..4_u8 {
            let offset = usize::from(operation) * 600;
            image.write(offset, &[operation + 1; 600], operation.into());
        }
        for operations in 0..5_u8 {
            let mode = CrashMode::Prefix {
                operations: operations.into(),
            };
            let after = after(&image, mode, 0);
            assert_eq!(after.len(), usize::from(operations) * 600);
            for operation in 0..operations {
                let bytes = after.read(usize::from(operation) * 600, 600);
                assert_eq!(bytes, [operation + 1; 600]);
            }
        }
    }

    #[test]
    fn only_sectors_that_were_never_synced_hold_garbage() {
        let mut image = Image::default();
        image.write(0, &[1; 1000], 0);
        image.sync();
        image.write(0, &[2; 4096], 2);
        let mut noise = 0;
        for seed in 0..50 {
            let after = after(&image, CrashMode::Garbage { seed }, seed);
            for sector in after.read(0, 1000).chunks(512) {
                assert!(sector.iter().all(|&byte| byte == sector[0]) && sector[0] < 3);
            }
            let rest = after.read(1024, 4096);
            noise += rest.iter().filter(|&&byte| byte > 2).count();
        }
        assert!(noise > 1000, "{noise}");
    }

    #[test]
    fn what_a_failed_sync_dropped_stays_lost_after_a_later_sync() {
        let mut image = Image::default();
        image.write(0, &[1; 1000], 0);
        image.sync();
        image.write(0, &[2; 600], 2);
        image.sync_fails();
        image.write(700, &[3; 10], 4);
        image.sync();
        let after = after(&image, CrashMode::KeepUnsynced, 0);
        assert_eq!(image.read(0, 1), [2]);
        assert_eq!(after.read(0, 512), [1; 512]);
        assert_eq!(after.read(700, 10), [3; 10]);
    }

    #[test]
    fn a_file_that_shrank_and_grew_reads_zeros_there() {
        let mut image = Image::default();
        image.write(0, &[1; 3000], 0);
        image.sync();
        image.set_len(100, 2);
        image.set_len(3000, 3);
        image.sync();
        let after = after(&image, CrashMode::LoseUnsynced, 0);
        assert_eq!(after.read(0, 100), [1; 100]);
        assert_eq!(after.read(100, 2900), [0; 2900]);
    }
}
