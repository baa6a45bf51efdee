//! File systems, and how each is made and mounted. Small, and nothing goes on in the background that a test does not ask for.
//!
//! Thread safety: none is needed.

use glintdb_faultdisk::{Disk, Image};

/// A kind of file system.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    /// As `--fs` names it.
    pub name: &'static str,
    /// As `mount` does.
    pub kind: &'static str,
    /// What `mount` is told.
    pub options: &'static str,
    /// Size of the disk.
    pub bytes: usize,
    program: &'static str,
    arguments: &'static [&'static str],
}

/// Every kind.
pub const ALL: [FileSystem; 5] = [
    FileSystem {
        name: "ext4",
        kind: "ext4",
        options: "data=ordered",
        bytes: 64 << 20,
        program: "mkfs.ext4",
        arguments: &[
            "-q",
            "-F",
            "-J",
            "size=4",
            "-E",
            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        ],
    },
    FileSystem {
        name: "ext4-defaults",
        kind: "ext4",
        options: "",
        bytes: 256 << 20,
        program: "mkfs.ext4",
        arguments: &["-q", "-F"],
    },
    FileSystem {
        name: "xfs",
        kind: "xfs",
        options: "",
        bytes: 304 << 20,
        program: "mkfs.xfs",
        arguments: &["-q", "-f", "-K"],
    },
    FileSystem {
        name: "btrfs",
        kind: "btrfs",
        options: "",
        bytes: 160 << 20,
        program: "mkfs.btrfs",
        arguments: &["-q", "-f", "-K", "-m", "single", "-d", "single"],
    },
    // It stands on no disk.
    FileSystem {
        name: "tmpfs",
        kind: "tmpfs",
        options: "size=64m",
        bytes: 1 << 20,
        program: "true",
        arguments: &[],
    },
];

impl FileSystem {
    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<FileSystem, String> {
        let found = ALL.into_iter().find(|each| each.name == name);
        found.ok_or_else(|| {
            let names = ALL.map(|each| each.name);
            format!("no file system `{name}`; there are {}", names.join(", "))
        })
    }

    /// A disk with a fresh one, and the image of that.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn disk(&self) -> Result<(Disk, Image), String> {
        let disk = Disk::new(self.bytes)?;
        disk.format(self.program, self.arguments)?;
        self.mount(&disk)?;
        disk.unmount()?;
        let image = disk.image();
        Ok((disk, image))
    }

    /// Mounts it.
    ///
    /// # Errors
    /// A sentence.
    pub fn mount(&self, disk: &Disk) -> Result<(), String> {
        disk.mount(self.kind, self.options)
    }

    /// A disk with a fresh one, as small as this kind can be without being a special case; gives the disk, mounted.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn mounted(&self) -> Result<Disk, String> {
        let (disk, _) = self.disk()?;
        self.mount(&disk)?;
        Ok(disk)
    }
}
