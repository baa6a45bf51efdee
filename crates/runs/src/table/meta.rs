//! What is known of a table without reading it: the manifest holds this, and so does the table itself (its properties section).

use bytes::Bytes;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::{FileId, FileKind, SeqNum, key};

/// What the manifest records of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableMeta {
    /// Its file.
    pub id: FileId,
    /// Length of the file.
    pub bytes: u64,
    /// Where the key blocks end and what is read at open begins.
    pub tail_offset: u64,
    /// Key blocks.
    pub blocks: u32,
    /// Entries, tombstones included, range tombstones not.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Sum of the lengths of the values that entries point to.
    pub pointed_bytes: u64,
    /// First key with an entry; empty where there is no entry.
    pub smallest: Bytes,
    /// Last key with an entry (inclusive); empty where there is no entry.
    pub largest: Bytes,
    /// Everything the table says something about, range tombstones included: inclusive start, exclusive end (`None`: to the end).
    pub range: (Bytes, Option<Bytes>),
    /// Oldest sequence number of an entry or range tombstone.
    pub seqno_min: SeqNum,
    /// Newest sequence number of an entry or range tombstone.
    pub seqno_max: SeqNum,
}

impl TableMeta {
    /// Appends the encoded form: a varint length, then the fields in the order of `docs/format/table.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64 + self.smallest.len() * 2 + self.largest.len() * 2);
        for value in [
            self.id.number,
            self.bytes,
            self.tail_offset,
            u64::from(self.blocks),
            self.entries,
            self.tombstones,
            self.range_tombstones,
            self.pointed_bytes,
            self.seqno_min.0,
            self.seqno_max.0,
        ] {
            put_varint(&mut body, value);
        }
        put_bytes(&mut body, &self.smallest);
        put_bytes(&mut body, &self.largest);
        put_bytes(&mut body, &self.range.0);
        body.push(u8::from(self.range.1.is_some()));
        if let Some(end) = &self.range.1 {
            put_bytes(&mut body, end);
        }
        put_bytes(out, &body);
    }

    /// Reads the encoded form from the front of `reader`; `None` where there is none, or one that contradicts itself.
    #[must_use]
    pub fn decode(reader: &mut Reader<'_>) -> Option<TableMeta> {
        let mut body = Reader::new(reader.bytes()?);
        let meta = TableMeta {
            id: FileId::new(FileKind::Table, body.varint()?),
            bytes: body.varint()?,
            tail_offset: body.varint()?,
            blocks: body.varint32()?,
            entries: body.varint()?,
            tombstones: body.varint()?,
            range_tombstones: body.varint()?,
            pointed_bytes: body.varint()?,
            seqno_min: SeqNum(body.varint()?),
            seqno_max: SeqNum(body.varint()?),
            smallest: key_field(&mut body)?,
            largest: key_field(&mut body)?,
            range: (
                key_field(&mut body)?,
                match body.u8()? {
                    0 => None,
                    1 => Some(key_field(&mut body)?),
                    _ => return None,
                },
            ),
        };
        (body.is_empty() && meta.is_sound()).then_some(meta)
    }

    fn is_sound(&self) -> bool {
        let covers_entries = self.entries == 0
            || (self.range.0 <= self.smallest
                && self.range.1.as_ref().is_none_or(|end| self.largest < *end));
        self.smallest <= self.largest
            && covers_entries
            && self.tail_offset < self.bytes
            && self.tombstones <= self.entries
            && u64::from(self.blocks) <= self.entries
            && (self.blocks == 0) == (self.entries == 0)
            && self.seqno_min <= self.seqno_max
            && self.seqno_max <= SeqNum::MAX
    }
}

fn key_field(reader: &mut Reader<'_>) -> Option<Bytes> {
    // A successor of the longest key is one byte longer.
    let bytes = reader.bytes()?;
    (bytes.len() <= key::KEY_BYTES_MAX + 1).then(|| Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(start: &[u8], end: Option<&[u8]>) -> TableMeta {
        TableMeta {
            id: FileId::new(FileKind::Table, 300),
            bytes: 8192,
            tail_offset: 4096,
            blocks: 1,
            entries: 3,
            tombstones: 1,
            range_tombstones: 1,
            pointed_bytes: 77,
            smallest: Bytes::from_static(b"f"),
            largest: Bytes::from_static(b"m"),
            range: (
                Bytes::copy_from_slice(start),
                end.map(Bytes::copy_from_slice),
            ),
            seqno_min: SeqNum(3),
            seqno_max: SeqNum::MAX,
        }
    }

    #[test]
    fn meta_round_trips_and_every_cut_is_refused() {
        for meta in [meta(b"f", Some(b"m\0")), meta(b"", None)] {
            let mut out = Vec::new();
            meta.encode(&mut out);
            let mut reader = Reader::new(&out);
            assert_eq!(TableMeta::decode(&mut reader), Some(meta));
            assert!(reader.is_empty());
            for length in 0..out.len() {
                assert_eq!(TableMeta::decode(&mut Reader::new(&out[..length])), None);
            }
        }
    }
}
