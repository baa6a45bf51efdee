//! Space kept for a full disk: files that hold nothing, removed when recovery, a deletion, a flush or a compaction finds no space, and made again when there is some.
//!
//! With the log's own reserve segments this is what lets deleting get out of a full disk. It is a part of the index in size, so that a small database stays small:
//! a quarter of the tables' bytes, at least 256 KiB, at most what one memtable flushes; an empty database has none.
//!
//! Thread safety: any thread. Its lock is taken last of all and held across I/O; commits look at one flag.
//!
//! Invariants:
//! 1. While the reserve is lent, commits that put something are refused: the space it gave is for what frees space.
//! 2. Its files are named by nothing, and removing one at any time harms nothing.

use crate::{Error, ErrorKind, Result};
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use glintdb_core::{FileId, FileKind, FileNumbers};
use glintdb_flash::{CreateOptions, Stream, Volume};
use std::sync::Arc;

/// Smallest reserve, in bytes.
const RESERVE_BYTES_MIN: u64 = 256 << 10;
/// The reserve is this part of the tables.
const PART_OF_TABLES: u64 = 4;
/// Fewer bytes than this are not worth a file.
const PIECE_BYTES_MIN: u64 = 128 << 10;

pub(crate) struct Reserve {
    volume: Arc<dyn Volume>,
    bytes_max: u64,
    files: Mutex<Vec<FileId>>,
    bytes: AtomicU64,
    lent: AtomicBool,
}

impl Reserve {
    /// Takes over the files that an earlier process left. Where there is hardly room for what recovery makes (`needed_bytes`), gives them up at once.
    pub(crate) fn open(
        volume: Arc<dyn Volume>,
        bytes_max: u64,
        needed_bytes: u64,
    ) -> Result<Reserve> {
        let found: Vec<FileId> = volume
            .list()?
            .into_iter()
            .filter(|file| file.kind == FileKind::Reserve)
            .collect();
        let reserve = Reserve {
            bytes_max: bytes_max.max(RESERVE_BYTES_MIN),
            // What each holds is not known, and one that a power cut left may hold nothing: they are made anew by the next refill.
            bytes: AtomicU64::new(0),
            lent: AtomicBool::new(false),
            files: Mutex::new(found),
            volume,
        };
        if reserve
            .volume
            .free_bytes()
            .is_some_and(|free| free < needed_bytes)
        {
            reserve.lend()?;
        }
        Ok(reserve)
    }

    /// Gives the space up for an operation that found none; `false`: there is nothing to give.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn lend(&self) -> Result<bool> {
        let mut files = self.files.lock();
        if files.is_empty() {
            return Ok(false);
        }
        self.lent.store(true, Ordering::Release);
        self.remove_all(&mut files)?;
        Ok(true)
    }

    fn remove_all(&self, files: &mut Vec<FileId>) -> Result<()> {
        while let Some(&file) = files.last() {
            self.volume.delete(file)?;
            files.pop();
        }
        self.bytes.store(0, Ordering::Release);
        // A file system gives the blocks of a removed file back when the removal is durable.
        self.volume.sync_directory()
    }

    /// Makes the reserve as large as `table_bytes` ask for; `false`: there is no space for it now.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn refill(&self, numbers: &dyn FileNumbers, table_bytes: u64) -> Result<bool> {
        if table_bytes == 0 && !self.is_lent() {
            return Ok(true);
        }
        let wanted = (table_bytes / PART_OF_TABLES).clamp(RESERVE_BYTES_MIN, self.bytes_max);
        let enough = |held: u64| held > 0 && wanted.saturating_sub(held) < PIECE_BYTES_MIN;
        if enough(self.bytes()) && !self.is_lent() {
            return Ok(true);
        }
        let no_space = |error: Error| match error.kind() {
            ErrorKind::NoSpace => Ok(false),
            _ => Err(error),
        };
        // Before the lock, for it may take the manifest's.
        let number = match numbers.next() {
            Ok(number) => number,
            Err(error) => return no_space(error),
        };
        let mut files = self.files.lock();
        let held = self.bytes();
        if !enough(held) {
            // Left by an earlier process, and not made anew yet.
            let unsure = held == 0 && !files.is_empty();
            if unsure {
                self.remove_all(&mut files)?;
            }
            let file = FileId::new(FileKind::Reserve, number);
            let options = CreateOptions {
                stream: Stream::FreshIndex,
                reserve_bytes: wanted - held,
                direct: false,
            };
            if let Err(error) = self.volume.create(file, options) {
                self.lent.fetch_or(unsure, Ordering::AcqRel);
                return no_space(error);
            }
            files.push(file);
            self.bytes.store(wanted, Ordering::Release);
        }
        self.lent.store(false, Ordering::Release);
        Ok(true)
    }

    /// Whether commits that put something must wait for space.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire)
    }

    /// Its files.
    pub(crate) fn files(&self) -> Vec<FileId> {
        self.files.lock().clone()
    }

    /// Bytes kept now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// What a commit gets while the reserve is lent.
pub(crate) fn refused() -> Error {
    Error::new(
        ErrorKind::NoSpace,
        "the medium is full: its reserve is in use, and only deletions are taken until there is space again",
    )
}
