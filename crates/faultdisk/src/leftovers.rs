//! What a process that was killed left of its disks. A guardian cleans up behind every process; this is for where that was killed too.
//!
//! Thread safety: needs none.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories of disks are called so, with the process and a number behind it.
pub(crate) const PREFIX: &str = "glintdb-faultdisk-";

/// Takes everything down that stands in the directory `$1`, which is a disk's.
pub(crate) const TAKE_DOWN: &str = r#"
umount -l "$1/mnt"
losetup --noheadings --list --output NAME,BACK-FILE | while read -r device file; do
    case "$file" in "$1"/*) losetup --detach "$device";; esac
done
umount -l "$1/fuse"
rmdir "$1/mnt" "$1/fuse" "$1"
"#;

/// Where directories of disks are.
pub(crate) fn place() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

/// The process that a directory belongs to.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Takes down the disks of processes that are no more.
pub(crate) fn remove() {
    let Ok(entries) = std::fs::read_dir(place()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let gone = |process: u32| !Path::new("/proc").join(process.to_string()).exists();
        if name.to_str().and_then(owner).is_some_and(gone) {
            let mut command = Command::new("sh");
            command.args(["-c", TAKE_DOWN, "sh"]).arg(entry.path());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            // What cannot be taken down now is tried again by the next.
            command.status().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_owner_is_in_the_name() {
        assert_eq!(super::owner("glintdb-faultdisk-123-0"), Some(123));
        assert_eq!(super::owner("glintdb-kill-123"), None);
    }
}
