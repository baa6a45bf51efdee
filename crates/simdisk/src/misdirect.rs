//! Operations that go to the wrong place, as a device with a bad address line does it: nobody is told.

use super::SECTOR_BYTES;
use super::state::State;

impl State {
    /// A place other than this one: of any file, at a sector, within what is there.
    pub(super) fn elsewhere(&mut self, inode: u64, offset: usize) -> (u64, usize) {
        let files: Vec<u64> = self
            .directories
            .iter()
            .flat_map(|directory| directory.names().values().copied())
            .filter(|&number| self.inode(number).image.len() > 0)
            .collect();
        if files.is_empty() {
            return (inode, offset);
        }
        // As likely in the same file as in another one.
        let number = if self.random.coin() && files.contains(&inode) {
            inode
        } else {
            files[self.random.below(files.len())]
        };
        let sectors = self.inode(number).image.len().div_ceil(SECTOR_BYTES);
        let place = self.random.below(sectors) * SECTOR_BYTES + offset % SECTOR_BYTES;
        (number, place)
    }

    /// Writes to a place other than this one.
    pub(super) fn write_elsewhere(&mut self, inode: u64, offset: usize, bytes: &[u8]) {
        let (number, place) = self.elsewhere(inode, offset);
        let operation = self.faults.count;
        let image = &mut self.inode_mut(number).image;
        // Nothing grows by it: the file system knows of no such write.
        let room = image.len().saturating_sub(place);
        image.write_durably(place, &bytes[..bytes.len().min(room)], operation);
    }
}
