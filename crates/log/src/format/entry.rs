//! Entries of a commit frame (`docs/format/log.md`, "Entries").

use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::{KeyspaceId, ValuePointer};

const PUT_INLINE: u8 = 1;
const PUT_SEPARATED: u8 = 2;
const DELETE: u8 = 3;
const DELETE_RANGE: u8 = 4;
const DELETE_TO_END: u8 = 5;

/// The value of a put, as the log holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogValue<'a> {
    /// Beside its key.
    Inline(&'a [u8]),
    /// In the values section of the frame: separated.
    Pointer(ValuePointer),
}

/// What an entry does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogOp<'a> {
    /// Sets a key.
    Put {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: LogValue<'a>,
    },
    /// Deletes a key.
    Delete {
        /// Key.
        key: &'a [u8],
    },
    /// Deletes `[start, end)`.
    DeleteRange {
        /// First key deleted.
        start: &'a [u8],
        /// First key not deleted any more; `None`: to the end of the keyspace.
        end: Option<&'a [u8]>,
    },
}

impl LogOp<'_> {
    /// Whether it is a put whose value is stored apart from its key.
    #[must_use]
    pub fn is_separated(&self) -> bool {
        let LogOp::Put { value, .. } = self else {
            return false;
        };
        matches!(value, LogValue::Pointer(_))
    }
}

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEntry<'a> {
    /// Where.
    pub keyspace: KeyspaceId,
    /// What.
    pub op: LogOp<'a>,
}

pub(crate) fn encode_put_inline(out: &mut Vec<u8>, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
    begin(out, PUT_INLINE, keyspace, key);
    put_bytes(out, value);
}

pub(crate) fn encode_put_separated(
    out: &mut Vec<u8>,
    keyspace: KeyspaceId,
    key: &[u8],
    length: u32,
    checksum: u32,
) {
    begin(out, PUT_SEPARATED, keyspace, key);
    put_varint(out, u64::from(length));
    out.extend_from_slice(&checksum.to_le_bytes());
}

pub(crate) fn encode_delete(out: &mut Vec<u8>, keyspace: KeyspaceId, key: &[u8]) {
    begin(out, DELETE, keyspace, key);
}

pub(crate) fn encode_delete_range(
    out: &mut Vec<u8>,
    keyspace: KeyspaceId,
    start: &[u8],
    end: Option<&[u8]>,
) {
    match end {
        Some(end) => {
            begin(out, DELETE_RANGE, keyspace, start);
            put_bytes(out, end);
        }
        None => begin(out, DELETE_TO_END, keyspace, start),
    }
}

fn begin(out: &mut Vec<u8>, kind: u8, keyspace: KeyspaceId, key: &[u8]) {
    out.push(kind);
    put_varint(out, u64::from(keyspace.0));
    put_bytes(out, key);
}

/// Reads the entries of a metadata section one by one; the values of separated entries lie one behind the other from `values` on. Ends, with [`failed`](Self::failed)
/// set, at the first bytes that are no entry.
#[derive(Clone, Debug)]
pub struct EntryReader<'a> {
    reader: Reader<'a>,
    values: ValuePointer,
    failed: bool,
}

impl<'a> EntryReader<'a> {
    /// Reads `meta`; `values` is where the values section begins (its length and checksum are not looked at).
    #[must_use]
    pub fn new(meta: &'a [u8], values: ValuePointer) -> Self {
        EntryReader {
            reader: Reader::new(meta),
            values,
            failed: false,
        }
    }

    /// Whether the last `None` was because of bytes that are no entry.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Bytes of metadata not read yet.
    pub(crate) fn rest_bytes(&self) -> usize {
        self.reader.rest().len()
    }

    /// Offset in the file behind the last separated value read.
    #[must_use]
    pub fn values_end(&self) -> u32 {
        self.values.offset
    }

    fn entry(&mut self) -> Option<LogEntry<'a>> {
        let kind = self.reader.u8()?;
        let keyspace = KeyspaceId(self.reader.varint32()?);
        let key = self.reader.bytes()?;
        let op = match kind {
            PUT_INLINE => LogOp::Put {
                key,
                value: LogValue::Inline(self.reader.bytes()?),
            },
            PUT_SEPARATED => {
                let length = self.reader.varint32()?;
                let checksum = self.reader.u32()?;
                let pointer = ValuePointer {
                    length,
                    checksum,
                    ..self.values
                };
                self.values.offset = self.values.offset.checked_add(length)?;
                LogOp::Put {
                    key,
                    value: LogValue::Pointer(pointer),
                }
            }
            DELETE => LogOp::Delete { key },
            DELETE_RANGE => LogOp::DeleteRange {
                start: key,
                end: Some(self.reader.bytes()?),
            },
            DELETE_TO_END => LogOp::DeleteRange {
                start: key,
                end: None,
            },
            _ => return None,
        };
        Some(LogEntry { keyspace, op })
    }
}

impl<'a> Iterator for EntryReader<'a> {
    type Item = LogEntry<'a>;

    fn next(&mut self) -> Option<LogEntry<'a>> {
        if self.failed || self.reader.is_empty() {
            return None;
        }
        let entry = self.entry();
        self.failed = entry.is_none();
        entry
    }
}
