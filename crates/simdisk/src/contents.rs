//! The raw bytes of everything a simulated volume holds, out and in: for what damages files on purpose, compares images, or keeps them.
//!
//! Invariants: 1. taking contents counts as no operation and meets no fault. 2. A volume made of contents holds them durably: a power cut takes nothing of them.

use super::fault::no_space;
use super::image::Image;
use super::{MemOptions, MemVolume, Shared};
use bytes::Bytes;
use glintdb_core::{FileId, FileKind, Result};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bytes of every file, and of the ring, as reads see them. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Every file.
    pub files: BTreeMap<FileId, Bytes>,
    /// The ring, where there is one.
    pub ring: Option<Bytes>,
}

impl Contents {
    /// Bytes of all files and the ring.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ring = self.ring.iter();
        self.files
            .values()
            .chain(ring)
            .map(|bytes| bytes.len() as u64)
            .sum()
    }
}

impl MemVolume {
    /// What the volume holds now, synced or not.
    #[must_use]
    pub fn contents(&self) -> Contents {
        let state = self.shared.state.lock();
        let whole = |image: &Image| Bytes::from(image.read(0, image.len()));
        let directory = &state.directories[self.directory];
        Contents {
            files: directory
                .names()
                .iter()
                .map(|(id, inode)| (*id, whole(&state.inode(*inode).image)))
                .collect(),
            ring: directory.ring.as_ref().map(|ring| whole(&ring.image)),
        }
    }

    /// A volume that holds `contents`, all of it synced; its counters begin at zero.
    ///
    /// ```
    /// use glintdb_core::{FileId, FileKind};
    /// use glintdb_flash::Volume;
    /// use glintdb_simdisk::{Contents, MemOptions, MemVolume};
    /// let id = FileId::new(FileKind::Log, 1);
    /// let mut contents = Contents::default();
    /// contents.files.insert(id, b"rotten".as_slice().into());
    /// let volume = MemVolume::of_contents(&contents, MemOptions::default())?;
    /// assert_eq!(&volume.open(id)?.read_at(0, 100)?[..], b"rotten");
    /// assert_eq!(volume.contents(), contents);
    /// # Ok::<(), glintdb_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSpace` where `options` leave too little; `InvalidArgument` for a ring of a size that no ring has.
    pub fn of_contents(contents: &Contents, options: MemOptions) -> Result<Arc<MemVolume>> {
        let volume = MemVolume::with_options(options);
        for (id, bytes) in &contents.files {
            let options = CreateOptions {
                class: class_of(id.kind),
                reserve_bytes: 0,
                direct: false,
            };
            let mut state = volume.shared.state.lock();
            let inode = state.create(volume.directory, *id, options, false)?;
            let room = state.free_bytes().unwrap_or(u64::MAX);
            if bytes.len() as u64 > room {
                return Err(no_space(id));
            }
            state.inode_mut(inode).image = Image::synced(bytes);
            state.close(inode);
        }
        volume.sync_directory()?;
        if let Some(bytes) = &contents.ring {
            volume.ring(bytes.len())?.grow(bytes.len())?;
            if let Some(ring) = &mut volume.shared.state.lock().directories[volume.directory].ring {
                ring.image = Image::synced(bytes);
                ring.sync();
            }
        }
        volume.shared.forget_operations();
        Ok(volume)
    }
}

impl Shared {
    /// Counters, and the log of operations, begin anew.
    fn forget_operations(&self) {
        let mut state = self.state.lock();
        state.stats = glintdb_flash::VolumeStats::default();
        state.faults.count = 0;
        if let Some(log) = &mut state.faults.log {
            log.clear();
        }
    }
}

fn class_of(kind: FileKind) -> DataClass {
    match kind {
        FileKind::Log | FileKind::Reserve => DataClass::Log,
        FileKind::Table | FileKind::Tree => DataClass::Flush,
        FileKind::Manifest => DataClass::Manifest,
    }
}
