//! A record: one version of one key, in the arena.
//!
//! ```text
//! OFFSET SIZE      FIELD
//! 0      8         older: next record of the same key, with a seqno not greater; null at the end
//! 8      8         seqno
//! 16     4         key length (low 24 bits), kind (2 bits), whether there is a history (highest bit)
//! 20     4         value length
//! 24     0 or 16   history: jump (an older record, or null), depth, padding
//! ..     key len   key
//! ..     value len value: the inline bytes, or an encoded `ValuePointer`
//! ```
//!
//! The records of a key form a chain, newest first. So that an old snapshot finds its version of a much overwritten key in
//! logarithmic time, records that were put in front of another one carry a history: every [`JUMP_EVERY`]th is a *jumper*; a jumper points
//! to another jumper far behind it (a skew-binary list: E. W. Myers, An applicative random-access stack, 1983), all others to the
//! nearest jumper behind them.
//!
//! Invariants:
//! 1. Everything but `older` is immutable from before the record is published (a Release store of its address) until the arena is
//!    dropped. Whoever got the address by an Acquire load may read it without locks.
//! 2. Along `older`, seqnos never increase. A jump leads to a record that lies behind in the same chain.

use std::mem::size_of;
use std::ptr::NonNull;

use crate::arena::Arena;
use crate::prefetch_line;
use glintdb_core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use glintdb_core::{EntryRef, SeqNum, ValuePointer};

#[repr(C)]
struct Header {
    older: AtomicPtr<Header>,
    seqno: SeqNum,
    lengths_and_kind: u32,
    value_len: u32,
}

#[repr(C)]
struct History {
    jump: AtomicPtr<Header>,
    /// How many records of the key had been newest before this one.
    depth: AtomicU32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const HISTORY_BYTES: usize = size_of::<History>();
const KEY_LEN_BITS: u32 = 24;
const KIND_INLINE: u32 = 0;
const KIND_POINTER: u32 = 1;
const KIND_TOMBSTONE: u32 = 2;
const KIND_MASK: u32 = 3;
const HAS_HISTORY_SHIFT: u32 = 31;
const JUMP_EVERY: u32 = 16;

/// Address of a published (or about to be published) record.
#[derive(Clone, Copy)]
pub(crate) struct Record(NonNull<Header>);

/// What a node stores in its atomics: the address of a record, or null.
pub(crate) type RawRecord = *mut u8;

impl Record {
    /// Writes a record into `arena`, with room for a history if it is going to be put in front of another one.
    pub(crate) fn create(
        arena: &Arena,
        key: &[u8],
        seqno: SeqNum,
        value: EntryRef<'_>,
        has_history: bool,
    ) -> Self {
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
        let key_offset = HEADER_BYTES + HISTORY_BYTES * usize::from(has_history);
        let at = arena.allocate_record(key_offset + key.len() + value.len());
        // SAFETY: the arena just gave these bytes to us alone, 8-aligned as `Header` and `History` need, and they hold header, history, key
        // and value; none of the sources can overlap memory nobody else has.
        unsafe {
            at.cast::<Header>().write(Header {
                older: AtomicPtr::new(std::ptr::null_mut()),
                seqno,
                lengths_and_kind: key_len
                    | kind << KEY_LEN_BITS
                    | u32::from(has_history) << HAS_HISTORY_SHIFT,
                value_len,
            });
            if has_history {
                at.add(HEADER_BYTES).cast::<History>().write(History {
                    jump: AtomicPtr::new(std::ptr::null_mut()),
                    depth: AtomicU32::new(0),
                });
            }
            let bytes = at.as_ptr().add(key_offset);
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

    fn key_len(self) -> usize {
        (self.header().lengths_and_kind & ((1 << KEY_LEN_BITS) - 1)) as usize
    }

    /// The key. The caller bounds `'a` by the life of the arena.
    pub(crate) fn key<'a>(self) -> &'a [u8] {
        // SAFETY: `create` wrote that many key bytes there, immutable since (invariant 1).
        unsafe { std::slice::from_raw_parts(self.key_start(), self.key_len()) }
    }

    /// The value. The caller bounds `'a` by the life of the arena.
    pub(crate) fn value<'a>(self) -> EntryRef<'a> {
        let value_len = self.header().value_len as usize;
        // SAFETY: `create` wrote `value_len` bytes after the key, immutable since (invariant 1).
        let bytes =
            unsafe { std::slice::from_raw_parts(self.key_start().add(self.key_len()), value_len) };
        match self.header().lengths_and_kind >> KEY_LEN_BITS & KIND_MASK {
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

    fn set_older(self, older: Option<Self>) {
        self.header().older.store(raw(older), Ordering::Release);
    }

    /// Puts this new record in front of `newest`, which is not newer. Only under the lock of the key's leaf, before it is published.
    pub(crate) fn put_in_front_of(self, newest: Self) {
        assert!(
            newest.seqno() <= self.seqno(),
            "sequence numbers never increase along a chain: {} in front of {}",
            self.seqno(),
            newest.seqno()
        );
        self.set_older(Some(newest));
        let Some(history) = self.history() else {
            // It was made before another thread put the key in. The count starts anew.
            return;
        };
        let depth = newest.depth() + 1;
        let nearest = if newest.is_jumper() {
            Some(newest)
        } else {
            newest.jump()
        };
        let jump = if depth.is_multiple_of(JUMP_EVERY) {
            nearest.map(Self::jump_over)
        } else {
            nearest
        };
        history.depth.store(depth, Ordering::Relaxed);
        history.jump.store(raw(jump), Ordering::Release);
    }

    /// Puts this new record behind the last record that is newer, of which `newest` is one. Only under the lock of the key's leaf.
    pub(crate) fn put_behind(self, newest: Self) {
        assert!(
            self.seqno() <= newest.seqno(),
            "sequence numbers never increase along a chain: {} behind {}",
            self.seqno(),
            newest.seqno()
        );
        let newer = newest.last_newer_than(self.seqno());
        self.set_older(newer.older());
        newer.set_older(Some(self));
    }

    /// The newest record of this chain with a seqno of at most `at`.
    #[inline]
    pub(crate) fn newest_at(self, at: SeqNum) -> Option<Self> {
        let mut record = self;
        // Not once: between the last record that is newer and the one behind it another newer one may have been put meanwhile.
        while record.seqno() > at {
            record = record.last_newer_than(at).older()?;
        }
        Some(record)
    }

    /// The last record of this chain with a seqno greater than `seqno`, as this one has.
    fn last_newer_than(self, seqno: SeqNum) -> Self {
        let mut record = self;
        loop {
            let further = match record.jump() {
                Some(far) if far.seqno() > seqno => Some(far),
                _ => record.older().filter(|next| next.seqno() > seqno),
            };
            match further {
                Some(further) => record = further,
                None => return record,
            }
        }
    }

    fn history(&self) -> Option<&History> {
        let has_history = self.header().lengths_and_kind >> HAS_HISTORY_SHIFT == 1;
        // SAFETY: where the flag says so, `create` wrote a history behind the header.
        has_history.then(|| unsafe {
            self.0
                .cast::<u8>()
                .add(HEADER_BYTES)
                .cast::<History>()
                .as_ref()
        })
    }

    fn depth(self) -> u32 {
        self.history()
            .map_or(0, |history| history.depth.load(Ordering::Relaxed))
    }

    fn jump(self) -> Option<Self> {
        NonNull::new(self.history()?.jump.load(Ordering::Acquire)).map(Self)
    }

    fn is_jumper(self) -> bool {
        let depth = self.depth();
        depth > 0 && depth.is_multiple_of(JUMP_EVERY)
    }

    /// Where the jumper that follows this one points: two jumps of equal width become one.
    fn jump_over(self) -> Self {
        let second = self.jump();
        let third = second.and_then(Self::jump);
        match (second, third) {
            (Some(second), Some(third))
                if self.depth().wrapping_sub(second.depth())
                    == second.depth().wrapping_sub(third.depth()) =>
            {
                third
            }
            _ => self,
        }
    }

    /// Asks for the lines of the header, the key and the value's start.
    #[inline]
    pub(crate) fn prefetch(self) {
        let at = self.0.as_ptr().cast::<u8>().cast_const();
        prefetch_line(at);
        prefetch_line(at.wrapping_add(64));
    }

    fn key_start(self) -> *const u8 {
        let history_bytes =
            (self.header().lengths_and_kind >> HAS_HISTORY_SHIFT) as usize * HISTORY_BYTES;
        // SAFETY: the key lies behind header and history in the same allocation (`create`).
        unsafe {
            self.0
                .as_ptr()
                .cast::<u8>()
                .add(HEADER_BYTES + history_bytes)
        }
    }
}

fn raw(record: Option<Record>) -> *mut Header {
    record.map_or(std::ptr::null_mut(), |record| record.0.as_ptr())
}
