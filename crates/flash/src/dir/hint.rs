//! Tells the kernel how long the data of a file will live, so that a device that keeps data apart
//! by lifetime can (`docs/devices.md`).
//!
//! Thread safety: any thread.

use crate::volume::DataClass;
use std::fs::File;
use std::os::fd::AsRawFd;

/// `F_SET_RW_HINT` of `fcntl`, since Linux 4.13. It sets the hint of the file, not of the
/// descriptor.
const SET_HINT: libc::c_int = 1024 + 12;

/// Lifetimes, relative to one another: `RWH_WRITE_LIFE_SHORT` to `RWH_WRITE_LIFE_EXTREME`.
const SHORT: u64 = 2;
const MEDIUM: u64 = 3;
const LONG: u64 = 4;
const EXTREME: u64 = 5;

/// The hint for a class. Files that are small or hold nothing have none.
fn hint_of(class: DataClass) -> Option<u64> {
    match class {
        DataClass::Flush => Some(SHORT),
        DataClass::Log | DataClass::Level { rank: 0..=1, .. } => Some(MEDIUM),
        DataClass::Level { .. } => Some(LONG),
        DataClass::Relocated => Some(EXTREME),
        DataClass::Manifest | DataClass::Reserve => None,
    }
}

/// Sets the hint of a new file. It is only advice, so a kernel that refuses it changes nothing.
pub(super) fn set(file: &File, class: DataClass) {
    if let Some(hint) = hint_of(class) {
        // SAFETY: the descriptor is open, and the kernel reads eight bytes where it is told.
        unsafe { libc::fcntl(file.as_raw_fd(), SET_HINT, &raw const hint) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{CreateOptions, Volume};
    use crate::{DirOptions, DirVolume};
    use glintdb_core::{FileId, FileKind};

    const GET_HINT: libc::c_int = 1024 + 11;

    fn hint(file: &File) -> Option<u64> {
        let mut hint = 0_u64;
        // SAFETY: the descriptor is open, and the kernel writes eight bytes where it is told.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), GET_HINT, &raw mut hint) };
        (answer == 0).then_some(hint)
    }

    #[test]
    fn files_have_the_lifetime_of_their_class() {
        let directory = tempfile::tempdir().unwrap();
        if hint(&tempfile::tempfile().unwrap()).is_none() {
            return;
        }
        let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
        for (number, (class, expected)) in (1..).zip([
            (DataClass::Flush, SHORT),
            (DataClass::Log, MEDIUM),
            (DataClass::Level { rank: 1, of: 3 }, MEDIUM),
            (DataClass::Level { rank: 3, of: 3 }, LONG),
            (DataClass::Relocated, EXTREME),
            (DataClass::Manifest, 0),
        ]) {
            let id = FileId::new(FileKind::Table, number);
            let options = CreateOptions {
                class,
                reserve_bytes: 0,
                direct: true,
            };
            drop(volume.create(id, options).unwrap());
            // The file has it, not the descriptor that set it.
            let mut options = std::fs::OpenOptions::new();
            let path = directory.path().join(id.to_string());
            let file = options.read(true).open(path).unwrap();
            assert_eq!(hint(&file), Some(expected), "{class:?}");
        }
    }
}
