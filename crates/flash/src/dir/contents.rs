//! Looks at what a directory holds, before it is opened. Nothing is made, changed or locked.

use super::{DirVolume, lock, probe, ring, spares, unit};
use glintdb_core::{Error, FileId, Result};
use std::fs;
use std::io;
use std::path::Path;

/// A directory that ext2, ext3 and ext4 make at the root of a file system.
const LOST_AND_FOUND: &str = "lost+found";

/// What a directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirContents {
    /// There is no such directory.
    Missing,
    /// The directory has no log segment, table, manifest or reserve, and no file of another
    /// program. A `LOCK` or a `ring` may be left over from a creation that was cut off;
    /// `lost+found` does not count either.
    Empty,
    /// The directory has at least one log segment, table, manifest or reserve.
    Database,
    /// The directory is one of several of a database, whatever else it holds. The text says which,
    /// and how all of them are given.
    Unit(String),
    /// The directory has files, and none is a database's. The name is that of the first one in
    /// sorted order.
    Foreign(String),
}

impl DirVolume {
    /// Tells what the directory `path` holds. Changes nothing, and takes no lock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use glintdb_flash::{DirContents, DirVolume};
    /// assert_eq!(DirVolume::contents(dir.path())?, DirContents::Empty);
    /// std::fs::write(dir.path().join("notes.txt"), "to do").unwrap();
    /// assert_eq!(DirVolume::contents(dir.path())?, DirContents::Foreign("notes.txt".to_owned()));
    /// # Ok::<(), glintdb_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where `path` is something other than a directory; I/O errors.
    pub fn contents(path: impl AsRef<Path>) -> Result<DirContents> {
        let path = path.as_ref();
        let failed = |error| Error::access(format!("list {}", path.display()), error);
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(DirContents::Missing);
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(super::not_a_directory(path));
            }
            Err(error) => return Err(failed(error)),
        };
        if let Some(unit) = unit::describe(path)? {
            return Ok(DirContents::Unit(unit));
        }
        let mut foreign: Option<String> = None;
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if FileId::parse(&name).is_some() {
                return Ok(DirContents::Database);
            }
            let first = foreign.as_deref().is_none_or(|first| *name < *first);
            if first && !is_of_volume(&name) && name != LOST_AND_FOUND {
                foreign = Some(name.into_owned());
            }
        }
        Ok(foreign.map_or(DirContents::Empty, DirContents::Foreign))
    }
}

/// Whether a volume makes files of this name beside those that a [`FileId`] names.
fn is_of_volume(name: &str) -> bool {
    let others = [lock::LOCK_NAME, ring::NAME, ring::NAME_NEW, probe::NAME];
    others.contains(&name) || name == unit::NAME_NEW || spares::is_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::DirOptions;
    use crate::volume::{CreateOptions, DataClass, Volume};
    use glintdb_core::{ErrorKind, FileKind};

    #[test]
    fn directories_are_told_apart_by_the_names_in_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let contents = |path: &Path| DirVolume::contents(path).unwrap();
        assert_eq!(contents(&path.join("nowhere")), DirContents::Missing);
        assert_eq!(contents(path), DirContents::Empty);
        for name in [
            "LOCK",
            "ring",
            "ring.new",
            "probe.tmp",
            "spare-3.glint",
            "unit.new",
        ] {
            fs::write(path.join(name), "").unwrap();
        }
        fs::create_dir(path.join(LOST_AND_FOUND)).unwrap();
        assert_eq!(contents(path), DirContents::Empty);
        for name in ["photo.jpg", ".profile", "spare-tyre.glint", "table-1.glint"] {
            fs::write(path.join(name), "").unwrap();
        }
        assert_eq!(contents(path), DirContents::Foreign(".profile".to_owned()));
        fs::write(path.join("manifest-0000000000000001.glint"), "").unwrap();
        assert_eq!(contents(path), DirContents::Database);
        let error = DirVolume::contents(path.join("photo.jpg")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }

    /// A name that a volume makes and this module does not know would keep a database from being
    /// made again after a creation that was cut off.
    #[test]
    fn every_file_that_a_volume_makes_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
        let _ring = volume.ring(64 << 10).unwrap();
        let id = FileId::new(FileKind::Log, 1);
        let options = CreateOptions {
            class: DataClass::Log,
            reserve_bytes: 4096,
            direct: true,
        };
        drop(volume.create(id, options).unwrap());
        volume.recycle(id).unwrap();
        let contents = DirVolume::contents(directory.path()).unwrap();
        assert_eq!(contents, DirContents::Empty);
    }
}
