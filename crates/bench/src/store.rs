//! What a store must offer to be measured: [`Store`], and [`Handle`] for each thread.
//!
//! Thread safety: a [`Store`] is shared by all threads of a workload; each thread asks it for a
//! [`Handle`] of its own and never shares that.
//!
//! Invariants an adapter keeps:
//! 1. A write that returned is visible to every later read of every handle.
//! 2. Values are shown to a callback instead of returned, so that an engine that need not copy
//!    is not made to copy, and one that must copy pays for it inside the call.
//! 3. A handle writes at the durability that the store was opened with.

use std::path::Path;
use std::str::FromStr;

use crate::spread::Numbered;

/// Any error of an engine or of the harness.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Result of an engine or of the harness.
pub type Result<T> = std::result::Result<T, Error>;

/// What a commit survives. The levels are those of `glintdb::Durability`; adapters of other engines
/// map them to the nearest setting that gives at least as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing is promised until the next `Os` or `Sync` commit.
    Buffered,
    /// Survives a kill of the process: the bytes have reached the kernel.
    #[default]
    Os,
    /// Survives power loss.
    Sync,
}

impl Durability {
    /// The lower-case word that [`FromStr`] takes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Os => "os",
            Self::Sync => "sync",
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "buffered" => Ok(Self::Buffered),
            "os" => Ok(Self::Os),
            "sync" => Ok(Self::Sync),
            _ => Err(format!(
                "unknown durability `{text}`: expected buffered, os or sync"
            )),
        }
    }
}

/// Reads, writes and syncs that an engine has asked the operating system for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Io {
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of batches of reads.
    pub read_batches: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of syncs.
    pub syncs: u64,
    /// Time that threads have waited for reads, in microseconds. Threads that wait at the same time
    /// count apart.
    pub read_us: u64,
    /// Time that threads have waited for writes, in microseconds.
    pub write_us: u64,
    /// Time that threads have waited for syncs, in microseconds.
    pub sync_us: u64,
}

impl Io {
    /// What has been added since `before`.
    #[must_use]
    pub fn since(&self, before: &Io) -> Io {
        Io {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            read_batches: self.read_batches - before.read_batches,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            syncs: self.syncs - before.syncs,
            read_us: self.read_us - before.read_us,
            write_us: self.write_us - before.write_us,
            sync_us: self.sync_us - before.sync_us,
        }
    }
}

/// A store under measurement.
pub trait Store: Send + Sync {
    /// Name of the engine as shown in tables.
    fn engine(&self) -> &str;

    /// Directory whose disk use is the store's.
    fn dir(&self) -> &Path;

    /// A handle for the calling thread.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn handle(&self) -> Result<Box<dyn Handle + '_>>;

    /// A handle for the calling thread that spreads records over this many keyspaces, by the hash
    /// of their keys. An engine that has no keyspaces gets the number of the keyspace in front of
    /// each key.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn spread(&self, keyspaces: usize) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(Numbered::new(self.handle()?, keyspaces)))
    }

    /// Writes what is buffered in memory to its place on disk and returns when background work that
    /// follows from it (flush, compaction, checkpoint) is done: the bytes of a workload are counted
    /// after this.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn settle(&self) -> Result<()>;

    /// Rewrites everything into the form that is best to read; an engine that has no such thing does nothing.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    /// [`compact`](Self::compact), and puts values that lie apart from keys in the order of these, where the engine can.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn compact_values(&self) -> Result<()> {
        self.compact()
    }

    /// Bytes that the engine has handed to the operating system since it was opened, if it counts them.
    fn written_bytes(&self) -> Option<u64> {
        None
    }

    /// What the engine has read and written since it was opened, if it counts that.
    fn io(&self) -> Option<Io> {
        None
    }

    /// The engine's own account of itself, for `--verbose` and for puzzling rows.
    fn describe(&self) -> Option<String> {
        None
    }

    /// What each of its directories or units, and each class of data, was read and written, for
    /// `--json`.
    fn units(&self) -> Option<serde_json::Value> {
        None
    }
}

/// One thread's access to a [`Store`]. Every method fails with whatever the engine reports.
#[allow(
    clippy::missing_errors_doc,
    reason = "all methods share the sentence above"
)]
pub trait Handle {
    /// Writes one record.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes all records atomically, in one commit.
    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()>;

    /// Deletes one record; a missing one is no error.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Deletes the records in `[start, end)`: one by one, where the engine has no such operation.
    fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut from = start.to_vec();
        loop {
            let mut is_over = true;
            self.scan(&from, 16, &mut |key, _| {
                is_over = key >= end;
                if !is_over {
                    keys.push(key.to_vec());
                }
            })?;
            for key in &keys {
                self.delete(key)?;
            }
            match keys.pop() {
                Some(last) if !is_over => from = last,
                _ => return Ok(()),
            }
            keys.clear();
        }
    }

    /// Shows the value to `visit`, or returns `false` if there is none.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Looks all keys up as one request and calls `visit` once for each index into `keys`, in any order; one by one
    /// with [`get`](Self::get) where the engine knows no such request.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (i, key) in keys.iter().enumerate() {
            if !self.get(key, &mut |value| visit(i, Some(value)))? {
                visit(i, None);
            }
        }
        Ok(())
    }

    /// Shows up to `limit` records with keys at or after `from` in ascending order and returns how many.
    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize>;
}
