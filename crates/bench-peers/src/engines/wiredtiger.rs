//! WiredTiger, Debian's libwiredtiger 3.2.1 (later versions are in no package of Debian's).
//!
//! Settings:
//! - B+tree, leaf pages of 8 KiB: the least bytes read for a record of 1 KiB (`leaf_page_max`; its default of 32 KiB is for scans
//!   and compression), no compression, as the others;
//! - the memory is its cache; it reads through the page cache too, which a limit leaves to it;
//! - log on: `Os` hands each commit to the kernel (`method=none`), `Sync` syncs it, `Buffered` leaves it in the log's buffer;
//! - a checkpoint each 30 s or 1 GB of log, as MongoDB has it nearly; 1 to 4 threads that evict.
//!
//! A single put or delete is a transaction of its own; a batch is one explicit transaction, done again where WiredTiger rolls it back.
//!
//! Invariants: 1. a handle's session is closed before the connection (the handle borrows the store); 2. what a cursor returns is shown
//! before the cursor moves or is reset; 3. cursors are reset after each call, so that nobody keeps old pages from being evicted.

#![allow(unsafe_code, reason = "WiredTiger is a library of C")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use glintdb_bench::{Durability, Handle, Result, Store};

use super::Setup;

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    missing_docs,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen"
)]
mod sys {
    include!(concat!(env!("OUT_DIR"), "/wiredtiger.rs"));
}

/// The one table.
const TABLE: &CStr = c"table:bench";

/// Calls a method of a connection, session or cursor: a pointer to a function in its own structure, which the library has filled.
macro_rules! call {
    ($object:expr, $method:ident $(, $argument:expr)*) => {
        match (*$object).$method {
            Some(method) => method($object $(, $argument)*),
            None => return Err(concat!("WiredTiger has no ", stringify!($method)).into()),
        }
    };
}

pub(crate) struct WiredTiger {
    connection: *mut sys::WT_CONNECTION,
    dir: PathBuf,
}

// SAFETY: a connection may be used by all threads at once; sessions and cursors, which may not, live in handles.
unsafe impl Send for WiredTiger {}
// SAFETY: as above.
unsafe impl Sync for WiredTiger {}

impl WiredTiger {
    pub(crate) fn open(dir: &Path, setup: Setup) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let home = CString::new(dir.as_os_str().as_bytes())?;
        let commits = match setup.durability {
            Durability::Buffered => "enabled=false",
            Durability::Os => "enabled=true,method=none",
            Durability::Sync => "enabled=true,method=fsync",
        };
        let config = CString::new(format!(
            "create,cache_size={},eviction=(threads_min=1,threads_max=4),session_max=1024,log=(enabled=true),\
             transaction_sync=({commits}),checkpoint=(wait=30,log_size=1GB)",
            setup.memory_bytes
        ))?;
        let mut connection = ptr::null_mut();
        // SAFETY: both are C strings that outlive the call, `connection` is a place for the handle; no handler of events means messages on standard error.
        check(unsafe {
            sys::wiredtiger_open(
                home.as_ptr(),
                ptr::null_mut(),
                config.as_ptr(),
                &raw mut connection,
            )
        })?;
        let store = Self {
            connection,
            dir: dir.to_owned(),
        };
        let session = Session::open(&store)?;
        let config = c"key_format=u,value_format=u,leaf_page_max=8KB";
        // SAFETY: the session is open; the strings outlive the call.
        check(unsafe { call!(session.0, create, TABLE.as_ptr(), config.as_ptr()) })?;
        drop(session);
        Ok(store)
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        // SAFETY: made by `open`, closed only here; handles borrow `self`, so no session of theirs is open.
        unsafe {
            if let Some(close) = (*self.connection).close {
                // A checkpoint is part of it; what it meets nobody can be told any more.
                close(self.connection, ptr::null());
            }
        }
    }
}

/// A session, with all cursors opened in it.
struct Session(*mut sys::WT_SESSION);

impl Session {
    fn open(store: &WiredTiger) -> Result<Session> {
        let mut session = ptr::null_mut();
        // SAFETY: the connection is open, `session` a place for the handle.
        check(unsafe {
            call!(
                store.connection,
                open_session,
                ptr::null_mut(),
                ptr::null(),
                &raw mut session
            )
        })?;
        Ok(Session(session))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: open, and closed only here; its cursors go with it.
        unsafe {
            if let Some(close) = (*self.0).close {
                close(self.0, ptr::null());
            }
        }
    }
}

impl Store for WiredTiger {
    fn engine(&self) -> &str {
        "wiredtiger"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        let session = Session::open(self)?;
        let mut cursor = ptr::null_mut();
        // SAFETY: the session is open, `cursor` a place for the handle.
        check(unsafe {
            call!(
                session.0,
                open_cursor,
                TABLE.as_ptr(),
                ptr::null_mut(),
                ptr::null(),
                &raw mut cursor
            )
        })?;
        Ok(Box::new(WiredTigerHandle {
            session,
            cursor,
            _store: self,
        }))
    }

    /// What memory holds goes to the tree's file.
    fn settle(&self) -> Result<()> {
        let session = Session::open(self)?;
        // SAFETY: the session is open.
        check(unsafe { call!(session.0, checkpoint, ptr::null()) })
    }

    fn describe(&self) -> Option<String> {
        // SAFETY: no place for the numbers is asked for; the text is static.
        let text = unsafe {
            CStr::from_ptr(sys::wiredtiger_version(
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            ))
        };
        Some(text.to_string_lossy().into_owned())
    }
}

struct WiredTigerHandle<'a> {
    session: Session,
    cursor: *mut sys::WT_CURSOR,
    _store: &'a WiredTiger,
}

impl WiredTigerHandle<'_> {
    fn set_key(&mut self, key: &[u8]) -> Result<()> {
        let mut item = borrowed(key);
        // SAFETY: the cursor is open, its keys are raw bytes, which the call takes as a `WT_ITEM`. The cursor keeps the pointer until the operation: callers do one before `key` goes.
        unsafe { call!(self.cursor, set_key, &raw mut item) };
        Ok(())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<c_int> {
        self.set_key(key)?;
        let mut item = borrowed(value);
        // SAFETY: as for the key; both outlive `insert`, which copies them.
        unsafe {
            call!(self.cursor, set_value, &raw mut item);
            Ok(call!(self.cursor, insert))
        }
    }

    /// Shows the value where the cursor stands.
    fn show(&mut self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut item = borrowed(&[]);
        // SAFETY: the cursor stands on a record, whose value stays as it is until the cursor moves.
        unsafe {
            check(call!(self.cursor, get_value, &raw mut item))?;
            visit(shown(&item));
        }
        Ok(())
    }

    fn look_up(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.set_key(key)?;
        // SAFETY: the cursor is open and its key set.
        let code = unsafe { call!(self.cursor, search) };
        if code == sys::WT_NOTFOUND {
            return Ok(false);
        }
        check(code)?;
        self.show(visit)?;
        self.reset()?;
        Ok(true)
    }

    fn reset(&mut self) -> Result<()> {
        // SAFETY: the cursor is open.
        check(unsafe { call!(self.cursor, reset) })
    }
}

impl Handle for WiredTigerHandle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        loop {
            let code = self.insert(key, value)?;
            self.reset()?;
            if code != sys::WT_ROLLBACK {
                return check(code);
            }
        }
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        'again: loop {
            // SAFETY: the session is open and has no transaction.
            check(unsafe { call!(self.session.0, begin_transaction, ptr::null()) })?;
            for (key, value) in records {
                let code = self.insert(key, value)?;
                if code != 0 {
                    // SAFETY: the transaction began above and has not ended.
                    check(unsafe { call!(self.session.0, rollback_transaction, ptr::null()) })?;
                    if code == sys::WT_ROLLBACK {
                        continue 'again;
                    }
                    return check(code);
                }
            }
            // SAFETY: as above; the call ends the transaction, also when it fails, and resets the cursor.
            return check(unsafe { call!(self.session.0, commit_transaction, ptr::null()) });
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        loop {
            self.set_key(key)?;
            // SAFETY: the cursor is open and its key set.
            let code = unsafe { call!(self.cursor, remove) };
            self.reset()?;
            match code {
                sys::WT_ROLLBACK => {}
                sys::WT_NOTFOUND => return Ok(()),
                code => return check(code),
            }
        }
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.look_up(key, visit)
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        self.set_key(from)?;
        let mut side = 0;
        // SAFETY: the cursor is open and its key set; `side` is a place for how the record it finds compares with the key.
        let mut code = unsafe { call!(self.cursor, search_near, &raw mut side) };
        if code == 0 && side < 0 {
            // SAFETY: the cursor stands on the record before `from`.
            code = unsafe { call!(self.cursor, next) };
        }
        let mut found = 0;
        while code == 0 && found < limit {
            let mut key = borrowed(&[]);
            // SAFETY: the cursor stands on a record, whose key stays as it is until the cursor moves; invariant 2.
            unsafe {
                check(call!(self.cursor, get_key, &raw mut key))?;
                let key = shown(&key);
                self.show(&mut |value| visit(key, value))?;
            }
            found += 1;
            if found < limit {
                // SAFETY: the cursor is open.
                code = unsafe { call!(self.cursor, next) };
            }
        }
        if code != sys::WT_NOTFOUND {
            check(code)?;
        }
        self.reset()?;
        Ok(found)
    }
}

fn borrowed(bytes: &[u8]) -> sys::WT_ITEM {
    // SAFETY: a structure of pointers and numbers, for which zeros are values.
    let mut item: sys::WT_ITEM = unsafe { std::mem::zeroed() };
    // WiredTiger writes to no key or value that it is given.
    item.data = bytes.as_ptr().cast();
    item.size = bytes.len();
    item
}

/// What WiredTiger points at.
///
/// # Safety
/// `item` must come from a cursor that stays where it is for `'a`.
unsafe fn shown<'a>(item: &sys::WT_ITEM) -> &'a [u8] {
    if item.size == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(item.data.cast(), item.size) }
}

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: WiredTiger gives a text for every code, which nobody changes before it is copied here.
    let text = unsafe { CStr::from_ptr(sys::wiredtiger_strerror(code).cast::<c_char>()) };
    Err(format!("WiredTiger: {}", text.to_string_lossy()).into())
}
