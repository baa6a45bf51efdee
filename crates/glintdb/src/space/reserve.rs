//! The reserve for a full disk: empty files that take space. They are removed when recovery, a
//! deletion, a flush or a compaction finds no space, and created again when there is some.
//!
//! With the log's own reserve segments, the reserve allows deletions to free a full disk. It has
//! space for a flush of everything in memory, a part of the indexes' size for the tables of
//! deletions, so that a small database stays small, and what an index needs to merge the deletions
//! in. An empty database has no reserve.
//!
//! Thread safety: any thread. Its lock is taken last of all and held across I/O. Commits read one
//! number.
//!
//! Invariants:
//! 1. A commit with a put is numbered only while the reserve is not lent and has space for a flush
//!    of everything in memory, that commit included. So a flush finds space whichever program has
//!    taken the rest, and after it the next deletions find a memtable.
//! 2. No file names the files of the reserve, and removing one at any time does no harm.

use crate::state::version::IndexNeeds;
use crate::{Error, ErrorKind, Result};
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::{FileId, FileKind, FileNumbers};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use std::sync::Arc;

/// The space for tables of deletions is this part of all tables and of the memory to be flushed.
const PART_FOR_DELETIONS: u64 = 4;
/// Least bytes for the tables of deletions.
const DELETIONS_BYTES_MIN: u64 = 128 << 10;
/// Bytes that a flush takes beside its entries: fences, filters and ends of tables, and a record of
/// the manifest.
const FLUSH_BYTES: u64 = 64 << 10;
/// Smallest size of a reserve. It grows to three quarters or all of a power of two.
const RESERVE_BYTES_MIN: u64 = 256 << 10;

/// Returns the most bytes that a flush of `index_bytes` in memory writes: `index_bytes * 9 / 8 +
/// FLUSH_BYTES`, where the eighth is for data beside the entries.
pub(crate) fn flush_bytes(index_bytes: u64) -> u64 {
    index_bytes + index_bytes / 8 + FLUSH_BYTES
}

/// Rounds up to a power of two or three quarters of one, so that a reserve that grows with a
/// memtable does so only a few times.
fn rounded_up(bytes: u64) -> u64 {
    let power = bytes.next_power_of_two();
    let three_quarters = power / 4 * 3;
    if bytes <= three_quarters {
        three_quarters
    } else {
        power
    }
}

/// Returns the bytes in memory that a reserve of `held` bytes covers: those whose flush it has
/// space for, beside the space `of_indexes`.
fn covered_bytes(held: u64, of_indexes: u64) -> u64 {
    held.saturating_sub(of_indexes + FLUSH_BYTES) / 9 * 8
}

pub(crate) struct Reserve {
    volume: Arc<dyn Volume>,
    deletions_bytes_max: u64,
    /// Files with their bytes; 0 if the file is of an earlier process and its size is unknown.
    files: Mutex<Vec<(FileId, u64)>>,
    bytes: AtomicU64,
    /// Bytes in memory that the reserve covers; 0 while it is lent.
    covered: AtomicU64,
    lent: AtomicBool,
    borrowers: AtomicUsize,
}

/// Use of the space that the reserve has given up. While it lives, no thread refills the reserve.
pub(crate) struct Borrowed<'a> {
    reserve: &'a Reserve,
    /// Whether the reserve gave up any space for it.
    pub(crate) anything: bool,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.reserve.borrowers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reserve {
    /// Takes over the files that an earlier process left. If there is less space than recovery
    /// needs (`needed_bytes`), gives them up at once.
    pub(crate) fn open(
        volume: Arc<dyn Volume>,
        deletions_bytes_max: u64,
        needed_bytes: u64,
    ) -> Result<Reserve> {
        let found = volume.list()?;
        let found = (found.into_iter())
            .filter(|file| file.kind == FileKind::Reserve)
            .map(|file| (file, 0))
            .collect();
        let reserve = Reserve {
            deletions_bytes_max: deletions_bytes_max.max(DELETIONS_BYTES_MIN),
            // Their sizes are unknown, and a file that a power cut left may take no space. The next
            // refill creates them again.
            bytes: AtomicU64::new(0),
            covered: AtomicU64::new(0),
            lent: AtomicBool::new(false),
            borrowers: AtomicUsize::new(0),
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

    /// Gives up the space for an operation that found none. Returns false if there is nothing to
    /// give.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn lend(&self) -> Result<bool> {
        let mut files = self.files.lock();
        if files.is_empty() {
            return Ok(false);
        }
        self.lent.store(true, Ordering::Release);
        self.covered.store(0, Ordering::Release);
        self.remove_all(&mut files)?;
        Ok(true)
    }

    /// Calls `run`. If it finds no space and the reserve has some, gives that up and calls `run`
    /// again.
    ///
    /// # Errors
    /// The errors of `run`, and I/O errors.
    pub(crate) fn lending<T>(&self, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        match run() {
            Err(error) if error.kind() == ErrorKind::NoSpace => match self.lend()? {
                true => run(),
                false => Err(error),
            },
            done => done,
        }
    }

    /// Gives up the space, like [`lend`](Self::lend). No thread refills the reserve while the
    /// result lives.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn borrow(&self) -> Result<Borrowed<'_>> {
        self.borrowers.fetch_add(1, Ordering::AcqRel);
        let mut borrowed = Borrowed {
            reserve: self,
            anything: false,
        };
        borrowed.anything = self.lend()?;
        Ok(borrowed)
    }

    fn remove_all(&self, files: &mut Vec<(FileId, u64)>) -> Result<()> {
        while let Some(&(file, _)) = files.last() {
            self.volume.delete(file)?;
            files.pop();
        }
        self.bytes.store(0, Ordering::Release);
        // A file system frees the blocks of a removed file when the removal is durable.
        self.volume.sync_directory()
    }

    /// Makes the reserve as large as the indexes and `unflushed_bytes` in memory
    /// require. Returns false if there is no space for it now.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn refill(
        &self,
        numbers: &dyn FileNumbers,
        indexes: IndexNeeds,
        unflushed_bytes: u64,
    ) -> Result<bool> {
        if indexes.live_bytes == 0 && unflushed_bytes == 0 && !self.is_lent() {
            return Ok(true);
        }
        let of_indexes = self.index_bytes(indexes, unflushed_bytes);
        let needed = flush_bytes(unflushed_bytes) + of_indexes;
        let enough = |held: u64| held >= needed;
        let cover = |held: u64| {
            let covered = covered_bytes(held, of_indexes);
            self.covered
                .store(covered.max(unflushed_bytes), Ordering::Release);
        };
        if enough(self.bytes()) && !self.is_lent() {
            let _files = self.files.lock();
            if enough(self.bytes()) && !self.is_lent() {
                cover(self.bytes());
                return Ok(true);
            }
        }
        let wanted = rounded_up(needed).max(RESERVE_BYTES_MIN);
        let no_space = |error: Error| match error.kind() {
            ErrorKind::NoSpace => Ok(false),
            _ => Err(error),
        };
        // Before the lock, because it may take the manifest's.
        let number = match numbers.next() {
            Ok(number) => number,
            Err(error) => return no_space(error),
        };
        let mut files = self.files.lock();
        if self.borrowers.load(Ordering::Acquire) > 0 {
            return Ok(false);
        }
        let held = self.bytes();
        if !enough(held) {
            // Files of an earlier process, which were not created again yet.
            let unsure = held == 0 && !files.is_empty();
            if unsure {
                self.remove_all(&mut files)?;
            }
            match self.create_file(number, wanted - held) {
                Ok(file) => files.push(file),
                Err(error) => {
                    self.lent.fetch_or(unsure, Ordering::AcqRel);
                    return no_space(error);
                }
            }
            self.bytes.store(wanted, Ordering::Release);
        }
        cover(self.bytes());
        self.lent.store(false, Ordering::Release);
        Ok(true)
    }

    /// Removes files that exceed what the indexes and `unflushed_bytes` in memory
    /// require. If all files are needed, but only in part, it replaces them by a smaller one.
    /// `unflushed_bytes` must count every commit that was numbered before the call, as
    /// under the sequencer's lock, because a commit may just have been numbered in reliance on the
    /// space.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn trim(
        &self,
        numbers: &dyn FileNumbers,
        indexes: IndexNeeds,
        unflushed_bytes: impl Fn() -> u64,
    ) -> Result<()> {
        let unflushed = unflushed_bytes();
        let of_indexes = self.index_bytes(indexes, unflushed);
        let needed = (flush_bytes(unflushed) + of_indexes).max(RESERVE_BYTES_MIN);
        self.add_smaller_file(numbers, needed)?;
        let mut surplus = Vec::new();
        {
            let mut files = self.files.lock();
            // The newest files are the largest.
            for at in (0..files.len()).rev() {
                let (_, bytes) = files[at];
                if bytes > 0 && self.bytes() - bytes >= needed && !self.is_lent() {
                    surplus.push(files.remove(at));
                    self.bytes.fetch_sub(bytes, Ordering::AcqRel);
                }
            }
            if surplus.is_empty() {
                return Ok(());
            }
            let covered = covered_bytes(self.bytes(), of_indexes);
            self.covered.store(covered, Ordering::Release);
        }
        // From here on commits get numbers only as far as the smaller reserve covers them.
        if unflushed_bytes() <= self.covered_bytes() {
            while let Some(&(file, _)) = surplus.last() {
                if let Err(error) = self.volume.delete(file) {
                    self.take_back(surplus);
                    return Err(error);
                }
                surplus.pop();
            }
            return self.volume.sync_directory();
        }
        self.take_back(surplus);
        Ok(())
    }

    /// Adds a file of about `needed` bytes, if the reserve has twice as much and no file can be
    /// removed without it.
    fn add_smaller_file(&self, numbers: &dyn FileNumbers, needed: u64) -> Result<()> {
        let smaller = rounded_up(needed);
        let is_due = |files: &[(FileId, u64)]| {
            let held = self.bytes();
            let removable = |&(_, bytes): &(FileId, u64)| bytes > 0 && held - bytes >= needed;
            held >= 2 * smaller && !self.is_lent() && !files.iter().any(removable)
        };
        if !is_due(&self.files.lock()) {
            return Ok(());
        }
        // Not under the lock, because it may take the manifest's.
        let number = match numbers.next() {
            Ok(number) => number,
            Err(error) if error.kind().passes() => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut files = self.files.lock();
        if is_due(&files) && self.borrowers.load(Ordering::Acquire) == 0 {
            match self.create_file(number, smaller) {
                // In front, because files are removed from the end.
                Ok(file) => files.insert(0, file),
                Err(error) if error.kind().passes() => return Ok(()),
                Err(error) => return Err(error),
            }
            self.bytes.fetch_add(smaller, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Creates a file that takes `bytes`.
    fn create_file(&self, number: u64, bytes: u64) -> Result<(FileId, u64)> {
        let file = FileId::new(FileKind::Reserve, number);
        let options = CreateOptions {
            class: DataClass::Reserve,
            reserve_bytes: bytes,
            direct: false,
        };
        self.volume.create(file, options)?;
        Ok((file, bytes))
    }

    fn take_back(&self, surplus: Vec<(FileId, u64)>) {
        let mut files = self.files.lock();
        let bytes: u64 = surplus.iter().map(|(_, bytes)| bytes).sum();
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        files.extend(surplus);
    }

    /// Bytes for the tables of deletions, and for the job that merges them in.
    fn index_bytes(&self, indexes: IndexNeeds, unflushed_bytes: u64) -> u64 {
        let of_deletions = (indexes.live_bytes + unflushed_bytes) / PART_FOR_DELETIONS;
        let of_deletions = of_deletions.clamp(DELETIONS_BYTES_MIN, self.deletions_bytes_max);
        of_deletions + indexes.job_bytes
    }

    /// Returns whether commits with puts must wait for space.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire)
    }

    /// Returns the bytes that may be in memory, as indexes will hold them, when a commit with a put
    /// is numbered; 0 while the reserve is lent.
    pub(crate) fn covered_bytes(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Returns its files.
    pub(crate) fn files(&self) -> Vec<FileId> {
        self.files.lock().iter().map(|(file, _)| *file).collect()
    }

    /// Returns the bytes that it holds now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// Returns the error of a commit with a put while the reserve is lent.
pub(crate) fn refused() -> Error {
    Error::new(
        ErrorKind::NoSpace,
        "the medium is full: the reserve is in use, or too small for a flush of the memtables; \
         only deletions are accepted until there is space again",
    )
}
