//! A record: one version of one key, in the arena.
//!
//! ```text
//! OFFSET SIZE      FIELD
//! 0      8         older: next record of the same key, with a seqno not greater; null at the end
//! 8      8         seqno
//! 16     4         key length (low 24 bits), kind (high 8 bits)
//! 20     4         value length
//! 24     key len   key
//! ..     value len value: the inline bytes, or a pointer as segment u64, offset u32, length u32, checksum u32
//! ```
//!
//! Invariants:
//! 1. Everything but `older` is immutable from before the record is published (a Release store of its address) until the arena is
//!    dropped. Whoever got the address by an Acquire load may read it without locks.
//! 2. Along `older`, seqnos never increase.

use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::arena::Arena;
use crate::prefetch_line;
use glintdb_core::{EntryRef, SeqNum, ValuePointer};

#[repr(C)]
struct Header {
    older: AtomicPtr<Header>,
    seqno: SeqNum,
    key_len_and_kind: u32,
    value_len: u32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const KEY_LEN_BITS: u32 = 24;
const KIND_INLINE: u32 = 0;
const KIND_POINTER: u32 = 1;
const KIND_TOMBSTONE: u32 = 2;

/// Address of a published (or about to be published) record. `'a` is the life of the arena that holds it.
#[derive(Clone, Copy)]
pub(crate) struct Record(NonNull<Header>);

/// What a node stores in its atomics: the address of a record, or null.
pub(crate) type RawRecord = *mut u8;

impl Record {
    /// Writes a record into `arena`.
    pub(crate) fn create(arena: &Arena, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Self {
        let pointer_bytes;
        let (kind, value) = match value {
            EntryRef::Inline(bytes) => (KIND_INLINE, bytes),
            EntryRef::Pointer(pointer) => {
                pointer_bytes = pointer.encode();
                (KIND_POINTER, &pointer_bytes[..])
            }
            EntryRef::Tombstone => (KIND_TOMBSTONE, &[][..]),
        };
        assert!(
            key.len() >> KEY_LEN_BITS == 0,
            "a key is shorter than 16 MiB"
        );
        let (Ok(key_len), Ok(value_len)) = (u32::try_from(key.len()), u32::try_from(value.len()))
        else {
            panic!("an inline value is shorter than 4 GiB");
        };
        let at = arena.allocate_record(HEADER_BYTES + key.len() + value.len());
        // SAFETY: the arena just gave these bytes to us alone, 8-aligned as `Header` needs, and they hold header, key and value; none
        // of the sources can overlap memory nobody else has.
        unsafe {
            at.cast::<Header>().write(Header {
                older: AtomicPtr::new(std::ptr::null_mut()),
                seqno,
                key_len_and_kind: key_len | kind << KEY_LEN_BITS,
                value_len,
            });
            let bytes = at.as_ptr().add(HEADER_BYTES);
            bytes.copy_from_nonoverlapping(key.as_ptr(), key.len());
            bytes
                .add(key.len())
                .copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
        Self(at.cast())
    }

    /// # Safety
    /// `raw` is null or was made by [`Record::into_raw`], was read with Acquire, and its arena outlives every use of the result.
    pub(crate) unsafe fn from_raw(raw: RawRecord) -> Option<Self> {
        NonNull::new(raw.cast()).map(Self)
    }

    pub(crate) fn into_raw(self) -> RawRecord {
        self.0.as_ptr().cast()
    }

    fn header(&self) -> &Header {
        // SAFETY: invariant 1; `Record` exists only for initialised records whose arena lives (contract of `from_raw`).
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn seqno(self) -> SeqNum {
        self.header().seqno
    }

    /// The key. The caller bounds `'a` by the life of the arena.
    pub(crate) fn key<'a>(self) -> &'a [u8] {
        let len = (self.header().key_len_and_kind & ((1 << KEY_LEN_BITS) - 1)) as usize;
        // SAFETY: `create` wrote `len` key bytes after the header, immutable since (invariant 1).
        unsafe { std::slice::from_raw_parts(self.bytes(), len) }
    }

    /// The value. The caller bounds `'a` by the life of the arena.
    pub(crate) fn value<'a>(self) -> EntryRef<'a> {
        let header = self.header();
        let key_len = (header.key_len_and_kind & ((1 << KEY_LEN_BITS) - 1)) as usize;
        // SAFETY: `create` wrote `value_len` bytes after the key, immutable since (invariant 1).
        let bytes = unsafe {
            std::slice::from_raw_parts(self.bytes().add(key_len), header.value_len as usize)
        };
        match header.key_len_and_kind >> KEY_LEN_BITS {
            KIND_INLINE => EntryRef::Inline(bytes),
            KIND_POINTER => match ValuePointer::decode(bytes) {
                Some(pointer) => EntryRef::Pointer(pointer),
                None => unreachable!("`create` wrote an encoded pointer"),
            },
            _ => EntryRef::Tombstone,
        }
    }

    pub(crate) fn older(self) -> Option<Self> {
        NonNull::new(self.header().older.load(Ordering::Acquire)).map(Self)
    }

    /// Hangs `older` behind this record. Only under the lock of the leaf that holds the key.
    pub(crate) fn set_older(self, older: Option<Self>) {
        let raw = older.map_or(std::ptr::null_mut(), |older| older.0.as_ptr());
        self.header().older.store(raw, Ordering::Release);
    }

    /// The newest record of this chain with a seqno of at most `at`.
    pub(crate) fn newest_at(self, at: SeqNum) -> Option<Self> {
        let mut record = self;
        while record.seqno() > at {
            record = record.older()?;
        }
        Some(record)
    }

    /// Asks for the lines of the header, the key and the value's start.
    #[inline]
    pub(crate) fn prefetch(self) {
        let at = self.0.as_ptr().cast::<u8>().cast_const();
        prefetch_line(at);
        prefetch_line(at.wrapping_add(64));
    }

    fn bytes(self) -> *const u8 {
        // SAFETY: key and value lie behind the header in the same allocation (`create`).
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES) }
    }
}
