//! The process that serves a disk; started by whoever makes one (`glintdb_faultdisk::Disk`), and of no use by hand.
//!
//! Threads: see `glintdb_faultdisk`.

fn main() -> std::process::ExitCode {
    glintdb_faultdisk::serve()
}
