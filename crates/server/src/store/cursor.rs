//! SCAN's cursors: where a scan goes on. Thread-safe.
//!
//! A cursor is a 64-bit number, and a key does not fit into one. So the server remembers the last [`CURSORS_MAX`] positions, and a cursor also
//! carries the first four bytes of its key: when its position is forgotten (or the server was restarted), the scan goes on there. It then returns some
//! keys twice, which SCAN may, and leaves none out, which it may not.
//!
//! Bits 0–23: tag, 1 to 2^24-1. Bits 24–55: the first four bytes of the key, big-endian. So a cursor is never 0 and stays below 2^56.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// Positions remembered at once, and the bytes of their keys.
const CURSORS_MAX: usize = 4096;
const CURSOR_BYTES_MAX: usize = 8 << 20;

const TAG_BITS: u32 = 24;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

#[derive(Default)]
struct Table {
    positions: HashMap<u64, (u32, Box<[u8]>), RandomState>,
    order: VecDeque<u64>,
    bytes: usize,
    last_tag: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Cursors(Mutex<Table>);

impl Cursors {
    /// A cursor for "after `key`" in `db`.
    pub(crate) fn create(&self, db: u32, key: &[u8]) -> u64 {
        let mut start = [0u8; 4];
        for (to, from) in start.iter_mut().zip(key) {
            *to = *from;
        }
        let mut table = self.0.lock();
        table.last_tag = table.last_tag % TAG_MASK + 1;
        let cursor = u64::from(u32::from_be_bytes(start)) << TAG_BITS | table.last_tag;
        table.positions.insert(cursor, (db, Box::from(key)));
        table.order.push_back(cursor);
        table.bytes += key.len();
        while table.order.len() > CURSORS_MAX || table.bytes > CURSOR_BYTES_MAX {
            let Some(oldest) = table.order.pop_front() else {
                break;
            };
            if let Some((_, key)) = table.positions.remove(&oldest) {
                table.bytes -= key.len();
            }
        }
        cursor
    }

    /// Where a scan of `db` goes on: the key, and whether it was returned already. Cursors nobody gave out have a position too.
    pub(crate) fn position(&self, db: u32, cursor: u64) -> (Vec<u8>, bool) {
        if cursor == 0 {
            return (Vec::new(), false);
        }
        let table = self.0.lock();
        if let Some((cursor_db, key)) = table.positions.get(&cursor)
            && *cursor_db == db
        {
            return (key.to_vec(), true);
        }
        let start = ((cursor >> TAG_BITS) & u64::from(u32::MAX)).to_be_bytes();
        // A key shorter than four bytes was padded with zeros; those are no part of the position.
        let mut start = start[4..].to_vec();
        while start.last() == Some(&0) {
            start.pop();
        }
        (start, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_cursors_go_on_behind_their_key() {
        let cursors = Cursors::default();
        let cursor = cursors.create(3, b"user:1");
        assert_ne!(cursor, 0);
        assert_eq!(cursors.position(3, cursor), (b"user:1".to_vec(), true));
        assert_eq!(cursors.position(0, 0), (Vec::new(), false));
    }

    #[test]
    fn forgotten_cursors_go_on_at_or_before_their_key() {
        let old = Cursors::default();
        let keys: [&[u8]; 6] = [
            b"",
            b"\0",
            b"a",
            b"ab\0\0",
            b"user:1",
            b"\xff\xff\xff\xff\xff",
        ];
        for key in keys {
            let cursor = old.create(0, key);
            assert_ne!(cursor, 0);
            let (start, returned) = Cursors::default().position(0, cursor);
            assert!(!returned && start.as_slice() <= key, "{key:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let cursors = Cursors::default();
        let key = vec![7; 60_000];
        for _ in 0..2 * CURSORS_MAX {
            cursors.create(0, &key);
        }
        let table = cursors.0.lock();
        assert!(table.bytes <= CURSOR_BYTES_MAX);
        assert_eq!(table.positions.len(), table.order.len());
        assert!(table.order.len() <= CURSORS_MAX);
    }
}
