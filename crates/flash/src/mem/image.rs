//! The bytes of one simulated file: what is there now, what a power cut cannot take, and what lies between.
//!
//! Invariants: 1. `now` is what reads see. 2. After a power cut each 512-byte sector holds either its synced image or one of the images it had since, chosen
//! independently of every other sector; so writes may be lost, reordered and torn at sector boundaries, but a sector is never a mixture. 3. The length is one of
//! those it had since the last sync. 4. A sync makes exactly what was un-synced durable: what a failed sync dropped stays lost however often one syncs afterwards.

use super::random::Random;
use super::{CrashMode, SECTOR_BYTES};
use std::collections::BTreeMap;

type Sector = [u8; SECTOR_BYTES];

/// Un-synced images kept of one sector; when there are more, the second oldest goes (the newest and the oldest are the interesting ones).
const IMAGES_MAX: usize = 6;

/// See the module's page.
#[derive(Clone, Default)]
pub(super) struct Image {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Images of each sector since the last sync, oldest first.
    unsynced: BTreeMap<usize, Vec<Sector>>,
    /// Lengths since the last sync, oldest first.
    lengths: Vec<usize>,
}

impl Image {
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    pub(super) fn read(&self, offset: usize, length: usize) -> &[u8] {
        let from = offset.min(self.now.len());
        &self.now[from..from.saturating_add(length).min(self.now.len())]
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        let old_length = self.now.len();
        if end > old_length {
            self.now.resize(end, 0);
            self.lengths.push(end);
        }
        self.now[offset..end].copy_from_slice(bytes);
        self.remember(offset.min(old_length), end);
    }

    pub(super) fn set_len(&mut self, length: usize) {
        let old_length = self.now.len();
        if length == old_length {
            return;
        }
        self.now.resize(length, 0);
        self.lengths.push(length);
        // What was cut off must read as zeros when the file grows again.
        self.remember(length.min(old_length), length.max(old_length));
    }

    /// Notes the images that the sectors of `from..to` have now.
    fn remember(&mut self, from: usize, to: usize) {
        for index in from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES) {
            let images = self.unsynced.entry(index).or_default();
            if images.len() == IMAGES_MAX {
                images.remove(1);
            }
            images.push(sector(&self.now, index));
        }
    }

    pub(super) fn sync(&mut self) {
        if let Some(length) = self.lengths.last() {
            self.durable.resize(*length, 0);
        }
        for (index, images) in std::mem::take(&mut self.unsynced) {
            if let Some(image) = images.last() {
                put_sector(&mut self.durable, index, image);
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

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self, mode: CrashMode, random: &mut Random) -> Image {
        let mut survivor = self.durable.clone();
        // 0 is the synced state, n the n-th since.
        let mut choose = |count: usize| match mode {
            CrashMode::LoseUnsynced => 0,
            CrashMode::KeepUnsynced => count,
            CrashMode::Random { .. } => random.below(count + 1),
        };
        let mut length = self.durable.len();
        if let Some(choice) = choose(self.lengths.len()).checked_sub(1) {
            length = self.lengths[choice];
        }
        survivor.resize(length, 0);
        for (index, images) in &self.unsynced {
            if let Some(choice) = choose(images.len()).checked_sub(1) {
                put_sector(&mut survivor, *index, &images[choice]);
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
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= mask;
            }
        }
    }
}

/// Sector `index` of `bytes`, zeros beyond their end.
fn sector(bytes: &[u8], index: usize) -> Sector {
    let mut image = [0; SECTOR_BYTES];
    let from = (index * SECTOR_BYTES).min(bytes.len());
    let to = (from + SECTOR_BYTES).min(bytes.len());
    image[..to - from].copy_from_slice(&bytes[from..to]);
    image
}

/// Writes a sector as far as `bytes` reach.
fn put_sector(bytes: &mut [u8], index: usize, image: &Sector) {
    let from = (index * SECTOR_BYTES).min(bytes.len());
    let to = (from + SECTOR_BYTES).min(bytes.len());
    bytes[from..to].copy_from_slice(&image[..to - from]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> CrashMode {
        CrashMode::Random { seed }
    }

    #[test]
    fn synced_bytes_survive_every_power_cut_and_unsynced_ones_only_by_chance() {
        let mut image = Image::default();
        image.write(0, &[1; 2000]);
        image.sync();
        image.write(512, &[2; 1024]);
        let mut torn = false;
        for seed in 0..50 {
            let after = image.after_power_cut(random(seed), &mut Random::new(seed));
            assert_eq!((after.len(), after.read(0, 512)), (2000, &[1; 512][..]));
            assert_eq!(after.read(1536, 464), &[1; 464]);
            let sectors = [after.read(512, 1)[0], after.read(1024, 1)[0]];
            torn |= sectors[0] != sectors[1];
            for (at, value) in [(512, sectors[0]), (1024, sectors[1])] {
                assert_eq!(after.read(at, 512), &[value; 512]);
            }
        }
        assert!(torn);
        let lost = image.after_power_cut(CrashMode::LoseUnsynced, &mut Random::new(0));
        assert_eq!(lost.read(0, 2000), &[1; 2000]);
        let kept = image.after_power_cut(CrashMode::KeepUnsynced, &mut Random::new(0));
        assert_eq!(kept.read(0, 2000), image.read(0, 2000));
    }

    #[test]
    fn what_a_failed_sync_dropped_stays_lost_after_a_later_sync() {
        let mut image = Image::default();
        image.write(0, &[1; 1000]);
        image.sync();
        image.write(0, &[2; 600]);
        image.sync_fails();
        image.write(700, &[3; 10]);
        image.sync();
        let after = image.after_power_cut(CrashMode::KeepUnsynced, &mut Random::new(0));
        assert_eq!(image.read(0, 1), &[2]);
        assert_eq!(after.read(0, 512), &[1; 512]);
        assert_eq!(after.read(700, 10), &[3; 10]);
    }

    #[test]
    fn a_file_that_shrank_and_grew_reads_zeros_there() {
        let mut image = Image::default();
        image.write(0, &[1; 3000]);
        image.sync();
        image.set_len(100);
        image.set_len(3000);
        image.sync();
        let after = image.after_power_cut(CrashMode::LoseUnsynced, &mut Random::new(0));
        assert_eq!(after.read(0, 100), &[1; 100]);
        assert_eq!(after.read(100, 2900), &[0; 2900]);
    }
}
