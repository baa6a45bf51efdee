//! LMDB, branch mdb.master, through crate `lmdb-master-sys` 0.2.6 (the C source that `heed` builds).
//!
//! The bindings themselves and not `heed`, because a read transaction that is reset and renewed keeps its place in the
//! reader table, which is how LMDB wants to be read, and `heed` has no call for it.
//!
//! Settings:
//! - `NORDAHEAD`: reads here are random, and read-ahead would fetch pages that nobody asked for;
//! - `NOTLS`, so that a transaction belongs to a handle and not to its thread;
//! - `Sync` commits with a sync of data and of the root; `Os` and `Buffered` with `NOSYNC`: written to the page cache,
//!   and so they survive a kill, but with nothing to order the kernel's writes, power loss can leave a tree that is
//!   torn: weaker than what the other engines promise there, and cheaper;
//! - a map of four times the data and 1 GiB: space that overwrites need while readers keep old pages;
//! - `-wmap` writes through the map (`WRITEMAP`) instead of copying dirty pages to the file.
//!
//! LMDB has no cache but the page cache: the memory budget means nothing to it, a limit for the page cache does.
//!
//! Readers keep their read transaction while nobody writes, renew it after each commit that they have not seen, and
//! give it up before they write themselves, so that no writer that waits for the lock keeps old pages from use.
//!
//! Invariants: 1. a handle is dropped before its environment (it borrows it); 2. what LMDB returns of a value is
//! shown before the transaction changes.

#![allow(unsafe_code, reason = "LMDB is a library of C")]

use std::ffi::{CStr, CString, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use glintdb_bench::{Durability, Handle, Result, Store};
use lmdb_master_sys as sys;

use super::Setup;

/// Handles that can read at a time.
const READERS_MAX: c_uint = 512;

pub(crate) struct Lmdb {
    env: *mut sys::MDB_env,
    dbi: sys::MDB_dbi,
    dir: PathBuf,
    write_map: bool,
    commits: AtomicU64,
}

// SAFETY: an environment may be used by all threads at once (LMDB locks writers); transactions and cursors, which may
// not, live in handles.
unsafe impl Send for Lmdb {}
// SAFETY: as above.
unsafe impl Sync for Lmdb {}

impl Lmdb {
    pub(crate) fn open(dir: &Path, setup: Setup, write_map: bool) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let map_bytes = (4 * setup.data_bytes + (1 << 30)).next_multiple_of(1 << 20);
        let mut flags = sys::MDB_NORDAHEAD | sys::MDB_NOTLS;
        if setup.durability != Durability::Sync {
            flags |= sys::MDB_NOSYNC;
        }
        if write_map {
            flags |= sys::MDB_WRITEMAP;
        }
        let mut env = ptr::null_mut();
        // SAFETY: `env` is a place for the handle.
        check(unsafe { sys::mdb_env_create(&raw mut env) })?;
        // From here on dropped, and so closed, also when something fails.
        let mut store = Self {
            env,
            dbi: 0,
            dir: dir.to_owned(),
            write_map,
            commits: AtomicU64::new(0),
        };
        // SAFETY: the environment was made above and is not open; the path is a C string that outlives the call.
        unsafe {
            check(sys::mdb_env_set_mapsize(env, map_bytes as usize))?;
            check(sys::mdb_env_set_maxreaders(env, READERS_MAX))?;
            check(sys::mdb_env_open(env, path.as_ptr(), flags, 0o644))?;
        }
        let mut dbi = 0;
        store.write(|txn| {
            // SAFETY: the transaction is open; no name means the main database, which is always there.
            check(unsafe { sys::mdb_dbi_open(txn, ptr::null(), 0, &raw mut dbi) })
        })?;
        store.dbi = dbi;
        Ok(store)
    }

    /// One write transaction around `change`.
    fn write(&self, mut change: impl FnMut(*mut sys::MDB_txn) -> Result<()>) -> Result<()> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open, `txn` a place for the handle.
        check(unsafe { sys::mdb_txn_begin(self.env, ptr::null_mut(), 0, &raw mut txn) })?;
        if let Err(error) = change(txn) {
            // SAFETY: the transaction began above and has not ended.
            unsafe { sys::mdb_txn_abort(txn) };
            return Err(error);
        }
        // SAFETY: as above; the call ends the transaction, also when it fails.
        check(unsafe { sys::mdb_txn_commit(txn) })?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn put(&self, txn: *mut sys::MDB_txn, key: &[u8], value: &[u8]) -> Result<()> {
        let (mut key, mut value) = (borrowed(key), borrowed(value));
        // SAFETY: the transaction is open; key and value outlive the call, which copies them.
        check(unsafe { sys::mdb_put(txn, self.dbi, &raw mut key, &raw mut value, 0) })
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // SAFETY: made by `open`, closed only here; handles borrow `self`, so no transaction is open.
        unsafe { sys::mdb_env_close(self.env) };
    }
}

impl Store for Lmdb {
    fn engine(&self) -> &str {
        if self.write_map { "lmdb-wmap" } else { "lmdb" }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(LmdbHandle::new(self)?))
    }

    /// LMDB works in the foreground alone; what is left is the kernel's part.
    fn settle(&self) -> Result<()> {
        // SAFETY: the environment is open.
        check(unsafe { sys::mdb_env_sync(self.env, 1) })
    }

    fn describe(&self) -> Option<String> {
        // SAFETY: both structures are plain numbers (and a pointer that is not followed), for which zeros are values.
        let (mut stat, mut info): (sys::MDB_stat, sys::MDB_envinfo) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the environment is open, and both are places for its figures.
        let got = unsafe {
            check(sys::mdb_env_stat(self.env, &raw mut stat))
                .and_then(|()| check(sys::mdb_env_info(self.env, &raw mut info)))
        };
        got.ok()?;
        Some(format!(
            "depth {}, pages: {} branch, {} leaf, {} overflow; {} of {} pages of the map used; {} records",
            stat.ms_depth,
            stat.ms_branch_pages,
            stat.ms_leaf_pages,
            stat.ms_overflow_pages,
            info.me_last_pgno + 1,
            info.me_mapsize / stat.ms_psize as usize,
            stat.ms_entries,
        ))
    }
}

struct LmdbHandle<'a> {
    store: &'a Lmdb,
    txn: *mut sys::MDB_txn,
    cursor: *mut sys::MDB_cursor,
    /// Whether `txn` sees a state; otherwise it is reset.
    open: bool,
    /// Commits before the state that `txn` sees.
    seen: u64,
}

impl<'a> LmdbHandle<'a> {
    fn new(store: &'a Lmdb) -> Result<Self> {
        let mut handle = Self {
            store,
            txn: ptr::null_mut(),
            cursor: ptr::null_mut(),
            open: true,
            seen: store.commits.load(Ordering::Acquire),
        };
        let (env, flags) = (store.env, sys::MDB_RDONLY);
        // SAFETY: the environment is open for as long as `store` is borrowed; both are places for handles.
        unsafe {
            check(sys::mdb_txn_begin(
                env,
                ptr::null_mut(),
                flags,
                &raw mut handle.txn,
            ))?;
            check(sys::mdb_cursor_open(
                handle.txn,
                store.dbi,
                &raw mut handle.cursor,
            ))?;
        }
        handle.give_up();
        Ok(handle)
    }

    /// Makes the read transaction see every commit so far.
    fn refresh(&mut self) -> Result<()> {
        let commits = self.store.commits.load(Ordering::Acquire);
        if self.open && self.seen == commits {
            return Ok(());
        }
        self.give_up();
        // SAFETY: the transaction is reset, and the cursor was opened in it.
        unsafe {
            check(sys::mdb_txn_renew(self.txn))?;
            self.open = true;
            check(sys::mdb_cursor_renew(self.txn, self.cursor))?;
        }
        self.seen = commits;
        Ok(())
    }

    /// Lets go of the state that the read transaction sees.
    fn give_up(&mut self) {
        if self.open {
            // SAFETY: the transaction is open and for reading.
            unsafe { sys::mdb_txn_reset(self.txn) };
            self.open = false;
        }
    }

    fn look_up(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        let (mut key, mut value) = (borrowed(key), empty());
        // SAFETY: callers have refreshed the transaction; the key outlives the call.
        let code = unsafe { sys::mdb_get(self.txn, self.store.dbi, &raw mut key, &raw mut value) };
        if code == sys::MDB_NOTFOUND {
            return Ok(None);
        }
        check(code)?;
        // SAFETY: LMDB found it, in a page of the map that stays as it is while the transaction is open; the slice
        // borrows `self`, which `refresh` and `give_up` need mutably.
        Ok(Some(unsafe { shown(&value) }))
    }
}

impl Drop for LmdbHandle<'_> {
    fn drop(&mut self) {
        // SAFETY: each was opened by `new` or is null where that failed; the cursor goes first.
        unsafe {
            if !self.cursor.is_null() {
                sys::mdb_cursor_close(self.cursor);
            }
            if !self.txn.is_null() {
                sys::mdb_txn_abort(self.txn);
            }
        }
    }
}

impl Handle for LmdbHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.give_up();
        self.store.write(|txn| self.store.put(txn, key, value))
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.give_up();
        self.store.write(|txn| {
            records
                .iter()
                .try_for_each(|(key, value)| self.store.put(txn, key, value))
        })
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.give_up();
        self.store.write(|txn| {
            let mut key = borrowed(key);
            // SAFETY: the transaction is open; the key outlives the call; without duplicates no value is asked for.
            let code = unsafe { sys::mdb_del(txn, self.store.dbi, &raw mut key, ptr::null_mut()) };
            if code == sys::MDB_NOTFOUND {
                Ok(())
            } else {
                check(code)
            }
        })
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.refresh()?;
        let value = self.look_up(key)?;
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    /// LMDB has no multi-get; one renewed snapshot serves all keys.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.refresh()?;
        for (i, key) in keys.iter().enumerate() {
            visit(i, self.look_up(key)?);
        }
        Ok(())
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        self.refresh()?;
        let (mut key, mut value) = (borrowed(from), empty());
        let mut found = 0;
        let mut step = sys::MDB_SET_RANGE;
        while found < limit {
            // SAFETY: the transaction is open and the cursor renewed in it; the key asked for outlives the call.
            let code =
                unsafe { sys::mdb_cursor_get(self.cursor, &raw mut key, &raw mut value, step) };
            if code == sys::MDB_NOTFOUND {
                break;
            }
            check(code)?;
            // SAFETY: LMDB found both, in a page of the map that stays as it is while the transaction is open.
            unsafe { visit(shown(&key), shown(&value)) };
            found += 1;
            step = sys::MDB_NEXT;
        }
        Ok(found)
    }
}

fn borrowed(bytes: &[u8]) -> sys::MDB_val {
    sys::MDB_val {
        mv_size: bytes.len(),
        // LMDB writes to no key or value that it is given.
        mv_data: bytes.as_ptr().cast_mut().cast(),
    }
}

fn empty() -> sys::MDB_val {
    borrowed(&[])
}

/// What LMDB points at.
///
/// # Safety
/// `value` must come from a successful call of LMDB, and its transaction stay open for `'a`.
unsafe fn shown<'a>(value: &sys::MDB_val) -> &'a [u8] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

fn check(code: c_int) -> Result<()> {
    if code == sys::MDB_SUCCESS {
        return Ok(());
    }
    // SAFETY: LMDB gives a static text for every code.
    let text = unsafe { CStr::from_ptr(sys::mdb_strerror(code)) };
    Err(format!("LMDB: {}", text.to_string_lossy()).into())
}
