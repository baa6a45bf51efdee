//! Items of a manifest edit and their encoding: a varint tag, then the item's fields
//! (`docs/format/manifest.md`). Decoding takes hostile bytes.

use super::FlushPoint;
use crate::options::KeyspaceOptions;
use crate::{Error, ErrorKind, Result};
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::{DbId, KeyspaceId, SegmentId, SeqNum};
use glintdb_log::Lsn;

/// One item of an edit.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    /// The first item of the first record. The rest of that record is the whole state.
    Snapshot {
        db: DbId,
    },
    NumbersReserved(u64),
    KeyspaceCreated {
        id: KeyspaceId,
        name: String,
        options: KeyspaceOptions,
    },
    KeyspaceDropped {
        id: KeyspaceId,
        seqno: SeqNum,
    },
    KeyspaceNext(KeyspaceId),
    /// The keyspace has these options from here on.
    KeyspaceOptions {
        id: KeyspaceId,
        options: KeyspaceOptions,
    },
    IndexEdit {
        keyspace: KeyspaceId,
        edit: Vec<u8>,
    },
    Liveness {
        keyspace: KeyspaceId,
        segment: SegmentId,
        bytes: i64,
    },
    FlushPoint(FlushPoint),
    /// The log before this place was durable when the item was written, so opening must find it.
    LogDurable(Lsn),
    /// The segment has no live value. Its file may be removed, though shadowed and hidden entries
    /// still point into it.
    SegmentRetired(SegmentId),
    /// The keyspace has this index from here on: these options and, as its first edit, this one.
    /// Its earlier edits are void.
    KeyspaceIndex {
        id: KeyspaceId,
        options: KeyspaceOptions,
        edit: Vec<u8>,
    },
    /// Size in bytes of the log's ring, where commits may be that no segment has; 0: there are
    /// none, for the database was closed or has no ring that survives the process.
    Ring(u64),
}

const SNAPSHOT: u64 = 1;
const NUMBERS_RESERVED: u64 = 2;
const KEYSPACE_CREATED: u64 = 3;
const KEYSPACE_DROPPED: u64 = 4;
const KEYSPACE_NEXT: u64 = 5;
const INDEX_EDIT: u64 = 6;
const LIVENESS: u64 = 7;
const FLUSH_POINT: u64 = 8;
const LOG_DURABLE: u64 = 9;
const KEYSPACE_OPTIONS: u64 = 10;
const SEGMENT_RETIRED: u64 = 11;
const RING: u64 = 12;
const KEYSPACE_INDEX: u64 = 13;

/// Encodes an edit.
pub(crate) fn encode_items(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        item.encode(&mut out);
    }
    out
}

impl Item {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Item::Snapshot { db } => {
                put_varint(out, SNAPSHOT);
                out.extend_from_slice(&db.0);
            }
            Item::NumbersReserved(up_to) => {
                put_varint(out, NUMBERS_RESERVED);
                put_varint(out, *up_to);
            }
            Item::KeyspaceCreated { id, name, options } => {
                put_varint(out, KEYSPACE_CREATED);
                put_varint(out, u64::from(id.0));
                put_bytes(out, name.as_bytes());
                options.encode(out);
            }
            Item::KeyspaceDropped { id, seqno } => {
                put_varint(out, KEYSPACE_DROPPED);
                put_varint(out, u64::from(id.0));
                put_varint(out, seqno.0);
            }
            Item::KeyspaceNext(next) => {
                put_varint(out, KEYSPACE_NEXT);
                put_varint(out, u64::from(next.0));
            }
            Item::KeyspaceOptions { id, options } => {
                put_varint(out, KEYSPACE_OPTIONS);
                put_varint(out, u64::from(id.0));
                options.encode(out);
            }
            Item::IndexEdit { keyspace, edit } => {
                put_varint(out, INDEX_EDIT);
                put_varint(out, u64::from(keyspace.0));
                put_bytes(out, edit);
            }
            Item::Liveness {
                keyspace,
                segment,
                bytes,
            } => {
                put_varint(out, LIVENESS);
                put_varint(out, u64::from(keyspace.0));
                put_varint(out, segment.0);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Item::FlushPoint(point) => {
                put_varint(out, FLUSH_POINT);
                put_varint(out, point.lsn.segment.0);
                put_varint(out, u64::from(point.lsn.offset));
                put_varint(out, point.seqno.0);
            }
            Item::LogDurable(lsn) => {
                put_varint(out, LOG_DURABLE);
                put_varint(out, lsn.segment.0);
                put_varint(out, u64::from(lsn.offset));
            }
            Item::SegmentRetired(segment) => {
                put_varint(out, SEGMENT_RETIRED);
                put_varint(out, segment.0);
            }
            Item::KeyspaceIndex { id, options, edit } => {
                put_varint(out, KEYSPACE_INDEX);
                put_varint(out, u64::from(id.0));
                options.encode(out);
                put_bytes(out, edit);
            }
            Item::Ring(bytes) => {
                put_varint(out, RING);
                put_varint(out, *bytes);
            }
        }
    }

    /// Reads one item. Returns `None` if the bytes are not an item, and an inner error if this
    /// build does not know the item.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Result<Item>> {
        let item = match reader.varint()? {
            SNAPSHOT => Item::Snapshot {
                db: DbId(reader.array()?),
            },
            NUMBERS_RESERVED => Item::NumbersReserved(reader.varint()?),
            KEYSPACE_CREATED => {
                let id = KeyspaceId(reader.varint32()?);
                let name = std::str::from_utf8(reader.bytes()?).ok()?.to_owned();
                match KeyspaceOptions::decode(reader)? {
                    Ok(options) => Item::KeyspaceCreated { id, name, options },
                    Err(error) => return Some(Err(error)),
                }
            }
            KEYSPACE_DROPPED => Item::KeyspaceDropped {
                id: KeyspaceId(reader.varint32()?),
                seqno: SeqNum(reader.varint()?),
            },
            KEYSPACE_NEXT => Item::KeyspaceNext(KeyspaceId(reader.varint32()?)),
            KEYSPACE_OPTIONS => {
                let id = KeyspaceId(reader.varint32()?);
                match KeyspaceOptions::decode(reader)? {
                    Ok(options) => Item::KeyspaceOptions { id, options },
                    Err(error) => return Some(Err(error)),
                }
            }
            INDEX_EDIT => Item::IndexEdit {
                keyspace: KeyspaceId(reader.varint32()?),
                edit: reader.bytes()?.to_vec(),
            },
            LIVENESS => Item::Liveness {
                keyspace: KeyspaceId(reader.varint32()?),
                segment: SegmentId(reader.varint()?),
                bytes: i64::from_le_bytes(reader.array()?),
            },
            FLUSH_POINT => Item::FlushPoint(FlushPoint {
                lsn: Lsn {
                    segment: SegmentId(reader.varint()?),
                    offset: reader.varint32()?,
                },
                seqno: SeqNum(reader.varint()?),
            }),
            LOG_DURABLE => Item::LogDurable(Lsn {
                segment: SegmentId(reader.varint()?),
                offset: reader.varint32()?,
            }),
            SEGMENT_RETIRED => Item::SegmentRetired(SegmentId(reader.varint()?)),
            RING => Item::Ring(reader.varint()?),
            KEYSPACE_INDEX => {
                let id = KeyspaceId(reader.varint32()?);
                let options = KeyspaceOptions::decode(reader)?;
                let edit = reader.bytes()?.to_vec();
                match options {
                    Ok(options) => Item::KeyspaceIndex { id, options, edit },
                    Err(error) => return Some(Err(error)),
                }
            }
            tag => {
                return Some(Err(Error::new(
                    ErrorKind::UnsupportedFormat,
                    format!("manifest item {tag} is not known to this build"),
                )));
            }
        };
        Some(Ok(item))
    }
}
